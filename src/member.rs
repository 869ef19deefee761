//! One pool member: the URL of an upstream proxy, parsed once.
//!
//! A member is stored as it was added, byte for byte; parsing only reads it. What cannot be parsed is never
//! dialed: the caller sets it aside with the reason given here.
//! Secrets: the password lives in the member's name and in its kind, and nowhere else.
//! Everything that is printed goes through [`Member::id`], [`Member::masked`] or [`masked`].

mod address;
mod chain;
mod kind;
mod malformed;
mod mask;
mod options;

use std::fmt;

use bytes::Bytes;
use hyper::header::HeaderValue;

pub(crate) use address::{Address, Host};
pub(crate) use kind::{Kind, Login, Socks, Tls};
pub use malformed::Malformed;
pub use mask::masked;
pub(crate) use mask::masked_text;

/// A member as Redis holds it: any bytes, equal only when every byte is.
pub type Name = Bytes;

/// The longest member that is looked at; a host name has at most 253 octets, credentials rarely a few hundred.
pub(crate) const MAX_LEN: usize = 4096;

/// Hexadecimal digits in an id.
const ID_DIGITS: usize = 10;

/// The longest chain.
const MAX_HOPS: usize = 8;

/// An upstream proxy that can be dialed, or a chain of them.
#[derive(Clone)]
pub struct Member {
    name: Name,
    id: String,
    /// The hops of a chain before the last.
    before: Vec<Kind>,
    /// The last hop, or the only one.
    kind: Kind,
}

impl Member {
    /// Reads `[scheme://][user[:password]@]host:port[/][?options]`, where no scheme means http, or
    /// `direct://[source address]`; or several proxies joined by `|`, each but the first with its scheme.
    ///
    /// # Errors
    /// The first thing that makes the member unusable; see [`Malformed`].
    pub fn parse(name: &Name) -> Result<Self, Malformed> {
        if name.len() > MAX_LEN {
            return Err(Malformed::TooLong);
        }
        if name.iter().all(u8::is_ascii_whitespace) {
            return Err(Malformed::Empty);
        }
        if let Some(&bad) = name.iter().find(|b| !b.is_ascii_graphic()) {
            return Err(Malformed::BadByte(bad));
        }
        let text = std::str::from_utf8(name).map_err(|_| Malformed::BadByte(0xff))?;
        let hops = match &chain::hops(text)[..] {
            hops if hops.len() > MAX_HOPS => return Err(Malformed::LongChain),
            [only] if !only.contains('|') => vec![kind::read(only)?],
            hops => (0..hops.len()).map(|at| read_hop(hops, at)).collect::<Result<_, _>>()?,
        };
        let id = id_of(&hops.iter().map(|hop| &*hop.identity).collect::<Vec<_>>().join("|"));
        if hops.iter().rev().skip(1).any(|hop| hop.weight.is_some()) {
            return Err(Malformed::WeightInChain);
        }
        let mut kinds: Vec<Kind> = hops.into_iter().map(|hop| hop.kind).collect();
        if kinds.len() > 1 && kinds.iter().any(|kind| matches!(kind, Kind::Direct { .. })) {
            return Err(Malformed::DirectInChain);
        }
        let kind = kinds.pop().ok_or(Malformed::Empty)?;
        Ok(Self { name: name.clone(), id, before: kinds, kind })
    }

    /// No proxy at all: `direct://`.
    pub fn direct() -> Self {
        Self::parse(&Name::from_static(b"direct://")).expect("a member")
    }

    /// The member as the pool holds it. Contains the password: for the store only, never for a log.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// A short stable name for logs and `Proxy-Status` (an RFC 9651 token): a hash of all that makes it a proxy of its
    /// own, credentials included, since many providers keep a session in the password. A weight is none of that.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it is reached, hop by hop, and what is spoken with each. At least one; several in a chain.
    pub(crate) fn way(&self) -> impl Iterator<Item = &Kind> {
        self.before.iter().chain([&self.kind])
    }

