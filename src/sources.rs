//! Lists that the gateway keeps its pool in step with (`[[pool.sources]]`): files and pages, read at start, on a schedule, and a
//! file also when it changes.
//!
//! Everything happens on a thread of its own with a connection to the store of its own, and lists are read on further threads
//! of low priority, so that requests feel little of it. One reading is bounded in time, size and members, and takes its members
//! to the store a few at a time, resting as long as each call took: Redis is never busier with a list than half the time.
//! A source that cannot be read is tried again after a pause that grows, and takes nothing out of the pool.
//! Not here: what a list looks like ([`crate::list`]), how a page is fetched ([`crate::fetch`]), and which members came from
//! which source, which the pool knows ([`crate::pool::Pool::take`]).

mod doubt;
mod intake;
mod reading;
mod tell;
mod watch;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::{self, Place, PoolSource};
use crate::member::Name;
use crate::pool::Pool;
use doubt::Doubt;
use reading::{Done, Reader};
use tell::Teller;
use watch::Watch;

/// Lists that are read at the same time. A long one takes 20 bytes of memory per line.
const MAX_READINGS: usize = 4;
/// Threads beyond one per source: for looking at files, and names of hosts.
const SPARE_THREADS: usize = 8;
/// The first pause after a failure; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A file that has lost most of its proxies is read again after this; whoever writes it has done by then.
const SECOND_LOOK: Duration = Duration::from_secs(5);
/// But no longer than this, nor than `every`.
const LONGEST_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Gives a hint when each source has been read once, or could not be.
pub(crate) struct FirstRound(mpsc::Receiver<()>);

impl FirstRound {
    /// Returns then, or when the time is up.
    pub(crate) async fn wait(mut self, most: Duration) {
        let _ = tokio::time::timeout(most, self.0.recv()).await;
    }
}

/// Keeps the pool in step with the configured sources until `shutdown` is cancelled. `connect` is called once, on the new
/// thread's runtime.
///
/// # Errors
/// There can be no thread.
pub(crate) fn start<F>(config: &config::Pool, connect: F, shutdown: CancellationToken) -> io::Result<FirstRound>
where
    F: FnOnce() -> Result<Pool, String> + Send + 'static,
{
    let (read_once, first_round) = mpsc::channel(1);
    if config.sources.is_empty() {
        return Ok(FirstRound(first_round));
    }
    let config = config.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(config.sources.len() + SPARE_THREADS)
        .build()?;
    let body = move || {
        runtime.block_on(async {
            match connect() {
                Ok(pool) => tokio::select! {
                    () = keep_all(&config, &pool, read_once) => {}
                    () = shutdown.cancelled() => {}
                },
                // The workers say the same, and the program ends.
                Err(error) => tracing::debug!(error, "no store for the sources"),
            }
        });
        // A list that is being read is left where it is.
        runtime.shutdown_background();
    };
    thread::Builder::new().name("sources".to_owned()).spawn(body)?;
    Ok(FirstRound(first_round))
}

/// Looks after every source, for ever.
async fn keep_all(config: &config::Pool, pool: &Pool, read_once: mpsc::Sender<()>) {
    let readings = Arc::new(Semaphore::new(MAX_READINGS));
    let configured: Arc<HashSet<Name>> = Arc::new(config.proxies.iter().cloned().collect());
    let mut tasks = tokio::task::JoinSet::new();
    for source in &config.sources {
        let reader = Reader::new(source.clone(), pool.clone(), config, configured.clone(), readings.clone());
        tasks.spawn(keep(source.clone(), reader, read_once.clone()));
    }
    drop(read_once);
    tasks.join_all().await;
}

/// Looks after one source, for ever.
async fn keep(source: PoolSource, mut reader: Reader, read_once: mpsc::Sender<()>) {
    let mut read_once = Some(read_once);
    let mut teller = Teller::new(&source.name);
    let mut watch = match &source.place {
        Place::File(path) => Some(Watch::new(path)),
        Place::Page(..) => None,
    };
    let mut failures = 0;
    loop {
        let started = Instant::now();
        if let Some(watch) = &mut watch {
            watch.remember().await;
        }
        let outcome = reader.read().await;
        teller.tell(&outcome, started.elapsed());
        read_once.take();
        let pause = match outcome {
            Ok(done) => {
                failures = 0;
                let is_short = matches!(done, Done::Read { doubt: Some(Doubt::Shrunk { .. }), .. });
                if is_short && watch.is_some() { source.every.min(SECOND_LOOK) } else { source.every }
            }
            Err(_) => {
                failures += 1;
                pause_after(failures, source.every)
            }
        };
        let next = Instant::now() + jittered(pause);
        match &mut watch {
            Some(watch) => tokio::select! {
                () = sleep_until(next) => {}
                () = watch.changed() => {}
            },
            None => sleep_until(next).await,
        }
    }
}

/// How long to wait after so many failures in a row.
fn pause_after(failures: u32, every: Duration) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    doubled.min(LONGEST_PAUSE).min(every)
}

/// Up to a tenth less, so that gateways which were started together do not ask together.
fn jittered(span: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) as u32;
    span.mul_f64(1.0 - 0.1 * f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_what_the_schedule_would_be() {
        let secs = Duration::from_secs;
        let pauses = |every| [1, 2, 3, 9, 10, 99].map(|failures| pause_after(failures, every));
        assert_eq!(pauses(secs(86_400)), [1, 2, 4, 256, 300, 300].map(secs));
        assert_eq!(pauses(secs(3)), [1, 2, 3, 3, 3, 3].map(secs));
    }

    #[test]
    fn a_schedule_is_kept_or_a_little_more_than_kept() {
        for _ in 0..1_000 {
            let span = jittered(Duration::from_secs(10));
            assert!((9.0..=10.0).contains(&span.as_secs_f64()), "{span:?}");
        }
    }
}
