//! CONNECT: the handshake, what is carried, and how a tunnel ends.

use std::io;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::support::client::curl_text;
use crate::support::gateway::{Setup, with_both_stores};
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

/// How long the gateway waits for a side that says nothing.
const LINGER: Duration = Duration::from_secs(2);

#[test]
fn a_tunnel_carries_bytes_both_ways() {
    with_both_stores(|store| {
        let upstream = Upstream::echoing();
        let gateway = Setup::of([upstream.url_with("u:p")]).over(store).start();
        let mut client = gateway.client();
        let head = client
            .send("CONNECT origin.test:443 HTTP/1.1\r\nHost: other.test\r\nUser-Agent: t\r\nProxy-Authorization: Basic x\r\nProxy-Connection: keep-alive\r\n\r\n")
            .head();
        assert_eq!(head.line(), "HTTP/1.1 200 Connection established");
        assert_eq!((head.field("Content-Length"), head.field("Transfer-Encoding")), (None, None));
        assert!(head.field("Proxy-Status").unwrap().starts_with("evenkeel; next-hop="));
        assert_eq!(client.send("there").exactly(5), b"there");
        assert_eq!(client.send("and back").exactly(8), b"and back");
        assert_eq!(
            upstream.request().head.text(),
            "CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\nUser-Agent: t\r\n\
             Proxy-Authorization: Basic dTpw\r\n\r\n"
        );
    });
}

#[test]
fn curl_tunnels_a_page_through_the_gateway() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na page")
    });
    let gateway = Setup::of([upstream.url()]).start();
    assert_eq!(curl_text(&["-p", "-x", &gateway.url(), "http://origin.test/"]), "a page");
    assert_eq!(upstream.requests()[1].head.line(), "GET / HTTP/1.1");
}

#[test]
fn what_either_side_sends_early_is_not_lost() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        // In one write with the head: a server that speaks first.
        conn.send("HTTP/1.1 200 OK\r\n\r\n220 ready\r\n")?;
        conn.echo()
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("CONNECT origin.test:25 HTTP/1.1\r\nHost: origin.test:25\r\n\r\nEHLO early\r\n");
    assert_eq!(client.head().status(), 200);
    assert_eq!(client.exactly(11), b"220 ready\r\n");
    assert_eq!(client.exactly(12), b"EHLO early\r\n");
}

#[test]
fn an_end_of_the_clients_direction_leaves_the_other_open() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        let all = conn.until_close()?; // the client has finished; the answer comes only now
        conn.send(format!("{} bytes", all.len()))
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    client.send(vec![b'x'; 200_000]).finish();
    assert_eq!(client.until_close(), b"200000 bytes");
}

/// Whoever closes may still have said something, and the other side may not have known (RFC 9110 §9.3.6).
#[test]
fn the_last_words_of_a_side_that_has_closed_arrive_though_the_other_goes_on_talking() {
    const LENGTH: usize = 300_000;
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        conn.send(vec![b'x'; LENGTH])?;
        conn.wait_until_acknowledged()
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    upstream.wait_for_ends(1, PATIENCE);
    // What is written to a socket that has closed is answered with a reset.
    for _ in 0..200 {
        client.try_send("more");
    }
    assert_eq!(client.until_close().len(), LENGTH);
}

#[test]
fn the_last_words_of_a_client_that_has_left_arrive_though_the_other_side_goes_on_talking() {
    const LENGTH: usize = 300_000;
    let (left, has_left) = mpsc::channel();
    let has_left = Mutex::new(has_left);
    let (heard, all) = mpsc::channel();
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        has_left.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        for _ in 0..200 {
            conn.send("ack")?;
        }
        heard.send(conn.until_close()?.len()).map_err(io::Error::other)
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    client.send(vec![b'x'; LENGTH]).wire().wait_until_acknowledged().unwrap();
    drop(client);
    left.send(()).unwrap();
    assert_eq!(all.recv_timeout(PATIENCE), Ok(LENGTH));
}

#[test]
fn a_tunnel_ends_at_once_when_one_side_has_gone_and_the_other_sends_without_end() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        let piece = vec![b'x'; 64 << 10];
        loop {
            conn.send(&piece)?;
        }
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    client.exactly(1 << 20);
    drop(client);
    assert!(upstream.wait_for_ends(1, PATIENCE) < LINGER);
}

#[test]
fn an_end_of_the_upstream_direction_leaves_the_other_open() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\nall there is")?;
        conn.finish()?;
        let rest = conn.until_close()?;
        if rest == b"still heard" { Ok(()) } else { panic!("{rest:?}") }
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    assert_eq!(client.until_close(), b"all there is");
    client.send("still heard").finish();
    upstream.wait_for_ends(1, PATIENCE);
}

