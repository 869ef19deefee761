//! Candidates, as the fleet shares them: each is judged by one gateway, and who is rejected waits longer each time.

use std::time::Duration;

use serde::Deserialize;

use super::Initial;
use super::parked::doubled;
use crate::member::Name;

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
