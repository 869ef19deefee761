//! `evenkeel pool verify`: what it says of pools that are well, and of pools that somebody has had a hand in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel::member::Name;
use evenkeel::pool::embedded::Embedded;
use evenkeel::pool::redis::Redis as Client;
use evenkeel::pool::{
    Ban, Care, Concurrency, Decay, Initial, Judged, Judging, Kind, Lease, Opinion, Outcome, PerHost, Pool, Report,
    Stay, Walk,
};
use serde_json::{Value, json};

use crate::support::gateway::{KEY, program, run};
use crate::support::pool::{ANYTHING_GOES, NONE_AHEAD, name, parking};
use crate::support::redis::{Redis, Reply};
use crate::support::upstream::id;
use crate::support::wire::PATIENCE;

/// What it says as JSON, which must go with its exit code.
fn verify(redis: &Redis, env: &[(&str, &str)]) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let output = program()
        .args(["pool", "verify", "--json", "--store", &redis.url()])
        .envs(env.iter().copied())
        .current_dir(dir.path())
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let sound = told["sound"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if sound { 0 } else { 65 }), "{told:#}");
    assert_eq!(output.stderr.is_empty(), sound, "{told:#}");
    told
}

/// What is wrong, and what is a note: each in a word, with the ids of the members.
fn findings(told: &Value, is_wrong: bool) -> Vec<(String, Vec<String>)> {
    let found = told["findings"].as_array().unwrap().iter().filter(|finding| finding["is_wrong"] == is_wrong);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ids = |finding: &Value| finding["members"].as_array().unwrap().iter().map(|m| text(&m["id"])).collect();
    found.map(|finding| (text(&finding["what"]), ids(finding))).collect()
}

fn key(suffix: &str) -> String {
    format!("{KEY}:{suffix}")
}

#[test]
fn a_pool_that_is_well_is_sound_and_so_is_an_empty_one() {
    let redis = Redis::start();
    let told = verify(&redis, &[]);
    assert_eq!(
        (&told["holds"], &told["lowest"], &told["members"]["eligible"]),
        (&json!(true), &Value::Null, &json!(0))
    );

    redis.cmd(&[
        "ZADD",
        KEY,
        "7",
        "http://10.0.0.7:1",
        "8",
        "http://10.0.0.8:1",
        "7.333333333333333",
        "10.0.0.9:1?weight=3",
    ]);
    let record = r#"{"count":5,"reason":"has no port","since_ms":1796062407515}"#;
    redis.cmd(&["HSET", &key("parked"), "nonsense", record]);
    redis.cmd(&["ZADD", &key("candidates"), "1", "http://10.0.0.10:1"]);
    let told = verify(&redis, &[]);
    let members = json!({"eligible": 3, "weighted": 1, "ramping": 0, "parked": 1, "candidates": 1});
    assert_eq!((&told["members"], &told["findings"]), (&members, &json!([])));
    assert_eq!((&told["lowest"], &told["highest"], &told["spread"]), (&json!(7), &json!(8), &json!(1)));
    assert_eq!((&told["bound"], &told["holds"], &told["until_level"]), (&json!(1.0), &json!(true), &json!(3)));
    let text = String::from_utf8(run(&["pool", "verify", "--store", &redis.url()]).stdout).unwrap();
    assert!(text.contains("counts   7 to 8, 1 apart\n") && text.ends_with("nothing is wrong\n"), "{text}");
}

