//! A member for an operator's eyes: its secrets hidden, also in a text that is no member.
//!
//! Lists are sold in many shapes, and what cannot be read as a member may be any of them. So nothing is shown that in one of
//! them could be a password, and of the rest what tells a member from its neighbours:
//!
//! | text | shown | because |
//! |---|---|---|
//! | `user:secret@host:80` | `user:***@host:80` | |
//! | `key@host:80`, `key:@host:80` | `***@host:80` | what stands alone is often an API key |
//! | `10.0.0.7:80:user:secret` | `10.0.0.7:80:***` | an address is no user name |
//! | `a.example:80:user:secret` | `a.example:80:***` | it does not end as `user:secret:host:80` would |
//! | `host:80:user:12345`, `user:12345:host:80` | `host:***`, `user:***` | nobody can tell which is the port |
//! | `10.0.0.7:80@user:12345` | `10.0.0.7:***@user:***` | it may be the wrong way round |
//! | `host:80/secret`, `host:80?secret` | `host:80/***`, `host:80?***` | no option that there is |
//!
//! `host:12345` alone is shown: it is a member whose port that is.

use std::net::Ipv4Addr;

use super::options::Options;
use super::{MAX_HOPS, Member, Name, chain, kind};

const MASK: &str = "***";
/// Of a user name, in bytes.
const USER_SHOWN: usize = 64;
/// Of a hop, in characters. There are [`MAX_HOPS`] hops at most.
const SHOWN: usize = 200;
/// What ends an authority.
const AFTER: [u8; 3] = *b"/?#";

/// A member for an operator's eyes, also one that cannot be parsed: what is or could be a secret hidden, control
/// characters and bytes outside ASCII escaped, cut to a length that fits on a line.
pub fn masked(name: &[u8]) -> String {
    hide_hops(name, shown_of_member)
}

/// The same for a text that should be something else, and may be a URL in the wrong place: it is hidden from the
/// first colon on that is not in front of a port.
pub(crate) fn masked_text(text: &[u8]) -> String {
    hide_hops(text, shown_of_text)
}

