//! The command line: exit codes, what is printed, and which setting beats which.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, KEY, Setup, program, run};
use crate::support::redis::Redis;
use crate::support::sources::{List, wait_read};
use crate::support::upstream::{Upstream, id};

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `evenkeel pool …` on a Redis, which must succeed.
fn pool(redis: &Redis, args: &[&str]) -> String {
    let output = run(&[&["pool"], args, &["--store", &redis.url()]].concat());
    assert_eq!(code(&output), 0, "{args:?}: {}", err(&output));
    out(&output)
}

fn pool_json(redis: &Redis, args: &[&str]) -> Value {
    serde_json::from_str(&pool(redis, &[args, &["--json"]].concat())).expect("JSON")
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["serve", "--help"], &["pool", "--help"], &["--version"]] {
        let output = run(args);
        assert_eq!(code(&output), 0, "{args:?}");
        assert!(out(&output).contains("evenkeel"), "{args:?}");
    }
}

#[test]
fn a_wrong_command_line_exits_with_64() {
    for args in [
        &["--lisen", "127.0.0.1:0"][..],
        &["sevre"],
        &["pool"],
        &["pool", "add"],
        &["pool", "add", "ftp://10.0.0.1:21", "--store", "redis://127.0.0.1:1"],
        &["pool", "park", "http://10.0.0.1:1", "--for", "soon", "--store", "redis://127.0.0.1:1"],
        &["pool", "park", "http://10.0.0.1:1", "--for", "0s", "--store", "redis://127.0.0.1:1"],
        &["pool", "import", "ftp://10.0.0.1/list", "--store", "redis://127.0.0.1:1"],
        &["pool", "list"], // an embedded store that does not save its state cannot be looked into from outside
    ] {
        let output = run(args);
        assert_eq!(code(&output), 64, "{args:?}: {}", err(&output));
        assert_ne!(err(&output), "", "{args:?}");
    }
}

#[test]
fn a_store_that_cannot_be_reached_exits_with_69() {
    let redis = Redis::stopped();
    let member = "http://10.0.0.1:3128";
    for args in
        [&["list"][..], &["export"], &["add", member], &["remove", member], &["park", member], &["restore", member]]
    {
        let output = run(&[&["pool"], args, &["--store", &redis.url()]].concat());
        assert_eq!(code(&output), 69, "{args:?}: {}", err(&output));
    }
}

#[test]
fn a_port_that_is_taken_exits_with_71() {
    let gateway = Setup::of([""; 0]).start();
    let address = gateway.address().to_string();
    // Also by another gateway, although both could share it by SO_REUSEPORT.
    let output = run(&["--listen", &address]);
    assert_eq!(code(&output), 71);
    assert!(err(&output).contains(&address), "{}", err(&output));
    let output = run(&["demo", "--listen", &address]);
    assert_eq!(code(&output), 71);
}

#[test]
fn a_wrong_configuration_exits_with_78_and_names_every_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[gateway]\nlisten = \"nowhere\"\nidle_timeout = \"soon\"\n[pool]\nproxies = [\"ftp://u:hush@h:1\"]\ncooldown = 1\n";
    std::fs::write(dir.path().join("config.toml"), text).unwrap();
    for args in [&["check"][..], &["serve"], &[], &["pool", "list"]] {
        let output = program().args(args).current_dir(dir.path()).output().unwrap();
        assert_eq!(code(&output), 78, "{args:?}");
        let told = err(&output);
        for mistake in [
            "config.toml:2: gateway.listen: ",
            "config.toml:3: gateway.idle_timeout: ",
            "config.toml:5: pool.proxies[0]: ",
            "config.toml:6: pool.cooldown: ",
        ] {
            assert!(told.contains(mistake), "{args:?}: {mistake} is not in\n{told}");
        }
        assert_eq!(told.lines().count(), 4, "{told}");
        assert!(!told.contains("hush"), "{told}");
    }
}

#[test]
fn check_accepts_the_configuration_in_the_repository() {
    let output = run(&["check", "--config", concat!(env!("CARGO_MANIFEST_DIR"), "/config.toml")]);
    assert_eq!((code(&output), err(&output)), (0, String::new()));
}

