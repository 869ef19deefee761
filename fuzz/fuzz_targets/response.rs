//! A response, as it comes from an upstream proxy and as it goes to the client.
//!
//! The input is what the upstream proxy sends, head and body. The client must see one strict head with one framing,
//! and a body that ends where every reader finds its end, however the bytes arrive.
#![no_main]

use evenkeel::internals::{self, Framing, Response};
use evenkeel_fuzz::{Chunks, Cuts, HOP_BY_HOP, Head, Lines, Read, is_one_of};
use hyper::Method;
use libfuzzer_sys::fuzz_target;

/// The most fields in a head and in a trailer section.
const MAX_FIELDS: usize = 1024;
/// A trailer section of so many bytes is too long.
const MAX_TRAILERS: usize = 16 << 10;
/// So is a line with the size of a chunk and its extensions, or perhaps one byte more.
const MAX_LINE: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    for method in [Method::GET, Method::HEAD, Method::CONNECT] {
        check_response(bytes, &method);
    }
    // A body of chunks without a head in front.
    check_chunks(bytes);
});

fn check_response(bytes: &[u8], method: &Method) {
    let lenient = Head::read(bytes, Lines::Lenient);
    let mut out = Vec::new();
    let response = match internals::read_response(bytes, method, &mut out) {
        Ok(Some(response)) => response,
        Ok(None) => {
            assert!(!matches!(lenient, Read::Whole(_)), "a whole head is waited for");
            return assert!(out.is_empty());
        }
        Err(()) => return,
    };
    let came = lenient.whole().expect("a whole head");
    assert_eq!(response.length, came.length, "two readers, two ends");
    if let Read::Whole(strict) = Head::read(bytes, Lines::Strict) {
        assert_eq!(response.length, strict.length, "two readers, two ends");
    }
    check_pieces(&bytes[..response.length], method, &response, &out);
    check_head(&came, method, &response, &out);
    check_body(&bytes[response.length..], response.framing);
}

fn check_pieces(head: &[u8], method: &Method, response: &Response, out: &[u8]) {
    let ends = Cuts::of(head).ends(head);
    let read = internals::worth_reading(head, ends);
    assert_eq!(read.last(), Some(&head.len()), "nobody looks when the head is whole");
    for end in read {
        let mut same = Vec::new();
        match internals::read_response(&head[..end], method, &mut same) {
            Ok(Some(again)) if end == head.len() => assert_eq!((&again, &same[..]), (response, out)),
            Ok(None) if end < head.len() => {}
            other => panic!("{end} of {} bytes are {other:?}", head.len()),
        }
    }
}

/// What the client gets is one strict head that says what came, and where its body ends.
fn check_head(came: &Head<'_>, method: &Method, response: &Response, out: &[u8]) {
    let whole = [out, b"\r\n"].concat();
    let sent = Head::read(&whole, Lines::Strict).whole().expect("a strict head goes out");
    assert_eq!(sent.length, whole.len(), "more than a head goes out");
    let (minor, status, reason) = came.response().expect("a status line came in");
    let opens_tunnel = method == Method::CONNECT && (200..300).contains(&status);
    let (sent_minor, sent_status, sent_reason) = sent.response().expect("a status line goes out");
    assert_eq!((sent_minor, sent_status), (1, if opens_tunnel { 200 } else { status }));
    assert!(sent_reason == reason || opens_tunnel || (sent_reason.is_empty() && !reason.is_ascii()));
    assert_eq!(response.status, status);

    let has_no_body = *method == Method::HEAD || matches!(status, 100..=199 | 204 | 304) || *method == Method::CONNECT;
    let lengths = sent.values("content-length");
    let codings = sent.values("transfer-encoding");
    match response.framing {
        Framing::Nothing => {
            assert!(has_no_body && codings.is_empty() && lengths.len() <= 1);
            assert!(
                lengths.iter().all(|length| !length.is_empty() && length.iter().all(u8::is_ascii_digit)),
                "{lengths:?}"
            );
            assert!(lengths.is_empty() || !(opens_tunnel || matches!(status, 100..=199 | 204)));
        }
        Framing::Length(length) => {
            assert!(codings.is_empty());
            assert_eq!(lengths, [length.to_string().as_bytes()]);
        }
        Framing::Chunked => assert!(lengths.is_empty() && codings == [b"chunked"]),
        Framing::UntilClose => assert!(lengths.is_empty() && codings.is_empty()),
    }
    assert_eq!(has_no_body, response.framing == Framing::Nothing);
    if !has_no_body {
        assert_eq!(Some(response.framing), second_framing(came, minor), "two readers, two framings");
    }

    let is_framing = |name: &str| is_one_of(name, &["content-length", "transfer-encoding"]);
    let mut expected = came.fields.clone();
    expected.retain(|(name, _)| !is_one_of(name, &HOP_BY_HOP) && !is_framing(name) && !came.connection_names(name));
    let mut others = sent.fields.clone();
    others.retain(|(name, _)| !is_framing(name));
    assert_eq!(others, expected, "a field was lost, changed or moved");

    let ends_here = minor == 0 || came.connection_names("close") || response.framing == Framing::UntilClose;
    assert_eq!(response.keeps_alive, !ends_here);

    let mut lines = vec![httparse::EMPTY_HEADER; MAX_FIELDS + 1];
    let mut head = httparse::Response::new(&mut lines);
    assert_eq!(head.parse(&whole), Ok(httparse::Status::Complete(whole.len())));
    assert_eq!(head.code, Some(sent_status));

    let mut again = Vec::new();
    let read = internals::read_response(&whole, method, &mut again).expect("what goes out would be taken").unwrap();
    assert_eq!((&again[..], read.framing), (out, response.framing), "a second gateway would change it");
}

