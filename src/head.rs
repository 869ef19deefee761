//! Message heads in their own bytes: what is passed on keeps every name, value and place as it was written.
//!
//! This is the short way, for messages that hold no surprise: a request without a body, an answer to it. What is
//! read here is decided by the same rules as in [`crate::headers`], and a request that is in any way unusual (a body,
//! an upgrade, HTTP/1.0, a doubt about its syntax) is left to hyper.
//! Lines are written anew from what httparse made of them, so line ends and blanks around values are clean.

use std::mem::MaybeUninit;

use hyper::Method;
use hyper::header::HeaderValue;

use crate::gateway::MAX_FIELDS;
use crate::member::{Address, Member};
use crate::target::Authority;

/// Heads that fit are read without a second look at the heap.
const FEW_FIELDS: usize = 64;

/// What a client is told when its tunnel is open. Clients look for 200 and, some of them, for these words.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n";

/// A request that needs no more than its head.
pub(crate) struct Plain {
    pub(crate) method: Method,
    pub(crate) to: Authority,
    /// Its line and fields as they go on; what is after `common` is for one upstream proxy.
    bytes: Vec<u8>,
    common: usize,
    /// How the line begins at the moment.
    is_absolute: bool,
    /// Whether the client wants to go on with this connection.
    pub(crate) keeps_alive: bool,
    /// It has a `Via` with the pseudonym asked for.
    pub(crate) has_been_here: bool,
    /// What the client reports of earlier answers.
    pub(crate) reports: Vec<Vec<u8>>,
}

impl Plain {
    /// The whole head for an upstream proxy, with its own credentials, and the gateway's `Via` if it has one; and the
    /// authority it is for. To an origin, where the member leads to one, it goes in origin-form.
    ///
    /// The buffer goes back to what all have in common with the next call.
    pub(crate) fn head_for(&mut self, member: &Member, via: Option<&HeaderValue>) -> (&Authority, &[u8]) {
        self.bytes.truncate(self.common);
        if let Some(credentials) = member.proxy_authorization() {
            field(&mut self.bytes, "Proxy-Authorization", credentials.as_bytes());
        }
        if let Some(via) = via {
            field(&mut self.bytes, "Via", via.as_bytes());
        }
        self.bytes.extend_from_slice(b"\r\n");
        let start = self.set_form(member.is_http_proxy());
        (&self.to, &self.bytes[start..])
    }

