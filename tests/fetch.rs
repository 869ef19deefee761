//! Fetching a page, directly and through members of every kind, and what stops it.

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel::fetch::{self, FetchError, Fetched, Limits, Page, Url, Validators};
use evenkeel::member::{Member, Name};

use crate::support::servers::{Certificate, Server};
use crate::support::socks;
use crate::support::upstream::{Conn, Refusing, Unreachable, Upstream};
use crate::support::wire::{PATIENCE, Wire};

const SECRET: &str = "s3cretPlanted";
const LIMITS: Limits = Limits { bytes: 1 << 20, timeout: PATIENCE };

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn member(text: &str) -> Member {
    Member::parse(&Name::copy_from_slice(text.as_bytes())).expect("a member")
}

async fn fetch(
    url: &str,
    through: &str,
    known: Option<&Validators>,
    limits: Limits,
) -> Result<Option<(Validators, Vec<u8>)>, FetchError> {
    match fetch::fetch(&url.parse::<Url>().expect("a URL"), &member(through), known, &limits).await? {
        Fetched::Unchanged => Ok(None),
        Fetched::Page(mut page) => {
            let mut whole = Vec::new();
            while let Some(chunk) = page.chunk().await? {
                whole.extend_from_slice(&chunk);
            }
            Ok(Some((page.validators.clone(), whole)))
        }
    }
}

/// What is at the address; the error is the sentence.
fn get_within(url: &str, through: &str, limits: Limits) -> Result<String, String> {
    match block(fetch(url, through, None, limits)) {
        Ok(Some((_, body))) => Ok(String::from_utf8(body).expect("text")),
        Ok(None) => panic!("nothing was known"),
        Err(error) => {
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error} {error:?}");
            Err(error.to_string())
        }
    }
}

fn get(url: &str, through: &str) -> Result<String, String> {
    get_within(url, through, LIMITS)
}

fn told(result: Result<String, String>, expected: &str) {
    let told = result.expect_err(expected);
    assert!(told.contains(expected), "{told}\ndoes not say: {expected}");
}

#[test]
fn a_page_is_asked_for_in_so_many_words_and_comes_whole() {
    let framings = [
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na:1\nb\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na:1\r\n1\r\n\n\r\n2\r\nb\n\r\n0\r\nX: y\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 203 OK\r\n\r\na:1\nb\n",
        "HTTP/1.0 200 OK\r\n\r\na:1\nb\n",
    ];
    for answer in framings {
        let origin = Upstream::start(move |conn| {
            conn.request()?;
            conn.send(answer)
        });
        let at = origin.address();
        assert_eq!(get(&format!("http://us%40er:{SECRET}@{at}/a b?c#d"), "direct://"), Ok("a:1\nb\n".into()));
        let request = origin.request();
        assert_eq!(request.head.line(), "GET /a%20b?c HTTP/1.1");
        assert_eq!(request.field("Host"), Some(&*at.to_string()));
        assert_eq!(request.field("Authorization"), Some("Basic dXNAZXI6czNjcmV0UGxhbnRlZA=="));
        assert_eq!(request.field("Accept-Encoding"), Some("identity"));
        assert!(request.field("User-Agent").unwrap().starts_with("evenkeel/"));
    }
    let empty = Upstream::answering("HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(get(&empty.url(), "direct://"), Ok(String::new()));
}

#[test]
fn pieces_arrive_before_the_last_one_is_there() {
    let (go_on, may_go_on) = mpsc::channel();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let origin = Upstream::start(move |conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")?;
        for piece in ["a:1\n", "b:2\n", "c:3\n"] {
            may_go_on.lock().unwrap().recv_timeout(PATIENCE).map_err(io::Error::other)?;
            conn.send(piece)?;
        }
        Ok(())
    });
    block(async {
        let (url, direct) = (origin.url().parse::<Url>().unwrap(), Member::direct());
        let Fetched::Page(mut page): Fetched = fetch::fetch(&url, &direct, None, &LIMITS).await.unwrap() else {
            panic!("nothing was known");
        };
        assert_eq!(page.length, Some(12));
        for piece in ["a:1\n", "b:2\n", "c:3\n"] {
            go_on.send(()).unwrap();
            assert_eq!(page.chunk().await.unwrap().unwrap(), piece);
        }
        assert!(page.chunk().await.unwrap().is_none());
    });
}

