//! What hosts have to do with a choice: whom they have banned, and their own counts. `lua/choose_for.lua` and its like in memory.

use super::bans::{Found, first_unbanned};
use super::spread::{Choice, Spread};
use super::state::State;
use crate::member::Name;
use crate::pool::{Ban, BannedBy, HostBan, PerHost, PoolError};

impl State {
    /// See [`super::Embedded::with_hosts`].
    pub(super) fn spread(&mut self, limits: PerHost) {
        self.spread = Some(Spread::new(limits));
    }

    /// `lua/spread.lua`, `lua/choose_for.lua`, or `lua/ramp_for.lua`; under least-concurrent, the least loaded.
    pub(super) fn allocate_for(&mut self, host: &str, tried: &[Name], now_ms: u64) -> Result<Found<Name>, PoolError> {
        if let Some(spread) = &mut self.spread {
            let bans = self.bans.get(host);
            let found = spread.take(host, &Choice { order: &self.order, members: &self.counts, bans, tried, now_ms });
            if let Found::One(member) = &found {
                self.raise(member);
            }
            return Ok(found);
        }
        let Self { order, bans, load, ramp, .. } = self;
        let Some(host) = bans.get_mut(host) else {
            let chosen = if load.is_some() { self.take_least_loaded(tried)? } else { self.allocate(tried) };
            return Ok(chosen.map_or(Found::Nobody, Found::One));
        };
        if let Some(load) = load {
            let found =
                first_unbanned(&load.order, |(.., member)| member, &host.until, &mut host.by_load, tried, now_ms);
            return match found {
                Found::One((_, count, member)) => self.take_loaded(count, member).map(Found::One),
                other => Ok(other.without()),
            };
        }
        let first = match ramp.every {
            Some(_) if !ramp.is_empty() => ramp.first(|member| tried.contains(member) || host.has(member, now_ms)),
            _ => None,
        };
        if let Some((member, true)) = first {
            return Ok(self.take_ramping(member).map_or(Found::Nobody, Found::One));
        }
        match first_unbanned(order, |(_, member)| member, &host.until, &mut host.by_count, tried, now_ms) {
            Found::One((_, member)) => {
                self.ramp.count_turn();
                self.raise(&member);
                Ok(Found::One(member))
            }
            Found::Unfinished => Ok(Found::Unfinished),
            Found::Nobody => {
                Ok(first.and_then(|(member, _)| self.take_ramping(member)).map_or(Found::Nobody, Found::One))
            }
        }
    }

    /// `lua/ban_for.lua`
    pub(super) fn ban_for(&mut self, host: &str, bans: &[Ban], share: Option<u8>, now_ms: u64) -> Vec<HostBan> {
        bans.iter().for_each(|ban| self.changes.note_ban(host, &ban.member));
        let eligible = self.eligible();
        let is_member =
            |member: &Name| self.is_eligible(member) || self.parked.contains_key(member) || self.is_candidate(member);
        let known: Vec<bool> = bans.iter().map(|ban| is_member(&ban.member)).collect();
        self.bans.ban(host, bans, &known, share, eligible, now_ms)
    }

    /// `lua/unban_for.lua`
    pub(super) fn unban_for(&mut self, host: &str, members: &[Name]) -> Vec<Name> {
        members.iter().for_each(|member| self.changes.note_ban(host, member));
        self.bans.unban(host, members)
    }

    /// No host bans members that are removed.
    pub(super) fn leave_hosts(&mut self, members: &[Name]) {
        for host in self.bans.banning(members) {
            self.unban_for(&host, members);
        }
    }

    /// See [`super::Embedded::hosts`].
    pub(super) fn hosts(&mut self, seen: &mut Option<u64>, now_ms: u64) -> Option<Vec<String>> {
        if let Some(spread) = &mut self.spread {
            spread.prune(now_ms);
        }
        self.bans.hosts(seen, now_ms)
    }

    /// See [`super::Embedded::banned`].
    pub(super) fn banned(&self) -> Vec<BannedBy> {
        self.bans.list()
    }
}
