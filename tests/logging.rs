//! What is written to standard error: one line per request when asked for, and never a secret.

use std::time::Duration;

use crate::support::gateway::{Gateway, KEY, Setup, eventually};
use crate::support::redis::Redis;
use crate::support::upstream::{Refusing, Upstream, id};
use crate::support::wire::PATIENCE;

/// The lines about requests.
fn lines(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains(" request client=")).collect()
}

#[test]
fn requests_are_not_logged_unless_asked_for() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    gateway.client().get("http://origin.test/");
    gateway.client().get("http://origin.test:0/");
    assert_eq!(lines(&gateway.finish()), [""; 0]);
}

#[test]
fn one_line_per_request_says_who_where_through_whom_and_how_it_ended() {
    let (dead, alive) = (Refusing::new(), Upstream::ok("fine"));
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "0", &dead.url(), "1", &alive.url()]);
    let gateway = Setup::of([""; 0]).redis(&redis).set("log.requests", true).start();
    let mut client = gateway.client();
    let from = client.wire().stream.local_addr().unwrap();
    client.get("http://origin.test/path?query"); // the dead one first
    client.get("http://origin.test:8000/");
    let refused = client.get("http://origin.test:0/");
    drop(client);
    let log = gateway.finish();
    let lines = lines(&log);
    assert_eq!(lines.len(), 3, "{log}");
    let told = refused.body.len();
    let expected = [
        format!("target=origin.test:80 proxy={} attempts=2 status=200 ended=done bytes=4 ms=", alive.id()),
        format!("target=origin.test:8000 proxy={} attempts=", alive.id()),
        format!("target= proxy=- attempts=0 status=400 ended=client error=http_request_error bytes={told} ms="),
    ];
    for (line, expected) in lines.iter().zip(&expected) {
        assert!(line.contains(&format!(" request client={from} method=GET {expected}")), "{line}\n{expected}");
        assert!(!line.contains("path") && !line.contains("query"), "{line}");
    }
}

