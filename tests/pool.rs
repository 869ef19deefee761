//! The pool contract, each behaviour against both stores; then what can go wrong with Redis.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel::member::Name;
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::redis::Redis;
use evenkeel::pool::{Initial, Kind, Pool, PoolError, Prefetch, Stay};
use proptest::prelude::*;
use tokio::task::JoinSet;

use crate::pool_model::{any_member, any_score};
use crate::support::pool::{
    KEY, NONE_AHEAD, RECOVERY, TIMEOUT, allocate, connect, connect_to, counts, futures_in_order, name, names, on_both,
    parking, sum, take, works_again,
};
use crate::support::redis::{FakeRedis, Redis as Server, Reply, eventually};

// --- Both stores ---

#[tokio::test]
async fn the_least_used_member_is_taken_and_equals_go_in_byte_order() {
    on_both(async |pool| {
        // Not by locale: upper case before lower, bytes above ASCII last; a prefix before the longer.
        let mut members = names(["b:1", "B:1", "a:1", "a:10", ""]);
        members.extend([Name::from_static(b"\xff:1"), Name::from_static(b"a\0\r\n:1")]);
        assert_eq!(pool.add(&members, Initial::Min).await.unwrap(), 7);
        members.sort();
        let order: Vec<_> = members.iter().cloned().map(Some).collect();
        assert_eq!(take(&pool, 14).await, [order.clone(), order].concat());
        pool.add(&names(["late:1"]), Initial::Count(0)).await.unwrap();
        assert_eq!(take(&pool, 2).await, [Some(name("late:1")), Some(name("late:1"))]);
        assert_eq!(take(&pool, 1).await, [Some(name(""))]);
    })
    .await;
}

#[tokio::test]
async fn every_allocation_is_counted() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        take(&pool, 5).await;
        assert_eq!(counts(&pool).await, [(name("b:1"), 2.0), (name("a:1"), 3.0)]);
    })
    .await;
}

#[tokio::test]
async fn newcomers_start_at_the_minimum_before_the_call_or_at_a_number() {
    on_both(async |pool| {
        assert_eq!(pool.add(&names(["a:1", "b:1"]), Initial::Count(7)).await.unwrap(), 2);
        take(&pool, 1).await;
        assert_eq!(pool.add(&names(["c:1", "d:1"]), Initial::Min).await.unwrap(), 2);
        assert_eq!(pool.add(&names(["e:1"]), Initial::Count(3)).await.unwrap(), 1);
        let expected = [("e:1", 3.0), ("b:1", 7.0), ("c:1", 7.0), ("d:1", 7.0), ("a:1", 8.0)];
        assert_eq!(counts(&pool).await, expected.map(|(member, count)| (name(member), count)));
    })
    .await;
}

#[tokio::test]
async fn a_long_list_starts_at_one_minimum() {
    on_both(async |pool| {
        pool.add(&names(["old:1"]), Initial::Count(5)).await.unwrap();
        let many: Vec<_> = (0..2_500).map(|i| name(&format!("p{i}:1"))).collect();
        assert_eq!(pool.add(&many, Initial::Min).await.unwrap(), 2_500);
        assert!(counts(&pool).await.iter().all(|(_, count)| *count == 5.0));
        assert_eq!(pool.remove(&many).await.unwrap(), 2_500);
        assert_eq!(counts(&pool).await, [(name("old:1"), 5.0)]);
    })
    .await;
}

#[tokio::test]
async fn adding_again_keeps_the_count() {
    on_both(async |pool| {
        pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
        take(&pool, 3).await;
        assert_eq!(pool.add(&names(["a:1", "b:1", "b:1"]), Initial::Count(9)).await.unwrap(), 1);
        assert_eq!(counts(&pool).await, [(name("a:1"), 3.0), (name("b:1"), 9.0)]);
        assert_eq!(pool.add(&[], Initial::Min).await.unwrap(), 0);
    })
    .await;
}

#[tokio::test]
async fn tried_members_are_skipped_and_uncounted() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1", "c:1"]), Initial::Min).await.unwrap();
        assert_eq!(allocate(&pool, &names(["a:1"])).await.unwrap(), Some(name("b:1")));
        assert_eq!(allocate(&pool, &names(["a:1", "c:1"])).await.unwrap(), Some(name("b:1")));
        assert_eq!(allocate(&pool, &names(["gone:1"])).await.unwrap(), Some(name("a:1")));
        assert_eq!(allocate(&pool, &names(["a:1", "b:1", "c:1"])).await.unwrap(), None);
        assert_eq!(counts(&pool).await, [(name("c:1"), 0.0), (name("a:1"), 1.0), (name("b:1"), 2.0)]);
    })
    .await;
}

