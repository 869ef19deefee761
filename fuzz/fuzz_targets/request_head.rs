//! A request head, as it comes from a client and as it goes to an upstream proxy.
//!
//! The input is what the client sends. No request that reaches an upstream proxy may be ambiguous: what the gateway
//! writes must be one strict head, the same to every reader, and say what the client said.
#![no_main]

use std::sync::LazyLock;

use evenkeel::internals::{self, Plain, Request};
use evenkeel::member::{Member, Name};
use evenkeel_fuzz::{Cuts, HOP_BY_HOP, Head, Lines, Read, is_one_of};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Uri, Version};
use libfuzzer_sys::fuzz_target;

const PSEUDONYM: &str = "evenkeel-0123456789abcdef";
/// httparse is asked for this many in the gateway.
const MAX_FIELDS: usize = 1024;

static PLAIN: LazyLock<Member> = LazyLock::new(|| Member::parse(&Name::from_static(b"h:1")).unwrap());
static SECRET: LazyLock<Member> = LazyLock::new(|| Member::parse(&Name::from_static(b"own:pass@h:1")).unwrap());

fuzz_target!(|bytes: &[u8]| {
    let lenient = Head::read(bytes, Lines::Lenient);
    let plain = match internals::read_request(bytes, Some(PSEUDONYM), &PLAIN, None) {
        Request::Plain(plain) => plain,
        Request::Partial => {
            assert!(!matches!(lenient, Read::Whole(_)), "a whole head is waited for");
            return;
        }
        Request::Unusual => return,
        Request::Refused => return check_refused(bytes, &lenient),
        Request::Later => return check_later(bytes),
    };
    let asked = lenient.whole().expect("a whole head");
    assert_eq!(plain.length, asked.length, "two readers, two ends");
    if let Read::Whole(strict) = Head::read(bytes, Lines::Strict) {
        assert_eq!(plain.length, strict.length, "two readers, two ends");
    }
    check_pieces(&bytes[..plain.length], &plain);
    check_head(&asked, &plain);
    check_other_way(&asked, &plain);

    match internals::read_request(&plain.head, Some(PSEUDONYM), &PLAIN, None) {
        Request::Plain(again) => {
            assert!(again.head == plain.head || hops_left(&asked).is_some(), "a second gateway would change it");
            assert_eq!((again.length, &again.to), (plain.head.len(), &plain.to));
        }
        _ => assert_eq!(hops_left(&asked), Some(0), "what goes out would not be taken"),
    }

    let via = HeaderValue::from_static("1.1 evenkeel-0123456789abcdef");
    let Request::Plain(signed) = internals::read_request(bytes, Some(PSEUDONYM), &SECRET, Some(&via)) else {
        panic!("the member makes no difference")
    };
    let common = &plain.head[..plain.head.len() - 2];
    let own = b"Proxy-Authorization: Basic b3duOnBhc3M=\r\nVia: 1.1 evenkeel-0123456789abcdef\r\n\r\n";
    assert_eq!(signed.head, [common, own].concat());
});

/// What is refused at once is ambiguous, too long, of another major version, or for a host with escapes.
fn check_refused(bytes: &[u8], lenient: &Read<Head<'_>>) {
    let is_of_another_version = bytes.windows(7).any(|word| word.starts_with(b" HTTP/") && word[6] != b'1');
    let Read::Whole(head) = lenient else { return assert!(is_of_another_version, "nothing is wrong here") };
    let lengths = head.values("content-length");
    let is_ambiguous = !lengths.is_empty() && !head.values("transfer-encoding").is_empty();
    let is_too_long = lengths.iter().any(|digits| digits.len() >= 20);
    assert!(is_of_another_version || is_ambiguous || is_too_long || head.line.contains(&b'%'), "nothing is wrong here");
}

/// A later minor version is read as HTTP/1.1, once.
fn check_later(bytes: &[u8]) {
    let mut lowered = bytes.to_vec();
    internals::lower_version(&mut lowered);
    let changed: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] != lowered[at]).collect();
    let [minor] = changed[..] else { panic!("{changed:?} are changed") };
    assert!(bytes[..minor].ends_with(b" HTTP/1.") && bytes[minor].is_ascii_digit() && lowered[minor] == b'1');
    let again = internals::read_request(&lowered, Some(PSEUDONYM), &PLAIN, None);
    assert!(!matches!(again, Request::Later), "it is of a later version for ever");
}

/// However the head arrives and whatever follows it, it is the same; before its last byte it is none.
fn check_pieces(head: &[u8], plain: &Plain) {
    let mut cuts = Cuts::of(head);
    let ends = cuts.ends(head);
    let read = internals::worth_reading(head, ends.iter().copied());
    assert_eq!(read.last(), Some(&head.len()), "nobody looks when the head is whole");
    for end in read.into_iter().chain(0..head.len().min(24)).chain(head.len().saturating_sub(5)..=head.len()) {
        match internals::read_request(&head[..end], Some(PSEUDONYM), &PLAIN, None) {
            Request::Plain(same) if end == head.len() => assert_eq!(&same, plain),
            Request::Partial if end < head.len() => {}
            other => panic!("{end} of {} bytes are {other:?}", head.len()),
        }
    }
    let more = [head, b"GET http://victim.test/ HTTP/1.1\r\nHost: victim.test\r\n\r\n"].concat();
    assert!(
        matches!(internals::read_request(&more, Some(PSEUDONYM), &PLAIN, None), Request::Plain(same) if same == *plain)
    );
}

