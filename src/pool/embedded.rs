//! The pool inside this process: what Redis does for many gateways, for one.
//!
//! Its state is under one std mutex: an operation is a few tree steps and never waits inside, so an async lock would only
//! add to it. A list that is added or removed is one operation.
//! What outlives the process is a file that a [`Keeper`] writes beside the requests. Cost: O(log n) per allocation, no system
//! call.

mod aging;
mod aside;
mod bans;
mod candidates;
mod changes;
mod checks;
mod disk;
mod failing;
mod file;
mod hosts;
mod keeper;
mod load;
mod order;
mod ramp;
mod record;
mod sources;
mod spread;
mod state;
mod table;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::verify::{Context, LOWEST, Place, Standing, Survey, Verdict};
use super::{
    Ban, BannedBy, Candidate, Care, Change, Check, Checked, Decay, Entry, HostBan, Initial, Lease, Look, Parked,
    Parking, PerHost, PoolError, Rebased, Report, Rounds, Sizes, Walk,
};
use crate::member::Name;
use bans::Found;
pub use disk::KeepError;
pub use keeper::{Keeper, Keeping, Saved, peek};
use sources::Sources;
use state::State;

/// A pool in this process. Clones share it, across threads too.
#[derive(Clone, Default)]
pub struct Embedded {
    state: Arc<Mutex<State>>,
    /// Apart, since a list is long and a request must not wait for it.
    sources: Arc<Mutex<Sources>>,
}

