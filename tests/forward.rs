//! Absolute-form requests: what reaches the upstream proxy, what comes back, and on which connections.

use std::io::Write as _;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::client::curl_text;
use crate::support::gateway::{Setup, with_both_stores};
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

/// How long something is watched that must not happen.
const A_WHILE: Duration = Duration::from_millis(200);

/// Through a gateway with one upstream proxy: what it makes of a GET with these fields. Of a POST with a body, which
/// takes a longer way through the gateway, it must make the same.
fn forwarded(setup: impl Fn(&Upstream) -> Setup, target: &str, fields: &str) -> String {
    let [get, post] = [("GET", "", ""), ("POST", "Content-Length: 4\r\n", "body")].map(|(method, length, body)| {
        let upstream = Upstream::ok("fine");
        let gateway = setup(&upstream).start();
        let request = format!("{method} {target} HTTP/1.1\r\n{fields}{length}\r\n{body}");
        assert_eq!(gateway.client().send(request).response().text(), "fine");
        let sent = upstream.request();
        assert_eq!(sent.body, body.as_bytes());
        sent.head.text().replace(length, "")
    });
    assert_eq!(post, get.replacen("GET", "POST", 1));
    get
}

/// Through a gateway that signs nothing: what it makes of a response to `method`, byte for byte, apart from the
/// `Connection: close` that was asked for.
fn answered(method: &str, response: &str) -> String {
    let response = response.to_owned();
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send(&response)
    });
    let gateway = Setup::of([upstream.url()]).set("gateway.proxy_status", "never").start();
    let mut client = gateway.client();
    let body = if method == "POST" { "Content-Length: 4\r\n\r\nbody" } else { "\r\n" };
    client.send(format!("{method} http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nConnection: close\r\n{body}"));
    let answer = String::from_utf8(client.until_close()).unwrap();
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    answer.replace("Connection: close\r\n", "")
}

#[test]
fn a_request_goes_on_in_absolute_form_and_its_host_follows_the_target() {
    with_both_stores(|store| {
        let head = forwarded(
            |upstream| Setup::of([upstream.url()]).over(store),
            "http://origin.test:81/a%20b/../c?d=e&f",
            "User-Agent: t\r\nHost: other.test\r\nAccept: */*\r\n",
        );
        assert_eq!(
            head,
            "GET http://origin.test:81/a%20b/../c?d=e&f HTTP/1.1\r\n\
             User-Agent: t\r\nHost: origin.test:81\r\nAccept: */*\r\n\r\n"
        );
    });
}

#[test]
fn curl_gets_its_page_through_the_gateway() {
    let upstream = Upstream::ok("a page");
    let gateway = Setup::of([upstream.url()]).start();
    assert_eq!(curl_text(&["-x", &gateway.url(), "http://origin.test/"]), "a page");
    assert_eq!(upstream.request().field("Proxy-Connection"), None);
}

#[test]
fn field_names_keep_their_case_and_order_and_values_their_bytes() {
    let fields = "x-lower: 1\r\nX-UPPER: two  words\r\nHost: origin.test\r\nX-mIxEd: 3\r\nCookie: a=b; c=d\r\n\
                  Set: 1\r\nSet: 2\r\nAccept-Language: de\r\n";
    let head = forwarded(|upstream| Setup::of([upstream.url()]), "http://origin.test/", fields);
    assert_eq!(head, format!("GET http://origin.test/ HTTP/1.1\r\n{fields}\r\n"));

    for body in ["", "1"] {
        let response = format!(
            "HTTP/1.1 200 Fine By Me\r\nx-lower: 1\r\nX-UPPER: 2\r\nset-COOKIE: a=b\r\nset-COOKIE: c=d\r\n\
             content-LENGTH: {}\r\nX-mIxEd: 3\r\nServer: s\r\n\r\n{body}",
            body.len()
        );
        for method in ["GET", "POST"] {
            assert_eq!(answered(method, &response), response, "{method}");
        }
    }
}

