//! Every kind of upstream proxy: what works through each, and what a client is told when one fails.
//!
//! Real servers show that the kinds work with what people run; our own show what those never do.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::client::{Client, curl_text};
use crate::support::gateway::{Gateway, Setup};
use crate::support::servers::{Certificate, Server};
use crate::support::socks::{self, Asked};
use crate::support::upstream::{Conn, Refusing, Upstream};
use crate::support::wire::{Message, Wire};

/// In every member that can carry it; nobody but its proxy may ever see it.
const SECRET: &str = "s3cretPlanted";
const SOCKS: [&str; 4] = ["socks4", "socks4a", "socks5", "socks5h"];

/// A member of this kind with the secret in it.
fn member(scheme: &str, address: SocketAddr) -> String {
    match scheme {
        "socks4" | "socks4a" => format!("{scheme}://{SECRET}@{address}"),
        "https" => format!("https://u:{SECRET}@{address}?insecure=1"),
        _ => format!("{scheme}://u:{SECRET}@{address}"),
    }
}

/// An origin: says which line it has read, switches protocols when asked to.
fn serve(conn: &mut Conn) -> io::Result<()> {
    while let Some(request) = conn.request()? {
        if request.field("Upgrade").is_some() {
            conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")?;
            return conn.echo();
        }
        let body = format!("{} {}", request.head.line(), request.text());
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))?;
    }
    Ok(())
}

/// A server that speaks first.
fn speak_first(conn: &mut Conn) -> io::Result<()> {
    conn.send("220 ready\r\n")?;
    conn.echo()
}

fn switch_protocols(client: &mut Client, url: &str) {
    client.send(format!(
        "GET {url} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AA==\r\n\r\n"
    ));
    assert_eq!(client.head().status(), 101);
    assert_eq!(client.exactly(5), b"first");
    assert_eq!(client.send("frame").exactly(5), b"frame");
}

/// Ends the gateway and looks for the secret in its log.
fn end(gateway: Gateway) -> String {
    let log = gateway.finish();
    assert!(!log.contains(SECRET), "{log}");
    log
}

fn logged(members: impl IntoIterator<Item = String>) -> Setup {
    Setup::of(members).set("log.requests", true).env("RUST_LOG", "trace,fred=off")
}

/// The origins of the tests with real servers.
struct Origins {
    certificate: Certificate,
    http: Upstream,
    https: Server,
    first: Upstream,
}

impl Origins {
    fn start() -> Self {
        let (certificate, http) = (Certificate::make(), Upstream::start(serve));
        let https = Server::stunnel(&certificate, http.address());
        Self { certificate, http, https, first: Upstream::start(speak_first) }
    }

    /// Everything that a client does, through a gateway whose only members are these.
    fn work_through(&self, members: &[String], upgrades: bool) {
        let authority = self.certificate.authority().display().to_string();
        let gateway = logged(members.to_vec()).env("SSL_CERT_FILE", &authority).start();
        let url = self.http.url();
        let mut client = gateway.client();
        for _ in 0..2 * members.len() {
            let answer = client.get(&format!("{url}/a?b"));
            assert_eq!((answer.status(), answer.text()), (200, "GET /a?b HTTP/1.1 "), "{:?}", answer.head);
            let answer = client
                .send(format!("POST {url}/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"))
                .response_to("POST");
            assert_eq!((answer.status(), answer.text()), (200, "POST /a HTTP/1.1 body"), "{:?}", answer.head);
            let page = format!("https://{}/s", self.https.address());
            assert_eq!(curl_text(&["-x", &gateway.url(), "--cacert", &authority, &page]), "GET /s HTTP/1.1 ");
            let mut tunnel = gateway.client();
            assert_eq!(tunnel.connect(&self.first.address().to_string()).status(), 200);
            assert_eq!(tunnel.exactly(11), b"220 ready\r\n");
            tunnel.send(vec![b'x'; 100_000]);
            assert!(tunnel.exactly(100_000).iter().all(|&b| b == b'x'));
            if upgrades {
                switch_protocols(&mut gateway.client(), &format!("{url}/ws"));
            }
        }
        for request in self.http.requests() {
            assert_eq!(request.field("Proxy-Authorization"), None);
        }
        let log = end(gateway);
        assert_eq!(log.matches("attempts=2").count(), 0, "{log}");
    }
}

