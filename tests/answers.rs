//! The answers the gateway makes itself: status, Proxy-Status, and what becomes of the connection.

use std::time::Duration;

use crate::support::client::Client;
use crate::support::gateway::{Gateway, Setup, with_both_stores};
use crate::support::redis::Redis;
use crate::support::upstream::{Refusing, Unreachable, Upstream, id};
use crate::support::wire::Message;

const GET: &str = "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n";
const POST: &str = "POST http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 4\r\n\r\nbody";
const CONNECT: &str = "CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n";

/// A pool of these members, each request tried once.
fn once<I: IntoIterator<Item: Into<String>>>(members: I) -> Setup {
    Setup::of(members).set("retry.attempts", 1)
}

/// What every answer of the gateway's own has in common; then its `Proxy-Status`.
fn check(answer: &Message, status: u16, proxy_status: &str) {
    assert_eq!(answer.field("Proxy-Status"), Some(proxy_status));
    assert_eq!(answer.status(), status);
    assert_eq!(answer.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.field("Content-Length"), Some(&*answer.body.len().to_string()));
    let text = answer.text();
    assert!(text.starts_with("evenkeel: ") && text.ends_with('\n') && text.lines().count() == 1, "{text:?}");
    for unwanted in ["Date", "Server", "Via"] {
        assert_eq!(answer.field(unwanted), None);
    }
}

/// The answer to a GET and to a POST, which takes a longer way; on one connection, which therefore stayed usable.
fn check_forward(gateway: &Gateway, status: u16, proxy_status: &str) {
    let mut client = gateway.client();
    for request in [GET, GET, POST, GET] {
        let answer = client.send(request).response();
        check(&answer, status, proxy_status);
        assert_eq!(answer.field("Connection"), None);
    }
}

/// The answer to a CONNECT, after which the connection closes.
fn check_connect(gateway: &Gateway, status: u16, proxy_status: &str) {
    let mut client = gateway.client();
    let answer = client.send(CONNECT).response();
    check(&answer, status, proxy_status);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(client.until_close(), b"");
}

#[test]
fn a_success_names_the_member_that_served_it() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let answer = gateway.client().get("http://origin.test/");
    assert_eq!(answer.field("Proxy-Status"), Some(&*format!("evenkeel; next-hop={}", upstream.id())));
}

#[test]
fn an_origins_own_proxy_status_stays_in_front_of_ours() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nProxy-Status: theirs\r\nContent-Length: 0\r\n\r\n");
    let gateway = Setup::of([upstream.url()]).start();
    let answer = gateway.client().get("http://origin.test/");
    let ours = format!("evenkeel; next-hop={}", upstream.id());
    assert_eq!(answer.head.all("Proxy-Status"), ["theirs", &ours]);
}

#[test]
fn an_empty_pool_is_503_destination_unavailable_and_says_when_to_come_back() {
    with_both_stores(|store| {
        let gateway = Setup::of([""; 0]).over(store).start();
        check_forward(&gateway, 503, "evenkeel; error=destination_unavailable");
        check_connect(&gateway, 503, "evenkeel; error=destination_unavailable");
        let seconds = gateway.client().send(GET).response().field("Retry-After").map(str::to_owned);
        assert!(seconds.is_some_and(|seconds| seconds.parse::<u32>().is_ok_and(|s| s > 0)));
    });
}

#[test]
fn a_store_that_cannot_be_reached_is_503_proxy_internal_error() {
    let upstream = Upstream::ok("fine");
    let gateway = once([upstream.url()]).redis(&Redis::stopped()).set("pool.timeout", "200ms").start();
    check_forward(&gateway, 503, "evenkeel; error=proxy_internal_error");
    check_connect(&gateway, 503, "evenkeel; error=proxy_internal_error");
    assert_eq!(upstream.connections(), 0, "without a store nothing may be dialed");
}

