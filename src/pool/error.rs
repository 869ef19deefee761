//! What can go wrong with a store.

use std::time::Duration;

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PoolError {
    /// No reply in time. The script may or may not have run.
    #[error("no reply from Redis within {0:?}")]
    TimedOut(Duration),
    /// Not connected, or the connection broke.
    #[error("cannot reach Redis: {0}")]
    Unreachable(String),
    /// Redis replied with an error, or with something that is no answer to the question.
    #[error("Redis answered with an error: {0}")]
    Refused(String),
    /// More requests wait for an allocation than the queue holds.
    #[error("too many requests wait for the pool")]
    Overloaded,
    /// Under least-concurrent: every member that is left has as many requests in flight as it may have.
    #[error("every member has as many requests in flight as it may have")]
    AtLimit,
}

impl PoolError {
    /// Whether the store could not be asked, rather than having said no.
    pub(super) fn is_away(&self) -> bool {
        // A node that cannot serve at this moment: it loads its data, or is not in charge.
        const AWAY: [&str; 4] = ["LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY"];
        match self {
            Self::TimedOut(_) | Self::Unreachable(_) | Self::Overloaded => true,
            Self::Refused(why) => AWAY.iter().any(|word| why.starts_with(word)),
            Self::AtLimit => false,
        }
    }
}
