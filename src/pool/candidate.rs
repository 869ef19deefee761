//! Candidates, as the fleet shares them: each is judged by one gateway, and who is rejected waits longer each time.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use super::parked::doubled;
use super::{Initial, Pool, PoolError};
use crate::member::Name;

/// A member that is to be looked at before it may enter the set.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The member, byte for byte.
    pub member: Name,
    /// When to look at it, in milliseconds since 1970-01-01 UTC.
    pub due_ms: u64,
}

/// How candidates are judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judging {
    /// The rules and the judge, as one word: verdicts that were given by others are void.
    pub by: String,
    /// Who is rejected is looked at again after this, doubled for each time in a row,
    pub first: Duration,
    /// but after no more than this.
    pub longest: Duration,
    /// The count with which they enter.
    pub initial: Initial,
}

/// What was found about a candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The member, byte for byte.
    pub member: Name,
    /// What it was.
    pub opinion: Opinion,
    /// As in [`super::Report`].
    pub luck: f64,
}

/// What is thought of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Opinion {
    /// It may enter.
    Passed,
    /// It may not, for this reason.
    Rejected(String),
    /// Nobody knows: it was not the candidate that failed.
    Unknown,
}

/// The verdict on a candidate that was rejected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Rejection {
    /// Why.
    pub reason: String,
    /// So long it holds, in milliseconds since 1970-01-01 UTC.
    pub until_ms: u64,
    /// How often in a row.
    pub in_a_row: u32,
}

/// What is remembered of a member: its last checks, and what a list says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Of its last 20 checks at most, how many it has passed,
    pub passed: u32,
    /// and how many not.
    pub failed: u32,
    /// Where it is, as in [`crate::list::Listed::country`].
    pub country: Option<String>,
}

impl Opinion {
    /// As the script calls it, and why.
    pub(super) fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Passed => ("passed", ""),
            Self::Rejected(reason) => ("rejected", reason),
            Self::Unknown => ("unknown", ""),
        }
    }
}

impl Judging {
    /// How long who was rejected for the `in_a_row`th time waits; in ms.
    pub(super) fn pause_ms(&self, in_a_row: u32, luck: f64) -> u64 {
        let span = self.first.as_millis() as f64 * doubled(in_a_row);
        (span.min(self.longest.as_millis() as f64) * luck) as u64
    }
}

impl Memory {
    /// From the checks as they are kept: `+` and `-`.
    pub(super) fn of(checks: &str, country: Option<String>) -> Self {
        let count = |mark| checks.matches(mark).count() as u32;
        Self { passed: count('+'), failed: count('-'), country }
    }
}

impl Pool {
    /// Notes members that are to be looked at before they may enter the set, at once. Returns how many are new; those
    /// that are eligible, set aside or candidates already stay what they are.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn propose(&self, members: &[Name]) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.propose(members)),
            Self::Redis(pool) => pool.propose(members).await,
        }
    }

    /// Puts candidates into the set. Returns how many were candidates; others are left alone.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn accept(&self, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.accept(members, initial)),
            Self::Redis(pool) => pool.accept(members, initial).await,
        }
    }

    /// Lets candidates go, or has them looked at again after a while. Returns how many were candidates.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn reject(&self, members: &[Name], again: Option<Duration>) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.reject(members, again)),
            Self::Redis(pool) => pool.reject(members, again).await,
        }
    }

    /// Every candidate, in member order.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn candidates(&self) -> Result<Vec<Candidate>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.candidates()),
            Self::Redis(pool) => pool.candidates().await,
        }
    }

    /// Takes candidates that are due to be judged, at most so many, due first in front; until [`Pool::judged`] has heard what was
    /// found, nobody else gets them, for no longer than `lease`. `by` is what they are judged by, in one word.
    ///
    /// Verdicts that were given by something else are void: when one begins (`is_new`) that judges by something new, all
    /// candidates are due again. From then on whoever judges by what was before gets `None`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn claim_candidates(
        &self,
        most: usize,
        lease: Duration,
        by: &str,
        is_new: bool,
    ) -> Result<Option<Vec<Name>>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.claim_candidates(most, lease, by, is_new)),
            Self::Redis(pool) => pool.claim_candidates(most, lease, by, is_new).await,
        }
    }

    /// Takes note of what was found about candidates, at most 1,000; who passed enters the set. Returns those.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn judged(&self, judged: &[Judged], judging: &Judging) -> Result<Vec<Name>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.judged(judged, judging)),
            Self::Redis(pool) => pool.judged(judged, judging).await,
        }
    }

    /// The verdicts on candidates that were rejected.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn rejections(&self) -> Result<HashMap<Name, Rejection>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.rejections()),
            Self::Redis(pool) => pool.rejections().await,
        }
    }

    /// Remembers whether members, candidates too, have passed a check (`None`: there was none), and tells what is remembered of
    /// each.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn tally(&self, checks: &[(Name, Option<bool>)]) -> Result<Vec<Memory>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.tally(checks)),
            Self::Redis(pool) => pool.tally(checks).await,
        }
    }

    /// Remembers where members are, as lists say; until they are removed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn note_countries(&self, countries: &[(Name, String)]) -> Result<(), PoolError> {
        match self {
            Self::Embedded(pool) => {
                pool.note_countries(countries);
                Ok(())
            }
            Self::Redis(pool) => pool.note_countries(countries).await,
        }
    }
}
