//! A member that was set aside: why, since when and until when.
//!
//! In Redis it is a record of `KEY:parked`, written by `lua/record.lua`; one that an older version or somebody else has
//! written shows with what can be read of it.

use std::time::Duration;

use super::{Initial, Pool, PoolError, count};
use crate::member::Name;

/// Why a member is set aside, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It failed requests, and rests for a while.
    Cooldown,
    /// It failed a check.
    Unhealthy,
    /// What the set holds cannot be used as a proxy.
    Malformed,
    /// An answer that came through it said that it is not welcome.
    Banned,
    /// Somebody wanted it so.
    Hand,
}

/// How to set a member aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Parking {
    /// Why, in one word.
    pub kind: Kind,
    /// Why, in a sentence.
    pub reason: String,
    /// For how long.
    pub stay: Stay,
}

/// How long a member stays aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Until somebody restores it.
    UntilRestored,
    /// This long, then it returns by itself.
    For(Duration),
    /// The first time so long, doubled for each time in a row after it.
    Growing {
        /// The first time.
        first: Duration,
        /// And never longer than this.
        longest: Duration,
    },
}

/// A member that was set aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Parked {
    /// The member, byte for byte.
    pub member: Name,
    /// Its score when it left the set.
    pub count: f64,
    /// Why, in one word.
    pub kind: Kind,
    /// Why, in a sentence.
    pub reason: String,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub since_ms: u64,
    /// When it returns by itself, if it does.
    pub until_ms: Option<u64>,
    /// How often it was set aside for failing ([`Kind::counts_in_a_row`]) without proving itself in between.
    pub in_a_row: u32,
}

impl Kind {
    const ALL: [(Self, &str); 5] = [
        (Self::Cooldown, "cooldown"),
        (Self::Unhealthy, "unhealthy"),
        (Self::Malformed, "malformed"),
        (Self::Banned, "banned"),
        (Self::Hand, "hand"),
    ];

    /// As records and listings have it.
    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// Whether it is one more time in a row: the member failed, and may fail again when it returns.
    pub fn counts_in_a_row(self) -> bool {
        matches!(self, Self::Cooldown | Self::Unhealthy)
    }

    /// Whether it is an operator's word, which goes for candidates and those set aside as well.
    pub(super) fn is_by_hand(self) -> bool {
        matches!(self, Self::Banned | Self::Hand)
    }

    pub(super) fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map(|(kind, _)| kind)
    }
}

impl Stay {
    /// How long at first, and at most; `None` until restored.
    pub(super) fn span(self) -> Option<(Duration, Duration)> {
        match self {
            Self::UntilRestored => None,
            Self::For(span) => Some((span, span)),
            Self::Growing { first, longest } => Some((first.min(longest), longest)),
        }
    }

    /// When it ends that begins now, the `in_a_row`th time; times in milliseconds.
    pub(super) fn end(self, now_ms: u64, in_a_row: u32) -> Option<u64> {
        let (first, longest) = self.span()?;
        let span = (first.as_millis() as f64 * doubled(in_a_row)).min(longest.as_millis() as f64);
        Some(now_ms.saturating_add(span as u64))
    }
}

/// What the first time is multiplied by for the `in_a_row`th. In doubles, as the scripts do it, and no more than what is beyond
/// every limit: nothing, doubled for ever, would be no number.
pub(super) fn doubled(in_a_row: u32) -> f64 {
    2_f64.powi(in_a_row.saturating_sub(1).min(60) as i32)
}

impl Parked {
    /// How many allocations its score stands for.
    pub fn allocations(&self) -> f64 {
        count::allocations(self.count, count::weight(&self.member))
    }

    /// Reads a record.
    pub(super) fn read(member: Name, record: &[u8]) -> Self {
        let json: serde_json::Value = serde_json::from_slice(record).unwrap_or_default();
        let count = &json["count"];
        Self {
            member,
            // An infinite score is kept as a string.
            count: count.as_f64().or_else(|| count.as_str()?.parse().ok()).unwrap_or_default(),
            // Once, only what was malformed was set aside.
            kind: json["kind"].as_str().and_then(Kind::read).unwrap_or(Kind::Malformed),
            reason: json["reason"].as_str().unwrap_or_default().to_owned(),
            since_ms: json["since_ms"].as_u64().unwrap_or_default(),
            until_ms: json["until_ms"].as_u64(),
            in_a_row: json["in_a_row"].as_u64().and_then(|n| n.try_into().ok()).unwrap_or_default(),
        }
    }
}

impl Pool {
    /// Sets a member aside: it leaves the set and keeps its count and the reason. Returns the record.
    ///
    /// `None`: nothing was done, because it is not in the set (any more), or somebody else was first. Only by
    /// [`Kind::Hand`] and [`Kind::Banned`] can a member be set aside that already is (its record is replaced), or a candidate.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn park(&self, member: &Name, parking: &Parking) -> Result<Option<Parked>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.park(member, parking)),
            Self::Redis(pool) => pool.park(member, parking).await,
        }
    }

    /// Brings members back that were set aside, whatever for, with the count that `initial` gives them. That they were,
    /// and how often in a row, is forgotten. Returns those that were set aside.
    ///
    /// # Errors
    /// See [`PoolError`]; a part of a list of more than 200 may have been restored.
    pub async fn restore(&self, members: &[Name], initial: Initial) -> Result<Vec<Name>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.restore(members, initial)),
            Self::Redis(pool) => pool.restore(members, initial).await,
        }
    }

    /// Brings members back whose time is up, at most so many (1 to 1,000), those due first in front. How often in a row
    /// they were set aside is remembered until [`Pool::forgive`]. Any number of gateways may call it: each member comes
    /// back to one of them.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn restore_due(&self, most: usize, initial: Initial) -> Result<Vec<Name>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.restore_due(most, initial)),
            Self::Redis(pool) => pool.restore_due(most, initial).await,
        }
    }

    /// Takes note that members have proven themselves since they came back: the next time they are set aside is a first
    /// time again. Returns how many had something to forgive.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn forgive(&self, members: &[Name]) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.forgive(members)),
            Self::Redis(pool) => pool.forgive(members).await,
        }
    }

    /// Everyone set aside, in member order.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn parked(&self) -> Result<Vec<Parked>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.parked()),
            Self::Redis(pool) => pool.parked().await,
        }
    }
}
