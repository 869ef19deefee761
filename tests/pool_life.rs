//! The life of a member: candidate, eligible, set aside and back; each behaviour against both stores.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel::member::Name;
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::redis::Redis;
use evenkeel::pool::verify::Context;
use evenkeel::pool::{Ban, Decay, Initial, Kind, Parking, PerHost, Policy, Pool, Prefetch, Rebased, Stay};
use tokio::task::JoinSet;

use crate::support::pool::{
    KEY, NONE_AHEAD, RECOVERY, TIMEOUT, allocate, connect, connect_ramping, connect_to, counts, futures_in_order, name,
    names, on_both, parking, take,
};
use crate::support::redis::{Redis as Server, Reply, eventually};

const AT_ONCE: Stay = Stay::For(Duration::ZERO);

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

async fn parked_names(pool: &Pool) -> Vec<Name> {
    pool.parked().await.unwrap().into_iter().map(|parked| parked.member).collect()
}

#[tokio::test]
async fn a_parked_member_keeps_count_and_reason_until_it_is_removed() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1", "c:1"]), Initial::Count(4)).await.unwrap();
        take(&pool, 1).await;
        let reason = "has a \"path\"\n\u{1}, ünlike others \\";
        let malformed = Parking { kind: Kind::Malformed, reason: reason.to_owned(), stay: Stay::UntilRestored };
        for _ in 0..2 {
            pool.park(&name("a:1"), &malformed).await.unwrap();
            pool.park(&name("b:1"), &parking(Kind::Unhealthy, Stay::For(Duration::from_secs(60)))).await.unwrap();
            assert_eq!(pool.park(&name("nobody:1"), &malformed).await.unwrap(), None);
        }
        assert_eq!(counts(&pool).await, [(name("c:1"), 4.0)]);
        let parked = pool.parked().await.unwrap();
        let seen: Vec<_> = parked.iter().map(|p| (&p.member[..], p.count, p.kind, &*p.reason, p.in_a_row)).collect();
        assert_eq!(
            seen,
            [(&b"a:1"[..], 5.0, Kind::Malformed, reason, 0), (&b"b:1"[..], 4.0, Kind::Unhealthy, "why", 1)]
        );
        assert!(parked.iter().all(|p| now_ms().abs_diff(p.since_ms) < 60_000), "{parked:?}");
        assert_eq!((parked[0].until_ms, parked[1].until_ms), (None, Some(parked[1].since_ms + 60_000)));

        assert_eq!(pool.remove(&names(["a:1", "a:1", "c:1", "nobody:1"])).await.unwrap(), 2);
        assert_eq!(parked_names(&pool).await, names(["b:1"]));
    })
    .await;
}

