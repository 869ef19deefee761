//! CONNECT: our own handshake with the upstream proxy, then bytes both ways until both directions have ended.
//!
//! The handshake takes any 2xx (RFC 9110 §9.3.6), reads a reply head of any sensible size, and keeps what follows the
//! head: it belongs to the tunnel. Copying borrows one buffer per worker, so an idle tunnel holds two sockets
//! and no buffer. An end of stream in one direction is passed on and the other direction goes on
//! (TCP half-close); an error in either ends both.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::dial;
use crate::error::Failure;
use crate::member::Member;
use crate::target::Authority;

/// A reply head may be this long: proxies that explain themselves do so in 20 KiB of fields.
const MAX_REPLY: usize = 64 << 10;
const MAX_REPLY_FIELDS: usize = 256;
/// Large enough that two system calls per buffer cost less than the copy itself.
const BUFFER: usize = 64 << 10;

/// The far end of a tunnel, ready.
pub(crate) struct Tunnel {
    pub(crate) socket: TcpStream,
    /// What the upstream proxy sent behind its head.
    pub(crate) early: Bytes,
}

/// Bytes carried by a tunnel so far.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) to_upstream: AtomicU64,
    pub(crate) to_client: AtomicU64,
}

/// Dials `member` and asks it for a tunnel to `target`; gives the tunnel and the fields of the reply.
///
/// # Errors
/// Those of [`dial::connect`]; [`Failure::DialTimeout`] also when the reply is late; [`Failure::Closed`],
/// [`Failure::Nonsense`], [`Failure::Credentials`], [`Failure::TunnelRefused`].
pub(crate) async fn open(
    member: &Member,
    target: &Authority,
    fields: &HeaderMap,
    within: Duration,
) -> Result<(Tunnel, HeaderMap), Failure> {
    let deadline = Instant::now() + within;
    let mut socket = dial::connect(member, deadline).await?;
    let handshake = async {
        socket.write_all(&request_head(target, fields)).await.map_err(|_| Failure::Closed)?;
        let mut reply = BytesMut::with_capacity(1024);
        loop {
            if let Some((status, fields)) = read_reply(&mut reply)? {
                return match status {
                    // An interim reply; the final one follows.
                    100..=199 => continue,
                    200..=299 => Ok((reply.freeze(), fields)),
                    407 => Err(Failure::Credentials),
                    other => Err(Failure::TunnelRefused(other)),
                };
            }
            if reply.len() >= MAX_REPLY {
                return Err(Failure::Nonsense);
            }
            if socket.read_buf(&mut reply).await.map_err(|_| Failure::Closed)? == 0 {
                return Err(Failure::Closed);
            }
        }
    };
    let (early, fields) = timeout_at(deadline, handshake).await.map_err(|_| Failure::DialTimeout(within))??;
    Ok((Tunnel { socket, early }, fields))
}

fn request_head(target: &Authority, fields: &HeaderMap) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    head.extend_from_slice(b"CONNECT ");
    head.extend_from_slice(target.text.as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    for (name, value) in fields {
        // hyper keeps to itself how the client spelled a name; title case is what nearly all of them write.
        let mut start_of_word = true;
        head.extend(name.as_str().bytes().map(|byte| {
            let byte = if start_of_word { byte.to_ascii_uppercase() } else { byte };
            start_of_word = byte == b'-';
            byte
        }));
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Takes one reply head off the front of `buffer`; `None` while it is not whole.
fn read_reply(buffer: &mut BytesMut) -> Result<Option<(u16, HeaderMap)>, Failure> {
    let mut lines = [httparse::EMPTY_HEADER; MAX_REPLY_FIELDS];
    let mut reply = httparse::Response::new(&mut lines);
    let length = match reply.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Nonsense),
    };
    let status = reply.code.filter(|code| (100..=999).contains(code)).ok_or(Failure::Nonsense)?;
    let mut fields = HeaderMap::new();
    for line in reply.headers.iter() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(line.name), HeaderValue::from_bytes(line.value)) {
            fields.append(name, value);
        }
    }
    let _head = buffer.split_to(length);
    Ok(Some((status, fields)))
}

/// Why a tunnel ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides had finished.
    Closed,
    /// The client's connection broke.
    ClientFailed,
    /// The upstream proxy's connection broke.
    UpstreamFailed,
    /// Nothing moved either way for the idle time.
    Idle,
}

