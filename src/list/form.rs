//! One proxy in one word: a URL, `host:port`, and the other ways in which they are sold.
//!
//! What is a member's URL as it stands stays as it stands, with one exception: `host:port@user:password`, whose host is before
//! the @ when it looks like one more than what is behind. Of everything else, only what has one reading is taken.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::cells::DELIMITERS;
use super::meta;
use super::place::{self, Likeness};
use super::protocol::{Protocol, SOCKS};
use super::reason::Reason;
use crate::member::{MAX_LEN, Malformed, Member, Name};

/// Everything that RFC 3986 §2.3 does not call unreserved.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a word says.
#[derive(Debug)]
pub(super) enum Form<'a> {
    /// A member's URL, or one without its scheme; and what it is as it stands, with the default for its scheme.
    Url(&'a str, Member),
    /// A member in other words.
    Parts { protocol: Option<Protocol>, host: &'a str, port: &'a str, login: Option<Login<'a>>, open: Option<Open> },
}

/// At which end of a word a user name or a password ends only because the word does: what stands next to the word could
/// belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    Front,
    Back,
}

impl Form<'_> {
    /// How much its host looks like one; a scheme leaves no doubt.
    pub(super) fn likeness(&self) -> Likeness {
        match self {
            Self::Parts { protocol: Some(_), .. } => Likeness::Ip,
            Self::Parts { host, .. } => place::host(host),
            Self::Url(url, _) if split_scheme(url).is_some() => Likeness::Ip,
            Self::Url(url, _) => likeness(authority(url.rsplit_once('@').map_or(url, |(_, back)| back))),
        }
    }

    /// Whether it says itself what is spoken.
    pub(super) fn has_scheme(&self) -> bool {
        match self {
            Self::Url(url, _) => split_scheme(url).is_some(),
            Self::Parts { protocol, .. } => protocol.is_some(),
        }
    }

    /// Its host as it is written and its port; none of a chain or of `direct://`.
    pub(super) fn place(&self) -> Option<(Cow<'_, str>, u16)> {
        match self {
            Self::Parts { host, port, .. } => Some((Cow::Borrowed(host), port.parse().ok()?)),
            Self::Url(_, member) => {
                let mut hops = member.way();
                let address = hops.next()?.address().filter(|_| hops.next().is_none())?;
                Some((address.host.to_string().into(), address.port))
            }
        }
    }

    /// Where its user name and password are not held in by anything.
    pub(super) fn open(&self) -> Option<Open> {
        match self {
            Self::Parts { open, .. } => *open,
            Self::Url(url, _) => (split_scheme(url).is_none() && first_hop(url).contains('@')).then_some(Open::Front),
        }
    }

    /// User name and password, as they stand there.
    pub(super) fn login(&self) -> Option<(&str, &str)> {
        match self {
            Self::Url(url, _) => {
                let hop = first_hop(url);
                let (login, _) = split_scheme(hop).map_or(hop, |(_, rest)| rest).rsplit_once('@')?;
                Some(login.split_once(':').unwrap_or((login, "")))
            }
            Self::Parts { login, .. } => login.as_ref().map(|login| (&*login.user, &*login.password)),
        }
    }

    /// Whether its user name and password can be meant as they were read. Not so where something that usually is no part of
    /// them stands at an end that nothing holds: a name with an equals sign, a protocol, a quote, another URL.
    fn is_sound(&self) -> bool {
        let (Some(open), Some((user, password))) = (self.open(), self.login()) else { return true };
        let is_protocol = |text: &str| text.parse::<Protocol>().is_ok();
        let is_remark = |text: &str| is_protocol(text) || meta::is_country(text) || meta::anonymity(text).is_some();
        let (first, last) = if open == Open::Front { (user, user) } else { (user, password) };
        let is_named = open == Open::Front && first.split_once('=').is_some_and(|(name, _)| is_name(name));
        let ends_in_remark = last.rsplit_once(':').is_some_and(|(_, end)| is_remark(end));
        let is_quoted = |text: &str| {
            text.starts_with('"')
                || text.ends_with('"')
                || (text.len() > 1 && text.starts_with('\'') && text.ends_with('\''))
        };
        let is_between = |c: char| c.is_ascii() && DELIMITERS.contains(&(c as u8));
        let has_slash = last.ends_with('/') && matches!(self, Self::Parts { protocol: Some(_), .. });
        let has_url = user.contains("://") || password.contains("://") || password.starts_with("//");
        !(is_protocol(user.split('#').next().unwrap_or(user))
            || user.contains('/')
            || has_url
            || is_named
            || is_quoted(user)
            || is_quoted(password)
            || (open == Open::Back && (has_slash || ends_in_remark || last.ends_with(is_between))))
    }
}

