//! What the pool needs now and then, done by every gateway beside its requests.
//!
//! No gateway leads: each step is one script that any of them may run, at once or never, and does what is due exactly once.
//! Not here: what is on a request's way. Cost: one call a second, which looks at one key when nothing is due.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::config;
use crate::health::Watch;
use crate::member;
use crate::pool::{Initial, Pool};

/// Between two rounds, on average: whoever is to return after a while returns no more than so much later.
const EVERY: Duration = Duration::from_secs(1);
/// Members that one call brings back: a fraction of a millisecond in which Redis does nothing else.
const BATCH: usize = 100;
/// Calls in one round; what is left then is for the next.
const MAX_CALLS: usize = 100;

/// What one gateway does for its pool.
pub(crate) struct Upkeep {
    pool: Pool,
    restore: Initial,
    watch: Arc<Watch>,
}

impl Upkeep {
    pub(crate) fn new(pool: Pool, config: &config::Pool, watch: Arc<Watch>) -> Self {
        Self { pool, restore: config.restore, watch }
    }

    /// Goes on for ever.
    pub(crate) async fn run(self) {
        tokio::join!(self.watch.run(&self.pool), async {
            loop {
                sleep(jittered(EVERY)).await;
                self.bring_back().await;
            }
        });
    }

    /// Everyone whose time is up.
    async fn bring_back(&self) {
        for _ in 0..MAX_CALLS {
            match self.pool.restore_due(BATCH, self.restore).await {
                Ok(restored) => {
                    for name in &restored {
                        tracing::info!(proxy = member::masked(name), "back in the pool");
                    }
                    if restored.len() < BATCH {
                        return;
                    }
                }
                // It is tried again in a second, and requests say what is wrong.
                Err(error) => {
                    tracing::debug!(%error, "could not bring members back");
                    return;
                }
            }
        }
    }
}

/// A quarter more or less, so that gateways which were started together do not call together.
fn jittered(span: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) as u32;
    span.mul_f64(0.75 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}
