//! What members have in flight, and choosing by that: `lua/acquire.lua` and `release.lua` in memory.

use std::collections::{BTreeSet, HashMap};

use super::state::State;
use crate::member::Name;
use crate::pool::PoolError;
use crate::pool::count::{self, Count};

/// What members have in flight, and the order in which that has them chosen.
#[derive(Default)]
pub(super) struct Load {
    /// (in flight / weight, count, member).
    pub(super) order: BTreeSet<(Count, Count, Name)>,
    /// Only of members that have some, eligible or not: who leaves and returns still has it.
    pub(super) in_flight: HashMap<Name, u64>,
    /// As many as a member may have, times its weight; 0: any number.
    pub(super) most: u64,
}

impl State {
    pub(super) fn least_concurrent(most: u64) -> Self {
        Self { load: Some(Load { most, ..Load::default() }), ..Self::default() }
    }

    pub(super) fn is_least_concurrent(&self) -> bool {
        self.load.is_some()
    }

    /// Fewest requests in flight first, of those the least used, of those in member order.
    pub(super) fn take_least_loaded(&mut self, tried: &[Name]) -> Result<Option<Name>, PoolError> {
        let Some(load) = &self.load else { return Ok(None) };
        let first = load.order.iter().find(|(.., member)| !tried.contains(member)).cloned();
        let Some((_, count, member)) = first else { return Ok(None) };
        self.take_loaded(count, member).map(Some)
    }

    pub(super) fn take_loaded(&mut self, count: Count, member: Name) -> Result<Name, PoolError> {
        let Some(load) = &self.load else { return Ok(member) };
        if load.most > 0 && load.of(&member) >= load.most.saturating_mul(count::weight(&member).into()) {
            return Err(PoolError::AtLimit);
        }
        self.changes.note(&member);
        self.take(&member);
        self.hold(&member);
        self.put(member.clone(), count.raised(&member));
        Ok(member)
    }

    /// A request goes through `member`, whoever chose it.
    pub(super) fn hold(&mut self, member: &Name) {
        self.add_in_flight(member, |in_flight| in_flight + 1);
    }

    /// A request through `member` is over.
    pub(super) fn release(&mut self, member: &Name) {
        self.add_in_flight(member, |in_flight| in_flight.saturating_sub(1));
    }

    pub(super) fn in_flight(&self) -> HashMap<Name, u64> {
        self.load.as_ref().map(|load| load.in_flight.clone()).unwrap_or_default()
    }

    /// Changes what a member has in flight, be it eligible or not.
    pub(super) fn add_in_flight(&mut self, member: &Name, change: impl FnOnce(u64) -> u64) {
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
    pub(super) fn of(&self, member: &Name) -> u64 {
        self.in_flight.get(member).copied().unwrap_or(0)
    }

    pub(super) fn share(&self, member: &Name) -> Count {
        Count(self.of(member) as f64 / f64::from(count::weight(member)))
    }
}
