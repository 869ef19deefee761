//! What a pool is, in memory: the same transitions as the scripts in `lua/`, one method each.
//!
//! The set is ordered by (count, member), as Redis orders a sorted set, and a map finds a member's count.
//! Times are milliseconds since 1970-01-01 UTC and come from outside.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::time::Duration;

use super::bans::{Bans, Found, first_unbanned};
use super::candidates::Verdicts;
use super::changes::Changes;
use super::order::Order;
use super::ramp::Ramp;
use super::spread::{Choice, Spread};
use super::table::Table;
use crate::member::Name;
use crate::pool::check::Cursor;
use crate::pool::count::{self, Count};
use crate::pool::{
    Ban, BannedBy, Candidate, Care, Change, Check, Checked, Decay, Entry, Finding, HostBan, Initial, Kind, Look,
    Outcome, Parked, Parking, PerHost, PoolError, Rebased, Report, Rounds, Sizes, Walk,
};

/// Invariants: `order` holds exactly the (count, member) pairs of `counts`, and so does the order of `load`; `returns` exactly the (until, member) pairs of
/// `parked` that have an until and are not in `trials`; no member is in more than one of `counts`, `parked` and `candidates`.
#[derive(Default)]
pub(super) struct State {
    order: BTreeSet<(Count, Name)>,
    pub(super) counts: Table<Count>,
    pub(super) parked: BTreeMap<Name, Parked>,
    pub(super) returns: BTreeSet<(u64, Name)>,
    /// When to look at them.
    pub(super) candidates: Order,
    pub(super) verdicts: Verdicts,
    /// How often in a row members were set aside that are back.
    pub(super) streaks: HashMap<Name, u32>,
    /// Eligible members that are not in the set, because they are behind and catch up slowly.
    pub(super) ramp: Ramp,
    /// Eligible members that failed their last requests: when last in ms, times 1000, and how many in a row.
    pub(super) failures: Order,
    /// When members that were set aside for failing may be tried.
    pub(super) trials: Order,
    /// When counts have shrunk last.
    pub(super) decayed_ms: Option<u64>,
    /// When members are checked.
    pub(super) checks: Order,
    /// Whom hosts have banned.
    pub(super) bans: Bans,
    /// Where hosts have counts of their own.
    spread: Option<Spread>,
    /// Under least-concurrent.
    load: Option<Load>,
    /// Whatever changes a member notes it here, except what it has in flight.
    pub(super) changes: Changes,
}

/// What members have in flight, and the order in which that has them chosen.
#[derive(Default)]
struct Load {
    /// (in flight / weight, count, member).
    order: BTreeSet<(Count, Count, Name)>,
    /// Only of members that have some, eligible or not: who leaves and returns still has it.
    in_flight: HashMap<Name, u64>,
    /// As many as a member may have, times its weight; 0: any number.
    most: u64,
}

/// Members looked at in one step of a walk.
const PAGE: usize = 250;
/// After so long, failures are forgotten.
const HOUR_MS: u64 = 60 * 60 * 1000;

impl State {
    pub(super) fn least_concurrent(most: u64) -> Self {
        Self { load: Some(Load { most, ..Load::default() }), ..Self::default() }
    }

    pub(super) fn is_least_concurrent(&self) -> bool {
        self.load.is_some()
    }

    /// See [`super::Embedded::with_ramp`].
    pub(super) fn ramp_every(&mut self, every: u64) {
        self.ramp.every = Some(every);
    }

    /// `lua/allocate.lua`, or `lua/ramp.lua`. Looks at no more members than were tried, and one.
    pub(super) fn allocate(&mut self, tried: &[Name]) -> Option<Name> {
        if self.ramp.every.is_none() || self.ramp.is_empty() {
            return self.take_least_used(tried);
        }
        let first = self.ramp.first(|member| tried.contains(member));
        if let Some((member, true)) = first {
            return self.take_ramping(member);
        }
        match self.take_least_used(tried) {
            Some(member) => {
                self.ramp.count_turn();
                Some(member)
            }
            // Nobody else is left, and then nobody waits for it.
            None => self.take_ramping(first?.0),
        }
    }

