//! Response heads and trailer sections: read, and written anew for the client.

use std::mem::MaybeUninit;

use hyper::Method;
use hyper::header::HeaderValue;

use super::{FEW_FIELDS, Known, MAX_FIELDS, Options, field, is_expect, is_transfer_encoding, read_length};

/// What a client is told when its tunnel is open. Clients look for 200 and, some of them, for these words.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n";

/// How the end of an answer's body is known (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    UntilClose,
}

/// An answer's head as far as the gateway cares.
#[derive(Debug, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// Whether the connection can serve again once the body has ended.
    pub(crate) keeps_alive: bool,
    /// Of the head, in bytes.
    pub(crate) length: usize,
}

/// Not an HTTP/1 answer, or one whose end could be read in two ways.
#[derive(Debug, PartialEq)]
pub(crate) struct Nonsense;

/// Reads a response head off the front of `bytes`, `None` while it is not whole, and writes the head for the client
/// to `out`, without its empty line. An interim answer (1xx) is written out whole, as it has no body.
pub(crate) fn read_response(bytes: &[u8], method: &Method, out: &mut Vec<u8>) -> Result<Option<Response>, Nonsense> {
    let mut few = [const { MaybeUninit::uninit() }; FEW_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut head, bytes, &mut few) {
        Ok(httparse::Status::Complete(length)) => translate(&head, length, method, out).map(Some),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            let mut many = vec![MaybeUninit::uninit(); MAX_FIELDS];
            let mut head = httparse::Response::new(&mut []);
            match config.parse_response_with_uninit_headers(&mut head, bytes, &mut many) {
                Ok(httparse::Status::Complete(length)) => translate(&head, length, method, out).map(Some),
                Ok(httparse::Status::Partial) => Ok(None),
                Err(_) => Err(Nonsense),
            }
        }
        Err(_) => Err(Nonsense),
    }
}

/// Whether the response head that `bytes` begin with has a field of this name whose value passes.
pub(crate) fn has_field(bytes: &[u8], name: &str, passes: impl Fn(&[u8]) -> bool) -> bool {
    let is_such = |line: &httparse::Header<'_>| line.name.eq_ignore_ascii_case(name) && passes(line.value);
    let mut few = [const { MaybeUninit::uninit() }; FEW_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut head, bytes, &mut few) {
        Ok(_) => head.headers.iter().any(is_such),
        Err(_) => {
            let mut many = vec![MaybeUninit::uninit(); MAX_FIELDS];
            let mut head = httparse::Response::new(&mut []);
            let read = config.parse_response_with_uninit_headers(&mut head, bytes, &mut many);
            read.is_ok() && head.headers.iter().any(is_such)
        }
    }
}

