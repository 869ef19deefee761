//! Candidates are judged before they enter the pool, by one gateway each, and members are held to the rules.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel::member::Name;
use evenkeel::pool::{Initial, Judged, Judging, Memory, Opinion, Pool};

use crate::support::gateway::{Gateway, KEY, Setup, Store, eventually, run, with_both_stores};
use crate::support::pool::{self, counts, name, names, on_both};
use crate::support::redis::{Redis, Reply};
use crate::support::upstream::{Refusing, Upstream, id};
use crate::support::wire::PATIENCE;

const LEASE: Duration = Duration::from_secs(100);

fn judging(by: &str) -> Judging {
    let (first, longest) = (Duration::from_secs(1_000), Duration::from_secs(3_000));
    Judging { by: by.to_owned(), first, longest, initial: Initial::Max }
}

fn judged(member: &str, opinion: Opinion) -> Judged {
    Judged { member: name(member), opinion, luck: 1.0 }
}

fn rejected(member: &str, why: &str) -> Judged {
    judged(member, Opinion::Rejected(why.to_owned()))
}

async fn claim(pool: &Pool, by: &str, is_new: bool) -> Option<Vec<Name>> {
    let mut claimed = pool.claim_candidates(10, LEASE, by, is_new).await.unwrap()?;
    claimed.sort();
    Some(claimed)
}

/// In how many seconds each candidate is looked at.
async fn waits(pool: &Pool) -> HashMap<Name, u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let candidates = pool.candidates().await.unwrap().into_iter();
    candidates.map(|one| (one.member, one.due_ms.saturating_sub(now).div_ceil(1_000))).collect()
}

#[tokio::test]
async fn a_candidate_is_judged_by_one_and_enters_or_waits_longer_each_time() {
    on_both(async |pool| {
        pool.add(&names(["m:1"]), Initial::Count(7)).await.unwrap();
        pool.propose(&names(["a:1", "b:1", "c:1"])).await.unwrap();
        assert_eq!(claim(&pool, "by", true).await, Some(names(["a:1", "b:1", "c:1"])));
        assert_eq!(claim(&pool, "by", true).await, Some(vec![]), "somebody has them");
        let all = [judged("a:1", Opinion::Passed), rejected("b:1", "no\nroute \"x\""), judged("c:1", Opinion::Unknown)];
        let nobody = judged("z:1", Opinion::Passed);
        let entered = pool.judged(&[&all[..], &[nobody]].concat(), &judging("by")).await.unwrap();
        assert_eq!(entered, names(["a:1"]), "who was no candidate does not enter");
        assert_eq!(counts(&pool).await, [(name("a:1"), 7.0), (name("m:1"), 7.0)]);
        let rejections = pool.rejections().await.unwrap();
        assert_eq!(rejections.keys().collect::<Vec<_>>(), [&name("b:1")]);
        assert_eq!((&*rejections[&name("b:1")].reason, rejections[&name("b:1")].in_a_row), ("no\nroute \"x\"", 1));
        assert_eq!(waits(&pool).await, HashMap::from([(name("b:1"), 1_000), (name("c:1"), 10)]));
        for (times, expected) in [(2, 2_000), (3, 3_000), (4, 3_000)] {
            pool.judged(&[rejected("b:1", "again")], &judging("by")).await.unwrap();
            assert_eq!(pool.rejections().await.unwrap()[&name("b:1")].in_a_row, times);
            assert_eq!(waits(&pool).await[&name("b:1")], expected);
        }
    })
    .await;
}

