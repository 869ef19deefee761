//! The pool under least-concurrent, each behaviour against both stores; then what can go wrong with Redis and with gateways.
//!
//! How requests end is in `leases.rs`, what becomes of whole gateways in `fleet.rs`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use evenkeel::member::Name;
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::redis::Redis;
use evenkeel::pool::{Concurrency, Initial, Kind, Lease, Pool, PoolError, Stay};
use proptest::prelude::*;

use crate::pool_model::{any_member, placed, raised, weight};
use crate::support::pool::{KEY, RECOVERY, TIMEOUT, counts, name, names, parking};
use crate::support::redis::{Redis as Server, Reply, eventually};

/// Long enough for a loaded machine not to be taken for dead.
const HEARTBEAT: Duration = Duration::from_secs(4);

/// How long others' changes to a large pool may take to show: a second or so, and the rest is for a loaded machine.
const FOLLOWS: Duration = Duration::from_secs(30);
/// For what is promised within a heartbeat: of a long one, more is left for a loaded machine.
const LONG_HEARTBEAT: Duration = Duration::from_secs(6);

fn connect_with(url: &str, max_in_flight: u64, heartbeat: Duration) -> Pool {
    let concurrency = Concurrency { max_in_flight, heartbeat };
    Pool::Redis(Redis::connect_least_concurrent(url, KEY, TIMEOUT, concurrency).expect("a good URL"))
}

fn connect(server: &Server) -> Pool {
    connect_with(&server.url(), 0, HEARTBEAT)
}

/// Runs one body against an empty pool of each kind, whose members have at most `most` in flight (0: any number).
async fn on_both(most: u64, body: impl AsyncFn(Pool)) {
    eprintln!("embedded:");
    body(Pool::Embedded(Embedded::least_concurrent(most))).await;
    eprintln!("redis:");
    let server = Server::start();
    body(connect_with(&server.url(), most, HEARTBEAT)).await;
}

/// One lease, of a store that has one.
async fn lease(pool: &Pool) -> (Name, Lease) {
    pool.allocate(&[]).await.expect("a store that answers").expect("somebody")
}

async fn leases(pool: &Pool, n: usize) -> Vec<(Name, Lease)> {
    let mut held = Vec::new();
    for _ in 0..n {
        held.push(lease(pool).await);
    }
    held
}

fn members(held: &[(Name, Lease)]) -> Vec<Name> {
    held.iter().map(|(member, _)| member.clone()).collect()
}

/// What is in flight by a list of leases.
fn truth<'a>(held: impl IntoIterator<Item = &'a (Name, Lease)>) -> HashMap<Name, u64> {
    let mut truth = HashMap::new();
    for (member, _) in held {
        *truth.entry(member.clone()).or_default() += 1;
    }
    truth
}

/// Waits until the pool says that this is in flight.
async fn settles(pool: &Pool, limit: Duration, truth: &HashMap<Name, u64>) {
    let started = Instant::now();
    loop {
        let told = pool.in_flight().await;
        if told.as_ref().is_ok_and(|told| told == truth) {
            return;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {told:?}, but {truth:?} is in flight");
        tokio::time::sleep(Duration::from_millis(5)).await; // between two looks
    }
}

fn key(suffix: &str) -> String {
    format!("{KEY}:{suffix}")
}

// --- Both stores ---

#[tokio::test]
async fn fewest_in_flight_come_first_then_the_least_used_then_in_byte_order() {
    on_both(0, async |pool| {
        pool.add(&names(["b:1", "B:1", "a:1"]), Initial::Min).await.unwrap();
        pool.add(&names(["late:1"]), Initial::Count(1)).await.unwrap();
        let mut held = leases(&pool, 5).await;
        // All were idle: those with count 0 in byte order, then the one with count 1, then all are equal.
        assert_eq!(members(&held), names(["B:1", "a:1", "b:1", "late:1", "B:1"]));
        held.remove(3); // late:1
        held.remove(1); // a:1
        // Idle: a (used once) and late (used twice).
        assert_eq!(members(&leases(&pool, 2).await), names(["a:1", "late:1"]));
        // What was dropped at once is free again; the longest idle has the lowest count.
        assert_eq!(lease(&pool).await.0, name("a:1"));
    })
    .await;
}

#[tokio::test]
async fn what_is_in_flight_is_told_and_every_allocation_counted() {
    on_both(0, async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        let held = leases(&pool, 5).await;
        settles(&pool, RECOVERY, &truth(&held)).await;
        assert_eq!(pool.in_flight().await.unwrap(), HashMap::from([(name("a:1"), 3), (name("b:1"), 2)]));
        drop(held);
        settles(&pool, RECOVERY, &HashMap::new()).await;
        assert_eq!(counts(&pool).await, [(name("b:1"), 2.0), (name("a:1"), 3.0)]);
    })
    .await;
}

#[tokio::test]
async fn many_at_once_are_as_one_after_the_other() {
    on_both(0, async |pool| {
        let all: Vec<_> = (0..7).map(|i| name(&format!("p{i}:1"))).collect();
        pool.add(&all, Initial::Min).await.unwrap();
        let mut held = at_once(&pool, &[(); 200].map(|()| vec![])).await;
        let taken: Vec<_> = held.iter().map(|answer| answer.as_ref().unwrap().as_ref().unwrap().0.clone()).collect();
        let expected: Vec<_> = (0..200).map(|i| all[i % 7].clone()).collect();
        assert_eq!(taken, expected);
        held.truncate(100);
        let held: Vec<_> = held.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
        settles(&pool, RECOVERY, &truth(&held)).await;
    })
    .await;
}

