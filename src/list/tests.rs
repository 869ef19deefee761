mod lines;

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::member::{Kind, Member};

/// What a list gives: members as they are, `~` and the earlier place, or `!` and the reason, each behind its place.
fn read_as(bytes: &[u8], scheme: Option<Protocol>) -> Vec<String> {
    let show = |line: io::Result<Line>| {
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        let place = line.entry.map_or_else(|| line.line.to_string(), |entry| format!("{}.{entry}", line.line));
        match &line.outcome {
            Outcome::Taken(listed) => format!("{place} {}", String::from_utf8_lossy(listed.member.name())),
            Outcome::Repeated(before) => format!("{place} ~{before}"),
            Outcome::Skipped(reason) => format!("{place} !{reason:?}"),
        }
    };
    List::new(bytes, scheme).map(show).collect()
}

fn read(text: &str) -> Vec<String> {
    read_as(text.as_bytes(), None)
}

fn error(bytes: &[u8]) -> String {
    List::new(bytes, None).find_map(Result::err).expect("an error").to_string()
}

#[test]
fn a_list_is_read_line_by_line_whatever_ends_them() {
    let lines =
        ["# mine", "", "10.0.0.7:3128", "; theirs", "http://10.0.0.8:3128  ", "// ours", "\u{200b}socks5://h:1\t# x"];
    let expected = ["3 10.0.0.7:3128", "5 http://10.0.0.8:3128", "7 socks5://h:1"];
    for end in ["\n", "\r\n", "\r"] {
        for begin in ["", "\u{feff}"] {
            for last in ["", end] {
                assert_eq!(read(&(begin.to_owned() + &lines.join(end) + last)), expected, "{end:?}");
            }
        }
    }
    assert_eq!(read(""), [""; 0]);
    assert_eq!(read("\n\n \n#"), [""; 0]);
}

#[test]
fn one_bad_line_costs_no_other() {
    let long = "x".repeat(70_000);
    let lines: [&[u8]; 9] = [
        b"10.0.0.1:80",
        b"10.0.0.2:99999",
        b"10.0.0.3:\xff80",
        b"10.0.0.4:80\0",
        long.as_bytes(),
        b"10.0.0.5:80\x1b[2J",
        b"\"10.0.0.6,80",
        b"{\"ip\": \"10.0.0.7\"",
        b"10.0.0.8:80",
    ];
    let expected = [
        "1 10.0.0.1:80",
        "2 !Port(99999)",
        "3 !NotUtf8",
        "4 !Zero",
        "5 !TooLong",
        "6 !Control",
        "7 !Quote",
        "8 !NotJson",
        "9 10.0.0.8:80",
    ];
    let read = read_as(&lines.join(&b'\n'), None);
    assert_eq!(read, expected);
}

#[test]
fn the_same_proxy_is_taken_once_however_it_is_written() {
    let text = "10.0.0.7:3128\nHTTP://10.0.0.7:3128/\nhttp://u:p@10.0.0.7:3128\n10.0.0.7:3128:u:p\nu:%70@10.0.0.7:3128\n\
                https://H:1?sni=h\nhttps://h:1\nsocks5://h:1\nsocks5h://h:1\nhttps://h:1?insecure=1\na:1|socks5://b:2\n\
                http://A:1|socks5://b:2\ndirect://\ndirect:///\n[::ffff:10.0.0.7]:3128\n";
    let expected = [
        "1 10.0.0.7:3128",
        "2 ~1",
        "3 http://u:p@10.0.0.7:3128",
        "4 ~3",
        "5 ~3",
        "6 https://H:1?sni=h",
        "7 ~6",
        "8 socks5://h:1",
        "9 socks5h://h:1",
        "10 https://h:1?insecure=1",
        "11 a:1|socks5://b:2",
        "12 ~11",
        "13 direct://",
        "14 ~13",
        "15 ~1",
    ];
    assert_eq!(read(text), expected);
}

