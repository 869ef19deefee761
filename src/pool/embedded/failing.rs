//! Members that fail: how often in a row, until when they rest, and who tries them. `lua/report.lua`, `try.lua` and `look.lua` in
//! memory.

use std::collections::HashMap;
use std::time::Duration;

use super::state::State;
use crate::member::Name;
use crate::pool::count::Count;
use crate::pool::{Care, Change, Kind, Look, Outcome, Parked, Report};

/// After so long, failures are forgotten.
const HOUR_MS: u64 = 60 * 60 * 1000;

impl State {
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

    /// `lua/health.lua`
    pub(super) fn may_set_aside(&self, care: &Care) -> bool {
        let (eligible, failing) = (self.counts.len() + self.ramp.len(), self.trials.len());
        eligible > 1 && (failing + 1) * 100 <= usize::from(care.max_parked) * (eligible + failing)
    }

    #[expect(clippy::too_many_arguments, reason = "what a record holds, and by what it is found")]
    pub(super) fn rest(
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
}
