//! One attempt at a request with a body, or one that asks for an upgrade: a connection, the request on it, the
//! response head. Other requests go the short way ([`crate::plain`]).
//!
//! hyper frames the request and the response; what is refused here is what it lets through: a 101 nobody asked
//! for, a transfer coding whose name would be lost, and an upstream proxy's 407, which is a challenge to the gateway and not
//! to the client. Where the member leads to the origin there is no such proxy, and a 407 is an answer like any other.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::config;
use crate::dial::{self, Deadline};
use crate::error::{Failure, Peer, is_of_tls};
use crate::head::MAX_FIELDS;
use crate::headers;
use crate::pool::Lease;
use crate::retry::Progress;
use crate::stream::Stream;
use crate::target::Authority;
use crate::tunnel::Tunnel;
use crate::upload::{Source, Upload};
use crate::upstream::{Upstream, Upstreams};

/// Response heads up to this size pass: pages that set 50 kB of cookies exist. Also the most that is buffered of a
/// body the client does not read.
const MAX_BUFFER: usize = 256 << 10;
/// How long a body is held back for an upstream proxy that does not answer `Expect: 100-continue`
/// (RFC 9110 §10.1.1: do not wait indefinitely; curl waits as long).
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// A response head, and the connection its body is coming on.
pub(crate) struct Received {
    pub(crate) response: Response<Incoming>,
    pub(crate) connection: Speaker,
}

/// A connection that hyper speaks on. It is closed with this, whatever is still to be written or waited for: an upload nobody asks
/// for any more would hold it for ever, or take a piece of the body from the next attempt.
pub(crate) struct Speaker {
    sender: SendRequest<Upload>,
    driver: AbortOnDropHandle<()>,
}

impl Speaker {
    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.driver.is_finished()
    }
}

/// An attempt that failed.
pub(crate) struct Missed {
    pub(crate) failure: Failure,
    pub(crate) progress: Progress,
    /// It failed on a connection that had served before: the connection is to blame, not yet the member.
    pub(crate) was_reused: bool,
}

/// A kept connection on which nothing has come.
///
/// hyper notices what comes when its task has its turn and the runtime has asked the kernel, which may have been an answer ago.
async fn take_kept(upstreams: &Upstreams, upstream: &Upstream, to: &Authority) -> Option<Speaker> {
    loop {
        let kept = upstreams.take_speaker(upstream, &upstream.origin(to))?;
        // A task of its own: yielding in this one would end with its next wake-up, whatever that is for.
        let _ = tokio::spawn(tokio::task::yield_now()).await;
        if kept.is_ready() {
            return Some(kept);
        }
    }
}

/// Sends `request` through `upstream` and waits for the response head.
///
/// `to`: where the request is to arrive. `fresh`: do not use a kept connection; a retry must not fail in the same way twice.
pub(crate) async fn send(
    upstreams: &Upstreams,
    upstream: &Upstream,
    to: &Authority,
    request: Request<Upload>,
    body: &Source,
    limits: &config::Upstream,
    fresh: bool,
) -> Result<Received, Missed> {
    let kept = if fresh { None } else { take_kept(upstreams, upstream, to).await };
    let was_reused = kept.is_some();
    let missed = |failure, progress| Missed { failure, progress, was_reused };
    let mut connection = match kept {
        Some(connection) => connection,
        None => connect(upstream, to, limits.dial_timeout).await.map_err(|f| missed(f, Progress::Unsent))?,
    };
    let asked_to_upgrade = request.headers().contains_key(hyper::header::UPGRADE);
    let expects_continue = request.headers().contains_key(hyper::header::EXPECT);

    let answer = connection.sender.try_send_request(request);
    tokio::pin!(answer);
    let mut deadline = Instant::now() + limits.response_timeout;
    let release_at = Instant::now() + CONTINUE_WAIT;
    let mut held = expects_continue;
    let answered = loop {
        tokio::select! {
            biased;
            answered = &mut answer => break answered,
            () = sleep_until(release_at), if held => { held = false; body.release() }
            () = sleep_until(deadline) => match body.unfinished_since() {
                // A long upload is not a late answer: the clock starts anew whenever the body moves.
                Some(moved) if moved + limits.response_timeout > Instant::now() => deadline = moved + limits.response_timeout,
                Some(_) if body.awaits_client() => return Err(missed(Failure::ClientSlow, Progress::Sent)),
                _ => return Err(missed(Failure::HeadTimeout(limits.response_timeout), Progress::Sent)),
            }
        }
    };
    let response = answered.map_err(|mut error| {
        // hyper hands the request back when none of it was written.
        let progress = if error.take_message().is_some() { Progress::Unsent } else { Progress::Sent };
        if body.is_broken() {
            return missed(
                Failure::BadRequest("the request's body broke off, or is not chunked as it should be"),
                progress,
            );
        }
        missed(failure_of(error.error()), progress)
    })?;
    match response.status() {
        StatusCode::PROXY_AUTHENTICATION_REQUIRED if upstream.member.is_http_proxy() => {
            Err(missed(Failure::Credentials, Progress::Sent))
        }
        // Nor can the rest of a body be sent in another protocol.
        StatusCode::SWITCHING_PROTOCOLS if !asked_to_upgrade || !body.is_finished() => {
            Err(missed(Failure::Nonsense, Progress::Sent))
        }
        _ if headers::is_framed_oddly(response.version(), response.headers()) => {
            Err(missed(Failure::Nonsense, Progress::Sent))
        }
        _ => Ok(Received { response, connection }),
    }
}

