//! Why an entry of a list was skipped, and what to write instead.

use super::window::LOOKAHEAD;
use crate::member::Malformed;

/// Why an entry was skipped, in words that follow its place and say what to write instead.
///
/// Nothing of the entry is quoted but a number where a port must be: what else it holds, and where, is not known, so
/// any part of it may be a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A port that is none.
    #[error("port {0} is not a port (1 to 65535)")]
    Port(u32),
    /// Something else in the place of the port.
    #[error("its port is not a number from 1 to 65535")]
    NotAPort,
    /// No port at all.
    #[error("has no port; write host:port")]
    NoPort,
    /// No host, address or URL among its fields.
    #[error("has no host")]
    NoHost,
    /// A host that is neither an address nor a name.
    #[error("its host is neither an IP address nor a host name")]
    Host,
    /// An IPv6 address whose end cannot be seen.
    #[error("an IPv6 address goes in brackets; write [2001:db8::1]:port")]
    Brackets,
    /// Two readings with two hosts.
    #[error(
        "could be host:port:user:password or user:password:host:port; write user:password@host:port, or a first line \
         that names the order"
    )]
    Order,
    /// The third may be a user or something else.
    #[error("has three parts, of which one could be a user or something else; write user:password@host:port")]
    ThreeParts,
    /// Fields without names, among them some that could be credentials or something else.
    #[error("its fields could mean several things; put a line with their names first, like host,port,user,password")]
    Fields,
    /// More than one proxy.
    #[error("has more than one host and port; put each proxy on a line of its own")]
    Several,
    /// A scheme that no member can have.
    #[error("its scheme is none of http, https, socks5h, socks5, socks4a, socks4 and direct")]
    Scheme,
    /// A field for the protocol, with another in it.
    #[error("its protocol is none of http, https, socks5h, socks5, socks4a and socks4")]
    Protocol,
    /// SOCKS, and nothing else.
    #[error(
        "says socks and not which version; have the list say it as a whole: --scheme socks5, or scheme = \"socks5\""
    )]
    Version,
    /// Credentials beside a chain or beside direct://, which hop are they for?
    #[error("has a user name beside a chain or direct://; write the user name into the URL")]
    Login,
    /// Something stands next to a user name or a password that may be a part of it, or is a part that may be none.
    #[error(
        "nobody can tell where its user name and password begin and end; write http://user:password@host:port, \
         percent-encoded"
    )]
    Extent,
    /// A value that a program has made of it, perhaps with something lost: leading zeros.
    #[error("its user name or password is not text; put it in quotes")]
    NotText,
    /// More cells than columns: somewhere there is one too many, and what follows is in the wrong column.
    #[error("has more fields than the first line names; put quotes around a field with a delimiter in it")]
    Columns,
    /// Two of its fields are about the same thing, and differ.
    #[error("says its {0} twice, and not the same")]
    Contradiction(&'static str),
    /// What is wrong with one hop of a chain, counted from 1.
    #[error("hop {0}: {1}")]
    Hop(usize, Box<Reason>),
    /// An option that its kind of member does not take, or with a wrong value.
    #[error("has an option that it does not take")]
    Options,
    /// Anything else that is wrong with a member.
    #[error("{0}")]
    Member(Malformed),
    /// Nothing in it that looks like a proxy.
    #[error("is no proxy in any form there is; write [scheme://][user:password@]host:port")]
    Unknown,
    /// More than can be looked at.
    #[error("is longer than {LOOKAHEAD} bytes")]
    TooLong,
    /// Not text.
    #[error("is not UTF-8 text")]
    NotUtf8,
    /// A zero byte, as UTF-16 is full of.
    #[error("has a zero byte; if the list is UTF-16, save it as UTF-8")]
    Zero,
    /// Another control character.
    #[error("has a control character")]
    Control,
    /// What is copied along from pages, and is hardly meant.
    #[error("has an invisible character in its user name or password (U+{:04X})", u32::from(*.0))]
    Invisible(char),
    /// A cell that does not end.
    #[error("has a quote that is not closed")]
    Quote,
    /// A value that is not JSON.
    #[error("is not JSON")]
    NotJson,
    /// The end came before the closing bracket.
    #[error("is not closed: the list ends inside of it")]
    Unclosed,
}

impl From<Malformed> for Reason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            // Whether the port may be shown is for the caller to know.
            Malformed::BadPort(_) | Malformed::NotAPort => Self::NotAPort,
            Malformed::NoPort => Self::NoPort,
            Malformed::NoHost => Self::NoHost,
            Malformed::BadHost(_) => Self::Host,
            Malformed::Scheme(_) | Malformed::NotAUrl => Self::Scheme,
            Malformed::NotAnOption | Malformed::UnknownOption(_) | Malformed::OptionTwice(_) => Self::Options,
            Malformed::Empty => Self::Unknown,
            // Which shows the port of a hop only where it can be nothing else.
            Malformed::Hop(hop, why) => Self::Hop(
                hop,
                Box::new(match *why {
                    Malformed::BadPort(port) => u32::try_from(port).map_or(Self::NotAPort, Self::Port),
                    why => why.into(),
                }),
            ),
            other => Self::Member(other),
        }
    }
}

impl Reason {
    /// Whether there is a proxy, perhaps, and only its reading is in doubt.
    pub(super) fn has_readings(&self) -> bool {
        matches!(
            self,
            Self::Extent | Self::Fields | Self::Several | Self::Hop(..) | Self::Contradiction(_) | Self::Order
        )
    }

    /// The reason without what differs from entry to entry: for counting.
    pub(super) fn kind(&self) -> Self {
        match self {
            Self::Port(_) => Self::NotAPort,
            Self::Invisible(_) => Self::Invisible('\u{200b}'),
            Self::Hop(hop, why) => Self::Hop(*hop, Box::new(why.kind())),
            Self::Member(Malformed::BadByte(_)) => Self::Member(Malformed::BadByte(b' ')),
            other => other.clone(),
        }
    }
}
