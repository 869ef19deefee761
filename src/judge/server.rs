//! `evenkeel judge`: a judge of one's own, so that nobody needs somebody else's.
//!
//! It answers every request with what it saw of it, as JSON like httpbin's, and closes. It remembers nothing and logs nothing.
//! Bounds: `MAX_CLIENTS` at once, each for `PATIENCE`; more wait in the kernel's queue.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

const MAX_CLIENTS: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long accepting pauses when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves for ever.
pub async fn serve(listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok((socket, peer)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let service = service_fn(move |request| async move { Ok::<_, Infallible>(testify(&request, peer)) });
        let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(socket), service);
        tokio::spawn(async move {
            // A client that breaks off or dawdles is told nothing more.
            let _ = timeout(PATIENCE, connection).await;
            drop(place);
        });
    }
}

fn testify(request: &Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
    if request.method() == Method::CONNECT {
        let mut response = Response::new(Full::from("a judge is no proxy\n"));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return response;
    }
    let saw = json!({"origin": peer.ip().to_canonical(), "headers": shown(request.headers())});
    let mut response = Response::new(Full::from(format!("{saw:#}\n")));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // What it saw of one request is no answer to another.
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// As httpbin shows them: names as they are usually written, several lines of one name joined (RFC 9110 §5.3).
fn shown(fields: &HeaderMap) -> Map<String, Value> {
    let shown = fields.keys().map(|name| {
        let parts = name.as_str().split('-').map(|part| {
            let (first, rest) = part.split_at(part.len().min(1));
            first.to_ascii_uppercase() + rest
        });
        let lines: Vec<_> =
            fields.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        (parts.collect::<Vec<_>>().join("-"), Value::from(lines.join(", ")))
    });
    shown.collect()
}
