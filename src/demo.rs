//! `evenkeel demo`: a gateway, three real upstream proxies and an origin on this machine, to try with curl at once.
//!
//! The upstream proxies here really forward and really tunnel, but are made for trying things out: they resolve
//! and connect to whatever is asked for, and their only limit is the loopback address they listen on.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::member::{self, Name};
use crate::output;
use crate::pool::Pool;

/// How many upstream proxies the demo has.
pub const UPSTREAMS: usize = 3;
const REDRAW_EVERY: Duration = Duration::from_millis(250);
const LINE_EVERY: Duration = Duration::from_secs(5);
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

type Page = Either<Full<Bytes>, Incoming>;

/// Starts one upstream proxy on a free port of 127.0.0.1, inside the current runtime.
///
/// # Errors
/// No port could be bound.
pub async fn start_upstream() -> io::Result<SocketAddr> {
    serve(forward).await
}

/// Starts an origin that answers every request with a line about it.
///
/// # Errors
/// No port could be bound.
pub async fn start_origin() -> io::Result<SocketAddr> {
    serve(|request| async move {
        let text = format!("hello from the demo's origin: {} {}\n", request.method(), request.uri());
        Ok(Response::new(Either::Left(Full::from(text))))
    })
    .await
}

async fn serve<F, R>(answer: F) -> io::Result<SocketAddr>
where
    F: Fn(Request<Incoming>) -> R + Copy + Send + Sync + 'static,
    R: Future<Output = Result<Response<Page>, String>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let service = service_fn(move |request| async move {
                Ok::<_, Infallible>(answer(request).await.unwrap_or_else(|reason| {
                    let mut response = Response::new(Either::Left(Full::from(reason + "\n")));
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    response
                }))
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .preserve_header_case(true)
                .serve_connection(TokioIo::new(socket), service)
                .with_upgrades();
            tokio::spawn(async move { connection.await.ok() });
        }
    });
    Ok(address)
}

/// A forward proxy in a few lines.
async fn forward(mut request: Request<Incoming>) -> Result<Response<Page>, String> {
    let authority = request.uri().authority().cloned().ok_or("this is a proxy; it needs a full URL")?;
    let port = authority.port_u16().unwrap_or(80);
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let dial = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect((host.as_str(), port)));
    let mut origin =
        dial.await.map_err(|_| format!("{authority}: timed out"))?.map_err(|error| format!("{authority}: {error}"))?;
    if request.method() == Method::CONNECT {
        tokio::spawn(async move {
            if let Ok(upgraded) = hyper::upgrade::on(&mut request).await {
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(upgraded), &mut origin).await;
            }
        });
        return Ok(Response::new(Either::Left(Full::default())));
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| error.to_string())?;
    let host = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, host);
    request.headers_mut().remove(HeaderName::from_static("proxy-connection"));
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .preserve_header_case(true)
        .handshake(TokioIo::new(origin))
        .await
        .map_err(|error| error.to_string())?;
    tokio::spawn(async move { connection.await.ok() });
    let response = sender.send_request(request).await.map_err(|error| format!("{authority}: {error}"))?;
    Ok(response.map(Either::Right))
}

/// The curl lines to try.
pub fn invitation(gateway: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "Try, in another terminal:\n\n\
         \x20 curl -x http://{gateway} http://{origin}/                  # forwarded\n\
         \x20 curl -p -x http://{gateway} http://{origin}/               # tunneled by CONNECT\n\
         \x20 http_proxy=http://{gateway} curl http://{origin}/by-environment # lower case: curl ignores HTTP_PROXY\n\
         \x20 curl -x http://{gateway} https://example.com/                     # anywhere else\n\n\
         Ctrl-C ends it.\n"
    )
}

/// Shows how often each upstream proxy was allocated, for ever: redrawn in place on a terminal, a line now and then
/// elsewhere.
pub async fn show(pool: &Pool) {
    let is_terminal = output::is_terminal();
    let mut shown: Option<Vec<(Name, f64)>> = None;
    let mut ticks = tokio::time::interval(if is_terminal { REDRAW_EVERY } else { LINE_EVERY });
    loop {
        ticks.tick().await;
        let Ok(mut entries) = pool.list().await else { continue };
        entries.sort_by(|a, b| a.member.cmp(&b.member));
        let counts: Vec<_> = entries.into_iter().map(|entry| (entry.member, entry.count)).collect();
        if shown.as_ref() == Some(&counts) {
            continue;
        }
        let text = if is_terminal { table(&counts, shown.is_some()) } else { line(&counts) };
        // A closed terminal is no reason to stop serving.
        let _ = output::print(text);
        shown = Some(counts);
    }
}

fn table(counts: &[(Name, f64)], again: bool) -> String {
    let up = if again { format!("\x1b[{}A", counts.len() + 1) } else { String::new() };
    let rows = counts
        .iter()
        .map(|(name, count)| format!("\x1b[2K{count:>12}  {:<11}  {}\n", member::id(name), member::masked(name)));
    format!("{up}\x1b[2K{:>12}  {:<11}  upstream proxy\n{}", "allocations", "id", rows.collect::<String>())
}

fn line(counts: &[(Name, f64)]) -> String {
    let parts: Vec<_> = counts.iter().map(|(name, count)| format!("{} {count}", member::masked(name))).collect();
    format!("allocations: {}\n", parts.join(", "))
}
