//! The same answer from an upstream proxy to a request without a body, which goes the short way, and to one with a body, which
//! goes through hyper: the client gets the same.
//!
//! Not here, since README says how they differ: extensions of chunks that are long or not printable, and chunks that make no
//! sense in the same segment as the head.

use std::sync::{Mutex, mpsc};

use crate::support::gateway::Setup;
use crate::support::upstream::Upstream;
use crate::support::wire::PATIENCE;

const GET: &str = "GET http://origin.test/ HTTP/1.1\r\nHost: h\r\n\r\n";
const POST: &str =
    "POST http://origin.test/ HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE\r\nContent-Length: 1\r\n\r\nx";

/// What a client got, without how it was framed: the status line and the fields, then the body and the trailers if it was whole.
type Got = (String, Vec<(String, String)>, Option<(Vec<u8>, String)>);

/// The body is sent once the client has the head.
fn ask(request: &str, head: &str, body: &str) -> Got {
    let (go_on, wait) = mpsc::channel();
    let (wait, head, body) = (Mutex::new(wait), head.to_owned(), body.to_owned());
    let upstream = Upstream::start(move |conn| {
        conn.request()?;
        conn.send(&head)?;
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        conn.send(&body)
    });
    let gateway = Setup::of([upstream.url()]).set("retry.attempts", 1).set("gateway.proxy_status", "errors").start();
    let mut client = gateway.client();
    let head = client.send(request).head();
    go_on.send(()).unwrap();
    let framing = ["connection", "content-length", "transfer-encoding"];
    let name_of_upstream = format!("; next-hop={}", upstream.id());
    let fields = head.fields().map(|(name, value)| (name.to_lowercase(), value.replace(&name_of_upstream, "")));
    let fields = fields.filter(|(name, _)| !framing.contains(&name.as_str())).collect();
    let line = head.line().to_owned();
    let whole = client.wire().response(head, "GET").ok();
    (line, fields, whole.map(|message| (message.body, message.trailers.to_lowercase())))
}

fn check(head: &str, body: &str) -> Result<(), String> {
    let (short, long) = (ask(GET, head, body), ask(POST, head, body));
    if short == long {
        return Ok(());
    }
    Err(format!("{head:?} {:?}:\n  GET  {short:?}\n  POST {long:?}", &body[..body.len().min(80)]))
}

fn check_all<'a>(answers: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let differing: Vec<String> = answers.into_iter().filter_map(|(head, body)| check(head, body).err()).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn a_head_is_the_same_answer_or_failure_on_both_ways() {
    let hello = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
    let heads = [
        "Content-Length: 5\r\n",
        "",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 005\r\n",
        "Content-Length: 00000000000000000000000000000005\r\n",
        "Content-Length: 18446744073709551614\r\n",
        "Content-Length: 18446744073709551615\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: \r\n",
        "Content-Length : 5\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nX: a\r\n b\r\n",
        "Content-Length: 5\r\nX: a\tb  \r\n",
        "Content-Length: 5\r\nX: a\0b\r\n",
        "Content-Length: 5\r\nX: a\rb\r\n",
        "Content-Length: 5\r\n: a\r\n",
        "Content-Length: 5\r\nX y: a\r\n",
        "Content-Length: 5\nX: a\n",
        "Content-Length: 5\r\nX:\r\n",
        "Content-Length: 5\r\nConnection: X, close\r\nX: a\r\nKeep-Alive: 5\r\nTrailer: y\r\n",
        "Content-Length: 5\r\nUpgrade: h2c\r\nConnection: upgrade\r\n",
    ]
    .map(hello);
    let lines = [
        "HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.2 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 299 Odd\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 600 Odder\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 999 Oddest\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 099 Odd\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 1000 Odd\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 20 Odd\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1  200 OK\r\nContent-Length: 5\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 101 Odd\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n",
        "HTTP/1.1 304 Same\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: 0x5\r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: 5, 6\r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 204 None\r\nContent-Length: -5\r\n\r\n",
    ];
    check_all(heads.iter().map(String::as_str).chain(lines).map(|head| (head, "HELLO")));
}

#[test]
fn chunks_are_read_the_same_on_both_ways() {
    let sizes = [
        "5",
        "05",
        "5;x",
        "5;x=\"y\"",
        "5 ;x=y",
        "5\t; x = y",
        "5  ",
        "5 5",
        " 5",
        "+5",
        "0x5",
        "-5",
        "",
        ";x",
        "g",
        "5,",
        "000000000000000005",
        "0000000000000000000000000000000000000005",
        "10000000000000005",
        "5\r",
        "5\n",
        "5;x\n",
        "5;x\ry",
    ];
    let bodies = [
        "5\r\nHELLO\r\n0\r\n\r\n",
        "5\r\nHELLO\r\n000000000000000000000\r\n\r\n",
        "5\r\nHELLO\r\n0 ;x\r\n\r\n",
        "5\r\nHELLO0\r\n\r\n",
        "5\r\nHELLOX\r\n0\r\n\r\n",
        "5\r\nHELLO\n0\r\n\r\n",
        "5\nHELLO\n0\n\n",
        "5\r\nHELLO\r\n0\r\n",
        "5\r\nHELLO\r\n0\r\n\n",
        "5\r\nHELLO\r\n",
        "5\r\nHEL",
        "",
        "5\r\nHELLO\r\n0\r\nX: 1\r\n\r\n",
        "5\r\nHELLO\r\n0\r\nX: 1\n\n",
        "5\r\nHELLO\r\n0\r\nX: 1\n\r\n",
        "5\r\nHELLO\r\n0\r\nX: 1\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nHost: h\r\n\r\n",
        "5\r\nHELLO\r\n0\r\nX : 1\r\n\r\n",
        "5\r\nHELLO\r\n0\r\nno colon\r\n\r\n",
        "5\r\nHELLO\r\n0\r\nX: a\r\n b\r\n\r\n",
        "5\r\nHELLO\r\n0\r\nX: a\0b\r\n\r\n",
        "5\r\nHELLO\r\n0\r\nX: 1\r\n",
    ];
    let last = |trailers: String| format!("5\r\nHELLO\r\n0\r\n{trailers}\r\n");
    let long = [
        last("X: 1\r\n".repeat(65)),
        last("X: 1\r\n".repeat(1024)),
        last("X: 1\r\n".repeat(1025)),
        last(format!("X: {}\r\n", "y".repeat(16_000))),
        last(format!("X: {}\r\n", "y".repeat(17_000))),
    ];
    let sizes = sizes.map(|size| format!("2\r\nOK\r\n{size}\r\nHELLO\r\n0\r\n\r\n"));
    let all = sizes.iter().chain(&long).map(String::as_str).chain(bodies);
    check_all(all.map(|body| ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n", body)));
}
