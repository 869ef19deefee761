//! Accepting clients: one thread, one runtime and one listener per worker; limits; draining.
//!
//! Every worker has a current-thread runtime with its own upstream connections and its own Redis client, so a
//! request never leaves its thread. The kernel spreads new connections over the listeners (SO_REUSEPORT) by a hash,
//! which can be uneven for few long-lived clients: a worker that has clearly more than the least busy one
//! hands a new connection over before serving it.
//! Not here: what is said on a connection (`client`).

use std::io;
use std::iter;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client;
use crate::config::{self, Config};
use crate::error::{Failure, is_out_of_descriptors};
use crate::health::Watch;
use crate::pool::Pool;
use crate::refusal;
use crate::worker::{Own, Via, Worker};

/// Connections the kernel completes while every worker is busy.
const BACKLOG: i32 = 4096;
/// How long accepting pauses when there are no descriptors; the peers wait in the kernel's queue.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Clients that are told of the connection limit at the same time; more are closed without a word.
const MAX_TOLD: usize = 64;
/// Descriptors that are not for clients: listeners, Redis, epoll, logs, name resolution.
const RESERVED_DESCRIPTORS: usize = 64;
/// Idle upstream connections of a worker. In a pool so large that a member's turn does not come again in time, more of them
/// would only be kept in vain.
const MOST_IDLE: usize = 4096;
/// Bulk tunnels at once that have the kernel move their bytes; more are copied.
const MOST_PIPES: usize = 256;
/// A soft limit is raised to the hard one, up to here: more would only invite the kernel to refuse memory.
const MOST_DESCRIPTORS: u64 = 1 << 20;
/// Threads that may wait for the system's resolver at once, per worker.
const RESOLVER_THREADS: usize = 32;
/// Connections on their way to another worker.
const HANDOVER_QUEUE: usize = 1024;

/// Listeners bound to one address, one per worker.
#[derive(Debug)]
pub struct Listeners {
    listeners: Vec<StdListener>,
    address: SocketAddr,
}

impl Listeners {
    /// Binds `address`, port 0 meaning any free port, `workers` times.
    ///
    /// # Errors
    /// The address cannot be bound; in particular when another process listens on it, although SO_REUSEPORT
    /// would let two processes of one user share it by accident.
    pub fn bind(address: SocketAddr, workers: usize) -> io::Result<Self> {
        let first = listen(address, false)?;
        let address = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        // It listens, so the port is ours alone, and stays so while the others are bound to it.
        first.set_reuse_port(true)?;
        let others = (1..workers).map(|_| listen(address, true));
        let listeners = iter::once(Ok(first)).chain(others).map(|socket| socket.map(Into::into));
        Ok(Self { listeners: listeners.collect::<io::Result<_>>()?, address })
    }

    /// The address really bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn listen(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without it a restart within a minute would find the port taken by its own closed connections.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    // Those it accepts inherit it, which saves each of them a system call.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// How many workers `gateway.threads` means on this machine.
pub fn workers(config: &config::Gateway) -> usize {
    match config.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

/// Serves until `shutdown` is cancelled, then drains: accepts no more, finishes what runs within
/// `gateway.drain_timeout`, and returns.
///
/// `connect` gives each worker its pool; it is called inside the worker's runtime. `watch` hears what becomes of requests.
/// `admin` is where the gateway's own pages are: no client is led there.
///
/// # Errors
/// The first worker that could not start.
pub fn run<F>(
    config: Config,
    listeners: Listeners,
    connect: F,
    watch: Arc<Watch>,
    admin: Option<SocketAddr>,
    shutdown: CancellationToken,
) -> Result<(), String>
where
    F: Fn() -> Result<Pool, String> + Send + Sync + 'static,
{
    let config = Arc::new(config);
    let count = listeners.listeners.len();
    let descriptors = raise_descriptors();
    let limit = connection_limit(descriptors, config.gateway.max_connections);
    let pipes = Arc::new(Semaphore::new(max_pipes(descriptors)));
    let via = config.gateway.via.then(Via::new);
    let connect = Arc::new(connect);
    let (inboxes, handovers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(HANDOVER_QUEUE)).unzip();
    let crowd = Arc::new(Crowd {
        open: (0..count).map(|index| watch.metrics.clients(index)).collect(),
        total: AtomicUsize::new(0),
        told: AtomicUsize::new(0),
        limit,
        inboxes,
    });
    let threads = listeners.listeners.into_iter().zip(handovers).enumerate().map(|(index, (listener, handover))| {
        let (config, crowd, pipes) = (config.clone(), crowd.clone(), pipes.clone());
        let (connect, shutdown, watch) = (connect.clone(), shutdown.clone(), watch.clone());
        let own = Own { gateway: listeners.address, admin, via: via.clone() };
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(RESOLVER_THREADS)
                .build()
                .map_err(|error| format!("cannot start a worker: {error}"))?;
            let result = runtime.block_on(async {
                let pool = connect()?;
                pool.register();
                let max_idle = (crowd.limit / count).clamp(1, MOST_IDLE);
                let worker = Worker::new(config, pool, watch, max_idle, pipes, own, index);
                let listener = TcpListener::from_std(listener).map_err(|error| error.to_string())?;
                Acceptor { worker: Arc::new(worker), crowd, index, clients: TaskTracker::new() }
                    .run(listener, handover, shutdown)
                    .await;
                Ok(())
            });
            // A resolver thread may still wait for an answer nobody wants; it does not hold the exit up.
            runtime.shutdown_background();
            result
        };
        let name = format!("worker-{index}");
        thread::Builder::new().name(name).spawn(body).map_err(|error| format!("cannot start a thread: {error}"))
    });
    let threads: Vec<_> = threads.collect::<Result<_, String>>()?;
    threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a worker panicked".into())))
}

/// Raises the soft limit of descriptors as far as it goes, and says how many there are.
pub(crate) fn raise_descriptors() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(MOST_DESCRIPTORS).min(MOST_DESCRIPTORS);
    let current = limit.current.unwrap_or(most);
    let raised = current < most && setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).is_ok();
    if raised { most as usize } else { current as usize }
}

