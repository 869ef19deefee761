//! `evenkeel test` and `evenkeel judge`: members tried on the path that traffic takes, and what is found out about them.

use std::io;
use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::client::{Client, curl};
use crate::support::gateway::{Gateway, KEY, program, run};
use crate::support::redis::Redis;
use crate::support::servers::{Certificate, Server};
use crate::support::socks;
use crate::support::upstream::{Conn, Refusing, Unreachable, Upstream, id};
use crate::support::wire::{PATIENCE, Wire};

/// In every member that can carry it; nobody but its proxy may ever see it.
const SECRET: &str = "s3cretPlanted";
const SOCKS: [&str; 4] = ["socks4", "socks4a", "socks5", "socks5h"];
/// Where real proxies dial from, so that they are told from this machine's usual address.
const EXIT: &str = "127.0.0.9";

fn judge() -> Gateway {
    judge_on("127.0.0.1:0")
}

fn judge_on(address: &str) -> Gateway {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["judge", "--listen", address]).current_dir(dir.path());
    Gateway::spawn(command, dir)
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs `evenkeel test … --json`: the exit code, and what was found, member by member.
fn test(args: &[&str]) -> (i32, Vec<Value>) {
    test_with_roots(args, None)
}

fn test_with_roots(args: &[&str], roots: Option<&Certificate>) -> (i32, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program();
    command.arg("test").args(args).arg("--json").current_dir(dir.path());
    if let Some(roots) = roots {
        command.env("SSL_CERT_FILE", roots.authority());
    }
    let output = command.output().unwrap();
    assert!(!told(&output).contains(SECRET), "{}", told(&output));
    let found = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{args:?}: {}", told(&output)));
    (output.status.code().expect("an exit code"), found)
}

/// What is found about one member.
fn try_one(member: &str, args: &[&str]) -> Value {
    let (code, mut found) = test(&[&[member], args].concat());
    assert_eq!((found.len(), code), (1, if found[0]["reachable"] == true { 0 } else { 69 }), "{found:?}");
    assert_eq!(found[0]["id"], id(member));
    found.remove(0)
}

fn failed(found: &Value, error: &str, reason: &str) {
    let fault = &found["fault"];
    assert_eq!((&found["reachable"], &fault["error"]), (&json!(false), &json!(error)), "{found}");
    assert!(fault["reason"].as_str().unwrap().contains(reason), "{found}\ndoes not say: {reason}");
    assert_eq!((&found["exit"], &found["anonymity"]), (&Value::Null, &Value::Null), "{found}");
}

/// A member of this kind with the secret in it.
fn member(scheme: &str, address: SocketAddr) -> String {
    match scheme {
        "socks4" | "socks4a" => format!("{scheme}://{SECRET}@{address}"),
        "https" => format!("https://u:{SECRET}@{address}?insecure=1"),
        _ => format!("{scheme}://u:{SECRET}@{address}"),
    }
}

