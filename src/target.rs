//! The request target (RFC 9112 §3.2) and what each of its forms leads to.
//!
//! hyper's `Uri` takes more than a proxy may pass on: authorities without a port, with user information, with
//! port 0 or 65536. What two parsers could read differently is refused here, before anything is chosen.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::http::uri;
use hyper::{Method, Uri, Version};

use crate::error::Failure;
use crate::member::Member;

const ORIGIN_FORM: &str = "this is a proxy; set HTTP_PROXY=http://host:port of this address (curl reads http_proxy only) and \
                           request a full URL";

pub(crate) const ENCODED_HOST: Failure =
    Failure::BadRequest("a host with percent-encoded bytes is not taken; write the name itself, without %");

/// `host[:port]`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authority {
    /// As the client wrote it, but without an empty port; the value of `Host`.
    pub(crate) text: HeaderValue,
    /// Without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Reads the target of a request that hyper has read: an http URL in absolute-form, to be sent on as it is.
///
/// # Errors
/// [`Failure::BadRequest`] for every form that is not for a proxy, and for every doubtful authority. A CONNECT that
/// comes this way is one that [`crate::head`] could not make sense of.
pub(crate) fn read(method: &Method, uri: &Uri, version: Version, headers: &HeaderMap) -> Result<Authority, Failure> {
    check_host(version, headers)?;
    if method == Method::CONNECT {
        return match uri
            .authority()
            .filter(|_| uri.scheme().is_none())
            .map(|text| Authority::parse(text.as_str(), None))
        {
            Some(Err(reason)) => Err(reason),
            _ => Err(Failure::BadRequest("CONNECT takes host:port and no body (RFC 9110 section 9.3.6)")),
        };
    }
    let authority = uri.authority().ok_or(Failure::BadRequest(ORIGIN_FORM))?;
    match uri.scheme_str() {
        Some("http" | "ws") => Authority::parse(authority.as_str(), Some(80)),
        Some("https" | "wss") => Err(Failure::BadRequest("an https URL goes through a proxy by CONNECT")),
        Some(_) => Err(Failure::BadRequest("only http URLs can be forwarded")),
        None => Err(Failure::BadRequest(ORIGIN_FORM)),
    }
}

impl Authority {
    /// RFC 3986 §3.2 without user information. `default_port: None` makes the port mandatory; else it may be absent, or empty
    /// (§3.2.3, §6.2.3), which does not go on: not everyone takes it.
    ///
    /// # Errors
    /// [`Failure::BadRequest`], with the reason.
    pub(crate) fn parse(text: &str, default_port: Option<u16>) -> Result<Self, Failure> {
        if text.contains('@') {
            return Err(Failure::BadRequest(
                "user information has no place in a request target (RFC 9110 section 4.2.4); use Authorization",
            ));
        }
        if text.contains('%') {
            return Err(ENCODED_HOST);
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let (text, port) = if port == Some("") && default_port.is_some() { (host, None) } else { (text, port) };
        let bare = if let Some(inner) = host.strip_prefix('[') {
            inner.strip_suffix(']').filter(|ip| ip.parse::<Ipv6Addr>().is_ok())
        } else {
            Some(host).filter(|name| is_reg_name(name))
        };
        let bare = bare.ok_or(Failure::BadRequest("the request target names no valid host"))?;
        let port = match (port, default_port) {
            (Some(digits), _) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().unwrap_or(0),
            (None, Some(default)) => default,
            _ => 0,
        };
        if port == 0 {
            return Err(Failure::BadRequest("the request target needs a port from 1 to 65535"));
        }
        let value = HeaderValue::from_str(text).map_err(|_| Failure::BadRequest("the host has odd bytes"))?;
        Ok(Self { text: value, host: bare.to_owned(), port })
    }

    /// Whether this names the address the gateway itself listens on, as far as can be told without resolving:
    /// resolving would tell a name server what clients ask for.
    pub(crate) fn is_own(&self, listening: SocketAddr) -> bool {
        let host_matches = match self.host.parse::<IpAddr>() {
            Ok(ip) => {
                let (ip, own) = (ip.to_canonical(), listening.ip().to_canonical());
                // Who dials the unspecified address gets the loopback of its family.
                let is_loopback = ip.is_loopback() || ip.is_unspecified();
                let is_same_family = ip.is_ipv4() == own.is_ipv4();
                ip == own
                    || (own.is_unspecified() && is_loopback)
                    || (own.is_loopback() && ip.is_unspecified() && is_same_family)
            }
            Err(_) => {
                let at_home = listening.ip().is_loopback() || listening.ip().is_unspecified();
                at_home && self.host.trim_end_matches('.').eq_ignore_ascii_case("localhost")
            }
        };
        host_matches && self.port == listening.port()
    }
}

/// Whether this is `OPTIONS http://host` without a path. The last proxy before the origin has to turn that into
/// `OPTIONS *` (RFC 9112 §3.2.4), so it must not become `OPTIONS http://host/` on the way.
///
/// `Uri` reads an absent path as `/`. Where there is one, it follows the authority in the same buffer.
pub(crate) fn omits_path(method: &Method, uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return false };
    let has_path = std::ptr::eq(authority.as_str().as_bytes().as_ptr_range().end, uri.path().as_ptr());
    method == Method::OPTIONS && !has_path && uri.query().is_none()
}