/// Whether a text is the name of a variable or of a setting.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

/// A user and a password as they are, not percent-encoded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Login<'a> {
    pub(super) user: Cow<'a, str>,
    pub(super) password: Cow<'a, str>,
}

impl Login<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.user.is_empty() && self.password.is_empty()
    }

    /// RFC 7617 §2 has none, and where one is, it is there by mistake.
    pub(super) fn has_control(&self) -> bool {
        self.user.chars().chain(self.password.chars()).any(char::is_control)
    }

    /// A character that nobody sees, and nobody has typed.
    pub(super) fn invisible(&self) -> Option<char> {
        self.user.chars().chain(self.password.chars()).find(|&c| is_invisible(c))
    }

    /// As it goes before the @ of a URL.
    pub(super) fn encoded(&self) -> String {
        let encode = |text| utf8_percent_encode(text, ESCAPED);
        if self.password.is_empty() {
            encode(&self.user).to_string()
        } else {
            format!("{}:{}", encode(&self.user), encode(&self.password))
        }
    }
}

/// What is before the bar in front of the next hop's scheme.
fn first_hop(url: &str) -> &str {
    joint(url).map_or(url, |at| &url[..at])
}

/// Where a bar stands before a scheme, the first time.
pub(super) fn joint(text: &str) -> Option<usize> {
    let is_before_scheme = |at: usize| {
        let next = &text[at + 1..];
        let length = next.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(next.len());
        length > 0 && next[length..].starts_with("://")
    };
    text.match_indices('|').map(|(at, _)| at).find(|&at| is_before_scheme(at))
}

/// Whether a character has no width, or only says in which direction to write: what comes along when text is copied from pages.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// The scheme of a URL and what follows its `://`.
pub(super) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    is_scheme.then_some((scheme, rest))
}

/// Reads a word. `default`: what is spoken when it does not say.
pub(super) fn read(text: &str, default: Option<Protocol>) -> Result<Form<'_>, Reason> {
    if text.len() > MAX_LEN {
        return Err(Malformed::TooLong.into());
    }
    let form = match split_scheme(text) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SOCKS) => {
            return if default.is_some_and(Protocol::is_socks) { read(rest, default) } else { Err(Reason::Version) };
        }
        Some((scheme, rest)) => read_url(text, scheme, rest),
        None if text.contains('@') => read_at(text, default),
        None => match parse(text, default) {
            Ok(member) => Ok(Form::Url(text, member)),
            // What is behind the bar is no part of what is before it.
            Err(why @ Malformed::Hop(..)) => Err(why.into()),
            // Unless it is part of a password.
            Err(why @ Malformed::BadOption(_)) if is_place(authority(text)) => {
                read_parts(text, None).map_err(|_| why.into())
            }
            Err(_) => read_parts(text, None),
        },
    }?;
    if form.is_sound() { Ok(form) } else { Err(Reason::Extent) }
}

/// Whether it is a host and its port, and nothing else.
fn is_place(text: &str) -> bool {
    pair(text).is_some_and(|(host, port)| place::host(host) >= Likeness::Dotted && place::is_port(port))
}

/// A member, if the text is one.
fn parse(text: &str, default: Option<Protocol>) -> Result<Member, Malformed> {
    Member::parse(&match default {
        Some(protocol) => Name::from(format!("{protocol}://{text}")),
        None => Name::copy_from_slice(text.as_bytes()),
    })
}

