//! Reach the origin as a pool member says: TCP to an HTTP proxy, TLS over it, a SOCKS handshake, or no proxy at all.
//!
//! What comes back is a connection on which a request can be said. With an HTTP proxy it leads to the proxy, with every other
//! kind of member to the one origin it was dialed for. A chain is passed hop by hop. All steps together have one deadline.
//! Names: the proxy's is resolved here; the target's only for `socks4`, `socks5` and `direct`, which ask for that.
//!
//! Not here: what is said on the connection ([`crate::forward`], [`crate::tunnel`]).

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::error::{Failure, Peer};
use crate::head;
use crate::member::{Address, Host, Kind, Member, Socks};
use crate::socks;
use crate::stream::Stream;
use crate::target::Authority;
use crate::tls;
use crate::tunnel;

/// A connection through `member`, which leads to `to` if the member is no HTTP proxy.
///
/// # Errors
/// [`Failure::Dns`], [`Failure::Refused`], [`Failure::DialTimeout`]; [`Failure::AtLimit`] without descriptors; those of
/// [`tls::connect`] and [`socks::open`], and in a chain of [`tunnel::ask`], each with its hop.
pub(crate) async fn connect(member: &Member, to: &Authority, deadline: Instant) -> Result<Stream, Failure> {
    // On the heap: it is much, seldom needed, and every request would carry the room for it.
    Box::pin(follow(member, to, deadline)).await
}

async fn follow(member: &Member, to: &Authority, deadline: Instant) -> Result<Stream, Failure> {
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
    so_far: Option<Stream>,
    hop: &Kind,
    next: Option<&Address>,
    to: &Authority,
    deadline: Instant,
) -> Result<Stream, Failure> {
    let within = deadline.saturating_duration_since(Instant::now());
    // First, as a target that cannot be asked for is no reason to bother the proxy.
    let target = match hop {
        Kind::Socks { protocol, .. } => Some(target_for(*protocol, next, to, deadline).await?),
        Kind::Http { .. } | Kind::Direct { .. } => None,
    };
    let mut stream = match (so_far, hop) {
        (Some(stream), _) => stream,
        (None, Kind::Http { address, .. } | Kind::Socks { address, .. }) => {
            Stream::Tcp(tcp(Peer::Proxy, &address.host, address.port, None, deadline).await?)
        }
        (None, Kind::Direct { from }) => {
            return tcp(Peer::Target, &Host::of_target(&to.host), to.port, *from, deadline).await.map(Stream::Tcp);
        }
    };
    let handshake = async {
        match (hop, target) {
            (Kind::Http { tls, authorization, .. }, _) => {
                if let Some(tls) = tls {
                    stream = Stream::Tls(Box::new(tls::connect(Peer::Proxy, tls, stream).await?));
                }
                if let Some(next) = next {
                    let (early, _) = tunnel::ask(&mut stream, &head::connect(next, authorization.as_ref())).await?;
                    if !early.is_empty() {
                        // Proxies speak when they are spoken to.
                        return Err(Failure::Nonsense);
                    }
                }
            }
            (Kind::Socks { protocol, login, .. }, Some(Address { host, port })) => {
                socks::open(&mut stream, *protocol, login.as_ref(), &host, port).await?;
            }
            (Kind::Socks { .. } | Kind::Direct { .. }, _) => {}
        }
        Ok(stream)
    };
    timeout_at(deadline, handshake).await.map_err(|_| Failure::DialTimeout(Peer::Proxy, within))?
}

/// The next hop or the target as a SOCKS proxy is asked for it: some resolve its name themselves, for others that is done
/// here.
async fn target_for(
    protocol: Socks,
    next: Option<&Address>,
    to: &Authority,
    deadline: Instant,
) -> Result<Address, Failure> {
    let to_origin = || Address { host: Host::of_target(&to.host), port: to.port };
    let Address { host, port } = next.cloned().unwrap_or_else(to_origin);
    if matches!(host, Host::Ip(_)) || matches!(protocol, Socks::V4a | Socks::V5h) {
        return Ok(Address { host, port });
    }
    let found = resolve(Peer::Target, &host, port, deadline).await?;
    let usable = found.iter().map(SocketAddr::ip).find(|ip| protocol == Socks::V5 || ip.is_ipv4());
    let host = usable.map(Host::Ip);
    let host = host.ok_or(Failure::Unroutable("its name has no address that the proxy's protocol can carry"))?;
    Ok(Address { host, port })
}

/// A TCP connection, with Nagle's algorithm off: heads and handshakes are small.
///
/// Several addresses of one name are tried in the resolver's order; each gets an equal share of the time left.
/// `from`: this machine's address to dial from.
async fn tcp(
    peer: Peer,
    host: &Host,
    port: u16,
    from: Option<IpAddr>,
    deadline: Instant,
) -> Result<TcpStream, Failure> {
    let started = Instant::now();
    let mut addresses = resolve(peer, host, port, deadline).await?;
    addresses.retain(|address| from.is_none_or(|from| from.is_ipv4() == address.is_ipv4()));
    if addresses.is_empty() {
        return Err(Failure::Unroutable("it has no address of the family to dial from"));
    }
    let socket = connect_any(&addresses, from, deadline).await;
    let socket = socket.ok_or_else(|| Failure::DialTimeout(peer, deadline.saturating_duration_since(started)))?;
    let socket = socket.map_err(|error| Failure::from_dial(peer, error))?;
    // Refused only on a socket that is already gone, which the first write reports better.
    let _ = socket.set_nodelay(true);
    Ok(socket)
}

async fn resolve(peer: Peer, host: &Host, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, Failure> {
    let name = match host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, port)]),
        Host::Name(name) => name.as_str(),
    };
    let within = deadline.saturating_duration_since(Instant::now());
    let lookup = timeout_at(deadline, lookup_host((name, port))).await;
    let found = lookup.map_err(|_| Failure::DialTimeout(peer, within))?.map_err(|error| Failure::Dns(peer, error))?;
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(Failure::Dns(peer, io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    Ok(found)
}

/// `None`: the last address tried ran into the deadline. There is at least one.
async fn connect_any(
    addresses: &[SocketAddr],
    from: Option<IpAddr>,
    deadline: Instant,
) -> Option<io::Result<TcpStream>> {
    let mut last = None;
    for (tried, address) in addresses.iter().enumerate() {
        let share = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        last = timeout_at(Instant::now() + share, connect_from(from, *address)).await.ok();
        if matches!(last, Some(Ok(_))) {
            break;
        }
    }
    last
}

async fn connect_from(from: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let Some(from) = from else { return TcpStream::connect(to).await };
    let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}
