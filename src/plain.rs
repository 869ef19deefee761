//! The short way: a request without a body, in the client's own bytes, and its answer as it comes.
//!
//! Most requests are like that, and need no message to be taken apart: the head is read once and written once, the
//! body of the answer is only measured (its length, its chunks, or the end of the connection). Names, order and
//! repetition of fields stay exactly as they were. Everything runs in the client's own task; waiting holds two
//! sockets and no buffer.
//! Requests with a body, upgrades and anything unusual go through hyper ([`crate::forward`]); which member is next and
//! whether there is a next is decided for both by [`Attempts`].

mod body;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

pub(crate) use body::Body;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout_at};

use crate::attempts::Attempts;
use crate::dial::{self, Deadline};
use crate::error::Failure;
use crate::forward::Missed;
use crate::gateway;
use crate::head::{self, Framing, Nonsense, Pieces, Plain, Response};
use crate::idle::Origin;
use crate::line::{Gone, Line};
use crate::record::{self, Ended, Record};
use crate::refusal::{self, Failed};
use crate::retry::Progress;
use crate::scratch;
use crate::stream::Stream;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// A response head may be this long: pages that set 50 kB of cookies exist.
const MAX_HEAD: usize = 256 << 10;
/// Interim answers before the real one; nobody sends more than a few.
const MAX_INTERIM: usize = 16;

/// What becomes of the client's connection.
#[derive(Debug, PartialEq)]
pub(crate) enum Fate {
    /// The next request may come.
    KeepAlive,
    /// Our side is to be ended.
    Close,
    /// The answer is not whole, as the client can tell: closed at once.
    Broken,
    /// The answer is not whole and does not look like it: reset.
    Cut,
    /// The client has gone already.
    Gone,
}

/// Why there was no answer.
enum Stop {
    Failed(Failed),
    Gone,
}

impl From<Failed> for Stop {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.into())
    }
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// Answers one request; `request` is not a CONNECT.
pub(crate) async fn exchange(
    worker: &Arc<Worker>,
    line: &mut Line,
    request: &mut Plain,
    record: &mut Option<Box<Record>>,
) -> Fate {
    match answer(worker, line, request, record).await {
        Ok(fate) => fate,
        Err(Stop::Gone) => Fate::Gone,
        Err(Stop::Failed(failed)) => {
            let closes = !request.keeps_alive || worker.is_draining();
            match refusal::send(worker, line, failed, &request.method, closes, record).await {
                Ok(()) if closes => Fate::Close,
                Ok(()) => Fate::KeepAlive,
                Err(Gone) => Fate::Gone,
            }
        }
    }
}

async fn answer(
    worker: &Arc<Worker>,
    line: &mut Line,
    request: &mut Plain,
    record: &mut Option<Box<Record>>,
) -> Result<Fate, Stop> {
    gateway::hear(worker, request.reports.iter().map(Vec::as_slice))?;
    gateway::refuse_loop(worker, &request.to, request.has_been_here)?;
    let method = request.method.clone();
    let mut attempts = Attempts::new(worker, &method, &request.to);
    let (upstream, socket, opening) = loop {
        let upstream = attempts.next().await?;
        record::note_choice(record, &upstream, attempts.number, attempts.is_local());
        match attempt(line, request, &attempts, &upstream).await? {
            Ok((socket, opening)) => {
                attempts.served(&upstream);
                break (upstream, socket, opening);
            }
            Err(missed) => attempts.failed(upstream, missed, true).await?,
        }
    };
    record::note_answer(record, opening.response.status);
    let origin = upstream.origin(&request.to);
    Ok(relay(&mut attempts, line, upstream, (socket, origin), opening, record).await)
}

/// The beginning of an answer: its head for the client, and how its body goes on.
struct Opening {
    response: Response,
    /// The head as it goes out, with what came of the body in the same read.
    out: Vec<u8>,
    body: Body,
    keeps_client: bool,
}

