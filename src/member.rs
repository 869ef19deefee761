//! One pool member: the URL of an upstream proxy, parsed once.
//!
//! A member is stored as it was added, byte for byte; parsing only reads it. What cannot be parsed is never
//! dialed: the caller sets it aside with the reason given here.
//! Secrets: the password lives in the member's name and in its kind, and nowhere else.
//! Everything that is printed goes through [`Member::id`], [`Member::masked`] or [`masked`].

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode;
use tokio_rustls::rustls::pki_types::ServerName;

/// A member as Redis holds it: any bytes, equal only when every byte is.
pub type Name = Bytes;

/// The longest member that is looked at; a host name has at most 253 octets, credentials rarely a few hundred.
const MAX_LEN: usize = 4096;

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

/// How a member is reached, and what is spoken with it.
#[derive(Clone)]
pub(crate) enum Kind {
    /// An HTTP proxy, perhaps behind TLS.
    Http { address: Address, tls: Option<Tls>, authorization: Option<HeaderValue> },
    /// A SOCKS proxy, which connects to the target and then is out of the way.
    Socks { address: Address, protocol: Socks, login: Option<Login> },
    /// No proxy at all: the target itself, from this address or from whichever the system takes.
    Direct { from: Option<IpAddr> },
}

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

/// What TLS needs to know of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Sent as SNI, and the name that the certificate must be for.
    pub(crate) server_name: ServerName<'static>,
    /// Any certificate will do.
    pub(crate) is_insecure: bool,
}

/// The dialects of SOCKS: which version, and who resolves the target's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socks {
    /// Resolved here.
    V4,
    /// Resolved there.
    V4a,
    /// Resolved here.
    V5,
    /// Resolved there.
    V5h,
}

/// Credentials, decoded.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

/// A host to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A literal address; nothing to resolve.
    Ip(IpAddr),
    /// A registered name, resolved when it is dialed.
    Name(String),
}

#[derive(Clone, Copy, PartialEq)]
enum Scheme {
    Http,
    Https,
    Socks(Socks),
    Direct,
}

const SCHEMES: [(&str, Scheme); 7] = [
    ("http", Scheme::Http),
    ("https", Scheme::Https),
    ("socks4", Scheme::Socks(Socks::V4)),
    ("socks4a", Scheme::Socks(Socks::V4a)),
    ("socks5", Scheme::Socks(Socks::V5)),
    ("socks5h", Scheme::Socks(Socks::V5h)),
    ("direct", Scheme::Direct),
];

/// Why a member cannot be used, in words for an operator. Never contains the member's credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Longer than any proxy URL has reason to be.
    #[error("longer than {MAX_LEN} bytes")]
    TooLong,
    /// Nothing there, or only blanks.
    #[error("empty")]
    Empty,
    /// A control character, a blank or a byte outside ASCII.
    #[error("has a byte that no URL may have (0x{0:02x})")]
    BadByte(u8),
    /// A scheme this version cannot dial.
    #[error("scheme {0:?} is not supported (http, https, socks4, socks4a, socks5, socks5h and direct are)")]
    Scheme(String),
    /// Something that is no scheme before `://`. Not quoted: it may be credentials.
    #[error("is not a URL")]
    NotAUrl,
    /// No host before the port.
    #[error("has no host")]
    NoHost,
    /// Neither an address nor a host name.
    #[error("{0:?} is neither an IP address nor a host name")]
    BadHost(String),
    /// A member must say its port; there is no usual one.
    #[error("has no port")]
    NoPort,
    /// Not a number from 1 to 65535.
    #[error("port {0} is not a port (1 to 65535)")]
    BadPort(u64),
    /// Not digits. Not quoted: it may be part of a password.
    #[error("its port is not a number")]
    NotAPort,
    /// Something after the port.
    #[error("has a path, query or fragment after the port")]
    Trailing,
    /// Lists are often sold as `host:port:user:password`; which part is the secret is anyone's guess.
    #[error("has more than one colon and no @ (an IPv6 address goes in brackets)")]
    Colons,
    /// A character that ends the authority stands before the `@`.
    #[error("has a / ? or # in its user name or password that is not percent-encoded")]
    Unescaped,
    /// A `%` that is not followed by two hexadecimal digits.
    #[error("its user name or password has a % that is not followed by two hexadecimal digits")]
    BadEscape,
    /// RFC 7617 §2: a user name cannot hold a colon.
    #[error("its user name has a colon, which Basic authentication cannot carry")]
    ColonInUser,
    /// RFC 1929 counts both in one octet.
    #[error("its user name or password has more than 255 bytes, which SOCKS5 cannot carry")]
    LongLogin,
    /// SOCKS4 knows a user, and the user ends at a zero.
    #[error("has a password, or a zero byte in its user name, which SOCKS4 cannot carry")]
    Socks4Login,
    /// Something in the query besides `insecure=1` and `sni=name`, or twice.
    #[error("has an option other than insecure=1 and sni=name")]
    BadOption,
    /// A chain is of proxies.
    #[error("direct:// is no hop of a chain")]
    DirectInChain,
    /// Each hop costs a handshake.
    #[error("has more than {MAX_HOPS} hops")]
    LongChain,
    /// What follows `direct://` is where to dial from, and that is all.
    #[error("what follows direct:// is not the IP address of this machine to dial from")]
    BadSource,
}

