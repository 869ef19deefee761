//! What is spoken with a proxy, as lists name it.

use std::fmt;
use std::str::FromStr;

use super::reason::Reason;

/// A scheme of a member's URL. Where a list names several, the first of these is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "they are what they are called")]
pub enum Protocol {
    Http,
    Https,
    Socks5h,
    Socks5,
    Socks4a,
    Socks4,
}

/// That a text names no protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are http, https, socks5h, socks5, socks4a and socks4")]
pub struct NoProtocol;

/// The protocols that one entry names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Protocols {
    /// One bit for each of [`ALL`].
    known: u8,
    has_unknown: bool,
    /// "socks", which does not say which version.
    has_socks: bool,
}

/// What else there is to speak with a proxy.
const FOREIGN: [&str; 13] = [
    "ss",
    "ssr",
    "shadowsocks",
    "vmess",
    "vless",
    "trojan",
    "hysteria",
    "hysteria2",
    "tuic",
    "wireguard",
    "ssh",
    "snell",
    "naive",
];

/// Some of them, of which the list as a whole may say which.
pub(super) const SOCKS: &str = "socks";

const ALL: [Protocol; 6] =
    [Protocol::Http, Protocol::Https, Protocol::Socks5h, Protocol::Socks5, Protocol::Socks4a, Protocol::Socks4];

impl Protocol {
    /// The scheme of a URL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5h => "socks5h",
            Self::Socks5 => "socks5",
            Self::Socks4a => "socks4a",
            Self::Socks4 => "socks4",
        }
    }
}

impl Protocol {
    pub(super) fn is_socks(self) -> bool {
        !matches!(self, Self::Http | Self::Https)
    }
}

impl FromStr for Protocol {
    type Err = NoProtocol;

    fn from_str(text: &str) -> Result<Self, NoProtocol> {
        ALL.into_iter().find(|protocol| text.eq_ignore_ascii_case(protocol.name())).ok_or(NoProtocol)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Protocols {
    /// Adds what a cell or value names: one protocol, or several with anything between them.
    pub(super) fn add(&mut self, text: &str) {
        self.has_unknown |= self.add_known(text);
    }

    /// As [`Protocols::add`], where there are other words than protocols.
    pub(super) fn add_some(&mut self, text: &str) {
        let is_foreign = |word: &str| FOREIGN.iter().any(|foreign| word.eq_ignore_ascii_case(foreign));
        self.add_known(text);
        self.has_unknown |= text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_foreign);
    }

    /// Whether there were other words.
    fn add_known(&mut self, text: &str) -> bool {
        // Some write "SOCKS 5" or "socks_v5", and "SOCKS4/5".
        let text =
            text.to_ascii_lowercase().replace("socks ", "socks").replace(['_', '-'], "").replace("socksv", "socks");
        let text = text.replace("socks4/5", "socks4 socks5");
        let mut has_others = false;
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':').filter(|word| !word.is_empty()) {
            match word.parse::<Protocol>() {
                Ok(protocol) => self.known |= 1 << protocol as u8,
                // As ProxyBroker says what an HTTP proxy lets through: CONNECT:80.
                Err(NoProtocol) if word.starts_with("connect") => self.known |= 1 << Protocol::Http as u8,
                Err(NoProtocol) if word == SOCKS => self.has_socks = true,
                Err(NoProtocol) => has_others = true,
            }
        }
        has_others
    }

    /// Whether a text is nothing but protocols.
    pub(super) fn are(text: &str) -> bool {
        let mut named = Self::default();
        named.add(text);
        (named.known != 0 || named.has_socks) && !named.has_unknown
    }

    /// Whether `protocol` may be one of those that are named, or none is. Lists are not exact about TLS and about who resolves
    /// names.
    pub(super) fn may_mean(self, protocol: Protocol) -> bool {
        let family = |one: Protocol| match one {
            Protocol::Http | Protocol::Https => 0,
            Protocol::Socks5h | Protocol::Socks5 => 1,
            Protocol::Socks4a | Protocol::Socks4 => 2,
        };
        let is_named = |one: &Protocol| self.known & (1 << *one as u8) != 0;
        self.known == 0 || ALL.iter().filter(|one| is_named(one)).any(|&one| family(one) == family(protocol))
    }

    /// The one to speak: `None` when none is named, an error when only others are.
    ///
    /// One port speaks one protocol, or finds out by the first bytes which. HTTP comes first: beside it, "https" is how lists say
    /// that an HTTP proxy lets CONNECT through, hardly ever that it wants TLS, and it resolves names itself. Alone, https is
    /// TLS to the proxy: to read it as http would send a password in the clear. Of the others, the one that carries more:
    /// names and IPv6 addresses, then a password. "socks" is the one of its versions that the list as a whole says, `default`.
    pub(super) fn best(self, default: Option<Protocol>) -> Result<Option<Protocol>, Reason> {
        let best = ALL.into_iter().find(|&protocol| self.known & (1 << protocol as u8) != 0);
        match best {
            None if self.has_socks => default.filter(|default| default.is_socks()).map(Some).ok_or(Reason::Version),
            None if self.has_unknown => Err(Reason::Protocol),
            best => Ok(best),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_protocols_the_best_is_spoken() {
        for (text, best) in [
            ("http", Ok(Some(Protocol::Http))),
            ("HTTPS", Ok(Some(Protocol::Https))),
            ("HTTP/HTTPS", Ok(Some(Protocol::Http))),
            ("https, http", Ok(Some(Protocol::Http))),
            ("socks4 socks5", Ok(Some(Protocol::Socks5))),
            ("SOCKS 5", Ok(Some(Protocol::Socks5))),
            ("socks-4a;SOCKS_v5h", Ok(Some(Protocol::Socks5h))),
            ("CONNECT:80|SOCKS4", Ok(Some(Protocol::Http))),
            ("vmess socks4", Ok(Some(Protocol::Socks4))),
            ("", Ok(None)),
            (" - ", Ok(None)),
            ("vmess", Err(Reason::Protocol)),
            ("socks", Err(Reason::Version)),
            ("SOCKS 4/5", Ok(Some(Protocol::Socks5))),
            ("socks, http", Ok(Some(Protocol::Http))),
        ] {
            let mut protocols = Protocols::default();
            protocols.add(text);
            assert_eq!(protocols.best(Some(Protocol::Http)), best, "{text}");
        }
        let mut protocols = Protocols::default();
        protocols.add("SOCKS");
        assert_eq!(protocols.best(Some(Protocol::Socks4)), Ok(Some(Protocol::Socks4)));
        for (text, best) in
            [("residential", Ok(None)), ("socks5 mobile", Ok(Some(Protocol::Socks5))), ("ss", Err(Reason::Protocol))]
        {
            let mut protocols = Protocols::default();
            protocols.add_some(text);
            assert_eq!(protocols.best(None), best, "{text}");
        }
    }
}
