//! CONNECT: our own handshake with the upstream proxy, then bytes both ways until both directions have ended.
//!
//! The handshake takes any 2xx (RFC 9110 §9.3.6), reads a reply head of any sensible size, and keeps what follows the
//! head: it belongs to the tunnel. Copying borrows one buffer per worker, so an idle tunnel holds two sockets
//! and no buffer. An end of stream in one direction is passed on and the other direction goes on
//! (TCP half-close); an error in either ends both.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::Method;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::dial;
use crate::error::Failure;
use crate::head::{self, Pieces};
use crate::member::Member;
use crate::scratch;

/// A reply head may be this long: proxies that explain themselves do so in 20 KiB of fields.
const MAX_REPLY: usize = 64 << 10;

/// The far end of a tunnel, ready.
pub(crate) struct Tunnel {
    pub(crate) socket: TcpStream,
    /// What the upstream proxy sent behind its head.
    pub(crate) early: Bytes,
}

/// Bytes carried by a tunnel so far.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) to_upstream: AtomicU64,
    pub(crate) to_client: AtomicU64,
}

/// Dials `member` and asks it for a tunnel with `request`, a whole CONNECT head; gives the tunnel and the head of the reply
/// for the client, without its empty line.
///
/// # Errors
/// Those of [`dial::connect`]; [`Failure::DialTimeout`] also when the reply is late; [`Failure::Closed`],
/// [`Failure::Nonsense`], [`Failure::Credentials`], [`Failure::TunnelRefused`].
pub(crate) async fn open(member: &Member, request: &[u8], within: Duration) -> Result<(Tunnel, Vec<u8>), Failure> {
    let deadline = Instant::now() + within;
    let mut socket = dial::connect(member, deadline).await?;
    let handshake = async {
        socket.write_all(request).await.map_err(|_| Failure::Closed)?;
        let mut reply = BytesMut::with_capacity(1024);
        let mut head = Vec::with_capacity(256);
        let mut pieces = Pieces::default();
        loop {
            if socket.read_buf(&mut reply).await.map_err(|_| Failure::Closed)? == 0 {
                return Err(Failure::Closed);
            }
            while pieces.are_worth_reading(&reply) {
                head.clear();
                let read = head::read_response(&reply, &Method::CONNECT, &mut head);
                let Some(response) = read.map_err(|_| Failure::Nonsense)? else { break };
                reply.advance(response.length);
                match response.status {
                    // An interim reply; the final one follows.
                    100..=199 => pieces = Pieces::default(),
                    200..=299 => return Ok((reply.freeze(), head)),
                    407 => return Err(Failure::Credentials),
                    other => return Err(Failure::TunnelRefused(other)),
                }
            }
            if reply.len() >= MAX_REPLY {
                return Err(Failure::Nonsense);
            }
        }
    };
    let (early, head) = timeout_at(deadline, handshake).await.map_err(|_| Failure::DialTimeout(within))??;
    Ok((Tunnel { socket, early }, head))
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

/// Copies both ways until both directions have ended, one fails, or nothing moves for `idle`.
///
/// `early`: what the client sent behind its CONNECT.
pub(crate) async fn relay(client: &mut TcpStream, early: Bytes, far: Tunnel, idle: Duration, carried: &Carried) -> End {
    let Tunnel { socket: mut upstream, early: early_reply } = far;
    let (mut client_reads, mut client_writes) = client.split();
    let (mut upstream_reads, mut upstream_writes) = upstream.split();
    let moved = Moved { epoch: Instant::now(), at_ms: AtomicU64::new(0) };
    let out = copy(&mut client_reads, &mut upstream_writes, early, &moved, &carried.to_upstream);
    let back = copy(&mut upstream_reads, &mut client_writes, early_reply, &moved, &carried.to_client);
    let both = async {
        tokio::try_join!(
            async {
                out.await.map_err(|side| if side == Broke::Reader { End::ClientFailed } else { End::UpstreamFailed })
            },
            async {
                back.await.map_err(|side| if side == Broke::Reader { End::UpstreamFailed } else { End::ClientFailed })
            },
        )
        .err()
        .unwrap_or(End::Closed)
    };
    tokio::select! {
        biased;
        end = both => end,
        () = moved.not_for(idle) => End::Idle,
    }
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

async fn copy(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    early: Bytes,
    moved: &Moved,
    carried: &AtomicU64,
) -> Result<(), Broke> {
    if !early.is_empty() {
        to.write_all(&early).await.map_err(|_| Broke::Writer)?;
        carried.fetch_add(early.len() as u64, Ordering::Relaxed);
    }
    drop(early);
    while let Some((length, unwritten)) = poll_fn(|cx| poll_pass(from, to, cx)).await? {
        moved.now();
        // The rest waits for room in a buffer of its own size.
        if !unwritten.is_empty() {
            to.write_all(&unwritten).await.map_err(|_| Broke::Writer)?;
            moved.now();
        }
        carried.fetch_add(length as u64, Ordering::Relaxed);
    }
    // The end of this direction; a peer that has gone already needs no telling.
    let _ = to.shutdown().await;
    Ok(())
}

/// One read and what can be written of it at once: its length, and what is left. `None` at the end of the stream.
#[allow(clippy::type_complexity, reason = "two values that are looked at once")]
fn poll_pass(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<(usize, Vec<u8>)>, Broke>> {
    let passed = ready!(scratch::poll_read(from, cx, |cx, bytes| {
        let mut written = 0;
        while written < bytes.len() {
            match Pin::new(&mut *to).poll_write(cx, &bytes[written..]) {
                Poll::Ready(Ok(more)) if more > 0 => written += more,
                Poll::Ready(_) => return Err(Broke::Writer),
                Poll::Pending => break,
            }
        }
        Ok((!bytes.is_empty()).then(|| (bytes.len(), bytes[written..].to_vec())))
    }));
    Poll::Ready(passed.unwrap_or(Err(Broke::Reader)))
}
