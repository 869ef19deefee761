//! One line per request, when asked for: fields first, then a sentence.
//!
//! Who is refused before there is a request has one too. Where no line is wanted there is no [`Record`], and nothing is written down.
//! Never a credential, never a path or a query string: the target is its host and port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use tokio::time::Instant;

use crate::error::{Row, Side};
use crate::refusal::Failed;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// Who ended a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The exchange came to its end.
    Done,
    /// The client left or broke off.
    Client,
    /// The gateway answered itself, or ended it at a deadline.
    Gateway,
    /// The upstream proxy failed or broke off.
    Upstream,
}

/// What is known of a request; logged when dropped.
pub(crate) struct Record {
    pub(crate) client: SocketAddr,
    /// `None`: no whole head was read.
    pub(crate) method: Option<Method>,
    /// `host:port`, empty while unknown.
    pub(crate) target: String,
    pub(crate) upstream: Option<Arc<Upstream>>,
    pub(crate) attempts: u32,
    /// Whether the last attempt's member was chosen without the store.
    pub(crate) is_local: bool,
    pub(crate) status: u16,
    pub(crate) ended: Ended,
    /// Of an answer of our own to a failure, as in `Proxy-Status`.
    pub(crate) error: Option<&'static str>,
    /// Of the answer's body, without its chunk sizes, or carried towards the client by a tunnel.
    pub(crate) bytes: u64,
    pub(crate) started: Instant,
    /// Whether the drain is over: whatever ends then is cut.
    is_cut: Arc<AtomicBool>,
}

impl Record {
    /// `None`: no line is wanted.
    pub(crate) fn begin(worker: &Worker, client: SocketAddr, method: Option<&Method>) -> Option<Box<Self>> {
        let is_wanted = worker.config.log.requests && tracing::enabled!(tracing::Level::INFO);
        is_wanted.then(|| Box::new(Self::new(client, method.cloned(), worker.is_over.clone())))
    }

    fn new(client: SocketAddr, method: Option<Method>, is_cut: Arc<AtomicBool>) -> Self {
        Self {
            client,
            method,
            target: String::new(),
            upstream: None,
            attempts: 0,
            is_local: false,
            status: 0,
            // Whoever is dropped before an answer was made was left by its client.
            ended: Ended::Client,
            error: None,
            bytes: 0,
            started: Instant::now(),
            is_cut,
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let ended = match self.ended {
            _ if self.is_cut.load(Ordering::Relaxed) => "gateway",
            Ended::Done => "done",
            Ended::Client => "client",
            Ended::Gateway => "gateway",
            Ended::Upstream => "upstream",
        };
        tracing::info!(
            client = %self.client,
            method = %self.method.as_ref().map_or("-", Method::as_str),
            target = %self.target,
            proxy = %self.upstream.as_ref().map_or("-", |upstream| upstream.member.id()),
            // As the metric calls it; mostly it is the store, and that goes without saying.
            chosen_by = self.is_local.then(|| tracing::field::display("gateway")),
            attempts = self.attempts,
            status = self.status,
            ended = %ended,
            error = self.error.map(tracing::field::display),
            bytes = self.bytes,
            ms = self.started.elapsed().as_millis() as u64,
            "request"
        );
    }
}

/// Writes down through whom the request goes.
pub(crate) fn note_choice(record: &mut Option<Box<Record>>, upstream: &Arc<Upstream>, attempts: u32, is_local: bool) {
    if let Some(record) = record {
        record.upstream = Some(upstream.clone());
        record.attempts = attempts;
        record.is_local = is_local;
    }
}

/// Writes down that an answer has begun.
pub(crate) fn note_answer(record: &mut Option<Box<Record>>, status: u16) {
    if let Some(record) = record {
        record.status = status;
        record.ended = Ended::Done;
    }
}

/// Writes down why there was no answer.
pub(crate) fn note_failure(record: &mut Option<Box<Record>>, failed: Failed) {
    if let Some(record) = record {
        let Row { side, status, error, .. } = failed.failure.row();
        record.status = status.as_u16();
        record.error = Some(error);
        record.attempts = failed.attempts;
        record.is_local = failed.is_local;
        record.upstream = failed.upstream;
        record.ended = match side {
            Side::Client => Ended::Client,
            Side::Gateway => Ended::Gateway,
            Side::Upstream => Ended::Upstream,
        };
    }
}

/// Writes down that so much of the answer's body has been sent.
pub(crate) fn note_bytes(record: &mut Option<Box<Record>>, bytes: usize) {
    if let Some(record) = record {
        record.bytes += bytes as u64;
    }
}