#[test]
fn a_store_that_answers_with_an_error_is_503_proxy_internal_error() {
    let redis = Redis::start();
    redis.cmd(&["SET", "evenkeel:{default}", "no sorted set"]);
    let gateway = once([""; 0]).redis(&redis).start();
    check_forward(&gateway, 503, "evenkeel; error=proxy_internal_error");
}

#[test]
fn a_member_that_refuses_is_502_connection_refused() {
    let refusing = Refusing::new();
    let gateway = once([refusing.url()]).start();
    let expected = format!("evenkeel; error=connection_refused; next-hop={}", refusing.id());
    check_forward(&gateway, 502, &expected);
    check_connect(&gateway, 502, &expected);
}

#[test]
fn a_member_without_an_address_is_502_dns_error() {
    let member = "http://no-such-host.invalid:3128";
    let gateway = once([member]).start();
    let expected = format!("evenkeel; error=dns_error; next-hop={}", id(member));
    check_forward(&gateway, 502, &expected);
    check_connect(&gateway, 502, &expected);
}

#[test]
fn a_member_that_does_not_answer_the_dialing_is_504_connection_timeout() {
    let unreachable = Unreachable::new();
    let gateway = once([unreachable.url()]).set("upstream.dial_timeout", "200ms").start();
    let expected = format!("evenkeel; error=connection_timeout; next-hop={}", id(&unreachable.url()));
    check_forward(&gateway, 504, &expected);
    check_connect(&gateway, 504, &expected);
}

#[test]
fn a_connect_without_a_reply_is_504_connection_timeout() {
    let upstream = Upstream::silent();
    let gateway = once([upstream.url()]).set("upstream.dial_timeout", "200ms").start();
    check_connect(&gateway, 504, &format!("evenkeel; error=connection_timeout; next-hop={}", upstream.id()));
}

#[test]
fn a_connection_closed_before_a_whole_head_is_502_connection_terminated() {
    for reply in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let upstream = Upstream::start(move |conn| {
            conn.request()?;
            conn.send(reply)
        });
        let gateway = once([upstream.url()]).start();
        let expected = format!("evenkeel; error=connection_terminated; next-hop={}", upstream.id());
        check_forward(&gateway, 502, &expected);
        check_connect(&gateway, 502, &expected);
    }
}

#[test]
fn nonsense_from_an_upstream_proxy_is_502_http_protocol_error() {
    for reply in [
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "\x16\x03\x01\x02\x00",
        "HTTP/2.0 200 OK\r\n\r\n",
    ] {
        let upstream = Upstream::answering(reply);
        let gateway = once([upstream.url()]).start();
        let expected = format!("evenkeel; error=http_protocol_error; next-hop={}", upstream.id());
        check_forward(&gateway, 502, &expected);
        check_connect(&gateway, 502, &expected);
    }
}

#[test]
fn a_head_without_end_is_502_and_its_reading_stops() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nX: ")?;
        // Ends when the gateway has had enough and closes.
        while conn.send([b'x'; 64 << 10]).is_ok() {}
        Ok(())
    });
    let gateway = once([upstream.url()]).start();
    let expected = format!("evenkeel; error=http_protocol_error; next-hop={}", upstream.id());
    check_forward(&gateway, 502, &expected);
    check_connect(&gateway, 502, &expected);
    assert!(gateway.memory() < 64 << 20);
}

#[test]
fn no_response_head_in_time_is_504_http_response_timeout() {
    let upstream = Upstream::silent();
    let gateway = once([upstream.url()]).set("upstream.response_timeout", "200ms").start();
    check_forward(&gateway, 504, &format!("evenkeel; error=http_response_timeout; next-hop={}", upstream.id()));
    upstream.wait_for_ends(2, Duration::from_secs(2));
}

