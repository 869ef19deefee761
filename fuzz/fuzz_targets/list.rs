//! Lists: any bytes are read to their end, however they arrive, and nothing that is said of them shows a password.
//!
//! The input is a letter for how a password is written ([`with_secret`]), what else is inside of it up to a line end, and a
//! list, in front of which and behind which that line is put. The whole input is also taken as a list.
#![no_main]

use std::io::{self, BufReader, Read};

use evenkeel::list::{Line, List, Outcome, Protocol, Report};
use evenkeel::member::Member;
use evenkeel_fuzz::Cuts;
use libfuzzer_sys::fuzz_target;

/// A password begins and ends with these; neither may be seen, as half a password is one too.
const MARKS: [&str; 2] = ["s3KRx", "xCR3t"];

fuzz_target!(|bytes: &[u8]| {
    let lines = read(bytes, None).len();
    let pieces = Pieces(Cuts::of(bytes).pieces(bytes));
    // What comes of gzip before it breaks is for its reader to say.
    if !bytes.starts_with(b"\x1f\x8b") {
        assert_eq!(read(pieces, None).len(), lines, "how it arrives makes no difference");
    }
    read(bytes, Some(Protocol::Socks5h));

    let (&form, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let mut halves = rest.splitn(2, |&b| b == b'\n');
    let inside = clean(halves.next().unwrap_or_default());
    let list = clean(halves.next().unwrap_or_default());
    let Some(line) = with_secret(form, &inside) else { return };
    for line in read(&line[..], None) {
        hides(&line, &format!("{line} {line:?}"));
    }
    // What stands around it may make anything of it, a host for example. But of what is skipped nothing is shown.
    for list in [[&line[..], b"\n", &list].concat(), [&list[..], b"\n", &line].concat()] {
        for line in read(&list[..], None).iter().filter(|line| !matches!(line.outcome, Outcome::Taken(_))) {
            hides(line, &line.to_string());
        }
    }
});

/// Reads a list to its end and checks what holds for any.
fn read(input: impl Read, scheme: Option<Protocol>) -> Vec<Line> {
    let mut report = Report::new("list", true);
    let lines: Vec<Line> = List::new(BufReader::new(input), scheme).map_while(Result::ok).collect();
    for line in &lines {
        let said = report.note(line).unwrap_or_default();
        assert!(!said.contains(char::is_control), "{said:?}");
        if let Outcome::Taken(listed) = &line.outcome {
            let again = Member::parse(listed.member.name()).expect("what is taken is a member");
            assert_eq!(again.id(), listed.member.id());
            assert!(scheme.is_none() || listed.member.name().windows(3).any(|part| part == b"://"));
        }
    }
    assert_eq!(report.taken() + report.repeated() + report.skipped(), lines.len() as u64);
    lines
}

fn hides(line: &Line, shown: &str) {
    assert!(!MARKS.iter().any(|mark| shown.contains(mark)), "{shown}: {line:?}");
}

/// The marks must come from the secret alone.
fn clean(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    text.retain(|b| !b"KR".contains(b));
    text
}

/// A line with a password in the place that `form` says. What could end the password in that form is left out of it.
fn with_secret(form: u8, inside: &[u8]) -> Option<Vec<u8>> {
    let without = |ends: &[u8]| -> String {
        let inside = inside.iter().filter(|b| b.is_ascii_graphic() && !ends.contains(b)).map(|&b| char::from(b));
        format!("{}{}{}", MARKS[0], inside.collect::<String>(), MARKS[1])
    };
    let between = b"\t;,|\"'";
    let line = match form {
        b'a' => format!("http://user:{}@10.0.0.7:80", without(b"@/?#|")),
        b'b' => format!("user:{}@10.0.0.7:80", without(b"@/?#|;,\"'")),
        b'c' => format!("10.0.0.7:80:user:{}", without(between)),
        b'd' => format!("user:{}:10.0.0.7:80", without(b"\t;,|\"':@/")),
        b'e' => format!("10.0.0.7:80@user:{}", without(b"\t;,|\"'@:")),
        b'f' => format!("10.0.0.7,80,user,{}", without(between)),
        b'g' => format!("socks5 10.0.0.7 80 user {}", without(between)),
        b'h' => format!("ip,port,user,password\n10.0.0.7,80,user,\"{}\"", without(b"\"")),
        b'i' => {
            let password = serde_json::Value::from(without(b""));
            format!("{{\"ip\": \"10.0.0.7\", \"port\": 80, \"username\": \"user\", \"password\": {password}}}")
        }
        b'j' => format!("socks5h://10.0.0.7:80:user:{}", without(b"\t;,|\"'@/?#")),
        // Without a port, with a bad one, with no host.
        b'k' => format!("10.0.0.7:99999:user:{}", without(b"")),
        b'l' => format!("user:{}@10.0.0.7", without(b"@:")),
        b'm' => format!("user:{}", without(b"@:")),
        b'n' => format!("10.0.0.7 99999 user {}", without(between)),
        _ => return None,
    };
    Some(line.into_bytes())
}

/// An input that arrives in pieces.
struct Pieces<'a>(Vec<&'a [u8]>);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.0.first_mut() else { return Ok(0) };
        let n = piece.read(out)?;
        if piece.is_empty() {
            self.0.remove(0);
        }
        Ok(n)
    }
}
