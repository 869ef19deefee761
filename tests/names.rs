//! Who resolves a name, and what becomes of it when it has several addresses.

use std::time::{Duration, Instant};

use crate::support::gateway::Setup;
use crate::support::proxy::{serve, socks_origin, whole};
use crate::support::resolver::Resolver;
use crate::support::socks;
use crate::support::upstream::{Refusing, Unreachable, Upstream};
use crate::support::wire::Wire;

/// What the resolver here says is never what the name means there.
#[test]
fn a_name_is_resolved_where_the_scheme_says_and_nowhere_else() {
    for (scheme, resolves_there) in [("socks4a", true), ("socks5h", true), ("socks4", false), ("socks5", false)] {
        let (proxy, asked) = socks_origin(None);
        let resolver = Resolver::with(&[("proxy.test", &["127.0.0.1"]), ("known.test", &["127.0.0.9"])]);
        let setup = Setup::of([format!("{scheme}://proxy.test:{}", proxy.address().port())]);
        let gateway = resolver.before(setup).set("gateway.threads", 1).start();
        let known = gateway.client().get("http://known.test/a");
        let put = "PUT http://known.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
        let put = gateway.client().send(put).response_to("PUT");
        let tunnel = gateway.client().connect("known.test:443");
        let unknown = gateway.client().get("http://only.there.test/a");
        assert_eq!((known.status(), put.status(), tunnel.status()), (200, 200, 200), "{scheme}");
        let asked: Vec<_> = asked.lock().unwrap().iter().map(|asked| (asked.host.clone(), asked.is_name)).collect();
        let names = resolver.asked();
        if resolves_there {
            assert_eq!(unknown.status(), 200, "{unknown:?}");
            let [name, other] = ["known.test", "only.there.test"].map(|name| (name.to_owned(), true));
            assert_eq!(asked, [name.clone(), name.clone(), name, other], "{scheme}");
            assert!(!names.is_empty() && names.iter().all(|name| name == "proxy.test"), "{scheme}: {names:?}");
        } else {
            assert!(unknown.field("Proxy-Status").unwrap().contains("error=dns_error"), "{unknown:?}");
            assert_eq!(asked, vec![("127.0.0.9".to_owned(), false); 3], "{scheme}");
            let of_targets = names.iter().filter(|name| *name != "proxy.test").collect::<Vec<_>>();
            assert_eq!(of_targets, ["known.test", "known.test", "known.test", "only.there.test"], "{scheme}");
        }
    }
}

/// A chain's later hops are named to the hop before them, and an HTTP proxy is told the target's name.
#[test]
fn a_chain_resolves_its_first_hop_here_and_what_its_hops_leave_to_it() {
    let (last, asked) = socks_origin(None);
    let first = Upstream::start(move |conn| {
        let request = socks::hear(conn, None, whole)?;
        conn.send(socks::granted(request.version))?;
        // Whatever it is called: that is for this proxy to know.
        conn.join(&mut Wire::connect(last.address())?)
    });
    for (scheme, here) in [("socks5h", vec!["first.test"]), ("socks5", vec!["first.test", "last.test"])] {
        let resolver = Resolver::with(&[("first.test", &["127.0.0.1"]), ("last.test", &["127.0.0.9"])]);
        let chain = format!("{scheme}://first.test:{}|socks4a://last.test:1080", first.address().port());
        let mut gateway = resolver.before(Setup::of([chain])).start();
        assert_eq!(gateway.client().get("http://target.test/").status(), 200);
        assert_eq!(asked.lock().unwrap().last().unwrap().host, "target.test");
        let mut names = resolver.asked();
        names.sort();
        assert_eq!(names, here, "{scheme}");
        gateway.signal(rustix::process::Signal::TERM);
        gateway.wait_exit(Duration::from_secs(10));
    }
}

/// RFC 8305: a family without a way costs a quarter of a second, not the dial timeout.
#[test]
fn of_a_name_with_a_dead_address_the_other_is_used_at_once() {
    let refusing = Refusing::new();
    let late = Unreachable::new();
    for (dead, port) in [("refuses", refusing.address().port()), ("is silent", late.address().port())] {
        // IPv4 is dead, and comes first.
        let alive = Upstream::start_on(("::1", port), serve);
        let resolver =
            Resolver::with(&[("two.test", &["127.0.0.1", "::1"]), ("dead.test", &["127.0.0.1", "127.0.0.1"])]);
        for (member, url) in [
            (format!("http://two.test:{port}"), "http://origin.test/".to_owned()),
            ("direct://".to_owned(), format!("http://two.test:{port}/")),
        ] {
            let gateway = resolver.before(Setup::of([&*member])).start();
            let started = Instant::now();
            let answer = gateway.client().get(&url);
            assert_eq!(answer.status(), 200, "{member}: {answer:?}");
            let took = started.elapsed();
            assert!(took < Duration::from_secs(2), "{dead}: {took:?}");
        }
        assert_eq!(alive.connections(), 2);
        // Who dials from an address has no choice.
        for (member, is_served) in [("direct://[::1]", true), ("direct://127.0.0.5", false)] {
            let setup = Setup::of([member]).set("upstream.dial_timeout", "400ms");
            let answer = resolver.before(setup).start().client().get(&format!("http://two.test:{port}/"));
            assert_eq!(answer.status() == 200, is_served, "{member}: {answer:?}");
        }
        // Where there is no other, its failure is told.
        let setup = Setup::of([format!("http://dead.test:{port}")]).set("upstream.dial_timeout", "400ms");
        let answer = resolver.before(setup).start().client().get("http://origin.test/");
        let error = if dead == "refuses" { "connection_refused" } else { "connection_timeout" };
        assert!(answer.field("Proxy-Status").unwrap().contains(error), "{answer:?}");
    }
}

/// Where the name is resolved here and the proxy refuses one family, the other is asked for.
#[test]
fn a_socks5_proxy_without_ipv6_is_asked_for_the_ipv4_address() {
    let origin = Upstream::start(serve);
    let proxy = Upstream::start(|conn| {
        let request = socks::hear(conn, None, whole)?;
        if request.host.contains(':') {
            return conn.send(b"\x05\x04\0\x01\0\0\0\0\0\0");
        }
        conn.send(socks::granted(request.version))?;
        serve(conn)
    });
    let resolver = Resolver::with(&[("two.test", &["::1", "127.0.0.1"]), ("six.test", &["::1"])]);
    let gateway = resolver.before(Setup::of([format!("socks5://{}", proxy.address())])).start();
    let port = origin.address().port();
    assert_eq!(gateway.client().get(&format!("http://two.test:{port}/")).status(), 200);
    assert_eq!(gateway.client().connect(&format!("two.test:{port}")).status(), 200);
    assert_eq!(proxy.connections(), 4);
    let answer = gateway.client().get(&format!("http://six.test:{port}/"));
    assert!(answer.text().contains("host unreachable"), "{answer:?}");
}
