//! With pool.scope = "host", each target host is given all members evenly, whatever others ask for.

use std::collections::HashMap;
use std::time::Duration;

use evenkeel::member::Name;
use evenkeel::pool::embedded::{Embedded, Keeper};
use evenkeel::pool::redis::Redis;
use evenkeel::pool::{Ban, HostBan, Initial, Kind, PerHost, Pool, Stay};

use crate::support::gateway::{Setup, with_both_stores};
use crate::support::pool::{KEY, NONE_AHEAD, counts, name, names, parking, sum, take};
use crate::support::redis::{Redis as Server, eventually};
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

const LIMITS: PerHost = PerHost { max_hosts: 3, idle: Duration::from_secs(60) };
const TIMEOUT: Duration = Duration::from_secs(2);

fn connect(server: &Server) -> Pool {
    Pool::Redis(Redis::connect(&server.url(), KEY, TIMEOUT, NONE_AHEAD).unwrap().with_hosts(LIMITS))
}

/// Runs one body against an empty pool of each kind; in Redis it is the one of three gateways.
async fn on_both(body: impl AsyncFn([Pool; 3])) {
    eprintln!("embedded:");
    let pool = Pool::Embedded(Embedded::new().with_hosts(LIMITS));
    body([pool.clone(), pool.clone(), pool]).await;
    eprintln!("redis:");
    let server = Server::start();
    body([connect(&server), connect(&server), connect(&server)]).await;
}

async fn take_for(pool: &Pool, host: &str, tried: &[Name]) -> Option<Name> {
    pool.allocate_for(host, tried).await.unwrap().map(|(member, _)| member)
}

/// How often each member was given to a host.
#[derive(Default)]
struct Given(HashMap<Name, u64>);

impl Given {
    async fn take(&mut self, pool: &Pool, host: &str) {
        let member = take_for(pool, host, &[]).await.expect("somebody is left");
        *self.0.entry(member).or_default() += 1;
    }

    /// Of so many members.
    fn spread(&self, members: usize) -> u64 {
        let least = if self.0.len() < members { 0 } else { self.0.values().copied().min().unwrap_or(0) };
        self.0.values().copied().max().unwrap_or(0) - least
    }
}

#[tokio::test]
async fn each_host_is_given_all_members_evenly_whoever_asks_for_what() {
    on_both(async |pools| {
        // More than Redis keeps in a list, and than are looked at in one step.
        let members: Vec<Name> = (0..500).map(|n| name(&format!("p{n:03}:1"))).collect();
        pools[0].add(&members, Initial::Min).await.unwrap();
        let hosts = ["a.test", "b.test", "[::1]"];
        let mut given = [Given::default(), Given::default(), Given::default()];
        for turn in 0..3600_usize {
            // One host asks more than the others, and the pool's own counts become uneven with that.
            let at = if turn.is_multiple_of(2) { 0 } else { 1 + turn / 2 % 2 };
            given[at].take(&pools[turn % 3], hosts[at]).await;
            assert!(given[at].spread(members.len()) <= 1, "{} at turn {turn}", hosts[at]);
        }
        assert_eq!(sum(&pools[0]).await, 3600.0, "the pool's own counts go on");
        let all = counts(&pools[0]).await;
        // 3 or 4 of the one host, and 1 or 2 of each of the others.
        assert_eq!(all.iter().filter(|(_, count)| (5.0..=8.0).contains(count)).count(), 500);
    })
    .await;
}

