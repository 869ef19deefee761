//! Get a page from the web, a list of proxies for example: directly, or through any member.
//!
//! A request goes the way traffic goes (`dial`, `tunnel`): in absolute-form to an HTTP proxy, in origin-form
//! to an origin, and for an https page through a tunnel, with TLS to the origin inside, whose certificate is checked.
//! "Directly" is the member `direct://`. Each fetch has a connection of its own.
//! The body comes in pieces as the server sends them, so that a page of any length needs no memory. Everything together, and
//! whatever its reader does meanwhile, has one deadline, and the body a largest size.
//! Not here: content codings. None is asked for; gzip that comes all the same is passed on as it is, since what begins like
//! gzip is known by its first bytes, and other codings are refused. No cookies, no cache.

mod url;

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, ETAG, HOST, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION, PROXY_AUTHORIZATION, USER_AGENT,
};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::dial::{self, Deadline};
use crate::error::{Failure, Peer};
use crate::head::{self, MAX_FIELDS};
use crate::member::{Address, Member, Tls};
use crate::stream::Stream;
use crate::target::{self, Authority};
use crate::tls;
use crate::tunnel::{self, Tunnel};
pub(crate) use url::in_words;
pub use url::{BadUrl, Url};

/// Redirects that are followed; honest ones are one or two.
const MAX_REDIRECTS: usize = 10;
/// Response heads up to this size are read, and so much of a body that its reader has not asked for.
const MAX_BUFFER: usize = 64 << 10;
/// Longer validators are nobody's; they are kept with the list they are for.
const MAX_VALIDATOR: usize = 512;
const NAME: HeaderValue = HeaderValue::from_static(concat!("evenkeel/", env!("CARGO_PKG_VERSION")));

/// How much a page may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest body, in bytes as they are sent, without their framing.
    pub bytes: u64,
    /// From the first look at the name to the last byte of the body, redirects included.
    pub timeout: Duration,
}

/// What a server says a version of a page is known by (RFC 9110 §8.8), for asking later whether there is a newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// The value of `ETag`.
    pub etag: Option<String>,
    /// The value of `Last-Modified`.
    pub last_modified: Option<String>,
}

/// What came of a fetch.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is moved once")]
pub enum Fetched {
    /// The page.
    Page(Page),
    /// It is still the version that was known.
    Unchanged,
}

/// A page whose body is coming.
#[derive(Debug)]
pub struct Page {
    /// What this version is known by.
    pub validators: Validators,
    /// How long the body is going to be, if the server has said so.
    pub length: Option<u64>,
    body: Body,
    route: Route,
}

/// Why there is no page, or no more of it. Prints as a sentence that says where, without secrets.
#[derive(Debug)]
pub struct FetchError {
    route: Route,
    trouble: Trouble,
}

/// Fetches `url` through `through`, and through redirects to where the page is.
///
/// `known`: the version that need not be sent again.
///
/// # Errors
/// Anything but a page: it cannot be reached, it answers with another status than success, it leads somewhere that must not be
/// followed, it is too large, or the time is up. The same holds for [`Page::chunk`].
pub async fn fetch(
    url: &Url,
    through: &Member,
    known: Option<&Validators>,
    limits: &Limits,
) -> Result<Fetched, FetchError> {
    let mut route = Route { asked: url.clone(), led: None, through: through.clone() };
    match follow(&mut route, known, limits).await {
        Ok(Some((validators, body))) => {
            let length = body.incoming.size_hint().exact();
            Ok(Fetched::Page(Page { validators, length, body, route }))
        }
        Ok(None) => Ok(Fetched::Unchanged),
        Err(trouble) => Err(FetchError { route, trouble }),
    }
}

/// `None`: not changed.
async fn follow(
    route: &mut Route,
    known: Option<&Validators>,
    limits: &Limits,
) -> Result<Option<(Validators, Body)>, Trouble> {
    let deadline = Deadline::within(limits.timeout);
    let conditions = known.map(Validators::conditions).unwrap_or_default();
    for _ in 0..=MAX_REDIRECTS {
        let Answer { response, driver, .. } = ask(&route.through, route.at(), conditions.clone(), deadline).await?;
        let status = response.status();
        let location = response.headers().get(LOCATION).filter(|_| leads_on(status));
        if let Some(location) = location {
            let location = location
                .to_str()
                .map_err(|_| Trouble::Astray(BadUrl::NotAUrl("it has bytes that no URL may have".into())))?;
            route.led = Some(route.at().redirected(location).map_err(Trouble::Astray)?);
            continue;
        }
        return match status {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION | StatusCode::NO_CONTENT => {
                check_coding(response.headers())?;
                let validators = Validators::of(response.headers());
                Body::new(response, driver, limits.bytes, deadline).map(|body| Some((validators, body)))
            }
            StatusCode::NOT_MODIFIED if !conditions.is_empty() => Ok(None),
            _ => Err(Trouble::Status(status.as_u16())),
        };
    }
    Err(Trouble::Redirects)
}

