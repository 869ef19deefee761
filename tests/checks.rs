//! Members are checked without traffic, each once per period by one gateway, and come and go by what checks show.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel::member::Name;
use evenkeel::pool::{Care, Change, Check, Checked, Finding, Initial, Kind, Outcome, Pool, Report, Rounds, Walk};
use rustix::process::Signal;

use crate::support::gateway::{KEY, Setup, eventually, with_both_stores};
use crate::support::pool::{counts, name, names, on_both};
use crate::support::redis::Redis;
use crate::support::upstream::{Upstream, id};
use crate::support::wire::PATIENCE;

/// A page that only the members know.
const PAGE: &str = "http://judge.invalid/";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const CARE: Care = Care {
    park_after: 3,
    cooldown: Duration::from_secs(30),
    max_cooldown: Duration::from_secs(100),
    max_parked: 50,
    restore: Initial::Min,
};

/// An upstream proxy that answers, or refuses, as the switch says.
fn fickle() -> (Upstream, Arc<AtomicBool>) {
    let serves = Arc::new(AtomicBool::new(true));
    let switch = serves.clone();
    let upstream = Upstream::start(move |conn| {
        while conn.request()?.is_some() {
            let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
            conn.send(if switch.load(Ordering::SeqCst) { OK } else { refusal })?;
        }
        Ok(())
    });
    (upstream, serves)
}

#[test]
fn who_fails_a_check_is_set_aside_until_it_passes_one() {
    with_both_stores(|store| {
        let ((sick, serves), well) = (fickle(), Upstream::answering(OK));
        let sick_member = sick.url_with("me:s3cret");
        let gateway = Setup::of([sick_member.clone(), well.url()])
            .over(store)
            .set("health.url", PAGE)
            .set("health.every", "200ms")
            .set("health.cooldown", "1h")
            .set("health.max_cooldown", "1h")
            .start();
        serves.store(false, Ordering::SeqCst);
        // Not for a time: a check alone brings it back.
        let words = "set a pool member aside until it passes a check";
        eventually(PATIENCE, "it is set aside", || gateway.said(words, &sick_member) == 1);
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains(words)).unwrap();
        assert!(line.contains("kind=\"unhealthy\"") && !line.contains(" for="), "{line}");
        // Its own credentials are what it is checked with.
        let check = sick.requests().remove(0);
        assert_eq!(check.head.field("Proxy-Authorization"), Some("Basic bWU6czNjcmV0"));
        assert!(check.head.line().starts_with(&format!("GET {PAGE} ")), "{}", check.head.line());
        let mut client = gateway.client();
        let through = |client: &mut crate::support::client::Client| {
            let status = client.get("http://origin.test/").field("Proxy-Status").unwrap().to_owned();
            status.contains(&id(&sick_member))
        };
        assert!((0..4).all(|_| !through(&mut client)), "no client is sent there, for a trial neither");
        let checks = sick.requests().len();
        eventually(PATIENCE, "it is checked on", || sick.requests().len() > checks + 1);
        serves.store(true, Ordering::SeqCst);
        eventually(PATIENCE, "it is back", || gateway.said("back in the pool", &sick_member) == 1);
        assert!((0..4).any(|_| through(&mut client)));
        assert!(!gateway.log().contains("s3cret"));
    });
}

