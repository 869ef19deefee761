//! A chain of proxies, taken apart into its hops.
//!
//! `|` joins them, and may as well be part of a password. Between hops it stands before a scheme, or behind what is a proxy by
//! itself: a `user:3128|…` that is meant as a password is written with %7C, since read as one it would send what is behind
//! the bar, another proxy's password perhaps, to somebody else.

use super::{MAX_HOPS, kind};

/// The parts that begin with a scheme, but for the first perhaps.
pub(super) fn hops(text: &str) -> Vec<&str> {
    let (mut hops, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices('|').filter(|(at, _)| has_scheme(&text[at + 1..])) {
        hops.push(&text[start..at]);
        start = at + 1;
    }
    hops.push(&text[start..]);
    hops
}

/// Whether such a part goes on in another hop, which says no scheme.
pub(super) fn goes_on(hop: &str) -> bool {
    let query = hop.find('?').unwrap_or(hop.len());
    let may_end = |at: usize| at > query || hop[..at].ends_with(|c: char| c.is_ascii_digit() || c == '/');
    // Not more often than there can be hops: what looks like more is no password that somebody has.
    let mut ends = hop.match_indices('|').map(|(at, _)| at).filter(|&at| may_end(at)).enumerate();
    ends.any(|(n, at)| n >= MAX_HOPS || kind::read(&hop[..at]).is_ok())
}

/// What seem to be the hops of a text that need not be a chain, for masking each by itself. Without a scheme only what has a
/// login in front of it is one: it may be a field of another kind.
pub(super) fn seeming_hops(text: &str) -> Vec<&str> {
    let mut hops = hops(text);
    while let Some((&last, before)) = hops.split_last()
        && before.len() < MAX_HOPS
        && let Some((hop, next)) =
            last.split_once('|').filter(|(hop, next)| next.contains('@') && kind::read(hop).is_ok())
    {
        hops.pop();
        hops.extend([hop, next]);
    }
    hops
}

/// Whether a text begins with the scheme of a URL.
pub(super) fn has_scheme(text: &str) -> bool {
    !split_scheme(text).0.is_empty()
}

/// The scheme of a URL with its `://`, which may be empty, and the rest. A `://` behind something else is none of a scheme.
pub(super) fn split_scheme(text: &str) -> (&str, &str) {
    let length = text.bytes().take_while(|&b| kind::is_scheme_byte(b)).count();
    let is_scheme = length > 0 && text[length..].starts_with("://");
    text.split_at(if is_scheme { length + "://".len() } else { 0 })
}
