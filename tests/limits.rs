//! Limits on clients: how many, how slow, how silent; and what happens without descriptors.

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, prlimit};

use crate::support::client::Client;
use crate::support::gateway::{Setup, eventually};
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

/// So many of the clients, and no more, are told that the gateway is full.
fn check_refused(clients: &mut Vec<Client>, expected: usize) {
    let mut refused = 0;
    eventually(PATIENCE, &format!("{expected} of {} clients refused", clients.len()), || {
        clients.retain_mut(|client| match client.said_unasked(Duration::from_millis(1)) {
            Some(answer) => {
                refused += 1;
                assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=connection_limit_reached"));
                false
            }
            None => true,
        });
        refused >= expected
    });
    assert_eq!(refused, expected);
}

#[test]
fn one_client_too_many_is_503_connection_limit_reached() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("gateway.max_connections", 2).start();
    let mut served: Vec<_> = (0..2).map(|_| gateway.client()).collect();
    for client in &mut served {
        assert_eq!(client.get("http://origin.test/").text(), "fine");
    }
    let mut refused = gateway.client();
    let answer = refused.response(); // without being asked anything
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=connection_limit_reached"));
    assert_eq!(answer.field("Content-Length"), Some(&*answer.body.len().to_string()));
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(refused.until_close(), b"");

    drop(served.pop());
    eventually(PATIENCE, "a place for the next client", || {
        let mut client = gateway.client();
        // Refused clients are answered unasked, so the request may find the door closed.
        client.try_send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n") && client.response().status() == 200
    });
    assert_eq!(served[0].get("http://origin.test/").text(), "fine");
}

#[test]
fn a_new_client_that_says_nothing_is_let_go_after_the_head_timeout() {
    let gateway = Setup::of([""; 0]).set("gateway.head_timeout", "300ms").start();
    let started = Instant::now();
    assert_eq!(gateway.client().until_close(), b"");
    assert!(
        (Duration::from_millis(250)..Duration::from_secs(3)).contains(&started.elapsed()),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_kept_client_that_says_nothing_is_let_go_after_the_idle_timeout() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("gateway.idle_timeout", "300ms").start();
    let mut client = gateway.client();
    client.get("http://origin.test/");
    let started = Instant::now();
    assert_eq!(client.until_close(), b"");
    assert!(
        (Duration::from_millis(250)..Duration::from_secs(4)).contains(&started.elapsed()),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_client_that_thought_for_a_while_is_served_as_before() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.get("http://origin.test/");
    std::thread::sleep(Duration::from_millis(2500)); // longer than a connection stays in hyper with nothing to say
    for _ in 0..2 {
        assert_eq!(client.get("http://origin.test/").text(), "fine");
    }
    client.send("GET http://origin.te");
    std::thread::sleep(Duration::from_millis(1500)); // likewise, in the middle of a head
    client.send("st/ HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response().text(), "fine");
}

/// The response's deadline does not run while the request's body is on its way.
#[test]
fn a_slow_upload_is_not_a_late_answer() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("upstream.response_timeout", "400ms").start();
    let mut client = gateway.client();
    client.send("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\n");
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(150)); // a slow line
        client.send("x");
    }
    assert_eq!(client.response().text(), "fine");
}

#[test]
fn an_upload_that_stalls_is_408_and_not_the_members_fault() {
    let upstream = Upstream::start(|conn| {
        conn.request_head()?;
        conn.until_close().map(drop)
    });
    let gateway = Setup::of([upstream.url()]).set("upstream.response_timeout", "300ms").start();
    let mut client = gateway.client();
    client.send("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 8\r\n\r\nhalf");
    let answer = client.response();
    assert_eq!(answer.status(), 408);
    assert!(answer.field("Proxy-Status").unwrap().starts_with("evenkeel; error=http_request_error"));
    assert_eq!(upstream.connections(), 1);
    upstream.wait_for_ends(1, Duration::from_secs(3));
}