#[test]
fn a_configuration_that_is_named_must_exist_and_the_usual_one_need_not() {
    assert_eq!(code(&run(&["check", "--config", "absent.toml"])), 78);
    assert_eq!(code(&run(&["check"])), 0);
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let redis = Redis::start();
    for (key, member) in [("file", "http://f:1"), ("env", "http://e:1"), ("flag", "http://g:1")] {
        redis.cmd(&["ZADD", key, "0", member]);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = format!("[pool]\nstore = \"{}\"\nkey = \"file\"\n", redis.url());
    std::fs::write(dir.path().join("config.toml"), file).unwrap();
    let export = |env: &[(&str, &str)], flags: &[&str]| {
        let mut command = program();
        command.args(["pool", "export"]).args(flags).envs(env.iter().copied()).current_dir(dir.path());
        out(&command.output().unwrap())
    };
    assert_eq!(export(&[], &[]), "http://f:1\n");
    assert_eq!(export(&[("EVENKEEL_POOL__KEY", "env")], &[]), "http://e:1\n");
    assert_eq!(export(&[("EVENKEEL_POOL__KEY", "env")], &["--key", "flag"]), "http://g:1\n");
}

#[test]
fn a_gateway_runs_by_flags_alone() {
    let upstreams: Vec<_> = ["one", "two", "three"].iter().map(|body| Upstream::ok(body)).collect();
    let dir = tempfile::tempdir().unwrap();
    let list = format!("# a list\n{}\n\n", upstreams[2].address());
    std::fs::write(dir.path().join("proxies.txt"), list).unwrap();
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0", "--proxy", &upstreams[0].url(), "--proxy", &upstreams[1].url()])
        .args(["--proxies", "proxies.txt"])
        .current_dir(dir.path());
    let gateway = Gateway::spawn(command, dir);
    let mut client = gateway.client();
    let mut bodies: Vec<_> = (0..3).map(|_| client.get("http://origin.test/").text().to_owned()).collect();
    bodies.sort();
    assert_eq!(bodies, ["one", "three", "two"]);
    assert_eq!(gateway.stdout(), format!("listening on {}\n", gateway.url()), "one line, and nothing else");
}

#[test]
fn pool_add_list_and_remove_change_what_redis_holds() {
    let redis = Redis::start();
    let member = "http://user:hush@10.0.0.7:3128";
    assert_eq!(pool(&redis, &["add", member, "http://10.0.0.8:3128"]), "added 2, already there 0, skipped 0\n");
    redis.cmd(&["ZINCRBY", KEY, "5", member]);
    assert_eq!(
        pool_json(&redis, &["add", member, "http://10.0.0.9:3128"]),
        json!({"added": 1, "known": 1, "skipped": 0})
    );
    // A count that exists is kept; a newcomer starts at the lowest.
    let entries: Vec<_> = redis.scores(KEY);
    assert_eq!(entries[2], (member.as_bytes().to_vec(), "5".to_owned()));

    let text = pool(&redis, &["list"]);
    assert!(text.contains("http://user:***@10.0.0.7:3128") && !text.contains("hush"), "{text}");
    let list = pool_json(&redis, &["list"]);
    assert_eq!(
        list[2],
        json!({"proxy": "http://user:***@10.0.0.7:3128", "id": id(member), "count": 5, "state": "eligible"})
    );
    assert_eq!(list.as_array().unwrap().len(), 3);

    assert_eq!(pool(&redis, &["remove", member, "http://no:1"]), "removed 1, not there 1\n");
    assert_eq!(pool_json(&redis, &["remove", member]), json!({"removed": 0, "unknown": 1}));
    assert_eq!(redis.int(&["ZCARD", KEY]), 2);
}

#[test]
fn pool_export_gives_what_pool_import_takes() {
    let (from, to) = (Redis::start(), Redis::start());
    let members = ["10.0.0.7:3128", "http://10.0.0.8:3128", "http://user:hush@10.0.0.9:3128"];
    pool(&from, &[&["add"], &members[..]].concat());
    let exported = pool(&from, &["export"]);
    assert_eq!(exported.lines().count(), 3);
    assert!(exported.contains("http://user:hush@10.0.0.9:3128\n"), "{exported}");

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("proxies.txt");
    std::fs::write(&file, format!("# mine\n{exported}ftp://user:hush@h:21\n")).unwrap();
    let file = file.to_str().unwrap();
    let output = run(&["pool", "import", file, "--store", &to.url()]);
    assert_eq!((code(&output), &*out(&output)), (0, "added 3, already there 0, skipped 1\n"));
    assert!(err(&output).contains("proxies.txt:5: ") && !err(&output).contains("hush"), "{}", err(&output));
    assert_eq!(from.scores(KEY), to.scores(KEY));
    assert_eq!(pool_json(&to, &["export"]).as_array().unwrap().len(), 3);
}

#[test]
fn pool_import_reads_standard_input() {
    use std::io::Write as _;
    let redis = Redis::start();
    let mut import: Command = program();
    import.args(["pool", "import", "-", "--store", &redis.url()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = import.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"10.0.0.7:3128\n10.0.0.8:3128\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), &*out(&output)), (0, "added 2, already there 0, skipped 0\n"));
    assert_eq!(redis.int(&["ZCARD", KEY]), 2);
}

#[test]
fn pool_list_shows_who_was_set_aside_and_why() {
    let redis = Redis::start();
    let upstream = Upstream::ok("fine");
    let gateway = Setup::of([upstream.url()]).redis(&redis).start();
    redis.cmd(&["ZADD", KEY, "-1", "http://user:hush@host:99999"]);
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    let list = pool_json(&redis, &["list"]);
    let parked = &list[1];
    assert_eq!((&parked["state"], &parked["proxy"]), (&json!("parked"), &json!("http://user:***@host:99999")));
    assert!(parked["reason"].as_str().unwrap().contains("99999"), "{parked}");
    assert!(parked["since_ms"].as_u64().unwrap() > 1_600_000_000_000, "{parked}");
    let text = pool(&redis, &["list"]);
    assert!(text.contains("set aside: ") && !text.contains("hush"), "{text}");
}

#[test]
fn pool_park_and_restore_take_members_out_and_bring_them_back() {
    let redis = Redis::start();
    let (secret, other) = ("http://user:hush@10.0.0.7:3128", "http://10.0.0.8:3128");
    pool(&redis, &["add", secret, other]);
    redis.cmd(&["ZINCRBY", KEY, "5", secret]);
    assert_eq!(pool(&redis, &["park", other, "http://no:1"]), "parked 1, not there 1\n");
    // Its password is masked in a listing, its id is not.
    assert_eq!(
        pool_json(&redis, &["park", &id(secret), "--for", "1h", "--reason", "under\u{1b}[2J repair"]),
        json!({"parked": 1, "unknown": 0})
    );
    assert_eq!(redis.int(&["EXISTS", KEY]), 0);

    let list = pool_json(&redis, &["list"]);
    let (forever, hour) = (&list[0], &list[1]);
    assert_eq!(
        (&forever["state"], &forever["kind"], &forever["reason"]),
        (&json!("parked"), &json!("hand"), &json!("by hand"))
    );
    assert_eq!((&forever["until_ms"], &forever["id"]), (&Value::Null, &json!(id(other))));
    assert_eq!((&hour["count"], &hour["id"]), (&json!(5), &json!(id(secret))));
    assert_eq!(hour["until_ms"].as_u64().unwrap() - hour["since_ms"].as_u64().unwrap(), 3_600_000);
    let text = pool(&redis, &["list"]);
    assert!(text.contains("(set aside: hand, under [2J repair; ") && text.contains("; returns in 59m5"), "{text}");
    assert!(!text.contains("hush") && !text.contains('\u{1b}'), "{text}");

    // Adding is no way back; the word for it is said.
    let output = run(&["pool", "add", secret, "--store", &redis.url()]);
    assert_eq!(out(&output), "added 0, already there 1, skipped 0\n");
    assert!(err(&output).contains("pool restore"), "{}", err(&output));

    assert_eq!(pool(&redis, &["restore", &id(secret), other, "http://no:1"]), "restored 2, not there 1\n");
    assert_eq!(redis.scores(KEY), [(other.into(), "0".to_owned()), (secret.into(), "5".to_owned())]);
    assert_eq!(pool(&redis, &["remove", &id(secret), "p0123456789"]), "removed 1, not there 1\n");
    assert_eq!(redis.int(&["ZCARD", KEY]), 1);
}

#[test]
fn pool_ban_sets_members_aside_for_a_time_and_unban_lifts_bans_only() {
    let redis = Redis::start();
    let (secret, other, third) = ("http://user:hush@10.0.0.7:3128", "http://10.0.0.8:3128", "http://10.0.0.9:3128");
    pool(&redis, &["add", secret, other, third]);
    assert_eq!(pool(&redis, &["ban", &id(secret), other, "--reason", "captcha"]), "banned 2, not there 0\n");
    assert_eq!(pool(&redis, &["park", third]), "parked 1, not there 0\n");
    let text = pool(&redis, &["list"]);
    assert!(text.contains("(set aside: banned, captcha; ") && text.contains("; returns in 9m5"), "{text}");
    assert_eq!(pool(&redis, &["unban", &id(secret), third, "http://no:1"]), "unbanned 1, not there 2\n");
    assert_eq!(redis.scores(KEY), [(secret.into(), "0".to_owned())]);
    assert_eq!(pool(&redis, &["ban", secret, "--for", "1h"]), "banned 1, not there 0\n");
    assert_eq!(pool(&redis, &["restore", secret, other, third]), "restored 3, not there 0\n");
    // From one host only: it stays eligible.
    let by_shop = ["ban", &id(secret), other, "http://no:1", "--host", "Shop.Example."];
    assert_eq!(pool(&redis, &by_shop), "banned 2, not there 1\n");
    assert_eq!(pool(&redis, &["ban", other, "--host", "[::0:1]", "--for", "1h"]), "banned 1, not there 0\n");
    let text = pool(&redis, &["list"]);
    assert!(text.contains(&format!("eligible   {other}  (banned by [::1] for another 59m5")), "{text}");
    assert!(text.contains(", shop.example for another 9m5") && !text.contains("hush"), "{text}");
    let list = pool_json(&redis, &["list"]);
    assert!(list[0]["banned_until_ms"]["shop.example"].as_u64().unwrap() > 1_600_000_000_000, "{list}");
    assert_eq!(list[1].get("banned_until_ms"), None);
    assert_eq!(pool(&redis, &["unban", other, "--host", "shop.example"]), "unbanned 1, not there 0\n");
    assert_eq!(pool(&redis, &["unban", other, secret, third]), "unbanned 2, not there 1\n");
    assert_eq!(redis.int(&["EXISTS", &format!("{KEY}:hosts"), &format!("{KEY}:host:shop.example")]), 0);
    for host in
        ["http://shop.example", "shop.example:443", "*.example", ".shop.example", "\u{3002}b\u{fc}cher.example", ""]
    {
        assert_eq!(code(&run(&["pool", "ban", other, "--host", host, "--store", &redis.url()])), 64, "{host}");
    }
    assert_eq!(code(&run(&["pool", "ban", other, "--for", "soon", "--store", &redis.url()])), 64);
}

#[test]
fn pool_remove_knows_a_member_by_its_id_that_is_no_url() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "0", "10.0.0.7:3128:user:hush"]);
    let list = pool_json(&redis, &["list"]);
    assert_eq!(pool(&redis, &["remove", list[0]["id"].as_str().unwrap()]), "removed 1, not there 0\n");
    assert_eq!(redis.int(&["EXISTS", KEY]), 0);
}

