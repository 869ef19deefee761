//! Least-concurrent: what is in flight is counted while it is, and no longer, in every way a request can end.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel::pool::Pool;
use evenkeel::pool::embedded::Embedded;

use crate::support::client::Client;
use crate::support::inside::{Inside, least_concurrent};
use crate::support::redis::Redis;
use crate::support::upstream::{Conn, Refusing, Upstream, id};

const CONNECT: &str = "CONNECT tunnel.test:443 HTTP/1.1\r\nHost: tunnel.test:443\r\n\r\n";

/// One store, and gateways on it.
struct Stage {
    redis: Option<Redis>,
    most: u64,
}

impl Stage {
    fn gateway(&self, members: &[String], keys: &[(&str, &str)]) -> Inside {
        match &self.redis {
            None => {
                let pool = Embedded::least_concurrent(self.most);
                Inside::start(move || Pool::Embedded(pool.clone()), members, keys)
            }
            Some(redis) => {
                let (url, most) = (redis.url(), self.most);
                Inside::start(move || least_concurrent(&url, most), members, keys)
            }
        }
    }
}

/// Runs a test against each store, each member having at most `most` requests in flight (0: any number).
fn on_both(most: u64, test: impl Fn(&Stage)) {
    eprintln!("embedded:");
    test(&Stage { redis: None, most });
    eprintln!("redis:");
    test(&Stage { redis: Some(Redis::start()), most });
}

/// One upstream proxy, with a tunnel through it that stays: were a request released twice, that one's count would go.
struct Scene {
    gateway: Inside,
    upstream: Upstream,
    /// Lets the upstream proxy act on a request.
    go: Sender<()>,
}

impl Scene {
    /// A client whose request is in flight: the upstream proxy has it, and has not acted on it yet.
    fn sent(&self, request: &str) -> Client {
        let before = self.upstream.requests().len();
        let mut client = self.gateway.client();
        client.send(request);
        self.upstream.wait_for_requests(before + 1);
        self.gateway.wait_in_flight(2);
        client
    }

    fn go(&self) {
        self.go.send(()).expect("an upstream proxy that waits");
    }
}