#[test]
fn the_bound_is_the_one_that_applies() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "100", "http://10.0.0.7:1", "103", "http://10.0.0.8:1"]);
    let told = verify(&redis, &[]);
    assert_eq!((&told["bound"], &told["holds"], &told["ahead"]), (&json!(1.0), &json!(false), &json!(1)));
    assert_eq!((&told["until_level"], &told["behind"][0]["id"]), (&json!(3), &json!(id("http://10.0.0.7:1"))));
    let keeps = verify(&redis, &[("EVENKEEL_POOL__RESTORE", "keep")]);
    assert!(keeps["causes"].to_string().contains("pool.restore is keep"), "{keeps:#}");
    assert!(!told["causes"].to_string().contains("pool.restore"), "{told:#}");
    // 1 + 2 workers × (⌈1 / 2⌉ + 1)
    let ahead = [("EVENKEEL_POOL__PREFETCH", "1"), ("EVENKEEL_GATEWAY__THREADS", "2")];
    let told = verify(&redis, &ahead);
    assert_eq!((&told["bound"], &told["holds"]), (&json!(5.0), &json!(true)));
    // Two such gateways.
    let told: Value = serde_json::from_slice(
        &program()
            .args(["pool", "verify", "--gateways", "2", "--json", "--store", &redis.url()])
            .envs(ahead)
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    assert_eq!(told["bound"], 9.0);

    let concurrent = [("EVENKEEL_POOL__POLICY", "least-concurrent")];
    let told = verify(&redis, &concurrent);
    assert_eq!((&told["bound"], &told["holds"], &told["spread"]), (&Value::Null, &json!(true), &json!(3)));

    // One with a weight may be ahead by no more than its own turn.
    redis.cmd(&["DEL", KEY]);
    redis.cmd(&["ZADD", KEY, "1", "http://10.0.0.7:1", "1.5", "10.0.0.8:1?weight=2"]);
    assert_eq!(verify(&redis, &[])["holds"], true);
    redis.cmd(&["ZADD", KEY, "2", "10.0.0.8:1?weight=2"]);
    assert_eq!(verify(&redis, &[])["holds"], false);
    let told = verify(&redis, &[("EVENKEEL_POOL__DECAY", "10%/24h")]);
    assert_eq!((&told["bound"], &told["holds"]), (&json!(1.5), &json!(true)));
}

#[test]
fn what_other_tools_have_done_is_found_member_by_member() {
    let redis = Redis::start();
    let good = "http://user:hush@10.0.0.7:1";
    for (score, member) in [
        ("5", good),
        ("5.5", "http://10.0.0.1:1"),
        ("9007199254740992", "http://10.0.0.2:1"),
        ("inf", "http://10.0.0.3:1"),
        ("-1", "http://10.0.0.4:1"),
        ("5", "10.0.0.5:1:user:hush"),
        ("5", "http://10.0.0.6:1"),
        ("5", "10.0.0.6:1"),
        ("5.2", "10.0.0.9:1?weight=3"),
    ] {
        redis.cmd(&["ZADD", KEY, score, member]);
    }
    let now = r#"{"count":5,"reason":"x","since_ms":1,"kind":"hand","in_a_row":0}"#;
    redis.cmd(&["HSET", &key("parked"), good, now, "http://10.1.0.1:1", "}{"]);
    let timed = r#"{"count":5,"reason":"x","since_ms":1,"kind":"hand","in_a_row":0,"until_ms":5}"#;
    redis.cmd(&["HSET", &key("parked"), "http://10.1.0.2:1", timed]);
    redis.cmd(&["ZADD", &key("returns"), "1", "http://10.1.0.3:1"]);
    redis.cmd(&["ZADD", &key("candidates"), "1", good]);
    redis.cmd(&["ZADD", &key("ramping"), "1", good, "2", "http://10.1.0.4:1"]);
    redis.cmd(&["ZADD", &key("failures"), "1", "http://10.1.0.5:1", "1", good]);
    redis.cmd(&["HSET", &key("streaks"), "http://10.1.0.6:1", "2"]);

    let told = verify(&redis, &[]);
    let findings_of = |told: &Value, is_wrong| -> Vec<(String, Vec<String>)> {
        let mut found = findings(told, is_wrong);
        found.iter_mut().for_each(|(_, ids)| ids.sort());
        found
    };
    let sorted = |expected: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
        let ids = |members: &[&str]| {
            let mut ids: Vec<String> = members.iter().map(|member| evenkeel::member::id(&name(member))).collect();
            ids.sort();
            ids
        };
        expected.iter().map(|(what, members)| ((*what).to_owned(), ids(members))).collect()
    };
    let wrong: [(&str, &[&str]); 6] = [
        ("malformed", &["10.0.0.5:1:user:hush"]),
        ("too large", &["http://10.0.0.2:1", "http://10.0.0.3:1"]),
        ("fraction", &["10.0.0.9:1?weight=3", "http://10.0.0.1:1"]),
        ("unreadable", &["http://10.1.0.1:1"]),
        ("never returns", &["http://10.1.0.2:1"]),
        ("no turn", &["http://10.1.0.4:1"]),
    ];
    assert_eq!(findings_of(&told, true), sorted(&wrong));
    let notes: [(&str, &[&str]); 4] = [
        ("negative", &["http://10.0.0.4:1"]),
        ("shared id", &["10.0.0.6:1"]),
        ("two states", &[good, good, good]),
        ("stale", &["http://10.1.0.3:1", "http://10.1.0.5:1", "http://10.1.0.6:1"]),
    ];
    assert_eq!(findings_of(&told, false), sorted(&notes));
    assert_eq!((&told["holds"], &told["highest"]), (&json!(false), &json!("inf")));
    assert!(told["causes"].to_string().contains("another tool has written scores"), "{told:#}");

    // One that catches up and has a turn is what it should be, where members may catch up.
    redis.cmd(&["ZADD", &key("ramping:turns"), "1", "http://10.1.0.4:1"]);
    let told = verify(&redis, &[]);
    assert!(findings_of(&told, false).contains(&sorted(&[("nobody ramps", &["http://10.1.0.4:1"])])[0]), "{told:#}");
    let ramps = verify(&redis, &[("EVENKEEL_POOL__RESTORE", "ramp")]);
    assert!(!ramps.to_string().contains("nobody ramps") && !ramps.to_string().contains("no turn"), "{ramps:#}");

    let output = run(&["pool", "verify", "--store", &redis.url()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("wrong ")).count(), 5, "{text}");
    assert!(!text.contains("hush") && !told.to_string().contains("hush"), "{text}");
}