/// Copies both ways until both directions have ended, one fails, or nothing moves for `idle`.
///
/// `early`: what the client sent behind its CONNECT.
pub(crate) async fn relay(mut client: TcpStream, early: Bytes, far: Tunnel, idle: Duration, carried: &Carried) -> End {
    let Tunnel { socket: mut upstream, early: early_reply } = far;
    let (mut client_reads, mut client_writes) = client.split();
    let (mut upstream_reads, mut upstream_writes) = upstream.split();
    let moved = Moved { epoch: Instant::now(), at_ms: AtomicU64::new(0) };
    let out = copy(&mut client_reads, &mut upstream_writes, early, &moved, &carried.to_upstream);
    let back = copy(&mut upstream_reads, &mut client_writes, early_reply, &moved, &carried.to_client);
    let both = async {
        tokio::try_join!(
            async {
                out.await.map_err(|side| if side == Broke::Reader { End::ClientFailed } else { End::UpstreamFailed })
            },
            async {
                back.await.map_err(|side| if side == Broke::Reader { End::UpstreamFailed } else { End::ClientFailed })
            },
        )
        .err()
        .unwrap_or(End::Closed)
    };
    tokio::select! {
        biased;
        end = both => end,
        () = moved.not_for(idle) => End::Idle,
    }
}

/// When a byte last moved, shared by both directions.
struct Moved {
    epoch: Instant,
    at_ms: AtomicU64,
}

impl Moved {
    fn now(&self) {
        self.at_ms.store(self.epoch.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Ends when nothing has moved for `idle`. One timer, set again only when it fires.
    async fn not_for(&self, idle: Duration) {
        loop {
            let quiet_until = self.epoch + Duration::from_millis(self.at_ms.load(Ordering::Relaxed)) + idle;
            if quiet_until <= Instant::now() {
                return;
            }
            sleep_until(quiet_until).await;
        }
    }
}

#[derive(PartialEq, Eq)]
enum Broke {
    Reader,
    Writer,
}

thread_local! {
    /// Lent to whichever tunnel of this worker has bytes to move; never held across an await.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

async fn copy(
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    early: Bytes,
    moved: &Moved,
    carried: &AtomicU64,
) -> Result<(), Broke> {
    if !early.is_empty() {
        to.write_all(&early).await.map_err(|_| Broke::Writer)?;
        carried.fetch_add(early.len() as u64, Ordering::Relaxed);
    }
    drop(early);
    loop {
        from.readable().await.map_err(|_| Broke::Reader)?;
        let (read, unwritten) = match SCRATCH.with_borrow_mut(|buffer| pass(from, to, buffer)) {
            Ok(passed) => passed,
            Err(Broke::Writer) => return Err(Broke::Writer),
            Err(Broke::Reader) => return Err(Broke::Reader),
        };
        match read {
            None => continue,
            Some(0) => break,
            Some(read) => {
                moved.now();
                // The rest waits for room in a buffer of its own size.
                to.write_all(&unwritten).await.map_err(|_| Broke::Writer)?;
                carried.fetch_add(read as u64, Ordering::Relaxed);
                moved.now();
            }
        }
    }
    // The end of this direction; a peer that has gone already needs no telling.
    let _ = to.shutdown().await;
    Ok(())
}

/// One read and one write, without waiting: how much was read (`None`: nothing there yet) and what could not be
/// written.
fn pass(from: &ReadHalf<'_>, to: &WriteHalf<'_>, buffer: &mut [u8]) -> Result<(Option<usize>, Vec<u8>), Broke> {
    let read = match from.try_read(buffer) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((None, Vec::new())),
        Err(_) => return Err(Broke::Reader),
    };
    let mut written = 0;
    while written < read {
        match to.try_write(&buffer[written..read]) {
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) => return Err(Broke::Writer),
        }
    }
    Ok((Some(read), buffer[written..read].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(bytes: &[u8]) -> Result<Option<(u16, Vec<u8>)>, Failure> {
        let mut buffer = BytesMut::from(bytes);
        Ok(read_reply(&mut buffer)?.map(|(status, _)| (status, buffer.to_vec())))
    }

    #[test]
    fn what_follows_the_reply_head_is_kept() {
        let read = reply(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n220 banner").unwrap();
        assert_eq!(read, Some((200, b"220 banner".to_vec())));
        assert_eq!(reply(b"HTTP/1.0 201 \r\n\r\n").unwrap(), Some((201, vec![])));
        assert_eq!(reply(b"HTTP/1.1 200 OK\r\nX:").unwrap(), None);
        assert!(reply(b"SSH-2.0-OpenSSH_9.2\r\n").is_err());
    }

    #[test]
    fn the_request_head_names_the_target_and_writes_fields_in_title_case() {
        let mut fields = HeaderMap::new();
        fields.append("host", HeaderValue::from_static("h:443"));
        fields.append("user-agent", HeaderValue::from_static("curl/8"));
        let target = Authority { text: HeaderValue::from_static("h:443"), host: "h".into(), port: 443 };
        let head = String::from_utf8(request_head(&target, &fields)).unwrap();
        assert_eq!(head, "CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\nUser-Agent: curl/8\r\n\r\n");
    }
}