#[test]
fn squid_and_tinyproxy_serve_with_a_password() {
    let (squid, tinyproxy) = (Server::squid("u", SECRET), Server::tinyproxy("u", SECRET));
    let members = [member("http", squid.address()), member("http", tinyproxy.address())];
    Origins::start().work_through(&members, false);
}

#[test]
fn a_proxy_behind_stunnel_serves_with_a_password() {
    let origins = Origins::start();
    let proxy = Server::tinyproxy("u", SECRET);
    let tls = Server::stunnel(&origins.certificate, proxy.address());
    let port = tls.address().port();
    let members = [
        format!("https://u:{SECRET}@127.0.0.1:{port}"),
        format!("https://u:{SECRET}@localhost:{port}?sni=proxy.test"),
        format!("https://u:{SECRET}@localhost:{port}/?insecure=1"),
    ];
    origins.work_through(&members, false);
}

#[test]
fn microsocks_serves_with_a_password() {
    let server = Server::microsocks("u", SECRET);
    let members = ["socks5", "socks5h"].map(|scheme| member(scheme, server.address()));
    Origins::start().work_through(&members, true);
}

#[test]
fn dante_serves_every_version_of_socks() {
    let server = Server::dante();
    let members = SOCKS.map(|scheme| format!("{scheme}://{}", server.address()));
    let origins = Origins::start();
    origins.work_through(&members, true);
    // By name too, whoever resolves it.
    let gateway = Setup::of(members).start();
    for _ in SOCKS {
        let answer = gateway.client().get(&format!("http://localhost:{}/", origins.http.address().port()));
        assert_eq!((answer.status(), answer.text()), (200, "GET / HTTP/1.1 "));
    }
}

#[test]
fn chains_of_every_kind_serve_with_passwords() {
    let origins = Origins::start();
    let (http, socks) = (Server::tinyproxy("u", SECRET), Server::microsocks("u", SECRET));
    let (open, tls) = (Server::dante(), Server::stunnel(&origins.certificate, http.address()));
    let [http, socks, tls] = [("http", &http), ("socks5h", &socks), ("https", &tls)]
        .map(|(scheme, server)| member(scheme, server.address()));
    let open = format!("socks4a://{}", open.address());
    let to_origin = [format!("{http}|{socks}"), format!("{tls}|{tls}|{open}"), format!("{socks}|{open}|{socks}")];
    origins.work_through(&to_origin, true);
    origins.work_through(&[format!("{socks}|{http}"), format!("{open}|{tls}"), format!("{tls}|{tls}")], false);
}

