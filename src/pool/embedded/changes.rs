//! Which members have changed since somebody looked: what makes saving a large pool cheap.

use std::collections::BTreeSet;

use crate::member::Name;

/// Notes nothing until somebody wants to know.
///
/// In a tree, though a hash table would be quicker on average: a table of a million that grows does it in one step, and a
/// request would wait for that.
#[derive(Default)]
pub(super) struct Changes {
    is_noted: bool,
    members: BTreeSet<Name>,
    bans: BTreeSet<(String, Name)>,
    /// Changes of all counts at once so far: beside these, `members` says everything.
    rounds: u64,
    is_all: bool,
}

/// What has changed.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) members: BTreeSet<Name>,
    /// Hosts, and members that they have banned or do so no more.
    pub(super) bans: BTreeSet<(String, Name)>,
    /// Perhaps everyone who was there before, too.
    pub(super) is_all: bool,
    /// So that it can be seen whether all have changed since.
    pub(super) rounds: u64,
}

impl Changes {
    pub(super) fn begin(&mut self) {
        self.is_noted = true;
    }

    /// Something about this member, also that it has gone.
    pub(super) fn note(&mut self, member: &Name) {
        if self.is_noted && !self.members.contains(member) {
            self.members.insert(member.clone());
        }
    }

    /// That a host has banned a member, or does so no more; not that time has ended it.
    pub(super) fn note_ban(&mut self, host: &str, member: &Name) {
        if self.is_noted {
            self.bans.insert((host.to_owned(), member.clone()));
        }
    }

    pub(super) fn note_all(&mut self) {
        self.is_all = self.is_noted;
        self.rounds += 1;
    }

    pub(super) fn take(&mut self) -> Changed {
        Changed {
            members: std::mem::take(&mut self.members),
            bans: std::mem::take(&mut self.bans),
            is_all: std::mem::take(&mut self.is_all),
            rounds: self.rounds,
        }
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }
}
