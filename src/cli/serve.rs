//! `serve` and `demo`: bind, start, say so, wait for a signal, drain.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{CANNOT_CREATE, CONFIG, Exit, OS_ERROR, USAGE, connector_with, embedded};
use crate::admin::Admin;
use crate::config::{self, Config, Store};
use crate::demo;
use crate::health::Watch;
use crate::member::Name;
use crate::output;
use crate::pool::Pool;
use crate::pool::embedded::{Embedded, KeepError, Keeper, Keeping};
use crate::server::{self, Listeners};
use crate::sources;
use crate::upkeep::Upkeep;

/// How often the configured members are offered to a store that cannot be reached.
const SEED_EVERY: Duration = Duration::from_secs(1);
/// How long the door stays shut for the first reading of the sources.
const FIRST_READING: Duration = Duration::from_secs(1);
/// Signals that come this close together are one.
const SAME_SIGNAL: Duration = Duration::from_millis(100);

pub(super) fn serve(config: Config) -> Result<(), Exit> {
    let names_nobody = config.pool.proxies.is_empty() && config.pool.sources.is_empty();
    if config.pool.store == Store::Embedded && names_nobody && config.pool.state.is_none() {
        tracing::warn!("the pool is empty and embedded, so every answer will be a 503; give it --proxy or --proxies");
    }
    for sentence in config.without_effect() {
        tracing::warn!("{sentence}");
    }
    let listeners = bind(&config)?;
    let address = listeners.address();
    run(config, listeners, |_| async move { announce(address, "") })
}

pub(super) fn demo(listen: Option<String>) -> Result<(), Exit> {
    // Only the address comes from outside: a configuration lying about would put the demo's proxies into its pool.
    let mut config = Config::default();
    if let Some(listen) = listen {
        config.gateway.listen = config::listen(&listen).map_err(|mistake| Exit::new(USAGE, mistake))?;
    }
    let listeners = bind(&config)?;
    let address = listeners.address();
    // On threads of their own: what is measured at the gateway is then not slowed by them.
    let actors = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let actors = actors.map_err(|error| Exit::new(OS_ERROR, error))?;
    let started = actors.block_on(async {
        for _ in 0..demo::UPSTREAMS {
            config.pool.proxies.push(Name::from(format!("http://{}", demo::start_upstream().await?)));
        }
        demo::start_origin().await
    });
    let origin = started.map_err(|error| Exit::new(OS_ERROR, error))?;
    let done = run(config, listeners, |pool| async move {
        announce(address, &format!("\n{}\n", demo::invitation(address, origin)));
        demo::show(&pool).await;
    });
    actors.shutdown_background();
    done
}

fn bind(config: &Config) -> Result<Listeners, Exit> {
    let address = config.gateway.listen;
    Listeners::bind(address, server::workers(&config.gateway)).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; another program has it, try --listen 127.0.0.1:0 for any free port",
            _ => "",
        };
        Exit::new(OS_ERROR, format!("cannot listen on {address}: {error}{hint}"))
    })
}

/// Serves until a signal comes. `ready` runs once the gateway serves, and is dropped when it drains.
fn run<F, R>(config: Config, listeners: Listeners, ready: F) -> Result<(), Exit>
where
    F: FnOnce(Pool) -> R,
    R: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime: Runtime = runtime.map_err(|error| Exit::new(OS_ERROR, error))?;
    let shutdown = CancellationToken::new();
    let embedded = embedded(&config.pool);
    let keeping = keep(&config.pool, &embedded)?;
    let connect = Arc::new(connector_with(&config.pool, embedded));
    let done = runtime.block_on(async {
        let mut signals = Signals::new().map_err(|error| Exit::new(OS_ERROR, error))?;
        let pool = connect().map_err(|error| Exit::new(CONFIG, error))?;
        let mut seeding = Seeding::new(pool.clone(), &config.pool);
        let watch = Arc::new(Watch::new(&config));
        let owing = pool.clone();
        let upkeep = Upkeep::new(pool.clone(), &config.pool, watch.clone());
        let admin = match config.admin.listen {
            Some(address) => {
                Some(open_admin(address, Admin::new(pool.clone(), watch.clone(), config.admin.token.clone())).await?)
            }
            None => None,
        };
        let first_round = {
            let connect = connect.clone();
            sources::start(&config.pool, move || connect(), shutdown.clone())
                .map_err(|error| Exit::new(OS_ERROR, error))?
        };
        // One try before the door opens, so that the first request finds the pool as configured.
        seeding.attempt().await;
        first_round.wait(FIRST_READING).await;
        let (done, finished) = tokio::sync::oneshot::channel();
        let workers = {
            let shutdown = shutdown.clone();
            move || done.send(server::run(config, listeners, move || connect(), watch, admin, shutdown))
        };
        thread::spawn(workers);
        tokio::pin!(finished);
        tokio::select! {
            name = signals.next() => tracing::info!(signal = name, "draining; a second signal ends it at once"),
            result = &mut finished => return ended(result),
            () = async { tokio::join!(ready(pool), seeding.persist(), upkeep.run()); } => {}
        }
        shutdown.cancel();
        let second = async {
            // timeout(1) signals a process and then its group: that is one wish, not two.
            tokio::time::sleep(SAME_SIGNAL).await;
            signals.forget();
            signals.next().await
        };
        tokio::select! {
            result = finished => {
                let _ = owing.tell_owed().await; // said where it fails
                ended(result)
            }
            name = second => {
                tracing::warn!(signal = name, "ended at once");
                Ok(())
            }
        }
    });
    let saved = keeping.map_or(Ok(()), Keeping::finish);
    done.and(saved.map_err(|error| Exit::new(CANNOT_CREATE, format!("cannot save the state: {error}"))))
}