#[tokio::test]
async fn an_empty_pool_gives_nobody() {
    on_both(async |pool| {
        assert_eq!(take(&pool, 2).await, [None, None]);
        assert_eq!(allocate(&pool, &names(["a:1"])).await.unwrap(), None);
        pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
        pool.remove(&names(["a:1"])).await.unwrap();
        assert_eq!(take(&pool, 1).await, [None]);
        assert_eq!((counts(&pool).await, pool.parked().await.unwrap()), (vec![], vec![]));
    })
    .await;
}

#[tokio::test]
async fn a_member_is_chosen_as_often_as_its_weight_says() {
    on_both(async |pool| {
        let members =
            names(["http://a:1", "http://b:1?weight=3", "http://c:1|socks5h://d:1?weight=6", "http://e:1?weight=2"]);
        pool.add(&members, Initial::Min).await.unwrap();
        let mut taken = std::collections::HashMap::new();
        for round in 1..=40 {
            for member in futures_in_order(12, || allocate(&pool, &[])).await.into_iter().flatten() {
                *taken.entry(member).or_insert(0) += 1;
            }
            let counts: Vec<_> = members.iter().map(|member| taken[member]).collect();
            assert_eq!(counts, [round, 3 * round, 6 * round, 2 * round]);
        }
        let list = pool.list().await.unwrap();
        assert!(list.iter().all(|entry| entry.count == 40.0), "{list:?}");
        assert_eq!(list.iter().map(|entry| entry.allocations()).sum::<f64>(), 480.0);
        // In between, none is further behind than one turn of its own.
        take(&pool, 5).await;
        let counts = counts(&pool).await;
        assert!(counts[3].1 - counts[0].1 <= 1.0, "{counts:?}");
    })
    .await;
}

#[tokio::test]
async fn a_newcomer_starts_at_a_whole_number_of_its_own_allocations() {
    on_both(async |pool| {
        pool.add(&names(["a:1?weight=3"]), Initial::Count(7)).await.unwrap();
        take(&pool, 1).await;
        pool.add(&names(["b:1", "c:1?weight=2", "d:1?weight=9"]), Initial::Min).await.unwrap();
        let expected =
            [("a:1?weight=3", 22.0 / 3.0), ("d:1?weight=9", 22.0 / 3.0), ("c:1?weight=2", 7.5), ("b:1", 8.0)];
        assert_eq!(counts(&pool).await, expected.map(|(member, count)| (name(member), count)));
    })
    .await;
}

#[tokio::test]
async fn twenty_at_once_share_evenly_and_lose_nothing() {
    on_both(async |pool| {
        let members: Vec<_> = (0..7).map(|i| name(&format!("p{i}:1"))).collect();
        pool.add(&members, Initial::Min).await.unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let pool = pool.clone();
            tasks.spawn(async move { take(&pool, 25).await.into_iter().flatten().count() });
        }
        assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 500);
        let counts = counts(&pool).await;
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<f64>(), 500.0);
        assert!(counts[6].1 - counts[0].1 <= 1.0, "{counts:?}");
    })
    .await;
}

#[test]
fn the_embedded_pool_is_shared_between_threads() {
    let pool = Pool::Embedded(Embedded::new());
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime().block_on(pool.add(&names(["a:1", "b:1", "c:1"]), Initial::Min)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| runtime().block_on(take(&pool, 300)));
        }
    });
    let counts = runtime().block_on(counts(&pool));
    assert!(counts.iter().all(|(_, count)| *count == 400.0), "{counts:?}");
}

// --- lua/allocate.lua by itself ---

const ALLOCATE: &str = include_str!("../lua/allocate.lua");
const GIVE_BACK: &str = concat!(
    include_str!("../lua/weight.lua"),
    include_str!("../lua/eligible.lua"),
    include_str!("../lua/give_back.lua")
);

/// The script as it would be without levels and weights: one member after the other.
const ONE_BY_ONE: &str = "
local chosen = {}
for i = 1, tonumber(ARGV[1]) do
  local member = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not member then break end
  redis.call('ZINCRBY', KEYS[1], 1, member)
  chosen[i] = member
end
return chosen";

