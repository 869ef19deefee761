//! `pool.state`: what the embedded store knows survives its process, however that ends, and whatever becomes of the file.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::gateway::{Gateway, Setup, eventually, program};
use crate::support::upstream::{Refusing, Upstream};
use crate::support::wire::PATIENCE;

/// A save is 10 s away at most.
const SAVED: Duration = Duration::from_secs(20);

/// A folder, and the file in it.
fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("evenkeel.state");
    (dir, file)
}

fn setup(file: &Path, upstreams: &[&Upstream]) -> Setup {
    Setup::of(upstreams.iter().map(|upstream| upstream.url())).set("pool.state", file.display())
}

fn get(gateway: &Gateway, n: usize) {
    for _ in 0..n {
        let mut client = gateway.client();
        client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response().status(), 200);
    }
}

fn pool_command(file: &Path, args: &[&str]) -> Command {
    let mut command = program();
    command.arg("pool").args(args).env("EVENKEEL_POOL__STATE", file).current_dir(file.parent().unwrap());
    command
}

fn pool(file: &Path, args: &[&str]) -> Output {
    pool_command(file, args).output().unwrap()
}

/// What is in the file, by state and count.
fn listed(file: &Path) -> Vec<(String, u64)> {
    let output = pool(file, &["list", "--json"]);
    let told: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let mut listed: Vec<_> =
        told.iter().map(|m| (m["state"].as_str().unwrap().to_owned(), m["count"].as_u64().unwrap())).collect();
    listed.sort();
    listed
}

fn eligible(counts: &[u64]) -> Vec<(String, u64)> {
    counts.iter().map(|&count| ("eligible".to_owned(), count)).collect()
}

fn files(dir: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_signal_loses_nothing() {
    let (dir, file) = place();
    let upstreams = [Upstream::ok("a"), Upstream::ok("b"), Upstream::ok("c")];
    let [a, b, c] = &upstreams;
    let mut gateway = setup(&file, &[a, b, c]).start();
    get(&gateway, 7);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
    assert_eq!(listed(&file), eligible(&[2, 2, 3]));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files(&dir), ["evenkeel.state"]);

    // What is set aside stays so, and who is new joins.
    let d = Upstream::ok("d");
    assert_eq!(pool(&file, &["park", &a.url(), "--reason", "for a test"]).status.code(), Some(0));
    let mut gateway = setup(&file, &[a, b, &d]).start();
    get(&gateway, 4);
    gateway.signal(Signal::INT);
    assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
    let all = listed(&file);
    assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), 7 + 4 + 2, "{all:?}");
    assert_eq!(all.iter().filter(|(state, _)| state == "parked").count(), 1);
    assert!(a.requests().len() <= 3 && !d.requests().is_empty());
    assert!(gateway.log().contains("the pool is as it was saved"), "{}", gateway.log());

    // With a request that never ends: the second signal, and what was chosen counts all the same.
    let endless = Upstream::start(|conn| conn.until_close().map(drop));
    let (_dir, file) = place();
    let mut gateway = setup(&file, &[&endless]).start();
    let mut client = gateway.client();
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually(PATIENCE, "the request", || endless.connections() == 1);
    gateway.signal(Signal::TERM);
    eventually(PATIENCE, "the drain", || gateway.log().contains("draining"));
    std::thread::sleep(Duration::from_millis(150)); // signals closer than 0.1 s are one
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
    assert_eq!(listed(&file), eligible(&[1]));
}

#[test]
fn a_kill_loses_ten_seconds_at_most() {
    let (_dir, file) = place();
    let upstream = Upstream::ok("a");
    let mut gateway = setup(&file, &[&upstream]).start();
    get(&gateway, 5);
    let begun = Instant::now();
    // While it runs: from the file.
    eventually(SAVED, "a save", || file.exists() && listed(&file) == eligible(&[5]));
    assert!(begun.elapsed() < Duration::from_secs(13), "{:?}", begun.elapsed());
    get(&gateway, 2);
    gateway.signal(Signal::KILL);
    gateway.wait_exit(PATIENCE);
    let mut gateway = setup(&file, &[&upstream]).start();
    get(&gateway, 1);
    gateway.signal(Signal::TERM);
    gateway.wait_exit(PATIENCE);
    assert_eq!(listed(&file), eligible(&[6]), "those behind the save are lost, and no others");
}

