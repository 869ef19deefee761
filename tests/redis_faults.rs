//! Redis goes away under load and comes back: requests are refused in time meanwhile, and served again soon after.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::gateway::{Gateway, KEY, Setup, eventually};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;

/// pool.timeout is 1 s; the rest is for a loaded machine.
const REFUSED_WITHIN: Duration = Duration::from_millis(1200);
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// Clients that never stop asking, and what they were told: when, after how long, with which status.
struct Load {
    told: Arc<Mutex<Vec<(Instant, Duration, u16)>>>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(gateway: &Gateway) -> Self {
        let (told, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let clients = (0..8).map(|_| {
            let (told, stop, mut client) = (told.clone(), stop.clone(), gateway.client());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    let status = client.get("http://origin.test/").status();
                    told.lock().unwrap().push((asked, asked.elapsed(), status));
                    std::thread::sleep(Duration::from_millis(2)); // a client's pace, not a flood
                }
            })
        });
        let clients = clients.collect();
        let load = Self { told, stop, clients };
        load.wait_for(200, Instant::now(), BACK_WITHIN);
        load
    }

    /// Waits until a request asked after `since` has been told `status`.
    fn wait_for(&self, status: u16, since: Instant, limit: Duration) {
        eventually(limit, &format!("a {status}"), || {
            self.told.lock().unwrap().iter().any(|&(asked, _, told)| asked >= since && told == status)
        });
    }

    /// Every request from now on must be served.
    fn check_that_all_is_well(&self) {
        let since = Instant::now();
        let served = || self.told.lock().unwrap().iter().filter(|(asked, ..)| *asked >= since).count() >= 50;
        eventually(BACK_WITHIN, "50 requests", served);
        let told = self.told.lock().unwrap();
        assert!(told.iter().all(|&(asked, _, status)| asked < since || status == 200), "it is not back for good");
    }

    /// Ends it. Whatever happened, every request was answered in time, with 200 or 503.
    fn finish(self) -> Vec<(Instant, Duration, u16)> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("every request was answered");
        }
        let told = std::mem::take(&mut *self.told.lock().unwrap());
        for (_, took, status) in &told {
            assert!(matches!(status, 200 | 503), "{status}");
            assert!(*took <= REFUSED_WITHIN, "{status} after {took:?}");
        }
        told
    }
}

fn start(redis: &Redis) -> (Upstream, Gateway) {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).redis(redis).start();
    (upstream, gateway)
}

#[test]
fn a_script_flush_costs_no_request() {
    let redis = Redis::start();
    let (_upstream, gateway) = start(&redis);
    let load = Load::start(&gateway);
    for _ in 0..5 {
        redis.cmd(&["SCRIPT", "FLUSH"]);
        load.check_that_all_is_well();
    }
    assert!(load.finish().iter().all(|(.., status)| *status == 200));
}

#[test]
fn killed_connections_are_made_again() {
    let redis = Redis::start();
    let (_upstream, gateway) = start(&redis);
    let load = Load::start(&gateway);
    for _ in 0..3 {
        let killed = Instant::now();
        redis.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        load.wait_for(200, killed + Duration::from_millis(1), BACK_WITHIN);
    }
    eventually(BACK_WITHIN, "the last connection back", || gateway.client().get("http://origin.test/").status() == 200);
    load.finish();
}

#[test]
fn a_redis_that_stops_and_starts_costs_503s_until_it_is_back() {
    let mut redis = Redis::start();
    let (upstream, gateway) = start(&redis);
    let load = Load::start(&gateway);
    let stopped = Instant::now();
    redis.stop();
    load.wait_for(503, stopped, BACK_WITHIN);
    // Longer than pool.timeout, so that being away is no mere hiccup.
    std::thread::sleep(Duration::from_millis(1500));
    redis.restart();
    redis.cmd(&["ZADD", KEY, "0", &upstream.url()]); // it came back empty
    let back = Instant::now();
    load.wait_for(200, back, BACK_WITHIN);
    eventually(BACK_WITHIN, "every worker back", || {
        (0..8).all(|_| gateway.client().get("http://origin.test/").status() == 200)
    });
    load.check_that_all_is_well();
    load.finish();
}

#[test]
fn a_frozen_redis_costs_503s_until_it_wakes() {
    let redis = Redis::start();
    let (_upstream, gateway) = start(&redis);
    let load = Load::start(&gateway);
    let frozen = Instant::now();
    redis.pause();
    load.wait_for(503, frozen, BACK_WITHIN);
    std::thread::sleep(Duration::from_millis(1500)); // as above
    redis.resume();
    let awake = Instant::now();
    load.wait_for(200, awake, BACK_WITHIN);
    eventually(BACK_WITHIN, "every worker back", || {
        (0..8).all(|_| gateway.client().get("http://origin.test/").status() == 200)
    });
    load.check_that_all_is_well();
    load.finish();
}

#[test]
fn nothing_is_dialed_while_redis_is_away() {
    let mut redis = Redis::start();
    let (upstream, gateway) = start(&redis);
    assert_eq!(gateway.client().get("http://origin.test/").status(), 200);
    redis.stop();
    let served = upstream.requests().len();
    for _ in 0..5 {
        let answer = gateway.client().get("http://origin.test/");
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=proxy_internal_error"));
    }
    assert_eq!(upstream.requests().len(), served);
}

#[test]
fn running_exchanges_do_not_need_redis() {
    let mut redis = Redis::start();
    let upstream = Upstream::echoing();
    let gateway = Setup::of([upstream.url()]).redis(&redis).start();
    let mut client = gateway.client();
    client.connect("origin.test:443");
    redis.stop();
    assert_eq!(client.send("still here").exactly(10), b"still here");
}