/// The script itself, n times with n = 1.
fn singly() -> String {
    format!(
        "local chosen = {{}}
        for i = 1, tonumber(ARGV[1]) do
          chosen[i] = (function(KEYS, ARGV) {ALLOCATE} end)(KEYS, {{'1'}})[1]
        end
        return chosen"
    )
}

/// Few scores for many members, or there would hardly be equals.
fn any_set(scores: impl Strategy<Value = f64>) -> impl Strategy<Value = BTreeMap<Name, f64>> {
    prop::collection::vec(scores, 1..4)
        .prop_flat_map(|scores| prop::collection::btree_map(any_member(), prop::sample::select(scores), 0..16))
}

fn fill(server: &Server, keys: &[&str], members: &BTreeMap<Name, f64>) {
    for key in keys {
        server.cmd(&["DEL", key]);
        for (member, score) in members {
            let score = format!("{score:e}");
            server.cmd(&[b"ZADD".as_slice(), key.as_bytes(), score.as_bytes(), member.as_ref()]);
        }
    }
}

#[test]
fn n_at_once_are_exactly_n_single_allocations_whatever_scores_and_weights() {
    let server = Server::start();
    let singly = singly();
    proptest!(ProptestConfig::with_cases(400), |(members in any_set(any_score()), n in 1..=64_u8)| {
        fill(&server, &["one", "single", "levels"], &members);
        let n = n.to_string();
        let single = server.cmd(&["EVAL", &singly, "1", "single", &n]);
        prop_assert_eq!(&server.cmd(&["EVAL", ALLOCATE, "1", "levels", &n]), &single);
        // As printed: the same doubles to the last bit, in the same order.
        prop_assert_eq!(server.scores("levels"), server.scores("single"));
        if members.keys().all(|member| !member.windows(7).any(|part| part == b"weight=")) {
            prop_assert_eq!(server.cmd(&["EVAL", ONE_BY_ONE, "1", "one", &n]), single);
            prop_assert_eq!(server.scores("levels"), server.scores("one"));
        }
    });
}

#[test]
fn what_is_given_back_was_never_allocated() {
    let server = Server::start();
    // As allocating makes them: whole numbers, the same for all at first.
    let scores = prop_oneof![(0..9_u32).prop_map(f64::from), Just(1e9), Just(1e12)];
    proptest!(ProptestConfig::with_cases(100), |(members in any_set(scores), n in prop::collection::vec(1..=64_u8, 1..4))| {
        fill(&server, &[KEY], &members);
        let mut before = server.scores(KEY);
        for (i, n) in n.iter().enumerate() {
            let Reply::Array(taken) = server.cmd(&["EVAL", ALLOCATE, "1", KEY, &n.to_string()]) else { panic!("no array") };
            let taken: Vec<_> = taken.into_iter().map(|member| match member {
                Reply::Bulk(member) => member,
                other => panic!("{other:?}"),
            }).collect();
            // The first stays, so that later ones start from quotients.
            if i > 0 || n % 2 == 0 {
                let words = [&[b"EVAL".to_vec(), GIVE_BACK.into(), b"1".to_vec(), KEY.into()], &taken[..]].concat();
                prop_assert_eq!(server.cmd(&words), Reply::Bulk(taken.len().to_string().into()));
                prop_assert_eq!(server.scores(KEY), before.clone());
            }
            before = server.scores(KEY);
        }
    });
}

#[test]
fn the_script_refuses_arguments_it_cannot_use_and_writes_nothing() {
    let server = Server::start();
    server.cmd(&["ZADD", KEY, "0", "a:1"]);
    for bad in [&["0"][..], &["65"], &["1.5"], &["-1"], &["nan"], &["x"], &[""], &[], &["2", "a:1"]] {
        let reply = server.cmd(&[&["EVAL", ALLOCATE, "1", KEY], bad].concat());
        assert!(matches!(reply, Reply::Error(_)), "{bad:?}: {reply:?}");
    }
    assert_eq!(server.scores(KEY), [(b"a:1".to_vec(), "0".to_owned())]);
    assert_eq!(server.cmd(&["EVAL", ALLOCATE, "1", "empty", "64"]), Reply::Array(vec![]));
    assert_eq!(server.int(&["EXISTS", "empty"]), 0);
}

// --- Redis: what others see ---