/// Says what is shown of what should be `host:port`, behind credentials perhaps.
type Shown = fn(&Place<'_>, Option<&[u8]>) -> String;

/// Hides the credentials of each hop.
fn hide_hops(text: &[u8], shown: Shown) -> String {
    if !text.contains(&b'|') {
        return hide(text, shown);
    }
    let is_chain = Member::parse(&Name::copy_from_slice(text)).is_ok();
    let text = String::from_utf8_lossy(text);
    let hops = if is_chain { chain::hops(&text) } else { chain::seeming_hops(&text) };
    let hide_hop = |n: usize| {
        let (hop, next) = (hops[n], hops.get(n + 1));
        let (scheme, rest) = chain::split_scheme(hop);
        let place = Place::of(rest.as_bytes());
        let is_hidden = |next: &&str| !rest.contains('@') && !is_surely_port(hop, Some(next));
        if !is_chain && place.port.is_some() && next.is_some_and(is_hidden) {
            cut(format!("{scheme}{}:{MASK}", text_of(place.host)))
        } else if !is_chain && n > 0 && !kind::is_scheme(scheme) {
            // What stands behind a bar may be anything.
            format!("{MASK}://{}", hide(rest.as_bytes(), shown))
        } else {
            hide(hop.as_bytes(), shown)
        }
    };
    let mut shown = (0..hops.len().min(MAX_HOPS)).map(hide_hop).collect::<Vec<_>>().join("|");
    if hops.len() > MAX_HOPS {
        shown.push_str("|…");
    }
    shown
}

/// Whether a hop ends in what can only be meant as a port. In front of another hop a `user:12345` may be the beginning of a
/// password with a bar in it, and alone the user and password that were forgotten to be followed by a host.
pub(super) fn is_surely_port(hop: &str, next: Option<&str>) -> bool {
    let (_, rest) = chain::split_scheme(hop);
    let place = Place::of(rest.rsplit('@').next().unwrap_or_default().as_bytes());
    place.is_ip() || (place.is_host_like() && !rest.contains('@') && next.is_none_or(chain::has_scheme))
}

/// Whether what should be `user:password@host:port` could also be `host:port@user:password`.
pub(super) fn may_end_in_a_password(credentials: &str, place: &str) -> bool {
    may_be_swapped(&Place::of(credentials.as_bytes()), &Place::of(place.as_bytes()))
}

fn may_be_swapped(credentials: &Place<'_>, place: &Place<'_>) -> bool {
    credentials.is_host_and_port() && !place.is_ip()
}

/// Hides credentials.
fn hide(text: &[u8], shown: Shown) -> String {
    // A :// behind something that is no scheme is part of a secret.
    let scheme = text.windows(3).position(|window| window == b"://");
    let scheme = scheme.filter(|&end| text[..end].iter().all(|&b| kind::is_scheme_byte(b)));
    let (scheme, rest) = text.split_at(scheme.map_or(0, |end| end + 3));
    let shown = match rest.iter().rposition(|&b| b == b'@') {
        None => shown(&Place::of(rest), None),
        Some(at) => {
            let (credentials, place) = (&rest[..at], Place::of(&rest[at + 1..]));
            let first = Place::of(credentials);
            // A list's line with an @ in the password.
            let is_sold = first.is_ip() && first.port.is_some() && first.rest.starts_with(b":");
            if is_sold && !place.is_ip() {
                format!("{}:{MASK}", first.authority())
            } else if may_be_swapped(&first, &place) && place.port.is_some() {
                with_user(credentials, &format!("{}:{MASK}", text_of(place.host)))
            } else {
                with_user(credentials, &shown(&place, Some(credentials)))
            }
        }
    };
    cut(text_of(scheme) + &shown)
}

fn cut(shown: String) -> String {
    match shown.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// What should be a member's `host:port[/][?options]`.
fn shown_of_member(place: &Place<'_>, credentials: Option<&[u8]>) -> String {
    let (host, authority) = (text_of(place.host), place.authority());
    match place.rest {
        _ if credentials.is_some_and(|credentials| place.may_end_a_password(credentials)) => MASK.to_owned(),
        b"" | b"/" => authority + &text_of(place.rest),
        b":" if place.port.is_none() => host + ":",
        [first, ..] if AFTER.contains(first) => authority + &shown_of_options(place.rest),
        [b':', rest @ ..] if credentials.is_none() && place.is_sold_with(rest) => format!("{authority}:{MASK}"),
        _ if place.has_colon() => format!("{host}:{MASK}"),
        _ => host + MASK,
    }
}

fn shown_of_options(text: &[u8]) -> String {
    let slash = if text.starts_with(b"/") { "/" } else { "" };
    let query = text[slash.len()..].strip_prefix(b"?").and_then(|query| std::str::from_utf8(query).ok());
    match query {
        Some(query) if Options::parse(query).is_ok() => format!("{slash}?{query}"),
        Some(_) => format!("{slash}?{MASK}"),
        None => format!("{slash}{MASK}"),
    }
}

/// What may be anything: words without a colon stay, unless they stand behind credentials.
fn shown_of_text(place: &Place<'_>, credentials: Option<&[u8]>) -> String {
    let is_place = place.rest.first().is_none_or(|b| AFTER.contains(b)) || place.rest == b":";
    let is_seen = place.port.is_some() || place.rest == b":" || !place.rest.contains(&b':');
    let colon = place.text.iter().position(|&b| b == b':');
    match (credentials, colon) {
        _ if is_place && is_seen => text_of(place.text),
        (None, None) => text_of(place.text),
        (None, Some(colon)) => text_of(&place.text[..=colon]) + MASK,
        (Some(_), _) if place.has_colon() => format!("{}:{MASK}", text_of(place.host)),
        (Some(_), _) => MASK.to_owned(),
    }
}

fn with_user(credentials: &[u8], place: &str) -> String {
    let user = match credentials.iter().position(|&b| b == b':') {
        Some(colon) if colon + 1 < credentials.len() => &credentials[..colon],
        _ => return format!("{MASK}@{place}"),
    };
    let cut = if user.len() > USER_SHOWN { "…" } else { "" };
    format!("{}{cut}:{MASK}@{place}", text_of(&user[..user.len().min(USER_SHOWN)]))
}

fn text_of(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// A text as far as it is `host:port`.
struct Place<'a> {
    text: &'a [u8],
    /// Bytes that a host could have; perhaps none.
    host: &'a [u8],
    /// Up to five digits behind a colon.
    port: Option<&'a [u8]>,
    rest: &'a [u8],
}

impl<'a> Place<'a> {
    fn of(text: &'a [u8]) -> Self {
        let (host, rest) = text.split_at(bracketed(text).unwrap_or_else(|| span(text, is_of_host)));
        let digits = rest.strip_prefix(b":").map(|after| &after[..span(after, u8::is_ascii_digit)]);
        let port = digits.filter(|digits| (1..=5).contains(&digits.len()));
        let rest = &rest[port.map_or(0, |port| 1 + port.len())..];
        Self { text, host, port, rest }
    }

    fn is_ip(&self) -> bool {
        self.host.starts_with(b"[") || std::str::from_utf8(self.host).is_ok_and(|host| host.parse::<Ipv4Addr>().is_ok())
    }

    fn is_host_like(&self) -> bool {
        self.is_ip() || self.host.contains(&b'.') || self.host == b"localhost"
    }

    fn is_host_and_port(&self) -> bool {
        self.is_host_like() && self.port.is_some() && self.rest.is_empty()
    }

    /// Whether this, behind `credentials` and an @, may be the end of a password with an @ in it: `host:80:user:pass@word`.
    fn may_end_a_password(&self, credentials: &[u8]) -> bool {
        let has_place = self.rest.starts_with(b":") && credentials.iter().filter(|&&b| b == b':').count() < 2;
        self.port.is_none() && !self.is_host_like() && !has_place
    }

    fn has_colon(&self) -> bool {
        self.port.is_some() || self.rest.starts_with(b":")
    }

    /// Whether this is certainly host and port, with `rest`, a user and a password, behind them.
    fn is_sold_with(&self, rest: &[u8]) -> bool {
        let parts: Vec<_> = rest.split(|&b| b == b':').collect();
        let is_user_and_password = matches!(parts[..], [user, password]
            if !Place::of(user).is_host_like() && !password.iter().all(u8::is_ascii_digit));
        self.port.is_some() && (self.is_ip() || (self.is_host_like() && is_user_and_password))
    }

    fn authority(&self) -> String {
        let port = self.port.map_or_else(String::new, |port| format!(":{}", text_of(port)));
        text_of(self.host) + &port
    }
}

/// The length of an IPv6 address in brackets.
fn bracketed(text: &[u8]) -> Option<usize> {
    let inner = text.strip_prefix(b"[")?;
    let length = span(inner, |b| b.is_ascii_hexdigit() || b":.".contains(b));
    (inner.get(length) == Some(&b']')).then_some(length + 2)
}

fn is_of_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(byte) || !byte.is_ascii()
}

/// How many bytes at the beginning are like that.
fn span(text: &[u8], is_like: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|b| is_like(b)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of a text, as a member and as any other text.
    fn shown(text: &str) -> [String; 2] {
        [masked(text.as_bytes()), masked_text(text.as_bytes())]
    }

    #[test]
    fn masking_never_shows_a_password_even_of_what_cannot_be_parsed() {
        for text in [
            "http://u:s3cret@h:1",
            "http://s3cret@h:1",
            "http://s3cret:@h:1",
            "ftp://u:s3cret@h",
            "u:s3cret@",
            "x://u:s3@cret@h:1",
            "://u:s3cret@\x01",
            "h:80:u:s3cret",
            "10.0.0.7:80:u:x@s3cret",
            "http://10.0.0.7:80:u:s3@cret",
            "u:s3cret@h:1,http://x@h:2",
            "http://u:s3/cret@h:80",
            "http://u:s3?cret@h:80",
            "u:s3://cret@h:80",
            "[2001:db8::1]:80:u:s3cret",
            "[2001:db8::1]:s3cret",
            "u:s3cret:h:80",
            "http://u:s3cret:h:80",
            "h:80@u:s3cret",
            "http://u:s3cret",
            "u:s3cret",
            "https://u:s3cret@h:1?insecure=1",
            "socks5h://s3cret@h:1",
            "direct://u:s3cret@10.0.0.7",
            "http://a:1|socks5://u:s3cret@h:1",
            "http://10.0.0.1:3128|socks5://u:s3cret@b.example",
            "http://10.0.0.1:3128|u:s3cret@10.0.0.9:1080",
            "10.0.0.1:3128|u:s3cret@b",
            "http://a.example:1|http://b.example:2|u:s3|cret@c.example",
            "http://a:1|http://u:s3cret",
            "http://a:1|http://h:80:u:s3cret",
            "http://a:1|http://10.0.0.7:80:u:s3@cret",
            "http://u:s3|cret://x@h:80",
            "http://u:s3|socks5://cret@h:80|",
            "u:s3://cret:80|socks5://b",
            "http://u:s3cret@a:1|http://u:s3cret@b|ftp://c",
        ] {
            for shown in shown(text) {
                assert!(!shown.contains("s3") && !shown.contains("cret"), "{shown}");
            }
        }
        // What is expected to be a member.
        for text in [
            "10.0.0.7,80,u,s3cret",
            "10.0.0.7 80 u s3cret",
            "10.0.0.7\t80\ts3cret",
            r#"{"ip": "10.0.0.7", "password": "s3cret"}"#,
            "proxy:80:u:p@s3cret",
            "10.0.0.7:80/s3cret",
            "10.0.0.7:80?s3cret",
            "10.0.0.7:80#s3cret",
            "10.0.0.7:80 u:s3cret",
            "h/s3cret",
            "h:80?key=s3cret&insecure=1",
        ] {
            let shown = masked(text.as_bytes());
            assert!(!shown.contains("s3") && !shown.contains("cret"), "{shown}");
        }
    }

    /// A password may look like a port.
    #[test]
    fn masking_never_shows_a_password_of_digits() {
        for secret in ["7", "77", "777", "7777", "60777", "77777", "777777", "7777777777777777777777"] {
            for form in [
                "u:SECRET@h:80",
                "http://u:SECRET@h:80",
                "SECRET@h:80",
                "SECRET:@h:80",
                "u:SECRET:h:80",
                "u:SECRET:10.0.0.8:80",
                "u:SECRET:a.example:80",
                "u:SECRET:[2001:db8::1]:80",
                "http://u:SECRET:h:80",
                "john.doe:SECRET:10.0.0.8:80",
                "john.doe:SECRET:h:80",
                "john.doe:SECRET:h:",
                "john.doe:SECRET:a.example:http",
                "john.doe:SECRET:h",
                "u:SECRET:h",
                "h:80:u:SECRET",
                "a.example:80:u:SECRET",
                "10.0.0.8:80:u:SECRET",
                "[2001:db8::1]:80:u:SECRET",
                "10.0.0.8:80@u:SECRET",
                "a.example:80@u:SECRET",
                "[2001:db8::1]:80@u:SECRET",
                "http://10.0.0.8:80@u:SECRET",
                "u:SECRET x",
                "u:SECRETx",
                "http://u:SECRET|SECRET@h:80",
                "u.x:SECRET|SECRET@h:80",
                "http://u:SECRET|socks5://SECRET@h",
                "http://u:SECRET|SECRET@h",
            ] {
                let text = form.replace("SECRET", secret);
                for shown in shown(&text) {
                    assert!(!shown.contains('7'), "{text}: {shown}");
                }
                if let Err(why) = Member::parse(&Name::from(text.clone())) {
                    assert!(!format!("{why} {why:?}").replace("%7C", "").contains('7'), "{text}: {why}");
                }
            }
        }
    }

    #[test]
    fn masking_leaves_what_tells_an_operator_which_member_it_is() {
        let long = format!("{}:p@a.example:80", "u".repeat(300));
        let long_shown = format!("{}…:***@a.example:80", "u".repeat(USER_SHOWN));
        for (text, shown) in [
            ("10.0.0.7:3128", "10.0.0.7:3128"),
            ("h:12345", "h:12345"),
            ("http://[2001:db8::1]:80/", "http://[2001:db8::1]:80/"),
            ("http://u:p@[2001:db8::1]:80", "http://u:***@[2001:db8::1]:80"),
            ("u:p@h:99999", "u:***@h:99999"),
            ("john.doe:p@a.example:80", "john.doe:***@a.example:80"),
            ("john.doe:12345@10.0.0.7:80", "john.doe:***@10.0.0.7:80"),
            ("key@h:80", "***@h:80"),
            ("10.0.0.7:3128:u:p", "10.0.0.7:3128:***"),
            ("10.0.0.7:3128:u:p@ss", "10.0.0.7:3128:***"),
            ("gate.example:10001:u:p4ss", "gate.example:10001:***"),
            ("u:p:10.0.0.7:3128", "u:***"),
            ("u]:12345:10.0.0.7:3128", "u***"),
            ("10.0.0.7:3128@u:p", "10.0.0.7:***@u:***"),
            ("https://h:80?sni=a.example&insecure=1", "https://h:80?sni=a.example&insecure=1"),
            ("https://h:80/?insecure=1", "https://h:80/?insecure=1"),
            ("http://h:80/path", "http://h:80/***"),
            ("http://10.0.0.1:3128|socks5://u:p@b.example", "http://10.0.0.1:3128|socks5://u:***@b.example"),
            ("http://a.example:3128|ftp://u:p@b:21", "http://a.example:3128|***://u:***@b:21"),
            ("http://a:3128|socks5://u:p@b.example:99999", "http://a:***|socks5://u:***@b.example:99999"),
            ("http://u:p@a:1|v:q@10.0.0.9:1080", "http://u:***@a:1|v:***@10.0.0.9:1080"),
            ("10.0.0.2:3128|v:q@10.0.0.9:1080", "10.0.0.2:3128|v:***@10.0.0.9:1080"),
            ("10.0.0.2:3128|v:q", "10.0.0.2:***"),
            ("http://h", "http://h"),
            ("http://h:", "http://h:"),
            ("http://u:p@a.example", "http://u:***@a.example"),
            ("10.0.0.7 80", "10.0.0.7***"),
            ("@h:80", "***@h:80"),
            (&long, &long_shown),
            ("", ""),
        ] {
            assert_eq!(masked(text.as_bytes()), shown);
        }
        let endless = masked(&[b'a'; 4096]);
        assert_eq!((endless.chars().count(), endless.chars().last()), (SHOWN + 1, Some('…')));
        let long = masked(format!("http://{}:1|ftp://b", "a".repeat(4096)).as_bytes());
        assert_eq!(long, format!("http://{}…|***://b", "a".repeat(SHOWN - "http://".len())));
        let endless = masked("http://10.0.0.1:1|".repeat(1000).as_bytes());
        assert_eq!(endless, "http://10.0.0.1:1|".repeat(MAX_HOPS) + "…");
    }

    #[test]
    fn other_texts_keep_what_is_no_secret() {
        for (text, shown) in [
            ("10 seconds", "10 seconds"),
            ("/run/redis.sock", "/run/redis.sock"),
            ("0.0.0.0:8080", "0.0.0.0:8080"),
            ("redis://u:p@h:6379/3?node=i", "redis://u:***@h:6379/3?node=i"),
            ("redis://h/0", "redis://h/0"),
            ("evenkeel:default", "evenkeel:***"),
            ("a/b:c", "a/b:***"),
            ("redis://u:p@h x:80", "redis://u:***@***"),
        ] {
            assert_eq!(masked_text(text.as_bytes()), shown);
        }
    }
}