#[test]
fn nothing_is_said_about_the_client_or_the_gateway() {
    let head = forwarded(|upstream| Setup::of([upstream.url()]), "http://origin.test/", "Host: origin.test\r\n");
    assert_eq!(head, "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n");
    // No Date either: a clock of the gateway's would be taken for the origin's.
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for method in ["GET", "POST"] {
        assert_eq!(answered(method, response), response);
    }
}

#[test]
fn via_is_added_both_ways_when_it_is_asked_for() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("gateway.via", true).start();
    let response = gateway.client().get("http://origin.test/");
    let sent = upstream.request();
    let via = sent.field("Via").expect("a Via on the request");
    assert!(via.starts_with("1.1 evenkeel-"), "{via}");
    assert_eq!(response.field("Via"), Some(via));
}

#[test]
fn hop_by_hop_fields_stop_here_on_the_way_out() {
    let head = forwarded(
        |upstream| Setup::of([upstream.url()]),
        "http://origin.test/",
        "Host: origin.test\r\nConnection: keep-alive, X-One\r\nX-One: 1\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nX-Stays: yes\r\nX-Two: 2\r\n\
         Connection: x-two\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nProxy-Authenticate: Basic\r\n",
    );
    assert_eq!(head, "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nX-Stays: yes\r\n\r\n");
}

#[test]
fn hop_by_hop_fields_stop_here_on_the_way_back() {
    for method in ["GET", "POST"] {
        let response = answered(
            method,
            "HTTP/1.1 200 OK\r\nX-One: 1\r\nConnection: x-one, close\r\nKeep-Alive: timeout=5\r\nX-Stays: yes\r\n\
             Proxy-Authenticate: Basic realm=\"theirs\"\r\nProxy-Connection: close\r\nContent-Length: 2\r\n\r\nok",
        );
        assert_eq!(response, "HTTP/1.1 200 OK\r\nX-Stays: yes\r\nContent-Length: 2\r\n\r\nok", "{method}");
    }
}

#[test]
fn the_clients_credentials_stop_here_and_the_members_go_percent_decoded() {
    let head = forwarded(
        |upstream| Setup::of([upstream.url_with("us%65r:p%40ss%3A")]),
        "http://origin.test/",
        "Host: origin.test\r\nProxy-Authorization: Basic Y2xpZW50\r\nAuthorization: Bearer mine\r\n",
    );
    // user:p@ss:
    assert_eq!(
        head,
        "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nAuthorization: Bearer mine\r\n\
         Proxy-Authorization: Basic dXNlcjpwQHNzOg==\r\n\r\n"
    );
}

