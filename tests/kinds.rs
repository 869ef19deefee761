//! Every kind of upstream proxy: what works through each, and what a client is told when one fails.
//!
//! Real servers show that the kinds work with what people run; our own show what those never do. TLS has tests of its own,
//! and so have IPv6, names and secrets.

use std::io;
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, Setup};
use crate::support::origins::{Origins, end, logged};
use crate::support::proxy::{PROXIES, Proxy, SECRET, dribbled, member, serve, whole};
use crate::support::servers::{Certificate, Server, V4};
use crate::support::socks;
use crate::support::upstream::{Conn, Refusing, Unreachable, Upstream};
use crate::support::wire::Message;

const SOCKS: [&str; 4] = ["socks4", "socks4a", "socks5", "socks5h"];

#[test]
fn squid_and_tinyproxy_serve_with_a_password() {
    let (squid, tinyproxy) = (Server::squid("u", SECRET), Server::tinyproxy("u", SECRET));
    let members = [member("http", squid.address()), member("http", tinyproxy.address())];
    Origins::start(V4).work_through(&members, false);
}

#[test]
fn a_proxy_behind_stunnel_serves_with_a_password() {
    let origins = Origins::start(V4);
    let proxy = Server::tinyproxy("u", SECRET);
    let tls = Server::stunnel(&origins.certificate, proxy.address());
    let port = tls.address().port();
    let members = [
        format!("https://u:{SECRET}@127.0.0.1:{port}"),
        format!("https://u:{SECRET}@localhost:{port}?sni=proxy.test"),
        format!("https://u:{SECRET}@localhost:{port}/?insecure=1"),
    ];
    origins.work_through_closing(&members);
}

#[test]
fn microsocks_serves_with_a_password() {
    let server = Server::microsocks("u", SECRET);
    let members = ["socks5", "socks5h"].map(|scheme| member(scheme, server.address()));
    Origins::start(V4).work_through(&members, true);
}

#[test]
fn dante_serves_every_version_of_socks() {
    let server = Server::dante();
    let members = SOCKS.map(|scheme| format!("{scheme}://{}", server.address()));
    let origins = Origins::start(V4);
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
    let origins = Origins::start(V4);
    let (http, socks) = (Server::tinyproxy("u", SECRET), Server::microsocks("u", SECRET));
    let (open, tls) = (Server::dante(), Server::stunnel(&origins.certificate, http.address()));
    let [http, socks, tls] = [("http", &http), ("socks5h", &socks), ("https", &tls)]
        .map(|(scheme, server)| member(scheme, server.address()));
    let open = format!("socks4a://{}", open.address());
    let to_origin = [format!("{http}|{socks}"), format!("{tls}|{tls}|{open}"), format!("{socks}|{open}|{socks}")];
    origins.work_through(&to_origin, true);
    origins.work_through_closing(&[format!("{socks}|{http}"), format!("{open}|{tls}"), format!("{tls}|{tls}")]);
}

/// Each reply of the handshake in one piece, or byte by byte; what the server says first comes with the last of it.
#[test]
fn every_kind_serves_whatever_pieces_its_handshake_comes_in() {
    let origins = Origins::start(V4);
    for kind in PROXIES {
        for say in [whole, dribbled] {
            let proxy = Proxy::relaying(kind, say, Some(origins.first.address().port()));
            origins.work_through(std::slice::from_ref(&proxy.member), true);
        }
    }
    origins.work_through(&["direct://".into()], true);
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
        for answer in both(&gateway, "127.0.0.7:80") {
            assert!(answer.status() == status && answer.text().contains(hop), "{chain}: {} {answer:?}", answer.text());
            assert!(answer.field("Proxy-Status").unwrap().contains(&format!("error={error}")), "{chain}: {answer:?}");
        }
    }
}

