//! Proxies of our own of every kind, which say each byte as a test wants it. They ask for a secret and really relay; only
//! what is asked for in absolute-form they answer themselves.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::servers::{Certificate, Server};
use super::socks::{self, Asked};
use super::upstream::{Conn, Upstream};
use super::wire::{Message, Wire};

/// In every member that can carry it; nobody but its proxy may ever see it.
pub(crate) const SECRET: &str = "s3cretPlanted";
/// `u:SECRET` in base64.
pub(crate) const BASIC: &str = "Basic dTpzM2NyZXRQbGFudGVk";

/// How a proxy says what it says.
pub(crate) type Say = fn(&mut Wire, &[u8]) -> io::Result<()>;

pub(crate) fn whole(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    wire.send(bytes)
}

pub(crate) fn dribbled(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    wire.dribble(bytes)
}

/// Every kind that is a proxy; `chain` is a SOCKS proxy and behind it an HTTP proxy, `chain to socks` the other way round.
pub(crate) const PROXIES: [&str; 8] =
    ["http", "https", "socks4", "socks4a", "socks5", "socks5h", "chain", "chain to socks"];

/// A member of this kind with the secret in it.
pub(crate) fn member(scheme: &str, address: SocketAddr) -> String {
    match scheme {
        "socks4" | "socks4a" => format!("{scheme}://{SECRET}@{address}"),
        "https" => format!("https://u:{SECRET}@{address}?insecure=1"),
        _ => format!("{scheme}://u:{SECRET}@{address}"),
    }
}

/// A proxy of some kind, with all that stands before it.
pub(crate) struct Proxy {
    pub(crate) member: String,
    _last: Upstream,
    _before: Option<Upstream>,
    _tls: Option<Server>,
}

impl Proxy {
    /// One that relays, and says `first` with the first bytes of a server that speaks first in one write; those are on that
    /// port.
    pub(crate) fn relaying(kind: &str, say: Say, first: Option<u16>) -> Self {
        let is_socks = kind.contains("socks");
        let last = Upstream::start(
            move |conn| {
                if is_socks { socks_proxy(conn, say, first) } else { http_proxy(conn, say, first) }
            },
        );
        Self::ending(kind, last)
    }

    /// One whose last hop is `last`, which speaks what it should, or does not.
    pub(crate) fn ending(kind: &str, last: Upstream) -> Self {
        let address = last.address();
        let (mut before, mut tls) = (None, None);
        let member = match kind {
            "https" => {
                let server = Server::stunnel(&Certificate::make(), address);
                let address = tls.insert(server).address();
                member("https", address)
            }
            "chain" => {
                let socks = before.insert(Upstream::start(|conn| socks_proxy(conn, whole, None)));
                format!("{}|{}", member("socks5", socks.address()), member("http", address))
            }
            "chain to socks" => {
                let http = before.insert(Upstream::start(|conn| http_proxy(conn, whole, None)));
                format!("{}|{}", member("http", http.address()), member("socks5h", address))
            }
            scheme => member(scheme, address),
        };
        Self { member, _last: last, _before: before, _tls: tls }
    }
}

fn http_proxy(conn: &mut Conn, say: Say, first: Option<u16>) -> io::Result<()> {
    while let Some(request) = conn.request()? {
        let [method, target, _] = request.head.line().split(' ').collect::<Vec<_>>()[..] else { return Ok(()) };
        if request.field("Proxy-Authorization") != Some(BASIC) {
            say(conn, b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")?;
        } else if method == "CONNECT" {
            let target = target.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
            return relay(conn, target, b"HTTP/1.1 200 OK\r\n\r\n", say, first);
        } else {
            let path = target.splitn(4, '/').nth(3).unwrap_or_default();
            answer(conn, &request, &format!("{method} /{path} HTTP/1.1"))?;
        }
    }
    Ok(())
}

fn socks_proxy(conn: &mut Conn, say: Say, first: Option<u16>) -> io::Result<()> {
    let Asked { version, host, port, .. } = socks::hear(conn, Some(SECRET), say)?;
    let ip = host.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    relay(conn, SocketAddr::new(ip, port), socks::granted(version), say, first)
}

fn relay(conn: &mut Conn, to: SocketAddr, reply: &[u8], say: Say, first: Option<u16>) -> io::Result<()> {
    let mut far = Wire::connect(to)?;
    let early = if first == Some(to.port()) { far.exactly(11)? } else { Vec::new() };
    say(conn, &[reply, &early].concat())?;
    conn.join(&mut far)
}

/// An origin: says which line it has read, switches protocols when asked to.
pub(crate) fn serve(conn: &mut Conn) -> io::Result<()> {
    while let Some(request) = conn.request()? {
        answer(conn, &request, request.head.line())?;
    }
    Ok(())
}

fn answer(conn: &mut Conn, request: &Message, line: &str) -> io::Result<()> {
    if request.field("Upgrade").is_some() {
        conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")?;
        return conn.echo();
    }
    let body = format!("{line} {}", request.text());
    conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// A server that speaks first.
pub(crate) fn speak_first(conn: &mut Conn) -> io::Result<()> {
    conn.send("220 ready\r\n")?;
    conn.echo()
}

/// A SOCKS proxy that plays every origin itself: what it was asked for, and itself.
pub(crate) fn socks_origin(password: Option<&'static str>) -> (Upstream, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let shared = asked.clone();
    let proxy = Upstream::start(move |conn| {
        let request = socks::hear(conn, password, whole)?;
        let version = request.version;
        shared.lock().unwrap().push(request);
        conn.send(socks::granted(version))?;
        serve(conn)
    });
    (proxy, asked)
}
