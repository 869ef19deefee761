//! Ports for servers that cannot say which one they were given.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{IpAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that nobody listens on, and the one 10,000 above, which a node of a Redis cluster takes as well.
///
/// Both lie below those that the kernel gives to outgoing connections (32768 on Linux): one of these would be free now, and
/// could be a connection of another test when the server starts, or starts again.
pub(crate) fn free_port(ip: IpAddr) -> u16 {
    static NEXT: LazyLock<AtomicU16> =
        LazyLock::new(|| AtomicU16::new((RandomState::new().build_hasher().finish() % 10_000) as u16));
    let ports = std::iter::repeat_with(|| 11_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000);
    let is_free = |port: u16| TcpListener::bind((ip, port)).is_ok();
    ports.take(10_000).find(|&port| is_free(port) && is_free(port + 10_000)).expect("a free port")
}
