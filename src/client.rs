//! One client connection from accept to close: requests while there are any, then perhaps a tunnel.
//!
//! A connection waits for its next request here, holding a socket and nothing else. A plain request is answered the
//! short way ([`crate::plain`]), a CONNECT becomes a tunnel in the same task, and whatever has a body or is in any
//! way unusual is spoken with by hyper ([`speak`]), which gives the connection back when the exchange is over.
//! - hyper's own deadlines need a timer per request; here one alarm per connection looks at what phase it is in.
//! - hyper's bare replies to malformed heads are replaced by ours, which say what went wrong.
//! - After the last answer the socket lingers: closing it with unread bytes would reset the connection and could take
//!   the answer with it (RFC 9112 §9.6).

mod spoken;

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
pub(crate) use spoken::Client;
use spoken::speak;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::WaitForCancellationFuture;

use crate::error::Failure;
use crate::gateway;
use crate::head::{self, Pieces, Request};
use crate::line::Line;
use crate::plain::{self, Fate};
use crate::record::{Ended, Record};
use crate::refusal;
use crate::scratch;
use crate::tunnel::{self, Carried, Tunnel};
use crate::worker::Worker;

/// A request head may be this long.
const MAX_HEAD: usize = 64 << 10;
/// How long the rest of a client's unwanted bytes is read away after the last answer.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// Serves a client until it leaves, falls silent or the gateway drains.
pub(crate) async fn serve(worker: Arc<Worker>, socket: TcpStream, address: SocketAddr) {
    let limits = &worker.config.gateway;
    let mut line = Line::new(socket, BytesMut::new());
    // A new connection owes a head; a kept-alive one may think.
    let mut patience = limits.head_timeout;
    loop {
        let request = match next_request(&worker, &mut line, patience).await {
            Ok(request) => request,
            Err(Silence::Closed) => return,
            Err(Silence::Refused(failure, since)) => {
                refusal::say(&worker, &mut line.socket, address, since, failure).await;
                return linger(line.socket).await;
            }
        };
        patience = limits.idle_timeout;
        // What serves a request is on the heap only while it does, so that a waiting connection holds nothing of it.
        match request {
            Request::Plain(request, _) => match Box::pin(answer(&worker, &mut line, request, address)).await {
                Outcome::Tunnel(far, record) => {
                    return Box::pin(carry(&worker, &mut line.socket, line.unread.into(), far, record)).await;
                }
                Outcome::Answered(Fate::KeepAlive) => {}
                Outcome::Answered(Fate::Close) => return linger(line.socket).await,
                Outcome::Answered(Fate::Cut) => return line.cut(),
                Outcome::Answered(Fate::Broken | Fate::Gone) => return,
            },
            _ => match Box::pin(speak(&worker, line, address)).await {
                Some(back) => line = back,
                None => return,
            },
        }
        // One request may be followed by a thousand more in the same segment; others want their turn.
        tokio::task::consume_budget().await;
    }
}

/// What came of a plain request or a CONNECT.
enum Outcome {
    Answered(Fate),
    Tunnel(Tunnel, Option<Box<Record>>),
}

async fn answer(worker: &Arc<Worker>, line: &mut Line, mut request: head::Plain, address: SocketAddr) -> Outcome {
    let mut record = Record::begin(worker, address, Some(&request.method));
    if let Some(record) = &mut record {
        record.target = request.to.to_string();
    }
    if request.method != hyper::Method::CONNECT {
        return Outcome::Answered(plain::exchange(worker, line, &mut request, &mut record).await);
    }
    match gateway::open_tunnel(worker, line, &mut request, &mut record).await {
        Ok(far) => Outcome::Tunnel(far, record),
        Err(fate) => Outcome::Answered(fate),
    }
}

/// Why there is no next request.
enum Silence {
    /// The client left, fell silent, or the gateway drains.
    Closed,
    /// A head came too slowly, or is not to be taken; when it began.
    Refused(Failure, Instant),
}

