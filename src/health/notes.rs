//! What one gateway has seen of its members and has not told yet.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{COMPLAIN_EVERY, luck};
use crate::member::Name;
use crate::pool::{Outcome, Report};

/// Without a success for so long, a gateway is cut off.
const CUT_OFF: Duration = Duration::from_secs(30);
/// So long it is cut off if most of the pool has failed meanwhile.
const HICCUP: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Notes {
    /// Members that failed lately, and when.
    pub(super) suspects: HashMap<Name, Instant>,
    /// What is to be reported.
    pub(super) ready: HashMap<Name, Tally>,
    /// What failed since the last success.
    pub(super) waiting: HashMap<Name, Tally>,
    /// Since when nothing has succeeded; only known since a failure.
    pub(super) blind_since: Option<Instant>,
    /// How many are eligible or set aside for failing.
    pub(super) total: u64,
    complained: Option<Instant>,
}

/// What one member has done since the last report.
#[derive(Default)]
pub(super) struct Tally {
    /// Before the failures.
    pub(super) has_served: bool,
    pub(super) failures: u32,
    /// Of the first failure.
    pub(super) reason: String,
    pub(super) verdict: Option<Outcome>,
}

impl Notes {
    /// A request through `member` has succeeded. What failed while none did is forgotten if that was the network.
    pub(super) fn see_again(&mut self, member: &Name, now: Instant, max_parked: u8) {
        let Some(since) = self.blind_since.take() else { return };
        let span = now.saturating_duration_since(since);
        let failed = self.waiting.len() as u64;
        let most_failed = failed * 100 > u64::from(max_parked) * self.total;
        // For a moment most may have failed because nobody else was asked. Where one of them now serves, it was none of them.
        let is_shared = most_failed && (span >= HICCUP || self.waiting.contains_key(member));
        if span < CUT_OFF && !is_shared {
            for (member, tally) in self.waiting.drain() {
                self.ready.entry(member).or_default().go_on(tally);
            }
            return;
        }
        // But the trials are over.
        for (member, tally) in self.waiting.drain().filter(|(_, tally)| tally.verdict.is_some()) {
            self.ready.entry(member).or_default().verdict = tally.verdict.and(Some(Outcome::Undecided));
        }
        if self.complained.is_none_or(|at| now.saturating_duration_since(at) > COMPLAIN_EVERY) {
            self.complained = Some(now);
            tracing::warn!(
                failed,
                ?span,
                "no request was answered through any member for a while; what failed meanwhile is held against none"
            );
        }
    }

    pub(super) fn take(&mut self, most: usize) -> Vec<(Name, Tally)> {
        let names: Vec<Name> = self.ready.keys().take(most).cloned().collect();
        names.iter().filter_map(|member| self.ready.remove_entry(member)).collect()
    }

    /// Could not be told; what came since is newer.
    pub(super) fn put_back(&mut self, batch: Vec<(Name, Tally)>) {
        for (member, mut tally) in batch {
            if let Some(newer) = self.ready.remove(&member) {
                tally.go_on(newer);
            }
            self.ready.insert(member, tally);
        }
    }
}

impl Tally {
    /// What came after it.
    pub(super) fn go_on(&mut self, newer: Self) {
        if newer.has_served {
            (self.has_served, self.failures) = (true, 0);
        }
        self.failures = self.failures.saturating_add(newer.failures);
        if newer.failures > 0 {
            self.reason = newer.reason;
        }
        self.verdict = newer.verdict.or(self.verdict.take());
    }

    pub(super) fn reports(&self, member: &Name) -> impl Iterator<Item = Report> {
        let served = self.has_served.then_some(Outcome::Served);
        let failed = (self.failures > 0).then(|| Outcome::Failed(self.failures, self.reason.clone()));
        let outcomes = [served, failed, self.verdict.clone()].into_iter().flatten();
        outcomes.map(|outcome| Report { member: member.clone(), outcome, luck: luck() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_held_against_members_unless_it_was_all_of_them() {
        let name = |n: u8| Name::copy_from_slice(&[n]);
        // Of so many members these have failed for so long, and then a request through one has succeeded.
        let held = |total: u64, failed: &[u8], millis: u64, through: u8| {
            let now = Instant::now();
            let mut notes = Notes { total, blind_since: Some(now), ..Notes::default() };
            notes.waiting = failed.iter().map(|&n| (name(n), Tally { failures: 1, ..Tally::default() })).collect();
            notes.see_again(&name(through), now + Duration::from_millis(millis), 50);
            assert!(notes.waiting.is_empty() && notes.blind_since.is_none());
            notes.ready.len()
        };
        // Two are dead, and the third was not asked before.
        assert_eq!(held(3, &[0, 1], 300, 2), 2);
        assert_eq!(held(3, &[0, 1], 1500, 2), 0, "all that time nobody asked the third");
        assert_eq!(held(3, &[0, 1, 2], 300, 2), 0, "all have failed, and one of them serves");
        assert_eq!(held(10, &[0, 1, 2], 300, 2), 3, "most were not even asked");
        assert_eq!(held(10, &[0, 1, 2], 29_000, 2), 3);
        assert_eq!(held(10, &[0, 1, 2], 30_000, 2), 0);
    }
}