#[test]
fn a_407_to_our_credentials_is_502_proxy_configuration_error() {
    let upstream = Upstream::answering(
        "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=\"theirs\"\r\nContent-Length: 7\r\n\r\ntheirs!",
    );
    let gateway = once([upstream.url()]).start();
    let expected =
        format!("evenkeel; error=proxy_configuration_error; received-status=407; next-hop={}", upstream.id());
    check_forward(&gateway, 502, &expected);
    check_connect(&gateway, 502, &expected);
}

#[test]
fn an_origins_errors_pass_as_they_are() {
    let upstream = Upstream::answering("HTTP/1.1 503 Down\r\nX-By: origin\r\nContent-Length: 4\r\n\r\ndown");
    let gateway = Setup::of([upstream.url()]).start();
    let answer = gateway.client().get("http://origin.test/");
    assert_eq!((answer.head.line(), answer.text()), ("HTTP/1.1 503 Down", "down"));
    assert_eq!(answer.field("Proxy-Status"), Some(&*format!("evenkeel; next-hop={}", upstream.id())));
    assert_eq!(upstream.connections(), 1, "an origin's error is not the member's fault");
}

#[test]
fn doubtful_requests_are_400_and_nothing_is_chosen() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    for request in [
        // Not for a proxy.
        "GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "GET https://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "GET ftp://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        // Which host?
        "GET http://user:secret@origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "GET http://origin.test:0/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "GET http://origin.test:65536/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "GET http:/// HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "GET http://origin.test/ HTTP/1.1\r\n\r\n",
        "GET http://origin.test/ HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
        "CONNECT origin.test HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "CONNECT origin.test: HTTP/1.1\r\nHost: origin.test:\r\n\r\n",
        "CONNECT origin.test:0 HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "CONNECT user@origin.test:443 HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "CONNECT http://origin.test:443/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        // Where does it end?
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody!",
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551614\r\n\r\n",
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n",
        "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\n",
        "GET http://origin.test/ HTTP/1.0\r\nContent-Length: 99999999999999999999999999\r\n\r\n",
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 4\r\n\r\nbody",
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST http://origin.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        // Not HTTP.
        "GET http://origin.test/ HTTP/1.1\r\nHost : origin.test\r\n\r\n",
        "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nX: a\r\n folded\r\n\r\n",
        "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nX: a\0b\r\n\r\n",
        "GET http://origin.test/ HTTP/1.12\r\nHost: origin.test\r\n\r\n",
        "GET http://origin.test/ HTTP/1.\r\nHost: origin.test\r\n\r\n",
        "GET http://origin.test/\r\n\r\n",
        "GET  http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\r\n\r\n",
    ] {
        let mut client = gateway.client();
        let answer = client.send(request).response();
        assert_eq!(answer.status(), 400, "{request:?}: {}", answer.text());
        check(&answer, 400, "evenkeel; error=http_request_error");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_percent_encoded_host_is_told_so() {
    let gateway = Setup::of([""; 0]).start();
    for request in [
        "GET http://h%2eevil/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST http://a%40b:80?x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
        "CONNECT h%2eevil:443 HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let answer = gateway.client().send(request).response();
        check(&answer, 400, "evenkeel; error=http_request_error");
        assert!(answer.text().contains("a host with percent-encoded bytes is not taken"), "{}", answer.text());
    }
}

/// RFC 9110 §2.5: the next minor version is read as the last one known; another major one cannot be.
#[test]
fn a_later_minor_version_is_http_1_1_and_another_major_one_is_505() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let (mut client, mut dribbling) = (gateway.client(), gateway.client());
    for request in [GET, POST, GET] {
        for minor in ["2", "9"] {
            let request = request.replace("HTTP/1.1", &format!("HTTP/1.{minor}"));
            assert_eq!(client.send(&request).response().text(), "fine", "{request:?}");
            dribbling.wire().dribble(request.as_bytes()).unwrap();
            assert_eq!(dribbling.response().text(), "fine", "{request:?} in pieces");
        }
    }
    assert!(upstream.requests().iter().all(|request| request.head.line().ends_with(" HTTP/1.1")));
    let before = upstream.requests().len();
    for request in [GET, POST, CONNECT] {
        for version in ["0.9", "2.0", "3.1"] {
            let request = request.replace("HTTP/1.1", &format!("HTTP/{version}"));
            let answer = gateway.client().send(request).response();
            check(&answer, 505, "evenkeel; error=http_request_error");
        }
    }
    let answer = gateway.client().send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").response();
    check(&answer, 505, "evenkeel; error=http_request_error");
    assert_eq!(upstream.requests().len(), before);
}

