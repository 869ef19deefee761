//! Request heads: read, and written anew for an upstream proxy or an origin.

use std::mem::MaybeUninit;

use hyper::Method;
use hyper::header::HeaderValue;

use super::{FEW_FIELDS, Known, MAX_FIELDS, Options, field, is_transfer_encoding, read_length};
use crate::error::Failure;
use crate::headers;
use crate::member::{Address, Member};
use crate::target::{self, Authority};

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
    /// What hyper would take, or refuse with another reason.
    Refused(Failure),
    /// A later minor version of HTTP/1, to be read as HTTP/1.1: see [`lower_version`].
    Later,
}

/// The oldest way to smuggle a request (RFC 9112 §11.2). hyper would drop the length without a word.
const AMBIGUOUS: Failure =
    Failure::BadRequest("the request has Content-Length and Transfer-Encoding; its end could be read in two ways");
const TOO_LONG: Failure = Failure::BadRequest("Content-Length is more than can be counted");

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
        Err(httparse::Error::Version) => match version(bytes) {
            Some([b'1', b'.', b'2'..=b'9']) => Request::Later,
            Some([b'0' | b'2'..=b'9', b'.', b'0'..=b'9']) => Request::Refused(Failure::Version),
            _ => Request::Unusual,
        },
        Err(_) => Request::Unusual,
    }
}

/// The digits behind `HTTP/` in the request line.
fn version(bytes: &[u8]) -> Option<&[u8; 3]> {
    let mut parts = bytes.splitn(3, |&b| b == b' ');
    parts.nth(2)?.strip_prefix(b"HTTP/")?.first_chunk()
}

/// Makes a [`Request::Later`] an HTTP/1.1 request, as the highest version that is known here with the same major one (RFC 9110
/// §2.5).
pub(crate) fn lower_version(bytes: &mut [u8]) {
    let mut blanks = (0..bytes.len()).filter(|&at| bytes[at] == b' ');
    if let Some(minor) = blanks.nth(1).and_then(|at| bytes.get_mut(at + b" HTTP/1.".len())) {
        *minor = b'1';
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
        (Some(line), None) => Length::Known(read_length(line.value)?),
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
        return Request::Refused(AMBIGUOUS);
    }
    let is_uncountable = |line: &httparse::Header<'_>| {
        line.value.iter().all(u8::is_ascii_digit) && !line.value.is_empty() && read_length(line.value).is_none()
    };
    if head.headers.iter().filter(is_body).any(is_uncountable) {
        return Request::Refused(TOO_LONG);
    }
    match rewrite(head, pseudonym) {
        Some(plain) => Request::Plain(plain, length),
        None if has_encoded_host(head) => Request::Refused(target::ENCODED_HOST),
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
    let hops_left = if headers::counts_hops(method) { hops_left(head)? } else { None };
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
    let authority = to.text.to_str().ok()?;
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
            _ => match hops_left.filter(|_| is_max_forwards(line)) {
                Some(left) => field(&mut bytes, line.name, left.to_string().as_bytes()),
                None => field(&mut bytes, line.name, line.value),
            },
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

/// How many more proxies the next one may forward to (RFC 9110 §7.6.2); `None`: where it ends here, or could be read in two ways.
fn hops_left(head: &httparse::Request<'_, '_>) -> Option<Option<u64>> {
    let mut stated =
        head.headers.iter().filter(|line| is_max_forwards(line)).map(|line| headers::read_hops(line.value));
    match (stated.next(), stated.next()) {
        (_, Some(_)) => None,
        (Some(Some(hops)), None) => hops.checked_sub(1).map(Some),
        (Some(None) | None, None) => Some(None),
    }
}

fn is_max_forwards(line: &httparse::Header<'_>) -> bool {
    line.name.eq_ignore_ascii_case("max-forwards")
}

/// To hyper that is no request at all.
fn has_encoded_host(head: &httparse::Request<'_, '_>) -> bool {
    let Some(target) = head.path else { return false };
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let is_path = target.starts_with('/') || target.starts_with('*');
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    !is_path && !rest[..end].contains('@') && rest[..end].contains('%')
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(head: &str) -> Option<(String, bool)> {
        match read_request(head.as_bytes(), None) {
            Request::Plain(plain, length) => {
                assert_eq!(length, head.len());
                Some((String::from_utf8(plain.bytes).unwrap(), plain.keeps_alive))
            }
            Request::Partial | Request::Refused(_) | Request::Later => panic!("neither plain nor unusual"),
            Request::Unusual => None,
        }
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
    fn proxies_are_counted_where_they_are_to_be() {
        for (line, stated, left) in [
            ("OPTIONS http://h", "Max-Forwards: 5", Some("Max-Forwards: 4")),
            ("TRACE http://h/", "MAX-forwards:  01", Some("MAX-forwards: 0")),
            ("OPTIONS http://h/", "Max-Forwards: many", Some("Max-Forwards: many")),
            ("GET http://h/", "Max-Forwards: 0", Some("Max-Forwards: 0")),
            ("OPTIONS http://h", "Max-Forwards: 0", None),
            ("OPTIONS http://h", "Max-Forwards: 5\r\nMax-Forwards: 3", None),
        ] {
            let sent = request(&format!("{line} HTTP/1.1\r\nHost: h\r\n{stated}\r\n\r\n"));
            let expected = left.map(|left| format!("{line} HTTP/1.1\r\nHost: h\r\n{left}\r\n"));
            assert_eq!(sent.map(|(bytes, _)| bytes), expected, "{line} {stated}");
        }
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
            assert!(matches!(read_request(head.as_bytes(), None), Request::Refused(_)), "{fields}");
        }
    }
}