#[test]
fn members_of_every_kind_are_tried_with_their_own_credentials() {
    let (certificate, judge) = (Certificate::make(), judge());
    let squid = Server::squid_with("u", SECRET, &format!("tcp_outgoing_address {EXIT}\nvia off\nforwarded_for delete"));
    let tinyproxy = Server::tinyproxy_with("u", SECRET, &format!("Bind {EXIT}\nDisableViaHeader Yes"));
    let microsocks = Server::microsocks_with("u", SECRET, &["-b", EXIT]);
    let dante = Server::dante_from(EXIT);
    let tls = Server::stunnel(&certificate, tinyproxy.address());
    let mut members = vec![
        member("http", squid.address()),
        member("http", tinyproxy.address()),
        member("https", tls.address()),
        member("socks5", microsocks.address()),
        member("socks5h", microsocks.address()),
        format!("{}|{}", member("http", tinyproxy.address()), member("socks5h", microsocks.address())),
        format!("{}|{}", member("socks5h", microsocks.address()), member("https", tls.address())),
        format!("direct://{EXIT}"),
    ];
    members.extend(SOCKS.map(|scheme| format!("{scheme}://{}", dante.address())));
    let mut args: Vec<_> = members.iter().map(String::as_str).collect();
    let url = judge.url();
    args.extend(["--judge", &url]);
    let (code, found) = test(&args);
    assert_eq!((code, found.len()), (0, members.len()), "{found:#?}");
    for (found, member) in found.iter().zip(&members) {
        assert_eq!(found["id"], id(member), "in the order they were named");
        assert_eq!((&found["reachable"], &found["fault"]), (&json!(true), &Value::Null), "{found}");
        assert_eq!((&found["exit"], &found["can_connect"]), (&json!(EXIT), &json!(true)), "{found}");
        assert_eq!((&found["anonymity"], &found["seen"]), (&json!("elite"), &json!([])), "{found}");
        let [connect, first, total] =
            ["connect_ms", "first_byte_ms", "total_ms"].map(|key| found[key].as_u64().unwrap());
        assert!(connect <= first && first <= total && total < 10_000, "{found}");
    }
}

#[test]
fn what_the_judge_saw_decides_how_anonymous_a_member_is() {
    let judge = judge();
    let telling = Server::squid_with("u", SECRET, &format!("tcp_outgoing_address {EXIT}"));
    let discreet = Server::squid_with("u", SECRET, &format!("tcp_outgoing_address {EXIT}\nforwarded_for off"));
    let tinyproxy = Server::tinyproxy_with("u", SECRET, &format!("Bind {EXIT}"));
    let ours = Server::microsocks("u", SECRET);
    for (member, anonymity, exit, seen) in [
        (member("http", telling.address()), "transparent", EXIT, json!(["x-forwarded-for"])),
        (member("http", discreet.address()), "anonymous", EXIT, json!(["via", "x-forwarded-for"])),
        (member("http", tinyproxy.address()), "anonymous", EXIT, json!(["via"])),
        (member("socks5", ours.address()), "transparent", "127.0.0.1", json!([])),
        ("direct://".to_owned(), "transparent", "127.0.0.1", json!([])),
    ] {
        let found = try_one(&member, &["--judge", &judge.url()]);
        assert_eq!((&found["anonymity"], &found["seen"]), (&json!(anonymity), &seen), "{found}");
        assert_eq!(found["exit"], exit, "{found}");
    }
    // Whoever is always behind a proxy looks like that one.
    let behind = ["--judge", &judge.url(), "--via", &format!("direct://{EXIT}")];
    assert_eq!(try_one("direct://127.0.0.5", &behind)["anonymity"], "elite");
    assert_eq!(try_one(&member("http", tinyproxy.address()), &behind)["anonymity"], "transparent");
}

#[test]
fn a_wrong_password_is_found_out_in_every_kind() {
    let (certificate, judge) = (Certificate::make(), judge());
    let squid = Server::squid("u", "right");
    let (tls, microsocks) = (Server::stunnel(&certificate, squid.address()), Server::microsocks("u", "right"));
    let own = Upstream::start(|conn| socks::hear(conn, Some("right"), whole).map(drop));
    let members = [
        member("http", squid.address()),
        member("https", tls.address()),
        member("socks5", microsocks.address()),
        member("socks5h", microsocks.address()),
        member("socks4", own.address()),
        member("socks4a", own.address()),
        member("socks5", own.address()),
    ];
    for member in &members {
        failed(&try_one(member, &["--judge", &judge.url()]), "proxy_configuration_error", "did not accept the");
    }
    assert_eq!(try_one(&members[0], &["--judge", &judge.url()])["fault"]["received_status"], 407);
    // Behind a tunnel it is the same.
    failed(&try_one(&members[0], &["--connect", "127.0.0.1:443"]), "proxy_configuration_error", "did not accept the");
}

fn whole(wire: &mut Wire, bytes: &[u8]) -> io::Result<()> {
    wire.send(bytes)
}