fn translate(
    head: &httparse::Response<'_, '_>,
    length: usize,
    method: &Method,
    out: &mut Vec<u8>,
) -> Result<Response, Nonsense> {
    let status = head.code.filter(|code| (100..=999).contains(code)).ok_or(Nonsense)?;
    let is_modern = head.version == Some(1);
    let connection = Options::of(head.headers);
    let (framing, stated) = framing(head, status, method, is_modern)?;
    let opens_tunnel = method == Method::CONNECT && (200..300).contains(&status);
    if opens_tunnel {
        out.extend_from_slice(ESTABLISHED);
    } else {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(&[100, 10, 1].map(|place| b'0' + (status / place % 10) as u8));
        out.push(b' ');
        out.extend_from_slice(head.reason.unwrap_or_default().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let states_no_length = status < 200 || status == 204 || method == Method::CONNECT;
    let mut has_framing = false;
    for line in head.headers.iter() {
        match Known::of(line.name) {
            Known::Body if is_transfer_encoding(line.name) => {
                if framing == Framing::Chunked && !has_framing {
                    has_framing = true;
                    field(out, line.name, b"chunked");
                }
            }
            Known::Body => match framing {
                // One clean length, where it stood first. An answer without a body may state one that it would have.
                Framing::Length(_) | Framing::Nothing if !has_framing && !states_no_length => {
                    has_framing = true;
                    field(out, line.name, HeaderValue::from(stated.unwrap_or_default()).as_bytes());
                }
                _ => {}
            },
            Known::HopByHop | Known::Unusual | Known::Report if !is_expect(line.name) => {}
            _ if connection.name(line.name) => {}
            _ => field(out, line.name, line.value),
        }
    }
    let keeps_alive = is_modern && !connection.name("close") && framing != Framing::UntilClose;
    Ok(Response { status, framing, keeps_alive, length })
}

/// The framing, and the length that is stated, by RFC 9112 §6.3, refusing what it lets a recipient guess: several
/// lengths that differ, a coding other than chunked, any coding in HTTP/1.0.
fn framing(
    head: &httparse::Response<'_, '_>,
    status: u16,
    method: &Method,
    is_modern: bool,
) -> Result<(Framing, Option<u64>), Nonsense> {
    if method == Method::CONNECT {
        // What follows a 2xx is the tunnel's, whatever the fields say (RFC 9110 §9.3.6); after a refusal we close.
        return Ok((Framing::Nothing, None));
    }
    let (mut length, mut codings) = (None, 0);
    for line in head.headers.iter().filter(|line| Known::of(line.name) == Known::Body) {
        if is_transfer_encoding(line.name) {
            codings += 1;
            if !is_modern || codings > 1 || !line.value.eq_ignore_ascii_case(b"chunked") {
                return Err(Nonsense);
            }
            continue;
        }
        length = Some(same_length(length, line.value)?);
    }
    let framing = match (status, length) {
        (100..=199 | 204 | 304, _) => Framing::Nothing,
        _ if method == Method::HEAD => Framing::Nothing,
        _ if codings > 0 => Framing::Chunked,
        (_, Some(length)) => Framing::Length(length),
        _ => Framing::UntilClose,
    };
    Ok((framing, length))
}

/// The length that a `Content-Length` line states, the same as those before it. `5, 5` is what two lines of 5 may be joined to
/// (RFC 9110 §8.6).
pub(crate) fn same_length(before: Option<u64>, line: &[u8]) -> Result<u64, Nonsense> {
    let mut lengths = line.split(|&b| b == b',').map(|text| read_length(text.trim_ascii()));
    let first = lengths.next().flatten().ok_or(Nonsense)?;
    let are_same = before.is_none_or(|before| before == first) && lengths.all(|other| other == Some(first));
    are_same.then_some(first).ok_or(Nonsense)
}

/// The trailer section of a chunked body, read off the front of `bytes`: its length, and what of it may reach the client,
/// written to `out` with the empty line. `None` while it is not whole.
///
/// Fields that say where a message ends or how it is to be handled must not come late (RFC 9110 §6.5.1).
pub(crate) fn read_trailers(bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, Nonsense> {
    let (mut few, mut many) = ([httparse::EMPTY_HEADER; FEW_FIELDS], Vec::new());
    let parsed = match httparse::parse_headers(bytes, &mut few) {
        Err(httparse::Error::TooManyHeaders) => {
            many.resize(MAX_FIELDS, httparse::EMPTY_HEADER);
            httparse::parse_headers(bytes, &mut many)
        }
        parsed => parsed,
    };
    let (length, lines) = match parsed {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Nonsense),
    };
    // Lines end in CRLF, here as around the chunks: with less, others may see the end of the body elsewhere.
    if (0..length).any(|at| bytes[at] == b'\n' && !bytes[..at].ends_with(b"\r")) {
        return Err(Nonsense);
    }
    for line in lines {
        let is_late =
            matches!(line.name.to_ascii_lowercase().as_str(), "set-cookie" | "authorization" | "location" | "trailer")
                || line.name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("content-"));
        if !is_late && Known::of(line.name) == Known::Other {
            field(out, line.name, line.value);
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(head: &str, method: Method) -> Result<(String, Framing, bool), Nonsense> {
        let mut out = Vec::new();
        let read = read_response(head.as_bytes(), &method, &mut out)?.expect("a whole head");
        assert_eq!(read.length, head.len());
        Ok((String::from_utf8(out).unwrap(), read.framing, read.keeps_alive))
    }

    #[test]
    fn a_response_has_one_framing_or_is_nonsense() {
        let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let framed = |fields: &str| response(&head(fields), Method::GET);
        assert_eq!(
            framed("A: 1\r\nContent-Length: 5, 5\r\n").unwrap().0,
            "HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 5\r\n"
        );
        assert_eq!(
            framed("Content-Length: 5\r\ncontent-length: 5\r\n").unwrap().0,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
        );
        let (text, framing, _) = framed("content-length: 3\r\ntransfer-encoding: Chunked\r\n").unwrap();
        assert_eq!((&*text, framing), ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n", Framing::Chunked));
        assert_eq!(framed("").unwrap().1, Framing::UntilClose);
        let (text, framing, _) = framed("Content-Length: 000000000000000000000000000005\r\n").unwrap();
        assert_eq!((&*text, framing), ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", Framing::Length(5)));
        for fields in [
            "Content-Length: 3\r\nContent-Length: 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 18446744073709551615\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(framed(fields), Err(Nonsense), "{fields}");
        }
        assert_eq!(response("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Method::GET), Err(Nonsense));
    }

    #[test]
    fn answers_without_a_body_keep_the_length_they_state() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 123\r\n\r\n";
        let (head, framing, keeps_alive) = response(text, Method::HEAD).unwrap();
        assert_eq!(
            (&*head, framing, keeps_alive),
            ("HTTP/1.1 200 OK\r\nContent-Length: 123\r\n", Framing::Nothing, true)
        );
        let (head, framing, _) =
            response("HTTP/1.1 304 N\r\nContent-Length: 09, 9\r\nContent-Length: 9\r\n\r\n", Method::GET).unwrap();
        assert_eq!((&*head, framing), ("HTTP/1.1 304 N\r\nContent-Length: 9\r\n", Framing::Nothing));
        assert_eq!(
            response("HTTP/1.1 204 N\r\nContent-Length: 0\r\n\r\n", Method::GET).unwrap().0,
            "HTTP/1.1 204 N\r\n"
        );
    }

    #[test]
    fn hop_by_hop_fields_of_a_response_stop_here() {
        let text = "HTTP/1.0 200 Fine\r\nConnection: X-Resp, close\r\nX-Resp: 1\r\nKeep-Alive: 5\r\nUpgrade: x\r\nSet-Cookie: a\r\nProxy-Authenticate: y\r\nset-cookie: b\r\n\r\n";
        let (head, _, keeps_alive) = response(text, Method::GET).unwrap();
        assert_eq!((&*head, keeps_alive), ("HTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nset-cookie: b\r\n", false));
    }

    #[test]
    fn trailers_that_change_a_message_are_dropped() {
        let mut out = Vec::new();
        let section = b"X-Sum: 1\r\nContent-Length: 999\r\nTransfer-Encoding: chunked\r\nX-Sum: 2\r\n\r\nHTTP";
        assert_eq!(read_trailers(section, &mut out), Ok(Some(section.len() - 4)));
        assert_eq!(out, b"X-Sum: 1\r\nX-Sum: 2\r\n\r\n");
        assert_eq!(read_trailers(b"X-Sum: 1\r\n", &mut Vec::new()), Ok(None));
        for section in [&b"\n"[..], b"X: 1\n\r\n", b"X: 1\r\n\n"] {
            assert_eq!(read_trailers(section, &mut Vec::new()), Err(Nonsense));
        }
    }
}