#[test]
fn direct_members_dial_from_the_addresses_they_name() {
    Origins::start(V4).work_through(&["direct://".into(), "direct://127.0.0.5".into()], true);
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

/// A GET and a CONNECT.
fn both(gateway: &Gateway, target: &str) -> [Message; 2] {
    let get = gateway.client().get(&format!("http://{target}/"));
    let mut client = gateway.client();
    let head = client.connect(target);
    [get, client.body_of(head, "GET")]
}

/// Both answers are failures of these names.
fn assert_failed(answers: &[Message; 2], errors: [&str; 2], member: &str) {
    for (answer, error) in answers.iter().zip(errors) {
        let status = if error.ends_with("timeout") { 504 } else { 502 };
        let shown = answer.field("Proxy-Status").unwrap_or_default();
        assert_eq!(answer.status(), status, "{member}: {answer:?}");
        assert!(shown.contains(&format!("error={error};")), "{member}: {error}, not {shown}");
        assert_eq!(answer.text().contains("hop "), member.contains('|'), "{member}: {}", answer.text());
        assert!(!format!("{answer:?}").contains(SECRET), "{answer:?}");
    }
}

#[test]
fn a_wrong_password_is_our_mistake_and_another_member_serves() {
    let certificate = Certificate::make();
    // Not tinyproxy, which answers a wrong password as an origin would, with 401.
    let squid = Server::squid("u", "right");
    let behind_tls = Server::stunnel(&certificate, squid.address());
    let microsocks = Server::microsocks("u", "right");
    let dante = Server::dante();
    let own = PROXIES.map(|kind| Proxy::relaying(kind, whole, None));
    let mut wrong = vec![
        member("http", squid.address()),
        // Where a login is wanted and there is none.
        format!("http://{}", squid.address()),
        member("https", behind_tls.address()),
        member("socks5", microsocks.address()),
        member("socks5h", microsocks.address()),
        format!("socks5h://{}", microsocks.address()),
        format!("socks5://{}|{}", dante.address(), member("socks5", microsocks.address())),
    ];
    // The last hop's, and in chains that of the first as well.
    for proxy in &own {
        let at = proxy.member.rfind(SECRET).unwrap();
        wrong.push(format!("{}wr0ng{}", &proxy.member[..at], &proxy.member[at + SECRET.len()..]));
        wrong.push(proxy.member.replacen(SECRET, "wr0ng", 1));
    }
    let (origin, good) = (Upstream::start(serve), Upstream::ok("served"));
    for bad in wrong {
        let alone = logged([bad.clone()]).start();
        let answers = both(&alone, &origin.address().to_string());
        assert_failed(&answers, ["proxy_configuration_error"; 2], &bad);
        assert!(!format!("{answers:?} {}", end(alone)).contains("wr0ng"));

        // Two requests: each member is first once, and each request is served.
        let both = logged([bad.clone(), good.url()]).start();
        for _ in 0..2 {
            assert_eq!(both.client().get(&format!("{}/", origin.url())).text(), "served", "{bad}");
        }
        end(both);
    }
    assert!(origin.requests().is_empty());
}

type Script = fn(&mut Conn) -> io::Result<()>;

/// Says what neither an HTTP nor a SOCKS nor a TLS server says.
fn garbage(conn: &mut Conn) -> io::Result<()> {
    conn.exactly(2)?;
    conn.send(b"garbage\r\n\r\n\xff\xff")?;
    conn.until_close().map(drop)
}

fn hang_up(conn: &mut Conn) -> io::Result<()> {
    conn.exactly(2).map(drop)
}

fn hang(conn: &mut Conn) -> io::Result<()> {
    conn.until_close().map(drop)
}

/// Begins the last reply of the handshake and hangs.
fn hang_in_the_reply(conn: &mut Conn) -> io::Result<()> {
    let version = socks::hear(conn, Some(SECRET), whole)?.version;
    conn.send(&socks::granted(version)[..1])?;
    hang(conn)
}

/// The same of an HTTP proxy.
fn hang_in_the_head(conn: &mut Conn) -> io::Result<()> {
    conn.request()?;
    conn.send("HTTP/1.1 200 OK\r\nA: b")?;
    hang(conn)
}

fn refuse(conn: &mut Conn) -> io::Result<()> {
    let version = socks::hear(conn, Some(SECRET), whole)?.version;
    conn.send(socks::refused(version))
}

#[test]
fn what_goes_wrong_on_the_way_has_a_name() {
    // What a GET comes to, and what a CONNECT.
    let cases: [(Script, &[&str], [&str; 2]); 9] = [
        (garbage, &SOCKS, ["http_protocol_error"; 2]),
        (garbage, &["http", "https", "chain", "chain to socks"], ["http_protocol_error"; 2]),
        (hang_up, &SOCKS, ["connection_terminated"; 2]),
        (hang_up, &["http", "https", "chain", "chain to socks"], ["connection_terminated"; 2]),
        (refuse, &SOCKS, ["connection_refused"; 2]),
        (refuse, &["chain to socks"], ["connection_refused"; 2]),
        (hang, &["http", "https", "chain"], ["http_response_timeout", "connection_timeout"]),
        (hang_in_the_head, &["http", "https", "chain"], ["http_response_timeout", "connection_timeout"]),
        (hang_in_the_reply, &["chain to socks"], ["connection_timeout"; 2]),
    ];
    for (script, kinds, errors) in cases {
        for kind in kinds {
            let proxy = Proxy::ending(kind, Upstream::start(script));
            let gateway = logged([proxy.member.clone()])
                .set("upstream.dial_timeout", "700ms")
                .set("upstream.response_timeout", "500ms")
                .start();
            assert_failed(&both(&gateway, "127.0.0.7:80"), errors, &proxy.member);
            end(gateway);
        }
    }
    // Where TLS should begin.
    for (script, error) in [(garbage as Script, "tls_protocol_error"), (hang_up, "tls_protocol_error")] {
        let proxy = Upstream::start(script);
        let member = member("https", proxy.address());
        let gateway = logged([member.clone()]).start();
        assert_failed(&both(&gateway, "127.0.0.7:80"), [error; 2], &member);
        end(gateway);
    }
}

#[test]
fn a_proxy_that_cannot_be_connected_to_is_refused_or_late() {
    let (refusing, unreachable) = (Refusing::new(), Unreachable::new());
    for (address, error) in [(refusing.address(), "connection_refused"), (unreachable.address(), "connection_timeout")]
    {
        let first = Proxy::relaying("socks5", whole, None);
        let chain_error = if error == "connection_timeout" { error } else { "connection_terminated" };
        let mut members: Vec<_> =
            SOCKS.iter().chain(&["http", "https"]).map(|scheme| (member(scheme, address), error)).collect();
        members.push((format!("{}|{}", member("socks5", address), first.member), error));
        members.push((format!("{}|{}", first.member, member("http", address)), chain_error));
        for (member, error) in members {
            let gateway = logged([member.clone()]).set("upstream.dial_timeout", "300ms").start();
            let started = Instant::now();
            assert_failed(&both(&gateway, "127.0.0.7:80"), [error; 2], &member);
            assert!(started.elapsed() < Duration::from_secs(3), "{member}: {:?}", started.elapsed());
            end(gateway);
        }
        let gateway = logged(["direct://".into()]).set("upstream.dial_timeout", "300ms").start();
        assert_failed(&both(&gateway, &address.to_string()), [error; 2], "direct://");
    }
}

#[test]
fn a_proxy_that_hangs_anywhere_in_the_handshake_costs_the_dial_timeout() {
    let cases: [(Script, &[&str]); 3] =
        [(hang, &SOCKS), (hang, &["https", "chain to socks"]), (hang_in_the_reply, &SOCKS)];
    for (script, kinds) in cases {
        for kind in kinds {
            let last = Upstream::start(script);
            let bare_tls = (*kind == "https").then(|| member(kind, last.address()));
            let proxy = Proxy::ending(kind, last);
            let member = bare_tls.unwrap_or(proxy.member.clone());
            let gateway = logged([member.clone()]).set("upstream.dial_timeout", "300ms").start();
            let started = Instant::now();
            assert_failed(&both(&gateway, "127.0.0.7:80"), ["connection_timeout"; 2], &member);
            let took = started.elapsed();
            assert!((600..2600).contains(&took.as_millis()), "{kind}: {took:?}");
            end(gateway);
        }
    }
}

/// A direct member has no handshake; what goes wrong does so with the origin.
#[test]
fn an_origin_that_fails_behind_a_direct_member_is_told_as_a_proxy_would_be() {
    for (script, error) in [
        (garbage as Script, "http_protocol_error"),
        (hang_up, "connection_terminated"),
        (hang, "http_response_timeout"),
    ] {
        let origin = Upstream::start(script);
        let gateway = Setup::of(["direct://"]).set("upstream.response_timeout", "300ms").start();
        let answer = gateway.client().get(&format!("{}/", origin.url()));
        assert!(answer.field("Proxy-Status").unwrap().contains(&format!("error={error};")), "{answer:?}");
        // A tunnel carries whatever that is.
        let mut tunnel = gateway.client();
        assert_eq!(tunnel.connect(&origin.address().to_string()).status(), 200);
        tunnel.send("xx").finish();
        let carried = tunnel.until_close();
        assert_eq!(carried.starts_with(b"garbage"), error == "http_protocol_error", "{carried:?}");
    }
}