/// RFC 3986 §3.2.3, on both ways, to a proxy and to an origin.
#[test]
fn an_empty_port_is_80_and_does_not_go_on() {
    for scheme in ["http", "socks5h"] {
        let upstream = Upstream::start(move |conn| {
            if scheme == "socks5h" {
                conn.exactly(3)?;
                conn.send(b"\x05\x00")?;
                let asked = conn.exactly(b"\x05\x01\x00\x03\x0borigin.test\x00P".len())?;
                assert!(asked.ends_with(b"origin.test\x00P"));
                conn.send(b"\x05\x00\x00\x01\0\0\0\0\0\0")?;
            }
            while conn.request()?.is_some() {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")?;
            }
            Ok(())
        });
        let gateway = Setup::of([upstream.url().replace("http", scheme)]).start();
        for request in [GET, POST] {
            let request = request.replace("origin.test", "origin.test:");
            assert_eq!(gateway.client().send(&request).response().text(), "fine", "{request:?}");
        }
        for request in upstream.requests() {
            let target = if scheme == "http" { "http://origin.test/" } else { "/" };
            assert_eq!(request.head.line().split(' ').nth(1), Some(target));
            assert_eq!(request.field("Host"), Some("origin.test"));
        }
    }
}

#[test]
fn a_request_with_both_lengths_is_400() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    for framing in
        ["Content-Length: 4\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 4"]
    {
        let request = format!("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n0\r\n\r\n");
        let answer = gateway.client().send(request).response();
        assert_eq!(answer.status(), 400, "{framing}");
        check(&answer, 400, "evenkeel; error=http_request_error");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_lone_origin_form_request_is_told_that_this_is_a_proxy_and_may_try_again() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    let answer = client.send("GET /index.html HTTP/1.1\r\nHost: origin.test\r\n\r\n").response();
    check(&answer, 400, "evenkeel; error=http_request_error");
    assert!(answer.text().contains("this is a proxy; set HTTP_PROXY="), "{}", answer.text());
    assert!(answer.text().contains("curl reads http_proxy only"), "{}", answer.text());
    assert_eq!(client.get("http://origin.test/").text(), "fine");
}