/// The target as `member` is to hear it: a proxy the whole URL, an origin only what is its own (RFC 9112 §3.2.1).
pub(crate) fn form_for(member: &Member, uri: &Uri, to: &Authority) -> Uri {
    match uri.path_and_query() {
        Some(own) if !member.is_http_proxy() => Uri::from(own.clone()),
        _ if uri.authority().is_some_and(|written| written.as_str().as_bytes() != to.text.as_bytes()) => {
            let mut parts = uri.clone().into_parts();
            parts.authority = uri::Authority::try_from(to.text.as_bytes()).ok();
            Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
        }
        _ => uri.clone(),
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        let (open, close) = if brackets { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.host, self.port)
    }
}

/// RFC 9112 §3.2: exactly one Host in HTTP/1.1. Its value is not used, the target's authority replaces it.
fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Failure> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Err(Failure::BadRequest("the request has more than one Host field")),
        (None, _) if version >= Version::HTTP_11 => Err(Failure::BadRequest("an HTTP/1.1 request needs a Host field")),
        _ => Ok(()),
    }
}

/// RFC 3986 §3.2.2 `reg-name`, not empty, without percent-escapes: `Uri` refuses them, and a recipient that decodes them
/// before it looks for the port or the user finds another host in `bank.test%40shop.test`.
fn is_reg_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(method: Method, uri: &str) -> Result<Authority, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("h"));
        read(&method, &uri.parse().unwrap(), Version::HTTP_11, &headers)
    }

    #[test]
    fn an_http_url_names_host_and_port() {
        let to = target(Method::GET, "http://Origin.Test:8080/a?b").unwrap();
        assert_eq!((to.text.to_str().unwrap(), &*to.host, to.port), ("Origin.Test:8080", "Origin.Test", 8080));
        let to = target(Method::GET, "http://[2001:db8::2]/x").unwrap();
        assert_eq!((to.text.to_str().unwrap(), &*to.host, to.port), ("[2001:db8::2]", "2001:db8::2", 80));
        assert_eq!(to.to_string(), "[2001:db8::2]:80");
        assert_eq!(Authority::parse("[2001:db8::1]:443", None).unwrap().port, 443);
    }

    #[test]
    fn an_empty_port_is_the_default_and_does_not_go_on() {
        for (text, clean) in [("h:", "h"), ("[2001:db8::2]:", "[2001:db8::2]")] {
            let to = Authority::parse(text, Some(80)).unwrap();
            assert_eq!((to.text.to_str().unwrap(), to.port), (clean, 80));
        }
        for text in ["h::", ":", "h:80:", "[::1"] {
            assert!(Authority::parse(text, Some(80)).is_err(), "{text}");
        }
    }

    #[test]
    fn every_doubtful_target_is_refused() {
        for uri in ["/", "*", "http://u:p@h/", "http://h:80@evil/", "http://h:0/", "https://h/", "ftp://h/", "h:80"] {
            assert!(target(Method::GET, uri).is_err(), "{uri}");
        }
        for text in [
            "h",
            "h:0",
            "u@h:1",
            "h:65536",
            "h:http",
            ":443",
            "h:",
            "[::1]:",
            "h:1:2",
            "2001:db8::1",
            "[::1",
            "[x]:1",
            "h:+1",
            "a%40b:1",
            "a%00:1",
            "a%2e:1",
        ] {
            assert!(Authority::parse(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn only_an_options_request_without_a_path_omits_it() {
        let omits = |method: Method, uri: &'static str| {
            omits_path(&method, &Uri::from_maybe_shared(bytes::Bytes::from_static(uri.as_bytes())).unwrap())
        };
        assert!(omits(Method::OPTIONS, "http://h") && omits(Method::OPTIONS, "http://h:8001"));
        assert!(!omits(Method::OPTIONS, "http://h/") && !omits(Method::OPTIONS, "http://h:80/a?b"));
        assert!(
            !omits(Method::OPTIONS, "http://h?b") && !omits(Method::OPTIONS, "*") && !omits(Method::GET, "http://h")
        );
    }

    #[test]
    fn a_target_that_is_this_gateway_is_recognised() {
        let own = |text: &str, at: &str| Authority::parse(text, Some(80)).unwrap().is_own(at.parse().unwrap());
        assert!(own("127.0.0.1:8080", "127.0.0.1:8080") && own("LocalHost:8080", "127.0.0.1:8080"));
        assert!(own("127.0.0.5:8080", "0.0.0.0:8080") && own("0.0.0.0:8080", "127.0.0.1:8080"));
        assert!(own("[::1]:8080", "[::1]:8080") && own("[0:0::1]:8080", "[::]:8080") && own("[::]:8080", "[::1]:8080"));
        assert!(own("127.0.0.1:8080", "[::]:8080") && own("[::ffff:127.0.0.1]:8080", "127.0.0.1:8080"));
        assert!(!own("[::1]:8080", "127.0.0.1:8080") && !own("[::]:8080", "127.0.0.1:8080"));
        assert!(!own("127.0.0.1:8081", "127.0.0.1:8080") && !own("origin.test:8080", "127.0.0.1:8080"));
    }
}
