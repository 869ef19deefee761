//! A secret planted in every kind of member is told to that member's proxy, kept in the pool, and shown nowhere.

use std::process::Output;

use crate::support::client::Client;
use crate::support::gateway::{KEY, Setup, program};
use crate::support::proxy::{PROXIES, Proxy, SECRET, serve, whole};
use crate::support::redis::Redis;
use crate::support::upstream::{Refusing, Upstream};
use crate::support::wire::Message;

/// As written, and as Basic credentials in base64 (`u:s3cretPlanted`, its last letters aside).
const FORMS: [&str; 3] = [SECRET, "dTpzM2NyZXRQbGFudGV", "s3cret"];

fn assert_hidden(text: &str, place: &str) {
    for form in FORMS {
        assert!(!text.contains(form), "{place} shows {form}: {text}");
    }
}

/// A GET, a PUT, a CONNECT and an upgrade to this target.
fn requests(target: &str) -> [String; 4] {
    [
        format!("GET http://{target}/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"),
        format!("PUT http://{target}/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"),
        format!("CONNECT {target} HTTP/1.1\r\nHost: h\r\n\r\n"),
        format!("GET http://{target}/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"),
    ]
}

/// Everything that a client is sent for this request.
fn answer(mut client: Client, request: &str) -> String {
    let head = client.send(request).head();
    let is_tunnel = head.status() == 101 || (head.status() == 200 && request.starts_with("CONNECT"));
    let answer = if is_tunnel { Message { head, ..Message::default() } } else { client.body_of(head, "GET") };
    format!("{:?} {}", answer.head, answer.text())
}

/// Members that fail in every way, and some that are no members at all.
fn failing(refusing: &Refusing) -> Vec<String> {
    let (nowhere, port) = ("nowhere.invalid:1", refusing.address().port());
    let mut members = Vec::new();
    for scheme in ["http", "https", "socks5", "socks5h"] {
        members.push(format!("{scheme}://u:{SECRET}@{nowhere}"));
        members.push(format!("{scheme}://u:{SECRET}@127.0.0.1:{port}"));
        members.push(format!("{scheme}://{SECRET}@127.0.0.1:{port}"));
        members.push(format!("{scheme}://{SECRET}:@127.0.0.1:{port}"));
        members.push(format!("{scheme}://u:{SECRET}@127.0.0.1:{port}|socks4://{SECRET}@{nowhere}"));
    }
    for scheme in ["socks4", "socks4a"] {
        members.push(format!("{scheme}://{SECRET}@{nowhere}"));
        members.push(format!("{scheme}://{SECRET}@127.0.0.1:{port}"));
    }
    members
}

const UNUSABLE: [&str; 17] = [
    "http://u:SECRET@h:99999",
    "http://u:SECRET@h:port",
    "http://u:SECRET@h",
    "http://u:SECRET%@h:80",
    "http://u:SECRET/@h:80",
    "http://u:x@SECRET h:80",
    "https://u:SECRET@h:443?insecure=yes",
    "https://u:SECRET@h:443?sni=a..b",
    "https://u:SECRET@h:443?SECRET",
    "socks4://u:SECRET@h:1080",
    "socks5://u:SECRET@h:1080?insecure=1",
    "ftp://u:SECRET@h:21",
    "direct://u:SECRET@10.0.0.7",
    "http://u:SECRET@h:80|direct://",
    "10.0.0.7:3128:u:SECRET",
    "u:SECRET:10.0.0.7:3128",
    "10.0.0.7,3128,u,SECRET",
];

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_secret_of_a_member_shows_nowhere() {
    let redis = Redis::start();
    let (origin, refusing) = (Upstream::start(serve), Refusing::new());
    let working = PROXIES.map(|kind| Proxy::relaying(kind, whole, None));
    let unusable = UNUSABLE.map(|text| text.replace("SECRET", SECRET));
    let usable: Vec<_> = working.iter().map(|proxy| proxy.member.clone()).chain(failing(&refusing)).collect();
    let gateway = Setup::of(usable.clone())
        .redis(&redis)
        .set("log.requests", true)
        .set("retry.attempts", 1)
        .set("health.park_after", 0)
        .set("gateway.via", true)
        .admin()
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "1")
        .start();
    for member in &unusable {
        redis.cmd(&["ZADD", KEY, "0", member]);
    }
    let target = origin.address().to_string();
    let mut answers = String::new();
    // As many requests of one kind as there are members, and nobody set aside for failing: each member meets each kind.
    for request in requests(&target) {
        for _ in &usable {
            answers += &answer(gateway.client(), &request);
        }
    }
    assert_hidden(&answers, "an answer");
    for line in ["200 OK", "101 ", "connection_refused", "dns_error"] {
        assert!(answers.contains(line), "no {line} among the answers");
    }
    for (args, place) in [(&["list"][..], "pool list"), (&["list", "--json"], "pool list --json")] {
        let output = program().arg("pool").args(args).args(["--store", &redis.url()]).output().unwrap();
        let text = text(&output);
        assert_hidden(&text, place);
        // All are there, and who was set aside with the reason.
        assert!(output.status.success() && text.matches("***").count() >= usable.len(), "{text}");
        assert!(text.contains("port 99999 is not a port"), "{text}");
    }
    assert_hidden(gateway.ask_admin("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text(), "a metric");
    let log = gateway.finish();
    assert!(log.contains("set a pool member aside") && log.contains("DEBUG"), "{log}");
    assert_hidden(&log, "the log");
}

/// Wherever members are given to the program, and whatever is wrong with them.
#[test]
fn a_secret_shows_in_no_message_about_a_configuration_or_a_list() {
    let (redis, refusing) = (Redis::start(), Refusing::new());
    let unusable = UNUSABLE.map(|text| text.replace("SECRET", SECRET));
    let all: Vec<_> = failing(&refusing).into_iter().chain(unusable.clone()).collect();
    let dir = tempfile::tempdir().unwrap();
    let (config, list) = (dir.path().join("gateway.toml"), dir.path().join("list.txt"));
    std::fs::write(&config, format!("pool.proxies = {all:?}\npool.key = {:?}\n", all[0])).unwrap();
    std::fs::write(&list, all.join("\n")).unwrap();
    let (config, list) = (config.to_str().unwrap(), list.to_str().unwrap());
    let store = redis.url();
    let mut runs: Vec<(Vec<&str>, i32)> = vec![
        (vec!["check", "--config", config], 78),
        // A line that cannot be used is warned of.
        (vec!["check", "--proxies", list], 0),
        (vec!["pool", "import", list, "--store", &store], 0),
        (vec!["pool", "import", list, "--store", &store, "--json"], 0),
    ];
    for member in &unusable {
        runs.push((vec!["check", "--proxy", member], 78));
        // A word alone could be anything.
        if member.contains(':') {
            runs.push((vec!["check", "--listen", member], 78));
        }
        runs.push((vec!["pool", "add", member, "--store", &store], 64));
    }
    for (args, code) in runs {
        let output = program().args(&args).current_dir(dir.path()).output().unwrap();
        let told = text(&output);
        assert_hidden(&told, &format!("{args:?}"));
        assert!(!told.is_empty());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
    }
    let variable = program().arg("check").env("EVENKEEL_POOL__PROXIES", format!("{unusable:?}")).output().unwrap();
    assert_hidden(&text(&variable), "EVENKEEL_POOL__PROXIES");
    assert_eq!(variable.status.code(), Some(78));
}
