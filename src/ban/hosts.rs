//! The hosts that have banned members, as far as this gateway knows.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

/// Read for every request; replaced now and then by what the pool has.
#[derive(Default)]
pub(super) struct Hosts {
    /// False nearly always, which spares the lock.
    any: AtomicBool,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    all: HashSet<String>,
    /// Those that came since the look began that is under way: the pool may have been read before they were in it.
    since: HashSet<String>,
}

impl Hosts {
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(super) fn contains(&self, host: &str) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).all.contains(host)
    }

    /// One of which this gateway has told the pool.
    pub(super) fn insert(&self, host: &str) {
        self.change(|known| {
            known.all.insert(host.to_owned());
            known.since.insert(host.to_owned());
        });
    }

    /// To be called before the pool is asked.
    pub(super) fn begin_look(&self) {
        self.change(|known| known.since.clear());
    }

    /// What the pool has answered.
    pub(super) fn end_look(&self, hosts: Vec<String>) {
        self.change(|known| known.all = hosts.into_iter().chain(known.since.drain()).collect());
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        self.any.store(!known.all.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_the_pool_was_told_of_during_a_look_stays_until_the_next() {
        let hosts = Hosts::default();
        hosts.begin_look();
        hosts.insert("new.test");
        hosts.end_look(vec!["old.test".into()]);
        assert!(hosts.any() && hosts.contains("new.test") && hosts.contains("old.test"));
        hosts.begin_look();
        assert!(hosts.contains("new.test"));
        hosts.end_look(Vec::new());
        assert!(!hosts.any() && !hosts.contains("new.test"));
    }
}
