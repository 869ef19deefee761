//! Least-concurrent with whole gateways, which are killed, stand still and lose their Redis while they serve.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::client::Client;
use crate::support::gateway::{Gateway, KEY, Setup, eventually};
use crate::support::redis::{Redis, Reply};
use crate::support::upstream::Upstream;
use crate::support::wire::{PATIENCE, Wire};

const IN_FLIGHT: &str = "evenkeel:{default}:in_flight";
const GATEWAYS: &str = "evenkeel:{default}:gateways";
const CONNECT: &str = "CONNECT origin.test:443 HTTP/1.1\r\nHost: h\r\n\r\n";
/// Long, so that of what is promised within it enough is left for a loaded machine.
const HEARTBEAT: Duration = Duration::from_secs(6);

/// Upstream proxies that answer, and tunnel to nowhere; gateways that share them.
struct Fleet {
    redis: Redis,
    upstreams: Vec<Upstream>,
    gateways: Vec<Gateway>,
}

impl Fleet {
    fn of(gateways: usize, upstreams: usize) -> Self {
        let redis = Redis::start();
        let upstream = || {
            Upstream::start(|conn| {
                while let Some(request) = conn.request()? {
                    if request.head.line().starts_with("CONNECT") {
                        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
                        return conn.echo();
                    }
                    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")?;
                }
                Ok(())
            })
        };
        let upstreams: Vec<_> = (0..upstreams).map(|_| upstream()).collect();
        let setup = Setup::of(upstreams.iter().map(Upstream::url))
            .redis(&redis)
            .set("pool.policy", "least-concurrent")
            .set("pool.heartbeat", format!("{}ms", HEARTBEAT.as_millis()))
            .set("retry.attempts", 1);
        let gateways = (0..gateways).map(|_| setup.start()).collect();
        Self { redis, upstreams, gateways }
    }

    fn tunnels(&self, gateway: usize, count: usize) -> Vec<Client> {
        let open = |_| {
            let mut client = self.gateways[gateway].client();
            assert_eq!(client.send(CONNECT).head().status(), 200);
            client
        };
        (0..count).map(open).collect()
    }

    /// All that is in flight, by what Redis says; nothing may be below one there.
    fn in_flight(&self) -> i64 {
        let Reply::Array(counts) = self.redis.cmd(&["HVALS", IN_FLIGHT]) else { panic!("no hash") };
        let number = |reply| match reply {
            Reply::Bulk(digits) => String::from_utf8(digits).unwrap().parse::<i64>().unwrap(),
            other => panic!("{other:?}"),
        };
        let counts: Vec<_> = counts.into_iter().map(number).collect();
        assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        counts.into_iter().sum()
    }

    fn wait_in_flight(&self, count: i64, limit: Duration) {
        eventually(limit, &format!("{count} in flight, but {}", self.in_flight()), || self.in_flight() == count);
    }
}

/// Clients that never stop asking, of gateways that may die under them.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(gateways: &[Gateway]) -> Self {
        let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = gateways.iter().flat_map(|gateway| [gateway.address(); 4]).map(|address| {
            let (stop, served) = (stop.clone(), served.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // A connection that breaks is followed by the next one, if there is anybody.
                    let _ = ask_on(address, &stop, &served);
                    std::thread::sleep(Duration::from_millis(5)); // a client's pace, not a flood
                }
            })
        });
        let clients = clients.collect();
        let load = Self { stop, served, clients };
        load.wait_for(50);
        load
    }

    /// Until so many more have been served.
    fn wait_for(&self, count: usize) {
        let before = self.served.load(Ordering::Relaxed);
        eventually(PATIENCE, "requests served", || self.served.load(Ordering::Relaxed) >= before + count);
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("no panic");
        }
    }
}

