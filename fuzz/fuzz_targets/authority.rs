//! The authority of a request target: where a request goes.
//!
//! The input is an authority, or a whole target. What is accepted must mean one place to every reader.
#![no_main]

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use evenkeel::internals::{self, Authority, Request};
use evenkeel::member::{Member, Name};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Uri, Version};
use libfuzzer_sys::fuzz_target;

static MEMBER: LazyLock<Member> = LazyLock::new(|| Member::parse(&Name::from_static(b"h:1")).unwrap());

fuzz_target!(|text: &str| {
    let strict = internals::parse_authority(text, None);
    let loose = internals::parse_authority(text, Some(80));
    if let Some(to) = &strict {
        assert_eq!(Some(to), loose.as_ref(), "a default port changes a stated one");
    }
    if let Some(to) = &loose {
        check(text, to);
        assert!(strict.is_some() || (to.port == 80 && !text.ends_with("]:80")), "a port was lost");
    }
    assert_eq!(loose.as_ref().map(|to| (&*to.host, to.port)), second(text), "two readers, two places: {text:?}");
    for method in [Method::GET, Method::OPTIONS] {
        check_target(method, text);
    }
});

fn check(text: &str, to: &Authority) {
    let text = text.strip_suffix(':').unwrap_or(text);
    assert_eq!(to.text, text, "it is not what was written");
    assert!(to.port > 0 && !to.host.is_empty());
    // An escape hides a byte from some readers and shows it to others: a%40b.
    let odd = |b: u8| !b.is_ascii_graphic() || b"@/?#%\\<>\"{}|^`".contains(&b);
    assert!(!text.bytes().any(odd), "{text:?}");
    // What is logged leads to the same place.
    let again = internals::parse_authority(&to.shown, None).expect("what is shown can be read");
    assert_eq!((&again.host, again.port, &again.shown), (&to.host, to.port, &to.shown));

    let uri: Uri = format!("http://{text}/").parse().expect("a URL can be made of it");
    let bare = uri.host().unwrap().trim_start_matches('[').trim_end_matches(']');
    assert_eq!((bare, uri.port_u16().unwrap_or(80)), (&*to.host, to.port), "http::Uri reads it otherwise");
}

/// RFC 3986 §3.2, without user information and without escapes, from left to right.
fn second(text: &str) -> Option<(&str, u16)> {
    let (host, rest) = if let Some(inner) = text.strip_prefix('[') {
        let (inner, rest) = inner.split_once(']')?;
        inner.parse::<Ipv6Addr>().ok()?;
        (inner, rest)
    } else {
        let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&b);
        if host.is_empty() || !host.bytes().all(allowed) {
            return None;
        }
        (host, rest)
    };
    let port = match rest.strip_prefix(':') {
        None if rest.is_empty() => 80,
        None => return None,
        Some("") => 80,
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
        Some(_) => return None,
    };
    (port > 0).then_some((host, port))
}

/// Both ways through the gateway find the same place in a whole target, or one of them finds none.
fn check_target(method: Method, target: &str) {
    let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let short = match internals::read_request(head.as_bytes(), None, &MEMBER, None) {
        Request::Plain(plain) if plain.length == head.len() => Some(plain.to),
        _ => None,
    };
    let mut fields = HeaderMap::new();
    fields.insert(HOST, HeaderValue::from_static("h"));
    // Some bytes of a path that browsers do send are not for `Uri`: hyper answers such a request with 400.
    let Ok(uri) = target.parse::<Uri>() else {
        return short.iter().for_each(|to| check(to.text.to_str().unwrap(), to));
    };
    let long = internals::read_by_hyper((&method, &uri, Version::HTTP_11), &fields, "x").map(|(to, ..)| to);
    if let Some(to) = short.as_ref().or(long.as_ref()) {
        check(to.text.to_str().unwrap(), to);
    }
    match (short, long) {
        (Some(short), Some(long)) => assert_eq!(short, long, "two ways, two places"),
        (Some(_), None) => assert_eq!(method, Method::OPTIONS, "only one way takes it"),
        _ => {}
    }
}
