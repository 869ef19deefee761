//! CONNECT: our own handshake with the upstream proxy, then bytes both ways until both directions have ended.
//!
//! The handshake takes any 2xx (RFC 9110 §9.3.6), reads a reply head of any sensible size, and keeps what follows the
//! head: it belongs to the tunnel. Copying borrows one buffer per worker, so an idle tunnel holds two sockets
//! and no buffer; bulk data is spliced inside the kernel ([`crate::splice`]). An end of stream in one direction is passed on and the other direction goes on
//! (TCP half-close); an error in either ends both.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::client::LINGER;
use crate::dial::{self, Deadline};
use crate::error::{Failure, Peer};
use crate::head::{self, Pieces};
use crate::member::Member;
use crate::pool::Lease;
use crate::scratch;
use crate::splice::Pipe;
use crate::stream::{Reads, Stream, Writes, split_tcp};
use crate::target::Authority;

/// A reply head may be this long: proxies that explain themselves do so in 20 KiB of fields.
const MAX_REPLY: usize = 64 << 10;
/// What a bulk tunnel moves before it is another's turn: half a millisecond or so.
///
/// Enough to empty what waits in its sockets most of the time. With 1 MiB they stay full when eight tunnels share a core, and
/// each byte costs 1.4 times as much CPU; with 2 MiB now and then; with 3 MiB and more, not.
const TURN: usize = 3 << 20;
/// What is read of a side while nobody takes it.
const MOST_DROPPED: usize = 256 << 10;
/// How long a pipe is kept for a tunnel that was bulk and now has nothing to say.
const QUIET: Duration = Duration::from_secs(1);

/// The far end of a tunnel, ready.
pub(crate) struct Tunnel {
    pub(crate) socket: Stream,
    /// What the upstream proxy sent behind its head.
    pub(crate) early: Vec<u8>,
    /// Ends with the tunnel.
    pub(crate) lease: Lease,
}

/// Bytes carried by a tunnel so far.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) to_upstream: AtomicU64,
    pub(crate) to_client: AtomicU64,
}

/// Dials `member` for a tunnel to `to`, and asks an HTTP proxy for it with `request`, a whole CONNECT head; gives the tunnel
/// and the head of the reply for the client, without its empty line.
///
/// # Errors
/// Those of [`dial::connect`]; [`Failure::DialTimeout`] also when the reply is late; [`Failure::Closed`],
/// [`Failure::Nonsense`], [`Failure::Credentials`], [`Failure::TunnelRefused`].
pub(crate) async fn open(
    member: &Member,
    to: &Authority,
    request: &[u8],
    deadline: Deadline,
) -> Result<(Tunnel, Vec<u8>), Failure> {
    let mut socket = dial::connect(member, to, deadline).await?;
    if !member.is_http_proxy() {
        return Ok((Tunnel { socket, early: Vec::new(), lease: Lease::default() }, head::ESTABLISHED.to_vec()));
    }
    let (early, head) = deadline.meet(Peer::Proxy, ask(&mut socket, request)).await??;
    Ok((Tunnel { socket, early, lease: Lease::default() }, head))
}

/// Says `request`, a whole CONNECT head, and hears the reply: what came behind it, and its head for a client.
pub(crate) async fn ask(socket: &mut Stream, request: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Failure> {
    socket.write_all(request).await.map_err(Failure::from_broken)?;
    socket.flush().await.map_err(Failure::from_broken)?;
    let mut reply = BytesMut::with_capacity(1024);
    let mut head = Vec::with_capacity(256);
    let mut pieces = Pieces::default();
    loop {
        if socket.read_buf(&mut reply).await.map_err(Failure::from_broken)? == 0 {
            return Err(Failure::Closed);
        }
        while pieces.are_worth_reading(&reply) {
            head.clear();
            let read = head::read_response(&reply, &Method::CONNECT, &mut head);
            let Some(response) = read.map_err(|_| Failure::Nonsense)? else { break };
            reply.advance(response.length);
            match response.status {
                // Nobody asked to switch, and what follows is no longer HTTP.
                101 => return Err(Failure::Nonsense),
                // An interim reply; the final one follows.
                100..=199 => pieces = Pieces::default(),
                200..=299 => return Ok((reply.into(), head)),
                407 => return Err(Failure::Credentials),
                other => return Err(Failure::TunnelRefused(other)),
            }
        }
        if reply.len() >= MAX_REPLY {
            return Err(Failure::Nonsense);
        }
    }
}

/// Why a tunnel ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides had finished.
    Closed,
    /// The client's connection broke.
    ClientFailed,
    /// The upstream proxy's connection broke.
    UpstreamFailed,
    /// Nothing moved either way for the idle time.
    Idle,
}

