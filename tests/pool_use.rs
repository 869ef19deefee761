//! How the gateway uses the pool: evenly, at once, and never beside it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel::pool::Pool;
use evenkeel::pool::embedded::Embedded;

use crate::support::client::Client;
use crate::support::gateway::{Gateway, KEY, Setup, eventually, run, with_both_stores};
use crate::support::inside::Inside;
use crate::support::redis::{Redis, Reply};
use crate::support::upstream::{Refusing, Upstream};
use crate::support::wire::PATIENCE;

const PARKED: &str = "evenkeel:{default}:parked";

/// Sends `count` requests from 20 clients at once, turn by turn to each of the gateways.
fn load(gateways: &[&Gateway], count: usize) {
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for i in 0..20 {
            let gateway = gateways[i % gateways.len()];
            let sent = &sent;
            scope.spawn(move || {
                let mut client = gateway.client();
                while sent.fetch_add(1, Ordering::Relaxed) < count {
                    assert_eq!(client.get("http://origin.test/").status(), 200);
                }
            });
        }
    });
}

/// The counts of all, which must differ by one at most.
fn sum_of_even(counts: &[usize]) -> usize {
    let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(max - min <= 1, "{counts:?}");
    counts.iter().sum()
}

#[test]
fn two_gateways_on_one_redis_spread_2000_parallel_requests_evenly() {
    let redis = Redis::start();
    let upstreams: Vec<_> = (0..7).map(|_| Upstream::ok("fine")).collect();
    let setup = Setup::of(upstreams.iter().map(Upstream::url)).redis(&redis);
    let (one, other) = (setup.start(), setup.start());
    load(&[&one, &other], 2000);
    let served: Vec<_> = upstreams.iter().map(|u| u.requests().len()).collect();
    assert_eq!(sum_of_even(&served), 2000);
    let scores: Vec<_> = redis.scores(KEY).into_iter().map(|(_, score)| score.parse().unwrap()).collect();
    assert_eq!(sum_of_even(&scores), 2000);
}

#[test]
fn the_embedded_store_spreads_parallel_requests_evenly_over_all_threads() {
    let upstreams: Vec<_> = (0..7).map(|_| Upstream::ok("fine")).collect();
    let gateway = Setup::of(upstreams.iter().map(Upstream::url)).set("gateway.threads", 4).start();
    load(&[&gateway], 1000);
    assert_eq!(sum_of_even(&upstreams.iter().map(|u| u.requests().len()).collect::<Vec<_>>()), 1000);
}

#[test]
fn requests_that_fail_count_like_any_other() {
    let redis = Redis::start();
    let (dead, alive) = (Refusing::new(), Upstream::ok("fine"));
    let gateway = Setup::of([dead.url(), alive.url()]).redis(&redis).set("retry.attempts", 1).start();
    let mut client = gateway.client();
    let mut statuses: Vec<_> = (0..6).map(|_| client.get("http://origin.test/").status()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 502, 502, 502]);
    let scores: Vec<_> = redis.scores(KEY).into_iter().map(|(_, score)| score).collect();
    assert_eq!(scores, ["3", "3"]);
}

#[test]
fn requests_and_tunnels_share_one_count() {
    with_both_stores(|store| {
        let both = || {
            Upstream::start(|conn| {
                while let Some(request) = conn.request()? {
                    if request.head.line().starts_with("CONNECT") {
                        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
                        return conn.echo();
                    }
                    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
                }
                Ok(())
            })
        };
        let upstreams = [both(), both()];
        let gateway = Setup::of(upstreams.iter().map(Upstream::url)).over(store).start();
        for _ in 0..3 {
            assert_eq!(gateway.client().get("http://origin.test/").status(), 200);
            assert_eq!(gateway.client().connect("origin.test:443").status(), 200);
        }
        assert_eq!(upstreams.iter().map(|u| u.requests().len()).collect::<Vec<_>>(), [3, 3]);
    });
}

#[test]
fn requests_that_are_refused_before_choosing_allocate_nothing() {
    let redis = Redis::start();
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).redis(&redis).start();
    gateway.client().get("http://origin.test:0/");
    gateway.client().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response();
    gateway.client().get(&format!("http://{}/", gateway.address()));
    assert_eq!(redis.scores(KEY), [(upstream.url().into_bytes(), "0".to_owned())]);
}

