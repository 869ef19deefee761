//! Members that hosts have banned: `lua/ban_for.lua`, `unban_for.lua` and `unbanned.lua` in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::member::Name;
use crate::pool::ban::MOST_HOSTS;
use crate::pool::count::Count;
use crate::pool::{Ban, BannedBy, HostBan};

/// Looked at in front; and at once behind the floor.
const FRONT: usize = 64;
const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Bans {
    hosts: BTreeMap<String, Host>,
    /// How often hosts have come or gone.
    changes: u64,
}

/// Whom one host has banned.
#[derive(Default)]
pub(super) struct Host {
    pub(super) until: HashMap<Name, u64>,
    /// Until when the last of them is.
    longest_ms: u64,
    pub(super) by_count: Place<(Count, Name)>,
    pub(super) by_load: Place<(Count, Count, Name)>,
}

/// How far the banned reach in an order; see `lua/unbanned.lua`.
pub(super) struct Place<K> {
    floor: Option<K>,
    scout: Option<K>,
    /// When the floor left the front.
    since_ms: u64,
    /// Until when nobody is looked for.
    none_ms: u64,
}

/// What came of looking for a member.
#[derive(Debug, PartialEq)]
pub(super) enum Found<T> {
    One(T),
    Nobody,
    /// So many are banned that it is to be looked on.
    Unfinished,
}

impl<T> Found<T> {
    /// Where there is none.
    pub(super) fn without<U>(self) -> Found<U> {
        if matches!(self, Self::Unfinished) { Found::Unfinished } else { Found::Nobody }
    }
}

impl<K> Default for Place<K> {
    fn default() -> Self {
        Self { floor: None, scout: None, since_ms: 0, none_ms: 0 }
    }
}

impl Bans {
    pub(super) fn get(&self, host: &str) -> Option<&Host> {
        self.hosts.get(host)
    }

    pub(super) fn get_mut(&mut self, host: &str) -> Option<&mut Host> {
        self.hosts.get_mut(host)
    }

    /// `known`: for each ban, whether there is such a member. `eligible`: how many members are.
    pub(super) fn ban(
        &mut self,
        host: &str,
        bans: &[Ban],
        known: &[bool],
        share: Option<u8>,
        eligible: usize,
        now_ms: u64,
    ) -> Vec<HostBan> {
        let before = self.hosts.len();
        self.hosts.retain(|_, bans| bans.longest_ms > now_ms);
        let is_full = self.hosts.len() >= MOST_HOSTS && !self.hosts.contains_key(host);
        let is_new = !self.hosts.contains_key(host);
        let mut entry = self.hosts.remove(host).unwrap_or_default();
        entry.until.retain(|_, until| *until > now_ms);
        let mut words = Vec::with_capacity(bans.len());
        for (ban, known) in bans.iter().zip(known) {
            let one_more = entry.until.len() + 1;
            let is_one_too_many =
                |percent: u8| one_more >= eligible || one_more * 100 > usize::from(percent) * eligible;
            let word = match entry.until.contains_key(&ban.member) {
                true => HostBan::Known,
                false if !known => HostBan::Unknown,
                false if is_full || share.is_some_and(is_one_too_many) => HostBan::Spared,
                false => HostBan::Banned,
            };
            if matches!(word, HostBan::Banned | HostBan::Known) {
                let end = now_ms.saturating_add(ban.span.as_millis().try_into().unwrap_or(u64::MAX));
                let until = entry.until.entry(ban.member.clone()).or_default();
                *until = end.max(*until);
                entry.longest_ms = end.max(entry.longest_ms);
            }
            words.push(word);
        }
        if !entry.until.is_empty() {
            self.hosts.insert(host.to_owned(), entry);
        }
        self.changes += u64::from(is_new || self.hosts.len() != before);
        words
    }

    pub(super) fn unban(&mut self, host: &str, members: &[Name]) -> Vec<Name> {
        let Some(entry) = self.hosts.get_mut(host) else { return Vec::new() };
        let unbanned = members.iter().filter(|&member| entry.until.remove(member).is_some()).cloned().collect();
        // They may be anywhere among those that were passed.
        (entry.by_count, entry.by_load) = (Place::default(), Place::default());
        if entry.until.is_empty() {
            self.hosts.remove(host);
            self.changes += 1;
        }
        unbanned
    }