#[test]
fn what_others_wrote_keeps_the_tables_in_shape() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "1e300", "http://10.0.0.7:3128"]);
    redis.cmd(&["HSET", &format!("{KEY}:parked"), "http://10.0.0.8:3128", "no JSON"]);
    let record = r#"{"count":1,"kind":"unhealthy","reason":"slow","since_ms":1,"until_ms":9999999999999}"#;
    redis.cmd(&["HSET", &format!("{KEY}:parked"), "http://10.0.0.9:3128", record]);
    let listed = pool(&redis, &["list"]);
    assert!(listed.contains("       1e300  p"), "{listed}");
    assert!(listed.contains("10.0.0.8:3128  (set aside: malformed)\n"), "{listed}");
    assert!(listed.contains("; returns when it passes a check, where none are made tried again in "), "{listed}");
    let verified = out(&run(&["pool", "verify", "--store", &redis.url()]));
    assert!(verified.contains("counts   1e300 to 1e300"), "{verified}");
}

#[test]
fn pool_list_shows_candidates() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", &format!("{KEY}:candidates"), "5", "http://user:hush@10.0.0.7:3128"]);
    let list = pool_json(&redis, &["list"]);
    assert_eq!((&list[0]["state"], &list[0]["due_ms"]), (&json!("candidate"), &json!(5)));
    let text = pool(&redis, &["list"]);
    assert!(text.contains("candidate  http://user:***@10.0.0.7:3128  (to be looked at)\n"), "{text}");
}

