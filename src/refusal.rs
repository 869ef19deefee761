//! A request that got no answer from an origin, and the gateway's own answer to it: a sentence, and `Proxy-Status`.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Response};

use crate::config::ProxyStatus;
use crate::error::Failure;
use crate::head;
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

/// The same answer as bytes.
pub(crate) fn bytes(worker: &Worker, failed: &Failed, method: &Method, closes: bool) -> Vec<u8> {
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
    if method != Method::HEAD {
        head.extend_from_slice(response.body());
    }
    head
}

/// The answer on a connection whose request could not be read (any more), and which closes.
pub(crate) fn last(worker: &Worker, failure: Failure) -> Vec<u8> {
    bytes(worker, &failure.into(), &Method::GET, true)
}
