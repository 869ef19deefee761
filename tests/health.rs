//! Members that fail are set aside, tried again by one request, and come back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel::member::Name;
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::{Care, Change, Initial, Kind, Outcome, Parked, Pool, Report, Stay};
use proptest::prelude::*;
use rustix::process::Signal;

use crate::support::gateway::{Gateway, KEY, Setup, eventually, with_both_stores};
use crate::support::pool::{allocate, connect, counts, name, names, on_both, parking};
use crate::support::redis::Redis;
use crate::support::socks;
use crate::support::upstream::{Conn, Refusing, Unreachable, Upstream};
use crate::support::wire::PATIENCE;

const URL: &str = "http://origin.test/";
const SET_ASIDE: &str = "set a pool member aside";
const BACK: &str = "back in the pool";
const CARE: Care = Care {
    park_after: 3,
    cooldown: Duration::from_secs(30),
    max_cooldown: Duration::from_secs(100),
    max_parked: 50,
    restore: Initial::Min,
};

/// Sends requests until the log says this of a member.
fn ask_until(gateway: &Gateway, what: &str, member: &str) {
    let mut client = gateway.client();
    eventually(PATIENCE, what, || {
        client.get(URL);
        gateway.said(what, member) > 0
    });
}

/// An upstream proxy that answers, or closes without a word, as the switch says.
fn fickle() -> (Upstream, Arc<AtomicBool>) {
    let serves = Arc::new(AtomicBool::new(true));
    let switch = serves.clone();
    let upstream = Upstream::start(move |conn| {
        while conn.request()?.is_some() && switch.load(Ordering::SeqCst) {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        Ok(())
    });
    (upstream, serves)
}

fn socks_that_says(reply: &'static [u8]) -> (Upstream, String) {
    let upstream = Upstream::start(move |conn| {
        socks::hear(conn, None, |wire, bytes| wire.send(bytes))?;
        conn.send(reply)?;
        conn.until_close().map(drop)
    });
    let member = format!("socks5h://{}", upstream.address());
    (upstream, member)
}

/// What a request through a member shows.
struct Case {
    what: &'static str,
    member: String,
    /// Whatever plays it.
    _upstream: Option<Upstream>,
    /// A CONNECT to the target, or a GET.
    is_tunnel: bool,
    tells: bool,
}

#[test]
fn only_what_is_the_members_fault_tells_against_it() {
    let plain = |what, script: fn(&mut Conn) -> io::Result<()>, tells| {
        let upstream = Upstream::start(script);
        Case { what, member: upstream.url(), _upstream: Some(upstream), is_tunnel: false, tells }
    };
    let answering = |what, head: &str, is_tunnel, tells| {
        let upstream = Upstream::answering(format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n"));
        Case { what, member: upstream.url(), _upstream: Some(upstream), is_tunnel, tells }
    };
    let socks = |what, reply, tells| {
        let (upstream, member) = socks_that_says(reply);
        Case { what, member, _upstream: Some(upstream), is_tunnel: true, tells }
    };
    let (refusing, unreachable, origin) = (Refusing::new(), Unreachable::new(), Refusing::new());
    let alone = |what, member, tells| Case { what, member, _upstream: None, is_tunnel: true, tells };
    let tls = Upstream::start(|conn| conn.send("220 ready\r\n").map(drop));
    let https = format!("https://{}", tls.address());
    let hop = answering("", "502 Bad Gateway", true, true);
    let cases = [
        alone("refuses to be dialed", refusing.url(), true),
        alone("does not answer a dial", unreachable.url(), true),
        alone("has no name", "http://nowhere.invalid:3128".into(), true),
        Case { _upstream: Some(tls), ..alone("fails TLS", https, true) },
        plain("closes", |conn| conn.request().map(drop), true),
        plain("speaks something else", |conn| conn.send("SSH-2.0-OpenSSH_9.2\r\n").map(drop), true),
        plain("is silent", |conn| conn.request().and_then(|_| conn.until_close()).map(drop), true),
        answering("wants other credentials", "407 Proxy Authentication Required", false, true),
        answering("wants other credentials for a tunnel", "407 Proxy Authentication Required", true, true),
        answering("has no tunnels", "405 Method Not Allowed", true, true),
        answering("wants patience", "429 Too Many Requests", true, true),
        answering("leads to a page for payment", "302 Found", true, true),
        socks("knows no CONNECT", b"\x05\x07\0\x01\0\0\0\0\0\0", true),
        socks("is no SOCKS proxy", b"HTTP/1.1 400 Bad Request\r\n\r\n", true),
        alone("dials from an address that is none", "direct://192.0.2.1".into(), true),
        Case {
            _upstream: hop._upstream,
            ..alone("does not get to the next hop", format!("{}|{}", hop.member, refusing.url()), true)
        },
        answering("passes a 500 on", "500 Internal Server Error", false, false),
        answering("passes a 503 on", "503 Service Unavailable", false, false),
        answering("does not allow the target", "403 Forbidden", true, false),
        answering("cannot reach the target", "502 Bad Gateway", true, false),
        answering("gets no answer from the target", "504 Gateway Timeout", true, false),
        socks("cannot reach the target by SOCKS", b"\x05\x05\0\x01\0\0\0\0\0\0", false),
        socks("has some trouble", b"\x05\x01\0\x01\0\0\0\0\0\0", false),
        plain(
            "breaks off a body",
            |conn| {
                conn.request()?;
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").map(drop)
            },
            false,
        ),
        alone("dials a target that refuses", "direct://".into(), false),
    ];
    let mut tasks = Vec::new();
    for case in cases {
        let target = origin.url().replace("http://", "");
        tasks.push(std::thread::spawn(move || check(&case, &target)));
    }
    for task in tasks {
        task.join().unwrap();
    }
}

/// Beside the member there are one that refuses, by which we see when failures have been told, and one that works.
fn check(case: &Case, target: &str) {
    let (alive, dead) = (Upstream::start(both), Refusing::new());
    let members = [alive.url(), dead.url(), case.member.clone()];
    let gateway = Setup::of(members)
        .set("health.park_after", 2)
        .set("health.cooldown", "1h")
        .set("health.max_cooldown", "1h")
        .set("health.max_parked", "100%")
        .set("retry.attempts", 1)
        .set("upstream.dial_timeout", "200ms")
        .set("upstream.response_timeout", "200ms")
        .set("gateway.threads", 1)
        .start();
    let ask = || {
        let mut client = gateway.client();
        if case.is_tunnel {
            client.connect(target);
        } else {
            client.send(format!("GET http://{target}/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
            client.until_close();
        }
    };
    eventually(PATIENCE, case.what, || {
        ask();
        gateway.said(SET_ASIDE, &dead.url()) > 0 && (!case.tells || gateway.said(SET_ASIDE, &case.member) > 0)
    });
    if !case.tells {
        // What was known when the other one left has been told, too; and it goes on failing.
        for _ in 0..6 {
            ask();
        }
        assert_eq!(gateway.said(SET_ASIDE, &case.member), 0, "{}", case.what);
    }
    assert_eq!(gateway.said(SET_ASIDE, &alive.url()), 0, "{}", case.what);
}

/// Answers and opens tunnels.
fn both(conn: &mut Conn) -> io::Result<()> {
    while let Some(request) = conn.request()? {
        if request.head.line().starts_with("CONNECT") {
            conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
            return conn.until_close().map(drop);
        }
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
    Ok(())
}

#[test]
fn a_client_that_leaves_tells_against_nobody() {
    let (silent, alive, dead) = (Upstream::silent(), Upstream::ok("fine"), Refusing::new());
    let gateway = Setup::of([silent.url(), alive.url(), dead.url()])
        .set("health.park_after", 2)
        .set("health.max_parked", "100%")
        .set("gateway.threads", 1)
        .start();
    eventually(PATIENCE, "the dead one is set aside, and many have left the silent one", || {
        let (mut client, left) = (gateway.client(), silent.requests().len());
        client.send(format!("GET {URL} HTTP/1.1\r\nHost: h\r\n\r\n"));
        eventually(PATIENCE, "an answer, or the silent one", || {
            silent.requests().len() > left || !client.is_silent_for(Duration::from_millis(1))
        });
        drop(client);
        silent.wait_for_ends(silent.requests().len(), PATIENCE);
        left > 5 && gateway.said(SET_ASIDE, &dead.url()) == 1
    });
    assert_eq!(gateway.said(SET_ASIDE, &silent.url()), 0);
}

#[test]
fn a_member_that_fails_rests_is_tried_once_at_a_time_and_returns() {
    with_both_stores(|store| {
        let ((sick, serves), well) = (fickle(), Upstream::ok("fine"));
        let gateway = Setup::of([sick.url(), well.url()])
            .over(store)
            .set("health.park_after", 3)
            .set("health.cooldown", "400ms")
            .set("health.max_cooldown", "1s")
            .start();
        let mut client = gateway.client();
        serves.store(false, Ordering::SeqCst);
        ask_until(&gateway, SET_ASIDE, &sick.url());
        let failed = sick.requests().len();
        assert!((3..30).contains(&failed), "{failed}");
        // While it rests nothing reaches it, and no client notices.
        let parked = Instant::now();
        while parked.elapsed() < Duration::from_millis(150) {
            assert_eq!(client.get(URL).status(), 200);
        }
        assert_eq!(sick.requests().len(), failed);
        // One request each time its time is up, and then it rests for longer.
        eventually(PATIENCE, "two trials", || {
            assert_eq!(client.get(URL).status(), 200, "a trial that fails is repeated elsewhere");
            gateway.said(SET_ASIDE, &sick.url()) >= 3
        });
        assert_eq!(sick.requests().len(), failed + 2);
        assert!(gateway.log().contains("failed a trial"), "{}", gateway.log());
        assert!(parked.elapsed() >= Duration::from_millis(300 + 600), "{:?}", parked.elapsed());
        serves.store(true, Ordering::SeqCst);
        ask_until(&gateway, BACK, &sick.url());
        let before = (sick.requests().len(), well.requests().len());
        for _ in 0..10 {
            client.get(URL);
        }
        let after = (sick.requests().len() - before.0, well.requests().len() - before.1);
        assert_eq!(after, (5, 5), "it has its share again, and no more");
    });
}

#[test]
fn gateways_count_together_and_one_of_them_tries() {
    let redis = Redis::start();
    let hold = Arc::new(AtomicBool::new(false));
    let held = hold.clone();
    let sick = Upstream::start(move |conn| {
        conn.request()?;
        if held.load(Ordering::SeqCst) { conn.until_close().map(drop) } else { Ok(()) }
    });
    let well = Upstream::ok("fine");
    let setup = Setup::of([sick.url(), well.url()])
        .redis(&redis)
        .set("health.park_after", 4)
        .set("health.cooldown", "500ms")
        .set("upstream.dial_timeout", "200ms")
        .set("upstream.response_timeout", "2s");
    let gateways = [setup.start(), setup.start()];
    // Two failures through each: neither has seen as many as it takes.
    for (n, gateway) in gateways.iter().enumerate() {
        let mut client = gateway.client();
        while sick.requests().len() < 2 * (n + 1) {
            assert_eq!(client.get(URL).status(), 200);
        }
    }
    let parked = || gateways.iter().map(|gateway| gateway.said(SET_ASIDE, &sick.url())).sum::<usize>();
    eventually(PATIENCE, "it is set aside", || parked() == 1);
    assert_eq!(sick.requests().len(), 4);

    hold.store(true, Ordering::SeqCst);
    let mut clients: Vec<_> = gateways.iter().map(Gateway::client).collect();
    let mut tried = None;
    eventually(PATIENCE, "a trial", || {
        for (client, gateway) in clients.iter_mut().zip(&gateways) {
            client.send(format!("GET {URL} HTTP/1.1\r\nHost: h\r\n\r\n"));
            eventually(PATIENCE, "an answer, or a trial", || {
                sick.requests().len() == 5 || !client.is_silent_for(Duration::from_millis(1))
            });
            if sick.requests().len() == 5 {
                tried = Some(gateway.pid());
                return true;
            }
            client.response();
        }
        false
    });
    // While that one waits, nobody else tries, however many ask.
    let until = Instant::now() + Duration::from_millis(700);
    while Instant::now() < until {
        for gateway in &gateways {
            gateway.client().get(URL);
        }
    }
    assert_eq!(sick.requests().len(), 5);
    // The gateway dies of it; after a while another one tries.
    let (dead, left) = if Some(gateways[0].pid()) == tried { (0, 1) } else { (1, 0) };
    gateways[dead].signal(Signal::KILL);
    hold.store(false, Ordering::SeqCst);
    let mut client = gateways[left].client();
    eventually(PATIENCE, "another trial", || {
        client.get(URL);
        sick.requests().len() == 6
    });
}

#[test]
fn a_success_seen_by_one_gateway_counts_for_all() {
    let redis = Redis::start();
    let ((sick, serves), well) = (fickle(), Upstream::ok("fine"));
    let setup = Setup::of([sick.url(), well.url()]).redis(&redis).set("health.park_after", 3);
    let gateways = [setup.start(), setup.start()];
    let failures = format!("{KEY}:failures");
    for _ in 0..3 {
        serves.store(false, Ordering::SeqCst);
        let (mut client, before) = (gateways[0].client(), sick.requests().len());
        while sick.requests().len() < before + 2 {
            client.get(URL);
        }
        eventually(PATIENCE, "the failures are known", || {
            redis.scores(&failures).first().is_some_and(|(_, score)| score.ends_with('2'))
        });
        serves.store(true, Ordering::SeqCst);
        let mut client = gateways[1].client();
        eventually(PATIENCE, "the failures are forgotten", || {
            client.get(URL);
            redis.scores(&failures).is_empty()
        });
    }
    assert_eq!(gateways[0].said(SET_ASIDE, &sick.url()), 0);
}

#[test]
fn when_everything_fails_it_is_the_network_and_nobody_is_set_aside() {
    with_both_stores(|store| {
        let (members, switches): (Vec<_>, Vec<_>) = (0..4).map(|_| fickle()).unzip();
        let gateway = Setup::of(members.iter().map(Upstream::url))
            .over(store)
            .set("health.park_after", 2)
            .set("gateway.threads", 1)
            .start();
        let mut client = gateway.client();
        client.get(URL);
        switches.iter().for_each(|switch| switch.store(false, Ordering::SeqCst));
        let cut = Instant::now();
        while cut.elapsed() < Duration::from_millis(1200) {
            gateway.client().get(URL);
        }
        switches.iter().for_each(|switch| switch.store(true, Ordering::SeqCst));
        let mut client = gateway.client();
        eventually(PATIENCE, "it says so", || {
            client.get(URL);
            gateway.log().contains("held against none")
        });
        let before: Vec<_> = members.iter().map(|member| member.requests().len()).collect();
        for _ in 0..8 {
            assert_eq!(client.get(URL).status(), 200);
        }
        let after: Vec<_> = members.iter().zip(before).map(|(member, n)| member.requests().len() - n).collect();
        assert_eq!(after, [2, 2, 2, 2]);
        assert!(!gateway.log().contains(SET_ASIDE), "{}", gateway.log());
    });
}

/// Of three, one may.
#[test]
fn a_member_that_max_parked_keeps_is_told_of_once_and_one_that_goes_with_its_time() {
    with_both_stores(|store| {
        let (dead, worse, well) = (Refusing::new(), Refusing::new(), Upstream::ok("fine"));
        let gateway = Setup::of([dead.url(), worse.url(), well.url()])
            .over(store)
            .set("health.park_after", 1)
            .set("health.cooldown", "1h")
            .set("health.max_cooldown", "1h")
            .set("health.max_parked", "50%")
            .start();
        let spared = "is not set aside, though it fails or is banned: as many as health.max_parked allows are already";
        let mut client = gateway.client();
        let said = |words| [&dead, &worse].map(|member| gateway.said(words, &member.url()));
        eventually(PATIENCE, "one goes and one stays", || {
            client.get("http://origin.test/");
            said(spared).iter().sum::<usize>() > 0 && said("set a pool member aside").iter().sum::<usize>() > 0
        });
        let (parked, kept) = (said("set a pool member aside"), said(spared));
        assert_eq!([parked[0] + kept[0], parked[1] + kept[1]], [1, 1], "{}", gateway.log());
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains("set a pool member aside")).unwrap();
        assert!(!line.contains("until it passes a check") && line.contains(" for="), "{line}");
    });
}

#[test]
fn nothing_is_counted_when_it_is_switched_off() {
    let redis = Redis::start();
    let (dead, alive) = (Refusing::new(), Upstream::ok("fine"));
    let gateway = Setup::of([dead.url(), alive.url()]).redis(&redis).set("health.park_after", 0).start();
    let mut client = gateway.client();
    for _ in 0..40 {
        assert_eq!(client.get(URL).status(), 200);
    }
    assert_eq!(redis.int(&["ZCARD", KEY]), 2);
    assert_eq!(redis.int(&["EXISTS", &format!("{KEY}:failures"), &format!("{KEY}:trials")]), 0);
    assert!(!gateway.finish().contains(SET_ASIDE));
}

fn report(member: &str, outcome: Outcome) -> Report {
    Report { member: name(member), outcome, luck: 1.0 }
}

fn failed(times: u32) -> Outcome {
    Outcome::Failed(times, "why".to_owned())
}

fn missed() -> Outcome {
    Outcome::Missed("why".to_owned())
}

fn parked(changes: &[Change]) -> Vec<Parked> {
    let parked = |change: &Change| if let Change::Parked(parked) = change { Some(parked.clone()) } else { None };
    changes.iter().filter_map(parked).collect()
}

#[tokio::test]
async fn cooldowns_grow_up_to_the_longest_and_chance_shortens_them() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Count(4)).await.unwrap();
        let tell = async |outcome, luck| {
            let report = Report { luck, ..report("a:1", outcome) };
            let changes = pool.report(&[report], &CARE).await.unwrap();
            parked(&changes).first().map(|p| (p.in_a_row, p.until_ms.unwrap() - p.since_ms))
        };
        assert_eq!(tell(failed(2), 1.0).await, None);
        assert_eq!(pool.failures().await.unwrap(), [(name("a:1"), 2)].into());
        assert_eq!(tell(Outcome::Served, 1.0).await, None);
        assert_eq!(tell(failed(2), 1.0).await, None);
        assert_eq!(tell(failed(1), 1.0).await, Some((1, 30_000)));
        assert_eq!(tell(failed(9), 1.0).await, None, "what was under way says nothing new");
        assert_eq!(tell(missed(), 0.75).await, Some((2, 45_000)));
        assert_eq!(tell(missed(), 1.0).await, Some((3, 100_000)));
        let record = pool.parked().await.unwrap().remove(0);
        assert_eq!((record.count, record.kind, &*record.reason), (4.0, Kind::Cooldown, "failed a trial: why"));
        assert_eq!(
            pool.report(&[report("a:1", Outcome::Passed)], &CARE).await.unwrap(),
            [Change::Restored(name("a:1"))]
        );
        assert_eq!(tell(failed(3), 0.5).await, Some((1, 15_000)), "it had proven itself");
    })
    .await;
}

