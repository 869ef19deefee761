//! Candidates in memory: the same as the scripts that judge them, one method each.

use std::collections::HashMap;
use std::time::Duration;

use super::state::State;
use super::table::Table;
use super::{Embedded, now_ms};
use crate::member::Name;
use crate::pool::{Candidate, Initial, Judged, Judging, Memory, Opinion, Rejection};

/// So many checks of each member are remembered.
const CHECKS: usize = 20;
/// Who could not be judged is looked at again after this.
const UNKNOWN: Duration = Duration::from_secs(10);

/// What is thought of candidates, and what is remembered of members.
#[derive(Default)]
pub(super) struct Verdicts {
    pub(super) by: Option<String>,
    pub(super) rejections: Table<Rejection>,
    /// Per member its last checks, and its country.
    pub(super) memory: Table<(String, Option<String>)>,
}

impl Embedded {
    /// See [`crate::pool::Pool::claim_candidates`].
    pub(in crate::pool) fn claim_candidates(
        &self,
        most: usize,
        lease: Duration,
        by: &str,
        is_new: bool,
    ) -> Option<Vec<Name>> {
        self.state().claim_candidates(most, lease, by, is_new, now_ms())
    }

    /// See [`crate::pool::Pool::judged`].
    pub(in crate::pool) fn judged(&self, judged: &[Judged], judging: &Judging) -> Vec<Name> {
        self.state().judged(judged, judging, now_ms())
    }

    /// See [`crate::pool::Pool::rejections`].
    pub(in crate::pool) fn rejections(&self) -> HashMap<Name, Rejection> {
        let state = self.state();
        let all = state.candidates().into_iter();
        all.filter_map(|one| Some((one.member.clone(), state.verdicts.rejections.get(&one.member)?.1.clone())))
            .collect()
    }

    /// See [`crate::pool::Pool::tally`].
    pub(in crate::pool) fn tally(&self, checks: &[(Name, Option<bool>)]) -> Vec<Memory> {
        let mut guard = self.state();
        let state = &mut *guard;
        let memory = &mut state.verdicts.memory;
        let tallied = checks.iter().map(|(member, passed)| {
            let (mut marks, country) = memory.get(member).map(|(_, about)| about.clone()).unwrap_or_default();
            if let Some(passed) = passed {
                marks.push(if *passed { '+' } else { '-' });
                marks.drain(..marks.len().saturating_sub(CHECKS));
                memory.put(member.clone(), (marks.clone(), country.clone()));
                state.changes.note(member);
            }
            Memory::of(&marks, country)
        });
        tallied.collect()
    }

    /// See [`crate::pool::Pool::note_countries`].
    pub(in crate::pool) fn note_countries(&self, countries: &[(Name, String)]) {
        let mut state = self.state();
        for (member, country) in countries {
            let (marks, _) = state.verdicts.memory.get(member).map(|(_, about)| about.clone()).unwrap_or_default();
            state.verdicts.memory.put(member.clone(), (marks, Some(country.clone())));
            state.changes.note(member);
        }
    }

    /// What is known of members beside their state goes with them. `all`: also the verdicts on them.
    pub(in crate::pool) fn lose_memory(&self, members: &[Name], all: bool) {
        let mut state = self.state();
        for member in members {
            state.changes.note(member);
            state.verdicts.memory.take(member);
            if all {
                state.verdicts.rejections.take(member);
            }
        }
    }
}

impl State {
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

    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let all = self.candidates.from(0).map(|(due_ms, member)| Candidate { member: member.clone(), due_ms });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        all
    }

    /// `lua/claim_candidates.lua`
    fn claim_candidates(
        &mut self,
        most: usize,
        lease: Duration,
        by: &str,
        is_new: bool,
        now_ms: u64,
    ) -> Option<Vec<Name>> {
        if self.verdicts.by.as_deref() != Some(by) {
            if self.verdicts.by.is_some() && !is_new {
                return None;
            }
            self.verdicts.by = Some(by.to_owned());
            self.verdicts.rejections = Table::default();
            self.changes.note_all();
            for candidate in self.candidates() {
                self.changes.note(&candidate.member);
                self.candidates.put(&candidate.member, candidate.due_ms.min(now_ms));
            }
        }
        let due: Vec<Name> = self.candidates.to(now_ms).take(most).cloned().collect();
        let mut claimed = Vec::with_capacity(due.len());
        for member in due {
            self.changes.note(&member);
            match self.verdicts.rejections.get(&member).map(|(_, rejection)| rejection.until_ms) {
                Some(holds) if holds > now_ms => self.candidates.put(&member, holds),
                _ => {
                    self.candidates.put(&member, now_ms + lease.as_millis() as u64);
                    claimed.push(member);
                }
            }
        }
        Some(claimed)
    }

    /// `lua/judged.lua`
    fn judged(&mut self, judged: &[Judged], judging: &Judging, now_ms: u64) -> Vec<Name> {
        let start = self.start(judging.initial);
        let is_void = self.verdicts.by.as_deref() != Some(&judging.by);
        let mut entered = Vec::new();
        for Judged { member, opinion, luck } in judged {
            if self.candidates.get(member).is_none() {
                continue;
            }
            self.changes.note(member);
            match opinion {
                _ if is_void => self.candidates.put(member, now_ms),
                Opinion::Unknown => {
                    self.candidates.put(member, now_ms + judging.first.min(UNKNOWN).as_millis() as u64);
                }
                Opinion::Passed => {
                    self.candidates.remove(member);
                    self.verdicts.rejections.take(member);
                    if self.enter_new(member, judging.initial, start) {
                        entered.push(member.clone());
                    }
                }
                Opinion::Rejected(reason) => {
                    let before = self.verdicts.rejections.get(member).map_or(0, |(_, before)| before.in_a_row);
                    let in_a_row = before.saturating_add(1);
                    let until_ms = now_ms + judging.pause_ms(in_a_row, *luck);
                    let rejection = Rejection { reason: reason.clone(), until_ms, in_a_row };
                    self.verdicts.rejections.put(member.clone(), rejection);
                    self.candidates.put(member, until_ms);
                }
            }
        }
        entered
    }
}
