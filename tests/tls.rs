//! TLS to an upstream proxy: whom it trusts, what it carries, and where it may not be believed.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::client::{Client, curl};
use crate::support::gateway::Setup;
use crate::support::origins::{end, logged, switch_protocols};
use crate::support::proxy::{BASIC, Proxy, SECRET, member, serve, whole};
use crate::support::servers::{Certificate, Server};
use crate::support::tls::{self, ENDINGS, Ending, TlsConn, VERSIONS};
use crate::support::upstream::{Conn, Upstream};
use crate::support::wire::{PATIENCE, Wire};

/// Passes everything on to `to`, and what comes back in single bytes at first.
fn dribbling(to: SocketAddr) -> Upstream {
    Upstream::start(move |conn| {
        let mut far = Wire::connect(to)?;
        let (mut near, mut out) = (conn.stream.try_clone()?, far.stream.try_clone()?);
        std::thread::spawn(move || io::copy(&mut near, &mut out));
        for _ in 0..200 {
            let byte = far.exactly(1)?;
            std::thread::sleep(Duration::from_millis(1)); // so that each is a segment
            conn.send(byte)?;
        }
        loop {
            conn.send(far.exactly(1)?)?;
        }
    })
}

#[test]
fn tls_to_a_proxy_may_dribble_and_its_connections_are_kept() {
    let certificate = Certificate::make();
    let proxy = Upstream::start(serve);
    let tls = Server::stunnel(&certificate, proxy.address());
    let slow = dribbling(tls.address());
    let authority = certificate.authority().display().to_string();
    for (address, connections) in [(tls.address(), 1), (slow.address(), 1)] {
        let before = proxy.connections();
        let gateway = logged([format!("https://u:{SECRET}@{address}")])
            .env("SSL_CERT_FILE", &authority)
            .set("gateway.threads", 1)
            .start();
        let mut client = gateway.client();
        for _ in 0..3 {
            let answer = client.get("http://origin.test/a");
            assert_eq!((answer.status(), answer.text()), (200, "GET http://origin.test/a HTTP/1.1 "));
        }
        assert_eq!(proxy.connections() - before, connections, "kept between requests");
        switch_protocols(&mut gateway.client(), "http://origin.test/ws");
        end(gateway);
    }
    assert!(proxy.requests().iter().all(|r| r.field("Proxy-Authorization") == Some(BASIC)));
}

#[test]
fn tunnels_through_tls_carry_bulk_both_ways_and_half_closes() {
    let certificate = Certificate::make();
    let proxy = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n220 ready\r\n")?;
        conn.echo()
    });
    let tls = Server::stunnel(&certificate, proxy.address());
    let gateway = logged([member("https", tls.address())]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:25").status(), 200);
    assert_eq!(client.exactly(11), b"220 ready\r\n");
    for _ in 0..10 {
        let bulk: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        client.send(&bulk);
        assert!(client.exactly(bulk.len()) == bulk);
    }
    client.send("last").finish();
    assert_eq!(client.until_close(), b"last");
    end(gateway);
}

/// What TLS holds back while the socket is full goes out although the client says no more.
#[test]
fn a_tunnel_through_tls_to_a_slow_reader_arrives_to_its_last_byte() {
    const LENGTH: usize = 64 << 20;
    let certificate = Certificate::make();
    let proxy = Upstream::start(|conn| {
        conn.request()?;
        conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
        for _ in 0..LENGTH >> 16 {
            std::thread::sleep(Duration::from_millis(1)); // so that every buffer on the way is full
            conn.exactly(1 << 16)?;
        }
        conn.send("all")?;
        conn.until_close().map(drop)
    });
    let tls = Server::stunnel(&certificate, proxy.address());
    let gateway = Setup::of([member("https", tls.address())]).start();
    let mut client = gateway.client();
    assert_eq!(client.connect("origin.test:443").status(), 200);
    assert_eq!(client.send(vec![b'x'; LENGTH]).exactly(3), b"all");
}

#[test]
fn a_kept_tls_connection_that_has_ended_is_not_used_again() {
    let certificate = Certificate::make();
    let proxy = Upstream::ok("fine");
    let tls = Server::stunnel(&certificate, proxy.address());
    let way = dribbling(tls.address());
    let members = [member("https", way.address())];
    let gateway = Setup::of(members).set("gateway.threads", 1).set("retry.attempts", 1).start();
    assert_eq!(gateway.client().get("http://origin.test/").text(), "fine");
    drop(way);
    // The kept connection would have been terminated. A new one is refused, or gets nowhere: a process that another test starts just
    // now may have the listener for a moment.
    let status = gateway.client().get("http://origin.test/").field("Proxy-Status").unwrap().to_owned();
    let is_new = ["connection_refused", "tls_protocol_error"].iter().any(|error| status.contains(error));
    assert!(is_new, "{status}");
}