#[tokio::test]
async fn any_tool_can_add_and_remove_members_and_the_keys_are_as_promised() {
    let server = Server::start();
    let pool = connect(&server);
    assert_eq!(take(&pool, 1).await, [None]);
    assert_eq!(server.int(&["EXISTS", KEY]), 0, "an allocation from an empty pool made the key");
    server.cmd(&["ZADD", KEY, "0.5", "a:1", "0", "b:1"]);
    assert_eq!(take(&pool, 3).await, names(["b:1", "a:1", "b:1"]).into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!(counts(&pool).await, [(name("a:1"), 1.5), (name("b:1"), 2.0)]);
    server.cmd(&["ZREM", KEY, "a:1"]);
    assert_eq!(take(&pool, 1).await, [Some(name("b:1"))]);
    server.cmd(&["ZADD", KEY, "inf", "b:1"]);
    pool.park(&name("b:1"), &parking(Kind::Malformed, Stay::UntilRestored)).await.unwrap();
    let Reply::Bulk(record) = server.cmd(&["HGET", &format!("{KEY}:parked"), "b:1"]) else { panic!("not parked") };
    let record = String::from_utf8(record).unwrap();
    assert!(record.starts_with(r#"{"count":"inf","reason":"why","since_ms":1"#), "{record}");
    assert_eq!(pool.parked().await.unwrap()[0].count, f64::INFINITY);
}

#[tokio::test]
async fn a_member_is_any_bytes_up_to_a_megabyte() {
    let server = Server::start();
    let pool = connect(&server);
    let big = Name::from(vec![b'a'; 1 << 20]);
    for member in [big, Name::from_static(b"\xff\xfe\0\r\n+OK\r\n"), name("QUEUED"), name("")] {
        assert_eq!(pool.add(std::slice::from_ref(&member), Initial::Min).await.unwrap(), 1);
        assert_eq!(take(&pool, 1).await, [Some(member.clone())]);
        assert_eq!(allocate(&pool, std::slice::from_ref(&member)).await.unwrap(), None);
        assert_eq!(pool.remove(&[member]).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn a_listing_of_many_pages_is_whole_and_sorted() {
    let server = Server::start();
    let pool = connect(&server);
    let fill = "for i = 1, 25001 do redis.call('ZADD', KEYS[1], i % 3, 'p' .. i) end";
    server.cmd(&["EVAL", fill, "1", KEY]);
    let list = counts(&pool).await;
    assert_eq!(list.len(), 25_001);
    assert!(list.is_sorted_by(|a, b| (a.1, &a.0) < (b.1, &b.0)));
}

#[tokio::test]
async fn a_unix_socket_a_database_and_a_cluster_serve_as_well() {
    let server = Server::start();
    let cluster = Server::cluster().await;
    let cluster_url = format!("redis-cluster://127.0.0.1:{}", cluster.port());
    for url in [server.unix_url(), format!("{}/3", server.url()), cluster_url.clone()] {
        let pool = connect_to(&url);
        assert_eq!(pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap(), 2, "{url}");
        assert_eq!(take(&pool, 2).await, [Some(name("a:1")), Some(name("b:1"))], "{url}");
        pool.park(&name("a:1"), &parking(Kind::Malformed, Stay::UntilRestored)).await.unwrap();
        assert_eq!(pool.parked().await.unwrap().len(), 1, "{url}");
        assert_eq!(counts(&pool).await.len(), 1, "{url}");
    }
    let refused = Redis::connect(&cluster_url, "no-braces", TIMEOUT, NONE_AHEAD).err().unwrap();
    assert!(refused.contains("{no-braces}"), "{refused}");
}

#[tokio::test]
async fn a_slot_that_moves_to_another_node_is_followed_and_counts_once() {
    let (old, new) = (Server::cluster().await, Server::cluster_node());
    old.cmd(&["CLUSTER", "MEET", "127.0.0.1", &new.port().to_string()]);
    eventually(Duration::from_secs(10), "two nodes", async || old.cluster_is_ok() && new.cluster_is_ok()).await;
    let pool = connect_to(&format!("redis-cluster://127.0.0.1:{}", old.port()));
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    take(&pool, 2).await;

    let id = |node: &Server| match node.cmd(&["CLUSTER", "MYID"]) {
        Reply::Bulk(id) => String::from_utf8(id).unwrap(),
        other => panic!("{other:?}"),
    };
    let slot = old.int(&["CLUSTER", "KEYSLOT", KEY]).to_string();
    new.cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(&old)]);
    old.cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(&new)]);
    old.cmd(&["MIGRATE", "127.0.0.1", &new.port().to_string(), KEY, "0", "1000"]);
    for node in [&new, &old] {
        node.cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", &id(&new)]);
    }
    assert_eq!(take(&pool, 2).await, [Some(name("a:1")), Some(name("b:1"))]);
    assert_eq!(new.scores(KEY), [(b"a:1".to_vec(), "2".to_owned()), (b"b:1".to_vec(), "2".to_owned())]);
}

#[tokio::test]
async fn a_url_that_cannot_be_used_is_refused_without_showing_the_password() {
    for url in [
        "",
        "embedded",
        "http://u:s3cret@h",
        "redis://u:s3cret@",
        "redis://u:s3cret@h:port",
        "redis://u:s3cret@h/x/y",
        "redis-sentinel://u:s3cret@h",
        "redis-cluster://h?node=u:s3cret@h:1",
        "redis://u:s3cret@h:99999",
    ] {
        let why = Redis::connect(url, KEY, TIMEOUT, NONE_AHEAD).err().unwrap_or_else(|| panic!("{url} was accepted"));
        assert!(!why.contains("s3cret"), "{why}");
    }
    // Nobody is there; what matters is that no part of TLS is missing from the build.
    assert!(Redis::connect("rediss://u:s3cret@127.0.0.1:1", KEY, TIMEOUT, NONE_AHEAD).is_ok());
}

// --- Redis: coalescing ---

#[tokio::test]
async fn one_request_is_one_call_and_many_at_once_share_calls() {
    let server = Server::start();
    let pool = connect(&server);
    let members: Vec<_> = (0..10).map(|i| name(&format!("p{i}:1"))).collect();
    pool.add(&members, Initial::Min).await.unwrap();
    take(&pool, 1).await; // loads the script

    server.cmd(&["CONFIG", "RESETSTAT"]);
    take(&pool, 3).await;
    assert_eq!(server.calls("evalsha"), (3, 0));

    server.cmd(&["CONFIG", "RESETSTAT"]);
    let taken = futures_in_order(300, || allocate(&pool, &[])).await;
    // The first alone, perhaps; the others 64 at a time.
    let (calls, failed) = server.calls("evalsha");
    assert!((5..=6).contains(&calls) && failed == 0, "{calls} calls");
    // The four above went to the first four.
    let expected: Vec<_> = (4..304).map(|i| Some(members[i % 10].clone())).collect();
    assert_eq!(taken, expected);
    assert_eq!(sum(&pool).await, 304.0);
}

#[tokio::test]
async fn a_short_pool_serves_everyone_and_an_empty_one_nobody() {
    let server = Server::start();
    let pool = connect(&server);
    assert_eq!(futures_in_order(50, || allocate(&pool, &[])).await, vec![None; 50]);
    pool.add(&names(["only:1"]), Initial::Min).await.unwrap();
    assert_eq!(futures_in_order(50, || allocate(&pool, &[])).await, vec![Some(name("only:1")); 50]);
}

#[tokio::test]
async fn two_gateways_share_evenly() {
    let server = Server::start();
    let pools = [connect(&server), connect(&server)];
    pools[0].add(&names(["a:1", "b:1", "c:1"]), Initial::Min).await.unwrap();
    let mut tasks = JoinSet::new();
    for i in 0..20 {
        let pool = pools[i % 2].clone();
        tasks.spawn(async move { take(&pool, 20).await.into_iter().flatten().count() });
    }
    let mut largest: f64 = 0.0;
    while let Some(taken) = tasks.join_next().await {
        assert_eq!(taken.unwrap(), 20);
        let counts = counts(&pools[0]).await;
        largest = largest.max(counts[2].1 - counts[0].1);
    }
    assert!(largest <= 1.0, "counts were {largest} apart");
    assert_eq!(sum(&pools[1]).await, 400.0);
}

#[tokio::test]
async fn who_leaves_early_does_not_hold_up_the_others() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    for _ in 0..20 {
        let mut gone = Box::pin(allocate(&pool, &[]));
        std::future::poll_fn(|cx| {
            assert!(gone.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(gone);
        assert_eq!(take(&pool, 1).await, [Some(name("a:1"))]);
    }
    assert!((20.0..=40.0).contains(&sum(&pool).await));
}

#[test]
fn dropping_the_last_clone_closes_the_connection_and_nothing_hangs() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clients = || match server.cmd(&["CLIENT", "LIST"]) {
        Reply::Bulk(list) => list.iter().filter(|&&b| b == b'\n').count(),
        other => panic!("{other:?}"),
    };
    runtime.block_on(async {
        let pool = connect(&server);
        take(&pool, 1).await;
        let (before, clone) = (clients(), pool.clone());
        drop(pool);
        take(&clone, 1).await;
        drop(clone);
        eventually(RECOVERY, "one connection less", async || clients() < before).await;
    });
    // With the runtime gone first, a call fails instead of waiting for ever.
    let pool = runtime.block_on(async { connect(&server) });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert!(matches!(other.block_on(allocate(&pool, &[])), Err(PoolError::Unreachable(_))));
}

// --- Redis: faults ---

#[tokio::test]
async fn a_flushed_script_cache_costs_nobody_a_request() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let pool = pool.clone();
        tasks.spawn(async move { take(&pool, 60).await.len() });
    }
    let mut flushes = 0;
    while !tasks.is_empty() {
        server.cmd(&["SCRIPT", "FLUSH"]);
        flushes += 1;
        tokio::task::yield_now().await;
        while let Some(done) = tasks.try_join_next() {
            assert_eq!(done.unwrap(), 60);
        }
    }
    assert!(flushes > 10, "{flushes} flushes");
    assert_eq!(sum(&pool).await, 300.0);
}

#[tokio::test]
async fn cut_connections_come_back_and_a_short_break_is_bridged() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    for _ in 0..3 {
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let start = Instant::now();
        // The first may have been under way when the connection broke; the next waits for the new one.
        if allocate(&pool, &[]).await.is_err() {
            assert_eq!(take(&pool, 1).await, [Some(name("a:1"))]);
        }
        assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
        assert_eq!(take(&pool, 5).await.len(), 5);
    }
}

