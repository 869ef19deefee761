//! What other tools may have written into the keys beside the members: it stops nobody, and what it stood for goes on.

use std::time::Duration;

use evenkeel::pool::redis::Redis;
use evenkeel::pool::{
    Ban, Care, Concurrency, HostBan, Initial, Judged, Judging, Opinion, Outcome, PerHost, Pool, Report,
};

use crate::support::pool::{KEY, NONE_AHEAD, connect, counts, name, names};
use crate::support::redis::{Redis as Server, Reply, eventually};

const PATIENCE: Duration = Duration::from_secs(10);
/// Neither is a number of requests, a place in a walk, or how often something has changed.
const NONSENSE: [&[u8]; 7] = [b"garbage", b"", b"nan", b"-5", b"1e300", b"99999999999999999999", b"\xff\n"];

fn key(suffix: &str) -> String {
    format!("{KEY}:{suffix}")
}

fn write<const N: usize>(server: &Server, command: &str, suffix: &str, args: [&[u8]; N]) {
    let key = key(suffix);
    let words: Vec<&[u8]> = [command.as_bytes(), key.as_bytes()].into_iter().chain(args).collect();
    let reply = server.cmd(&words);
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
}

/// A pool of a server that has nothing yet.
async fn fresh(server: &Server, members: &[&str], pool: Pool) -> Pool {
    server.cmd(&["FLUSHALL"]);
    let members: Vec<_> = members.iter().map(|member| name(member)).collect();
    pool.add(&members, Initial::Count(5)).await.unwrap();
    pool
}

#[tokio::test]
async fn members_are_chosen_whatever_is_said_to_be_in_flight() {
    let server = Server::start();
    for nonsense in NONSENSE {
        let heartbeat = Duration::from_secs(1);
        let connect = |max_in_flight| {
            let concurrency = Concurrency { max_in_flight, heartbeat };
            Pool::Redis(Redis::connect_least_concurrent(&server.url(), KEY, PATIENCE, concurrency).unwrap())
        };
        let (pool, other) = (fresh(&server, &["a:1", "b:1"], connect(0)).await, connect(9));
        let held = [pool.allocate(&[]).await.unwrap(), other.allocate(&[]).await.unwrap()];
        write(&server, "ZADD", "gateways", [b"1", nonsense]);
        let Reply::Array(gateways) = server.cmd(&["ZRANGE", &key("gateways"), "0", "-1"]) else { panic!("no list") };
        for (member, gateway) in gateways.iter().enumerate() {
            let Reply::Bulk(gateway) = gateway else { panic!("{gateway:?}") };
            let leases = [key("leases:").as_bytes(), gateway].concat();
            server.cmd(&[b"HSET", &leases[..], [b"a:1", b"b:1", b"z:1"][member], nonsense]);
        }
        for member in [b"a:1", b"b:1"] {
            write(&server, "HSET", "in_flight", [member, nonsense]);
        }
        for _ in 0..4 {
            let both = [pool.allocate(&[]).await, other.allocate(&[]).await];
            assert!(both.into_iter().all(|chosen| chosen.unwrap().is_some()), "{}", nonsense.escape_ascii());
        }
        pool.in_flight().await.unwrap();
        drop(held);
        other.unregister().await.unwrap();
        let said = nonsense.escape_ascii().to_string();
        eventually(PATIENCE, &format!("nothing is left of {said}"), async || {
            server.int(&["ZCARD", &key("gateways")]) == 1
                && server.int(&["EXISTS", &key(&format!("leases:{said}"))]) == 0
        })
        .await;
    }
}