#[tokio::test]
async fn tried_members_are_skipped() {
    on_both(0, async |pool| {
        pool.add(&names(["a:1", "b:1", "c:1"]), Initial::Min).await.unwrap();
        let (first, _first) = pool.allocate(&names(["a:1"])).await.unwrap().unwrap();
        let (second, _second) = pool.allocate(&names(["a:1", "c:1"])).await.unwrap().unwrap();
        assert_eq!([first, second], [name("b:1"), name("b:1")]);
        assert!(pool.allocate(&names(["a:1", "b:1", "c:1"])).await.unwrap().is_none());
        assert_eq!(pool.allocate(&names(["gone:1"])).await.unwrap().unwrap().0, name("a:1"));
    })
    .await;
}

#[tokio::test]
async fn an_empty_pool_gives_nobody() {
    on_both(1, async |pool| {
        assert!(pool.allocate(&[]).await.unwrap().is_none());
        assert!(pool.allocate(&names(["a:1"])).await.unwrap().is_none());
        pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
        let held = lease(&pool).await;
        pool.remove(&names(["a:1"])).await.unwrap();
        assert!(pool.allocate(&[]).await.unwrap().is_none());
        drop(held);
        settles(&pool, RECOVERY, &HashMap::new()).await;
    })
    .await;
}

#[tokio::test]
async fn whoever_has_as_many_as_he_may_gets_no_more() {
    on_both(2, async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        let mut held = leases(&pool, 4).await;
        assert!(matches!(pool.allocate(&[]).await, Err(PoolError::AtLimit)));
        assert!(matches!(pool.allocate(&names(["a:1"])).await, Err(PoolError::AtLimit)));
        assert!(pool.allocate(&names(["a:1", "b:1"])).await.unwrap().is_none());
        let counted = counts(&pool).await;
        let (freed, _) = held.pop().unwrap();
        let others = if freed == "a:1" { names(["b:1"]) } else { names(["a:1"]) };
        assert_eq!(pool.allocate(&others).await.unwrap().unwrap().0, freed);
        // A newcomer has nothing in flight.
        pool.add(&names(["c:1"]), Initial::Min).await.unwrap();
        assert_eq!(pool.allocate(&names(["a:1", "b:1"])).await.unwrap().unwrap().0, name("c:1"));
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<f64>(), 4.0, "what was refused is counted");
    })
    .await;
}

#[tokio::test]
async fn a_weight_is_a_share_of_what_is_in_flight() {
    on_both(2, async |pool| {
        let (light, heavy) = (name("a:1"), name("b:1?weight=3"));
        pool.add(&[light.clone(), heavy.clone()], Initial::Min).await.unwrap();
        let held = leases(&pool, 8).await;
        assert_eq!(truth(&held), HashMap::from([(light.clone(), 2), (heavy.clone(), 6)]));
        assert!(matches!(pool.allocate(&[]).await, Err(PoolError::AtLimit)));
        assert_eq!(counts(&pool).await, [(light, 2.0), (heavy, 2.0)]);
    })
    .await;
}

