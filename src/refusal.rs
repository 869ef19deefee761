//! A request that got no answer from an origin, and the gateway's own answer to it: a sentence, and `Proxy-Status`.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::client::LINGER;
use crate::config::ProxyStatus;
use crate::error::Failure;
use crate::head;
use crate::line::{Gone, Line};
use crate::record::{Record, note_bytes, note_failure};
use crate::upstream::Upstream;
use crate::worker::Worker;

/// For an answer through a member that was chosen without the store (RFC 9209 §2.1.4).
pub(crate) const CHOSEN_LOCALLY: &str = r#"; details="chosen locally""#;
pub(crate) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// A request that got no answer from an origin.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) upstream: Option<Arc<Upstream>>,
    pub(crate) attempts: u32,
    pub(crate) is_local: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, upstream: None, attempts: 0, is_local: false }
    }
}

/// The gateway's own answer to a failure.
pub(crate) fn refuse(worker: &Worker, failed: &Failed) -> Response<Bytes> {
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

/// Sends that answer to a client that hyper does not speak with, and writes it down.
pub(crate) async fn send(
    worker: &Worker,
    line: &mut Line,
    failed: Failed,
    method: &Method,
    closes: bool,
    record: &mut Option<Box<Record>>,
) -> Result<(), Gone> {
    let (bytes, body) = bytes(worker, &failed, method, closes);
    note_failure(record, failed);
    line.send(&bytes, worker.config.gateway.tunnel_idle_timeout).await?;
    note_bytes(record, body);
    Ok(())
}

/// The answer as bytes, and how many of them are its body.
fn bytes(worker: &Worker, failed: &Failed, method: &Method, closes: bool) -> (Vec<u8>, usize) {
    let response = refuse(worker, failed);
    let mut head = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        let name = match *name {
            CONTENT_TYPE => "Content-Type",
            RETRY_AFTER => "Retry-After",
            _ => "Proxy-Status",
        };
        head::field(&mut head, name, value.as_bytes());
    }
    head::field(&mut head, "Content-Length", response.body().len().to_string().as_bytes());
    if closes {
        head::field(&mut head, "Connection", b"close");
    }
    head.extend_from_slice(b"\r\n");
    let body = if method == Method::HEAD { &[] } else { &response.body()[..] };
    head.extend_from_slice(body);
    (head, body.len())
}

/// The last answer on a socket that closes: there is no request, or it could not be read (any more). `since`: when it began.
pub(crate) async fn say(
    worker: &Worker,
    socket: &mut TcpStream,
    address: SocketAddr,
    since: Instant,
    failure: Failure,
) {
    let mut record = Record::begin(worker, address, None);
    let failed = Failed::from(failure);
    let (bytes, body) = bytes(worker, &failed, &Method::GET, true);
    note_failure(&mut record, failed);
    if let Some(record) = &mut record {
        record.started = since;
    }
    if let Ok(Ok(())) = timeout(LINGER, socket.write_all(&bytes)).await {
        note_bytes(&mut record, body);
    }
}
