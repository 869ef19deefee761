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

mod ahead;
mod ban;
mod candidate;
mod check;
mod count;
mod lease;
mod local;
mod parked;
mod per_host;
mod reading;
mod report;
pub mod verify;

use std::collections::HashMap;
use std::time::Duration;

pub use ahead::Prefetch;
pub use ban::{Ban, BannedBy, HostBan};
pub use candidate::{Judged, Judging, Memory, Opinion, Rejection};
pub use check::{Check, Checked, Finding, Rounds, Walk};
#[cfg(test)]
pub(crate) use count::weight;
pub use lease::Lease;
pub use local::Local;
pub use parked::{Kind, Parked, Parking, Stay};
pub use per_host::PerHost;
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
    /// allocations ([`Redis::with_ramp`], [`Embedded::with_ramp`]).
    Ramp,
    /// None: everything goes to it until it has caught up.
    Zero,
    /// This many.
    Count(u64),
}

impl Initial {
    /// Whether the count is this, and no matter of history.
    fn is_number(self) -> bool {
        matches!(self, Self::Zero | Self::Count(_))
    }
}

/// Who is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The member with the fewest allocations so far.
    LeastUsed,
    /// The member with the fewest requests in flight, among equals the least used.
    LeastConcurrent(Concurrency),
}

/// How members are chosen by what they have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// As many requests as a member may have in flight; 0: any number.
    pub max_in_flight: u64,
    /// What a gateway that died had in flight is returned after this at the latest; in Redis only.
    pub heartbeat: Duration,
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

/// How counts shrink with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// What is left of a count after a period: above 0 and below 1.
    pub keep: f64,
    /// A period, at least 1 ms.
    pub period: Duration,
}

/// What was subtracted from all counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebased {
    /// A whole number.
    pub by: f64,
    /// How many members are in the set.
    pub members: u64,
}

