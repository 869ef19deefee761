//! What traffic shows of members: who fails request after request is set aside, and tried again later by one request.
//!
//! A failure that tells against a member (the table of `error`) is noted, and from then on the next success through it is noted
//! too; what was noted reaches the pool in batches, beside the requests, and there all gateways count together. Each gateway
//! looks several times a second who has failed elsewhere, so that its successes count as well.
//!
//! A gateway that has no success at all, through whomever, cannot tell a dead proxy from a dead network: what fails
//! meanwhile waits for a success. When that comes late, or most of the pool has failed meanwhile and so has who serves again, it
//! was the network, and nothing is held against anyone.
//!
//! Not here: what counts as a failure, and the counting itself ([`Pool::report`]). Bounds: `MOST_SUSPECTS` members
//! remembered, `MOST_TRIALS` trials at once. Cost: a load per request; a success looks a member up while any has failed.

mod candidates;
mod checks;
mod examiner;
mod notes;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use candidates::Candidates;
use checks::Checks;
use examiner::Examiner;
use notes::{Notes, Tally};

use crate::ban::Bans;
use crate::config::Config;
use crate::member::{self, Name};
use crate::metrics::Metrics;
use crate::pool::{Care, Change, Kind, Outcome, Parked, Pool, Report};

/// What is noted within so long goes in one call.
const GATHER: Duration = Duration::from_millis(10);
/// Outcomes in one call: about 1 ms in which Redis does nothing else.
const BATCH: usize = 250;
/// Between two looks at what others have seen.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same when failures are not counted, and only trials are looked for.
const LOOK_SELDOM: Duration = Duration::from_secs(1);
/// Members per look.
const LOOK_AT: usize = 1000;
/// Members whose next success is to be noted: 10 MB or so. Failures of others are not counted while there are so many.
const MOST_SUSPECTS: usize = 1 << 16;
/// As long as the pool remembers failures.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
/// Requests of one gateway that try members at the same time: each may have to wait for a timeout.
const MOST_TRIALS: usize = 4;
/// A trial is over by then: room for the report, on top of the longest that a request may take until its answer begins.
const TRIAL_MARGIN: Duration = Duration::from_secs(2);
/// Between two complaints of one kind.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// What the workers of one gateway have seen of its members, and what it knows from other gateways.
pub struct Watch {
    care: Care,
    examiner: Option<Arc<Examiner>>,
    checks: Option<Checks>,
    candidates: Option<Candidates>,
    /// How long a trial may take.
    lease: Duration,
    /// Whether a success is of interest.
    is_listening: AtomicBool,
    /// Whether a member waits for a trial.
    is_due: AtomicBool,
    trials: AtomicUsize,
    notes: Mutex<Notes>,
    is_noted: Notify,
    /// What answers say of members.
    pub(crate) bans: Arc<Bans>,
    /// What is counted of all this.
    pub(crate) metrics: Metrics,
}

/// A member's trial, for as long as it takes. Dropped without an outcome, it has shown nothing.
pub(crate) struct Trial {
    watch: Arc<Watch>,
    member: Name,
    outcome: Outcome,
}

impl Watch {
    /// One for all workers of a gateway.
    pub fn new(config: &Config) -> Self {
        let health = &config.health;
        let care = Care {
            park_after: health.park_after,
            cooldown: health.cooldown,
            max_cooldown: health.max_cooldown,
            max_parked: health.max_parked,
            restore: config.pool.restore,
        };
        let examiner = Examiner::new(config).map(Arc::new);
        Self {
            care,
            checks: Checks::new(config, care, &examiner),
            candidates: Candidates::new(config, &examiner),
            examiner,
            lease: config.upstream.dial_timeout + config.upstream.response_timeout + TRIAL_MARGIN,
            is_listening: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
            trials: AtomicUsize::new(0),
            notes: Mutex::default(),
            is_noted: Notify::new(),
            bans: Arc::new(Bans::new(config)),
            metrics: Metrics::default(),
        }
    }

