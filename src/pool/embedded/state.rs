//! What a pool is, in memory: the same transitions as the scripts in `lua/`, one method each.
//!
//! The set is ordered by (count, member), as Redis orders a sorted set, and a map finds a member's count.
//! Times are milliseconds since 1970-01-01 UTC and come from outside.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::bans::Bans;
use super::candidates::Verdicts;
use super::changes::Changes;
use super::load::Load;
use super::order::Order;
use super::ramp::Ramp;
use super::spread::Spread;
use super::table::Table;
use crate::member::Name;
use crate::pool::count::Count;
use crate::pool::{Entry, Initial, Parked, Sizes};

/// Invariants: `order` holds exactly the (count, member) pairs of `counts`, and so does the order of `load`; `returns` exactly the (until, member) pairs of
/// `parked` that have an until and are not in `trials`; no member is in more than one of `counts`, `parked` and `candidates`.
#[derive(Default)]
pub(super) struct State {
    pub(super) order: BTreeSet<(Count, Name)>,
    pub(super) counts: Table<Count>,
    pub(super) parked: BTreeMap<Name, Parked>,
    pub(super) returns: BTreeSet<(u64, Name)>,
    /// When to look at them.
    pub(super) candidates: Order,
    pub(super) verdicts: Verdicts,
    /// How often in a row members were set aside that are back.
    pub(super) streaks: HashMap<Name, u32>,
    /// Eligible members that are not in the set, because they are behind and catch up slowly.
    pub(super) ramp: Ramp,
    /// Eligible members that failed their last requests: when last in ms, times 1000, and how many in a row.
    pub(super) failures: Order,
    /// When members that were set aside for failing may be tried.
    pub(super) trials: Order,
    /// When counts have shrunk last.
    pub(super) decayed_ms: Option<u64>,
    /// When members are checked.
    pub(super) checks: Order,
    /// Whom hosts have banned.
    pub(super) bans: Bans,
    /// Where hosts have counts of their own.
    pub(super) spread: Option<Spread>,
    /// Under least-concurrent.
    pub(super) load: Option<Load>,
    /// Whatever changes a member notes it here, except what it has in flight.
    pub(super) changes: Changes,
}

impl State {
    /// See [`super::Embedded::with_ramp`].
    pub(super) fn ramp_every(&mut self, every: u64) {
        self.ramp.every = Some(every);
    }

    /// `lua/allocate.lua`, or `lua/ramp.lua`. Looks at no more members than were tried, and one.
    pub(super) fn allocate(&mut self, tried: &[Name]) -> Option<Name> {
        if self.ramp.every.is_none() || self.ramp.is_empty() {
            return self.take_least_used(tried);
        }
        let first = self.ramp.first(|member| tried.contains(member));
        if let Some((member, true)) = first {
            return self.take_ramping(member);
        }
        match self.take_least_used(tried) {
            Some(member) => {
                self.ramp.count_turn();
                Some(member)
            }
            // Nobody else is left, and then nobody waits for it.
            None => self.take_ramping(first?.0),
        }
    }

    pub(super) fn take_least_used(&mut self, tried: &[Name]) -> Option<Name> {
        let (_, member) = self.order.iter().find(|(_, member)| !tried.contains(member))?;
        let member = member.clone();
        self.raise(&member);
        Some(member)
    }

    pub(super) fn take_ramping(&mut self, member: Name) -> Option<Name> {
        let count = self.ramp.take(&member)?.raised(&member);
        self.changes.note(&member);
        self.ramp.count_turn();
        match self.order.first() {
            Some((lowest, _)) if count >= *lowest => self.put(member.clone(), count),
            _ => self.ramp.put_back(member.clone(), count, self.order.len()),
        }
        Some(member)
    }

    /// `lua/add.lua`
    pub(super) fn add(&mut self, members: &[Name], initial: Initial) -> u64 {
        let start = self.start(initial);
        members.iter().filter(|&member| self.join(member, initial, start)).count() as u64
    }

    /// `lua/join.lua`. What `start` was asked for by `initial`.
    pub(super) fn join(&mut self, member: &Name, initial: Initial, start: Option<Count>) -> bool {
        if self.parked.contains_key(member) {
            return false;
        }
        self.changes.note(member);
        self.candidates.remove(member);
        self.enter_new(member, initial, start)
    }

