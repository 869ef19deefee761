//! What has become of requests, as the pool is told, and what followed from it.
//!
//! How often in a row an eligible member has failed is kept beside the pool, so that all gateways count together. One that
//! has failed too often is set aside for a while; when that is over, one request of all gateways tries it, and what becomes of
//! that brings it back or keeps it out for longer.

use std::collections::HashMap;
use std::time::Duration;

use super::parked::doubled;
use super::{Initial, Parked, Pool, PoolError};
use crate::member::Name;

/// When members that fail are set aside, for how long, and how many of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Care {
    /// A member is set aside after so many failures in a row, at most 999. 0: never.
    pub park_after: u32,
    /// For how long the first time; doubled for each time in a row, and cut by [`Report::luck`].
    pub cooldown: Duration,
    /// And never longer than this, which is no less.
    pub max_cooldown: Duration,
    /// The most, in percent, of those that are eligible or set aside for failing, that may be set aside for failing. One is
    /// left in any case.
    pub max_parked: u8,
    /// The count with which they return.
    pub restore: Initial,
}

/// What became of requests through one member.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The member, byte for byte.
    pub member: Name,
    /// What it was.
    pub outcome: Outcome,
    /// What part of a cooldown is kept, from 0 to 1: members that failed together should not all return together.
    pub luck: f64,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// An answer came: it has not failed in a row any more.
    Served,
    /// So many in a row failed, by the member's fault, the last for this reason.
    Failed(u32, String),
    /// The request that tried it was answered.
    Passed,
    /// The request that tried it failed by its fault, for this reason.
    Missed(String),
    /// The request that tried it showed nothing.
    Undecided,
}

/// What followed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A member was set aside.
    Parked(Parked),
    /// A member is back.
    Restored(Name),
    /// A member was not set aside although it failed often enough: too many are already.
    Spared(Name),
}

/// What gateways must know of each other's failures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Whether somebody waits for a trial.
    pub is_due: bool,
    /// How many are eligible or set aside for failing.
    pub total: u64,
    /// Members that have failed, the last to do so behind.
    pub failing: Vec<Name>,
    /// Where the next look may begin.
    pub next: u64,
}

impl Outcome {
    /// As the script calls it; how many; and why.
    pub(super) fn parts(&self) -> (&'static str, u32, &str) {
        match self {
            Self::Served => ("served", 0, ""),
            Self::Failed(times, reason) => ("failed", *times, reason),
            Self::Passed => ("passed", 0, ""),
            Self::Missed(reason) => ("missed", 0, reason),
            Self::Undecided => ("undecided", 0, ""),
        }
    }
}

impl Care {
    /// How long a cooldown is, the `in_a_row`th time; in ms.
    pub(super) fn cooldown_ms(&self, in_a_row: u32, luck: f64) -> u64 {
        let span = self.cooldown.as_millis() as f64 * doubled(in_a_row);
        (span.min(self.max_cooldown.as_millis() as f64) * luck) as u64
    }
}

impl Pool {
    /// Takes note of what has become of requests, in this order, at most 1,000; who fails too often in a row is set aside,
    /// and who passes a trial is back. Returns what followed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn report(&self, reports: &[Report], care: &Care) -> Result<Vec<Change>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.report(reports, care)),
            Self::Redis(pool) => pool.report(reports, care).await,
        }
    }

    /// Takes the member that was set aside for failing and has waited longest for its trial, for one request; its count goes
    /// up by one. Until [`Pool::report`] has heard what became of it, nobody else gets it, for no longer than `lease`.
    /// Also tells whether another one waits. `None`: nobody waits.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn try_next(&self, lease: Duration) -> Result<Option<(Name, bool)>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.try_next(lease)),
            Self::Redis(pool) => pool.try_next(lease).await,
        }
    }

    /// As [`Pool::try_next`], for a request to `host`, which has banned members: these are passed over.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn try_next_for(&self, host: &str, lease: Duration) -> Result<Option<(Name, bool)>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.try_next_for(host, lease)),
            Self::Redis(pool) => pool.try_next_for(host, lease).await,
        }
    }

    /// Who has failed, from where another look ended on ([`Look::next`]; 0: from the beginning), at most so many (1 to 1,000).
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn look(&self, from: u64, most: usize) -> Result<Look, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.look(from, most)),
            Self::Redis(pool) => pool.look(from, most).await,
        }
    }

    /// How often in a row eligible members have failed; those that have not are left out.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn failures(&self) -> Result<HashMap<Name, u64>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.failures()),
            Self::Redis(pool) => pool.failures().await,
        }
    }
}
