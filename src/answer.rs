//! The body of an answer: a sentence of our own, or the origin's body as it streams through.
//!
//! A streamed body owns the upstream connection it comes on. When the last byte has passed, the connection is
//! kept for the next request; when the body is dropped before that, the connection is closed with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::ban::Beginning;
use crate::client::Client;
use crate::forward::Speaker;
use crate::headers;
use crate::idle::Origin;
use crate::pool::Lease;
use crate::record::{Ended, Record, note_bytes};
use crate::upload::Source;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// What hyper writes to the client behind the head.
pub(crate) struct Answer {
    content: Content,
    record: Option<Box<Record>>,
    client: Arc<Client>,
    /// The request's body, to know whether it has been read to its end.
    source: Source,
    /// A length is stated although nothing follows, of a 304 or 0: hyper would leave the first out and move the
    /// second to the end, if it knew.
    states_length_only: bool,
    last: Option<Box<Last>>,
    /// Why the body broke off, until what came before has gone out: hyper would drop that, and the head with it.
    broken: Option<hyper::Error>,
    /// What wants to see how it begins.
    beginning: Option<Box<Beginning>>,
}

/// The last frame, which waits until the lease has ended.
struct Last {
    frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

enum Content {
    Own(Option<Bytes>),
    Relayed { body: Incoming, connection: Option<Connection> },
}

/// An upstream connection, and where it goes when the exchange is over.
pub(crate) struct Connection {
    pub(crate) worker: Arc<Worker>,
    pub(crate) upstream: Arc<Upstream>,
    /// Ends with the exchange.
    pub(crate) lease: Lease,
    pub(crate) speaker: Speaker,
    pub(crate) origin: Origin,
    /// The answer was one of HTTP/1.0. hyper would send the next request in that version too, and a chunked body not at all.
    pub(crate) is_old: bool,
}

impl Answer {
    /// A text of our own; empty for a head without a body.
    pub(crate) fn own(text: Bytes, client: Arc<Client>, source: Source, record: Option<Box<Record>>) -> Self {
        Self {
            content: Content::Own(Some(text).filter(|text| !text.is_empty())),
            record,
            client,
            source,
            states_length_only: false,
            last: None,
            broken: None,
            beginning: None,
        }
    }

    /// The origin's body. `connection`: kept once the body has ended.
    pub(crate) fn relayed(
        body: Incoming,
        connection: Connection,
        client: Arc<Client>,
        source: Source,
        states_length: bool,
        record: Option<Box<Record>>,
    ) -> Self {
        let states_length_only = states_length && body.is_end_stream();
        let mut content = Content::Relayed { body, connection: Some(connection) };
        drop(content.settle(false));
        Self { content, record, client, source, states_length_only, beginning: None, last: None, broken: None }
    }

    /// The same, where something wants to see how the body begins.
    pub(crate) fn seen_by(mut self, beginning: Option<Box<Beginning>>) -> Self {
        self.beginning = beginning;
        self
    }
}

impl Content {
    /// Gives the connection back if nothing more comes on it, and the lease to be ended. `was_last`: as the last frame has shown;
    /// of a body with a length one knows before.
    fn settle(&mut self, was_last: bool) -> Option<Lease> {
        let Self::Relayed { body, connection } = self else { return None };
        if !was_last && !body.is_end_stream() {
            return None;
        }
        let Connection { worker, upstream, lease, speaker, origin, is_old } = connection.take()?;
        if !is_old {
            worker.upstreams.keep_speaker(&upstream, speaker, origin);
        }
        Some(lease)
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { content, record, client, beginning, last, broken, .. } = &mut *self;
        if broken.is_some() {
            std::task::ready!(client.poll_flushed(cx));
            return Poll::Ready(broken.take().map(Err));
        }
        if let Some(waiting) = last {
            std::task::ready!(waiting.end.as_mut().poll(cx));
            return Poll::Ready(last.take().and_then(|last| last.frame));
        }
        let frame = match &mut *content {
            Content::Own(text) => {
                note_bytes(record, text.as_ref().map_or(0, Bytes::len));
                return Poll::Ready(text.take().map(|text| Ok(Frame::data(text))));
            }
            Content::Relayed { body, .. } => {
                std::task::ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map(headers::of_frame))
            }
        };
        let frame = match frame {
            Some(Err(error)) => {
                if let Some(record) = record {
                    record.ended = Ended::Upstream;
                }
                client.broke_off();
                *content = Content::Own(None);
                *broken = Some(error);
                client.wait_for_flush();
                return self.poll_frame(cx);
            }
            frame => frame,
        };
        if let Some(chunk) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            note_bytes(record, chunk.len());
            if beginning.as_mut().is_some_and(|seer| seer.add(chunk)) {
                *beginning = None;
            }
        }
        let was_last = frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers));
        match content.settle(was_last) {
            Some(mut lease) if lease.is_counted() => {
                let end = Box::pin(async move { lease.end().await });
                *last = Some(Box::new(Last { frame, end }));
                self.poll_frame(cx)
            }
            _ => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_over = match &self.content {
            Content::Own(text) => text.is_none(),
            Content::Relayed { body, .. } => body.is_end_stream() && !self.states_length_only,
        };
        is_over && self.last.is_none() && self.broken.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            _ if self.states_length_only => SizeHint::default(),
            Content::Own(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Content::Relayed { body, .. } => body.size_hint(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(record) = &mut self.record
            && record.ended == Ended::Done
            && !self.content.is_over()
        {
            record.ended = if self.client.is_given_up() { Ended::Gateway } else { Ended::Client };
        }
        let is_even = self.source.is_finished();
        // An upload that outlasts its answer might wait for ever to be asked for.
        self.source.abandon();
        self.client.answered(is_even);
    }
}

impl Content {
    fn is_over(&self) -> bool {
        match self {
            Self::Own(_) => true,
            Self::Relayed { body, connection } => connection.is_none() || body.is_end_stream(),
        }
    }
}