#[test]
fn a_broken_side_ends_the_tunnel() {
    let upstream = Upstream::echoing();
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    client.send("x").exactly(1);
    client.reset();
    upstream.wait_for_ends(1, Duration::from_secs(2));
}

#[test]
fn a_client_that_leaves_before_the_answer_ends_the_attempt() {
    let upstream = Upstream::silent();
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n");
    upstream.wait_for_requests(1);
    drop(client);
    upstream.wait_for_ends(1, Duration::from_secs(2));
}

#[test]
fn any_2xx_opens_the_tunnel() {
    for reply in [
        "HTTP/1.0 200 Connection established\r\nProxy-Agent: old\r\n\r\n",
        "HTTP/1.1 201 \r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        // Neither means anything here (RFC 9110 section 9.3.6).
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 299 Yes\r\n\r\n",
    ] {
        let upstream = Upstream::start(move |conn| {
            conn.request()?;
            conn.send(reply)?;
            conn.echo()
        });
        let gateway = Setup::of([upstream.url()]).start();
        let mut client = gateway.client();
        let head = client.connect("origin.test:443");
        assert_eq!(head.status(), 200, "{reply}");
        assert_eq!((head.field("Content-Length"), head.field("Transfer-Encoding")), (None, None), "{reply}");
        assert_eq!(client.send("hello").exactly(5), b"hello", "{reply}");
    }
}

#[test]
fn a_reply_head_of_20_kib_is_read_and_its_fields_passed_on() {
    let fields: String = (0..20).map(|i| format!("X-Explained-{i}: {}\r\n", "y".repeat(1000))).collect();
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send(format!("HTTP/1.1 200 OK\r\n{fields}X-Exit: 192.0.2.1\r\n\r\nfirst"))?;
        conn.echo()
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    let head = client.connect("origin.test:443");
    assert_eq!((head.status(), head.field("X-Exit")), (200, Some("192.0.2.1")));
    assert_eq!(client.exactly(5), b"first");
}

#[test]
fn a_reply_that_comes_byte_by_byte_is_read() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        for byte in b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nx" {
            conn.send([*byte])?;
        }
        conn.echo()
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:443").status(), 200);
    assert_eq!(client.send("y").exactly(2), b"xy");
}

#[test]
fn an_ipv6_authority_reaches_the_upstream_proxy_in_brackets() {
    let upstream = Upstream::echoing();
    let gateway = Setup::of([upstream.url()]).start();
    assert_eq!(gateway.client().connect("[2001:db8::1]:443").status(), 200);
    assert_eq!(upstream.request().head.text(), "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n");
}

#[test]
fn a_refused_tunnel_is_tried_elsewhere_and_then_says_what_was_received() {
    with_both_stores(|store| {
        let refusing: Vec<_> = (0..3)
            .map(|_| Upstream::answering("HTTP/1.1 503 No\r\nX-Secret: s\r\nContent-Length: 9\r\n\r\nnot today"))
            .collect();
        let gateway = Setup::of(refusing.iter().map(Upstream::url)).over(store).start();
        let mut client = gateway.client();
        client.send("CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n");
        let answer = client.response();
        assert_eq!(answer.status(), 502);
        let status = answer.field("Proxy-Status").unwrap();
        assert!(status.starts_with("evenkeel; error=connection_refused; received-status=503; next-hop="), "{status}");
        assert!(status.ends_with("; attempts=3"), "{status}");
        assert_eq!(answer.field("X-Secret"), None);
        for upstream in &refusing {
            assert_eq!(upstream.connections(), 1);
        }
        // What a client sends behind a refused CONNECT was meant for the tunnel, so nothing of it is read as a request.
        assert_eq!(answer.field("Connection"), Some("close"));
        assert_eq!(client.until_close(), b"");
    });
}

#[test]
fn a_tunnel_one_member_refuses_opens_through_the_next() {
    let (refusing, echoing) = (Upstream::answering("HTTP/1.1 403 No\r\n\r\n"), Upstream::echoing());
    let gateway = Setup::of([refusing.url(), echoing.url()]).start();
    for _ in 0..2 {
        let mut client = gateway.client();
        let head = client.connect("origin.test:443");
        assert_eq!(head.status(), 200);
        assert!(head.field("Proxy-Status").unwrap().contains(&echoing.id()));
        assert_eq!(client.send("hello").exactly(5), b"hello");
    }
    assert!(refusing.connections() > 0);
}