/// The certificate's own faults, and whose it is.
#[test]
fn a_certificate_must_be_trusted_valid_and_for_the_name() {
    let (valid, stranger) = (Certificate::make(), Certificate::make());
    let expired = Certificate::valid("20200101000000Z", "20200102000000Z");
    let early = Certificate::valid("20980101000000Z", "20991231000000Z");
    let own = Certificate::of_authority();
    let old = Certificate::of_version_1("-newkey rsa:2048");
    let rare = Certificate::of_version_1("-newkey ec -pkeyopt ec_paramgen_curve:P-521");
    for (certificate, roots, host, options, refused) in [
        (&valid, &valid, "127.0.0.1", "", None),
        (&valid, &valid, "localhost", "", Some("it is for another name")),
        (&valid, &valid, "localhost", "?sni=proxy.test", None),
        (&valid, &valid, "127.0.0.1", "?sni=PROXY.test", None),
        (&valid, &valid, "127.0.0.1", "?sni=other.test", Some("it is for another name")),
        (&valid, &valid, "127.0.0.1", "?sni=127.0.0.2", Some("it is for another name")),
        (&valid, &stranger, "127.0.0.1", "", Some("nobody known here has issued it")),
        (&expired, &expired, "127.0.0.1", "", Some("it has expired")),
        (&early, &early, "127.0.0.1", "", Some("it is not valid yet")),
        (&own, &own, "127.0.0.1", "", Some("it is a certificate authority's own, which no server may show")),
        (&valid, &stranger, "localhost", "?insecure=1", None),
        (&expired, &expired, "127.0.0.1", "?insecure=1", None),
        (&early, &stranger, "127.0.0.1", "?insecure=1&sni=other.test", None),
        (&old, &stranger, "127.0.0.1", "?insecure=1", None),
        (&old, &old, "127.0.0.1", "", Some("it is not valid")),
        (&rare, &stranger, "127.0.0.1", "?insecure=1", None),
    ] {
        let proxy = Upstream::start(serve);
        let tls = Server::stunnel(certificate, proxy.address());
        let member = format!("https://{host}:{}{options}", tls.address().port());
        let gateway = Setup::of([&*member]).env("SSL_CERT_FILE", roots.authority().to_str().unwrap()).start();
        for answer in [gateway.client().get("http://origin.test/"), gateway.client().get("http://origin.test/")] {
            match refused {
                None => assert_eq!(answer.status(), 200, "{member}: {answer:?}"),
                Some(why) => {
                    assert!(answer.status() == 502 && answer.text().contains(why), "{member}: {answer:?}");
                    assert!(answer.field("Proxy-Status").unwrap().contains("error=tls_certificate_error;"));
                }
            }
        }
        // Credentials are for whom the certificate says.
        assert_eq!(proxy.requests().is_empty(), refused.is_some(), "{member}");
        let warnings = gateway.finish().matches("insecure=1").count();
        assert_eq!(warnings > 0, member.contains("insecure=1"), "{member}");
        assert!(warnings <= 2, "once: its name, and what it means");
    }
}

#[test]
fn the_name_that_is_asked_for_is_the_host_or_the_one_in_sni() {
    let certificate = Certificate::make();
    for version in VERSIONS {
        let (config, names) = (tls::config(&certificate, version), Arc::new(Mutex::new(Vec::new())));
        let shared = names.clone();
        let proxy = Upstream::start(move |conn| {
            let mut tls = TlsConn::accept(conn, &config)?;
            shared.lock().unwrap().push(tls.server_name());
            tls.head()?;
            tls.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
            tls.end(Ending::Told)
        });
        let port = proxy.address().port();
        for (member, name) in [
            (format!("https://127.0.0.1:{port}?insecure=1"), None),
            (format!("https://localhost:{port}?insecure=1"), Some("localhost")),
            (format!("https://127.0.0.1:{port}?insecure=1&sni=a-b.test"), Some("a-b.test")),
            (format!("https://localhost:{port}?insecure=1&sni=10.0.0.7"), None),
        ] {
            assert_eq!(Setup::of([&*member]).start().client().get("http://origin.test/").status(), 204, "{member}");
            assert_eq!(names.lock().unwrap().last().unwrap().as_deref(), name, "{member}");
        }
    }
}

/// What a client gets that is told after the first bytes of a body that `go` may go on; and whether that is a whole answer as
/// far as it can tell.
fn is_whole(client: &mut Client, request: &str, go: impl FnOnce()) -> bool {
    let wire = client.send(request).wire();
    let mut bytes = wire.until(b"bo").unwrap_or_else(|error| panic!("{request:?}: {error}"));
    go();
    let is_reset = loop {
        match wire.some() {
            Ok(more) if more.is_empty() => break false,
            Ok(more) => bytes.extend(more),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break true,
            Err(error) => panic!("{error}"),
        }
    };
    let text = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    match head.split_once("content-length: ") {
        Some((_, length)) => body.len() == length.lines().next().unwrap().parse::<usize>().unwrap(),
        None if head.contains("transfer-encoding: ") => body.ends_with("0\r\n\r\n"),
        None => !is_reset,
    }
}

