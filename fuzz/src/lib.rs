//! A second reader of HTTP/1.1, for comparison: RFC 9112 line by line, over whole messages, as slowly as it likes.
//!
//! It shares nothing with the gateway, httparse or hyper. Where it and they disagree about the end of a message, a
//! request could be smuggled.

use std::str::from_utf8;

/// What ends a line (RFC 9112 §2.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lines {
    /// CRLF and nothing else; nothing before the first line. What a careful sender writes.
    Strict,
    /// A lone LF as well, and empty lines in front. What a recipient may take.
    Lenient,
}

/// What bytes hold of something.
#[derive(Clone, Debug, PartialEq)]
pub enum Read<T> {
    /// Not all of it.
    Partial,
    /// It cannot become one.
    Broken,
    /// All of it.
    Whole(T),
}

impl<T> Read<T> {
    /// All of it, or nothing.
    pub fn whole(self) -> Option<T> {
        if let Self::Whole(it) = self { Some(it) } else { None }
    }
}

/// The lines of a head, or of a trailer section.
#[derive(Clone, Debug, PartialEq)]
pub struct Head<'a> {
    /// The first line of a head; empty in a trailer section.
    pub line: &'a [u8],
    /// Names as they are, values without the blanks around them.
    pub fields: Vec<(&'a str, &'a [u8])>,
    /// Up to and including the empty line.
    pub length: usize,
}

impl<'a> Head<'a> {
    /// Reads a head off the front of `bytes`.
    pub fn read(bytes: &'a [u8], lines: Lines) -> Read<Self> {
        let mut at = 0;
        loop {
            match line(bytes, &mut at, lines) {
                Read::Whole(b"") if lines == Lines::Lenient => {}
                Read::Whole(b"") | Read::Broken => return Read::Broken,
                Read::Whole(first) => return fields(bytes, at, first, lines),
                Read::Partial => return Read::Partial,
            }
        }
    }

    /// Reads a trailer section off the front of `bytes`.
    pub fn read_trailers(bytes: &'a [u8]) -> Read<Self> {
        fields(bytes, 0, b"", Lines::Strict)
    }

    /// All values of a field.
    pub fn values(&self, name: &str) -> Vec<&'a [u8]> {
        self.fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|&(_, value)| value).collect()
    }

    /// Whether a `Connection` line names `option`.
    pub fn connection_names(&self, option: &str) -> bool {
        let lists = self.values("connection");
        let mut options = lists.iter().flat_map(|list| list.split(|&b| b == b','));
        options.any(|named| named.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
    }

    /// Method, target and minor version of a request (RFC 9112 §3).
    pub fn request(&self) -> Option<(&'a str, &'a str, u8)> {
        let mut words = from_utf8(self.line).ok()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let fits = is_token(method.as_bytes()) && !target.is_empty() && words.next().is_none();
        fits.then_some((method, target, minor(version.as_bytes())?))
    }

    /// Minor version, status and reason of a response (RFC 9112 §4).
    pub fn response(&self) -> Option<(u8, u16, &'a [u8])> {
        let (version, rest) = self.line.split_at_checked(8)?;
        let (digits, reason) = rest.strip_prefix(b" ")?.split_at_checked(3)?;
        let fits = digits.iter().all(u8::is_ascii_digit) && matches!(reason, [] | [b' ', ..]);
        let status = from_utf8(digits).ok().filter(|_| fits)?.parse().ok()?;
        Some((minor(version)?, status, reason.get(1..).unwrap_or_default()))
    }
}

fn minor(version: &[u8]) -> Option<u8> {
    match version {
        b"HTTP/1.0" => Some(0),
        b"HTTP/1.1" => Some(1),
        _ => None,
    }
}

/// The next line without its end. A line holds no control character but a tab.
fn line<'a>(bytes: &'a [u8], at: &mut usize, lines: Lines) -> Read<&'a [u8]> {
    let rest = &bytes[*at..];
    let end = rest.iter().position(|&b| b == b'\n');
    let text = &rest[..end.unwrap_or(rest.len())];
    let (text, has_cr) = text.strip_suffix(b"\r").map_or((text, false), |text| (text, true));
    if text.iter().any(|&b| b != b'\t' && (b < b' ' || b == 0x7f))
        || (end.is_some() && !has_cr && lines == Lines::Strict)
    {
        return Read::Broken;
    }
    let Some(end) = end else { return Read::Partial };
    *at += end + 1;
    Read::Whole(text)
}

fn fields<'a>(bytes: &'a [u8], mut at: usize, first: &'a [u8], lines: Lines) -> Read<Head<'a>> {
    let mut fields = Vec::new();
    loop {
        let text = match line(bytes, &mut at, lines) {
            Read::Whole(b"") => return Read::Whole(Head { line: first, fields, length: at }),
            Read::Whole(text) => text,
            Read::Partial => return Read::Partial,
            Read::Broken => return Read::Broken,
        };
        // No blank before the colon, no line folded onto the next (RFC 9112 §5.1, §5.2).
        let Some(colon) = text.iter().position(|&b| b == b':') else { return Read::Broken };
        let Some(name) = from_utf8(&text[..colon]).ok().filter(|name| is_token(name.as_bytes())) else {
            return Read::Broken;
        };
        fields.push((name, text[colon + 1..].trim_ascii()));
    }
}

/// RFC 9110 §5.6.2.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

/// A chunked body (RFC 9112 §7.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Chunks<'a> {
    /// What the chunks hold.
    pub data: Vec<u8>,
    /// The chunks with their size lines, up to the trailer section: no blanks behind a size, and one zero at most in front.
    pub clean: Vec<u8>,
    /// The longest of those lines, as it came, without its end.
    pub longest_line: usize,
    /// The trailer section.
    pub trailers: Head<'a>,
    /// Up to and including the last empty line.
    pub length: usize,
}

