//! What looks like a list and is none, and lists that cannot be believed: nothing leaves the pool for them.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::gateway::{Setup, eventually};
use crate::support::redis::Redis;
use crate::support::sources::{List, Shelf, members, ok, on_both_stores, page, source, told, wait_read, wait_told};
use crate::support::wire::PATIENCE;

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text.as_bytes()).expect("room");
    packed.finish().expect("room")
}

/// An answer of a server that had a list before, and what is said of it.
fn instead() -> Vec<(Vec<u8>, &'static str)> {
    let head = |head: &str| format!("HTTP/1.1 {head}\r\n\r\n").into_bytes();
    let packed = gzip(&(0..500).map(|n| format!("10.1.{}.{}:{n}\n", n * 7 % 256, n * 31 % 256)).collect::<String>());
    let error = "it reports an error and is no list";
    vec![
        (ok(r#"{"success":false,"error":"quota","ip":"203.0.113.9","port":443}"#), error),
        (ok("{\n \"error\": {\"code\": 7},\n \"host\": \"h:443\"\n}\n"), error),
        (ok(r#"{"message":"Too many requests","ip":"203.0.113.9","port":443}"#), error),
        (ok(r#"{"success":false,"data":[]}"#), error),
        (ok("\n\n <p>Sorry</p>\n10.9.9.7:80"), "it is a web page, not a list"),
        (ok("\u{feff}<?xml version=\"1.0\"?><Error>10.9.9.7:80</Error>"), "it is a web page, not a list"),
        (ok(gzip("<p>Sorry</p>\n10.9.9.7:80\n")), "it is a web page, not a list"),
        (ok("203.0.113.9:443 is blocked"), "it is a message about a refusal and no list"),
        (ok("You have exceeded 10 requests from 203.0.113.9:443\n\n"), "it is a message about a refusal and no list"),
        (ok("Slow down!\n10.9.9.7:80\n"), "half of it cannot be used"),
        (ok([0; 4096]), "none of it can be used"),
        (ok("null"), "none of it can be used"),
        (head("204 No Content"), "it is empty"),
        (ok(gzip("")), "it is empty"),
        (ok("\u{feff}"), "it is empty"),
        (ok("[]"), "it is empty"),
        (head("205 Reset Content\r\nContent-Length: 0"), "the answer was 205"),
        (head("206 Partial Content\r\nContent-Length: 0"), "the answer was 206"),
        (head("304 Not Modified"), "the answer was 304"),
        (head("302 Found\r\nLocation: http://127.0.0.1:9/login\r\nContent-Length: 0"), "which leads to"),
        (head("429 Too Many Requests\r\nContent-Length: 0"), "the answer was 429"),
        ([head("200 OK\r\nContent-Length: 99"), b"10.9.9.8:80\n".into()].concat(), "the connection ended before"),
        (
            [head("200 OK\r\nTransfer-Encoding: chunked"), b"c\r\n10.9.9.8:80\n\r\n".into()].concat(),
            "the connection ended before",
        ),
        (ok(&packed[..packed.len() / 2]), "its gzip is damaged"),
        (head("200 OK\r\nContent-Encoding: br\r\nContent-Length: 0"), "a content coding"),
    ]
}

/// Each has its own list first, and then another answer, again and again.
#[test]
fn whatever_a_server_says_instead_of_its_list_takes_nothing_out_of_the_pool_and_is_told_once() {
    let redis = Redis::start();
    let mut setup = Setup::of([""; 0]).redis(&redis).env("RUST_LOG", "debug,fred=off");
    let pages: Vec<_> = instead()
        .into_iter()
        .enumerate()
        .map(|(n, (answer, what))| (Shelf::serve(ok(format!("10.0.{n}.1:80\n10.0.{n}.2:80\n"))), answer, what))
        .collect();
    for (n, ((_, origin), ..)) in pages.iter().enumerate() {
        setup = setup.source(&page(origin.url(), "gone = \"remove\"").replace("\"list\"", &format!("\"s{n}\"")));
    }
    let gateway = setup.start();
    let count = |what: &str| gateway.log().lines().filter(|line| line.contains(what)).count();
    eventually(PATIENCE, "all lists", || count("read a list") == pages.len());
    let before = members(&redis);
    pages.iter().for_each(|((shelf, _), answer, _)| shelf.put(&answer[..]));
    eventually(PATIENCE, "two readings each", || count("DEBUG still: ") >= 2 * pages.len());
    let log = gateway.log();
    for (n, (_, _, what)) in pages.iter().enumerate() {
        let about: Vec<&str> =
            log.lines().filter(|line| line.contains("WARN") && line.contains(&format!("source=\"s{n}\""))).collect();
        assert_eq!(about.len(), 1, "{what}: {about:#?}");
        assert!(about[0].contains(what), "{what} is not in {}", about[0]);
        assert!(about[0].contains("removed=0 ") && about[0].contains("kept=2 "), "{}", about[0]);
    }
    let after = members(&redis);
    assert!(before.iter().all(|member| after.contains(member)), "{after:?}");
    // What came before an answer broke off, or beside a line that cannot be used, is the list's.
    let added: Vec<_> = after.iter().filter(|member| !before.contains(member)).collect();
    assert!(
        added.iter().all(|member| member.starts_with("10.1.") || ["10.9.9.7:80", "10.9.9.8:80"].contains(&&***member)),
        "{added:?}"
    );
    assert!(!log.contains("203.0.113.9"), "nothing of it is shown");
    // Whoever has its list again says so.
    pages.iter().enumerate().for_each(|(n, ((shelf, _), ..))| shelf.put(ok(format!("10.0.{n}.1:80\n10.0.{n}.2:80\n"))));
    eventually(PATIENCE, "the members of before", || members(&redis) == before);
    eventually(PATIENCE, "all lists", || count("INFO read a list") >= 2 * pages.len());
}

/// That a list may be empty does not make a list of everything that names nobody.
#[test]
fn a_list_that_may_be_empty_must_be_a_list() {
    let redis = Redis::start();
    let list = List::of("127.0.0.1:1\n127.0.0.1:2\n");
    let gateway =
        Setup::of([""; 0]).redis(&redis).source(&list.source("gone = \"remove\"\nmay_be_empty = true")).start();
    wait_read(&gateway, 2, 2, 0);
    list.rewrite(r#"{"success": false, "data": []}"#);
    wait_told(&gateway, "it reports an error");
    list.replace("<p>none");
    wait_told(&gateway, "it is a web page");
    assert_eq!(members(&redis).len(), 2);
    list.rewrite(r#"{"success": true, "error": null, "data": []}"#);
    wait_read(&gateway, 0, 0, 2);
}

fn numbered(count: usize) -> Vec<u8> {
    ok((0..count).map(|n| format!("10.0.{}.{}:80\n", n / 256, n % 256)).collect::<String>())
}

/// Half a list looks like a loss. A real one is still there when it is read again.
#[test]
fn a_list_that_has_lost_most_of_its_proxies_is_believed_the_second_time() {
    on_both_stores(|store| {
        let (shelf, origin) = Shelf::serve(numbered(1_000));
        let setup = Setup::of([""; 0]).over(store);
        let gateway = setup.source(&page(origin.url(), "gone = \"remove\"\nmay_be_empty = true")).start();
        wait_read(&gateway, 1_000, 1_000, 0);
        let asked = origin.requests().len();
        shelf.put(numbered(3));
        let line = wait_told(&gateway, "it has 3 proxies and had 1000, which the next reading must confirm");
        assert!(line.contains(" WARN ") && line.contains("removed=0 ") && line.contains("kept=1000 "), "{line}");
        // One that grows meanwhile is being written.
        shelf.put(numbered(300));
        wait_told(&gateway, "it has 300 proxies and had 1000");
        shelf.put(numbered(1_000));
        let full = || told(&gateway).iter().filter(|line| line.contains("taken=1000 added=0 removed=0 ")).count() >= 1;
        eventually(PATIENCE, "the whole list", full);
        shelf.put(numbered(3));
        wait_read(&gateway, 3, 0, 997);
        assert!(origin.requests().len() >= asked + 4);
        assert_eq!(gateway.log().matches("it has 3 proxies and had 1000").count(), 2);
    });
}

/// Somebody writes the file in place, all the time: whatever is found in it is not the whole list.
#[test]
fn a_file_that_is_being_written_takes_nothing_out_of_the_pool() {
    on_both_stores(|store| {
        let whole: String = (0..200).map(|n| format!("10.0.0.{n}:80\n")).collect();
        let list = List::of(&whole);
        let more = "gone = \"remove\"\nmay_be_empty = true\nevery = \"1s\"";
        let gateway = Setup::of([""; 0]).over(store).source(&list.source(more)).start();
        wait_read(&gateway, 200, 200, 0);
        let started = Instant::now();
        let mut rounds = 0;
        while started.elapsed() < Duration::from_secs(4) {
            let mut file = File::create(list.path()).expect("a file");
            for line in whole.split_inclusive('\n') {
                file.write_all(line.as_bytes()).expect("a written file");
                std::thread::sleep(Duration::from_micros(200)); // so that much of the time it is not whole
            }
            rounds += 1;
        }
        list.rewrite(&whole);
        assert!(rounds > 10, "{rounds}");
        let count = || told(&gateway).len();
        let so_far = count();
        eventually(PATIENCE, "a reading", || count() > so_far);
        let lines = told(&gateway);
        assert!(lines.iter().all(|line| line.contains("removed=0 ")), "{lines:#?}");
    });
}

/// As deployments and Kubernetes do: the name leads to another file. What is no file is not waited for.
#[test]
fn a_name_that_leads_elsewhere_is_followed_and_what_is_no_file_is_not_opened() {
    let redis = Redis::start();
    let dir = tempfile::tempdir().expect("a scratch folder");
    let at = |name: &str| dir.path().join(name);
    let lead = |to: &str| {
        symlink(to, at("new")).expect("a link");
        std::fs::rename(at("new"), at("list.txt")).expect("a renamed link");
    };
    std::fs::write(at("one"), "127.0.0.1:1\n127.0.0.1:2\n").expect("a file");
    std::fs::write(at("two"), "127.0.0.1:2\n127.0.0.1:3\n").expect("a file");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    std::fs::create_dir(at("folder")).expect("a folder");
    lead("one");
    let gateway = Setup::of([""; 0]).redis(&redis).source(&source(&at("list.txt"), "gone = \"remove\"")).start();
    wait_read(&gateway, 2, 2, 0);
    lead("two");
    wait_read(&gateway, 2, 1, 1);
    for (to, what) in [
        ("pipe", "it is not a file"),
        ("nowhere", "No such file"),
        ("folder", "it is not a file"),
        ("list.txt", "Too many levels"),
    ] {
        let before = gateway.log().matches(what).count();
        lead(to);
        eventually(PATIENCE, what, || gateway.log().matches(what).count() > before);
    }
    lead("two");
    eventually(PATIENCE, "two", || gateway.log().matches("taken=2 added=0 removed=0 ").count() == 1);
    assert_eq!(members(&redis), ["127.0.0.1:2", "127.0.0.1:3"]);
}

/// A file that is looked at every second and stays as it is; written anew, it is spoken of again.
#[test]
fn trouble_that_lasts_is_told_once_for_each_file() {
    on_both_stores(|store| {
        let list = List::of("127.0.0.1:1\n127.0.0.1:2\n");
        let setup = Setup::of([""; 0]).over(store).env("RUST_LOG", "debug,fred=off");
        let gateway = setup.source(&list.source("gone = \"remove\"\nevery = \"1s\"")).start();
        wait_read(&gateway, 2, 2, 0);
        for (text, what) in
            [("", "it is empty"), ("127.0.0.1:1\nmore\n", "half of it cannot be used"), ("<p>", "it is a web page")]
        {
            let still = format!("still: {what}");
            let still = if what.contains("page") { "still: cannot read the list: it is a web page" } else { &still };
            let count = |said: &str| told(&gateway).iter().filter(|line| line.contains(said)).count();
            for time in 1..=2 {
                list.rewrite(text);
                eventually(PATIENCE, what, || count("WARN") > 0 && count(what) - count(still) == time);
                let so_far = count(still);
                eventually(PATIENCE, still, || count(still) >= so_far + 2);
                assert_eq!(count(what) - count(still), time);
            }
        }
    });
}