/// Whether the page is where `Location` says (RFC 9110 §15.4), for a GET.
fn leads_on(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn check_coding(fields: &HeaderMap) -> Result<(), Trouble> {
    let is_fine = |value: &HeaderValue| {
        [&b"gzip"[..], b"x-gzip", b"identity"].iter().any(|coding| value.as_bytes().eq_ignore_ascii_case(coding))
    };
    if fields.get_all(CONTENT_ENCODING).iter().all(is_fine) { Ok(()) } else { Err(Trouble::Coding) }
}

impl Page {
    /// The next piece of the body, `None` at its end. After an error there is nothing more to be had.
    ///
    /// # Errors
    /// See [`fetch`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        self.body.chunk().await.map_err(|trouble| FetchError { route: self.route.clone(), trouble })
    }
}

impl Validators {
    fn of(fields: &HeaderMap) -> Self {
        let value = |name: HeaderName| {
            let value = fields.get(name)?.to_str().ok()?;
            (value.len() <= MAX_VALIDATOR).then(|| value.to_owned())
        };
        Self { etag: value(ETAG), last_modified: value(LAST_MODIFIED) }
    }

    fn conditions(&self) -> HeaderMap {
        let etag = self.etag.as_ref().map(|value| (IF_NONE_MATCH, value));
        let modified = self.last_modified.as_ref().map(|value| (IF_MODIFIED_SINCE, value));
        // Kept somewhere meanwhile, they may have become anything.
        let conditions = etag.into_iter().chain(modified);
        conditions.filter_map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?))).collect()
    }
}

/// Where a page was asked for.
#[derive(Clone, Debug)]
struct Route {
    asked: Url,
    /// By a redirect.
    led: Option<Url>,
    through: Member,
}

impl Route {
    fn at(&self) -> &Url {
        self.led.as_ref().unwrap_or(&self.asked)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.asked)?;
        if let Some(led) = &self.led {
            write!(f, ", which leads to {led}")?;
        }
        if !self.through.is_direct() {
            let comma = if self.led.is_some() { "," } else { "" };
            write!(f, "{comma} through {}", self.through.masked())?;
        }
        Ok(())
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot fetch {}: {}", self.route, self.trouble)
    }
}

impl std::error::Error for FetchError {}

/// What went wrong on the way, or at its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// As it goes wrong for traffic.
    #[error("{0}")]
    Way(#[from] Failure),
    #[error("the connection ended before a whole response head")]
    Closed,
    #[error("the connection ended before the whole body")]
    Cut,
    #[error("what came back is not HTTP/1.1")]
    Nonsense,
    #[error("the answer was {0}")]
    Status(u16),
    #[error("there was no whole answer within {0:?}")]
    Late(Duration),
    #[error("it is longer than {0} bytes")]
    TooLong(u64),
    #[error("it came in a content coding that was not asked for")]
    Coding,
    #[error("it was redirected {MAX_REDIRECTS} times")]
    Redirects,
    #[error("it was redirected to a URL that {0}")]
    Astray(BadUrl),
    #[error("what came back is not what a judge says")]
    NoTestimony,
}

impl Trouble {
    fn of(error: &hyper::Error) -> Self {
        if error.is_parse() { Self::Nonsense } else { Self::Closed }
    }

    /// Its name in RFC 9209 §2.3, or the nearest.
    pub(crate) fn error(&self) -> &'static str {
        match self {
            Self::Way(failure) => failure.row().error,
            Self::Closed => "connection_terminated",
            Self::Cut => "http_response_incomplete",
            Self::Nonsense | Self::Redirects | Self::Astray(_) | Self::NoTestimony => "http_protocol_error",
            Self::Status(401 | 403 | 451) => "http_request_denied",
            Self::Status(_) => "destination_unavailable",
            Self::Late(_) => "http_response_timeout",
            Self::TooLong(_) => "http_response_body_size",
            Self::Coding => "http_response_content_coding",
        }
    }

    /// The status that is the trouble, whoever answered with it.
    pub(crate) fn received_status(&self) -> Option<u16> {
        match self {
            Self::Way(failure) => failure.received_status(),
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }
}

/// What `part` of an answer comes to, unless the deadline comes first.
async fn in_time<T>(deadline: Deadline, part: impl Future<Output = T>) -> Result<T, Trouble> {
    timeout_at(deadline.at, part).await.map_err(|_| Trouble::Late(deadline.within))
}

/// The head of an answer, and the connection that its body is coming on.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) driver: AbortOnDropHandle<()>,
    /// When the connection was there, all handshakes done.
    pub(crate) reached: Instant,
    /// When the head had come.
    pub(crate) answered: Instant,
    /// This machine's end of the connection.
    pub(crate) local: Option<IpAddr>,
}