#[tokio::test]
async fn failures_count_whenever_they_are_said_to_have_been() {
    let server = Server::start();
    let care = Care {
        park_after: 2,
        cooldown: Duration::from_secs(60),
        max_cooldown: Duration::from_secs(60),
        max_parked: 70,
        restore: Initial::Min,
    };
    for when in ["inf", "-inf", "1e300", "1e18"] {
        let pool = fresh(&server, &["a:1", "b:1", "c:1", "d:1"], connect(&server)).await;
        write(&server, "ZADD", "failures", [when.as_bytes(), b"a:1"]);
        let mut look = pool.look(0, 10).await.unwrap();
        assert!(look.failing.is_empty() || when == "-inf", "{look:?}");
        for _ in 0..2 {
            let reports = names(["a:1", "b:1"]).into_iter().map(|member| {
                let outcome = Outcome::Failed(1, "why".to_owned());
                Report { member, outcome, luck: 1.0 }
            });
            let changes = pool.report(&reports.collect::<Vec<_>>(), &care).await.unwrap();
            if changes.is_empty() {
                look = pool.look(look.next, 10).await.unwrap();
                assert_eq!(look.failing.len(), 2, "{when}: {look:?}");
            }
        }
        assert_eq!(counts(&pool).await, [(name("c:1"), 5.0), (name("d:1"), 5.0)], "{when}");
    }
}

#[tokio::test]
async fn hosts_ban_members_however_often_they_are_said_to_have_changed() {
    let server = Server::start();
    for nonsense in NONSENSE {
        let pool = fresh(&server, &["a:1", "b:1", "c:1"], connect(&server)).await;
        let mut seen = None;
        pool.hosts(&mut seen).await.unwrap();
        write(&server, "SET", "hosts:changes", [nonsense]);
        let ban = Ban { member: name("a:1"), reason: "why".to_owned(), span: Duration::from_secs(60) };
        assert_eq!(pool.ban_for("shop.test", &[ban], Some(70)).await.unwrap(), [HostBan::Banned]);
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), Some(vec!["shop.test".to_owned()]));
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), None);
        write(&server, "SET", "hosts:changes", [nonsense]);
        assert_eq!(pool.unban_for("shop.test", &names(["a:1"])).await.unwrap(), names(["a:1"]));
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), Some(vec![]));
        write(&server, "SET", "hosts:changes", [nonsense]);
        assert_eq!(pool.banned().await.unwrap(), []);
        assert_eq!(pool.remove(&names(["a:1"])).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn candidates_are_looked_at_wherever_the_walk_is_said_to_stand() {
    let server = Server::start();
    let (first, longest) = (Duration::from_secs(1_000), Duration::from_secs(3_000));
    let judging = Judging { by: "new".to_owned(), first, longest, initial: Initial::Min };
    for nonsense in NONSENSE {
        let pool = fresh(&server, &["m:1"], connect(&server)).await;
        pool.propose(&names(["a:1"])).await.unwrap();
        pool.claim_candidates(10, first, "old", true).await.unwrap().unwrap();
        write(&server, "HSET", "judging", [b"by", b"new", b"walk", nonsense]);
        assert_eq!(pool.claim_candidates(10, first, "new", true).await.unwrap(), Some(names(["a:1"])));
        let passed = Judged { member: name("a:1"), opinion: Opinion::Passed, luck: 1.0 };
        assert_eq!(pool.judged(&[passed], &judging).await.unwrap(), names(["a:1"]));
    }
}

#[tokio::test]
async fn hosts_are_given_members_whatever_is_said_of_how_far_they_follow() {
    let server = Server::start();
    let limits = PerHost { max_hosts: 3, idle: Duration::from_secs(60) };
    for nonsense in NONSENSE {
        for field in [&b"cursor"[..], b"card", b"began", b"built"] {
            let pool = Redis::connect(&server.url(), KEY, PATIENCE, NONE_AHEAD).unwrap().with_hosts(limits);
            let pool = fresh(&server, &["a:1", "b:1"], Pool::Redis(pool)).await;
            let mut given = Vec::new();
            for _ in 0..3 {
                write(&server, "HSET", "host:shop.test:sync", [field, nonsense]);
                given.push(pool.allocate_for("shop.test", &[]).await.unwrap().unwrap().0);
            }
            assert_eq!(given, names(["a:1", "b:1", "a:1"]), "{} {}", field.escape_ascii(), nonsense.escape_ascii());
        }
    }
}
