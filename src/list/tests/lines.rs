//! Lines as people have them, each with the one proxy that it means or the reason why it means none. What matters most: never a
//! part of a user name, a password, a host or a port too many or too few.

use super::*;
use crate::member::Malformed;

fn one(list: &str) -> Result<String, Reason> {
    let mut lines = List::new(list.as_bytes(), None);
    let line = lines.next().expect("an entry").expect("readable");
    assert!(lines.next().is_none(), "{list}: more than one entry");
    match line.outcome {
        Outcome::Taken(listed) => Ok(String::from_utf8(listed.member.name().to_vec()).expect("text")),
        Outcome::Skipped(reason) => Err(reason),
        Outcome::Repeated(_) => panic!("{list}: nothing was before"),
    }
}

fn check_taken(cases: &[(&str, &str)]) {
    let wrong = cases
        .iter()
        .map(|(list, member)| (list, one(list), member))
        .filter(|(_, read, member)| read.as_deref() != Ok(**member));
    let wrong: Vec<_> = wrong.map(|(list, read, member)| format!("{list:?}: {read:?} instead of {member}\n")).collect();
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

fn check_skipped(cases: &[(&str, Reason)]) {
    let wrong = cases
        .iter()
        .map(|(list, reason)| (list, one(list), reason))
        .filter(|(_, read, reason)| read.as_ref() != Err(*reason));
    let wrong: Vec<_> =
        wrong.map(|(list, read, reason)| format!("{list:?}: {read:?} instead of {reason:?}\n")).collect();
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn what_stands_around_a_proxy_is_no_part_of_it() {
    check_taken(&[
        ("http_proxy=http://u:p@h:81", "http://u:p@h:81"),
        ("export http_proxy=http://u:p@h:81", "http://u:p@h:81"),
        ("export HTTPS_PROXY=\"http://u:p@h:81\";", "http://u:p@h:81"),
        ("export all_proxy='socks5h://u:p@h:81'", "socks5h://u:p@h:81"),
        ("set http_proxy=http://u:p@h:81", "http://u:p@h:81"),
        ("set \"HTTP_PROXY=http://u:p@h:81\"", "http://u:p@h:81"),
        ("$env:HTTP_PROXY = \"http://u:p@h:81\"", "http://u:p@h:81"),
        ("setenv http_proxy u:p@1.2.3.4:81", "u:p@1.2.3.4:81"),
        ("proxy = 1.2.3.4:81:u:p", "http://u:p@1.2.3.4:81"),
        ("http.proxy=http://u:p@h:81", "http://u:p@h:81"),
        ("- http://u:p@1.2.3.4:80", "http://u:p@1.2.3.4:80"),
        ("  - \"u:p@1.2.3.4:80\"", "u:p@1.2.3.4:80"),
        ("* 1.2.3.4:80:u:p", "http://u:p@1.2.3.4:80"),
        ("17. u:p@1.2.3.4:80", "u:p@1.2.3.4:80"),
        ("3) 1.2.3.4:80", "1.2.3.4:80"),
        ("proxy: http://u:p@1.2.3.4:80", "http://u:p@1.2.3.4:80"),
        ("https: u:p@1.2.3.4:80", "https://u:p@1.2.3.4:80"),
        ("socks5: 1.2.3.4:1080", "socks5://1.2.3.4:1080"),
        ("\"http\": \"http://u:p@1.2.3.4:80\",", "http://u:p@1.2.3.4:80"),
        ("'http://u:p@1.2.3.4:80',", "http://u:p@1.2.3.4:80"),
        ("`1.2.3.4:80`", "1.2.3.4:80"),
        ("http://u:p@1.2.3.4:80,", "http://u:p@1.2.3.4:80"),
        ("u:p@1.2.3.4:80 # Germany", "u:p@1.2.3.4:80"),
        ("1.2.3.4:80:u:p // Germany", "http://u:p@1.2.3.4:80"),
        ("1.2.3.4:80:u:p#w", "http://u:p%23w@1.2.3.4:80"),
        ("\u{200e}1.2.3.4:80:u:p\u{200e}", "http://u:p@1.2.3.4:80"),
        ("\u{a0}1.2.3.4:80\u{2060}", "1.2.3.4:80"),
        ("u:p@1.2.3.4:80 Germany Frankfurt", "http://u:p@1.2.3.4:80"),
        ("Germany: http://u:p@1.2.3.4:80", "http://u:p@1.2.3.4:80"),
        ("1.2.3.4:80:u:p DE elite 0.3s", "http://u:p@1.2.3.4:80"),
        ("1.2.3.4:80 user=u pass=p", "http://u:p@1.2.3.4:80"),
        ("1.2.3.4:80 User:u Pass:p", "http://u:p@1.2.3.4:80"),
        ("1.2.3.4:80;country=DE;ping=120;type=socks5", "socks5://1.2.3.4:80"),
        ("1.2.3.4:80 ping:120", "http://1.2.3.4:80"),
        ("1.2.3.4:80 note:fast", "http://1.2.3.4:80"),
        ("1.2.3.4:80 @channel", "http://1.2.3.4:80"),
        ("1.2.3.4|80|Germany|Berlin|yes", "http://1.2.3.4:80"),
        ("1.2.3.4,80,United States,New York,120 ms", "http://1.2.3.4:80"),
        ("1.2.3.4:80 New York", "http://1.2.3.4:80"),
    ]);
}

#[test]
fn a_login_is_whole_or_the_line_is_skipped() {
    use Reason::{Columns, Contradiction, Extent, Fields, Invisible, Several};
    check_taken(&[
        ("1.2.3.4:80:u:a:b@c#d%e/f?g", "http://u:a%3Ab%40c%23d%25e%2Ff%3Fg@1.2.3.4:80"),
        ("1.2.3.4:80:u:p,w;|x", "http://u:p%2Cw%3B%7Cx@1.2.3.4:80"),
        ("http://u:a@b@1.2.3.4:80", "http://u:a@b@1.2.3.4:80"),
        ("u:a@b@1.2.3.4:80", "u:a@b@1.2.3.4:80"),
        ("1.2.3.4:80@u:a@b:c", "http://u:a%40b%3Ac@1.2.3.4:80"),
        ("http://u:a#b/c?d@1.2.3.4:80", "http://u:a%23b%2Fc%3Fd@1.2.3.4:80"),
        ("http://u:100%@1.2.3.4:80", "http://u:100%25@1.2.3.4:80"),
        ("http://u:a%20b@1.2.3.4:80", "http://u:a%20b@1.2.3.4:80"),
        ("http://u:a,b;c@1.2.3.4:80", "http://u:a,b;c@1.2.3.4:80"),
        ("u:a,b@1.2.3.4:80", "u:a,b@1.2.3.4:80"),
        ("http://k=v:p@1.2.3.4:80", "http://k=v:p@1.2.3.4:80"),
        ("1.2.3.4:80:k=v:p=w", "http://k%3Dv:p%3Dw@1.2.3.4:80"),
        ("http://\"u\":'p'@1.2.3.4:80", "http://\"u\":'p'@1.2.3.4:80"),
        ("1.2.3.4,80,u,\"a,\"\"b\"\"\"", "http://u:a%2C%22b%22@1.2.3.4:80"),
        ("1.2.3.4,80,u,'p'", "http://u:p@1.2.3.4:80"),
        ("'1.2.3.4','80','u','p'", "http://u:p@1.2.3.4:80"),
        ("ip,port,user,pass\n1.2.3.4,80,u,\" a b \"", "http://u:%20a%20b%20@1.2.3.4:80"),
        ("ip,port,user,pass\n1.2.3.4,80,u,'p'", "http://u:%27p%27@1.2.3.4:80"),
        ("'ip','port','user','pass'\n'1.2.3.4','80','u','p'", "http://u:p@1.2.3.4:80"),
        ("ip port user pass\n1.2.3.4 80 u p", "http://u:p@1.2.3.4:80"),
        ("ip:port:user:pass\n1.2.3.4:80:u:a:b", "http://u:a%3Ab@1.2.3.4:80"),
        ("user:pass:ip:port\nu:a:b:1.2.3.4:80", "http://u:a%3Ab@1.2.3.4:80"),
        ("[[\"1.2.3.4\", 80, \"u\", \"'p'\"]]", "http://u:%27p%27@1.2.3.4:80"),
        (
            "[{\"ip\": \"1.2.3.4\", \"port\": 80, \"username\": \"u\", \"password\": \" p \"}]",
            "http://u:%20p%20@1.2.3.4:80",
        ),
        ("[{\"ip\": \"1.2.3.4\", \"port\": 80, \"auth\": \"u:a:b\"}]", "http://u:a%3Ab@1.2.3.4:80"),
        (
            "[{\"auth\": \"basic\", \"ip\": \"1.2.3.4\", \"port\": 80, \"username\": \"u\", \"password\": \"p\"}]",
            "http://u:p@1.2.3.4:80",
        ),
    ]);
    check_skipped(&[
        ("http://u:p q@1.2.3.4:84", Extent),
        ("1.2.3.5:80:un:p ss w", Extent),
        ("u:p w@1.2.3.6:80", Extent),
        ("1.2.3.4:80:u:p\tw", Extent),
        ("1.2.3.4:80:u:p Germany", Extent),
        ("1.2.3.4:80:u:p,Germany", Extent),
        ("1.2.3.4:80:u:p,", Extent),
        ("1.2.3.4:80:u:p:US", Extent),
        ("1.2.3.4:80:u:p:elite", Extent),
        ("1.2.3.4:80:u:p [Some Hosting]", Extent),
        ("1.2.3.4:80@SOCKS5#US", Extent),
        ("1.2.3.4 80 u (p w)", Fields),
        ("1.2.3.4:80@u:p;", Extent),
        ("1.2.3.4:80@u:p w", Extent),
        ("http://1.2.3.4:80:u:p/", Extent),
        ("http://1.2.3.4:80@u:p/", Extent),
        ("u:p w:1.2.3.4:80", Reason::ThreeParts),
        ("socks5://1.2.3.4:80:u:p w", Extent),
        ("Germany,u:p@h.example:80", Extent),
        ("u,x:p,w@1.2.3.4:80", Extent),
        ("u:p w@1.2.3.4:80,DE", Extent),
        ("x=u:p@1.2.3.4:80", Extent),
        ("server=u:p@1.2.3.4:80", Extent),
        ("user: p@1.2.3.4:80", Extent),
        ("http:u:p@1.2.3.4:80", Extent),
        ("http:/u:p@1.2.3.4:80", Extent),
        ("http//u:p@1.2.3.4:80", Extent),
        ("http:user:pass:1.2.3.4:80", Extent),
        ("1.2.3.4:80:socks5:user:pass", Extent),
        ("1.2.3.4:80:user:pass:socks5", Extent),
        ("\"u:p@1.2.3.4:80", Extent),
        ("1.2.3.4:80:u:p\"", Extent),
        ("1.2.3.4:80:\"u\":\"p\"", Extent),
        ("(http://u:p@1.2.3.4:80", Extent),
        ("1.2.3.4,80,u,p w", Fields),
        ("1.2.3.4,80,u,\" p \"", Fields),
        ("1.2.3.4 80 u p w", Fields),
        ("1.2.3.4 80 u \"p w\"", Fields),
        ("1.2.3.4:80 works great", Fields),
        ("1.2.3.4:80 -U user:pass", Fields),
        ("1.2.3.4:80 user: pass", Fields),
        ("u:p@ 1.2.3.4:80", Fields),
        ("u : p @ 1.2.3.4:80", Fields),
        ("1.2.3.4,80,DE,user,s3cret", Fields),
        ("1.2.3.4,80,Alice,s3cret", Fields),
        ("1.2.3.4:80,user:1234", Fields),
        ("1.2.3.4:80 curl -x u:p@h.example:80", Several),
        ("1.2.3.4:80,gate.example:81", Several),
        ("1.2.3.4:80, 5.6.7.8:99999", Several),
        ("1.2.3.4:80:u:p\u{200b}w", Invisible('\u{200b}')),
        ("ip,port,user,pass\n1.2.3.4,80,u,p,w", Columns),
        ("ip port user pass\n1.2.3.4 80 u p w", Columns),
        ("ip port country user pass\n1.2.3.4 80 user s3cret w q", Columns),
        ("ip:port:user:pass:country\n1.2.3.4:80:u:p:w:DE", Columns),
        ("1.2.3.4:80 user=u user=v pass=p", Contradiction("user name or password")),
        ("[\"u:p w@1.2.3.4:80\"]", Extent),
        ("[[\"1.2.3.4\", 80, \"u\", \"p w\"]]", Fields),
        ("[{\"ip\": \"1.2.3.4\", \"port\": 80, \"auth\": \"key\"}]", Extent),
    ]);
}

#[test]
fn a_chain_is_taken_whole_or_the_hop_is_named() {
    let hop = |n, reason| Reason::Hop(n, Box::new(reason));
    let no_scheme = || Reason::Member(Malformed::NextScheme);
    check_taken(&[
        ("http://1.2.3.4:80|socks5://u:p@b:1080", "http://1.2.3.4:80|socks5://u:p@b:1080"),
        ("http://1.2.3.4:80|socks5://u:p@b:1080 DE", "http://1.2.3.4:80|socks5://u:p@b:1080"),
        ("http://1.2.3.4:80|socks5://u:p@b:1080 # ours", "http://1.2.3.4:80|socks5://u:p@b:1080"),
        ("http_proxy=http://1.2.3.4:80|socks5://u:p@b:1080", "http://1.2.3.4:80|socks5://u:p@b:1080"),
        ("1.2.3.4:80|socks5://u:p@b:1080", "1.2.3.4:80|socks5://u:p@b:1080"),
        ("http://1.2.3.4:80|DE|elite", "http://1.2.3.4:80"),
    ]);
    check_skipped(&[
        ("http://10.0.0.2:3128|user:s3cret@10.0.0.9:1080", hop(2, no_scheme())),
        ("10.0.0.2:3128|user:s3cret@10.0.0.9:1080", hop(2, no_scheme())),
        ("http://10.0.0.2:3128|key@b.example:1080", hop(2, no_scheme())),
        ("http://10.0.0.2:3128|b.example:90", hop(2, no_scheme())),
        ("http://u:p@a:1|http://b:2|v:s3cret@c:3", hop(3, no_scheme())),
        ("http://10.0.0.1:3128|ftp://b.example:21", hop(2, no_scheme())),
        ("http://10.0.0.1:3128|socks5://user:s3cret@b.example", hop(2, Reason::NoPort)),
        ("http://10.0.0.1:3128|socks5://b.example:99999", hop(2, Reason::Port(99999))),
        ("http://10.0.0.1:3128|socks5://user:99999", hop(2, Reason::NotAPort)),
        ("http://10.0.0.1:99999|socks5://b.example:1", hop(1, Reason::Port(99999))),
        ("http://10.0.0.1:3128|socks4://u:s3cret@b:1", hop(2, Reason::Member(Malformed::Socks4Login))),
        ("http://10.0.0.1:3128|socks5://u:p w@b:1", hop(2, Reason::NotAPort)),
        ("http://10.0.0.1:3128 | socks5://u:p@b.example:1", Reason::Several),
    ]);
}

#[test]
fn what_keys_and_columns_say_twice_must_be_the_same() {
    use Reason::{Contradiction, NotText};
    let json = |inner: &str| format!("[{{{inner}}}]");
    for (inner, member) in [
        (r#""ip":"1.2.3.4:80","port":80"#, "http://1.2.3.4:80"),
        (r#""proxy":"http://u:p%40@h:82","port":"82","username":"u","password":"p@""#, "http://u:p%40@h:82"),
        (r#""proxy":"1.2.3.4:82:u:p","username":"u","password":"p""#, "http://u:p@1.2.3.4:82"),
        (r#""proxy":"http://h:82","protocols":["https"]"#, "http://h:82"),
        (r#""proxy":"http://gate.example:82","ip":"1.2.3.4","host":"5.6.7.8""#, "http://gate.example:82"),
        (r#""ip":"1.2.3.4","IP":"1.2.3.4","port":80"#, "http://1.2.3.4:80"),
        (r#""ip":"1.2.3.4","port":80,"port":80"#, "http://1.2.3.4:80"),
        (r#""ip":"1.2.3.4","port":80,"username":null,"password":false"#, "http://1.2.3.4:80"),
        (r#""url":"https://site.example/list","ip":"1.2.3.4","port":80"#, "http://1.2.3.4:80"),
    ] {
        assert_eq!(one(&json(inner)).as_deref(), Ok(member), "{inner}");
    }
    for (inner, reason) in [
        (r#""ip":"1.2.3.4:80","port":81"#, Contradiction("port")),
        (r#""proxy":"http://u:p@h:82","port":83"#, Contradiction("port")),
        (r#""ip":"1.2.3.4","port":80,"proxyPort":81"#, Contradiction("port")),
        (r#""ip":"1.2.3.4","port":80,"port":81"#, Contradiction("port")),
        (r#""ip":"1.2.3.4","address":"5.6.7.8","port":80"#, Contradiction("host")),
        (r#""proxy":"http://a.example:80","host":"b.example""#, Contradiction("host")),
        (r#""proxy":"http://u:p@h:82","username":"v","password":"p""#, Contradiction("user name or password")),
        (r#""ip":"1.2.3.4","port":80,"user":"u","login":"v","password":"p""#, Contradiction("user name or password")),
        (
            r#""ip":"1.2.3.4","port":80,"auth":"u:q","username":"u","password":"p""#,
            Contradiction("user name or password"),
        ),
        (r#""proxy":"http://h:82","protocol":"socks5""#, Contradiction("protocol")),
        (r#""ip":"1.2.3.4","port":80,"username":{"a":1},"password":"p""#, NotText),
        (r#""ip":"1.2.3.4","port":80,"username":["u"],"password":"p""#, NotText),
        (r#""ip":"1.2.3.4","port":80,"username":"u","password":12345"#, NotText),
        (r#""ip":"1.2.3.4","port":80,"auth":{"username":"u","password":1}"#, NotText),
        (r#""ip":"1.2.3.4","port":[80,81]"#, Reason::NoPort),
        (r#""ip":"1.2.3.4","port":80.5"#, Reason::NotAPort),
    ] {
        assert_eq!(one(&json(inner)), Err(reason.clone()), "{inner}");
        if matches!(reason, Contradiction("port")) {
            assert_eq!(one(&format!("{{{inner}}}")), Err(reason), "as a line: {inner}");
        }
    }
    check_skipped(&[
        ("proxy,port\n1.2.3.4:80,81", Contradiction("port")),
        ("proxy,user,pass\nu:p@1.2.3.4:80,u,q", Contradiction("user name or password")),
        ("http://1.2.3.4:80 socks5", Contradiction("protocol")),
    ]);
}

/// As they come from those who sell them, and from the pages where they are free.
#[test]
fn lists_of_well_known_places_go_in() {
    for (list, members) in [
        // free-proxy-list.net, a table copied from a browser.
        (
            "IP Address\tPort\tCode\tCountry\tAnonymity\tGoogle\tHttps\tLast Checked\n\
             1.2.3.4\t8080\tDE\tGermany\telite proxy\tno\tyes\t1 min ago\n\
             5.6.7.8\t3128\tUS\tUnited States\tanonymous\tno\tno\t12 secs ago\n",
            &["http://1.2.3.4:8080", "http://5.6.7.8:3128"][..],
        ),
        (
            "1.2.3.4\t8080\tDE\tGermany\telite proxy\tno\tyes\t1 min ago\n\
             5.6.7.8\t3128\tUS\tUnited States\tanonymous\tno\tno\t12 secs ago\n",
            &["http://1.2.3.4:8080", "http://5.6.7.8:3128"],
        ),
        // spys.one.
        ("1.2.3.4:8080 DE-N-S! +\n5.6.7.8:3128 US-H -\n", &["http://1.2.3.4:8080", "http://5.6.7.8:3128"]),
        // Webshare, Bright Data, Oxylabs, Smartproxy, IPRoyal.
        ("1.2.3.4:6540:abcdefgh:a1b2c3d4e5f6\r\n", &["http://abcdefgh:a1b2c3d4e5f6@1.2.3.4:6540"]),
        (
            "brd.superproxy.io:22225:brd-customer-hl_1-zone-y-session-7:pass1",
            &["http://brd-customer-hl_1-zone-y-session-7:pass1@brd.superproxy.io:22225"],
        ),
        ("pr.oxylabs.io:7777:customer-u-cc-us:pass", &["http://customer-u-cc-us:pass@pr.oxylabs.io:7777"]),
        ("gate.smartproxy.com:7000:user:12345", &["http://user:12345@gate.smartproxy.com:7000"]),
        ("geo.iproyal.com:12321:u:p_country-de_session-x", &["http://u:p_country-de_session-x@geo.iproyal.com:12321"]),
        // TheSpeedX, one protocol in a file.
        ("1.2.3.4:1080\n5.6.7.8:1081\n", &["1.2.3.4:1080", "5.6.7.8:1081"]),
        // geonode.
        (
            r#"{"data":[{"_id":"6","ip":"1.2.3.4","anonymityLevel":"elite","asn":"AS1","city":"Berlin","country":"DE","google":false,
               "isp":"X","lastChecked":1,"latency":9.5,"org":"Y","port":"8080","protocols":["http"],"region":null,"speed":1,
               "upTime":99.5}],"total":1,"page":1,"limit":1}"#,
            &["http://1.2.3.4:8080"],
        ),
        // ProxyScrape.
        (
            r#"{"shown_records":1,"proxies":[{"alive":true,"anonymity":"elite","average_timeout":1.5,"ip_data":{"as":"AS1","countryCode":
               "DE","lat":1.5,"status":"success"},"port":1080,"protocol":"socks4","proxy":"socks4://1.2.3.4:1080","ssl":false,
               "ip":"1.2.3.4"}]}"#,
            &["socks4://1.2.3.4:1080"],
        ),
        // monosans.
        (
            r#"[{"protocol":"socks5","username":null,"password":null,"host":"1.2.3.4","port":1080,"exit_ip":"5.6.7.8","timeout":0.5,
               "asn":{"autonomous_system_number":1},"geolocation":{"country":{"iso_code":"DE","names":{"en":"Germany"}}}}]"#,
            &["socks5://1.2.3.4:1080"],
        ),
        // proxychains.conf.
        (
            "socks5 127.0.0.1 1080 user pass\nsocks4\t127.0.0.1\t1081\nhttp 10.0.0.1 3128 justu hidden\n",
            &["socks5://user:pass@127.0.0.1:1080", "socks4://127.0.0.1:1081", "http://justu:hidden@10.0.0.1:3128"],
        ),
        // hidemy.name, as JSON and as CSV: what is spoken is a yes or no each.
        (
            r#"[{"host":"1.2.3.4","ip":"1.2.3.4","port":"8080","country_code":"DE","anon":"4","http":"1","ssl":"1","socks4":"0","socks5":"0"},
               {"host":"5.6.7.8","ip":"5.6.7.8","port":"1080","country_code":"US","anon":"4","http":"0","ssl":"0","socks4":"1","socks5":"1"}]"#,
            &["http://1.2.3.4:8080", "socks5://5.6.7.8:1080"],
        ),
        (
            "host;ip;port;country_code;anon;http;ssl;socks4;socks5\n1.2.3.4;1.2.3.4;8080;DE;4;1;1;0;0\n\
             5.6.7.8;5.6.7.8;1080;US;4;0;0;0;1\n",
            &["http://1.2.3.4:8080", "socks5://5.6.7.8:1080"],
        ),
        // jhao104's pool: "https" is whether CONNECT works.
        (
            r#"[{"anonymous":"","check_count":1,"https":true,"last_status":true,"proxy":"1.2.3.4:80","region":"","source":"x"}]"#,
            &["http://1.2.3.4:80"],
        ),
        // Beside a protocol, yes and no are about what goes through.
        (
            r#"[{"ip":"1.2.3.4","port":80,"protocol":"socks4","http":true,"socks5":false},{"proxy":"socks5://1.2.3.5:80","http":true},
               {"ip":"1.2.3.6","port":80,"protocols":{"http":false,"socks5":true}}]"#,
            &["socks4://1.2.3.4:80", "socks5://1.2.3.5:80", "socks5://1.2.3.6:80"],
        ),
        // JSON made flat, as pandas and json2csv do.
        (
            "proxy,protocol,ip,port,https,score,geolocation.country,geolocation.city\n\
             http://1.2.3.4:80,http,1.2.3.4,80,false,1,US,\"New York, NY\"\nsocks5://5.6.7.8:81,socks5,5.6.7.8,81,true,1,DE,X\n",
            &["http://1.2.3.4:80", "socks5://5.6.7.8:81"],
        ),
        ("host,port,auth.username,auth.password\n1.2.3.4,80,u,p\n", &["http://u:p@1.2.3.4:80"]),
        // roosterkid's openproxylist.
        (
            "\u{1f1fa}\u{1f1f8} 1.2.3.4:8080 120ms US [Some Hosting, Inc.]\n\
             \u{1f1e9}\u{1f1ea} 5.6.7.8:3128 20ms DE [Hosting Online GmbH]\n",
            &["http://1.2.3.4:8080", "http://5.6.7.8:3128"],
        ),
        // What is shared as URLs that have names.
        (
            "socks5://u:p@1.2.3.4:1080#My first proxy\n1.2.3.5:80#US\n\"http://1.2.3.6:80/#%F0%9F%87%A9\",\n",
            &["socks5://u:p@1.2.3.4:1080", "1.2.3.5:80", "http://1.2.3.6:80/"],
        ),
        // What is written by hand.
        (
            "[2001:db8::1]:80:u:p\nu:p@[2001:db8::2]:80\nsocks5h://u:p@[2001:db8::3]:1080\n1.2.3.4:80@u:p\n",
            &[
                "http://u:p@[2001:db8::1]:80",
                "u:p@[2001:db8::2]:80",
                "socks5h://u:p@[2001:db8::3]:1080",
                "http://u:p@1.2.3.4:80",
            ],
        ),
    ] {
        let read: Vec<_> =
            List::new(list.as_bytes(), None).map(|line| line.unwrap_or_else(|why| panic!("{list}: {why}"))).collect();
        let taken: Vec<_> = read
            .iter()
            .map(|line| match &line.outcome {
                Outcome::Taken(listed) => String::from_utf8_lossy(listed.member.name()).into_owned(),
                _ => line.to_string(),
            })
            .collect();
        assert_eq!(taken, members, "{list}");
    }
}
