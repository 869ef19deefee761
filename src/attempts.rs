//! The attempts at one request: which member is next, whether there is a next, and what each has shown of its member.

use std::fmt::Write as _;
use std::sync::Arc;

use hyper::Method;
use hyper::header::{HeaderMap, HeaderValue, VIA};
use tokio::time::Instant;

use crate::ban::{Beginning, Judged};
use crate::config::ProxyStatus;
use crate::error::{Blame, Failure};
use crate::forward::Missed;
use crate::head::{self, Framing};
use crate::health::Trial;
use crate::member::{self, Name};
use crate::pool::{Kind, Lease, Parking, PoolError, Stay};
use crate::refusal::{CHOSEN_LOCALLY, Failed, PROXY_STATUS};
use crate::retry::{self, Progress};
use crate::target::Authority;
use crate::upstream::Upstream;
use crate::worker::Worker;

/// The attempts at one request: which member is next, and whether there is a next.
pub(crate) struct Attempts<'a> {
    pub(crate) worker: &'a Arc<Worker>,
    pub(crate) method: &'a Method,
    /// Of the target, if it has banned members, or counts of its own.
    host: Option<String>,
    started: Instant,
    /// Of the attempt under way; 1 is the first.
    pub(crate) number: u32,
    tried: Vec<Name>,
    /// Of the attempt under way, until what it has brought takes it.
    lease: Lease,
    /// Whether the member of the attempt under way was chosen without the store.
    is_local: bool,
    /// If the attempt under way is one.
    trial: Option<Box<Trial>>,
    last: Option<Box<Failed>>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(worker: &'a Arc<Worker>, method: &'a Method, to: &Authority) -> Self {
        let counts = &worker.counts;
        if *method == Method::CONNECT { &counts.tunnels } else { &counts.forwards }.inc();
        Self {
            worker,
            method,
            host: worker.watch.bans.host_of_its_own(&to.host),
            started: Instant::now(),
            number: 0,
            tried: Vec::new(),
            lease: Lease::default(),
            is_local: false,
            trial: None,
            last: None,
        }
    }

    /// Whether the last member was chosen without the store.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Allocates the next member that was not tried yet. One that cannot be parsed is set aside on the way.
    pub(crate) async fn next(&mut self) -> Result<Arc<Upstream>, Failed> {
        self.number += 1;
        if self.number == 1
            && self.worker.watch.is_due()
            && let Some(upstream) = Box::pin(self.try_member()).await
        {
            return Ok(upstream);
        }
        loop {
            let (name, lease) = match self.choose().await {
                Ok(Some(chosen)) => chosen,
                Ok(None) if self.host.as_ref().is_some_and(|host| self.worker.watch.bans.has_banned(host)) => {
                    return Err(self.last_failure_or(Failure::AllBanned));
                }
                Ok(None) => return Err(self.last_failure_or(Failure::PoolEmpty)),
                Err(error) => return Err(self.last_failure_or(error.into())),
            };
            self.is_local = lease.is_local();
            let counts = &self.worker.counts;
            if self.is_local { &counts.locally } else { &counts.by_store }.inc();
            let reason = match self.worker.upstreams.get(&name) {
                Ok(upstream) => {
                    self.lease = lease;
                    return Ok(upstream);
                }
                Err(malformed) => malformed.to_string(),
            };
            drop(lease);
            if self.is_local {
                // Whoever meets it when the store is back sets it aside.
                self.tried.push(Name::copy_from_slice(&name));
            } else {
                Box::pin(self.set_aside(&name, &reason)).await?;
            }
            if self.started.elapsed() >= self.worker.config.retry.deadline {
                return Err(self.last_failure_or(Failure::PoolEmpty));
            }
        }
    }

    async fn choose(&self) -> Result<Option<(Name, Lease)>, PoolError> {
        let pool = &self.worker.pool;
        match &self.host {
            None => pool.allocate(&self.tried).await,
            // On the heap, since it is seldom there.
            Some(host) => Box::pin(pool.allocate_for(host, &self.tried)).await,
        }
    }

    /// A member that was set aside for failing and waits for a request to try it.
    async fn try_member(&mut self) -> Option<Arc<Upstream>> {
        let trial = self.worker.watch.start_trial(&self.worker.pool, self.host.as_deref()).await?;
        let upstream = self.worker.upstreams.get(trial.member()).ok()?;
        // Should the store be away, the trial goes on all the same.
        self.lease = self.worker.pool.hold(trial.member()).await.unwrap_or_default();
        self.trial = Some(Box::new(trial));
        self.worker.counts.trials.inc();
        Some(upstream)
    }

    /// An answer has come through this member.
    pub(crate) fn served(&mut self, upstream: &Upstream) {
        self.worker.watch.bans.remember(&upstream.member);
        if let Some(trial) = self.trial.take() {
            trial.passed();
        } else if self.worker.watch.is_listening() {
            self.worker.watch.served(upstream.member.name());
        }
    }

    /// Judges an answer by the operator's rules, where there are any; gives what is to see its body.
    pub(crate) fn judge(
        &self,
        upstream: &Upstream,
        to: &Authority,
        status: u16,
        framing: Framing,
        has: impl Fn(&str, &dyn Fn(&[u8]) -> bool) -> bool,
    ) -> Option<Box<Beginning>> {
        let bans = &self.worker.watch.bans;
        let answer = Judged { member: upstream.member.name(), host: &to.host, status, framing };
        if bans.has_rules() { bans.judge(&answer, has) } else { None }
    }

    /// The same of a CONNECT that the upstream proxy has refused.
    pub(crate) fn judge_refusal(&self, upstream: &Upstream, to: &Authority, status: u16) {
        let bans = &self.worker.watch.bans;
        if bans.has_rules() {
            bans.judge_refusal(upstream.member.name(), &to.host, status);
        }
    }

    /// What the client is told when there is no further attempt.
    fn last_failure_or(&mut self, failure: Failure) -> Failed {
        self.last.take().map_or(failure.into(), |last| *last)
    }

    /// The lease of the attempt under way, for what goes on after its answer has begun.
    pub(crate) fn take_lease(&mut self) -> Lease {
        std::mem::take(&mut self.lease)
    }

    /// The lease of the attempt under way, where it is.
    pub(crate) fn lease(&mut self) -> &mut Lease {
        &mut self.lease
    }

    async fn set_aside(&self, name: &Name, reason: &str) -> Result<(), Failure> {
        let parking = Parking { kind: Kind::Malformed, reason: reason.to_owned(), stay: Stay::UntilRestored };
        if self.worker.pool.park(name, &parking).await?.is_some() {
            tracing::warn!(proxy = member::masked(name), reason, "set a pool member aside");
        }
        Ok(())
    }

    /// Takes note of a failed attempt.
    ///
    /// # Errors
    /// The failure, when it was the last attempt.
    pub(crate) async fn failed(
        &mut self,
        upstream: Arc<Upstream>,
        missed: Missed,
        body_is_kept: bool,
    ) -> Result<(), Failed> {
        self.lease.end().await;
        let attempt = retry::Attempt {
            number: self.number,
            elapsed: self.started.elapsed(),
            progress: missed.progress,
            method: self.method,
            body_is_kept,
        };
        let goes_on = retry::is_allowed(&missed.failure, &attempt, &self.worker.config.retry);
        let trial = self.trial.take();
        if self.tells_against(&upstream, &missed) {
            match trial {
                Some(trial) => trial.missed(missed.failure.to_string()),
                None => self.worker.watch.failed(upstream.member.name(), || missed.failure.to_string()),
            }
        }
        let error = missed.failure.row().error;
        self.worker.watch.metrics.failed(error);
        tracing::debug!(
            proxy = upstream.member.id(),
            attempt = self.number,
            error,
            goes_on,
            "an attempt failed: {}",
            missed.failure
        );
        if !missed.was_reused {
            self.tried.push(upstream.member.name().clone());
        }
        // What went wrong behind the dialing did so at the last hop.
        let failure = missed.failure.at_hop(&upstream.member, upstream.member.way().count());
        let failed = Failed { failure, upstream: Some(upstream), attempts: self.number, is_local: self.is_local };
        if goes_on {
            self.last = Some(Box::new(failed));
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// Whether another request would have fared no better through this member.
    fn tells_against(&self, upstream: &Upstream, missed: &Missed) -> bool {
        let is_connecting = missed.progress == Progress::Unsent || self.method == Method::CONNECT;
        // A connection that was kept too long says nothing.
        let is_stale =
            missed.was_reused && matches!(missed.failure, Failure::Closed | Failure::Nonsense | Failure::Tls(..));
        !is_stale
            && match missed.failure.row().blame {
                Blame::Member => true,
                Blame::Speaker => is_connecting || upstream.member.is_http_proxy(),
                Blame::Others => false,
            }
    }

    /// Says in the answer which upstream proxy it came through.
    pub(crate) fn sign(&self, fields: &mut HeaderMap, upstream: &Upstream) {
        if let Some(status) = self.proxy_status(upstream) {
            fields.append(PROXY_STATUS, status);
        }
        if let Some(via) = self.worker.via() {
            fields.append(VIA, via.clone());
        }
    }

    /// The same for a head in bytes.
    pub(crate) fn sign_bytes(&self, head: &mut Vec<u8>, upstream: &Upstream) {
        if let Some(status) = self.proxy_status(upstream) {
            head::field(head, "Proxy-Status", status.as_bytes());
        }
        if let Some(via) = self.worker.via() {
            head::field(head, "Via", via.as_bytes());
        }
    }

    fn proxy_status(&self, upstream: &Upstream) -> Option<HeaderValue> {
        if self.worker.config.gateway.proxy_status != ProxyStatus::Always {
            return None;
        }
        if self.number == 1 && !self.is_local {
            return Some(upstream.proxy_status.clone());
        }
        let mut text = format!("evenkeel; next-hop={}", upstream.member.id());
        if self.number > 1 {
            let _ = write!(text, "; attempts={}", self.number);
        }
        if self.is_local {
            text.push_str(CHOSEN_LOCALLY);
        }
        Some(HeaderValue::try_from(text).expect("an id is a token"))
    }
}