#[test]
fn a_member_added_by_zadd_is_used_at_once_and_one_taken_by_zrem_is_not() {
    let redis = Redis::start();
    let (old, new) = (Upstream::ok("old"), Upstream::ok("new"));
    let gateway = Setup::of([old.url()]).redis(&redis).start();
    let mut client = gateway.client();
    assert_eq!(client.get("http://origin.test/").text(), "old");
    redis.cmd(&["ZADD", KEY, "0", &new.url()]);
    assert_eq!(client.get("http://origin.test/").text(), "new");
    redis.cmd(&["ZREM", KEY, &old.url()]);
    for _ in 0..3 {
        assert_eq!(client.get("http://origin.test/").text(), "new");
    }
    assert_eq!(old.requests().len(), 1, "a kept connection is no reason to use a former member");
}

#[test]
fn a_member_may_be_written_without_its_scheme_and_stays_as_it_was_written() {
    let redis = Redis::start();
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([""; 0]).redis(&redis).start();
    let bare = upstream.address().to_string();
    redis.cmd(&["ZADD", KEY, "0", &bare]);
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    assert_eq!(redis.scores(KEY), [(bare.into_bytes(), "1".to_owned())]);
}

#[test]
fn members_that_differ_only_in_credentials_are_two() {
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url_with("a:x"), upstream.url_with("b:x")]).start();
    let mut client = gateway.client();
    for _ in 0..4 {
        client.get("http://origin.test/");
    }
    let mut used: Vec<_> =
        upstream.requests().iter().map(|r| r.field("Proxy-Authorization").unwrap().to_owned()).collect();
    used.sort();
    assert_eq!(used, ["Basic YTp4", "Basic YTp4", "Basic Yjp4", "Basic Yjp4"]);
}

/// Both requests, and not one upstream socket: neither a former member nor the target hears anything.
fn check_that_nobody_is_asked(client: impl Fn() -> Client, former: &Upstream) {
    let (connections, requests) = (former.connections(), former.requests().len());
    // The target is the former member itself: a direct connection would show there too.
    for request in [
        format!("GET {}/ HTTP/1.1\r\nHost: h\r\n\r\n", former.url()),
        format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", former.address()),
    ] {
        let answer = client().send(request).response();
        assert_eq!((answer.status(), answer.field("Retry-After")), (503, Some("5")));
        assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=destination_unavailable"));
    }
    assert_eq!((former.connections(), former.requests().len()), (connections, requests));
}

#[test]
fn an_emptied_pool_in_redis_dials_nobody() {
    let redis = Redis::start();
    let former = Upstream::ok("fine");
    let gateway = Setup::of([former.url()]).redis(&redis).start();
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    redis.cmd(&["ZREM", KEY, &former.url()]);
    check_that_nobody_is_asked(|| gateway.client(), &former);
    assert_eq!(redis.cmd(&["KEYS", "*"]), Reply::Array(vec![]), "nothing may be written for an empty pool");
}

/// The embedded store has no door from outside, so this gateway runs inside the test.
#[test]
fn an_emptied_pool_in_the_process_dials_nobody() {
    let former = Upstream::ok("fine");
    let pool = Embedded::new();
    let gateway = Inside::start(move || Pool::Embedded(pool.clone()), &[former.url()], &[]);
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    gateway.remove(&former.url());
    check_that_nobody_is_asked(|| gateway.client(), &former);
}

#[test]
fn a_member_that_makes_no_sense_is_set_aside_with_a_reason_while_the_request_goes_on() {
    let redis = Redis::start();
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).redis(&redis).start();
    let mut client = gateway.client();
    let odd = ["ftp://10.0.0.1:21", "http://user:secret@host:99999", "http://10.0.0.1", "two words:80", "\u{fc}:1", ""];
    for member in odd {
        redis.cmd(&["ZADD", KEY, "-1", member]);
        let answer = client.get("http://origin.test/");
        assert_eq!(answer.text(), "fine", "{member:?}");
        // It was no attempt at anything.
        assert_eq!(answer.field("Proxy-Status"), Some(&*format!("evenkeel; next-hop={}", upstream.id())));
        let Reply::Bulk(record) = redis.cmd(&["HGET", PARKED, member]) else { panic!("{member:?} was not set aside") };
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        assert!(record["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{record}");
        assert!(!record["reason"].as_str().unwrap().contains("secret"), "{record}");
    }
    assert_eq!(redis.int(&["ZCARD", KEY]), 1);
    assert_eq!(redis.int(&["HLEN", PARKED]), odd.len() as i64);
    eventually(PATIENCE, "a line in the log", || gateway.log().contains("set a pool member aside"));
    assert!(!gateway.log().contains("secret"), "{}", gateway.log());
}

