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

use super::{Entry, Initial, Lease, Parked, PoolError};
use crate::member::Name;

/// A pool in this process. Clones share it, across threads too.
#[derive(Clone, Default)]
pub struct Embedded {
    state: Arc<Mutex<State>>,
}

/// Invariant: `order` holds exactly the (count, member) pairs of `counts`, and so does the order of `load`.
#[derive(Default)]
struct State {
    order: BTreeSet<(Count, Name)>,
    counts: HashMap<Name, Count>,
    parked: BTreeMap<Name, Parked>,
    /// Under least-concurrent.
    load: Option<Load>,
}

/// What members have in flight, and the order in which that has them chosen.
#[derive(Default)]
struct Load {
    order: BTreeSet<(u64, Count, Name)>,
    /// Only of members that have some, eligible or not: who leaves and returns still has it.
    in_flight: HashMap<Name, u64>,
    /// As many as a member may have; 0: any number.
    most: u64,
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

    /// An empty pool whose members are chosen by what they have in flight, each at most `most` requests (0: any number).
    pub fn least_concurrent(most: u64) -> Self {
        let load = Some(Load { most, ..Load::default() });
        Self { state: Arc::new(Mutex::new(State { load, ..State::default() })) }
    }

    /// See [`super::Pool::allocate`]. Looks at no more members than were tried, and one.
    pub(super) fn allocate(&self, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        let mut state = self.state();
        if state.load.is_some() {
            let Some(member) = state.take_least_loaded(tried)? else { return Ok(None) };
            return Ok(Some((member.clone(), Lease::embedded(self.clone(), member))));
        }
        let first = state.order.iter().find(|(_, member)| !tried.contains(member)).cloned();
        let Some((count, member)) = first else { return Ok(None) };
        state.take(&member);
        state.put(member.clone(), Count(count.0 + 1.0));
        Ok(Some((member, Lease::default())))
    }

    /// A request through `member` is over.
    pub(super) fn release(&self, member: &Name) {
        self.state().add_in_flight(member, |in_flight| in_flight.saturating_sub(1));
    }

    /// See [`super::Pool::in_flight`].
    pub(super) fn in_flight(&self) -> HashMap<Name, u64> {
        self.state().load.as_ref().map(|load| load.in_flight.clone()).unwrap_or_default()
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
        if let Some(load) = &mut self.load {
            load.order.insert((load.of(&member), count, member.clone()));
        }
        self.counts.insert(member.clone(), count);
        self.order.insert((count, member));
    }

    fn take(&mut self, member: &Name) -> Option<Count> {
        let (member, count) = self.counts.remove_entry(member)?;
        if let Some(load) = &mut self.load {
            load.order.remove(&(load.of(&member), count, member.clone()));
        }
        self.order.remove(&(count, member));
        Some(count)
    }

    /// Fewest requests in flight first, of those the least used, of those in member order.
    fn take_least_loaded(&mut self, tried: &[Name]) -> Result<Option<Name>, PoolError> {
        let Some(load) = &self.load else { return Ok(None) };
        let first = load.order.iter().find(|(.., member)| !tried.contains(member)).cloned();
        let Some((in_flight, count, member)) = first else { return Ok(None) };
        if load.most > 0 && in_flight >= load.most {
            return Err(PoolError::AtLimit);
        }
        self.take(&member);
        self.add_in_flight(&member, |in_flight| in_flight + 1);
        self.put(member.clone(), Count(count.0 + 1.0));
        Ok(Some(member))
    }

    /// Changes what a member has in flight, be it eligible or not.
    fn add_in_flight(&mut self, member: &Name, change: impl FnOnce(u64) -> u64) {
        // Taken out and put back: its place in the order depends on the number.
        let count = self.take(member);
        if let Some(load) = &mut self.load {
            match change(load.of(member)) {
                0 => drop(load.in_flight.remove(member)),
                changed => drop(load.in_flight.insert(member.clone(), changed)),
            }
        }
        if let Some(count) = count {
            self.put(member.clone(), count);
        }
    }
}

impl Load {
    fn of(&self, member: &Name) -> u64 {
        self.in_flight.get(member).copied().unwrap_or(0)
    }
}
