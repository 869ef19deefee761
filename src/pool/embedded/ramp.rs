//! Members that are behind and catch up slowly, each by at most one of so many allocations: `lua/ramp.lua` in memory.

use std::collections::{BTreeSet, HashMap};

use crate::member::Name;
use crate::pool::count::Count;

/// Who catches up, and whose turn is when. Invariant: `turns` holds exactly the (turn, member) pairs of `members`.
#[derive(Default)]
pub(super) struct Ramp {
    /// Of how many turns a member gets one; `None` where nobody is chosen here.
    pub(super) every: Option<u64>,
    members: HashMap<Name, (Count, u64)>,
    turns: BTreeSet<(u64, Name)>,
    /// Turns so far.
    turn: u64,
}

impl Ramp {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn contains(&self, member: &Name) -> bool {
        self.members.contains_key(member)
    }

    /// Its count, and its next turn.
    pub(super) fn get(&self, member: &Name) -> Option<(Count, u64)> {
        self.members.get(member).copied()
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn
    }

    pub(super) fn set_turn(&mut self, turn: u64) {
        self.turn = turn;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, Count)> {
        self.members.iter().map(|(member, (count, _))| (member, *count))
    }

    pub(super) fn change_counts(&mut self, change: impl Fn(&Name, f64) -> f64) {
        for (member, (count, _)) in &mut self.members {
            *count = Count(change(member, count.0));
        }
    }

    /// Its first turn is the next.
    pub(super) fn put(&mut self, member: Name, count: Count) {
        self.put_at(member, count, 0);
    }

    pub(super) fn take(&mut self, member: &Name) -> Option<Count> {
        let (member, (count, due)) = self.members.remove_entry(member)?;
        self.turns.remove(&(due, member));
        Some(count)
    }

    /// Whose turn is first but for those that are out of the question, and whether it has come.
    pub(super) fn first(&self, is_out: impl Fn(&Name) -> bool) -> Option<(Name, bool)> {
        let (due, member) = self.turns.iter().find(|(_, member)| !is_out(member))?;
        Some((member.clone(), *due <= self.turn + 1))
    }

    /// Somebody has been chosen, here or in the set.
    pub(super) fn count_turn(&mut self) {
        self.turn += 1;
    }

    /// The next turn of a member that has just had one, beside a set of so many: no later than with an equal share.
    pub(super) fn put_back(&mut self, member: Name, count: Count, set: usize) {
        let share = set + self.members.len() + 1;
        let every = self.every.unwrap_or(2).min(share as u64);
        self.put_at(member, count, self.turn + every);
    }

    pub(super) fn put_at(&mut self, member: Name, count: Count, due: u64) {
        self.turns.insert((due, member.clone()));
        self.members.insert(member, (count, due));
    }
}
