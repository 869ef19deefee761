//! One request from its head to its last byte — read this file first.
//!
//! There are three ways through, and [`Attempts`] decides on each of them which member is next:
//! - a request without a body goes the short way, in its own bytes ([`crate::plain`]);
//! - a CONNECT becomes a tunnel ([`open_tunnel`], [`tunnel::open`]);
//! - what has a body, upgrades, or is unusual in any way is read by hyper and comes in at [`serve`]; [`exchange`] shows
//!   its steps in order, and an attempt is [`forward::send`].
//!
//! Nothing here waits without a deadline: the pool has `pool.timeout`, dialing `upstream.dial_timeout`, a
//! response head `upstream.response_timeout`, and what streams afterwards is watched by [`crate::client`].

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, VIA};
use hyper::http::request;
use hyper::server::conn::http1;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Connection};
use crate::ban::{Beginning, Judged};
use crate::client::Client;
use crate::config::{Config, ProxyStatus};
use crate::dial::Deadline;
use crate::error::{Blame, Failure, Side};
use crate::forward::{self, Missed, Received};
use crate::head::{self, Framing, Plain};
use crate::headers::{self, Wishes};
use crate::health::{Trial, Watch};
use crate::line::{Gone, Line};
use crate::member::{self, Name};
use crate::metrics::Counts;
use crate::plain::Fate;
use crate::pool::{Kind, Lease, Parking, Pool, PoolError, Stay};
use crate::record::{Ended, Record};
use crate::retry::{self, Progress};
use crate::target::{self, Authority};
use crate::tunnel::{self, Tunnel};
use crate::upload::Source;
use crate::upstream::{Upstream, Upstreams};

/// Header fields in one head, either way. hyper's own limit of 100 refuses pages that exist.
pub(crate) const MAX_FIELDS: usize = 1024;
/// Request heads up to this size are read, and this much is buffered for a client that does not read.
const MAX_BUFFER: usize = 64 << 10;
/// For an answer through a member that was chosen without the store (RFC 9209 §2.1.4).
const CHOSEN_LOCALLY: &str = r#"; details="chosen locally""#;
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// What the requests of one thread share.
pub(crate) struct Worker {
    pub(crate) config: Arc<Config>,
    pub(crate) pool: Pool,
    pub(crate) upstreams: Upstreams,
    pub(crate) watch: Arc<Watch>,
    counts: Counts,
    pub(crate) http: http1::Builder,
    /// How many pipes there may be for bulk tunnels, in the whole process.
    pub(crate) pipes: Arc<Semaphore>,
    /// Cancelled when the gateway drains.
    pub(crate) drain: CancellationToken,
    /// The same, to be asked for on every wake-up without taking the token's lock.
    is_draining: AtomicBool,
    own: Own,
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

/// A request that got no answer from an origin.
pub(crate) struct Failed {
    failure: Failure,
    upstream: Option<Arc<Upstream>>,
    attempts: u32,
    is_local: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, upstream: None, attempts: 0, is_local: false }
    }
}

/// Answers one request that hyper has read: the origin's answer, or a sentence that says who failed.
pub(crate) async fn serve(worker: Arc<Worker>, client: Arc<Client>, request: Request<Incoming>) -> Response<Answer> {
    client.asked(request.version());
    let method = request.method().clone();
    let mut record =
        worker.config.log.requests.then(|| Box::new(Record::new(client.address, request.method().clone())));
    let expects_continue = headers::expects_continue(request.headers());
    let (head, body) = request.into_parts();
    let source = Source::new(body, worker.config.retry.replay_bytes, expects_continue);
    match exchange(&worker, &client, &head, &source, &mut record).await {
        Ok(response) => response,
        Err(failed) => {
            let mut response = refuse(&worker, &failed);
            source.drain().await;
            // What the client sends behind a refused CONNECT was meant for the tunnel, and what is left of a body is no
            // request.
            if method == Method::CONNECT || !source.is_finished() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            note_failure(&mut record, failed);
            response.map(|text| Answer::own(text, client, source, record))
        }
    }
}

