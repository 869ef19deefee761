//! Further attempts: through which members, how many, and when there must be none.

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::gateway::{KEY, Setup, with_both_stores};
use crate::support::redis::Redis;
use crate::support::upstream::{Refusing, Unreachable, Upstream};
use crate::support::wire::{PATIENCE, Wire};

const POST: &str = "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody";

/// An upstream proxy that reads each request and closes without a word.
fn closing() -> Upstream {
    Upstream::start(|conn| conn.request().map(drop))
}

#[test]
fn a_dead_member_is_passed_over_whatever_the_method() {
    with_both_stores(|store| {
        let (dead, alive) = (Refusing::new(), Upstream::ok("fine"));
        let gateway = Setup::of([dead.url(), alive.url()]).over(store).start();
        let mut client = gateway.client();
        for _ in 0..4 {
            // Nothing of it was sent, so even a POST may go elsewhere.
            let answer = client.send(POST).response();
            assert_eq!(answer.text(), "fine");
            // Which of the two comes first is decided by their ports.
            let first = format!("evenkeel; next-hop={}", alive.id());
            let second = format!("{first}; attempts=2");
            let status = answer.field("Proxy-Status").unwrap();
            assert!(status == first || status == second, "{status}");
        }
        assert!(alive.requests().iter().all(|request| request.body == b"body"));
    });
}

#[test]
fn each_attempt_takes_a_member_that_was_not_tried_yet() {
    with_both_stores(|store| {
        let members: Vec<_> = (0..4).map(|_| closing()).collect();
        let gateway = Setup::of(members.iter().map(Upstream::url)).over(store).set("retry.attempts", 4).start();
        let answer = gateway.client().get("http://origin.test/");
        assert_eq!(answer.status(), 502);
        let status = answer.field("Proxy-Status").unwrap();
        assert!(status.contains("error=connection_terminated") && status.ends_with("; attempts=4"), "{status}");
        assert_eq!(members.iter().map(Upstream::connections).collect::<Vec<_>>(), [1, 1, 1, 1]);
    });
}

#[test]
fn when_no_member_is_left_the_last_failure_is_the_answer() {
    with_both_stores(|store| {
        let members = [closing(), closing()];
        let gateway = Setup::of(members.iter().map(Upstream::url)).over(store).set("retry.attempts", 10).start();
        let answer = gateway.client().get("http://origin.test/");
        let status = answer.field("Proxy-Status").unwrap();
        assert!(status.contains("error=connection_terminated") && status.ends_with("; attempts=2"), "{status}");
        assert_eq!(answer.status(), 502);
        assert_eq!(members.iter().map(Upstream::connections).collect::<Vec<_>>(), [1, 1]);
    });
}

#[test]
fn every_attempt_is_counted_as_an_allocation() {
    let redis = Redis::start();
    let members = [closing(), closing(), closing(), closing()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).redis(&redis).start();
    gateway.client().get("http://origin.test/");
    let scores: Vec<_> = redis.scores(KEY).into_iter().map(|(_, score)| score).collect();
    assert_eq!(scores, ["0", "1", "1", "1"]); // three attempts by default
}

#[test]
fn a_request_whose_attempts_are_used_up_is_not_tried_again() {
    let members = [closing(), closing(), closing()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).set("retry.attempts", 2).start();
    gateway.client().get("http://origin.test/");
    assert_eq!(members.iter().map(Upstream::connections).sum::<usize>(), 2);
}

