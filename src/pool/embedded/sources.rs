//! What sources name, kept in this process: the same transitions as in Redis, one method each.
//!
//! A source's memory has a lock of its own, which only readers of lists take; the pool's lock, for which requests wait, is held
//! for a few members at a time. In this order, where both are held.

use std::collections::{BTreeMap, HashMap};
use std::sync::{MutexGuard, PoisonError};

use super::{Embedded, now_ms};
use crate::member::Name;
use crate::pool::count::Count;
use crate::pool::{Dropped, Initial, Reading};

/// Members for which the pool is locked at a time: far below a millisecond.
const CHUNK: usize = 100;

/// What each source names, and in which reading it was found last.
#[derive(Default)]
pub(super) struct Sources {
    named: HashMap<String, HashMap<Name, u64>>,
    /// Readings begun so far.
    readings: u64,
    /// Calls that changed something so far.
    changes: u64,
}

/// What each source names.
type Named = BTreeMap<String, BTreeMap<Name, u64>>;

impl Sources {
    fn of(&mut self, reading: &Reading) -> &mut HashMap<Name, u64> {
        self.named.entry(reading.source.clone()).or_default()
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// If anything has changed: how many changes that makes, the readings, and what is named.
    pub(super) fn changed_since(&self, seen: u64) -> Option<(u64, u64, Named)> {
        let copied =
            |named: &HashMap<Name, u64>| named.iter().map(|(member, &found)| (member.clone(), found)).collect();
        (self.changes != seen).then(|| {
            let named = self.named.iter().map(|(source, named)| (source.clone(), copied(named))).collect();
            (self.changes, self.readings, named)
        })
    }

    pub(super) fn put_back(&mut self, readings: u64, named: &Named) {
        self.readings = readings;
        let copied =
            |named: &BTreeMap<Name, u64>| named.iter().map(|(member, &found)| (member.clone(), found)).collect();
        self.named = named.iter().map(|(source, named)| (source.clone(), copied(named))).collect();
    }

    fn is_named_elsewhere(&self, source: &str, member: &Name) -> bool {
        self.named.iter().any(|(name, members)| name != source && members.contains_key(member))
    }
}

impl Embedded {
    /// See [`crate::pool::Pool::begin_reading`].
    pub(in crate::pool) fn begin_reading(&self, name: &str, initial: Initial) -> Reading {
        let mut sources = self.sources();
        sources.readings += 1;
        sources.changes += 1;
        let since = sources.readings;
        let known = sources.named.entry(name.to_owned()).or_default().len() as u64;
        Reading::new(name, since, known, self.state().eligible() as u64, initial)
    }

    /// See [`crate::pool::Pool::sources`].
    pub(in crate::pool) fn source_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.sources().named.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// That there is such a source.
    pub(in crate::pool) fn forget_source(&self, name: &str) {
        let mut sources = self.sources();
        sources.changes += 1;
        sources.named.remove(name);
    }

    /// See [`crate::pool::Pool::take`].
    pub(in crate::pool) fn take(&self, reading: &mut Reading, members: &[Name], as_candidates: bool) -> u64 {
        let mut sources = self.sources();
        sources.changes += 1;
        let named = sources.of(reading);
        let mut taken = 0;
        for chunk in members.chunks(CHUNK) {
            let is_new: Vec<bool> = chunk.iter().map(|member| note(named, member, reading.since)).collect();
            let mut state = self.state();
            let start = match reading.initial {
                Initial::Ramp => state.start(Initial::Ramp),
                initial => {
                    Some(Count(*reading.start.get_or_insert_with(|| state.start(initial).map_or(0.0, |count| count.0))))
                }
            };
            for (member, is_new) in chunk.iter().zip(is_new) {
                let enters = is_new || reading.refills;
                taken += u64::from(match as_candidates {
                    true => enters && state.nominate(member, now_ms()),
                    false => (enters || state.is_candidate(member)) && state.join(member, reading.initial, start),
                });
            }
        }
        taken
    }

    /// See [`crate::pool::Pool::missing`].
    pub(in crate::pool) fn missing(&self, reading: &Reading, most: usize) -> Vec<Name> {
        let mut sources = self.sources();
        let gone = sources.of(reading).iter().filter(|&(_, &found)| found < reading.since);
        gone.take(most).map(|(member, _)| member.clone()).collect()
    }

    /// See [`crate::pool::Pool::forget`].
    pub(in crate::pool) fn forget(&self, reading: &Reading, members: &[Name], remove: bool) -> Dropped {
        let mut sources = self.sources();
        sources.changes += 1;
        let (mut dropped, mut left) = (Dropped::default(), Vec::new());
        for chunk in members.chunks(CHUNK) {
            let named = sources.of(reading);
            let gone: Vec<&Name> =
                chunk.iter().filter(|member| named.get(*member).is_some_and(|&found| found < reading.since)).collect();
            for &member in &gone {
                named.remove(member);
            }
            dropped.forgotten += gone.len() as u64;
            let mut state = self.state();
            for member in gone.into_iter().filter(|member| !sources.is_named_elsewhere(&reading.source, member)) {
                let one = std::slice::from_ref(member);
                let has_left = if remove { state.remove(one) } else { state.reject(one, None) } > 0;
                left.extend(has_left.then(|| member.clone()));
            }
        }
        dropped.removed = left.len() as u64;
        if remove {
            self.lose_memory(&left, false);
        } else {
            self.state().leave_hosts(&left);
        }
        dropped
    }

    pub(super) fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes down that a reading found a member; whether the source has not named it before.
fn note(named: &mut HashMap<Name, u64>, member: &Name, since: u64) -> bool {
    match named.get_mut(member) {
        Some(found) => {
            *found = since.max(*found);
            false
        }
        None => named.insert(member.clone(), since).is_none(),
    }
}