/// Copies both ways until both directions have ended, one side breaks, or nothing moves for `idle`.
///
/// A side that takes nothing any more may still have had something to say: that is passed on (RFC 9110 §9.3.6). Meanwhile what
/// comes from the other side is read and dropped, since closing a socket with unread bytes would reset it, and what is on its way
/// with it.
///
/// `early`: what the client sent behind its CONNECT. `pipes`: how many pipes there may be for bulk data.
pub(crate) async fn relay(
    client: &mut TcpStream,
    early: Vec<u8>,
    far: Tunnel,
    idle: Duration,
    pipes: &Arc<Semaphore>,
    carried: &Carried,
) -> End {
    let Tunnel { socket: mut upstream, early: early_reply, lease: _lease } = far;
    let (client_reads, client_writes) = split_tcp(client);
    let (upstream_reads, upstream_writes) = upstream.split();
    let moved = Moved { epoch: Instant::now(), at_ms: AtomicU64::new(0) };
    let ended = AtomicBool::new(false);
    let is_deaf = [AtomicBool::new(false), AtomicBool::new(false)];
    let (moved, ended, [upstream_is_deaf, client_is_deaf]) = (&moved, &ended, &is_deaf);
    let mut out = Way {
        from: client_reads,
        to: upstream_writes,
        moved,
        ended,
        is_deaf: upstream_is_deaf,
        reader_is_deaf: client_is_deaf,
        carried: &carried.to_upstream,
        pipes,
    };
    let mut back = Way {
        from: upstream_reads,
        to: client_writes,
        moved,
        ended,
        is_deaf: client_is_deaf,
        reader_is_deaf: upstream_is_deaf,
        carried: &carried.to_client,
        pipes,
    };
    let mut out = pin!(out.copy(early));
    let mut back = pin!(back.copy(early_reply));
    let mut quiet = pin!(moved.not_for(idle));
    let (mut out_is_open, mut back_is_open) = (true, true);
    let mut linger = None;
    let deaf_end = || {
        if upstream_is_deaf.load(Ordering::Relaxed) {
            End::UpstreamFailed
        } else if client_is_deaf.load(Ordering::Relaxed) {
            End::ClientFailed
        } else {
            End::Closed
        }
    };
    poll_fn(|cx| {
        if out_is_open && let Poll::Ready(end) = out.as_mut().poll(cx) {
            out_is_open = false;
            match end {
                Ok(()) | Err(Broke::Writer) => {}
                Err(Broke::Reader) => return Poll::Ready(End::ClientFailed),
            }
        }
        if back_is_open && let Poll::Ready(end) = back.as_mut().poll(cx) {
            back_is_open = false;
            match end {
                Ok(()) | Err(Broke::Writer) => {}
                Err(Broke::Reader) => return Poll::Ready(End::UpstreamFailed),
            }
        }
        if !out_is_open && !back_is_open {
            return Poll::Ready(deaf_end());
        }
        // What is left is to be dropped.
        let only_drops = (!back_is_open && upstream_is_deaf.load(Ordering::Relaxed))
            || (!out_is_open && client_is_deaf.load(Ordering::Relaxed));
        if only_drops && linger.get_or_insert_with(|| Box::pin(sleep(LINGER))).as_mut().poll(cx).is_ready() {
            return Poll::Ready(deaf_end());
        }
        quiet.as_mut().poll(cx).map(|()| End::Idle)
    })
    .await
}

/// When a byte last moved, shared by both directions.
struct Moved {
    epoch: Instant,
    at_ms: AtomicU64,
}

impl Moved {
    fn now(&self) {
        self.at_ms.store(self.epoch.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Ends when nothing has moved for `idle`. One timer, set again only when it fires.
    async fn not_for(&self, idle: Duration) {
        loop {
            let quiet_until = self.epoch + Duration::from_millis(self.at_ms.load(Ordering::Relaxed)) + idle;
            if quiet_until <= Instant::now() {
                return;
            }
            sleep_until(quiet_until).await;
        }
    }
}

#[derive(PartialEq, Eq)]
enum Broke {
    Reader,
    Writer,
}

/// One read of a direction.
struct Passed {
    length: usize,
    /// What the other side did not take at once.
    unwritten: Vec<u8>,
}

/// One direction of a tunnel.
struct Way<'a> {
    from: Reads<'a>,
    to: Writes<'a>,
    moved: &'a Moved,
    /// Whether one of the two directions has ended.
    ended: &'a AtomicBool,
    /// Whether `to` has taken nothing any more.
    is_deaf: &'a AtomicBool,
    /// The same of the side that `from` reads, in the other direction.
    reader_is_deaf: &'a AtomicBool,
    carried: &'a AtomicU64,
    pipes: &'a Arc<Semaphore>,
}

impl Way<'_> {
    /// Passes everything on, and then the end of the stream.
    async fn copy(&mut self, early: Vec<u8>) -> Result<(), Broke> {
        match self.pass_all(early).await {
            Ok(()) => {}
            Err(Broke::Writer) => {
                self.is_deaf.store(true, Ordering::Relaxed);
                self.drop_some().await;
                return Err(Broke::Writer);
            }
            // All that it had to say has been passed on.
            Err(Broke::Reader) if self.reader_is_deaf.load(Ordering::Relaxed) => {}
            Err(Broke::Reader) => return Err(Broke::Reader),
        }
        // The last end of a tunnel is followed by the close of its sockets, which tells a TCP peer as well; TLS has more to say.
        let is_last = self.ended.swap(true, Ordering::Relaxed);
        if !is_last || self.to.tcp().is_none() || self.reader_is_deaf.load(Ordering::Relaxed) {
            // A peer that has gone already needs no telling.
            let _ = self.to.shutdown().await;
        }
        Ok(())
    }

