//! Every way a request can fail, and the only table of what the client is told.
//!
//! | failure | side | status | RFC 9209 error | repeat? | tells against the member |
//! |---|---|---|---|---|---|
//! | [`Failure::PoolEmpty`], [`Failure::AllBanned`] | gateway | 503 | destination_unavailable | no: nobody is left | – |
//! | [`Failure::PoolBusy`] | gateway | 503 | connection_limit_reached | no: everybody is at the limit | – |
//! | [`Failure::Store`] | gateway | 503 | proxy_internal_error | no | – |
//! | [`Failure::AtLimit`] | gateway | 503 | connection_limit_reached | no | – |
//! | [`Failure::BadRequest`], [`Failure::TooLarge`] | client | 400, 414, 431 | http_request_error | no: nothing was chosen | – |
//! | [`Failure::Version`] | client | 505 | http_request_error | no | – |
//! | [`Failure::ClientSlow`] | client | 408 | http_request_error | no | – |
//! | [`Failure::Loop`] | client | 502 | proxy_loop_detected | no | – |
//! | [`Failure::Dns`] | upstream | 502 | dns_error | yes | if it is its name |
//! | [`Failure::Refused`] | upstream | 502 | connection_refused | yes | if it was dialed |
//! | [`Failure::Unbound`] | upstream | 502 | connection_refused | yes | yes |
//! | [`Failure::DialTimeout`] | upstream | 504 | connection_timeout | yes | if it was dialed |
//! | [`Failure::Tls`] | upstream | 502 | tls_protocol_error | yes, if safe | yes |
//! | [`Failure::Certificate`] | upstream | 502 | tls_certificate_error | yes | yes |
//! | [`Failure::Login`] | upstream | 502 | proxy_configuration_error | yes | yes |
//! | [`Failure::NotSocks`] | upstream | 502 | http_protocol_error | yes | yes |
//! | [`Failure::SocksRefused`] | upstream | 502 | connection_refused | yes | 7: it has no CONNECT |
//! | [`Failure::Unroutable`] | upstream | 502 | destination_ip_unroutable | yes | – |
//! | [`Failure::Hop`] | as what failed there | | | | all, before the last hop |
//! | [`Failure::Closed`] | upstream | 502 | connection_terminated | yes, if safe | yes, if it is who speaks |
//! | [`Failure::Nonsense`] | upstream | 502 | http_protocol_error | yes, if safe | yes, if it is who speaks |
//! | [`Failure::HeadTimeout`] | upstream | 504 | http_response_timeout | no: the client has waited enough | yes, if it is who speaks |
//! | [`Failure::Credentials`] | upstream | 502 | proxy_configuration_error, received-status=407 | yes, if safe | yes |
//! | [`Failure::TunnelRefused`] | upstream | 502 | connection_refused, received-status=… | yes | 401, 402, 405, 429, 501, 505, 3xx |
//!
//! What tells against a member is what it would do to every request: an origin that cannot be reached, or that is slow behind a
//! SOCKS proxy, is no fault of the member, and a CONNECT is refused with 403, 502 or 503 for the target's sake as well. Who speaks
//! is the upstream proxy, or the origin once a SOCKS or direct member has connected to it.
//!
//! RFC 9209 knows no SOCKS: what is not SOCKS gets the name of what is not HTTP. What "safe" means is decided in [`crate::retry`].

use std::time::Duration;
use std::{fmt, io};

use hyper::StatusCode;

use crate::member::Member;
use crate::pool::PoolError;
use crate::socks;