#[test]
fn keys_that_cannot_be_used_are_named_and_the_others_are_read() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "5", "http://10.0.0.7:1"]);
    redis.cmd(&["EXPIRE", KEY, "1000"]);
    redis.cmd(&["SET", &key("parked"), "x"]);
    redis.cmd(&["SADD", &key("ramping:turn"), "x"]);
    redis.cmd(&["CONFIG", "SET", "maxmemory", "100mb"]);
    redis.cmd(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let told = verify(&redis, &[]);
    let wrong: Vec<_> = findings(&told, true).into_iter().map(|(what, _)| what).collect();
    assert_eq!(wrong, ["wrong type", "wrong type", "expires", "evicts"]);
    assert_eq!(told["members"]["eligible"], 1);
    let sentences: Vec<_> =
        told["findings"].as_array().unwrap().iter().map(|f| f["sentence"].as_str().unwrap()).collect();
    assert!(
        sentences[0].starts_with("KEY:parked is a string") && sentences[2].starts_with("KEY expires in 9"),
        "{sentences:?}"
    );

    redis.cmd(&["SET", KEY, "x"]);
    let told = verify(&redis, &[]);
    assert_eq!((findings(&told, true)[0].0.as_str(), &told["members"]["eligible"]), ("wrong type", &json!(0)));
}

/// Counts that move while they are read, page by page, look no further apart than they are.
#[test]
fn a_large_pool_under_traffic_is_sound() {
    let redis = Redis::start();
    let fill = "for i = 1, 30000 do redis.call('ZADD', KEYS[1], i % 2, 'http://10.0.' .. math.floor(i / 250) .. '.' .. i % 250 .. ':1') end";
    redis.cmd(&["EVAL", fill, "1", KEY]);
    let (stop, redis) = (AtomicBool::new(false), &redis);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let taken = redis.cmd(&["EVAL", include_str!("../lua/allocate.lua"), "1", KEY, "64"]);
                assert!(matches!(taken, Reply::Array(_)), "{taken:?}");
            }
        });
        let told: Vec<_> = (0..3).map(|_| verify(redis, &[])).collect();
        stop.store(true, Ordering::Relaxed);
        for told in told {
            assert_eq!((&told["sound"], &told["members"]["eligible"]), (&json!(true), &json!(30_000)), "{told:#}");
        }
    });
}