    /// Reads on for nobody, to the end or [`MOST_DROPPED`] bytes: somebody who goes on sending is not waiting for a last word.
    async fn drop_some(&mut self) {
        let from = &mut self.from;
        let mut dropped = 0;
        while dropped < MOST_DROPPED {
            match poll_fn(|cx| scratch::poll_read(from, cx, |_, bytes| bytes.len())).await {
                Ok(0) | Err(_) => return,
                Ok(length) => dropped += length,
            }
        }
    }

    async fn pass_all(&mut self, early: Vec<u8>) -> Result<(), Broke> {
        self.write(&early).await?;
        self.to.flush().await.map_err(|_| Broke::Writer)?;
        drop(early);
        while let Some(Passed { length, unwritten }) = poll_fn(|cx| self.poll_pass(cx)).await? {
            self.moved.now();
            self.carried.fetch_add((length - unwritten.len()) as u64, Ordering::Relaxed);
            // The rest waits for room in a buffer of its own size.
            self.write(&unwritten).await?;
            self.to.flush().await.map_err(|_| Broke::Writer)?;
            // A buffer that was filled in one go is bulk data, and its reader keeps up.
            if length == scratch::SIZE
                && unwritten.is_empty()
                && let (Some(from), Some(to)) = (self.from.tcp(), self.to.tcp())
                && let Some(mut pipe) = Pipe::open(self.pipes)
                && !self.splice(from, to, &mut pipe).await?
            {
                break;
            }
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Broke> {
        if !bytes.is_empty() {
            self.to.write_all(bytes).await.map_err(|_| Broke::Writer)?;
            self.moved.now();
            self.carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// One read, and what can be written of it at once; `None` at the end of the stream.
    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Passed>, Broke>> {
        let to = &mut self.to;
        let passed = ready!(scratch::poll_read(&mut self.from, cx, |cx, bytes| {
            let mut written = 0;
            while written < bytes.len() {
                match Pin::new(&mut *to).poll_write(cx, &bytes[written..]) {
                    Poll::Ready(Ok(more)) if more > 0 => written += more,
                    Poll::Ready(_) => return Err(Broke::Writer),
                    Poll::Pending => break,
                }
            }
            Ok((!bytes.is_empty()).then(|| Passed { length: bytes.len(), unwritten: bytes[written..].to_vec() }))
        }));
        Poll::Ready(passed.unwrap_or(Err(Broke::Reader)))
    }

    /// Passes bytes on inside the kernel until the stream ends (false) or falls quiet (true).
    async fn splice(&self, from: &TcpStream, to: &TcpStream, pipe: &mut Pipe) -> Result<bool, Broke> {
        let mut turn = 0;
        loop {
            let moved = match pipe.fill(from) {
                Ok(0) => return Ok(false),
                Ok(moved) => moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match timeout(QUIET, from.readable()).await {
                        Err(_) => return Ok(true),
                        Ok(Err(_)) => return Err(Broke::Reader),
                        Ok(Ok(())) => continue,
                    }
                }
                Err(_) => return Err(Broke::Reader),
            };
            self.moved.now();
            while !pipe.is_empty() {
                match pipe.drain(to) {
                    Ok(length) => {
                        self.moved.now();
                        self.carried.fetch_add(length as u64, Ordering::Relaxed);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        to.writable().await.map_err(|_| Broke::Writer)?;
                    }
                    Err(_) => return Err(Broke::Writer),
                }
            }
            // The runtime's own budget counts calls, and a call here may be a megabyte: others of this worker would wait for
            // a hundred of them.
            turn += moved;
            if turn >= TURN {
                turn = 0;
                yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reply_that_switches_protocols_is_nonsense() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Member::parse(&listener.local_addr().unwrap().to_string().into()).unwrap();
        let upstream = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let reply = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
            socket.write_all(reply).await.unwrap();
            socket
        };
        let to = Authority::parse("origin.test:443", None).unwrap();
        let (opened, _socket) =
            tokio::join!(open(&member, &to, b"CONNECT", Deadline::within(Duration::from_secs(5))), upstream);
        assert!(matches!(opened, Err(Failure::Nonsense)));
    }
}