async fn exchange(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    head: &request::Parts,
    source: &Source,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    let to = target::read(&head.method, &head.uri, head.version, &head.headers)?;
    let wishes = Wishes::of(&head.headers)?;
    if let Some(record) = record {
        record.target = to.to_string();
    }
    let has_been_here = worker.pseudonym().is_some_and(|name| headers::has_been_through(&head.headers, name));
    hear(worker, head.headers.get_all(headers::REPORT).iter().map(HeaderValue::as_bytes))?;
    refuse_loop(worker, &to, has_been_here)?;
    forward(worker, client, head, source, wishes, &to, record).await
}

/// Takes in what the client reports of earlier answers.
pub(crate) fn hear<'v>(worker: &Worker, reports: impl Iterator<Item = &'v [u8]>) -> Result<(), Failure> {
    worker.watch.bans.hear(reports).map_err(Failure::BadRequest)
}

/// A request that would come back to this gateway goes no further.
pub(crate) fn refuse_loop(worker: &Worker, to: &Authority, has_been_here: bool) -> Result<(), Failure> {
    let is_own = to.is_own(worker.own.gateway) || worker.own.admin.is_some_and(|admin| to.is_own(admin));
    if has_been_here || is_own { Err(Failure::Loop) } else { Ok(()) }
}

/// absolute-form: the request goes on as it is, its answer comes back as it is.
async fn forward(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    head: &request::Parts,
    source: &Source,
    wishes: Wishes,
    to: &Authority,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    let mut attempts = Attempts::new(worker, &head.method, to);
    loop {
        let upstream = attempts.next().await?;
        note_choice(record, &upstream, attempts.number);
        let mut request = Request::new(source.upload());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = target::form_for(&upstream.member, &head.uri);
        // How the client spelled the names of its fields travels in hyper's extensions.
        *request.extensions_mut() = head.extensions.clone();
        let via = worker.via();
        let credentials = upstream.member.proxy_authorization();
        *request.headers_mut() = headers::of_request(&head.headers, wishes, &to.text, credentials, via);
        if wishes.expects_continue {
            let source = source.clone();
            hyper::ext::on_informational(&mut request, move |interim| {
                if interim.status() == StatusCode::CONTINUE {
                    source.release();
                }
            });
        }
        let limits = &worker.config.upstream;
        match forward::send(&worker.upstreams, &upstream, to, request, source, limits, attempts.number > 1).await {
            Ok(received) => {
                attempts.served(&upstream);
                return relay(client, received, upstream, to, &mut attempts, source, record).await;
            }
            Err(missed) => attempts.failed(upstream, missed, source.is_kept()).await?,
        }
    }
}