#[test]
fn what_goes_wrong_has_the_name_that_a_client_would_be_told() {
    let judge = judge();
    let (refusing, unreachable) = (Refusing::new(), Unreachable::new());
    let garbage = Upstream::start(|conn| {
        conn.exactly(2)?;
        conn.send("garbage, not a protocol\r\n\r\n")?;
        conn.until_close().map(drop)
    });
    let hang_up = Upstream::start(|conn| conn.exactly(2).map(drop));
    let refusal = Upstream::start(|conn| {
        let version = socks::hear(conn, None, whole)?.version;
        conn.send(socks::refused(version))
    });
    let hanging = Upstream::start(|conn| conn.until_close().map(drop));
    let trickling = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")?;
        loop {
            conn.send(" ")?;
            std::thread::sleep(Duration::from_millis(10)); // so that it is a trickle
        }
    });
    let at = |scheme: &str, server: &Upstream| format!("{scheme}://{}", server.address());
    for (member, error, reason) in [
        (refusing.url(), "connection_refused", "the upstream proxy cannot be connected to"),
        ("http://nowhere.invalid:80".into(), "dns_error", "the upstream proxy's name cannot be resolved"),
        (unreachable.url(), "connection_timeout", "the upstream proxy could not be reached within 500ms"),
        (at("http", &garbage), "http_protocol_error", "what came back is not HTTP/1.1"),
        (at("https", &garbage), "tls_protocol_error", "TLS with the upstream proxy failed"),
        (at("socks5", &garbage), "http_protocol_error", "not SOCKS"),
        (at("socks4", &garbage), "http_protocol_error", "not SOCKS"),
        (at("http", &hang_up), "connection_terminated", "the connection ended before"),
        (at("socks5", &hang_up), "connection_terminated", "closed the connection"),
        (at("socks5", &refusal), "connection_refused", "did not connect to the target: connection refused"),
        (at("http", &hanging), "http_response_timeout", "there was no whole answer within 500ms"),
        (at("https", &hanging), "connection_timeout", "could not be reached within"),
        (at("socks5h", &hanging), "connection_timeout", "could not be reached within"),
        (at("http", &trickling), "http_response_timeout", "there was no whole answer within 500ms"),
        (format!("{}|{}", at("socks5", &refusal), at("http", &garbage)), "connection_refused", "hop 1: "),
        ("direct://192.0.2.1".into(), "connection_refused", "the target cannot be connected to"),
    ] {
        let started = Instant::now();
        failed(&try_one(&member, &["--judge", &judge.url(), "--timeout", "500ms"]), error, reason);
        assert!(started.elapsed() < Duration::from_secs(4), "{member}: {:?}", started.elapsed());
    }
}

/// A proxy that answers for the judge.
fn saying(answer: impl Into<Vec<u8>>) -> Upstream {
    let answer = answer.into();
    Upstream::start(move |conn| {
        while let Some(request) = conn.request()? {
            if request.head.line().starts_with("CONNECT") {
                return conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
            }
            conn.send(&answer)?;
        }
        Ok(())
    })
}