impl<'a> Chunks<'a> {
    /// Reads a chunked body off the front of `bytes`. Every line of it ends in CRLF.
    pub fn read(bytes: &'a [u8]) -> Read<Self> {
        let (mut at, mut longest_line) = (0, 0);
        let (mut data, mut clean) = (Vec::new(), Vec::new());
        loop {
            let size_line = match line(bytes, &mut at, Lines::Strict) {
                Read::Whole(text) => text,
                Read::Partial => return Read::Partial,
                Read::Broken => return Read::Broken,
            };
            longest_line = longest_line.max(size_line.len());
            let (size, extension) =
                size_line.split_at(size_line.iter().position(|&b| b == b';').unwrap_or(size_line.len()));
            let digits = from_utf8(size).unwrap_or_default().trim_end_matches([' ', '\t']);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Read::Broken;
            }
            let significant = digits.trim_start_matches('0');
            let zero = if significant.len() < digits.len() { "0" } else { "" };
            clean.extend_from_slice(&[zero.as_bytes(), significant.as_bytes(), extension, b"\r\n"].concat());
            match u64::from_str_radix(digits, 16) {
                Err(_) => return Read::Broken,
                Ok(0) => break,
                Ok(size) if size > (bytes.len() - at) as u64 => return Read::Partial,
                Ok(size) => {
                    let chunk = &bytes[at..at + size as usize];
                    data.extend_from_slice(chunk);
                    clean.extend_from_slice(chunk);
                    at += chunk.len();
                }
            }
            match &bytes[at..] {
                [b'\r', b'\n', ..] => at += 2,
                [] | [b'\r'] => return Read::Partial,
                _ => return Read::Broken,
            }
            clean.extend_from_slice(b"\r\n");
        }
        match Head::read_trailers(&bytes[at..]) {
            Read::Whole(trailers) => {
                Read::Whole(Self { data, clean, longest_line, length: at + trailers.length, trailers })
            }
            Read::Partial => Read::Partial,
            Read::Broken => Read::Broken,
        }
    }
}

/// Names of fields that are about one connection (RFC 9110 §7.6.1, §11.7; RFC 9113 §3.1).
pub const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Whether a name is one of `names`, in any case.
pub fn is_one_of(name: &str, names: &[&str]) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Places to cut `bytes`, the same for the same bytes: a failing input fails again.
pub struct Cuts(u64);

impl Cuts {
    /// Cuts for `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(
            bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
                | 1,
        )
    }

    /// A number below `end`; 0 below nothing.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }

    /// `bytes` in pieces: mostly a few large ones, sometimes many small ones, none empty.
    pub fn pieces<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let most = [1, 2, 7, 64, bytes.len()][self.below(5)].max(1);
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at((1 + self.below(most)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }

    /// The same as the lengths received so far.
    pub fn ends(&mut self, bytes: &[u8]) -> Vec<usize> {
        let sum = |sum: &mut usize, piece: &[u8]| {
            *sum += piece.len();
            Some(*sum)
        };
        self.pieces(bytes).into_iter().scan(0, sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_at_its_empty_line() {
        let head = Head::read(b"GET / HTTP/1.1\r\nA:  b \r\n\r\nX", Lines::Strict).whole().unwrap();
        assert_eq!((head.request(), head.length), (Some(("GET", "/", 1)), 26));
        assert_eq!(head.fields, [("A", &b"b"[..])]);
        for bytes in [
            &b"G\nA: b\r\n\r\n"[..],
            b"\r\nG\r\n\r\n",
            b"G\r\nA : b\r\n\r\n",
            b"G\r\nA: \rb\r\n\r\n",
            b"G\r\n A: b\r\n\r\n",
        ] {
            assert_eq!(Head::read(bytes, Lines::Strict), Read::Broken, "{}", bytes.escape_ascii());
        }
        assert_eq!(Head::read(b"\n\r\nG\nA: b\n\n", Lines::Lenient).whole().unwrap().length, 11);
        assert_eq!(Head::read(b"G\r\nA: b\r\n\r", Lines::Strict), Read::Partial);
    }

    #[test]
    fn a_chunked_body_ends_behind_its_trailers() {
        let body = b"5;x=y\r\nHELLO\r\nA\r\n0123456789\r\n0\r\nA: b\r\n\r\nX";
        let chunks = Chunks::read(body).whole().unwrap();
        assert_eq!((&chunks.data[..], chunks.length), (&b"HELLO0123456789"[..], body.len() - 1));
        assert_eq!(chunks.clean, body[..body.len() - b"A: b\r\n\r\nX".len()]);
        assert_eq!(Chunks::read(b"5\r\nHELLOX\r\n"), Read::Broken);
        assert_eq!(Chunks::read(b"5\nHELLO\r\n0\r\n\r\n"), Read::Broken);
        assert_eq!(Chunks::read(b"0\r\nA: b\n\r\n"), Read::Broken);
        assert_eq!(Chunks::read(b"5\r\nHELLO\r\n0\r\n\r"), Read::Partial);
        let odd = Chunks::read(b"00000000000000000005 \t;x\r\nHELLO\r\n00\r\n\r\n").whole().unwrap();
        assert_eq!((&odd.clean[..], odd.longest_line), (&b"05;x\r\nHELLO\r\n0\r\n"[..], 24));
    }

    #[test]
    fn pieces_are_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut cuts = Cuts::of(&bytes);
        for _ in 0..50 {
            assert_eq!(cuts.pieces(&bytes).concat(), bytes);
            assert_eq!(cuts.ends(&bytes).last(), Some(&256));
        }
    }
}