#[test]
fn what_goes_wrong_in_a_chain_names_its_hop() {
    let (dante, microsocks, dead) = (Server::dante(), Server::microsocks("u", SECRET), Refusing::new());
    let first = format!("socks5://{}", dante.address());
    let second = member("socks5h", microsocks.address());
    let dead = dead.url();
    let refusing = Upstream::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    let denying = Upstream::answering("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
    let silent = Upstream::silent();
    let garbage = Upstream::answering("garbage\r\n\r\n");
    for (chain, status, error, hop) in [
        (format!("{dead}|{first}"), 502, "connection_refused;", "hop 1: the upstream proxy cannot be connected to"),
        (format!("{first}|{dead}"), 502, "connection_refused;", "hop 1: the upstream proxy did not connect"),
        (format!("{}|{first}", refusing.url()), 502, "connection_refused; received-status=403", "hop 1: "),
        (format!("{first}|{}", denying.url()), 502, "proxy_configuration_error; received-status=407", "hop 2: "),
        (format!("{}|{first}", denying.url()), 502, "proxy_configuration_error; received-status=407", "hop 1: "),
        (format!("{first}|{second}|socks5://{}", silent.address()), 504, "connection_timeout;", "hop 3: "),
        (format!("{first}|{}", garbage.url()), 502, "http_protocol_error;", "hop 2: "),
    ] {
        let gateway = Setup::of([&*chain]).set("upstream.dial_timeout", "1s").start();
        for answer in both_fail(&gateway, "127.0.0.7:80") {
            assert!(answer.status() == status && answer.text().contains(hop), "{chain}: {} {answer:?}", answer.text());
            assert!(answer.field("Proxy-Status").unwrap().contains(&format!("error={error}")), "{chain}: {answer:?}");
        }
    }
}

#[test]
fn direct_members_dial_from_the_addresses_they_name() {
    Origins::start().work_through(&["direct://".into(), "direct://127.0.0.5".into()], true);
    let origin = Upstream::start(|conn| {
        while conn.request()?.is_some() {
            let from = conn.stream.peer_addr()?.ip().to_string();
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{from}", from.len()))?;
        }
        Ok(())
    });
    let gateway = Setup::of(["direct://127.0.0.6", "direct://127.0.0.5", "direct://[::1]"]).start();
    let mut client = gateway.client();
    let seen: Vec<_> = (0..6).map(|_| client.get(&format!("{}/", origin.url())).text().to_owned()).collect();
    // The third member cannot dial an IPv4 address; the least-used of the others does.
    assert!(seen.iter().all(|from| from == "127.0.0.5" || from == "127.0.0.6"), "{seen:?}");
    assert!(seen.iter().any(|from| from == "127.0.0.5") && seen.iter().any(|from| from == "127.0.0.6"), "{seen:?}");
}

#[test]
fn a_direct_member_says_what_is_wrong_with_the_target() {
    for (member, url, error, text) in [
        ("direct://", Refusing::new().url(), "connection_refused", "the target cannot be connected to"),
        ("direct://", "http://nowhere.invalid/".into(), "dns_error", "the target's name cannot be resolved"),
        ("direct://[::1]", "http://127.0.0.1:9/".into(), "destination_ip_unroutable", "family"),
        // Not an address of this machine (RFC 5737).
        ("direct://192.0.2.1", "http://127.0.0.1:9/".into(), "connection_refused", "assign"),
    ] {
        let gateway = Setup::of([member]).start();
        let answer = gateway.client().get(&url);
        assert!(answer.status() == 502 && answer.text().contains(text), "{answer:?}");
        assert!(answer.field("Proxy-Status").unwrap().contains(error), "{answer:?}");
    }
}

#[test]
fn a_connection_to_an_origin_is_kept_for_that_origin_alone() {
    let (one, other) = (Upstream::start(serve), Upstream::start(serve));
    let gateway = Setup::of(["direct://"]).set("gateway.threads", 1).start();
    let mut client = gateway.client();
    for _ in 0..3 {
        for origin in [&one, &other] {
            let url = origin.url();
            assert_eq!(client.get(&format!("{url}/")).status(), 200);
            client.send(format!("PUT {url}/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")).response_to("PUT");
        }
    }
    // One for requests without a body, one for those with.
    assert_eq!((one.connections(), other.connections()), (2, 2));
    assert_eq!((one.requests().len(), other.requests().len()), (6, 6));
}

#[test]
fn an_origin_gets_origin_form_and_no_proxy_credentials() {
    let origin = Upstream::start(serve);
    let gateway = Setup::of(["direct://"]).start();
    let (mut client, host) = (gateway.client(), origin.address());
    for (line, seen) in [
        (format!("GET http://{host} HTTP/1.1"), "GET / HTTP/1.1"),
        (format!("GET http://{host}?q HTTP/1.1"), "GET /?q HTTP/1.1"),
        (format!("OPTIONS http://{host} HTTP/1.1"), "OPTIONS * HTTP/1.1"),
        (format!("OPTIONS http://{host}/ HTTP/1.1"), "OPTIONS / HTTP/1.1"),
        (format!("GET http://{host}/a HTTP/1.0"), "GET /a HTTP/1.1"),
    ] {
        let head = format!("{line}\r\nHost: h\r\nProxy-Authorization: Basic eDp5\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.send(head).response().status(), 200);
        let request = origin.requests().pop().unwrap();
        assert_eq!((request.head.line(), request.field("Host")), (seen, Some(&*host.to_string())));
        assert_eq!(request.field("Proxy-Authorization"), None);
    }
}

/// Between the gateway and the origin is no proxy whose credentials could be wrong.
#[test]
fn a_407_of_the_origin_itself_is_its_answer_but_no_challenge() {
    let challenge =
        "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=\"theirs\"\r\nContent-Length: 7\r\n\r\ntheirs!";
    let (origin, dante, other) = (Upstream::answering(challenge), Server::dante(), Server::dante());
    let first = format!("socks5://{}", dante.address());
    for (member, is_the_origins) in [
        ("direct://".to_owned(), true),
        (first.clone(), true),
        (format!("socks4a://{}", dante.address()), true),
        (format!("{first}|socks5h://{}", other.address()), true),
        (origin.url(), false),
        (format!("{first}|{}", origin.url()), false),
    ] {
        let gateway = Setup::of([&*member]).start();
        let (url, mut client) = (origin.url(), gateway.client());
        let get = client.get(&format!("{url}/"));
        let put =
            client.send(format!("PUT {url}/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")).response_to("PUT");
        for answer in [get, put] {
            let status = answer.field("Proxy-Status").unwrap();
            if is_the_origins {
                assert_eq!((answer.status(), answer.text()), (407, "theirs!"), "{member}");
                assert!(!status.contains("error="), "{member}: {status}");
            } else {
                assert_eq!(answer.status(), 502, "{member}");
                assert!(status.contains("error=proxy_configuration_error; received-status=407"), "{member}: {status}");
            }
            assert_eq!(answer.field("Proxy-Authenticate"), None, "{member}");
        }
    }
    // One allocation and one request each: nothing was tried again.
    assert_eq!(origin.requests().len(), 12);
}

/// A SOCKS proxy of our own, which plays every origin itself: what it was asked for, and itself.
fn socks_proxy(
    password: Option<&'static str>,
    say: impl Fn(&mut Wire, &[u8]) -> io::Result<()> + Copy + Send + Sync + 'static,
) -> (Upstream, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let shared = asked.clone();
    let proxy = Upstream::start(move |conn| {
        let request = socks::hear(conn, password, say)?;
        let version = request.version;
        let speaks_first = request.port == 25;
        shared.lock().unwrap().push(request);
        if speaks_first {
            // In one write: what follows the reply is the origin's.
            conn.send([socks::granted(version), b"220 ready\r\n"].concat())?;
            return conn.echo();
        }
        say(conn, socks::granted(version))?;
        serve(conn)
    });
    (proxy, asked)
}

fn whole(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    wire.send(bytes)
}

fn dribbled(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        std::thread::sleep(Duration::from_millis(2)); // so that each is a segment
        wire.send([*byte])?;
    }
    Ok(())
}

#[test]
fn socks_replies_may_come_in_pieces_and_with_bytes_of_the_origin_behind_them() {
    for scheme in SOCKS {
        for say in [whole, dribbled] {
            let (proxy, asked) = socks_proxy(Some(SECRET), say);
            let gateway = logged([member(scheme, proxy.address())]).start();
            let answer = gateway.client().get("http://127.0.0.7:8001/a");
            assert_eq!((answer.status(), answer.text()), (200, "GET /a HTTP/1.1 "), "{scheme}");
            let mut tunnel = gateway.client();
            assert_eq!(tunnel.connect("127.0.0.7:25").status(), 200, "{scheme}");
            assert_eq!(tunnel.exactly(11), b"220 ready\r\n", "{scheme}");
            assert_eq!(tunnel.send("EHLO").exactly(4), b"EHLO");
            switch_protocols(&mut gateway.client(), "http://127.0.0.7:8001/ws");
            drop(tunnel);
            let asked = asked.lock().unwrap();
            let version = if scheme.starts_with("socks4") { 4 } else { 5 };
            let login = if version == 4 { (SECRET.into(), String::new()) } else { ("u".into(), SECRET.into()) };
            let expected = Asked { version, login: Some(login), host: "127.0.0.7".into(), is_name: false, port: 8001 };
            assert_eq!(asked[0], expected);
            end(gateway);
        }
    }
}

/// `.invalid` resolves nowhere (RFC 6761), so who has it resolved here fails.
#[test]
fn a_name_is_resolved_where_the_scheme_says() {
    for (scheme, resolves_there) in [("socks4a", true), ("socks5h", true), ("socks4", false), ("socks5", false)] {
        let (proxy, asked) = socks_proxy(None, whole);
        let gateway = Setup::of([format!("{scheme}://{}", proxy.address())]).start();
        let get = gateway.client().get("http://only.there.invalid/a");
        let connect = gateway.client().connect("only.there.invalid:443");
        let localhost = gateway.client().get("http://localhost/");
        let asked = asked.lock().unwrap();
        assert_eq!(localhost.status(), 200);
        assert_eq!(asked.last().unwrap().is_name, resolves_there, "{scheme}");
        if resolves_there {
            assert_eq!((get.status(), connect.status()), (200, 200), "{scheme}");
            let hosts: Vec<_> = asked.iter().map(|asked| (&*asked.host, asked.port)).collect();
            assert_eq!(hosts, [("only.there.invalid", 80), ("only.there.invalid", 443), ("localhost", 80)]);
        } else {
            assert_eq!((get.status(), connect.status()), (502, 502), "{scheme}");
            assert!(get.field("Proxy-Status").unwrap().contains("error=dns_error"), "{get:?}");
            assert_eq!(proxy.connections(), 1, "nothing to ask the proxy for");
        }
    }
}

#[test]
fn an_ipv6_target_goes_through_socks5_and_not_through_socks4() {
    for (scheme, status) in [("socks5", 200), ("socks5h", 200), ("socks4", 502), ("socks4a", 502)] {
        let (proxy, asked) = socks_proxy(None, whole);
        let gateway = Setup::of([format!("{scheme}://{}", proxy.address())]).start();
        let answer = gateway.client().get("http://[2001:db8::7]:8001/");
        assert_eq!(answer.status(), status, "{answer:?}");
        if status == 200 {
            let asked = asked.lock().unwrap();
            assert_eq!((&*asked[0].host, asked[0].is_name, asked[0].port), ("2001:db8::7", false, 8001));
        } else {
            assert!(answer.field("Proxy-Status").unwrap().contains("destination_ip_unroutable"), "{answer:?}");
        }
    }
}

#[test]
fn a_wrong_password_is_our_mistake_and_another_member_serves() {
    let certificate = Certificate::make();
    let squid = Server::squid("u", "right");
    let behind_tls = Server::stunnel(&certificate, squid.address());
    let microsocks = Server::microsocks("u", "right");
    let own = SOCKS.map(|scheme| (scheme, socks_proxy(Some("right"), whole).0));
    let mut wrong = vec![
        member("http", squid.address()),
        member("https", behind_tls.address()),
        member("socks5", microsocks.address()),
        member("socks5h", microsocks.address()),
        // Where a login is wanted and there is none.
        format!("socks5h://{}", microsocks.address()),
    ];
    wrong.extend(own.iter().map(|(scheme, proxy)| member(scheme, proxy.address())));
    let (origin, good) = (Upstream::start(serve), Upstream::ok("served"));
    for bad in wrong {
        let alone = logged([bad.clone()]).start();
        let get = alone.client().get(&format!("{}/", origin.url()));
        let connect = alone.client().connect(&origin.address().to_string());
        for (status, proxy_status) in [
            (get.status(), get.field("Proxy-Status").unwrap()),
            (connect.status(), connect.field("Proxy-Status").unwrap()),
        ] {
            assert!(status == 502 && proxy_status.contains("error=proxy_configuration_error"), "{bad}: {proxy_status}");
        }
        assert!(!format!("{get:?} {connect:?}").contains(SECRET));
        end(alone);

        // Two requests: each member is first once, and each request is served.
        let both = logged([bad.clone(), good.url()]).start();
        for _ in 0..2 {
            assert_eq!(both.client().get(&format!("{}/", origin.url())).text(), "served", "{bad}");
        }
        end(both);
    }
    assert!(origin.requests().is_empty());
}

/// A GET and a CONNECT, both of which must fail alike.
fn both_fail(gateway: &Gateway, target: &str) -> Vec<Message> {
    let get = gateway.client().get(&format!("http://{target}/"));
    let mut client = gateway.client();
    let head = client.connect(target);
    vec![get, client.body_of(head, "GET")]
}

#[test]
fn what_goes_wrong_on_the_way_has_a_name() {
    type Script = fn(&mut Conn) -> io::Result<()>;
    let garbage: Script = |conn| {
        conn.exactly(2)?;
        conn.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        conn.until_close().map(drop)
    };
    let hang_up: Script = |conn| conn.exactly(2).map(drop);
    let refuse: Script = |conn| {
        let version = socks::hear(conn, None, whole)?.version;
        conn.send(socks::refused(version))
    };
    for (script, schemes, error) in [
        (garbage, &SOCKS[..], "http_protocol_error"),
        (garbage, &["https"], "tls_protocol_error"),
        (hang_up, &SOCKS[..], "connection_terminated"),
        (hang_up, &["https"], "tls_protocol_error"),
        (refuse, &SOCKS[..], "connection_refused"),
    ] {
        for scheme in schemes {
            let proxy = Upstream::start(script);
            let plain = if *scheme == "https" {
                member(scheme, proxy.address())
            } else {
                format!("{scheme}://{}", proxy.address())
            };
            let gateway = logged([plain]).start();
            for answer in both_fail(&gateway, "127.0.0.7:80") {
                let status = answer.field("Proxy-Status").unwrap();
                assert!(answer.status() == 502 && status.contains(&format!("error={error};")), "{scheme}: {answer:?}");
            }
            end(gateway);
        }
    }
    for scheme in SOCKS.iter().chain(&["https"]) {
        let refusing = Refusing::new();
        let address = refusing.url().trim_start_matches("http://").parse().unwrap();
        let gateway = logged([member(scheme, address)]).start();
        for answer in both_fail(&gateway, "127.0.0.7:80") {
            assert!(answer.status() == 502, "{scheme}: {answer:?}");
            assert!(
                answer.field("Proxy-Status").unwrap().contains("error=connection_refused;"),
                "{scheme}: {answer:?}"
            );
        }
        end(gateway);
    }
}

#[test]
fn a_proxy_that_hangs_anywhere_in_the_handshake_costs_the_dial_timeout() {
    type Script = fn(&mut Conn) -> io::Result<()>;
    let at_once: Script = |conn| conn.until_close().map(drop);
    let before_the_reply: Script = |conn| {
        let version = socks::hear(conn, None, whole)?.version;
        conn.send(&socks::granted(version)[..1])?;
        conn.until_close().map(drop)
    };
    for (script, schemes) in [(at_once, &SOCKS[..]), (at_once, &["https"]), (before_the_reply, &SOCKS[..])] {
        for scheme in schemes {
            let proxy = Upstream::start(script);
            let address = proxy.address();
            let plain = if *scheme == "https" { member(scheme, address) } else { format!("{scheme}://{address}") };
            let gateway = logged([plain]).set("upstream.dial_timeout", "300ms").start();
            let started = Instant::now();
            for answer in both_fail(&gateway, "127.0.0.7:80") {
                assert_eq!(answer.status(), 504, "{scheme}: {answer:?}");
                assert!(answer.field("Proxy-Status").unwrap().contains("error=connection_timeout;"), "{answer:?}");
            }
            let took = started.elapsed();
            assert!((600..2600).contains(&took.as_millis()), "{scheme}: {took:?}");
            end(gateway);
        }
    }
}

/// Passes everything on to `to`, and what comes back in single bytes at first.
fn dribbling(to: SocketAddr) -> Upstream {
    Upstream::start(move |conn| {
        let mut far = Wire::connect(to)?;
        let (mut near, mut out) = (conn.stream.try_clone()?, far.stream.try_clone()?);
        std::thread::spawn(move || io::copy(&mut near, &mut out));
        for _ in 0..200 {
            let byte = far.exactly(1)?;
            std::thread::sleep(Duration::from_millis(1)); // so that each is a segment
            conn.send(byte)?;
        }
        loop {
            conn.send(far.exactly(1)?)?;
        }
    })
}

#[test]
fn tls_to_a_proxy_may_dribble_and_its_connections_are_kept() {
    let certificate = Certificate::make();
    let proxy = Upstream::start(serve);
    let tls = Server::stunnel(&certificate, proxy.address());
    let slow = dribbling(tls.address());
    let authority = certificate.authority().display().to_string();
    for (address, connections) in [(tls.address(), 1), (slow.address(), 1)] {
        let before = proxy.connections();
        let gateway = logged([format!("https://u:{SECRET}@{address}")])
            .env("SSL_CERT_FILE", &authority)
            .set("gateway.threads", 1)
            .start();
        let mut client = gateway.client();
        for _ in 0..3 {
            let answer = client.get("http://origin.test/a");
            assert_eq!((answer.status(), answer.text()), (200, "GET http://origin.test/a HTTP/1.1 "));
        }
        assert_eq!(proxy.connections() - before, connections, "kept between requests");
        switch_protocols(&mut gateway.client(), "http://origin.test/ws");
        end(gateway);
    }
    // base64 of u:s3cretPlanted
    assert!(proxy.requests().iter().all(|r| r.field("Proxy-Authorization") == Some("Basic dTpzM2NyZXRQbGFudGVk")));
}

#[test]
fn tunnels_through_tls_carry_bulk_both_ways_and_half_closes() {
    let certificate = Certificate::make();
    let proxy = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n220 ready\r\n")?;
        conn.echo()
    });
    let tls = Server::stunnel(&certificate, proxy.address());
    let gateway = logged([member("https", tls.address())]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:25").status(), 200);
    assert_eq!(client.exactly(11), b"220 ready\r\n");
    for _ in 0..10 {
        let bulk: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        client.send(&bulk);
        assert!(client.exactly(bulk.len()) == bulk);
    }
    client.send("last").finish();
    assert_eq!(client.until_close(), b"last");
    end(gateway);
}