/// Turns the upstream proxy's response into the client's; its body streams, and a switch of protocols is followed.
async fn relay(
    client: &Arc<Client>,
    received: Received,
    upstream: Arc<Upstream>,
    to: &Authority,
    attempts: &mut Attempts<'_>,
    source: &Source,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    client.answering();
    let Received { mut response, connection } = received;
    note_answer(record, response.status().as_u16());
    let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switching {
        let mut far = forward::switch(&mut response).await?;
        far.lease = attempts.take_lease();
        client.continue_as_tunnel(far, record.take());
    }
    let (mut head, body) = response.into_parts();
    let has_none = *attempts.method == Method::HEAD
        || matches!(head.status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    // hyper gives the body without its chunks.
    let framing = if has_none { Framing::Nothing } else { Framing::UntilClose };
    let beginning = attempts.judge(&upstream, to, head.status.as_u16(), framing, |name, is_such| {
        head.headers.get_all(name).iter().any(|value| is_such(value.as_bytes()))
    });
    head.version = Version::HTTP_11;
    head.headers =
        headers::of_response(head.headers, attempts.method, head.status, body.size_hint().exact(), is_switching);
    attempts.sign(&mut head.headers, &upstream);
    let answer = if is_switching {
        Answer::own(Bytes::new(), client.clone(), source.clone(), None)
    } else {
        if !source.is_finished() {
            // The answer came first. The rest of the body may stay where it is, and the connection ends.
            head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if body.is_end_stream() {
            attempts.lease().end().await;
        }
        let origin = upstream.origin(to);
        let connection = Connection {
            worker: attempts.worker.clone(),
            upstream,
            lease: attempts.take_lease(),
            sender: connection,
            origin,
        };
        let states_length = head.headers.contains_key(hyper::header::CONTENT_LENGTH);
        if states_length {
            client.will_count();
        }
        Answer::relayed(body, connection, client.clone(), source.clone(), states_length, record.take())
            .seen_by(beginning)
    };
    Ok(Response::from_parts(head, answer))
}

/// CONNECT: the client gets its 200 when the upstream proxy has given a 2xx, and then the connection is the tunnel's.
///
/// The error is what becomes of a connection that got no tunnel.
pub(crate) async fn open_tunnel(
    worker: &Arc<Worker>,
    line: &mut Line,
    request: &mut Plain,
    record: &mut Option<Box<Record>>,
) -> Result<Tunnel, Fate> {
    let stall = worker.config.gateway.tunnel_idle_timeout;
    match line.unless_gone(find_tunnel(worker, request, record)).await.map_err(|Gone| Fate::Gone)? {
        Ok((far, reply)) => match line.send(&reply, stall).await {
            Ok(()) => Ok(far),
            Err(Gone) => Err(Fate::Gone),
        },
        Err(failed) => {
            // What the client sends behind a refused CONNECT was meant for the tunnel, not for us: closed for good.
            let bytes = refusal(worker, &failed, &request.method, true);
            note_failure(record, failed);
            Err(line.send(&bytes, stall).await.map_or(Fate::Gone, |()| Fate::Close))
        }
    }
}

/// The tunnel, and the reply that opens it for the client.
async fn find_tunnel(
    worker: &Arc<Worker>,
    request: &mut Plain,
    record: &mut Option<Box<Record>>,
) -> Result<(Tunnel, Vec<u8>), Failed> {
    hear(worker, request.reports.iter().map(Vec::as_slice))?;
    refuse_loop(worker, &request.to, request.has_been_here)?;
    let method = request.method.clone();
    let mut attempts = Attempts::new(worker, &method, &request.to);
    loop {
        let upstream = attempts.next().await?;
        note_choice(record, &upstream, attempts.number);
        let (to, head) = request.head_for(&upstream.member, worker.via());
        let deadline = Deadline::within(worker.config.upstream.dial_timeout);
        match tunnel::open(&upstream.member, to, head, deadline).await {
            Ok((mut far, mut reply)) => {
                attempts.served(&upstream);
                far.lease = attempts.take_lease();
                // What a proxy says of itself here (its exit address, a session) is for the client to read.
                attempts.sign_bytes(&mut reply, &upstream);
                reply.extend_from_slice(b"\r\n");
                note_answer(record, StatusCode::OK.as_u16());
                return Ok((far, reply));
            }
            Err(failure) => {
                if let Failure::TunnelRefused(status) = failure {
                    attempts.judge_refusal(&upstream, &request.to, status);
                }
                let missed = Missed { failure, progress: Progress::Sent, was_reused: false };
                attempts.failed(upstream, missed, true).await?;
            }
        }
    }
}

/// The attempts at one request: which member is next, and whether there is a next.
pub(crate) struct Attempts<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    method: &'a Method,
    /// Of the target, if it has banned members, or counts of its own.
    host: Option<String>,
    started: Instant,
    /// Of the attempt under way; 1 is the first.
    pub(crate) number: u32,
    tried: Vec<Name>,
    /// Of the attempt under way, until what it has brought takes it.
    lease: Lease,
    /// Whether the member of the attempt under way was chosen without the store.
    is_local: bool,
    /// If the attempt under way is one.
    trial: Option<Box<Trial>>,
    last: Option<Box<Failed>>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(worker: &'a Arc<Worker>, method: &'a Method, to: &Authority) -> Self {
        let counts = &worker.counts;
        if *method == Method::CONNECT { &counts.tunnels } else { &counts.forwards }.inc();
        Self {
            worker,
            method,
            host: worker.watch.bans.host_of_its_own(&to.host),
            started: Instant::now(),
            number: 0,
            tried: Vec::new(),
            lease: Lease::default(),
            is_local: false,
            trial: None,
            last: None,
        }
    }

    /// Allocates the next member that was not tried yet. One that cannot be parsed is set aside on the way.
    pub(crate) async fn next(&mut self) -> Result<Arc<Upstream>, Failed> {
        self.number += 1;
        if self.number == 1
            && self.worker.watch.is_due()
            && let Some(upstream) = Box::pin(self.try_member()).await
        {
            return Ok(upstream);
        }
        loop {
            let (name, lease) = match self.choose().await {
                Ok(Some(chosen)) => chosen,
                Ok(None) if self.host.as_ref().is_some_and(|host| self.worker.watch.bans.has_banned(host)) => {
                    return Err(self.last_failure_or(Failure::AllBanned));
                }
                Ok(None) => return Err(self.last_failure_or(Failure::PoolEmpty)),
                Err(error) => return Err(self.last_failure_or(error.into())),
            };
            self.is_local = lease.is_local();
            let counts = &self.worker.counts;
            if self.is_local { &counts.locally } else { &counts.by_store }.inc();
            let reason = match self.worker.upstreams.get(&name) {
                Ok(upstream) => {
                    self.lease = lease;
                    return Ok(upstream);
                }
                Err(malformed) => malformed.to_string(),
            };
            drop(lease);
            if self.is_local {
                // Whoever meets it when the store is back sets it aside.
                self.tried.push(Name::copy_from_slice(&name));
            } else {
                Box::pin(self.set_aside(&name, &reason)).await?;
            }
            if self.started.elapsed() >= self.worker.config.retry.deadline {
                return Err(self.last_failure_or(Failure::PoolEmpty));
            }
        }
    }

    async fn choose(&self) -> Result<Option<(Name, Lease)>, PoolError> {
        let pool = &self.worker.pool;
        match &self.host {
            None => pool.allocate(&self.tried).await,
            // On the heap, since it is seldom there.
            Some(host) => Box::pin(pool.allocate_for(host, &self.tried)).await,
        }
    }

    /// A member that was set aside for failing and waits for a request to try it.
    async fn try_member(&mut self) -> Option<Arc<Upstream>> {
        let trial = self.worker.watch.start_trial(&self.worker.pool, self.host.as_deref()).await?;
        let upstream = self.worker.upstreams.get(trial.member()).ok()?;
        // Should the store be away, the trial goes on all the same.
        self.lease = self.worker.pool.hold(trial.member()).await.unwrap_or_default();
        self.trial = Some(Box::new(trial));
        self.worker.counts.trials.inc();
        Some(upstream)
    }

    /// An answer has come through this member.
    pub(crate) fn served(&mut self, upstream: &Upstream) {
        self.worker.watch.bans.remember(&upstream.member);
        if let Some(trial) = self.trial.take() {
            trial.passed();
        } else if self.worker.watch.is_listening() {
            self.worker.watch.served(upstream.member.name());
        }
    }

    /// Judges an answer by the operator's rules, where there are any; gives what is to see its body.
    pub(crate) fn judge(
        &self,
        upstream: &Upstream,
        to: &Authority,
        status: u16,
        framing: Framing,
        has: impl Fn(&str, &dyn Fn(&[u8]) -> bool) -> bool,
    ) -> Option<Box<Beginning>> {
        let bans = &self.worker.watch.bans;
        let answer = Judged { member: upstream.member.name(), host: &to.host, status, framing };
        if bans.has_rules() { bans.judge(&answer, has) } else { None }
    }

    /// The same of a CONNECT that the upstream proxy has refused.
    fn judge_refusal(&self, upstream: &Upstream, to: &Authority, status: u16) {
        let bans = &self.worker.watch.bans;
        if bans.has_rules() {
            bans.judge_refusal(upstream.member.name(), &to.host, status);
        }
    }

    /// What the client is told when there is no further attempt.
    fn last_failure_or(&mut self, failure: Failure) -> Failed {
        self.last.take().map_or(failure.into(), |last| *last)
    }

    /// The lease of the attempt under way, for what goes on after its answer has begun.
    pub(crate) fn take_lease(&mut self) -> Lease {
        std::mem::take(&mut self.lease)
    }

    /// The lease of the attempt under way, where it is.
    pub(crate) fn lease(&mut self) -> &mut Lease {
        &mut self.lease
    }

    async fn set_aside(&self, name: &Name, reason: &str) -> Result<(), Failure> {
        let parking = Parking { kind: Kind::Malformed, reason: reason.to_owned(), stay: Stay::UntilRestored };
        if self.worker.pool.park(name, &parking).await?.is_some() {
            tracing::warn!(proxy = member::masked(name), reason, "set a pool member aside");
        }
        Ok(())
    }

    /// Takes note of a failed attempt.
    ///
    /// # Errors
    /// The failure, when it was the last attempt.
    pub(crate) async fn failed(
        &mut self,
        upstream: Arc<Upstream>,
        missed: Missed,
        body_is_kept: bool,
    ) -> Result<(), Failed> {
        self.lease.end().await;
        let attempt = retry::Attempt {
            number: self.number,
            elapsed: self.started.elapsed(),
            progress: missed.progress,
            method: self.method,
            body_is_kept,
        };
        let goes_on = retry::is_allowed(&missed.failure, &attempt, &self.worker.config.retry);
        let trial = self.trial.take();
        if self.tells_against(&upstream, &missed) {
            match trial {
                Some(trial) => trial.missed(missed.failure.to_string()),
                None => self.worker.watch.failed(upstream.member.name(), || missed.failure.to_string()),
            }
        }
        let error = missed.failure.row().error;
        self.worker.watch.metrics.failed(error);
        tracing::debug!(
            proxy = upstream.member.id(),
            attempt = self.number,
            error,
            goes_on,
            "an attempt failed: {}",
            missed.failure
        );
        if !missed.was_reused {
            self.tried.push(upstream.member.name().clone());
        }
        // What went wrong behind the dialing did so at the last hop.
        let failure = missed.failure.at_hop(&upstream.member, upstream.member.way().count());
        let failed = Failed { failure, upstream: Some(upstream), attempts: self.number, is_local: self.is_local };
        if goes_on {
            self.last = Some(Box::new(failed));
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// Whether another request would have fared no better through this member.
    fn tells_against(&self, upstream: &Upstream, missed: &Missed) -> bool {
        let is_connecting = missed.progress == Progress::Unsent || self.method == Method::CONNECT;
        // A connection that was kept too long says nothing.
        let is_stale =
            missed.was_reused && matches!(missed.failure, Failure::Closed | Failure::Nonsense | Failure::Tls(..));
        !is_stale
            && match missed.failure.row().blame {
                Blame::Member => true,
                Blame::Speaker => is_connecting || upstream.member.is_http_proxy(),
                Blame::Others => false,
            }
    }

    /// Says in the answer which upstream proxy it came through.
    fn sign(&self, fields: &mut HeaderMap, upstream: &Upstream) {
        if let Some(status) = self.proxy_status(upstream) {
            fields.append(PROXY_STATUS, status);
        }
        if let Some(via) = self.worker.via() {
            fields.append(VIA, via.clone());
        }
    }

    /// The same for a head in bytes.
    pub(crate) fn sign_bytes(&self, head: &mut Vec<u8>, upstream: &Upstream) {
        if let Some(status) = self.proxy_status(upstream) {
            head::field(head, "Proxy-Status", status.as_bytes());
        }
        if let Some(via) = self.worker.via() {
            head::field(head, "Via", via.as_bytes());
        }
    }

    fn proxy_status(&self, upstream: &Upstream) -> Option<HeaderValue> {
        if self.worker.config.gateway.proxy_status != ProxyStatus::Always {
            return None;
        }
        if self.number == 1 && !self.is_local {
            return Some(upstream.proxy_status.clone());
        }
        let mut text = format!("evenkeel; next-hop={}", upstream.member.id());
        if self.number > 1 {
            let _ = write!(text, "; attempts={}", self.number);
        }
        if self.is_local {
            text.push_str(CHOSEN_LOCALLY);
        }
        Some(HeaderValue::try_from(text).expect("an id is a token"))
    }
}

/// Writes down through whom the request goes.
pub(crate) fn note_choice(record: &mut Option<Box<Record>>, upstream: &Arc<Upstream>, attempts: u32) {
    if let Some(record) = record {
        record.upstream = Some(upstream.clone());
        record.attempts = attempts;
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
        let row = failed.failure.row();
        record.status = row.status.as_u16();
        record.attempts = failed.attempts;
        record.upstream = failed.upstream;
        record.ended = match row.side {
            Side::Client => Ended::Client,
            Side::Gateway => Ended::Gateway,
            Side::Upstream => Ended::Upstream,
        };
    }
}

/// The gateway's own answer to a failure.
fn refuse(worker: &Worker, failed: &Failed) -> Response<Bytes> {
    let row = failed.failure.row();
    worker.watch.metrics.answered(row.status.as_u16(), row.error);
    let mut response = Response::new(Bytes::from(format!("evenkeel: {}\n", failed.failure)));
    *response.status_mut() = row.status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match failed.failure {
        Failure::PoolEmpty | Failure::AllBanned => drop(fields.insert(RETRY_AFTER, HeaderValue::from_static("5"))),
        // Requests end all the time.
        Failure::PoolBusy => drop(fields.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => {}
    }
    if worker.config.gateway.proxy_status != ProxyStatus::Never {
        let mut text = format!("evenkeel; error={}", row.error);
        if let Some(status) = failed.failure.received_status() {
            let _ = write!(text, "; received-status={status}");
        }
        if let Some(upstream) = &failed.upstream {
            let _ = write!(text, "; next-hop={}", upstream.member.id());
        }
        if failed.attempts > 1 {
            let _ = write!(text, "; attempts={}", failed.attempts);
        }
        if failed.is_local {
            text.push_str(CHOSEN_LOCALLY);
        }
        fields.insert(PROXY_STATUS, HeaderValue::try_from(text).expect("parameters are tokens and numbers"));
    }
    response
}

/// The same answer as bytes.
pub(crate) fn refusal(worker: &Worker, failed: &Failed, method: &Method, closes: bool) -> Vec<u8> {
    let response = refuse(worker, failed);
    let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        let name = match *name {
            CONTENT_TYPE => "Content-Type",
            RETRY_AFTER => "Retry-After",
            _ => "Proxy-Status",
        };
        head::field(&mut bytes, name, value.as_bytes());
    }
    head::field(&mut bytes, "Content-Length", response.body().len().to_string().as_bytes());
    if closes {
        head::field(&mut bytes, "Connection", b"close");
    }
    bytes.extend_from_slice(b"\r\n");
    if method != Method::HEAD {
        bytes.extend_from_slice(response.body());
    }
    bytes
}

/// The answer on a connection whose request could not be read (any more), and which closes.
pub(crate) fn last_refusal(worker: &Worker, failure: Failure) -> Vec<u8> {
    refusal(worker, &failure.into(), &Method::GET, true)
}
