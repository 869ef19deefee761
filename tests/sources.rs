//! Lists that a gateway keeps its pool in step with: real files, real pages, whole gateways.

use std::io::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::Signal;

use crate::support::gateway::{Gateway, KEY, Setup, Store, eventually, program};
use crate::support::redis::Redis;
use crate::support::servers::Server;
use crate::support::sources::{List, Shelf, members, ok, on_both_stores, page, told, wait_read, wait_told};
use crate::support::upstream::{Unreachable, Upstream};
use crate::support::wire::PATIENCE;

const SECRET: &str = "s3cretPlanted";

fn is_served(gateway: &Gateway) -> bool {
    gateway.client().get("http://origin.test/").status() == 200
}

/// The first request finds what the list names; a list that is written anew, and one that takes its place, is noticed at once.
#[test]
fn a_file_is_read_before_the_first_request_and_again_when_it_changes() {
    on_both_stores(|store| {
        let upstream = Upstream::ok("through the list");
        let list = List::of(format!("# bought today\n{}\n", upstream.address()));
        let gateway = Setup::of([""; 0]).over(store).source(&list.source("gone = \"remove\"\nevery = \"24h\"")).start();
        assert!(is_served(&gateway));
        wait_read(&gateway, 1, 1, 0);
        list.rewrite(format!("{}\n127.0.0.1:2\n127.0.0.1:3\n", upstream.address()));
        wait_read(&gateway, 3, 2, 0);
        list.replace(format!("127.0.0.1:2\n{}\n", upstream.address()));
        wait_read(&gateway, 2, 0, 1);
        list.replace(format!("127.0.0.1:4\n{}", upstream.address()));
        wait_read(&gateway, 2, 1, 1);
        assert_eq!(told(&gateway).len(), 4, "one line for each reading");
    });
}

/// Whatever becomes of the file, the pool is not emptied; and each trouble is told once.
#[test]
fn a_file_that_goes_wrong_takes_nothing_out_of_the_pool() {
    on_both_stores(|store| {
        let upstream = Upstream::ok("still here");
        let list = List::of(format!("{}\n127.0.0.1:1", upstream.address()));
        let gateway = Setup::of([""; 0]).over(store).source(&list.source("gone = \"remove\"")).start();
        wait_read(&gateway, 2, 2, 0);
        list.delete();
        wait_told(&gateway, "No such file");
        list.rewrite("");
        wait_told(&gateway, "it is empty, so nothing is removed");
        list.rewrite("# none\n\n");
        eventually(PATIENCE, "a second look", || gateway.log().matches("WARN it is empty").count() == 2);
        list.rewrite("<!doctype html><p>Sold out");
        wait_told(&gateway, "it is a web page, not a list");
        list.rewrite("one\ntwo\nthree\n");
        wait_told(&gateway, "none of it can be used, so nothing is removed");
        list.rewrite("127.0.0.1:9\ntwo\nthree\n");
        wait_told(&gateway, "most of it cannot be used, so nothing is removed");
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        (0..5_000).for_each(|n| writeln!(packed, "10.1.{}.{}:{n}", n / 256, n % 256).unwrap());
        let packed = packed.finish().unwrap();
        list.rewrite(&packed[..packed.len() / 2]);
        wait_told(&gateway, "its gzip is damaged");
        std::fs::remove_file(list.path()).unwrap();
        std::fs::create_dir(list.path()).unwrap();
        wait_told(&gateway, "it is not a file");
        std::fs::remove_dir(list.path()).unwrap();
        let lines = told(&gateway);
        assert!(lines.iter().all(|line| line.contains("removed=0 ")), "{lines:#?}");
        assert!(lines[1..].iter().all(|line| line.contains(" kept=")), "{lines:#?}");
        // Both members of the beginning are still there.
        list.rewrite(format!("{}\n127.0.0.1:1\n127.0.0.1:9\n", upstream.address()));
        let lines = wait_told(&gateway, "INFO read a list source=\"list\" taken=3 added=0 removed=");
        assert!(is_served(&gateway), "{lines}");
    });
}