/// RFC 9112 §6.3 for a response that has a body; `None` where it is to be refused.
fn second_framing(head: &Head<'_>, minor: u8) -> Option<Framing> {
    let codings = head.values("transfer-encoding");
    let lines = head.values("content-length");
    let lengths: Vec<u64> = lines
        .iter()
        .flat_map(|line| line.split(|&b| b == b','))
        .map(|text| {
            let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
            if text.starts_with('+') { None } else { text.parse().ok() }
        })
        .collect::<Option<_>>()?;
    match (&codings[..], &lengths[..]) {
        ([coding], _) if minor == 1 && coding.eq_ignore_ascii_case(b"chunked") => Some(Framing::Chunked),
        ([_, ..], _) => None,
        ([], []) => Some(Framing::UntilClose),
        ([], [first, others @ ..]) => others.iter().all(|other| other == first).then_some(Framing::Length(*first)),
    }
}

/// A body is the same however it arrives, and ends where a second reader finds its end.
fn check_body(bytes: &[u8], framing: Framing) {
    let whole = internals::pass_body(framing, (!bytes.is_empty()).then_some(bytes));
    let mut cuts = Cuts::of(bytes);
    for pieces in [bytes.chunks(1).collect(), cuts.pieces(bytes), cuts.pieces(bytes), cuts.pieces(bytes)] {
        assert_eq!(internals::pass_body(framing, pieces), whole, "it matters how a body arrives");
    }
    let expected = match framing {
        Framing::Nothing => (Vec::new(), true, !bytes.is_empty()),
        Framing::UntilClose => (bytes.to_vec(), false, false),
        Framing::Length(length) => {
            let taken = length.min(bytes.len() as u64) as usize;
            (bytes[..taken].to_vec(), taken as u64 == length, taken < bytes.len())
        }
        Framing::Chunked => return check_chunks(bytes),
    };
    assert_eq!(whole, Ok(expected));
}

fn check_chunks(bytes: &[u8]) {
    let whole = internals::pass_body(Framing::Chunked, [bytes]);
    for pieces in [bytes.chunks(1).collect(), Cuts::of(bytes).pieces(bytes)] {
        assert_eq!(internals::pass_body(Framing::Chunked, pieces), whole, "it matters how a body arrives");
    }
    let Read::Whole(chunks) = Chunks::read(bytes) else {
        assert!(!matches!(whole, Ok((_, true, _))), "the gateway sees an end where there is none");
        return;
    };
    let Ok((out, is_over, has_surplus)) = whole else {
        let is_too_long = chunks.trailers.fields.len() > MAX_FIELDS
            || chunks.trailers.length >= MAX_TRAILERS
            || chunks.longest_line >= MAX_LINE;
        return assert!(is_too_long, "a good body is refused");
    };
    assert!(is_over, "the end is not seen");
    assert_eq!(has_surplus, chunks.length < bytes.len(), "two readers, two ends");
    let sent = Chunks::read(&out).whole().expect("a strict body goes out");
    assert_eq!((sent.length, &sent.data), (out.len(), &chunks.data));
    assert_eq!((&sent.clean, out.starts_with(&chunks.clean)), (&chunks.clean, true), "chunks go on as they are");
    let late = ["content-length", "host", "via", "expect", "set-cookie", "authorization", "location", "trailer"];
    for (name, value) in &sent.trailers.fields {
        assert!(!is_one_of(name, &late) && !is_one_of(name, &HOP_BY_HOP), "{name} must not come late");
        assert!(chunks.trailers.fields.contains(&(name, value)));
    }
}
