//! Reach the origin as a pool member says: TCP to an HTTP proxy, TLS over it, a SOCKS handshake, or no proxy at all.
//!
//! What comes back is a connection on which a request can be said. With an HTTP proxy it leads to the proxy, with every other
//! kind of member to the one origin it was dialed for. A chain is passed hop by hop. All steps together have one deadline.
//! Names: the proxy's is resolved here; the target's only for `socks4`, `socks5` and `direct`, which ask for that. Several
//! addresses of one name are tried as RFC 8305 ("happy eyeballs") has it. An IPv4 address in IPv6 clothes
//! (`::ffff:10.0.0.7`) is the IPv4 address.
//!
//! Not here: what is said on the connection ([`crate::forward`], [`crate::tunnel`]).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{Failure, Peer};
use crate::head;
use crate::member::{Address, Host, Kind, Login, Member, Socks};
use crate::socks;
use crate::stream::Stream;
use crate::target::Authority;
use crate::tls;
use crate::tunnel;

/// How long an address has before the next one is dialed beside it (RFC 8305 §5 recommends this).
const HEAD_START: Duration = Duration::from_millis(250);
/// Of one name. Some names have hundreds, and each attempt takes a descriptor.
const MOST_ADDRESSES: usize = 16;

/// A connection through `member`, which leads to `to` if the member is no HTTP proxy.
///
/// # Errors
/// [`Failure::Dns`], [`Failure::Refused`], [`Failure::Unbound`], [`Failure::DialTimeout`]; [`Failure::AtLimit`] without descriptors; those of
/// [`tls::connect`] and [`socks::open`], and in a chain of [`tunnel::ask`], each with its hop.
pub(crate) async fn connect(member: &Member, to: &Authority, deadline: Deadline) -> Result<Stream, Failure> {
    // On the heap: it is much, seldom needed, and every request would carry the room for it.
    Box::pin(follow(member, to, deadline)).await
}

/// A point in time, and how far away it was at first: what the operator has asked for, as messages are to show it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) within: Duration,
}

impl Deadline {
    /// That long from now.
    pub(crate) fn within(within: Duration) -> Self {
        Self { at: Instant::now() + within, within }
    }

    /// What `step` towards `peer` comes to, unless the deadline comes first.
    pub(crate) async fn meet<T>(self, peer: Peer, step: impl Future<Output = T>) -> Result<T, Failure> {
        timeout_at(self.at, step).await.map_err(|_| Failure::DialTimeout(peer, self.within))
    }
}

async fn follow(member: &Member, to: &Authority, deadline: Deadline) -> Result<Stream, Failure> {
    let mut stream = None;
    let mut way = member.way().enumerate().peekable();
    while let Some((n, hop)) = way.next() {
        let next = way.peek().and_then(|(_, next)| next.address());
        let reached = pass(stream, hop, next, to, deadline).await;
        stream = Some(reached.map_err(|failure| failure.at_hop(member, n + 1))?);
    }
    Ok(stream.expect("a member has at least one hop"))
}

/// Goes on from `so_far`, if anywhere, to a hop and through it to the next one's address, or to the origin. Only the last hop
/// may be left to be asked: an HTTP proxy wants to know what for.
async fn pass(
    mut so_far: Option<Stream>,
    hop: &Kind,
    next: Option<&Address>,
    to: &Authority,
    deadline: Deadline,
) -> Result<Stream, Failure> {
    match hop {
        Kind::Http { address, tls, authorization } => {
            let stream = reach(so_far, address, deadline).await?;
            let handshake = async {
                let mut stream = match tls {
                    // On the heap for the same reason.
                    Some(tls) => Stream::Tls(Box::new(Box::pin(tls::connect(Peer::Proxy, tls, stream)).await?)),
                    None => stream,
                };
                if let Some(next) = next {
                    let (early, _) = tunnel::ask(&mut stream, &head::connect(next, authorization.as_ref())).await?;
                    if !early.is_empty() {
                        // Proxies speak when they are spoken to.
                        return Err(Failure::Nonsense);
                    }
                }
                Ok(stream)
            };
            deadline.meet(Peer::Proxy, handshake).await?
        }
        Kind::Socks { address, protocol, login } => {
            // First, as a target that cannot be asked for is no reason to bother the proxy.
            let mut targets = targets_for(*protocol, next, to, deadline).await?;
            if so_far.is_some() {
                // The connection through the hops before it is there once.
                targets.truncate(1);
            }
            let mut targets = targets.into_iter().peekable();
            loop {
                let target = targets.next().expect("there is one, and another after a refusal");
                let stream = reach(so_far.take(), address, deadline).await?;
                match open_socks(stream, *protocol, login.as_ref(), &target, deadline).await {
                    // It may have no way to addresses of that family.
                    Err(Failure::SocksRefused(_)) if targets.peek().is_some() => {}
                    result => return result,
                }
            }
        }
        Kind::Direct { from } => {
            let stream = tcp(Peer::Target, &Host::of_target(&to.host), to.port, *from, deadline).await?;
            Ok(Stream::Tcp(stream))
        }
    }
}

/// The connection that leads to a proxy: the one through the hops before it, or a new one.
async fn reach(so_far: Option<Stream>, proxy: &Address, deadline: Deadline) -> Result<Stream, Failure> {
    match so_far {
        Some(stream) => Ok(stream),
        None => tcp(Peer::Proxy, &proxy.host, proxy.port, None, deadline).await.map(Stream::Tcp),
    }
}

async fn open_socks(
    mut stream: Stream,
    protocol: Socks,
    login: Option<&Login>,
    Address { host, port }: &Address,
    deadline: Deadline,
) -> Result<Stream, Failure> {
    deadline.meet(Peer::Proxy, socks::open(&mut stream, protocol, login, host, *port)).await??;
    Ok(stream)
}