/// Waits for a whole request head. What came behind it stays in `line.unread`; the bytes of an unusual one stay there too.
async fn next_request(worker: &Worker, line: &mut Line, patience: Duration) -> Result<Request, Silence> {
    let mut drain = pin!(worker.drain.cancelled());
    let mut is_registered = false;
    let mut deadline = Instant::now() + patience;
    let mut pieces = Pieces::default();
    let mut began = None;
    if line.unread.is_empty() {
        // Its room goes as well; it may be a while.
        line.unread = BytesMut::new();
    }
    loop {
        skip_empty_lines(&mut line.unread);
        // The first half of another may be all there is.
        let is_waiting = matches!(line.unread[..], [] | [b'\r']);
        if !is_waiting && pieces.are_worth_reading(&line.unread) {
            let mut request = head::read_request(&line.unread, worker.pseudonym());
            if matches!(request, Request::Later) {
                head::lower_version(&mut line.unread);
                request = head::read_request(&line.unread, worker.pseudonym());
            }
            match request {
                Request::Partial if line.unread.len() > MAX_HEAD => return Ok(Request::Unusual),
                Request::Partial => {}
                Request::Unusual | Request::Later => return Ok(Request::Unusual),
                Request::Refused(failure) => {
                    return Err(Silence::Refused(failure, began.unwrap_or_else(Instant::now)));
                }
                // Too long for hyper as well, which says so.
                Request::Plain(_, length) if length > MAX_HEAD => return Ok(Request::Unusual),
                Request::Plain(request, length) => {
                    line.unread.advance(length);
                    return Ok(Request::Plain(request, length));
                }
            }
        }
        if !is_waiting && began.is_none() {
            // From its first byte on, a head has its own time.
            let now = Instant::now();
            began = Some(now);
            deadline = now + worker.config.gateway.head_timeout;
        }
        let received = poll_fn(|cx| {
            // Most heads come whole and alone: they are read where they were received.
            let Line { socket, unread, .. } = line;
            let read = scratch::poll_read(socket, cx, |_, bytes| {
                if unread.is_empty()
                    && let Request::Plain(request, length) = head::read_request(bytes, worker.pseudonym())
                {
                    unread.extend_from_slice(&bytes[length..]);
                    return Some(Some(Request::Plain(request, length)));
                }
                unread.extend_from_slice(bytes);
                (!bytes.is_empty()).then_some(None)
            });
            match read {
                Poll::Ready(Ok(Some(received))) => return Poll::Ready(Ok(received)),
                Poll::Ready(Ok(None) | Err(_)) => return Poll::Ready(Err(Silence::Closed)),
                Poll::Pending => {}
            }
            if is_waiting && is_draining(worker, &mut drain, &mut is_registered, cx) {
                return Poll::Ready(Err(Silence::Closed));
            }
            ready!(line.poll_alarm(cx, deadline));
            Poll::Ready(Err(match began {
                Some(began) if !is_waiting => Silence::Refused(Failure::ClientSlow, began),
                _ => Silence::Closed,
            }))
        });
        if let Some(request) = received.await? {
            return Ok(request);
        }
    }
}

/// Those in front of a request belong to none (RFC 9112 §2.2): old clients send one behind a body.
fn skip_empty_lines(unread: &mut BytesMut) {
    loop {
        match unread[..] {
            [b'\r', b'\n', ..] => unread.advance(2),
            [b'\n', ..] => unread.advance(1),
            _ => return,
        }
    }
}

/// Asks the token for its wake-up once, and from then on only the flag, which takes no lock.
fn is_draining(
    worker: &Worker,
    drain: &mut Pin<&mut WaitForCancellationFuture<'_>>,
    is_registered: &mut bool,
    cx: &mut Context<'_>,
) -> bool {
    if !*is_registered {
        *is_registered = true;
        let _ = drain.as_mut().poll(cx);
    }
    worker.is_draining()
}

/// Closes gently: first our direction, then, when the client has seen that or had its time, the rest.
pub(crate) async fn linger(mut socket: TcpStream) {
    let drained = async {
        socket.shutdown().await?;
        while poll_fn(|cx| scratch::poll_read(&mut socket, cx, |_, unwanted| !unwanted.is_empty())).await? {}
        io::Result::Ok(())
    };
    let _ = timeout(LINGER, drained).await;
}

async fn carry(worker: &Worker, socket: &mut TcpStream, early: Vec<u8>, far: Tunnel, record: Option<Box<Record>>) {
    let mut told = Told { carried: Carried::default(), record };
    let idle = worker.config.gateway.tunnel_idle_timeout;
    let end = tunnel::relay(socket, early, far, idle, &worker.pipes, &told.carried).await;
    if let Some(record) = &mut told.record {
        record.ended = match end {
            tunnel::End::Closed => Ended::Done,
            tunnel::End::ClientFailed => Ended::Client,
            tunnel::End::UpstreamFailed => Ended::Upstream,
            tunnel::End::Idle => Ended::Gateway,
        };
    }
}

/// What a tunnel carries, written down however it ends.
struct Told {
    carried: Carried,
    record: Option<Box<Record>>,
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(record) = &mut self.record {
            record.bytes = self.carried.to_client.load(Ordering::Relaxed);
        }
    }
}
