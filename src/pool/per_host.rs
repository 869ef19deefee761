//! Counts of their own for hosts, so that each is served evenly by all members, whatever others ask for.

use std::time::Duration;

/// How many hosts have counts of their own, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerHost {
    /// At most so many; the one that was not asked for the longest loses them. At least 1.
    pub max_hosts: usize,
    /// A host loses them that is not asked for so long.
    pub idle: Duration,
}