fn page(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

#[test]
fn a_judge_may_speak_in_several_ways() {
    let ours = judge();
    for (body, exit, country, anonymity) in [
        (r#"{"origin":"203.0.113.7","headers":{"Via":"1.1 x"}}"#, "203.0.113.7", None, json!("anonymous")),
        ("<pre>REMOTE_ADDR = 203.0.113.7\nHTTP_HOST = h\n</pre>", "203.0.113.7", None, json!("elite")),
        (
            "<pre>REMOTE_ADDR = 203.0.113.7\nHTTP_X_REAL_IP = 127.0.0.1\n</pre>",
            "203.0.113.7",
            None,
            json!("transparent"),
        ),
        ("2001:db8::7\n", "2001:db8::7", None, Value::Null),
        ("127.0.0.1\n", "127.0.0.1", None, json!("transparent")),
        (r#"{"ip":"203.0.113.7","country":"de"}"#, "203.0.113.7", Some("DE"), Value::Null),
    ] {
        for flag in ["--judge", "--url"] {
            let found = try_one(&saying(page(body)).url(), &[flag, &ours.url()]);
            assert_eq!((&found["exit"], &found["country"]), (&json!(exit), &json!(country)), "{found}");
            assert_eq!((&found["anonymity"], &found["can_connect"]), (&anonymity, &json!(false)), "{found}");
        }
    }
}

#[test]
fn what_is_no_testimony_is_a_failure_only_where_a_judge_was_named() {
    let ours = judge();
    let endless = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        loop {
            conn.send("8\r\nendless \r\n")?;
        }
    });
    let huge = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")?;
        conn.until_close().map(drop)
    });
    let nested = format!("{{\"origin\":{}", "[".repeat(60_000));
    for (proxy, error, reason) in [
        (saying(page("<html>Please log in</html>")), "http_protocol_error", "what came back is not what a judge says"),
        (saying(page("")), "http_protocol_error", "is not what a judge says"),
        (saying(page(&nested)), "http_protocol_error", "is not what a judge says"),
        (saying(page("{\"origin\":\"127.0.0.1\\u001b[2J\"}")), "http_protocol_error", "is not what a judge says"),
        (
            saying("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n"),
            "destination_unavailable",
            "the answer was 302",
        ),
        (endless, "http_response_body_size", "longer than 65536 bytes"),
        (huge, "http_response_body_size", "longer than 65536 bytes"),
    ] {
        failed(&try_one(&proxy.url(), &["--judge", &ours.url()]), error, reason);
        let found = try_one(&proxy.url(), &["--url", &ours.url()]);
        assert_eq!((&found["reachable"], &found["exit"]), (&json!(true), &Value::Null), "{found}");
    }
    for (status, error) in
        [(403, "http_request_denied"), (503, "destination_unavailable"), (404, "destination_unavailable")]
    {
        let proxy = saying(format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n"));
        for flag in ["--judge", "--url"] {
            let found = try_one(&proxy.url(), &[flag, &ours.url()]);
            failed(&found, error, &format!("the answer was {status}"));
            assert_eq!(found["fault"]["received_status"], status, "{found}");
        }
    }
    let cut = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
    });
    failed(&try_one(&cut.url(), &["--url", &ours.url()]), "http_response_incomplete", "before the whole body");
}

/// What a proxy says is shown to operators: nothing in it may reach a terminal, or look like another row.
#[test]
fn a_judge_or_a_proxy_that_lies_cannot_say_more_than_a_lie() {
    let ours = judge();
    let evil = r#"{"origin":"203.0.113.7","country":"\u001b[31m","headers":{"Via\u001b[2J":"x","X-Forwarded-For\n ok":"1","Proxy-\u202e":"x","VIA":"\u001b[2J"}}"#;
    let proxy = saying(page(evil));
    let output = run(&["test", &proxy.url(), "--judge", &ours.url()]);
    assert_eq!(output.status.code(), Some(0));
    let text = told(&output);
    assert!(text.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)), "{text:?}");
    assert!(text.contains("(seen: via; ") && text.lines().count() == 3, "{text}");
}

