//! A reading of a source: a list that the pool is kept in step with.

use super::{Initial, Pool, PoolError};
use crate::member::Name;

/// One reading of one source, from [`super::Pool::begin_reading`].
#[derive(Clone, Debug)]
pub struct Reading {
    pub(super) source: String,
    /// When it began, by a clock that only this pool knows.
    pub(super) since: u64,
    /// Whether members enter also that the source named before: nobody is eligible.
    pub(super) refills: bool,
    /// What newcomers start from,
    pub(super) initial: Initial,
    /// and after the first call the count itself.
    pub(super) start: Option<f64>,
    named: u64,
}

/// What became of members that a source names no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// How many the source has ceased to name.
    pub forgotten: u64,
    /// How many of them have left the pool.
    pub removed: u64,
}

impl Reading {
    pub(super) fn new(source: &str, since: u64, named: u64, eligible: u64, initial: Initial) -> Self {
        Self { source: source.to_owned(), since, refills: eligible == 0, initial, start: None, named }
    }

    /// How many members the source named before.
    pub fn named(&self) -> u64 {
        self.named
    }

    /// Whether a list that has not changed need not be read: the pool still has what it names.
    pub fn may_skip_unchanged(&self) -> bool {
        self.named > 0 && !self.refills
    }
}

impl Pool {
    /// The names of all sources that the pool remembers.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn sources(&self) -> Result<Vec<String>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.source_names()),
            Self::Redis(pool) => pool.source_names().await,
        }
    }

    /// Forgets a source and the verdicts on what it named. With `remove`, members leave the pool that no other source names;
    /// without, only candidates do.
    ///
    /// # Errors
    /// See [`PoolError`]; a part of what it named may have been forgotten. Doing it again does no harm.
    pub async fn drop_source(&self, name: &str, remove: bool) -> Result<Dropped, PoolError> {
        let reading = self.begin_reading(name, Initial::Min).await?;
        let mut dropped = Dropped::default();
        loop {
            let members = self.missing(&reading, 1_000).await?;
            if members.is_empty() {
                break;
            }
            let Dropped { forgotten, removed } = self.forget(&reading, &members, remove).await?;
            dropped.forgotten += forgotten;
            dropped.removed += removed;
            match self {
                Self::Embedded(pool) => pool.lose_memory(&members, true),
                Self::Redis(pool) => pool.lose_memory(&members, true).await?,
            }
        }
        match self {
            Self::Embedded(pool) => pool.forget_source(name),
            Self::Redis(pool) => pool.forget_source(name).await?,
        }
        Ok(dropped)
    }

    /// Begins a reading of the source `name`, a list that the pool is kept in step with. Newcomers start from `initial`, all of
    /// one reading from the same count.
    ///
    /// The pool remembers what each source names, for all gateways and, in Redis, beyond their ends.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn begin_reading(&self, name: &str, initial: Initial) -> Result<Reading, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.begin_reading(name, initial)),
            Self::Redis(pool) => pool.begin_reading(name, initial).await,
        }
    }

    /// Takes what a reading has found, at most 1,000 at a time. Returns how many entered the pool; with `as_candidates`, how
    /// many became candidates.
    ///
    /// Only those enter that the source has not named before: who was in the pool keeps its count, who was set aside stays
    /// so, and who was removed by hand stays out until the source has ceased to name it and names it again. If nobody is
    /// eligible when the reading begins, that does not matter. A candidate that is found by a source without candidates
    /// becomes eligible.
    ///
    /// # Errors
    /// See [`PoolError`]; taking them again does no harm.
    pub async fn take(&self, reading: &mut Reading, members: &[Name], as_candidates: bool) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.take(reading, members, as_candidates)),
            Self::Redis(pool) => pool.take(reading, members, as_candidates).await,
        }
    }

    /// At most so many members (1 to 1,000) that the source named before and that neither this reading nor a later one has
    /// found. [`Pool::forget`] them, and there are others.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn missing(&self, reading: &Reading, most: usize) -> Result<Vec<Name>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.missing(reading, most)),
            Self::Redis(pool) => pool.missing(reading, most).await,
        }
    }

    /// Forgets that the source has named members which the reading has not found. With `remove`, those that no other source
    /// names leave the pool, whatever state they are in; without, only candidates do.
    ///
    /// # Errors
    /// See [`PoolError`]; forgetting them again does no harm.
    pub async fn forget(&self, reading: &Reading, members: &[Name], remove: bool) -> Result<Dropped, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.forget(reading, members, remove)),
            Self::Redis(pool) => pool.forget(reading, members, remove).await,
        }
    }
}
