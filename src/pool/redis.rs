//! The pool kept in Redis, shared by every gateway that uses the same key.
//!
//! `KEY` is a sorted set of members, the score of each how many allocations it has had; what else is known of members is
//! in keys that begin with `KEY:` (`keys`, `members`). Choose-then-count is one script (`lua/allocate.lua`): as two
//! commands, two gateways could take the same member. Requests that arrive while a script call is on its way share the next one, so under load Redis
//! runs one call for up to 64 requests; an idle gateway makes one call for one request, and nobody waits to gather.
//!
//! Time: a request hears back within `timeout`, whatever Redis does. A break shorter than that is bridged (the
//! request waits for the new connection); when Redis has been away for longer, it is refused at once.
//! Not twice: a call that was sent is never sent again, since it may have counted. Not late: a call whose time ran
//! out before it was sent is never sent; one that was sent and not answered makes the connection suspect, and nothing
//! more is sent until a new one has answered. So a frozen Redis wakes up to one old call per gateway worker, beside
//! the retries that were on their way.
//! Under least-concurrent all of that is done by `leasing`.
//! Not here: dialing members, what their bytes mean, and any choice of member outside the script.
//! Cost: one round trip per call; 3 to 5 us of Redis' CPU per allocation under load, 50 alone (see the script).

mod bans;
mod candidates;
mod inspect;
mod keys;
mod leasing;
mod ledger;
mod link;
mod members;
mod reply;
mod scripts;
mod sources;
mod standby;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use fred::prelude::Value;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout_at};

pub(crate) use link::{SCHEMES, has_hash_tag};

use super::ahead::{Ahead, Prefetch};
use super::local::Unknown;
use super::{Concurrency, Lease, Local, PerHost, PoolError};
use crate::member::Name;
use keys::{Keys, LeaseKeys};
use leasing::{Applicant, Leasing, Wish};
pub(super) use ledger::Ledger;
use link::Link;
use reply::{nonsense, number, string, strings};

/// As many allocations as one script call makes at most; `lua/allocate.lua` refuses more.
const MAX_BATCH: usize = 64;
/// Requests that may wait for the next call: 64 calls' worth, which a Redis 1 ms away works off in 64 ms.
const MAX_WAITING: usize = 64 * MAX_BATCH;
/// Members per call that takes a list: 2 to 3 ms in which Redis does nothing else.
const CHUNK: usize = 200;
/// Members that are read or looked up at once, which is quicker.
const LOOKUP: usize = 1_000;

/// The name of every script that pools in Redis run, mostly that of its file in `lua/`, and the SHA1 digest by which Redis knows
/// it: what its slow log and `MONITOR` show of a call.
pub fn scripts() -> impl Iterator<Item = (String, String)> {
    scripts::digests()
}

/// One client of one pool in Redis. Clones share its connection; when the last one goes, the connection does.
#[derive(Clone)]
pub struct Redis {
    shared: Arc<Shared>,
    waiting: mpsc::Sender<Waiter>,
    /// Under least-concurrent, instead of `waiting`.
    applying: Option<mpsc::Sender<Applicant>>,
}

/// A request that waits for its member.
struct Waiter {
    answer: oneshot::Sender<Result<Option<Name>, PoolError>>,
    deadline: Instant,
}

/// What the requests of one client share.
struct Shared {
    link: Link,
    keys: Keys,
    lease_keys: LeaseKeys,
    /// Allocations made ahead of need.
    ahead: Mutex<Ahead>,
    /// Half of them are gone.
    is_low: Notify,
    /// Held while a call of [`Shared::allocate_in_turn`] is under way.
    turn: tokio::sync::Mutex<()>,
    /// Of how many turns a member gets one that catches up slowly, where there may be such.
    ramp_every: OnceLock<u64>,
    /// Where hosts have counts of their own.
    per_host: OnceLock<PerHost>,
    /// Under least-concurrent.
    leasing: Option<Leasing>,
    /// Who chooses while Redis is away, if anybody may.
    local: OnceLock<Arc<Local>>,
    /// What Redis knows this client by that tells it of such choices.
    name: String,
}

impl Redis {
    /// Makes a client for the pool `key` and returns at once; connecting goes on in the background, for ever, on the
    /// runtime this is called in. So a gateway starts also when Redis is not there yet.
    ///
    /// `url` is `redis://`, `rediss://` (TLS; the system's roots), `redis+unix://`, `redis-cluster://` or
    /// `redis-sentinel://`. `timeout` bounds every call, including the wait for a connection. `prefetch`: how many
    /// allocations this client makes ahead of need.
    ///
    /// # Errors
    /// The URL cannot be used, in words for an operator; they never contain the password.
    pub fn connect(url: &str, key: &str, timeout: Duration, prefetch: Prefetch) -> Result<Self, String> {
        Self::open(url, key, timeout, prefetch, None)
    }

    /// As [`Redis::connect`], for a pool whose members are chosen by what they have in flight.
    ///
    /// # Errors
    /// As there.
    pub fn connect_least_concurrent(
        url: &str,
        key: &str,
        timeout: Duration,
        concurrency: Concurrency,
    ) -> Result<Self, String> {
        Self::open(url, key, timeout, Prefetch::NONE, Some(Leasing::new(key, concurrency, timeout)))
    }

