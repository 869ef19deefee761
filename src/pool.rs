//! The pool contract: one sorted set of members, the score of each how many allocations it has had.
//!
//! Two stores keep it, and differ in where the state lives, never in behaviour: [`redis`] shares it between any
//! number of gateways, [`embedded`] keeps it inside this process. Being in the set *is* being eligible.
//! Choosing reserves nothing and knows nothing of success or latency; a retry is one more allocation.
//! Not here: dialing, and what a member's bytes mean ([`crate::member`]).

pub mod embedded;
pub mod redis;

mod ahead;
mod lease;

use std::collections::HashMap;
use std::time::Duration;

pub use ahead::Prefetch;
pub use lease::Lease;

use crate::member::Name;
use embedded::Embedded;
use redis::Redis;

/// A pool in one of the two stores. Cloning is cheap and shares the store.
#[derive(Clone)]
pub enum Pool {
    /// Inside this process.
    Embedded(Embedded),
    /// In Redis, shared with every gateway that uses the same key.
    Redis(Redis),
}

/// The count a newcomer starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// The lowest count in the pool, 0 when it is empty: a newcomer is next in line but never floods.
    Min,
    /// This many.
    Count(u64),
}

/// A member and its count.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The member, byte for byte.
    pub member: Name,
    /// Allocations so far. A whole number unless someone wrote another score.
    pub count: f64,
}

/// A member that was set aside.
#[derive(Clone, Debug, PartialEq)]
pub struct Parked {
    /// The member, byte for byte.
    pub member: Name,
    /// Its count when it left the set.
    pub count: f64,
    /// Why, in a sentence.
    pub reason: String,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub since_ms: u64,
}

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

impl Pool {
    /// Takes the least-used member that is not in `tried`: lowest count first, equal counts in member order
    /// (bytes). Its count has gone up by one when this returns, whatever becomes of the request. Under least-concurrent,
    /// fewest requests in flight come before that; the lease is the request's own, and is dropped when it is over.
    ///
    /// `None`: nobody left; nothing was written. The name shares memory with what it came in: copy it to keep it long.
    ///
    /// # Errors
    /// See [`PoolError`]; after [`PoolError::TimedOut`] or [`PoolError::Unreachable`] the allocation may still be
    /// counted. After [`PoolError::AtLimit`] nothing was written.
    pub async fn allocate(&self, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        match self {
            Self::Embedded(pool) => pool.allocate(tried),
            Self::Redis(pool) => Ok(pool.allocate(tried).await?.map(|name| (name, Lease::default()))),
        }
    }

    /// How many requests each member has in flight, where the policy counts that; members that have none are left out.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn in_flight(&self) -> Result<HashMap<Name, u64>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.in_flight()),
            Self::Redis(_) => Ok(HashMap::new()),
        }
    }

    /// Adds members that are not there yet; counts that exist are kept. Returns how many were new.
    ///
    /// All of one call start from the same count. A member that was set aside and is added again starts anew and is
    /// eligible; its old record stays until it is removed or set aside again.
    ///
    /// # Errors
    /// See [`PoolError`]; a part of a list of more than 1,000 may have been added. Adding it again does no harm.
    pub async fn add(&self, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.add(members, initial)),
            Self::Redis(pool) => pool.add(members, initial).await,
        }
    }

    /// Takes members out, also of those set aside. Returns how many were there.
    ///
    /// # Errors
    /// See [`PoolError`]; a part of a list of more than 1,000 may have been removed.
    pub async fn remove(&self, members: &[Name]) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.remove(members)),
            Self::Redis(pool) => pool.remove(members).await,
        }
    }

    /// Sets a member aside: it leaves the set and keeps its count and the reason. Returns whether it did; a member
    /// that is not in the set (any more) is left alone.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn park(&self, member: &Name, reason: &str) -> Result<bool, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.park(member, reason)),
            Self::Redis(pool) => pool.park(member, reason).await,
        }
    }

    /// Makes no more allocations ahead of need, and gives back those that were not used.
    ///
    /// # Errors
    /// See [`PoolError`]; what could not be given back stays counted.
    pub async fn stop_prefetching(&self) -> Result<(), PoolError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Redis(pool) => pool.stop_prefetching().await,
        }
    }

    /// Everyone eligible, least used first, equal counts in member order.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn list(&self) -> Result<Vec<Entry>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.list()),
            Self::Redis(pool) => pool.list().await,
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