/// A member that is to be looked at before it may enter the set.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The member, byte for byte.
    pub member: Name,
    /// When to look at it, in milliseconds since 1970-01-01 UTC.
    pub due_ms: u64,
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
    fn is_away(&self) -> bool {
        // A node that cannot serve at this moment: it loads its data, or is not in charge.
        const AWAY: [&str; 4] = ["LOADING", "CLUSTERDOWN", "MASTERDOWN", "READONLY"];
        match self {
            Self::TimedOut(_) | Self::Unreachable(_) | Self::Overloaded => true,
            Self::Refused(why) => AWAY.iter().any(|word| why.starts_with(word)),
            Self::AtLimit => false,
        }
    }
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

    /// Takes note of what has become of requests, in this order, at most 1,000; who fails too often in a row is set aside,
    /// and who passes a trial is back. Returns what followed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn report(&self, reports: &[Report], care: &Care) -> Result<Vec<Change>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.report(reports, care)),
            Self::Redis(pool) => pool.report(reports, care).await,
        }
    }

    /// Sets members aside for a time because an answer that came through them says so, at most so many percent of all members.
    /// Those that are set aside otherwise, or are no members any more, stay what they are. Returns what followed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn ban(&self, bans: &[Ban], max_parked: u8) -> Result<Vec<Change>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.ban(bans, max_parked)),
            Self::Redis(pool) => pool.ban(bans, max_parked).await,
        }
    }

    /// Keeps members from the requests of one host for a time: no more than so many percent of the eligible, and never the last;
    /// without a share, as many as are named. Returns what became of each. Reasons are for logs, and are not kept.
    ///
    /// A host is named as in a URL, in lower case, IPv6 in brackets, and without a port.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn ban_for(&self, host: &str, bans: &[Ban], share: Option<u8>) -> Result<Vec<HostBan>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.ban_for(host, bans, share)),
            Self::Redis(pool) => pool.ban_for(host, bans, share).await,
        }
    }

    /// Lets members have the requests of a host again. Returns those that were banned.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn unban_for(&self, host: &str, members: &[Name]) -> Result<Vec<Name>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.unban_for(host, members)),
            Self::Redis(pool) => pool.unban_for(host, members).await,
        }
    }

    /// The hosts that have banned members, if they are others than when `seen` was given; it is given anew.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn hosts(&self, seen: &mut Option<u64>) -> Result<Option<Vec<String>>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.hosts(seen)),
            Self::Redis(pool) => pool.hosts(seen).await,
        }
    }

    /// Whom which host has banned, in order of hosts, then members. A large answer, read in pages.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn banned(&self) -> Result<Vec<BannedBy>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.banned()),
            Self::Redis(pool) => pool.banned().await,
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

    /// As [`Pool::try_next`], for a request to `host`, which has banned members: these are passed over.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn try_next_for(&self, host: &str, lease: Duration) -> Result<Option<(Name, bool)>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.try_next_for(host, lease)),
            Self::Redis(pool) => pool.try_next_for(host, lease).await,
        }
    }

    /// Takes the member that was set aside for failing and has waited longest for its trial, for one request; its count goes
    /// up by one. Until [`Pool::report`] has heard what became of it, nobody else gets it, for no longer than `lease`.
    /// Also tells whether another one waits. `None`: nobody waits.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn try_next(&self, lease: Duration) -> Result<Option<(Name, bool)>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.try_next(lease)),
            Self::Redis(pool) => pool.try_next(lease).await,
        }
    }

    /// Has members checked that are not yet, some hundred of them: a new one has its first turn within a period, spread by
    /// its name. Whether that was the end of the walk; then it begins anew.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn enroll(&self, walk: &mut Walk, every: Duration) -> Result<bool, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.enroll(walk, every)),
            Self::Redis(pool) => pool.enroll(walk, every).await,
        }
    }

    /// Takes members whose turn to be checked has come, at most so many (1 to 1,000). Until [`Pool::checked`] has heard of
    /// each, nobody else gets it, for no longer than `lease`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn claim(&self, most: usize, lease: Duration) -> Result<Vec<Check>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.claim(most, lease)),
            Self::Redis(pool) => pool.claim(most, lease).await,
        }
    }

    /// Takes note of what checks have shown, at most 1,000; who fails is set aside until it passes one, and who passes is back
    /// unless it has a cooldown. Returns what followed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn checked(&self, checks: &[Checked], rounds: &Rounds) -> Result<Vec<Change>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.checked(checks, rounds)),
            Self::Redis(pool) => pool.checked(checks, rounds).await,
        }
    }

    /// Who has failed, from where another look ended on ([`Look::next`]; 0: from the beginning), at most so many (1 to 1,000).
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn look(&self, from: u64, most: usize) -> Result<Look, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.look(from, most)),
            Self::Redis(pool) => pool.look(from, most).await,
        }
    }

    /// How often in a row eligible members have failed; those that have not are left out.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn failures(&self) -> Result<HashMap<Name, u64>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.failures()),
            Self::Redis(pool) => pool.failures().await,
        }
    }

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

    /// Lets all counts shrink when a period of `decay` is over, those of members set aside too, rounded down to whole
    /// allocations; any number of gateways may call it. Returns how many periods that was, mostly 0. The first call of all
    /// begins the first period.
    ///
    /// # Errors
    /// See [`PoolError`]. In Redis it may take a second per million members, during which nothing else is answered.
    pub async fn decay(&self, decay: Decay) -> Result<u64, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.decay(decay)),
            Self::Redis(pool) => pool.decay(decay).await,
        }
    }

    /// Subtracts the lowest count from all, or the next whole number below. Counts of members that are set aside, or catch
    /// up, go down to 0 at most. Infinite counts, which other tools have written, are passed over and stay.
    ///
    /// # Errors
    /// See [`PoolError`]. In Redis it may take a second per million members, during which nothing else is answered.
    pub async fn rebase(&self) -> Result<Rebased, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.rebase()),
            Self::Redis(pool) => pool.rebase().await,
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
}
