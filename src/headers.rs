//! Header fields on their way through: hop-by-hop fields stop here, everything else keeps its name, case and order.
//!
//! Heads are built anew, field by field, instead of removing from hyper's map, whose removal moves the last field
//! into the hole. hyper remembers how each name was spelled in an extension of the message; passing the
//! extensions on keeps the spelling. What hyper cannot keep: repeats of one name that were interleaved with
//! other names come out next to the first of them (their own order holds).
//! Cost: one pass and one map per head; none where a response has nothing to remove.

use bytes::Bytes;
use hyper::body::Frame;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHORIZATION,
    TE, TRANSFER_ENCODING, UPGRADE, VIA,
};

use hyper::{Method, StatusCode, Version};

use crate::error::Failure;
use crate::head::{Nonsense, same_length};

/// Fields that are about one connection whether or not `Connection` names them (RFC 9110 §7.6.1), and those
/// about the proxy next to it (§11.7). `HTTP2-Settings` belongs to the retired h2c upgrade (RFC 9113 §3.1).
const HOP_BY_HOP: [&str; 11] = [
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
    REPORT,
];

/// What clients report of earlier answers: for the gateway alone, so it stops here as well.
pub(crate) const REPORT: &str = "x-evenkeel-report";

/// What the client asked of the connection, besides the request itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    /// Switch protocols (WebSocket and the like; h2c is never passed on).
    pub(crate) upgrade: bool,
    /// Ready to read trailer fields.
    trailers: bool,
    /// A body without a length follows.
    chunked: bool,
    /// The body is held back until it is called for (RFC 9110 §10.1.1).
    pub(crate) expects_continue: bool,
}