#[test]
fn whether_a_member_opens_tunnels_is_found_out() {
    let (judge, place) = (judge(), Upstream::echoing());
    let to = place.address().to_string();
    // Like most of its kind, it opens tunnels to one port only.
    let port = judge.address().port();
    let squid = Server::squid_with("u", SECRET, "");
    let picky = Server::tinyproxy_with("u", SECRET, &format!("ConnectPort {port}"));
    let microsocks = Server::microsocks("u", SECRET);
    let [squid, picky] = [&squid, &picky].map(|server| member("http", server.address()));
    let socks = member("socks5h", microsocks.address());
    let url = judge.url();
    for member in [&squid, &picky, &socks] {
        assert_eq!(try_one(member, &["--judge", &url])["can_connect"], true);
    }
    // Asked for by itself, it is what decides.
    assert_eq!(test(&[&squid, &socks, "--judge", &url, "--connect", &to]).0, 0);
    let (code, found) = test(&[&picky, "--judge", &url, "--connect", &to]);
    assert_eq!((code, &found[0]["reachable"], &found[0]["can_connect"]), (69, &json!(true), &json!(false)));
    assert_eq!(found[0]["connect_fault"]["received_status"], 403, "{found:?}");
    // Without a page there is nothing else to be known.
    let found = try_one(&squid, &["--connect", &to]);
    assert!(found["reachable"] == true && found["connect_ms"].is_u64() && found["first_byte_ms"].is_null(), "{found}");
    failed(&try_one(&picky, &["--connect", &to]), "connection_refused", "refused the tunnel with status 403");
    let dead = Refusing::new().url();
    failed(&try_one(&socks, &["--connect", dead.trim_start_matches("http://")]), "connection_refused", "");
}

#[test]
fn an_https_judge_is_asked_through_a_tunnel_and_its_certificate_is_checked() {
    let (certificate, judge) = (Certificate::make(), judge());
    let tls = Server::stunnel(&certificate, judge.address());
    let (tinyproxy, microsocks) = (Server::tinyproxy("u", SECRET), Server::microsocks("u", SECRET));
    let behind_tls = Server::stunnel(&certificate, tinyproxy.address());
    let members = [
        "direct://".to_owned(),
        member("http", tinyproxy.address()),
        format!("https://u:{SECRET}@{}", behind_tls.address()),
        member("socks5h", microsocks.address()),
        format!("{}|{}", member("socks5h", microsocks.address()), member("http", tinyproxy.address())),
    ];
    let members: Vec<_> = members.iter().map(String::as_str).collect();
    let ask = |url: &str, roots| test_with_roots(&[&members[..], &["--judge", url]].concat(), roots);
    let (code, found) = ask(&format!("https://{}/", tls.address()), Some(&certificate));
    assert_eq!(code, 0, "{found:#?}");
    for found in &found {
        // stunnel is whom the judge sees; what matters is that it was seen.
        assert_eq!((&found["exit"], &found["can_connect"]), (&json!("127.0.0.1"), &json!(true)), "{found}");
    }
    let wrong = format!("https://localhost:{}/", tls.address().port());
    for found in ask(&wrong, Some(&certificate)).1 {
        failed(&found, "tls_certificate_error", "the target's certificate is not accepted: it is for another name");
    }
    let stranger = Certificate::make();
    for found in ask(&format!("https://{}/", tls.address()), Some(&stranger)).1 {
        failed(&found, "tls_certificate_error", "certificate is not accepted: nobody known here has issued it");
    }
}

#[test]
fn judges_and_members_may_have_ipv6_addresses() {
    let judge = judge_on("[::1]:0");
    let found = try_one("direct://[::1]", &["--judge", &judge.url()]);
    assert_eq!((&found["exit"], &found["anonymity"]), (&json!("::1"), &json!("transparent")), "{found}");
    let proxy = Upstream::start_on("[::1]:0", |conn| {
        conn.request()?;
        conn.send(page("{\"origin\":\"2001:db8::7\",\"headers\":{}}"))
    });
    let found = try_one(&proxy.url(), &["--judge", &judge.url()]);
    assert_eq!((&found["exit"], &found["anonymity"]), (&json!("2001:db8::7"), &json!("elite")), "{found}");
    assert_eq!(proxy.requests()[0].head.line(), format!("GET {}/ HTTP/1.1", judge.url()));
}

