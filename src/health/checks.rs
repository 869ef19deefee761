//! Checks of members, whether there is traffic or not, shared by all gateways: each is checked once per period by one of them.
//!
//! No gateway leads. Those that are checked are in an order of their next turns; whoever has room takes those whose turn has
//! come, and if it dies, they are taken again when its lease is over. A check is a probe: it goes the way traffic goes. Who fails
//! it is set aside until it passes one.
//!
//! A failure counts only if the page that is asked for has answered since: this machine, or the member through which it was last
//! got. And not when more of the eligible members fail than may be set aside: then it is rather the page that
//! refuses them. Who passes must also meet the rules of the pool.
//!
//! Bounds: `health.parallel` probes at once, and as many verdicts. Cost: a script call for up to 64 checks, and one for their
//! verdicts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};

use super::examiner::{Examiner, Found};
use super::{BATCH, COMPLAIN_EVERY, LOOK_SELDOM, Watch, luck};
use crate::config::Config;
use crate::member::{self, Member};
use crate::metrics::Tried;
use crate::pool::{Check, Checked, Finding, Memory, Pool, Rounds, Walk};
use crate::probe::Verdict;
use crate::rules::Ruling;

/// Checks taken with one call.
const CLAIM: usize = 64;
/// Between two looks for checks that are due, in parts of the period; the steps that a walk over the members makes in one.
const TICKS: u32 = 100;
const FASTEST: Duration = Duration::from_millis(10);
const SLOWEST: Duration = Duration::from_millis(100);
/// Between two walks at most: who is new has its first turn within this, and a period.
const WALK_EVERY: Duration = Duration::from_secs(30);
/// Verdicts of a gateway that show whether most members fail.
const SAMPLE: usize = 1000;
/// Fewer than so many say nothing about most.
const LEAST_SAMPLE: usize = 4;
/// For what comes on top of a probe, and of one more to see whether the page answers.
const MARGIN: Duration = Duration::from_secs(2);

/// What one gateway does for the checks.
pub(crate) struct Checks {
    examiner: Arc<Examiner>,
    rounds: Rounds,
    parallel: usize,
}

impl Checks {
    /// `None`: there is nothing to check, or never.
    pub(super) fn new(config: &Config, care: crate::pool::Care, examiner: &Option<Arc<Examiner>>) -> Option<Self> {
        let health = &config.health;
        let examiner = examiner.clone().filter(|_| !health.every.is_zero())?;
        Some(Self { examiner, rounds: Rounds { every: health.every, care }, parallel: health.parallel })
    }

    /// Goes on for ever.
    pub(super) async fn run(&self, pool: &Pool, watch: &Watch) {
        let (found, verdicts) = mpsc::channel(self.parallel);
        tokio::join!(self.walk(pool), self.check(pool, found), self.conclude(pool, watch, verdicts));
    }

    /// Sees to it that whoever joins is checked.
    async fn walk(&self, pool: &Pool) {
        let mut walk = Walk::default();
        loop {
            let pause = match pool.enroll(&mut walk, self.rounds.every).await {
                Ok(false) => self.tick(),
                Ok(true) => self.rounds.every.min(WALK_EVERY),
                Err(error) => {
                    tracing::debug!(%error, "could not see who is to be checked");
                    LOOK_SELDOM
                }
            };
            sleep(pause).await;
        }
    }

    fn tick(&self) -> Duration {
        (self.rounds.every / TICKS).clamp(FASTEST, SLOWEST)
    }

    async fn check(&self, pool: &Pool, found: mpsc::Sender<Found<Check>>) {
        let places = Arc::new(Semaphore::new(self.parallel));
        let lease = 2 * self.examiner.timeout + MARGIN;
        loop {
            // A call for a few at a time would be many calls.
            let _ = places.acquire_many((self.parallel / 4).clamp(1, CLAIM) as u32).await;
            let most = places.available_permits().clamp(1, CLAIM);
            let claimed = pool.claim(most, lease).await;
            let claimed = claimed.unwrap_or_else(|error| {
                tracing::debug!(%error, "could not take checks");
                Vec::new()
            });
            let is_more = claimed.len() == most;
            for check in claimed {
                let Ok(place) = places.clone().try_acquire_owned() else { break };
                let name = check.member.clone();
                tokio::spawn(self.examiner.clone().try_one(check, name, found.clone(), place));
            }
            if !is_more {
                sleep(self.tick()).await;
            }
        }
    }

