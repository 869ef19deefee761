//! Between hyper and the short way: a connection goes back and forth, and no request may see the seam.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::gateway::Setup;
use crate::support::upstream::Upstream;

const POST: &str = "POST http://origin.test/p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
const GET: &str = "GET http://origin.test/g HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn what_is_ambiguous_is_refused_behind_a_body_as_well() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let ambiguous = "POST http://origin.test/x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let mut client = gateway.client();
    client.send(format!("{POST}{ambiguous}"));
    assert_eq!(client.response().status(), 200);
    assert_eq!(client.response().status(), 400);
    assert_eq!(upstream.requests().len(), 1, "the ambiguous one went on");
}

#[test]
fn a_tunnel_and_a_bare_options_may_follow_a_body() {
    let upstream = Upstream::start(|conn| {
        while let Some(request) = conn.request()? {
            if request.head.line().starts_with("CONNECT") {
                conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
                return conn.echo();
            }
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send(format!(
        "{POST}OPTIONS http://origin.test HTTP/1.1\r\nHost: h\r\n\r\nCONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n\r\nearly"
    ));
    assert_eq!(client.response().status(), 200);
    assert_eq!(client.response_to("OPTIONS").status(), 200);
    assert_eq!(client.head().status(), 200);
    assert_eq!(client.exactly(5), b"early");
    assert!(upstream.requests().iter().any(|request| request.head.line() == "OPTIONS http://origin.test HTTP/1.1"));
}

#[test]
fn after_an_answer_of_our_own_to_a_body_the_connection_is_as_good_as_new() {
    let gateway = Setup::of([""; 0]).start();
    let mut client = gateway.client();
    assert_eq!(client.send(POST).response().status(), 503);
    // The short way says this of a CONNECT that finds no member; hyper's would call the request malformed.
    assert_eq!(client.send("CONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n\r\n").response().status(), 503);
}

#[test]
fn a_body_that_is_not_chunked_as_it_should_be_is_the_clients_fault() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).start();
    let mut client = gateway.client();
    client.send("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    let answer = client.response();
    assert_eq!((answer.status(), answer.field("Connection")), (400, Some("close")));
    assert_eq!(answer.field("Proxy-Status").map(|s| s.contains("error=http_request_error")), Some(true));
}

#[test]
fn a_client_that_leaves_is_noticed_although_it_sent_more() {
    let upstream = Upstream::silent();
    let gateway = Setup::of([upstream.url()]).set("upstream.response_timeout", "30s").start();
    let mut client = gateway.client();
    client.send(format!("{POST}{GET}"));
    upstream.wait_for_requests(1);
    client.reset();
    upstream.wait_for_ends(1, Duration::from_secs(3));
}

#[test]
fn a_head_that_begins_late_in_the_idle_time_has_its_own_time() {
    let upstream = Upstream::ok("fine");
    let gateway =
        Setup::of([upstream.url()]).set("gateway.idle_timeout", "1s").set("gateway.head_timeout", "5s").start();
    let mut client = gateway.client();
    assert_eq!(client.send(GET).response().status(), 200);
    let (begin, rest) = GET.split_at(20);
    sleep(Duration::from_millis(700)); // the client thinks
    client.send(begin);
    sleep(Duration::from_millis(700)); // and is slow, past the idle time
    assert_eq!(client.send(rest).response().status(), 200);
}

#[test]
fn waiting_for_an_answer_to_a_body_is_not_an_idle_tunnel() {
    let upstream = Upstream::start(|conn| {
        while conn.request()?.is_some() {
            sleep(Duration::from_millis(1500)); // the origin thinks
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        Ok(())
    });
    let gateway = Setup::of([upstream.url()]).set("gateway.tunnel_idle_timeout", "500ms").start();
    assert_eq!(gateway.client().send(POST).response().status(), 200);
}

#[test]
fn after_an_interim_answer_nothing_is_tried_again() {
    let hints = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    });
    let fine = Upstream::ok("fine");
    let gateway = Setup::of([hints.url(), fine.url()]).start();
    // Whichever is first: the one that hints and closes is never followed by the other.
    for _ in 0..2 {
        let mut client = gateway.client();
        let begun = Instant::now();
        let first = client.send(GET).head();
        let last = if first.status() == 103 { client.response().status() } else { first.status() };
        assert_eq!(last, if first.status() == 103 { 502 } else { 200 }, "after {:?}", begun.elapsed());
    }
}

#[test]
fn an_upgrade_before_the_body_has_ended_is_nonsense() {
    let upstream = Upstream::start(|conn| {
        conn.request_head()?;
        conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")?;
        conn.echo()
    });
    let gateway = Setup::of([upstream.url()]).set("retry.attempts", 1).start();
    let mut client = gateway.client();
    client.send("POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 50000\r\n\r\nbeginning");
    let answer = client.response();
    assert_eq!(answer.status(), 502);
}
