//! `evenkeel judge`: a judge of one's own, so that nobody needs somebody else's.
//!
//! It answers every request with what it saw of it, as JSON like httpbin's. It remembers nothing and logs nothing.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use crate::pages::{self, Page, TEXT, page};

/// Serves for ever.
pub async fn serve(listener: TcpListener) {
    pages::serve(listener, |request, peer| async move { testify(&request, peer) }).await;
}

fn testify(request: &Request<Incoming>, peer: SocketAddr) -> Page {
    if request.method() == Method::CONNECT {
        let mut page = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "a judge is no proxy\n");
        page.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return page;
    }
    let saw = json!({"origin": peer.ip().to_canonical(), "headers": shown(request.headers())});
    page(StatusCode::OK, "application/json", format!("{saw:#}\n"))
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
