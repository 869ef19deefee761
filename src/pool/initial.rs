//! Where a count begins, or goes on.

/// The count a member starts from: a newcomer, and one that comes back after it was set aside.
///
/// A member with a weight starts at the next score that a whole number of its allocations gives, any other at the next whole
/// number. A newcomer has no history. One that comes back keeps its own count where that is more, except with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// Its own history, 0 for a newcomer.
    Keep,
    /// The lowest count in the set, 0 when it is empty: next in line, but never flooded.
    Min,
    /// The count that half of the set has not gone beyond, 0 when it is empty.
    Median,
    /// The highest count in the set, 0 when it is empty: the others go first.
    Max,
    /// Its own history, but as long as it is behind the lowest of the set it catches up slowly, by at most one of so many
    /// allocations ([`super::redis::Redis::with_ramp`], [`super::embedded::Embedded::with_ramp`]).
    Ramp,
    /// None: everything goes to it until it has caught up.
    Zero,
    /// This many.
    Count(u64),
}

impl Initial {
    /// Whether the count is this, and no matter of history.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Zero | Self::Count(_))
    }
}
