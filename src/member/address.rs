//! Where a member listens: host and port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Malformed;

/// Where a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

/// A host to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A literal address; nothing to resolve.
    Ip(IpAddr),
    /// A registered name, resolved when it is dialed.
    Name(String),
}

impl Address {
    /// Reads `host:port`.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        let (host, port) = split_port(text)?;
        Ok(Self { host: Host::parse(host)?, port })
    }
}

impl Host {
    /// The host of a request target, checked already; brackets are off. An IPv4 address may be written as an IPv6 one.
    pub(crate) fn of_target(host: &str) -> Self {
        host.parse().map_or_else(|_| Self::Name(host.to_owned()), |ip: IpAddr| Self::Ip(ip.to_canonical()))
    }

    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        let bad = || Malformed::bad_host(text);
        if text.is_empty() {
            return Err(Malformed::NoHost);
        }
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(bad)?;
            if inner.contains('%') {
                return Err(Malformed::Zone);
            }
            return inner.parse::<Ipv6Addr>().map(|ip| Self::Ip(ip.into())).map_err(|_| bad());
        }
        if let Ok(ip) = text.parse::<Ipv4Addr>() {
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
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
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
    let after_bracket = if host.starts_with('[') { host.split_once(']').map_or("", |(_, after)| after) } else { host };
    if after_bracket.contains(':') {
        return Err(Malformed::Colons);
    }
    if !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Malformed::NotAPort);
    }
    match port.parse() {
        Ok(number @ 1..=65535) => Ok((host, number as u16)),
        Ok(number) if port.len() <= 5 => Err(Malformed::BadPort(number)),
        _ => Err(Malformed::NotAPort),
    }
}
