//! A member for an operator's eyes: its secrets hidden, also in a text that is no member.

use std::net::Ipv4Addr;

use super::{Member, Name, hops};

/// A member for an operator's eyes, also one that cannot be parsed: what is or could be a secret hidden, control
/// characters and bytes outside ASCII escaped, cut to a length that fits on a line.
///
/// Hidden are a password, a user name that stands alone (often an API key), and whatever follows the first colon of
/// what should be `host:port` and is not; an address's port is shown in front of what follows it.
pub fn masked(name: &[u8]) -> String {
    // Only where it is certain what is a hop, each is masked by itself.
    if name.contains(&b'|') && Member::parse(&Name::copy_from_slice(name)).is_ok() {
        let text = String::from_utf8_lossy(name);
        return hops(&text).into_iter().map(|hop| masked_one(hop.as_bytes())).collect::<Vec<_>>().join("|");
    }
    masked_one(name)
}

fn masked_one(name: &[u8]) -> String {
    const SHOWN: usize = 120;
    const MASK: &[u8] = b"***";
    // A :// behind something that is no scheme is part of a secret.
    let is_scheme = |text: &[u8]| text.iter().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    let scheme = name.windows(3).position(|w| w == b"://").filter(|&end| is_scheme(&name[..end]));
    let (scheme, rest) = name.split_at(scheme.map_or(0, |end| end + 3));
    let (credentials, place) = match rest.iter().rposition(|&b| b == b'@') {
        Some(at) => rest.split_at(at),
        None => (&rest[..0], rest),
    };
    let user = credentials.iter().position(|&b| b == b':').map_or(0, |colon| colon + 1);
    let hidden = if credentials.is_empty() && !place.starts_with(b"@") { &[][..] } else { MASK };
    let shown = visible(place);
    let cut = if shown < place.len() { MASK } else { &[] };
    let shown = [scheme, &credentials[..user], hidden, &place[..shown], cut].concat();
    let mut text = shown[..shown.len().min(SHOWN)].escape_ascii().to_string();
    if shown.len() > SHOWN {
        text.push('…');
    }
    text
}

/// How much of what should be `[@]host:port` may be seen: all of it, or as far as a colon.
fn visible(place: &[u8]) -> usize {
    let is_ip = |b: &u8| b.is_ascii_hexdigit() || b":.".contains(b);
    let start = usize::from(place.starts_with(b"@"));
    let bracket = match place[start..].strip_prefix(b"[").and_then(|inner| inner.iter().position(|b| !is_ip(b))) {
        Some(end) if place[start + 1 + end] == b']' => start + end + 2,
        _ => start,
    };
    let Some(colon) = place[bracket..].iter().position(|&b| b == b':') else { return place.len() };
    let after_colon = bracket + colon + 1;
    let digits = place[after_colon..].iter().take_while(|b| b.is_ascii_digit()).count();
    let host = &place[start..after_colon - 1];
    let is_address =
        (bracket > start && colon == 0) || std::str::from_utf8(host).is_ok_and(|host| host.parse::<Ipv4Addr>().is_ok());
    match place.get(after_colon + digits) {
        None | Some(b'/' | b'?' | b'#') => place.len(),
        // Behind anything but an address, digits may be a password: user:12345:host:80.
        Some(b':') if (1..=5).contains(&digits) && is_address => after_colon + digits + 1,
        Some(_) => after_colon,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masking_never_shows_a_password_even_of_what_cannot_be_parsed() {
        for text in [
            "http://u:s3cret@h:1",
            "http://s3cret@h:1",
            "ftp://u:s3cret@h",
            "u:s3cret@",
            "x://u:s3@cret@h:1",
            "://u:s3cret@\x01",
            "h:80:u:s3cret",
            "u:s3cret@h:1,http://x@h:2",
            "http://u:s3/cret@h:80",
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
        ] {
            let shown = masked(text.as_bytes());
            assert!(!shown.contains("s3") && !shown.contains("cret"), "{shown}");
        }
    }

    #[test]
    fn masking_leaves_what_tells_an_operator_which_member_it_is() {
        for (text, shown) in [
            ("10.0.0.7:3128", "10.0.0.7:3128"),
            ("http://[2001:db8::1]:80/", "http://[2001:db8::1]:80/"),
            ("http://u:p@[2001:db8::1]:80", "http://u:***@[2001:db8::1]:80"),
            ("key@h:80", "***@h:80"),
            ("10.0.0.7:3128:u:p", "10.0.0.7:3128:***"),
            ("u:p:10.0.0.7:3128", "u:***"),
            ("u:12345:10.0.0.7:3128", "u:***"),
            ("u]:12345:10.0.0.7:3128", "u]:***"),
            ("john.doe:12345:10.0.0.7:3128", "john.doe:***"),
            ("[2001:db8::1]:80:u:p", "[2001:db8::1]:80:***"),
            ("10.0.0.7:3128@u:p", "10.0.0.7:***@u:***"),
            ("http://h:80/path", "http://h:80/path"),
            ("http://h", "http://h"),
            ("http://h:", "http://h:"),
            ("@h:80", "***@h:80"),
        ] {
            assert_eq!(masked(text.as_bytes()), shown);
        }
    }
}
