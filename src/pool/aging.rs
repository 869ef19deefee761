//! How counts age: they shrink with time, or all lose what all have.

use std::time::Duration;

use super::{Pool, PoolError};

/// How counts shrink with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// What is left of a count after a period: above 0 and below 1.
    pub keep: f64,
    /// A period, at least 1 ms.
    pub period: Duration,
}

/// What was subtracted from all counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebased {
    /// A whole number.
    pub by: f64,
    /// How many members are in the set.
    pub members: u64,
}

impl Pool {
    /// Lets all counts shrink when a period of `decay` is over, those of members set aside too, rounded down to whole
    /// allocations; any number of gateways may call it. Returns how many periods that was, mostly 0. The first call of all
    /// begins the first period.
    ///
    /// # Errors
    /// See [`PoolError`]. In Redis it may take a second per million members, during which nothing else is answered.
    pub async fn decay(&self, decay: Decay) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.decay(decay)),
            Self::Redis(pool) => pool.decay(decay).await,
        }
    }

    /// Subtracts the lowest count from all, or the next whole number below. Counts of members that are set aside, or catch
    /// up, go down to 0 at most. Infinite counts, which other tools have written, are passed over and stay.
    ///
    /// # Errors
    /// See [`PoolError`]. In Redis it may take a second per million members, during which nothing else is answered.
    pub async fn rebase(&self) -> Result<Rebased, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.rebase()),
            Self::Redis(pool) => pool.rebase().await,
        }
    }
}