impl Wishes {
    /// # Errors
    /// [`Failure::BadRequest`] when the framing could be read in two ways: hyper accepts lists of codings that
    /// end in `chunked`, while the next parser might stop at the first (RFC 9112 §6.1, §7.1).
    pub(crate) fn of(version: Version, headers: &HeaderMap) -> Result<Self, Failure> {
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let chunked = match (codings.next(), codings.next()) {
            (None, _) => false,
            (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => true,
            _ => return Err(Failure::BadRequest("Transfer-Encoding must be exactly chunked")),
        };
        let upgrade = headers.get(UPGRADE).is_some_and(|protocol| {
            // In HTTP/1.0 nothing is to be upgraded (RFC 9110 §7.8).
            version >= Version::HTTP_11
                && names_connection_option(headers, "upgrade")
                && !tokens(protocol)
                    .any(|t| t.eq_ignore_ascii_case(b"h2c") || t[..4.min(t.len())].eq_ignore_ascii_case(b"http"))
        });
        let trailers = headers.get_all(TE).iter().flat_map(tokens).any(|t| t.eq_ignore_ascii_case(b"trailers"));
        let expects_continue = expects_continue(headers);
        Ok(Self { upgrade, trailers, chunked, expects_continue })
    }

    /// The `Connection` line of the forwarded request, if it needs one.
    fn connection(self) -> Option<HeaderValue> {
        match (self.upgrade, self.trailers) {
            (true, true) => Some(HeaderValue::from_static("Upgrade, TE")),
            (true, false) => Some(HeaderValue::from_static("Upgrade")),
            (false, true) => Some(HeaderValue::from_static("TE")),
            (false, false) => None,
        }
    }
}

/// The fields of a request as they go to the upstream proxy.
///
/// `Host` becomes `host` in the place where it stood (RFC 9112 §3.2.2); `credentials` are the upstream proxy's own.
pub(crate) fn of_request(
    client: &HeaderMap,
    wishes: Wishes,
    host: &HeaderValue,
    credentials: Option<&HeaderValue>,
    via: Option<&HeaderValue>,
) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(client.keys_len() + 3);
    if !client.contains_key(HOST) {
        fields.append(HOST, host.clone());
    }
    for (name, value) in client {
        match *name {
            HOST => {
                fields.append(HOST, host.clone());
            }
            // Framing is not the Connection field's to drop.
            CONTENT_LENGTH => {
                fields.append(CONTENT_LENGTH, value.clone());
            }
            TRANSFER_ENCODING if wishes.chunked => {
                fields.append(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            }
            CONNECTION if !fields.contains_key(CONNECTION) => {
                fields.extend(wishes.connection().map(|value| (CONNECTION, value)));
            }
            UPGRADE if wishes.upgrade => {
                fields.append(UPGRADE, value.clone());
            }
            TE if wishes.trailers && !fields.contains_key(TE) => {
                fields.append(TE, HeaderValue::from_static("trailers"));
            }
            _ if is_hop_by_hop(client, name) => {}
            _ => {
                fields.append(name.clone(), value.clone());
            }
        }
    }
    if !fields.contains_key(CONNECTION) {
        fields.extend(wishes.connection().map(|value| (CONNECTION, value)));
    }
    fields.extend(credentials.map(|value| (PROXY_AUTHORIZATION, value.clone())));
    fields.extend(via.map(|value| (VIA, value.clone())));
    fields
}

/// How many proxies a request may still pass, this one included, if it says so and counts them (RFC 9110 §7.6.2).
pub(crate) fn hops_left(method: &Method, fields: &HeaderMap) -> Option<u64> {
    fields.get(MAX_FORWARDS).filter(|_| counts_hops(method.as_str())).and_then(|stated| read_hops(stated.as_bytes()))
}

/// Whether a request of this method counts the proxies on its way.
pub(crate) fn counts_hops(method: &str) -> bool {
    matches!(method, "TRACE" | "OPTIONS")
}

/// A number in `Max-Forwards`; what is none is not counted.
pub(crate) fn read_hops(stated: &[u8]) -> Option<u64> {
    std::str::from_utf8(stated).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
}

/// The fields of a response as they go to the client.
///
/// `length`: of the body as hyper will deliver it, where known. It replaces a `Content-Length` that was repeated,
/// written as a list, or stood beside `Transfer-Encoding` (RFC 9112 §6.3): the client sees one clean framing.
pub(crate) fn of_response(
    mut upstream: HeaderMap,
    method: &Method,
    status: StatusCode,
    length: Option<u64>,
    is_switching: bool,
) -> HeaderMap {
    if status == StatusCode::NO_CONTENT || status.is_informational() {
        // Neither may state a length (RFC 9110 §8.6).
        upstream.remove(CONTENT_LENGTH);
    }
    let bodiless = method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
    let length = if bodiless { stated_length(&upstream).ok().flatten() } else { length };
    let one_length = upstream.get_all(CONTENT_LENGTH).iter().count() <= 1 && !upstream.contains_key(TRANSFER_ENCODING);
    if one_length && !upstream.keys().any(|name| is_hop_by_hop(&upstream, name)) {
        normalise_length(&mut upstream, length);
        return upstream;
    }
    let mut fields = HeaderMap::with_capacity(upstream.keys_len() + 1);
    for (name, value) in &upstream {
        match *name {
            CONTENT_LENGTH if fields.contains_key(CONTENT_LENGTH) => {}
            CONTENT_LENGTH if upstream.contains_key(TRANSFER_ENCODING) => {}
            CONTENT_LENGTH => {
                fields.append(CONTENT_LENGTH, value.clone());
            }
            UPGRADE if is_switching => {
                fields.append(UPGRADE, value.clone());
            }
            CONNECTION if is_switching && !fields.contains_key(CONNECTION) => {
                fields.append(CONNECTION, HeaderValue::from_static("Upgrade"));
            }
            _ if is_hop_by_hop(&upstream, name) => {}
            _ => {
                fields.append(name.clone(), value.clone());
            }
        }
    }
    normalise_length(&mut fields, length);
    fields
}

/// A piece of a body as it goes on, either way: what stops here in a head stops here among the trailers too.
pub(crate) fn of_frame(frame: Frame<Bytes>) -> Frame<Bytes> {
    frame.into_trailers().map_or_else(|data| data, |fields| Frame::trailers(of_trailers(&fields)))
}

fn of_trailers(fields: &HeaderMap) -> HeaderMap {
    let pass = fields.iter().filter(|(name, _)| !is_hop_by_hop(fields, name));
    pass.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether the client waits to be told to send its body (RFC 9110 §10.1.1).
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Whether a response has any transfer coding but exactly `chunked`, the only one that can be taken off here and put on again
/// (RFC 9112 §6.1), in HTTP/1.0 any at all, or a length that is none: of a body that does not follow hyper reads none.
pub(crate) fn is_framed_oddly(version: Version, headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_coded_oddly = match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(coding), None) => version < Version::HTTP_11 || !coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        _ => true,
    };
    is_coded_oddly || stated_length(headers).is_err()
}

/// What `Content-Length` says, in however many lines.
fn stated_length(headers: &HeaderMap) -> Result<Option<u64>, Nonsense> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    lines.try_fold(None, |before, line| same_length(before, line.as_bytes()).map(Some))
}

fn normalise_length(fields: &mut HeaderMap, length: Option<u64>) {
    let Some(stated) = fields.get_mut(CONTENT_LENGTH) else { return };
    match length {
        Some(length) if stated.as_bytes().iter().all(u8::is_ascii_digit) && !stated.is_empty() => {
            debug_assert_eq!(stated.to_str().ok().and_then(|s| s.parse().ok()), Some(length));
        }
        Some(length) => *stated = HeaderValue::from(length),
        None => {
            fields.remove(CONTENT_LENGTH);
        }
    }
}

/// Whether `name` stops here: in the fixed set, or named by any `Connection` line of the same head.
pub(crate) fn is_hop_by_hop(head: &HeaderMap, name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str()) || names_connection_option(head, name.as_str())
}

fn names_connection_option(head: &HeaderMap, option: &str) -> bool {
    head.get_all(CONNECTION).iter().flat_map(tokens).any(|token| token.eq_ignore_ascii_case(option.as_bytes()))
}