/// A body far larger than any buffer on the way; what is not asked for is not read.
#[test]
fn a_large_page_is_not_held() {
    const LENGTH: usize = 64 << 20;
    let (told, sent) = mpsc::channel();
    let origin = Upstream::start(move |conn| {
        conn.request()?;
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n"))?;
        let piece = vec![b'x'; 1 << 20];
        for n in 0..LENGTH >> 20 {
            conn.send(&piece)?;
            let _ = told.send(n + 1);
        }
        Ok(())
    });
    block(async {
        let limits = Limits { bytes: LENGTH as u64, ..LIMITS };
        let (url, direct) = (origin.url().parse::<Url>().unwrap(), Member::direct());
        let fetched: Fetched = fetch::fetch(&url, &direct, None, &limits).await.unwrap();
        let Fetched::Page(mut page): Fetched = fetched else { panic!("nothing was known") };
        // As long as nobody reads, the server is stopped by the buffers on the way.
        let (mut taken, mut more) = (0, 1);
        while more > 0 {
            tokio::time::sleep(Duration::from_millis(300)).await; // in which it could take all
            more = sent.try_iter().count();
            taken += more;
        }
        assert!((1..32).contains(&taken), "{taken} MiB were taken that nobody had asked for");
        assert_eq!(length_of(&mut page).await.unwrap(), LENGTH);
    });
}

async fn length_of(page: &mut Page) -> Result<usize, FetchError> {
    let mut length = 0;
    while let Some(chunk) = page.chunk().await? {
        length += chunk.len();
    }
    Ok(length)
}

/// An origin: says which line it has read, and who asked.
fn serve(conn: &mut Conn) -> io::Result<()> {
    while let Some(request) = conn.request()? {
        let body = request.head.line();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))?;
    }
    Ok(())
}

#[test]
fn a_page_comes_through_members_of_every_kind() {
    let (certificate, origin) = (Certificate::make(), Upstream::start(serve));
    let (squid, tinyproxy) = (Server::squid("u", SECRET), Server::tinyproxy("u", SECRET));
    let (dante, microsocks) = (Server::dante(), Server::microsocks("u", SECRET));
    let tls = Server::stunnel(&certificate, tinyproxy.address());
    let [squid, tinyproxy, dante, microsocks, tls] = [squid, tinyproxy, dante, microsocks, tls].map(|server| {
        let address = server.address();
        (server, address)
    });
    let socks5 = format!("socks5h://u:{SECRET}@{}", microsocks.1);
    let mut members = vec![
        "direct://".to_owned(),
        "direct://127.0.0.5".into(),
        format!("http://u:{SECRET}@{}", squid.1),
        format!("http://u:{SECRET}@{}", tinyproxy.1),
        format!("https://u:{SECRET}@{}?insecure=1", tls.1),
        format!("{socks5}|http://u:{SECRET}@{}", tinyproxy.1),
        format!("http://u:{SECRET}@{}|{socks5}", tinyproxy.1),
        socks5,
    ];
    members.extend(["socks4", "socks4a", "socks5", "socks5h"].map(|scheme| format!("{scheme}://{}", dante.1)));
    for through in &members {
        assert_eq!(get(&format!("{}/a?b", origin.url()), through), Ok("GET /a?b HTTP/1.1".into()), "{through}");
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), members.len());
    assert!(requests.iter().all(|request| request.field("Proxy-Authorization").is_none()), "{requests:?}");
}