    /// Whether it, or a chain's last hop, is spoken to as an HTTP proxy. With the others, a connection leads to one origin.
    pub(crate) fn is_http_proxy(&self) -> bool {
        matches!(self.kind, Kind::Http { .. })
    }

    /// Whether it is no proxy.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self.kind, Kind::Direct { .. })
    }

    /// The scheme of its URL, or of a chain's last hop.
    pub(crate) fn scheme(&self) -> &'static str {
        match &self.kind {
            Kind::Http { tls: None, .. } => "http",
            Kind::Http { tls: Some(_), .. } => "https",
            Kind::Socks { protocol, .. } => match protocol {
                Socks::V4 => "socks4",
                Socks::V4a => "socks4a",
                Socks::V5 => "socks5",
                Socks::V5h => "socks5h",
            },
            Kind::Direct { .. } => "direct",
        }
    }

    /// The value of `Proxy-Authorization` for this upstream proxy, or a chain's last hop, marked sensitive.
    pub(crate) fn proxy_authorization(&self) -> Option<&HeaderValue> {
        match &self.kind {
            Kind::Http { authorization, .. } => authorization.as_ref(),
            Kind::Socks { .. } | Kind::Direct { .. } => None,
        }
    }

    /// The URL with the password hidden.
    pub fn masked(&self) -> String {
        masked(&self.name)
    }
}

/// Equal when every byte is.
impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Member").field(&self.masked()).finish()
    }
}

/// Reads one of what may be the hops of a chain. What an error says of it may have to be less than of a member alone: in
/// front of a bar and behind it there may be the two halves of a password.
fn read_hop(hops: &[&str], at: usize) -> Result<kind::Hop, Malformed> {
    let (text, next) = (hops[at], hops.get(at + 1));
    let at_hop = |at, why| Malformed::Hop(at + 1, Box::new(why));
    if chain::goes_on(text) {
        return Err(at_hop(at + 1, Malformed::NextScheme));
    }
    kind::read(text).map_err(|why| match why {
        why if hops.len() == 1 => why,
        Malformed::Scheme(_) if at > 0 => at_hop(at, Malformed::NextScheme),
        Malformed::BadPort(_) if !mask::is_surely_port(text, next.copied()) => at_hop(at, Malformed::NotAPort),
        why => at_hop(at, why),
    })
}

/// The id of a member for a listing, also of one that cannot be parsed: a hash of its bytes.
pub fn id(name: &Name) -> String {
    Member::parse(name).map_or_else(|_| id_of(&name.escape_ascii().to_string()), |member| member.id)
}