#[tokio::test]
async fn who_leaves_and_returns_has_in_flight_what_is() {
    on_both(0, async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        let mut held = leases(&pool, 6).await;
        pool.park(&name("a:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap().unwrap();
        pool.remove(&names(["b:1"])).await.unwrap();
        assert!(pool.allocate(&[]).await.unwrap().is_none());
        held.truncate(3); // a, b, a
        settles(&pool, RECOVERY, &truth(&held)).await;
        pool.restore(&names(["a:1"]), Initial::Min).await.unwrap();
        pool.add(&names(["b:1"]), Initial::Count(100)).await.unwrap();
        // b has one in flight, a has two: the counts do not come into it.
        assert_eq!(lease(&pool).await.0, name("b:1"));
        drop(held);
        settles(&pool, RECOVERY, &HashMap::new()).await;
    })
    .await;
}

#[tokio::test]
async fn a_member_that_was_chosen_otherwise_is_counted_too() {
    on_both(1, async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        pool.park(&name("a:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap().unwrap();
        let held = [pool.hold(&name("a:1")).await.unwrap(), pool.hold(&name("a:1")).await.unwrap()];
        let other = pool.hold(&name("b:1")).await.unwrap();
        settles(&pool, RECOVERY, &HashMap::from([(name("a:1"), 2), (name("b:1"), 1)])).await;
        assert!(matches!(pool.allocate(&[]).await, Err(PoolError::AtLimit)));
        assert_eq!(counts(&pool).await, [(name("b:1"), 0.0)], "nothing was allocated");
        drop(other);
        assert_eq!(lease(&pool).await.0, name("b:1"));
        pool.restore(&names(["a:1"]), Initial::Min).await.unwrap();
        assert_eq!(lease(&pool).await.0, name("b:1"));
        drop(held);
        settles(&pool, RECOVERY, &HashMap::new()).await;
    })
    .await;
}

/// Asks for all of these before any answer is awaited; the answers in the order asked.
async fn at_once(pool: &Pool, tried: &[Vec<Name>]) -> Vec<Result<Option<(Name, Lease)>, PoolError>> {
    let mut asked: Vec<_> = tried.iter().map(|tried| Box::pin(pool.allocate(tried))).collect();
    let mut answers: Vec<_> = tried.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let std::task::Poll::Ready(result) = future.as_mut().poll(cx)
            {
                *answer = Some(result);
            }
        }
        if answers.iter().any(Option::is_none) { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// What the pool is, in a few lines.
#[derive(Default)]
struct Model {
    most: u64,
    counts: BTreeMap<Name, f64>,
    parked: BTreeMap<Name, f64>,
    in_flight: HashMap<Name, u64>,
}

impl Model {
    fn allocate(&mut self, tried: &[Name]) -> Result<Option<Name>, ()> {
        let of = |member: &Name| self.in_flight.get(member).copied().unwrap_or(0) as f64;
        let share = |member: &Name| of(member) / weight(member);
        let left = self.counts.iter().filter(|(member, _)| !tried.contains(member));
        let first =
            left.min_by(|(a, x), (b, y)| share(a).total_cmp(&share(b)).then(x.partial_cmp(y).unwrap()).then(a.cmp(b)));
        let Some(member) = first.map(|(member, _)| member.clone()) else { return Ok(None) };
        if self.most > 0 && share(&member) >= self.most as f64 {
            return Err(());
        }
        let count = self.counts.get_mut(&member).unwrap();
        *count = raised(*count, weight(&member));
        *self.in_flight.entry(member.clone()).or_default() += 1;
        Ok(Some(member))
    }

    fn release(&mut self, member: &Name) {
        *self.in_flight.get_mut(member).unwrap() -= 1;
        self.in_flight.retain(|_, count| *count > 0);
    }

    fn lowest(&self) -> f64 {
        self.counts.values().copied().min_by(|a, b| a.partial_cmp(b).unwrap()).unwrap_or(0.0)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Retry(Vec<Name>),
    /// Ends one of those in flight.
    Release(prop::sample::Index),
    Add(Name),
    Remove(Name),
    Park(Name),
    Restore(Name),
    /// Someone else's ZADD; Redis only.
    SetScore(Name, i32),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..70_usize).prop_map(Step::Allocate),
        3 => prop::collection::vec(any_member(), 0..6).prop_map(Step::Retry),
        6 => any::<prop::sample::Index>().prop_map(Step::Release),
        4 => any_member().prop_map(Step::Add),
        1 => any_member().prop_map(Step::Remove),
        1 => any_member().prop_map(Step::Park),
        1 => any_member().prop_map(Step::Restore),
        2 => (any_member(), -3..50).prop_map(|(member, score)| Step::SetScore(member, score)),
    ]
}

/// What others may have done to the pool in Redis.
struct Others<'a>(&'a Server);

impl Others<'_> {
    fn set_score(&self, member: &Name, score: i32) {
        self.0.cmd(&[b"ZADD".as_slice(), KEY.as_bytes(), score.to_string().as_bytes(), member.as_ref()]);
    }

    /// What the gateways do once a second or so, and at once: two rounds, one may be under way.
    fn walk(&self) {
        let mut rounds = 0;
        while rounds < 2 {
            let keys = [KEY.to_owned(), key("load"), key("in_flight"), key("gateways"), key("walk")];
            let words = ["EVAL".to_owned(), WALK.to_owned(), "5".to_owned()].into_iter().chain(keys);
            let words: Vec<_> = words.chain(["1000".to_owned(), "0".to_owned()]).collect();
            match self.0.cmd(&words) {
                Reply::Bulk(state) if state == b"over" => rounds += 1,
                Reply::Bulk(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Takes the steps with the pool and with the model, and compares after each.
async fn take_steps(pool: &Pool, most: u64, steps: &[Step], others: Option<Others<'_>>) {
    let mut model = Model { most, ..Model::default() };
    let mut held: Vec<(Name, Lease)> = Vec::new();
    let is_same = |answer: &Result<Option<(Name, Lease)>, PoolError>, expected: &Result<Option<Name>, ()>| match (
        answer, expected,
    ) {
        (Ok(answer), Ok(expected)) => answer.as_ref().map(|(member, _)| member) == expected.as_ref(),
        (Err(PoolError::AtLimit), Err(())) => true,
        _ => false,
    };
    for step in steps {
        let mut has_moved = false;
        match step {
            Step::Allocate(n) => {
                // The first goes alone, perhaps, and the others share the calls after it.
                for answer in at_once(pool, &vec![vec![]; *n]).await {
                    let expected = model.allocate(&[]);
                    assert!(is_same(&answer, &expected), "{step:?}: {answer:?}, not {expected:?}");
                    held.extend(answer.ok().flatten());
                }
            }
            Step::Retry(tried) => {
                let (answer, expected) = (pool.allocate(tried).await, model.allocate(tried));
                assert!(is_same(&answer, &expected), "{step:?}: {answer:?}, not {expected:?}");
                held.extend(answer.ok().flatten());
            }
            Step::Release(at) => {
                if !held.is_empty() {
                    let (member, lease) = held.swap_remove(at.index(held.len()));
                    drop(lease);
                    model.release(&member);
                }
            }
            Step::Add(member) => {
                pool.add(std::slice::from_ref(member), Initial::Min).await.unwrap();
                if !model.parked.contains_key(member) {
                    let start = placed(model.lowest(), weight(member));
                    model.counts.entry(member.clone()).or_insert(start);
                }
            }
            Step::Remove(member) => {
                pool.remove(std::slice::from_ref(member)).await.unwrap();
                model.counts.remove(member);
                model.parked.remove(member);
                has_moved = true;
            }
            Step::Park(member) => {
                pool.park(member, &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
                if let Some(count) = model.counts.remove(member) {
                    model.parked.insert(member.clone(), count);
                }
                has_moved = true;
            }
            Step::Restore(member) => {
                pool.restore(std::slice::from_ref(member), Initial::Keep).await.unwrap();
                if let Some(count) = model.parked.remove(member) {
                    model.counts.entry(member.clone()).or_insert(count);
                }
                has_moved = true;
            }
            Step::SetScore(member, score) => {
                if let (Some(others), false) = (&others, model.parked.contains_key(member)) {
                    others.set_score(member, *score);
                    model.counts.insert(member.clone(), f64::from(*score));
                    has_moved = true;
                }
            }
        }
        if let (Some(others), true) = (&others, has_moved) {
            others.walk();
        }
        let listed: BTreeMap<_, _> = counts(pool).await.into_iter().collect();
        assert_eq!(listed, model.counts, "after {step:?}");
        settles(pool, RECOVERY, &model.in_flight).await;
    }
    drop(held);
    settles(pool, RECOVERY, &HashMap::new()).await;
}

#[test]
fn both_stores_do_what_the_model_does() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limits = [0, 1, 3];
    let redis = runtime.block_on(async { limits.map(|most| connect_with(&server.url(), most, HEARTBEAT)) });
    proptest!(ProptestConfig::with_cases(100), |(at in 0..limits.len(), steps in prop::collection::vec(any_step(), 1..20))| {
        server.cmd(&["DEL", KEY, &key("parked"), &key("load")]);
        runtime.block_on(async {
            take_steps(&Pool::Embedded(Embedded::least_concurrent(limits[at])), limits[at], &steps, None).await;
            take_steps(&redis[at], limits[at], &steps, Some(Others(&server))).await;
        });
        assert_eq!(server.int(&["EXISTS", &key("in_flight")]), 0);
        assert_eq!(server.cmd(&["KEYS", &key("leases:*")]), Reply::Array(vec![]));
    });
}

// --- The scripts by themselves ---

const ACQUIRE: &str = concat!(
    include_str!("../lua/weight.lua"),
    include_str!("../lua/in_flight.lua"),
    include_str!("../lua/acquire.lua")
);
const RELEASE: &str = concat!(
    include_str!("../lua/weight.lua"),
    include_str!("../lua/in_flight.lua"),
    include_str!("../lua/release.lua")
);
const REGISTER: &str = concat!(
    include_str!("../lua/clock.lua"),
    include_str!("../lua/weight.lua"),
    include_str!("../lua/in_flight.lua"),
    include_str!("../lua/register.lua")
);
const HEARTBEAT_SCRIPT: &str = concat!(
    include_str!("../lua/clock.lua"),
    include_str!("../lua/weight.lua"),
    include_str!("../lua/in_flight.lua"),
    include_str!("../lua/heartbeat.lua")
);
const REAP: &str = concat!(
    include_str!("../lua/clock.lua"),
    include_str!("../lua/weight.lua"),
    include_str!("../lua/in_flight.lua"),
    include_str!("../lua/reap.lua")
);
const WALK: &str = concat!(
    include_str!("../lua/clock.lua"),
    include_str!("../lua/weight.lua"),
    include_str!("../lua/in_flight.lua"),
    include_str!("../lua/walk.lua")
);

/// Runs a script for a gateway; its reply as words.
fn run(server: &Server, script: &str, gateway: &str, args: &[&str]) -> Vec<String> {
    let keys = [KEY.to_owned(), key("load"), key("in_flight"), key("gateways"), key(&format!("leases:{gateway}"))];
    let words = ["EVAL".to_owned(), script.to_owned(), "5".to_owned()].into_iter().chain(keys);
    let words = words.chain([gateway.to_owned()]).chain(args.iter().map(|&arg| arg.to_owned()));
    let text = |reply: Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    match server.cmd(&words.collect::<Vec<_>>()) {
        Reply::Array(replies) => replies.into_iter().map(text).collect(),
        one => vec![text(one)],
    }
}

fn hash(server: &Server, name: &str) -> BTreeMap<String, i64> {
    let Reply::Array(flat) = server.cmd(&["HGETALL", name]) else { panic!("no hash") };
    let text = |reply: &Reply| match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    flat.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]).parse().unwrap())).collect()
}

fn in_flight(server: &Server) -> BTreeMap<String, i64> {
    hash(server, &key("in_flight"))
}

fn of<const N: usize>(pairs: [(&str, i64); N]) -> BTreeMap<String, i64> {
    pairs.into_iter().map(|(member, count)| (member.to_owned(), count)).collect()
}

#[test]
fn nothing_is_released_that_the_gateway_does_not_have() {
    let server = Server::start();
    server.cmd(&["ZADD", KEY, "0", "a", "0", "b"]);
    for gateway in ["one", "two"] {
        assert_eq!(run(&server, REGISTER, gateway, &["60000"]), ["ok"]);
        assert_eq!(run(&server, ACQUIRE, gateway, &["0", "2"]), ["ok", "+a", "+b"]);
    }
    // More than it has, what only the other has, and what nobody has.
    assert_eq!(run(&server, RELEASE, "one", &["a", "5", "c", "1"]), ["ok"]);
    assert_eq!(run(&server, RELEASE, "one", &["a", "1"]), ["ok"]);
    assert_eq!(in_flight(&server), of([("a", 1), ("b", 2)]));
    assert_eq!(hash(&server, &key("leases:one")), of([("b", 1)]));
    // Damaged by others: never below zero all the same.
    server.cmd(&["HSET", &key("in_flight"), "b", "1"]);
    assert_eq!(run(&server, RELEASE, "one", &["b", "1"]), ["ok"]);
    assert_eq!(run(&server, RELEASE, "two", &["a", "1", "b", "1"]), ["ok"]);
    assert_eq!(in_flight(&server), of([]));
    assert_eq!(server.scores(&key("load")), [(b"a".to_vec(), "2".to_owned()), (b"b".to_vec(), "2".to_owned())]);
}

#[test]
fn a_gateway_that_was_reaped_can_neither_acquire_nor_release() {
    let server = Server::start();
    server.cmd(&["ZADD", KEY, "0", "a"]);
    for gateway in ["dead", "alive"] {
        run(&server, REGISTER, gateway, &["60000"]);
        run(&server, ACQUIRE, gateway, &["0", "3"]);
    }
    // It has given a sign of life: nobody else may.
    assert_eq!(run(&server, REAP, "dead", &["other", "0"]), ["0"]);
    assert_eq!(in_flight(&server), of([("a", 6)]));
    server.cmd(&["ZADD", &key("gateways"), "1", "dead"]);
    assert_eq!(run(&server, HEARTBEAT_SCRIPT, "alive", &["60000"]), ["ok", "dead"]);
    assert_eq!(run(&server, REAP, "dead", &["other", "0"]), ["0"]);
    assert_eq!(run(&server, REAP, "dead", &["other", "0"]), ["0"]);
    assert_eq!(in_flight(&server), of([("a", 3)]));

    assert_eq!(run(&server, RELEASE, "dead", &["a", "3"]), ["lapsed"]);
    assert_eq!(run(&server, ACQUIRE, "dead", &["0", "3"]), ["lapsed"]);
    assert_eq!(run(&server, HEARTBEAT_SCRIPT, "dead", &["60000"]), ["lapsed"]);
    assert_eq!(in_flight(&server), of([("a", 3)]));
    assert_eq!(server.int(&["EXISTS", &key("leases:dead")]), 0);
    assert_eq!(server.int(&["ZCARD", &key("gateways")]), 1);
    assert_eq!(run(&server, HEARTBEAT_SCRIPT, "alive", &["60000"]), ["ok"]);
}

#[test]
fn a_gateway_is_reaped_in_pieces_and_lapsed_from_the_first_one_on() {
    let server = Server::start();
    let all: Vec<String> = (0..3_000).map(|i| format!("p{i}")).collect();
    run(&server, REGISTER, "dead", &["60000"]);
    for piece in all.chunks(1_000) {
        let pairs: Vec<&str> = piece.iter().flat_map(|member| [member.as_str(), "2"]).collect();
        assert_eq!(run(&server, REGISTER, "dead", &[&["60000"], &pairs[..]].concat()), ["ok"]);
    }
    assert_eq!(server.int(&["HLEN", &key("in_flight")]), 3_000);
    server.cmd(&["ZADD", &key("gateways"), "1", "dead"]);

    let mut cursor = "0".to_owned();
    let mut pieces = 0;
    loop {
        cursor = run(&server, REAP, "dead", &["other", &cursor]).remove(0);
        pieces += 1;
        assert_eq!(server.int(&["HLEN", &key("in_flight")]), server.int(&["HLEN", &key("leases:dead")]));
        if cursor == "0" {
            break;
        }
        assert_eq!(run(&server, RELEASE, "dead", &["p0", "2"]), ["lapsed"]);
        // Whoever reaps may die as well; the next one hears of it.
        if pieces == 2 {
            run(&server, REGISTER, "next", &["60000"]);
            assert_eq!(run(&server, HEARTBEAT_SCRIPT, "next", &["60000"]), ["ok", "dead"]);
            cursor = "0".to_owned();
        }
        assert!(pieces < 100, "no end");
    }
    assert!(pieces > 3, "{pieces} pieces for 3,000 members");
    assert_eq!((server.int(&["EXISTS", &key("in_flight")]), server.int(&["ZCARD", &key("gateways")])), (0, 1));
}

#[test]
fn a_gateway_that_is_late_itself_takes_nobody_for_dead() {
    let server = Server::start();
    for gateway in ["one", "two"] {
        run(&server, REGISTER, gateway, &["60000"]);
        server.cmd(&["ZADD", &key("gateways"), "1", gateway]);
    }
    // Redis was away from both, say.
    assert_eq!(run(&server, HEARTBEAT_SCRIPT, "one", &["60000"]), ["ok"]);
    assert_eq!(run(&server, HEARTBEAT_SCRIPT, "one", &["60000"]), ["ok", "two"]);
}

#[test]
fn far_numbers_keep_the_order_and_what_is_in_flight() {
    let server = Server::start();
    run(&server, REGISTER, "g", &["60000"]);
    for (member, score) in [("inf", "inf"), ("-inf", "-inf"), ("huge", "1e300"), ("-huge", "-1e300"), ("none", "0")] {
        server.cmd(&["ZADD", KEY, score, member]);
    }
    // Where counts are too far from 0 to be told apart, the order is by bytes.
    let round = ["+-huge", "+-inf", "+none", "+huge", "+inf"];
    for _ in 0..3 {
        assert_eq!(run(&server, ACQUIRE, "g", &["0", "5"])[1..], round);
    }
    assert_eq!(in_flight(&server).into_values().collect::<Vec<_>>(), [3; 5]);
    // Millions in flight through one are still fewer than one more.
    run(&server, REGISTER, "g", &["60000", "none", "30000000", "huge", "29999999"]);
    server.cmd(&["ZREM", KEY, "inf", "-inf", "-huge"]);
    for expected in ["+huge", "+none", "+huge"] {
        assert_eq!(run(&server, ACQUIRE, "g", &["0", "1"])[1], expected);
    }
    assert_eq!(run(&server, ACQUIRE, "g", &["30000000", "1"])[1], "!");
}

#[test]
fn arguments_that_make_no_sense_are_refused_and_nothing_is_written() {
    let server = Server::start();
    server.cmd(&["ZADD", KEY, "0", "a"]);
    for (script, args) in [
        (ACQUIRE, vec![]),
        (ACQUIRE, vec!["0", "65"]),
        (ACQUIRE, vec!["0", "1.5"]),
        (ACQUIRE, vec!["x", "1"]),
        (RELEASE, vec![]),
        (RELEASE, vec!["a"]),
        (REGISTER, vec![]),
        (REGISTER, vec!["60000", "a"]),
        (HEARTBEAT_SCRIPT, vec![]),
        (REAP, vec!["own"]),
        (REAP, vec!["own", "x"]),
    ] {
        let keys = [KEY.to_owned(), key("load"), key("in_flight"), key("gateways"), key("leases:g")];
        let words = ["EVAL".to_owned(), script.to_owned(), "5".to_owned()].into_iter().chain(keys);
        let words: Vec<_> = words.chain(["g".to_owned()]).chain(args.iter().map(|&arg| arg.to_owned())).collect();
        assert!(matches!(server.cmd(&words), Reply::Error(_)), "{args:?}");
    }
    assert_eq!(server.int(&["DBSIZE"]), 1);
}

// --- Others change the pool ---

#[tokio::test]
async fn a_small_pool_follows_zadd_and_zrem_at_once() {
    let server = Server::start();
    let pool = connect(&server);
    assert!(pool.allocate(&[]).await.unwrap().is_none());
    for round in 0..5 {
        server.cmd(&["ZADD", KEY, "0", &format!("a{round}:1"), "7", &format!("b{round}:1")]);
        let _held = [lease(&pool).await, lease(&pool).await];
        assert_eq!(members(&_held), [name(&format!("a{round}:1")), name(&format!("b{round}:1"))]);
        server.cmd(&["ZREM", KEY, &format!("a{round}:1"), &format!("b{round}:1")]);
        assert!(pool.allocate(&[]).await.unwrap().is_none());
    }
}

fn fill(server: &Server, members: usize) {
    let script = "for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], 5, 'p' .. i) end";
    server.cmd(&["EVAL", script, "1", KEY, &members.to_string()]);
}

/// Whether `KEY:load` has every member of `KEY` with its count, and nobody else; nothing is in flight.
fn is_up_to_date(server: &Server) -> bool {
    let script = "
        local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
        for i = 1, #all, 2 do
            if redis.call('ZSCORE', KEYS[2], all[i]) ~= all[i + 1] then return 0 end
        end
        return redis.call('ZCARD', KEYS[2]) == #all / 2 and 1 or 0";
    server.int(&["EVAL", script, "2", KEY, &key("load")]) == 1
}

#[tokio::test]
async fn a_large_pool_follows_what_others_do() {
    let server = Server::start();
    let pool = connect(&server);
    pool.register();
    fill(&server, 3_000);
    eventually(FOLLOWS, "3,000 newcomers are known", async || is_up_to_date(&server)).await;
    // In the middle of them all, and one gone for one come: nothing shows in the sizes.
    server.cmd(&["ZADD", KEY, "4.5", "new", "-1", "first"]);
    server.cmd(&["ZREM", KEY, "p7", "p8"]);
    eventually(FOLLOWS, "newcomers are known, who left is not", async || is_up_to_date(&server)).await;
    // All counts at once, as when they are multiplied or lowered.
    let rebase =
        "for _, m in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZINCRBY', KEYS[1], -3, m) end";
    server.cmd(&["EVAL", rebase, "1", KEY]);
    eventually(FOLLOWS, "new counts are known", async || is_up_to_date(&server)).await;
    // And all of them gone at once, but one.
    server.cmd(&["DEL", KEY]);
    server.cmd(&["ZADD", KEY, "1000", "last"]);
    assert_eq!(lease(&pool).await.0, name("last"));
    eventually(FOLLOWS, "the others are forgotten", async || is_up_to_date(&server)).await;
}

#[tokio::test]
async fn a_lost_index_is_made_again() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let held = leases(&pool, 3).await; // a, b, a
    server.cmd(&["DEL", &key("load")]);
    assert_eq!(lease(&pool).await.0, name("b:1"));
    drop(held);
    settles(&pool, RECOVERY, &HashMap::new()).await;
    assert_eq!(server.scores(&key("load")), server.scores(KEY));
}