#[test]
fn an_empty_list_empties_the_pool_when_it_may() {
    on_both_stores(|store| {
        let upstream = Upstream::ok("");
        let list = List::of(upstream.url());
        let setup = Setup::of([""; 0]).over(store);
        let gateway = setup.source(&list.source("gone = \"remove\"\nmay_be_empty = true")).start();
        assert!(is_served(&gateway));
        list.rewrite("not a proxy\n");
        wait_told(&gateway, "none of it can be used");
        assert!(is_served(&gateway));
        list.rewrite("");
        wait_read(&gateway, 0, 0, 1);
        assert_eq!(gateway.client().get("http://origin.test/").status(), 503);
    });
}

/// `gone = "keep"`, the default.
#[test]
fn members_that_a_list_names_no_more_stay_by_default() {
    let redis = Redis::start();
    let list = List::of("127.0.0.1:1\n127.0.0.1:2\n");
    let gateway = Setup::of([""; 0]).redis(&redis).source(&list.source("")).start();
    wait_read(&gateway, 2, 2, 0);
    list.rewrite("127.0.0.1:3");
    wait_read(&gateway, 1, 1, 0);
    assert_eq!(members(&redis), ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]);
}

/// Each line that cannot be used is counted, the first few are shown, and no password is, nor the key in an address.
#[test]
fn bad_lines_cost_only_themselves_and_nothing_told_shows_a_secret() {
    let redis = Redis::start();
    let text = format!(
        "\u{feff}10.0.0.1:80:user:{SECRET}\r\n10.0.0.2:99999:user:{SECRET}\r\nuser:{SECRET}@10.0.0.3:80\r\n\
         socks5h://user:{SECRET}@10.0.0.1:80\nwhat {SECRET}\n:{SECRET}@:\n10.0.0.5:1080\n"
    );
    let (_shelf, origin) = Shelf::serve(ok(&text));
    let url = format!("http://u:{SECRET}@{}/{SECRET}0123456789?key={SECRET}", origin.address());
    let gateway = Setup::of([""; 0])
        .redis(&redis)
        .env("RUST_LOG", "trace,fred=off")
        .source(&format!("url = \"{url}\"\nscheme = \"socks5h\""))
        .source(&format!("url = \"http://127.0.0.1:9/list?{SECRET}\"\nvia = \"http://u:{SECRET}@127.0.0.1:9\""))
        .start();
    eventually(PATIENCE, "two readings", || gateway.log().matches("source=").count() >= 2);
    let user = format!("socks5h://user:{SECRET}@");
    assert_eq!(
        members(&redis),
        ["socks5h://10.0.0.5:1080".to_owned(), user.clone() + "10.0.0.1:80", user + "10.0.0.3:80"]
    );
    let log = gateway.finish();
    assert!(log.contains("read a list; line 2: port 99999 is not a port (1 to 65535); line 5: "), "{log}");
    assert!(log.contains("taken=3 added=3 removed=0 repeated=1 skipped=3 "), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn a_page_is_asked_only_for_what_is_new() {
    on_both_stores(|store| {
        let version = Arc::new(Mutex::new(1));
        let served = version.clone();
        let origin = Upstream::start(move |conn| {
            let Some(request) = conn.request()? else { return Ok(()) };
            let version = *served.lock().unwrap();
            let tag = format!("\"v{version}\"");
            if request.field("If-None-Match") == Some(&tag) {
                return conn.send("HTTP/1.1 304 Not Modified\r\n\r\n");
            }
            let body: String = (0..version).map(|n| format!("10.0.0.{n}:80\n")).collect();
            conn.send(format!("HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
        });
        let gateway = Setup::of([""; 0]).over(store).source(&page(origin.url(), "")).start();
        origin.wait_for_requests(3);
        *version.lock().unwrap() = 2;
        wait_read(&gateway, 2, 1, 0);
        let asked: Vec<_> = origin.requests().iter().map(|r| r.field("If-None-Match").map(str::to_owned)).collect();
        assert_eq!(asked[..3], [None, Some("\"v1\"".to_owned()), Some("\"v1\"".to_owned())]);
        assert_eq!(told(&gateway).len(), 2, "what has not changed is not told");
    });
}

/// A page that answers with an error, breaks off, hangs or is too long is no reason to forget anything; the pauses grow.
#[test]
fn a_page_that_goes_wrong_takes_nothing_out_of_the_pool() {
    on_both_stores(|store| {
        let upstream = Upstream::ok("still here");
        let (shelf, origin) = Shelf::serve(ok(format!("{}\n127.0.0.1:1\n", upstream.address())));
        let more = "gone = \"remove\"\ntimeout = \"500ms\"\nmax_bytes = 1000\nmax_members = 3";
        let gateway = Setup::of([""; 0]).over(store).source(&page(origin.url(), more)).start();
        wait_read(&gateway, 2, 2, 0);
        shelf.put("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
        wait_told(&gateway, "the answer was 500");
        let before = origin.requests().len();
        origin.wait_for_requests(before + 2);
        assert_eq!(gateway.log().matches("the answer was 500").count(), 1, "told once");
        shelf.put("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n127.0.0.1:2\n");
        wait_told(&gateway, "the connection ended before");
        shelf.put("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na:1\n\r\n");
        eventually(PATIENCE, "a fourth trouble", || told(&gateway).len() >= 3);
        shelf.put(ok("127.0.0.1:2\n".repeat(100)));
        wait_told(&gateway, "it is longer than 1000 bytes");
        shelf.put(ok("127.0.0.1:2\n127.0.0.1:3\n127.0.0.1:4\n127.0.0.1:5\n"));
        wait_told(&gateway, "it has more than max_members = 3 proxies, so nothing is removed");
        shelf.put("HTTP/1.1 204 No Content\r\n\r\n");
        wait_told(&gateway, "it is empty, so nothing is removed");
        let lines = told(&gateway);
        assert!(lines.iter().all(|line| line.contains("removed=0 ")), "{lines:#?}");
        shelf.put(ok(format!("{}\n", upstream.address())));
        let line = wait_told(&gateway, "INFO read a list source=\"list\" taken=1 added=0 removed=");
        assert!(!line.contains("removed=0 "), "{line}");
        assert!(is_served(&gateway));
    });
}

/// Neither a server that says nothing nor one that cannot be reached keeps the gateway from serving.
#[test]
fn a_gateway_starts_without_its_sources() {
    let (silent, unreachable, upstream) = (Upstream::silent(), Unreachable::new(), Upstream::ok("configured"));
    let missing = List::of("");
    missing.delete();
    let gateway = Setup::of([upstream.url()])
        .source(&format!("url = {:?}", silent.url()))
        .source(&format!("url = {:?}", unreachable.url()))
        .source(&missing.source("every = \"24h\""))
        .start();
    assert!(is_served(&gateway));
    wait_told(&gateway, "No such file");
    missing.rewrite("127.0.0.1:1\n");
    wait_read(&gateway, 1, 1, 0);
}

#[test]
fn a_page_is_fetched_through_the_proxy_that_is_named() {
    let proxy = Server::tinyproxy("user", SECRET);
    let (_shelf, origin) = Shelf::serve(ok("127.0.0.1:1\n"));
    let via = format!("via = \"http://user:{SECRET}@{}\"", proxy.address());
    let gateway = Setup::of([""; 0]).source(&page(origin.url(), &via)).start();
    wait_read(&gateway, 1, 1, 0);
    assert!(origin.requests()[0].field("Via").is_some_and(|via| via.contains("tinyproxy")));
    assert!(!gateway.finish().contains(SECRET));
}

/// Two sources share a member, and another is configured: each leaves only when nobody names it any more.
#[test]
fn a_member_that_somebody_else_names_stays() {
    on_both_stores(|store| {
        let upstream = Upstream::ok("shared");
        let (one, two) = (List::of(format!("{}\n127.0.0.1:1\n127.0.0.1:2", upstream.url())), List::of(upstream.url()));
        let two_lines = two.source("gone = \"remove\"").replace("\"list\"", "\"two\"");
        let gateway =
            Setup::of(["127.0.0.1:1"]).over(store).source(&one.source("gone = \"remove\"")).source(&two_lines).start();
        eventually(PATIENCE, "both", || gateway.log().matches("read a list").count() == 2);
        one.rewrite("127.0.0.1:3");
        wait_read(&gateway, 1, 1, 1);
        assert!((0..3).any(|_| is_served(&gateway)));
        two.rewrite("127.0.0.1:4");
        eventually(PATIENCE, "two", || gateway.log().contains("source=\"two\" taken=1 added=1 removed=1 "));
        if let Store::Redis(redis) = store {
            assert_eq!(members(redis), ["127.0.0.1:1", "127.0.0.1:3", "127.0.0.1:4"]);
        }
    });
}

/// Gateways on one Redis read the same list, one after the other and at the same time; a new one knows what an old one took.
#[test]
fn gateways_that_share_a_pool_share_what_a_list_named() {
    let redis = Redis::start();
    let list = List::of("127.0.0.1:1\n127.0.0.1:2\n127.0.0.1:3\n");
    let setup = Setup::of([""; 0]).redis(&redis).source(&list.source("gone = \"remove\""));
    let first = setup.start();
    wait_read(&first, 3, 3, 0);
    redis.cmd(&["ZINCRBY", KEY, "5", "127.0.0.1:1"]);
    redis.cmd(&["ZREM", KEY, "127.0.0.1:2"]);
    let second = setup.start();
    wait_read(&second, 3, 0, 0);
    assert_eq!(redis.scores(KEY).len(), 2, "what was taken out by hand stays out");
    list.rewrite("127.0.0.1:1\n127.0.0.1:4\n");
    for gateway in [&first, &second] {
        eventually(PATIENCE, "its reading", || told(gateway).len() == 2);
    }
    let sum = |field: &str| -> u64 { [&first, &second].iter().map(|gateway| number(&told(gateway)[1], field)).sum() };
    assert_eq!((sum("added"), sum("removed")), (1, 1), "each is done by one of them");
    assert_eq!(members(&redis), ["127.0.0.1:1", "127.0.0.1:4"]);
    drop((first, second));
    // While nobody was there to see it.
    list.rewrite("127.0.0.1:1\n");
    let third = setup.start();
    wait_read(&third, 1, 0, 1);
    assert_eq!(redis.scores(KEY), [(b"127.0.0.1:1".to_vec(), "5".to_owned())]);
}

fn number(line: &str, field: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(&format!("{field}=")));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{field} in {line}"))
}

/// `pool park` lasts, whatever lists say.
#[test]
fn who_was_parked_stays_so_and_a_lost_pool_is_filled_again() {
    let redis = Redis::start();
    let list = List::of("127.0.0.1:1\n127.0.0.1:2\n");
    let gateway = Setup::of([""; 0]).redis(&redis).source(&list.source("every = \"1s\"")).start();
    wait_read(&gateway, 2, 2, 0);
    let park = ["pool", "park", "127.0.0.1:1", "--store", &redis.url()];
    assert!(program().args(park).status().expect("the program runs").success());
    list.rewrite("127.0.0.1:1\n127.0.0.1:2\n127.0.0.1:3\n");
    wait_read(&gateway, 3, 1, 0);
    assert_eq!(members(&redis), ["127.0.0.1:2", "127.0.0.1:3"]);
    redis.cmd(&["FLUSHALL"]);
    eventually(PATIENCE, "everyone", || members(&redis).len() == 3);
}

/// A reading that is under way, of a page that never ends or a list of any length, does not hold up the end.
#[test]
fn a_signal_during_a_reading_ends_the_gateway_at_once() {
    let endless = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        (0_u64..).try_for_each(|n| -> io::Result<()> { conn.send(format!("h{n}.test:80\n")) })
    });
    on_both_stores(|store| {
        let mut gateway =
            Setup::of([""; 0]).over(store).source(&page(endless.url(), "max_members = 100000000")).start();
        let started = Instant::now();
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.wait_exit(PATIENCE).code(), Some(0));
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    });
}

/// Redis goes away in the middle of a list and comes back empty.
#[test]
fn a_store_that_was_away_gets_the_whole_list() {
    let mut redis = Redis::stopped();
    let list = List::of("127.0.0.1:1\n127.0.0.1:2\n");
    let gateway = Setup::of([""; 0]).redis(&redis).source(&list.source("every = \"24h\"")).start();
    wait_told(&gateway, "the pool's store does not take it: cannot reach Redis");
    redis.restart();
    wait_read(&gateway, 2, 2, 0);
}

#[test]
fn check_says_which_file_is_not_there_yet_and_where_names_start_from() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("c.toml");
    std::fs::write(&config, "[[pool.sources]]\nfile = 'there.txt'\n[[pool.sources]]\nfile = 'missing.txt'\n").unwrap();
    std::fs::write(dir.path().join("there.txt"), "").unwrap();
    let output = program().args(["check", "--config"]).arg(&config).current_dir("/").output().unwrap();
    let (said, warned) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), &*said), (Some(0), "the configuration is valid\n"));
    assert_eq!(warned.lines().count(), 1, "{warned}");
    assert!(
        warned.starts_with("warning: pool.sources \"missing.txt\": ") && warned.contains("No such file"),
        "{warned}"
    );
}