async fn connect(upstream: &Upstream, to: &Authority, within: Duration) -> Result<Speaker, Failure> {
    let socket = dial::connect(&upstream.member, to, Deadline::within(within)).await?;
    let (sender, driver) = http1::Builder::new()
        .preserve_header_case(true)
        // For the fields we add ourselves; every other name is written as the client spelled it.
        .title_case_headers(true)
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_BUFFER)
        .handshake(TokioIo::new(Listening { socket, is_deaf: false }))
        .await
        .map_err(|_| Failure::Closed)?;
    // Its errors reach whoever waits for the response.
    let driver = tokio::spawn(async move { driver.with_upgrades().await.unwrap_or_default() });
    Ok(Speaker { sender, driver: AbortOnDropHandle::new(driver) })
}

fn failure_of(error: &hyper::Error) -> Failure {
    if error.is_parse() {
        return Failure::Nonsense;
    }
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        // Of the same words; an io::Error cannot be taken out.
        Some(broken) if is_of_tls(broken) => Failure::Tls(Peer::Proxy, io::Error::other(broken.to_string())),
        _ => Failure::Closed,
    }
}

/// Takes the socket of a connection that has switched protocols.
///
/// # Errors
/// [`Failure::Closed`] when the connection broke right behind its 101.
pub(crate) async fn switch(response: &mut Response<Incoming>) -> Result<Tunnel, Failure> {
    let upgraded = hyper::upgrade::on(response).await.map_err(|_| Failure::Closed)?;
    let parts = upgraded.downcast::<TokioIo<Listening>>().map_err(|_| Failure::Closed)?;
    Ok(Tunnel { socket: parts.io.into_inner().socket, early: parts.read_buf.into(), lease: Lease::default() })
}

/// A connection that is listened to although it takes nothing any more: who refuses an upload and closes has said why, and that is
/// still to be read (RFC 9112 §9.5). hyper would give up at once. If there is nothing, reading says that it is over.
struct Listening {
    socket: Stream,
    is_deaf: bool,
}

impl Listening {
    /// What is written is dropped from the first error on.
    fn unless_deaf<T>(&mut self, written: Poll<io::Result<T>>, all: T) -> Poll<io::Result<T>> {
        let written = ready!(written);
        self.is_deaf |= written.is_err();
        Poll::Ready(Ok(written.unwrap_or(all)))
    }
}

impl AsyncRead for Listening {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for Listening {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_deaf {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.unless_deaf(written, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = bufs.iter().map(|buf| buf.len()).sum();
        if self.is_deaf {
            return Poll::Ready(Ok(all));
        }
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.unless_deaf(written, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        self.unless_deaf(flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