// --- Several gateways ---

#[tokio::test]
async fn two_gateways_keep_members_within_one_of_each_other() {
    let server = Server::start();
    let pools = [connect(&server), connect(&server)];
    let all: Vec<_> = (0..5).map(|i| name(&format!("p{i}:1"))).collect();
    pools[0].add(&all, Initial::Min).await.unwrap();
    let mut held: [Vec<_>; 2] = Default::default();
    for round in 0..300 {
        // Uneven on purpose, and now and then one ends: those who have most.
        let at = usize::from(round * round % 7 < 3);
        held[at]
            .extend(at_once(&pools[at], &vec![vec![]; 1 + round % 3]).await.into_iter().map(|a| a.unwrap().unwrap()));
        let mut told = truth(held.iter().flatten());
        settles(&pools[1 - at], RECOVERY, &told).await;
        let spread = |told: &HashMap<Name, u64>| {
            let each = || all.iter().map(|member| told.get(member).copied().unwrap_or(0));
            each().max().unwrap() - each().min().unwrap()
        };
        assert!(spread(&told) <= 1, "round {round}: {told:?}");
        if round % 2 == 1 {
            let busiest = told.iter().max_by_key(|(_, count)| **count).unwrap().0.clone();
            let side = usize::from(!held[0].iter().any(|(member, _)| *member == busiest));
            let index = held[side].iter().position(|(member, _)| *member == busiest).unwrap();
            held[side].swap_remove(index);
            told = truth(held.iter().flatten());
            settles(&pools[0], RECOVERY, &told).await;
            assert!(spread(&told) <= 1, "round {round}: {told:?}");
        }
    }
    drop(held);
    settles(&pools[0], RECOVERY, &HashMap::new()).await;
}