#[test]
fn when_the_page_does_not_answer_nobody_is_set_aside() {
    with_both_stores(|store| {
        let (members, switches): (Vec<_>, Vec<_>) = (0..5).map(|_| fickle()).unzip();
        let urls: Vec<_> = members.iter().map(Upstream::url).collect();
        let gateway =
            Setup::of(urls.clone()).over(store).set("health.url", PAGE).set("health.every", "200ms").admin().start();
        eventually(PATIENCE, "a round", || members.iter().all(|member| !member.requests().is_empty()));
        let before: Vec<_> = members.iter().map(|member| member.requests().len()).collect();
        switches.iter().for_each(|switch| switch.store(false, Ordering::SeqCst));
        eventually(PATIENCE, "rounds that fail", || {
            members.iter().zip(&before).all(|(member, before)| member.requests().len() > before + 12)
        });
        eventually(PATIENCE, "it says so", || gateway.log().contains("checks set nobody aside"));
        let in_doubt = || gateway.metric(r#"evenkeel_judge_in_doubt{of="checks"}"#);
        eventually(PATIENCE, "it shows it", || in_doubt() == Some(1));
        switches.iter().for_each(|switch| switch.store(true, Ordering::SeqCst));
        eventually(PATIENCE, "that is over", || in_doubt() == Some(0));
        assert!(gateway.metric(r#"evenkeel_checks_total{result="unknown"}"#) > Some(0));
        let mut client = gateway.client();
        let served: HashSet<_> =
            (0..10).map(|_| client.get("http://origin.test/").field("Proxy-Status").unwrap().to_owned()).collect();
        assert_eq!(served.len(), 5, "{served:?}");
    });
}

/// How often each member was checked, by its user.
fn checks(proxy: &Upstream) -> BTreeMap<String, usize> {
    let mut checks = BTreeMap::new();
    for request in proxy.requests() {
        *checks.entry(request.head.field("Proxy-Authorization").unwrap().to_owned()).or_default() += 1;
    }
    checks
}

#[test]
fn three_gateways_share_the_checks_and_none_is_lost_with_one_of_them() {
    const MEMBERS: usize = 60;
    let redis = Redis::start();
    let proxy = Upstream::answering(OK);
    let members: Vec<_> = (0..MEMBERS).map(|n| proxy.url_with(&format!("user{n}:pw"))).collect();
    let setup = Setup::of(members)
        .redis(&redis)
        .set("health.url", PAGE)
        .set("health.every", "1s")
        // Long enough for a loaded machine: after a check that fails, one that has passed is asked once more.
        .set("health.timeout", "2s")
        .set("gateway.threads", 1);
    let gateways = [setup.start(), setup.start(), setup.start()];
    eventually(PATIENCE, "everyone has had a turn", || checks(&proxy).len() == MEMBERS);
    // In a span of so many periods everyone has as many turns, one more at its end, and one before it that came late.
    let rounds = |rounds: usize| {
        let before = checks(&proxy);
        let started = Instant::now();
        let gained = || checks(&proxy).into_iter().map(|(user, count)| count - before[&user]).collect::<Vec<_>>();
        eventually(Duration::from_secs(30), "more rounds", || gained().iter().all(|count| *count >= rounds));
        let (gained, span) = (gained(), started.elapsed());
        let most = span.as_secs() as usize + 2;
        assert!(gained.iter().all(|count| *count <= most), "{gained:?} in {span:?}");
    };
    rounds(3);
    // Those that it had taken come again when its leases are over.
    gateways[1].signal(Signal::KILL);
    rounds(3);
    // Who is removed is checked no more; who joins, is.
    assert_eq!(redis.int(&["ZCARD", &format!("{KEY}:checks")]), MEMBERS as i64);
}

fn rounds() -> Rounds {
    Rounds { every: Duration::from_millis(100), care: CARE }
}

/// Takes the turns of all members as they come.
async fn claimed(pool: &Pool, count: usize) -> Vec<Check> {
    let (started, mut claimed) = (Instant::now(), Vec::new());
    while claimed.len() < count {
        assert!(started.elapsed() < PATIENCE, "{claimed:?}");
        claimed.extend(pool.claim(10, Duration::from_secs(3600)).await.unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await; // between two looks
    }
    claimed.sort_by(|a, b| a.member.cmp(&b.member));
    claimed
}

async fn enroll(pool: &Pool) {
    let mut walk = Walk::default();
    while !pool.enroll(&mut walk, rounds().every).await.unwrap() {}
}

fn found(check: &Check, finding: Finding) -> Checked {
    Checked { member: check.member.clone(), due_ms: check.due_ms, finding, luck: 1.0 }
}

#[tokio::test]
async fn each_turn_belongs_to_one_and_the_next_is_a_period_later() {
    on_both(async |pool| {
        let members: Vec<Name> = (0..600).map(|n| name(&format!("p{n:03}:1"))).collect();
        pool.add(&members, Initial::Min).await.unwrap();
        enroll(&pool).await;
        enroll(&pool).await;
        let first = claimed(&pool, members.len()).await;
        assert_eq!(first.iter().map(|check| check.member.clone()).collect::<Vec<_>>(), members);
        assert_eq!(pool.claim(10, Duration::ZERO).await.unwrap(), []);
        let spread = first.iter().map(|check| check.due_ms).collect::<HashSet<_>>().len();
        assert!(spread > 30, "{spread}");
        let told: Vec<_> = first.iter().map(|check| found(check, Finding::Healthy)).collect();
        assert_eq!(pool.checked(&told, &rounds()).await.unwrap(), []);
        pool.remove(&members[..10]).await.unwrap();
        let second = claimed(&pool, members.len() - 10).await;
        for (first, second) in first[10..].iter().zip(&second) {
            assert_eq!((&first.member, (second.due_ms - first.due_ms) % 100), (&second.member, 0));
            assert!(second.due_ms > first.due_ms && second.is_eligible);
        }
    })
    .await;
}

#[tokio::test]
async fn checks_bring_back_whom_they_set_aside_and_leave_a_cooldown_alone() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1", "c:1", "d:1"]), Initial::Count(4)).await.unwrap();
        enroll(&pool).await;
        let failed = Outcome::Failed(3, "why".to_owned());
        pool.report(&[Report { member: name("a:1"), outcome: failed, luck: 1.0 }], &CARE).await.unwrap();
        let turns = claimed(&pool, 4).await;
        assert_eq!(turns.iter().map(|check| check.is_eligible).collect::<Vec<_>>(), [false, true, true, true]);
        let unhealthy = || Finding::Unhealthy("does not answer".to_owned());
        let changes = pool.checked(&[found(&turns[1], unhealthy()), found(&turns[2], unhealthy())], &rounds()).await;
        let changes = changes.unwrap();
        let Change::Parked(parked) = &changes[0] else { panic!("{changes:?}") };
        assert_eq!(
            (&parked.member[..], parked.kind, &*parked.reason),
            (&b"b:1"[..], Kind::Unhealthy, "does not answer")
        );
        assert_eq!(changes[1..], [Change::Spared(name("c:1"))]);
        // Again and again: it stays out, and the row grows.
        assert_eq!(pool.checked(&[found(&turns[1], unhealthy())], &rounds()).await.unwrap(), []);
        let rows: Vec<_> = pool.parked().await.unwrap().into_iter().map(|p| (p.kind, p.in_a_row)).collect();
        assert_eq!(rows, [(Kind::Cooldown, 1), (Kind::Unhealthy, 2)]);
        // What nobody knows changes nothing.
        for check in &turns {
            assert_eq!(pool.checked(&[found(check, Finding::Unknown)], &rounds()).await.unwrap(), []);
        }
        let healthy: Vec<_> = turns.iter().map(|check| found(check, Finding::Healthy)).collect();
        assert_eq!(pool.checked(&healthy, &rounds()).await.unwrap(), [Change::Restored(name("b:1"))]);
        assert_eq!(counts(&pool).await, [(name("b:1"), 4.0), (name("c:1"), 4.0), (name("d:1"), 4.0)]);
    })
    .await;
}