#[test]
fn early_bytes_wait_for_the_member_that_opens_the_tunnel() {
    let (refusing, echoing) = (Upstream::answering("HTTP/1.1 403 No\r\n\r\n"), Upstream::echoing());
    let gateway = Setup::of([refusing.url(), echoing.url()]).start();
    for _ in 0..2 {
        let mut client = gateway.client();
        client.send("CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\nearly");
        assert_eq!(client.head().status(), 200);
        assert_eq!(client.exactly(5), b"early");
    }
    assert!(refusing.requests().iter().all(|request| request.body.is_empty()));
}

#[test]
fn a_407_to_our_credentials_is_not_passed_on_to_the_client() {
    let upstream = Upstream::answering(
        "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=\"theirs\"\r\nContent-Length: 0\r\n\r\n",
    );
    let gateway = Setup::of([upstream.url_with("u:wrong")]).start();
    let mut client = gateway.client();
    client.send("CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n");
    let answer = client.response();
    assert_eq!((answer.status(), answer.field("Proxy-Authenticate")), (502, None));
    let status = answer.field("Proxy-Status").unwrap();
    assert!(status.contains("error=proxy_configuration_error; received-status=407"), "{status}");
}

#[test]
fn a_connect_with_a_body_is_refused_before_anything_is_chosen() {
    let upstream = Upstream::echoing();
    let gateway = Setup::of([upstream.url()]).start();
    for framing in ["Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"] {
        let mut client = gateway.client();
        client.send(format!("CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n{framing}"));
        let answer = client.response();
        assert_eq!((answer.status(), answer.field("Connection")), (400, Some("close")));
        assert_eq!(client.until_close(), b"");
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_tunnel_moves_much_in_both_directions_at_once() {
    const SIZE: usize = 8 << 20;
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        let mut writer = conn.stream.try_clone()?;
        let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &vec![b'u'; SIZE]));
        let received = conn.exactly(SIZE)?;
        sender.join().expect("no panic")?;
        conn.send([u8::from(received.iter().all(|&b| b == b'c'))])
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    let mut writer = client.wire().stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &vec![b'c'; SIZE]));
    assert!(client.exactly(SIZE).iter().all(|&b| b == b'u'));
    sender.join().unwrap().unwrap();
    assert_eq!(client.exactly(1), [1]);
}

/// Bytes that tell where they are, so that none can be lost, repeated or moved unseen.
fn numbered(length: usize) -> Vec<u8> {
    (0_u64..).flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).take(length).collect()
}

fn descriptors(gateway: &crate::support::gateway::Gateway) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", gateway.pid().as_raw_nonzero())).expect("a running gateway").count()
}

#[test]
fn bulk_goes_both_ways_at_once_whole_and_in_order_and_its_pipes_are_closed() {
    const SIZE: usize = 32 << 20;
    let expected = numbered(SIZE);
    let from_origin = expected.clone();
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        let mut writer = conn.stream.try_clone()?;
        let from_origin = from_origin.clone();
        let writing = std::thread::spawn(move || {
            use std::io::Write as _;
            writer.write_all(&from_origin)?;
            writer.shutdown(std::net::Shutdown::Write)
        });
        let received = conn.until_close()?;
        assert!(received == numbered(SIZE), "the upload is not what was sent");
        writing.join().expect("the writer")
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:443").status(), 200);
    let before = descriptors(&gateway);
    let mut sender = client.wire().stream.try_clone().unwrap();
    let upload = expected.clone();
    let sending = std::thread::spawn(move || {
        use std::io::Write as _;
        sender.write_all(&upload).unwrap();
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    // A reader that stops for a while: everything between waits, nothing is lost.
    let mut received = client.exactly(5 << 20);
    std::thread::sleep(Duration::from_millis(200));
    received.extend(client.until_close());
    sending.join().unwrap();
    assert!(received == expected, "the download is not what was sent");
    upstream.wait_for_ends(1, PATIENCE);
    crate::support::gateway::eventually(PATIENCE, "sockets and pipes are closed", || descriptors(&gateway) < before);
}

#[test]
fn a_bulk_tunnel_whose_client_breaks_off_ends_at_the_upstream_proxy() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        let chunk = vec![7; 1 << 20];
        // Until it is cut.
        while conn.send(&chunk).is_ok() {}
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:443").status(), 200);
    client.exactly(8 << 20);
    // Two sockets and a pipe at least.
    let busy = descriptors(&gateway);
    client.reset();
    upstream.wait_for_ends(1, Duration::from_secs(3));
    crate::support::gateway::eventually(PATIENCE, "sockets and pipe are closed", || descriptors(&gateway) + 4 <= busy);
}
