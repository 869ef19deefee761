//! SIGTERM, SIGINT and SIGHUP: accept no more, finish what runs, exit 0; and do not wait for ever.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::gateway::{Gateway, Setup, eventually};
use crate::support::port::free_port;
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

/// Soon, on a loaded machine, and long before a drain would be over by itself.
const SOON: Duration = Duration::from_secs(10);

/// A port that is nobody else's when the gateway has stopped listening.
fn own_port() -> String {
    format!("127.0.0.1:{}", free_port(Ipv4Addr::LOCALHOST.into()))
}

fn on_own_port(upstream: &Upstream) -> Setup {
    Setup::of([upstream.url()]).listen(own_port())
}

/// A gateway that finds SIGHUP as `option` of env(1) leaves it, however the tests were started.
fn started_with(option: &str, upstream: &Upstream) -> Gateway {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("env");
    command.args([option, env!("CARGO_BIN_EXE_evenkeel"), "--listen", &own_port(), "--proxy", &upstream.url()]);
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null()).current_dir(dir.path());
    Gateway::spawn(command, dir)
}

/// An upstream proxy that sends half of a body, and the rest when it is told to.
fn in_two_halves() -> (Upstream, mpsc::Sender<()>) {
    let (go_on, wait) = mpsc::channel();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst")?;
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        conn.send("later")?;
        conn.until_close().map(drop)
    });
    (upstream, go_on)
}

fn wait_until_draining(gateway: &Gateway) {
    eventually(SOON, "the drain", || {
        gateway.log().contains("draining") && TcpStream::connect(gateway.address()).is_err()
    });
}

#[test]
fn a_running_download_is_finished_and_new_clients_are_refused() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (upstream, go_on) = in_two_halves();
        let mut gateway = started_with("--default-signal=HUP", &upstream);
        let mut client = gateway.client();
        client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
        client.head();
        assert_eq!(client.exactly(5), b"first");
        gateway.signal(signal);
        wait_until_draining(&gateway);
        go_on.send(()).unwrap();
        assert_eq!(client.until_close(), b"later");
        assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
    }
}

/// Old clients send one behind a body (RFC 9112 §2.2).
#[test]
fn an_empty_line_behind_a_request_does_not_begin_another() {
    let upstream = Upstream::ok("ok");
    let mut gateway = Setup::of([upstream.url()]).set("gateway.head_timeout", "300ms").start();
    let mut client = gateway.client();
    for (request, method) in [
        ("POST http://origin.test/ HTTP/1.1\r\nContent-Length: 1\r\nHost: h\r\n\r\nx", "POST"),
        ("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n", "GET"),
    ] {
        for ends in ["\r\n", "\r\n\r\n", "\n", "\r"] {
            client.send(format!("{request}{ends}"));
            assert_eq!(client.response_to(method).status(), 200);
            // Longer than a head may take.
            assert!(client.is_silent_for(Duration::from_millis(400)), "after {ends:?}");
            if ends == "\r" {
                client.send("\n");
            }
        }
    }
    gateway.signal(Signal::TERM);
    assert_eq!(client.until_close(), b"");
    assert!(gateway.wait_exit(SOON).success());
}

#[test]
fn a_request_under_way_is_answered_and_told_that_the_connection_closes() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
    });
    let mut gateway = on_own_port(&upstream).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    upstream.wait_for_requests(1);
    gateway.signal(Signal::TERM);
    wait_until_draining(&gateway);
    go_on.send(()).unwrap();
    let answer = client.response();
    assert_eq!((answer.text(), answer.field("Connection")), ("fine", Some("close")));
    assert_eq!(client.until_close(), b"");
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
}

#[test]
fn idle_clients_hold_nothing_up() {
    let upstream = Upstream::ok("fine");
    let mut gateway = on_own_port(&upstream).start();
    let mut fresh = gateway.client();
    let mut kept = gateway.client();
    kept.get("http://origin.test/");
    let mut parked = gateway.client();
    parked.get("http://origin.test/");
    std::thread::sleep(Duration::from_millis(2100)); // until a kept connection is parked
    kept.get("http://origin.test/");
    let started = Instant::now();
    gateway.signal(Signal::TERM);
    for client in [&mut fresh, &mut kept, &mut parked] {
        assert_eq!(client.until_close(), b"");
    }
    drop((fresh, kept, parked));
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
    assert!(started.elapsed() < SOON);
}

#[test]
fn a_tunnel_is_cut_when_the_drain_timeout_is_over() {
    let upstream = Upstream::echoing();
    let mut gateway = on_own_port(&upstream).set("gateway.drain_timeout", "2s").start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    let started = Instant::now();
    gateway.signal(Signal::TERM);
    wait_until_draining(&gateway);
    assert_eq!(client.send("still").exactly(5), b"still");
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(client.until_close(), b"");
    assert!(gateway.log().contains("gateway.drain_timeout is over"), "{}", gateway.log());
}

#[test]
fn a_tunnel_that_ends_by_itself_ends_the_drain() {
    let upstream = Upstream::echoing();
    let mut gateway = on_own_port(&upstream).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    gateway.signal(Signal::TERM);
    wait_until_draining(&gateway);
    client.finish();
    assert_eq!(client.until_close(), b"");
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let upstream = Upstream::echoing();
    let mut gateway = on_own_port(&upstream).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    gateway.signal(Signal::INT);
    wait_until_draining(&gateway);
    std::thread::sleep(Duration::from_millis(200)); // a moment later, or it would be the same signal
    gateway.signal(Signal::INT);
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
    assert_eq!(client.until_close(), b"");
}

/// As with nohup(1): whoever started it does not want it to end with the terminal.
#[test]
fn a_hangup_that_is_ignored_from_the_start_stays_so() {
    let upstream = Upstream::echoing();
    let mut gateway = started_with("--ignore-signal=HUP", &upstream);
    let mut client = gateway.client();
    client.connect("origin.test:443");
    gateway.signal(Signal::HUP);
    assert_eq!(client.send("still").exactly(5), b"still");
    client.finish();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
    assert!(gateway.log().contains("signal=\"SIGTERM\""), "{}", gateway.log());
}

/// timeout(1) signals a process and then its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let upstream = Upstream::echoing();
    let mut gateway = on_own_port(&upstream).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    gateway.signal(Signal::TERM);
    gateway.signal(Signal::TERM);
    wait_until_draining(&gateway);
    std::thread::sleep(Duration::from_millis(300)); // long enough to be ended, were they two
    assert_eq!(client.send("still").exactly(5), b"still");
    client.finish();
    assert_eq!(gateway.wait_exit(SOON).code(), Some(0));
}

#[test]
fn the_port_is_free_again_afterwards() {
    let upstream = Upstream::ok("fine");
    let mut gateway = on_own_port(&upstream).start();
    let address = gateway.address();
    gateway.client().get("http://origin.test/");
    gateway.signal(Signal::TERM);
    gateway.wait_exit(SOON);
    let again = Setup::of([upstream.url()]).listen(address.to_string()).start();
    assert_eq!(again.address(), address);
    assert_eq!(again.client().get("http://origin.test/").text(), "fine");
}
