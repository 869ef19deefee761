//! Candidates are tried before they enter the pool: who meets the rules is a member from then on, who does not is looked at again
//! after a pause that grows.
//!
//! The gateways share them as they share checks: whoever has room takes those that are due, and if it dies, they are taken again
//! when its lease is over. Verdicts are kept in the pool while they hold; when a gateway begins that has other rules or
//! another judge, all of them are void, and gateways that have the old ones leave candidates alone. A failure counts only if
//! the page that is asked for has answered since.
//!
//! Bounds: `health.parallel` probes at once, and as many verdicts. Cost: a script call for up to 64 candidates, and one or two
//! for their verdicts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep};

use super::examiner::{Examiner, Found};
use super::{BATCH, COMPLAIN_EVERY, luck};
use crate::config::Config;
use crate::member::{self, Member, Name};
use crate::metrics::{Metrics, Tried};
use crate::pool::{Judged, Judging, Memory, Opinion, Pool};
use crate::probe::Verdict;
use crate::rules::Ruling;

/// Candidates taken with one call.
const CLAIM: usize = 64;
/// Between two looks for candidates that are due.
const EVERY: Duration = Duration::from_millis(250);
/// The same while others judge, or the store is away.
const SELDOM: Duration = Duration::from_secs(5);
/// For what comes on top of a probe, and of one more to see whether the page answers.
const MARGIN: Duration = Duration::from_secs(2);

/// What one gateway does for candidates.
pub(super) struct Candidates {
    examiner: Arc<Examiner>,
    judging: Judging,
    parallel: usize,
}

impl Candidates {
    /// `None`: no source names any.
    pub(super) fn new(config: &Config, examiner: &Option<Arc<Examiner>>) -> Option<Self> {
        let examiner = examiner.clone().filter(|_| config.pool.sources.iter().any(|source| source.candidates))?;
        let (first, longest) = (examiner.rules.pause, examiner.rules.max_pause);
        let judging = Judging { by: examiner.by.clone(), first, longest, initial: config.pool.initial };
        Some(Self { examiner, judging, parallel: config.health.parallel })
    }

    /// Goes on for ever.
    pub(super) async fn run(&self, pool: &Pool, metrics: &Metrics) {
        let (found, verdicts) = mpsc::channel(self.parallel);
        tokio::join!(self.take(pool, found), self.conclude(pool, metrics, verdicts));
    }

    async fn take(&self, pool: &Pool, found: mpsc::Sender<Found<Name>>) {
        let places = Arc::new(Semaphore::new(self.parallel));
        let lease = 2 * self.examiner.timeout + MARGIN;
        let (mut is_new, mut complained) = (true, false);
        loop {
            if !self.examiner.is_ready() {
                sleep(EVERY).await;
                continue;
            }
            // A call for a few at a time would be many calls.
            let _ = places.acquire_many((self.parallel / 4).clamp(1, CLAIM) as u32).await;
            let most = places.available_permits().clamp(1, CLAIM);
            let claimed = pool.claim_candidates(most, lease, &self.judging.by, is_new).await;
            let (pause, claimed) = match claimed {
                Ok(Some(claimed)) => {
                    (is_new, complained) = (false, false);
                    (if claimed.len() == most { Duration::ZERO } else { EVERY }, claimed)
                }
                Ok(None) => {
                    if !complained {
                        complained = true;
                        tracing::warn!(
                            "a gateway that began later has other pool.rules or health.url; it judges the candidates"
                        );
                    }
                    (SELDOM, Vec::new())
                }
                Err(error) => {
                    tracing::debug!(%error, "could not take candidates");
                    (SELDOM, Vec::new())
                }
            };
            for name in claimed {
                let Ok(place) = places.clone().try_acquire_owned() else { break };
                tokio::spawn(self.examiner.clone().try_one(name.clone(), name, found.clone(), place));
            }
            sleep(pause).await;
        }
    }

    async fn conclude(&self, pool: &Pool, metrics: &Metrics, mut verdicts: mpsc::Receiver<Found<Name>>) {
        let mut batch = Vec::new();
        let mut complained: Option<Instant> = None;
        while verdicts.recv_many(&mut batch, BATCH).await > 0 {
            // A page could be anybody's: nobody knows these proxies yet.
            for found in batch.iter().filter(|found| found.verdict.is_reachable() && found.verdict.exit.is_some()) {
                self.examiner.has_answered(found, &found.what);
            }
            let doubt = self.examiner.doubt(&batch).await;
            metrics.doubts(Tried::Candidates, doubt.is_some());
            if let Some(doubt) = &doubt
                && complained.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY)
            {
                complained = Some(Instant::now());
                tracing::warn!("no candidate is rejected: {doubt}");
            }
            let tried = batch.iter().map(|found| (&found.what, &found.verdict));
            let memories = match self.examiner.recall(pool, tried, doubt.is_some()).await {
                Ok(memories) => memories,
                Err(error) => {
                    // Their turns come again when the leases are over.
                    tracing::debug!(%error, "could not tell what was found about candidates");
                    batch.clear();
                    continue;
                }
            };
            let judged: Vec<Judged> = batch
                .drain(..)
                .zip(memories)
                .map(|(Found { what: member, verdict, began, .. }, memory)| {
                    let opinion = match began.elapsed() > self.examiner.rules.checked_within {
                        true => Opinion::Unknown,
                        false => self.opinion(&member, &verdict, &memory, doubt.is_some()),
                    };
                    if let Opinion::Rejected(why) = &opinion
                        && tracing::enabled!(tracing::Level::DEBUG)
                    {
                        let (proxy, id) = (member::masked(&member), member::id(&member));
                        tracing::debug!(proxy, id, why, "a candidate was rejected");
                    }
                    metrics.tried(
                        Tried::Candidates,
                        match &opinion {
                            Opinion::Passed => "passed",
                            Opinion::Rejected(_) => "rejected",
                            Opinion::Unknown => "unknown",
                        },
                    );
                    Judged { member, opinion, luck: luck() }
                })
                .collect();
            match pool.judged(&judged, &self.judging).await {
                Ok(entered) => {
                    for name in entered {
                        let (proxy, id) = (member::masked(&name), member::id(&name));
                        tracing::info!(proxy, id, "a candidate has entered the pool");
                    }
                }
                Err(error) => tracing::debug!(%error, "could not tell what was found about candidates"),
            }
        }
    }

    fn opinion(&self, name: &Name, verdict: &Verdict, memory: &Memory, is_doubtful: bool) -> Opinion {
        match (&verdict.fault, Member::parse(name)) {
            (Some(fault), _) if is_doubtful || fault.is_own() => Opinion::Unknown,
            (Some(fault), _) => Opinion::Rejected(fault.reason.clone()),
            (None, Ok(member)) => match self.examiner.rules.judge(&member, verdict, memory, self.examiner.knows_us()) {
                Ruling::Meets => Opinion::Passed,
                Ruling::Breaks(why) => Opinion::Rejected(why),
                Ruling::Unclear => Opinion::Unknown,
            },
            (None, Err(why)) => Opinion::Rejected(why.to_string()),
        }
    }
}