fn read_url<'a>(text: &'a str, scheme: &str, rest: &'a str) -> Result<Form<'a>, Reason> {
    let malformed = match parse(text, None) {
        Ok(member) => return Ok(Form::Url(text, member)),
        Err(malformed) => malformed,
    };
    // No URL, but what follows the scheme may be one of the other forms. Not so in a chain.
    let (Ok(protocol), false) = (scheme.parse::<Protocol>(), matches!(malformed, Malformed::Hop(..))) else {
        return Err(malformed.into());
    };
    if rest.contains("://") {
        return Err(malformed.into());
    }
    if rest.contains('@') {
        let ends = Ends::of(rest);
        return ends.read(Some(protocol)).ok_or_else(|| why(malformed, ends.back, Likeness::Ip));
    }
    match place::parts(authority(rest)).len() {
        0..=2 => Err(why(malformed, authority(rest), Likeness::Dotted)),
        _ => {
            let form = read_parts(rest.strip_suffix('/').unwrap_or(rest), Some(protocol))?;
            // Is it the URL's, or the password's?
            if rest.ends_with('/') && form.open() == Some(Open::Back) { Err(Reason::Extent) } else { Ok(form) }
        }
    }
}

/// `user:password@host:port`, `host:port@user:password`, or parts with an @ in a password.
fn read_at(text: &str, default: Option<Protocol>) -> Result<Form<'_>, Reason> {
    let ends = Ends::of(text);
    match parse(text, default) {
        // An address and a bad port, and something like a port where the password should be.
        Ok(_) if ends.has_bad_front() && likeness(ends.back) < Likeness::Dotted => {
            Err(pair(ends.front).map_or(Reason::Unknown, |(_, port)| port_reason(port)))
        }
        // The usual order, unless the other one is much more likely.
        Ok(member) if !ends.is_host_first() || text.contains("://") => Ok(Form::Url(text, member)),
        Ok(_) => ends.read(None).ok_or(Reason::Unknown),
        Err(malformed @ Malformed::Hop(..)) => Err(malformed.into()),
        Err(malformed) => ends.read(None).ok_or_else(|| why(malformed, ends.back, Likeness::Ip)),
    }
}

/// The two ends of what has an @, of which one may be a host and a port.
struct Ends<'a> {
    text: &'a str,
    /// What is before the first @, or the first two parts if there are more.
    front: &'a str,
    after_front: &'a str,
    before_back: &'a str,
    /// Behind the last @, without what follows an authority.
    back: &'a str,
    /// Which is nothing.
    is_end: bool,
}

impl<'a> Ends<'a> {
    fn of(text: &'a str) -> Self {
        let (before_front, after_front) = text.split_once('@').unwrap_or((text, ""));
        let (before_back, back) = text.rsplit_once('@').unwrap_or(("", text));
        let front = match place::parts(before_front)[..] {
            [host, port, _, ..] => &text[..host.len() + 1 + port.len()],
            _ => before_front,
        };
        let is_end = back.strip_suffix('/').unwrap_or(back) == authority(back);
        Self { text, front, after_front, before_back, back: authority(back), is_end }
    }

    fn is_host_first(&self) -> bool {
        let pretension = pair(self.back).map_or(Likeness::No, |(host, port)| place::pretension(host, port));
        likeness(self.front) > pretension
    }

    /// There is an address in front, with a number that is no port.
    fn has_bad_front(&self) -> bool {
        let is_bad = |(host, port)| !place::is_port(port) && place::pretension(host, port) > Likeness::No;
        pair(self.front).is_some_and(is_bad)
    }