fn ask_on(address: SocketAddr, stop: &AtomicBool, served: &AtomicUsize) -> io::Result<()> {
    let mut wire = Wire::connect(address)?;
    while !stop.load(Ordering::Relaxed) {
        wire.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n")?;
        let Some(head) = wire.head()? else { return Ok(()) };
        let status = wire.response(head, "GET")?.status();
        served.fetch_add(usize::from(status == 200), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[test]
fn what_a_killed_gateway_had_is_returned_within_a_heartbeat() {
    let mut fleet = Fleet::of(3, 5);
    let load = Load::start(&fleet.gateways);
    let tunnels: Vec<_> = (0..3).map(|gateway| fleet.tunnels(gateway, 8)).collect();
    load.wait_for(50);

    let mut victim = fleet.gateways.pop().unwrap();
    victim.signal(Signal::KILL);
    victim.wait_exit(PATIENCE);
    let died = Instant::now();

    load.wait_for(50); // the others serve on
    load.finish();
    fleet.wait_in_flight(16, HEARTBEAT.saturating_sub(died.elapsed()));
    // Each worker of each gateway has a name.
    assert_eq!(fleet.redis.int(&["ZCARD", GATEWAYS]) % 2, 0);
    drop(tunnels);
    fleet.wait_in_flight(0, PATIENCE);
}

#[test]
fn a_gateway_that_stood_still_tells_the_truth_when_it_goes_on() {
    let fleet = Fleet::of(2, 3);
    let load = Load::start(&fleet.gateways[..1]);
    let (_kept, mut sleeping) = (fleet.tunnels(0, 6), fleet.tunnels(1, 7));
    load.wait_for(50);

    fleet.gateways[1].signal(Signal::STOP);
    load.wait_for(50);
    load.finish();
    fleet.wait_in_flight(6, HEARTBEAT);
    // Meanwhile two of its clients leave.
    sleeping.truncate(5);
    fleet.gateways[1].signal(Signal::CONT);
    fleet.wait_in_flight(6 + 5, HEARTBEAT);
    sleeping.extend(fleet.tunnels(1, 2));
    fleet.wait_in_flight(6 + 7, PATIENCE);
    assert_eq!(sleeping[0].send("still").exactly(5), b"still");
}

#[test]
fn a_redis_that_loses_everything_under_load_hears_again_what_is_in_flight() {
    let mut fleet = Fleet::of(2, 3);
    let mut tunnels = [fleet.tunnels(0, 6), fleet.tunnels(1, 7)];
    let load = Load::start(&fleet.gateways);
    let fill = |fleet: &Fleet| {
        for upstream in &fleet.upstreams {
            fleet.redis.cmd(&["ZADD", KEY, "0", &upstream.url()]);
        }
    };

    fleet.redis.cmd(&["FLUSHALL"]);
    fill(&fleet);
    load.wait_for(100);
    fleet.redis.stop();
    tunnels[0].pop();
    fleet.redis.restart();
    fill(&fleet);
    load.wait_for(100);
    load.finish();

    fleet.wait_in_flight(5 + 7, HEARTBEAT);
    tunnels[1].extend(fleet.tunnels(1, 3));
    fleet.wait_in_flight(5 + 10, PATIENCE);
    drop(tunnels);
    fleet.wait_in_flight(0, PATIENCE);
}

#[test]
fn two_gateways_that_race_load_members_evenly() {
    let fleet = Fleet::of(2, 5);
    let fleet = &fleet;
    let opened: Vec<Client> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8).map(|i| scope.spawn(move || fleet.tunnels(i % 2, 5))).collect();
        openers.into_iter().flat_map(|opener| opener.join().unwrap()).collect()
    });
    let each: Vec<_> = fleet.upstreams.iter().map(|upstream| upstream.requests().len()).collect();
    assert_eq!(each, [8; 5]);
    assert_eq!(fleet.in_flight(), 40);
    drop(opened);
    fleet.wait_in_flight(0, PATIENCE);
}

#[test]
fn a_gateway_that_drains_leaves_nothing_behind() {
    let mut fleet = Fleet::of(1, 2);
    let tunnels = fleet.tunnels(0, 4);
    let mut gateway = fleet.gateways.pop().unwrap();
    gateway.signal(Signal::TERM);
    let mut open = tunnels.into_iter();
    eventually(PATIENCE, "the draining", || gateway.log().contains("draining"));
    drop(open.next());
    fleet.wait_in_flight(3, PATIENCE);
    drop(open);
    assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
    assert_eq!(fleet.redis.int(&["EXISTS", IN_FLIGHT, GATEWAYS]), 0);
}
