//! What checks and candidates are tried with: one judge for all, which is asked now and then how this machine looks, and
//! whether the page is known to answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Config;
use crate::member::{Member, Name};
use crate::pool::{Memory, Pool, PoolError};
use crate::probe::{Fault, Judge, Verdict, probe};
use crate::rules::{Connect, Rules};

/// Between two looks at how this machine looks: its address may change.
const INTRODUCE_EVERY: Duration = Duration::from_secs(10 * 60);
/// The same when the page did not answer.
const INTRODUCE_SOON: Duration = Duration::from_secs(5);

/// Between two looks whether the page answers.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
    /// When the last try began that has got the page, through anyone or directly.
    answered: Option<Instant>,
    /// Through whom it was got.
    witness: Option<Name>,
    /// It does not answer this machine itself, or did not the last time.
    is_far: bool,
    /// When it was last looked whether it answers.
    looked: Option<Instant>,
}

/// What a try has found.
pub(super) struct Found<T> {
    pub(super) what: T,
    pub(super) verdict: Verdict,
    pub(super) began: Instant,
    ended: Instant,
}

impl<T> Found<T> {
    /// Whether it did not serve, for a reason other than this process'.
    pub(super) fn is_failure(&self) -> bool {
        self.verdict.fault.as_ref().is_some_and(|fault| !fault.is_own())
    }
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
        let known = Known {
            judge: Arc::new(judge),
            knows_us: false,
            answered: None,
            witness: None,
            is_far: false,
            looked: None,
        };
        // A hash, since the address may have a password in it.
        let by = fred::util::sha1_hash(&by);
        Some(Self { judge: Mutex::new(known), rules, timeout: config.health.timeout, by })
    }

    /// Learns how this machine looks, where that matters; goes on for ever.
    pub(super) async fn run(&self) {
        let mut complained = false;
        while self.rules.need_testimony() {
            let mut judge = Judge::clone(&self.judge());
            let began = Instant::now();
            let pause = match judge.introduce(&Member::direct(), self.timeout).await {
                Ok(true) => {
                    self.learn(|known| {
                        (known.judge, known.knows_us) = (Arc::new(judge), true);
                        known.answered = known.answered.max(Some(began));
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

    /// The page was got through this member.
    pub(super) fn has_answered<T>(&self, found: &Found<T>, member: &Name) {
        self.learn(|known| {
            if known.answered < Some(found.began) {
                known.answered = Some(found.began);
                known.witness = Some(member.clone());
            }
        });
    }

    /// Tries a member and hands on what was found. The place is free when that is on its way, so there is never more of it than
    /// there are places.
    pub(super) async fn try_one<T>(
        self: Arc<Self>,
        what: T,
        name: Name,
        found: mpsc::Sender<Found<T>>,
        place: OwnedSemaphorePermit,
    ) {
        let began = Instant::now();
        let verdict = self.probe(&name).await;
        let _ = found.send(Found { what, verdict, began, ended: Instant::now() }).await;
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

    async fn probe(&self, name: &Name) -> Verdict {
        match Member::parse(name) {
            Ok(member) => probe(&member, &self.judge(), self.timeout).await,
            Err(why) => Verdict { fault: Some(Fault::malformed(&why)), ..Verdict::default() },
        }
    }

    /// Why failures among these count for nothing: since then, the page answers neither this machine nor the member through which
    /// it was last got. Looks, if need be: that it had answered before them says little.
    pub(super) async fn doubt<T>(&self, found: &[Found<T>]) -> Option<String> {
        let failed = found.iter().filter(|found| found.is_failure()).map(|found| found.ended).max()?;
        let (answered, looked) = self.learn(|known| (known.answered, known.looked));
        if answered >= Some(failed) {
            return None;
        }
        if let Some(looked) = looked {
            sleep_until(looked + LOOK_EVERY).await;
        }
        let began = Instant::now();
        let (is_far, witness) = self.learn(|known| {
            known.looked = Some(began);
            (known.is_far, known.witness.clone())
        });
        let direct = async { probe(&Member::direct(), &self.judge(), self.timeout).await.fault };
        let through = async {
            match &witness {
                Some(name) => self.probe(name).await.is_reachable(),
                None => false,
            }
        };
        let (fault, has_witness) = match is_far {
            true => tokio::join!(direct, through),
            false => match direct.await {
                None => (None, false),
                fault => (fault, through.await),
            },
        };
        self.learn(|known| {
            known.is_far = fault.is_some();
            if fault.is_none() || has_witness {
                known.answered = known.answered.max(Some(began));
            }
        });
        let fault = fault.filter(|_| !has_witness)?;
        Some(format!("health.url does not answer this machine either ({fault})"))
    }

    fn learn<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.judge.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