/// Begins to show the gateway's own pages, and gives where; they are there until the process ends.
async fn open_admin(address: SocketAddr, admin: Admin) -> Result<SocketAddr, Exit> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        Ok::<_, io::Error>((listener.local_addr()?, listener))
    };
    let (address, listener) = bound
        .await
        .map_err(|error| Exit::new(OS_ERROR, format!("cannot listen on {address} (admin.listen): {error}")))?;
    tracing::info!("metrics on http://{address}/metrics");
    tokio::spawn(admin.serve(listener));
    Ok(address)
}

/// Fills the embedded store with what was saved of it, and saves it from now on, if the configuration says so.
fn keep(config: &config::Pool, pool: &Embedded) -> Result<Option<Keeping>, Exit> {
    let (Store::Embedded, Some(path)) = (&config.store, &config.state) else { return Ok(None) };
    let opened = Keeper::open(path, pool.clone());
    let (keeper, found) = opened.map_err(|error| {
        let advice = match error {
            KeepError::Locked(_) => "; give each gateway a pool.state of its own, or share a pool in Redis",
            KeepError::Io(..) | KeepError::NoFile(_) => "",
        };
        Exit::new(CANNOT_CREATE, format!("pool.state: {error}{advice}"))
    })?;
    if let Some(found) = found {
        tracing::info!(file = %path.display(), members = found.members, "the pool is as it was saved");
    }
    Ok(Some(keeper.start()))
}

fn ended<E>(result: Result<Result<(), String>, E>) -> Result<(), Exit> {
    match result {
        Ok(result) => result.map_err(|error| Exit::new(OS_ERROR, error)),
        Err(_) => Err(Exit::new(OS_ERROR, "the workers ended without a result")),
    }
}

/// Says where it listens, and how to try it. A closed standard output is no reason not to serve.
pub(super) fn announce(address: SocketAddr, invitation: &str) {
    if let Err(error) = output::print(format!("listening on http://{address}\n{invitation}")) {
        tracing::warn!(%address, "cannot say on standard output where it listens: {error}");
    }
}

/// Adds the configured members to the store, as soon as it can be reached.
struct Seeding {
    /// Taken when done.
    pool: Option<Pool>,
    members: Vec<Name>,
    initial: crate::pool::Initial,
    has_complained: bool,
}

impl Seeding {
    fn new(pool: Pool, config: &config::Pool) -> Self {
        let members = config.proxies.clone();
        let pool = Some(pool).filter(|_| !members.is_empty());
        Self { pool, members, initial: config.initial, has_complained: false }
    }

    async fn attempt(&mut self) {
        let Some(pool) = &self.pool else { return };
        match pool.add(&self.members, self.initial).await {
            Ok(added) => {
                tracing::info!(configured = self.members.len(), added, "the pool has the configured proxies");
                self.pool = None;
            }
            Err(error) if !self.has_complained => {
                tracing::warn!(%error, "cannot add the configured proxies to the pool yet; trying on");
                self.has_complained = true;
            }
            Err(_) => {}
        }
    }

    async fn persist(mut self) {
        while self.pool.is_some() {
            tokio::time::sleep(SEED_EVERY).await;
            self.attempt().await;
        }
    }
}

/// SIGTERM and SIGINT; and SIGHUP, unless whoever started the program has it ignored, as nohup(1) does.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
    hup: Option<Signal>,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        let hup = if is_hangup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())?, hup })
    }

    /// Drops what has come meanwhile.
    fn forget(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let signals = [&mut self.term, &mut self.int].into_iter().chain(&mut self.hup);
        for signal in signals {
            while signal.poll_recv(&mut cx).is_ready() {}
        }
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
            Some(()) = async { self.hup.as_mut()?.recv().await } => "SIGHUP",
        }
    }
}

/// Whether SIGHUP does nothing (proc(5): `SigIgn` in hexadecimal, the first signal in the lowest bit). Where that cannot be
/// known, it is left as it is.
fn is_hangup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_none_or(|mask| mask & 1 == 1)
}