#[test]
fn what_is_unknown_without_a_judge_stays_unknown() {
    let page = Upstream::ok("hello");
    let found = try_one("direct://127.0.0.5", &["--url", &page.url()]);
    for key in ["exit", "country", "anonymity"] {
        assert_eq!((&found["reachable"], &found[key]), (&json!(true), &Value::Null), "{found}");
    }
    // A judge that cannot be asked without a member does not know who we are.
    let proxy = saying(self::page(r#"{"origin":"203.0.113.7","headers":{"Via":"1.1 x"}}"#));
    let found = try_one(&proxy.url(), &["--judge", "http://judge.invalid/"]);
    assert_eq!((&found["exit"], &found["anonymity"]), (&json!("203.0.113.7"), &Value::Null), "{found}");
    assert_eq!(found["seen"], json!(["via"]));
    let output = run(&["test", &proxy.url(), "--judge", &format!("http://u:{SECRET}@judge.invalid/")]);
    assert!(told(&output).contains("the page cannot be fetched without the proxies"), "{}", told(&output));
    assert!(!told(&output).contains(SECRET), "{}", told(&output));
}

#[test]
fn the_table_names_the_members_in_order_and_adds_them_up() {
    let (judge, good) = (judge(), Server::tinyproxy_with("u", SECRET, &format!("Bind {EXIT}")));
    let dead = Refusing::new();
    let [first, second] = [member("http", good.address()), dead.url()];
    let output = run(&["test", &second, &first, "--judge", &judge.url()]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!((output.status.code(), lines.len(), &*output.stderr), (Some(69), 4, &b""[..]), "{text}");
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(&words(0)[..2], ["result", "connect"]);
    assert_eq!((words(1)[0], words(1)[7], words(1)[8]), ("failed", &*id(&second), &*second), "{text}");
    assert!(lines[1].contains("(connection_refused: the upstream proxy cannot be connected to: "), "{text}");
    let shown = format!("http://u:***@{}", good.address());
    assert!(lines[2].starts_with(" ok ") && lines[2].contains(&shown), "{text}");
    assert!(lines[2].contains(" yes ") && lines[2].contains(&format!(" {EXIT} ")), "{text}");
    assert!(lines[2].contains(" anonymous ") && lines[2].ends_with("  (seen: via)"), "{text}");
    assert_eq!(lines[3], "2 tested, 1 passed, 1 did not");
    assert_eq!(run(&["test", &first, "--judge", &judge.url()]).status.code(), Some(0));
}

#[test]
fn all_members_of_a_pool_are_tried_and_none_is_allocated() {
    let (redis, judge, proxy) = (Redis::start(), judge(), Server::tinyproxy("u", SECRET));
    let good = member("http", proxy.address());
    for (member, count) in [(&*good, "7"), ("http://user:s3cretPlanted@host:99999", "8"), ("direct://127.0.0.5", "9")] {
        redis.cmd(&["ZADD", KEY, count, member]);
    }
    let before = redis.scores(KEY);
    let args = ["--all", "--store", &redis.url(), "--judge", &judge.url()];
    let (code, found) = test(&args);
    assert_eq!((code, found.len()), (69, 3), "{found:#?}");
    assert_eq!(found.iter().map(|found| found["reachable"] == true).collect::<Vec<_>>(), [true, false, true]);
    failed(&found[1], "proxy_configuration_error", "port 99999 is not a port");
    assert_eq!(redis.scores(KEY), before);

    redis.cmd(&["DEL", KEY]);
    let output = run(&[&["test"], &args[..]].concat());
    assert_eq!((output.status.code(), output.stdout.len()), (Some(69), 0), "{}", told(&output));
    assert!(told(&output).contains("the pool is empty"), "{}", told(&output));
}

#[test]
fn with_the_embedded_store_all_are_those_of_the_configuration() {
    let judge = judge();
    let dir = tempfile::tempdir().unwrap();
    let url = judge.url();
    let text = format!(
        "[pool]\nproxies = [\"direct://127.0.0.5\", \"direct://\"]\n[health]\nurl = \"{url}\"\ntimeout = \"5s\"\nparallel = 1\n"
    );
    std::fs::write(dir.path().join("config.toml"), text).unwrap();
    let test = |args: &[&str]| {
        let output = program().args(["test", "--json"]).args(args).current_dir(dir.path()).output().unwrap();
        (output.status.code(), serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap())
    };
    let (code, found) = test(&["--all"]);
    assert_eq!((code, found.len()), (Some(0), 2), "{found:#?}");
    assert_eq!((&found[0]["exit"], &found[1]["exit"]), (&json!("127.0.0.5"), &json!("127.0.0.1")));
    // With a state it is those who are eligible there, whoever is configured.
    let config = std::fs::read_to_string(dir.path().join("config.toml")).unwrap();
    let config = config.replace("[pool]\n", "[pool]\nstate = \"evenkeel.state\"\n");
    std::fs::write(dir.path().join("config.toml"), config).unwrap();
    assert_eq!(test(&["--all"]).1.len(), 2, "as there is no file yet");
    let added = program().args(["pool", "add", "direct://127.0.0.6"]).current_dir(dir.path()).output().unwrap();
    assert!(added.status.success());
    let (code, found) = test(&["--all"]);
    assert_eq!((code, found.len()), (Some(0), 1), "{found:#?}");
    assert_eq!(found[0]["exit"], "127.0.0.6");
    // What is said on the command line beats it.
    let other = Upstream::ok("hello");
    assert_eq!(test(&["direct://", "--url", &other.url()]).1[0]["exit"], Value::Null);
    assert_eq!(test(&["direct://", "--judge", &other.url()]).0, Some(69));
}

#[test]
fn a_wrong_command_line_says_what_to_write_and_shows_no_secret() {
    let secret = format!("ftp://u:{SECRET}@h/?key={SECRET}");
    let no_proxy = format!("ftp://u:{SECRET}@h:1");
    for (args, code, expected) in [
        (&["test"][..], 64, "<URL|--all>"),
        (&["test", "--all", "direct://"], 64, "--all"),
        (&["test", "direct://"], 64, "say what to ask for through the proxies: --judge URL"),
        (
            &["test", "direct://", "--judge", &secret],
            64,
            "--judge: the URL has a scheme that is neither http nor https",
        ),
        (&["test", "direct://", "--url", &secret], 78, "--url: must be a URL like"),
        (&["test", "direct://", "--connect", "h"], 64, "--connect: must be host:port"),
        (&["test", "direct://", "--connect", "h:1", "--via", &no_proxy], 64, "--via: cannot use "),
        (&["test", &no_proxy, "--connect", "h:1"], 64, "cannot use "),
        (&["test", "direct://", "--connect", "h:1", "--timeout", "0s"], 78, "--timeout: must be longer than nothing"),
        (&["test", "direct://", "--connect", "h:1", "--parallel", "0"], 78, "--parallel: must be a whole number"),
        (&["test", "direct://", "--url", "http://h/", "--judge", "http://h/"], 64, "cannot be used with"),
        (&["test", "--all", "--connect", "h:1", "--store", "redis://127.0.0.1:1"], 69, "Redis"),
        (&["judge", "--listen", "here"], 64, "--listen: must be IP:port"),
    ] {
        let output = run(args);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{args:?}: {}", told(&output));
        assert!(told(&output).contains(expected) && !told(&output).contains(SECRET), "{args:?}: {}", told(&output));
    }
}

#[test]
fn so_many_are_tried_at_once_and_no_more() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, highest) = (now.clone(), most.clone());
    let proxy = Upstream::start(move |conn: &mut Conn| {
        highest.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        conn.request()?;
        std::thread::sleep(Duration::from_millis(20)); // so that others come meanwhile
        counted.fetch_sub(1, Ordering::SeqCst);
        conn.send(page("203.0.113.7"))
    });
    let members: Vec<_> = (0..60).map(|n| proxy.url_with(&format!("u{n}:p"))).collect();
    let args = members.iter().map(String::as_str).chain(["--url", "http://judge.invalid/", "--parallel", "7"]);
    let (code, found) = test(&args.collect::<Vec<_>>());
    assert_eq!((code, found.len()), (0, 60));
    assert!(found.iter().zip(&members).all(|(found, member)| found["id"] == id(member)), "in order");
    assert!((2..=7).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

#[test]
fn many_that_hang_cost_one_timeout() {
    let hanging = Upstream::start(|conn| conn.until_close().map(drop));
    let members: Vec<_> = (0..64).map(|n| hanging.url_with(&format!("u{n}:p"))).collect();
    let rest = ["--url", "http://judge.invalid/", "--timeout", "500ms"];
    let args: Vec<_> = members.iter().map(String::as_str).chain(rest).collect();
    let started = Instant::now();
    let (code, found) = test(&args);
    let took = started.elapsed();
    assert_eq!((code, found.len()), (69, 64));
    assert!(found.iter().all(|found| found["fault"]["error"] == "http_response_timeout"), "{found:#?}");
    assert!((500..4000).contains(&took.as_millis()), "{took:?}");
    hanging.wait_for_ends(64, PATIENCE);
}

/// `head` ends the pipe after the first lines.
#[test]
fn nobody_is_tried_for_a_reader_that_has_gone() {
    let proxy = Upstream::start(|conn| {
        conn.request()?;
        std::thread::sleep(Duration::from_millis(20)); // so that the reader is gone long before the last
        conn.send(page("203.0.113.7"))
    });
    let members: Vec<_> = (0..500).map(|n| proxy.url_with(&format!("u{n}:p"))).collect();
    let mut command = program();
    command.arg("test").args(&members).args(["--url", "http://judge.invalid/", "--parallel", "4"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert!(proxy.connections() < 100, "{}", proxy.connections());
}

#[test]
fn a_judge_tells_what_it_saw_to_whoever_asks() {
    let mut judge = judge();
    let mut client = Client::to(judge.address());
    let head = "GET /any?path HTTP/1.1\r\nhost: h\r\nVIA: 1.1 a\r\nvia: 1.1 b\r\nX-Odd: \"\\\r\n\r\n";
    let answer = client.send(head).response();
    assert_eq!((answer.status(), answer.field("Cache-Control")), (200, Some("no-store")));
    let saw: Value = serde_json::from_slice(&answer.body).unwrap();
    let headers = json!({"Host": "h", "Via": "1.1 a, 1.1 b", "X-Odd": "\"\\"});
    assert_eq!(saw, json!({"origin": "127.0.0.1", "headers": headers}));
    assert_eq!(client.until_close(), b"", "one answer, and it ends");
    let url = judge.url();
    assert_eq!(curl(&["-X", "POST", "-d", "x=y", &url]).status.code(), Some(0));
    assert!(curl(&["-I", &url]).stdout.starts_with(b"HTTP/1.1 200 OK"));
    assert_eq!(Client::to(judge.address()).connect("h:80").status(), 405);
    for nonsense in ["garbage\r\n\r\n", "\0\0\0\0", "GET / HTTP/9.9\r\n\r\n"] {
        let mut client = Client::to(judge.address());
        client.send(nonsense).finish();
        client.until_close();
    }
    assert_eq!(Client::to(judge.address()).send(head).response().status(), 200);
    assert_eq!(run(&["judge", "--listen", &judge.address().to_string()]).status.code(), Some(71));
    judge.signal(Signal::TERM);
    assert_eq!(judge.wait_exit(PATIENCE).code(), Some(0));
}

/// `nc -N` and scripts say so when they have nothing more to say.
#[test]
fn a_judge_answers_whoever_has_closed_its_own_side() {
    let judge = judge();
    for _ in 0..100 {
        let mut wire = Wire::connect(judge.address()).expect("a connection");
        wire.send("GET / HTTP/1.1\r\nHost: judge\r\n\r\n").expect("sent");
        wire.finish().expect("closed");
        assert_eq!(wire.head().expect("an answer").expect("a head").status(), 200);
    }
}