    async fn conclude(&self, pool: &Pool, watch: &Watch, mut verdicts: mpsc::Receiver<Found<Check>>) {
        let mut batch = Vec::new();
        let mut evidence = Evidence::default();
        let mut complained = None;
        while verdicts.recv_many(&mut batch, BATCH).await > 0 {
            for found in &batch {
                evidence.add(found, &self.examiner);
            }
            let doubt = evidence.doubt(self, &batch).await;
            watch.metrics.doubts(Tried::Checks, doubt.is_some());
            if let Some(doubt) = &doubt
                && evidence.complained.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY)
            {
                evidence.complained = Some(Instant::now());
                tracing::warn!("checks set nobody aside: {doubt}");
            }
            let tried = batch.iter().map(|found| (&found.what.member, &found.verdict));
            let memories = self.examiner.recall(pool, tried, doubt.is_some()).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "could not see what is remembered of members");
                Vec::new()
            });
            let mut memories = memories.into_iter();
            let checks: Vec<Checked> = batch
                .drain(..)
                .map(|Found { what: check, verdict, .. }| {
                    let memory = memories.next();
                    let finding = match verdict.fault {
                        None => self.finding(&check, &verdict, memory),
                        Some(fault) if doubt.is_some() || fault.is_own() => {
                            tracing::debug!(proxy = member::masked(&check.member), %fault, "a check failed, and shows nothing");
                            Finding::Unknown
                        }
                        Some(fault) => Finding::Unhealthy(fault.reason),
                    };
                    watch.metrics.tried(
                        Tried::Checks,
                        match &finding {
                            Finding::Healthy => "passed",
                            Finding::Unhealthy(_) => "failed",
                            Finding::Unknown => "unknown",
                        },
                    );
                    Checked { member: check.member, due_ms: check.due_ms, finding, luck: luck() }
                })
                .collect();
            match pool.checked(&checks, &self.rounds).await {
                Ok(changes) => changes.iter().for_each(|change| watch.tell(change, &mut complained)),
                // Their turns come again when the leases are over.
                Err(error) => tracing::debug!(%error, "could not tell what checks have shown"),
            }
        }
    }

    /// Of a member that has got the page. `memory`: `None` if it cannot be had.
    fn finding(&self, check: &Check, verdict: &Verdict, memory: Option<Memory>) -> Finding {
        let Self { examiner, .. } = self;
        if !examiner.rules.are_any() {
            return Finding::Healthy;
        }
        let (Some(memory), Ok(member)) = (memory, Member::parse(&check.member)) else { return Finding::Unknown };
        match examiner.rules.judge(&member, verdict, &memory, examiner.knows_us()) {
            Ruling::Meets => Finding::Healthy,
            Ruling::Breaks(why) => Finding::Unhealthy(why),
            Ruling::Unclear => Finding::Unknown,
        }
    }
}

/// What speaks for the page that is asked for, and against it.
#[derive(Default)]
struct Evidence {
    /// The last verdicts on eligible members, whether each failed.
    sample: VecDeque<(Instant, bool)>,
    failed: usize,
    complained: Option<Instant>,
}

impl Evidence {
    fn add(&mut self, found: &Found<Check>, examiner: &Examiner) {
        let (now, within) = (Instant::now(), examiner.timeout);
        if found.verdict.is_reachable() {
            examiner.has_answered(found, &found.what.member);
        }
        if found.what.is_eligible {
            self.sample.push_back((now, found.is_failure()));
            self.failed += usize::from(found.is_failure());
        }
        let is_old = |sample: &VecDeque<(Instant, bool)>| {
            sample.len() > SAMPLE || sample.front().is_some_and(|(at, _)| at.elapsed() > 2 * within)
        };
        while is_old(&self.sample) {
            let has_failed = self.sample.pop_front().is_some_and(|(_, has_failed)| has_failed);
            self.failed -= usize::from(has_failed);
        }
    }

    /// Why failures count for nothing at the moment.
    async fn doubt(&mut self, checks: &Checks, batch: &[Found<Check>]) -> Option<String> {
        if !batch.iter().any(Found::is_failure) {
            return None;
        }
        let share = 100 * self.failed / self.sample.len().max(1);
        if self.sample.len() >= LEAST_SAMPLE && share > usize::from(checks.rounds.care.max_parked) {
            let of = self.sample.len();
            return Some(format!(
                "{} of the last {of} eligible members that were checked fail, so it is rather health.url",
                self.failed
            ));
        }
        checks.examiner.doubt(batch).await
    }
}
