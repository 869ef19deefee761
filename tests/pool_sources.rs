//! What the pool remembers of its sources; each behaviour against both stores.

use std::collections::HashSet;

use evenkeel::member::Name;
use evenkeel::pool::{Dropped, Initial, Kind, Pool, Reading, Stay};

use crate::support::pool::{connect, counts, name, names, on_both, parking, take};
use crate::support::redis::Redis as Server;

/// Reads a whole list; how many entered.
async fn read(pool: &Pool, source: &str, members: &[Name]) -> (Reading, u64) {
    let mut reading = pool.begin_reading(source, Initial::Min).await.unwrap();
    let entered = pool.take(&mut reading, members, false).await.unwrap();
    (reading, entered)
}

/// Forgets everything that the reading has not found.
async fn forget(pool: &Pool, reading: &Reading, remove: bool) -> (u64, u64) {
    let mut all = (0, 0);
    loop {
        let missing = pool.missing(reading, 2).await.unwrap();
        assert!(missing.len() <= 2);
        if missing.is_empty() {
            return all;
        }
        let Dropped { forgotten, removed } = pool.forget(reading, &missing, remove).await.unwrap();
        assert_eq!(forgotten, missing.len() as u64);
        all = (all.0 + forgotten, all.1 + removed);
    }
}

async fn eligible(pool: &Pool) -> Vec<Name> {
    let mut members: Vec<Name> = counts(pool).await.into_iter().map(|(member, _)| member).collect();
    members.sort();
    members
}

async fn ramping(pool: &Pool) -> Vec<Name> {
    let mut members: Vec<Name> = pool.ramping().await.unwrap().into_iter().map(|entry| entry.member).collect();
    members.sort();
    members
}

async fn candidates(pool: &Pool) -> Vec<Name> {
    pool.candidates().await.unwrap().into_iter().map(|candidate| candidate.member).collect()
}

#[tokio::test]
async fn newcomers_of_one_reading_start_alike_and_counts_that_exist_are_kept() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Count(7)).await.unwrap();
        take(&pool, 1).await;
        let mut reading = pool.begin_reading("list", Initial::Max).await.unwrap();
        assert_eq!(pool.take(&mut reading, &names(["b:1", "c:1"]), false).await.unwrap(), 1);
        // What "max" was is settled by the first call.
        pool.add(&names(["d:1"]), Initial::Count(50)).await.unwrap();
        assert_eq!(pool.take(&mut reading, &names(["a:1", "c:1", "e:1"]), false).await.unwrap(), 1);
        let expected = [("b:1", 7.0), ("a:1", 8.0), ("c:1", 8.0), ("e:1", 8.0), ("d:1", 50.0)];
        assert_eq!(counts(&pool).await, expected.map(|(member, count)| (name(member), count)));
    })
    .await;
}

