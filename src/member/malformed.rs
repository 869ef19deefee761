//! Why a member cannot be used.

use super::{MAX_HOPS, MAX_LEN};

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
    /// The same with bytes that neither has. Not quoted: it may be more than a host.
    #[error("its host is neither an IP address nor a host name")]
    OddHost,
    /// `fe80::1%eth0`: link-local, and of one interface.
    #[error("an IPv6 address with a zone (%...) cannot be dialed")]
    Zone,
    /// A member must say its port; there is no usual one.
    #[error("has no port")]
    NoPort,
    /// Not a number from 1 to 65535, but no longer than one.
    #[error("port {0} is not a port (1 to 65535)")]
    BadPort(u64),
    /// Longer, or not digits. Not quoted: it may be part of a password.
    #[error("its port is not a number from 1 to 65535")]
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
    /// Something after the `?` that has no `=`. Not quoted: it may be part of a password.
    #[error("has something after the ? that is no option like insecure=1 or sni=name, joined by &")]
    NotAnOption,
    /// Perhaps a misspelled one.
    #[error("has the option {0}, which does not exist; there are weight=3, insecure=1 and sni=name")]
    UnknownOption(String),
    /// A known option with a value that it does not take.
    #[error("has an option with a value that it does not take: it must be {0}")]
    BadOption(&'static str),
    /// Which of the two counts?
    #[error("has the option {0} twice")]
    OptionTwice(String),
    /// What they are about is not there.
    #[error("has an option that only https:// members take (insecure and sni)")]
    WithoutTls,
    /// It is chosen as a whole.
    #[error("has a weight at a hop that is not its last; a chain has one, at its end")]
    WeightInChain,
    /// A chain is of proxies.
    #[error("direct:// is no hop of a chain")]
    DirectInChain,
    /// What is wrong with one hop of a chain, counted from 1.
    #[error("hop {0}: {1}")]
    Hop(usize, Box<Malformed>),
    /// Behind a `|`. Not quoted: where no scheme is, it may be credentials.
    #[error(
        "begins with none of http://, https://, socks5h://, socks5://, socks4a:// and socks4:// (in a password, | is written %7C)"
    )]
    NextScheme,
    /// Each hop costs a handshake.
    #[error("has more than {MAX_HOPS} hops")]
    LongChain,
    /// What follows `direct://` is where to dial from, and that is all.
    #[error("what follows direct:// is not the IP address of this machine to dial from")]
    BadSource,
}

impl Malformed {
    pub(super) fn bad_host(text: &str) -> Self {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        if text.bytes().all(is_plain) { Self::BadHost(text.chars().take(64).collect()) } else { Self::OddHost }
    }
}
