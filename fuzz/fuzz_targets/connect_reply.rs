//! The upstream proxy's reply to our CONNECT.
//!
//! The input is what the upstream proxy sends before it ends its direction, over a socket and in pieces. Every byte
//! behind the reply's head belongs to the tunnel, none of the head does, and only a 2xx opens one.
#![no_main]

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::time::Duration;

use evenkeel::internals;
use evenkeel::member::{Member, Name};
use evenkeel_fuzz::{Cuts, HOP_BY_HOP, Head, Lines, Read, is_one_of};
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;

const REQUEST: &[u8] = b"CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    runtime: Runtime,
    listener: TcpListener,
    port: u16,
    turn: u32,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

impl World {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { runtime, listener, port, turn: 0 }
    }

    /// What [`internals::open_tunnel`] makes of a reply: the head for the client and all bytes of the tunnel.
    fn open(&mut self, pieces: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>), String> {
        // Another loopback address each time: thousands of connections a second leave ports behind.
        self.turn = (self.turn + 1) % 0xff_fffe;
        let address = Ipv4Addr::from_bits(0x7f00_0001 + self.turn);
        let member = Member::parse(&Name::from(format!("{address}:{}", self.port))).unwrap();
        let upstream = async {
            let (mut socket, _) = self.listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut request = vec![0; REQUEST.len()];
            socket.read_exact(&mut request).await.unwrap();
            assert_eq!(request, REQUEST);
            for piece in pieces {
                // The gateway may have seen enough.
                if socket.write_all(piece).await.is_err() {
                    break;
                }
                yield_now().await;
                yield_now().await;
            }
            let _ = socket.shutdown().await;
            socket
        };
        let gateway = async {
            let (mut socket, early, head) = internals::open_tunnel(&member, REQUEST, PATIENCE).await?;
            let mut carried = early.to_vec();
            socket.read_to_end(&mut carried).await.unwrap();
            Ok((head, carried))
        };
        self.runtime.block_on(async { tokio::join!(gateway, upstream).0 })
    }
}

fuzz_target!(|bytes: &[u8]| {
    let pieces = Cuts::of(bytes).pieces(bytes);
    let opened = WORLD.with_borrow_mut(|world| world.open(&pieces));
    match second(bytes) {
        Reply::Opens(reply, carried) => {
            let (head, got) = opened.expect("a tunnel is open");
            assert_eq!(got.escape_ascii().to_string(), carried.escape_ascii().to_string(), "bytes of the tunnel");
            let whole = [&head[..], b"\r\n"].concat();
            let sent = Head::read(&whole, Lines::Strict).whole().expect("a strict head goes out");
            assert_eq!((sent.line, sent.length), (&b"HTTP/1.1 200 Connection established"[..], whole.len()));
            for (name, _) in &sent.fields {
                assert!(!is_one_of(name, &HOP_BY_HOP) && !is_one_of(name, &["content-length"]), "{name}");
                assert!(!reply.connection_names(name), "{name}");
            }
        }
        Reply::Fails(failures) => {
            let failure = opened.expect_err("no tunnel is open");
            assert!(failures.contains(&failure), "{failure} instead of {failures:?}");
        }
    }
});

enum Reply<'a> {
    Opens(Head<'a>, &'a [u8]),
    /// With any of these.
    Fails(Vec<String>),
}

/// RFC 9110 §9.3.6, §15.
fn second(mut bytes: &[u8]) -> Reply<'_> {
    let fails = |names: &[&str]| Reply::Fails(names.iter().map(|&name| name.to_owned()).collect());
    loop {
        let head = match Head::read(bytes, Lines::Lenient) {
            Read::Whole(head) => head,
            // What is broken need not be noticed before the end.
            Read::Broken => return fails(&["Nonsense", "Closed"]),
            // A first line that cannot become a status line is noticed at once.
            Read::Partial => return fails(&["Closed", "Nonsense"]),
        };
        match head.response() {
            None => return fails(&["Nonsense"]),
            // Nobody asked to switch, and what follows is no longer HTTP (RFC 9110 §7.8).
            Some((_, 101, _)) => return fails(&["Nonsense"]),
            Some((_, 100..=199, _)) => bytes = &bytes[head.length..],
            Some((_, 200..=299, _)) => {
                let carried = &bytes[head.length..];
                return Reply::Opens(head, carried);
            }
            Some((_, 407, _)) => return fails(&["Credentials"]),
            Some((_, status @ 300..=999, _)) => return Reply::Fails(vec![format!("TunnelRefused({status})")]),
            Some(_) => return fails(&["Nonsense"]),
        }
    }
}