    /// Whether [`Self::served`] should be told of a success. False nearly always.
    pub(crate) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    /// Whether a request should ask [`Self::start_trial`] for its member. False nearly always.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Relaxed)
    }

    /// An answer came through this member.
    pub(crate) fn served(&self, member: &Name) {
        let mut notes = self.notes();
        notes.see_again(member, Instant::now(), self.care.max_parked);
        if notes.suspects.remove(member).is_some() {
            notes.ready.entry(member.clone()).or_default().go_on(Tally { has_served: true, ..Tally::default() });
        }
        self.after(&notes);
    }

    /// A request through this member failed, and that tells against it.
    pub(crate) fn failed(&self, member: &Name, reason: impl FnOnce() -> String) {
        if self.care.park_after == 0 {
            return;
        }
        let now = Instant::now();
        let mut notes = self.notes();
        if notes.suspects.len() >= MOST_SUSPECTS && !notes.suspects.contains_key(member) {
            return;
        }
        notes.suspects.insert(member.clone(), now);
        notes.blind_since.get_or_insert(now);
        let tally = notes.waiting.entry(member.clone()).or_default();
        tally.failures = tally.failures.saturating_add(1);
        if tally.failures == 1 {
            tally.reason = reason();
        }
        self.after(&notes);
    }

    /// A member that waits for a trial, for the request that asks, and what is to hear of its outcome. `host`: of
    /// the request, if it has banned members.
    pub(crate) async fn start_trial(self: &Arc<Self>, pool: &Pool, host: Option<&str>) -> Option<Trial> {
        // Whoever comes next need not ask as well.
        if !self.is_due.swap(false, Ordering::Relaxed) {
            return None;
        }
        let next = match host {
            None => pool.try_next(self.lease).await,
            Some(host) => pool.try_next_for(host, self.lease).await,
        };
        match next {
            Ok(Some((member, more))) => {
                let under_way = self.trials.fetch_add(1, Ordering::Relaxed) + 1;
                self.is_due.store(more && under_way < MOST_TRIALS, Ordering::Relaxed);
                let member = Name::copy_from_slice(&member);
                Some(Trial { watch: self.clone(), member, outcome: Outcome::Undecided })
            }
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(%error, "no trial");
                None
            }
        }
    }

    fn ended(&self, member: Name, outcome: Outcome) {
        self.trials.fetch_sub(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut notes = self.notes();
        let place = match outcome {
            Outcome::Missed(_) => {
                notes.blind_since.get_or_insert(now);
                &mut notes.waiting
            }
            Outcome::Passed => {
                notes.see_again(&member, now, self.care.max_parked);
                &mut notes.ready
            }
            _ => &mut notes.ready,
        };
        place.entry(member).or_default().verdict = Some(outcome);
        self.after(&notes);
    }

    fn after(&self, notes: &Notes) {
        self.is_listening.store(notes.blind_since.is_some() || !notes.suspects.is_empty(), Ordering::Relaxed);
        if !notes.ready.is_empty() {
            self.is_noted.notify_one();
        }
    }

    /// Tells the pool, and looks what others have told it; goes on for ever.
    pub(crate) async fn run(&self, pool: &Pool) {
        let checks = async {
            if let Some(checks) = &self.checks {
                checks.run(pool, self).await;
            }
        };
        let candidates = async {
            if let Some(candidates) = &self.candidates {
                candidates.run(pool, &self.metrics).await;
            }
        };
        let examiner = async {
            if let Some(examiner) = &self.examiner {
                examiner.run().await;
            }
        };
        tokio::join!(self.report(pool), self.look(pool), self.bans.run(pool, self), checks, candidates, examiner);
    }

    async fn report(&self, pool: &Pool) {
        let mut complained = None;
        loop {
            self.is_noted.notified().await;
            sleep(GATHER).await;
            loop {
                let batch = self.notes().take(BATCH);
                if batch.is_empty() {
                    break;
                }
                let reports: Vec<Report> = batch.iter().flat_map(|(member, tally)| tally.reports(member)).collect();
                match pool.report(&reports, &self.care).await {
                    Ok(changes) => changes.iter().for_each(|change| self.tell(change, &mut complained)),
                    Err(error) => {
                        tracing::debug!(%error, "could not report what became of requests; trying on");
                        self.notes().put_back(batch);
                        self.is_noted.notify_one();
                        sleep(LOOK_SELDOM).await;
                        break;
                    }
                }
            }
        }
    }

    pub(crate) fn tell(&self, change: &Change, complained: &mut Option<Instant>) {
        match change {
            Change::Parked(Parked { member, kind, reason, since_ms, until_ms, in_a_row, .. }) => {
                self.notes().suspects.remove(member);
                let span = Duration::from_millis(until_ms.unwrap_or_default().saturating_sub(*since_ms));
                let (proxy, id) = (member::masked(member), member::id(member));
                let (is_unhealthy, kind) = (*kind == Kind::Unhealthy, kind.as_str());
                self.metrics.parked(kind);
                if is_unhealthy && self.checks.is_some() {
                    tracing::warn!(
                        proxy,
                        id,
                        kind,
                        reason,
                        in_a_row,
                        "set a pool member aside until it passes a check"
                    );
                } else {
                    tracing::warn!(proxy, id, kind, reason, r#for = ?span, in_a_row, "set a pool member aside");
                }
            }
            Change::Restored(member) => {
                self.metrics.returned(1);
                tracing::info!(proxy = member::masked(member), id = member::id(member), "back in the pool");
            }
            Change::Spared(member) if complained.is_none_or(|at: Instant| at.elapsed() > COMPLAIN_EVERY) => {
                *complained = Some(Instant::now());
                let (proxy, id) = (member::masked(member), member::id(member));
                tracing::warn!(
                    proxy,
                    id,
                    "is not set aside, though it fails or is banned: as many as health.max_parked allows are already"
                );
            }
            Change::Spared(_) => {}
        }
    }

    async fn look(&self, pool: &Pool) {
        let mut from = 0;
        let mut pruned = Instant::now();
        loop {
            match pool.look(from, LOOK_AT).await {
                Ok(look) => {
                    from = look.next;
                    // A check needs no client.
                    let is_due = look.is_due && self.checks.is_none();
                    self.is_due.store(is_due && self.trials.load(Ordering::Relaxed) < MOST_TRIALS, Ordering::Relaxed);
                    let now = Instant::now();
                    let mut notes = self.notes();
                    notes.total = look.total;
                    if self.care.park_after > 0 {
                        for member in &look.failing {
                            if notes.suspects.len() < MOST_SUSPECTS {
                                notes.suspects.entry(Name::copy_from_slice(member)).or_insert(now);
                            }
                        }
                    }
                    if pruned.elapsed() > COMPLAIN_EVERY {
                        pruned = now;
                        notes.suspects.retain(|_, failed| failed.elapsed() < REMEMBERED);
                    }
                    self.after(&notes);
                }
                Err(error) => tracing::debug!(%error, "could not look at what has failed"),
            }
            sleep(if self.care.park_after > 0 { LOOK_EVERY } else { LOOK_SELDOM }).await;
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trial {
    pub(crate) fn member(&self) -> &Name {
        &self.member
    }

    /// An answer came.
    pub(crate) fn passed(mut self) {
        self.outcome = Outcome::Passed;
    }

    /// It failed, and that tells against the member.
    pub(crate) fn missed(mut self, reason: String) {
        self.outcome = Outcome::Missed(reason);
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Undecided);
        self.watch.ended(std::mem::take(&mut self.member), outcome);
    }
}

/// Up to a quarter less than 1.
fn luck() -> f64 {
    let random = RandomState::new().hash_one(0) as u32;
    1.0 - 0.25 * f64::from(random) / f64::from(u32::MAX)
}