    fn take_least_used(&mut self, tried: &[Name]) -> Option<Name> {
        let (count, member) = self.order.iter().find(|(_, member)| !tried.contains(member)).cloned()?;
        self.changes.note(&member);
        self.take(&member);
        self.put(member.clone(), count.raised(&member));
        Some(member)
    }

    fn take_ramping(&mut self, member: Name) -> Option<Name> {
        let count = self.ramp.take(&member)?.raised(&member);
        self.changes.note(&member);
        self.ramp.count_turn();
        match self.order.first() {
            Some((lowest, _)) if count >= *lowest => self.put(member.clone(), count),
            _ => self.ramp.put_back(member.clone(), count, self.order.len()),
        }
        Some(member)
    }

    /// See [`super::Embedded::with_hosts`].
    pub(super) fn spread(&mut self, limits: PerHost) {
        self.spread = Some(Spread::new(limits));
    }

    /// `lua/spread.lua`, `lua/choose_for.lua`, or `lua/ramp_for.lua`; under least-concurrent, the least loaded.
    pub(super) fn allocate_for(&mut self, host: &str, tried: &[Name], now_ms: u64) -> Result<Found<Name>, PoolError> {
        if let Some(spread) = &mut self.spread {
            let bans = self.bans.get(host);
            let found = spread.take(host, &Choice { order: &self.order, members: &self.counts, bans, tried, now_ms });
            if let Found::One(member) = &found
                && let Some(count) = self.take(member)
            {
                self.changes.note(member);
                self.put(member.clone(), count.raised(member));
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
            Found::One((count, member)) => {
                self.ramp.count_turn();
                self.changes.note(&member);
                self.take(&member);
                self.put(member.clone(), count.raised(&member));
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

    /// `lua/add.lua`
    pub(super) fn add(&mut self, members: &[Name], initial: Initial) -> u64 {
        let start = self.start(initial);
        members.iter().filter(|&member| self.join(member, initial, start)).count() as u64
    }

    /// `lua/join.lua`. What `start` was asked for by `initial`.
    pub(super) fn join(&mut self, member: &Name, initial: Initial, start: Option<Count>) -> bool {
        if self.parked.contains_key(member) {
            return false;
        }
        self.changes.note(member);
        self.candidates.remove(member);
        self.enter_new(member, initial, start)
    }

    /// `lua/remove.lua`
    pub(super) fn remove(&mut self, members: &[Name]) -> u64 {
        let mut removed = 0;
        for member in members {
            self.changes.note(member);
            self.streaks.remove(member);
            self.failures.remove(member);
            self.checks.remove(member);
            let was_there = self.take(member).is_some()
                || self.ramp.take(member).is_some()
                || self.unpark(member).is_some()
                || self.candidates.remove(member);
            removed += u64::from(was_there);
        }
        removed
    }

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
    fn set_aside(&mut self, parked: Parked) {
        self.failures.remove(&parked.member);
        self.parked.insert(parked.member.clone(), parked);
    }

    /// `lua/report.lua`
    pub(super) fn report(&mut self, reports: &[Report], care: &Care, now_ms: u64) -> Vec<Change> {
        let changes = &mut self.changes;
        self.failures.remove_to(now_ms.saturating_sub(HOUR_MS) * 1000, |member| changes.note(member));
        let mut changes = Vec::new();
        let mut start = None;
        for Report { member, outcome, luck } in reports {
            self.changes.note(member);
            match outcome {
                Outcome::Served => {
                    self.failures.remove(member);
                    self.streaks.remove(member);
                }
                Outcome::Failed(times, reason) if self.is_eligible(member) && care.park_after > 0 => {
                    let before = self.failures.get(member).unwrap_or(0) % 1000;
                    let times = (before + u64::from(*times)).min(999);
                    if times < u64::from(care.park_after) {
                        self.failures.put(member, now_ms * 1000 + times);
                    } else if self.may_set_aside(care) {
                        let count = self.take(member).or_else(|| self.ramp.take(member)).map_or(0.0, |count| count.0);
                        let in_a_row = self.streaks.remove(member).unwrap_or_default().saturating_add(1);
                        let reason = format!("{times} failures in a row, the last: {reason}");
                        changes.push(self.rest(member, count, (Kind::Cooldown, reason), in_a_row, care, *luck, now_ms));
                    } else {
                        self.failures.put(member, now_ms * 1000 + times);
                        changes.push(Change::Spared(member.clone()));
                    }
                }
                Outcome::Failed(..) => {}
                Outcome::Passed | Outcome::Missed(_) | Outcome::Undecided if self.trials.get(member).is_none() => {}
                Outcome::Passed => {
                    let start = *start.get_or_insert_with(|| self.start(care.restore));
                    self.bring_back(member, care.restore, start);
                    changes.push(Change::Restored(member.clone()));
                }
                Outcome::Missed(reason) => {
                    let (count, streak) =
                        self.unpark(member).map_or((0.0, 0), |record| (record.count, record.in_a_row));
                    let reason = format!("failed a trial: {reason}");
                    let in_a_row = streak.saturating_add(1);
                    changes.push(self.rest(member, count, (Kind::Cooldown, reason), in_a_row, care, *luck, now_ms));
                }
                Outcome::Undecided => self.trials.put(member, now_ms + 1000),
            }
        }
        changes
    }

    fn is_eligible(&self, member: &Name) -> bool {
        self.counts.contains(member) || self.ramp.contains(member)
    }

    /// `lua/health.lua`
    fn may_set_aside(&self, care: &Care) -> bool {
        let (eligible, failing) = (self.counts.len() + self.ramp.len(), self.trials.len());
        eligible > 1 && (failing + 1) * 100 <= usize::from(care.max_parked) * (eligible + failing)
    }

    #[expect(clippy::too_many_arguments, reason = "what a record holds, and by what it is found")]
    fn rest(
        &mut self,
        member: &Name,
        count: f64,
        (kind, reason): (Kind, String),
        in_a_row: u32,
        care: &Care,
        luck: f64,
        now_ms: u64,
    ) -> Change {
        let until = now_ms + care.cooldown_ms(in_a_row, luck);
        let member = member.clone();
        self.trials.put(&member, until);
        let parked = Parked { member, count, kind, reason, since_ms: now_ms, until_ms: Some(until), in_a_row };
        self.set_aside(parked.clone());
        Change::Parked(parked)
    }

    /// `lua/try.lua`
    pub(super) fn try_next(&mut self, host: Option<&str>, lease: Duration, now_ms: u64) -> Option<(Name, bool)> {
        let host = host.and_then(|host| self.bans.get(host));
        let is_free = |member: &&Name| !host.is_some_and(|host| host.has(member, now_ms));
        let member = self.trials.to(now_ms).take(8).find(is_free)?.clone();
        let more = self.trials.to(now_ms).nth(1).is_some();
        self.changes.note(&member);
        let until = now_ms.saturating_add(lease.as_millis().try_into().unwrap_or(u64::MAX));
        if let Some(record) = self.parked.get_mut(&member) {
            record.count = Count(record.count).raised(&member).0;
            record.until_ms = Some(until);
        }
        self.trials.put(&member, until);
        Some((member, more))
    }

    /// `lua/enroll.lua`
    pub(super) fn enroll(&mut self, walk: &mut Walk, every: Duration, now_ms: u64) -> bool {
        let after = match walk.cursor.take() {
            Some(Cursor::Embedded(count, member)) => Bound::Excluded((Count(count), member)),
            _ => Bound::Unbounded,
        };
        let page = self.order.range((after, Bound::Unbounded)).take(PAGE);
        let mut names: Vec<Name> = page.map(|(_, member)| member.clone()).collect();
        let is_end = names.len() < PAGE;
        if is_end {
            // They are few, or were found before they came there.
            names.extend(self.ramp.iter().map(|(member, _)| member.clone()));
            names.extend(self.trials.from(0).map(|(_, member)| member.clone()));
        } else if let Some((member, count)) = names.last().and_then(|member| self.counts.get(member)) {
            walk.cursor = Some(Cursor::Embedded(count.0, member.clone()));
        }
        let every_ms = every.as_millis() as u64;
        for member in names {
            if self.checks.get(&member).is_none_or(|due| due > now_ms + 2 * every_ms) {
                // Spread over the period.
                let part = RandomState::new().hash_one(&member) % every_ms.max(1);
                self.changes.note(&member);
                self.checks.put(&member, now_ms + part);
            }
        }
        is_end
    }

    /// `lua/claim.lua`
    pub(super) fn claim(&mut self, most: usize, lease: Duration, now_ms: u64) -> Vec<Check> {
        let due: Vec<Name> = self.checks.to(now_ms).take(most).cloned().collect();
        let mut claimed = Vec::with_capacity(due.len());
        for member in due {
            self.changes.note(&member);
            let is_eligible = self.is_eligible(&member);
            let due_ms = self.checks.get(&member).unwrap_or(now_ms);
            if is_eligible || self.trials.get(&member).is_some() {
                self.checks.put(&member, now_ms + lease.as_millis() as u64);
                claimed.push(Check { member, due_ms, is_eligible });
            } else {
                self.checks.remove(&member);
            }
        }
        claimed
    }

    /// `lua/checked.lua`
    pub(super) fn checked(&mut self, checks: &[Checked], rounds: &Rounds, now_ms: u64) -> Vec<Change> {
        let (every_ms, care) = ((rounds.every.as_millis() as u64).max(1), &rounds.care);
        let mut changes = Vec::new();
        let mut start = None;
        for Checked { member, due_ms, finding, luck } in checks {
            self.changes.note(member);
            if self.checks.get(member).is_some() {
                // In step with its first turn, so that periods do not drift.
                let next = now_ms + every_ms - now_ms.saturating_sub(*due_ms) % every_ms;
                self.checks.put(member, next.max(due_ms + every_ms));
            }
            let waits = self.trials.get(member).and_then(|due| {
                let kind = self.parked.get(member)?.kind;
                // A cooldown is served to its end: its traffic failed, whatever checks say.
                Some(kind == Kind::Unhealthy || due <= now_ms)
            });
            match (finding, waits) {
                (Finding::Unhealthy(reason), None) if self.is_eligible(member) => {
                    if !self.may_set_aside(care) {
                        changes.push(Change::Spared(member.clone()));
                        continue;
                    }
                    let count = self.take(member).or_else(|| self.ramp.take(member)).map_or(0.0, |count| count.0);
                    let in_a_row = self.streaks.remove(member).unwrap_or_default().saturating_add(1);
                    let why = (Kind::Unhealthy, reason.clone());
                    changes.push(self.rest(member, count, why, in_a_row, care, *luck, now_ms));
                }
                (Finding::Unhealthy(reason), Some(true)) => {
                    let (count, streak) =
                        self.unpark(member).map_or((0.0, 0), |record| (record.count, record.in_a_row));
                    let why = (Kind::Unhealthy, reason.clone());
                    self.rest(member, count, why, streak.saturating_add(1), care, *luck, now_ms);
                }
                (Finding::Healthy, Some(true)) => {
                    let start = *start.get_or_insert_with(|| self.start(care.restore));
                    self.bring_back(member, care.restore, start);
                    changes.push(Change::Restored(member.clone()));
                }
                _ => {}
            }
        }
        changes
    }

    /// `lua/look.lua`
    pub(super) fn look(&self, from: u64, most: usize, now_ms: u64) -> Look {
        let (mut failing, mut next) = (Vec::new(), from);
        for (number, member) in self.failures.from(from).take(most) {
            failing.push(member.clone());
            next = number + 1;
        }
        let total = (self.counts.len() + self.ramp.len() + self.trials.len()) as u64;
        Look { is_due: self.trials.to(now_ms).next().is_some(), total, failing, next }
    }

    /// How often in a row members have failed.
    pub(super) fn failures(&self) -> HashMap<Name, u64> {
        self.failures.from(0).map(|(number, member)| (member.clone(), number % 1000)).collect()
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

    /// `lua/propose.lua`
    pub(super) fn propose(&mut self, members: &[Name], now_ms: u64) -> u64 {
        members.iter().filter(|&member| self.nominate(member, now_ms)).count() as u64
    }

    /// `lua/nominate.lua`
    pub(super) fn nominate(&mut self, member: &Name, now_ms: u64) -> bool {
        let is_eligible = self.counts.contains(member) || self.ramp.contains(member);
        if is_eligible || self.parked.contains_key(member) || self.is_candidate(member) {
            return false;
        }
        self.changes.note(member);
        self.candidates.put(member, now_ms);
        true
    }

    pub(super) fn is_candidate(&self, member: &Name) -> bool {
        self.candidates.get(member).is_some()
    }

    pub(super) fn eligible(&self) -> usize {
        self.counts.len() + self.ramp.len()
    }

    /// `lua/accept.lua`
    pub(super) fn accept(&mut self, members: &[Name], initial: Initial) -> u64 {
        let start = self.start(initial);
        let mut accepted = 0;
        for member in members {
            if self.candidates.remove(member) {
                self.changes.note(member);
                accepted += u64::from(self.enter_new(member, initial, start));
            }
        }
        accepted
    }

    /// `lua/reject.lua`
    pub(super) fn reject(&mut self, members: &[Name], again_ms: Option<u64>) -> u64 {
        let mut rejected = 0;
        for member in members {
            self.changes.note(member);
            let was_there = match again_ms {
                None => self.candidates.remove(member),
                Some(again) if self.is_candidate(member) => {
                    self.candidates.put(member, again);
                    true
                }
                Some(_) => false,
            };
            rejected += u64::from(was_there);
        }
        rejected
    }

    /// Fewest requests in flight first, of those the least used, of those in member order.
    pub(super) fn take_least_loaded(&mut self, tried: &[Name]) -> Result<Option<Name>, PoolError> {
        let Some(load) = &self.load else { return Ok(None) };
        let first = load.order.iter().find(|(.., member)| !tried.contains(member)).cloned();
        let Some((_, count, member)) = first else { return Ok(None) };
        self.take_loaded(count, member).map(Some)
    }

    fn take_loaded(&mut self, count: Count, member: Name) -> Result<Name, PoolError> {
        let Some(load) = &self.load else { return Ok(member) };
        if load.most > 0 && load.of(&member) >= load.most.saturating_mul(count::weight(&member).into()) {
            return Err(PoolError::AtLimit);
        }
        self.changes.note(&member);
        self.take(&member);
        self.hold(&member);
        self.put(member.clone(), count.raised(&member));
        Ok(member)
    }

    /// A request goes through `member`, whoever chose it.
    pub(super) fn hold(&mut self, member: &Name) {
        self.add_in_flight(member, |in_flight| in_flight + 1);
    }

    /// A request through `member` is over.
    pub(super) fn release(&mut self, member: &Name) {
        self.add_in_flight(member, |in_flight| in_flight.saturating_sub(1));
    }

    pub(super) fn in_flight(&self) -> HashMap<Name, u64> {
        self.load.as_ref().map(|load| load.in_flight.clone()).unwrap_or_default()
    }

    /// `lua/decay.lua`
    pub(super) fn decay(&mut self, Decay { keep, period }: Decay, now_ms: u64) -> u64 {
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX).max(1);
        let Some(last) = self.decayed_ms.filter(|&last| last <= now_ms) else {
            self.decayed_ms = Some(now_ms);
            self.changes.note_all();
            return 0;
        };
        let periods = (now_ms - last) / period;
        if periods == 0 {
            return 0;
        }
        self.decayed_ms = Some(last + periods * period);
        let factor = keep.powf(periods as f64);
        self.change_counts(|member, count, _| count::shrunk(count, count::weight(member), factor));
        periods
    }

    /// `lua/rebase.lua`
    pub(super) fn rebase(&mut self) -> Rebased {
        let finite = self.order.range((Count(f64::MIN), Name::new())..).next().filter(|(count, _)| count.0.is_finite());
        let base = finite.map_or(0.0, |(count, _)| count.0.floor());
        if base != 0.0 {
            self.change_counts(|member, count, is_in_set| {
                let rebased = count::rebased(count, count::weight(member), base);
                if is_in_set || count.is_infinite() { rebased } else { rebased.max(0.0) }
            });
        }
        Rebased { by: base, members: self.order.len() as u64 }
    }

    /// Changes all counts; whether a member is in the set is the last argument.
    fn change_counts(&mut self, change: impl Fn(&Name, f64, bool) -> f64) {
        self.changes.note_all();
        for (count, member) in std::mem::take(&mut self.order) {
            self.take(&member);
            let changed = Count(change(&member, count.0, true));
            self.put(member, changed);
        }
        self.ramp.change_counts(|member, count| change(member, count, false));
        for (member, parked) in &mut self.parked {
            parked.count = change(member, parked.count, false);
        }
    }

    pub(super) fn list(&self) -> Vec<Entry> {
        self.order.iter().map(|(count, member)| Entry { member: member.clone(), count: count.0 }).collect()
    }

    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            eligible: self.order.len() as u64,
            ramping: self.ramp.len() as u64,
            parked: self.parked.len() as u64,
            candidates: self.candidates.len() as u64,
        }
    }

    pub(super) fn ramping(&self) -> Vec<Entry> {
        let mut ramping: Vec<_> = self.ramp.iter().collect();
        ramping.sort_unstable_by_key(|&(member, count)| (count, member));
        ramping.into_iter().map(|(member, count)| Entry { member: member.clone(), count: count.0 }).collect()
    }

    pub(super) fn parked(&self) -> Vec<Parked> {
        self.parked.values().cloned().collect()
    }

    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let all = self.candidates.from(0).map(|(due_ms, member)| Candidate { member: member.clone(), due_ms });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        all
    }

    /// `lua/bring_back.lua`: how often in a row it was set aside, if it was. What `start` was asked for by `initial`.
    fn bring_back(&mut self, member: &Name, initial: Initial, start: Option<Count>) -> Option<u32> {
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

    /// `lua/start.lua`. The median is found by walking there, which Redis need not.
    pub(super) fn start(&self, initial: Initial) -> Option<Count> {
        let found = match initial {
            Initial::Keep => None,
            Initial::Min | Initial::Ramp => self.order.first(),
            Initial::Median => self.order.iter().nth(self.order.len().saturating_sub(1) / 2),
            Initial::Max => self.order.last(),
            Initial::Zero => return Some(Count(0.0)),
            Initial::Count(count) => return Some(Count(count as f64)),
        };
        found.map(|(count, _)| *count)
    }

    /// Lets a newcomer in; whether it is one.
    pub(super) fn enter_new(&mut self, member: &Name, initial: Initial, start: Option<Count>) -> bool {
        let count = match start {
            Some(start) if initial != Initial::Ramp => start.placed(member),
            _ => Count(0.0),
        };
        self.enter(member, count, initial, start)
    }

    /// Lets a member in that has had `count`; whether it was not there. What `start` was asked for by `initial`.
    fn enter(&mut self, member: &Name, count: Count, initial: Initial, start: Option<Count>) -> bool {
        if self.ramp.contains(member) || self.counts.contains(member) {
            return false;
        }
        match start {
            Some(start) if initial == Initial::Ramp && count < start => self.ramp.put(member.clone(), count),
            _ => self.put(member.clone(), count),
        }
        true
    }

    /// Whether it was not there.
    fn put_new(&mut self, member: &Name, count: Count) -> bool {
        let is_new = !self.counts.contains(member);
        if is_new {
            self.put(member.clone(), count);
        }
        is_new
    }

    pub(super) fn put(&mut self, member: Name, count: Count) {
        if let Some(load) = &mut self.load {
            load.order.insert((load.share(&member), count, member.clone()));
        }
        self.counts.put(member.clone(), count);
        self.order.insert((count, member));
    }

    fn take(&mut self, member: &Name) -> Option<Count> {
        let (member, count) = self.counts.take(member)?;
        if let Some(load) = &mut self.load {
            load.order.remove(&(load.share(&member), count, member.clone()));
        }
        self.order.remove(&(count, member));
        Some(count)
    }

    /// Changes what a member has in flight, be it eligible or not.
    fn add_in_flight(&mut self, member: &Name, change: impl FnOnce(u64) -> u64) {
        // Taken out and put back: its place in the order depends on the number.
        let count = self.take(member);
        if let Some(load) = &mut self.load {
            match change(load.of(member)) {
                0 => drop(load.in_flight.remove(member)),
                changed => drop(load.in_flight.insert(member.clone(), changed)),
            }
        }
        if let Some(count) = count {
            self.put(member.clone(), count);
        }
    }

    fn unpark(&mut self, member: &Name) -> Option<Parked> {
        let parked = self.parked.remove(member)?;
        if let Some(until) = parked.until_ms {
            self.returns.remove(&(until, parked.member.clone()));
        }
        self.trials.remove(member);
        Some(parked)
    }
}

impl Load {
    fn of(&self, member: &Name) -> u64 {
        self.in_flight.get(member).copied().unwrap_or(0)
    }

    fn share(&self, member: &Name) -> Count {
        Count(self.of(member) as f64 / f64::from(count::weight(member)))
    }
}