    fn read(&self, protocol: Option<Protocol>) -> Option<Form<'a>> {
        let is_raw = self.is_host_first();
        let has_parts = self.text.as_bytes().get(self.front.len()) == Some(&b':');
        let (place, login) = if is_raw { (self.front, self.after_front) } else { (self.back, self.before_back) };
        // What would be a URL's host and path, and an @ in the path.
        let is_path = !is_raw && authority(login) != login && likeness(authority(login)) >= Likeness::Dotted;
        if is_path || !(is_raw || self.is_end) {
            return None;
        }
        // An @ that only is part of a user name or a password: host:port:user:p@ssword.
        if likeness(place) == Likeness::No || (is_raw && has_parts) {
            return read_parts(self.text, protocol).ok();
        }
        let ((host, port), (user, password)) = (pair(place)?, login.split_once(':').unwrap_or((login, "")));
        let is_encoded = !is_raw && has_whole_escapes(login);
        let text = |text: &'a str| {
            let decoded = is_encoded.then(|| percent_decode_str(text).decode_utf8().ok()).flatten();
            decoded.unwrap_or(Cow::Borrowed(text))
        };
        let login = Login { user: text(user), password: text(password) };
        let open = if is_raw { Some(Open::Back) } else { Some(Open::Front).filter(|_| protocol.is_none()) };
        Some(Form::Parts { protocol, host, port, login: Some(login), open })
    }
}

/// What is before the path, query or fragment.
fn authority(text: &str) -> &str {
    &text[..text.find(['/', '?', '#']).unwrap_or(text.len())]
}

fn pair(text: &str) -> Option<(&str, &str)> {
    match place::parts(text)[..] {
        [host, port] => Some((host, port)),
        _ => None,
    }
}

fn likeness(text: &str) -> Likeness {
    pair(text).map_or(Likeness::No, |(host, port)| place::likeness(host, port))
}

/// Whether every `%` begins an escape (RFC 3986 §2.1). Otherwise none of them is meant as one.
fn has_whole_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

/// Parts with colons between.
fn read_parts<'a>(text: &'a str, protocol: Option<Protocol>) -> Result<Form<'a>, Reason> {
    let parts = place::parts(text);
    let form = |protocol: Option<Protocol>, host, port, login: Option<(Login<'a>, Open)>| {
        let open = login.as_ref().map(|(_, open)| *open).filter(|&open| open == Open::Back || protocol.is_none());
        Ok(Form::Parts { protocol, host, port, login: login.map(|(login, _)| login), open })
    };
    // Some parts, with the colons between.
    let span = |from: usize, to: usize| {
        let length = |parts: &[&str]| parts.iter().map(|part| part.len() + 1).sum::<usize>();
        &text[length(&parts[..from])..length(&parts[..to]) - 1]
    };
    let is_place = |at: usize| place::likeness(parts[at], parts[at + 1]) > Likeness::No;
    match parts[..] {
        [host] if place::host(host) >= Likeness::Dotted => Err(Reason::NoPort),
        [host, port] if is_place(0) => form(protocol, host, port, None),
        [host, port, last] if is_place(0) => match last.parse() {
            Ok(named) if protocol.is_none() => form(Some(named), host, port, None),
            _ => Err(Reason::ThreeParts),
        },
        [first, ..]
            if protocol.is_none()
                && matches!(parts.len(), 3 | 5..)
                && is_place(1)
                && first.parse::<Protocol>().is_ok() =>
        {
            read_parts(span(1, parts.len()), first.parse().ok())
        }
        [_, _, _] if is_place(1) => Err(Reason::ThreeParts),
        [host, port, .., far_host, far_port] => {
            let front = (place::likeness(host, port), place::pretension(host, port));
            let back = (place::likeness(far_host, far_port), place::pretension(far_host, far_port));
            if front.0.max(back.0) < Likeness::Dotted && begins_with_ipv6(text) {
                Err(Reason::Brackets)
            } else if front.0 > back.1 {
                let login = Login { user: parts[2].into(), password: span(3, parts.len()).into() };
                form(protocol, host, port, Some((login, Open::Back)))
            } else if back.0 > front.1 {
                let login = Login { user: host.into(), password: span(1, parts.len() - 2).into() };
                form(protocol, far_host, far_port, Some((login, Open::Front)))
            } else if front.1 == back.1 && front.1 > Likeness::No {
                Err(Reason::Order)
            } else {
                Err(why_no_place(&parts))
            }
        }
        [_, _, _] if begins_with_ipv6(text) => Err(Reason::Brackets),
        _ => Err(why_no_place(&parts)),
    }
}