    /// Writes the beginning of the line in absolute-form or origin-form (RFC 9112 §3.2) into the room of the longer one,
    /// and says where in it the head now starts. What follows is the path, or the blank if there is none.
    fn set_form(&mut self, is_absolute: bool) -> usize {
        if self.method == Method::CONNECT || (self.is_absolute && is_absolute) {
            return 0;
        }
        self.is_absolute = is_absolute;
        let (method, authority) = (self.method.as_str().as_bytes(), self.to.text.as_bytes());
        let end = method.len() + b" http://".len() + authority.len();
        let beginning: [&[u8]; 3] = match self.bytes[end] {
            _ if is_absolute => [method, b" http://", authority],
            // The server as a whole (§3.2.4).
            b' ' => [method, b" *", b""],
            _ => [method, b" ", b""],
        };
        let start = end - beginning.iter().map(|part| part.len()).sum::<usize>();
        let mut at = start;
        for part in beginning {
            self.bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        start
    }
}

/// A CONNECT of our own, to the next hop of a chain.
pub(crate) fn connect(to: &Address, credentials: Option<&HeaderValue>) -> Vec<u8> {
    let authority = format!("{}:{}", to.host, to.port);
    let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    if let Some(credentials) = credentials {
        field(&mut head, "Proxy-Authorization", credentials.as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// What the bytes of a client hold so far.
pub(crate) enum Request {
    /// Not yet a whole head.
    Partial,
    /// A plain request; the length of its head in the buffer.
    Plain(Plain, usize),
    /// For hyper to read, or to refuse.
    Unusual,
    /// Both a length and a transfer coding, the oldest way to smuggle a request (RFC 9112 §11.2). hyper would drop
    /// the length without a word.
    Ambiguous,
}

/// Reads a request head off the front of `bytes`.
pub(crate) fn read_request(bytes: &[u8], pseudonym: Option<&str>) -> Request {
    let mut few = [const { MaybeUninit::uninit() }; FEW_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    match head.parse_with_uninit_headers(bytes, &mut few) {
        Ok(httparse::Status::Complete(length)) => plain(&head, length, pseudonym),
        Ok(httparse::Status::Partial) => Request::Partial,
        Err(httparse::Error::TooManyHeaders) => {
            let mut many = vec![MaybeUninit::uninit(); MAX_FIELDS];
            let mut head = httparse::Request::new(&mut []);
            match head.parse_with_uninit_headers(bytes, &mut many) {
                Ok(httparse::Status::Complete(length)) => plain(&head, length, pseudonym),
                Ok(httparse::Status::Partial) => Request::Partial,
                Err(_) => Request::Unusual,
            }
        }
        Err(_) => Request::Unusual,
    }
}

/// How long a request's body is.
#[derive(Debug, PartialEq)]
pub(crate) enum Length {
    Known(u64),
    Chunks,
}

/// The length of the head that `bytes` begin with, and of the body behind it; `None` where there could be two opinions.
pub(crate) fn length_of(bytes: &[u8]) -> Option<(usize, Length)> {
    let mut fields = vec![MaybeUninit::uninit(); MAX_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(length)) = head.parse_with_uninit_headers(bytes, &mut fields) else {
        return None;
    };
    let mut framing = head.headers.iter().filter(|line| Known::of(line.name) == Known::Body);
    let body = match (framing.next(), framing.next()) {
        (None, _) => Length::Known(0),
        (Some(line), None) if is_transfer_encoding(line.name) => {
            line.value.eq_ignore_ascii_case(b"chunked").then_some(Length::Chunks)?
        }
        (Some(line), None) if line.value.iter().all(u8::is_ascii_digit) => {
            Length::Known(std::str::from_utf8(line.value).ok()?.parse().ok()?)
        }
        _ => return None,
    };
    Some((length, body))
}

fn plain(head: &httparse::Request<'_, '_>, length: usize, pseudonym: Option<&str>) -> Request {
    let is_body = |line: &&httparse::Header<'_>| Known::of(line.name) == Known::Body;
    let mut framing = head.headers.iter().filter(is_body).map(|line| is_transfer_encoding(line.name));
    if let Some(first) = framing.next()
        && framing.any(|other| other != first)
    {
        return Request::Ambiguous;
    }
    match rewrite(head, pseudonym) {
        Some(plain) => Request::Plain(plain, length),
        None => Request::Unusual,
    }
}

/// `None`: not plain.
fn rewrite(head: &httparse::Request<'_, '_>, pseudonym: Option<&str>) -> Option<Plain> {
    let (method, target) = (head.method?, head.path?);
    let is_connect = method == "CONNECT";
    if head.version? == 0 && !is_connect {
        return None;
    }
    let connection = Options::of(head.headers);
    let (mut host, mut states_length) = (None, false);
    let mut reports = Vec::new();
    for line in head.headers.iter() {
        match Known::of(line.name) {
            Known::Report => reports.push(line.value.to_vec()),
            Known::Body if is_connect || line.value != b"0" || is_transfer_encoding(line.name) || states_length => {
                return None;
            }
            // A length of nothing, said once, is no body.
            Known::Body => states_length = true,
            Known::Unusual if !is_connect => return None,
            Known::Host if host.is_some() => return None,
            Known::Host => host = Some(line.value),
            _ => {}
        }
    }
    if host.is_none() && head.version? == 1 {
        return None;
    }
    let (authority, path) = split_target(target, is_connect)?;
    let to = Authority::parse(authority, (!is_connect).then_some(80)).ok()?;
    let size = head.headers.iter().map(|line| line.name.len() + line.value.len() + 4).sum::<usize>();
    let mut bytes = Vec::with_capacity(size + method.len() + target.len() + authority.len() + 160);
    bytes.extend_from_slice(method.as_bytes());
    bytes.extend_from_slice(if is_connect { b" " } else { b" http://" });
    bytes.extend_from_slice(authority.as_bytes());
    // An empty path is written out (RFC 9112 §3.2.2), but for OPTIONS, where its absence means the server as a whole.
    let means_server = path.is_empty() && method == "OPTIONS";
    if !(is_connect || means_server || path.starts_with('/')) {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(path.as_bytes());
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    if host.is_none() {
        field(&mut bytes, "Host", authority.as_bytes());
    }
    for line in head.headers.iter() {
        match Known::of(line.name) {
            Known::Host => field(&mut bytes, line.name, authority.as_bytes()),
            Known::HopByHop | Known::Unusual | Known::Report => {}
            // Framing is not the Connection field's to drop.
            known if known != Known::Body && connection.name(line.name) => {}
            _ => field(&mut bytes, line.name, line.value),
        }
    }
    let has_been_here = pseudonym.is_some_and(|pseudonym| {
        let via = head.headers.iter().filter(|line| Known::of(line.name) == Known::Via);
        via.flat_map(|line| line.value.split(|&b| b == b',' || b.is_ascii_whitespace()))
            .any(|word| word == pseudonym.as_bytes())
    });
    Some(Plain {
        method: Method::from_bytes(method.as_bytes()).ok()?,
        to,
        common: bytes.len(),
        is_absolute: true,
        bytes,
        keeps_alive: !connection.name("close"),
        has_been_here,
        reports,
    })
}

/// The authority of a target, and the rest of it.
fn split_target(target: &str, is_connect: bool) -> Option<(&str, &str)> {
    if is_connect {
        return Some((target, ""));
    }
    let rest = target.strip_prefix("http://")?;
    if target.bytes().any(|byte| byte == b'#' || !byte.is_ascii_graphic()) {
        return None;
    }
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

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
        // `5, 5` is what two lines of 5 may be joined to (RFC 9110 §8.6).
        for text in line.value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            let digits = (1..=19).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
            let value = std::str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse::<u64>().ok());
            let value = value.ok_or(Nonsense)?;
            if length.is_some_and(|length| length != value) {
                return Err(Nonsense);
            }
            length = Some(value);
        }
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

/// The trailer section of a chunked body, read off the front of `bytes`: its length, and what of it may reach the client,
/// written to `out` with the empty line. `None` while it is not whole.
///
/// Fields that say where a message ends or how it is to be handled must not come late (RFC 9110 §6.5.1).
pub(crate) fn read_trailers(bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, Nonsense> {
    let mut lines = [httparse::EMPTY_HEADER; FEW_FIELDS];
    let (length, lines) = match httparse::parse_headers(bytes, &mut lines) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Nonsense),
    };
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

    fn request(head: &str) -> Option<(String, bool)> {
        match read_request(head.as_bytes(), None) {
            Request::Plain(plain, length) => {
                assert_eq!(length, head.len());
                Some((String::from_utf8(plain.bytes).unwrap(), plain.keeps_alive))
            }
            Request::Partial | Request::Ambiguous => panic!("neither plain nor unusual"),
            Request::Unusual => None,
        }
    }

    fn response(head: &str, method: Method) -> Result<(String, Framing, bool), Nonsense> {
        let mut out = Vec::new();
        let read = read_response(head.as_bytes(), &method, &mut out)?.expect("a whole head");
        assert_eq!(read.length, head.len());
        Ok((String::from_utf8(out).unwrap(), read.framing, read.keeps_alive))
    }

    #[test]
    fn a_plain_request_keeps_case_order_and_interleaving() {
        let sent = "GET http://real.test:8080/a?b HTTP/1.1\r\nX-a: 1\r\nHOST: other\r\nx-A: 2\r\nConnection: close, X-Hop\r\nx-hop: 1\r\nCookie:  c \r\nX-a: 3\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\n\r\n";
        let (bytes, keeps_alive) = request(sent).unwrap();
        assert_eq!(
            bytes,
            "GET http://real.test:8080/a?b HTTP/1.1\r\nX-a: 1\r\nHOST: real.test:8080\r\nx-A: 2\r\nCookie: c\r\nX-a: 3\r\n"
        );
        assert!(!keeps_alive);
    }

    #[test]
    fn an_empty_path_is_written_out_but_for_options() {
        let line = |method: &str, target: &str| {
            let (bytes, _) = request(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n")).unwrap();
            bytes.lines().next().unwrap().to_owned()
        };
        assert_eq!(line("GET", "http://h"), "GET http://h/ HTTP/1.1");
        assert_eq!(line("GET", "http://h?a"), "GET http://h/?a HTTP/1.1");
        assert_eq!(line("OPTIONS", "http://h:8001"), "OPTIONS http://h:8001 HTTP/1.1");
        assert_eq!(line("OPTIONS", "http://h/"), "OPTIONS http://h/ HTTP/1.1");
        assert_eq!(line("CONNECT", "[2001:db8::1]:443"), "CONNECT [2001:db8::1]:443 HTTP/1.1");
    }

    #[test]
    fn a_head_goes_in_the_form_that_its_reader_wants_as_often_as_asked() {
        let member = |text: &'static str| Member::parse(&bytes::Bytes::from_static(text.as_bytes())).unwrap();
        let (proxy, socks) = (member("http://u:p@10.0.0.7:1"), member("socks5h://u:p@10.0.0.7:1"));
        for (line, origin_form) in [
            ("GET http://h:8001/a?b HTTP/1.1", "GET /a?b HTTP/1.1"),
            ("OPTIONS http://h HTTP/1.1", "OPTIONS * HTTP/1.1"),
            ("OPTIONS http://h/ HTTP/1.1", "OPTIONS / HTTP/1.1"),
            ("LONGERTHANMOST http://h/ HTTP/1.1", "LONGERTHANMOST / HTTP/1.1"),
        ] {
            let Request::Plain(mut plain, _) = read_request(format!("{line}\r\nHost: x\r\n\r\n").as_bytes(), None)
            else {
                panic!("{line}")
            };
            let host = plain.to.text.to_str().unwrap().to_owned();
            for _ in 0..2 {
                let own = format!("{origin_form}\r\nHost: {host}\r\n\r\n");
                assert_eq!(plain.head_for(&socks, None).1, own.as_bytes());
                assert_eq!(plain.head_for(&socks, None).1, own.as_bytes());
                let whole = format!("{line}\r\nHost: {host}\r\nProxy-Authorization: Basic dTpw\r\n\r\n");
                assert_eq!(plain.head_for(&proxy, None).1, whole.as_bytes());
            }
        }
    }

    #[test]
    fn what_is_unusual_is_left_to_hyper() {
        for head in [
            "GET http://h/ HTTP/1.0\r\nHost: h\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 00\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
            "CONNECT h:1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
            "POST http://h/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n",
            "GET http://h/#f HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET https://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET http://h/ HTTP/1.1\r\nHost : h\r\n\r\n",
        ] {
            assert!(request(head).is_none(), "{head}");
        }
    }

    #[test]
    fn framing_survives_a_connection_line_that_names_it() {
        let sent =
            "POST http://h/ HTTP/1.1\r\nHost: h\r\nConnection: content-length, host\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(request(sent).unwrap().0, "POST http://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n");
    }

    #[test]
    fn a_loop_is_a_whole_pseudonym_in_via() {
        let has_been_here = |fields: &str| {
            let head = format!("GET http://h/ HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
            match read_request(head.as_bytes(), Some("gw-1")) {
                Request::Plain(plain, _) => plain.has_been_here,
                _ => panic!("not plain"),
            }
        };
        assert!(has_been_here("Via: 1.0 a, 1.1 gw-1") && has_been_here("Via: 1.1 a\r\nVia: 1.1\tgw-1 (x)"));
        // Not even a client that wants the field dropped can hide it.
        assert!(has_been_here("Connection: via\r\nVia: 1.1 gw-1"));
        assert!(!has_been_here("Via: 1.1 gw-10, 1.1 my-gw-1") && !has_been_here("X: gw-1"));
    }

    #[test]
    fn both_lengths_in_either_order_are_ambiguous() {
        for fields in
            ["Content-Length: 5\r\nTransfer-Encoding: chunked", "transfer-encoding: x\r\nA: b\r\ncontent-length: 0"]
        {
            let head = format!("POST http://h/ HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
            assert!(matches!(read_request(head.as_bytes(), None), Request::Ambiguous), "{fields}");
        }
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
        for fields in [
            "Content-Length: 3\r\nContent-Length: 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
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
    fn a_head_that_dribbles_in_is_read_when_it_is_whole() {
        let head = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n";
        let mut pieces = Pieces::default();
        let read: Vec<usize> = (1..=head.len()).filter(|&n| pieces.are_worth_reading(&head[..n])).collect();
        assert_eq!(read, [1, 2, 4, 8, 16, head.len()]);
    }

    #[test]
    fn trailers_that_change_a_message_are_dropped() {
        let mut out = Vec::new();
        let section = b"X-Sum: 1\r\nContent-Length: 999\r\nTransfer-Encoding: chunked\r\nX-Sum: 2\r\n\r\nHTTP";
        assert_eq!(read_trailers(section, &mut out), Ok(Some(section.len() - 4)));
        assert_eq!(out, b"X-Sum: 1\r\nX-Sum: 2\r\n\r\n");
        assert_eq!(read_trailers(b"X-Sum: 1\r\n", &mut Vec::new()), Ok(None));
    }
}