#[test]
fn an_http_proxy_hears_the_whole_address_and_its_own_credentials() {
    let proxy = Upstream::start(serve);
    let through = proxy.url_with(&format!("u:{SECRET}"));
    assert_eq!(
        get("http://only.there.invalid:81/a?b", &through),
        Ok("GET http://only.there.invalid:81/a?b HTTP/1.1".into())
    );
    let request = proxy.request();
    assert_eq!(request.field("Proxy-Authorization"), Some("Basic dTpzM2NyZXRQbGFudGVk"));
    assert_eq!((request.field("Host"), request.field("Authorization")), (Some("only.there.invalid:81"), None));
}

/// The server is trusted by nobody; what is tested is that it is asked for the right name, and refused.
#[test]
fn an_https_page_is_fetched_through_a_tunnel_with_its_certificate_checked() {
    let (certificate, origin) = (Certificate::make(), Upstream::start(serve));
    let tls = Server::stunnel(&certificate, origin.address());
    let (tinyproxy, microsocks) = (Server::tinyproxy("u", SECRET), Server::microsocks("u", SECRET));
    let url = format!("https://{}/", tls.address());
    for through in [
        "direct://".to_owned(),
        format!("http://u:{SECRET}@{}", tinyproxy.address()),
        format!("socks5://u:{SECRET}@{}", microsocks.address()),
    ] {
        told(get(&url, &through), "the target's certificate is not accepted: nobody known here has issued it");
    }
    assert!(origin.requests().is_empty());
    let other = Upstream::start(|conn| conn.send("220 ready\r\n"));
    told(get(&format!("https://{}/", other.address()), "direct://"), "TLS with the target failed");
    let refusing = Upstream::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    told(get("https://origin.invalid/", &refusing.url()), "the upstream proxy refused the tunnel with status 403");
    assert_eq!(refusing.request().head.line(), "CONNECT origin.invalid:443 HTTP/1.1");
    let talking = Upstream::answering("HTTP/1.1 200 OK\r\n\r\n220 ready\r\n");
    told(get("https://origin.invalid/", &talking.url()), "something that is not HTTP");
}

#[test]
fn redirects_are_followed_where_they_may_be() {
    let other = Upstream::start(serve);
    let target = format!("http://localhost:{}/there", other.address().port());
    let origin = Upstream::start(move |conn| {
        while let Some(request) = conn.request()? {
            let path = request.head.line().split(' ').nth(1).unwrap_or_default().to_owned();
            let (status, location) = match &*path {
                "/relative" => (301, "also?x".to_owned()),
                "/also?x" => (302, "/at-last".to_owned()),
                "/other" => (307, target.clone()),
                "/file" => (302, "file:///etc/passwd".to_owned()),
                "/loop" => (308, "/loop".to_owned()),
                "/longer" => (303, format!("/{}", "x".repeat(10_000))),
                "/choice" => (300, "/at-last".to_owned()),
                _ => {
                    conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()))?;
                    continue;
                }
            };
            conn.send(format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 3\r\n\r\nsee"))?;
        }
        Ok(())
    });
    let at = |path: &str| format!("http://u:{SECRET}@{}{path}", origin.address());
    assert_eq!(get(&at("/relative"), "direct://"), Ok("/at-last".into()));
    assert!(origin.requests().iter().all(|request| request.field("Authorization").is_some()));
    assert_eq!(get(&at("/other"), "direct://"), Ok("GET /there HTTP/1.1".into()));
    assert_eq!(other.request().field("Authorization"), None, "credentials are not another server's");
    told(get(&at("/file"), "direct://"), "it was redirected to a URL that has a scheme that is neither http nor https");
    told(get(&at("/longer"), "direct://"), "is longer than 8192 bytes");
    told(get(&at("/choice"), "direct://"), "the answer was 300");
    let before = origin.requests().len();
    told(get(&at("/loop"), "direct://"), "it was redirected 10 times");
    assert_eq!(origin.requests().len() - before, 11);
    // Through a proxy as well, which then hears of each.
    let proxy = Server::tinyproxy("u", SECRET);
    let through = format!("http://u:{SECRET}@{}", proxy.address());
    assert_eq!(get(&at("/relative"), &through), Ok("/at-last".into()));
}