/// A pipe is two descriptors; an eighth of all may go into pipes.
fn max_pipes(descriptors: usize) -> usize {
    (descriptors / 16).min(MOST_PIPES)
}

/// How many clients at once: what was asked for, or two thirds of the descriptors. A client that waits between requests
/// needs one, a client that is served a second one; when those run out, a request is refused, not a connection.
fn connection_limit(descriptors: usize, asked: usize) -> usize {
    let allowed = (descriptors.saturating_sub(RESERVED_DESCRIPTORS) * 2 / 3).max(1);
    match asked {
        0 => allowed,
        asked if asked > allowed => {
            tracing::warn!(asked, allowed, "gateway.max_connections is more than the descriptor limit allows");
            allowed
        }
        asked => asked,
    }
}

/// The clients of all workers.
struct Crowd {
    /// Open client connections per worker.
    open: Vec<Gauge>,
    /// Of all workers together, also those on their way from one to another.
    total: AtomicUsize,
    /// Clients being told of the limit.
    told: AtomicUsize,
    limit: usize,
    inboxes: Vec<mpsc::Sender<Handover>>,
}

impl Crowd {
    /// The worker a new connection of worker `index` should go to instead, if it has clearly more than that one.
    fn better_than(&self, index: usize) -> Option<usize> {
        let mine = self.open[index].get();
        let (other, least) = self.open.iter().map(Gauge::get).enumerate().min_by_key(|&(_, open)| open)?;
        (mine > least + least / 4 + 1).then_some(other)
    }
}

/// A connection on its way to another worker, which has its place already.
type Handover = (StdStream, SocketAddr, Counted);

/// Counts a connection for as long as it lives.
struct Counted {
    crowd: Arc<Crowd>,
    index: usize,
}

impl Counted {
    /// Regardless of the limit.
    fn new(crowd: &Arc<Crowd>, index: usize) -> Self {
        crowd.total.fetch_add(1, Ordering::Relaxed);
        Self::admitted(crowd, index)
    }

