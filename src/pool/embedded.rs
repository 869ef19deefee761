//! The pool inside this process: what Redis does for many gateways, for one.
//!
//! The set is ordered by (count, member), as Redis orders a sorted set, and a map finds a member's count. Both live
//! under one std mutex: an operation is a few tree steps and never waits inside, so an async lock would only add
//! to it. A list that is added or removed is one operation.
//! Not here: anything that outlives the process. Cost: O(log n) per allocation, no system call.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Entry, Initial, Parked};
use crate::member::Name;

/// A pool in this process. Clones share it, across threads too.
#[derive(Clone, Default)]
pub struct Embedded {
    state: Arc<Mutex<State>>,
}

/// Invariant: `order` holds exactly the (count, member) pairs of `counts`.
#[derive(Default)]
struct State {
    order: BTreeSet<(Count, Name)>,
    counts: HashMap<Name, Count>,
    parked: BTreeMap<Name, Parked>,
}

/// A score, as in Redis a double: from 2^53 on, one more is the same number. Never NaN.
#[derive(Clone, Copy, PartialEq)]
struct Count(f64);

impl Eq for Count {}

impl Ord for Count {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Count {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Embedded {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// See [`super::Pool::allocate`]. Looks at no more members than were tried, and one.
    pub(super) fn allocate(&self, tried: &[Name]) -> Option<Name> {
        let mut state = self.state();
        let (count, member) = state.order.iter().find(|(_, member)| !tried.contains(member)).cloned()?;
        state.take(&member);
        state.put(member.clone(), Count(count.0 + 1.0));
        Some(member)
    }

    /// See [`super::Pool::add`].
    pub(super) fn add(&self, members: &[Name], initial: Initial) -> u64 {
        let mut state = self.state();
        let start = match initial {
            Initial::Min => state.order.first().map_or(Count(0.0), |(count, _)| *count),
            Initial::Count(count) => Count(count as f64),
        };
        let mut added = 0;
        for member in members {
            if !state.counts.contains_key(member) {
                state.put(member.clone(), start);
                added += 1;
            }
        }
        added
    }

    /// See [`super::Pool::remove`].
    pub(super) fn remove(&self, members: &[Name]) -> u64 {
        let mut state = self.state();
        let mut removed = 0;
        for member in members {
            // Both, always: a member may be set aside and have been added again.
            let (eligible, parked) = (state.take(member).is_some(), state.parked.remove(member).is_some());
            removed += u64::from(eligible || parked);
        }
        removed
    }

    /// See [`super::Pool::park`].
    pub(super) fn park(&self, member: &Name, reason: &str) -> bool {
        let since_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let mut state = self.state();
        let Some(Count(count)) = state.take(member) else { return false };
        let record = Parked { member: member.clone(), count, reason: reason.to_owned(), since_ms };
        state.parked.insert(member.clone(), record);
        true
    }

    /// See [`super::Pool::list`].
    pub(super) fn list(&self) -> Vec<Entry> {
        let state = self.state();
        state.order.iter().map(|(count, member)| Entry { member: member.clone(), count: count.0 }).collect()
    }

    /// See [`super::Pool::parked`].
    pub(super) fn parked(&self) -> Vec<Parked> {
        self.state().parked.values().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No operation can panic between its two writes, so a poisoned lock guards a sound state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, member: Name, count: Count) {
        self.counts.insert(member.clone(), count);
        self.order.insert((count, member));
    }

    fn take(&mut self, member: &Name) -> Option<Count> {
        let (member, count) = self.counts.remove_entry(member)?;
        self.order.remove(&(count, member));
        Some(count)
    }
}