#[test]
fn a_page_may_be_so_large_and_no_larger() {
    let stated = Upstream::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "x".repeat(100)));
    let endless = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            conn.send("8\r\nendless \r\n")?;
        }
    });
    let within = |url: &str, bytes| get_within(url, "direct://", Limits { bytes, ..LIMITS });
    assert_eq!(within(&stated.url(), 100), Ok("x".repeat(100)));
    told(within(&stated.url(), 99), "it is longer than 99 bytes");
    told(within(&endless.url(), 100_000), "it is longer than 100000 bytes");
    endless.wait_for_ends(1, PATIENCE);
}

#[test]
fn everything_together_must_be_over_in_time() {
    let trickling = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            conn.send("x")?;
            std::thread::sleep(Duration::from_millis(10)); // so that it is a trickle
        }
    });
    let heads = Upstream::start(|conn| {
        conn.request()?;
        loop {
            conn.send("HTTP/1.1 100 Continue\r\n\r\n")?;
            std::thread::sleep(Duration::from_millis(10)); // so that it is a trickle
        }
    });
    let (silent, unreachable) = (Upstream::silent(), Unreachable::new());
    let waiting = Upstream::start(|conn| {
        socks::hear(conn, None, |wire: &mut Wire, bytes: &[u8]| wire.send(bytes))?;
        conn.until_close().map(drop)
    });
    let socks = format!("socks5://{}", waiting.address());
    for (url, through, expected) in [
        (trickling.url(), "direct://", "there was no whole answer within 300ms"),
        (heads.url(), "direct://", "there was no whole answer within 300ms"),
        (silent.url(), "direct://", "there was no whole answer within 300ms"),
        ("http://origin.invalid/".into(), &*silent.url(), "there was no whole answer within 300ms"),
        ("https://origin.invalid/".into(), &*silent.url(), "the upstream proxy could not be reached within 300ms"),
        (format!("https://{}", silent.address()), "direct://", "the target could not be reached within 300ms"),
        ("http://127.0.0.7/".into(), &*socks, "the upstream proxy could not be reached within 300ms"),
        (unreachable.url(), "direct://", "the target could not be reached within 300ms"),
    ] {
        let started = Instant::now();
        told(get_within(&url, through, Limits { timeout: Duration::from_millis(300), ..LIMITS }), expected);
        let took = started.elapsed().as_millis();
        assert!((300..2300).contains(&took), "{expected}: {took} ms");
    }
}

#[test]
fn what_goes_wrong_says_where_and_shows_no_secret() {
    let answering = |answer: &'static str| {
        Upstream::start(move |conn| {
            conn.request()?;
            conn.send(answer)
        })
    };
    let refusing = Refusing::new();
    for (origin, expected) in [
        (answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "the answer was 404"),
        (answering("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"), "the answer was 302"),
        (answering("HTTP/1.1 304 Not Modified\r\n\r\n"), "the answer was 304"),
        (answering("HTTP/1.1 206 Partial\r\nContent-Length: 1\r\n\r\nx"), "the answer was 206"),
        (answering("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"), "the answer was 101"),
        (answering(""), "the connection ended before a whole response head"),
        (answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "the connection ended before the whole body"),
        (
            answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx"),
            "the connection ended before the whole body",
        ),
        (answering("SSH-2.0-OpenSSH_9.2\r\n"), "what came back is not HTTP/1.1"),
        (answering("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nx"), "it came in a content coding that was"),
    ] {
        let at = origin.address();
        let told = get(&format!("http://u:{SECRET}@{at}/list?key={SECRET}"), "direct://").expect_err(expected);
        let start = format!("cannot fetch http://***@{at}/list?***: {expected}");
        assert!(told.starts_with(&start), "{told}\n{start}");
    }
    told(get(&refusing.url(), "direct://"), "the target cannot be connected to: Connection refused");
    told(get("http://nowhere.invalid/", "direct://"), "the target's name cannot be resolved");
    let through = refusing.url().replace("http://", &format!("http://u:{SECRET}@"));
    let shown = refusing.url().replace("http://", "http://u:***@");
    let expected = format!("cannot fetch http://h.invalid/ through {shown}: the upstream proxy cannot be connected to");
    told(get("http://h.invalid/", &through), &expected);
    let denying = Upstream::answering("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
    told(get("http://h.invalid/", &denying.url()), "the upstream proxy did not accept the credentials");
    told(get("https://h.invalid/", &denying.url()), "the upstream proxy did not accept the credentials");
    let dante = Server::dante();
    let chain = format!("socks5://{}|{}", dante.address(), denying.url());
    told(get("http://h.invalid/", &chain), "hop 2: the upstream proxy did not accept the credentials");
    told(get("https://h.invalid/", &chain), "hop 2: the upstream proxy did not accept the credentials");
    // A 407 of an origin is no proxy's.
    told(get(&denying.url(), "direct://"), "the answer was 407");
}