    /// `None` when the house is full. Looking and counting are one step, or two workers would give the last place away twice.
    fn within_limit(crowd: &Arc<Crowd>, index: usize) -> Option<Self> {
        let one_more = |total| (total < crowd.limit).then_some(total + 1);
        crowd.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self::admitted(crowd, index))
    }

    fn admitted(crowd: &Arc<Crowd>, index: usize) -> Self {
        crowd.open[index].inc();
        Self { crowd: crowd.clone(), index }
    }

    fn move_to(&mut self, index: usize) {
        self.crowd.open[self.index].dec();
        self.crowd.open[index].inc();
        self.index = index;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.crowd.open[self.index].dec();
        self.crowd.total.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One worker's door.
struct Acceptor {
    worker: Arc<Worker>,
    crowd: Arc<Crowd>,
    index: usize,
    clients: TaskTracker,
}

impl Acceptor {
    async fn run(&self, listener: TcpListener, mut handover: mpsc::Receiver<Handover>, shutdown: CancellationToken) {
        let reaper = tokio::spawn({
            let worker = self.worker.clone();
            async move { worker.upstreams.reap().await }
        });
        let mut complained = None;
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((socket, address, counted)) = handover.recv() => {
                    if let Ok(socket) = TcpStream::from_std(socket) {
                        self.serve(socket, address, counted);
                    }
                }
                accepted = listener.accept() => match accepted {
                    Ok((socket, address)) => self.admit(socket, address),
                    Err(error) if is_out_of_descriptors(&error) => {
                        complain(&mut complained, &error);
                        sleep(ACCEPT_PAUSE).await;
                    }
                    // The peer was gone before we came (accept(2)): nothing to do but go on.
                    Err(error) => tracing::debug!(%error, "a connection was lost before it was accepted"),
                }
            }
        }
        self.drain(listener, handover).await;
        reaper.abort();
    }

    fn admit(&self, socket: TcpStream, address: SocketAddr) {
        let better = self.crowd.better_than(self.index);
        let Some(mut counted) = Counted::within_limit(&self.crowd, self.index) else {
            return self.tell_limit(socket, address);
        };
        let Some(other) = better else { return self.serve(socket, address, counted) };
        let Ok(socket) = socket.into_std() else { return };
        counted.move_to(other);
        if let Err(
            mpsc::error::TrySendError::Full((socket, _, mut counted))
            | mpsc::error::TrySendError::Closed((socket, _, mut counted)),
        ) = self.crowd.inboxes[other].try_send((socket, address, counted))
        {
            let Ok(socket) = TcpStream::from_std(socket) else { return };
            counted.move_to(self.index);
            self.serve(socket, address, counted);
        }
    }

    fn serve(&self, socket: TcpStream, address: SocketAddr, counted: Counted) {
        let worker = self.worker.clone();
        self.clients.spawn(async move {
            client::serve(worker, socket, address).await;
            drop(counted);
        });
    }

    /// The 503 of a full gateway, to a bounded number of clients at a time.
    fn tell_limit(&self, mut socket: TcpStream, address: SocketAddr) {
        let (worker, crowd, since) = (self.worker.clone(), self.crowd.clone(), Instant::now());
        if crowd.told.fetch_add(1, Ordering::Relaxed) >= MAX_TOLD {
            crowd.told.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.clients.spawn(async move {
            refusal::say(&worker, &mut socket, address, since, Failure::AtLimit).await;
            client::linger(socket).await;
            crowd.told.fetch_sub(1, Ordering::Relaxed);
        });
    }

    async fn drain(&self, listener: TcpListener, mut handover: mpsc::Receiver<Handover>) {
        // Who is already in the kernel's queue was promised an answer; closing the listener would reset them.
        while let Ok(Ok((socket, address))) = timeout(Duration::ZERO, listener.accept()).await {
            self.serve(socket, address, Counted::new(&self.crowd, self.index));
        }
        drop(listener);
        handover.close();
        while let Ok((socket, address, counted)) = handover.try_recv() {
            if let Ok(socket) = TcpStream::from_std(socket) {
                self.serve(socket, address, counted);
            }
        }
        self.worker.start_draining();
        if let Err(error) = self.worker.pool.stop_prefetching().await {
            tracing::warn!(%error, "allocations made ahead of need could not be given back and stay counted");
        }
        self.clients.close();
        let limit = self.worker.config.gateway.drain_timeout;
        if timeout(limit, self.clients.wait()).await.is_err() {
            tracing::warn!(cut = self.clients.len(), "gateway.drain_timeout is over; what still runs is cut");
        }
        if let Err(error) = self.worker.pool.unregister().await {
            tracing::warn!(%error, "the pool could not be told the end of what was in flight; it will notice");
        }
        self.worker.is_over.store(true, Ordering::Relaxed);
    }
}

/// At most one line in ten seconds: a full house must not fill the log as well.
fn complain(last: &mut Option<Instant>, error: &io::Error) {
    if last.is_none_or(|last: Instant| last.elapsed() > Duration::from_secs(10)) {
        *last = Some(Instant::now());
        tracing::warn!(%error, "cannot accept; raise the descriptor limit (ulimit -n) or lower gateway.max_connections");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_sockets_send_small_pieces_at_once() {
        let listeners = Listeners::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let _client = std::net::TcpStream::connect(listeners.address()).unwrap();
        let listener = &listeners.listeners[0];
        listener.set_nonblocking(false).unwrap();
        assert!(listener.accept().unwrap().0.nodelay().unwrap());
    }
}
