//! A hash table of members that grows a little at a time.
//!
//! One table of a million members takes tenths of a second to grow, while requests wait for the lock around it. So there are
//! many small ones, each with its part of the members; none of them takes long, and they do not grow all at once.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use crate::member::Name;

/// A million members make tables of four thousand, which grow in a tenth of a millisecond.
const PARTS: usize = 256;

/// What is known of each of any number of members.
pub(super) struct Table<V> {
    parts: Box<[HashMap<Name, V>]>,
    /// Which part a member is in; the parts themselves have other keys.
    hasher: RandomState,
    len: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| HashMap::new()).collect();
        Self { parts, hasher: RandomState::new(), len: 0 }
    }
}

impl<V> Table<V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, member: &Name) -> bool {
        self.parts[self.part(member)].contains_key(member)
    }

    /// The member as it is held here, and what is known of it.
    pub(super) fn get(&self, member: &Name) -> Option<(&Name, &V)> {
        self.parts[self.part(member)].get_key_value(member)
    }

    /// Replaces what was known of it.
    pub(super) fn put(&mut self, member: Name, value: V) {
        let part = self.part(&member);
        self.len += usize::from(self.parts[part].insert(member, value).is_none());
    }

    pub(super) fn get_mut(&mut self, member: &Name) -> Option<&mut V> {
        let part = self.part(member);
        self.parts[part].get_mut(member)
    }

    pub(super) fn take(&mut self, member: &Name) -> Option<(Name, V)> {
        let part = self.part(member);
        let taken = self.parts[part].remove_entry(member)?;
        self.len -= 1;
        Some(taken)
    }

    fn part(&self, member: &Name) -> usize {
        self.hasher.hash_one(member) as usize % PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_one_table_would_hold() {
        let name = |n: u32| Name::from(format!("10.0.0.{n}:80"));
        let mut table = Table::default();
        (0..2_000).for_each(|n| table.put(name(n % 1_000), n));
        assert_eq!(table.len(), 1_000);
        assert!((0..1_000).all(|n| table.get(&name(n)) == Some((&name(n), &(n + 1_000)))));
        *table.get_mut(&name(8)).unwrap() = 8;
        assert_eq!(table.get(&name(8)), Some((&name(8), &8)));
        assert_eq!(table.get_mut(&name(1_001)), None);
        assert_eq!(table.take(&name(7)), Some((name(7), 1_007)));
        assert_eq!((table.take(&name(7)), table.contains(&name(7)), table.len()), (None, false, 999));
        // No part has much more than its share.
        assert!(table.parts.iter().all(|part| part.len() < 40));
    }
}