/// Sends the request through `upstream` and waits for the answer's head. The outer error is the client leaving.
async fn attempt(
    line: &mut Line,
    request: &mut Plain,
    attempts: &Attempts<'_>,
    upstream: &Upstream,
) -> Result<Result<(Stream, Opening), Missed>, Gone> {
    let worker = attempts.worker;
    let kept =
        if attempts.number > 1 { None } else { worker.upstreams.take_socket(upstream, &upstream.origin(&request.to)) };
    let was_reused = kept.is_some();
    let missed = |failure, progress| Ok(Err(Missed { failure, progress, was_reused }));
    let mut socket = match kept {
        Some(socket) => socket,
        None => {
            let deadline = Deadline::within(worker.config.upstream.dial_timeout);
            match line.unless_gone(dial::connect(&upstream.member, &request.to, deadline)).await? {
                Ok(socket) => socket,
                Err(failure) => return missed(failure, Progress::Unsent),
            }
        }
    };
    let deadline = Instant::now() + worker.config.upstream.response_timeout;
    let (_, head) = request.head_for(&upstream.member, worker.via());
    let sent = async {
        socket.write_all(head).await?;
        socket.flush().await
    };
    match timeout_at(deadline, sent).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return missed(Failure::from_broken(error), Progress::Sent),
        Err(_) => return missed(Failure::Closed, Progress::Sent),
    }
    match opening(line, request, attempts, upstream, &mut socket, deadline).await? {
        Ok(opening) => Ok(Ok((socket, opening))),
        Err((failure, progress)) => missed(failure, progress),
    }
}

/// Waits for the answer's head, passing interim answers on.
async fn opening(
    line: &mut Line,
    request: &Plain,
    attempts: &Attempts<'_>,
    upstream: &Upstream,
    socket: &mut Stream,
    deadline: Instant,
) -> Result<Result<Opening, (Failure, Progress)>, Gone> {
    let worker = attempts.worker;
    let mut progress = Progress::Sent;
    let mut head = Head::default();
    let mut interim = 0;
    loop {
        let step = poll_fn(|cx| {
            let read =
                scratch::poll_read(socket, cx, |_, bytes| read_head(request, attempts, upstream, &mut head, bytes));
            match read {
                Poll::Ready(Ok(step)) => return Poll::Ready(Ok(step)),
                Poll::Ready(Err(error)) => return Poll::Ready(Ok(Err(Failure::from_broken(error)))),
                Poll::Pending => {}
            }
            if line.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            ready!(line.poll_alarm(cx, deadline));
            Poll::Ready(Ok(Err(Failure::HeadTimeout(worker.config.upstream.response_timeout))))
        })
        .await?;
        let mut step = step;
        // Several heads may have come at once, interim ones first.
        loop {
            match step {
                Err(failure) => return Ok(Err((failure, progress))),
                Ok(Step::More) => break,
                Ok(Step::Opening(opening)) => return Ok(Ok(*opening)),
                Ok(Step::Interim { out, rest }) => {
                    interim += 1;
                    if interim > MAX_INTERIM {
                        return Ok(Err((Failure::Nonsense, progress)));
                    }
                    if !out.is_empty() {
                        line.send(&out, worker.config.gateway.tunnel_idle_timeout).await?;
                        progress = Progress::Answered;
                    }
                    head = Head::default();
                    if rest.is_empty() {
                        break;
                    }
                    step = read_head(request, attempts, upstream, &mut head, &rest);
                }
            }
        }
    }
}

/// A head that comes in pieces.
#[derive(Default)]
struct Head {
    received: Vec<u8>,
    pieces: Pieces,
}

/// What one read brought.
enum Step {
    /// Part of a head.
    More,
    /// An interim answer for the client, and what came behind it.
    Interim {
        out: Vec<u8>,
        rest: Vec<u8>,
    },
    Opening(Box<Opening>),
}