#[tokio::test]
async fn verdicts_hold_until_the_rules_or_the_judge_change() {
    on_both(async |pool| {
        let members = names(["a:1", "b:1"]);
        pool.propose(&members).await.unwrap();
        claim(&pool, "old", true).await;
        pool.judged(&[rejected("a:1", "no"), rejected("b:1", "no")], &judging("old")).await.unwrap();
        // A list that names it no more, and then again, brings no new verdict.
        pool.reject(&names(["a:1"]), None).await.unwrap();
        pool.propose(&names(["a:1"])).await.unwrap();
        assert_eq!(claim(&pool, "old", false).await, Some(vec![]));
        assert_eq!(waits(&pool).await[&name("a:1")], 1_000);
        // Who removes it by hand wants it forgotten.
        pool.remove(&names(["b:1"])).await.unwrap();
        pool.propose(&names(["b:1"])).await.unwrap();
        assert_eq!(claim(&pool, "old", false).await, Some(names(["b:1"])));
        assert_eq!(pool.rejections().await.unwrap().len(), 1);

        assert_eq!(claim(&pool, "new", true).await, Some(members.clone()), "all are due again");
        assert_eq!(pool.rejections().await.unwrap(), HashMap::new());
        assert_eq!(claim(&pool, "old", false).await, None, "that is for those who have the new rules");
        // What was found by the old ones counts for nothing.
        let late = [judged("a:1", Opinion::Passed), rejected("b:1", "no")];
        assert_eq!(pool.judged(&late, &judging("old")).await.unwrap(), names([]));
        assert_eq!((pool.rejections().await.unwrap().len(), counts(&pool).await.len()), (0, 0));
        assert_eq!(claim(&pool, "new", false).await, Some(members));
    })
    .await;
}

#[tokio::test]
async fn the_last_checks_and_the_country_of_a_member_are_remembered_until_it_is_removed() {
    on_both(async |pool| {
        pool.add(&names(["a:1"]), Initial::Min).await.unwrap();
        pool.note_countries(&[(name("a:1"), "DE".to_owned())]).await.unwrap();
        for _ in 0..15 {
            pool.tally(&[(name("a:1"), Some(true)), (name("b:1"), None)]).await.unwrap();
        }
        for _ in 0..15 {
            pool.tally(&[(name("a:1"), Some(false))]).await.unwrap();
        }
        let tallied = pool.tally(&[(name("a:1"), None), (name("b:1"), None)]).await.unwrap();
        let a = Memory { passed: 5, failed: 15, country: Some("DE".to_owned()) };
        assert_eq!(tallied, [a, Memory::default()]);
        pool.remove(&names(["a:1"])).await.unwrap();
        assert_eq!(pool.tally(&[(name("a:1"), None)]).await.unwrap(), [Memory::default()]);
    })
    .await;
}

#[tokio::test]
async fn with_a_source_go_the_verdicts_on_what_it_named() {
    on_both(async |pool| {
        for source in ["free", "other"] {
            let mut reading = pool.begin_reading(source, Initial::Min).await.unwrap();
            let named = if source == "free" { vec![name("a:1"), name("b:1")] } else { vec![name("b:1")] };
            pool.take(&mut reading, &named, true).await.unwrap();
        }
        claim(&pool, "by", true).await;
        pool.judged(&[rejected("a:1", "no"), rejected("b:1", "no")], &judging("by")).await.unwrap();
        assert_eq!(pool.sources().await.unwrap(), ["free", "other"]);
        let dropped = pool.drop_source("free", true).await.unwrap();
        assert_eq!((dropped.forgotten, dropped.removed), (2, 1), "another source names one of them");
        assert_eq!(pool.sources().await.unwrap(), ["other"]);
        assert_eq!(pool.rejections().await.unwrap(), HashMap::new());
        pool.propose(&names(["a:1"])).await.unwrap();
        assert_eq!(claim(&pool, "by", false).await, Some(names(["a:1"])));
    })
    .await;
}

