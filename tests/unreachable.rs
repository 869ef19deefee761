//! What gateways do while Redis is away: refuse, or choose by themselves and tell it later what they have chosen.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::gateway::{Gateway, KEY, Setup, eventually};
use crate::support::redis::{Redis, Reply};
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

const LOCALLY: &str = r#"; details="chosen locally""#;
const TIMEOUT: Duration = Duration::from_millis(300);

/// Upstream proxies that share a Redis, least-used.
struct Pool {
    redis: Redis,
    upstreams: Vec<Upstream>,
}

impl Pool {
    fn of(upstreams: usize) -> Self {
        let pool = Self { redis: Redis::start(), upstreams: (0..upstreams).map(|_| Upstream::ok("fine")).collect() };
        if upstreams > 0 {
            pool.fill(|at| at);
        }
        pool
    }

    /// All of them, each with the count that is given for it.
    fn fill(&self, count: impl Fn(usize) -> usize) {
        let pairs =
            self.upstreams.iter().enumerate().flat_map(|(at, upstream)| [count(at).to_string(), upstream.url()]);
        // All at once: a gateway that is back tells its counts to whoever is there.
        let words: Vec<_> = ["ZADD", KEY].map(str::to_owned).into_iter().chain(pairs).collect();
        self.redis.cmd(&words);
    }

    fn setup(&self) -> Setup {
        let timeout = format!("{}ms", TIMEOUT.as_millis());
        Setup::of(Vec::<String>::new())
            .redis(&self.redis)
            .set("gateway.threads", 2)
            .set("pool.timeout", timeout)
            .admin()
    }

    /// One that may choose by itself, and knows from whom.
    fn local_gateway(&self) -> Gateway {
        start_local(self.setup().set("log.requests", true))
    }

    fn counts(&self) -> BTreeMap<String, usize> {
        let scores = self.redis.scores(KEY).into_iter();
        scores.map(|(member, score)| (String::from_utf8(member).unwrap(), score.parse().unwrap())).collect()
    }

    /// How many requests each has had, whoever sent them.
    fn served(&self) -> BTreeMap<String, usize> {
        self.upstreams.iter().map(|upstream| (upstream.url(), upstream.requests().len())).collect()
    }

    fn wait_for_counts(&self, expected: &BTreeMap<String, usize>) {
        eventually(PATIENCE, &format!("{expected:?}, but {:?}", self.counts()), || self.counts() == *expected);
    }
}

/// Asks so often, one after the other; every answer must be one.
fn ask(gateway: &Gateway, times: usize) -> Vec<String> {
    let mut client = gateway.client();
    let ask = |_| {
        let answer = client.get("http://origin.test/");
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer.field("Proxy-Status").unwrap().to_owned()
    };
    (0..times).map(ask).collect()
}

fn start_local(setup: Setup) -> Gateway {
    let gateway = setup.set("pool.when_unreachable", "local").start();
    eventually(PATIENCE, "a reading", || gateway.log().contains("read the pool"));
    gateway
}

/// Until it is Redis that chooses again.
fn wait_for_redis(gateway: &Gateway) {
    eventually(PATIENCE, "a choice by Redis", || !ask(gateway, 1)[0].contains(LOCALLY));
}

fn sum(counts: &BTreeMap<String, usize>) -> usize {
    counts.values().sum()
}

#[test]
fn by_default_requests_are_refused_and_nothing_is_dialed() {
    let mut pool = Pool::of(2);
    let gateway = pool.setup().start();
    ask(&gateway, 2);
    for is_frozen in [true, false] {
        if is_frozen {
            pool.redis.pause()
        } else {
            pool.redis.stop()
        }
        let answer = gateway.client().get("http://origin.test/");
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=proxy_internal_error"));
        if is_frozen {
            pool.redis.resume();
        }
    }
    assert_eq!(sum(&pool.served()), 2);
}

