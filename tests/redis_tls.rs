//! TLS to Redis: who is believed, and what is said of who is not.

use std::net::SocketAddr;

use crate::support::gateway::{KEY, Setup, program};
use crate::support::redis::Redis;
use crate::support::servers::{Certificate, Server};
use crate::support::upstream::Upstream;

/// `pool.timeout`: longer than the 2 s after which a connection that does not come about is given up.
const PATIENCE: &str = "2500ms";

fn address(redis: &Redis) -> SocketAddr {
    redis.url().strip_prefix("redis://").expect("its URL").parse().expect("an address")
}

/// What `evenkeel pool list` ends with, and what it says on standard error.
fn list(url: &str, roots: &str) -> (i32, String) {
    let mut command = program();
    // Not from the folder of a checkout, which has a config.toml.
    command.args(["pool", "list", "--store", url]).env("SSL_CERT_FILE", roots).current_dir(std::env::temp_dir());
    let output = command.env("EVENKEEL_POOL__TIMEOUT", PATIENCE).output().expect("the program runs");
    (output.status.code().expect("an exit code"), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn a_gateway_shares_its_pool_over_tls() {
    let (certificate, redis, upstream) = (Certificate::make(), Redis::start(), Upstream::ok("fine"));
    let tls = Server::stunnel(&certificate, address(&redis));
    let gateway = Setup::of([upstream.url()])
        .store(&format!("rediss://{}", tls.address()))
        .env("SSL_CERT_FILE", certificate.authority().to_str().unwrap())
        .start();
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    assert_eq!(redis.scores(KEY), [(upstream.url().into_bytes(), "1".to_owned())]);
    gateway.finish();
}

/// As of an https member.
#[test]
fn what_is_wrong_with_its_certificate_is_said_in_a_sentence() {
    let (valid, stranger, own) = (Certificate::make(), Certificate::make(), Certificate::of_authority());
    let expired = Certificate::valid("20200101000000Z", "20200102000000Z");
    let redis = Redis::start();
    let to = address(&redis);
    std::thread::scope(|scope| {
        for (certificate, roots, host, refused) in [
            (&valid, &valid, "127.0.0.1", None),
            (&valid, &valid, "localhost", Some("it is for another name")),
            (&valid, &stranger, "127.0.0.1", Some("nobody known here has issued it")),
            (&expired, &expired, "127.0.0.1", Some("it has expired")),
            (&own, &own, "127.0.0.1", Some("it is a certificate authority's own, which no server may show; ")),
        ] {
            scope.spawn(move || {
                let tls = Server::stunnel(certificate, to);
                let url = format!("rediss://{host}:{}", tls.address().port());
                let (code, said) = list(&url, roots.authority().to_str().unwrap());
                match refused {
                    None => assert_eq!((code, &*said), (0, "")),
                    Some(why) => {
                        assert_eq!(code, 69, "{said}");
                        let expected = format!("cannot reach Redis: its certificate is not accepted: {why}");
                        assert!(said.lines().any(|line| line.starts_with(&expected)), "{said}\n{expected}");
                    }
                }
            });
        }
    });
}

#[test]
fn a_store_that_speaks_no_tls_or_wants_a_client_certificate_is_said_to() {
    let certificate = Certificate::make();
    let web = Upstream::start(|conn| {
        conn.send("HTTP/1.1 400 Bad Request\r\n\r\n")?;
        conn.until_close().map(drop)
    });
    let (redis, port) = Redis::for_known_clients(&certificate);
    let roots = certificate.authority();
    std::thread::scope(|scope| {
        for (to, why) in [
            (address(&redis), "no answer to TLS within 2s; a URL without TLS begins with redis://"),
            (web.address(), "what it says is not TLS; a URL without TLS begins with redis://"),
            (
                SocketAddr::from(([127, 0, 0, 1], port)),
                "it asks for a client certificate, and there is none to show; see tls-auth-clients in redis.conf",
            ),
        ] {
            let roots = roots.to_str().unwrap();
            scope.spawn(move || {
                let (code, said) = list(&format!("rediss://{to}"), roots);
                assert_eq!(code, 69, "{said}");
                assert_eq!(said.lines().last().unwrap(), format!("cannot reach Redis: {why}"));
            });
        }
    });
}

/// By name; also to members.
#[test]
fn root_certificates_that_cannot_be_read_are_told() {
    let certificate = Certificate::make();
    let (redis, upstream) = (Redis::start(), Upstream::ok("fine"));
    let empty = certificate.chain().with_file_name("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.to_str().unwrap();
    let to_redis = Server::stunnel(&certificate, address(&redis));
    let to_member = Server::stunnel(&certificate, upstream.address());
    for roots in ["/nonexistent/roots.pem", empty] {
        let is_told = |log: &str| {
            log.lines().any(|line| line.contains("WARN no root certificates: every https") && line.contains(roots))
        };
        let (code, said) = list(&format!("rediss://{}", to_redis.address()), roots);
        assert_eq!(code, 69, "{said}");
        assert!(is_told(&said) && said.contains("nobody known here has issued it"), "{said}");
        let member = format!("https://{}", to_member.address());
        let gateway = Setup::of([member]).env("SSL_CERT_FILE", roots).start();
        let answer = gateway.client().get("http://origin.test/");
        assert!(answer.text().contains("nobody known here has issued it"), "{}", answer.text());
        let log = gateway.finish();
        assert!(is_told(&log), "{log}");
    }
}
