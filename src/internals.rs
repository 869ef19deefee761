//! What fuzz targets and benches reach of this crate: the readers of foreign bytes, in types that anyone can name.
//!
//! Only there with the feature `internals`; no part of the library, and it changes without notice.

#![expect(clippy::result_unit_err, reason = "a target asks whether, not why")]

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Uri, Version};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::dial::Deadline;
use crate::member::{Kind, Member};
use crate::stream::Stream;
use crate::{head, headers, idle, plain, target, tunnel};

/// `head::Request`.
#[derive(Debug)]
pub enum Request {
    /// Not yet a whole head.
    Partial,
    /// A plain request.
    Plain(Plain),
    /// For hyper.
    Unusual,
    /// Refused.
    Refused,
    /// Of a later minor version.
    Later,
}

/// `head::Plain`.
#[derive(Debug, PartialEq)]
pub struct Plain {
    /// Of the head it was read from.
    pub length: usize,
    /// Its method.
    pub method: Method,
    /// Where to.
    pub to: Authority,
    /// Whether the client goes on.
    pub keeps_alive: bool,
    /// Whether `Via` names the pseudonym.
    pub has_been_here: bool,
    /// The head for the upstream proxy.
    pub head: Vec<u8>,
}

/// `target::Authority`, with what it is shown as.
#[derive(Debug, PartialEq)]
pub struct Authority {
    /// The value of `Host`.
    pub text: HeaderValue,
    /// Without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// In a log.
    pub shown: String,
}

impl From<target::Authority> for Authority {
    fn from(to: target::Authority) -> Self {
        Self { shown: to.to_string(), text: to.text, host: to.host, port: to.port }
    }
}

/// `head::read_request` and `head::Plain::head_for`.
pub fn read_request(bytes: &[u8], pseudonym: Option<&str>, member: &Member, via: Option<&HeaderValue>) -> Request {
    match head::read_request(bytes, pseudonym) {
        head::Request::Partial => Request::Partial,
        head::Request::Unusual => Request::Unusual,
        head::Request::Refused(_) => Request::Refused,
        head::Request::Later => Request::Later,
        head::Request::Plain(mut plain, length) => Request::Plain(Plain {
            length,
            method: plain.method.clone(),
            to: plain.to.clone().into(),
            keeps_alive: plain.keeps_alive,
            has_been_here: plain.has_been_here,
            head: plain.head_for(member, via).1.to_vec(),
        }),
    }
}

/// `head::lower_version`.
pub fn lower_version(bytes: &mut [u8]) {
    head::lower_version(bytes);
}

/// What becomes of a request without a body when hyper has read it: `target::read`, `headers::of_request`,
/// `headers::has_been_through`.
pub fn read_by_hyper(
    (method, uri, version): (&Method, &Uri, Version),
    fields: &HeaderMap,
    pseudonym: &str,
) -> Option<(Authority, HeaderMap, bool)> {
    let to = target::read(method, uri, version, fields).ok()?;
    let sent = headers::of_request(fields, headers::Wishes::of(version, fields).ok()?, &to.text, None, None);
    Some((to.into(), sent, headers::has_been_through(fields, pseudonym)))
}

/// Where a member listens that is an HTTP proxy by itself, without TLS; `None` for every other kind.
pub fn place(member: &Member) -> Option<(String, u16)> {
    let mut way = member.way();
    match (way.next(), way.next()) {
        (Some(Kind::Http { address, tls: None, .. }), None) => Some((address.host.to_string(), address.port)),
        _ => None,
    }
}

/// `Member::proxy_authorization`.
pub fn proxy_authorization(member: &Member) -> Option<&HeaderValue> {
    member.proxy_authorization()
}

/// `target::Authority::parse`.
pub fn parse_authority(text: &str, default_port: Option<u16>) -> Option<Authority> {
    target::Authority::parse(text, default_port).ok().map(Authority::from)
}

/// `head::Framing`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "the same names")]
pub enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    UntilClose,
}