/// Whether a text has the form of an id, which no member that can be parsed has.
pub fn is_id(text: &str) -> bool {
    text.strip_prefix('p').is_some_and(|hash| hash.len() == ID_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The same on every version and machine. 40 bits: a million members share one by chance in less than one pool of two.
fn id_of(identity: &str) -> String {
    let hash = fred::util::sha1_hash(identity);
    // A token starts with a letter.
    format!("p{}", &hash[..ID_DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &'static str) -> Result<Member, Malformed> {
        Member::parse(&Name::from_static(text.as_bytes()))
    }

    #[test]
    fn a_member_is_an_http_url_or_a_bare_host_and_port() {
        for text in ["http://proxy.example:3128", "HTTP://proxy.example:3128/", "proxy.example:3128"] {
            let Kind::Http { address, tls: None, authorization: None } = parse(text).unwrap().kind else { panic!() };
            assert_eq!(address, Address { host: Host::Name("proxy.example".into()), port: 3128 }, "{text}");
        }
        let Kind::Http { address, .. } = parse("[2001:db8::1]:80").unwrap().kind else { panic!() };
        assert_eq!(address.host.to_string(), "[2001:db8::1]");
    }

    #[test]
    fn a_chain_is_read_hop_by_hop() {
        let member = parse("a:1|https://u:p%7C@b:2?insecure=1|socks5h://v:q@c:3").unwrap();
        let ports: Vec<_> = member.way().map(|hop| hop.address().unwrap().port).collect();
        assert_eq!((ports, member.is_http_proxy()), (vec![1, 2, 3], false));
        assert_eq!(member.masked(), "a:1|https://u:***@b:2?insecure=1|socks5h://v:***@c:3");
        let id = |text| parse(text).unwrap().id().to_owned();
        assert_eq!(id("a:1|socks5://b:2"), id("http://A:1/|SOCKS5://b:2"));
        assert_ne!(id("a:1|socks5://b:2"), id("a:1|socks5h://b:2"));
        // A bar in a password is no joint.
        let member = parse("http://u:p|q@b:2").unwrap();
        assert_eq!((member.way().count(), &*member.masked()), (1, "http://u:***@b:2"));
        assert_eq!(parse("a:1|direct://").unwrap_err(), Malformed::DirectInChain);
        assert!(parse("a:1|https://b:2?sni=x&weight=5").is_ok());
        assert_eq!(parse("a:1?weight=5|socks5://b:2").unwrap_err(), Malformed::WeightInChain);
        let long = Name::from(["http://a:1"; MAX_HOPS + 1].join("|").into_bytes());
        assert_eq!(Member::parse(&long).unwrap_err(), Malformed::LongChain);
    }

    #[test]
    fn a_chain_that_does_not_hold_names_the_hop() {
        for (text, why) in [
            ("a:1|ftp://b:2", "hop 2: begins with none of http://, "),
            ("a:1|b:2", "hop 2: begins with none of http://, "),
            ("http://10.0.0.2:3128|user:s3cret@10.0.0.9:1080", "hop 2: begins with none of http://, "),
            ("http://u:p@a:1|http://b:2/|v:s3cret@c:3", "hop 3: begins with none of http://, "),
            ("https://a:1?insecure=1|b:2", "hop 2: begins with none of http://, "),
            ("10.0.0.2:3128|", "hop 2: begins with none of http://, "),
            ("|http://b:2", "hop 1: has no host"),
            ("ftp://a:1|http://b:2", "hop 1: scheme \"ftp\" is not supported"),
            ("http://a:1|socks5://u:s3cret@b.example", "hop 2: has no port"),
            ("http://a:1|socks5://b:99999", "hop 2: its port is not a number"),
            ("http://a:1|socks5://b.example:99999", "hop 2: port 99999 is not a port (1 to 65535)"),
            ("http://a:1|http://b:2|socks4://u:s3cret@c:3", "hop 3: has a password"),
            ("http://a:1|http://b:2?sni=x", "hop 2: has an option that only https:// members take"),
            // A bar in a password, which is no joint, and what then is wrong.
            ("http://u:p|q@b:99999", "port 99999 is not a port"),
            ("http://u:p|q@b:2?x=1", "has the option x"),
        ] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.starts_with(why) && !said.contains("s3cret"), "{text}: {said}");
        }
        for text in ["http://u:a1|b2|c3@h:80", "u:1%7C2@h:80", "http://:12|34@h:80"] {
            assert_eq!(parse(text).map(|member| member.way().count()), Ok(1), "{text}");
        }
        assert!(
            matches!(parse("u:1|2@h:80"), Err(Malformed::Hop(2, _))),
            "nobody can tell, and it is not to be sent to h"
        );
        let many = Name::from(format!("http://{}@h:80", "a1|".repeat(1_000)).into_bytes());
        assert!(matches!(Member::parse(&many), Err(Malformed::Hop(2, _))));
    }

    #[test]
    fn credentials_are_percent_decoded_and_masked() {
        let member = parse("http://us%40er:p%3Aw%2F@10.0.0.7:8000").unwrap();
        // base64 of us@er:p:w/
        assert_eq!(member.proxy_authorization().unwrap(), "Basic dXNAZXI6cDp3Lw==");
        assert_eq!(member.masked(), "http://us%40er:***@10.0.0.7:8000");
        assert!(!format!("{member:?}").contains("p%3Aw"));
    }

    #[test]
    fn the_id_tells_credentials_apart_but_not_spellings() {
        let id = |text| parse(text).unwrap().id().to_owned();
        assert_ne!(id("a:1@h:80"), id("b:1@h:80"));
        assert_ne!(id("a:1@h:80"), id("a:2@h:80"));
        assert_eq!(id("a:1@h:80"), id("http://a:1@H:80/"));
        // Known from elsewhere; it must never change.
        assert_eq!(id("10.0.0.7:3128"), "p1382e44c60");
        assert!(is_id("p1382e44c60") && !is_id("p1382e44c6") && !is_id("x1382e44c60") && !is_id("p1382e44c6:"));
        assert_eq!(id("10.0.0.7:3128?weight=3"), id("http://10.0.0.7:3128/?weight=4"));
        assert_eq!(id("10.0.0.7:3128?weight=3"), id("10.0.0.7:3128"), "the same proxy");
        let malformed = ["", "a", "b", "p1382e44c60"].map(|text| super::id(&Name::from_static(text.as_bytes())));
        assert!(malformed.iter().all(|id| is_id(id)) && malformed[1] != malformed[2]);
        let ids = [
            "h:80",
            "https://h:80",
            "https://h:80?insecure=1",
            "https://h:80?sni=a",
            "socks4://h:80",
            "socks4a://h:80",
            "socks5://h:80",
            "socks5h://h:80",
            "direct://",
            "direct://10.0.0.7",
        ]
        .map(id);
        let different: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(different.len(), ids.len());
        assert_eq!(id("https://H:80/?sni=h"), ids[1]);
        assert_eq!(id("https://h:80?sni=a&insecure=1"), id("https://h:80?insecure=1&sni=A"));
    }

    #[test]
    fn what_cannot_be_dialed_says_why() {
        use Malformed::{
            BadByte, BadEscape, BadHost, BadPort, Colons, Empty, NoHost, NoPort, NotAPort, Scheme, Trailing, Unescaped,
        };
        let host = |h: &str| BadHost(h.into());
        for (text, why) in [
            ("", Empty),
            ("  ", Empty),
            ("not a url", BadByte(b' ')),
            ("http://a\0b:1", BadByte(0)),
            ("http://a:1\r\nX: y", BadByte(b'\r')),
            ("ftp://a:1", Scheme("ftp".into())),
            ("http://", NoHost),
            ("http://:80", NoHost),
            ("http://a", NoPort),
            ("http://a:", NoPort),
            ("http://a:0", BadPort(0)),
            ("http://a:99999", BadPort(99999)),
            ("http://a:+80", NotAPort),
            ("http://[::1", host("[:")),
            ("http://[fe80::1%eth0]:80", Malformed::Zone),
            ("http://[::1]", NoPort),
            ("http://[::1]x:80", host("[::1]x")),
            ("http://[10.0.0.7]:80", host("[10.0.0.7]")),
            ("javascript:alert(1)", NotAPort),
            ("10.0.0.1:80:user:s3cret", Colons),
            ("2001:db8::1:80", Colons),
            ("http://u:s3/cret@h:80", Unescaped),
            ("http://a..b:1", host("a..b")),
            ("http://a:1/path?x#y", Trailing),
            ("http://user:pa%ss@127.0.0.1:1", BadEscape),
        ] {
            assert_eq!(parse(text).unwrap_err(), why, "{text:?}");
        }
        assert_eq!(Member::parse(&Name::from(vec![b'a'; 1 << 20])).unwrap_err(), Malformed::TooLong);
        assert_eq!(Member::parse(&Name::from_static(b"http://\xff:1")).unwrap_err(), BadByte(0xff));
    }
}
