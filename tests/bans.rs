//! Answers that say a member is not welcome set it aside, by rules.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use evenkeel::member::Name;
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::{Ban, Care, Change, HostBan, Initial, Kind, Outcome, Pool, PoolError, Report, Stay};

use crate::support::client::Client;
use crate::support::gateway::{Gateway, KEY, Setup, Store, eventually, with_both_stores};
use crate::support::inside::least_concurrent;
use crate::support::pool::{connect_ramping, counts, name, names, on_both, parking, sum, take};
use crate::support::redis::Redis;
use crate::support::upstream::{Conn, Refusing, Upstream};
use crate::support::wire::PATIENCE;

const SET_ASIDE: &str = "set a pool member aside";
const KEPT: &str = "keeps a pool member from a host";

/// Answers one host with `bad`, every other one with 200.
fn hostile(host: &'static str, bad: &'static str) -> impl Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static {
    move |conn| {
        while let Some(request) = conn.request()? {
            let is_bad = request.head.line().contains(host);
            conn.send(if is_bad { bad } else { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" })?;
        }
        Ok(())
    }
}

const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\nRetry-After: 9\r\n\r\nbusy";

#[test]
fn an_answer_that_a_rule_names_is_passed_on_and_its_member_is_set_aside_for_the_time() {
    with_both_stores(|store| {
        let (banned, other) = (Upstream::start(hostile("shop.test", BUSY)), Upstream::ok("ok"));
        let gateway = Setup::of([banned.url(), other.url()])
            .over(store)
            .line(r#"pool.ban = [{ status = [403, "429-430"], for = "1500ms", scope = "proxy" }]"#)
            .start();
        let mut client = gateway.client();
        let answers: Vec<_> = (0..2).map(|_| client.get("http://shop.test/")).collect();
        let busy = answers.iter().find(|answer| answer.status() == 429).expect("one came through it");
        assert_eq!((&busy.body[..], busy.head.field("Retry-After")), (&b"busy"[..], Some("9")));
        eventually(PATIENCE, "it is set aside", || gateway.said(SET_ASIDE, &banned.url()) == 1);
        let log = gateway.log();
        assert!(log.contains(r#"kind="banned" reason="429 from shop.test" for=1.5s"#), "{log}");
        let heard = banned.requests().len();
        assert!((0..6).all(|_| client.get("http://shop.test/").status() == 200));
        assert_eq!(banned.requests().len(), heard);
        eventually(PATIENCE, "it is back", || gateway.said("back in the pool", &banned.url()) == 1);
        eventually(PATIENCE, "it serves others", || {
            client.get("http://other.test/");
            banned.requests().len() > heard
        });
    });
}

/// What a rule sees, and whether it sets the member aside.
struct Case<'a> {
    rule: &'static str,
    answer: &'a [u8],
    request: &'static str,
    bans: bool,
}

#[test]
fn rules_see_fields_and_the_beginning_of_a_body_on_every_way() {
    const GET: &str = "GET http://shop.test/ HTTP/1.1\r\nHost: shop.test\r\n\r\n";
    const POST: &str = "POST http://shop.test/ HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 1\r\n\r\nx";
    const CONNECT: &str = "CONNECT shop.test:443 HTTP/1.1\r\nHost: shop.test:443\r\n\r\n";
    const CHUNKS: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nAcc\r\n4\r\ness \r\n6\r\nDenied\r\n0\r\n\r\n";
    const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nAccess Denied";
    const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    const HEAD: &str = "HEAD http://shop.test/ HTTP/1.1\r\nHost: shop.test\r\n\r\n";
    const FIELD: &[u8] = b"HTTP/1.1 200 OK\r\nX-Shield: a\r\nx-shield: Captcha\r\nContent-Length: 0\r\n\r\n";
    let packed = gzipped(b"Access Denied");
    let packed_chunk = [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
        &*format!("{:x}\r\n", packed.len()).into_bytes(),
        &packed,
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    let packed = [b"HTTP/1.1 200 OK\r\nCONTENT-ENCODING: X-GZip\r\nConnection: close\r\n\r\n", &*packed].concat();
    let body = r#"{ body = "(?i)access denied" }"#;
    let cases = [
        Case { rule: body, answer: CHUNKS, request: GET, bans: true },
        Case { rule: body, answer: CHUNKS, request: POST, bans: true },
        Case { rule: body, answer: UNTIL_CLOSE, request: GET, bans: true },
        Case { rule: r#"{ body = "Access denied" }"#, answer: UNTIL_CLOSE, request: GET, bans: false },
        Case { rule: body, answer: &packed, request: GET, bans: true },
        Case { rule: body, answer: &packed, request: POST, bans: true },
        Case { rule: body, answer: &packed_chunk, request: GET, bans: true },
        Case { rule: body, answer: &packed_chunk, request: POST, bans: true },
        // However it arrives, a body ends where it ends, and of the rules that it meets the first counts.
        Case { rule: r#"{ body = 'Access$' }, { body = 'Acc\b' }"#, answer: CHUNKS, request: GET, bans: false },
        Case { rule: r#"{ body = 'Access$' }, { body = 'Acc\b' }"#, answer: UNTIL_CLOSE, request: POST, bans: false },
        Case { rule: "{ body = 'Denied$' }", answer: CHUNKS, request: GET, bans: true },
        Case { rule: "{ body = '^$' }", answer: CHUNKS, request: GET, bans: false },
        Case { rule: "{ body = '^$' }", answer: EMPTY, request: GET, bans: true },
        Case { rule: "{ body = '^$' }", answer: EMPTY, request: POST, bans: true },
        // There is none to look at, whatever the fields say.
        Case { rule: "{ body = '^' }", answer: UNTIL_CLOSE, request: HEAD, bans: false },
        Case {
            rule: "{ body = '^' }",
            answer: b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
            request: GET,
            bans: false,
        },
        Case {
            rule: "{ status = 403 }",
            answer: b"HTTP/1.1 403 No\r\nContent-Length: 9\r\n\r\n",
            request: HEAD,
            bans: true,
        },
        Case {
            rule: "{ status = 403 }",
            answer: b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
            request: GET,
            bans: true,
        },
        // Framing is no body.
        Case { rule: r#"{ body = "(?s)4..ess" }"#, answer: CHUNKS, request: GET, bans: false },
        Case { rule: r#"{ status = 403, body = "Denied" }"#, answer: UNTIL_CLOSE, request: GET, bans: false },
        Case { rule: r#"{ header = "X-SHIELD: ^Captcha$" }"#, answer: FIELD, request: GET, bans: true },
        Case { rule: r#"{ header = "X-SHIELD: ^Captcha$" }"#, answer: FIELD, request: POST, bans: true },
        Case { rule: r#"{ header = "X-Shield" }"#, answer: FIELD, request: GET, bans: true },
        Case { rule: r#"{ header = "X-Shield: captcha" }"#, answer: FIELD, request: GET, bans: false },
        Case { rule: r#"{ header = "X-Other" }"#, answer: FIELD, request: POST, bans: false },
        Case { rule: r#"{ status = 200, hosts = [".test"] }"#, answer: FIELD, request: GET, bans: true },
        Case { rule: r#"{ status = 200, hosts = ["other.test"] }"#, answer: FIELD, request: GET, bans: false },
        Case { rule: "{ status = 403 }", answer: b"HTTP/1.1 403 No\r\n\r\n", request: CONNECT, bans: true },
        Case { rule: "{ status = 200 }", answer: b"HTTP/1.1 200 OK\r\n\r\n", request: CONNECT, bans: false },
    ];
    let nobody = Refusing::new();
    for Case { rule, answer, request, bans } in cases {
        let answer = answer.to_vec();
        let member = Upstream::start(move |conn| {
            conn.request()?;
            // In single bytes, so that nothing is seen at once.
            answer.iter().try_for_each(|byte| conn.send([*byte]))
        });
        // Nobody is at the other one, so the request finds the member, which is not the last.
        let gateway = Setup::of([member.url(), nobody.url()])
            .set("health.park_after", 0)
            .line(&format!("pool.ban = [{rule}, {{ status = 299 }}]"))
            .start();
        let mut client = gateway.client();
        client.send(request);
        match request.split(' ').next() {
            Some(method @ ("GET" | "POST" | "HEAD")) => drop(client.response_to(method)),
            _ => drop(client.head()),
        }
        assert_eq!(member.requests().len(), 1, "{rule}");
        if bans {
            eventually(PATIENCE, rule, || gateway.said(KEPT, &member.url()) == 1);
        } else {
            assert!(gateway.client().is_silent_for(Duration::from_millis(100)));
            assert_eq!(gateway.said(KEPT, &member.url()), 0, "{rule} {request}");
        }
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// The part of a body that was sent arrives while the rest is not even sent.
#[test]
fn a_rule_that_looks_at_bodies_delays_none() {
    let member = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\nbeginning")?;
        conn.until_close().map(drop)
    });
    let gateway = Setup::of([member.url()]).line(r#"pool.ban = [{ body = "no such text" }]"#).start();
    let mut client = gateway.client();
    let started = Instant::now();
    client.send("GET http://shop.test/ HTTP/1.1\r\nHost: shop.test\r\n\r\n");
    client.wire().until(b"beginning").expect("what was sent so far");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

fn ban(member: &Name, span: Duration) -> Ban {
    Ban { member: member.clone(), reason: "429 from shop.test".to_owned(), span }
}

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn bans_take_no_more_than_they_may_and_end_by_themselves() {
    on_both(async |pool| {
        let members = names(["a:1", "b:1", "c:1", "d:1"]);
        pool.add(&members, Initial::Count(5)).await.unwrap();
        pool.park(&members[3], &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        let bans: Vec<Ban> = [&members[0], &members[1], &members[3], &name("gone:1")]
            .map(|member| ban(member, if *member == "a:1" { Duration::ZERO } else { LONG }))
            .to_vec();
        let changes = pool.ban(&bans, 50).await.unwrap();
        let [Change::Parked(parked), Change::Spared(spared)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((&parked.member[..], parked.kind, parked.count), (&b"a:1"[..], Kind::Banned, 5.0));
        assert_eq!((&*parked.reason, parked.in_a_row), ("429 from shop.test", 0));
        assert_eq!(parked.until_ms, Some(parked.since_ms));
        assert_eq!(*spared, "b:1");
        assert_eq!(counts(&pool).await, [(name("b:1"), 5.0), (name("c:1"), 5.0)]);
        assert_eq!(pool.restore_due(10, Initial::Min).await.unwrap(), [name("a:1")]);
        assert_eq!(counts(&pool).await.len(), 3);
        // Never the last one.
        let all: Vec<Ban> = members[..3].iter().map(|member| ban(member, LONG)).collect();
        let changes = pool.ban(&all, 100).await.unwrap();
        assert!(matches!(&changes[..], [Change::Parked(_), Change::Parked(_), Change::Spared(_)]), "{changes:?}");
        assert_eq!(take(&pool, 2).await, [Some(name("c:1")), Some(name("c:1"))]);
        let rows: Vec<_> = pool.parked().await.unwrap().into_iter().map(|p| (p.member, p.kind)).collect();
        assert_eq!(rows, [(name("a:1"), Kind::Banned), (name("b:1"), Kind::Banned), (name("d:1"), Kind::Hand)]);
        assert_eq!(pool.restore(&members, Initial::Min).await.unwrap().len(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_member_whose_trial_is_answered_with_a_ban_is_banned_and_tried_no_more() {
    const CARE: Care = Care {
        park_after: 1,
        cooldown: Duration::from_millis(1),
        max_cooldown: Duration::from_millis(1),
        max_parked: 50,
        restore: Initial::Min,
    };
    on_both(async |pool| {
        pool.add(&names(["a:1", "b:1"]), Initial::Min).await.unwrap();
        let report = |outcome| [Report { member: name("a:1"), outcome, luck: 0.0 }];
        pool.report(&report(Outcome::Failed(1, "why".to_owned())), &CARE).await.unwrap();
        assert_eq!(pool.try_next(LONG).await.unwrap(), Some((name("a:1"), false)));
        let changes = pool.ban(&[ban(&name("a:1"), LONG)], 50).await.unwrap();
        assert!(matches!(&changes[..], [Change::Parked(parked)] if parked.count == 1.0), "{changes:?}");
        // That it was answered comes later.
        assert_eq!(pool.report(&report(Outcome::Passed), &CARE).await.unwrap(), []);
        assert_eq!(pool.try_next(LONG).await.unwrap(), None);
        assert_eq!(pool.parked().await.unwrap()[0].kind, Kind::Banned);
    })
    .await;
}

fn by_hand(members: &[Name], span: Duration) -> Vec<Ban> {
    members.iter().map(|member| ban(member, span)).collect()
}

const SHOP: &str = "shop.test";

async fn take_for(pool: &Pool, host: &str, tried: &[Name]) -> Option<Name> {
    pool.allocate_for(host, tried).await.unwrap().map(|(member, _)| member)
}

/// A pool of each kind, as each policy has it.
async fn on_all(body: impl AsyncFn(Pool)) {
    on_both(&body).await;
    eprintln!("ramping:");
    body(Pool::Embedded(Embedded::new().with_ramp(2))).await;
    let server = Redis::start();
    body(connect_ramping(&server, 2)).await;
    on_both_least_concurrent(body).await;
}

/// Where those that have least in flight come first.
async fn on_both_least_concurrent(body: impl AsyncFn(Pool)) {
    eprintln!("least-concurrent:");
    body(Pool::Embedded(Embedded::least_concurrent(0))).await;
    let server = Redis::start();
    body(least_concurrent(&server.url(), 0)).await;
}

#[tokio::test]
async fn a_host_that_has_banned_members_gets_the_least_used_of_the_others() {
    on_all(async |pool| {
        let members = names(["a:1", "b:1", "c:1"]);
        pool.add(&members, Initial::Min).await.unwrap();
        let mut seen = None;
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), Some(vec![]));
        let words = pool.ban_for(SHOP, &by_hand(&members[..1], LONG), Some(100)).await.unwrap();
        assert_eq!(words, [HostBan::Banned]);
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), Some(vec![SHOP.to_owned()]));
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), None);
        for expected in ["b:1", "c:1", "b:1", "c:1"] {
            assert_eq!(take_for(&pool, SHOP, &[]).await, Some(name(expected)));
        }
        assert_eq!(take_for(&pool, SHOP, &members[1..]).await, None, "only the banned one was not tried");
        // For everyone else it is the least used, and its count is one count for all.
        assert_eq!(take(&pool, 2).await, [Some(name("a:1")), Some(name("a:1"))]);
        assert_eq!(take_for(&pool, "other.test", &members[..1]).await, Some(name("b:1")));
        let banned: Vec<_> = pool.banned().await.unwrap().into_iter().map(|b| (b.host, b.member)).collect();
        assert_eq!(banned, [(SHOP.to_owned(), name("a:1"))]);
        assert_eq!(pool.unban_for(SHOP, &members).await.unwrap(), members[..1]);
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), Some(vec![]));
        assert_eq!(take_for(&pool, SHOP, &[]).await, Some(name("a:1")));
        assert_eq!(sum(&pool).await, 8.0);
    })
    .await;
}

#[tokio::test]
async fn who_is_removed_is_banned_nowhere_when_he_is_added_again() {
    on_both(async |pool| {
        let members = names(["a:1", "b:1", "c:1"]);
        pool.add(&members, Initial::Min).await.unwrap();
        for host in [SHOP, "other.test"] {
            pool.ban_for(host, &by_hand(&members[..1], LONG), None).await.unwrap();
        }
        pool.ban_for(SHOP, &by_hand(&members[1..2], LONG), None).await.unwrap();
        assert_eq!(pool.remove(&members[..1]).await.unwrap(), 1);
        pool.add(&members[..1], Initial::Min).await.unwrap();
        let banned: Vec<_> = pool.banned().await.unwrap().into_iter().map(|b| (b.host, b.member)).collect();
        assert_eq!(banned, [(SHOP.to_owned(), name("b:1"))], "and others stay banned");
        assert_eq!(pool.hosts(&mut None).await.unwrap(), Some(vec![SHOP.to_owned()]));
        assert_eq!(take_for(&pool, SHOP, &[]).await, Some(name("a:1")));
    })
    .await;
}

#[tokio::test]
async fn who_a_source_drops_is_banned_nowhere_when_it_names_him_again() {
    on_both(async |pool| {
        let members = names(["a:1", "b:1", "c:1", "d:1"]);
        for (removes, as_candidates) in [(true, false), (false, true)] {
            let mut reading = pool.begin_reading("list", Initial::Min).await.unwrap();
            pool.take(&mut reading, &members[..3], as_candidates).await.unwrap();
            let mut other = pool.begin_reading("other", Initial::Min).await.unwrap();
            pool.take(&mut other, &members[2..], as_candidates).await.unwrap();
            for host in [SHOP, "other.test"] {
                pool.ban_for(host, &by_hand(&members[..1], LONG), None).await.unwrap();
            }
            pool.ban_for(SHOP, &by_hand(&members[1..], LONG), None).await.unwrap();
            let mut reading = pool.begin_reading("list", Initial::Min).await.unwrap();
            pool.take(&mut reading, &members[1..2], as_candidates).await.unwrap();
            let gone = pool.missing(&reading, 10).await.unwrap();
            let dropped = pool.forget(&reading, &gone, removes).await.unwrap();
            assert_eq!((dropped.forgotten, dropped.removed), (2, 1), "the other source names c");
            let banned: Vec<_> = pool.banned().await.unwrap().into_iter().map(|b| (b.host, b.member)).collect();
            let expected = ["b:1", "c:1", "d:1"].map(|member| (SHOP.to_owned(), name(member)));
            assert_eq!(banned, expected, "and others stay banned");
            assert_eq!(pool.hosts(&mut None).await.unwrap(), Some(vec![SHOP.to_owned()]));
            pool.remove(&members).await.unwrap();
            pool.drop_source("list", true).await.unwrap();
            pool.drop_source("other", true).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn bans_from_a_host_take_no_more_than_they_may_and_end_by_themselves() {
    on_both(async |pool| {
        let members = names(["a:1", "b:1", "c:1", "d:1"]);
        pool.add(&members, Initial::Min).await.unwrap();
        let bans = by_hand(&[&members[..], &[name("gone:1")]].concat(), LONG);
        use HostBan::{Banned, Known, Spared, Unknown};
        assert_eq!(pool.ban_for(SHOP, &bans, Some(50)).await.unwrap(), [Banned, Banned, Spared, Spared, Unknown]);
        assert_eq!(pool.ban_for(SHOP, &bans, Some(100)).await.unwrap(), [Known, Known, Banned, Spared, Unknown]);
        assert_eq!(pool.ban_for(SHOP, &bans[3..4], None).await.unwrap(), [Banned]);
        assert_eq!(take_for(&pool, SHOP, &[]).await, None);
        // A shorter ban than the one there is does not end it, and one that is over has ended.
        let short = by_hand(&members[..1], Duration::ZERO);
        assert_eq!(pool.ban_for(SHOP, &short, None).await.unwrap(), [Known]);
        assert_eq!(take_for(&pool, SHOP, &[]).await, None);
        let mut seen = None;
        assert_eq!(pool.ban_for("other.test", &short, None).await.unwrap(), [Banned]);
        assert_eq!(take_for(&pool, "other.test", &[]).await, Some(name("a:1")));
        assert_eq!(pool.hosts(&mut seen).await.unwrap(), Some(vec![SHOP.to_owned()]));
        // Who is set aside can be banned too, and is so when it is back.
        pool.unban_for(SHOP, &members[..1]).await.unwrap();
        pool.park(&members[0], &parking(Kind::Hand, Stay::UntilRestored)).await.unwrap();
        assert_eq!(pool.ban_for(SHOP, &bans[..1], None).await.unwrap(), [Banned]);
        pool.restore(&members[..1], Initial::Min).await.unwrap();
        assert_eq!(take_for(&pool, SHOP, &[]).await, None);
    })
    .await;
}

/// More banned members than are looked at in front gather there; whoever is free is found all the same.
#[tokio::test]
async fn however_many_are_banned_the_choice_is_the_least_used_of_the_rest() {
    let body = async |pool: Pool| {
        let members: Vec<Name> = (0..3000).map(|n| name(&format!("p{n:04}:1"))).collect();
        pool.add(&members, Initial::Min).await.unwrap();
        let (banned, free) = members.split_at(2990);
        pool.ban_for(SHOP, &by_hand(banned, LONG), None).await.unwrap();
        // In between, others use the banned ones, who move on and are passed again.
        for turn in 0..60 {
            let expected = &free[turn % free.len()];
            assert_eq!(take_for(&pool, SHOP, &[]).await.as_ref(), Some(expected), "{turn}");
            assert_eq!(take(&pool, 1).await, [Some(members[turn].clone())]);
        }
        let skipped = [free[0].clone(), free[1].clone()];
        assert_eq!(take_for(&pool, SHOP, &skipped).await.as_ref(), Some(&free[2]));
        assert_eq!(
            take_for(&pool, SHOP, &[]).await.as_ref(),
            Some(&free[0]),
            "whoever was only tried is not passed for good"
        );
        // Whose ban is lifted is next.
        pool.unban_for(SHOP, &members[2000..2001]).await.unwrap();
        assert_eq!(take_for(&pool, SHOP, &[]).await.as_ref(), Some(&members[2000]));
        // Newcomers in front of the banned are found within so many handfuls.
        pool.add(&[name("new:1")], Initial::Zero).await.unwrap();
        let mut turns = 0;
        while take_for(&pool, SHOP, &[]).await != Some(name("new:1")) {
            turns += 1;
            assert!(turns < 3000 / 64 + 2, "{turns}");
        }
        // Nobody is left.
        let rest = [free, &[name("new:1"), members[2000].clone()]].concat();
        pool.remove(&rest).await.unwrap();
        assert_eq!(take_for(&pool, SHOP, &[]).await, None);
        assert_eq!(take_for(&pool, SHOP, &members[..1]).await, None);
        pool.unban_for(SHOP, &members[..1]).await.unwrap();
        assert_eq!(take_for(&pool, SHOP, &[]).await.as_ref(), Some(&members[0]));
    };
    on_both(&body).await;
    body(Pool::Embedded(Embedded::new().with_ramp(2))).await;
    let server = Redis::start();
    body(connect_ramping(&server, 2)).await;
}

#[tokio::test]
async fn under_least_concurrent_banned_members_are_passed_over_too_and_limits_hold() {
    for store in [None, Some(Redis::start())] {
        let pool = match &store {
            None => Pool::Embedded(Embedded::least_concurrent(1)),
            Some(redis) => least_concurrent(&redis.url(), 1),
        };
        let members: Vec<Name> = (0..300).map(|n| name(&format!("p{n:04}:1"))).collect();
        pool.add(&members, Initial::Min).await.unwrap();
        pool.ban_for(SHOP, &by_hand(&members[..298], LONG), None).await.unwrap();
        let (first, first_lease) = pool.allocate_for(SHOP, &[]).await.unwrap().unwrap();
        let (second, _second_lease) = pool.allocate_for(SHOP, &[]).await.unwrap().unwrap();
        assert_eq!([first, second], members[298..]);
        let third = pool.allocate_for(SHOP, &[]).await;
        assert!(matches!(third, Err(PoolError::AtLimit)), "{:?}", third.map(|chosen| chosen.map(|(name, _)| name)));
        drop(first_lease);
        let (again, _again_lease) = pool.allocate_for(SHOP, &[]).await.unwrap().unwrap();
        assert_eq!(again, members[298]);
        let (other, _other_lease) = pool.allocate(&[]).await.unwrap().unwrap();
        assert_eq!(other, members[0]);
        assert_eq!(pool.in_flight().await.unwrap().values().sum::<u64>(), 3);
    }
}

#[test]
fn a_member_that_one_host_has_banned_goes_on_serving_others() {
    with_both_stores(|store| {
        let (banned, other) = (Upstream::start(hostile(SHOP, BUSY)), Upstream::ok("ok"));
        let setup = Setup::of([banned.url(), other.url()]).over(store).set("gateway.proxy_status", "always");
        let ruling = setup.clone().line("pool.ban = [{ status = 429, for = \"1h\" }]").start();
        let mut client = ruling.client();
        let shop = format!("http://{SHOP}/");
        let statuses: Vec<_> = (0..2).map(|_| client.get(&shop).status()).collect();
        assert!(statuses.contains(&429), "{statuses:?}");
        eventually(PATIENCE, "it is kept from the host", || ruling.said(KEPT, &banned.url()) == 1);
        let log = ruling.log();
        assert!(log.contains(&format!("host=\"{SHOP}\" reason=\"429 from {SHOP}\" for=3600s")), "{log}");
        let heard = banned.requests().len();
        // Spelled differently it is the same host; a name below it is another.
        for url in [&shop[..], "http://SHOP.test:80/", "http://shop.TEST.:8080/"] {
            assert!((0..4).all(|_| client.get(url).status() == 200), "{url}");
        }
        assert_eq!(banned.requests().len(), heard);
        for url in ["http://www.shop.example/", "http://other.test/"] {
            (0..4).for_each(|_| drop(client.get(url)));
        }
        assert!(banned.requests().len() >= heard + 4);
        // Whoever shares the pool hears of it, rules or not; and of its end.
        if let Store::Redis(redis) = store {
            let plain = setup.start();
            let mut client = plain.client();
            eventually(PATIENCE, "the other gateway knows", || (0..4).all(|_| client.get(&shop).status() == 200));
            redis.cmd(&["DEL", &format!("{KEY}:host:{SHOP}")]);
            eventually(PATIENCE, "nothing is banned", || client.get(&shop).status() == 429);
        }
    });
}

#[test]
fn a_tunnel_that_is_refused_bans_by_its_status_and_other_hosts_are_served() {
    let refusing = Upstream::start(|conn| {
        let request = conn.request()?.expect("a request");
        if request.head.line().contains(SHOP) {
            return conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").map(drop);
        }
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        conn.echo()
    });
    let other = Upstream::echoing();
    let gateway = Setup::of([refusing.url(), other.url()]).line("pool.ban = [{ status = 403 }]").start();
    let connect = |target: &str| gateway.client().connect(target).status();
    eventually(PATIENCE, "it is kept from the host", || {
        assert_eq!(connect("shop.test:443"), 200, "the other one does it");
        gateway.said(KEPT, &refusing.url()) == 1
    });
    let heard = refusing.requests().len();
    assert!((0..4).all(|_| connect("shop.test:443") == 200));
    assert_eq!(refusing.requests().len(), heard);
    assert!((0..4).all(|_| connect("other.test:443") == 200));
    assert!(refusing.requests().len() > heard);
}

/// A client inside its tunnel sees what no rule can, and says so on whatever request comes next.
#[test]
fn clients_report_members_and_nobody_else_hears_of_it() {
    with_both_stores(|store| {
        let members = [Upstream::ok("ok"), Upstream::ok("ok")];
        let setup = Setup::of(members.iter().map(Upstream::url)).over(store);
        let gateway = setup.clone().set("gateway.reports", "host").start();
        let mut client = gateway.client();
        let report = |client: &mut Client, request: &str, value: &str| {
            let (line, rest) = request.split_once("\r\n").unwrap();
            client.send(format!("{line}\r\nx-evenkeel-REPORT: {value}\r\n{rest}"));
        };
        let get = "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n";
        let post = "POST http://other.test/ HTTP/1.1\r\nHost: other.test\r\nContent-Length: 1\r\n\r\nx";
        let ban = format!("ban; proxy={}; host={SHOP}; for=1h; reason=\"captcha\"", members[0].id());
        // One that has not served yet is found as well.
        let listed = format!("{ban}, {ban}\r\nConnection: X-Evenkeel-Report\r\nX-EVENKEEL-Report:\t{ban}\t");
        for (request, value) in [(get, &ban), (post, &ban), (get, &listed), (post, &listed)] {
            report(&mut client, request, value);
            assert_eq!(client.response().status(), 200);
        }
        eventually(PATIENCE, "it is kept from the host", || gateway.said(KEPT, &members[0].url()) == 1);
        assert!(gateway.log().contains("reason=\"reported by a client: captcha\" for=3600s"), "{}", gateway.log());
        let heard = members[0].requests().len();
        assert!((0..4).all(|_| client.get(&format!("http://{SHOP}/")).status() == 200));
        assert_eq!(members[0].requests().len(), heard);
        (0..4).for_each(|_| drop(client.get("http://other.test/")));
        assert!(members[0].requests().len() > heard);
        // The last one stays, whatever is said.
        report(&mut client, get, &ban.replace(&members[0].id(), &members[1].id()));
        client.response();
        eventually(PATIENCE, "it is spared", || gateway.said("is not kept from the host", &members[1].url()) == 1);
        assert_eq!(client.get(&format!("http://{SHOP}/")).status(), 200);
        // What cannot be a report, or not here, is refused before anything is chosen; of several one is enough.
        let (many, long) = ([&*ban; 9].join(","), format!("{ban}, ban; reason={}", "x".repeat(20_000)));
        for wrong in [
            "ban",
            "",
            &many,
            &long,
            "ban; proxy=1",
            &ban.replace(&format!(" host={SHOP};"), ""),
            &ban.replace("1h", "soon"),
        ] {
            for request in [get, post, "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n"] {
                let mut client = gateway.client();
                report(&mut client, request, wrong);
                assert_eq!(client.head().status(), 400, "{wrong} {request}");
            }
        }
        let all: Vec<_> = members.iter().flat_map(Upstream::requests).collect();
        assert!(!all.is_empty() && all.iter().all(|request| request.head.field("X-Evenkeel-Report").is_none()));
        assert_eq!(gateway.said(SET_ASIDE, &members[0].url()), 0);
    });
}

#[test]
fn reports_come_with_connect_and_count_only_where_they_may() {
    let members = [Upstream::echoing(), Upstream::echoing()];
    let setup = Setup::of(members.iter().map(Upstream::url));
    let connect = |gateway: &Gateway, value: &str| {
        let mut client = gateway.client();
        client.send(format!(
            "CONNECT shop.test:443 HTTP/1.1\r\nHost: shop.test:443\r\nX-Evenkeel-Report: {value}\r\n\r\n"
        ));
        client.head().status()
    };
    let whole = format!("ban; proxy={}", members[0].id());
    let gateway = setup.clone().set("gateway.reports", "any").start();
    assert_eq!(connect(&gateway, &whole), 200);
    eventually(PATIENCE, "it is set aside", || gateway.said(SET_ASIDE, &members[0].url()) == 1);
    let deaf = setup.start();
    for report in [&whole[..], "nonsense"] {
        assert_eq!(connect(&deaf, report), 200);
    }
    assert!(deaf.client().is_silent_for(Duration::from_millis(100)));
    assert_eq!(deaf.said(SET_ASIDE, &members[0].url()), 0);
    let heads = members.iter().flat_map(Upstream::requests).map(|request| request.head);
    assert!(heads.into_iter().all(|head| head.field("X-Evenkeel-Report").is_none()));
}
