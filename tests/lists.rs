//! Lists of proxies, as people have them, through the real program into a real pool.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gateway::{Gateway, KEY, program, run};
use crate::support::redis::{Redis, Reply};
use crate::support::servers::Server;
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

const SECRET: &str = "s3cretPlanted";

fn code(output: &Output) -> i32 {
    output.status.code().expect("an exit code")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder with a list in it.
fn list(name: &str, content: impl AsRef<[u8]>) -> TempDir {
    let dir = tempfile::tempdir().expect("a scratch folder");
    std::fs::write(dir.path().join(name), content).expect("a written file");
    dir
}

fn import_in(dir: &Path, redis: &Redis, args: &[&str]) -> Output {
    let store = redis.url();
    let args = [&["pool", "import"], args, &["--store", &store]].concat();
    program().args(args).current_dir(dir).output().expect("the program runs")
}

/// What a list of this content gives: standard output, standard error, and the members in their order. No secret is shown.
fn import(content: impl AsRef<[u8]>, args: &[&str]) -> (String, String, Vec<String>) {
    let redis = Redis::start();
    let dir = list("list", content);
    let output = import_in(dir.path(), &redis, &[&["list"], args].concat());
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!(out.clone() + &err).contains(SECRET), "{out}{err}");
    (out, err, members(&redis))
}

fn members(redis: &Redis) -> Vec<String> {
    redis.scores(KEY).into_iter().map(|(member, _)| text(&member)).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip");
    let mut input = child.stdin.take().expect("piped");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes).expect("it reads"));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("written");
    output.stdout
}

#[test]
fn a_list_goes_in_without_editing_and_each_line_that_does_not_says_why() {
    let content = format!(
        "\u{feff}# bought today\r\nhttp://10.0.0.1:3128\r\n10.0.0.2:3128:user:{SECRET}\r\nuser:{SECRET}:10.0.0.3:3128\r\n\
         user:{SECRET}@10.0.0.4:3128\r\n10.0.0.5:3128@user:{SECRET}\r\n\r\nsocks5h://user:{SECRET}@[2001:db8::1]:1080 # ours\r\n\
         10.0.0.1:99999:user:{SECRET}\r\n10.0.0.1:3128:10.0.0.2:3128\r\nuser:{SECRET}\r\n10.0.0.1:3128\r\n\
         socks5 10.0.0.6 1080 user {SECRET}\r\n"
    );
    let (out, err, members) = import(content, &[]);
    assert_eq!(out, "added 7, already there 0, skipped 3, repeated 1\n");
    let order = "could be host:port:user:password or user:password:host:port; write user:password@host:port, or a first line that \
                 names the order";
    let expected = [
        "list:9: port 99999 is not a port (1 to 65535)".to_owned(),
        format!("list:10: {order}"),
        "list:11: is no proxy in any form there is; write [scheme://][user:password@]host:port".to_owned(),
        "list:12: the same proxy as line 2".to_owned(),
    ];
    assert_eq!(err.lines().collect::<Vec<_>>(), expected);
    let expected = [
        "http://10.0.0.1:3128".to_owned(),
        format!("http://user:{SECRET}@10.0.0.2:3128"),
        format!("http://user:{SECRET}@10.0.0.3:3128"),
        format!("http://user:{SECRET}@10.0.0.5:3128"),
        format!("socks5://user:{SECRET}@10.0.0.6:1080"),
        format!("socks5h://user:{SECRET}@[2001:db8::1]:1080"),
        format!("user:{SECRET}@10.0.0.4:3128"),
    ];
    assert_eq!(members, expected);
}

#[test]
fn tables_json_and_packed_lists_go_in() {
    let expected = ["http://10.0.0.1:3128".to_owned(), format!("socks5://user:{SECRET}@10.0.0.2:1080")];
    let csv = format!(
        "IP,Port,Type,Username,Password,Country\n10.0.0.1,3128,HTTP,,,DE\n10.0.0.2,1080,socks5,user,\"{SECRET}\",US\n"
    );
    let json = format!(
        r#"{{"data": [{{"ip": "10.0.0.1", "port": 3128, "protocols": ["http", "https"]}},
        {{"host": "10.0.0.2", "port": "1080", "protocol": "socks5", "username": "user", "password": "{SECRET}"}}], "total": 2}}"#
    );
    let lines =
        format!("{{\"proxy\": \"http://10.0.0.1:3128\"}}\n{{\"proxy\": \"socks5://user:{SECRET}@10.0.0.2:1080\"}}\n");
    let utf16: Vec<u8> = format!("\u{feff}{csv}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for content in [
        gzip(csv.as_bytes()),
        csv.replace(',', ";").into(),
        csv.replace(',', "\t").into(),
        json.clone().into(),
        gzip(json.as_bytes()),
        lines.into(),
        utf16,
    ] {
        let (out, err, members) = import(&content, &[]);
        assert_eq!((&*out, &*err), ("added 2, already there 0, skipped 0\n", ""), "{}", text(&content));
        assert_eq!(members, expected);
    }
    let (out, err, _) = import(r#"[{"ip": "10.0.0.1", "port": 99999}, {"ip": "10.0.0.1", "port": 80}]"#, &[]);
    assert_eq!(out, "added 1, already there 0, skipped 1\n");
    assert_eq!(err, "list:1: entry 1: port 99999 is not a port (1 to 65535)\n");
}

