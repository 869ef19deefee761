//! The pool contract: one sorted set of members, the score of each how many allocations it has had.
//!
//! Two stores keep it, and differ in where the state lives, never in behaviour: [`redis`] shares it between any
//! number of gateways, [`embedded`] keeps it inside this process. Being in the set *is* being eligible.
//!
//! A member is a candidate, eligible, or set aside with a reason, and in one of these states at a time:
//!
//! ```text
//!             accept                park
//! candidate ─────────▶ eligible ◀─────────▶ set aside      remove: from each of them
//!     ▲ propose            ▲ add    restore, restore_due, report
//! ```
//!
//! Choosing knows nothing of success or latency; a retry is one more allocation. Under least-used it reserves nothing;
//! under least-concurrent whoever is chosen holds a [`Lease`], and those with the fewest go first.
//! Not here: dialing, and what a member's bytes mean ([`crate::member`]).

pub mod embedded;
pub mod redis;

mod aging;
mod ahead;
mod ban;
mod candidate;
mod check;
mod count;
mod error;
mod initial;
mod lease;
mod local;
mod parked;
mod per_host;
mod policy;
mod reading;
mod report;
pub mod verify;

use std::collections::HashMap;

pub use aging::{Decay, Rebased};
pub use ahead::Prefetch;
pub use ban::{Ban, BannedBy, HostBan};
pub use candidate::{Candidate, Judged, Judging, Memory, Opinion, Rejection};
pub use check::{Check, Checked, Finding, Rounds, Walk};
#[cfg(test)]
pub(crate) use count::weight;
pub use error::PoolError;
pub use initial::Initial;
pub use lease::Lease;
pub use local::Local;
pub use parked::{Kind, Parked, Parking, Stay};
pub use per_host::PerHost;
pub use policy::{Concurrency, Policy};
pub use reading::{Dropped, Reading};
pub use report::{Care, Change, Look, Outcome, Report};

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

/// A member and its count.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The member, byte for byte.
    pub member: Name,
    /// Its score: allocations so far, divided by its weight if it has one. Without one it is a whole number, unless someone
    /// wrote another score.
    pub count: f64,
}

impl Entry {
    /// How many allocations the score stands for.
    pub fn allocations(&self) -> f64 {
        count::allocations(self.count, self.weight())
    }

    /// What the allocations are divided by: `?weight=` in the member, 1 without it.
    pub fn weight(&self) -> u16 {
        count::weight(&self.member)
    }
}

/// How many there are in each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// In the set.
    pub eligible: u64,
    /// Eligible as well, but catching up slowly.
    pub ramping: u64,
    /// Set aside.
    pub parked: u64,
    /// To be judged.
    pub candidates: u64,
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
            Self::Redis(pool) => pool.allocate(tried).await,
        }
    }

    /// A lease of a member that was chosen otherwise than by [`Pool::allocate`]; it need not be eligible. Nothing is allocated.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn hold(&self, member: &Name) -> Result<Lease, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.hold(member)),
            Self::Redis(pool) => pool.hold(member).await,
        }
    }

    /// Takes part in the policy as a gateway: what leases of this client count is believed as long as it lives. Otherwise it does
    /// so from its first allocation on.
    pub fn register(&self) {
        if let Self::Redis(pool) = self {
            pool.register();
        }
    }

    /// Takes part no longer, and counts nothing as in flight any more: whoever holds leases of this client is about to end.
    ///
    /// # Errors
    /// See [`PoolError`]; what is still counted is returned when this gateway has given no sign of life for long enough.
    pub async fn unregister(&self) -> Result<(), PoolError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Redis(pool) => pool.unregister().await,
        }
    }

    /// How many requests each member has in flight, where the policy counts that; members that have none are left out.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn in_flight(&self) -> Result<HashMap<Name, u64>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.in_flight()),
            Self::Redis(pool) => pool.in_flight().await,
        }
    }

    /// Adds members that are not there yet; counts that exist are kept. Returns how many were new.
    ///
    /// All of one call start from the same count. A member that was set aside stays so: adding is what gateways do when
    /// they start, and must not undo what an operator or a check has done. [`Pool::restore`] brings it back. A candidate
    /// becomes eligible.
    ///
    /// # Errors
    /// See [`PoolError`]; a part of a list of more than 200 may have been added. Adding it again does no harm.
    pub async fn add(&self, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.add(members, initial)),
            Self::Redis(pool) => pool.add(members, initial).await,
        }
    }

    /// Takes members out, in whatever state they are. Returns how many were there.
    ///
    /// # Errors
    /// See [`PoolError`]; a part of a list of more than 200 may have been removed.
    pub async fn remove(&self, members: &[Name]) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.remove(members)),
            Self::Redis(pool) => pool.remove(members).await,
        }
    }

    /// As [`Pool::allocate`], for a request to `host`, which has banned members: these are passed over. Where hosts have counts of
    /// their own ([`PerHost`]), the member that this host has been given least often, banned members or not; both counts go up.
    ///
    /// # Errors
    /// As there.
    pub async fn allocate_for(&self, host: &str, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        match self {
            Self::Embedded(pool) => pool.allocate_for(host, tried),
            Self::Redis(pool) => pool.allocate_for(host, tried).await,
        }
    }

    /// Reads everything that is kept of the pool, as it is, and judges it.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn verify(&self, context: verify::Context) -> Result<verify::Verdict, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.verify(context)),
            Self::Redis(pool) => pool.verify(context).await,
        }
    }

    /// Stands by for times in which the store cannot be reached: reads the set now and then, and tells of allocations that were
    /// made meanwhile. Goes on for ever; once for each process. Needs [`Redis::with_local`], and does nothing without.
    pub async fn stand_by(&self) {
        match self {
            Self::Embedded(_) => std::future::pending().await,
            Self::Redis(pool) => pool.stand_by().await,
        }
    }

    /// Tells the store of all allocations that were made without it.
    ///
    /// # Errors
    /// See [`PoolError`]; what could not be told stays uncounted, unless it is told later.
    pub async fn tell_owed(&self) -> Result<(), PoolError> {
        match self {
            Self::Embedded(_) => Ok(()),
            Self::Redis(pool) => pool.tell_owed().await,
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

    /// How many there are in each state; whoever is in two places is in both numbers.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn sizes(&self) -> Result<Sizes, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.sizes()),
            Self::Redis(pool) => pool.sizes().await,
        }
    }

    /// Everyone in the set, least used first, equal counts in member order.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn list(&self) -> Result<Vec<Entry>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.list()),
            Self::Redis(pool) => pool.list().await,
        }
    }

    /// Everyone eligible who is behind and catches up slowly, and so is not in the set; least used first.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn ramping(&self) -> Result<Vec<Entry>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.ramping()),
            Self::Redis(pool) => pool.ramping().await,
        }
    }
}