/// Says one GET, with these fields and the usual ones, and hears the head of the answer, whatever it is.
///
/// # Errors
/// Those of [`dial::connect`] and [`tunnel::open`], with their hop; of TLS with the origin; and [`Trouble::Closed`],
/// [`Trouble::Nonsense`], [`Trouble::Late`]. A proxy's 407 is [`Failure::Credentials`].
pub(crate) async fn ask(through: &Member, url: &Url, fields: HeaderMap, deadline: Deadline) -> Result<Answer, Trouble> {
    // On the heap: whoever asks many at once should not carry the room for it in each of his tasks while it is not needed.
    Box::pin(async move {
        let socket = open(through, url, deadline).await?;
        let (reached, local) = (Instant::now(), socket.local_ip());
        let (mut sender, driver) = http1::Builder::new()
            .title_case_headers(true)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_BUFFER)
            .handshake(TokioIo::new(socket))
            .await
            .map_err(|error| Trouble::of(&error))?;
        // Its errors reach whoever waits for the response.
        let driver = AbortOnDropHandle::new(tokio::spawn(async move { driver.await.unwrap_or_default() }));
        let response = in_time(deadline, sender.send_request(request(through, url, fields))).await?;
        let response = response.map_err(|error| Trouble::of(&error))?;
        if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED && is_absolute(through, url) {
            return Err(at_last_hop(through, Failure::Credentials).into());
        }
        Ok(Answer { response, driver, reached, answered: Instant::now(), local })
    })
    .await
}

/// A connection on which the page can be asked for.
async fn open(through: &Member, url: &Url, deadline: Deadline) -> Result<Stream, Failure> {
    if !url.is_https() {
        return dial::connect(through, url.authority(), deadline).await;
    }
    let to = url.address();
    let Tunnel { socket, early, .. } = tunnel(through, url.authority(), &to, deadline).await?;
    if !early.is_empty() {
        // In TLS the client speaks first.
        return Err(at_last_hop(through, Failure::Nonsense));
    }
    let tls =
        Tls::checked(&to.host).map_err(|_| Failure::Unroutable("its name is none that a certificate can have"))?;
    Ok(Stream::Tls(Box::new(deadline.meet(Peer::Target, tls::connect(Peer::Target, &tls, socket)).await??)))
}

/// A tunnel as a client's CONNECT gets one.
pub(crate) async fn tunnel(
    through: &Member,
    to: &Authority,
    address: &Address,
    deadline: Deadline,
) -> Result<Tunnel, Failure> {
    let request = head::connect(address, through.proxy_authorization());
    let opened = tunnel::open(through, to, &request, deadline).await;
    opened.map(|(tunnel, _)| tunnel).map_err(|failure| at_last_hop(through, failure))
}

/// What went wrong behind the dialing did so at the last hop.
fn at_last_hop(through: &Member, failure: Failure) -> Failure {
    failure.at_hop(through, through.way().count())
}

/// Whether the answer is from an HTTP proxy, who hears the whole address.
fn is_absolute(through: &Member, url: &Url) -> bool {
    through.is_http_proxy() && !url.is_https()
}

fn request(through: &Member, url: &Url, fields: HeaderMap) -> Request<Empty<Bytes>> {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = match url.uri().path_and_query() {
        Some(own) if url.is_https() => Uri::from(own.clone()),
        _ => target::form_for(through, url.uri(), url.authority()),
    };
    let all = request.headers_mut();
    all.insert(HOST, url.authority().text.clone());
    all.insert(USER_AGENT, NAME);
    all.insert(ACCEPT, HeaderValue::from_static("*/*"));
    all.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(credentials) = url.authorization() {
        all.insert(AUTHORIZATION, credentials.clone());
    }
    if let Some(credentials) = through.proxy_authorization().filter(|_| is_absolute(through, url)) {
        all.insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    all.extend(fields);
    request
}

/// A body, its connection, and what is left to it.
#[derive(Debug)]
pub(crate) struct Body {
    incoming: Incoming,
    _driver: AbortOnDropHandle<()>,
    allowed: u64,
    left: u64,
    deadline: Deadline,
}

impl Body {
    /// # Errors
    /// [`Trouble::TooLong`], if it says so itself.
    pub(crate) fn new(
        response: Response<Incoming>,
        driver: AbortOnDropHandle<()>,
        allowed: u64,
        deadline: Deadline,
    ) -> Result<Self, Trouble> {
        let incoming = response.into_body();
        if incoming.size_hint().lower() > allowed {
            return Err(Trouble::TooLong(allowed));
        }
        Ok(Self { incoming, _driver: driver, allowed, left: allowed, deadline })
    }

    /// The next piece, never empty; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Trouble> {
        loop {
            let Some(frame) = in_time(self.deadline, self.incoming.frame()).await? else { return Ok(None) };
            // Trailers are no part of a page.
            let Ok(bytes) = frame.map_err(|_| Trouble::Cut)?.into_data() else { continue };
            self.left = self.left.checked_sub(bytes.len() as u64).ok_or(Trouble::TooLong(self.allowed))?;
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
    }
}