#[test]
fn a_list_may_say_what_is_spoken_and_what_was_taken_is_said_when_asked() {
    let content = format!("10.0.0.1:1080\nhttp://10.0.0.2:3128\n10.0.0.3:1080:user:{SECRET}\n");
    let (out, err, members) = import(content, &["--scheme", "socks5h", "--verbose"]);
    assert_eq!(out, "added 3, already there 0, skipped 0\n");
    let expected = "list:1: taken as socks5h://10.0.0.1:1080\nlist:2: taken as http://10.0.0.2:3128\n\
                    list:3: taken as socks5h://user:***@10.0.0.3:1080\n";
    assert_eq!(err, expected);
    let expected =
        ["http://10.0.0.2:3128", "socks5h://10.0.0.1:1080", &format!("socks5h://user:{SECRET}@10.0.0.3:1080")];
    assert_eq!(members, expected);
    let output = run(&["pool", "import", "list", "--scheme", "ftp"]);
    assert!(code(&output) == 64 && text(&output.stderr).contains("socks5h"), "{}", text(&output.stderr));
}

#[test]
fn totals_are_json_when_asked_and_count_what_was_there_or_set_aside() {
    let redis = Redis::start();
    let dir = list("list", "10.0.0.1:80\n10.0.0.2:80\n10.0.0.2:80\n10.0.0.3:80\nx\n");
    redis.cmd(&["ZADD", KEY, "7", "10.0.0.1:80"]);
    let output = import_in(dir.path(), &redis, &["list", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told, json!({"added": 2, "known": 1, "skipped": 1, "repeated": 1}));
    assert_eq!(redis.scores(KEY)[0].1, "7", "counts that exist are kept, and newcomers begin at the lowest");
    let output = run(&["pool", "park", "10.0.0.3:80", "--store", &redis.url()]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let output = import_in(dir.path(), &redis, &["list"]);
    assert_eq!(text(&output.stdout), "added 0, already there 3, skipped 1, repeated 1\n");
    assert!(text(&output.stderr).contains("1 of them set aside, and stay so"), "{}", text(&output.stderr));
}

#[test]
fn a_list_of_many_calls_arrives_whole_and_of_many_bad_lines_a_thousand_are_shown() {
    let mut content = String::new();
    for n in 0..25_000 {
        let _ = writeln!(content, "10.{}.{}.{}:3128", n >> 16, (n >> 8) & 255, n & 255);
        if n % 10 == 0 {
            let _ = writeln!(content, "10.0.0.0:{}", 70_000 + n);
        }
    }
    let (out, err, members) = import(&content, &[]);
    assert_eq!(out, "added 25000, already there 0, skipped 2500\n");
    assert_eq!(members.len(), 25_000);
    let lines: Vec<_> = err.lines().collect();
    assert_eq!(lines.len(), 1_002);
    assert_eq!(lines[999], "list:10991: port 79990 is not a port (1 to 65535)");
    assert_eq!(lines[1_000..], ["list: and 1500 more:", "list: 1500 times: its port is not a number from 1 to 65535"]);
}

#[test]
fn what_is_exported_can_be_imported() {
    let (from, to) = (Redis::start(), Redis::start());
    let members = [
        "10.0.0.1:3128".to_owned(),
        "HTTPS://Gate.Example:443/?insecure=1&weight=3".to_owned(),
        format!("socks5h://us%40er:{SECRET}%2C%22x@[2001:db8::1]:1080"),
        format!("http://a,b;c:{SECRET}\"'@10.0.0.2:80"),
        "http://a:1|socks5h://u:p@b:1080".to_owned(),
        "direct://198.51.100.7".to_owned(),
        "u:p@proxy:80".to_owned(),
    ];
    // Those that a list would take for a comment, or read the other way round.
    let odd = [";u:p@10.0.0.3:80", "10.0.0.4:8080@user:1234"];
    for member in members.iter().map(String::as_str).chain(odd) {
        from.cmd(&["ZADD", KEY, "0", member]);
    }
    from.cmd(&["ZADD", KEY, "0", &format!("http://u:{SECRET}@broken")]);
    let output = run(&["pool", "export", "--store", &from.url()]);
    assert!(
        text(&output.stderr).contains("left out, since it is no proxy URL: http://")
            && !text(&output.stderr).contains(SECRET)
    );
    for exported in [output.stdout.clone(), run(&["pool", "export", "--json", "--store", &from.url()]).stdout] {
        let is_json = exported.starts_with(b"[");
        let dir = list("list", exported);
        let output = import_in(dir.path(), &to, &["list"]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(
            out,
            if is_json { "added 0, already there 9, skipped 1\n" } else { "added 9, already there 0, skipped 0\n" },
            "{err}"
        );
    }
    let mut expected: Vec<_> = members.into_iter().chain(odd.map(|member| format!("http://{member}"))).collect();
    expected.sort();
    assert_eq!(self::members(&to), expected);
}

#[test]
fn a_list_that_cannot_be_read_to_its_end_gives_what_it_has() {
    let redis = Redis::start();
    let whole = gzip((0..2_000).map(|n| format!("10.0.{}.{}:80\n", n >> 8, n & 255)).collect::<String>().as_bytes());
    let dir = list("cut.gz", &whole[..whole.len() - 100]);
    let output = import_in(dir.path(), &redis, &["cut.gz"]);
    assert_eq!(code(&output), 66);
    let err = text(&output.stderr);
    assert!(err.starts_with("cannot read cut.gz: its gzip is damaged: "), "{err}");
    let count = members(&redis).len();
    assert!(count > 0 && count < 2_000, "{count}");
    assert_eq!(text(&output.stdout), format!("added {count}, already there 0, skipped 0\n"));

    for (name, content, why) in [
        ("absent", None, "cannot read absent: No such file"),
        (".", None, "cannot read .: Is a directory"),
        ("page", Some(&b"<!DOCTYPE html><html>"[..]), "cannot read page: it is a web page, not a list"),
        ("list.xlsx", Some(b"PK\x03\x04xxxx"), "cannot read list.xlsx: it is a zip archive or a spreadsheet"),
    ] {
        if let Some(content) = content {
            std::fs::write(dir.path().join(name), content).expect("a written file");
        }
        let output = import_in(dir.path(), &redis, &[name]);
        assert_eq!(code(&output), 66, "{name}");
        assert!(text(&output.stderr).starts_with(why), "{}", text(&output.stderr));
        let output = program().args(["check", "--proxies", name]).current_dir(dir.path()).output().expect("it runs");
        assert_eq!(code(&output), 66, "{name}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

/// An import that reads what the test writes.
fn import_from_pipe(redis: &Redis, args: &[&str]) -> Child {
    let mut command = program();
    command.args(["pool", "import", "-", "--store", &redis.url()]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

#[test]
fn a_store_that_goes_away_ends_the_import_although_the_list_goes_on() {
    let mut redis = Redis::start();
    let mut child = import_from_pipe(&redis, &[]);
    let mut input = child.stdin.take().expect("piped");
    let lines =
        |from: u32, to: u32| (from..to).map(|n| format!("10.0.{}.{}:80\n", n >> 8, n & 255)).collect::<String>();
    input.write_all(lines(0, 3_000).as_bytes()).expect("it reads");
    let started = Instant::now();
    while redis.int(&["ZCARD", KEY]) < 3_000 {
        assert!(started.elapsed() < PATIENCE, "chunks are not stored while the list goes on");
        std::thread::sleep(Duration::from_millis(5)); // between two looks
    }
    redis.stop();
    input.write_all(lines(3_000, 6_000).as_bytes()).expect("it reads");
    // Standard input stays open.
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(code(&output), 69, "{}", text(&output.stderr));
    let err = text(&output.stderr);
    assert!(err.contains("added 3000, already there 0 until then; importing it again does no harm"), "{err}");
    drop(input);
}

#[test]
fn memory_does_not_grow_with_the_list() {
    let redis = Redis::start();
    let mut child = import_from_pipe(&redis, &[]);
    let mut list = child.stdin.take().expect("piped");
    let mut told = child.stderr.take().expect("piped");
    let told = std::thread::spawn(move || {
        let mut text = String::new();
        told.read_to_string(&mut text).map(|_| text)
    });
    // 12 MB: the same thousand proxies, lines that are too long, and lines that are nothing.
    let block = (0..1_000).map(|n| format!("10.0.{}.{}:3128:user:{SECRET}{}\n", n >> 8, n & 255, "x".repeat(40)));
    let block = block.collect::<String>() + &"y".repeat(200_000) + "\n" + &"z\n".repeat(1_000);
    let mut written = 0;
    while written < 12 << 20 {
        list.write_all(block.as_bytes()).expect("it reads");
        written += block.len();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a running process");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a size").trim();
    let peak: u64 = peak.trim_end_matches(" kB").parse().expect("a number");
    assert!(peak < 48 << 10, "{peak} kB");
    drop(list);
    let out = text(&child.wait_with_output().expect("it ends").stdout);
    assert!(out.starts_with("added 1000, already there 0, skipped "), "{out}");
    let told = told.join().expect("a thread").expect("text");
    assert!(told.contains("times: is longer than 65536 bytes") && !told.contains(SECRET), "{told}");
}

#[test]
fn a_list_of_the_command_line_warns_of_what_it_skips_and_the_gateway_serves() {
    let upstreams = [Upstream::ok("one"), Upstream::ok("two")];
    let address = upstreams[1].address();
    let content = format!(
        "{}\n10.0.0.1:99999:user:{SECRET}\nnonsense {SECRET}\n{{\"ip\": \"{}\", \"port\": {}}}\n",
        upstreams[0].url(),
        address.ip(),
        address.port()
    );
    let dir = list("proxies.txt", content);
    let mut command = program();
    command.args(["--listen", "127.0.0.1:0", "--proxies", "proxies.txt"]).current_dir(dir.path());
    let gateway = Gateway::spawn(command, dir);
    let mut client = gateway.client();
    let mut bodies: Vec<_> = (0..2).map(|_| client.get("http://origin.test/").text().to_owned()).collect();
    bodies.sort();
    assert_eq!(bodies, ["one", "two"]);
    let log = gateway.finish();
    assert!(log.contains("WARN proxies.txt:2: port 99999 is not a port (1 to 65535)"), "{log}");
    assert!(log.contains("WARN proxies.txt:3: is no proxy in any form there is"), "{log}");
    assert!(log.contains("list=\"proxies.txt\" taken=2 repeated=0 skipped=2"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn a_list_of_the_command_line_may_say_what_is_spoken() {
    let socks = Server::microsocks("user", SECRET);
    let origin = Upstream::ok("from the origin");
    let address = socks.address();
    let dir = list("proxies.txt", format!("{}:{}:user:{SECRET}\n", address.ip(), address.port()));
    let mut command = program();
    command
        .args(["--listen", "127.0.0.1:0", "--proxies", "proxies.txt", "--scheme", "socks5h"])
        .current_dir(dir.path());
    let gateway = Gateway::spawn(command, dir);
    assert_eq!(gateway.client().get(&origin.url()).text(), "from the origin");
    assert_eq!(code(&run(&["check", "--scheme", "socks5h"])), 64, "it is for lists");
}

#[test]
fn a_list_comes_from_the_web_directly_or_through_a_proxy() {
    let body = gzip(format!("10.0.0.1:80\n10.0.0.2:99999\n10.0.0.3:80:user:{SECRET}\n").as_bytes());
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let page = Upstream::answering([head.as_bytes(), &body].concat());
    let url = format!("http://user:{SECRET}@{}/list.gz?key={SECRET}", page.address());
    let shown = format!("http://***@{}/list.gz?***", page.address());
    let redis = Redis::start();
    let output = run(&["pool", "import", &url, "--store", &redis.url()]);
    let err = text(&output.stderr);
    assert_eq!((code(&output), &*text(&output.stdout)), (0, "added 2, already there 0, skipped 1\n"), "{err}");
    assert_eq!(err, format!("{shown}:2: port 99999 is not a port (1 to 65535)\n"));
    assert_eq!(redis.int(&["ZCARD", KEY]), 2);

    let proxy = Server::tinyproxy("user", SECRET);
    let via = format!("http://user:{SECRET}@{}", proxy.address());
    let output = run(&["pool", "import", &url, "--via", &via, "--store", &redis.url()]);
    let err = text(&output.stderr);
    assert_eq!((code(&output), &*text(&output.stdout)), (0, "added 0, already there 2, skipped 1\n"), "{err}");
    assert!(!err.contains(SECRET), "{err}");

    let absent = Upstream::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let output = run(&["pool", "import", &absent.url(), "--store", &redis.url()]);
    let err = text(&output.stderr);
    assert!(code(&output) == 66 && err.starts_with("cannot fetch ") && err.contains("404"), "{err}");
    let cut = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n10.0.0.9:80\n10.0.0.");
    let output = run(&["pool", "import", &cut.url(), "--store", &redis.url()]);
    let err = text(&output.stderr);
    assert!(code(&output) == 66 && err.contains("cannot fetch "), "{err}");
    assert_eq!(text(&output.stdout), "added 1, already there 0, skipped 0\n", "{err}");
    for args in [&["list", "--via", "10.0.0.1:80"][..], &["http://", "--via", "x"], &["http://[x"]] {
        let output = run(&[&["pool", "import"], args, &["--store", &redis.url()]].concat());
        assert_eq!(code(&output), 64, "{args:?}: {}", text(&output.stderr));
    }
    assert!(matches!(redis.cmd(&["PING"]), Reply::Simple(_)));
}