/// Acts on each request as its path, or the host it names, says, when the test says so.
fn act(conn: &mut Conn, go: &Mutex<Receiver<()>>) -> io::Result<()> {
    while let Some(head) = conn.request_head()? {
        let wait = || go.lock().unwrap_or_else(PoisonError::into_inner).recv().map_err(|_| io::ErrorKind::BrokenPipe);
        if head.line().starts_with(CONNECT.lines().next().unwrap()) {
            conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
            return conn.echo();
        }
        wait()?;
        let body = || conn_length(&head);
        let url = head.line().split(' ').nth(1).unwrap_or_default();
        let what = url.rsplit_once('/').map_or(url.trim_end_matches(".test:443"), |(_, path)| path);
        if what != "early" {
            conn.exactly(body())?;
        }
        match what {
            "whole" => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")?,
            "slow" => {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")?;
                wait()?;
                conn.send("half")?;
            }
            "chunked" => {
                conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n")?;
                conn.send("0\r\nX: y\r\n\r\n")?;
            }
            "until-close" => return conn.send("HTTP/1.1 200 OK\r\n\r\nfine"),
            "nothing" => conn.send("HTTP/1.1 204 No Content\r\n\r\n")?,
            "same" => conn.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n")?,
            "interim" => {
                conn.send("HTTP/1.1 103 Early Hints\r\n\r\n")?;
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")?;
            }
            "half" => return conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"),
            "half-chunked" => return conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf"),
            "half-head" => return conn.send("HTTP/1.1 200 OK\r\nContent-"),
            "closed" => return Ok(()),
            "reset" => {
                socket2::SockRef::from(&conn.stream).set_linger(Some(Duration::ZERO))?;
                return Ok(());
            }
            "nonsense" => return conn.send("220 ready\r\n\r\n"),
            "credentials" => conn.send("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")?,
            "refused" => return conn.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"),
            "early" => return conn.send("HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
            "echo" => {
                conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
                return conn.echo();
            }
            "over" => return conn.send("HTTP/1.1 200 OK\r\n\r\nbye"),
            "switch" => {
                conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")?;
                return conn.echo();
            }
            "endless" => {
                conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
                loop {
                    conn.send(format!("10000\r\n{}\r\n", "x".repeat(0x10000)))?;
                }
            }
            // Says no more, until the gateway closes.
            "silent" => return conn.until_close().map(drop),
            other => panic!("what is {other}?"),
        }
    }
    Ok(())
}

fn conn_length(head: &crate::support::wire::Head) -> usize {
    head.field("Content-Length").map_or(0, |length| length.parse().expect("a length"))
}

/// Runs `test` with both stores, and checks that nothing but the tunnel that stays is in flight after it.
fn scene(keys: &[(&str, &str)], test: impl Fn(&Scene)) {
    on_both(0, |stage| {
        let (go, wait) = mpsc::channel();
        let wait = Mutex::new(wait);
        let upstream = Upstream::start(move |conn| act(conn, &wait));
        let keys = [&[("retry.attempts", "1")], keys].concat();
        let gateway = stage.gateway(&[upstream.url()], &keys);
        let mut tunnel = gateway.client();
        assert_eq!(tunnel.send(CONNECT).head().status(), 200);
        gateway.wait_in_flight(1);
        let mut scene = Scene { gateway, upstream, go };
        test(&scene);
        scene.gateway.wait_in_flight(1);
        // What was still on its way would have come before this one.
        let mut last = scene.sent(&get("whole"));
        scene.go();
        assert_eq!(last.response().text(), "fine");
        scene.gateway.wait_in_flight(1);
        tunnel.finish();
        assert_eq!(tunnel.until_close(), b"");
        scene.gateway.wait_in_flight(0);
        scene.gateway.finish();
    });
}

fn get(path: &str) -> String {
    format!("GET http://origin.test/{path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// With a body, and so by the longer way.
fn post(path: &str) -> String {
    format!("POST http://origin.test/{path} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
}

fn connect(what: &str) -> String {
    format!("CONNECT {what}.test:443 HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// Both ways through the gateway.
fn both_ways(path: &str) -> [String; 2] {
    [get(path), post(path)]
}

#[test]
fn an_answer_that_is_whole_ends_it_and_the_client_stays() {
    scene(&[], |scene| {
        for path in ["whole", "chunked", "nothing", "same", "interim"] {
            for request in both_ways(path) {
                let mut client = scene.sent(&request);
                scene.go();
                let mut head = client.head();
                while head.status() == 103 {
                    head = client.head();
                }
                client.body_of(head, "GET");
                scene.gateway.wait_in_flight(1);
                // The same connections once more.
                let before = scene.upstream.requests().len();
                client.send(get("whole"));
                scene.upstream.wait_for_requests(before + 1);
                scene.gateway.wait_in_flight(2);
                scene.go();
                assert_eq!(client.response().text(), "fine");
                scene.gateway.wait_in_flight(1);
            }
        }
        let mut client = scene.sent("HEAD http://origin.test/same HTTP/1.1\r\nHost: h\r\n\r\n");
        scene.go();
        assert_eq!(client.response_to("HEAD").status(), 304);
        scene.gateway.wait_in_flight(1);
    });
}

#[test]
fn an_answer_that_ends_with_its_connection_ends_it() {
    scene(&[], |scene| {
        for request in both_ways("until-close") {
            let mut client = scene.sent(&request);
            scene.go();
            assert_eq!(client.response().text(), "fine");
            scene.gateway.wait_in_flight(1);
        }
    });
}

#[test]
fn an_answer_that_breaks_off_ends_it() {
    scene(&[], |scene| {
        for path in ["half", "half-chunked"] {
            for request in both_ways(path) {
                let mut client = scene.sent(&request);
                scene.go();
                assert_eq!(client.head().status(), 200);
                client.until_close();
                scene.gateway.wait_in_flight(1);
            }
        }
    });
}

#[test]
fn no_answer_ends_it() {
    scene(&[], |scene| {
        for path in ["closed", "reset", "half-head", "nonsense", "credentials"] {
            for request in both_ways(path) {
                let mut client = scene.sent(&request);
                scene.go();
                assert_eq!(client.response().status(), 502, "{path}");
                scene.gateway.wait_in_flight(1);
            }
        }
    });
    scene(&[("upstream.response_timeout", "1s")], |scene| {
        for request in both_ways("silent") {
            let mut client = scene.sent(&request);
            scene.go();
            assert_eq!(client.response().status(), 504);
            scene.gateway.wait_in_flight(1);
        }
    });
}

#[test]
fn a_client_that_leaves_ends_it() {
    scene(&[], |scene| {
        for request in [get("silent"), post("silent"), connect("silent")] {
            for resets in [false, true] {
                // Before the answer.
                let client = scene.sent(&request);
                if resets {
                    client.reset()
                } else {
                    drop(client)
                }
                scene.gateway.wait_in_flight(1);
                scene.go();
            }
        }
        for request in both_ways("endless") {
            // In the middle of it, having read some and then no more.
            let mut client = scene.sent(&request);
            scene.go();
            assert_eq!(client.head().status(), 200);
            client.exactly(100);
            scene.gateway.wait_in_flight(2);
            drop(client);
            scene.gateway.wait_in_flight(1);
        }
    });
}

#[test]
fn a_client_that_does_not_read_holds_it_until_it_is_given_up() {
    on_both(0, |stage| {
        let upstream = Upstream::start(|conn| {
            conn.request()?;
            conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                conn.send([b'x'; 1 << 16])?;
            }
        });
        let gateway = stage.gateway(&[upstream.url()], &[("gateway.tunnel_idle_timeout", "500ms")]);
        for request in both_ways("") {
            let mut client = gateway.client();
            assert_eq!(client.send(request).head().status(), 200);
            gateway.wait_in_flight(1);
            gateway.wait_in_flight(0);
        }
    });
}

#[test]
fn an_upload_that_is_cut_ends_it() {
    scene(&[], |scene| {
        let long = "POST http://origin.test/silent HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nbegun";
        for resets in [false, true] {
            let client = scene.sent(long);
            if resets {
                client.reset()
            } else {
                drop(client)
            }
            scene.gateway.wait_in_flight(1);
            scene.go();
        }
        // The answer comes before the body has.
        let mut client = scene.sent(&long.replace("silent", "early"));
        scene.go();
        assert_eq!(client.response().status(), 413);
        scene.gateway.wait_in_flight(1);
        // Chunks that are none.
        let chunked = "POST http://origin.test/silent HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut client = scene.sent(chunked);
        client.send("no chunk\r\n");
        scene.gateway.wait_in_flight(1);
        scene.go();
    });
}

#[test]
fn a_tunnel_holds_it_until_its_end() {
    scene(&[], |scene| {
        let mut client = scene.sent(&connect("refused"));
        scene.go();
        assert_eq!(client.response().status(), 502);
        scene.gateway.wait_in_flight(1);

        holds_it_until_the_client_ends_it(scene, &connect("echo"), 200);

        let mut client = scene.sent(&connect("over"));
        scene.go();
        assert_eq!(client.head().status(), 200);
        assert_eq!(client.exactly(3), b"bye");
        client.finish();
        scene.gateway.wait_in_flight(1);
    });
}

/// What `request` opens echoes, and ends either way a client can end it.
fn holds_it_until_the_client_ends_it(scene: &Scene, request: &str, status: u16) {
    for resets in [false, true] {
        let mut client = scene.sent(request);
        scene.go();
        assert_eq!(client.head().status(), status);
        assert_eq!(client.send("there").exactly(5), b"there");
        scene.gateway.wait_in_flight(2);
        if resets {
            client.reset()
        } else {
            client.finish()
        }
        scene.gateway.wait_in_flight(1);
    }
}

#[test]
fn a_websocket_holds_it_until_its_end() {
    let request = get("switch").replace("Host: h", "Host: h\r\nConnection: Upgrade\r\nUpgrade: websocket");
    scene(&[], |scene| {
        holds_it_until_the_client_ends_it(scene, &request, 101);
        // Asked for and not given.
        let mut client = scene.sent(&request.replace("switch", "whole"));
        scene.go();
        assert_eq!(client.response().text(), "fine");
        scene.gateway.wait_in_flight(1);
    });
}

#[test]
fn a_tunnel_in_which_nothing_moves_ends_it() {
    on_both(0, |stage| {
        let upstream = Upstream::echoing();
        let gateway = stage.gateway(&[upstream.url()], &[("gateway.tunnel_idle_timeout", "400ms")]);
        let mut client = gateway.client();
        assert_eq!(client.send(CONNECT).head().status(), 200);
        gateway.wait_in_flight(1);
        assert_eq!(client.until_close(), b"");
        gateway.wait_in_flight(0);
    });
}

#[test]
fn each_attempt_holds_one_of_its_own() {
    on_both(0, |stage| {
        let (dead, silent) = (Refusing::new(), Upstream::silent());
        let gateway = stage.gateway(&[dead.url(), silent.url()], &[("upstream.idle_timeout", "0s")]);
        for request in [get(""), post(""), connect("origin")] {
            let before = silent.requests().len();
            let mut client = gateway.client();
            client.send(request);
            silent.wait_for_requests(before + 1);
            // The first member is free again while the second is at work.
            gateway.wait_in_flight(1);
            assert!(gateway.in_flight().contains_key(silent.url().as_bytes()));
            drop(client);
            gateway.wait_in_flight(0);
        }
        assert!(silent.requests().len() == 3);
    });
}

#[test]
fn a_member_at_the_limit_is_left_alone_and_all_of_them_are_a_503() {
    on_both(2, |stage| {
        let upstreams = [Upstream::echoing(), Upstream::echoing()];
        let gateway = stage.gateway(&[upstreams[0].url(), upstreams[1].url()], &[]);
        let mut tunnels: Vec<_> = (0..4).map(|_| gateway.client()).collect();
        for tunnel in &mut tunnels {
            assert_eq!(tunnel.send(CONNECT).head().status(), 200);
        }
        assert!(upstreams.iter().all(|upstream| upstream.requests().len() == 2));
        assert!(gateway.in_flight().values().all(|&count| count == 2));

        for request in [get(""), post(""), connect("origin")] {
            let answer = gateway.client().send(request).response();
            assert_eq!((answer.status(), answer.field("Retry-After")), (503, Some("1")));
            assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=connection_limit_reached"));
        }
        assert!(upstreams.iter().all(|upstream| upstream.connections() == 2), "somebody was dialed");

        tunnels.pop().unwrap().reset();
        gateway.wait_in_flight(3);
        assert_eq!(gateway.client().send(CONNECT).head().status(), 200);
    });
}

#[test]
fn a_retry_that_finds_the_others_at_the_limit_tells_the_first_failure() {
    on_both(1, |stage| {
        let (dead, busy) = (Refusing::new(), Upstream::echoing());
        let gateway = stage.gateway(&[dead.url(), busy.url()], &[]);
        let mut tunnel = gateway.client();
        assert_eq!(tunnel.send(CONNECT).head().status(), 200);
        let answer = gateway.client().get("http://origin.test/");
        let expected = format!("evenkeel; error=connection_refused; next-hop={}", dead.id());
        assert_eq!((answer.status(), answer.field("Proxy-Status")), (502, Some(&expected[..])));
    });
}

/// Whoever has an answer may ask again at once, also on another connection, and so perhaps another thread.
#[test]
fn a_member_is_free_again_when_its_answer_has_come() {
    on_both(1, |stage| {
        let upstream = Upstream::start(|conn| {
            while conn.request()?.is_some() {
                // In two pieces, the last one after a while.
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf")?;
                std::thread::sleep(Duration::from_millis(2));
                conn.send("half")?;
            }
            Ok(())
        });
        let gateway = stage.gateway(&[upstream.url()], &[("gateway.threads", "4")]);
        let mut clients: Vec<_> = (0..4).map(|_| gateway.client()).collect();
        for round in 0..100 {
            let request = if round % 3 == 0 { post("") } else { get("") };
            assert_eq!(clients[round % 4].send(request).response().text(), "halfhalf");
        }
    });
}

#[test]
fn the_busy_wait_while_the_idle_serve() {
    on_both(0, |stage| {
        let (slow, quick) = (Upstream::echoing(), Upstream::ok("quick"));
        // The tunnel goes to the first in member order, whichever that is.
        let gateway = stage.gateway(&[slow.url(), quick.url()], &[]);
        let mut tunnel = gateway.client();
        while tunnel.send(CONNECT).response_to("CONNECT").head.field("Proxy-Status")
            != Some(&format!("evenkeel; next-hop={}", id(&slow.url())))
        {
            tunnel = gateway.client();
        }
        gateway.wait_in_flight(1);
        for _ in 0..20 {
            assert_eq!(gateway.client().get("http://origin.test/").text(), "quick");
        }
    });
}

#[test]
fn a_member_that_leaves_while_it_works_keeps_the_truth_for_when_it_returns() {
    on_both(0, |stage| {
        let upstream = Upstream::echoing();
        let gateway = stage.gateway(&[upstream.url()], &[]);
        let mut tunnels: Vec<_> = (0..3).map(|_| gateway.client()).collect();
        for tunnel in &mut tunnels {
            assert_eq!(tunnel.send(CONNECT).head().status(), 200);
        }
        gateway.remove(&upstream.url());
        assert_eq!(gateway.client().get("http://origin.test/").status(), 503);
        tunnels.pop().unwrap().reset();
        gateway.wait_in_flight(2);
        gateway.add(&upstream.url());
        assert_eq!(gateway.client().send(CONNECT).head().status(), 200);
        for tunnel in tunnels {
            tunnel.reset();
        }
        gateway.wait_in_flight(0);
    });
}

#[test]
fn what_a_drain_cuts_is_released() {
    on_both(0, |stage| {
        let upstream = Upstream::echoing();
        let mut gateway = stage.gateway(&[upstream.url()], &[("gateway.drain_timeout", "100ms")]);
        let mut tunnel = gateway.client();
        assert_eq!(tunnel.send(CONNECT).head().status(), 200);
        gateway.wait_in_flight(1);
        gateway.finish();
        gateway.wait_in_flight(0);
        assert_eq!(tunnel.until_close(), b"");
    });
}