#[tokio::test]
async fn no_more_are_set_aside_than_may_be_and_one_is_left() {
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1", "c:1", "d:1", "e:1"]), Initial::Min).await.unwrap();
        // Of no concern: an operator's own.
        pool.park(&name("e:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        let all: Vec<_> = ["a:1", "b:1", "c:1", "d:1"].iter().map(|member| report(member, failed(3))).collect();
        let changes = pool.report(&all, &CARE).await.unwrap();
        assert_eq!(parked(&changes).len(), 2);
        assert_eq!(changes[2..], [Change::Spared(name("c:1")), Change::Spared(name("d:1"))]);
        let whole = Care { max_parked: 100, ..CARE };
        let changes = pool.report(&all, &whole).await.unwrap();
        assert_eq!(parked(&changes).iter().map(|p| &p.member[..]).collect::<Vec<_>>(), [b"c:1"]);
        assert_eq!(changes.last(), Some(&Change::Spared(name("d:1"))));
        assert_eq!(counts(&pool).await, [(name("d:1"), 0.0)]);
        let look = pool.look(0, 10).await.unwrap();
        assert_eq!((look.is_due, look.total, look.failing), (false, 4, names(["d:1"])));
        assert_eq!(pool.look(look.next, 10).await.unwrap().failing, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_trial_counts_and_belongs_to_one_request() {
    on_both(async |pool| {
        let care = Care { cooldown: Duration::ZERO, ..CARE };
        pool.add(&names(["a:1", "b:1", "c:1", "d:1"]), Initial::Count(4)).await.unwrap();
        pool.report(&[report("a:1", failed(3)), report("b:1", failed(3))], &care).await.unwrap();
        assert!(pool.look(0, 1).await.unwrap().is_due);
        let hour = Duration::from_secs(3600);
        assert_eq!(pool.try_next(hour).await.unwrap(), Some((name("a:1"), true)));
        assert_eq!(pool.try_next(hour).await.unwrap(), Some((name("b:1"), false)));
        assert_eq!(pool.try_next(hour).await.unwrap(), None);
        let told = pool.report(&[report("b:1", Outcome::Undecided), report("a:1", Outcome::Passed)], &care).await;
        assert_eq!(told.unwrap(), [Change::Restored(name("a:1"))]);
        assert!(counts(&pool).await.contains(&(name("a:1"), 5.0)), "the request is counted");
        // What showed nothing is soon repeated.
        let started = Instant::now();
        while pool.try_next(hour).await.unwrap() != Some((name("b:1"), false)) {
            assert!(started.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
        }
        // By hand it returns at once, and a late outcome changes nothing.
        assert_eq!(pool.restore(&names(["b:1"]), Initial::Min).await.unwrap(), names(["b:1"]));
        assert_eq!(pool.report(&[report("b:1", missed())], &care).await.unwrap(), []);
        assert_eq!(pool.list().await.unwrap().len(), 4);
        // Nor does that of one that was removed, or of one set aside by hand meanwhile.
        pool.report(&[report("a:1", failed(3)), report("b:1", failed(3))], &care).await.unwrap();
        pool.remove(&names(["a:1"])).await.unwrap();
        pool.park(&name("b:1"), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        assert_eq!(pool.try_next(hour).await.unwrap(), None);
        let late = [report("a:1", Outcome::Passed), report("b:1", Outcome::Passed)];
        assert_eq!(pool.report(&late, &care).await.unwrap(), []);
        assert_eq!(pool.list().await.unwrap().len(), 2);
    })
    .await;
}

#[derive(Clone, Debug)]
enum Step {
    Report(u8, Outcome),
    Try,
    Allocate,
    Add(u8),
    Remove(u8),
    Park(u8),
    Restore(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        2 => Just(Outcome::Served),
        5 => (1..4_u32).prop_map(failed),
        2 => Just(Outcome::Passed),
        2 => Just(missed()),
        1 => Just(Outcome::Undecided),
    ];
    prop_oneof![
        8 => (0..6_u8, outcome).prop_map(|(member, outcome)| Step::Report(member, outcome)),
        2 => Just(Step::Try),
        2 => Just(Step::Allocate),
        1 => (0..6_u8).prop_map(Step::Add),
        1 => (0..6_u8).prop_map(Step::Remove),
        1 => (0..6_u8).prop_map(Step::Park),
        1 => (0..6_u8).prop_map(Step::Restore),
    ]
}

/// Everything that can be seen, but for times.
async fn seen(pool: &Pool, step: &Step) -> String {
    let of = |n: &u8| name(&format!("p{n}:1"));
    let care = Care { cooldown: Duration::ZERO, max_cooldown: Duration::ZERO, ..CARE };
    let timeless = |parked: Parked| Parked { since_ms: 0, until_ms: None, ..parked };
    let done = match step {
        Step::Report(member, outcome) => {
            let report = Report { member: of(member), outcome: outcome.clone(), luck: 1.0 };
            let changes = pool.report(&[report], &care).await.unwrap().into_iter().map(|change| match change {
                Change::Parked(parked) => Change::Parked(timeless(parked)),
                other => other,
            });
            format!("{:?}", changes.collect::<Vec<_>>())
        }
        // Nobody knows which of those that are due at the same time comes first, where the clocks differ.
        Step::Try if pool.parked().await.unwrap().len() > 1 => String::new(),
        Step::Try => format!("{:?}", pool.try_next(Duration::ZERO).await.unwrap()),
        Step::Allocate => format!("{:?}", allocate(pool, &[]).await.unwrap()),
        Step::Add(member) => format!("{:?}", pool.add(&[of(member)], Initial::Min).await.unwrap()),
        Step::Remove(member) => format!("{:?}", pool.remove(&[of(member)]).await.unwrap()),
        Step::Park(member) => {
            let parked = pool.park(&of(member), &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
            format!("{:?}", parked.map(timeless))
        }
        Step::Restore(member) => format!("{:?}", pool.restore(&[of(member)], Initial::Min).await.unwrap()),
    };
    let parked: Vec<_> = pool.parked().await.unwrap().into_iter().map(timeless).collect();
    let mut failures: Vec<(Name, u64)> = pool.failures().await.unwrap().into_iter().collect();
    failures.sort();
    format!("{done} {:?} {parked:?} {failures:?} {}", counts(pool).await, pool.look(0, 9).await.unwrap().total)
}

#[test]
fn both_stores_do_the_same_with_whatever_is_reported() {
    let server = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redis = runtime.block_on(async { connect(&server) });
    proptest!(ProptestConfig::with_cases(100), |(steps in prop::collection::vec(any_step(), 1..40))| {
        server.cmd(&["FLUSHDB"]);
        let embedded = Pool::Embedded(Embedded::new());
        runtime.block_on(async {
            for pool in [&embedded, &redis] {
                pool.add(&names(["p0:1", "p1:1", "p2:1", "p3:1"]), Initial::Min).await.unwrap();
            }
            for step in &steps {
                assert_eq!(seen(&embedded, step).await, seen(&redis, step).await, "{step:?}");
            }
        });
    });
}