/// The answer to these bytes has exactly one line, which says whose fault it was and how much was sent, and is counted; how long it
/// took.
fn check_told(gateway: &Gateway, bytes: &str, method: &str, status: u16, ended: &str, error: &str) -> u64 {
    let series = format!(r#"evenkeel_answers_total{{status="{status}",error="{error}"}}"#);
    let before = gateway.metric(&series).unwrap_or_default();
    let mut client = gateway.client();
    let from = format!("client={} ", client.wire().stream.local_addr().unwrap());
    client.try_send(bytes);
    let answer = client.response_to(method);
    assert_eq!(answer.status(), status, "{from}");
    let is_of_client = |line: &&str| line.contains(&from);
    eventually(PATIENCE, "the line", || lines(&gateway.log()).iter().any(is_of_client));
    assert_eq!(gateway.metric(&series), Some(before + 1), "{from}");
    drop(client);
    eventually(PATIENCE, "a free place", || gateway.metric(r#"evenkeel_clients{worker="0"}"#) == Some(0));
    let log = gateway.log();
    let of_client: Vec<_> = lines(&log).into_iter().filter(is_of_client).collect();
    let [line] = of_client[..] else { panic!("{of_client:#?}") };
    let begin = format!("{from}method={method} target=");
    let end = format!(" status={status} ended={ended} error={error} bytes={} ms=", answer.body.len());
    assert!(line.contains(&begin) && line.contains(&end), "{line}\n{begin}…{end}");
    line.rsplit("ms=").next().unwrap().parse().unwrap()
}

fn strict() -> Setup {
    let setup = Setup::of([""; 0]).set("log.requests", true).set("gateway.threads", 1).admin();
    setup.set("gateway.max_connections", 1)
}

#[test]
fn a_refusal_is_one_line_and_counted_whether_or_not_there_was_a_request() {
    let gateway = strict().start();
    let get = "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n";
    let long = "x".repeat(300_000);
    for (status, bytes) in [
        (414, format!("GET http://origin.test/{long} HTTP/1.1\r\nHost: h\r\n\r\n")),
        (431, format!("{get}X: {long}\r\n\r\n")),
        (400, format!("{get}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n")),
        (400, format!("{get}no field\r\n\r\n")),
        (505, get.replace("1.1", "9.1") + "\r\n"),
    ] {
        check_told(&gateway, &bytes, "-", status, "client", "http_request_error");
    }
    for (method, bytes) in [
        ("CONNECT", "CONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned()),
        ("HEAD", get.replace("GET", "HEAD") + "\r\n"),
        ("POST", get.replace("GET", "POST") + "Content-Length: 1\r\n\r\nx"),
    ] {
        check_told(&gateway, &bytes, method, 503, "gateway", "destination_unavailable");
    }
}

#[test]
fn a_client_too_many_is_one_line_and_counted() {
    let gateway = strict().start();
    let mut first = gateway.client();
    assert_eq!(first.get("http://origin.test/").status(), 503);
    let mut client = gateway.client();
    let told = client.response().body.len();
    eventually(PATIENCE, "the lines", || lines(&gateway.log()).len() == 2);
    let log = gateway.log();
    let expected = format!(" status=503 ended=gateway error=connection_limit_reached bytes={told} ");
    assert!(lines(&log)[1].contains(" method=- target= proxy=- attempts=0") && log.contains(&expected), "{log}");
    let series = r#"evenkeel_answers_total{status="503",error="connection_limit_reached"}"#;
    assert_eq!(gateway.metric(series), Some(1));
}

#[test]
fn a_head_that_came_too_slowly_is_one_line_and_counted_with_its_time() {
    let gateway = strict().set("gateway.head_timeout", "300ms").start();
    for bytes in ["GET http://or", "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"] {
        let ms = check_told(&gateway, bytes, "-", 408, "client", "http_request_error");
        assert!(ms >= 299, "{ms}");
    }
}

#[test]
fn an_answer_of_the_gateways_own_that_is_no_failure_is_a_line_and_counted_too() {
    let gateway = Setup::of([""; 0]).set("log.requests", true).admin().start();
    let mut client = gateway.client();
    client.send("TRACE http://origin.test/ HTTP/1.1\r\nHost: h\r\nMax-Forwards: 0\r\n\r\n");
    let told = client.response().body.len();
    assert!(told > 0);
    eventually(PATIENCE, "the line", || lines(&gateway.log()).len() == 1);
    let log = gateway.log();
    assert!(
        log.contains(&format!(
            " method=TRACE target=origin.test:80 proxy=- attempts=0 status=200 ended=done bytes={told} "
        )),
        "{log}"
    );
    assert_eq!(gateway.metric(r#"evenkeel_answers_total{status="200",error=""}"#), Some(1));
}

#[test]
fn the_bytes_of_a_body_are_its_own_however_it_comes() {
    for ending in ["", "A: b\r\n"] {
        let upstream = Upstream::answering(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nyou\r\n0\r\n{ending}\r\n"
        ));
        let gateway = Setup::of([upstream.url()]).set("log.requests", true).start();
        let mut client = gateway.client();
        client.get("http://origin.test/");
        client.send("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx").response();
        eventually(PATIENCE, "the lines", || lines(&gateway.log()).len() == 2);
        let log = gateway.log();
        assert!(lines(&log).iter().all(|line| line.contains(" ended=done bytes=8 ")), "{log}");
    }
}

#[test]
fn a_tunnel_is_one_line_when_it_ends() {
    let upstream = Upstream::echoing();
    let gateway = Setup::of([upstream.url()]).set("log.requests", true).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    client.send("hello").exactly(5);
    assert_eq!(lines(&gateway.log()), [""; 0]);
    client.finish();
    client.until_close();
    eventually(PATIENCE, "the line", || lines(&gateway.log()).len() == 1);
    let log = gateway.log();
    let expected = format!(
        "method=CONNECT target=origin.test:443 proxy={} attempts=1 status=200 ended=done bytes=5 ",
        upstream.id()
    );
    assert!(lines(&log)[0].contains(&expected), "{log}");
}

#[test]
fn what_a_drain_cuts_was_ended_by_the_gateway_and_tells_how_far_it_came() {
    let upstream = Upstream::start(|conn| {
        let Some(head) = conn.request_head()? else { return Ok(()) };
        match head.line().split(' ').nth(1).unwrap_or_default() {
            "origin.test:443" => conn.send("HTTP/1.1 200 OK\r\n\r\nhello")?,
            "http://origin.test/silent" => {}
            _ => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")?,
        }
        conn.until_close().map(drop)
    });
    let setup = Setup::of([upstream.url()]).set("log.requests", true).set("gateway.drain_timeout", "0s");
    let gateway = setup.start();
    let sent = |request: &str, came: &[u8]| {
        let mut client = gateway.client();
        client.send(request);
        if !came.is_empty() {
            client.head();
            assert_eq!(client.exactly(came.len()), came);
        }
        client
    };
    let clients = [
        sent("CONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n\r\n", b"hello"),
        sent("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n", b"half"),
        sent("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", b"half"),
        sent("GET http://origin.test/silent HTTP/1.1\r\nHost: h\r\n\r\n", b""),
    ];
    upstream.wait_for_requests(clients.len());
    let log = gateway.finish();
    let lines = lines(&log);
    assert_eq!(lines.len(), clients.len(), "{log}");
    for told in [
        "method=CONNECT status=200 ended=gateway bytes=5",
        "method=GET status=200 ended=gateway bytes=4",
        "method=PUT status=200 ended=gateway bytes=4",
        "method=GET status=0 ended=gateway bytes=0",
    ] {
        let says = |line: &&&str| told.split(' ').all(|word| line.contains(&format!(" {word} ")));
        assert_eq!(lines.iter().filter(says).count(), 1, "{told} in {log}");
    }
}

#[test]
fn a_line_tells_who_broke_off() {
    let upstream = Upstream::start(|conn| {
        let number = conn.number;
        conn.request()?;
        match number {
            1 => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
            2 => conn.until_close().map(drop),
            _ => {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?;
                conn.until_close().map(drop)
            }
        }
    });
    let gateway = Setup::of([upstream.url()]).set("log.requests", true).start();
    let get = "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut client = gateway.client();
    client.send(get).head();
    client.until_close();
    eventually(PATIENCE, "the first line", || lines(&gateway.log()).len() == 1);
    let mut client = gateway.client();
    client.send(get);
    upstream.wait_for_requests(2);
    drop(client);
    eventually(PATIENCE, "the second line", || lines(&gateway.log()).len() == 2);
    let mut client = gateway.client();
    client.send(get).head();
    client.exactly(4);
    drop(client);
    eventually(PATIENCE, "the third line", || lines(&gateway.log()).len() == 3);
    let log = gateway.log();
    for (line, ended) in lines(&log).iter().zip(["upstream", "client", "client"]) {
        assert!(line.contains(&format!("ended={ended} ")), "{ended}: {line}");
    }
}

#[test]
fn a_line_tells_whom_an_exchange_waited_for_in_vain() {
    let upstream = Upstream::start(|conn| {
        let Some(request) = conn.request()? else { return Ok(()) };
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nhalf")?;
        while request.head.line().contains("/endless") {
            conn.send([b'x'; 10_000])?;
        }
        conn.until_close().map(drop)
    });
    for (path, patience, ended) in [("silent", "300ms", "gateway"), ("endless", "3s", "client")] {
        let setup = Setup::of([upstream.url()]).set("log.requests", true);
        let gateway = setup.set("gateway.tunnel_idle_timeout", patience).start();
        let clients = [("GET", ""), ("POST", "Content-Length: 1\r\n")].map(|(method, length)| {
            let body = if length.is_empty() { "" } else { "x" };
            let mut client = gateway.client();
            client.send(format!("{method} http://origin.test/{path} HTTP/1.1\r\nHost: h\r\n{length}\r\n{body}"));
            client.head();
            client
        });
        eventually(PATIENCE, "the lines", || lines(&gateway.log()).len() == clients.len());
        let log = gateway.log();
        assert!(lines(&log).iter().all(|line| line.contains(&format!(" status=200 ended={ended} "))), "{log}");
    }
}

/// Even with every line there is.
#[test]
fn no_secret_reaches_the_log_or_an_answer() {
    let redis = Redis::start();
    let fine = Upstream::ok("fine");
    let rejecting = Upstream::answering("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
    let closing = Upstream::start(|conn| conn.request().map(drop));
    let members = [&fine, &rejecting, &closing].map(|upstream| upstream.url_with("user:hush%21"));
    let malformed = "http://user:hush@host:99999";
    let refusing = Refusing::new();
    let dead = refusing.url().replace("http://", "http://user:hush@");
    let gateway = Setup::of(members.iter().chain([&dead]))
        .redis(&redis)
        .set("log.requests", true)
        .set("retry.attempts", 2)
        .env("RUST_LOG", "trace,fred=off")
        .start();
    redis.cmd(&["ZADD", KEY, "-1", malformed]);
    let mut answers = Vec::new();
    for request in [
        "GET http://origin.test/hush?hush=hush HTTP/1.1\r\nHost: h\r\n",
        "GET http://user:hush@origin.test/ HTTP/1.1\r\nHost: h\r\n",
        "POST http://origin.test/hush HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n",
        "CONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n",
        "GET /hush HTTP/1.1\r\nHost: h\r\n",
        "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\nhush\r\n",
    ] {
        for _ in 0..6 {
            let mut client = gateway.client();
            client.send(format!(
                "{request}Authorization: Bearer hush\r\nProxy-Authorization: Basic hush\r\nCookie: hush\r\n\r\n"
            ));
            let answer = client.response_to(request.split(' ').next().unwrap());
            answers.push(format!("{:?} {}", answer.head, String::from_utf8_lossy(&answer.body)));
        }
    }
    redis.cmd(&["SET", KEY, "no sorted set"]);
    answers.push(gateway.client().get("http://origin.test/").text().to_owned());
    let log = gateway.finish();
    assert!(answers.iter().any(|answer| answer.contains(" 502 ")), "{answers:#?}");
    assert!(log.contains("an attempt failed") && log.contains("set a pool member aside"), "{log}");
    // As written, percent-decoded, and as Basic credentials: base64 of user:hush!
    for secret in ["hush", "dXNlcjpodXNo"] {
        assert!(!log.contains(secret), "{log}");
        let leak = answers.iter().find(|answer| answer.contains(secret));
        assert_eq!(leak, None);
    }
    assert!(log.contains(&id(&members[0])), "members show by their ids");
}

#[test]
fn a_redis_password_never_shows() {
    let gateway = Setup::of(["http://10.0.0.1:3128"])
        .store("redis://user:hush@127.0.0.1:1/0")
        .set("pool.timeout", "200ms")
        .env("RUST_LOG", "debug")
        .start();
    let answer = gateway.client().get("http://origin.test/");
    assert_eq!(answer.status(), 503);
    assert!(!answer.text().contains("hush"), "{}", answer.text());
    std::thread::sleep(Duration::from_millis(300)); // some more attempts to connect
    let log = gateway.finish();
    assert!(!log.contains("hush"), "{log}");
}
