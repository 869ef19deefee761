//! What the requests of one thread share, and by what this gateway knows itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::head::MAX_FIELDS;
use crate::health::Watch;
use crate::metrics::Counts;
use crate::pool::Pool;
use crate::upstream::Upstreams;

/// Request heads are read up to this size at least (hyper looks before it reads: up to 112 KiB), and this much is buffered for a
/// client that does not read.
const MAX_BUFFER: usize = 64 << 10;

/// What the requests of one thread share.
pub(crate) struct Worker {
    pub(crate) config: Arc<Config>,
    pub(crate) pool: Pool,
    pub(crate) upstreams: Upstreams,
    pub(crate) watch: Arc<Watch>,
    pub(crate) counts: Counts,
    pub(crate) http: http1::Builder,
    /// How many pipes there may be for bulk tunnels, in the whole process.
    pub(crate) pipes: Arc<Semaphore>,
    /// Cancelled when the gateway drains.
    pub(crate) drain: CancellationToken,
    /// The same, to be asked for on every wake-up without taking the token's lock.
    is_draining: AtomicBool,
    /// Set when the drain is over: who is still served is cut.
    pub(crate) is_over: Arc<AtomicBool>,
    pub(crate) own: Own,
}

/// By what this gateway knows itself, to be no link of a loop.
#[derive(Clone)]
pub(crate) struct Own {
    /// Where clients connect.
    pub(crate) gateway: SocketAddr,
    /// Where its own pages are.
    pub(crate) admin: Option<SocketAddr>,
    /// Its name in `Via` (RFC 9110 §7.6.3), random per process.
    pub(crate) via: Option<Via>,
}

/// A pseudonym, and the `Via` field with it.
#[derive(Clone)]
pub(crate) struct Via {
    pseudonym: String,
    value: HeaderValue,
}

impl Via {
    pub(crate) fn new() -> Self {
        // Two gateways on one path must not take each other for themselves.
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
        let pseudonym = format!("evenkeel-{random:016x}");
        let value = HeaderValue::try_from(format!("1.1 {pseudonym}")).expect("a pseudonym is a token");
        Self { pseudonym, value }
    }
}

impl Worker {
    pub(crate) fn new(
        config: Arc<Config>,
        pool: Pool,
        watch: Arc<Watch>,
        max_idle: usize,
        pipes: Arc<Semaphore>,
        own: Own,
        index: usize,
    ) -> Self {
        let mut http = http1::Builder::new();
        // The client's deadlines are kept in crate::client; a timer here would be a second one per request.
        http.header_read_timeout(None)
            .preserve_header_case(true)
            .title_case_headers(true)
            .auto_date_header(false)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_BUFFER);
        let counts = watch.metrics.counts(index);
        let upstreams = Upstreams::new(max_idle, config.upstream.idle_timeout);
        Self {
            config,
            pool,
            upstreams,
            watch,
            counts,
            http,
            pipes,
            drain: CancellationToken::new(),
            is_draining: AtomicBool::new(false),
            is_over: Arc::default(),
            own,
        }
    }

    /// The value of this gateway's `Via`, if it adds one.
    pub(crate) fn via(&self) -> Option<&HeaderValue> {
        self.own.via.as_ref().map(|via| &via.value)
    }

    /// The name this gateway goes by in `Via`.
    pub(crate) fn pseudonym(&self) -> Option<&str> {
        self.own.via.as_ref().map(|via| &via.pseudonym[..])
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// Asks every connection to finish what it is doing and close.
    pub(crate) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.drain.cancel();
    }
}
