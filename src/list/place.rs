//! Whether a text is a host and a port, and how surely: what tells `host:port:user:password` from `user:password:host:port`.

use std::net::{Ipv4Addr, Ipv6Addr};

/// How much a text looks like the host of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likeness {
    /// It cannot be one.
    No,
    /// A single label, which could as well be a user name.
    Label,
    /// A name with dots, or localhost.
    Dotted,
    /// An IP address.
    Ip,
}

/// How much `host` looks like a host; IPv6 in brackets.
pub(super) fn host(text: &str) -> Likeness {
    if text.parse::<Ipv4Addr>().is_ok() || is_bracketed(text) {
        return Likeness::Ip;
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() > 253 || !name.split('.').all(is_label) || ends_in_number(name) {
        return Likeness::No;
    }
    let is_sure = name.contains('.') || name.eq_ignore_ascii_case("localhost");
    if is_sure { Likeness::Dotted } else { Likeness::Label }
}

/// Whether the last label is a number, as of no name there is: `10.0.0.256`, `1234`.
pub(super) fn ends_in_number(name: &str) -> bool {
    let last = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit())
}

/// Whether a text is an IPv6 address in brackets.
pub(super) fn is_bracketed(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inner.is_some_and(is_ipv6)
}

/// Whether a text is an IPv6 address without brackets.
pub(super) fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok()
}

/// Whether a text is a number from 1 to 65535.
pub(super) fn is_port(text: &str) -> bool {
    is_digits(text) && matches!(text.parse::<u32>(), Ok(1..=65535))
}

/// How much two texts look like a host and its port.
pub(super) fn likeness(host_text: &str, port: &str) -> Likeness {
    if is_port(port) { host(host_text) } else { Likeness::No }
}

/// How much two texts may be meant as a host and its port, also where they are none: a port behind something else counts as
/// much as a label, an address before another number as an address.
pub(super) fn pretension(host_text: &str, port: &str) -> Likeness {
    match host(host_text) {
        likeness if is_port(port) => likeness.max(Likeness::Label),
        Likeness::Ip if is_digits(port) => Likeness::Ip,
        _ => Likeness::No,
    }
}

pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The parts between colons; an IPv6 address in brackets is one part.
pub(super) fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let bracket = if rest.starts_with('[') { rest.find(']').map_or(0, |end| end + 1) } else { 0 };
        let is_address = is_bracketed(&rest[..bracket]);
        let end = if is_address && matches!(rest.as_bytes().get(bracket), None | Some(b':')) {
            bracket
        } else {
            rest.find(':').unwrap_or(rest.len())
        };
        parts.push(&rest[..end]);
        if end == rest.len() {
            return parts;
        }
        rest = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_told_from_other_words() {
        for (text, likeness) in [
            ("10.0.0.7", Likeness::Ip),
            ("[2001:db8::1]", Likeness::Ip),
            ("gate.example", Likeness::Dotted),
            ("gate.example.", Likeness::Dotted),
            ("localhost", Likeness::Dotted),
            ("xn--80ak6aa92e.com", Likeness::Dotted),
            ("proxy", Likeness::Label),
            ("user_1", Likeness::Label),
            ("10.0.0.256", Likeness::No),
            ("10.0.0", Likeness::No),
            ("1234", Likeness::No),
            ("2001:db8::1", Likeness::No),
            ("a..b", Likeness::No),
            ("p@ss", Likeness::No),
            ("-", Likeness::No),
            ("", Likeness::No),
            (".", Likeness::No),
        ] {
            assert_eq!(host(text), likeness, "{text}");
        }
    }

    #[test]
    fn brackets_hold_an_address_together() {
        assert_eq!(parts("[2001:db8::1]:80:u:p"), ["[2001:db8::1]", "80", "u", "p"]);
        assert_eq!(parts("u:p:[::1]:80"), ["u", "p", "[::1]", "80"]);
        assert_eq!(parts("h:80:u:[p:q"), ["h", "80", "u", "[p", "q"]);
        assert_eq!(parts("[::1]x:80"), ["[", "", "1]x", "80"]);
        assert_eq!(parts(""), [""]);
        assert_eq!(parts("a:"), ["a", ""]);
    }
}
