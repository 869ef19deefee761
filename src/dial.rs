//! Reach an upstream proxy: resolve its name if it has one, connect, give up in time.
//!
//! Not here: what is said on the connection ([`crate::forward`], [`crate::tunnel`]).

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::member::{Host, Member};

/// A connection to the upstream proxy, with Nagle's algorithm off: heads and handshakes are small.
///
/// Several addresses of one name are tried in the resolver's order; each gets an equal share of the time left.
///
/// # Errors
/// [`Failure::Dns`], [`Failure::Refused`], [`Failure::DialTimeout`]; [`Failure::AtLimit`] without descriptors.
pub(crate) async fn connect(member: &Member, deadline: Instant) -> Result<TcpStream, Failure> {
    let started = Instant::now();
    let timed_out = || Failure::DialTimeout(deadline.saturating_duration_since(started));
    let socket = match member.host() {
        Host::Ip(ip) => {
            let address = SocketAddr::new(*ip, member.port());
            timeout_at(deadline, TcpStream::connect(address)).await.map_err(|_| timed_out())?
        }
        Host::Name(name) => {
            let lookup = tokio::net::lookup_host((name.as_str(), member.port()));
            let found = timeout_at(deadline, lookup).await.map_err(|_| timed_out())?.map_err(Failure::Dns)?;
            connect_any(&found.collect::<Vec<_>>(), deadline).await.ok_or_else(timed_out)?
        }
    };
    let socket = socket.map_err(Failure::from_dial)?;
    // Refused only on a socket that is already gone, which the first write reports better.
    let _ = socket.set_nodelay(true);
    Ok(socket)
}

/// `None`: the last address tried ran into the deadline.
async fn connect_any(addresses: &[SocketAddr], deadline: Instant) -> Option<io::Result<TcpStream>> {
    let mut last = Some(Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    for (tried, address) in addresses.iter().enumerate() {
        let share = deadline.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
        last = timeout_at(Instant::now() + share, TcpStream::connect(address)).await.ok();
        if matches!(last, Some(Ok(_))) {
            break;
        }
    }
    last
}