#[test]
fn a_request_body_streams_while_the_client_is_still_sending_it() {
    let upstream = Upstream::start(|conn| {
        conn.request_head()?;
        let first = conn.exactly(5)?;
        conn.send([b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n", &first[..], b"."].concat())?;
        let second = conn.exactly(5)?;
        conn.send(second)
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("POST http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nContent-Length: 10\r\n\r\nfirst");
    // The answer begins while half of the body is missing: neither side is buffered whole.
    let head = client.head();
    assert_eq!(client.exactly(6), b"first.");
    client.send("later");
    assert_eq!(client.exactly(5), b"later");
    assert_eq!(head.field("Content-Length"), Some("11"));
    assert_eq!(upstream.request().field("Content-Length"), Some("10"));
}

#[test]
fn a_chunked_request_stays_chunked_and_keeps_its_trailers() {
    const TRAILER: &str = "Trailer: X-Sum, Proxy-Authorization, X-Evenkeel-Report";
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let response = gateway
        .client()
        .send(format!(
            "PUT http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nTransfer-Encoding: chunked\r\n{TRAILER}\r\n\r\n"
        ))
        .send("5\r\nfirst\r\n")
        .send("6;ext=1\r\n later\r\n0\r\nX-Sum: 11\r\nProxy-Authorization: Basic x\r\nX-Evenkeel-Report: ban\r\n\r\n")
        .response();
    assert_eq!(response.text(), "fine");
    let sent = upstream.request();
    assert_eq!(
        sent.head.text(),
        format!(
            "PUT http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nTransfer-Encoding: chunked\r\n{TRAILER}\r\n\r\n"
        )
    );
    // What stops here stops here in the end, too.
    assert_eq!((&sent.body[..], sent.trailers.to_lowercase().as_str()), (&b"first later"[..], "x-sum: 11\r\n"));
}

#[test]
fn a_chunked_response_streams_and_keeps_its_trailers() {
    let (go_on, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nfirst\r\n")?;
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        conn.send("6\r\n later\r\n0\r\nX-Sum: 11\r\n\r\n")
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    let head = client.head();
    assert_eq!((head.field("Transfer-Encoding"), head.field("Trailer")), (Some("chunked"), Some("X-Sum")));
    assert_eq!(client.exactly(10), b"5\r\nfirst\r\n");
    go_on.send(()).unwrap();
    let rest = client.body_of(head, "GET");
    assert_eq!((rest.text(), rest.trailers.to_lowercase().as_str()), (" later", "x-sum: 11\r\n"));
    let sent = upstream.request();
    assert_eq!((sent.field("TE"), sent.field("Connection")), (Some("trailers"), Some("TE")));
}

#[test]
fn a_large_body_arrives_unchanged_in_both_directions() {
    let upstream = Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()))?;
            conn.send(request.body)?;
        }
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).start();
    let body: Vec<u8> = (0..3_000_001_u32).map(|i| (i * 7 % 251) as u8).collect();
    let mut client = gateway.client();
    client.send(format!("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body);
    assert!(client.response().body == body, "the body came back changed");
}

/// A client that does not read stops the upstream proxy, not the gateway's memory.
#[test]
fn a_client_that_does_not_read_holds_the_upstream_proxy_back() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 268435456\r\n\r\n")?;
        conn.stream.set_write_timeout(Some(Duration::from_millis(500)))?;
        let mut sent = 0;
        while sent < 256 << 20 {
            match conn.stream.write(&[0; 64 << 10]) {
                Ok(more) => sent += more,
                Err(_) => break,
            }
        }
        // The loopback's own buffers hold some megabytes on either side.
        if sent < 128 << 20 { conn.until_close().map(drop) } else { Ok(()) }
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    client.head();
    upstream.wait_for_requests(1);
    std::thread::sleep(Duration::from_secs(1)); // long enough to pass 256 MiB, were nobody to hold it back
    assert!(gateway.memory() < 64 << 20, "{} bytes resident", gateway.memory());
    drop(client);
    upstream.wait_for_ends(1, PATIENCE);
}

#[test]
fn responses_without_a_body_keep_the_length_they_state() {
    for (method, response) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nETag: \"a\"\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\nETag: \"a\"\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\nETag: \"a\"\r\n\r\n"),
        ("DELETE", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let got = answered(method, response);
        assert_eq!(got, response, "{method}");
    }
}

#[test]
fn a_bodiless_answer_leaves_the_connections_in_step() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")?;
        conn.request()?;
        conn.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n")?;
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast")
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("HEAD http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status(), 200);
    assert_eq!(client.get("http://origin.test/").status(), 304);
    assert_eq!(client.get("http://origin.test/").text(), "last");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_http_1_0_client_gets_a_body_that_ends_with_the_connection() {
    let upstream = Upstream::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n6\r\n later\r\n0\r\n\r\n",
    );
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.0\r\n\r\n");
    let answer = String::from_utf8(client.until_close()).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
    assert_eq!(body, "first later");
    assert_eq!(upstream.request().head.text(), "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n");
}

/// One that counts on its connection would wait for a length, or take it to be 0.
#[test]
fn an_http_1_0_client_is_told_that_its_connection_ends_though_it_asked_to_keep_it() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n";
    let early = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";
    for (method, port, framing, answer, status) in [
        ("GET", 80, "\r\n", chunked, 200),
        ("POST", 80, "Content-Length: 4\r\n\r\nbody", chunked, 200),
        ("POST", 80, "Content-Length: 9\r\n\r\nbody", early, 200),
        ("POST", 0, "Content-Length: 9\r\n\r\nbody", early, 400),
        ("TRACE", 80, "Max-Forwards: 0\r\nContent-Length: 9\r\n\r\nbody", early, 200),
    ] {
        let upstream = Upstream::start(move |conn| {
            conn.request_head()?;
            conn.send(answer)?;
            conn.until_close().map(drop)
        });
        let gateway = Setup::of([upstream.url()]).start();
        let mut client = gateway.client();
        client.send(format!("{method} http://origin.test:{port}/ HTTP/1.0\r\nConnection: keep-alive\r\n{framing}"));
        let head = client.head();
        assert_eq!((head.status(), head.field("Connection")), (status, Some("close")), "{method} {framing} {head:?}");
        client.until_close();
    }
}