/// What goes out is one strict head that says what was asked.
fn check_head(asked: &Head<'_>, plain: &Plain) {
    assert!(!plain.head.contains(&0), "a NUL goes out");
    let sent = Head::read(&plain.head, Lines::Strict).whole().expect("a strict head goes out");
    assert_eq!(sent.length, plain.head.len(), "more than a head goes out");

    let (method, target, version) = sent.request().expect("a request line goes out");
    let (asked_method, asked_target, _) = asked.request().expect("a request line came in");
    assert_eq!((method, plain.method.as_str(), version), (asked_method, asked_method, 1));
    assert!(target.bytes().all(|b| b.is_ascii_graphic() && b != b'#'), "odd bytes in the target");
    let to = plain.to.text.to_str().expect("an authority is ASCII");
    assert!(!to.contains(['@', '/', '?', '#', '\\', ' ']), "{to}");
    if method == "CONNECT" {
        assert_eq!((target, asked_target), (to, to));
    } else {
        let path = target.strip_prefix("http://").and_then(|rest| rest.strip_prefix(to)).expect("absolute-form");
        assert!(path.starts_with('/') || (path.is_empty() && method == "OPTIONS"), "no path");
        let asked_path = asked_target.strip_prefix("http://").and_then(|rest| rest.strip_prefix(to)).unwrap();
        // An empty port stays here.
        let asked_path = asked_path.strip_prefix(':').unwrap_or(asked_path);
        assert_eq!(path.strip_prefix('/').unwrap_or(path), asked_path.strip_prefix('/').unwrap_or(asked_path));
    }

    assert_eq!(sent.values("host"), [to.as_bytes()], "one Host, the target's");
    assert!(sent.values("transfer-encoding").is_empty() && sent.values("expect").is_empty());
    assert!(matches!(sent.values("content-length")[..], [] | [b"0"]), "a body is announced");

    let stays = |name: &str| is_one_of(name, &["host", "content-length"]) || !asked.connection_names(name);
    let mut expected: Vec<(&str, &[u8])> = asked.fields.clone();
    expected.retain(|(name, _)| !is_one_of(name, &HOP_BY_HOP) && !is_one_of(name, &["expect"]) && stays(name));
    let hops_left = hops_left(asked).map(|left| left.to_string());
    for (name, value) in &mut expected {
        match &hops_left {
            _ if is_one_of(name, &["host"]) => *value = to.as_bytes(),
            Some(left) if is_one_of(name, &["max-forwards"]) => *value = left.as_bytes(),
            _ => {}
        }
    }
    if asked.values("host").is_empty() {
        expected.insert(0, ("Host", to.as_bytes()));
    }
    assert_eq!(sent.fields, expected, "a field was lost, changed or moved");

    let mut lines = vec![httparse::EMPTY_HEADER; MAX_FIELDS + 1];
    let mut head = httparse::Request::new(&mut lines);
    assert_eq!(head.parse(&plain.head), Ok(httparse::Status::Complete(plain.head.len())));
    assert_eq!((head.method, head.path), (Some(method), Some(target)));
    assert!(head.headers.iter().map(|line| (line.name, line.value)).eq(sent.fields.iter().copied()));

    assert_eq!(plain.keeps_alive, !asked.connection_names("close"));
}

/// How many proxies may follow the next one, if they are counted (RFC 9110 §7.6.2).
fn hops_left(asked: &Head<'_>) -> Option<u64> {
    let (method, ..) = asked.request()?;
    let [stated] = asked.values("max-forwards")[..] else { return None };
    let digits = std::str::from_utf8(stated).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let hops: u64 = digits.parse().ok().filter(|_| matches!(method, "OPTIONS" | "TRACE"))?;
    Some(hops.checked_sub(1).expect("a request that ends here is not forwarded"))
}

/// hyper's way through the gateway would send the same request to the same place.
fn check_other_way(asked: &Head<'_>, plain: &Plain) {
    let (_, target, version) = asked.request().unwrap();
    if plain.method == "CONNECT" {
        return;
    }
    // hyper has limits of its own on the length of a target and the number of fields.
    let Ok(uri) = target.parse::<Uri>() else { return };
    let mut fields = HeaderMap::new();
    for (name, value) in &asked.fields {
        fields.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
    }
    let version = if version == 1 { Version::HTTP_11 } else { Version::HTTP_10 };
    let Some((to, other, has_been_here)) = internals::read_by_hyper((&plain.method, &uri, version), &fields, PSEUDONYM)
    else {
        // Only hyper cannot leave the path out.
        assert_eq!(plain.method, "OPTIONS", "one way takes it, the other refuses it");
        return;
    };
    assert_eq!(to, plain.to, "two ways, two places");
    assert_eq!(has_been_here, plain.has_been_here, "two ways, two opinions on a loop");
    let sent = Head::read(&plain.head, Lines::Strict).whole().unwrap();
    let mut same = HeaderMap::new();
    for (name, value) in &sent.fields {
        // They are counted only afterwards.
        let is_counted = hops_left(asked).is_some() && is_one_of(name, &["max-forwards"]);
        let value = if is_counted { asked.values(name)[0] } else { value };
        same.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
    }
    assert!(same.iter().eq(other.iter()), "two ways, two requests: {same:?} {other:?}");
}