#[tokio::test]
async fn what_a_dead_gateway_had_is_returned_within_a_heartbeat() {
    let server = Server::start();
    let heartbeat = LONG_HEARTBEAT;
    let (alive, dead) = (connect_with(&server.url(), 0, heartbeat), connect_with(&server.url(), 0, heartbeat));
    alive.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let held = leases(&alive, 5).await;
    let lost = leases(&dead, 7).await;
    settles(&alive, RECOVERY, &truth(held.iter().chain(&lost))).await;
    // Its connection goes, and nobody gives signs of life for it.
    drop(dead);
    let died = Instant::now();
    assert_eq!(alive.in_flight().await.unwrap(), truth(held.iter().chain(&lost)), "returned too early");
    settles(&alive, heartbeat, &truth(&held)).await;
    assert!(died.elapsed() > heartbeat / 4, "after {:?} already", died.elapsed());
    // What it says now is heard by nobody.
    drop(lost);
    let more = leases(&alive, 2).await;
    settles(&alive, RECOVERY, &truth(held.iter().chain(&more))).await;
}

#[tokio::test]
async fn a_lease_lasts_as_long_as_its_gateway_gives_signs_of_life() {
    let server = Server::start();
    let (pool, other) = (connect(&server), connect(&server));
    other.register();
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    let held = vec![lease(&pool).await];
    let since = Instant::now();
    while since.elapsed() < HEARTBEAT * 3 / 2 {
        assert_eq!(other.in_flight().await.unwrap(), truth(&held));
        tokio::time::sleep(Duration::from_millis(50)).await; // between two looks
    }
}

