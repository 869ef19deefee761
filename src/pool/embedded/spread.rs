//! Members as each host has been given them: `lua/spread.lua` in memory.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use super::bans::{Found, Host};
use super::table::Table;
use crate::member::Name;
use crate::pool::PerHost;
use crate::pool::count::Count;

/// Members that are looked at in one step of following the pool.
const PAGE: usize = 64;
/// So many steps in one call.
const PATIENCE: usize = 16;
/// Between two rounds while the pool keeps its size.
const EVERY_MS: u64 = 10_000;

/// The counts of all hosts that have some.
pub(super) struct Spread {
    limits: PerHost,
    hosts: HashMap<String, Counts>,
}

/// The pool, as it is chosen from.
pub(super) struct Choice<'a> {
    pub(super) order: &'a BTreeSet<(Count, Name)>,
    pub(super) members: &'a Table<Count>,
    pub(super) bans: Option<&'a Host>,
    pub(super) tried: &'a [Name],
    pub(super) now_ms: u64,
}

/// Those that one host may be given. Invariant: `order` holds exactly the (count, member) pairs of `counts`.
#[derive(Default)]
struct Counts {
    order: BTreeSet<(Count, Name)>,
    counts: HashMap<Name, Count>,
    /// A round over the pool is under way, and this was the last that was looked at.
    is_following: bool,
    cursor: Option<(Count, Name)>,
    /// Of the pool when it began.
    size: usize,
    began_ms: u64,
    /// There was a whole one.
    is_built: bool,
    used_ms: u64,
}

impl Spread {
    pub(super) fn new(limits: PerHost) -> Self {
        Self { limits, hosts: HashMap::new() }
    }

    /// The member that `host` has been given least often; it is counted.
    pub(super) fn take(&mut self, host: &str, choice: &Choice<'_>) -> Found<Name> {
        if !self.hosts.contains_key(host) {
            if self.hosts.len() >= self.limits.max_hosts {
                let oldest = self.hosts.iter().min_by_key(|(_, counts)| counts.used_ms).map(|(host, _)| host.clone());
                oldest.map(|oldest| self.hosts.remove(&oldest));
            }
            self.hosts.insert(host.to_owned(), Counts::default());
        }
        match self.hosts.get_mut(host) {
            Some(counts) => counts.take(choice),
            None => Found::Nobody,
        }
    }

    /// It has left the pool.
    pub(super) fn forget(&mut self, member: &Name) {
        for host in self.hosts.values_mut() {
            if let Some(count) = host.counts.remove(member) {
                host.order.remove(&(count, member.clone()));
            }
        }
    }

    /// Forgets hosts that nobody has asked for.
    pub(super) fn prune(&mut self, now_ms: u64) {
        let idle_ms = self.limits.idle.as_millis() as u64;
        self.hosts.retain(|_, counts| now_ms.saturating_sub(counts.used_ms) < idle_ms);
    }
}

impl Counts {
    fn take(&mut self, choice: &Choice<'_>) -> Found<Name> {
        self.used_ms = choice.now_ms;
        let is_due = !self.is_built
            || self.size != choice.members.len()
            || choice.now_ms.saturating_sub(self.began_ms) >= EVERY_MS;
        if !self.is_following && is_due {
            (self.is_following, self.cursor) = (true, None);
            (self.size, self.began_ms) = (choice.members.len(), choice.now_ms);
        }
        if self.is_following && self.is_built {
            self.follow(choice);
        }
        let mut found = self.lowest(choice);
        for _ in 0..PATIENCE {
            let will_do = found.as_ref().is_some_and(|(count, _)| self.is_built || count.0 <= 0.0);
            if will_do || !self.is_following {
                break;
            }
            self.follow(choice);
            found = self.lowest(choice);
        }
        match found {
            Some((count, member)) => {
                self.put(member.clone(), count.raised(&member));
                Found::One(member)
            }
            None if self.is_following => Found::Unfinished,
            None => Found::Nobody,
        }
    }

    /// Looks at the next members of the pool. Who is new starts at the lowest count; in the first round that is 0.
    fn follow(&mut self, choice: &Choice<'_>) {
        let start = if self.is_built { self.order.first().map_or(Count(0.0), |(count, _)| *count) } else { Count(0.0) };
        let after = self.cursor.take().map_or(Unbounded, Excluded);
        let mut looked = 0;
        for key @ (_, member) in choice.order.range((after, Unbounded)).take(PAGE) {
            if !self.counts.contains_key(member) && !choice.is_banned(member) {
                self.put(member.clone(), start.placed(member));
            }
            self.cursor = Some(key.clone());
            looked += 1;
        }
        if looked < PAGE {
            (self.is_following, self.cursor, self.is_built) = (false, None, true);
        }
    }

    /// The first who may be chosen. Those in front of him who left the pool, or are banned, are forgotten.
    fn lowest(&mut self, choice: &Choice<'_>) -> Option<(Count, Name)> {
        let mut gone = Vec::new();
        let mut found = None;
        for key @ (_, member) in &self.order {
            if !choice.members.contains(member) || choice.is_banned(member) {
                gone.push(member.clone());
            } else if !choice.tried.contains(member) {
                found = Some(key.clone());
                break;
            }
        }
        for member in gone {
            if let Some(count) = self.counts.remove(&member) {
                self.order.remove(&(count, member));
            }
        }
        found
    }

    fn put(&mut self, member: Name, count: Count) {
        if let Some(before) = self.counts.insert(member.clone(), count) {
            self.order.remove(&(before, member.clone()));
        }
        self.order.insert((count, member));
    }
}

impl Choice<'_> {
    fn is_banned(&self, member: &Name) -> bool {
        self.bans.is_some_and(|host| host.has(member, self.now_ms))
    }
}
