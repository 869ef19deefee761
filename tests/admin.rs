//! The gateway's own pages: what it counts, and reports.

use std::time::Duration;

use crate::support::gateway::{Gateway, Setup, eventually, run, with_both_stores};
use crate::support::redis::Redis;
use crate::support::upstream::{Refusing, Upstream};
use crate::support::wire::PATIENCE;

const METRICS: &str = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9180\r\n\r\n";

fn report(gateway: &Gateway, body: &str) -> (u16, String) {
    let length = body.len();
    let request = format!("POST /report HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = gateway.ask_admin(request);
    (answer.status(), answer.text().to_owned())
}

#[test]
fn requests_attempts_answers_and_members_are_counted() {
    with_both_stores(|store| {
        let (upstream, refusing) = (Upstream::ok("ok"), Refusing::new());
        let gateway = Setup::of([upstream.url(), format!("http://{}", refusing.address())])
            .over(store)
            .set("gateway.threads", 1)
            .set("health.park_after", 2)
            .admin()
            .start();
        let forwarded = || gateway.metric(r#"evenkeel_requests_total{worker="0",kind="forward"}"#);
        eventually(PATIENCE, "the worker counts", || forwarded() == Some(0));
        let mut client = gateway.client();
        for _ in 0..4 {
            assert_eq!(client.get("http://origin.test/").status(), 200);
        }
        assert_eq!(client.get("/origin-form").status(), 400);
        assert_eq!(forwarded(), Some(4));
        assert_eq!(gateway.metric(r#"evenkeel_requests_total{worker="0",kind="tunnel"}"#), Some(0));
        let failed = gateway.metric(r#"evenkeel_failures_total{error="connection_refused"}"#).unwrap();
        assert!((1..=4).contains(&failed), "{failed}");
        assert_eq!(gateway.metric(r#"evenkeel_attempts_total{worker="0",chosen_by="store"}"#), Some(4 + failed));
        assert_eq!(gateway.metric(r#"evenkeel_attempts_total{worker="0",chosen_by="gateway"}"#), Some(0));
        assert_eq!(gateway.metric(r#"evenkeel_answers_total{status="400",error="http_request_error"}"#), Some(1));
        assert_eq!(gateway.metric(r#"evenkeel_clients{worker="0"}"#), Some(1));
        eventually(PATIENCE, "it is set aside", || {
            client.get("http://origin.test/");
            gateway.metric(r#"evenkeel_parked_total{kind="cooldown"}"#) == Some(1)
        });
        assert_eq!(gateway.metric(r#"evenkeel_members{state="eligible"}"#), Some(1));
        assert_eq!(gateway.metric(r#"evenkeel_members{state="parked"}"#), Some(1));
        assert_eq!(gateway.metric(r#"evenkeel_members{state="candidate"}"#), Some(0));
        drop(client);
        eventually(PATIENCE, "the client has left", || gateway.metric(r#"evenkeel_clients{worker="0"}"#) == Some(0));
    });
}

#[test]
fn the_page_is_open_metrics_and_says_no_more_than_it_knows() {
    let mut redis = Redis::start();
    let gateway = Setup::of(Vec::<String>::new()).redis(&redis).set("pool.timeout", "100ms").admin().start();
    let page = gateway.ask_admin(METRICS);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((page.field("Content-Type"), page.field("Cache-Control")), (Some(kind), Some("no-store")));
    assert!(page.text().ends_with("# EOF\n"));
    let eligible = || gateway.metric(r#"evenkeel_members{state="eligible"}"#);
    eventually(PATIENCE, "the store answers in time", || eligible() == Some(0));
    redis.stop();
    eventually(PATIENCE, "the store is away", || eligible().is_none());
    assert_eq!(gateway.client().get("http://origin.test/").status(), 503);
    assert_eq!(gateway.metric(r#"evenkeel_answers_total{status="503",error="proxy_internal_error"}"#), Some(1));
}

#[test]
fn a_report_counts_as_if_a_client_had_made_it() {
    with_both_stores(|store| {
        let members = [Upstream::ok("ok"), Upstream::ok("ok")];
        let gateway = Setup::of(members.iter().map(Upstream::url)).over(store).admin().start();
        let id = members[0].id();
        let body = format!("ban; proxy={id}; host=shop.test; reason=\"captcha\"\r\n\nban; proxy={id}; host=b.test");
        assert_eq!(report(&gateway, &body), (202, "heard 2\n".to_owned()));
        eventually(PATIENCE, "it is kept from both", || {
            gateway.said("keeps a pool member from a host", &members[0].url()) == 2
        });
        assert!(gateway.log().contains("reported by a client: captcha"));
        assert_eq!(gateway.metric(r#"evenkeel_bans_total{scope="proxy+host"}"#), Some(2));
        let mut client = gateway.client();
        let before = members[0].requests().len();
        assert!((0..4).all(|_| client.get("http://shop.test/").status() == 200));
        assert_eq!(members[0].requests().len(), before);
        // One that cannot be read, and none is heard.
        let (status, why) = report(&gateway, &format!("ban; proxy={id}; host=c.test\nban; proxy=x"));
        assert!(status == 400 && why.contains("proxy must be the id"), "{status} {why}");
        assert_eq!(report(&gateway, &"x".repeat(70_000)).0, 413);
        assert_eq!(report(&gateway, ""), (202, "heard 0\n".to_owned()));
    });
}

#[test]
fn other_requests_are_told_what_there_is() {
    let gateway = Setup::of(Vec::<String>::new()).admin().start();
    for (request, status, allow) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, None),
        ("DELETE /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, Some("GET, HEAD")),
        ("GET /report HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, Some("POST")),
        ("CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n", 404, None),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, None),
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403, None),
        ("GET /metrics HTTP/1.0\r\n\r\n", 200, None),
    ] {
        let answer = gateway.ask_admin(request);
        assert_eq!((answer.status(), answer.field("Allow")), (status, allow), "{request}");
    }
}

#[test]
fn with_a_token_nothing_is_shown_without_it() {
    let gateway = Setup::of(Vec::<String>::new()).set("admin.token", "s3cretToken").admin().start();
    for wrong in
        ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic s3cretToken\r\n", "Authorization: Bearer\r\n"]
    {
        let answer = gateway.ask_admin(format!("GET /metrics HTTP/1.1\r\nHost: h\r\n{wrong}\r\n"));
        assert_eq!((answer.status(), answer.field("WWW-Authenticate")), (401, Some(r#"Bearer realm="evenkeel""#)));
        assert!(!answer.text().contains("evenkeel_"));
    }
    let right = "GET /metrics HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer s3cretToken\r\n\r\n";
    assert_eq!(gateway.ask_admin(right).status(), 200);
    assert!(!gateway.log().contains("s3cret"));
}

/// A member may be this machine itself, and whoever reaches the gateway is not its operator.
#[test]
fn no_client_is_led_to_the_pages() {
    let gateway = Setup::of(["direct://"]).admin().start();
    let admin = gateway.admin();
    for target in [admin.to_string(), format!("localhost:{}", admin.port())] {
        let answer = gateway.client().get(&format!("http://{target}/metrics"));
        assert_eq!(answer.status(), 502);
        assert_eq!(answer.field("Proxy-Status"), Some("evenkeel; error=proxy_loop_detected"));
        assert_eq!(gateway.client().connect(&target).status(), 502);
    }
}

#[test]
fn an_address_that_is_taken_ends_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("gateway.toml");
    let admin = taken.local_addr().unwrap();
    std::fs::write(&config, format!("gateway.listen = \"127.0.0.1:0\"\nadmin.listen = \"{admin}\"\n")).unwrap();
    let output = run(&["--config", config.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(71));
    assert!(told.contains(&format!("cannot listen on {admin} (admin.listen)")), "{told}");
}

#[test]
fn a_slow_reader_or_half_a_request_holds_up_nobody() {
    let gateway = Setup::of(Vec::<String>::new()).admin().start();
    let mut half = crate::support::client::Client::to(gateway.admin());
    half.send("GET /metrics HTTP/1.1\r\nHo");
    assert_eq!(gateway.ask_admin(METRICS).status(), 200);
    assert!(half.is_silent_for(Duration::from_millis(10)));
}