#[test]
fn a_page_that_is_known_is_sent_again_only_when_it_has_changed() {
    let origin = Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            match request.field("If-None-Match") {
                Some("\"v1\"") => conn.send("HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n")?,
                _ => conn.send("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nLast-Modified: Mon, 30 Nov 2026 18:13:17 GMT\r\nContent-Length: 3\r\n\r\na:1")?,
            }
        }
        Ok(())
    });
    block(async {
        let (known, body) = fetch(&origin.url(), "direct://", None, LIMITS).await.unwrap().expect("a page");
        assert_eq!(body, b"a:1");
        let modified = Some("Mon, 30 Nov 2026 18:13:17 GMT".to_owned());
        assert_eq!(known, Validators { etag: Some("\"v1\"".into()), last_modified: modified.clone() });
        assert!(fetch(&origin.url(), "direct://", Some(&known), LIMITS).await.unwrap().is_none());
        assert_eq!(origin.requests()[1].field("If-Modified-Since"), modified.as_deref());
        let other = Validators { etag: Some("\"v0\"".into()), last_modified: None };
        assert!(fetch(&origin.url(), "direct://", Some(&other), LIMITS).await.unwrap().is_some());
        // Kept somewhere meanwhile, it may have become anything.
        let spoilt = Validators { etag: Some("x\r\nEvil: y".into()), last_modified: None };
        assert!(fetch(&origin.url(), "direct://", Some(&spoilt), LIMITS).await.unwrap().is_some());
        assert_eq!(origin.requests()[3].field("Evil"), None);
    });
}

#[test]
fn a_page_and_a_proxy_may_have_ipv6_addresses() {
    let origin = Upstream::start_on("[::1]:0", serve);
    assert_eq!(get(&format!("{}/a", origin.url()), "direct://"), Ok("GET /a HTTP/1.1".into()));
    assert_eq!(origin.request().field("Host"), Some(&*format!("[::1]:{}", origin.address().port())));
    let shown = format!("GET {}/a HTTP/1.1", origin.url());
    assert_eq!(get(&format!("{}/a", origin.url()), &origin.url()), Ok(shown));
    let tunnels = Upstream::answering("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
    told(get("https://[2001:db8::1]/", &tunnels.url()), "cannot fetch https://[2001:db8::1]/ through");
    assert_eq!(tunnels.request().head.line(), "CONNECT [2001:db8::1]:443 HTTP/1.1");
}

/// What begins like gzip is known by its first bytes; whoever reads the page looks at them.
#[test]
fn gzip_that_was_not_asked_for_is_passed_on_as_it_is() {
    let origin = Upstream::answering(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\0".to_vec(),
    );
    let page = block(fetch(&origin.url(), "direct://", None, LIMITS)).unwrap();
    assert_eq!(page.expect("a page").1, b"\x1f\x8b\x08\0");
}