#[tokio::test]
async fn who_was_set_aside_or_taken_out_by_hand_is_not_brought_back_by_a_list_that_still_names_it() {
    on_both(async |pool| {
        let list = names(["a:1", "b:1", "c:1"]);
        assert_eq!(read(&pool, "list", &list).await.1, 3);
        pool.park(&name("a:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        pool.remove(&names(["b:1"])).await.unwrap();
        let (reading, entered) = read(&pool, "list", &list).await;
        assert_eq!((entered, forget(&pool, &reading, true).await), (0, (0, 0)));
        assert_eq!(eligible(&pool).await, names(["c:1"]));
        assert_eq!(pool.parked().await.unwrap().len(), 1);
        // Another source that begins to name it means it; so does this one, once it has ceased to.
        assert_eq!(read(&pool, "other", &names(["b:1"])).await.1, 1);
        pool.remove(&names(["b:1"])).await.unwrap();
        let (reading, _) = read(&pool, "list", &names(["a:1", "c:1"])).await;
        assert_eq!(forget(&pool, &reading, false).await, (1, 0));
        assert_eq!(read(&pool, "list", &list).await.1, 1);
        assert_eq!(eligible(&pool).await, names(["b:1", "c:1"]));
    })
    .await;
}

#[tokio::test]
async fn a_pool_without_anyone_is_filled_anew() {
    on_both(async |pool| {
        let list = names(["a:1", "b:1"]);
        let (reading, _) = read(&pool, "list", &list).await;
        assert!(!reading.may_skip_unchanged());
        let (reading, _) = read(&pool, "list", &list).await;
        assert!(reading.may_skip_unchanged());
        pool.park(&name("a:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        pool.remove(&names(["b:1"])).await.unwrap();
        let (reading, entered) = read(&pool, "list", &list).await;
        assert_eq!((reading.may_skip_unchanged(), entered), (false, 1));
        assert_eq!(eligible(&pool).await, names(["b:1"]));
    })
    .await;
}

#[tokio::test]
async fn what_a_list_names_no_more_stays_or_goes_as_asked_in_whatever_state_it_is() {
    on_both(async |pool| {
        let list = names(["a:1", "b:1", "c:1", "d:1"]);
        let (reading, _) = read(&pool, "list", &list).await;
        assert_eq!(forget(&pool, &reading, true).await, (0, 0));
        pool.park(&name("b:1"), &parking(Kind::Unhealthy, Stay::UntilRestored)).await.unwrap();
        pool.remove(&names(["c:1"])).await.unwrap();
        let (reading, _) = read(&pool, "list", &names(["d:1"])).await;
        assert_eq!(forget(&pool, &reading, true).await, (3, 2));
        assert_eq!((eligible(&pool).await, pool.parked().await.unwrap()), (names(["d:1"]), vec![]));

        read(&pool, "list", &list).await;
        pool.park(&name("b:1"), &parking(Kind::Unhealthy, Stay::UntilRestored)).await.unwrap();
        let (reading, _) = read(&pool, "list", &names(["d:1"])).await;
        assert_eq!(forget(&pool, &reading, false).await, (3, 0));
        assert_eq!(eligible(&pool).await, names(["a:1", "c:1", "d:1"]));
        assert_eq!(pool.parked().await.unwrap().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_member_that_another_source_names_stays() {
    on_both(async |pool| {
        read(&pool, "one", &names(["a:1", "b:1"])).await;
        read(&pool, "two", &names(["b:1", "c:1"])).await;
        let (one, _) = read(&pool, "one", &[]).await;
        assert_eq!(forget(&pool, &one, true).await, (2, 1));
        assert_eq!(eligible(&pool).await, names(["b:1", "c:1"]));
        let (two, _) = read(&pool, "two", &[]).await;
        assert_eq!(forget(&pool, &two, true).await, (2, 2));
        assert_eq!(eligible(&pool).await, Vec::<Name>::new());
    })
    .await;
}

/// Those who catch up slowly are members like all others.
#[tokio::test]
async fn newcomers_may_catch_up_slowly() {
    on_both(async |pool| {
        pool.add(&names(["a:1"]), Initial::Count(7)).await.unwrap();
        for (list, entered) in [(names(["b:1", "c:1"]), 2), (names(["b:1", "c:1", "d:1"]), 1)] {
            let mut reading = pool.begin_reading("list", Initial::Ramp).await.unwrap();
            assert_eq!(pool.take(&mut reading, &list, false).await.unwrap(), entered);
            assert_eq!(forget(&pool, &reading, true).await, (0, 0));
        }
        assert_eq!((eligible(&pool).await, ramping(&pool).await), (names(["a:1"]), names(["b:1", "c:1", "d:1"])));
        pool.remove(&names(["a:1"])).await.unwrap();
        let mut reading = pool.begin_reading("list", Initial::Ramp).await.unwrap();
        assert!(reading.may_skip_unchanged(), "somebody is eligible");
        assert_eq!(pool.take(&mut reading, &names(["b:1"]), true).await.unwrap(), 0);
        assert_eq!(forget(&pool, &reading, false).await, (2, 0));
        let (reading, _) = read(&pool, "list", &[]).await;
        assert_eq!(forget(&pool, &reading, true).await, (1, 1));
        assert_eq!(ramping(&pool).await, names(["c:1", "d:1"]));
    })
    .await;
}

/// Two gateways read the same source at the same time, in any order of their steps.
#[tokio::test]
async fn readings_of_one_source_that_overlap_take_nothing_from_each_other() {
    on_both(async |pool| {
        let list = names(["a:1", "b:1", "c:1"]);
        read(&pool, "list", &names(["old:1"])).await;
        let mut early = pool.begin_reading("list", Initial::Min).await.unwrap();
        let mut late = pool.begin_reading("list", Initial::Min).await.unwrap();
        assert_eq!(pool.take(&mut late, &list[..2], false).await.unwrap(), 2);
        assert_eq!(pool.take(&mut early, &list, false).await.unwrap(), 1);
        assert_eq!(forget(&pool, &early, true).await, (1, 1));
        // The later one has not come to c:1 yet.
        assert_eq!(pool.take(&mut late, &list[2..], false).await.unwrap(), 0);
        assert_eq!(forget(&pool, &late, true).await, (0, 0));
        assert_eq!(eligible(&pool).await, list);
        // What was missing when it was looked for, and has been found since, stays.
        let late = pool.begin_reading("list", Initial::Min).await.unwrap();
        let missing = pool.missing(&late, 10).await.unwrap();
        assert_eq!(missing.len(), 3);
        read(&pool, "list", &list[..1]).await;
        assert_eq!(pool.forget(&late, &missing, true).await.unwrap(), Dropped { forgotten: 2, removed: 2 });
        assert_eq!(eligible(&pool).await, list[..1]);
    })
    .await;
}

#[tokio::test]
async fn candidates_of_a_source_are_no_members_and_go_when_it_names_them_no_more() {
    on_both(async |pool| {
        pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
        let mut reading = pool.begin_reading("list", Initial::Min).await.unwrap();
        let list = names(["a:1", "b:1", "c:1", "d:1"]);
        assert_eq!(pool.take(&mut reading, &list, true).await.unwrap(), 3);
        assert_eq!((eligible(&pool).await, candidates(&pool).await), (names(["a:1"]), names(["b:1", "c:1", "d:1"])));
        // Who was rejected for good stays out.
        pool.reject(&names(["d:1"]), None).await.unwrap();
        let mut reading = pool.begin_reading("list", Initial::Min).await.unwrap();
        assert_eq!(pool.take(&mut reading, &names(["b:1", "d:1"]), true).await.unwrap(), 0);
        assert_eq!(forget(&pool, &reading, false).await, (2, 1));
        assert_eq!((eligible(&pool).await, candidates(&pool).await), (names(["a:1"]), names(["b:1"])));
        // A source without candidates vouches for its members, also when it did not always.
        assert_eq!(read(&pool, "list", &names(["b:1"])).await.1, 1);
        assert_eq!((eligible(&pool).await, candidates(&pool).await), (names(["a:1", "b:1"]), vec![]));
    })
    .await;
}

#[tokio::test]
async fn long_lists_go_in_pieces() {
    on_both(async |pool| {
        let list: Vec<Name> = (0..2_500).map(|n| name(&format!("h{n}:1"))).collect();
        assert_eq!(read(&pool, "list", &list).await.1, 2_500);
        let (reading, entered) = read(&pool, "list", &list[..100]).await;
        assert_eq!(entered, 0);
        let missing = pool.missing(&reading, 1_000).await.unwrap();
        assert_eq!(missing.len(), 1_000);
        let gone = pool.forget(&reading, &list, true).await.unwrap();
        assert_eq!(gone, Dropped { forgotten: 2_400, removed: 2_400 });
        let left: HashSet<Name> = eligible(&pool).await.into_iter().collect();
        assert_eq!(left, list[..100].iter().cloned().collect());
    })
    .await;
}

#[tokio::test]
async fn redis_remembers_for_every_gateway_and_beyond_their_ends() {
    let server = Server::start();
    {
        let pool = connect(&server);
        read(&pool, "a list: {x}", &names(["a:1", "b:1"])).await;
        read(&pool, "two", &names(["b:1"])).await;
    }
    let pool = connect(&server);
    pool.remove(&names(["b:1"])).await.unwrap();
    let (reading, entered) = read(&pool, "a list: {x}", &names(["b:1", "c:1"])).await;
    assert_eq!(entered, 1);
    assert_eq!(forget(&pool, &reading, true).await, (1, 1));
    assert_eq!(eligible(&pool).await, names(["c:1"]));
    // Nothing is remembered outside of the keys that the README names.
    assert_eq!(
        server.int(&["EXISTS", "pool:{test}:source:a list: {x}", "pool:{test}:source:two", "pool:{test}:sources"]),
        3
    );
    assert_eq!(server.int(&["DBSIZE"]), 4);
}

#[tokio::test]
async fn in_a_cluster_all_of_it_is_in_one_slot() {
    let server = Server::cluster().await;
    let pool = crate::support::pool::connect_to(&format!("redis-cluster://127.0.0.1:{}", server.port()));
    read(&pool, "{one}", &names(["a:1", "b:1"])).await;
    read(&pool, "two", &names(["b:1"])).await;
    let (reading, _) = read(&pool, "{one}", &[]).await;
    assert_eq!(forget(&pool, &reading, true).await, (2, 1));
    assert_eq!(eligible(&pool).await, names(["b:1"]));
}