/// What a judge says to somebody in this country; as a proxy, it is asked through, and says so of itself.
fn saying(exit: &str, country: &str, fields: &str) -> Upstream {
    let body = format!(r#"{{"origin": "{exit}", "country": "{country}", "headers": {{{fields}}}}}"#);
    Upstream::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

/// A gateway with a list of candidates.
fn with_candidates(store: &Store, list: &str, judge: &str) -> (Setup, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let path = dir.path().join("list.txt");
    std::fs::write(&path, list).expect("a written file");
    let source = format!("name = \"free\"\nfile = {:?}\ncandidates = true\n", path.display().to_string());
    let none: [String; 0] = [];
    (Setup::of(none).over(store).set("health.url", judge).source(&source), dir)
}

fn wait_entered(gateway: &Gateway, member: &str) {
    let id = id(member);
    let is_in = |line: &str| line.contains("a candidate has entered the pool") && line.contains(&id);
    eventually(PATIENCE, "it has entered", || gateway.log().lines().any(is_in));
}

#[test]
fn only_candidates_that_meet_the_rules_enter() {
    with_both_stores(|store| {
        let judge = saying("203.0.113.7", "US", "");
        let (good, elsewhere, telling) = (
            saying("203.0.113.8", "DE", ""),
            saying("203.0.113.9", "FR", ""),
            saying("203.0.113.8", "DE", r#""X-Forwarded-For": "203.0.113.7""#),
        );
        let dead = Refusing::new();
        let list = format!("{}\n{}\n{}\n{}\n", dead.url(), elsewhere.url(), telling.url(), good.url());
        let (setup, _dir) = with_candidates(store, &list, &judge.url());
        let setup = setup.set("pool.rules.anonymity", "elite").line("pool.rules.countries = [\"de\"]");
        let gateway = setup.set("pool.rules.max_latency", "5s").start();
        wait_entered(&gateway, &good.url());
        if let Store::Redis(redis) = store {
            let listing = || {
                let output = run(&["pool", "list", "--store", &redis.url()]);
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            eventually(PATIENCE, "all are judged", || redis.int(&["HLEN", &format!("{KEY}:verdicts")]) == 3);
            let listing = listing();
            for told in ["rejected: it is in FR", "rejected: it is transparent", "rejected: the upstream proxy"] {
                assert!(listing.contains(told), "{told}: {listing}");
            }
        }
        let mut client = gateway.client();
        for _ in 0..3 {
            let status = client.get("http://origin.test/").field("Proxy-Status").unwrap().to_owned();
            assert!(status.contains(&id(&good.url())), "{status}");
        }
    });
}

#[test]
fn where_the_judge_says_nothing_the_list_says_which_country_it_is() {
    with_both_stores(|store| {
        let silent = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (judge, german, french) =
            (Upstream::answering(silent), Upstream::answering(silent), Upstream::answering(silent));
        let row = |upstream: &Upstream, country| format!("127.0.0.1,{},{country}\n", upstream.address().port());
        let list = format!("ip,port,country\n{}{}", row(&french, "FR"), row(&german, "DE"));
        let (setup, _dir) = with_candidates(store, &list, &judge.url());
        let gateway = setup.line("pool.rules.countries = [\"DE\"]").start();
        wait_entered(&gateway, &german.url());
        assert!(!gateway.log().contains(&id(&french.url())));
    });
}

#[test]
fn when_the_judge_is_down_no_candidate_is_rejected() {
    with_both_stores(|store| {
        let (judge, dead) = (Refusing::new(), Refusing::new());
        let (setup, _dir) = with_candidates(store, &dead.url(), &judge.url());
        let gateway = setup.start();
        eventually(PATIENCE, "it says so", || gateway.log().contains("no candidate is rejected: health.url does not"));
        if let Store::Redis(redis) = store {
            assert_eq!(redis.int(&["EXISTS", &format!("{KEY}:verdicts")]), 0);
            assert_eq!(redis.int(&["ZCARD", &format!("{KEY}:candidates")]), 1);
        }
    });
}

#[test]
fn a_member_that_does_not_meet_the_rules_is_set_aside() {
    with_both_stores(|store| {
        let (judge, here, there) =
            (saying("203.0.113.8", "DE", ""), saying("203.0.113.8", "DE", ""), saying("203.0.113.9", "FR", ""));
        let gateway = Setup::of([here.url(), there.url()])
            .over(store)
            .set("health.url", judge.url())
            .set("health.every", "200ms")
            .line("pool.rules.not_countries = [\"FR\"]")
            .start();
        let id = id(&there.url());
        let told =
            |line: &str| line.contains("it is in FR, which pool.rules.not_countries names") && line.contains(&id);
        eventually(PATIENCE, "it is set aside", || gateway.log().lines().any(told));
    });
}

/// The list of [`with_candidates`], which takes along what it names no more.
fn with_leaving_candidates(store: &Store, list: &str, judge: &str) -> (Setup, tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let path = dir.path().join("list.txt");
    std::fs::write(&path, list).expect("a written file");
    let file = path.display().to_string();
    let source = format!("name = \"free\"\nfile = {file:?}\ncandidates = true\ngone = \"remove\"\n");
    (Setup::of([""; 0]).over(store).set("health.url", judge).source(&source), dir, path)
}

#[test]
fn candidates_enter_and_leave_under_least_concurrent_as_well() {
    with_both_stores(|store| {
        let judge = saying("203.0.113.7", "US", "");
        let (good, elsewhere, dead) =
            (saying("203.0.113.8", "DE", ""), saying("203.0.113.9", "FR", ""), Refusing::new());
        let all = format!("{}\n{}\n{}\n", dead.url(), elsewhere.url(), good.url());
        let (setup, _dir, list) = with_leaving_candidates(store, &all, &judge.url());
        let setup = setup.set("pool.policy", "least-concurrent").set("pool.max_in_flight", 2);
        let gateway = setup.set("health.every", "200ms").line("pool.rules.countries = [\"DE\"]").start();
        wait_entered(&gateway, &good.url());
        let (served, id) = (|| gateway.client().get("http://origin.test/"), id(&good.url()));
        for _ in 0..5 {
            assert!(served().field("Proxy-Status").is_some_and(|status| status.contains(&id)), "more than fit at once");
        }
        std::fs::write(&list, format!("{}\n{}\n", dead.url(), elsewhere.url())).expect("a written file");
        eventually(PATIENCE, "it has left", || served().status() == 503);
        assert_eq!(gateway.said("a candidate has entered the pool", &elsewhere.url()), 0);
        std::fs::write(&list, all).expect("a written file");
        eventually(PATIENCE, "it is back", || gateway.said("a candidate has entered the pool", &good.url()) == 2);
        assert_eq!(served().status(), 200);
        // A count of requests in flight is only shown if there are any.
        if let Store::Redis(redis) = store {
            let listed = || {
                let output = run(&["pool", "list", "--json", "--store", &redis.url()]);
                let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
                list.as_array().expect("members").clone()
            };
            let is_free = || listed().iter().any(|one| one["id"] == id.as_str() && one["in_flight"].is_null());
            eventually(PATIENCE, "nothing is in flight", is_free);
            assert!(listed().iter().filter(|one| one["state"] == "candidate").count() == 2, "{:?}", listed());
        }
    });
}

/// Sources, candidates, rules, checks, bans and the commands, each way to choose: the line in the README allows it all.
#[test]
fn the_acl_of_the_readme_allows_all_that_sources_candidates_and_commands_need() {
    for (policy, more) in [
        ("least-used", "pool.decay = \"10%/24h\"\npool.initial = \"ramp\""),
        ("least-used", "pool.scope = \"host\"\npool.prefetch = 0"),
        ("least-concurrent", ""),
    ] {
        let redis = Redis::start();
        let url = redis.restricted_url();
        let judge = saying("203.0.113.7", "US", "");
        let (good, elsewhere, dead) =
            (saying("203.0.113.8", "DE", ""), saying("203.0.113.9", "FR", ""), Refusing::new());
        let all = format!("{}\n{}\n{}\n", dead.url(), elsewhere.url(), good.url());
        let (setup, _dir, list) = with_leaving_candidates(&Store::Embedded, &all, &judge.url());
        let setup = setup
            .store(&url)
            .set("pool.key", pool::KEY)
            .set("pool.policy", policy)
            .set("health.every", "200ms")
            .line(more);
        let gateway = setup.line("pool.rules.countries = [\"DE\"]\npool.rules.max_failures = \"90%\"").start();
        wait_entered(&gateway, &good.url());
        eventually(PATIENCE, "it is served", || gateway.client().get("http://origin.test/").status() == 200);
        let member = good.url();
        let other = dead.url();
        for args in [
            &["list"][..],
            &["verify"],
            &["export"],
            &["ban", &member, "--host", "shop.example"],
            &["unban", &member],
            &["park", &member],
            &["list", "--json"],
            &["restore", &member],
            &["ban", &member, "--for", "1h"],
            &["unban", &member],
            &["add", &other],
            &["remove", &other],
            &["rebase"],
            &["import", list.to_str().expect("text")],
            &["drop", "free", "--keep"],
        ] {
            let output = run(&[&["pool"], args, &["--store", &url, "--key", pool::KEY]].concat());
            let told = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{policy}: {args:?}: {told}");
        }
        std::fs::write(&list, format!("{}\n", elsewhere.url())).expect("a written file");
        eventually(PATIENCE, "the list is read again", || gateway.log().matches("read a list").count() >= 2);
        gateway.finish();
        let log = redis.cmd(&["ACL", "LOG"]);
        assert_eq!(log, Reply::Array(vec![]), "{policy}");
    }
}
