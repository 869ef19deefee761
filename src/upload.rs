//! A request body on its way to an upstream proxy: streamed, and kept as long as it is small, for a second try.
//!
//! The client's stream can be read once. Every attempt gets its own [`Upload`] over the same [`Source`]: it first
//! gives out what has been kept, then goes on reading from the client. Past `replay_bytes` nothing is kept any more and the
//! body cannot be replayed. Backpressure is hyper's: a chunk is read when the upstream proxy takes it.
//! A body held back by `Expect: 100-continue` is not asked for until the upstream proxy says so; hyper tells the
//! client to go on when the body is first polled, so a refused upload is never sent.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use tokio::time::{Instant, timeout};

use crate::headers;

/// The client's body, shared by the attempts at one request.
#[derive(Clone)]
pub(crate) struct Source(Option<Arc<Mutex<State>>>);

struct State {
    /// `None` once nobody wants the rest.
    body: Option<Incoming>,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// `None` once more has passed than may be kept.
    keep: Option<usize>,
    trailers: Option<HeaderMap>,
    finished: bool,
    held: bool,
    waker: Option<Waker>,
    /// When a chunk last came from the client.
    moved: Instant,
    /// It is not chunked as it should be, or the client broke off.
    is_broken: bool,
    /// The last time the upstream proxy asked, the client had nothing.
    awaits_client: bool,
}

impl Source {
    /// `replay_bytes`: how much to keep. `held`: wait for [`Source::release`] before the client is asked.
    pub(crate) fn new(body: Incoming, replay_bytes: usize, held: bool) -> Self {
        if body.is_end_stream() {
            return Self(None);
        }
        let keep = Some(replay_bytes).filter(|&most| body.size_hint().lower() <= most as u64);
        Self(Some(Arc::new(Mutex::new(State {
            body: Some(body),
            kept: Vec::new(),
            kept_bytes: 0,
            keep,
            trailers: None,
            finished: false,
            held,
            waker: None,
            moved: Instant::now(),
            is_broken: false,
            awaits_client: false,
        }))))
    }

    /// The whole body, from its beginning.
    pub(crate) fn upload(&self) -> Upload {
        Upload { source: self.clone(), next: 0, gave_trailers: false }
    }

    /// Whether [`Source::upload`] could still give out every byte.
    pub(crate) fn is_kept(&self) -> bool {
        self.state().is_none_or(|state| state.keep.is_some())
    }

    /// The upstream proxy wants the body (or took too long to say so): stop holding it back.
    pub(crate) fn release(&self) {
        if let Some(mut state) = self.state() {
            state.held = false;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// The exchange is over: what has not been read of the body will not be. hyper then closes both connections, since
    /// what follows on them would still be body.
    pub(crate) fn abandon(&self) {
        if let Some(mut state) = self.state().filter(|state| !state.finished) {
            state.body = None;
            state.held = false;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }

    /// Reads the rest of a body nobody wants, if it is short and there already: the next request can then follow on the
    /// same connection. A body that is held back stays where it is.
    pub(crate) async fn drain(&self) {
        /// What a client sends along with its head.
        const MOST: usize = 64 << 10;
        const PATIENCE: Duration = Duration::from_millis(20);
        if self.state().is_none_or(|state| state.held || state.finished) {
            return;
        }
        let mut rest = self.upload();
        let mut length = 0;
        let read = async {
            while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut rest).poll_frame(cx)).await {
                length += frame.data_ref().map_or(0, Bytes::len);
                if length > MOST {
                    break;
                }
            }
        };
        let _ = timeout(PATIENCE, read).await;
    }

    /// Whether the client's body has been read to its end.
    pub(crate) fn is_finished(&self) -> bool {
        self.state().is_none_or(|state| state.finished && !state.is_broken)
    }

    /// While the body is still being sent: when it last moved. `None` when there is nothing (more) to send.
    pub(crate) fn unfinished_since(&self) -> Option<Instant> {
        self.state().filter(|state| !state.finished).map(|state| state.moved)
    }

    /// Whether the client's body cannot be read to its end.
    pub(crate) fn is_broken(&self) -> bool {
        self.state().is_some_and(|state| state.is_broken)
    }

    /// Whether it is the client that keeps everyone waiting.
    pub(crate) fn awaits_client(&self) -> bool {
        self.state().is_some_and(|state| state.awaits_client && !state.finished)
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.0.as_ref().map(|state| state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One attempt's view of the body.
pub(crate) struct Upload {
    source: Source,
    next: usize,
    gave_trailers: bool,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Some(mut state) = this.source.state() else { return Poll::Ready(None) };
        if let Some(chunk) = state.kept.get(this.next) {
            this.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(chunk.clone()))));
        }
        if state.finished {
            let trailers = state.trailers.clone().filter(|_| !std::mem::replace(&mut this.gave_trailers, true));
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        if state.held {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let Some(body) = &mut state.body else { return Poll::Ready(Some(Err("the answer came first".into()))) };
        let polled = Pin::new(body).poll_frame(cx);
        state.awaits_client = polled.is_pending();
        let Poll::Ready(frame) = polled else {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let frame = frame.map(|frame| frame.map(headers::of_frame));
        state.moved = Instant::now();
        match &frame {
            None => state.finished = true,
            Some(Ok(frame)) => {
                if let Some(chunk) = frame.data_ref() {
                    this.next += state.keep_chunk(chunk);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    this.gave_trailers = true;
                    state.trailers = Some(trailers.clone());
                }
                state.finished = frame.is_trailers() || state.body.as_ref().is_none_or(Incoming::is_end_stream);
            }
            Some(Err(_)) => {
                state.keep = None;
                state.is_broken = true;
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.source.state().is_none_or(|state| {
            state.finished && self.next >= state.kept.len() && (state.trailers.is_none() || self.gave_trailers)
        })
    }

    fn size_hint(&self) -> SizeHint {
        match self.source.state() {
            None => SizeHint::with_exact(0),
            // The length the client stated is in the head; a body is only read, never measured, here.
            Some(_) => SizeHint::default(),
        }
    }
}

impl State {
    /// Keeps a chunk if it may be kept; how many chunks that added.
    fn keep_chunk(&mut self, chunk: &Bytes) -> usize {
        self.kept_bytes += chunk.len();
        match self.keep {
            Some(most) if self.kept_bytes <= most => {
                self.kept.push(chunk.clone());
                1
            }
            _ => {
                self.keep = None;
                self.kept = Vec::new();
                0
            }
        }
    }
}
