//! One hop: how it is reached, and what is spoken with it.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use percent_encoding::percent_decode;
use tokio_rustls::rustls::pki_types::ServerName;

use super::options::Options;
use super::{Address, Host, Malformed, mask};

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

impl Kind {
    /// Where it listens.
    pub(crate) fn address(&self) -> Option<&Address> {
        match self {
            Self::Http { address, .. } | Self::Socks { address, .. } => Some(address),
            Self::Direct { .. } => None,
        }
    }
}

/// One hop, read.
pub(super) struct Hop {
    /// What makes it a proxy of its own. Its weight does not: with another it is the same proxy.
    pub(super) identity: String,
    pub(super) kind: Kind,
    pub(super) weight: Option<u16>,
}

/// Reads one hop.
pub(super) fn read(text: &str) -> Result<Hop, Malformed> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Scheme::parse(scheme)?, rest),
        None => (Scheme::Http, text),
    };
    let (authority, trailing) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if trailing.contains('@') {
        return Err(Malformed::Unescaped);
    }
    let options = match trailing.strip_prefix('/').unwrap_or(trailing) {
        "" => Options::default(),
        query => Options::parse(query.strip_prefix('?').ok_or(Malformed::Trailing)?)?,
    };
    if scheme != Scheme::Https && options.are_of_tls() {
        return Err(Malformed::WithoutTls);
    }
    let weight = options.weight;
    let (identity, kind) =
        if scheme == Scheme::Direct { direct(authority)? } else { proxy(scheme, authority, options)? };
    Ok(Hop { identity, kind, weight })
}

pub(super) fn is_scheme_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)
}

/// Whether a text is a member's scheme with its `://`, or nothing, which is a scheme too.
pub(super) fn is_scheme(text: &str) -> bool {
    text.is_empty() || text.strip_suffix("://").is_some_and(|scheme| Scheme::parse(scheme).is_ok())
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

fn proxy(scheme: Scheme, authority: &str, options: Options) -> Result<(String, Kind), Malformed> {
    let (credentials, host_port) = match authority.rsplit_once('@') {
        Some((credentials, host_port)) => (Some(credentials), host_port),
        None => (None, authority),
    };
    let address = Address::parse(host_port).map_err(|why| match (why, credentials) {
        // Not to be quoted: it may be the password.
        (Malformed::BadPort(_), Some(login)) if mask::may_end_in_a_password(login, host_port) => Malformed::NotAPort,
        (Malformed::BadHost(_), Some(_)) => Malformed::OddHost,
        (why, _) => why,
    })?;
    let login = credentials.map(Login::parse).transpose()?;
    // Never to be changed: operators know their proxies by what is made of this.
    let shown = address.host.to_string().to_ascii_lowercase();
    let mut identity = format!("{scheme}://{}@{shown}:{}", credentials.unwrap_or_default(), address.port);
    if let Scheme::Socks(protocol) = scheme {
        if let Some(login) = &login {
            login.check_for(protocol)?;
        }
        return Ok((identity, Kind::Socks { address, protocol, login }));
    }
    let tls = (scheme == Scheme::Https).then(|| Tls::of(&address.host, options)).transpose()?;
    if let Some(tls) = &tls {
        identity += &tls.identity(&address.host);
    }
    let authorization = login.as_ref().map(Login::basic).transpose()?;
    Ok((identity, Kind::Http { address, tls, authorization }))
}

fn direct(source: &str) -> Result<(String, Kind), Malformed> {
    let from = match source {
        "" => None,
        text => match Host::parse(text) {
            Ok(Host::Ip(ip)) => Some(ip),
            Err(Malformed::Zone) => return Err(Malformed::Zone),
            _ => return Err(Malformed::BadSource),
        },
    };
    Ok((format!("direct://{}", from.map_or_else(String::new, |ip| Host::Ip(ip).to_string())), Kind::Direct { from }))
}

impl Tls {
    /// As a host is reached that has no options.
    pub(crate) fn checked(host: &Host) -> Result<Self, Malformed> {
        Self::of(host, Options::default())
    }

    fn of(host: &Host, Options { is_insecure, server_name, .. }: Options) -> Result<Self, Malformed> {
        let server_name = match server_name {
            Some(name) => name,
            None => Self::own_name(host)?,
        };
        Ok(Self { server_name, is_insecure })
    }

    /// The name of a proxy whose member names no other.
    fn own_name(host: &Host) -> Result<ServerName<'static>, Malformed> {
        match host {
            Host::Ip(ip) => Ok(ServerName::from(*ip)),
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| Malformed::bad_host(name)),
        }
    }

    /// What of the options makes a proxy of its own.
    fn identity(&self, host: &Host) -> String {
        let is_own = Self::own_name(host).is_ok_and(|own| own == self.server_name);
        let sni =
            if is_own { String::new() } else { format!("&sni={}", self.server_name.to_str().to_ascii_lowercase()) };
        let insecure = if self.is_insecure { "&insecure=1" } else { "" };
        format!("{insecure}{sni}")
    }
}

impl Login {
    /// Reads `user[:password]`, percent-encoded.
    pub(crate) fn parse(credentials: &str) -> Result<Self, Malformed> {
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

    /// The value of `Authorization` or `Proxy-Authorization` (RFC 7617), marked sensitive.
    pub(crate) fn basic(&self) -> Result<HeaderValue, Malformed> {
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

fn decode(text: &str) -> Result<Vec<u8>, Malformed> {
    let escapes_are_whole = text
        .split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
    if escapes_are_whole { Ok(percent_decode(text.as_bytes()).collect()) } else { Err(Malformed::BadEscape) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{Member, Name};

    fn parse(text: &'static str) -> Result<Member, Malformed> {
        Member::parse(&Name::from_static(text.as_bytes()))
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
        assert_eq!(socks("socks5://h:1?insecure=1"), Err(Malformed::WithoutTls));
        let long = Name::from(format!("socks5://{}:p@h:1", "u".repeat(256)).into_bytes());
        assert_eq!(Member::parse(&long).unwrap_err(), Malformed::LongLogin);
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
        assert_eq!(from("direct://[fe80::1%eth0]"), Err(Malformed::Zone));
    }
}