#[test]
fn a_pool_of_nothing_but_nonsense_is_empty() {
    let redis = Redis::start();
    let gateway = Setup::of([""; 0]).redis(&redis).start();
    for i in 0..20 {
        redis.cmd(&["ZADD", KEY, "0", &format!("ftp://10.0.0.{i}:21")]);
    }
    assert_eq!(gateway.client().get("http://origin.test/").status(), 503);
    assert_eq!((redis.int(&["ZCARD", KEY]), redis.int(&["HLEN", PARKED])), (0, 20));
}

#[test]
fn configured_members_are_added_as_soon_as_a_late_store_comes() {
    let mut redis = Redis::stopped();
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).redis(&redis).set("pool.timeout", "200ms").start();
    assert_eq!(gateway.client().get("http://origin.test/").status(), 503);
    redis.restart();
    eventually(Duration::from_secs(5), "the first request served", || {
        gateway.client().get("http://origin.test/").status() == 200
    });
    assert_eq!(redis.scores(KEY)[0].0, upstream.url().into_bytes());
}

#[test]
fn counts_that_exist_are_kept_and_a_newcomer_starts_at_the_lowest() {
    let redis = Redis::start();
    let upstreams: Vec<_> = (0..3).map(|_| Upstream::ok("fine")).collect();
    redis.cmd(&["ZADD", KEY, "7", &upstreams[0].url(), "5", &upstreams[1].url()]);
    let gateway = Setup::of(upstreams.iter().map(Upstream::url)).redis(&redis).start();
    let mut scores = redis.scores(KEY);
    scores.sort_by_key(|(member, _)| upstreams.iter().position(|u| u.url().as_bytes() == member));
    assert_eq!(scores.into_iter().map(|(_, score)| score).collect::<Vec<_>>(), ["7", "5", "5"]);
    drop(gateway);
}

#[test]
fn a_parked_member_gets_nothing_and_the_gateway_brings_it_back_in_time() {
    let redis = Redis::start();
    let (one, other) = (Upstream::ok("one"), Upstream::ok("other"));
    let gateway = Setup::of([one.url(), other.url()]).redis(&redis).start();
    let mut client = gateway.client();
    let park = |span: &[&str]| run(&[&["pool", "park", &one.url(), "--store", &redis.url()], span].concat());
    assert!(park(&[]).status.success());
    assert_eq!([client.get("http://origin.test/").text(), client.get("http://origin.test/").text()], ["other"; 2]);
    assert!(park(&["--for", "1ms"]).status.success());
    // Once a second or so, a gateway looks who is due.
    eventually(PATIENCE, "a parked member back", || client.get("http://origin.test/").text() == "one");
    assert_eq!(redis.int(&["EXISTS", PARKED]), 0);
    assert!(gateway.log().contains("back in the pool"), "{}", gateway.log());
}

#[test]
fn gateways_let_counts_shrink_once_a_period_between_them() {
    let redis = Redis::start();
    let member = "http://10.0.0.7:3128";
    redis.cmd(&["ZADD", KEY, "1000000", member]);
    let setup = Setup::of([""; 0]).redis(&redis).set("pool.decay", "50%/1s");
    let gateways: Vec<_> = (0..3).map(|_| setup.start()).collect();
    let count = || redis.scores(KEY)[0].1.parse::<f64>().unwrap();
    eventually(PATIENCE, "three periods", || count() <= 125_000.0);
    // Whatever their number, each period halved it: what they say they did is what was done.
    let told = || -> u64 {
        let logs: String = gateways.iter().map(Gateway::log).collect();
        let periods =
            logs.lines().filter_map(|line| line.split("periods=").nth(1)?.split(' ').next()?.parse::<u64>().ok());
        periods.sum()
    };
    eventually(PATIENCE, "all of them told", || (1_000_000.0 / 2_f64.powf(told() as f64)).floor() == count());
}
