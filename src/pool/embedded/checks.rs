//! When members are checked, and what that shows: `lua/enroll.lua`, `claim.lua` and `checked.lua` in memory.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::time::Duration;

use super::state::State;
use crate::member::Name;
use crate::pool::check::Cursor;
use crate::pool::count::Count;
use crate::pool::{Change, Check, Checked, Finding, Kind, Rounds, Walk};

/// Members looked at in one step of a walk.
const PAGE: usize = 250;

impl State {
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
}