#[test]
fn pool_list_shows_allocations_whatever_the_weight() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "2.3333333333333335", "10.0.0.7:3128?weight=3", "3", "10.0.0.8:3128"]);
    let list = pool_json(&redis, &["list"]);
    assert_eq!((&list[0]["count"], &list[0]["weight"]), (&json!(7), &json!(3)));
    assert_eq!((&list[0]["score"], &list[0]["id"]), (&json!(7.0 / 3.0), &json!(id("10.0.0.7:3128"))));
    assert_eq!((&list[1]["count"], list[1].get("weight")), (&json!(3), None));
    assert!(pool(&redis, &["list"]).contains("           7  "), "{list}");
    let output = run(&["pool", "add", "10.0.0.9:1?weight=0", "--store", &redis.url()]);
    assert_eq!(code(&output), 64);
    assert!(err(&output).contains("weight= and a number from 1 to 1000"), "{}", err(&output));
}

#[test]
fn pool_rebase_makes_counts_small_again() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "5145", "http://10.0.0.7:3128", "5146", "http://10.0.0.8:3128"]);
    assert_eq!(pool(&redis, &["rebase"]), "subtracted 5145 from 2 members\n");
    assert_eq!(redis.scores(KEY).into_iter().map(|(_, score)| score).collect::<Vec<_>>(), ["0", "1"]);
    assert_eq!(pool_json(&redis, &["rebase"]), json!({"subtracted": 0, "members": 2}));
}

