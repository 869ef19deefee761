//! Members in the order of a whole number, as a sorted set of Redis has them.

use std::collections::BTreeSet;

use super::table::Table;
use crate::member::Name;

/// Invariant: `order` holds exactly the (number, member) pairs of `numbers`.
#[derive(Default)]
pub(super) struct Order {
    order: BTreeSet<(u64, Name)>,
    numbers: Table<u64>,
}

impl Order {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn get(&self, member: &Name) -> Option<u64> {
        self.numbers.get(member).map(|(_, number)| *number)
    }

    pub(super) fn put(&mut self, member: &Name, number: u64) {
        self.remove(member);
        self.order.insert((number, member.clone()));
        self.numbers.put(member.clone(), number);
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, member: &Name) -> bool {
        let Some((member, number)) = self.numbers.take(member) else { return false };
        self.order.remove(&(number, member))
    }

    /// From this number on.
    pub(super) fn from(&self, number: u64) -> impl Iterator<Item = (u64, &Name)> {
        self.order.range((number, Name::new())..).map(|(number, member)| (*number, member))
    }

    /// Up to and with this number.
    pub(super) fn to(&self, number: u64) -> impl Iterator<Item = &Name> {
        self.order.iter().take_while(move |(n, _)| *n <= number).map(|(_, member)| member)
    }

    /// Calls `gone` with each.
    pub(super) fn remove_to(&mut self, number: u64, mut gone: impl FnMut(&Name)) {
        while self.order.first().is_some_and(|(n, _)| *n <= number) {
            if let Some((_, member)) = self.order.pop_first() {
                self.numbers.take(&member);
                gone(&member);
            }
        }
    }
}