#[tokio::test]
async fn a_gateway_that_unregisters_leaves_nothing_behind() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    let held = leases(&pool, 3).await;
    pool.unregister().await.unwrap();
    assert_eq!(pool.in_flight().await.unwrap(), HashMap::new());
    drop(held);
    assert!(pool.allocate(&[]).await.is_err());
    assert_eq!(server.int(&["EXISTS", &key("gateways"), &key("in_flight")]), 0);
    assert_eq!(server.cmd(&["KEYS", &key("leases:*")]), Reply::Array(vec![]));
}

#[tokio::test]
async fn a_client_that_never_allocates_is_no_gateway() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    pool.list().await.unwrap();
    assert_eq!(server.int(&["EXISTS", &key("gateways")]), 0);
    pool.register();
    eventually(RECOVERY, "it is one when it says so", async || server.int(&["ZCARD", &key("gateways")]) == 1).await;
}

// --- What goes wrong with Redis ---

#[tokio::test]
async fn a_member_for_somebody_who_has_left_is_free_again() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    drop(lease(&pool).await);
    for _ in 0..20 {
        let mut gone = Box::pin(pool.allocate(&[]));
        std::future::poll_fn(|cx| {
            assert!(gone.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        // It leaves while the call is on its way.
        tokio::task::yield_now().await;
        drop(gone);
    }
    settles(&pool, RECOVERY, &HashMap::new()).await;
}

#[tokio::test]
async fn whatever_a_silent_redis_does_later_the_truth_is_told() {
    let server = Server::start();
    let pool = connect_with(&server.url(), 0, Duration::from_secs(60)); // no lapse helps
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let mut held = leases(&pool, 5).await;
    for round in 0..3 {
        server.pause();
        // These may be counted when it wakes; nobody holds them.
        for answer in at_once(&pool, &vec![vec![]; 4]).await {
            assert!(matches!(answer, Err(PoolError::TimedOut(_) | PoolError::Unreachable(_))), "{answer:?}");
        }
        // And these end while it is silent.
        held.pop();
        server.resume();
        settles(&pool, RECOVERY, &truth(&held)).await;
        held.push(lease(&pool).await);
        settles(&pool, RECOVERY, &truth(&held)).await;
        assert_eq!(server.int(&["ZCARD", &key("gateways")]), 1, "round {round}");
    }
}

#[tokio::test]
async fn a_flushed_redis_hears_again_what_is_in_flight() {
    let server = Server::start();
    let heartbeat = Duration::from_secs(2);
    let pools = [connect_with(&server.url(), 0, heartbeat), connect_with(&server.url(), 0, heartbeat)];
    pools[0].add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let mut held = vec![leases(&pools[0], 4).await, leases(&pools[1], 3).await];
    server.cmd(&["FLUSHALL"]);
    settles(&pools[0], heartbeat, &truth(held.iter().flatten())).await;
    // The members are for somebody else to add again; what they have in flight is known by then.
    assert!(pools[0].allocate(&[]).await.unwrap().is_none());
    held[0].pop();
    pools[0].add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    held[1].push(lease(&pools[1]).await);
    settles(&pools[0], RECOVERY, &truth(held.iter().flatten())).await;
    // A request that asks first is what finds out.
    server.cmd(&["FLUSHALL"]);
    pools[0].add(&names(["a:1"]), Initial::Min).await.unwrap();
    held[0].push(lease(&pools[0]).await);
    settles(&pools[0], heartbeat, &truth(held.iter().flatten())).await;
    drop(held);
    settles(&pools[0], RECOVERY, &HashMap::new()).await;
}

#[tokio::test]
async fn a_redis_that_comes_back_older_hears_again_what_is_in_flight() {
    let mut server = Server::start();
    let heartbeat = Duration::from_secs(2);
    let pool = connect_with(&server.url(), 0, heartbeat);
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let mut held = leases(&pool, 3).await;
    settles(&pool, RECOVERY, &truth(&held)).await;
    server.cmd(&["SAVE"]);
    held.extend(leases(&pool, 4).await);
    held.remove(0);
    settles(&pool, RECOVERY, &truth(&held)).await;
    server.restart();
    settles(&pool, RECOVERY, &truth(&held)).await;
    // Once more, and it knows a name that is long forgotten here; nobody gives signs of life for that.
    server.stop();
    held.truncate(2);
    server.restart();
    settles(&pool, heartbeat + RECOVERY, &truth(&held)).await;
    assert_eq!(server.int(&["ZCARD", &key("gateways")]), 1);
}

#[tokio::test]
async fn a_full_redis_is_told_the_ends_when_it_has_room() {
    let server = Server::start();
    let pool = connect_with(&server.url(), 0, Duration::from_secs(60));
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    let mut held = leases(&pool, 3).await;
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = pool.allocate(&[]).await;
    assert!(matches!(&refused, Err(PoolError::Refused(why)) if why.contains("OOM")), "{refused:?}");
    held.pop();
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    settles(&pool, RECOVERY, &truth(&held)).await;
    held.push(lease(&pool).await);
    settles(&pool, RECOVERY, &truth(&held)).await;
}

#[tokio::test]
async fn a_flushed_script_cache_costs_nobody_a_request() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    for _ in 0..30 {
        server.cmd(&["SCRIPT", "FLUSH"]);
        let _held = leases(&pool, 3).await;
    }
    settles(&pool, RECOVERY, &HashMap::new()).await;
}

#[tokio::test]
async fn a_cluster_keeps_all_of_it_in_one_slot() {
    let server = Server::cluster().await;
    let pool = connect_with(&server.url().replace("redis:", "redis-cluster:"), 0, HEARTBEAT);
    eventually(RECOVERY, "an addition", async || pool.add(&names(["a:1", "b:1"]), Initial::Min).await.is_ok()).await;
    let held = leases(&pool, 3).await;
    settles(&pool, RECOVERY, &truth(&held)).await;
    drop(held);
    settles(&pool, RECOVERY, &HashMap::new()).await;
}

/// The line that the README tells an operator to type.
#[tokio::test]
async fn the_acl_of_the_readme_allows_all_that_is_needed() {
    let server = Server::start();
    let url = server.restricted_url();
    let heartbeat = Duration::from_secs(1);
    let (pool, dead) = (connect_with(&url, 3, heartbeat), connect_with(&url, 3, heartbeat));
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let mut held = leases(&pool, 3).await;
    let lost = leases(&dead, 2).await;
    drop((dead, lost));
    server.cmd(&["ZREM", KEY, "a:1"]);
    held.pop();
    // By then there was a walk, a sign of life, and somebody has lapsed.
    settles(&pool, heartbeat + RECOVERY, &truth(&held)).await;
    pool.unregister().await.unwrap();
    assert_eq!(server.cmd(&["ACL", "LOG"]), Reply::Array(vec![]));
}

// --- Everything at once ---

#[derive(Clone, Debug)]
enum Event {
    /// One of the gateways asks for some.
    Allocate(usize, usize),
    Release(usize, prop::sample::Index),
    /// A gateway dies, and another takes its place.
    Die(usize),
    Flush,
    Remove(Name),
    Add(Name),
}

fn any_event() -> impl Strategy<Value = Event> {
    let member = || (0..4_u8).prop_map(|i| name(&format!("p{i}:1")));
    prop_oneof![
        6 => (0..3_usize, 1..20_usize).prop_map(|(at, n)| Event::Allocate(at, n)),
        8 => (0..3_usize, any::<prop::sample::Index>()).prop_map(|(at, index)| Event::Release(at, index)),
        1 => (0..3_usize).prop_map(Event::Die),
        1 => Just(Event::Flush),
        1 => member().prop_map(Event::Remove),
        2 => member().prop_map(Event::Add),
    ]
}

/// Three gateways, three Redis calls at a time and whatever may happen: what is in flight is never below zero, nor above what was
/// ever given out, and in the end it is the truth.
#[test]
fn gateways_that_race_die_and_return_agree_with_the_truth_in_the_end() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let heartbeat = Duration::from_millis(800);
    proptest!(ProptestConfig::with_cases(6), |(events in prop::collection::vec(any_event(), 10..60))| {
        server.cmd(&["FLUSHALL"]);
        runtime.block_on(async {
            let join = || connect_with(&server.url(), 0, heartbeat);
            let mut gateways: Vec<(Pool, Vec<(Name, Lease)>)> = (0..3).map(|_| (join(), Vec::new())).collect();
            let mut dead = Vec::new();
            let mut given = 0;
            let all: Vec<_> = (0..4).map(|i| name(&format!("p{i}:1"))).collect();
            gateways[0].0.add(&all, Initial::Min).await.unwrap();
            for event in events {
                match event {
                    Event::Allocate(at, n) => {
                        // All three ask at once, and one of them for more.
                        let (few, many) = (vec![vec![]; 1], vec![vec![]; n]);
                        let asked: Vec<_> = (0..3).map(|i| if i == at { many.clone() } else { few.clone() }).collect();
                        let (one, two, three) = tokio::join!(
                            at_once(&gateways[0].0, &asked[0]),
                            at_once(&gateways[1].0, &asked[1]),
                            at_once(&gateways[2].0, &asked[2])
                        );
                        for (gateway, answers) in gateways.iter_mut().zip([one, two, three]) {
                            let answers: Vec<_> = answers.into_iter().flat_map(Result::unwrap).collect();
                            given += answers.len() as i64;
                            gateway.1.extend(answers);
                        }
                    }
                    Event::Release(at, index) => {
                        let held = &mut gateways[at].1;
                        if !held.is_empty() {
                            let first = index.index(held.len());
                            held.drain(first..(first + 3).min(held.len()));
                        }
                    }
                    Event::Die(at) => dead.push(std::mem::replace(&mut gateways[at], (join(), Vec::new()))),
                    Event::Flush => {
                        server.cmd(&["FLUSHALL"]);
                        gateways[0].0.add(&all, Initial::Min).await.unwrap();
                    }
                    Event::Remove(member) => drop(gateways[0].0.remove(&[member]).await.unwrap()),
                    Event::Add(member) => drop(gateways[1].0.add(&[member], Initial::Min).await.unwrap()),
                }
                // The dead ones' requests end too, unheard.
                dead.iter_mut().for_each(|(_, held)| drop(held.pop()));
                let told = in_flight(&server);
                assert!(told.values().all(|&count| count > 0) && told.values().sum::<i64>() <= given, "{told:?}, {given}");
            }
            // They were dropped with their clients' clones: nobody gives signs of life for them.
            let dead: Vec<_> = dead.into_iter().map(|(_, held)| held).collect();
            settles(&gateways[0].0, heartbeat + RECOVERY, &truth(gateways.iter().flat_map(|(_, held)| held))).await;
            drop(dead);
            gateways.iter_mut().for_each(|(_, held)| held.clear());
            settles(&gateways[0].0, RECOVERY, &HashMap::new()).await;
            assert_eq!(server.cmd(&["KEYS", &key("leases:*")]), Reply::Array(vec![]));
        });
    });
}