/// A life of candidates, verdicts, lists, bans, failures, checks and whatever else a pool can hold.
async fn live(pools: &[Pool]) -> Vec<Lease> {
    let hour = Duration::from_secs(3600);
    let care = Care { park_after: 2, cooldown: hour, max_cooldown: hour, max_parked: 90, restore: Initial::Min };
    let members: Vec<Name> =
        (0..8).map(|n| name(&format!("10.0.0.{n}:1"))).chain([name("10.1.0.1:1?weight=3")]).collect();
    let mut leases = Vec::new();
    for pool in pools {
        pool.add(&members, Initial::Min).await.unwrap();
        for n in 0..20 {
            let chosen = match n % 3 {
                0 => pool.allocate_for("shop.test", &[]).await,
                1 => pool.allocate_for("other.test", &members[..1]).await,
                _ => pool.allocate(&[]).await,
            };
            leases.extend(chosen.unwrap().map(|(_, lease)| lease));
        }
        let stay = Stay::For(hour);
        pool.park(&members[0], &parking(Kind::Hand, stay)).await.unwrap();
        let report = |outcome| Report { member: members[1].clone(), outcome, luck: 1.0 };
        pool.report(&[report(Outcome::Failed(2, "x".into()))], &care).await.unwrap();
        let failed = Report { member: members[2].clone(), outcome: Outcome::Failed(1, "x".into()), luck: 1.0 };
        pool.report(&[failed], &care).await.unwrap();
        let ban = |member: &Name| Ban { member: member.clone(), reason: "x".into(), span: hour };
        pool.ban(&[ban(&members[3])], 90).await.unwrap();
        pool.ban_for("shop.test", &[ban(&members[4]), ban(&members[0])], None).await.unwrap();
        pool.park(&members[5], &parking(Kind::Cooldown, Stay::For(Duration::ZERO))).await.unwrap();
        pool.restore_due(10, Initial::Ramp).await.unwrap();
        pool.enroll(&mut Walk::default(), hour).await.unwrap();
        pool.claim(100, hour).await.unwrap();
        pool.tally(&[(members[6].clone(), Some(true))]).await.unwrap();
        let mut reading = pool.begin_reading("free", Initial::Ramp).await.unwrap();
        let found = ["10.2.0.1:1", "10.2.0.2:1", "10.2.0.3:1"].map(name);
        pool.take(&mut reading, &found, true).await.unwrap();
        pool.note_countries(&[(found[0].clone(), "DE".into())]).await.unwrap();
        let claimed = pool.claim_candidates(2, hour, "rules", true).await.unwrap().unwrap();
        let opinions = [Opinion::Rejected("slow".into()), Opinion::Passed];
        let judged = claimed.into_iter().zip(opinions);
        let judged: Vec<_> = judged.map(|(member, opinion)| Judged { member, opinion, luck: 1.0 }).collect();
        let judging = Judging { by: "rules".into(), initial: Initial::Ramp, first: hour, longest: hour };
        pool.judged(&judged, &judging).await.unwrap();
        let mut reading = pool.begin_reading("rented", Initial::Min).await.unwrap();
        pool.take(&mut reading, &[name("10.3.0.1:1")], false).await.unwrap();
        pool.remove(&members[7..8]).await.unwrap();
        pool.decay(Decay { keep: 0.5, period: hour }).await.unwrap();
        pool.rebase().await.unwrap();
    }
    leases
}