/// `head::Response`.
#[derive(Debug, PartialEq)]
#[expect(missing_docs, reason = "the same names")]
pub struct Response {
    pub status: u16,
    pub framing: Framing,
    pub keeps_alive: bool,
    pub length: usize,
}

/// `head::read_response`.
pub fn read_response(bytes: &[u8], method: &Method, out: &mut Vec<u8>) -> Result<Option<Response>, ()> {
    let read = head::read_response(bytes, method, out).map_err(|head::Nonsense| ())?;
    Ok(read.map(|head::Response { status, framing, keeps_alive, length }| {
        let framing = match framing {
            head::Framing::Nothing => Framing::Nothing,
            head::Framing::Length(length) => Framing::Length(length),
            head::Framing::Chunked => Framing::Chunked,
            head::Framing::UntilClose => Framing::UntilClose,
        };
        Response { status, framing, keeps_alive, length }
    }))
}

/// What the client gets of a body that comes in `pieces`, whether it is over and whether more came (`plain::Body`).
pub fn pass_body<'a>(
    framing: Framing,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(Vec<u8>, bool, bool), ()> {
    let mut body = plain::Body::new(match framing {
        Framing::Nothing => head::Framing::Nothing,
        Framing::Length(length) => head::Framing::Length(length),
        Framing::Chunked => head::Framing::Chunked,
        Framing::UntilClose => head::Framing::UntilClose,
    });
    let mut out = Vec::new();
    for piece in pieces {
        let mut tail = Vec::new();
        let taken = body.take(piece, &mut tail).map_err(|head::Nonsense| ())?;
        out.extend_from_slice(&piece[..taken]);
        out.append(&mut tail);
    }
    Ok((out, body.is_over, body.has_surplus))
}

/// How much of a head that came in pieces, ending at `ends`, is read (`head::Pieces`).
pub fn worth_reading(bytes: &[u8], ends: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut pieces = head::Pieces::default();
    ends.into_iter().filter(|&end| pieces.are_worth_reading(&bytes[..end])).collect()
}

/// `tunnel::open`: the socket, the bytes behind the reply's head, the head for the client; or the failure's name.
pub async fn open_tunnel(
    member: &Member,
    request: &[u8],
    within: Duration,
) -> Result<(TcpStream, Bytes, Vec<u8>), String> {
    let to = target::Authority::parse("origin.test:443", None).expect("host and port");
    let opened = tunnel::open(member, &to, request, Deadline::within(within)).await;
    let (far, head) = opened.map_err(|failure| format!("{failure:?}"))?;
    match far.socket {
        Stream::Tcp(socket) => Ok((socket, far.early.into(), head)),
        Stream::Tls(_) => Err("the member is not http".to_owned()),
    }
}

/// `idle::Idle`, its connections being numbers.
#[derive(Debug)]
pub struct Idle {
    idle: idle::Idle<usize>,
    origins: Vec<idle::Origin>,
}

impl std::fmt::Debug for idle::Idle<usize> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Idle")
    }
}

impl Idle {
    /// One connection to each of so many origins; `None`: one to a proxy that serves all.
    pub fn to(origins: Option<usize>) -> Self {
        let mut idle = idle::Idle::new(origins.is_some());
        let origin = |n| HeaderValue::try_from(format!("www.{n}.example:8080")).ok();
        let origins: Vec<_> = origins.map_or_else(|| vec![None], |count| (0..count).map(origin).collect());
        for (n, origin) in origins.iter().enumerate() {
            idle.keep(origin.clone(), n, far());
        }
        Self { idle, origins }
    }

    /// Takes the connection to the nth origin and keeps it again.
    pub fn reuse(&mut self, n: usize) -> Option<usize> {
        let origin = &self.origins[n % self.origins.len()];
        let (connection, _) = self.idle.take(origin, Instant::now(), |_| true);
        self.idle.keep(origin.clone(), connection?, far());
        connection
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
