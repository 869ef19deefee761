//! Upstream proxies that do what a test tells them to, and remember every connection and every request.
//!
//! One thread per connection runs the test's script; an upstream proxy may play the origin too. What a script's socket
//! reports as an error ends that script quietly: whether the gateway was right to close is for the test to say.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel::member::{Member, Name};
use socket2::{Domain, Socket, Type};

use super::port::listen;
use super::wire::{Head, Message, PATIENCE, Wire};

/// A fake upstream proxy. Gone, with all its connections, when dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    connections: usize,
    /// Scripts that have ended, their connections closed.
    ended: usize,
    requests: Vec<Message>,
    sockets: Vec<TcpStream>,
    is_stopped: bool,
}

/// One connection, as its script has it.
pub(crate) struct Conn {
    wire: Wire,
    /// 1 for the first.
    pub(crate) number: usize,
    seen: Arc<Seen>,
}

impl Upstream {
    /// Runs `script` for every connection, which closes when it returns.
    pub(crate) fn start<F>(script: F) -> Self
    where
        F: Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static,
    {
        Self::start_on("127.0.0.1:0", script)
    }

    /// The same on another address than 127.0.0.1.
    pub(crate) fn start_on<F>(address: impl ToSocketAddrs, script: F) -> Self
    where
        F: Fn(&mut Conn) -> io::Result<()> + Send + Sync + 'static,
    {
        let address = address.to_socket_addrs().ok().and_then(|mut found| found.next()).expect("an address");
        let listener = match address.port() {
            0 => listen(address.ip()),
            _ => TcpListener::bind(address).expect("a free port"),
        };
        let address = listener.local_addr().expect("bound");
        let seen = Arc::new(Seen::default());
        let (shared, script) = (seen.clone(), Arc::new(script));
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(mut conn) = Conn::new(stream, &shared) else { return };
                let script = script.clone();
                std::thread::spawn(move || script(&mut conn));
            }
        });
        Self { address, seen, acceptor: Some(acceptor) }
    }

    /// Answers every request, read whole, with the same bytes, and keeps the connection.
    pub(crate) fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |conn| {
            while conn.request()?.is_some() {
                conn.send(&bytes)?;
            }
            Ok(())
        })
    }

    /// Answers every request 200 with this body.
    pub(crate) fn ok(body: &str) -> Self {
        Self::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }

    /// Opens every tunnel it is asked for and sends back what comes through it.
    pub(crate) fn echoing() -> Self {
        Self::start(|conn| {
            conn.request()?;
            conn.send("HTTP/1.1 200 OK\r\n\r\n")?;
            conn.echo()
        })
    }

    /// Reads a request and says no more. Each connection stays until the gateway closes it.
    pub(crate) fn silent() -> Self {
        Self::start(|conn| {
            conn.request()?;
            conn.until_close().map(drop)
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// As a pool member.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// As a pool member with `user:password`.
    pub(crate) fn url_with(&self, credentials: &str) -> String {
        format!("http://{credentials}@{}", self.address)
    }

    /// What the gateway calls it.
    pub(crate) fn id(&self) -> String {
        id(&self.url())
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.state().connections
    }

    /// Every request so far, in order; a body as far as the script has read it whole.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.seen.state().requests.clone()
    }

    /// The only request so far.
    pub(crate) fn request(&self) -> Message {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests.into_iter().next().expect("one")
    }

    /// Waits until so many requests have come.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        self.wait("requests", PATIENCE, |state| state.requests.len() >= count);
    }

    /// Waits until so many connections have ended; how long that took.
    pub(crate) fn wait_for_ends(&self, count: usize, limit: Duration) -> Duration {
        self.wait("closed connections", limit, |state| state.ended >= count)
    }

    fn wait(&self, what: &str, limit: Duration, done: impl Fn(&State) -> bool) -> Duration {
        let started = Instant::now();
        let mut state = self.seen.state();
        while !done(&state) {
            let left = limit.checked_sub(started.elapsed());
            let left = left.unwrap_or_else(|| panic!("not within {limit:?}: {what}; {} seen", state.requests.len()));
            state = self.seen.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        started.elapsed()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let sockets = {
            let mut state = self.seen.state();
            state.is_stopped = true;
            std::mem::take(&mut state.sockets)
        };
        for socket in sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
        // Wakes the acceptor, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Conn {
    /// `None` once the upstream proxy is stopped.
    fn new(stream: TcpStream, seen: &Arc<Seen>) -> Option<Self> {
        let number = {
            let mut state = seen.state();
            if state.is_stopped {
                return None;
            }
            state.sockets.push(stream.try_clone().ok()?);
            state.connections += 1;
            state.connections
        };
        seen.changed.notify_all();
        Some(Self { wire: Wire::new(stream).ok()?, number, seen: seen.clone() })
    }

    /// The next request's head, remembered; `None` when the gateway has closed the connection.
    pub(crate) fn request_head(&mut self) -> io::Result<Option<Head>> {
        let Some(head) = self.wire.head()? else { return Ok(None) };
        self.remember(Message { head: head.clone(), ..Message::default() });
        Ok(Some(head))
    }

    /// The next request, whole, remembered.
    pub(crate) fn request(&mut self) -> io::Result<Option<Message>> {
        let Some(head) = self.wire.head()? else { return Ok(None) };
        let request = self.wire.request(head)?;
        self.remember(request.clone());
        Ok(Some(request))
    }

    /// Sends back what comes, until the end, and ends then too.
    pub(crate) fn echo(&mut self) -> io::Result<()> {
        loop {
            match self.wire.some() {
                Ok(bytes) if !bytes.is_empty() => self.wire.send(bytes)?,
                _ => return Ok(()),
            }
        }
    }

    fn remember(&self, request: Message) {
        self.seen.state().requests.push(request);
        self.seen.changed.notify_all();
    }
}

impl Deref for Conn {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        // The copy kept for stopping would hold the connection open.
        let _ = self.wire.stream.shutdown(Shutdown::Both);
        self.seen.state().ended += 1;
        self.seen.changed.notify_all();
    }
}

/// What the gateway calls a member.
pub(crate) fn id(member: &str) -> String {
    Member::parse(&Name::copy_from_slice(member.as_bytes())).expect("a member").id().to_owned()
}

/// A member whose port refuses connections, and stays so: bound, but not listening.
pub(crate) struct Refusing(Socket);

impl Refusing {
    pub(crate) fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().ok().and_then(|address| address.as_socket()).expect("bound")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) fn id(&self) -> String {
        id(&self.url())
    }
}

/// A member that never answers a connection attempt: its queue is full and nobody accepts.
pub(crate) struct Unreachable {
    listener: Socket,
    _queue: Vec<TcpStream>,
}

impl Unreachable {
    pub(crate) fn new() -> Self {
        let Refusing(listener) = Refusing::new();
        listener.listen(0).expect("listening");
        let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("bound");
        let queue = std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok());
        let queue: Vec<_> = queue.take(64).collect();
        assert!(queue.len() < 64, "the queue of a listener does not fill");
        Self { listener, _queue: queue }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().ok().and_then(|address| address.as_socket()).expect("bound")
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }
}