    /// `lua/remove.lua`
    pub(super) fn remove(&mut self, members: &[Name]) -> u64 {
        let mut removed = 0;
        for member in members {
            self.changes.note(member);
            self.streaks.remove(member);
            self.failures.remove(member);
            self.checks.remove(member);
            if let Some(spread) = &mut self.spread {
                spread.forget(member);
            }
            let was_there = self.take(member).is_some()
                || self.ramp.take(member).is_some()
                || self.unpark(member).is_some()
                || self.candidates.remove(member);
            removed += u64::from(was_there);
        }
        self.leave_hosts(members);
        removed
    }

    pub(super) fn is_eligible(&self, member: &Name) -> bool {
        self.counts.contains(member) || self.ramp.contains(member)
    }

    pub(super) fn eligible(&self) -> usize {
        self.counts.len() + self.ramp.len()
    }

    pub(super) fn list(&self) -> Vec<Entry> {
        self.order.iter().map(|(count, member)| Entry { member: member.clone(), count: count.0 }).collect()
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            eligible: self.order.len() as u64,
            ramping: self.ramp.len() as u64,
            parked: self.parked.len() as u64,
            candidates: self.candidates.len() as u64,
        }
    }

    pub(super) fn ramping(&self) -> Vec<Entry> {
        let mut ramping: Vec<_> = self.ramp.iter().collect();
        ramping.sort_unstable_by_key(|&(member, count)| (count, member));
        ramping.into_iter().map(|(member, count)| Entry { member: member.clone(), count: count.0 }).collect()
    }

    /// `lua/start.lua`. The median is found by walking there, which Redis need not.
    pub(super) fn start(&self, initial: Initial) -> Option<Count> {
        let found = match initial {
            Initial::Keep => None,
            Initial::Min | Initial::Ramp => self.order.first(),
            Initial::Median => self.order.iter().nth(self.order.len().saturating_sub(1) / 2),
            Initial::Max => self.order.last(),
            Initial::Zero => return Some(Count(0.0)),
            Initial::Count(count) => return Some(Count(count as f64)),
        };
        found.map(|(count, _)| *count)
    }

    /// Lets a newcomer in; whether it is one.
    pub(super) fn enter_new(&mut self, member: &Name, initial: Initial, start: Option<Count>) -> bool {
        let count = match start {
            Some(start) if initial != Initial::Ramp => start.placed(member),
            _ => Count(0.0),
        };
        self.enter(member, count, initial, start)
    }

    /// Lets a member in that has had `count`; whether it was not there. What `start` was asked for by `initial`.
    pub(super) fn enter(&mut self, member: &Name, count: Count, initial: Initial, start: Option<Count>) -> bool {
        if self.ramp.contains(member) || self.counts.contains(member) {
            return false;
        }
        match start {
            Some(start) if initial == Initial::Ramp && count < start => self.ramp.put(member.clone(), count),
            _ => self.put(member.clone(), count),
        }
        true
    }

    /// Whether it was not there.
    pub(super) fn put_new(&mut self, member: &Name, count: Count) -> bool {
        let is_new = !self.counts.contains(member);
        if is_new {
            self.put(member.clone(), count);
        }
        is_new
    }

    pub(super) fn put(&mut self, member: Name, count: Count) {
        if let Some(load) = &mut self.load {
            load.order.insert((load.share(&member), count, member.clone()));
        }
        self.counts.put(member.clone(), count);
        self.order.insert((count, member));
    }

    /// Counts an allocation of a member, if it is in the set.
    pub(super) fn raise(&mut self, member: &Name) {
        let Some(count) = self.counts.get_mut(member) else { return };
        let (before, after) = (*count, count.raised(member));
        *count = after;
        self.changes.note(member);
        if let Some(load) = &mut self.load {
            let share = load.share(member);
            load.order.remove(&(share, before, member.clone()));
            load.order.insert((share, after, member.clone()));
        }
        self.order.remove(&(before, member.clone()));
        self.order.insert((after, member.clone()));
    }

    pub(super) fn take(&mut self, member: &Name) -> Option<Count> {
        let (member, count) = self.counts.take(member)?;
        if let Some(load) = &mut self.load {
            load.order.remove(&(load.share(&member), count, member.clone()));
        }
        self.order.remove(&(count, member));
        Some(count)
    }
}