#[test]
fn an_http_1_0_client_may_keep_its_connection_alive() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    for _ in 0..2 {
        client.send("GET http://origin.test/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        assert_eq!((response.text(), response.field("Connection")), ("fine", Some("keep-alive")));
    }
}

#[test]
fn an_upstream_proxy_that_speaks_http_1_0_is_understood() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.0 200 OK\r\nServer: old\r\n\r\nuntil the end")
    });
    let gateway = Setup::of([upstream.url()]).start();
    for connections in 1..=2 {
        let response = gateway.client().get("http://origin.test/");
        assert_eq!((response.head.line(), response.text()), ("HTTP/1.1 200 OK", "until the end"));
        assert_eq!(upstream.connections(), connections);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_each_with_its_own_allocation() {
    with_both_stores(|store| {
        // The first answer is the slowest: order is the gateway's doing.
        let slow = Upstream::start(|conn| {
            while conn.request()?.is_some() {
                std::thread::sleep(Duration::from_millis(50)); // the origin thinks
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow")?;
            }
            Ok(())
        });
        let fast = Upstream::ok("fast");
        let gateway = Setup::of([slow.url(), fast.url()]).over(store).start();
        let mut client = gateway.client();
        let request = |i| format!("GET http://origin.test/{i} HTTP/1.1\r\nHost: h\r\n\r\n");
        client.send((1..=4).map(request).collect::<String>());
        let answers: Vec<String> = (1..=4).map(|_| client.response().text().to_owned()).collect();
        assert!(
            answers == ["slow", "fast", "slow", "fast"] || answers == ["fast", "slow", "fast", "slow"],
            "{answers:?}"
        );
        let mut paths: Vec<String> =
            [&slow, &fast].iter().flat_map(|u| u.requests()).map(|r| r.head.line().to_owned()).collect();
        paths.sort();
        let expected: Vec<String> = (1..=4).map(|i| format!("GET http://origin.test/{i} HTTP/1.1")).collect();
        assert_eq!(paths, expected);
    });
}

/// Requests with and without a body go different ways through the gateway; the client's bytes must stay in step.
#[test]
fn pipelined_requests_of_all_kinds_are_answered_in_order() {
    let upstream = Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            let path = request.head.line().split(' ').nth(1).unwrap_or_default().to_owned();
            let body = [path.as_bytes(), b" ", &request.body[..]].concat();
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()))?;
            conn.send(body)?;
        }
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).start();
    let kinds = [
        ("GET", "\r\n"),
        ("POST", "Content-Length: 4\r\n\r\nbody"),
        ("GET", "\r\n"),
        ("PUT", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        ("POST", "Content-Length: 0\r\n\r\n"),
        ("GET", "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        ("PUT", "Content-Length: 4\r\n\r\nbody"),
        ("DELETE", "\r\n"),
    ];
    let request = |(i, (method, rest))| format!("{method} http://origin.test/{i} HTTP/1.1\r\nHost: h\r\n{rest}");
    let all: String = kinds.into_iter().enumerate().map(request).collect();
    // At once, and in pieces that end anywhere.
    for size in [all.len(), 7, 1] {
        let mut client = gateway.client();
        for piece in all.as_bytes().chunks(size) {
            client.send(piece);
        }
        for (i, (_, rest)) in kinds.into_iter().enumerate() {
            let body = if rest.contains("body") { "body" } else { "" };
            assert_eq!(client.response().text(), format!("http://origin.test/{i} {body}"), "in pieces of {size}");
        }
    }
}

#[test]
fn interim_answers_reach_the_client_before_the_final_one() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    let hints = client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n").head();
    assert_eq!((hints.status(), hints.field("Link")), (103, Some("</a.css>; rel=preload")));
    assert_eq!(client.response().text(), "fine");
}

