//! The gateway's own pages (`admin.listen`): what it counts, and reports of what clients were answered.
//!
//! | | |
//! |---|---|
//! | `GET /metrics` | counters and gauges, for Prometheus |
//! | `POST /report` | what `X-Evenkeel-Report` says, one in a line |
//!
//! Whoever may ask here is trusted as the operator is: with a token (`Authorization: Bearer`), or on the loopback of this machine. There
//! a browser is kept out that was sent by somebody's page: its requests have `Origin`, or a host that is not this machine.
//! Not here: changing the pool, which `evenkeel pool` does.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::config::Token;
use crate::health::Watch;
use crate::pages::{self, Page, TEXT, page};
use crate::pool::Pool;

/// Of <https://github.com/prometheus/OpenMetrics>.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Many reports of the longest kind.
const MAX_BODY: usize = 64 << 10;
/// For the store to say how large the pool is; without that the page shows the rest.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// Who answers.
pub(crate) struct Admin {
    pool: Pool,
    watch: Arc<Watch>,
    token: Option<Token>,
}

impl Admin {
    pub(crate) fn new(pool: Pool, watch: Arc<Watch>, token: Option<Token>) -> Self {
        Self { pool, watch, token }
    }

    /// Serves for ever.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let admin = Arc::new(self);
        pages::serve(listener, move |request, _| admin.clone().answer(request)).await;
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Page {
        if let Some(refusal) = self.refuse(request.headers()) {
            return refusal;
        }
        match (request.uri().path(), request.method()) {
            ("/metrics", &Method::GET | &Method::HEAD) => self.metrics().await,
            ("/report", &Method::POST) => self.report(request.into_body()).await,
            ("/metrics", _) => wrong_method("GET, HEAD"),
            ("/report", _) => wrong_method("POST"),
            _ => page(StatusCode::NOT_FOUND, TEXT, "here are GET /metrics and POST /report\n"),
        }
    }

    /// What is answered to somebody who may not ask.
    fn refuse(&self, fields: &HeaderMap) -> Option<Page> {
        let Some(token) = &self.token else {
            let is_near = fields.get(HOST).is_none_or(|host| is_this_machine(host.as_bytes()));
            let is_welcome = is_near && !fields.contains_key(ORIGIN);
            let why = "not for browsers, and without admin.token only by an address of this machine\n";
            return (!is_welcome).then(|| page(StatusCode::FORBIDDEN, TEXT, why));
        };
        let given = fields.get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
        if given.is_some_and(|given| token.is(given)) {
            return None;
        }
        let mut refused = page(StatusCode::UNAUTHORIZED, TEXT, "needs Authorization: Bearer, and admin.token\n");
        refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="evenkeel""#));
        Some(refused)
    }

    async fn metrics(&self) -> Page {
        let sizes = timeout(STORE_PATIENCE, self.pool.sizes()).await.ok().and_then(Result::ok);
        page(StatusCode::OK, OPEN_METRICS, self.watch.metrics.show(sizes))
    }

    async fn report(&self, body: Incoming) -> Page {
        let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
            let text = format!("a body of at most {MAX_BODY} bytes, whole\n");
            return page(StatusCode::PAYLOAD_TOO_LARGE, TEXT, text);
        };
        let body = body.to_bytes();
        let lines = body.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        match self.watch.bans.hear_all(lines) {
            Ok(heard) => page(StatusCode::ACCEPTED, TEXT, format!("heard {heard}\n")),
            Err(why) => page(StatusCode::BAD_REQUEST, TEXT, format!("{why}; nothing was heard\n")),
        }
    }
}

fn wrong_method(right: &'static str) -> Page {
    let mut page = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("this wants {right}\n"));
    page.headers_mut().insert(ALLOW, HeaderValue::from_static(right));
    page
}

/// The token in a value of `Authorization` (RFC 6750 §2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Whether a `Host` names a loopback address: any other name may have been made to resolve to one (DNS rebinding).
fn is_this_machine(host: &[u8]) -> bool {
    let Some(authority) =
        std::str::from_utf8(host).ok().and_then(|host| host.parse::<hyper::http::uri::Authority>().ok())
    else {
        return false;
    };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_this_machine() {
        for host in ["127.0.0.1:9180", "127.9.9.9", "localhost", "LOCALHOST:1", "[::1]:9180", "[::ffff:127.0.0.1]"] {
            assert!(is_this_machine(host.as_bytes()), "{host}");
        }
        for host in ["evil.example:9180", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example", "", "\u{7f}"]
        {
            assert!(!is_this_machine(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn a_token_is_read_from_its_scheme_only() {
        assert_eq!(bearer(b"Bearer s3cret"), Some(&b"s3cret"[..]));
        assert_eq!(bearer(b"bearer  s3cret "), Some(&b"s3cret"[..]));
        for value in [&b"Basic s3cret"[..], b"s3cret", b"Bearer", b""] {
            assert_eq!(bearer(value), None);
        }
    }
}