async fn assert_well(pool: &Pool) {
    let verdict = pool.verify(ANYTHING_GOES).await.unwrap();
    assert_eq!(verdict.findings, []);
    let numbers = verdict.numbers;
    assert!(numbers.parked >= 2 && numbers.candidates >= 1 && numbers.eligible >= 5, "{numbers:?}");
}

#[tokio::test]
async fn a_pool_in_which_everything_has_happened_is_well() {
    let limits = PerHost { max_hosts: 9, idle: Duration::from_secs(60) };
    let embedded = [Embedded::new().with_ramp(5), Embedded::new().with_hosts(limits), Embedded::least_concurrent(0)];
    for pool in embedded.map(Pool::Embedded) {
        let _leases = live(std::slice::from_ref(&pool)).await;
        assert_well(&pool).await;
    }

    let redis = Redis::start();
    let open = || Client::connect(&redis.url(), KEY, PATIENCE, NONE_AHEAD).unwrap();
    let concurrency = Concurrency { max_in_flight: 0, heartbeat: PATIENCE };
    let concurrent = || Client::connect_least_concurrent(&redis.url(), KEY, PATIENCE, concurrency).unwrap();
    let pools = [open().with_ramp(5), open().with_hosts(limits), concurrent(), concurrent(), open()].map(Pool::Redis);
    let leases = live(&pools).await;
    assert_eq!(leases.len(), 100);
    assert_well(&pools[0]).await;
    let told = verify(&redis, &[("EVENKEEL_POOL__RESTORE", "ramp")]);
    assert_eq!(told["findings"], json!([]), "{told:#}");
    // Nothing of what is there is unknown.
    let Reply::Array(keys) = redis.cmd(&["KEYS", "*"]) else { panic!("no array") };
    assert!(keys.len() >= 28, "{keys:?}");
}