#[tokio::test]
async fn errors_from_redis_are_refusals_and_leave_the_pool_usable() {
    let server = Server::start();
    let pool = connect(&server);
    for wrong in [&["SET", KEY, "x"][..], &["RPUSH", KEY, "x"], &["HSET", KEY, "a", "b"], &["SADD", KEY, "x"]] {
        server.cmd(&["DEL", KEY]);
        server.cmd(wrong);
        let refused = allocate(&pool, &[]).await.unwrap_err();
        assert!(matches!(&refused, PoolError::Refused(why) if why.contains("WRONGTYPE")), "{refused}");
        assert!(matches!(pool.add(&names(["a:1"]), Initial::Min).await, Err(PoolError::Refused(_))));
        assert!(matches!(pool.list().await, Err(PoolError::Refused(_))));
    }
    server.cmd(&["DEL", KEY]);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = allocate(&pool, &[]).await.unwrap_err();
    assert!(matches!(&refused, PoolError::Refused(why) if why.contains("OOM")), "{refused}");
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(take(&pool, 1).await, [Some(name("a:1"))]);
    assert_eq!(sum(&pool).await, 1.0);
}

#[tokio::test]
async fn replies_that_are_no_answer_are_refused_and_the_next_call_works() {
    let server = FakeRedis::start();
    let pool = connect_to(&server.url());
    for bad in [
        &b":5\r\n"[..],
        b"+OK\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*1\r\n:5\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n*0\r\n",
        b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        b"*-1\r\n",
        b"-ERR unknown\r\n",
        b"-NOPERM this user has no permissions\r\n",
        b"-MOVED 3999 127.0.0.1:1\r\n",
        b"-ASK 3999 127.0.0.1:1\r\n",
        b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-MASTERDOWN Link with MASTER is down\r\n",
        b"-CLUSTERDOWN The cluster is down\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\r\n",
        b"*1\r\n$9999999999\r\nx\r\n",
    ] {
        let bad_text = bad.escape_ascii();
        server.answer_scripts_with(bad);
        let start = Instant::now();
        let reply = allocate(&pool, &[]).await;
        assert!(reply.is_err(), "{bad_text}: {reply:?}");
        assert!(start.elapsed() < TIMEOUT + Duration::from_millis(200), "{bad_text}: {:?}", start.elapsed());
        server.answer_scripts_with(b"*1\r\n$3\r\na:1\r\n");
        eventually(RECOVERY, &format!("service after {bad_text}"), async || {
            allocate(&pool, &[]).await.is_ok_and(|member| member == Some(name("a:1")))
        })
        .await;
    }
}

