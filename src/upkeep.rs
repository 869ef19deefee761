//! What the pool needs now and then, done by every gateway beside its requests.
//!
//! No gateway leads: each step is one script that any of them may run, at once or never, and does what is due exactly once.
//! Not here: what is on a request's way. Cost: one call a second, which looks at two keys when nothing is due; with
//! `pool.decay` another, at most once a second and at least once a minute.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::config;
use crate::health::Watch;
use crate::member;
use crate::pool::{Decay, Initial, Pool};

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
    decay: Option<Decay>,
    watch: Arc<Watch>,
}

impl Upkeep {
    pub(crate) fn new(pool: Pool, config: &config::Pool, watch: Arc<Watch>) -> Self {
        Self { pool, restore: config.restore, decay: config.decay, watch }
    }

    /// Goes on for ever.
    pub(crate) async fn run(self) {
        let bring_back = async {
            loop {
                sleep(jittered(EVERY)).await;
                self.bring_back().await;
            }
        };
        tokio::join!(bring_back, self.let_decay(), self.watch.run(&self.pool), self.pool.stand_by());
    }

    /// Lets counts shrink each time it is time to.
    async fn let_decay(&self) {
        let Some(decay) = self.decay else { return };
        let pause = (decay.period / 60).clamp(EVERY, 60 * EVERY);
        loop {
            match self.pool.decay(decay).await {
                Ok(0) => {}
                Ok(periods) => tracing::info!(periods, keep = decay.keep, "counts have shrunk"),
                Err(error) => tracing::debug!(%error, "could not let counts shrink"),
            }
            sleep(jittered(pause)).await;
        }
    }

    /// Everyone whose time is up.
    async fn bring_back(&self) {
        for _ in 0..MAX_CALLS {
            match self.pool.restore_due(BATCH, self.restore).await {
                Ok(restored) => {
                    self.watch.metrics.returned(restored.len());
                    for name in &restored {
                        tracing::info!(proxy = member::masked(name), id = member::id(name), "back in the pool");
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
