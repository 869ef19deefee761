//! A small HTTP server for what the program says of itself: the [`crate::judge`] and [`crate::admin`].
//!
//! One request per connection, then it closes. Bounds: `MAX_CLIENTS` at once, each for `PATIENCE`; more wait in the kernel's queue.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// What is answered.
pub(crate) type Page = Response<Full<Bytes>>;

/// Plain text (RFC 2046 §4.1).
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
const MAX_CLIENTS: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(10);
/// How long accepting pauses when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves for ever. `answer` is given the request and who asks.
pub(crate) async fn serve<F, R>(listener: TcpListener, answer: F)
where
    F: Fn(Request<Incoming>, SocketAddr) -> R + Clone + Send + 'static,
    R: Future<Output = Page> + Send,
{
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok((socket, peer)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let answer = answer.clone();
        let service = service_fn(move |request| {
            let page = answer(request, peer);
            async move { Ok::<_, Infallible>(page.await) }
        });
        // Who says that nothing more comes still wants the answer: `nc -N` and scripts do that.
        let mut server = http1::Builder::new();
        server.keep_alive(false).half_close(true);
        let connection = server.serve_connection(TokioIo::new(socket), service);
        tokio::spawn(async move {
            // A client that breaks off or dawdles is told nothing more.
            let _ = timeout(PATIENCE, connection).await;
            drop(place);
        });
    }
}

/// A page that is true for this moment only.
pub(crate) fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::from(text.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}