/// Whether an IPv6 address without brackets ends at one of the colons, or at the end.
fn begins_with_ipv6(text: &str) -> bool {
    let ends = text.match_indices(':').map(|(at, _)| at).skip(1).take(8).chain([text.len()]);
    ends.into_iter().any(|end| place::is_ipv6(&text[..end]))
}

/// What is wrong where no two parts are a host and its port.
fn why_no_place(parts: &[&str]) -> Reason {
    let behind = |sure| {
        let at = parts.iter().position(|part| place::host(part) >= sure)?;
        parts.get(at + 1).copied()
    };
    match (behind(Likeness::Ip), behind(Likeness::Dotted), parts) {
        (Some(port), _, _) => port_reason(port),
        (None, Some(_), _) => Reason::NotAPort,
        (None, None, [_, port]) if place::is_port(port) => Reason::Host,
        (None, None, [_, port]) if place::is_digits(port) => Reason::NotAPort,
        _ => Reason::Unknown,
    }
}

/// What is wrong with a member, of which `end` should be the host and the port. The port is shown only if the host is as sure
/// as that: elsewhere it may be a password.
fn why(malformed: Malformed, end: &str, sure: Likeness) -> Reason {
    match (malformed, pair(end)) {
        (Malformed::BadPort(_), Some((host, port))) if place::host(host) >= sure => port_reason(port),
        (malformed, _) => malformed.into(),
    }
}

/// What is wrong with a text that should be a port. A long number may be something else, and is not shown.
pub(super) fn port_reason(port: &str) -> Reason {
    match port.parse() {
        Ok(number) if place::is_digits(port) && port.len() <= 6 && !place::is_port(port) => Reason::Port(number),
        _ if port.is_empty() => Reason::NoPort,
        _ if place::is_port(port) => Reason::ThreeParts,
        _ => Reason::NotAPort,
    }
}

#[cfg(test)]
mod tests {
    use super::super::draft::Draft;
    use super::*;

    fn member(text: &str, default: Option<Protocol>) -> Result<String, Reason> {
        let listed = read(text, default).map(Draft::of)?.finish(default)?;
        Ok(String::from_utf8(listed.member.name().to_vec()).unwrap())
    }

    #[test]
    fn a_url_stays_as_it_is() {
        for text in [
            "http://10.0.0.7:3128",
            "HTTPS://u:p%40@gate.example:443/?insecure=1",
            "socks4://me@10.0.0.7:1080",
            "socks4a://10.0.0.7:1080",
            "socks5://u:p@[2001:db8::1]:1080",
            "socks5h://u:@10.0.0.7:1080/",
            "direct://",
            "direct://198.51.100.7",
            "http://a:3128|socks5h://u:p@b:1080",
            "10.0.0.7:3128",
            "[2001:db8::1]:3128",
            "proxy:3128",
            "u:p@10.0.0.7:3128",
            "key@10.0.0.7:3128",
            "user:1234@proxy:3128",
            "10.0.0.7:1234@10.0.0.8:3128",
            "h:1@h:80",
        ] {
            assert_eq!(member(text, None).as_deref(), Ok(text));
        }
    }