/// What TLS holds back while the socket is full goes out although the client says no more.
#[test]
fn a_tunnel_through_tls_to_a_slow_reader_arrives_to_its_last_byte() {
    const LENGTH: usize = 64 << 20;
    let certificate = Certificate::make();
    let proxy = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        for _ in 0..LENGTH >> 16 {
            std::thread::sleep(Duration::from_millis(1)); // so that every buffer on the way is full
            conn.exactly(1 << 16)?;
        }
        conn.send("all")?;
        conn.until_close().map(drop)
    });
    let tls = Server::stunnel(&certificate, proxy.address());
    let gateway = Setup::of([member("https", tls.address())]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:443").status(), 200);
    assert_eq!(client.send(vec![b'x'; LENGTH]).exactly(3), b"all");
}

#[test]
fn a_kept_tls_connection_that_has_ended_is_not_used_again() {
    let certificate = Certificate::make();
    let proxy = Upstream::ok("fine");
    let tls = Server::stunnel(&certificate, proxy.address());
    let way = dribbling(tls.address());
    let members = [member("https", way.address())];
    let gateway = Setup::of(members).set("gateway.threads", 1).set("retry.attempts", 1).start();
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    drop(way);
    // The kept connection would have been terminated; a new one is refused.
    let status = gateway.client().get("http://origin.test/").field("Proxy-Status").unwrap().to_owned();
    assert!(status.contains("error=connection_refused;"), "{status}");
}