/// The members of a comma-separated list (RFC 9110 §5.6.1), without blanks.
fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

/// Whether any `Via` line names `pseudonym`: the request has been here before (RFC 9110 §7.6.3).
pub(crate) fn has_been_through(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers
        .get_all(VIA)
        .iter()
        .flat_map(tokens)
        .any(|hop| hop.split(u8::is_ascii_whitespace).any(|word| word == pseudonym.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn text(fields: &HeaderMap) -> Vec<String> {
        fields.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect()
    }

    fn request(lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let head = map(lines);
        let wishes = Wishes::of(Version::HTTP_11, &head).unwrap();
        let credentials = HeaderValue::from_static("Basic dTpw");
        text(&of_request(&head, wishes, &HeaderValue::from_static("origin.test"), Some(&credentials), None))
    }

    #[test]
    fn named_and_fixed_hop_by_hop_fields_stop_here_and_the_rest_keeps_its_order() {
        let sent = request(&[
            ("x-first", "1"),
            ("host", "other.test"),
            ("connection", "close, X-Hop-One"),
            ("x-hop-one", "a"),
            ("proxy-authorization", "Basic Y2xpZW50"),
            ("te", "gzip"),
            ("cookie", "a"),
            ("connection", " x-hop-two"),
            ("x-hop-two", "b"),
            ("keep-alive", "5"),
            ("proxy-connection", "keep-alive"),
            ("x-last", "z"),
        ]);
        assert_eq!(
            sent,
            ["x-first: 1", "host: origin.test", "cookie: a", "x-last: z", "proxy-authorization: Basic dTpw"]
        );
    }

    #[test]
    fn an_upgrade_is_passed_on_but_h2c_is_not() {
        let sent = request(&[("host", "h"), ("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(sent[1..3], ["connection: Upgrade", "upgrade: websocket"]);
        let sent = request(&[("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AA")]);
        assert_eq!(sent, ["host: origin.test", "proxy-authorization: Basic dTpw"]);
        let websocket = map(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert!(Wishes::of(Version::HTTP_11, &websocket).unwrap().upgrade);
        assert!(!Wishes::of(Version::HTTP_10, &websocket).unwrap().upgrade);
    }

    #[test]
    fn framing_fields_survive_a_connection_line_that_names_them() {
        let sent = request(&[("connection", "content-length, host"), ("host", "h"), ("content-length", "5")]);
        assert_eq!(sent, ["host: origin.test", "content-length: 5", "proxy-authorization: Basic dTpw"]);
    }

    #[test]
    fn only_a_single_chunked_coding_is_accepted() {
        for lines in [
            &[("transfer-encoding", "gzip, chunked")][..],
            &[("transfer-encoding", "identity"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        ] {
            assert!(Wishes::of(Version::HTTP_11, &map(lines)).is_err(), "{lines:?}");
        }
        assert!(Wishes::of(Version::HTTP_11, &map(&[("transfer-encoding", "Chunked")])).unwrap().chunked);
    }

    #[test]
    fn a_response_coding_is_chunked_or_odd() {
        let odd = |version, lines: &[(&'static str, &'static str)]| is_framed_oddly(version, &map(lines));
        assert!(!odd(Version::HTTP_11, &[]) && !odd(Version::HTTP_11, &[("transfer-encoding", "CHUNKED")]));
        for value in ["gzip", "gzip, chunked", "chunked,", "identity", ""] {
            assert!(odd(Version::HTTP_11, &[("transfer-encoding", value)]), "{value}");
        }
        assert!(odd(Version::HTTP_10, &[("transfer-encoding", "chunked")]));
        assert!(odd(Version::HTTP_11, &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]));
    }

    #[test]
    fn trailers_carry_nothing_past_that_stops_in_a_head() {
        let kept = of_trailers(&map(&[
            ("x-sum", "1"),
            ("proxy-authorization", "Basic Y2xpZW50"),
            ("x-sum", "2"),
            ("x-evenkeel-report", "ban"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
        ]));
        assert_eq!(text(&kept), ["x-sum: 1", "x-sum: 2"]);
    }

    #[test]
    fn a_response_has_one_framing() {
        let response = |lines: &[(&'static str, &'static str)], method: Method, length| {
            text(&of_response(map(lines), &method, StatusCode::OK, length, false))
        };
        assert_eq!(
            response(&[("content-length", "5, 5"), ("a", "b")], Method::GET, Some(5)),
            ["content-length: 5", "a: b"]
        );
        assert_eq!(
            response(&[("content-length", "3"), ("transfer-encoding", "chunked"), ("a", "b")], Method::GET, None),
            ["a: b"]
        );
        assert_eq!(
            response(&[("content-length", "9"), ("connection", "x, close"), ("x", "1")], Method::HEAD, Some(0)),
            ["content-length: 9"]
        );
    }
}