#[test]
fn while_redis_is_down_members_are_chosen_evenly_and_counted_when_it_is_back() {
    let mut pool = Pool::of(3); // with 0, 1 and 2 allocations
    let gateway = pool.local_gateway();
    pool.redis.stop();
    let told = ask(&gateway, 9);
    assert!(told.iter().all(|status| status.ends_with(LOCALLY)), "{told:?}");
    assert!(told.iter().all(|status| status.starts_with("evenkeel; next-hop=p")), "{told:?}");
    let each: Vec<_> = pool.upstreams.iter().map(|upstream| upstream.requests().len()).collect();
    assert_eq!(each, [4, 3, 2]);
    let locally = |worker| format!(r#"evenkeel_attempts_total{{worker="{worker}",chosen_by="gateway"}}"#);
    assert_eq!((0..2).filter_map(|worker| gateway.metric(&locally(worker))).sum::<u64>(), 9);

    // So does the line about each.
    let lines = |what: &str| gateway.log().lines().filter(|line| line.contains(what)).count();
    eventually(PATIENCE, "nine lines", || lines(" request client=") == 9);
    assert_eq!(lines(" chosen_by=gateway attempts="), 9, "{}", gateway.log());

    // It comes back with other counts, and without one of them, which stays away.
    pool.redis.restart();
    pool.redis.cmd(&["ZADD", KEY, "100", &pool.upstreams[0].url(), "200", &pool.upstreams[1].url()]);
    pool.wait_for_counts(&[(pool.upstreams[0].url(), 104), (pool.upstreams[1].url(), 203)].into());
    wait_for_redis(&gateway);
    eventually(PATIENCE, "word that Redis is back", || lines("Redis is back") == 1);
    let log = gateway.finish();
    let last = log.lines().rfind(|line| line.contains(" request client=")).expect("lines");
    assert!(!last.contains("chosen_by="), "{last}");
    assert_eq!(log.matches("Redis is away; members are chosen here").count(), 1, "{log}");
    assert_eq!(log.matches("Redis is back; it knows what was chosen without it").count(), 1, "{log}");
}

#[test]
fn while_redis_stands_still_requests_are_served_and_counted_when_it_goes_on() {
    let pool = Pool::of(3);
    let gateway = pool.local_gateway();
    for _ in 0..2 {
        let before = sum(&pool.counts()) - sum(&pool.served());
        pool.redis.pause();
        assert!(ask(&gateway, 20).iter().all(|status| status.ends_with(LOCALLY)));
        pool.redis.resume();
        // What was sent and not answered may have counted as well, as ever: a call of each worker, and one on its new connection.
        wait_for_redis(&gateway);
        let surplus = || (sum(&pool.counts()) as i64) - (sum(&pool.served()) + before) as i64;
        eventually(PATIENCE, "all counts", || (0..=4).contains(&surplus()));
    }
}

#[test]
fn a_client_finds_out_which_way_also_where_the_attempt_fails() {
    let mut pool = Pool::of(0);
    pool.redis.cmd(&["ZADD", KEY, "0", "http://127.0.0.1:9"]);
    let gateway = start_local(pool.setup().set("retry.attempts", 1));
    pool.redis.stop();
    let answer = gateway.client().get("http://origin.test/");
    assert_eq!(answer.status(), 502);
    let status = answer.field("Proxy-Status").unwrap();
    assert!(
        status.starts_with("evenkeel; error=connection_refused; next-hop=p") && status.ends_with(LOCALLY),
        "{status}"
    );
}

#[test]
fn a_retry_without_redis_goes_to_another_member_and_a_malformed_one_is_passed_by() {
    let mut pool = Pool::of(2);
    pool.redis.cmd(&["ZADD", KEY, "-2", "nonsense", "-1", "http://127.0.0.1:9"]);
    let gateway = start_local(pool.setup());
    pool.redis.stop();
    assert!(ask(&gateway, 1)[0].ends_with(&format!("; attempts=2{LOCALLY}")));
    assert_eq!(sum(&pool.served()), 1);
}

#[test]
fn after_a_time_requests_are_refused_all_the_same() {
    let mut pool = Pool::of(2);
    let gateway = start_local(pool.setup().set("pool.local_for", "4s"));
    pool.redis.stop();
    let mut served = 0;
    let mut client = gateway.client();
    eventually(PATIENCE, "a refusal", || {
        let answer = client.get("http://origin.test/");
        served += usize::from(answer.status() == 200);
        answer.status() == 503 && answer.field("Proxy-Status") == Some("evenkeel; error=proxy_internal_error")
    });
    assert!(served > 0);
    // What was chosen until then is counted.
    pool.redis.restart();
    pool.fill(|_| 0);
    eventually(PATIENCE, "all counts", || sum(&pool.counts()) == served);
    assert_eq!(gateway.client().get("http://origin.test/").status(), 200);
    assert!(gateway.log().contains("Redis is away for too long; requests are refused"));
}

#[test]
fn each_gateway_tells_what_it_chose_and_what_a_killed_one_did_not_tell_is_lost() {
    let mut pool = Pool::of(2);
    let [one, two] = [pool.local_gateway(), pool.local_gateway()];
    let mut three = pool.local_gateway();
    pool.redis.stop();
    for (gateway, times) in [(&one, 5), (&two, 8), (&three, 7)] {
        ask(gateway, times);
    }
    three.signal(Signal::KILL);
    three.wait_exit(PATIENCE);
    pool.redis.restart();
    pool.fill(|_| 0);
    eventually(PATIENCE, "all counts", || sum(&pool.counts()) == 13);
    wait_for_redis(&one);
    wait_for_redis(&two);
}

#[test]
fn a_gateway_that_ends_without_redis_says_what_is_not_counted() {
    let mut pool = Pool::of(2);
    let gateway = pool.local_gateway();
    pool.redis.stop();
    ask(&gateway, 3);
    let log = gateway.finish();
    assert!(log.contains("was not told of 3 allocations that were made without Redis"), "{log}");
}

#[test]
fn a_batch_counts_once_whoever_is_there() {
    let script = concat!(
        include_str!("../lua/weight.lua"),
        include_str!("../lua/eligible.lua"),
        include_str!("../lua/count.lua")
    );
    let redis = Redis::start();
    let count = |number: &str, pairs: &[&str]| {
        let moving =
            ["", ":parked", ":returns", ":candidates", ":streaks", ":ramping"].map(|suffix| format!("{KEY}{suffix}"));
        let counted = format!("{KEY}:told:g");
        let keys = moving.iter().map(String::as_str).chain([counted.as_str()]);
        let words: Vec<_> = ["EVAL", script, "7"]
            .into_iter()
            .chain(keys)
            .chain([number, "1000"])
            .chain(pairs.iter().copied())
            .collect();
        redis.cmd(&words)
    };
    let text = |text: &str| Reply::Bulk(text.into());
    redis.cmd(&["ZADD", KEY, "5", "a:1", "2", "b:1?weight=3"]);
    redis.cmd(&["ZADD", &format!("{KEY}:ramping"), "1", "c:1"]);
    let pairs = ["a:1", "4", "b:1?weight=3", "2", "c:1", "1", "gone:1", "9"];
    assert_eq!(count("1", &pairs), text("7"));
    assert_eq!(count("1", &pairs), text("-1"));
    assert_eq!(count("2", &["a:1", "1"]), text("1"));
    assert_eq!(count("1", &pairs), text("-1"));
    let scores: Vec<_> = redis.scores(KEY).into_iter().map(|(_, score)| score).collect();
    assert_eq!(scores, ["2.6666666666666665", "10"]);
    assert_eq!(redis.cmd(&["ZSCORE", &format!("{KEY}:ramping"), "c:1"]), text("2"));
    for wrong in [&["a:1"][..], &["a:1", "0"], &["a:1", "1.5"], &["a:1", "x"]] {
        assert!(matches!(count("3", wrong), Reply::Error(_)), "{wrong:?}");
    }
    assert!(matches!(count("x", &[]), Reply::Error(_)));
    assert_eq!(redis.cmd(&["GET", &format!("{KEY}:told:g")]), text("2"));
}