    /// The hosts that have banned one of them.
    pub(super) fn banning(&self, members: &[Name]) -> Vec<String> {
        let has_banned = |entry: &Host| members.iter().any(|member| entry.until.contains_key(member));
        self.hosts.iter().filter(|(_, entry)| has_banned(entry)).map(|(host, _)| host.clone()).collect()
    }

    pub(super) fn hosts(&mut self, seen: &mut Option<u64>, now_ms: u64) -> Option<Vec<String>> {
        let before = self.hosts.len();
        self.hosts.retain(|_, bans| bans.longest_ms > now_ms);
        self.changes += u64::from(self.hosts.len() != before);
        let is_same = seen.replace(self.changes) == Some(self.changes);
        (!is_same).then(|| self.hosts.keys().cloned().collect())
    }

    /// Until when it is banned, if it is.
    pub(super) fn end(&self, host: &str, member: &Name) -> Option<u64> {
        self.hosts.get(host)?.until.get(member).copied()
    }

    /// What was saved, where there is nothing yet.
    pub(super) fn put_back(&mut self, bans: &BTreeMap<String, BTreeMap<Name, u64>>) {
        for (host, ends) in bans {
            let until = ends.iter().map(|(member, &end)| (member.clone(), end)).collect();
            let longest_ms = ends.values().copied().max().unwrap_or_default();
            self.hosts.insert(host.clone(), Host { until, longest_ms, ..Host::default() });
        }
        self.changes += 1;
    }

    pub(super) fn list(&self) -> Vec<BannedBy> {
        let of_host = |(host, entry): (&String, &Host)| {
            let mut banned: Vec<BannedBy> = entry
                .until
                .iter()
                .map(|(member, &until_ms)| BannedBy { host: host.clone(), member: member.clone(), until_ms })
                .collect();
            banned.sort_unstable_by(|a, b| a.member.cmp(&b.member));
            banned
        };
        self.hosts.iter().flat_map(of_host).collect()
    }
}

impl Host {
    pub(super) fn has(&self, member: &Name, now_ms: u64) -> bool {
        self.until.get(member).is_some_and(|&until| until > now_ms)
    }
}

/// The first of an order whom a host has not banned, and who was not tried.
pub(super) fn first_unbanned<K: Ord + Clone>(
    order: &BTreeSet<K>,
    member: impl Fn(&K) -> &Name,
    until: &HashMap<Name, u64>,
    place: &mut Place<K>,
    tried: &[Name],
    now_ms: u64,
) -> Found<K> {
    let is_banned = |key: &K| until.get(member(key)).is_some_and(|&until| until > now_ms);
    let is_free = |key: &K| !is_banned(key) && !tried.contains(member(key));
    let mut edge = None;
    let mut looked = 0;
    for key in order.iter().take(FRONT + tried.len()) {
        if is_free(key) {
            return Found::One(key.clone());
        }
        edge = Some(key);
        looked += 1;
    }
    let Some(edge) = edge.filter(|_| looked == FRONT + tried.len()) else { return Found::Nobody };
    if place.none_ms > now_ms {
        return Found::Nobody;
    }
    if place.floor.is_none() {
        place.since_ms = now_ms;
    }
    let start = place.floor.as_ref().filter(|floor| *floor > edge).unwrap_or(edge).clone();
    if start > *edge {
        let from = place.scout.as_ref().filter(|scout| (edge..&start).contains(scout)).unwrap_or(edge).clone();
        let mut last = None;
        for key in order.range((Excluded(&from), Included(&start))).take(FRONT) {
            if is_free(key) {
                place.scout = Some(key.clone());
                return Found::One(key.clone());
            }
            last = Some(key.clone());
        }
        place.scout = last;
    }
    let (mut is_solid, mut looked) = (true, 0);
    for key in order.range((Excluded(&start), Unbounded)).take(MOST) {
        if is_free(key) {
            return Found::One(key.clone());
        }
        is_solid = is_solid && is_banned(key);
        if is_solid {
            place.floor = Some(key.clone());
        }
        looked += 1;
    }
    if looked == MOST {
        return Found::Unfinished;
    }
    place.floor = None;
    if now_ms.saturating_sub(place.since_ms) > 1000 {
        // Who was passed a while ago may be free by now.
        return Found::Unfinished;
    }
    if tried.is_empty() {
        place.none_ms = now_ms + 1000;
    }
    Found::Nobody
}