#[test]
fn an_upstream_connection_with_bytes_behind_its_answer_is_not_used_again() {
    for method in ["GET", "POST"] {
        let upstream = Upstream::answering(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfineHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
        );
        let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
        let mut client = gateway.client();
        for _ in 0..3 {
            client.send(format!("{method} http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"));
            assert_eq!(client.response().text(), "fine", "{method}");
        }
        assert_eq!(upstream.connections(), 3, "{method}");
    }
}

#[test]
fn one_upstream_connection_serves_one_request_after_another() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
    // From different clients to different origins: an upstream proxy's connection is nobody's own.
    for i in 0..5 {
        assert_eq!(gateway.client().get(&format!("http://origin{i}.test/")).text(), "fine");
    }
    assert_eq!((upstream.requests().len(), upstream.connections()), (5, 1));
}

#[test]
fn an_upstream_connection_serves_on_however_its_answers_end() {
    let chunked = |trailers| format!("Transfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n{trailers}\r\n");
    for ending in ["Content-Length: 4\r\n\r\nfine".to_owned(), chunked(""), chunked("X: y\r\n")] {
        for (method, body) in [("GET", "\r\n"), ("POST", "Content-Length: 4\r\n\r\nbody")] {
            let upstream = Upstream::answering(format!("HTTP/1.1 200 OK\r\n{ending}"));
            let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
            for _ in 0..3 {
                let request = format!("{method} http://origin.test/ HTTP/1.1\r\nHost: h\r\n{body}");
                assert_eq!(gateway.client().send(request).response().text(), "fine");
            }
            assert_eq!((upstream.requests().len(), upstream.connections()), (3, 1), "{method} {ending:?}");
        }
    }
}

/// A chunked one cannot be said in HTTP/1.0, and whoever speaks that on a connection leaves it out.
#[test]
fn an_upload_arrives_whole_behind_an_answer_of_http_1_0() {
    let upstream = Upstream::answering("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\nfine");
    let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
    let mut client = gateway.client();
    for framing in
        ["Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"].repeat(2)
    {
        client.send(format!("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\n{framing}"));
        assert_eq!(client.response().text(), "fine");
    }
    let requests = upstream.requests();
    assert!(requests.iter().all(|request| request.head.line().ends_with("/ HTTP/1.1") && request.body == b"body"));
    assert_eq!(requests.len(), 4);
}

#[test]
fn an_upstream_connection_is_not_kept_longer_than_its_idle_timeout() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("upstream.idle_timeout", "100ms").start();
    gateway.client().get("http://origin.test/");
    upstream.wait_for_ends(1, Duration::from_secs(3));
}