#[test]
fn a_scheme_is_for_those_that_have_none() {
    let text = b"10.0.0.7:1080\n10.0.0.7,1081,http\n10.0.0.7:1082:u:p\nhttp://10.0.0.7:1083\n{\"ip\":\"10.0.0.7\",\"port\":1084}";
    let expected = [
        "1 socks5h://10.0.0.7:1080",
        "2 http://10.0.0.7:1081",
        "3 socks5h://u:p@10.0.0.7:1082",
        "4 http://10.0.0.7:1083",
        "5 socks5h://10.0.0.7:1084",
    ];
    assert_eq!(read_as(text, Some(Protocol::Socks5h)), expected);
    // Of "socks" it says which.
    let text = b"socks://10.0.0.7:1080\n10.0.0.7:1081 socks\nip,port,type\n10.0.0.7,1082,SOCKS\n";
    let expected = ["1 socks4://10.0.0.7:1080", "2 socks4://10.0.0.7:1081", "4 socks4://10.0.0.7:1082"];
    assert_eq!(read_as(text, Some(Protocol::Socks4)), expected);
    assert_eq!(read_as(text, None), ["1 !Version", "2 !Version", "4 !Version"]);
    assert_eq!(read_as(text, Some(Protocol::Http)), ["1 !Version", "2 !Version", "4 !Version"]);
}