#[test]
fn what_is_kept_beside_the_members_is_looked_at_too() {
    let redis = Redis::start();
    let good = "http://10.0.0.7:1";
    redis.cmd(&["ZADD", KEY, "5", good, "5", "http://10.0.0.8:1"]);
    let verdict = r#"{"reason":"x","until_ms":1,"in_a_row":1}"#;
    redis.cmd(&["HSET", &key("verdicts"), "http://10.1.0.1:1", verdict, "http://10.1.0.2:1", "}{"]);
    redis.cmd(&["ZADD", &key("verdicts:ends"), "1", "http://10.1.0.2:1", "1", "http://10.1.0.3:1"]);
    redis.cmd(&["HSET", &key("tallies"), good, "+-x", "http://10.1.0.4:1", "+"]);
    redis.cmd(&["HSET", &key("countries"), "http://10.1.0.5:1", "DE"]);
    redis.cmd(&["ZADD", &key("checks"), "1", good, "1", "http://10.1.0.6:1"]);
    redis.cmd(&["ZADD", &key("hosts"), "5", "shop.test", "99999999999999", "other.test"]);
    redis.cmd(&["ZADD", &key("host:shop.test"), "99999999999999", good]);
    redis.cmd(&["ZADD", &key("host:other.test"), "99999999999999", "http://10.1.0.7:1"]);
    redis.cmd(&["ZADD", &key("counted"), "1", "shop.test"]);
    redis.cmd(&["ZADD", &key("host:shop.test:counts"), "1.5", "http://10.0.0.8:1"]);
    redis.cmd(&["HSET", &key("in_flight"), good, "3"]);
    redis.cmd(&["SADD", &key("sources"), "a list"]);
    for suffix in ["source:a list", "judging", "host:other.test:sync", "host:other.test:place"] {
        redis.cmd(&["SET", &key(suffix), "x"]);
    }
    for suffix in ["host:shop.test", "host:other.test"] {
        redis.cmd(&["PEXPIRE", &key(suffix), "1000000"]);
    }
    redis.cmd(&["SADD", &key("hosts:changes"), "x"]);
    redis.cmd(&["EXPIRE", &key("verdicts"), "1000"]);

    // A ban that is over, whose host has been forgotten, is nothing; its key goes soon.
    redis.cmd(&["ZADD", &key("counted"), "1", "over.test"]);
    redis.cmd(&["ZADD", &key("host:over.test"), "1000", "http://10.0.0.8:1"]);
    redis.cmd(&["EXPIRE", &key("host:over.test"), "1000"]);
    let told = verify(&redis, &[]);
    let id = |member: &str| evenkeel::member::id(&name(member));
    let about = |is_wrong| -> Vec<(String, Vec<String>)> {
        let mut found = findings(&told, is_wrong);
        found.retain(|(_, members)| !members.is_empty());
        found.iter_mut().for_each(|(_, members)| members.sort());
        found
    };
    let one = |what: &str, member: &str| (what.to_owned(), vec![id(member)]);
    let wrong = [
        one("fraction", "http://10.0.0.8:1"),
        one("never ends", "http://10.1.0.1:1"),
        one("unheard", good),
        one("unbalanced", good),
    ];
    assert_eq!(about(true), wrong, "{told:#}");
    let mut stale: Vec<_> = (3..8).map(|n| id(&format!("http://10.1.0.{n}:1"))).collect();
    stale.sort();
    let mut garbled = vec![id(good), id("http://10.1.0.2:1")];
    garbled.sort();
    assert_eq!(about(false), [("garbled".to_owned(), garbled), ("stale".to_owned(), stale)], "{told:#}");
    let sentences = told["findings"].as_array().unwrap().iter().filter(|finding| finding["members"] == json!([]));
    let keys = |what: &str| -> Vec<String> {
        let found = sentences.clone().filter(|finding| finding["what"] == what);
        let key = |finding: &Value| finding["sentence"].as_str().unwrap().split(" is a ").next().unwrap().to_owned();
        let mut keys: Vec<_> = found.map(key).collect();
        keys.sort();
        keys
    };
    let wrong_types = [
        "KEY:host:other.test:place",
        "KEY:host:other.test:sync",
        "KEY:hosts:changes",
        "KEY:judging",
        "KEY:source:a list",
    ];
    assert_eq!(keys("wrong type"), wrong_types, "{told:#}");
    assert!(keys("expires")[0].starts_with("KEY:verdicts expires in 9"), "{told:#}");
    assert!(keys("lingers")[0].starts_with("KEY:host:shop.test:counts never expires"), "{told:#}");
}

#[test]
fn what_gateways_have_together_is_not_told_of_gateways_that_are_others_now() {
    let redis = Redis::start();
    let leases = |gateway: &str| format!("{KEY}:leases:{gateway}");
    redis.cmd(&["ZADD", &format!("{KEY}:gateways"), "1", "one", "2", "two"]);
    redis.cmd(&["HSET", &leases("one"), "p0:1", "1"]);
    redis.cmd(&["HSET", &leases("two"), "p0:1", "2"]);
    redis.cmd(&["HSET", &format!("{KEY}:in_flight"), "p0:1", "3"]);
    let keys = ["", ":load", ":in_flight", ":gateways"].map(|suffix| format!("{KEY}{suffix}"));
    let ask = |gateways: &[&str]| {
        let script = include_str!("../lua/in_hand.lua");
        let mut words = vec!["EVAL".to_owned(), script.to_owned(), (keys.len() + gateways.len()).to_string()];
        words.extend(keys.iter().cloned().chain(gateways.iter().map(|gateway| leases(gateway))));
        words.extend(gateways.iter().copied().chain(["p0:1", "p1:1"]).map(str::to_owned));
        redis.cmd(&words)
    };
    let told = |words: &[&str]| Reply::Array(words.iter().map(|word| Reply::Bulk(word.as_bytes().to_vec())).collect());
    assert_eq!(ask(&["one", "two"]), told(&["same", "3", "3", "0", "0"]));
    assert_eq!(ask(&["one"]), told(&["changed"]));
    // As many as there are, but since they were asked for one of them has taken another name.
    assert_eq!(ask(&["one", "former"]), told(&["changed"]));
}