/// A gateway would read it again; and a source that nobody knows is a slip.
#[test]
fn a_source_is_dropped_when_the_configuration_does_not_name_it_any_more() {
    let (redis, list) = (Redis::start(), List::of("10.0.0.1:1\n10.0.0.2:1\n"));
    let gateway = Setup::of([""; 0]).redis(&redis).source(&list.source("")).start();
    wait_read(&gateway, 2, 2, 0);
    gateway.finish();
    let file = list.path().with_file_name("config.toml");
    let drop = |name: &str, configured: &str| {
        std::fs::write(&file, configured).unwrap();
        let config = file.display().to_string();
        run(&["pool", "drop", name, "--config", &config, "--store", &redis.url()])
    };
    let named = drop("list", &format!("[[pool.sources]]\n{}", list.source("")));
    assert_eq!(code(&named), 64);
    assert!(err(&named).contains("still names the source \"list\""), "{}", err(&named));
    assert_eq!(code(&drop("lits", "")), 64);
    assert_eq!(redis.scores(KEY).len(), 2);
    assert_eq!(out(&drop("list", "")), "forgotten 2, removed 2\n");
    assert_eq!(redis.scores(KEY).len(), 0);
}

/// They are no mistakes; `serve` says the same in its log.
#[test]
fn settings_without_effect_are_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let all = "[pool]\nstate = 's'\nprefetch = 4\nwhen_unreachable = 'local'\n[pool.rules]\ncountries = ['DE']\n";
    let nothing = "[pool]\nprefetch = 0\nwhen_unreachable = 'refuse'\n[pool.rules]\ncountries = []\n";
    let judged = "[pool.rules]\ncountries = ['DE']\n[health]\nurl = 'http://judge.example/'\n";
    let (local, rules) =
        ("pool.when_unreachable = \"local\" has no effect", "pool.rules has no effect without health.url");
    for (text, store, warned) in [
        (all, "embedded", &["pool.prefetch has no effect", local, rules][..]),
        (all, "redis://127.0.0.1:1", &["pool.state has no effect", rules]),
        (nothing, "embedded", &[]),
        (judged, "embedded", &[]),
    ] {
        let file = dir.path().join("c.toml");
        std::fs::write(&file, text).unwrap();
        let config = ["--config", file.to_str().unwrap(), "--store", store];
        let output = run(&[&["check"], &config[..]].concat());
        assert_eq!((code(&output), &*out(&output)), (0, "the configuration is valid\n"));
        let told = err(&output);
        assert_eq!(told.lines().count(), warned.len(), "{told}");
        for (line, warned) in told.lines().zip(warned) {
            assert!(line.starts_with(&format!("warning: {warned}")), "{line}");
        }
    }
    let gateway = Setup::of([""; 0]).set("pool.prefetch", 4).start();
    assert_eq!(gateway.finish().matches("WARN pool.prefetch has no effect").count(), 1);
}