#[test]
fn a_first_line_names_the_columns() {
    let expected = ["2 http://10.0.0.7:3128", "3 socks5://us%40er:p%2C%22w@10.0.0.8:1080", "4 !Port(99999)"];
    for text in [
        "ip,port,protocol,user,password\n10.0.0.7,3128,,,\n10.0.0.8,1080,SOCKS5,us@er,\"p,\"\"w\"\n10.0.0.9,99999,http,u,s3cret\n",
        "IP Address;Port;Country;Type;Login;Pass\n10.0.0.7;3128;DE;HTTP;;\n10.0.0.8;1080;DE;socks5;us@er;\"p,\"\"w\"\n10.0.0.9;99999",
        "password\tusername\tproxy\tscheme\n\t\t10.0.0.7:3128\thttp\n\"p,\"\"w\"\tus@er\t10.0.0.8:1080\tsocks5\n\t\t10.0.0.9:99999",
        "#Host,Port,Types,Username,Password,Anonymity\n10.0.0.7,3128,http,-,-,x\n10.0.0.8,1080,socks5,us@er,\"p,\"\"w\"\n10.0.0.9,99999",
        "port|host|protocols|user|pass\n3128|10.0.0.7|http,https||\n1080|10.0.0.8|socks4,socks5|us@er|\"p,\"\"w\"\n99999|10.0.0.9|http",
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
    // Spreadsheets that say what stands between cells, an empty first cell, another table behind.
    let text = "sep=;\ncountry;ip;port\n;10.0.0.7;3128\nip;port;login;pass\n10.0.0.8;3128;u;p";
    assert_eq!(read(text), ["3 http://10.0.0.7:3128", "5 http://u:p@10.0.0.8:3128"]);
    // The order of a list with colons.
    let text = "user:pass:ip:port\na.b:1234:c.d:5678\nx:p:q:10.0.0.7:1\nhttp://10.0.0.8:1\n";
    assert_eq!(read(text), ["2 http://a.b:1234@c.d:5678", "3 http://x:p%3Aq@10.0.0.7:1", "4 http://10.0.0.8:1"]);
    // Lines of a table that are written in another way.
    let text = "name,ip,port\nx,10.0.0.7,80\n10.0.0.8:80:u:p\n,,\n";
    assert_eq!(read(text), ["2 http://10.0.0.7:80", "3 http://u:p@10.0.0.8:80"]);
}

#[test]
fn a_quoted_cell_may_have_line_ends_and_one_that_is_not_closed_costs_a_line() {
    let text = "note,ip,port\n\"two\r\nlines, \"\"here\"\"\",10.0.0.7,80\r\nx,10.0.0.8,80";
    assert_eq!(read(text), ["2 http://10.0.0.7:80", "4 http://10.0.0.8:80"]);
    let text = "note,ip,port\n\"one,10.0.0.7,80\nx,10.0.0.8,80\n\"y\",10.0.0.9,80";
    assert_eq!(read(text), ["2 !Quote", "3 http://10.0.0.8:80", "4 http://10.0.0.9:80"]);
    // Not in a password.
    assert_eq!(read("ip,port,user,pass\n10.0.0.7,80,u,\"p\nq\"\n"), ["2 !Quote", "3 !Unknown"]);
}

#[test]
fn json_is_read_in_all_the_shapes_it_comes_in() {
    let expected = ["10.0.0.7:3128", "socks5://u:p@10.0.0.8:1080", "http://10.0.0.9:80", "http://[2001:db8::1]:80"];
    let entries = [
        r#""10.0.0.7:3128""#,
        r#"{"ip": "10.0.0.8", "port": "1080", "protocols": ["socks4", "socks5"], "username": "u", "password": "p", "x": [{}]}"#,
        r#"{"host": "10.0.0.9", "port": 80.0, "protocol": "http", "country": {"code": "DE"}, "username": null, "password": null}"#,
        r#"{"ip": "2001:db8::1", "port": 80, "type": "datacenter", "geolocation": {"country": "US", "city": "[{\"}"}}"#,
    ];
    let [a, b, c, d] = entries;
    for text in [
        format!("[{a},{b},{c},{d}]"),
        format!(" [\n  {a},\n  {b},\n  {c},\n  {d},\n]\n"),
        format!(r#"{{"status": "ok", "count": 4, "tags": {{}}, "data": [{a},{b},{c},{d}]}}"#),
        format!("{{\n\"proxies\": [\n{a},\n{b}],\n\"more\": {{\"proxies\": [{c},\n{d}]}}\n}}"),
        format!("[{{\"list\": [{a}, {b}]}}, [{c}, {d}]]"),
        format!("{a}\n{b}\n{c}\n{d}\n"),
        format!("// from an API\n{a},\n{b},\n{c},\n{d}"),
    ] {
        let read = read(&text);
        let members: Vec<_> = read.iter().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(members, expected, "{text}");
    }
    // As proxy6 has it, and one for each protocol.
    let text = r#"{"list": {"11": {"ip": "::1", "host": "10.0.0.7", "port": "80", "user": "u", "pass": "p", "type": "http"}, "12": {}}}"#;
    assert_eq!(read(text), ["1.1 http://u:p@10.0.0.7:80"]);
    let text = r#"{"http": ["10.0.0.7:80"], "socks5": ["10.0.0.7:80", {"ip": "10.0.0.8", "port": 80}]}"#;
    assert_eq!(read(text), ["1.1 http://10.0.0.7:80", "1.2 socks5://10.0.0.7:80", "1.3 socks5://10.0.0.8:80"]);
    // As ProxyBroker has it, and rows.
    let text = r#"[{"host": "10.0.0.7", "port": 80, "types": [{"type": "SOCKS5", "level": "High"}]}, ["10.0.0.8", 80, "u", "p"]]"#;
    assert_eq!(read(text), ["1.1 socks5://10.0.0.7:80", "1.2 http://u:p@10.0.0.8:80"]);
    // One alone.
    let text = "{\n\"proxy\": \"http://u:p@10.0.0.7:80\",\n\"ip\": \"10.9.9.9\"}";
    assert_eq!(read(text), ["1.1 http://u:p@10.0.0.7:80"]);
}

#[test]
fn an_entry_of_json_that_is_broken_costs_no_other() {
    let good = r#"{"ip": "10.0.0.7", "port": 80}"#;
    let other = r#"{"ip": "10.0.0.8", "port": 80}"#;
    for (text, expected) in [
        (format!("[{{\"ip\": 10.0.0.1, \"port\": 80}}, {good}]"), &["1.1 !NotJson", "1.2 http://10.0.0.7:80"][..]),
        (
            format!("[{{\"ip\": \"10.0.0.1, \"port\": 80}},\n{good},\n{other}]"),
            &["1.1 !NotJson", "2.2 http://10.0.0.7:80", "3.3 http://10.0.0.8:80"],
        ),
        (
            format!("[{{\"ip\": \"10.0.0.1\", \"port\": 80,\n{good},\n{other}]"),
            &["1.1 !NotJson", "2.2 http://10.0.0.7:80", "3.3 http://10.0.0.8:80"],
        ),
        (
            format!("{{\"data\": [{good}, nonsense, {other}]}}"),
            &["1.1 http://10.0.0.7:80", "1.2 !NotJson", "1.3 http://10.0.0.8:80"],
        ),
        (
            format!("[{good}, 17, null, {{\"port\": 80}}, {{}}, {other}"),
            &[
                "1.1 http://10.0.0.7:80",
                "1.2 !Unknown",
                "1.3 !Unknown",
                "1.4 !NoHost",
                "1.5 !NoHost",
                "1.6 http://10.0.0.8:80",
                "1.7 !Unclosed",
            ],
        ),
        (format!("[{good}, {{\"ip\": \"10.0.0"), &["1.1 http://10.0.0.7:80", "1.2 !Unclosed"]),
        (
            format!("[{good}, \"{}\", {other}]", "x".repeat(200_000)),
            &["1.1 http://10.0.0.7:80", "1.2 !TooLong", "1.3 http://10.0.0.8:80"],
        ),
        (format!("[\"\\ud800\", \"a\\u0000b:80\", {good}]"), &["1.1 !NotJson", "1.2 !Zero", "1.3 http://10.0.0.7:80"]),
        (r#"{"data": [], "total": 0}"#.to_owned(), &[]),
        (r#"{"result": {"data": [], "page": {"number": 1}}}"#.to_owned(), &[]),
        // What is in other places than where it is looked for.
        (r#"{"10.0.0.1:80": {"protocol": "http"}}"#.to_owned(), &["1.1 !NoHost"]),
        (
            format!(r#"[{{"id": 1, "connection": {{"connectIp": "10.0.0.1", "httpPort": 80}}}}, {good}]"#),
            &["1.1 !NoHost", "1.2 http://10.0.0.7:80"],
        ),
        ("[]".to_owned(), &[]),
    ] {
        assert_eq!(read(&text), expected, "{text}");
    }
}

/// Whatever is wrong with every other entry, and however many there are.
#[test]
fn many_entries_of_json_that_are_broken_cost_no_other() {
    for broken in [
        r#"{"ip": "10.0.0.1", "port": 80"#,
        r#"{"ip": "10.0.0.1", "port": 80]"#,
        r#"{"ip": "10.0.0.1", "geo": {"country": "DE""#,
        r#"{"ip": "10.0.0.1, "port": 80}"#,
        r#"["10.0.0.1", 80}"#,
        r#"{"#,
        r#""x""#,
    ] {
        let good = |n| format!(r#"{{"ip": "10.0.{}.{}", "port": 80}}"#, n >> 8, n & 255);
        let entries: Vec<_> = (0..1_000).map(|n| format!("{broken},\n{}", good(n))).collect();
        for (before, after) in [("[", "]"), ("{\"data\": [", "]}"), ("[[", "]]")] {
            let text = format!("{before}{}{after}", entries.join(",\n"));
            let lines: Vec<_> = List::new(text.as_bytes(), None).map(Result::unwrap).collect();
            let (taken, skipped): (Vec<_>, Vec<_>) =
                lines.iter().partition(|line| matches!(line.outcome, Outcome::Taken(_)));
            assert_eq!(taken.len(), 1_000, "{before}{broken}");
            assert!(taken.iter().zip(1..).all(|(line, n)| line.line == 2 * n), "{before}{broken}");
            assert!(skipped.len() >= 1_000, "{before}{broken}: only {} are reported", skipped.len());
        }
    }
}

#[test]
fn what_else_is_said_is_kept() {
    let text = "ip,port,country,anonymity\n10.0.0.1,80,de,elite proxy\n";
    let json = r#"[{"ip": "10.0.0.1", "port": 80, "geo": {"country": {"code": "DE", "name": "Germany"}}, "anonymityLevel": "elite"}]"#;
    for text in [text, "10.0.0.1,80,DE,elite", "10.0.0.1:80 DE-H-S +", json] {
        let line = List::new(text.as_bytes(), None).next().unwrap().unwrap();
        let Outcome::Taken(listed) = line.outcome else { panic!("{line}") };
        assert_eq!((listed.country.as_deref(), listed.anonymity), (Some("DE"), Some(Anonymity::Elite)), "{text}");
    }
}

#[test]
fn what_is_no_list_says_what_it_is_and_takes_no_time() {
    assert!(error(b"<!DOCTYPE html>\n<html>").contains("a web page"));
    assert!(error(b"PK\x03\x04").contains("a zip archive"));
    assert!(error(b"# of today\n\n <p>Sorry</p>\n10.0.0.7:80\n").contains("a web page"));
    assert!(error(br#"{"error": "quota exceeded"}"#).contains("reports an error"));
    assert!(
        error(b"# of today\n{\"error\":\"quota\",\"ip\":\"10.0.0.7\",\"port\":80}\n\n").contains("reports an error")
    );
    assert!(error(b"10.0.0.7:80 is blocked\n \n").contains("a refusal"));
    // With more beside it, each is an entry.
    assert_eq!(read("10.0.0.7:80 banned\n10.0.0.8:80"), ["1 http://10.0.0.7:80", "2 10.0.0.8:80"]);
    let entry = r#"{"error":"quota","ip":"10.0.0.7","port":80}"#;
    assert_eq!(read(&format!("{entry}\n{entry}\n")), ["1 http://10.0.0.7:80", "2 ~1"]);
    // Brackets without end cost no time without end: a fraction of this, and minutes if each cost all behind it.
    const LIMIT: Duration = Duration::from_secs(20);
    for pattern in ["{", "[", "[{", "{\"a\":[", "[[[]"] {
        let text = pattern.repeat((1 << 18) / pattern.len());
        let started = Instant::now();
        let last = List::new(text.as_bytes(), None).last();
        assert!(last.is_some());
        assert!(started.elapsed() < LIMIT, "{pattern}: {:?}", started.elapsed());
    }
    // Nor does a line of anything that has a meaning.
    for pattern in [
        ":",
        "[:",
        "@",
        " # ",
        "\" # ",
        ",",
        "\",\"",
        "|http://",
        "10.0.0.7:",
        "[ ",
        "(1",
        "1#",
        "%",
        "\t",
        "a.",
        "{\"a\":",
    ] {
        let line = pattern.repeat(60_000 / pattern.len()) + "\n";
        for text in
            [line.repeat(3), "ip,port,note\n".to_owned() + &line.repeat(3), "10.0.0.7 80\n\"".to_owned() + &line]
        {
            let started = Instant::now();
            for line in List::new(text.as_bytes(), None) {
                line.unwrap_or_else(|error| panic!("{pattern}: {error}"));
            }
            assert!(started.elapsed() < LIMIT, "{pattern}: {:?}", started.elapsed());
        }
    }
}

#[test]
fn a_report_shows_a_thousand_lines_and_counts_the_others() {
    let mut text: String = (0..1_500).map(|n| format!("10.0.0.7:{}\n", 70_000 + n)).collect();
    text += "10.0.0.8:80\n10.0.0.8:80\nnonsense\n";
    let mut report = Report::new("list.txt", true);
    let shown: Vec<String> = List::new(text.as_bytes(), None).filter_map(|line| report.note(&line.unwrap())).collect();
    assert_eq!(shown.len(), 1_001);
    assert_eq!(shown[0], "list.txt:1: port 70000 is not a port (1 to 65535)");
    assert_eq!(shown[1_000], "list.txt:1501: taken as 10.0.0.8:80");
    let rest = [
        "list.txt: and 502 more:",
        "list.txt: once: is no proxy in any form there is; write [scheme://][user:password@]host:port",
        "list.txt: 500 times: its port is not a number from 1 to 65535",
        "list.txt: once: the same as an earlier one",
    ];
    assert_eq!(report.rest(), rest);
    assert_eq!((report.taken(), report.repeated(), report.skipped()), (1, 1, 1_501));
}

/// So many of the forms leave no doubt.
const SURE: usize = 8;

/// A proxy, and the parts that it is written with.
#[derive(Clone, Debug)]
struct Proxy {
    protocol: Protocol,
    host: String,
    port: u16,
    login: Option<(String, String)>,
}

impl Proxy {
    fn encoded(&self) -> Option<String> {
        let login =
            self.login.clone().map(|(user, password)| form::Login { user: user.into(), password: password.into() });
        login.map(|login| login.encoded())
    }

    fn url(&self) -> String {
        let login = self.encoded().map_or(String::new(), |login| login + "@");
        format!("{}://{login}{}:{}", self.protocol, self.host, self.port)
    }

    /// As each form has it, with what the list as a whole says of its protocol.
    fn lists(&self) -> Vec<(String, Option<Protocol>)> {
        let Self { protocol, host, port, .. } = self;
        let (user, password) = self.login.clone().unwrap_or_default();
        let has_login = self.login.is_some();
        let (none, given) = (None, Some(*protocol));
        let cell = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let value = |text: &str| serde_json::Value::from(text).to_string();
        let (user_cell, password_cell) = (cell(&user), cell(&password));
        let (user_value, password_value) = (value(&user), value(&password));
        let bare = host.trim_matches(['[', ']']);
        let mut lists = vec![
            (self.url(), none),
            (format!("\u{feff}# list\r\n\r\n  {} # here\r\n", self.url()), none),
            (format!("[{}]", value(&self.url())), none),
            (format!("proxy,x\n{},1\n", cell(&self.url())), none),
            (format!("ip,port,type,user,pass\n{bare},{port},{protocol},{user_cell},{password_cell}"), none),
            (format!("Pass;Login;Host;Port\n{password_cell};{user_cell};{host};{port}"), given),
            (
                format!(
                    "{{\"proxies\": [{{\"ip\": {}, \"port\": {port}, \"protocols\": [\"{protocol}\"], \"username\": {user_value}, \"password\": {password_value}}}]}}",
                    value(bare)
                ),
                none,
            ),
            (
                format!(
                    "{{\"host\": {}, \"port\": \"{port}\", \"login\": {user_value}, \"pass\": {password_value}}}\n",
                    value(host)
                ),
                given,
            ),
        ];
        if let Some(login) = self.encoded() {
            lists.push((format!("{login}@{host}:{port}"), given));
        } else {
            lists.extend([
                (format!("{host}:{port}"), given),
                (format!("{host},{port},{protocol}"), none),
                (format!("{bare} {port} {protocol}"), none),
                (format!("{protocol}:{host}:{port}"), none),
            ]);
        }
        // What stands between the parts must not be part of them, nor anything with a meaning of its own.
        let is_plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "-_.~!$*+=".contains(c));
        let is_word = |text: &str| is_plain(text) && text.starts_with(|c: char| c.is_alphabetic() && c.is_lowercase());
        let is_sure = place::host(host) == place::Likeness::Ip && !user.is_empty() && !password.is_empty();
        if has_login && is_sure && is_plain(&user) && is_plain(&password) {
            lists.extend([
                (format!("{host}:{port}:{user}:{password}"), given),
                (format!("{user}:{password}:{host}:{port}"), given),
                (format!("{host}:{port}@{user}:{password}"), given),
                (format!("{protocol}://{host}:{port}:{user}:{password}"), none),
                (format!("user:pass:ip:port\n{user}:{password}:{host}:{port}"), given),
            ]);
            if is_word(&user) && is_word(&password) && user.len() > 8 && password.len() > 8 {
                lists.extend([
                    (format!("{protocol} {host} {port} {user} {password}"), none),
                    (format!("{bare}\t{port}\t{user}\t{password}"), given),
                ]);
            }
        }
        lists
    }
}

fn any_proxy() -> impl Strategy<Value = Proxy> {
    let protocol = prop::sample::select(vec![
        Protocol::Http,
        Protocol::Https,
        Protocol::Socks5h,
        Protocol::Socks5,
        Protocol::Socks4a,
        Protocol::Socks4,
    ]);
    let host = prop_oneof![
        any::<[u8; 4]>().prop_map(|ip| std::net::Ipv4Addr::from(ip).to_string()),
        any::<[u16; 8]>().prop_map(|ip| format!("[{}]", std::net::Ipv6Addr::from(ip))),
        "[a-z][a-z0-9-]{0,8}[a-z](\\.[a-z]{2,5}){1,2}",
    ];
    let text = prop_oneof!["[a-zA-Z0-9._~!$*+=-]{1,20}", "[ -~]{1,12}", "\\PC{1,12}"];
    let text = text.prop_map(|text: String| text.trim().to_owned());
    (protocol, host, 1..=u16::MAX, prop::option::of((text.clone(), text))).prop_map(|(protocol, host, port, login)| {
        let nothing = ["", "-", "none", "null", "nil", "n/a", "nan"];
        let is_nothing = |text: &str| nothing.contains(&&text.to_lowercase()[..]);
        let login = login.filter(|(user, password)| !is_nothing(user) || !is_nothing(password));
        let login = login.map(|(user, password)| match protocol {
            Protocol::Socks4 | Protocol::Socks4a => (if is_nothing(&user) { "u".into() } else { user }, String::new()),
            // RFC 7617: a user name without a colon.
            _ => (user.replace(':', ";"), password),
        });
        Proxy { protocol, host, port, login }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever form a proxy is written in, it is the same proxy.
    #[test]
    fn a_proxy_comes_back_the_same_from_every_form(proxy in any_proxy()) {
        let expected = Member::parse(&Name::from(proxy.url())).expect("a member");
        for (n, (list, scheme)) in proxy.lists().into_iter().enumerate() {
            let mut lines = List::new(list.as_bytes(), scheme);
            let line = lines.next().expect("an entry").expect("readable");
            let Outcome::Taken(listed) = &line.outcome else {
                // Without a scheme or names a login may look like something else.
                prop_assert!(n >= SURE && proxy.login.is_some(), "{:?}: {}", list, line);
                continue;
            };
            let mut seen = Seen::default();
            prop_assert!(seen.before(&expected, 1).is_none());
            prop_assert_eq!(seen.before(&listed.member, 2), Some(1), "{:?} was read as {:?}", list, listed.member.name());
            prop_assert!(lines.next().is_none(), "{:?}", list);
        }
    }

    /// Whatever stands in a login and around a line, a proxy is read as itself or the line is skipped: never as another.
    #[test]
    fn a_line_is_the_proxy_it_was_written_for_or_skipped(
        host in prop_oneof![Just("10.0.0.7"), Just("[2001:db8::7]"), Just("gate.example")],
        // No quotes: which of several belong to a field nobody can tell. No `=` either, with which lists state other things.
        user in "[a-z][a-zA-Z0-9_.+-]{2,11}",
        // Nothing that ends a field or begins a comment, and of what stands behind a blank nothing that lists say of a proxy.
        password in r##"[!#-+<-{}~-][!#-+.-9<-{}~-]{2,8}([ \t][b-df-hj-np-tv-z]{3,6}){0,2}"##,
        before in prop::sample::select(vec!["", "", "- ", "3. ", "export http_proxy=", "proxy: ", "x=", "Germany ", "my ", "socks5 "]),
        behind in prop::sample::select(vec!["", "", " # here", " DE", " Germany", ",", ";", " 120ms", " works fine", "\tx", "\""]),
        quote in prop::sample::select(vec!["", "", "", "\"", "'", "`"]),
        form in 0..8_usize,
    ) {
        // A field of its own that is in quotes is what stands between them; one that has two is whole.
        let behind_it = format!("{password}{quote}{behind}");
        let is_quoted = |mark| password.starts_with(mark) && (password.ends_with(mark) || behind_it.ends_with(mark));
        prop_assume!(form < 6 || !['"', '\''].into_iter().any(is_quoted));
        // Octets that are no text go as they are, which is not what is compared here.
        prop_assume!(percent_encoding::percent_decode_str(&password).decode_utf8().is_ok());
        let word = match form {
            0 => format!("{host}:3128:{user}:{password}"),
            1 => format!("{user}:{password}:{host}:3128"),
            2 => format!("{user}:{password}@{host}:3128"),
            3 => format!("{host}:3128@{user}:{password}"),
            4 => format!("http://{user}:{password}@{host}:3128"),
            5 => format!("http://{host}:3128:{user}:{password}"),
            6 => format!("{host}\t3128\t{user}\t{password}"),
            _ => format!("{host} 3128 {user} {password}"),
        };
        let line = format!("{before}{quote}{word}{quote}{behind}");
        for entry in List::new(line.as_bytes(), None).map_while(Result::ok) {
            let Outcome::Taken(listed) = entry.outcome else { continue };
            let hop = listed.member.way().next().expect("a hop");
            let address = hop.address().expect("a proxy");
            prop_assert_eq!((address.host.to_string(), address.port), (host.to_owned(), 3128));
            let mut said = Vec::new();
            match hop {
                Kind::Http { authorization, .. } => said.extend(authorization.as_ref().map(|value| value.as_bytes().to_vec())),
                Kind::Socks { login, .. } => said.extend(login.as_ref().map(|login| login.basic().expect("fit").as_bytes().to_vec())),
                Kind::Direct { .. } => {}
            }
            // In a URL they are encoded, as far as they can be.
            let login = |user: &str, password: &str| {
                let login = crate::member::Login { user: user.into(), password: password.into() };
                login.basic().expect("no colon in the user").as_bytes().to_vec()
            };
            let decoded = percent_encoding::percent_decode_str(&password).decode_utf8_lossy().into_owned();
            let fitting = [login(&user, &password), login(&user, &decoded)];
            prop_assert!(said.len() == 1 && fitting.contains(&said[0]), "{:?} was read as {:?}", line, listed.member.name());
        }
    }

    /// Nothing that is printed of a list shows a password, whatever else is in it.
    #[test]
    fn no_password_is_printed(proxy in any_proxy(), damage in any::<prop::sample::Index>(), junk in "\\PC{0,3}") {
        const SECRET: &str = "s3KRxt~9";
        let Some((user, password)) = &proxy.login else { return Ok(()) };
        let user = user.clone();
        let password = match proxy.protocol {
            Protocol::Socks4 | Protocol::Socks4a => return Ok(()),
            _ => format!("{SECRET}{password}"),
        };
        let proxy = Proxy { login: Some((user, password)), ..proxy };
        for (list, scheme) in proxy.lists() {
            for line in List::new(list.as_bytes(), scheme) {
                prop_assert!(!line.expect("readable").to_string().contains(SECRET), "{}", list);
            }
            // The same with something between, or something missing: then what is skipped says nothing of it.
            let ends: Vec<_> = list.char_indices().map(|(at, _)| at).collect();
            let (before, after) = list.split_at(ends[damage.index(ends.len())]);
            for list in [format!("{before}{junk}{after}"), format!("{junk}{after}"), before.to_owned()] {
                for line in List::new(list.as_bytes(), scheme).map_while(Result::ok) {
                    let is_skipped = !matches!(line.outcome, Outcome::Taken(_));
                    prop_assert!(!is_skipped || !line.to_string().contains(SECRET), "{}", list);
                }
            }
        }
    }

    /// Any bytes end, in lines in order, none of which breaks a line of output.
    #[test]
    fn any_bytes_are_read_to_their_end(pieces in prop::collection::vec(any_piece(), 0..60)) {
        let bytes = pieces.concat();
        let mut last = 0;
        for line in List::new(&bytes[..], None).map_while(Result::ok) {
            // What is not closed is said at the end, with the line it begins on.
            let is_late = matches!(line.outcome, Outcome::Skipped(Reason::Unclosed));
            prop_assert!(line.line > last || is_late || (line.line == last && line.entry.is_some()), "{line} after {last}");
            last = line.line;
            let said = line.to_string();
            prop_assert!(!said.contains(char::is_control), "{said:?}");
            if let Outcome::Taken(listed) = line.outcome {
                prop_assert_eq!(&Member::parse(listed.member.name()).expect("a member").masked(), &listed.member.masked());
            }
        }
    }

    /// A member of the pool comes back from an exported list: as it is, or as the same proxy with its scheme.
    #[test]
    fn a_member_comes_back_from_its_line(pieces in prop::collection::vec(any_piece(), 1..8), proxy in any_proxy()) {
        let bare = proxy.url().split_once("://").map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        for name in [pieces.concat(), proxy.url().into_bytes(), bare.into_bytes()].map(Name::from) {
            let Ok(member) = Member::parse(&name) else { continue };
            if member.way().filter_map(|hop| hop.address()).any(|address| place::ends_in_number(&address.host.to_string()) && matches!(address.host, crate::member::Host::Name(_))) {
                continue; // 10.0.0.256 is a name to a member, and an error in a list
            }
            let line = as_line(&name);
            let read = List::new(&line[..], None).next().expect("an entry").expect("readable");
            let Outcome::Taken(listed) = &read.outcome else { panic!("{name:?}: {read}") };
            prop_assert_eq!(listed.member.id(), member.id(), "{:?}", name);
            prop_assert!(form::split_scheme(str::from_utf8(&name).unwrap()).is_none() || listed.member.name() == &name);
        }
    }
}

/// Something that has a meaning in a list.
fn any_piece() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"10.0.0.7",
        b"[2001:db8::1]",
        b"2001:db8::1",
        b"gate.example",
        b"proxy",
        b":",
        b":",
        b"80",
        b"3128",
        b"99999",
        b"@",
        b"://",
        b"http",
        b"socks5",
        b"http://",
        b"direct://",
        b"|",
        b",",
        b";",
        b"\t",
        b" ",
        b"\n",
        b"\r\n",
        b"\r",
        b"\"",
        b"'",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"ip\":",
        b"\"port\":",
        b"\"10.0.0.7\"",
        b"80",
        b"ip,port,user,password\n",
        b"sep=;",
        b"#",
        b"//",
        b" # ",
        b"\\",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"%41",
        b"%",
        b"/",
        b"?insecure=1",
        b"user",
        b"DE",
        b"elite",
        b"null",
        b"-",
    ];
    prop_oneof![
        8 => prop::sample::select(pieces.to_vec()).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}