impl Embedded {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty pool whose members are chosen by what they have in flight, each at most `most` requests (0: any number).
    pub fn least_concurrent(most: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::least_concurrent(most))), ..Self::default() }
    }

    /// Also chooses members that catch up slowly ([`Initial::Ramp`]), each at most once in `every` allocations.
    #[must_use]
    pub fn with_ramp(self, every: u64) -> Self {
        self.state().ramp_every(every);
        self
    }

    /// Also keeps counts for each host, which [`super::Pool::allocate_for`] then goes by.
    #[must_use]
    pub fn with_hosts(self, limits: PerHost) -> Self {
        self.state().spread(limits);
        self
    }

    /// See [`super::Pool::allocate`].
    pub(super) fn allocate(&self, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        let mut state = self.state();
        if state.is_least_concurrent() {
            let Some(member) = state.take_least_loaded(tried)? else { return Ok(None) };
            return Ok(Some((member.clone(), Lease::embedded(self.clone(), member))));
        }
        Ok(state.allocate(tried).map(|member| (member, Lease::default())))
    }

    /// See [`super::Pool::hold`].
    pub(super) fn hold(&self, member: &Name) -> Lease {
        let mut state = self.state();
        if !state.is_least_concurrent() {
            return Lease::default();
        }
        state.hold(member);
        Lease::embedded(self.clone(), member.clone())
    }

    /// A request through `member` is over.
    pub(super) fn release(&self, member: &Name) {
        self.state().release(member);
    }

    /// See [`super::Pool::in_flight`].
    pub(super) fn in_flight(&self) -> HashMap<Name, u64> {
        self.state().in_flight()
    }

    /// See [`super::Pool::add`].
    pub(super) fn add(&self, members: &[Name], initial: Initial) -> u64 {
        self.state().add(members, initial)
    }

    /// See [`super::Pool::remove`].
    pub(super) fn remove(&self, members: &[Name]) -> u64 {
        let removed = self.state().remove(members);
        self.lose_memory(members, true);
        removed
    }

    /// See [`super::Pool::park`].
    pub(super) fn park(&self, member: &Name, parking: &Parking) -> Option<Parked> {
        self.state().park(member, parking, now_ms())
    }

    /// See [`super::Pool::restore`].
    pub(super) fn restore(&self, members: &[Name], initial: Initial) -> Vec<Name> {
        self.state().restore(members, initial)
    }

    /// See [`super::Pool::restore_due`].
    pub(super) fn restore_due(&self, most: usize, initial: Initial) -> Vec<Name> {
        self.state().restore_due(most, initial, now_ms())
    }

    /// See [`super::Pool::forgive`].
    pub(super) fn forgive(&self, members: &[Name]) -> u64 {
        self.state().forgive(members)
    }

    /// See [`super::Pool::report`].
    pub(super) fn report(&self, reports: &[Report], care: &Care) -> Vec<Change> {
        self.state().report(reports, care, now_ms())
    }

    /// See [`super::Pool::ban`].
    pub(super) fn ban(&self, bans: &[Ban], max_parked: u8) -> Vec<Change> {
        self.state().ban(bans, max_parked, now_ms())
    }

    /// See [`super::Pool::ban_for`].
    pub(super) fn ban_for(&self, host: &str, bans: &[Ban], share: Option<u8>) -> Vec<HostBan> {
        self.state().ban_for(host, bans, share, now_ms())
    }

    /// See [`super::Pool::unban_for`].
    pub(super) fn unban_for(&self, host: &str, members: &[Name]) -> Vec<Name> {
        self.state().unban_for(host, members)
    }

    /// See [`super::Pool::hosts`].
    pub(super) fn hosts(&self, seen: &mut Option<u64>) -> Option<Vec<String>> {
        self.state().hosts(seen, now_ms())
    }

    /// See [`super::Pool::banned`].
    pub(super) fn banned(&self) -> Vec<BannedBy> {
        self.state().banned()
    }

    /// See [`super::Pool::allocate_for`].
    pub(super) fn allocate_for(&self, host: &str, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        loop {
            // Locked anew each time, so that others get a turn where a great many are passed.
            let mut state = self.state();
            let is_leased = state.is_least_concurrent();
            return Ok(match state.allocate_for(host, tried, now_ms())? {
                Found::Unfinished => continue,
                Found::Nobody => None,
                Found::One(member) if is_leased => Some((member.clone(), Lease::embedded(self.clone(), member))),
                Found::One(member) => Some((member, Lease::default())),
            });
        }
    }

    /// See [`super::Pool::try_next_for`].
    pub(super) fn try_next_for(&self, host: &str, lease: Duration) -> Option<(Name, bool)> {
        self.state().try_next(Some(host), lease, now_ms())
    }

    /// See [`super::Pool::try_next`].
    pub(super) fn try_next(&self, lease: Duration) -> Option<(Name, bool)> {
        self.state().try_next(None, lease, now_ms())
    }

    /// See [`super::Pool::enroll`].
    pub(super) fn enroll(&self, walk: &mut Walk, every: Duration) -> bool {
        self.state().enroll(walk, every, now_ms())
    }

    /// See [`super::Pool::claim`].
    pub(super) fn claim(&self, most: usize, lease: Duration) -> Vec<Check> {
        self.state().claim(most, lease, now_ms())
    }

    /// See [`super::Pool::checked`].
    pub(super) fn checked(&self, checks: &[Checked], rounds: &Rounds) -> Vec<Change> {
        self.state().checked(checks, rounds, now_ms())
    }

    /// See [`super::Pool::look`].
    pub(super) fn look(&self, from: u64, most: usize) -> Look {
        self.state().look(from, most, now_ms())
    }

    /// See [`super::Pool::failures`].
    pub(super) fn failures(&self) -> HashMap<Name, u64> {
        self.state().failures()
    }

    /// See [`super::Pool::propose`].
    pub(super) fn propose(&self, members: &[Name]) -> u64 {
        self.state().propose(members, now_ms())
    }

    /// See [`super::Pool::accept`].
    pub(super) fn accept(&self, members: &[Name], initial: Initial) -> u64 {
        self.state().accept(members, initial)
    }

    /// See [`super::Pool::reject`].
    pub(super) fn reject(&self, members: &[Name], again: Option<Duration>) -> u64 {
        let again = again.map(|span| now_ms().saturating_add(span.as_millis().try_into().unwrap_or(u64::MAX)));
        self.state().reject(members, again)
    }

    /// See [`super::Pool::decay`].
    pub(super) fn decay(&self, decay: Decay) -> u64 {
        self.state().decay(decay, now_ms())
    }

    /// See [`super::Pool::rebase`].
    pub(super) fn rebase(&self) -> Rebased {
        self.state().rebase()
    }

    /// See [`super::Pool::sizes`].
    pub(super) fn sizes(&self) -> Sizes {
        self.state().sizes()
    }

    /// See [`super::Pool::list`].
    pub(super) fn list(&self) -> Vec<Entry> {
        self.state().list()
    }

    /// See [`super::Pool::ramping`].
    pub(super) fn ramping(&self) -> Vec<Entry> {
        self.state().ramping()
    }

    /// See [`super::Pool::parked`].
    pub(super) fn parked(&self) -> Vec<Parked> {
        self.state().parked()
    }

    /// See [`super::Pool::candidates`].
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        self.state().candidates()
    }

    /// See [`super::Pool::verify`]. What nobody else writes to can only be uneven.
    pub(super) fn verify(&self, context: Context) -> Verdict {
        let mut survey = Survey::new(context);
        let entries = self.list();
        let set: Vec<(Name, f64)> = entries.iter().map(|entry| (entry.member.clone(), entry.count)).collect();
        if let Some(&(_, lowest)) = set.first() {
            survey.set(&set, set.len() as u64, lowest);
        }
        survey.lowest(entries.into_iter().take(LOWEST).collect());
        survey.next_key();
        for entry in self.ramping() {
            survey.other(
                Place::Ramping,
                &entry.member,
                entry.count.to_string().as_bytes(),
                Standing(b"00000110000000"),
            );
        }
        survey.next_key();
        for parked in self.parked() {
            survey.other(Place::Parked, &parked.member, b"{}", Standing(b"01000000000000"));
        }
        survey.next_key();
        for candidate in self.candidates() {
            survey.other(Place::Candidates, &candidate.member, b"", Standing(b"00010000000000"));
        }
        survey.verdict()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No operation can panic between its two writes, so a poisoned lock guards a sound state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
