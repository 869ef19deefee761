//! One request from its head to its last byte — read this file first.
//!
//! [`serve`] is the path of every request; [`exchange`] shows its steps in order. An attempt at an upstream
//! proxy is [`forward::send`] for a URL and [`tunnel::open`] for a CONNECT; between attempts [`Attempts`] decides.
//! Nothing here waits without a deadline: the pool has `pool.timeout`, dialing `upstream.dial_timeout`, a
//! response head `upstream.response_timeout`, and what streams afterwards is watched by [`crate::client`].

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, VIA};
use hyper::http::request;
use hyper::server::conn::http1;
use hyper::{Method, Request, Response, StatusCode, Version};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::answer::{Answer, Connection};
use crate::client::Client;
use crate::config::{Config, ProxyStatus};
use crate::error::Failure;
use crate::forward::{self, Ask, Missed, Received};
use crate::headers::{self, Wishes};
use crate::member::{self, Name};
use crate::pool::Pool;
use crate::record::{Ended, Record};
use crate::retry::{self, Progress};
use crate::target::{self, Authority, Target};
use crate::tunnel;
use crate::upload::Source;
use crate::upstream::{Upstream, Upstreams};

/// Header fields in one head, either way. hyper's own limit of 100 refuses pages that exist.
pub(crate) const MAX_FIELDS: usize = 1024;
/// Request heads up to this size are read, and this much is buffered for a client that does not read.
const MAX_BUFFER: usize = 64 << 10;
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// What the requests of one thread share.
pub(crate) struct Worker {
    pub(crate) config: Arc<Config>,
    pub(crate) pool: Pool,
    pub(crate) upstreams: Upstreams,
    pub(crate) http: http1::Builder,
    /// Cancelled when the gateway drains.
    pub(crate) drain: CancellationToken,
    /// The same, to be asked for on every wake-up without taking the token's lock.
    pub(crate) is_draining: AtomicBool,
    listening: std::net::SocketAddr,
    /// This gateway's name in `Via` (RFC 9110 §7.6.3), random per process.
    via: Option<Via>,
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
        max_idle: usize,
        listening: std::net::SocketAddr,
        via: Option<Via>,
        drain: CancellationToken,
    ) -> Self {
        let mut http = http1::Builder::new();
        // The client's deadlines are kept in crate::client; a timer here would be a second one per request.
        http.header_read_timeout(None)
            .preserve_header_case(true)
            .title_case_headers(true)
            .auto_date_header(false)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_BUFFER);
        let upstreams = Upstreams::new(max_idle, config.upstream.idle_timeout);
        Self { config, pool, upstreams, http, drain, is_draining: AtomicBool::new(false), listening, via }
    }

    /// Asks every connection to finish what it is doing and close.
    pub(crate) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Release);
        self.drain.cancel();
    }
}

/// A request that got no answer from an origin.
struct Failed {
    failure: Failure,
    upstream: Option<Arc<Upstream>>,
    attempts: u32,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, upstream: None, attempts: 0 }
    }
}

/// Answers one request: the origin's answer, or a sentence that says who failed.
pub(crate) async fn serve(worker: Arc<Worker>, client: Arc<Client>, request: Request<Incoming>) -> Response<Answer> {
    client.asked();
    let method = request.method().clone();
    let mut record =
        worker.config.log.requests.then(|| Box::new(Record::new(client.address, request.method().clone())));
    match exchange(&worker, &client, request, &mut record).await {
        Ok(response) => response,
        Err(failed) => {
            let mut response = refuse(&worker, &failed);
            if method == Method::CONNECT {
                // What the client sends behind a refused CONNECT was meant for the tunnel, not for us.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            if let Some(record) = &mut record {
                record.status = response.status().as_u16();
                record.attempts = failed.attempts;
                record.upstream = failed.upstream;
                record.ended = match failed.failure.row().side {
                    crate::error::Side::Client => Ended::Client,
                    crate::error::Side::Gateway => Ended::Gateway,
                    crate::error::Side::Upstream => Ended::Upstream,
                };
            }
            response.map(|text| Answer::own(text, client, record))
        }
    }
}