impl Member {
    /// Reads `[scheme://][user[:password]@]host:port[/][?options]`, where no scheme means http and only https has options,
    /// or `direct://[source address]`; or several proxies joined by `|`, each but the first with its scheme.
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
        let hops = hops(text);
        if hops.len() > MAX_HOPS {
            return Err(Malformed::LongChain);
        }
        let (identities, mut kinds): (Vec<_>, Vec<_>) =
            hops.into_iter().map(hop).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        if kinds.len() > 1 && kinds.iter().any(|kind| matches!(kind, Kind::Direct { .. })) {
            return Err(Malformed::DirectInChain);
        }
        let kind = kinds.pop().ok_or(Malformed::Empty)?;
        Ok(Self { name: name.clone(), id: id_of(&identities.join("|")), before: kinds, kind })
    }

    /// The member as the pool holds it. Contains the password: for the store only, never for a log.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// A short stable name for logs and `Proxy-Status` (an RFC 9651 token): a hash of all that makes it a proxy of its
    /// own, credentials included, since many providers keep a session in the password.
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

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Member").field(&self.masked()).finish()
    }
}

impl Kind {
    /// Where it listens.
    pub(crate) fn address(&self) -> Option<&Address> {
        match self {
            Self::Http { address, .. } | Self::Socks { address, .. } => Some(address),
            Self::Direct { .. } => None,
        }
    }
}

/// The parts of a chain. A `|` is a joint only before a scheme: elsewhere it may be part of a password, where `/` may not.
fn hops(text: &str) -> Vec<&str> {
    let is_joint = |at: usize| {
        let scheme = text[at + 1..].split_once("://").map_or("", |(scheme, _)| scheme);
        !scheme.is_empty() && scheme.bytes().all(is_scheme_byte)
    };
    let (mut hops, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices('|').filter(|&(at, _)| is_joint(at)) {
        hops.push(&text[start..at]);
        start = at + 1;
    }
    hops.push(&text[start..]);
    hops
}

/// What makes one proxy a proxy of its own, and how it is spoken to.
fn hop(text: &str) -> Result<(String, Kind), Malformed> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Scheme::parse(scheme)?, rest),
        None => (Scheme::Http, text),
    };
    if scheme == Scheme::Direct { direct(rest) } else { proxy(scheme, rest) }
}

fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