#[tokio::test]
async fn a_pool_is_made_before_its_redis_and_works_once_that_is_there() {
    let mut server = Server::stopped();
    let pool = connect(&server);
    let start = Instant::now();
    let error = allocate(&pool, &[]).await.unwrap_err();
    assert!(matches!(&error, PoolError::Unreachable(why) if why.contains("refused")), "{error}");
    assert!(start.elapsed() < TIMEOUT + Duration::from_millis(200));
    // It has been away for longer than a request would wait: nobody waits any more.
    let start = Instant::now();
    for _ in 0..100 {
        assert!(matches!(allocate(&pool, &[]).await, Err(PoolError::Unreachable(_))));
    }
    assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    server.restart();
    server.cmd(&["ZADD", KEY, "0", "a:1"]);
    let start = Instant::now();
    works_again(&pool).await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_restarted_redis_is_found_again_and_no_old_call_reaches_it() {
    let mut server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    server.stop();
    let start = Instant::now();
    let refused = futures_in_time(100, &pool).await;
    assert_eq!(refused, 100);
    assert!(start.elapsed() < TIMEOUT + Duration::from_millis(200), "{:?}", start.elapsed());
    server.restart();
    server.cmd(&["ZADD", KEY, "0", "a:1"]);
    eventually(RECOVERY, "a listing", async || pool.list().await.is_ok()).await;
    assert_eq!(sum(&pool).await, 0.0, "allocations that were given up have been counted");
    assert_eq!(take(&pool, 1).await, [Some(name("a:1"))]);
}

#[tokio::test]
async fn a_frozen_redis_is_reported_in_time_and_wakes_to_one_old_call() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
    take(&pool, 1).await;
    server.cmd(&["CONFIG", "RESETSTAT"]);
    server.pause();
    // One request, then 50 at once three times over: more than one timeout of silence.
    for n in [1, 50, 50, 50] {
        let start = Instant::now();
        assert_eq!(futures_in_time(n, &pool).await, n);
        assert!(start.elapsed() < TIMEOUT + Duration::from_millis(200), "{:?}", start.elapsed());
    }
    server.resume();
    let start = Instant::now();
    works_again(&pool).await;
    assert!(start.elapsed() < Duration::from_secs(1), "back after {:?}", start.elapsed());
    let (calls, _) = server.calls("evalsha");
    assert!(calls <= 3, "{calls} calls were run: old ones piled up");
}

