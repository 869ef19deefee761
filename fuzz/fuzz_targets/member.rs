//! Members: parsing never panics, and nothing that is shown of one holds its password.
//!
//! The input is lines: a letter for where the secret stands ([`member`]), a scheme, a user name, what is inside the
//! secret, a host, a port. The whole input is also taken as a member.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use evenkeel::internals;
use evenkeel::member::{self, Member, Name};
use evenkeel_fuzz::is_token;
use libfuzzer_sys::fuzz_target;

/// A secret begins and ends with these; neither may be seen, as half a password is a secret too.
const MARKS: [&str; 2] = ["s3KRx", "xCR3t"];

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut lines = bytes.split(|&b| b == b'\n').map(clean);
    let mut next = || lines.next().unwrap_or_default();
    let (form, scheme, user, inside, host, port) = (next(), next(), next(), next(), next(), next());
    let secret = [MARKS[0].as_bytes(), &inside, MARKS[1].as_bytes()].concat();
    let Some(name) = member(form.first().copied(), &scheme, &user, &secret, &host, &port) else { return };
    for text in check(&name) {
        for mark in MARKS {
            assert!(!text.contains(mark), "{text} shows a secret of {}", name.escape_ascii());
        }
    }
});

/// The marks must come from the secret alone.
fn clean(line: &[u8]) -> Vec<u8> {
    let mut text = line.to_vec();
    text.retain(|b| !b"KR".contains(b));
    text
}

/// A member with `secret` in the place that `form` says.
///
/// With an @ behind it, it may hold anything: only the last @ counts. Without, an @, / ? or # would make
/// of it another member, whose secret is elsewhere.
fn member(form: Option<u8>, scheme: &[u8], user: &[u8], secret: &[u8], host: &[u8], port: &[u8]) -> Option<Vec<u8>> {
    let is_bare = |text: &[u8]| !text.iter().any(|b| b"@/?#".contains(b));
    let is_url = is_bare(host) && is_bare(port) && !user.iter().any(|b| b"@:".contains(b)) && is_scheme(scheme);
    let is_list = is_url && is_bare(secret) && is_bare(user) && !host.contains(&b':');
    let url = |rest: &[&[u8]]| Some([scheme, b"://", &rest.concat()].concat());
    match form? {
        b'a' if is_url => url(&[user, b":", secret, b"@", host, b":", port]),
        b'b' if is_url => Some([user, b":", secret, b"@", host, b":", port].concat()),
        // An API key that is all there is.
        b'c' if is_url && !secret.contains(&b':') => url(&[secret, b"@", host, b":", port]),
        b'd' if is_url && !secret.contains(&b':') => Some([secret, b"@", host, b":", port].concat()),
        // As lists are sold.
        b'e' if is_list => Some([host, b":", port, b":", user, b":", secret].concat()),
        b'f' if is_list => url(&[host, b":", port, b":", user, b":", secret]),
        b'g' if is_list => Some([b"[2001:db8::1]:", port, b":", user, b":", secret].concat()),
        b'h' if is_list => Some([user, b":", secret, b":", host, b":", port].concat()),
        b'i' if is_list => Some([host, b":", port, b"@", user, b":", secret].concat()),
        // Without the host.
        b'j' if is_list => url(&[user, b":", secret]),
        b'k' if is_list => Some([user, b":", secret].concat()),
        _ => None,
    }
}

fn is_scheme(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
}

/// Everything of a member that may be printed.
fn check(bytes: &[u8]) -> Vec<String> {
    let name = Name::copy_from_slice(bytes);
    let mut shown = vec![member::masked(bytes)];
    match Member::parse(&name) {
        Ok(parsed) => {
            assert_eq!(parsed.name(), &name, "a member is kept byte for byte");
            assert!(bytes.iter().all(u8::is_ascii_graphic));
            assert!(parsed.id().len() == 11 && is_token(parsed.id().as_bytes()), "{}", parsed.id());
            assert_eq!(parsed.masked(), shown[0]);
            shown.extend([format!("{parsed:?}"), parsed.id().to_owned()]);
            if let Some((host, port)) = internals::place(&parsed) {
                assert!(port > 0);
                check_authorization(&parsed);
                // Where it leads and who it is do not depend on the spelling.
                let plain = format!("http://{host}:{port}");
                let again = Member::parse(&Name::from(plain.clone())).expect("an address can be read");
                assert_eq!(internals::place(&again), Some((host, port)));
                if internals::proxy_authorization(&parsed).is_none() {
                    assert_eq!(again.id(), parsed.id());
                }
                shown.push(plain);
            }
        }
        Err(why) => shown.extend([why.to_string(), format!("{why:?}")]),
    }
    // Escapes, and the mark of what was cut off.
    assert!(shown[0].chars().all(|c| c == ' ' || c == '…' || c.is_ascii_graphic()) && shown[0].len() < 2000);
    shown
}

/// What is sent decodes to the credentials in the name, and is never printed.
fn check_authorization(parsed: &Member) {
    let text = std::str::from_utf8(parsed.name()).unwrap();
    let credentials =
        text.rsplit_once('@').map(|(before, _)| before.split_once("://").map_or(before, |(_, rest)| rest));
    let Some(value) = internals::proxy_authorization(parsed) else {
        assert_eq!(credentials, None);
        return;
    };
    assert!(value.is_sensitive());
    let sent = STANDARD.decode(value.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
    let (user, password) = credentials.unwrap().split_once(':').unwrap_or((credentials.unwrap(), ""));
    assert_eq!(sent, [&decoded(user)[..], b":", &decoded(password)].concat());
}

fn decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).expect("a whole escape"));
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    out
}