/// Whoever sits between the gateway and the proxy can end the connection, but not in the name of the proxy.
#[test]
fn an_answer_that_was_cut_short_never_looks_whole() {
    let certificate = Certificate::make();
    let requests = [
        "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
        "GET http://origin.test/ HTTP/1.0\r\n\r\n",
    ];
    let (always, if_told, never) = (&ENDINGS[..], &[Ending::Told][..], &[][..]);
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\n\r\nbody", if_told),
        ("HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nbody", if_told),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", always),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", always),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody", never),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n", never),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbo", never),
    ] {
        for (version, ending) in VERSIONS.iter().flat_map(|version| ENDINGS.map(|ending| (version, ending))) {
            let config = tls::config(&certificate, version);
            let (go, may_go) = std::sync::mpsc::channel();
            let may_go = Mutex::new(may_go);
            let proxy = Upstream::start(move |conn| {
                let mut tls = TlsConn::accept(conn, &config)?;
                tls.head()?;
                tls.send(answer)?;
                // A reset would overtake the answer.
                let _ = may_go.lock().unwrap().recv();
                tls.end(ending)
            });
            let gateway = Setup::of([member("https", proxy.address())]).start();
            for request in requests {
                let is_whole = is_whole(&mut gateway.client(), request, || go.send(()).unwrap());
                assert_eq!(is_whole, expected.contains(&ending), "{version:?} {answer:?} {ending:?} {request:?}");
            }
        }
    }
}

#[test]
fn a_handshake_that_the_proxy_refuses_says_so() {
    let certificate = Certificate::make();
    for (options, alert) in [
        (&["-tls1_1", "-cipher", "ALL@SECLEVEL=0"][..], "ProtocolVersion"),
        (&["-tls1_2", "-cipher", "AES128-SHA"], "HandshakeFailure"),
        (&["-tls1_2", "-Verify", "1"], "HandshakeFailure"),
        // The handshake is over for the gateway when the proxy says this, and the request sent.
        (&["-tls1_3", "-Verify", "1"], "CertificateRequired"),
    ] {
        let server = Server::openssl(&certificate, options);
        let gateway = logged([member("https", server.address())]).start();
        let get = gateway.client().get("http://origin.test/");
        let put = "PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
        let put = gateway.client().send(put).response_to("PUT");
        let mut client = gateway.client();
        let head = client.connect("origin.test:443");
        for answer in [get, put, client.body_of(head, "GET")] {
            assert!(answer.status() == 502 && answer.text().contains(alert), "{options:?}: {}", answer.text());
            assert!(answer.field("Proxy-Status").unwrap().contains("error=tls_protocol_error;"), "{answer:?}");
        }
        end(gateway);
    }
}

/// Bytes in no pattern that a buffer's size could hide in.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..length / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// An origin that answers with what it was sent.
fn mirror(conn: &mut Conn) -> io::Result<()> {
    while let Some(request) = conn.request()? {
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()))?;
        conn.send(&request.body)?;
    }
    Ok(())
}

