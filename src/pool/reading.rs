//! A reading of a source: a list that the pool is kept in step with.

use super::Initial;

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