impl Scheme {
    fn parse(text: &str) -> Result<Self, Malformed> {
        match SCHEMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name)) {
            Some((_, scheme)) => Ok(*scheme),
            None if text.bytes().all(is_scheme_byte) => Err(Malformed::Scheme(text.chars().take(32).collect())),
            None => Err(Malformed::NotAUrl),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEMES.iter().find(|(_, scheme)| scheme == self).map_or("", |(name, _)| name))
    }
}

/// What follows the scheme of a proxy's URL: what makes it a proxy of its own, and how it is spoken to.
fn proxy(scheme: Scheme, rest: &str) -> Result<(String, Kind), Malformed> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, trailing) = rest.split_at(end);
    if trailing.contains('@') {
        return Err(Malformed::Unescaped);
    }
    let options = match trailing.strip_prefix('/').unwrap_or(trailing) {
        "" => None,
        query if scheme == Scheme::Https => Some(query.strip_prefix('?').ok_or(Malformed::Trailing)?),
        _ => return Err(Malformed::Trailing),
    };
    let (credentials, host_port) = match authority.rsplit_once('@') {
        Some((credentials, host_port)) => (Some(credentials), host_port),
        None => (None, authority),
    };
    let (host, port) = split_port(host_port)?;
    let host = Host::parse(host)?;
    let login = credentials.map(Login::parse).transpose()?;
    // Never to be changed: operators know their proxies by what is made of this.
    let shown = host.to_string().to_ascii_lowercase();
    let mut identity = format!("{scheme}://{}@{shown}:{port}", credentials.unwrap_or_default());
    let address = Address { host, port };
    let kind = match scheme {
        Scheme::Socks(protocol) => {
            if let Some(login) = &login {
                login.check_for(protocol)?;
            }
            Kind::Socks { address, protocol, login }
        }
        _ => {
            let tls = (scheme == Scheme::Https).then(|| Tls::parse(&address.host, options)).transpose()?;
            identity += &tls.as_ref().map_or_else(String::new, |tls| tls.identity(&address.host));
            Kind::Http { address, tls, authorization: login.as_ref().map(Login::basic).transpose()? }
        }
    };
    Ok((identity, kind))
}

/// What follows `direct://`.
fn direct(rest: &str) -> Result<(String, Kind), Malformed> {
    let from = match rest.strip_suffix('/').unwrap_or(rest) {
        "" => None,
        text => match Host::parse(text) {
            Ok(Host::Ip(ip)) => Some(ip),
            _ => return Err(Malformed::BadSource),
        },
    };
    Ok((format!("direct://{}", from.map_or_else(String::new, |ip| Host::Ip(ip).to_string())), Kind::Direct { from }))
}

impl Tls {
    fn parse(host: &Host, options: Option<&str>) -> Result<Self, Malformed> {
        let (mut sni, mut is_insecure) = (None, false);
        for option in options.into_iter().flat_map(|options| options.split('&')) {
            match option.split_once('=') {
                Some(("insecure", "1")) if !is_insecure => is_insecure = true,
                Some(("sni", name)) if sni.is_none() => sni = Some(name.to_owned()),
                _ => return Err(Malformed::BadOption),
            }
        }
        let server_name = match (sni, host) {
            (Some(name), _) => ServerName::try_from(name).map_err(|_| Malformed::BadOption)?,
            (None, Host::Ip(ip)) => ServerName::from(*ip),
            (None, Host::Name(name)) => {
                ServerName::try_from(name.clone()).map_err(|_| Malformed::BadHost(name.chars().take(64).collect()))?
            }
        };
        Ok(Self { server_name, is_insecure })
    }

    /// What of the options makes a proxy of its own.
    fn identity(&self, host: &Host) -> String {
        let own = Self::parse(host, None).is_ok_and(|plain| plain.server_name == self.server_name);
        let sni = if own { String::new() } else { format!("&sni={}", self.server_name.to_str().to_ascii_lowercase()) };
        let insecure = if self.is_insecure { "&insecure=1" } else { "" };
        format!("{insecure}{sni}")
    }
}

impl Login {
    fn parse(credentials: &str) -> Result<Self, Malformed> {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        Ok(Self { user: decode(user)?, password: decode(password)? })
    }