/// The next hop or the target as a SOCKS proxy is asked for it: some resolve its name themselves, for others that is done
/// here. One address of each family that the name has and the protocol can carry, the first to be tried first.
async fn targets_for(
    protocol: Socks,
    next: Option<&Address>,
    to: &Authority,
    deadline: Deadline,
) -> Result<Vec<Address>, Failure> {
    let to_origin = || Address { host: Host::of_target(&to.host), port: to.port };
    let Address { host, port } = next.cloned().unwrap_or_else(to_origin);
    if matches!(host, Host::Ip(_)) || matches!(protocol, Socks::V4a | Socks::V5h) {
        return Ok(vec![Address { host, port }]);
    }
    let found = resolve(Peer::Target, &host, port, deadline).await?;
    let mut usable = found.iter().map(SocketAddr::ip).filter(|ip| protocol == Socks::V5 || ip.is_ipv4());
    let first = usable.next();
    let first = first.ok_or(Failure::Unroutable("its name has no address that the proxy's protocol can carry"))?;
    let other = usable.find(|ip| ip.is_ipv4() != first.is_ipv4());
    Ok([first].into_iter().chain(other).map(|ip| Address { host: Host::Ip(ip), port }).collect())
}

/// A TCP connection, with Nagle's algorithm off: heads and handshakes are small.
///
/// `from`: this machine's address to dial from.
async fn tcp(
    peer: Peer,
    host: &Host,
    port: u16,
    from: Option<IpAddr>,
    deadline: Deadline,
) -> Result<TcpStream, Failure> {
    let from = from.map(|from| from.to_canonical());
    let mut addresses = resolve(peer, host, port, deadline).await?;
    addresses.retain(|address| from.is_none_or(|from| from.is_ipv4() == address.is_ipv4()));
    let socket = match addresses[..] {
        [] => return Err(Failure::Unroutable("it has no address of the family to dial from")),
        [only] => deadline.meet(peer, connect_from(peer, from, only)).await?,
        _ => deadline.meet(peer, connect_any(peer, &addresses, from, deadline.at)).await?,
    }?;
    // Refused only on a socket that is already gone, which the first write reports better.
    let _ = socket.set_nodelay(true);
    Ok(socket)
}

/// Never none.
async fn resolve(peer: Peer, host: &Host, port: u16, deadline: Deadline) -> Result<Vec<SocketAddr>, Failure> {
    let name = match host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(ip.to_canonical(), port)]),
        Host::Name(name) => name.as_str(),
    };
    let lookup = deadline.meet(peer, lookup_host((name, port))).await?;
    let found = lookup.map_err(|error| Failure::Dns(peer, error))?;
    let found: Vec<_> = found.map(|found| SocketAddr::new(found.ip().to_canonical(), port)).collect();
    if found.is_empty() {
        return Err(Failure::Dns(peer, io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(found)
}

/// Dials one address after the other, the next as soon as one has failed or has had a head start; the first that connects is
/// taken (RFC 8305 §5). There is at least one. The error is the last.
async fn connect_any(
    peer: Peer,
    addresses: &[SocketAddr],
    from: Option<IpAddr>,
    deadline: Instant,
) -> Result<TcpStream, Failure> {
    let mut to_come = by_turns(addresses);
    let mut attempts = JoinSet::new();
    let mut last = Failure::Refused(peer, io::ErrorKind::NotFound.into());
    loop {
        // Where time is short, each gets a share of it.
        let share = deadline.saturating_duration_since(Instant::now()) / (to_come.len() as u32).max(1);
        if let Some(address) = to_come.next() {
            attempts.spawn(connect_from(peer, from, address));
        }
        tokio::select! {
            biased;
            attempt = attempts.join_next() => match attempt {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(error))) => last = error,
                Some(Err(_)) => {}
                None => return Err(last),
            },
            () = sleep(share.min(HEAD_START)), if to_come.len() > 0 => {}
        }
    }
}

/// The families by turns, each in the resolver's order (RFC 8305 §4): one of them may be dead as a whole.
fn by_turns(addresses: &[SocketAddr]) -> std::vec::IntoIter<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = addresses.iter().partition(|address| address.is_ipv6());
    let [first, second] = if addresses.first().is_some_and(SocketAddr::is_ipv6) { [v6, v4] } else { [v4, v6] };
    let turns = (0..addresses.len()).flat_map(|n| [first.get(n), second.get(n)]).flatten();
    turns.copied().take(MOST_ADDRESSES).collect::<Vec<_>>().into_iter()
}

async fn connect_from(peer: Peer, from: Option<IpAddr>, to: SocketAddr) -> Result<TcpStream, Failure> {
    let failed = |error| Failure::from_dial(peer, error);
    let Some(from) = from else { return TcpStream::connect(to).await.map_err(failed) };
    let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
    socket.bind(SocketAddr::new(from, 0)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => Failure::Unbound(error),
        _ => failed(error),
    })?;
    socket.connect(to).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_in_the_order_that_the_resolver_gave() {
        let addresses =
            |text: &str| text.split(' ').map(|ip| SocketAddr::new(ip.parse().unwrap(), 1)).collect::<Vec<_>>();
        for (given, tried) in [
            ("::1 ::2 ::3 10.0.0.1", "::1 10.0.0.1 ::2 ::3"),
            ("10.0.0.1 10.0.0.2 ::1 ::2", "10.0.0.1 ::1 10.0.0.2 ::2"),
            ("10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2"),
        ] {
            assert_eq!(by_turns(&addresses(given)).collect::<Vec<_>>(), addresses(tried));
        }
        let many: Vec<_> = (1..100).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
        assert_eq!(by_turns(&many).len(), MOST_ADDRESSES);
    }
}