fn read_head(
    request: &Plain,
    attempts: &Attempts<'_>,
    upstream: &Upstream,
    Head { received, pieces }: &mut Head,
    bytes: &[u8],
) -> Result<Step, Failure> {
    if bytes.is_empty() {
        return Err(Failure::Closed);
    }
    let bytes = if received.is_empty() {
        bytes
    } else {
        received.extend_from_slice(bytes);
        &received[..]
    };
    if !pieces.are_worth_reading(bytes) {
        return Ok(Step::More);
    }
    let mut out = Vec::with_capacity(bytes.len() + 128);
    let response = match head::read_response(bytes, &request.method, &mut out) {
        Err(Nonsense) => return Err(Failure::Nonsense),
        Ok(None) if bytes.len() > MAX_HEAD => return Err(Failure::Nonsense),
        Ok(None) => {
            if received.is_empty() {
                *received = bytes.to_vec();
            }
            return Ok(Step::More);
        }
        Ok(Some(response)) => response,
    };
    let rest = &bytes[response.length..];
    match response.status {
        // Nobody asked to switch, and the socket is not ours to give.
        101 => return Err(Failure::Nonsense),
        407 if upstream.member.is_http_proxy() => return Err(Failure::Credentials),
        100..=199 => {
            out.extend_from_slice(b"\r\n");
            // A 100 answers an Expect that this request did not have.
            let out = if response.status == 100 { Vec::new() } else { out };
            return Ok(Step::Interim { out, rest: rest.to_vec() });
        }
        _ => {}
    }
    attempts.sign_bytes(&mut out, upstream);
    let keeps_client = request.keeps_alive && response.framing != Framing::UntilClose && !attempts.worker.is_draining();
    if !keeps_client {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
    let mut body = Body::new(response.framing);
    body.beginning = attempts.judge(upstream, &request.to, response.status, response.framing, |name, is_such| {
        head::has_field(bytes, name, is_such)
    });
    let mut tail = Vec::new();
    let passed = body.take(rest, &mut tail).map_err(|Nonsense| Failure::Nonsense)?;
    out.extend_from_slice(&rest[..passed]);
    out.extend_from_slice(&tail);
    Ok(Step::Opening(Box::new(Opening { response, out, body, keeps_client })))
}

/// Passes the answer on to its end.
async fn relay(
    attempts: &mut Attempts<'_>,
    line: &mut Line,
    upstream: Arc<Upstream>,
    (mut socket, origin): (Stream, Origin),
    opening: Opening,
    record: &mut Option<Box<Record>>,
) -> Fate {
    let Opening { response, out, body, keeps_client } = opening;
    let mut passing = Passing { body, record };
    let end = pass_all(attempts, line, &mut socket, &mut passing.body, &out).await;
    if let Some(record) = passing.record {
        record.ended = match end {
            End::Whole => Ended::Done,
            End::Gone => Ended::Client,
            End::Broken => Ended::Upstream,
            End::Stalled => Ended::Gateway,
        };
    }
    let body = &passing.body;
    match end {
        End::Gone => Fate::Gone,
        // A length or chunks show that something is missing; without them only a reset does.
        End::Broken | End::Stalled if body.framing == Framing::UntilClose => Fate::Cut,
        End::Broken | End::Stalled => Fate::Broken,
        End::Whole => {
            if response.keeps_alive && !body.has_surplus {
                attempts.worker.upstreams.keep_socket(&upstream, socket, origin);
            }
            if keeps_client { Fate::KeepAlive } else { Fate::Close }
        }
    }
}

/// A body on its way; how much of it has passed is written down however that ends.
struct Passing<'a> {
    body: Body,
    record: &'a mut Option<Box<Record>>,
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        if let Some(record) = self.record {
            record.bytes = self.body.passed;
        }
    }
}

/// How an answer ended.
enum End {
    Whole,
    /// The client left, or takes nothing any more.
    Gone,
    /// It ended too early, or cannot be read on.
    Broken,
    /// Nothing came for too long.
    Stalled,
}

async fn pass_all(
    attempts: &mut Attempts<'_>,
    line: &mut Line,
    socket: &mut Stream,
    body: &mut Body,
    out: &[u8],
) -> End {
    let stall = attempts.worker.config.gateway.tunnel_idle_timeout;
    if body.is_over {
        attempts.lease().end().await;
    }
    if line.send(out, stall).await.is_err() {
        return End::Gone;
    }
    while !body.is_over {
        match pass(attempts, line, socket, body, stall).await {
            Err(end) => return end,
            Ok(left) if left.is_empty() => {}
            Ok(left) => {
                if body.is_over {
                    attempts.lease().end().await;
                }
                if line.send(&left, stall).await.is_err() {
                    return End::Gone;
                }
            }
        }
    }
    attempts.lease().end().await;
    End::Whole
}

/// Reads once from the upstream proxy and writes what the client takes at once; gives the rest.
async fn pass(
    attempts: &mut Attempts<'_>,
    line: &mut Line,
    socket: &mut Stream,
    body: &mut Body,
    stall: Duration,
) -> Result<Vec<u8>, End> {
    let deadline = Instant::now() + stall;
    poll_fn(|cx| {
        let read = scratch::poll_read(socket, cx, |cx, bytes| {
            if bytes.is_empty() {
                body.is_over = body.framing == Framing::UntilClose;
                return if body.is_over { Ok(Vec::new()) } else { Err(End::Broken) };
            }
            let mut tail = Vec::new();
            let length = body.take(bytes, &mut tail).map_err(|Nonsense| End::Broken)?;
            // The last piece waits until the lease has ended.
            let at_once = if body.is_over && attempts.lease().is_counted() { 0 } else { length };
            let written = line.poll_some(cx, &bytes[..at_once]).map_err(|Gone| End::Gone)?;
            let mut left = bytes[written..length].to_vec();
            left.append(&mut tail);
            Ok(left)
        });
        match read {
            Poll::Ready(passed) => return Poll::Ready(passed.unwrap_or(Err(End::Broken))),
            Poll::Pending => {}
        }
        if line.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(End::Gone));
        }
        line.poll_alarm(cx, deadline).map(|()| Err(End::Stalled))
    })
    .await
}