#[test]
fn an_upstream_connection_with_an_unfinished_exchange_is_not_used_again() {
    let upstream = Upstream::start(|conn| {
        let number = conn.number;
        while conn.request_head()?.is_some() {
            match number {
                // Half a body, and then nothing.
                1 => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?,
                _ => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")?,
            }
        }
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    client.head();
    assert_eq!(client.exactly(4), b"half");
    drop(client);
    upstream.wait_for_ends(1, Duration::from_secs(2));
    assert_eq!(gateway.client().get("http://origin.test/").text(), "next");
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_body_that_breaks_off_is_cut_for_the_client_too() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let upstream = Upstream::start(move |conn| {
            conn.request()?;
            conn.send(response)
        });
        let gateway = Setup::of([upstream.url()]).start();
        let mut client = gateway.client();
        client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
        client.head();
        let rest = client.until_close();
        assert!(rest.ends_with(b"half") || rest.ends_with(b"half\r\n"), "{:?}", String::from_utf8_lossy(&rest));
        assert_eq!(upstream.connections(), 1, "an answer that has begun is not asked for again");
    }
}

#[test]
fn expect_100_continue_works_from_end_to_end() {
    let upstream = Upstream::start(|conn| {
        let Some(head) = conn.request_head()? else { return Ok(()) };
        if head.field("Expect") != Some("100-continue") || !conn.is_silent_for(A_WHILE) {
            return conn.send("HTTP/1.1 500 Not So\r\nContent-Length: 0\r\n\r\n");
        }
        conn.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        let body = conn.exactly(4)?;
        conn.send([b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", &body[..]].concat())
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status(), 100);
    assert_eq!(client.send("body").response().text(), "body");
}

#[test]
fn an_upload_that_is_refused_in_time_is_never_sent() {
    let rest_of_upload = Arc::new(Mutex::new(Vec::new()));
    let seen = rest_of_upload.clone();
    let upstream = Upstream::start(move |conn| {
        conn.request_head()?;
        conn.send("HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nno!")?;
        let rest = conn.until_close()?;
        seen.lock().unwrap().extend(rest);
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client
        .send("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\nExpect: 100-continue\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status(), response.text()), (413, "no!"));
    drop(client);
    upstream.wait_for_ends(1, PATIENCE);
    assert!(rest_of_upload.lock().unwrap().is_empty(), "some of the body was sent all the same");
}

#[test]
fn an_upstream_proxy_that_knows_nothing_of_expect_gets_the_body_after_a_second() {
    let upstream = Upstream::start(|conn| {
        let Some(request) = conn.request()? else { return Ok(()) };
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()))?;
        conn.send(request.body)
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().status(), 100);
    assert_eq!(client.send("body").response().text(), "body");
}

#[test]
fn a_final_answer_may_come_before_the_upload_is_over() {
    let upstream = Upstream::start(|conn| {
        conn.request_head()?;
        conn.exactly(5)?;
        conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!")?;
        conn.until_close().map(drop)
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\nfirst");
    let response = client.response();
    assert_eq!((response.status(), response.text()), (403, "no!"));
    drop(client);
    upstream.wait_for_ends(1, Duration::from_secs(3));
}

/// It closes without having read the upload, and so resets the connection behind its answer.
#[test]
fn why_an_upload_was_refused_is_heard_though_the_connection_breaks() {
    let upstream = Upstream::start(|conn| {
        conn.request_head()?;
        conn.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!")
    });
    let gateway = Setup::of([upstream.url()]).start();
    for method in ["POST", "PUT"].repeat(10) {
        let mut client = gateway.client();
        client.send(format!("{method} http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n"));
        client.try_send(vec![b'x'; 3_000_000]);
        let response = client.response();
        assert_eq!((response.status(), response.text()), (413, "no!"), "{:?}", response.head);
    }
    assert_eq!(upstream.connections(), 20, "it was asked again");
}

#[test]
fn an_answer_that_ends_an_upload_and_is_no_answer_ends_its_connection() {
    for answer in [
        "101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x",
        "407 Who\r\nContent-Length: 0",
        "200 OK\r\nTransfer-Encoding: gzip, chunked",
    ] {
        let upstream = Upstream::start(move |conn| {
            conn.request_head()?;
            conn.exactly(5)?;
            conn.send(format!("HTTP/1.1 {answer}\r\n\r\n"))?;
            conn.until_close().map(drop)
        });
        let gateway = Setup::of([upstream.url()]).start();
        let mut client = gateway.client();
        client.send(
            "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\
             Content-Length: 10\r\n\r\nfirst",
        );
        assert_eq!(client.response().status(), 502);
        upstream.wait_for_ends(1, PATIENCE);
    }
}

/// The rest of an upload is never anything but that, however late it comes.
#[test]
fn what_comes_behind_an_early_answer_is_not_taken_for_a_request() {
    let hidden = "GET http://hidden.test/ HTTP/1.1\r\nHost: h\r\n\r\n";
    let upstream = Upstream::start(|conn| {
        while conn.request_head()?.is_some_and(|head| head.line().starts_with("POST")) {
            conn.exactly(5)?;
            conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno!")?;
            conn.until_close()?;
        }
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhidden!")
    });
    for pause in [Duration::ZERO, Duration::from_millis(2500)] {
        let gateway = Setup::of([upstream.url()]).start();
        let mut client = gateway.client();
        let length = 5 + hidden.len();
        client.send(format!("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\nfirst"));
        assert_eq!(client.response().status(), 403);
        std::thread::sleep(pause); // a client that takes its time
        client.try_send(hidden);
        client.is_silent_for(A_WHILE);
    }
    assert!(
        upstream.requests().iter().all(|request| request.head.line().starts_with("POST")),
        "{:?}",
        upstream.requests()
    );
}

#[test]
fn every_response_leaves_with_one_clean_framing() {
    for method in ["GET", "POST"] {
        assert_eq!(
            answered(method, "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nX: y\r\n\r\nhello"),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
        );
        assert_eq!(
            answered(method, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
        );
        // Both: the coding wins, and the length does not reach anyone who might believe it (RFC 9112 section 6.3).
        let both = answered(
            method,
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        );
        assert!(!both.to_lowercase().contains("content-length"), "{both}");
        assert!(both.contains("5\r\nhello\r\n0\r\n\r\n"), "{both}");
    }
}

#[test]
fn lengths_that_contradict_each_other_never_reach_the_client() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!");
    let gateway = Setup::of([upstream.url()]).set("retry.attempts", 1).start();
    let response = gateway.client().get("http://origin.test/");
    assert_eq!(response.status(), 502);
    assert!(response.field("Proxy-Status").unwrap().contains("error=http_protocol_error"));
}

#[test]
fn a_switch_of_protocols_nobody_asked_for_is_nonsense() {
    let upstream =
        Upstream::answering("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nbytes");
    let gateway = Setup::of([upstream.url()]).set("retry.attempts", 1).start();
    let response = gateway.client().get("http://origin.test/");
    assert_eq!(response.status(), 502);
    assert!(response.field("Proxy-Status").unwrap().contains("error=http_protocol_error"));
}

#[test]
fn a_websocket_passes_with_the_bytes_right_behind_its_101() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX: y\r\n\r\nfirst",
        )?;
        conn.echo()
    });
    let gateway = Setup::of([upstream.url()]).set("gateway.proxy_status", "never").start();
    let mut client = gateway.client();
    client.send(
        "GET http://origin.test/ws HTTP/1.1\r\nHost: origin.test\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Key: AA==\r\n\r\nearly",
    );
    let head = client.head();
    let mut fields: Vec<_> = head.fields().collect();
    fields.sort_unstable();
    assert_eq!(head.line(), "HTTP/1.1 101 Switching Protocols");
    assert_eq!(fields, [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("X", "y")]);
    assert_eq!(client.exactly(10), b"firstearly");
    client.send("and on").finish();
    assert_eq!(client.until_close(), b"and on");
    let sent = upstream.request();
    assert_eq!((sent.field("Connection"), sent.field("Upgrade")), (Some("Upgrade"), Some("websocket")));
}

#[test]
fn a_refused_upgrade_is_an_ordinary_answer() {
    let upstream = Upstream::ok("no sockets here");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    for _ in 0..2 {
        client
            .send("GET http://origin.test/ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(client.response().text(), "no sockets here");
    }
}

/// RFC 9110 §7.8.
#[test]
fn nothing_is_upgraded_for_an_http_1_0_client() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send(
        "GET http://origin.test/ HTTP/1.0\r\nHost: h\r\nConnection: keep-alive, upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    assert_eq!(client.response().text(), "fine");
    assert_eq!(upstream.request().head.text(), "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n");
}

#[test]
fn heads_as_large_as_real_pages_send_them_pass_both_ways() {
    let cookies: String = (0..50).map(|i| format!("Set-Cookie: c{i}={}\r\n", "x".repeat(1000))).collect();
    let upstream = Upstream::answering(format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\n\r\n"));
    let gateway = Setup::of([upstream.url()]).start();
    let many: String = (0..300).map(|i| format!("X-Field-{i}: {}\r\n", "y".repeat(80))).collect();
    let response =
        gateway.client().send(format!("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n{many}\r\n")).response();
    assert_eq!(response.head.all("Set-Cookie").len(), 50);
    assert_eq!(upstream.request().head.fields().count(), 301);
}

#[test]
fn a_client_that_leaves_takes_its_request_along() {
    for method in ["GET", "POST"] {
        let upstream = Upstream::silent();
        let gateway = Setup::of([upstream.url()]).start();
        let mut client = gateway.client();
        client.send(format!("{method} http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"));
        upstream.wait_for_requests(1);
        drop(client);
        upstream.wait_for_ends(1, Duration::from_secs(2));
    }
}

#[test]
fn a_client_that_resets_in_the_middle_of_an_upload_takes_it_along() {
    let upstream = Upstream::start(|conn| {
        conn.request_head()?;
        conn.until_close().map(drop)
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4000\r\n\r\nsome");
    upstream.wait_for_requests(1);
    client.reset();
    upstream.wait_for_ends(1, Duration::from_secs(2));
    assert_eq!(upstream.connections(), 1, "a broken upload is nobody's second try");
}

/// RFC 9110 §7.6.2.
#[test]
fn max_forwards_is_counted_down_and_ends_here_at_nothing() {
    let upstream = Upstream::ok("ok");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    let mut ask_of = |target: &str, method: &str, hops: &str, body: &str| {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let fields = "Host: h\r\nX-Kept: yes\r\nCookie: s3cret\r\nProxy-Authorization: Basic s3cret\r\n";
        let request = format!("{method} {target} HTTP/1.1\r\n{fields}{length}Max-Forwards: {hops}\r\n\r\n{body}");
        client.send(request).response_to(method)
    };
    // The server as a whole.
    let answer = ask_of("http://origin.test", "OPTIONS", "0", "");
    assert_eq!((answer.status(), answer.text()), (200, ""));
    assert!(upstream.requests().is_empty());
    assert_eq!(ask_of("http://origin.test", "OPTIONS", "7", "").text(), "ok");
    let sent = upstream.request().head;
    assert_eq!((sent.line(), sent.field("Max-Forwards")), ("OPTIONS http://origin.test HTTP/1.1", Some("6")));
    let mut ask = |method: &str, hops: &str, body: &str| ask_of("http://origin.test/a", method, hops, body);
    let trace = ask("TRACE", "0", "");
    assert_eq!((trace.status(), trace.field("Content-Type")), (200, Some("message/http")));
    assert!(trace.text().starts_with("TRACE http://origin.test/a HTTP/1.1\r\n"), "{}", trace.text());
    assert!(trace.text().contains("yes") && !trace.text().contains("s3cret"), "{}", trace.text());
    let options = ask("OPTIONS", "0", "a body");
    assert_eq!((options.status(), options.text()), (200, ""));
    assert_eq!(upstream.requests().len(), 1);
    for (method, hops, left) in
        [("TRACE", "5", "4"), ("OPTIONS", "1", "0"), ("OPTIONS", "many", "many"), ("GET", "0", "0")]
    {
        assert_eq!(ask(method, hops, "").status(), 200);
        assert_eq!(upstream.requests().last().unwrap().head.field("Max-Forwards"), Some(left), "{method} {hops}");
    }
}