/// Why there is no answer from the origin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no upstream proxy is eligible: the pool is empty")]
    PoolEmpty,
    #[error("no upstream proxy is eligible for this host: those that are left are banned from it")]
    AllBanned,
    #[error("every eligible upstream proxy has as many requests in flight as it may have")]
    PoolBusy,
    #[error("the pool cannot be asked: {0}")]
    Store(PoolError),
    #[error("the gateway is at its limit of connections")]
    AtLimit,
    #[error("{0}")]
    BadRequest(&'static str),
    #[error("the request line or the header fields are too large")]
    TooLarge(StatusCode),
    #[error("this is a proxy for HTTP/1.1 and HTTP/1.0, and the request is of another version")]
    Version,
    #[error("the request did not arrive in time")]
    ClientSlow,
    #[error("the request would come back to this gateway")]
    Loop,
    #[error("{0}'s name cannot be resolved")]
    Dns(Peer, #[source] io::Error),
    #[error("{0} cannot be connected to: {1}")]
    Refused(Peer, #[source] io::Error),
    #[error("the target cannot be connected to from its address: {0}")]
    Unbound(#[source] io::Error),
    #[error("{0} could not be reached within {1:?}")]
    DialTimeout(Peer, Duration),
    #[error("TLS with {0} failed: {1}")]
    Tls(Peer, #[source] io::Error),
    #[error("{0}'s certificate is not accepted: {1}")]
    Certificate(Peer, &'static str),
    #[error("the upstream proxy did not accept the login of its pool member")]
    Login,
    #[error("the upstream proxy sent something that is not SOCKS")]
    NotSocks,
    #[error("the upstream proxy did not connect to the target: {}", socks::reason(*.0))]
    SocksRefused(u8),
    #[error("the target cannot be reached this way: {0}")]
    Unroutable(&'static str),
    /// At this hop of a chain, counted from 1, and whether there is another behind it.
    #[error("hop {0}: {2}")]
    Hop(usize, bool, #[source] Box<Failure>),
    #[error("the upstream proxy closed the connection before a whole response head")]
    Closed,
    #[error("the upstream proxy sent something that is not HTTP/1.1")]
    Nonsense,
    #[error("the upstream proxy gave no response head within {0:?}")]
    HeadTimeout(Duration),
    #[error("the upstream proxy did not accept the credentials of its pool member")]
    Credentials,
    #[error("the upstream proxy refused the tunnel with status {0}")]
    TunnelRefused(u16),
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        if matches!(error, PoolError::AtLimit) { Self::PoolBusy } else { Self::Store(error) }
    }
}

/// Whom a connection attempt was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Proxy,
    /// Dialed without a proxy, or resolved for one.
    Target,
}

impl Peer {
    fn blame(self) -> Blame {
        match self {
            Self::Proxy => Blame::Member,
            Self::Target => Blame::Others,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proxy => "the upstream proxy",
            Self::Target => "the target",
        })
    }
}

/// Who has to act when something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Gateway,
    Upstream,
}

/// Whom a failure tells against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The member.
    Member,
    /// Whoever speaks at the other end of the connection.
    Speaker,
    /// The origin, the client or this gateway.
    Others,
}

/// A failure's row in the table above.
pub(crate) struct Row {
    pub(crate) side: Side,
    pub(crate) status: StatusCode,
    /// RFC 9209 §2.3.
    pub(crate) error: &'static str,
    /// Whether another member could do better; whether that is safe is another question.
    pub(crate) repeatable: bool,
    pub(crate) blame: Blame,
}

impl Failure {
    pub(crate) fn row(&self) -> Row {
        use Blame::{Member, Others, Speaker};
        use Side::{Client, Gateway, Upstream};
        use StatusCode as S;
        let (side, status, error, repeatable, blame) = match self {
            Self::Hop(_, leads_on, failure) => {
                let row = failure.row();
                // What cannot be reached behind it is the next hop, which the member has chosen.
                return if *leads_on && row.side == Upstream { Row { blame: Member, ..row } } else { row };
            }
            Self::PoolEmpty | Self::AllBanned => {
                (Gateway, S::SERVICE_UNAVAILABLE, "destination_unavailable", false, Others)
            }
            Self::PoolBusy => (Gateway, S::SERVICE_UNAVAILABLE, "connection_limit_reached", false, Others),
            Self::Store(_) => (Gateway, S::SERVICE_UNAVAILABLE, "proxy_internal_error", false, Others),
            Self::AtLimit => (Gateway, S::SERVICE_UNAVAILABLE, "connection_limit_reached", false, Others),
            Self::BadRequest(_) => (Client, S::BAD_REQUEST, "http_request_error", false, Others),
            Self::TooLarge(status) => (Client, *status, "http_request_error", false, Others),
            Self::Version => (Client, S::HTTP_VERSION_NOT_SUPPORTED, "http_request_error", false, Others),
            Self::ClientSlow => (Client, S::REQUEST_TIMEOUT, "http_request_error", false, Others),
            Self::Loop => (Client, S::BAD_GATEWAY, "proxy_loop_detected", false, Others),
            Self::Dns(peer, _) => (Upstream, S::BAD_GATEWAY, "dns_error", true, peer.blame()),
            Self::Refused(peer, error) => {
                // No port is left here to dial from: the peer has not heard of it.
                let is_own = error.kind() == io::ErrorKind::AddrNotAvailable;
                let blame = if is_own { Others } else { peer.blame() };
                (Upstream, S::BAD_GATEWAY, "connection_refused", true, blame)
            }
            Self::Unbound(_) => (Upstream, S::BAD_GATEWAY, "connection_refused", true, Member),
            Self::DialTimeout(peer, _) => (Upstream, S::GATEWAY_TIMEOUT, "connection_timeout", true, peer.blame()),
            Self::Tls(peer, _) => (Upstream, S::BAD_GATEWAY, "tls_protocol_error", true, peer.blame()),
            Self::Certificate(peer, _) => (Upstream, S::BAD_GATEWAY, "tls_certificate_error", true, peer.blame()),
            Self::Login => (Upstream, S::BAD_GATEWAY, "proxy_configuration_error", true, Member),
            Self::NotSocks => (Upstream, S::BAD_GATEWAY, "http_protocol_error", true, Member),
            Self::SocksRefused(code) => {
                let blame = if *code == socks::NO_SUCH_COMMAND { Member } else { Others };
                (Upstream, S::BAD_GATEWAY, "connection_refused", true, blame)
            }
            Self::Unroutable(_) => (Upstream, S::BAD_GATEWAY, "destination_ip_unroutable", true, Others),
            Self::Closed => (Upstream, S::BAD_GATEWAY, "connection_terminated", true, Speaker),
            Self::Nonsense => (Upstream, S::BAD_GATEWAY, "http_protocol_error", true, Speaker),
            Self::HeadTimeout(_) => (Upstream, S::GATEWAY_TIMEOUT, "http_response_timeout", false, Speaker),
            Self::Credentials => (Upstream, S::BAD_GATEWAY, "proxy_configuration_error", true, Member),
            Self::TunnelRefused(status) => {
                // Wants money, a login or patience, or has no tunnels: that is so whatever the target.
                let is_its_own = matches!(status, 300..=399 | 401 | 402 | 405 | 429 | 501 | 505);
                let blame = if is_its_own { Member } else { Others };
                (Upstream, S::BAD_GATEWAY, "connection_refused", true, blame)
            }
        };
        Row { side, status, error, repeatable, blame }
    }

    /// The status the upstream proxy answered with, where that is the failure (RFC 9209 §2.1.5).
    pub(crate) fn received_status(&self) -> Option<u16> {
        match self {
            Self::Hop(.., failure) => failure.received_status(),
            Self::Credentials => Some(407),
            Self::TunnelRefused(status) => Some(*status),
            _ => None,
        }
    }

    /// The same with the hop of `member` where it happened, if it is a chain and to blame.
    pub(crate) fn at_hop(self, member: &Member, hop: usize) -> Self {
        let hops = member.way().count();
        let says_where = matches!(self, Self::Hop(..)) || hops == 1;
        if says_where || self.row().side != Side::Upstream { self } else { Self::Hop(hop, hop < hops, Box::new(self)) }
    }

    /// The connection to an upstream proxy broke with this error: TLS says why, TCP does not.
    pub(crate) fn from_broken(error: io::Error) -> Self {
        if is_of_tls(&error) { Self::Tls(Peer::Proxy, error) } else { Self::Closed }
    }

    /// Dialing `peer` failed with this error; running out of descriptors is the gateway's own trouble.
    pub(crate) fn from_dial(peer: Peer, error: io::Error) -> Self {
        if is_out_of_descriptors(&error) { Self::AtLimit } else { Self::Refused(peer, error) }
    }
}

/// Whether TLS has brought this error up, and not the socket below.
pub(crate) fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>())
}

/// EMFILE, ENFILE, ENOBUFS or ENOMEM: waiting helps, the peer is not to blame.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    error.raw_os_error().is_some_and(|code| {
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&Errno::from_raw_os_error(code))
    })
}