/// TLS inside TLS by curl, and TLS alone on every way through the gateway; 16 MiB there, and the same back.
#[test]
fn bulk_through_an_https_proxy_arrives_byte_for_byte() {
    const LENGTH: usize = 16 << 20;
    let (certificate, noise) = (Certificate::make(), noise(LENGTH));
    let origin = Upstream::start(mirror);
    let tls_origin = Server::stunnel(&certificate, origin.address());
    let (file, answer) =
        (certificate.authority().with_file_name("sent"), certificate.authority().with_file_name("got"));
    std::fs::write(&file, &noise).unwrap();
    let proxy = Proxy::relaying("https", whole, None);
    let chain = {
        let tls = proxy.member.clone();
        let second = Proxy::relaying("https", whole, None);
        (format!("{tls}|{}", second.member), second)
    };
    for member in [&proxy.member, &chain.0] {
        let gateway = logged([member.clone()]).start();
        let (authority, page) = (certificate.authority(), format!("https://{}/", tls_origin.address()));
        let [authority, file, answer] = [&authority, &file, &answer].map(|path| path.to_str().unwrap());
        let output = curl(&["-x", &gateway.url(), "--cacert", authority, "-T", file, "-o", answer, &page]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(std::fs::read(answer).unwrap() == noise, "{member}");
        end(gateway);
    }
    // In absolute-form to the proxy itself.
    let tls = Server::stunnel(&certificate, origin.address());
    let gateway = logged([member("https", tls.address())]).start();
    let mut client = gateway.client();
    for _ in 0..2 {
        let head = format!("PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: {LENGTH}\r\n\r\n");
        let answer = client.send(head).send(&noise).response_to("PUT");
        assert!(answer.body == noise, "{} bytes", answer.body.len());
    }
    assert_eq!(origin.requests().len(), 4);
}

/// Each side of a tunnel may end before the other; what was on its way arrives.
#[test]
fn a_tunnel_through_tls_ends_by_halves() {
    let certificate = Certificate::make();
    for version in VERSIONS {
        let config = tls::config(&certificate, version);
        let (heard, hears) = std::sync::mpsc::channel();
        let heard = Mutex::new(heard);
        let proxy = Upstream::start(move |conn| {
            let mut tls = TlsConn::accept(conn, &config)?;
            tls.head()?;
            tls.send("HTTP/1.1 200 OK\r\n\r\nfrom the origin")?;
            tls.finish()?;
            let (mut all, mut some) = (Vec::new(), [0; 1024]);
            while let length @ 1.. = tls.read(&mut some)? {
                all.extend_from_slice(&some[..length]);
            }
            heard.lock().unwrap().send(all).map_err(io::Error::other)
        });
        let gateway = logged([member("https", proxy.address())]).start();
        let mut client = gateway.client();
        assert_eq!(client.connect("origin.test:25").status(), 200);
        assert_eq!(client.until_close(), b"from the origin");
        client.send("from the client").finish();
        assert_eq!(hears.recv_timeout(PATIENCE).unwrap(), b"from the client", "{version:?}");
        end(gateway);
    }
}

/// What is carried knows its own end. Many proxies just close, so all that came is delivered, and then the connection ends.
#[test]
fn a_tunnel_delivers_what_came_however_the_proxy_ends_it() {
    let certificate = Certificate::make();
    for (version, ending) in VERSIONS.iter().flat_map(|version| ENDINGS.map(|ending| (version, ending))) {
        let config = tls::config(&certificate, version);
        let (go, may_go) = std::sync::mpsc::channel();
        let may_go = Mutex::new(may_go);
        let proxy = Upstream::start(move |conn| {
            let mut tls = TlsConn::accept(conn, &config)?;
            tls.head()?;
            tls.send("HTTP/1.1 200 OK\r\n\r\n")?;
            tls.send(vec![b'x'; 50_000])?;
            let _ = may_go.lock().unwrap().recv();
            tls.end(ending)
        });
        let gateway = logged([member("https", proxy.address())]).start();
        let mut client = gateway.client();
        assert_eq!(client.connect("origin.test:25").status(), 200);
        let first = client.exactly(1);
        if ending != Ending::Reset {
            go.send(()).unwrap();
        }
        let rest = client.exactly(49_999);
        assert!(first.iter().chain(&rest).all(|&b| b == b'x'), "{version:?} {ending:?}");
        let _ = go.send(());
        if ending == Ending::Told {
            client.finish();
        }
        assert_eq!(client.until_close(), b"", "{version:?} {ending:?}");
        let log = end(gateway);
        let ended = if ending == Ending::Told { "ended=done" } else { "ended=upstream" };
        assert!(log.contains(ended), "{version:?} {ending:?}: {log}");
    }
}

/// Whether it comes in the same piece or later is the network's business.
#[test]
fn what_came_with_a_record_that_cannot_be_read_is_delivered() {
    let certificate = Certificate::make();
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
    for (version, request) in VERSIONS.iter().flat_map(|version| {
        let short = "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n";
        let through_hyper = "PUT http://origin.test/ HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx";
        [short, through_hyper, "CONNECT origin.test:25 HTTP/1.1\r\nHost: h\r\n\r\n"].map(|request| (version, request))
    }) {
        let config = tls::config(&certificate, version);
        let is_tunnel = request.starts_with("CONNECT");
        let proxy = Upstream::start(move |conn| {
            let mut tls = TlsConn::accept(conn, &config)?;
            let head = tls.head()?;
            if head.starts_with("PUT") {
                tls.read(&mut [0])?;
            }
            if is_tunnel {
                tls.send("HTTP/1.1 200 OK\r\n\r\n")?;
                tls.read(&mut [0])?;
            }
            tls.send_and_forge(if is_tunnel { "carried" } else { answer })
        });
        let gateway = Setup::of([member("https", proxy.address())]).start();
        let mut client = gateway.client();
        client.send(request);
        if is_tunnel {
            assert_eq!(client.head().status(), 200);
            assert_eq!(client.send("?").until_close(), b"carried", "{version:?}");
        } else {
            assert_eq!(client.response().body, b"body", "{version:?} {request}");
        }
    }
}
