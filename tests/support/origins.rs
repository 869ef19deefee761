//! What a client does through every kind of member, and the origins that it does it with.

use std::net::IpAddr;

use super::client::{Client, curl};
use super::gateway::{Gateway, Setup};
use super::proxy::{SECRET, serve, speak_first};
use super::servers::{Certificate, Server};
use super::upstream::Upstream;

pub(crate) fn switch_protocols(client: &mut Client, url: &str) {
    client.send(format!(
        "GET {url} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AA==\r\n\r\n"
    ));
    assert_eq!(client.head().status(), 101);
    assert_eq!(client.exactly(5), b"first");
    assert_eq!(client.send("frame").exactly(5), b"frame");
}

/// Ends the gateway and looks for the secret in its log.
pub(crate) fn end(gateway: Gateway) -> String {
    let log = gateway.finish();
    assert!(!log.contains(SECRET), "{log}");
    log
}

pub(crate) fn logged(members: impl IntoIterator<Item = String>) -> Setup {
    Setup::of(members).set("log.requests", true).env("RUST_LOG", "trace,fred=off")
}

/// The origins of the tests with real servers.
pub(crate) struct Origins {
    pub(crate) certificate: Certificate,
    pub(crate) http: Upstream,
    pub(crate) https: Server,
    pub(crate) first: Upstream,
}

impl Origins {
    pub(crate) fn start(ip: IpAddr) -> Self {
        let (certificate, http) = (Certificate::make(), Upstream::start_on((ip, 0), serve));
        let https = Server::stunnel_on(ip, &certificate, http.address());
        Self { certificate, http, https, first: Upstream::start_on((ip, 0), speak_first) }
    }

    /// Everything that a client does, through each member alone.
    pub(crate) fn work_through(&self, members: &[String], upgrades: bool) {
        for member in members {
            self.work_through_gateway(&logged([member.clone()]), upgrades);
        }
    }

    /// The same through members that close each connection after its answer without saying so, and some time after it: a
    /// request on one that was kept would be lost now and then.
    pub(crate) fn work_through_closing(&self, members: &[String]) {
        for member in members {
            self.work_through_gateway(&logged([member.clone()]).set("upstream.idle_timeout", "0s"), false);
        }
    }

    /// The same through a gateway of one's own.
    pub(crate) fn work_through_gateway(&self, setup: &Setup, upgrades: bool) {
        let authority = self.certificate.authority().display().to_string();
        let gateway = setup.clone().env("SSL_CERT_FILE", &authority).start();
        let url = self.http.url();
        let mut client = gateway.client();
        // The second time on a connection that was kept.
        for _ in 0..2 {
            let answer = client.get(&format!("{url}/a?b"));
            assert_eq!((answer.status(), answer.text()), (200, "GET /a?b HTTP/1.1 "), "{:?}", answer.head);
            let answer = client
                .send(format!("POST {url}/a HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody"))
                .response_to("POST");
            assert_eq!((answer.status(), answer.text()), (200, "POST /a HTTP/1.1 body"), "{:?}", answer.head);
        }
        let page = format!("https://{}/s", self.https.address());
        let output = curl(&["-x", &gateway.url(), "--cacert", &authority, &page]);
        if output.stdout != b"GET /s HTTP/1.1 " {
            panic!("{}\n{}", String::from_utf8_lossy(&output.stderr), end(gateway));
        }
        let mut tunnel = gateway.client();
        assert_eq!(tunnel.connect(&self.first.address().to_string()).status(), 200);
        assert_eq!(tunnel.exactly(11), b"220 ready\r\n");
        tunnel.send(vec![b'x'; 100_000]);
        assert!(tunnel.exactly(100_000).iter().all(|&b| b == b'x'));
        drop(tunnel);
        if upgrades {
            switch_protocols(&mut gateway.client(), &format!("{url}/ws"));
        }
        for request in self.http.requests() {
            assert_eq!(request.field("Proxy-Authorization"), None);
        }
        let log = end(gateway);
        assert_eq!(log.matches("attempts=2").count(), 0, "{log}");
    }
}
