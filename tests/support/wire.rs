//! HTTP/1.1 on a raw socket: what was read is kept byte for byte, and reading goes on until a message is complete.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::gateway::eventually;

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A connection, and what has been read from it but not asked for.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

/// A message's first line and fields, up to and with the empty line.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Head(pub(crate) Vec<u8>);

/// A whole message; `body` without its framing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: String,
}

/// How a message's body ends.
enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl Head {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a head in ASCII")
    }

    /// The request line or the status line.
    pub(crate) fn line(&self) -> &str {
        self.text().lines().next().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        self.line().split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line")
    }

    /// Fields in their order, names as they were spelled.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text().lines().skip(1).filter_map(|line| line.split_once(": "))
    }

    /// Every value of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.fields().filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// The value of a field that must not be there twice.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} twice in {}", self.text());
        all.first().copied()
    }

    fn response_framing(&self, method: &str) -> Framing {
        match self.status() {
            100..=199 | 204 | 304 => Framing::None,
            200..=299 if method == "CONNECT" => Framing::None,
            _ if method == "HEAD" => Framing::None,
            _ => self.framing(Framing::UntilClose),
        }
    }

    fn framing(&self, otherwise: Framing) -> Framing {
        match (self.field("Transfer-Encoding"), self.field("Content-Length")) {
            (Some(_), _) => Framing::Chunked,
            (None, Some(length)) => Framing::Length(length.parse().expect("a length")),
            (None, None) => otherwise,
        }
    }
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }
}

impl Wire {
    /// Wraps a socket; nothing on it waits longer than [`PATIENCE`].
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, unread: Vec::new() })
    }

    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, PATIENCE)?)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends bytes one by one.
    pub(crate) fn dribble(&mut self, bytes: &[u8]) -> io::Result<()> {
        for byte in bytes {
            std::thread::sleep(Duration::from_millis(1)); // so that each is a segment
            self.send([*byte])?;
        }
        Ok(())
    }

    /// Ends our direction.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Waits until the peer's side has acknowledged all that was sent: a close cannot lose it any more.
    ///
    /// Whoever closes and is then sent something answers with a reset, and forgets what it had not sent yet (RFC 1122 §4.2.2.13).
    pub(crate) fn wait_until_acknowledged(&self) -> io::Result<()> {
        let (here, there) = (hex(self.stream.local_addr()?), hex(self.stream.peer_addr()?));
        eventually(PATIENCE, "the acknowledgment of all", || {
            // proc_net_tcp(5): number, local and remote address, state, bytes not acknowledged and not read.
            let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
            let mut fields = sockets.lines().map(|line| line.split_whitespace().skip(1));
            let queues = fields.find_map(|mut fields| {
                (fields.next()? == here && fields.next()? == there).then(|| fields.nth(1)).flatten()
            });
            queues.is_some_and(|queues| queues.starts_with("00000000:"))
        });
        Ok(())
    }

    /// Closes with a reset, as a crashed peer does.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("an open socket");
    }

    /// The next head; `None` when the peer has closed instead of beginning one.
    pub(crate) fn head(&mut self) -> io::Result<Option<Head>> {
        if self.unread.is_empty() && self.more()? == 0 {
            return Ok(None);
        }
        self.until(b"\r\n\r\n").map(|bytes| Some(Head(bytes)))
    }

    /// The body of a response to `method` behind `head`.
    pub(crate) fn response(&mut self, head: Head, method: &str) -> io::Result<Message> {
        let framing = head.response_framing(method);
        self.body(head, framing)
    }

    /// The body of a request behind `head`.
    pub(crate) fn request(&mut self, head: Head) -> io::Result<Message> {
        let framing = head.framing(Framing::None);
        self.body(head, framing)
    }

    fn body(&mut self, head: Head, framing: Framing) -> io::Result<Message> {
        let mut message = Message { head, ..Message::default() };
        match framing {
            Framing::None => {}
            Framing::Length(length) => message.body = self.exactly(length)?,
            Framing::UntilClose => message.body = self.until_close()?,
            Framing::Chunked => loop {
                let line = String::from_utf8_lossy(&self.until(b"\r\n")?).into_owned();
                let size = usize::from_str_radix(line.trim_end().split(';').next().unwrap_or_default(), 16)
                    .map_err(|_| io::ErrorKind::InvalidData)?;
                if size == 0 {
                    loop {
                        let line = self.until(b"\r\n")?;
                        if line == b"\r\n" {
                            return Ok(message);
                        }
                        message.trailers += &String::from_utf8_lossy(&line);
                    }
                }
                message.body.extend(self.exactly(size)?);
                if self.exactly(2)? != b"\r\n" {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            },
        }
        Ok(message)
    }

    pub(crate) fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            if self.more()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// Whatever has come, or comes next; nothing at the end of the stream.
    pub(crate) fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.unread.is_empty() {
            self.more()?;
        }
        Ok(std::mem::take(&mut self.unread))
    }

    /// Everything up to and with `end`.
    pub(crate) fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.unread.windows(end.len()).position(|window| window == end) {
                return self.exactly(at + end.len());
            }
            if self.more()? == 0 {
                let came = self.unread.escape_ascii();
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the end, behind {came}")));
            }
        }
    }

    /// Everything until the peer closes; a reset counts as closing.
    pub(crate) fn until_close(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.more() {
                Ok(0) => return Ok(std::mem::take(&mut self.unread)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(std::mem::take(&mut self.unread));
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the peer stays silent, and connected, for `span`.
    pub(crate) fn is_silent_for(&mut self, span: Duration) -> bool {
        self.stream.set_read_timeout(Some(span)).expect("an open socket");
        let read = self.more();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("an open socket");
        self.unread.is_empty() && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Passes on what comes from either side to the other, and the ends, until both have ended.
    pub(crate) fn join(&mut self, far: &mut Wire) -> io::Result<()> {
        far.send(std::mem::take(&mut self.unread))?;
        self.send(std::mem::take(&mut far.unread))?;
        let copy = |mut from: &TcpStream, mut to: &TcpStream| {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| copy(&self.stream, &far.stream));
            copy(&far.stream, &self.stream);
        });
        Ok(())
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 << 10];
        let read = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..read]);
        Ok(read)
    }
}

/// An address as `/proc/net/tcp` has it.
fn hex(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else { panic!("{address} is not IPv4") };
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}
