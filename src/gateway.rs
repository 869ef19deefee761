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

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHORIZATION};
use hyper::http::request;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::answer::{Answer, Connection};
use crate::attempts::Attempts;
use crate::client::Client;
use crate::dial::Deadline;
use crate::error::Failure;
use crate::forward::{self, Missed, Received};
use crate::head::{Framing, Plain};
use crate::headers::{self, Wishes};
use crate::line::{Gone, Line};
use crate::metrics::NO_ERROR;
use crate::plain::Fate;
use crate::record::{Record, note_answer, note_choice, note_failure};
use crate::refusal::{self, Failed};
use crate::retry::Progress;
use crate::target::{self, Authority};
use crate::tunnel::{self, Tunnel};
use crate::upload::Source;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// Answers one request that hyper has read: the origin's answer, or a sentence that says who failed.
pub(crate) async fn serve(worker: Arc<Worker>, client: Arc<Client>, request: Request<Incoming>) -> Response<Answer> {
    client.asked(request.version());
    let method = request.method().clone();
    let mut record = Record::begin(&worker, client.address, Some(&method));
    let expects_continue = headers::expects_continue(request.headers());
    let (head, body) = request.into_parts();
    let source = Source::new(body, worker.config.retry.replay_bytes, expects_continue);
    match exchange(&worker, &client, &head, &source, &mut record).await {
        Ok(response) => response,
        Err(failed) => {
            let mut response = refusal::refuse(&worker, &failed);
            source.drain().await;
            // What the client sends behind a refused CONNECT was meant for the tunnel, and what is left of a body is no
            // request.
            if method == Method::CONNECT || !source.is_finished() {
                client.make_last(&mut response);
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
    let wishes = Wishes::of(head.version, &head.headers)?;
    if let Some(record) = record {
        record.target = to.to_string();
    }
    let has_been_here = worker.pseudonym().is_some_and(|name| headers::has_been_through(&head.headers, name));
    hear(worker, head.headers.get_all(headers::REPORT).iter().map(HeaderValue::as_bytes))?;
    refuse_loop(worker, &to, has_been_here)?;
    if headers::hops_left(&head.method, &head.headers) == Some(0) {
        return Ok(answer_as_last(worker, client, head, source, record).await);
    }
    if target::omits_path(&head.method, &head.uri) {
        return Err(Failure::BadRequest("OPTIONS without a path and with a body cannot be forwarded").into());
    }
    forward(worker, client, head, source, wishes, &to, record).await
}

/// `Max-Forwards` has run out: the request ends here, and a TRACE shows what has come (RFC 9110 §7.6.2, §9.3.8).
async fn answer_as_last(
    worker: &Worker,
    client: &Arc<Client>,
    head: &request::Parts,
    source: &Source,
    record: &mut Option<Box<Record>>,
) -> Response<Answer> {
    let mut text = Vec::new();
    let mut response = Response::new(());
    if head.method == Method::TRACE {
        text.extend_from_slice(format!("TRACE {} HTTP/1.1\r\n", head.uri).as_bytes());
        let is_private =
            |name: &HeaderName| [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name) || *name == headers::REPORT;
        for (name, value) in head.headers.iter().filter(|(name, _)| !is_private(name)) {
            crate::head::field(&mut text, name.as_str(), value.as_bytes());
        }
        text.extend_from_slice(b"\r\n");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("message/http"));
    }
    source.drain().await;
    if !source.is_finished() {
        client.make_last(&mut response);
    }
    worker.watch.metrics.answered(StatusCode::OK.as_u16(), NO_ERROR);
    note_answer(record, StatusCode::OK.as_u16());
    response.map(|()| Answer::own(text.into(), client.clone(), source.clone(), record.take()))
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
        note_choice(record, &upstream, attempts.number, attempts.is_local());
        let mut request = Request::new(source.upload());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = target::form_for(&upstream.member, &head.uri, to);
        // How the client spelled the names of its fields travels in hyper's extensions.
        *request.extensions_mut() = head.extensions.clone();
        let via = worker.via();
        let credentials = upstream.member.proxy_authorization();
        *request.headers_mut() = headers::of_request(&head.headers, wishes, &to.text, credentials, via);
        if let Some(left) = headers::hops_left(&head.method, request.headers()) {
            request.headers_mut().insert(MAX_FORWARDS, HeaderValue::from(left.saturating_sub(1)));
        }
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
    let is_old = std::mem::replace(&mut head.version, Version::HTTP_11) < Version::HTTP_11;
    head.headers =
        headers::of_response(head.headers, attempts.method, head.status, body.size_hint().exact(), is_switching);
    attempts.sign(&mut head.headers, &upstream);
    // Where the answer came first, the rest of the request's body may stay where it is.
    let mut is_last = !(is_switching || source.is_finished());
    let answer = if is_switching {
        Answer::own(Bytes::new(), client.clone(), source.clone(), None)
    } else {
        if body.is_end_stream() {
            attempts.lease().end().await;
        }
        let origin = upstream.origin(to);
        let connection = Connection {
            worker: attempts.worker.clone(),
            upstream,
            lease: attempts.take_lease(),
            speaker: connection,
            origin,
            is_old,
        };
        let states_length = head.headers.contains_key(hyper::header::CONTENT_LENGTH);
        if states_length {
            client.will_count();
        }
        is_last |= client.is_open_ended() && !has_none;
        Answer::relayed(body, connection, client.clone(), source.clone(), states_length, record.take())
            .seen_by(beginning)
    };
    let mut response = Response::from_parts(head, answer);
    if is_last {
        client.make_last(&mut response);
    }
    Ok(response)
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
    match line.unless_gone(find_tunnel(worker, request, record)).await.map_err(|Gone| Fate::Gone)? {
        Ok((far, reply)) => match line.send(&reply, worker.config.gateway.tunnel_idle_timeout).await {
            Ok(()) => Ok(far),
            Err(Gone) => Err(Fate::Gone),
        },
        Err(failed) => {
            // What the client sends behind a refused CONNECT was meant for the tunnel, not for us: closed for good.
            let sent = refusal::send(worker, line, failed, &request.method, true, record).await;
            Err(sent.map_or(Fate::Gone, |()| Fate::Close))
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
        note_choice(record, &upstream, attempts.number, attempts.is_local());
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