async fn exchange(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    request: Request<Incoming>,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    let (head, body) = request.into_parts();
    let target = Target::of(&head.method, &head.uri, head.version, &head.headers)?;
    let wishes = Wishes::of(&head.method, &head.headers)?;
    if let Some(record) = record {
        let to = target.authority();
        record.target = format!("{}:{}", to.host, to.port);
    }
    refuse_loop(worker, target.authority(), &head.headers)?;
    match target {
        Target::Forward(to) => forward(worker, client, &head, body, wishes, &to, record).await,
        Target::Tunnel(to) => tunnel(worker, client, &head, wishes, &to, record).await,
    }
}

fn refuse_loop(worker: &Worker, to: &Authority, fields: &HeaderMap) -> Result<(), Failure> {
    let has_been_here = |via: &Via| headers::has_been_through(fields, &via.pseudonym);
    if to.is_own(worker.listening) || worker.via.as_ref().is_some_and(has_been_here) {
        return Err(Failure::Loop);
    }
    Ok(())
}

/// absolute-form: the request goes on as it is, its answer comes back as it is.
async fn forward(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    head: &request::Parts,
    body: Incoming,
    wishes: Wishes,
    to: &Authority,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    let source = Source::new(body, worker.config.retry.replay_bytes, wishes.expects_continue);
    let mut attempts = Attempts::new(worker, &head.method);
    loop {
        let upstream = attempts.next().await?;
        let mut request = Request::new(source.upload());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        // How the client spelled the names of its fields travels in hyper's extensions.
        *request.extensions_mut() = head.extensions.clone();
        let via = worker.via.as_ref().map(|via| &via.value);
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
        let ask = Ask { fresh: attempts.number > 1, without_path: target::omits_path(&head.method, &head.uri) };
        match forward::send(&worker.upstreams, &upstream, request, &source, limits, ask).await {
            Ok(received) => return relay(worker, client, &head.method, received, upstream, &attempts, record).await,
            Err(missed) => attempts.failed(upstream, missed, source.is_kept())?,
        }
    }
}

/// Turns the upstream proxy's response into the client's; its body streams, and a switch of protocols is followed.
async fn relay(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    method: &Method,
    received: Received,
    upstream: Arc<Upstream>,
    attempts: &Attempts<'_>,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    let Received { mut response, connection } = received;
    note(record, &upstream, attempts, response.status());
    let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switching {
        let far = forward::switch(&mut response).await?;
        client.continue_as_tunnel(far, record.take());
    }
    let (mut head, body) = response.into_parts();
    head.version = Version::HTTP_11;
    head.headers = headers::of_response(head.headers, method, head.status, body.size_hint().exact(), is_switching);
    attempts.sign(&mut head.headers, &upstream);
    let answer = if is_switching {
        Answer::own(Bytes::new(), client.clone(), None)
    } else {
        let connection = Connection { worker: worker.clone(), upstream, sender: connection };
        Answer::relayed(body, connection, client.clone(), record.take())
    };
    Ok(Response::from_parts(head, answer))
}

/// CONNECT: the client gets its 2xx when the upstream proxy has given one, and then the connection is the tunnel's.
async fn tunnel(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    head: &request::Parts,
    wishes: Wishes,
    to: &Authority,
    record: &mut Option<Box<Record>>,
) -> Result<Response<Answer>, Failed> {
    let mut attempts = Attempts::new(worker, &head.method);
    loop {
        let upstream = attempts.next().await?;
        let via = worker.via.as_ref().map(|via| &via.value);
        let credentials = upstream.member.proxy_authorization();
        let fields = headers::of_request(&head.headers, wishes, &to.text, credentials, via);
        match tunnel::open(&upstream.member, to, &fields, worker.config.upstream.dial_timeout).await {
            Ok((far, fields)) => {
                note(record, &upstream, &attempts, StatusCode::OK);
                client.continue_as_tunnel(far, record.take());
                let mut response = Response::new(Answer::own(Bytes::new(), client.clone(), None));
                // What a proxy says of itself here (its exit address, a session) is for the client to read.
                *response.headers_mut() = headers::of_response(fields, &head.method, StatusCode::OK, None, false);
                response.extensions_mut().insert(ReasonPhrase::from_static(b"Connection established"));
                attempts.sign(response.headers_mut(), &upstream);
                return Ok(response);
            }
            Err(failure) => {
                attempts.failed(upstream, Missed { failure, progress: Progress::Sent, was_reused: false }, true)?;
            }
        }
    }
}

/// The attempts at one request: which member is next, and whether there is a next.
struct Attempts<'a> {
    worker: &'a Worker,
    method: &'a Method,
    started: Instant,
    /// Of the attempt under way; 1 is the first.
    number: u32,
    tried: Vec<Name>,
    last: Option<Failed>,
}