#[test]
fn a_tunnel_in_which_nothing_moves_is_ended() {
    let upstream = Upstream::echoing();
    let gateway = Setup::of([upstream.url()]).set("gateway.tunnel_idle_timeout", "500ms").start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    let started = Instant::now();
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(150)); // a quiet tunnel, not a dead one
        assert_eq!(client.send("x").exactly(1), b"x");
    }
    assert!(started.elapsed() > Duration::from_millis(800));
    assert_eq!(client.until_close(), b"");
    upstream.wait_for_ends(1, Duration::from_secs(2));
}

#[test]
fn an_exchange_in_which_nothing_moves_is_ended() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")?;
        conn.until_close().map(drop)
    });
    let gateway = Setup::of([upstream.url()]).set("gateway.tunnel_idle_timeout", "300ms").start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    client.head();
    assert_eq!(client.until_close(), b"half");
    upstream.wait_for_ends(1, Duration::from_secs(3));
}

#[test]
fn an_idle_gateway_does_nothing() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut clients: Vec<_> = (0..20).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.get("http://origin.test/");
    }
    std::thread::sleep(Duration::from_millis(2500)); // until every connection is parked
    let before = gateway.cpu_time();
    std::thread::sleep(Duration::from_secs(1)); // the span that is measured
    assert!(gateway.cpu_time() - before <= Duration::from_millis(50), "{:?}", gateway.cpu_time() - before);
}

/// EMFILE: no busy loop, no exit, a 503 for who is already in, and all is well once there are descriptors again.
#[test]
fn without_descriptors_the_gateway_waits_and_recovers() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
    let mut inside = gateway.client();
    assert_eq!(inside.get("http://origin.test/").text(), "fine");
    let open = || std::fs::read_dir(format!("/proc/{}/fd", gateway.pid().as_raw_nonzero())).unwrap().count() as u64;
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    prlimit(Some(gateway.pid()), Resource::Nofile, limit(open() + 4)).unwrap();

    // The kernel completes these; the gateway cannot accept them all.
    let mut waiting: Vec<Client> = (0..16).map(|_| gateway.client()).collect();
    eventually(PATIENCE, "a complaint in the log", || gateway.log().contains("cannot accept"));
    let before = gateway.cpu_time();
    std::thread::sleep(Duration::from_secs(1)); // the span that is measured
    assert!(gateway.cpu_time() - before < Duration::from_millis(200), "{:?}", gateway.cpu_time() - before);
    assert_eq!(gateway.log().matches("cannot accept").count(), 1, "{}", gateway.log());

    // A tunnel needs a new connection.
    let answer = inside.send("CONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n\r\n").response();
    assert_eq!(answer.status(), 503);
    assert!(answer.field("Proxy-Status").unwrap().contains("error=connection_limit_reached"));

    let last = waiting.pop().unwrap();
    drop(waiting);
    let mut last = last;
    assert_eq!(last.get("http://origin.test/").text(), "fine", "who waited in the queue is served");
    for _ in 0..3 {
        assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    }
}

#[test]
fn more_connections_than_descriptors_are_not_promised() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_evenkeel");
    command
        .args(["-c", "ulimit -n 104; exec \"$0\" --listen 127.0.0.1:0", program])
        .env("EVENKEEL_GATEWAY__MAX_CONNECTIONS", "1000")
        .current_dir(dir.path());
    let gateway = crate::support::gateway::Gateway::spawn(command, dir);
    eventually(PATIENCE, "a warning", || gateway.log().contains("more than the descriptor limit allows"));
    let log = gateway.log();
    let allowed = log.split_once("allowed=").expect("how many are").1.split_whitespace().next().expect("a number");
    let allowed: usize = allowed.parse().expect("a number");
    assert!((10..=40).contains(&allowed), "{allowed} clients with 40 descriptors to spare");
    let mut clients: Vec<_> = (0..allowed + 1).map(|_| gateway.client()).collect();
    check_refused(&mut clients, 1);
}

/// However many threads accept at once.
#[test]
fn a_burst_of_clients_does_not_get_past_the_limit() {
    for _ in 0..5 {
        let gateway = Setup::of([""; 0]).set("gateway.max_connections", 10).set("gateway.threads", 4).start();
        let mut clients: Vec<_> = (0..40).map(|_| gateway.client()).collect();
        check_refused(&mut clients, 30);
    }
}