/// Asks `n` times at once and counts the errors.
async fn futures_in_time(n: usize, pool: &Pool) -> usize {
    let mut tasks = JoinSet::new();
    for _ in 0..n {
        let pool = pool.clone();
        tasks.spawn(async move { allocate(&pool, &[]).await.is_err() });
    }
    tasks.join_all().await.into_iter().filter(|&failed| failed).count()
}

#[tokio::test]
async fn retries_and_the_operator_hear_back_in_time_too() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    server.pause();
    let start = Instant::now();
    let (tried, why) = (names(["a:1"]), parking(Kind::Malformed, Stay::UntilRestored));
    let (retry, list, park) = tokio::join!(allocate(&pool, &tried), pool.list(), pool.park(&tried[0], &why));
    assert!(matches!((retry, list, park), (Err(_), Err(_), Err(_))));
    assert!(start.elapsed() < TIMEOUT + Duration::from_millis(200), "{:?}", start.elapsed());
    server.resume();
    works_again(&pool).await;
}

fn connect_ahead(server: &Server, count: usize, max_age: Duration) -> Pool {
    let prefetch = Prefetch { count, max_age };
    Pool::Redis(Redis::connect(&server.url(), KEY, TIMEOUT, prefetch).expect("a good URL"))
}

/// The sum of all counts.
fn counted(server: &Server) -> f64 {
    server.scores(KEY).iter().map(|(_, score)| score.parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn what_is_fetched_ahead_comes_in_order_and_without_another_call() {
    let server = Server::start();
    let pool = connect_ahead(&server, 8, Duration::from_secs(60));
    pool.add(&names(["a", "b", "c"]), Initial::Min).await.unwrap();

    let mut taken = vec![allocate(&pool, &[]).await.unwrap().unwrap()];
    eventually(RECOVERY, "the ones ahead are counted", async || counted(&server) == 9.0).await;
    let calls = server.calls("evalsha");
    for _ in 0..3 {
        taken.push(allocate(&pool, &[]).await.unwrap().unwrap());
    }

    assert_eq!(taken, names(["a", "b", "c", "a"]));
    assert_eq!(server.calls("evalsha"), calls, "three requests asked Redis although members were ready");
}

#[tokio::test]
async fn what_is_not_used_in_time_is_given_back() {
    let server = Server::start();
    let pool = connect_ahead(&server, 8, Duration::from_millis(50));
    pool.add(&names(["a", "b", "c"]), Initial::Min).await.unwrap();

    allocate(&pool, &[]).await.unwrap();

    eventually(RECOVERY, "only the one that was used stays counted", async || counted(&server) == 1.0).await;
    assert_eq!(pool.list().await.unwrap().last().unwrap().member, name("a"));
}

#[tokio::test]
async fn a_member_that_left_is_not_used_beyond_the_age_and_not_brought_back() {
    let server = Server::start();
    let max_age = Duration::from_millis(50);
    let pool = connect_ahead(&server, 8, max_age);
    pool.add(&names(["a", "b"]), Initial::Min).await.unwrap();
    allocate(&pool, &[]).await.unwrap();
    pool.remove(&names(["b"])).await.unwrap();
    let left = Instant::now();

    while left.elapsed() < 3 * max_age {
        let asked = Instant::now();
        let taken = allocate(&pool, &[]).await.unwrap().unwrap();
        assert!(taken == "a" || asked < left + max_age, "b was used {:?} after it had left", asked - left);
    }

    pool.stop_prefetching().await.unwrap();
    assert_eq!(server.scores(KEY).len(), 1);
}

#[tokio::test]
async fn stopping_gives_back_exactly_what_was_not_used() {
    let server = Server::start();
    let pools: Vec<_> = (0..3).map(|_| connect_ahead(&server, 16, Duration::from_secs(60))).collect();
    pools[0].add(&names(["a", "b", "c", "d", "e"]), Initial::Min).await.unwrap();

    let mut used = 0;
    for round in 0..60 {
        let taken = futures_in_order(1 + round % 4, || allocate(&pools[round % 3], &[])).await;
        used += taken.len();
    }
    for pool in &pools {
        pool.stop_prefetching().await.unwrap();
    }

    assert_eq!(counted(&server), used as f64);
    // Still works, one call for one request.
    allocate(&pools[0], &[]).await.unwrap().unwrap();
    assert_eq!(counted(&server), used as f64 + 1.0);
}

/// A rebase between fetching ahead and giving back takes what is given back; the embedded store allocates nothing ahead.
#[tokio::test]
async fn what_is_given_back_after_a_rebase_leads_below_zero_nowhere() {
    let server = Server::start();
    let pool = connect(&server);
    for members in [["a:1", "b:1"], ["a:1?weight=3", "b:1?weight=2"]].map(names) {
        let ahead = connect_ahead(&server, 6, Duration::from_secs(60));
        pool.add(&members, Initial::Min).await.unwrap();
        allocate(&ahead, &[]).await.unwrap().unwrap();
        let allocations = async || pool.list().await.unwrap().iter().map(|entry| entry.allocations()).sum::<f64>();
        eventually(RECOVERY, "the ones ahead are counted", async || allocations().await == 7.0).await;
        assert!(pool.rebase().await.unwrap().by >= 1.0);
        ahead.stop_prefetching().await.unwrap();
        assert!(counts(&pool).await.iter().all(|(_, count)| *count == 0.0), "{:?}", counts(&pool).await);
        pool.remove(&members).await.unwrap();
    }
}

/// Used counts differ by at most 1 + clients × (⌈prefetch / members⌉ + 1).
#[tokio::test]
async fn the_price_of_fetching_ahead_is_bounded() {
    let server = Server::start();
    let (clients, prefetch, members) = (3, 7, names(["a", "b", "c", "d", "e"]));
    let pools: Vec<_> = (0..clients).map(|_| connect_ahead(&server, prefetch, Duration::from_secs(60))).collect();
    pools[0].add(&members, Initial::Min).await.unwrap();
    let mut used = std::collections::HashMap::new();

    for round in 0..500 {
        // Uneven on purpose: what one client holds is old when it uses it.
        let pool = &pools[(round * round / 7) % clients];
        *used.entry(allocate(pool, &[]).await.unwrap().unwrap()).or_insert(0) += 1;
        let (least, most) = (members.iter().map(|m| used.get(m).copied().unwrap_or(0)), used.values());
        let spread = most.max().unwrap() - least.min().unwrap();
        assert!(spread <= 1 + clients * (prefetch.div_ceil(members.len()) + 1), "round {round}: {spread}");
    }
}
