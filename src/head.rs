//! Message heads in their own bytes: what is passed on keeps every name, value and place as it was written.
//!
//! This is the short way, for messages that hold no surprise: a request without a body, an answer to it. What is
//! read here is decided by the same rules as in [`crate::headers`], and a request that is in any way unusual (a body,
//! an upgrade, HTTP/1.0, a doubt about its syntax) is left to hyper.
//! Lines are written anew from what httparse made of them, so line ends and blanks around values are clean.

mod request;
mod response;

pub(crate) use request::{Length, Plain, Request, connect, length_of, lower_version, read_request};
pub(crate) use response::{
    ESTABLISHED, Framing, Nonsense, Response, has_field, read_response, read_trailers, same_length,
};

/// Header fields in one head, either way. hyper's own limit of 100 refuses pages that exist.
pub(crate) const MAX_FIELDS: usize = 1024;
/// Heads that fit are read without a second look at the heap.
const FEW_FIELDS: usize = 64;

/// Says when a head that comes in pieces is worth reading through again, so that one which dribbles in is not read
/// for every byte.
#[derive(Default)]
pub(crate) struct Pieces {
    /// How long it was when it was last read.
    seen: usize,
}

impl Pieces {
    /// `bytes`: all that has come so far.
    pub(crate) fn are_worth_reading(&mut self, bytes: &[u8]) -> bool {
        let news = &bytes[self.seen.saturating_sub(2).min(bytes.len())..];
        // An empty line ends a head; without one, nonsense is still to be noticed before the buffer is full.
        let is_worth = self.seen == 0
            || bytes.len() >= 2 * self.seen
            || news.windows(2).any(|two| two == b"\n\n")
            || news.windows(3).any(|three| three == b"\n\r\n");
        if is_worth {
            self.seen = bytes.len();
        }
        is_worth
    }
}

/// Writes one field line.
pub(crate) fn field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Field names that mean something here.
#[derive(Clone, Copy, PartialEq)]
enum Known {
    Host,
    Via,
    /// Content-Length, Transfer-Encoding.
    Body,
    /// X-Evenkeel-Report: for the gateway alone.
    Report,
    /// Expect, Upgrade, TE: what they ask for is hyper's to do.
    Unusual,
    HopByHop,
    Other,
}

impl Known {
    fn of(name: &str) -> Self {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // By length first: most names are none of these.
        match name.len() {
            2 if is("te") => Self::Unusual,
            3 if is("via") => Self::Via,
            4 if is("host") => Self::Host,
            6 if is("expect") => Self::Unusual,
            7 if is("upgrade") => Self::Unusual,
            10 if is("connection") || is("keep-alive") => Self::HopByHop,
            14 if is("content-length") || is("http2-settings") => {
                if is("content-length") {
                    Self::Body
                } else {
                    Self::HopByHop
                }
            }
            16 if is("proxy-connection") => Self::HopByHop,
            17 if is("transfer-encoding") => Self::Body,
            17 if is("x-evenkeel-report") => Self::Report,
            18 if is("proxy-authenticate") => Self::HopByHop,
            19 if is("proxy-authorization") => Self::HopByHop,
            25 if is("proxy-authentication-info") => Self::HopByHop,
            _ => Self::Other,
        }
    }
}

/// One length of a body (RFC 9110 §8.6). The two largest numbers are no lengths to hyper.
fn read_length(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    text.parse().ok().filter(|&length| length <= u64::MAX - 2)
}

fn is_transfer_encoding(name: &str) -> bool {
    name.eq_ignore_ascii_case("transfer-encoding")
}

fn is_expect(name: &str) -> bool {
    name.eq_ignore_ascii_case("expect")
}

/// The options that the `Connection` lines of a head name.
struct Options<'a>(&'a [httparse::Header<'a>], bool);

impl<'a> Options<'a> {
    fn of(lines: &'a [httparse::Header<'a>]) -> Self {
        Self(lines, lines.iter().any(is_connection))
    }

    fn name(&self, option: &str) -> bool {
        self.1
            && self.0.iter().filter(|line| is_connection(line)).any(|line| {
                let mut options = line.value.split(|&b| b == b',').map(<[u8]>::trim_ascii);
                options.any(|named| named.eq_ignore_ascii_case(option.as_bytes()))
            })
    }
}

fn is_connection(line: &httparse::Header<'_>) -> bool {
    line.name.eq_ignore_ascii_case("connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_dribbles_in_is_read_when_it_is_whole() {
        let head = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
        let mut pieces = Pieces::default();
        let read: Vec<usize> = (1..=head.len()).filter(|&n| pieces.are_worth_reading(&head[..n])).collect();
        assert_eq!(read, [1, 2, 4, 8, 16, head.len()]);
    }
}
