//! Members that are set aside, and come back: `lua/park.lua`, `ban.lua`, `restore.lua` and their like in memory.

use super::state::State;
use crate::member::Name;
use crate::pool::count::Count;
use crate::pool::{Ban, Change, Initial, Kind, Parked, Parking};

impl State {
    /// `lua/park.lua`
    pub(super) fn park(&mut self, member: &Name, parking: &Parking, now_ms: u64) -> Option<Parked> {
        self.changes.note(member);
        let Parking { kind, reason, stay } = parking;
        let (count, streak) = match self.take(member).or_else(|| self.ramp.take(member)) {
            Some(Count(count)) => (count, self.streaks.remove(member).unwrap_or_default()),
            None if !kind.is_by_hand() => return None,
            None => match self.unpark(member) {
                Some(record) => (record.count, record.in_a_row),
                None => self.candidates.remove(member).then_some((0.0, 0))?,
            },
        };
        let in_a_row = streak.saturating_add(u32::from(kind.counts_in_a_row()));
        let parked = Parked {
            member: member.clone(),
            count,
            kind: *kind,
            reason: reason.clone(),
            since_ms: now_ms,
            until_ms: stay.end(now_ms, in_a_row),
            in_a_row,
        };
        if let Some(until) = parked.until_ms {
            self.returns.insert((until, member.clone()));
        }
        self.set_aside(parked.clone());
        Some(parked)
    }

    /// `lua/ban.lua`
    pub(super) fn ban(&mut self, bans: &[Ban], max_parked: u8, now_ms: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for Ban { member, reason, span } in bans {
            self.changes.note(member);
            let (eligible, aside) = (self.eligible(), self.returns.len() + self.trials.len());
            let is_one_too_many = eligible <= 1 || (aside + 1) * 100 > usize::from(max_parked) * (eligible + aside);
            let count = if self.is_eligible(member) {
                if is_one_too_many {
                    changes.push(Change::Spared(member.clone()));
                    continue;
                }
                self.take(member).or_else(|| self.ramp.take(member)).map(|count| count.0)
            } else if self.trials.get(member).is_some() {
                self.unpark(member).map(|record| record.count)
            } else {
                None
            };
            let Some(count) = count else { continue };
            let until_ms = now_ms.saturating_add(span.as_millis().try_into().unwrap_or(u64::MAX));
            self.streaks.remove(member);
            self.returns.insert((until_ms, member.clone()));
            let parked = Parked {
                member: member.clone(),
                count,
                kind: Kind::Banned,
                reason: reason.clone(),
                since_ms: now_ms,
                until_ms: Some(until_ms),
                in_a_row: 0,
            };
            self.set_aside(parked.clone());
            changes.push(Change::Parked(parked));
        }
        changes
    }

    /// `lua/set_aside.lua`, but for when it returns and the places it leaves.
    pub(super) fn set_aside(&mut self, parked: Parked) {
        self.failures.remove(&parked.member);
        self.parked.insert(parked.member.clone(), parked);
    }

    /// `lua/restore.lua`
    pub(super) fn restore(&mut self, members: &[Name], initial: Initial) -> Vec<Name> {
        let start = self.start(initial);
        members.iter().filter(|member| self.bring_back(member, initial, start).is_some()).cloned().collect()
    }

    /// `lua/restore_due.lua`
    pub(super) fn restore_due(&mut self, most: usize, initial: Initial, now_ms: u64) -> Vec<Name> {
        let left = if self.ramp.every.is_none() { most } else { 0 };
        let left: Vec<Name> = self.ramp.iter().take(left).map(|(member, _)| member.clone()).collect();
        let due = self.returns.iter().take_while(|&&(until, _)| until <= now_ms).take(most);
        let due: Vec<Name> = due.map(|(_, member)| member.clone()).collect();
        if due.is_empty() && left.is_empty() {
            return due;
        }
        let start = self.start(initial);
        for member in left {
            self.changes.note(&member);
            if let Some(count) = self.ramp.take(&member) {
                self.put_new(&member, start.map_or(count, |start| start.placed(&member).max(count)));
            }
        }
        for member in &due {
            if let Some(in_a_row @ 1..) = self.bring_back(member, initial, start) {
                self.streaks.insert(member.clone(), in_a_row);
            }
        }
        due
    }

    /// `lua/forgive.lua`
    pub(super) fn forgive(&mut self, members: &[Name]) -> u64 {
        let mut forgiven = 0;
        for member in members {
            self.changes.note(member);
            forgiven += u64::from(self.streaks.remove(member).is_some());
        }
        forgiven
    }

    /// `lua/bring_back.lua`: how often in a row it was set aside, if it was. What `start` was asked for by `initial`.
    pub(super) fn bring_back(&mut self, member: &Name, initial: Initial, start: Option<Count>) -> Option<u32> {
        let record = self.unpark(member)?;
        self.changes.note(member);
        let own = Count(record.count);
        let count = match start {
            Some(_) if initial == Initial::Ramp => own,
            Some(start) if initial.is_number() || start.placed(member) > own => start.placed(member),
            _ => own,
        };
        self.enter(member, count, initial, start);
        Some(record.in_a_row)
    }

    pub(super) fn unpark(&mut self, member: &Name) -> Option<Parked> {
        let parked = self.parked.remove(member)?;
        if let Some(until) = parked.until_ms {
            self.returns.remove(&(until, parked.member.clone()));
        }
        self.trials.remove(member);
        Some(parked)
    }

    pub(super) fn parked(&self) -> Vec<Parked> {
        self.parked.values().cloned().collect()
    }
}