#[tokio::test]
async fn counts_of_a_host_follow_the_pool_its_bans_and_its_weights() {
    on_both(async |pools| {
        let pool = &pools[0];
        let members = names(["a:1", "b:1", "c:1?weight=2"]);
        pool.add(&members, Initial::Min).await.unwrap();
        let mut given = Given::default();
        for _ in 0..8 {
            given.take(pool, "x.test").await;
        }
        assert_eq!((given.0[&members[0]], given.0[&members[1]], given.0[&members[2]]), (2, 2, 4));
        // Who leaves is not given, in whatever way he left; who was tried neither.
        pool.remove(&members[..1]).await.unwrap();
        pool.park(&members[2], &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        assert_eq!(take_for(pool, "x.test", &[]).await, Some(members[1].clone()));
        assert_eq!(take_for(pool, "x.test", &members[1..2]).await, None);
        // Who joins or returns is found at once, and starts at the lowest: no flood.
        pool.restore(&members[2..], Initial::Min).await.unwrap();
        pool.add(&names(["new:1"]), Initial::Zero).await.unwrap();
        let mut given = Given::default();
        for _ in 0..8 {
            given.take(pool, "x.test").await;
        }
        assert_eq!((given.0[&members[1]], given.0[&name("new:1")], given.0[&members[2]]), (2, 2, 4));
        // A ban keeps a member from the host, whose counts stay even.
        let ban = |span| [Ban { member: members[1].clone(), reason: String::new(), span }];
        let hour = Duration::from_secs(3600);
        assert_eq!(pool.ban_for("x.test", &ban(hour), None).await.unwrap(), [HostBan::Banned]);
        let mut given = Given::default();
        for _ in 0..6 {
            given.take(pool, "x.test").await;
        }
        assert_eq!((given.0.get(&members[1]), given.0[&name("new:1")], given.0[&members[2]]), (None, 2, 4));
        assert!(take_for(pool, "y.test", &[members[2].clone(), name("new:1")]).await.is_some());
        // Nobody is left.
        pool.remove(&[&members[1..], &[name("new:1")]].concat()).await.unwrap();
        assert_eq!(take_for(pool, "x.test", &[]).await, None);
        assert_eq!(take_for(pool, "z.test", &[]).await, None);
    })
    .await;
}

#[tokio::test]
async fn no_more_hosts_have_counts_than_may() {
    let server = Server::start();
    let pool = connect(&server);
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let key = |n: usize, what: &str| format!("{KEY}:host:h{n}.test:{what}");
    for n in 0..20 {
        take_for(&pool, &format!("h{n}.test"), &[]).await.unwrap();
    }
    assert_eq!(server.int(&["ZCARD", &format!("{KEY}:counted")]), 3);
    eventually(PATIENCE, "the others are gone", async || {
        (0..17).all(|n| server.int(&["EXISTS", &key(n, "counts"), &key(n, "sync")]) == 0)
    })
    .await;
    for n in 17..20 {
        assert!((1..=60_000).contains(&server.int(&["PTTL", &key(n, "counts")])));
        assert!((1..=60_000).contains(&server.int(&["PTTL", &key(n, "sync")])));
    }
    // The embedded store has no keys to look at; a host that was forgotten begins anew.
    let limits = PerHost { max_hosts: 1, ..LIMITS };
    let pool = Pool::Embedded(Embedded::new().with_hosts(limits));
    pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
    let taken = [
        take_for(&pool, "h1.test", &[]).await,
        take_for(&pool, "h1.test", &[]).await,
        take_for(&pool, "h2.test", &[]).await,
        take_for(&pool, "h1.test", &[]).await,
    ];
    assert_eq!(taken, ["a:1", "b:1", "a:1", "a:1"].map(|member| Some(name(member))));
    assert_eq!(take(&pool, 1).await, [Some(name("b:1"))], "who asks for no host goes by the pool's counts");
}

#[tokio::test]
async fn a_host_has_not_counted_who_is_removed_and_added_again() {
    on_both(async |[pool, ..]| {
        let members = names(["a:1", "b:1", "c:1"]);
        pool.add(&members[..2], Initial::Min).await.unwrap();
        for _ in 0..5 {
            assert_eq!(take_for(&pool, "shop.test", &members[1..2]).await, Some(name("a:1")));
        }
        pool.remove(&members[..1]).await.unwrap();
        pool.add(&members, Initial::Min).await.unwrap();
        let mut given = Given::default();
        for _ in 0..3 {
            given.take(&pool, "shop.test").await;
        }
        assert_eq!(given.spread(3), 0, "{:?}", given.0);
    })
    .await;
}

#[test]
fn a_gateway_counts_for_each_host_however_it_is_spelled_and_asked_for() {
    with_both_stores(|store| {
        let members: Vec<_> = (0..3)
            .map(|_| {
                Upstream::start(|conn| {
                    while let Some(request) = conn.request()? {
                        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
                        if request.head.line().starts_with("CONNECT") {
                            return conn.until_close().map(drop);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let gateway = Setup::of(members.iter().map(Upstream::url)).over(store).set("pool.scope", "host").start();
        let mut client = gateway.client();
        // Every third request is for a.test, so the pool's own counts would give it one member only.
        for turn in 0..4 {
            match turn {
                0 => drop(client.get("http://a.test/")),
                1 => drop(client.get("http://A.test.:8080/")),
                2 => drop(gateway.client().connect("a.test:443")),
                _ => drop(
                    client
                        .send("POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx")
                        .response(),
                ),
            }
            (0..2).for_each(|_| drop(client.get("http://b.test/")));
        }
        let asked = |member: &Upstream| {
            member.requests().iter().filter(|request| request.head.line().to_lowercase().contains("a.test")).count()
        };
        let mut asked: Vec<_> = members.iter().map(asked).collect();
        asked.sort_unstable();
        assert_eq!(asked, [1, 1, 2]);
    });
}

/// What a host has had is not saved: each of its lives is even within 1, and so are two within 2.
#[tokio::test]
async fn after_a_restart_a_host_begins_anew_and_that_costs_one_turn_at_most() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Keeper::open(&dir.path().join("state"), Embedded::new().with_hosts(LIMITS)).expect("a folder").0;
    let members: Vec<Name> = (0..7).map(|n| name(&format!("p{n}:1"))).collect();
    let mut given = [Given::default(), Given::default()];
    for (life, turns) in [17, 40, 5].into_iter().enumerate() {
        let mut keeper = open();
        let pool = Pool::Embedded(keeper.pool());
        pool.add(&members, Initial::Min).await.unwrap();
        for _ in 0..turns {
            given[0].take(&pool, "a.test").await;
            given[1].take(&pool, "b.test").await;
        }
        keeper.save().unwrap();
        for given in &given {
            assert!(given.spread(members.len()) <= life as u64 + 1, "{:?} in life {life}", given.0);
        }
    }
}