    fn check_for(&self, protocol: Socks) -> Result<(), Malformed> {
        let Self { user, password } = self;
        match protocol {
            Socks::V4 | Socks::V4a if !password.is_empty() || user.contains(&0) => Err(Malformed::Socks4Login),
            Socks::V5 | Socks::V5h if user.len() > 255 || password.len() > 255 => Err(Malformed::LongLogin),
            _ => Ok(()),
        }
    }

    fn basic(&self) -> Result<HeaderValue, Malformed> {
        let Self { user, password } = self;
        if user.contains(&b':') {
            return Err(Malformed::ColonInUser);
        }
        let encoded = STANDARD.encode([&user[..], b":", password].concat());
        let mut value = HeaderValue::try_from(format!("Basic {encoded}")).expect("base64 is visible ASCII");
        value.set_sensitive(true);
        Ok(value)
    }
}

impl Host {
    /// The host of a request target, checked already; brackets are off.
    pub(crate) fn of_target(host: &str) -> Self {
        host.parse().map_or_else(|_| Self::Name(host.to_owned()), Self::Ip)
    }

    fn parse(text: &str) -> Result<Self, Malformed> {
        let bad = || Malformed::BadHost(text.chars().take(64).collect());
        if text.is_empty() {
            return Err(Malformed::NoHost);
        }
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(bad)?;
            return inner.parse::<std::net::Ipv6Addr>().map(|ip| Self::Ip(ip.into())).map_err(|_| bad());
        }
        if let Ok(ip) = text.parse::<std::net::Ipv4Addr>() {
            return Ok(Self::Ip(ip.into()));
        }
        let fits = text.len() <= 253
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
            && text.trim_end_matches('.').split('.').all(|label| (1..=63).contains(&label.len()));
        if fits { Ok(Self::Name(text.to_owned())) } else { Err(bad()) }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(std::net::IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// The id of a member for a listing, `-` for one that cannot be parsed.
pub fn id(name: &Name) -> String {
    Member::parse(name).map_or_else(|_| "-".to_owned(), |member| member.id)
}

/// A member for an operator's eyes, also one that cannot be parsed: what is or could be a secret hidden, control
/// characters and bytes outside ASCII escaped, cut to a length that fits on a line.
///
/// Hidden are a password, a user name that stands alone (often an API key), and whatever follows the first colon of
/// what should be `host:port` and is not; a port is shown in front of what follows it.
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
    match place.get(after_colon + digits) {
        None | Some(b'/' | b'?' | b'#') => place.len(),
        Some(b':') if (1..=5).contains(&digits) => after_colon + digits + 1,
        Some(_) => after_colon,
    }
}

fn split_port(host_port: &str) -> Result<(&str, u16), Malformed> {
    let (host, port) = match host_port.rsplit_once(':') {
        // A bare IPv6 address is all colons; only what follows its bracket is a port.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ if host_port.is_empty() => return Err(Malformed::NoHost),
        _ => return Err(Malformed::NoPort),
    };
    if port.is_empty() {
        return Err(if host.is_empty() { Malformed::NoHost } else { Malformed::NoPort });
    }
    if !host.starts_with('[') && host.contains(':') {
        return Err(Malformed::Colons);
    }
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Malformed::NotAPort);
    }
    match port.parse() {
        Ok(number @ 1..=65535) => Ok((host, number as u16)),
        Ok(number) => Err(Malformed::BadPort(number)),
        Err(_) => Err(Malformed::NotAPort),
    }
}

fn decode(text: &str) -> Result<Vec<u8>, Malformed> {
    let escapes_are_whole = text
        .split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
    if escapes_are_whole { Ok(percent_decode(text.as_bytes()).collect()) } else { Err(Malformed::BadEscape) }
}

