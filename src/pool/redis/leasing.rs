//! Least-concurrent in Redis: who is chosen follows from what all gateways have in flight.
//!
//! Each client is a gateway to Redis, with a name, a hash of what it has in flight (`KEY:leases:NAME`) and a lifetime that it
//! extends in time ([`Leasing::keep_alive`]); `lua/in_flight.lua` tells the keys. So leases need no timers of their own: those of
//! a gateway that died are returned together when its lifetime is over, by whichever gateway notices first.
//! A client per worker, so that everything of one name travels in order on one connection, and one thread keeps its books.
//!
//! Acquiring is one call for up to 64 requests that wait. Releases are gathered and go with the next such call, in front of it on
//! the connection, or by themselves when there is none; nobody waits for them.
//!
//! In doubt, anew. A call without an answer may have counted, and a Redis that was away may have lost or regained data. Then the
//! client takes another name, has Redis return all that the former one had, and registers what its books say. A call under a
//! former name, however late it arrives, does nothing.
//! Not here: which member is chosen, which only `lua/acquire.lua` decides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fred::prelude::Value;
use fred::types::scripts::Script;
use tokio::sync::{Notify, RwLock, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::keys::LeaseKeys;
use super::ledger::{Ledger, Over};
use super::link::Link;
use super::reply::{nonsense, string, strings};
use super::{CHUNK, MAX_BATCH, MAX_WAITING, random_name, scripts, stopped};
use crate::member::Name;
use crate::pool::{Concurrency, Lease, PoolError};

/// The longest from one sign of life to the next, and from one look at the pool for changes to the next.
const LONGEST_BEAT: Duration = Duration::from_secs(1);
/// Members per page of `lua/walk.lua`: 1 to 2 ms in which Redis does nothing else.
const PAGE: i64 = 500;
/// From one page to the next, by whichever gateway: a tenth of Redis' time, 50,000 members a second.
const PAGE_PAUSE: Duration = Duration::from_millis(10);
/// From one beginning to the next, should Redis go on failing.
const RENEWAL_PAUSE: Duration = Duration::from_millis(100);
/// Pieces returned of one lapsed gateway before the next sign of life: 30,000 members.
const MAX_PIECES: usize = 150;
/// Former names that Redis may still know. More are left to lapse.
const MAX_FORMER: usize = 8;

type Answer = Result<Option<(Name, Lease)>, PoolError>;

/// What a request wants a lease of.
pub(super) enum Wish {
    /// The next member that it has not tried.
    Other(Vec<Name>),
    /// The next that it has not tried, and that a host has not banned; with the keys of that host (`lua/unbanned.lua`).
    For([Value; 2], Vec<Name>),
    /// This one, which was chosen otherwise.
    This(Name),
}

impl Wish {
    fn is_any(&self) -> bool {
        matches!(self, Self::Other(tried) if tried.is_empty())
    }

    /// For the script, which takes those that are content with any member by their number. `hosts`: keys of hosts so far.
    fn words(&self, hosts: &mut Vec<Value>) -> impl Iterator<Item = Value> {
        let (mark, host, members) = match self {
            Self::Other(tried) => (tried.len() as i64, None, &tried[..]),
            Self::For(keys, tried) => {
                hosts.extend_from_slice(keys);
                (-2 - tried.len() as i64, Some(Value::from((hosts.len() / 2) as i64)), &tried[..])
            }
            Self::This(member) => (-1, None, std::slice::from_ref(member)),
        };
        std::iter::once(Value::from(mark)).chain(host).chain(members.iter().cloned().map(Value::from))
    }
}

/// A request that waits for a lease.
pub(super) struct Applicant {
    wish: Wish,
    answer: oneshot::Sender<Answer>,
    deadline: Instant,
}

/// One client's side of it.
pub(super) struct Leasing {
    keys: LeaseKeys,
    /// As many requests as a member may have in flight; 0: any number.
    most: u64,
    /// How long it is believed alive without a sign.
    lifetime: Duration,
    /// From one sign to the next.
    beat: Duration,
    ledger: Arc<Ledger>,
    /// Read for as long as a call under its name is under way, written to begin anew: no call is then under way.
    registration: RwLock<Registration>,
    /// A name is wanted: without it nobody need know of this client.
    is_wanted: AtomicBool,
    is_in_doubt: AtomicBool,
    /// One of the two has been set.
    wake: Notify,
    /// `KEY:load` does not follow from `KEY`.
    is_behind: Notify,
}

struct Registration {
    /// What all names of this client begin with.
    stem: String,
    /// Names so far.
    number: u64,
    /// The name, when Redis knows it.
    name: Option<String>,
    /// Names that Redis may still know.
    former: Vec<String>,
    is_closed: bool,
}

impl Leasing {
    /// `timeout`: the longest that a request waits for Redis.
    pub(super) fn new(key: &str, concurrency: Concurrency, timeout: Duration) -> Self {
        Self {
            keys: LeaseKeys::of(key),
            most: concurrency.max_in_flight,
            // Together less than the heartbeat: so long after its last sign of life at most, what a dead gateway had is returned.
            lifetime: concurrency.heartbeat * 5 / 8,
            beat: LONGEST_BEAT.min(concurrency.heartbeat / 4),
            // Without a limit, whoever asks early is given a member all the same.
            ledger: Ledger::new((concurrency.max_in_flight > 0).then_some(timeout)),
            registration: RwLock::new(Registration {
                stem: random_name(),
                number: 0,
                name: None,
                former: Vec::new(),
                is_closed: false,
            }),
            is_wanted: AtomicBool::new(false),
            is_in_doubt: AtomicBool::new(false),
            wake: Notify::new(),
            is_behind: Notify::new(),
        }
    }

    /// The queue to [`Leasing::run`].
    pub(super) fn queue() -> (mpsc::Sender<Applicant>, mpsc::Receiver<Applicant>) {
        mpsc::channel(MAX_WAITING)
    }

    /// Waits for a lease in `queue`; see [`crate::pool::Pool::allocate`]. One that comes when nobody waits any more is over at once.
    pub(super) async fn apply(queue: &mpsc::Sender<Applicant>, link: &Link, wish: Wish) -> Answer {
        let deadline = link.deadline();
        let (answer, answered) = oneshot::channel();
        queue.try_send(Applicant { wish, answer, deadline }).map_err(|e| match e {
            mpsc::error::TrySendError::Full(_) => PoolError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(stopped()),
            Err(_) => Err(link.too_late()),
        }
    }

    /// Takes part from now on, not only from the first request on.
    pub(super) fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Serves those in `queue`, tells what is over, and gives signs of life; ends when nobody is left to ask.
    pub(super) async fn run(&self, link: &Link, queue: mpsc::Receiver<Applicant>) {
        tokio::select! {
            () = self.acquire_in_turn(link, queue) => {}
            () = self.release_all(link) => {}
            () = self.keep_alive(link) => {}
            () = self.follow(link) => {}
        }
    }

    /// For good: returns what is in flight, since whoever holds it is about to end, and takes no more requests.
    pub(super) async fn close(&self, link: &Link) -> Result<(), PoolError> {
        let mut registration = self.registration.write().await;
        registration.is_closed = true;
        let name = registration.name.take();
        registration.former.extend(name);
        self.return_former(link, &mut registration).await
    }

    /// One call at a time, for as many as wait.
    async fn acquire_in_turn(&self, link: &Link, mut queue: mpsc::Receiver<Applicant>) {
        let mut batch: Vec<Applicant> = Vec::with_capacity(MAX_BATCH);
        loop {
            // Those who must ask again go first.
            if batch.is_empty() && queue.recv_many(&mut batch, MAX_BATCH).await == 0 {
                return;
            }
            batch.retain(|applicant| !applicant.answer.is_closed());
            // The script answers those first whom any member will do.
            batch.sort_by_key(|applicant| !applicant.wish.is_any());
            let Some(deadline) = batch.iter().map(|applicant| applicant.deadline).max() else { continue };
            match self.acquire(link, &batch, deadline).await {
                Ok(answers) => {
                    let asked = std::mem::take(&mut batch).into_iter().zip(answers);
                    batch.extend(asked.filter_map(|(applicant, answer)| self.deliver(applicant, &answer)));
                }
                Err(error) => {
                    for applicant in batch.drain(..) {
                        let _ = applicant.answer.send(Err(error.clone())); // the receiver may be gone by now
                    }
                }
            }
        }
    }

    /// Gives an applicant what the script says; the applicant, when it is to ask again.
    fn deliver(&self, applicant: Applicant, answer: &Bytes) -> Option<Applicant> {
        let answer = match answer.first() {
            Some(b'+') => Ok(Some(self.ledger.grant(&answer[1..]))),
            Some(b'-') => Ok(None),
            Some(b'!') => Err(PoolError::AtLimit),
            _ => return Some(applicant),
        };
        // Whoever is gone drops the lease with the answer.
        let _ = applicant.answer.send(answer);
        None
    }

    /// An answer for each of the batch, in its order.
    async fn acquire(&self, link: &Link, batch: &[Applicant], deadline: Instant) -> Result<Vec<Bytes>, PoolError> {
        // Once because nobody has registered yet, once because Redis has just lost its data; more is a fault.
        for _ in 0..3 {
            let registration = self.registration.read().await;
            if registration.is_closed {
                return Err(stopped());
            }
            let number = registration.number;
            let Some(name) = &registration.name else {
                drop(registration);
                self.want();
                self.register_anew(link, number).await?;
                continue;
            };
            let over = self.ledger.take_over(CHUNK);
            let (_, replied) = tokio::join!(
                // First, and so first on the connection: what is over is free for those who ask now.
                biased;
                self.release(link, name, &over),
                self.acquire_as(link, name, batch, deadline)
            );
            match replied? {
                Some(answers) => return Ok(answers),
                None => {
                    drop(registration);
                    self.say_lapsed();
                    self.register_anew(link, number).await?;
                }
            }
        }
        Err(PoolError::Refused("it forgets this gateway again and again".to_owned()))
    }

    /// `None`: Redis does not know the name.
    async fn acquire_as(
        &self,
        link: &Link,
        name: &str,
        batch: &[Applicant],
        deadline: Instant,
    ) -> Result<Option<Vec<Bytes>>, PoolError> {
        let any = batch.iter().filter(|applicant| applicant.wish.is_any()).count();
        let args = [name.into(), (self.most as i64).into(), (any as i64).into()].into_iter();
        let mut hosts = Vec::new();
        let mut words = Vec::new();
        for applicant in &batch[any..] {
            words.extend(applicant.wish.words(&mut hosts));
        }
        let script = if hosts.is_empty() { &scripts::ACQUIRE } else { &scripts::ACQUIRE_FOR };
        let keys = [&self.keys.of_gateway(name.as_bytes())[..], &hosts].concat();
        let asked = self.ask(link, script, &keys, args.chain(words), deadline).await;
        let mut reply = asked.inspect_err(|_| self.doubt())?;
        let state = reply.remove(0);
        match &state[..] {
            b"lapsed" => return Ok(None),
            b"behind" => self.is_behind.notify_one(),
            _ => {}
        }
        let is_answer = |answer: &Bytes| matches!(answer.first(), Some(b'+' | b'-' | b'!' | b'~'));
        if reply.len() != batch.len() || !reply.iter().all(is_answer) {
            self.doubt();
            return Err(nonsense());
        }
        Ok(Some(reply))
    }

    /// Tells what is over when nobody asks for a member.
    async fn release_all(&self, link: &Link) {
        loop {
            self.ledger.ended().await;
            loop {
                let registration = self.registration.read().await;
                let over = self.ledger.take_over(CHUNK);
                if over.members.is_empty() {
                    break;
                }
                match &registration.name {
                    Some(name) => self.release(link, name, &over).await,
                    None => self.ledger.is_told(&over),
                }
            }
        }
    }

    /// Tells Redis what is over. Should that fail, what it is told when the client begins anew is right as well.
    async fn release(&self, link: &Link, name: &str, over: &Over) {
        if over.members.is_empty() {
            return;
        }
        let args = std::iter::once(name.into()).chain(with_numbers(&over.members));
        let keys = self.keys.of_gateway(name.as_bytes());
        match self.ask(link, &scripts::RELEASE, &keys, args, link.deadline()).await {
            Ok(state) if state[0] == "lapsed" => {
                self.say_lapsed();
                self.doubt();
            }
            Ok(_) => self.ledger.is_told(over),
            Err(error) => {
                tracing::debug!(%error, "could not tell the pool which requests are over");
                self.doubt();
            }
        }
    }

    /// Gives a sign of life in time, and begins anew when there is doubt.
    async fn keep_alive(&self, link: &Link) {
        // The first connection gives no doubt about what was before it.
        let _ = timeout(LONGEST_BEAT, link.connected()).await;
        let mut ticks = interval(self.beat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.wake.notified() => {}
                // It may be another Redis, or one that has lost its data, or found older.
                () = link.connected() => self.is_in_doubt.store(true, Ordering::Relaxed),
            }
            if !self.is_wanted.load(Ordering::Relaxed) {
                continue;
            }
            let (number, name) = {
                let registration = self.registration.read().await;
                if registration.is_closed {
                    return std::future::pending().await;
                }
                (registration.number, registration.name.clone())
            };
            let is_in_doubt = self.is_in_doubt.swap(false, Ordering::Relaxed);
            let beat = match name {
                Some(name) if !is_in_doubt => self.give_sign(link, number, &name).await,
                _ => {
                    let begun = self.register_anew(link, number).await;
                    sleep(RENEWAL_PAUSE).await;
                    begun
                }
            };
            if let Err(error) = beat {
                tracing::debug!(%error, "could not give the pool a sign of life");
            }
        }
    }

    async fn give_sign(&self, link: &Link, number: u64, name: &str) -> Result<(), PoolError> {
        let args = [name.into(), milliseconds(self.lifetime)];
        let keys = self.keys.of_gateway(name.as_bytes());
        let mut reply = self.ask(link, &scripts::HEARTBEAT, &keys, args, link.deadline()).await?;
        let state = reply.remove(0);
        match &state[..] {
            b"lapsed" => {
                self.say_lapsed();
                return self.register_anew(link, number).await;
            }
            b"behind" => self.is_behind.notify_one(),
            _ => {}
        }
        for lapsed in reply {
            tracing::info!(gateway = %lapsed.escape_ascii(), "a gateway gave no sign of life; what it had in flight is returned");
            self.reap(link, &lapsed, "other", MAX_PIECES).await?;
        }
        Ok(())
    }

    /// Takes another name, and registers what the books say. `seen`: the number of the name that will not do any more; when there
    /// is another by now, that one does.
    async fn register_anew(&self, link: &Link, seen: u64) -> Result<(), PoolError> {
        let mut registration = self.registration.write().await;
        if registration.is_closed || registration.number != seen && registration.name.is_some() {
            return Ok(());
        }
        let name = registration.name.take();
        registration.former.extend(name);
        // First what the former name had: should nothing be left of that in Redis, nothing of the new one's is returned for it.
        self.return_former(link, &mut registration).await?;
        registration.number += 1;
        let name = format!("{}.{}", registration.stem, registration.number);
        let keys = self.keys.of_gateway(name.as_bytes());
        // Until all of it has succeeded, the name is one that may have to be returned.
        registration.former.push(name.clone());
        let balance = self.ledger.balance();
        let requests: u64 = balance.members.iter().map(|(_, held)| held).sum();
        let mut pieces = balance.members.chunks(CHUNK);
        // Also when there is nothing in flight.
        let mut piece = Some(pieces.next().unwrap_or_default());
        while let Some(members) = piece {
            let args = [name.as_str().into(), milliseconds(self.lifetime)].into_iter().chain(with_numbers(members));
            self.ask(link, &scripts::REGISTER, &keys, args, link.deadline()).await?;
            piece = pieces.next();
        }
        // A script that Redis must be sent first would come behind that of who asks next: nothing is over, and it is known.
        self.release(link, &name, &Over::nothing()).await;
        self.ledger.is_told(&balance);
        registration.former.pop();
        tracing::debug!(gateway = name, requests, "registered with the pool");
        registration.name = Some(name);
        Ok(())
    }

    async fn return_former(&self, link: &Link, registration: &mut Registration) -> Result<(), PoolError> {
        let excess = registration.former.len().saturating_sub(MAX_FORMER);
        registration.former.drain(..excess);
        while let Some(name) = registration.former.last() {
            self.reap(link, &Bytes::copy_from_slice(name.as_bytes()), "own", usize::MAX).await?;
            registration.former.pop();
        }
        Ok(())
    }

    /// Has Redis return what `name` has in flight, at most so many pieces of it.
    async fn reap(&self, link: &Link, name: &Bytes, whose: &'static str, most: usize) -> Result<(), PoolError> {
        let mut cursor = Bytes::from_static(b"0");
        for _ in 0..most {
            let args = [name.clone().into(), Value::from_static_str(whose), cursor.into()];
            let keys = self.keys.of_gateway(name);
            cursor = self.ask(link, &scripts::REAP, &keys, args, link.deadline()).await?.remove(0);
            if cursor == "0" {
                break;
            }
        }
        Ok(())
    }

    /// Looks for what others have changed in the pool: a page in a while, and all of it when something shows.
    async fn follow(&self, link: &Link) {
        let mut ticks = interval(LONGEST_BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => if self.is_wanted.load(Ordering::Relaxed) {
                    let _ = self.walk(link).await; // whoever needs Redis says that it is away
                },
                () = self.is_behind.notified() => {
                    while !matches!(self.walk(link).await.as_deref(), Err(_) | Ok(b"over")) {
                        sleep(PAGE_PAUSE).await;
                    }
                }
            }
        }
    }

    async fn walk(&self, link: &Link) -> Result<Bytes, PoolError> {
        let args = [Value::from(PAGE), milliseconds(PAGE_PAUSE)];
        Ok(self.ask(link, &scripts::WALK, &self.keys.of_walk(), args, link.deadline()).await?.remove(0))
    }

    /// Runs a script that replies with a string or some, at least one.
    async fn ask(
        &self,
        link: &Link,
        script: &Script,
        keys: &[Value],
        args: impl IntoIterator<Item = Value>,
        deadline: Instant,
    ) -> Result<Vec<Bytes>, PoolError> {
        match link.run(script, keys, args, deadline).await {
            Ok(reply @ Value::Array(_)) => {
                strings(reply).and_then(|all| if all.is_empty() { Err(nonsense()) } else { Ok(all) })
            }
            Ok(reply) => string(reply).map(|one| vec![one]),
            Err(error) => Err(error),
        }
    }

    /// It is open what a call has done.
    fn doubt(&self) {
        self.is_in_doubt.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    fn say_lapsed(&self) {
        tracing::info!("the pool does not know this gateway (any more); it is told anew what is in flight");
    }
}

fn with_numbers(members: &[(Name, u64)]) -> impl Iterator<Item = Value> {
    members.iter().flat_map(|(member, number)| [Value::from(member.clone()), Value::from(*number as i64)])
}

fn milliseconds(span: Duration) -> Value {
    Value::from(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}
