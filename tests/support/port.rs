//! Ports that stay somebody's when the server that had them is gone: each is given away once.
//!
//! They lie below those that the kernel gives to outgoing connections, and to whoever asks for port 0 (32768 on Linux). One of
//! these would be free now, and could be another test's when its server starts again, or is to be found gone.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{IpAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port that nobody listens on, and the one 10,000 above, which a node of a Redis cluster takes as well.
pub(crate) fn free_port(ip: IpAddr) -> u16 {
    let is_free = |port: u16| TcpListener::bind((ip, port)).is_ok();
    ports().find(|&port| is_free(port) && is_free(port + 10_000)).expect("a free port")
}

/// A listener on a port of its own.
pub(crate) fn listen(ip: IpAddr) -> TcpListener {
    ports().find_map(|port| TcpListener::bind((ip, port)).ok()).expect("a free port")
}

fn ports() -> impl Iterator<Item = u16> {
    static NEXT: LazyLock<AtomicU16> =
        LazyLock::new(|| AtomicU16::new((RandomState::new().build_hasher().finish() % 10_000) as u16));
    std::iter::repeat_with(|| 11_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000).take(10_000)
}