#[test]
fn a_file_that_cannot_be_used_is_set_aside_as_it_is() {
    let upstream = Upstream::ok("a");
    let (dir, file) = place();
    let mut gateway = setup(&file, &[&upstream]).start();
    get(&gateway, 3);
    gateway.signal(Signal::TERM);
    gateway.wait_exit(PATIENCE);
    let whole = fs::read(&file).unwrap();
    let newer = String::from_utf8(whole.clone()).unwrap().replace("\"version\":1", "\"version\":99");
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("torn", whole[..whole.len() - 9].to_vec(), "is torn"),
        ("edited", String::from_utf8(whole).unwrap().replace(":3.0", ":4.0").into(), "is torn"),
        ("foreign", b"SQLite format 3\0 user:hush@h:1".to_vec(), "no state of evenkeel"),
        ("empty", Vec::new(), "no state of evenkeel"),
        ("newer", newer.into(), "a newer version"),
    ];
    for (what, bytes, why) in cases {
        fs::write(&file, &bytes).unwrap();
        let refused = pool(&file, &["add", "http://10.0.0.7:1"]);
        assert_eq!(refused.status.code(), Some(69), "{what}: an operator decides, not a command: {refused:?}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
        let mut gateway = setup(&file, &[&upstream]).start();
        get(&gateway, 1);
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0), "{what}");
        let log = gateway.log();
        assert!(log.contains(why) && !log.contains("hush"), "{what}: {log}");
        assert_eq!(listed(&file), eligible(&[1]), "{what}");
        let aside = files(&dir).into_iter().find(|name| name.contains(".unusable-")).expect(what);
        assert_eq!(fs::read(dir.path().join(&aside)).unwrap(), bytes, "{what}");
        fs::remove_file(dir.path().join(aside)).unwrap();
    }
}

#[test]
fn nothing_is_left_beside_what_cannot_be_a_state() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("folder");
    fs::create_dir(&folder).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    for path in [folder.clone(), link, folder.join(".."), folder.join("none/state")] {
        let output = pool_command(&dir.path().join("x"), &["add", "10.0.0.1:80"])
            .env("EVENKEEL_POOL__STATE", &path)
            .output()
            .unwrap();
        assert!(!output.status.success() && !output.stderr.is_empty(), "{output:?}");
        assert_eq!(files(&dir), ["folder", "link"], "{}", path.display());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{}", path.display());
    }
}

#[test]
fn a_file_is_one_gateways_own() {
    let upstream = Upstream::ok("a");
    let (_dir, file) = place();
    let mut gateway = setup(&file, &[&upstream]).start();
    get(&gateway, 1);
    let second = program()
        .args(["--listen", "127.0.0.1:0"])
        .env("EVENKEEL_POOL__STATE", &file)
        .current_dir(file.parent().unwrap())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(73), "{told}");
    assert!(told.contains("is kept by another process"), "{told}");
    let refused = pool(&file, &["add", "http://10.0.0.7:1"]);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    gateway.signal(Signal::KILL);
    gateway.wait_exit(PATIENCE);
    // However it ended, the file is free again.
    assert_eq!(pool(&file, &["add", "http://10.0.0.7:1"]).status.code(), Some(0));
}