    fn open(
        url: &str,
        key: &str,
        timeout: Duration,
        prefetch: Prefetch,
        leasing: Option<Leasing>,
    ) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            link: Link::new(url, key, timeout)?,
            keys: Keys::of(key),
            lease_keys: LeaseKeys::of(key),
            ahead: Mutex::new(Ahead::new(prefetch)),
            is_low: Notify::new(),
            turn: tokio::sync::Mutex::default(),
            ramp_every: OnceLock::new(),
            per_host: OnceLock::new(),
            leasing,
            local: OnceLock::new(),
            name: random_name(),
        });
        let (waiting, queue) = mpsc::channel(MAX_WAITING);
        let (applying, applicants) = shared.leasing.is_some().then(Leasing::queue).unzip();
        let worker = shared.clone();
        tokio::spawn(async move {
            tokio::select! {
                // Ends when the last `Redis` is dropped, and takes the connection along.
                () = worker.allocate_in_turn(queue) => {}
                () = worker.lease(applicants) => {}
                () = worker.link.keep() => {}
            }
        });
        Ok(Self { shared, waiting, applying })
    }

    /// Also chooses members that catch up slowly ([`super::Initial::Ramp`]), each at most once in `every` allocations. All
    /// gateways of a pool should do so, or none.
    #[must_use]
    pub fn with_ramp(self, every: u64) -> Self {
        // Once only: whoever comes later has nothing else to say.
        let _ = self.shared.ramp_every.set(every);
        self
    }

    /// Also keeps counts for each host, which [`super::Pool::allocate_for`] then goes by. All gateways of a pool should do so, or
    /// none.
    #[must_use]
    pub fn with_hosts(self, limits: PerHost) -> Self {
        let _ = self.shared.per_host.set(limits);
        self
    }

    /// Has members chosen by `local` while Redis is away, under least-used. The clients of all workers share one, and one of them
    /// must stand by ([`super::Pool::stand_by`]).
    #[must_use]
    pub fn with_local(self, local: Arc<Local>) -> Self {
        // Once only: whoever comes later has nothing else to say.
        let _ = self.shared.local.set(local);
        self
    }

    /// See [`super::Pool::allocate`]. The name is a slice of the buffer it was received in: copy it to keep it long.
    ///
    /// When the request is gone before its answer comes, its allocation is counted all the same.
    pub(super) async fn allocate(&self, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        if let Some(queue) = &self.applying {
            let wish = Wish::Other(tried.to_vec());
            return Box::pin(Leasing::apply(queue, &self.shared.link, wish)).await;
        }
        self.or_here(self.least_used(tried).await, tried)
    }

    /// What Redis has chosen; where it is away, and that is wanted and possible, a choice without it.
    fn or_here(
        &self,
        chosen: Result<Option<Name>, PoolError>,
        tried: &[Name],
    ) -> Result<Option<(Name, Lease)>, PoolError> {
        match (chosen, self.shared.local.get()) {
            (Ok(chosen), _) => Ok(chosen.map(|name| (name, Lease::default()))),
            (Err(error), Some(local)) if error.is_away() => {
                let chosen = local.choose(tried, Instant::now()).map_err(|Unknown| error)?;
                Ok(chosen.map(|name| (name.clone(), Lease::local(name))))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// See [`super::Pool::allocate_for`].
    pub(super) async fn allocate_for(&self, host: &str, tried: &[Name]) -> Result<Option<(Name, Lease)>, PoolError> {
        if let Some(queue) = &self.applying {
            let wish = Wish::For(self.shared.keys.of_host(host), tried.to_vec());
            return Box::pin(Leasing::apply(queue, &self.shared.link, wish)).await;
        }
        let chosen = Box::pin(self.least_used_for(host, tried)).await;
        self.or_here(chosen, tried)
    }

    /// See [`super::Pool::hold`].
    pub(super) async fn hold(&self, member: &Name) -> Result<Lease, PoolError> {
        let Some(queue) = &self.applying else { return Ok(Lease::default()) };
        let held = Leasing::apply(queue, &self.shared.link, Wish::This(member.clone())).await?;
        Ok(held.map(|(_, lease)| lease).unwrap_or_default())
    }

    async fn least_used(&self, tried: &[Name]) -> Result<Option<Name>, PoolError> {
        let deadline = self.shared.link.deadline();
        if !tried.is_empty() {
            // On the heap: fred's futures are large, and every request's would have room for one.
            return Ok(Box::pin(self.shared.allocate(1, tried, deadline)).await?.pop());
        }
        if let Some(name) = self.shared.take_ready() {
            return Ok(Some(name));
        }
        let (answer, answered) = oneshot::channel();
        self.waiting.try_send(Waiter { answer, deadline }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => PoolError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(stopped()),
            Err(_) => Err(self.shared.link.too_late()),
        }
    }

    /// See [`super::Pool::register`].
    pub(super) fn register(&self) {
        if let Some(leasing) = &self.shared.leasing {
            leasing.want();
        }
    }

    /// See [`super::Pool::unregister`].
    pub(super) async fn unregister(&self) -> Result<(), PoolError> {
        match &self.shared.leasing {
            Some(leasing) => leasing.close(&self.shared.link).await,
            None => Ok(()),
        }
    }

    /// See [`super::Pool::stop_prefetching`].
    pub(super) async fn stop_prefetching(&self) -> Result<(), PoolError> {
        let unused = self.shared.ahead().close();
        // A call under way may bring more, and gives it back itself.
        let _turn = self.shared.turn.lock().await;
        self.shared.give_back(unused).await
    }
}

impl Shared {
    /// Serves those who wait, in the order they asked, one script call at a time; ends when nobody is left to ask.
    ///
    /// With prefetching, the same calls fill up what is kept ready, and what grew too old is given back. An idle pool is
    /// left alone: the next request after a pause waits for Redis, and has the following ones fetched along with its own.
    async fn allocate_in_turn(&self, mut queue: mpsc::Receiver<Waiter>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        loop {
            tokio::select! {
                biased;
                count = queue.recv_many(&mut batch, MAX_BATCH) => if count == 0 { return },
                () = self.is_low.notified() => {}
                () = self.expiry() => {
                    let old = self.ahead().expired(Instant::now());
                    self.give_back_or_say(old).await;
                    continue;
                }
            }
            if !batch.is_empty() {
                // Whoever is about to ask comes along: the runtime looks at its sockets once more, and nobody waits.
                yield_now().await;
                while batch.len() < MAX_BATCH
                    && let Ok(waiter) = queue.try_recv()
                {
                    batch.push(waiter);
                }
            }
            // Who has given up needs no member. Whoever leaves from here on is counted.
            batch.retain(|waiter| !waiter.answer.is_closed());
            let n = (batch.len() + self.ahead().room()).min(MAX_BATCH);
            if n == 0 {
                continue;
            }
            // The last to come waits longest, so nobody is cut short by another's deadline.
            let deadline = batch.last().map_or_else(|| self.link.deadline(), |waiter| waiter.deadline);
            let turn = self.turn.lock().await;
            let mut members = self.allocate(n, &[], deadline).await.map(Vec::into_iter);
            for waiter in batch.drain(..) {
                let member = members.as_mut().map(Iterator::next).map_err(|e| e.clone());
                let _ = waiter.answer.send(member); // the receiver may be gone by now
            }
            if let Ok(rest) = members {
                let refused = self.ahead().put(rest.collect(), Instant::now());
                self.give_back_or_say(refused).await;
            }
            drop(turn);
        }
    }

    /// Never ends, where there is nothing to lease.
    async fn lease(&self, applicants: Option<mpsc::Receiver<Applicant>>) {
        match (&self.leasing, applicants) {
            (Some(leasing), Some(applicants)) => leasing.run(&self.link, applicants).await,
            _ => std::future::pending().await,
        }
    }

    /// A member allocated ahead of need, if there is one; asks for more in time.
    fn take_ready(&self) -> Option<Name> {
        let mut ahead = self.ahead();
        if ahead.is_empty() {
            return None;
        }
        let name = ahead.take(Instant::now());
        if name.is_some() && ahead.is_low() {
            self.is_low.notify_one();
        }
        name
    }

    /// Ends when something that is ready has become too old; never, when nothing is.
    async fn expiry(&self) {
        let next = self.ahead().next_expiry();
        match next {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// What cannot be given back stays counted.
    async fn give_back_or_say(&self, unused: Vec<Name>) {
        if let Err(error) = self.give_back(unused).await {
            tracing::debug!(%error, "could not give unused allocations back");
        }
    }

    async fn give_back(&self, unused: Vec<Name>) -> Result<(), PoolError> {
        for chunk in unused.chunks(CHUNK) {
            let args = chunk.iter().cloned().map(Value::from);
            number::<u64>(&string(
                self.link.run(&scripts::GIVE_BACK, self.keys.all(), args, self.link.deadline()).await?,
            )?)?;
        }
        Ok(())
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of `lua/allocate.lua`, or `lua/ramp.lua`: at most `n` members, in order.
    async fn allocate(&self, n: usize, tried: &[Name], deadline: Instant) -> Result<Vec<Name>, PoolError> {
        let tried = tried.iter().cloned().map(Value::from);
        let n_value = Value::from(n as i64);
        let reply = match self.ramp_every.get() {
            None => {
                let args = std::iter::once(n_value).chain(tried);
                self.link.run(&scripts::ALLOCATE, self.keys.set(), args, deadline).await?
            }
            Some(every) => {
                let args = [n_value, every.to_string().into()].into_iter().chain(tried);
                self.link.run(&scripts::RAMP, self.keys.all(), args, deadline).await?
            }
        };
        let members = strings(reply)?;
        if members.len() > n { Err(nonsense()) } else { Ok(members) }
    }
}

/// One that no other client has.
fn random_name() -> String {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    format!("{random:016x}")
}

fn stopped() -> PoolError {
    PoolError::Unreachable("the runtime it was connected on has ended".to_owned())
}
