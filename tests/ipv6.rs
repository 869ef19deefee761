//! IPv6 wherever there is an address: the gateway's, the members', the targets', and the one to dial from.

use crate::support::gateway::{Setup, run};
use crate::support::origins::{Origins, logged};
use crate::support::proxy::{SECRET, member, serve, socks_origin};
use crate::support::servers::{Server, V4, V6};
use crate::support::upstream::Upstream;

/// Gateway, members and origins on ::1.
#[test]
fn every_kind_of_member_serves_on_an_ipv6_address() {
    let origins = Origins::start(V6);
    let (squid, tinyproxy) = (Server::squid_on(V6, "u", SECRET, ""), Server::tinyproxy_on(V6, "u", SECRET, ""));
    let (microsocks, dante) =
        (Server::microsocks_on(V6, "u", SECRET, &[]), Server::dante_on(V6, &["127.0.0.1", "::1"]));
    let tls = Server::stunnel_on(V6, &origins.certificate, tinyproxy.address());
    let http = [
        member("http", squid.address()),
        member("http", tinyproxy.address()),
        format!("https://u:{SECRET}@{}", tls.address()),
        format!("{}|{}", member("socks5h", microsocks.address()), member("http", squid.address())),
    ];
    let to_origin = [
        member("socks5", microsocks.address()),
        member("socks5h", microsocks.address()),
        format!("socks5://{}", dante.address()),
        format!("socks5h://{}", dante.address()),
        format!("{}|socks5://{}", member("http", tinyproxy.address()), dante.address()),
        "direct://".to_owned(),
        "direct://[::1]".to_owned(),
    ];
    let on_ipv6 = |member: &String| logged([member.clone()]).listen("[::1]:0");
    for member in &http {
        // As with `work_through_closing`: tinyproxy does.
        origins.work_through_gateway(&on_ipv6(member).set("upstream.idle_timeout", "0s"), false);
    }
    for member in &to_origin {
        origins.work_through_gateway(&on_ipv6(member), true);
    }
    // SOCKS4 carries no IPv6 address, but may be spoken on one.
    let origins = Origins::start(V4);
    for scheme in ["socks4", "socks4a"] {
        origins.work_through_gateway(&on_ipv6(&format!("{scheme}://{}", dante.address())), true);
    }
}

#[test]
fn an_ipv6_target_goes_through_socks5_and_not_through_socks4() {
    for (scheme, status) in [("socks5", 200), ("socks5h", 200), ("socks4", 502), ("socks4a", 502)] {
        let (proxy, asked) = socks_origin(None);
        let gateway = Setup::of([format!("{scheme}://{}", proxy.address())]).start();
        let answer = gateway.client().get("http://[2001:db8::7]:8001/");
        assert_eq!(answer.status(), status, "{answer:?}");
        if status == 200 {
            let asked = asked.lock().unwrap();
            assert_eq!((&*asked[0].host, asked[0].is_name, asked[0].port), ("2001:db8::7", false, 8001));
        } else {
            assert!(answer.field("Proxy-Status").unwrap().contains("destination_ip_unroutable"), "{answer:?}");
        }
    }
}

/// `::ffff:127.0.0.1` is 127.0.0.1, whatever socket it is dialed from and whatever protocol carries it.
#[test]
fn an_ipv4_address_in_ipv6_clothes_is_an_ipv4_address() {
    let (origin, proxy) = (Upstream::start(serve), Upstream::ok("proxied"));
    let (port, dante) = (origin.address().port(), Server::dante());
    for member in [
        "direct://".to_owned(),
        "direct://127.0.0.5".to_owned(),
        "direct://[::ffff:127.0.0.5]".to_owned(),
        format!("socks4://{}", dante.address()),
        format!("socks5://{}", dante.address()),
    ] {
        let gateway = Setup::of([&*member]).start();
        let host = format!("[::ffff:127.0.0.1]:{port}");
        let answer = gateway.client().get(&format!("http://{host}/"));
        assert_eq!(answer.status(), 200, "{member}: {answer:?}");
        assert_eq!(origin.requests().last().unwrap().field("Host"), Some(&*host), "as the client wrote it");
        assert_eq!(gateway.client().connect(&host).status(), 200, "{member}");
    }
    let member = format!("http://[::ffff:127.0.0.1]:{}", proxy.address().port());
    assert_eq!(Setup::of([member]).start().client().get("http://origin.test/").text(), "proxied");
    // And so is the gateway itself.
    let gateway = Setup::of([proxy.url()]).start();
    let own = format!("[::ffff:127.0.0.1]:{}", gateway.address().port());
    let answer = gateway.client().get(&format!("http://{own}/"));
    assert!(answer.field("Proxy-Status").unwrap().contains("error=proxy_loop_detected"), "{answer:?}");
}

#[test]
fn an_ipv6_target_is_in_brackets_in_every_place() {
    let (origin, proxy) = (Upstream::start_on("[::1]:0", serve), Upstream::start(serve));
    let port = origin.address().port();
    for (member, seen, at) in
        [("direct://".to_owned(), "/a".to_owned(), &origin), (proxy.url(), format!("http://[0:0::1]:{port}/a"), &proxy)]
    {
        let gateway = Setup::of([&*member]).set("log.requests", true).start();
        let (url, mut client) = (format!("http://[0:0::1]:{port}/a"), gateway.client());
        assert_eq!(client.get(&url).text(), format!("GET {seen} HTTP/1.1 "));
        let put =
            client.send(format!("PUT {url} HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx")).response_to("PUT");
        assert_eq!(put.text(), format!("PUT {seen} HTTP/1.1 x"));
        for request in at.requests() {
            assert_eq!(request.field("Host"), Some(&*format!("[0:0::1]:{port}")));
        }
        drop(client);
        let log = gateway.finish();
        assert_eq!(log.matches(&format!("target=[0:0::1]:{port}")).count(), 2, "{log}");
    }
    // A CONNECT is said as it was asked for, and needs its port.
    let gateway = Setup::of([proxy.url()]).start();
    for (target, status) in [("[::1]:443", 200), ("::1:443", 400), ("[::1]", 400), ("[::1]:0", 400), ("[::1", 400)] {
        assert_eq!(gateway.client().connect(target).status(), status, "{target}");
    }
    let connect = proxy.requests().pop().unwrap();
    assert_eq!((connect.head.line(), connect.field("Host")), ("CONNECT [::1]:443 HTTP/1.1", Some("[::1]:443")));
}

/// Which interface it names is this machine's own affair.
#[test]
fn an_address_with_a_zone_is_refused_with_the_reason() {
    let upstream = Upstream::start(serve);
    let gateway = Setup::of([upstream.url()]).start();
    for target in ["[fe80::1%25eth0]:80", "[fe80::1%eth0]:80"] {
        let answer = gateway.client().get(&format!("http://{target}/"));
        assert_eq!(answer.status(), 400, "{answer:?}");
        assert_eq!(gateway.client().connect(target).status(), 400, "{target}");
    }
    assert_eq!(upstream.connections(), 0);
    for member in ["http://[fe80::1%eth0]:80", "socks5://u:p@[fe80::1%25eth0]:80", "direct://[fe80::1%eth0]"] {
        let told = String::from_utf8(run(&["check", "--proxy", member]).stderr).unwrap();
        assert!(told.contains("an IPv6 address with a zone (%...) cannot be dialed"), "{told}");
    }
}