#[test]
fn a_certificate_must_be_trusted_valid_and_for_the_name() {
    let (certificate, stranger) = (Certificate::make(), Certificate::make());
    let proxy = Upstream::start(serve);
    let tls = Server::stunnel(&certificate, proxy.address());
    let port = tls.address().port();
    for (member, roots, refused) in [
        (format!("https://127.0.0.1:{port}"), &certificate, None),
        (format!("https://127.0.0.1:{port}"), &stranger, Some("nobody known here has issued it")),
        (format!("https://localhost:{port}"), &certificate, Some("it is for another name")),
        (format!("https://localhost:{port}?sni=proxy.test"), &certificate, None),
        (format!("https://127.0.0.1:{port}?sni=other.test"), &certificate, Some("it is for another name")),
        (format!("https://localhost:{port}?insecure=1"), &stranger, None),
    ] {
        let gateway = Setup::of([&*member]).env("SSL_CERT_FILE", roots.authority().to_str().unwrap()).start();
        for answer in [gateway.client().get("http://origin.test/"), gateway.client().get("http://origin.test/")] {
            match refused {
                None => assert_eq!(answer.status(), 200, "{member}: {answer:?}"),
                Some(why) => {
                    assert!(answer.status() == 502 && answer.text().contains(why), "{member}: {answer:?}");
                    assert!(answer.field("Proxy-Status").unwrap().contains("error=tls_certificate_error;"));
                }
            }
        }
        let warnings = gateway.finish().matches("insecure=1").count();
        assert_eq!(warnings > 0, member.ends_with("insecure=1"), "{member}");
        assert!(warnings <= 2, "once: its name, and what it means");
    }
}