#[test]
fn no_attempt_begins_after_the_deadline() {
    let members: Vec<_> = (0..8).map(|_| Unreachable::new()).collect();
    let gateway = Setup::of(members.iter().map(Unreachable::url))
        .set("retry.attempts", 8)
        .set("retry.deadline", "500ms")
        .set("upstream.dial_timeout", "300ms")
        .start();
    let started = Instant::now();
    let answer = gateway.client().get("http://origin.test/");
    assert_eq!(answer.status(), 504);
    assert!(answer.field("Proxy-Status").unwrap().ends_with("; attempts=2"), "{}", answer.head.text());
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn a_post_is_never_sent_twice() {
    let members = [closing(), closing(), closing()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).start();
    for method in ["POST", "PATCH"] {
        let answer = gateway.client().send(POST.replace("POST", method)).response();
        assert_eq!(answer.status(), 502);
        assert!(!answer.field("Proxy-Status").unwrap().contains("attempts"));
    }
    assert_eq!(members.iter().map(|m| m.requests().len()).sum::<usize>(), 2);
}

#[test]
fn a_missing_response_head_is_not_waited_for_twice() {
    let members = [Upstream::silent(), Upstream::silent()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).set("upstream.response_timeout", "200ms").start();
    assert_eq!(gateway.client().get("http://origin.test/").status(), 504);
    assert_eq!(members.iter().map(Upstream::connections).sum::<usize>(), 1);
}

#[test]
fn nothing_is_repeated_once_the_answer_has_begun() {
    let breaking = || {
        Upstream::start(|conn| {
            conn.request()?;
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        })
    };
    let members = [breaking(), breaking()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    assert_eq!(client.until_close(), b"half");
    assert_eq!(members.iter().map(Upstream::connections).sum::<usize>(), 1);
}

/// Sends a PUT of so many bytes to two members that close, and gives what each of them read.
fn put(size: usize, framing: &str) -> (Vec<Vec<u8>>, u16) {
    let members = [closing(), closing()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).set("retry.replay_bytes", "64KiB").start();
    let body: Vec<u8> = (0..size).map(|i| b'a' + (i % 26) as u8).collect();
    let mut client = gateway.client();
    client.send(format!("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n"));
    if framing.starts_with("Transfer") {
        for chunk in body.chunks(10_000) {
            client.send(format!("{:x}\r\n", chunk.len())).send(chunk).send("\r\n");
        }
        client.send("0\r\n\r\n");
    } else {
        client.send(&body);
    }
    let status = client.response().status();
    let bodies: Vec<_> = members.iter().flat_map(Upstream::requests).map(|request| request.body).collect();
    assert!(bodies.iter().all(|read| *read == body), "a body was changed");
    (bodies, status)
}

#[test]
fn a_small_put_is_replayed_whole() {
    for framing in ["Content-Length: 60000", "Transfer-Encoding: chunked"] {
        let (bodies, status) = put(60_000, framing);
        assert_eq!((bodies.len(), status), (2, 502), "{framing}");
    }
}

#[test]
fn a_put_too_big_to_keep_is_sent_once() {
    for framing in ["Content-Length: 70000", "Transfer-Encoding: chunked"] {
        let (bodies, status) = put(70_000, framing);
        assert_eq!((bodies.len(), status), (1, 502), "{framing}");
    }
}

#[test]
fn a_replayed_body_keeps_its_trailers() {
    let members = [closing(), closing()];
    let gateway = Setup::of(members.iter().map(Upstream::url)).start();
    let mut client = gateway.client();
    client.send(
        "PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         4\r\nbody\r\n0\r\nX-Sum: 4\r\n\r\n",
    );
    assert_eq!(client.response().status(), 502);
    let sent: Vec<_> = members.iter().flat_map(Upstream::requests).collect();
    assert_eq!(sent.len(), 2);
    for request in sent {
        assert_eq!((&request.body[..], &*request.trailers.to_lowercase()), (&b"body"[..], "x-sum: 4\r\n"));
    }
}

/// The first member has read some of the body, and would go on reading.
#[test]
fn an_upload_that_goes_on_through_another_member_loses_nothing() {
    let rejecting = Upstream::start(|conn| {
        conn.request_head()?;
        conn.until(b"first")?;
        conn.send("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")?;
        conn.until_close().map(drop)
    });
    let (taken, bodies) = mpsc::channel();
    let taken = Mutex::new(taken);
    let accepting = Upstream::start(move |conn| {
        let Some(head) = conn.request_head()? else { return Ok(()) };
        let _ = taken.lock().unwrap().send(Wire::request(conn, head)?.body);
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
    });
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "0", &rejecting.url(), "1", &accepting.url()]);
    let gateway = Setup::of([""; 0]).redis(&redis).start();
    let mut client = gateway.client();
    client.send("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    accepting.wait_for_requests(1);
    let mut body = b"first".to_vec();
    for i in 0..100 {
        let chunk = format!("{i:05}").repeat(1000);
        client.send(format!("1388\r\n{chunk}\r\n"));
        body.extend(chunk.as_bytes());
    }
    assert_eq!(client.send("0\r\n\r\n").response().text(), "fine");
    assert!(bodies.recv_timeout(PATIENCE).unwrap() == body, "a piece went to the other member");
    rejecting.wait_for_ends(1, PATIENCE);
}

/// Serves each connection's first request; a second one on it is read, and the connection closed without an answer.
fn stale() -> Upstream {
    Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")?;
        conn.request().map(drop)
    })
}

/// Also when it is the only member: the connection is to blame, not the member.
#[test]
fn a_get_on_a_stale_kept_connection_is_sent_again() {
    with_both_stores(|store| {
        let upstream = stale();
        let gateway = Setup::of([upstream.url()]).over(store).set("gateway.threads", 1).start();
        let mut client = gateway.client();
        for _ in 0..3 {
            assert_eq!(client.get("http://origin.test/").text(), "fine");
        }
        assert_eq!(upstream.requests().len(), 5);
    });
}

#[test]
fn a_post_on_a_stale_kept_connection_is_not_sent_again() {
    let upstream = stale();
    let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).start();
    let mut client = gateway.client();
    assert_eq!(client.send(POST).response().text(), "fine");
    let answer = client.send(POST).response();
    assert_eq!(answer.status(), 502);
    assert!(answer.field("Proxy-Status").unwrap().contains("error=connection_terminated"));
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn a_connection_closed_while_it_was_kept_costs_no_request() {
    let upstream = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
    });
    let gateway = Setup::of([upstream.url()]).set("gateway.threads", 1).set("retry.attempts", 1).start();
    let mut client = gateway.client();
    for served in 1..=3 {
        assert_eq!(client.send(POST).response().text(), "fine");
        upstream.wait_for_ends(served, Duration::from_secs(2));
        std::thread::sleep(Duration::from_millis(20)); // the gateway may see the close a moment after it was made
    }
}

#[test]
fn a_member_that_rejects_our_credentials_is_passed_over() {
    let rejecting = Upstream::answering("HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n");
    let accepting = Upstream::ok("fine");
    let gateway = Setup::of([rejecting.url_with("u:old"), accepting.url()]).start();
    let mut client = gateway.client();
    for _ in 0..4 {
        assert_eq!(client.get("http://origin.test/").text(), "fine");
    }
}