#[tokio::test]
async fn adding_leaves_those_alone_who_were_set_aside() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        pool.park(&name("a:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        assert_eq!(pool.add(&names(["a:1", "b:1", "c:1"]), Initial::Min).await.unwrap(), 1);
        assert_eq!(parked_names(&pool).await, names(["a:1"]));
        assert_eq!(pool.list().await.unwrap().len(), 2);
        // One removal takes all of it away.
        assert_eq!(pool.remove(&names(["a:1"])).await.unwrap(), 1);
        assert_eq!(pool.add(&names(["a:1"]), Initial::Min).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn only_by_hand_is_a_member_set_aside_that_already_is() {
    on_both(async |pool| {
        pool.add(&names(["a:1"]), Initial::Count(3)).await.unwrap();
        let cooldown = parking(Kind::Cooldown, AT_ONCE);
        assert!(pool.park(&name("a:1"), &cooldown).await.unwrap().is_some());
        assert_eq!(pool.park(&name("a:1"), &cooldown).await.unwrap(), None);
        let by_hand = pool.park(&name("a:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap().unwrap();
        assert_eq!((by_hand.count, by_hand.kind, by_hand.until_ms), (3.0, Kind::Hand, None));
        assert_eq!(pool.restore_due(10, Initial::Min).await.unwrap(), [""; 0], "it waits for a hand now");

        pool.propose(&names(["b:1"])).await.unwrap();
        assert_eq!(pool.park(&name("b:1"), &cooldown).await.unwrap(), None);
        assert!(pool.park(&name("b:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap().is_some());
        assert_eq!(pool.candidates().await.unwrap(), []);
        assert_eq!(pool.propose(&names(["b:1"])).await.unwrap(), 0, "it is set aside, not forgotten");
        assert_eq!(pool.restore(&names(["b:1", "a:1", "c:1"]), Initial::Min).await.unwrap(), names(["b:1", "a:1"]));
        assert_eq!(counts(&pool).await, [(name("b:1"), 0.0), (name("a:1"), 3.0)]);
    })
    .await;
}

#[tokio::test]
async fn who_is_due_returns_once_and_who_is_not_stays() {
    on_both(async |pool| {
        let members: Vec<_> = (0..30).map(|i| name(&format!("p{i:02}:1"))).collect();
        pool.add(&members, Initial::Min).await.unwrap();
        for (i, member) in members.iter().enumerate() {
            let stay = [AT_ONCE, Stay::For(Duration::from_secs(3600)), Stay::UntilRestored][i % 3];
            pool.park(member, &parking(Kind::Cooldown, stay)).await.unwrap().unwrap();
        }
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let pool = pool.clone();
            tasks.spawn(async move { pool.restore_due(3, Initial::Min).await.unwrap() });
        }
        let mut back: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        back.sort();
        assert_eq!(back, members.iter().step_by(3).cloned().collect::<Vec<_>>());
        assert_eq!(pool.list().await.unwrap().len(), 10);
        assert_eq!(pool.parked().await.unwrap().len(), 20);
    })
    .await;
}

#[tokio::test]
async fn each_time_in_a_row_is_longer_until_it_is_forgiven() {
    on_both(async |pool| {
        let a = [name("a:1")];
        pool.add(&a, Initial::Min).await.unwrap();
        let seconds = Duration::from_secs;
        let growing = parking(Kind::Cooldown, Stay::Growing { first: seconds(30), longest: seconds(100) });
        let once = async |forgiven: bool| {
            let parked = pool.park(&a[0], &growing).await.unwrap().unwrap();
            // By hand, so that its time is up now; that adds nothing to the row.
            pool.park(&a[0], &parking(Kind::Hand, AT_ONCE)).await.unwrap().unwrap();
            assert_eq!(pool.restore_due(10, Initial::Min).await.unwrap(), a);
            assert_eq!(pool.forgive(if forgiven { &a } else { &[] }).await.unwrap(), u64::from(forgiven));
            (parked.in_a_row, parked.until_ms.unwrap() - parked.since_ms)
        };
        assert_eq!(once(false).await, (1, 30_000));
        assert_eq!(once(false).await, (2, 60_000));
        assert_eq!(once(false).await, (3, 100_000));
        assert_eq!(once(true).await, (4, 100_000));
        assert_eq!(once(false).await, (1, 30_000));
        // By hand is a new start as well.
        pool.park(&a[0], &growing).await.unwrap();
        pool.restore(&a, Initial::Min).await.unwrap();
        assert_eq!(once(false).await, (1, 30_000));
    })
    .await;
}

#[tokio::test]
async fn a_candidate_enters_when_it_is_accepted() {
    on_both(async |pool| {
        pool.add(&names(["old:1"]), Initial::Count(7)).await.unwrap();
        pool.park(&name("old:1"), &parking(Kind::Malformed, Stay::UntilRestored)).await.unwrap();
        pool.add(&names(["b:1"]), Initial::Count(7)).await.unwrap();
        assert_eq!(pool.propose(&names(["a:1", "b:1", "c:1", "d:1", "old:1", "a:1"])).await.unwrap(), 3);
        assert_eq!(take(&pool, 1).await, [Some(name("b:1"))]);

        assert_eq!(pool.accept(&names(["a:1", "nobody:1"]), Initial::Min).await.unwrap(), 1);
        assert_eq!(pool.reject(&names(["c:1", "nobody:1"]), None).await.unwrap(), 1);
        assert_eq!(pool.reject(&names(["d:1"]), Some(Duration::from_secs(3600))).await.unwrap(), 1);
        assert_eq!(pool.accept(&names(["c:1"]), Initial::Min).await.unwrap(), 0, "it was rejected");
        let candidates = pool.candidates().await.unwrap();
        assert_eq!(candidates.iter().map(|c| c.member.clone()).collect::<Vec<_>>(), names(["d:1"]));
        assert!(candidates[0].due_ms.abs_diff(now_ms() + 3_600_000) < 60_000, "{candidates:?}");
        assert_eq!(counts(&pool).await, [(name("a:1"), 8.0), (name("b:1"), 8.0)]);
        // Added by hand, it needs no look.
        assert_eq!(pool.add(&names(["d:1"]), Initial::Min).await.unwrap(), 1);
        assert_eq!(pool.candidates().await.unwrap(), []);
        assert_eq!(pool.remove(&names(["d:1"])).await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_policy_says_with_which_count_a_member_returns() {
    on_both(async |pool| {
        let others = names(["a:1", "b:1", "c:1", "d:1", "e:1"]);
        for (policy, behind, ahead) in [
            (Initial::Keep, 5.0, 5_000.0),
            (Initial::Min, 100.0, 5_000.0),
            (Initial::Median, 300.0, 5_000.0),
            (Initial::Max, 500.0, 5_000.0),
            (Initial::Zero, 0.0, 0.0),
            (Initial::Count(7), 7.0, 7.0),
        ] {
            pool.remove(&[others.as_slice(), &names(["x:1", "y:1", "z:1"])].concat()).await.unwrap();
            pool.add(&names(["x:1"]), Initial::Count(5)).await.unwrap();
            pool.add(&names(["y:1"]), Initial::Count(5_000)).await.unwrap();
            for member in names(["x:1", "y:1"]) {
                pool.park(&member, &parking(Kind::Hand, AT_ONCE)).await.unwrap();
            }
            for (i, member) in others.iter().enumerate() {
                pool.add(std::slice::from_ref(member), Initial::Count(100 * (i as u64 + 1))).await.unwrap();
            }
            // Of a list, all return as the set was before.
            assert_eq!(pool.restore_due(10, policy).await.unwrap().len(), 2);
            let found = counts(&pool).await;
            let count = |member: &str| found.iter().find(|(name, _)| name == member).map(|(_, count)| *count);
            assert_eq!((count("x:1"), count("y:1")), (Some(behind), Some(ahead)), "{policy:?}");
            // A newcomer has no history, and starts where the policy says.
            pool.remove(&names(["x:1", "y:1"])).await.unwrap();
            pool.add(&names(["z:1"]), policy).await.unwrap();
            let start = if policy == Initial::Keep { 0.0 } else { behind };
            assert_eq!(counts(&pool).await.iter().find(|(name, _)| name == "z:1").unwrap().1, start, "{policy:?}");
        }
    })
    .await;
}

/// How many of the first 1,000 allocations a member gets that was away while ten others had 10,000 each, or from 10,000 to
/// 10,900 in steps of 100.
#[tokio::test]
async fn what_a_member_gets_that_was_away_is_what_the_policy_says() {
    let server = Server::start();
    for (policy, every, level, uneven) in [
        (Initial::Keep, 20, 1_000, 1_000),
        (Initial::Zero, 20, 1_000, 1_000),
        (Initial::Min, 20, 91, 320),
        (Initial::Median, 20, 91, 0),
        (Initial::Max, 20, 91, 0),
        (Initial::Ramp, 5, 200, 200),
        (Initial::Ramp, 20, 91, 91), // no less than an equal share
    ] {
        for (step, expected) in [(0, level), (100, uneven)] {
            server.cmd(&["FLUSHDB"]);
            let pools = [Pool::Embedded(Embedded::new().with_ramp(every)), connect_ramping(&server, every)];
            for pool in pools {
                let away = name("a:1");
                pool.add(std::slice::from_ref(&away), Initial::Min).await.unwrap();
                pool.park(&away, &parking(Kind::Cooldown, AT_ONCE)).await.unwrap().unwrap();
                for i in 0..10 {
                    pool.add(&[name(&format!("p{i}:1"))], Initial::Count(10_000 + step * i)).await.unwrap();
                }
                pool.restore_due(10, policy).await.unwrap();
                let taken = futures_in_order(1_000, || allocate(&pool, &[])).await;
                let got = taken.iter().flatten().filter(|&member| *member == away).count();
                assert_eq!(got, expected, "{policy:?}, steps of {step}");
            }
        }
    }
}

#[tokio::test]
async fn who_catches_up_slowly_gets_its_turns_and_no_more_until_it_is_even() {
    let server = Server::start();
    for pool in [Pool::Embedded(Embedded::new().with_ramp(4)), connect_ramping(&server, 4)] {
        let others: Vec<_> = (0..9).map(|i| name(&format!("p{i}:1"))).collect();
        pool.add(&others, Initial::Count(10)).await.unwrap();
        pool.add(&names(["a:1", "b:1?weight=2"]), Initial::Ramp).await.unwrap();
        let ramping: Vec<_> = pool.ramping().await.unwrap().into_iter().map(|entry| entry.member).collect();
        assert_eq!((ramping, pool.list().await.unwrap().len()), (names(["a:1", "b:1?weight=2"]), 9));
        let mut taken = Vec::new();
        while !pool.ramping().await.unwrap().is_empty() {
            taken.extend(futures_in_order(7, || allocate(&pool, &[])).await.into_iter().flatten());
            assert!(taken.len() < 1_000, "they do not catch up");
        }
        for member in names(["a:1", "b:1?weight=2"]) {
            let turns: Vec<_> = (0..taken.len()).filter(|&i| taken[i] == member).collect();
            let while_behind = if member == "a:1" { 10 } else { 20 };
            assert!(turns.windows(2).take(while_behind).all(|pair| pair[1] - pair[0] >= 4), "{member:?}: {turns:?}");
        }
        let list = pool.list().await.unwrap();
        assert_eq!(
            (list.len(), list.iter().map(|entry| entry.allocations()).sum::<f64>()),
            (11, 90.0 + taken.len() as f64)
        );
        assert!(list[10].count - list[0].count <= 1.0, "{list:?}");
    }
}

#[tokio::test]
async fn a_pool_of_nobody_but_those_who_catch_up_still_serves() {
    let server = Server::start();
    for pool in [Pool::Embedded(Embedded::new().with_ramp(4)), connect_ramping(&server, 4)] {
        pool.add(&names(["old:1"]), Initial::Count(10)).await.unwrap();
        pool.add(&names(["a:1", "b:1"]), Initial::Ramp).await.unwrap();
        // A retry takes whoever it has not tried, whoever's turn it is.
        assert_eq!(take(&pool, 3).await, [Some(name("a:1")), Some(name("b:1")), Some(name("old:1"))]);
        assert_eq!(allocate(&pool, &names(["old:1", "a:1"])).await.unwrap(), Some(name("b:1")));
        pool.remove(&names(["old:1"])).await.unwrap();
        assert_eq!(take(&pool, 4).await, names(["a:1", "a:1", "b:1", "a:1"]).into_iter().map(Some).collect::<Vec<_>>());
        pool.park(&name("a:1"), &parking(Kind::Cooldown, Stay::UntilRestored)).await.unwrap().unwrap();
        pool.remove(&names(["b:1"])).await.unwrap();
        assert_eq!(take(&pool, 1).await, [None]);
        // Into an empty set there is nothing to catch up with.
        assert_eq!(pool.restore(&names(["a:1"]), Initial::Ramp).await.unwrap(), names(["a:1"]));
        assert_eq!((pool.ramping().await.unwrap(), counts(&pool).await), (vec![], vec![(name("a:1"), 4.0)]));
    }
}

/// A gateway that is configured otherwise must not leave them where nobody chooses them.
#[tokio::test]
async fn those_who_catch_up_join_the_set_where_nobody_ramps_any_more() {
    let server = Server::start();
    for (before, after) in
        [(Pool::Embedded(Embedded::new()), None), (connect_ramping(&server, 4), Some(connect(&server)))]
    {
        let after = after.as_ref().unwrap_or(&before);
        before.add(&names(["old:1"]), Initial::Count(10)).await.unwrap();
        before.add(&names(["a:1"]), Initial::Ramp).await.unwrap();
        assert_eq!(before.ramping().await.unwrap().len(), 1);
        assert_eq!(after.restore_due(10, Initial::Min).await.unwrap(), [""; 0]);
        assert_eq!((after.ramping().await.unwrap(), counts(after).await.len()), (vec![], 2));
        assert_eq!(counts(after).await[0], (name("a:1"), 10.0));
    }
}

#[tokio::test]
async fn what_is_given_back_of_who_catches_up_is_undone() {
    let server = Server::start();
    let prefetch = Prefetch { count: 8, max_age: Duration::from_secs(60) };
    let ahead = Redis::connect(&server.url(), KEY, TIMEOUT, prefetch).unwrap().with_ramp(2);
    let (ahead, pool) = (Pool::Redis(ahead), connect_ramping(&server, 2));
    pool.add(&names(["p:1", "q:1"]), Initial::Count(1_000)).await.unwrap();
    pool.add(&names(["a:1?weight=3"]), Initial::Ramp).await.unwrap();
    assert_eq!(take(&ahead, 1).await, [Some(name("a:1?weight=3"))]);
    ahead.stop_prefetching().await.unwrap();
    let ramping = pool.ramping().await.unwrap();
    assert_eq!(ramping.iter().map(|entry| entry.allocations()).collect::<Vec<_>>(), [1.0]);
    assert_eq!(counts(&pool).await, [(name("p:1"), 1_000.0), (name("q:1"), 1_000.0)]);
}

#[tokio::test]
async fn counts_shrink_once_a_period_whoever_asks_and_as_often_as_periods_went_by() {
    let server = Server::start();
    let decay = |millis| Decay { keep: 0.9, period: Duration::from_millis(millis) };
    for is_redis in [false, true] {
        let pool = if is_redis { connect(&server) } else { Pool::Embedded(Embedded::new()) };
        let hour = decay(3_600_000);
        assert_eq!(pool.decay(hour).await.unwrap(), 0, "the first period begins");
        for (member, count) in [("a:1", 100), ("b:1", 105), ("c:1?weight=3", 7), ("d:1", 10), ("e:1", 0)] {
            pool.add(&names([member]), Initial::Count(count)).await.unwrap();
        }
        take(&pool, 1).await;
        pool.park(&name("d:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap().unwrap();
        pool.add(&names(["r:1"]), Initial::Ramp).await.unwrap();
        assert_eq!(pool.decay(hour).await.unwrap(), 0, "it is not over");
        let before = counts(&pool).await;

        // A shorter one is over soon; several call, and one of them does it.
        let short = decay(200);
        let mut periods = 0;
        while periods == 0 {
            let calls = [pool.decay(short), pool.decay(short), pool.decay(short)];
            let [a, b, c] = calls;
            let (a, b, c) = tokio::join!(a, b, c);
            periods = a.unwrap() + b.unwrap() + c.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await; // between two looks
        }
        let factor = 0.9_f64.powf(periods as f64);
        for (member, count) in before {
            let weight = if member.ends_with(b"weight=3") { 3.0 } else { 1.0 };
            let expected = (count * weight * factor + 1e-6).floor() / weight;
            assert!(counts(&pool).await.contains(&(member.clone(), expected)), "{member:?} after {periods}");
        }
        assert_eq!(pool.parked().await.unwrap()[0].count, (10.0 * factor + 1e-6).floor());
    }
}

#[tokio::test]
async fn a_rebase_subtracts_the_lowest_from_all() {
    on_both(async |pool| {
        assert_eq!(pool.rebase().await.unwrap(), Rebased { by: 0.0, members: 0 });
        pool.add(&names(["low:1", "a:1", "b:1?weight=3", "c:1"]), Initial::Count(5)).await.unwrap();
        pool.park(&name("low:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap().unwrap();
        take(&pool, 8).await;
        let before = counts(&pool).await;
        assert_eq!(before, [("b:1?weight=3", 19.0 / 3.0), ("a:1", 7.0), ("c:1", 7.0)].map(|(m, c)| (name(m), c)));
        assert_eq!(pool.rebase().await.unwrap(), Rebased { by: 6.0, members: 3 });
        let after = counts(&pool).await;
        assert_eq!(after, [("b:1?weight=3", 1.0 / 3.0), ("a:1", 1.0), ("c:1", 1.0)].map(|(m, c)| (name(m), c)));
        assert_eq!(pool.parked().await.unwrap()[0].count, 0.0, "not below nothing");
        assert_eq!(pool.rebase().await.unwrap(), Rebased { by: 0.0, members: 3 });
    })
    .await;
}

/// A member that somebody has put into the set is eligible, whatever else was known of it.
#[tokio::test]
async fn no_member_shows_in_two_states_when_another_tool_adds_it() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1", "c:1"]), Initial::Min).await.unwrap();
    for member in names(["a:1", "b:1"]) {
        pool.park(&member, &parking(Kind::Cooldown, AT_ONCE)).await.unwrap();
    }
    pool.propose(&names(["d:1"])).await.unwrap();
    server.cmd(&["ZADD", KEY, "4", "a:1", "4", "b:1", "4", "d:1"]);
    assert_eq!(counts(&pool).await.len(), 4);
    assert_eq!((pool.parked().await.unwrap(), pool.candidates().await.unwrap()), (vec![], vec![]));

    assert_eq!(pool.restore_due(10, Initial::Zero).await.unwrap(), [""; 0]);
    assert_eq!(server.int(&["HLEN", &format!("{KEY}:parked")]), 0, "the records that meant nothing any more are gone");
    assert!(counts(&pool).await.contains(&(name("a:1"), 4.0)), "its score is what the tool wrote");
    assert_eq!(pool.reject(&names(["d:1"]), None).await.unwrap(), 0);
    assert_eq!(server.int(&["EXISTS", &format!("{KEY}:candidates")]), 0);
}

#[tokio::test]
async fn records_of_older_versions_and_of_others_still_serve() {
    let server = Server::start();
    let (pool, parked) = (connect(&server), format!("{KEY}:parked"));
    let old = r#"{"count":5,"reason":"has no port","since_ms":1796062407515}"#;
    server.cmd(&[
        "HSET",
        &parked,
        "old",
        old,
        "list",
        "[1]",
        "text",
        "}{",
        "empty",
        "",
        "odd",
        r#"{"count":{},"kind":7}"#,
    ]);
    server.cmd(&["HSET", &parked, "inf", r#"{"count":"-inf"}"#, "nan", r#"{"count":nan,"in_a_row":nan}"#]);
    server.cmd(&["ZADD", &format!("{KEY}:returns"), "1", "old", "1", "list", "1", "nan", "1", "nobody"]);
    let listed = pool.parked().await.unwrap();
    let found = listed.iter().find(|record| record.member == "old").unwrap();
    assert_eq!((found.count, found.kind, &*found.reason), (5.0, Kind::Malformed, "has no port"));
    assert_eq!((found.since_ms, found.until_ms, found.in_a_row), (1_796_062_407_515, None, 0));
    assert_eq!(listed.len(), 7);

    let back = pool.restore_due(100, Initial::Keep).await.unwrap();
    assert_eq!(HashSet::<Name>::from_iter(back), names(["old", "list", "nan"]).into_iter().collect());
    let all = names(["text", "empty", "odd", "inf"]);
    assert_eq!(pool.restore(&all, Initial::Keep).await.unwrap(), all);
    let counts = counts(&pool).await;
    assert_eq!(counts[0], (name("inf"), f64::NEG_INFINITY));
    assert_eq!(counts[6], (name("old"), 5.0));
    assert!(counts[1..6].iter().all(|(_, count)| *count == 0.0), "{counts:?}");
    assert_eq!(server.int(&["EXISTS", &parked, &format!("{KEY}:returns")]), 0);
}

#[tokio::test]
async fn a_record_is_json_that_other_tools_can_read() {
    let server = Server::start();
    let pool = connect(&server);
    server.cmd(&["ZADD", KEY, "inf", "b:1", "0.1", "a:1"]);
    pool.park(&name("b:1"), &parking(Kind::Malformed, Stay::UntilRestored)).await.unwrap();
    pool.park(&name("a:1"), &parking(Kind::Cooldown, Stay::For(Duration::from_secs(60)))).await.unwrap();
    let record = |member: &str| match server.cmd(&["HGET", &format!("{KEY}:parked"), member]) {
        Reply::Bulk(record) => serde_json::from_slice::<serde_json::Value>(&record).unwrap(),
        other => panic!("{other:?}"),
    };
    let b = record("b:1");
    assert_eq!((&b["count"], &b["reason"], &b["kind"]), (&"inf".into(), &"why".into(), &"malformed".into()));
    assert_eq!((&b["in_a_row"], b.get("until_ms")), (&0.into(), None));
    let a = record("a:1");
    assert_eq!((&a["count"], &a["kind"], &a["in_a_row"]), (&0.1.into(), &"cooldown".into(), &1.into()));
    let until = a["until_ms"].as_u64().unwrap();
    assert_eq!(until, a["since_ms"].as_u64().unwrap() + 60_000);
    assert_eq!(server.scores(&format!("{KEY}:returns")), [(b"a:1".to_vec(), until.to_string())]);
    assert_eq!(pool.parked().await.unwrap()[1].count, f64::INFINITY);
}

/// Seven clients do everything at once. Whatever they do, no member is in two states, none is lost, and each allocation is
/// counted once.
#[tokio::test]
async fn clients_that_race_over_all_scripts_lose_nobody_and_no_count() {
    let server = Server::start();
    let members: Vec<_> = (0..40).map(|i| name(&format!("p{i:02}:1"))).collect();
    let pools: Vec<_> = (0..7).map(|_| connect(&server)).collect();
    pools[0].add(&members, Initial::Min).await.unwrap();
    let mut tasks = JoinSet::new();
    for (client, pool) in pools.iter().enumerate() {
        let (pool, members) = (pool.clone(), members.clone());
        tasks.spawn(async move {
            let mut taken = 0;
            for round in 0..120 {
                let member = &members[(client * 17 + round * 7) % members.len()];
                taken += u64::from(allocate(&pool, &[]).await.unwrap().is_some());
                match (client + round) % 4 {
                    0 => drop(pool.park(member, &parking(Kind::Cooldown, AT_ONCE)).await.unwrap()),
                    1 => drop(pool.restore_due(1 + round % 3, Initial::Keep).await.unwrap()),
                    2 => drop(pool.restore(std::slice::from_ref(member), Initial::Keep).await.unwrap()),
                    _ => assert_eq!(pool.add(&members, Initial::Min).await.unwrap(), 0),
                }
            }
            taken
        });
    }
    let taken: u64 = tasks.join_all().await.into_iter().sum();

    // No member is removed and each keeps its own count: so all are there, and the sum is what was allocated.
    let (eligible, parked) = (pools[0].list().await.unwrap(), pools[0].parked().await.unwrap());
    let mut all: Vec<_> = eligible.iter().map(|e| &e.member).chain(parked.iter().map(|p| &p.member)).cloned().collect();
    all.sort();
    assert_eq!(all, members);
    let sum: f64 = eligible.iter().map(|e| e.count).chain(parked.iter().map(|p| p.count)).sum();
    assert_eq!(sum, taken as f64);
    assert_eq!(server.int(&["ZCARD", &format!("{KEY}:returns")]), parked.len() as i64);
    assert_eq!(server.int(&["HLEN", &format!("{KEY}:parked")]), parked.len() as i64);
}

#[tokio::test]
async fn redis_that_is_full_or_has_a_wrong_type_leaves_a_member_where_it_is() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1"]), Initial::Count(2)).await.unwrap();
    pool.park(&name("b:1"), &parking(Kind::Hand, AT_ONCE)).await.unwrap();
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(pool.park(&name("a:1"), &parking(Kind::Hand, AT_ONCE)).await.is_err());
    assert!(pool.restore_due(10, Initial::Min).await.is_err());
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!((counts(&pool).await, parked_names(&pool).await), (vec![(name("a:1"), 2.0)], names(["b:1"])));

    server.cmd(&["RENAME", &format!("{KEY}:parked"), "elsewhere"]);
    server.cmd(&["SET", &format!("{KEY}:parked"), "x"]);
    assert!(pool.park(&name("a:1"), &parking(Kind::Hand, AT_ONCE)).await.is_err());
    assert_eq!(counts(&pool).await, [(name("a:1"), 2.0)]);
    server.cmd(&["RENAME", "elsewhere", &format!("{KEY}:parked")]);
    eventually(RECOVERY, "b is back", async || {
        pool.restore_due(10, Initial::Min).await.is_ok_and(|back| back == names(["b:1"]))
    })
    .await;
}

/// The line that the README tells an operator to type.
#[tokio::test]
async fn the_acl_of_the_readme_allows_all_that_is_needed() {
    let server = Server::start();
    let url = server.restricted_url();
    let ramping = Redis::connect(&url, KEY, TIMEOUT, NONE_AHEAD).unwrap().with_ramp(2);
    let (pool, ramping) = (connect_to(&url), Pool::Redis(ramping));
    pool.add(&names(["r:1", "t:1", "u:1"]), Initial::Count(3)).await.unwrap();
    pool.add(&names(["s:1"]), Initial::Ramp).await.unwrap();
    assert_eq!((take(&ramping, 12).await.len(), ramping.ramping().await.unwrap().len()), (12, 0));
    pool.remove(&names(["r:1", "s:1", "t:1", "u:1"])).await.unwrap();
    pool.add(&names(["a:1", "b:1"]), Initial::Median).await.unwrap();
    pool.propose(&names(["c:1"])).await.unwrap();
    pool.reject(&names(["c:1"]), Some(Duration::ZERO)).await.unwrap();
    pool.accept(&names(["c:1"]), Initial::Min).await.unwrap();
    take(&pool, 3).await;
    for stay in [AT_ONCE, Stay::UntilRestored] {
        pool.park(&name("a:1"), &parking(Kind::Cooldown, stay)).await.unwrap().unwrap();
        assert_eq!((pool.parked().await.unwrap().len(), pool.candidates().await.unwrap().len()), (1, 0));
        pool.restore_due(10, Initial::Min).await.unwrap();
        pool.restore(&names(["a:1"]), Initial::Min).await.unwrap();
    }
    pool.forgive(&names(["a:1"])).await.unwrap();
    let bans = ["a:1", "b:1"].map(name).map(|member| Ban { member, reason: "why".to_owned(), span: Duration::ZERO });
    pool.ban(&bans[..1], 100).await.unwrap();
    pool.restore(&names(["a:1"]), Initial::Min).await.unwrap();
    // So many that how far they reach is remembered.
    let many: Vec<Name> = (0..200).map(|n| name(&format!("m{n}:1"))).collect();
    pool.add(&many, Initial::Zero).await.unwrap();
    let hour = Duration::from_secs(3600);
    let banned: Vec<_> =
        many.iter().map(|member| Ban { member: member.clone(), span: hour, ..bans[0].clone() }).collect();
    for pool in [&pool, &ramping] {
        pool.ban_for("shop.test", &banned, None).await.unwrap();
        for _ in 0..3 {
            pool.allocate_for("shop.test", &[]).await.unwrap().unwrap();
        }
        pool.try_next_for("shop.test", hour).await.unwrap();
        assert_eq!(pool.unban_for("shop.test", &many).await.unwrap().len(), many.len());
    }
    let limits = PerHost { max_hosts: 1, idle: hour };
    let spread = Pool::Redis(Redis::connect(&url, KEY, TIMEOUT, NONE_AHEAD).unwrap().with_hosts(limits));
    for host in ["shop.test", "other.test"] {
        spread.allocate_for(host, &many[..1]).await.unwrap().unwrap();
    }
    pool.ban_for("other.test", &bans, None).await.unwrap();
    assert_eq!(pool.hosts(&mut None).await.unwrap(), Some(vec![]));
    pool.remove(&many).await.unwrap();
    pool.propose(&names(["v:1"])).await.unwrap();
    let context = Context {
        policy: Policy::LeastUsed,
        prefetch: 0,
        workers: 1,
        decays: false,
        initial: Initial::Min,
        restore: Initial::Min,
    };
    assert_eq!(pool.verify(context).await.unwrap().numbers.candidates, 1);
    pool.reject(&names(["v:1"]), None).await.unwrap();
    let decay = Decay { keep: 0.5, period: Duration::from_millis(1) };
    eventually(RECOVERY, "a decay", async || pool.decay(decay).await.unwrap() > 0).await;
    pool.rebase().await.unwrap();
    pool.remove(&names(["a:1"])).await.unwrap();
    let mut reading = pool.begin_reading("one", Initial::Min).await.unwrap();
    pool.take(&mut reading, &names(["d:1", "e:1"]), false).await.unwrap();
    pool.take(&mut reading, &names(["f:1"]), true).await.unwrap();
    pool.begin_reading("two", Initial::Min).await.unwrap();
    let reading = pool.begin_reading("one", Initial::Min).await.unwrap();
    let missing = pool.missing(&reading, 10).await.unwrap();
    pool.forget(&reading, &missing[..1], false).await.unwrap();
    pool.forget(&reading, &missing[1..], true).await.unwrap();
    let removed = missing[1..].iter().filter(|member| **member != "f:1").count();
    assert_eq!(pool.list().await.unwrap().len(), 4 - removed);
    assert_eq!(server.cmd(&["ACL", "LOG"]), Reply::Array(vec![]));
}