/// The same on every version and machine. 40 bits: a million members share one by chance in less than one pool of two.
fn id_of(identity: &str) -> String {
    let hash = fred::util::sha1_hash(identity);
    // A token starts with a letter.
    format!("p{}", &hash[..10])
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
    fn an_https_member_is_checked_against_its_own_name_unless_told_otherwise() {
        let tls = |text| match parse(text).unwrap().kind {
            Kind::Http { tls: Some(tls), .. } => (tls.server_name.to_str().into_owned(), tls.is_insecure),
            _ => panic!("{text}"),
        };
        assert_eq!(tls("https://u:p@proxy.example:443"), ("proxy.example".into(), false));
        assert_eq!(tls("https://[2001:db8::1]:443/?insecure=1"), ("2001:db8::1".into(), true));
        assert_eq!(tls("HTTPS://10.0.0.7:443?sni=a.example&insecure=1"), ("a.example".into(), true));
        for text in ["?insecure=0", "?sni=", "?sni=a b", "?sni=a&sni=b", "?", "?x=1", "?insecure", "?sni=a..b"] {
            let name = Name::from(format!("https://h:1{text}").into_bytes());
            assert!(matches!(Member::parse(&name), Err(Malformed::BadOption | Malformed::BadByte(_))), "{text}");
        }
    }

    #[test]
    fn a_socks_member_has_the_login_that_its_protocol_can_carry() {
        let socks = |text| match parse(text).map(|member| member.kind) {
            Ok(Kind::Socks { protocol, login, .. }) => Ok((
                protocol,
                login.map(|Login { user, password }| [user, password].map(|t| String::from_utf8(t).unwrap())),
            )),
            Ok(_) => panic!("{text}"),
            Err(malformed) => Err(malformed),
        };
        assert_eq!(socks("socks5://h:1080"), Ok((Socks::V5, None)));
        assert_eq!(socks("SOCKS5H://a%3Ab:p%40@h:1/"), Ok((Socks::V5h, Some(["a:b".into(), "p@".into()]))));
        assert_eq!(socks("socks4://me@h:1"), Ok((Socks::V4, Some(["me".into(), String::new()]))));
        assert_eq!(socks("socks4a://h:1"), Ok((Socks::V4a, None)));
        assert_eq!(socks("socks4://me:pw@h:1"), Err(Malformed::Socks4Login));
        assert_eq!(socks("socks4a://m%00e@h:1"), Err(Malformed::Socks4Login));
        assert_eq!(socks("socks5://h:1?insecure=1"), Err(Malformed::Trailing));
        let long = Name::from(format!("socks5://{}:p@h:1", "u".repeat(256)).into_bytes());
        assert_eq!(Member::parse(&long).unwrap_err(), Malformed::LongLogin);
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
        assert_eq!(parse("a:1|ftp://b:2").unwrap_err(), Malformed::Scheme("ftp".into()));
        assert_eq!(parse("a:1|b:2").unwrap_err(), Malformed::Colons);
        assert_eq!(parse("|http://b:2").unwrap_err(), Malformed::NoHost);
        let long = Name::from(["http://a:1"; MAX_HOPS + 1].join("|").into_bytes());
        assert_eq!(Member::parse(&long).unwrap_err(), Malformed::LongChain);
    }

    #[test]
    fn a_direct_member_may_name_where_to_dial_from() {
        let from = |text| match parse(text).map(|member| member.kind) {
            Ok(Kind::Direct { from }) => Ok(from.map(|ip| ip.to_string())),
            Ok(_) => panic!("{text}"),
            Err(malformed) => Err(malformed),
        };
        assert_eq!(from("direct://"), Ok(None));
        assert_eq!(from("direct://198.51.100.7"), Ok(Some("198.51.100.7".into())));
        assert_eq!(from("DIRECT://[2001:db8::1]/"), Ok(Some("2001:db8::1".into())));
        for text in ["direct://h", "direct://198.51.100.7:80", "direct://u:p@198.51.100.7", "direct://2001:db8::1"] {
            assert_eq!(from(text), Err(Malformed::BadSource), "{text}");
        }
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