impl<'a> Attempts<'a> {
    fn new(worker: &'a Worker, method: &'a Method) -> Self {
        Self { worker, method, started: Instant::now(), number: 0, tried: Vec::new(), last: None }
    }

    /// Allocates the least-used member that was not tried yet. One that cannot be parsed is set aside on the way.
    async fn next(&mut self) -> Result<Arc<Upstream>, Failed> {
        self.number += 1;
        loop {
            let name = match self.worker.pool.allocate(&self.tried).await {
                Ok(Some(name)) => name,
                Ok(None) => return Err(self.last.take().unwrap_or(Failure::PoolEmpty.into())),
                Err(error) => return Err(self.last.take().unwrap_or(Failure::Store(error).into())),
            };
            let reason = match self.worker.upstreams.get(&name) {
                Ok(upstream) => return Ok(upstream),
                Err(malformed) => malformed.to_string(),
            };
            let is_news = self.worker.pool.park(&name, &reason).await.map_err(Failure::Store)?;
            if is_news {
                tracing::warn!(proxy = member::masked(&name), reason, "set a pool member aside");
            }
            if self.started.elapsed() >= self.worker.config.retry.deadline {
                return Err(self.last.take().unwrap_or(Failure::PoolEmpty.into()));
            }
        }
    }

    /// Takes note of a failed attempt.
    ///
    /// # Errors
    /// The failure, when it was the last attempt.
    fn failed(&mut self, upstream: Arc<Upstream>, missed: Missed, body_is_kept: bool) -> Result<(), Failed> {
        let attempt = retry::Attempt {
            number: self.number,
            elapsed: self.started.elapsed(),
            progress: missed.progress,
            method: self.method,
            body_is_kept,
        };
        let goes_on = retry::is_allowed(&missed.failure, &attempt, &self.worker.config.retry);
        tracing::debug!(
            proxy = upstream.member.id(),
            attempt = self.number,
            error = missed.failure.row().error,
            goes_on,
            "an attempt failed: {}",
            missed.failure
        );
        if !missed.was_reused {
            self.tried.push(upstream.member.name().clone());
        }
        let failed = Failed { failure: missed.failure, upstream: Some(upstream), attempts: self.number };
        if goes_on {
            self.last = Some(failed);
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// Says in the answer which upstream proxy it came through.
    fn sign(&self, fields: &mut HeaderMap, upstream: &Upstream) {
        if self.worker.config.gateway.proxy_status == ProxyStatus::Always {
            let status = if self.number == 1 {
                upstream.proxy_status.clone()
            } else {
                let text = format!("evenkeel; next-hop={}; attempts={}", upstream.member.id(), self.number);
                HeaderValue::try_from(text).expect("an id is a token")
            };
            fields.append(PROXY_STATUS, status);
        }
        if let Some(via) = &self.worker.via {
            fields.append(VIA, via.value.clone());
        }
    }
}

fn note(record: &mut Option<Box<Record>>, upstream: &Arc<Upstream>, attempts: &Attempts<'_>, status: StatusCode) {
    if let Some(record) = record {
        record.upstream = Some(upstream.clone());
        record.attempts = attempts.number;
        record.status = status.as_u16();
        record.ended = Ended::Done;
    }
}

/// The gateway's own answer to a failure.
fn refuse(worker: &Worker, failed: &Failed) -> Response<Bytes> {
    let row = failed.failure.row();
    let mut response = Response::new(Bytes::from(format!("evenkeel: {}\n", failed.failure)));
    *response.status_mut() = row.status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if matches!(failed.failure, Failure::PoolEmpty) {
        fields.insert(RETRY_AFTER, HeaderValue::from_static("5"));
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
        fields.insert(PROXY_STATUS, HeaderValue::try_from(text).expect("parameters are tokens and numbers"));
    }
    response
}

/// The same answer as bytes, for a connection that hyper does not speak on (any more). It says that it closes.
pub(crate) fn bare_refusal(worker: &Worker, failure: Failure) -> Vec<u8> {
    let response = refuse(worker, &failure.into());
    let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(
        format!("content-length: {}\r\nconnection: close\r\n\r\n", response.body().len()).as_bytes(),
    );
    bytes.extend_from_slice(response.body());
    bytes
}
