//! What checks and candidates are tried with: one judge for all, which is asked now and then how this machine looks, and
//! whether the page is known to answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep, timeout};

use crate::config::Config;
use crate::member::{Member, Name};
use crate::pool::{Memory, Pool, PoolError};
use crate::probe::{Fault, Judge, Verdict, probe};
use crate::rules::{Connect, Rules};

/// Between two looks at how this machine looks: its address may change.
const INTRODUCE_EVERY: Duration = Duration::from_secs(10 * 60);
/// The same when the page did not answer.
const INTRODUCE_SOON: Duration = Duration::from_secs(5);

/// Tries members, and knows whether what they are asked for is there.
pub(super) struct Examiner {
    judge: Mutex<Known>,
    pub(super) rules: Rules,
    pub(super) timeout: Duration,
    /// The rules and the judge in one word; the same for all gateways that have the same.
    pub(super) by: String,
}

struct Known {
    judge: Arc<Judge>,
    /// It was asked without a member between.
    knows_us: bool,
    /// When the page was last seen to answer, through anyone or directly.
    answered: Option<Instant>,
}

impl Examiner {
    /// `None`: there is nothing to ask for.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let rules = config.pool.rules.clone();
        let url = config.health.url.clone()?;
        let login = url.authorization().map(|login| login.as_bytes().to_vec());
        let by = format!("{rules:?} {} {login:?}", url.uri());
        let judge = if rules.need_testimony() { Judge::strict(url) } else { Judge::lenient(url) };
        let judge = match &rules.connect {
            None => judge,
            Some(Connect::Judge) => judge.and_tunnel(None),
            Some(Connect::To(place)) => judge.and_tunnel(Some(place.clone())),
        };
        let known = Known { judge: Arc::new(judge), knows_us: false, answered: None };
        // A hash, since the address may have a password in it.
        let by = fred::util::sha1_hash(&by);
        Some(Self { judge: Mutex::new(known), rules, timeout: config.health.timeout, by })
    }

    /// Learns how this machine looks, where that matters; goes on for ever.
    pub(super) async fn run(&self) {
        let mut complained = false;
        while self.rules.need_testimony() {
            let mut judge = Judge::clone(&self.judge());
            let pause = match judge.introduce(&Member::direct(), self.timeout).await {
                Ok(true) => {
                    self.learn(|known| {
                        (known.judge, known.knows_us, known.answered) = (Arc::new(judge), true, Some(Instant::now()));
                    });
                    complained = false;
                    INTRODUCE_EVERY
                }
                Ok(false) => INTRODUCE_EVERY,
                Err(fault) => {
                    if !std::mem::replace(&mut complained, true) {
                        tracing::warn!(%fault, "health.url cannot be asked how this machine looks, so nobody is held to pool.rules.anonymity; trying on");
                    }
                    INTRODUCE_SOON
                }
            };
            sleep(pause).await;
        }
    }

    pub(super) fn judge(&self) -> Arc<Judge> {
        self.learn(|known| known.judge.clone())
    }

    /// Whether the judge was asked without a member between.
    pub(super) fn knows_us(&self) -> bool {
        self.learn(|known| known.knows_us)
    }

    /// Whether what the rules ask for can be found out.
    pub(super) fn is_ready(&self) -> bool {
        !self.rules.need_testimony() || self.knows_us()
    }

    /// Somebody has got the page.
    pub(super) fn has_answered(&self) {
        self.learn(|known| known.answered = Some(Instant::now()));
    }

    /// Tries a member and hands on what was found. The place is free when that is on its way, so there is never more of it than
    /// there are places.
    pub(super) async fn try_one<T>(
        self: Arc<Self>,
        what: T,
        name: Name,
        found: mpsc::Sender<(T, Verdict)>,
        place: OwnedSemaphorePermit,
    ) {
        let verdict = match Member::parse(&name) {
            Ok(member) => probe(&member, &self.judge(), self.timeout).await,
            Err(why) => Verdict { fault: Some(Fault::malformed(&why)), ..Verdict::default() },
        };
        let _ = found.send((what, verdict)).await;
        drop(place);
    }

    /// What is remembered of members that were tried, after this try; nothing if no rule asks for it.
    pub(super) async fn recall<'a>(
        &self,
        pool: &Pool,
        tried: impl Iterator<Item = (&'a Name, &'a Verdict)>,
        is_doubtful: bool,
    ) -> Result<Vec<Memory>, PoolError> {
        if !self.rules.need_memory() {
            return Ok(tried.map(|_| Memory::default()).collect());
        }
        let passed = |verdict: &Verdict| match &verdict.fault {
            None => Some(true),
            Some(fault) => (!is_doubtful && !fault.is_own()).then_some(false),
        };
        let checks: Vec<_> = tried.map(|(name, verdict)| (name.clone(), passed(verdict))).collect();
        pool.tally(&checks).await
    }

    /// Why failures count for nothing at the moment: the page does not answer this machine either. Asks it if need be.
    pub(super) async fn doubt(&self) -> Option<String> {
        let answered = self.learn(|known| known.answered);
        if answered.is_some_and(|at| at.elapsed() <= self.timeout) {
            return None;
        }
        let direct = timeout(self.timeout, probe(&Member::direct(), &self.judge(), self.timeout)).await;
        match direct {
            Ok(Verdict { fault: None, .. }) => {
                self.has_answered();
                None
            }
            Ok(Verdict { fault: Some(fault), .. }) => {
                Some(format!("health.url does not answer this machine either ({fault})"))
            }
            Err(_) => Some("health.url does not answer this machine either".to_owned()),
        }
    }

    fn learn<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.judge.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