    #[test]
    fn the_other_forms_become_urls() {
        for (text, name) in [
            ("10.0.0.7:3128:user:s3cret", "http://user:s3cret@10.0.0.7:3128"),
            ("10.0.0.7:3128:user:s3:cr:et", "http://user:s3%3Acr%3Aet@10.0.0.7:3128"),
            ("10.0.0.7:3128:user:12345", "http://user:12345@10.0.0.7:3128"),
            ("10.0.0.7:3128:john.doe:12345", "http://john.doe:12345@10.0.0.7:3128"),
            ("[2001:db8::1]:3128:user:s3cret", "http://user:s3cret@[2001:db8::1]:3128"),
            ("gate.example:3128:user-zone-x:p%w/ü", "http://user-zone-x:p%25w%2F%C3%BC@gate.example:3128"),
            ("proxy:3128:user:s3cret", "http://user:s3cret@proxy:3128"),
            ("10.0.0.7:3128::", "http://10.0.0.7:3128"),
            ("user:s3cret:10.0.0.7:3128", "http://user:s3cret@10.0.0.7:3128"),
            ("user:12345:10.0.0.7:3128", "http://user:12345@10.0.0.7:3128"),
            ("john.doe:12345:10.0.0.7:3128", "http://john.doe:12345@10.0.0.7:3128"),
            ("user:s3:cret:gate.example:3128", "http://user:s3%3Acret@gate.example:3128"),
            ("user:s3cret:[2001:db8::1]:3128", "http://user:s3cret@[2001:db8::1]:3128"),
            ("john.doe:123456:proxy:3128", "http://john.doe:123456@proxy:3128"),
            ("user:s3cret:proxy:3128", "http://user:s3cret@proxy:3128"),
            ("10.0.0.7:3128@user:s3cret", "http://user:s3cret@10.0.0.7:3128"),
            ("10.0.0.7:3128@user:s3@cr:et", "http://user:s3%40cr%3Aet@10.0.0.7:3128"),
            ("10.0.0.7:3128@user:12345", "http://user:12345@10.0.0.7:3128"),
            ("gate.example:3128@user:12345", "http://user:12345@gate.example:3128"),
            ("proxy:3128@user:s3cret", "http://user:s3cret@proxy:3128"),
            ("10.0.0.7:3128:user:s3@cret", "http://user:s3%40cret@10.0.0.7:3128"),
            ("10.0.0.7:3128:user:s3@cr.et:1234", "http://user:s3%40cr.et%3A1234@10.0.0.7:3128"),
            ("us@er:s3@cret:10.0.0.7:3128", "http://us%40er:s3%40cret@10.0.0.7:3128"),
            ("http://10.0.0.7:3128:user:s3@cret", "http://user:s3%40cret@10.0.0.7:3128"),
            ("user:s3/cr?et@10.0.0.7:3128", "http://user:s3%2Fcr%3Fet@10.0.0.7:3128"),
            ("user:100%@10.0.0.7:3128", "http://user:100%25@10.0.0.7:3128"),
            ("user:a%40/b@10.0.0.7:3128", "http://user:a%40%2Fb@10.0.0.7:3128"),
            ("üser:s3cret@10.0.0.7:3128", "http://%C3%BCser:s3cret@10.0.0.7:3128"),
            ("http://10.0.0.7:3128:user:s3cret", "http://user:s3cret@10.0.0.7:3128"),
            ("socks5://user:s3cret:10.0.0.7:1080", "socks5://user:s3cret@10.0.0.7:1080"),
            ("socks5h://10.0.0.7:1080@user:s3cret", "socks5h://user:s3cret@10.0.0.7:1080"),
            ("https://user:s3/cret@gate.example:443", "https://user:s3%2Fcret@gate.example:443"),
            ("10.0.0.7:1080:SOCKS5", "socks5://10.0.0.7:1080"),
            ("socks5:10.0.0.7:1080", "socks5://10.0.0.7:1080"),
            ("socks5:10.0.0.7:1080:user:s3cret", "socks5://user:s3cret@10.0.0.7:1080"),
        ] {
            assert_eq!(member(text, None).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn a_scheme_is_given_to_what_has_none() {
        let scheme = Some(Protocol::Socks5h);
        for (text, name) in [
            ("10.0.0.7:1080", "socks5h://10.0.0.7:1080"),
            ("u:p@10.0.0.7:1080", "socks5h://u:p@10.0.0.7:1080"),
            ("10.0.0.7:1080:u:p", "socks5h://u:p@10.0.0.7:1080"),
            ("10.0.0.7:1080@u:p", "socks5h://u:p@10.0.0.7:1080"),
            ("http://10.0.0.7:3128", "http://10.0.0.7:3128"),
            ("http://10.0.0.7:3128:u:p", "http://u:p@10.0.0.7:3128"),
            ("10.0.0.7:1080:socks4", "socks4://10.0.0.7:1080"),
            ("10.0.0.7:1080|http://b:2", "socks5h://10.0.0.7:1080|http://b:2"),
            ("direct://", "direct://"),
        ] {
            assert_eq!(member(text, scheme).as_deref(), Ok(name), "{text}");
        }
        let https = Some(Protocol::Https);
        assert_eq!(member("h:443?insecure=1", https).as_deref(), Ok("https://h:443?insecure=1"));
        assert_eq!(member("h:443?insecure=1", None), Err(Reason::Unknown));
    }

    #[test]
    fn what_has_no_or_two_meanings_says_what_to_write() {
        let weight = || Reason::Member(Malformed::BadOption("weight= and a number from 1 to 1000"));
        use Reason::{Brackets, Host, NoPort, NotAPort, Order, Port, Scheme, ThreeParts, Unknown};
        for (text, reason) in [
            ("10.0.0.7:99999", Port(99999)),
            ("10.0.0.7:0", Port(0)),
            ("http://10.0.0.7:99999", Port(99999)),
            ("http://gate.example:99999", Port(99999)),
            ("10.0.0.7:99999:user:s3cret", Port(99999)),
            ("10.0.0.7:99999:user:s3cret:8", Port(99999)),
            ("10.0.0.7:99999:user:1234", Port(99999)),
            ("10.0.0.7:99999@user:1234", Port(99999)),
            ("10.0.0.7:99999:10.0.0.8:80", Order),
            ("user:s3cret:10.0.0.7:99999", Port(99999)),
            ("user:s3cret@10.0.0.7:99999", Port(99999)),
            // What could be a password is not shown.
            ("10.0.0.7:3128?weight=0", weight()),
            ("10.0.0.7:3128?weight=1001", weight()),
            ("user:123456", NotAPort),
            ("gate.example:99999@user:123456", NotAPort),
            ("john.doe:123456:10.0.0.7:99999", Port(99999)),
            ("10.0.0.7:1234567", NotAPort),
            ("10.0.0.7:http", NotAPort),
            ("10.0.0.7:", NoPort),
            ("10.0.0.7", NoPort),
            ("http://10.0.0.7", NoPort),
            ("gate.example", NoPort),
            ("[2001:db8::1]", NoPort),
            ("10.0.0.256:3128", Host),
            ("a..b:3128", Host),
            ("http://10.0.0.256:3128", Host),
            ("10.0.0.7:3128:10.0.0.8:3129", Order),
            ("gate.example:3128:john.doe:1234", Order),
            ("proxy:3128:user:1234", Order),
            ("user:12345:10.0.0.256:80", Order),
            ("10.0.0.7:3128:user", ThreeParts),
            ("user:10.0.0.7:3128", ThreeParts),
            ("2001:db8::1:3128", Brackets),
            ("2001:db8::1", Brackets),
            ("fe80::abcd:ef:8080", Brackets),
            ("::1:3128:user:s3cret", Brackets),
            ("ftp://10.0.0.7:21", Scheme),
            ("ss://YWVzLTI1Ni1nY206cGFzcw@10.0.0.7:8388", Scheme),
            ("a://b|c", Scheme),
            ("proxies", Unknown),
            ("user:s3cret", Unknown),
            ("a:b:c:d", Unknown),
            (":", Unknown),
            ("::::", Brackets),
            ("@", Reason::NoHost),
            ("http://", Reason::NoHost),
            ("user:s3/cret@10.0.0.7:3128/path", Reason::Member(Malformed::Unescaped)),
            ("http://10.0.0.7:3128/path", Reason::Member(Malformed::Trailing)),
            ("http://10.0.0.7:3128/a@b:80", Reason::Member(Malformed::Unescaped)),
            ("http://a:1|b:2", Reason::Hop(2, Box::new(Reason::Member(Malformed::NextScheme)))),
            ("socks4://user:s3cret@10.0.0.7:1080", Reason::Member(Malformed::Socks4Login)),
            ("direct://gate.example", Reason::Member(Malformed::BadSource)),
        ] {
            assert_eq!(member(text, None), Err(reason), "{text}");
        }
    }
}
