//! A client connection while hyper speaks on it: one exchange, watched by what moves on the socket.
//!
//! hyper's own deadlines need a timer per request; here one alarm per connection looks at what phase it is in. Its bare replies
//! to malformed heads never go out: ours say what went wrong.

use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use hyper::header::{CONNECTION, HeaderValue};
use hyper::service::service_fn;
use hyper::{Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::{carry, is_draining, linger};
use crate::config;
use crate::error::Failure;
use crate::extent::Extent;
use crate::gateway;
use crate::line::{Line, MAX_UNREAD};
use crate::record::Record;
use crate::refusal::say;
use crate::scratch;
use crate::tunnel::Tunnel;
use crate::worker::Worker;

/// How often the phase of a connection in hyper is looked at, unless a shorter deadline asks for more.
const TICK: Duration = Duration::from_secs(1);
/// Where in a request a connection is. The order of the numbers means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    /// Between requests; everything written has been flushed.
    Idle = 0,
    /// Some of a request head has arrived.
    Head = 1,
    /// A request waits for its answer; every step of that has a deadline of its own.
    Busy = 2,
    /// The answer has been handed to hyper whole, but not yet to the socket.
    Flushing = 3,
    /// The answer is on its way.
    Answering = 4,
}

/// What is known of a client connection while hyper speaks on it; shared by its socket, its requests and its answers.
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    epoch: Instant,
    phase: AtomicU8,
    /// Milliseconds since `epoch`: when the phase began.
    since_ms: AtomicU64,
    /// Likewise: when a byte last moved on the socket.
    moved_ms: AtomicU64,
    /// An exchange has ended, its request read to the end: the next byte begins another request.
    is_even: AtomicBool,
    saw_eof: AtomicBool,
    /// It took nothing of what was written last.
    is_full: AtomicBool,
    /// The exchange is ended because nothing more comes for the client.
    is_given_up: AtomicBool,
    /// The client speaks HTTP/1.0, which knows no chunks.
    is_old: AtomicBool,
    states_length: AtomicBool,
    /// The answer has broken off.
    is_broken: AtomicBool,
    /// The status hyper wanted to answer a malformed head with, 0 if none.
    refusal: AtomicU16,
    tunnel: Mutex<Option<(Tunnel, Option<Box<Record>>)>>,
    /// Whether somebody waits until all that was written has gone out, and who.
    unflushed: Mutex<Option<Waker>>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            epoch: Instant::now(),
            phase: AtomicU8::new(Phase::Idle as u8),
            since_ms: AtomicU64::new(0),
            moved_ms: AtomicU64::new(0),
            is_even: AtomicBool::new(false),
            saw_eof: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            is_old: AtomicBool::new(false),
            states_length: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            refusal: AtomicU16::new(0),
            tunnel: Mutex::new(None),
            unflushed: Mutex::new(None),
        }
    }

    /// A whole request head has been read.
    pub(crate) fn asked(&self, version: Version) {
        self.is_old.store(version < Version::HTTP_11, Ordering::Relaxed);
        self.states_length.store(false, Ordering::Relaxed);
        self.is_even.store(false, Ordering::Relaxed);
        self.enter(Phase::Busy);
    }

    /// The answer's head has come.
    pub(crate) fn answering(&self) {
        self.enter(Phase::Answering);
    }

    /// The answer's last byte has been given to hyper. `is_even`: and the request's body has been read to its end.
    pub(crate) fn answered(&self, is_even: bool) {
        self.is_even.store(is_even, Ordering::Relaxed);
        self.enter(Phase::Flushing);
    }

    /// The answer states its length.
    pub(crate) fn will_count(&self) {
        self.states_length.store(true, Ordering::Relaxed);
    }

    /// Whether only the end of the connection shows the client where the answer's body ends, if it has one.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.is_old.load(Ordering::Relaxed) && !self.states_length.load(Ordering::Relaxed)
    }

    /// Makes an answer say that the connection ends with it. To one of HTTP/1.1 hyper would add that it stays, if an HTTP/1.0 client
    /// has asked for that.
    pub(crate) fn make_last<B>(&self, answer: &mut Response<B>) {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        if self.is_old.load(Ordering::Relaxed) {
            *answer.version_mut() = Version::HTTP_10;
        }
    }

    /// Whether an answer that does not come to its end was waited for in vain, and not left by the client.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// The answer has ended before its end.
    pub(crate) fn broke_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// [`Self::poll_flushed`] is to wait until what was given to hyper so far has gone out.
    pub(crate) fn wait_for_flush(&self) {
        *self.unflushed() = Some(Waker::noop().clone());
    }

    /// Ends when that is so.
    pub(crate) fn poll_flushed(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.unflushed() {
            Some(waker) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            None => Poll::Ready(()),
        }
    }

    fn unflushed(&self) -> MutexGuard<'_, Option<Waker>> {
        self.unflushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After the answer now being written, the socket belongs to a tunnel.
    pub(crate) fn continue_as_tunnel(&self, far: Tunnel, record: Option<Box<Record>>) {
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((far, record));
    }

    fn take_tunnel(&self) -> Option<(Tunnel, Option<Box<Record>>)> {
        self.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            3 => Phase::Flushing,
            _ => Phase::Answering,
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
        self.since_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn moved(&self) {
        self.moved_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    /// Whether hyper has nothing left to do, to write or to read on this connection.
    fn is_between_requests(&self) -> bool {
        self.phase() == Phase::Idle && self.is_even.load(Ordering::Relaxed)
    }

    /// Whether an answer that has broken off, or stands still for ever, would seem to be over if the connection just closed.
    fn would_look_whole(&self, verdict: &Verdict) -> bool {
        let is_broken = self.is_broken.load(Ordering::Relaxed) || matches!(verdict, Verdict::Stalled);
        is_broken && self.is_open_ended()
    }

    /// What to do with the connection now.
    fn judge(&self, limits: &config::Gateway) -> Verdict {
        let lasted =
            |since: &AtomicU64| Duration::from_millis(self.now_ms().saturating_sub(since.load(Ordering::Relaxed)));
        match self.phase() {
            Phase::Idle if lasted(&self.since_ms) >= limits.idle_timeout => Verdict::Stalled,
            Phase::Head if lasted(&self.since_ms) >= limits.head_timeout => Verdict::TooSlow,
            // Whatever moves in an answer, or beside it, moves on the client's socket too.
            Phase::Answering | Phase::Flushing
                if lasted(&self.moved_ms).min(lasted(&self.since_ms)) >= limits.tunnel_idle_timeout =>
            {
                Verdict::Stalled
            }
            _ => Verdict::GoOn,
        }
    }
}

enum Verdict {
    GoOn,
    /// The exchange is over and the connection goes on.
    Done,
    TooSlow,
    Stalled,
    /// hyper has finished with the connection, perhaps because the head made no sense to it.
    Over {
        is_unreadable: bool,
    },
}

/// Lets hyper speak until the exchange is over; gives the line back if the connection goes on.
pub(super) async fn speak(worker: &Arc<Worker>, line: Line, address: SocketAddr) -> Option<Line> {
    let client = Arc::new(Client::new(address));
    let extent = Extent::of(&line.unread);
    let io = TokioIo::new(ClientSocket { socket: line.socket, unread: line.unread, extent, client: client.clone() });
    let service = {
        let (worker, client) = (worker.clone(), client.clone());
        service_fn(move |request| {
            let answer = gateway::serve(worker.clone(), client.clone(), request);
            Box::pin(async move { Ok::<_, Infallible>(answer.await) })
        })
    };
    let mut connection = worker.http.serve_connection(io, service);
    let limits = &worker.config.gateway;
    let every = TICK.min(limits.head_timeout / 4).min(limits.idle_timeout / 4).max(Duration::from_millis(10));
    let mut tick = pin!(sleep(every));
    let mut drain = pin!(worker.drain.cancelled());
    let (mut is_registered, mut is_closing) = (false, false);
    let verdict = poll_fn(|cx| {
        loop {
            if let Poll::Ready(end) = connection.poll_without_shutdown(cx) {
                return Poll::Ready(Verdict::Over { is_unreadable: end.is_err_and(|error| error.is_parse()) });
            }
            if client.is_between_requests() && !is_closing {
                return Poll::Ready(Verdict::Done);
            }
            if !is_closing && is_draining(worker, &mut drain, &mut is_registered, cx) {
                is_closing = true;
                Pin::new(&mut connection).graceful_shutdown();
                continue;
            }
            ready!(tick.as_mut().poll(cx));
            match client.judge(limits) {
                Verdict::GoOn => tick.as_mut().reset(Instant::now() + every),
                verdict => {
                    client.is_given_up.store(!client.is_full.load(Ordering::Relaxed), Ordering::Relaxed);
                    return Poll::Ready(verdict);
                }
            }
        }
    })
    .await;
    let parts = connection.into_parts();
    let ClientSocket { mut socket, unread, .. } = parts.io.into_inner();
    // What hyper had read ahead comes before what it was not given.
    let mut early = BytesMut::from(&parts.read_buf[..]);
    early.unsplit(unread);
    match verdict {
        Verdict::Done => {
            return Some(Line::new(socket, early));
        }
        Verdict::Stalled | Verdict::Over { .. } if client.would_look_whole(&verdict) => {
            Line::new(socket, early).cut();
            return None;
        }
        Verdict::Stalled | Verdict::GoOn => return None,
        Verdict::TooSlow => say(worker, &mut socket, address, client.epoch, Failure::ClientSlow).await,
        Verdict::Over { is_unreadable } => {
            if let Some((far, record)) = client.take_tunnel() {
                carry(worker, &mut socket, early.into(), far, record).await;
                return None;
            }
            match StatusCode::from_u16(client.refusal.load(Ordering::Relaxed)) {
                Ok(status @ (StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)) => {
                    // To hyper it is all one; without a line end it is the request line that is too long.
                    let is_line = !parts.read_buf.contains(&b'\n');
                    let status = if is_line { StatusCode::URI_TOO_LONG } else { status };
                    say(worker, &mut socket, address, client.epoch, Failure::TooLarge(status)).await;
                }
                Err(_) if !is_unreadable => {}
                _ => {
                    say(
                        worker,
                        &mut socket,
                        address,
                        client.epoch,
                        Failure::BadRequest("this is not an HTTP/1.1 request"),
                    )
                    .await
                }
            }
        }
    }
    if !client.saw_eof.load(Ordering::Relaxed) {
        linger(socket).await;
    }
    None
}

/// The client's socket as hyper sees it, which ends with the request; keeps [`Client`] informed of what passes.
struct ClientSocket {
    socket: TcpStream,
    /// Received, not given to hyper yet.
    unread: BytesMut,
    extent: Extent,
    client: Arc<Client>,
}

impl ClientSocket {
    /// hyper writes between requests only to refuse what it could not read; our own refusal goes out instead.
    fn is_refusal(&self, bytes: &[u8]) -> bool {
        if !matches!(self.client.phase(), Phase::Idle | Phase::Head) {
            return false;
        }
        let status = bytes.get(9..12).and_then(|digits| StatusCode::from_bytes(digits).ok());
        self.client.refusal.store(status.unwrap_or(StatusCode::BAD_REQUEST).as_u16(), Ordering::Relaxed);
        true
    }

    fn note_written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.client.is_full.store(written.is_pending(), Ordering::Relaxed);
        let written = ready!(written)?;
        self.client.moved();
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { socket, unread, extent, client } = &mut *self;
        while unread.is_empty() || extent.is_over() {
            if unread.len() >= MAX_UNREAD {
                // A client that is that far ahead will not be missed before its answer.
                return Poll::Pending;
            }
            let received = scratch::poll_read(socket, cx, |_, bytes| {
                unread.extend_from_slice(bytes);
                !bytes.is_empty()
            });
            if !ready!(received)? {
                client.saw_eof.store(true, Ordering::Relaxed);
                return Poll::Ready(Ok(()));
            }
        }
        let room = unread.len().min(buf.remaining());
        let length = extent.take(&unread[..room]);
        buf.put_slice(&unread[..length]);
        unread.advance(length);
        if client.phase() == Phase::Idle {
            client.enter(Phase::Head);
        }
        client.moved();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_refusal(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.note_written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.first().is_some_and(|first| self.is_refusal(first)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.note_written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// hyper flushes the socket once its own buffer is empty: then an answer is really out.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.client.phase() == Phase::Flushing {
            self.client.enter(Phase::Idle);
        }
        let waiting = self.client.unflushed().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