/// Also when it is still sending: an answer lost to a reset explains nothing.
#[test]
fn what_is_too_large_is_414_or_431() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let long = |kib: usize| "x".repeat(kib << 10);
    let cases = [
        (414, format!("GET http://origin.test/{} HTTP/1.1\r\nHost: origin.test\r\n\r\n", long(300))),
        (414, format!("POST http://origin.test/{} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", long(300))),
        (431, format!("GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nX: {}\r\n\r\n", long(300))),
        (431, format!("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(2000))),
    ];
    for (status, request) in cases {
        let mut client = gateway.client();
        let answer = client.send(request).response();
        assert_eq!(answer.status(), status, "{}", answer.head.text());
        check(&answer, status, "evenkeel; error=http_request_error");
        assert_eq!(answer.field("Connection"), Some("close"));
        assert_eq!(client.until_close(), b"");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_request_head_that_does_not_end_in_time_is_408() {
    let gateway = Setup::of([""; 0]).set("gateway.head_timeout", "300ms").start();
    let mut client = gateway.client();
    let answer = client.send("GET http://origin.test/ HTTP/1.1\r\nHos").response();
    check(&answer, 408, "evenkeel; error=http_request_error");
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(client.until_close(), b"");
}

#[test]
fn a_target_that_is_this_gateway_is_502_proxy_loop_detected() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    for host in ["127.0.0.1", "localhost", "LOCALHOST."] {
        let url = format!("http://{host}:{}/", gateway.address().port());
        check(&client.get(&url), 502, "evenkeel; error=proxy_loop_detected");
    }
    let answer = client.send(format!("CONNECT {} HTTP/1.1\r\nHost: h\r\n\r\n", gateway.address())).response();
    check(&answer, 502, "evenkeel; error=proxy_loop_detected");
    assert_eq!(upstream.connections(), 0);
}

/// Two gateways, each the other's only member: the request would go round for ever.
#[test]
fn a_loop_through_other_proxies_is_found_by_via() {
    let redis = Redis::start();
    let setup = Setup::of([""; 0]).redis(&redis).set("gateway.via", true).set("retry.attempts", 1);
    let (one, other) = (setup.start(), setup.clone().set("pool.key", "other").start());
    redis.cmd(&["ZADD", "evenkeel:{default}", "0", &other.url()]);
    redis.cmd(&["ZADD", "other", "0", &one.url()]);
    let answer = one.client().get("http://origin.test/");
    assert_eq!(answer.status(), 502);
    assert!(answer.head.all("Proxy-Status").contains(&"evenkeel; error=proxy_loop_detected"), "{}", answer.head.text());
}

#[test]
fn proxy_status_can_be_had_for_errors_only_or_never() {
    let upstream = Upstream::ok("fine");
    let get = |client: &mut Client| client.get("http://origin.test/").field("Proxy-Status").map(str::to_owned);
    let fail = |client: &mut Client| client.get("http://origin.test:0/").field("Proxy-Status").map(str::to_owned);

    let gateway = Setup::of([upstream.url()]).set("gateway.proxy_status", "errors").start();
    let mut client = gateway.client();
    assert_eq!(get(&mut client), None);
    assert_eq!(fail(&mut client).as_deref(), Some("evenkeel; error=http_request_error"));

    let gateway = Setup::of([upstream.url()]).set("gateway.proxy_status", "never").start();
    let mut client = gateway.client();
    assert_eq!((get(&mut client), fail(&mut client)), (None, None));
    assert_eq!(client.send("nonsense\r\n\r\n").response().field("Proxy-Status"), None);
}

#[test]
fn a_failed_upload_leaves_its_answer_readable() {
    // The body is still coming when the answer is made; closing at once would reset it away.
    let refusing = Refusing::new();
    let gateway = once([refusing.url()]).start();
    let mut client = gateway.client();
    client.send(format!("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 4 << 20));
    let mut chunks = 0;
    while chunks < 64 && client.try_send([b'x'; 64 << 10]) {
        chunks += 1;
    }
    let answer = client.response();
    assert_eq!(answer.status(), 502);
}

/// The client sees how far it came, and that this is not all.
#[test]
fn a_body_that_breaks_off_at_once_leaves_its_head_readable() {
    const POST: &str = "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
    for (answer, body) in [
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ""),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", ""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nten bytes.", "ten bytes."),
    ] {
        let upstream = Upstream::start(move |conn| {
            conn.request()?;
            conn.send(answer)
        });
        let gateway = Setup::of([upstream.url()]).start();
        for _ in 0..10 {
            let mut client = gateway.client();
            assert_eq!(client.send(POST).head().status(), 200, "{answer:?}");
            let rest = String::from_utf8(client.until_close()).unwrap();
            assert!(rest.contains(body) && !rest.ends_with("0\r\n\r\n"), "{answer:?}: {rest:?}");
        }
    }
}

#[test]
fn an_answer_that_has_no_body_states_no_length() {
    let upstream = Upstream::answering("HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\n");
    let gateway = Setup::of([upstream.url()]).start();
    for request in [
        "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let head = gateway.client().send(request).head();
        assert_eq!((head.status(), head.field("Content-Length")), (204, None), "{request:?}");
    }
}
