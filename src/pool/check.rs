//! Checks, as the fleet shares them: each member has its turn once per period, and one gateway takes it.

use std::time::Duration;

use bytes::Bytes;

use super::{Care, Change, Pool, PoolError};
use crate::member::Name;

/// A member whose turn it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The member, byte for byte.
    pub member: Name,
    /// When its turn came, in milliseconds since 1970-01-01 UTC.
    pub due_ms: u64,
    /// Or it is set aside for failing.
    pub is_eligible: bool,
}

/// What a check has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The member, byte for byte.
    pub member: Name,
    /// As in [`Check`]: its next turn is a period later.
    pub due_ms: u64,
    /// What it was.
    pub finding: Finding,
    /// As in [`super::Report`].
    pub luck: f64,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// It serves.
    Healthy,
    /// It does not, for this reason.
    Unhealthy(String),
    /// Nobody knows: it was not the member that failed.
    Unknown,
}

/// How to go on after a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// Between two checks of a member.
    pub every: Duration,
    /// For how long who fails is set aside if nobody checks it again: then a request tries it.
    pub care: Care,
}

/// How far a walk over all members has come.
#[derive(Clone, Debug, Default)]
pub struct Walk {
    /// Among the eligible, those who catch up, and those set aside for failing.
    pub(super) place: usize,
    /// `None` at the beginning of a place.
    pub(super) cursor: Option<Cursor>,
}

#[derive(Clone, Debug)]
pub(super) enum Cursor {
    Redis(Bytes),
    /// The score and the member that were last.
    Embedded(f64, Name),
}

impl Finding {
    /// As the script calls it, and why.
    pub(super) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Healthy => ("healthy", ""),
            Self::Unhealthy(reason) => ("unhealthy", reason),
            Self::Unknown => ("unknown", ""),
        }
    }
}

impl Pool {
    /// Has members checked that are not yet, some hundred of them: a new one has its first turn within a period, spread by
    /// its name. Whether that was the end of the walk; then it begins anew.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn enroll(&self, walk: &mut Walk, every: Duration) -> Result<bool, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.enroll(walk, every)),
            Self::Redis(pool) => pool.enroll(walk, every).await,
        }
    }

    /// Takes members whose turn to be checked has come, at most so many (1 to 1,000). Until [`Pool::checked`] has heard of
    /// each, nobody else gets it, for no longer than `lease`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn claim(&self, most: usize, lease: Duration) -> Result<Vec<Check>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.claim(most, lease)),
            Self::Redis(pool) => pool.claim(most, lease).await,
        }
    }

    /// Takes note of what checks have shown, at most 1,000; who fails is set aside until it passes one, and who passes is back
    /// unless it has a cooldown. Returns what followed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn checked(&self, checks: &[Checked], rounds: &Rounds) -> Result<Vec<Change>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.checked(checks, rounds)),
            Self::Redis(pool) => pool.checked(checks, rounds).await,
        }
    }
}