#[test]
fn commands_work_on_the_file_of_a_gateway_that_has_ended() {
    let (dir, file) = place();
    let told = |args: &[&str]| {
        let output = pool(&file, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(told(&["list"]).lines().count(), 1, "nothing yet");
    assert_eq!(
        told(&["add", "http://user:hush@10.0.0.7:1", "http://10.0.0.8:1"]),
        "added 2, already there 0, skipped 0\n"
    );
    assert_eq!(told(&["park", "http://10.0.0.8:1", "--for", "10m"]), "parked 1, not there 0\n");
    let list = told(&["list"]);
    assert!(list.contains("user:***@10.0.0.7:1") && list.contains("set aside: hand, by hand"), "{list}");
    assert_eq!(told(&["export"]), "http://user:hush@10.0.0.7:1\n");
    assert!(told(&["verify"]).contains("members  1 eligible, 1 set aside\n"));
    assert_eq!(told(&["rebase"]), "subtracted 0 from 1 members\n");
    assert_eq!(told(&["restore", "http://10.0.0.8:1"]), "restored 1, not there 0\n");
    assert_eq!(told(&["remove", "http://10.0.0.8:1", "http://10.0.0.9:1"]), "removed 1, not there 1\n");
    let mut import = pool_command(&file, &["import", "-"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    import.stdin.take().unwrap().write_all(b"http://10.0.0.11:1\n").unwrap();
    assert!(import.wait().unwrap().success());
    // Of a list that breaks off, what is said to be added is.
    let (_elsewhere, list) = place();
    let mut whole = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    whole.write_all(b"http://10.0.0.12:1\nhttp://10.0.0.13:1\n").unwrap();
    let whole = whole.finish().unwrap();
    fs::write(&list, &whole[..whole.len() - 8]).unwrap();
    let output = pool(&file, &["import", list.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(66), "{output:?}");
    assert_eq!(output.stdout, b"added 2, already there 0, skipped 0\n");
    let output = pool(&file, &["remove", "http://10.0.0.12:1", "http://10.0.0.13:1"]);
    assert_eq!(output.stdout, b"removed 2, not there 0\n");
    assert_eq!(listed(&file), eligible(&[0, 0]));
    assert_eq!(files(&dir), ["evenkeel.state"]);
}

#[test]
fn what_cannot_be_written_is_said_before_anybody_is_served() {
    let (dir, _) = place();
    for place in ["no/such/folder/state", "."] {
        let refused = program().env("EVENKEEL_POOL__STATE", place).current_dir(dir.path()).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(73), "{place}: {told}");
        assert!(told.contains("pool.state: ") && refused.stdout.is_empty(), "{place}: {told}");
    }
}

#[test]
fn members_that_failed_are_tried_again_and_not_forgotten() {
    let (_dir, file) = place();
    let upstream = Upstream::ok("a");
    let dead = Refusing::new();
    let mut gateway = Setup::of([upstream.url(), dead.url()])
        .set("pool.state", file.display())
        .set("health.park_after", 1)
        .set("health.cooldown", "1h")
        .start();
    let is_parked = |file: &Path| listed(file).iter().any(|(state, _)| state == "parked");
    get(&gateway, 4);
    eventually(PATIENCE, "that it is set aside", || gateway.log().contains("set a pool member aside"));
    gateway.signal(Signal::TERM);
    gateway.wait_exit(PATIENCE);
    assert!(is_parked(&file), "{:?}", listed(&file));
    let list = String::from_utf8(pool(&file, &["list"]).stdout).unwrap();
    assert!(list.contains("set aside: cooldown, ") && list.contains(" in a row, the last: "), "{list}");
    // The configuration names it, and does not bring it back.
    let mut gateway = Setup::of([upstream.url(), dead.url()]).set("pool.state", file.display()).start();
    get(&gateway, 4);
    gateway.signal(Signal::TERM);
    gateway.wait_exit(PATIENCE);
    assert!(is_parked(&file), "{:?}", listed(&file));
    assert!(!gateway.log().contains("set a pool member aside"), "{}", gateway.log());
}

#[test]
fn whom_a_host_has_banned_it_does_not_get_after_a_restart() {
    let (_dir, file) = place();
    let [banned, other] = [Upstream::ok("a"), Upstream::ok("b")];
    for scope in ["pool", "host"] {
        let start = || setup(&file, &[&banned, &other]).set("pool.scope", scope).start();
        let mut gateway = start();
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
        let output = pool(&file, &["ban", &banned.url(), "--host", "shop.test", "--for", "1h"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for _ in 0..2 {
            let mut gateway = start();
            let mut client = gateway.client();
            // It hears of the host within a moment.
            eventually(PATIENCE, "the ban", || {
                let heard = banned.requests().len();
                (0..4).for_each(|_| drop(client.get("http://shop.test/")));
                banned.requests().len() == heard
            });
            let heard = banned.requests().len();
            (0..6).for_each(|_| drop(client.get("http://shop.test/")));
            assert_eq!(banned.requests().len(), heard, "{scope}");
            (0..4).for_each(|_| drop(client.get("http://other.test/")));
            assert!(banned.requests().len() > heard, "{scope}");
            gateway.signal(Signal::TERM);
            assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
        }
    }
}
