//! The pool kept in Redis, shared by every gateway that uses the same key.
//!
//! `KEY` is a sorted set of members, the score of each how many allocations it has had; `KEY:parked` is a hash of
//! those set aside. Choose-then-count is one script (`lua/allocate.lua`): as two commands, two gateways could take
//! the same member. Requests that arrive while a script call is on its way share the next one, so under load Redis
//! runs one call for up to 64 requests; an idle gateway makes one call for one request, and nobody waits to gather.
//!
//! Time: a request hears back within `timeout`, whatever Redis does. A break shorter than that is bridged (the
//! request waits for the new connection); when Redis has been away for longer, it is refused at once.
//! Not twice: a call that was sent is never sent again, since it may have counted. Not late: a call whose time ran
//! out before it was sent is never sent; one that was sent and not answered makes the connection suspect, and nothing
//! more is sent until a new one has answered. So a frozen Redis wakes up to one old call per gateway worker, beside
//! the retries that were on their way.
//! Not here: dialing members, what their bytes mean, and any choice of member outside the script.
//! Cost: one round trip per call; 3 to 5 us of Redis' CPU per allocation under load, 50 alone (see the script).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fred::prelude::{
    Client, ClientLike, Config, ConnectionConfig, Error as FredError, ErrorKind, EventInterface, FredResult, Options,
    PerformanceConfig, ReconnectPolicy, TcpConfig, Value,
};
use fred::types::config::ReconnectError;
use fred::types::scripts::Script;
use fred::types::{ClusterHash, CustomCommand};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::ahead::{Ahead, Prefetch};
use super::{Entry, Initial, Parked, PoolError};
use crate::member::Name;

/// As many allocations as one script call makes at most; `lua/allocate.lua` refuses more.
const MAX_BATCH: usize = 64;
/// Requests that may wait for the next call: 64 calls' worth, which a Redis 1 ms away works off in 64 ms.
const MAX_WAITING: usize = 64 * MAX_BATCH;
/// Members per call of `add` and `remove`: about 1 ms in which Redis does nothing else.
const CHUNK: usize = 1_000;
/// Members per page of a listing: 1 MB or so, a few ms of Redis' time.
const PAGE: usize = 10_000;
/// For TCP, TLS and the first commands on a new connection. Longer than one lost SYN (repeated after 1 s).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between attempts to connect; plus up to half of it, so that many gateways do not come back in step.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// fred enforces the timeout of a command itself and so knows not to send it later; ours is behind it, in case
/// fred's does not fire (fred#353).
const GRACE: Duration = Duration::from_millis(100);
/// Commands in fred's own queue. Ours holds requests back before they become commands, so this is never full.
const MAX_COMMANDS: usize = 1_024;

static ALLOCATE: LazyLock<Script> = LazyLock::new(|| Script::from_lua(include_str!("../../lua/allocate.lua")));
static ADD: LazyLock<Script> = LazyLock::new(|| Script::from_lua(include_str!("../../lua/add.lua")));
static PARK: LazyLock<Script> = LazyLock::new(|| Script::from_lua(include_str!("../../lua/park.lua")));
static GIVE_BACK: LazyLock<Script> = LazyLock::new(|| Script::from_lua(include_str!("../../lua/give_back.lua")));
static REMOVE: LazyLock<Script> = LazyLock::new(|| Script::from_lua(include_str!("../../lua/remove.lua")));

/// One client of one pool in Redis. Clones share its connection; when the last one goes, the connection does.
#[derive(Clone)]
pub struct Redis {
    link: Arc<Link>,
    waiting: mpsc::Sender<Waiter>,
}

/// A request that waits for its member.
struct Waiter {
    answer: oneshot::Sender<Result<Option<Name>, PoolError>>,
    deadline: Instant,
}

/// The connection, and what is known about its health.
struct Link {
    client: Client,
    /// The sorted set.
    key: Value,
    /// The hash of those set aside.
    parked: Value,
    /// Where both live in a cluster.
    slot: ClusterHash,
    timeout: Duration,
    health: Mutex<Health>,
    /// Allocations made ahead of need.
    ahead: Mutex<Ahead>,
    /// Half of them are gone.
    is_low: Notify,
    /// Held while a call of [`Link::allocate_in_turn`] is under way.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Health {
    /// When the connection was first found missing; `None` while there is one.
    down_since: Option<Instant>,
    /// What fred said last about connecting, for the error message.
    reason: String,
    /// The reconnection that was asked for because a call had no answer.
    redial: Option<JoinHandle<()>>,
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
        let scheme = url.split("://").next().unwrap_or_default();
        if !SCHEMES.contains(&scheme) {
            return Err(format!("the store's URL must start with one of {}", SCHEMES.join("://, ") + "://"));
        }
        // fred's messages name the kind of mistake; what may follow after a colon is a piece of the URL.
        let mut config = Config::from_url(url).map_err(|e| {
            format!("the store's URL cannot be used: {}", e.details().split(": ").next().unwrap_or_default())
        })?;
        // The first attempt at once, and an end of fred's task if it fails; `stay_connected` starts the next. Without
        // this, fred waits before the first attempt as it does before every other.
        config.fail_fast = true;
        if config.server.is_clustered() && !has_hash_tag(key) {
            return Err(format!(
                "in a Redis Cluster the key needs a part in braces, such as {{{key}}}: its keys must share a slot"
            ));
        }
        let client = Client::new(config, Some(performance(timeout)), Some(connection()), Some(reconnect_policy()));
        let link = Arc::new(Link {
            client,
            key: key.into(),
            parked: format!("{key}:parked").into(),
            slot: key.into(),
            timeout,
            health: Mutex::default(),
            ahead: Mutex::new(Ahead::new(prefetch)),
            is_low: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        });
        let (waiting, queue) = mpsc::channel(MAX_WAITING);
        let worker = link.clone();
        tokio::spawn(async move {
            tokio::select! {
                // Ends when the last `Redis` is dropped, and takes the connection along.
                () = worker.allocate_in_turn(queue) => {}
                () = worker.stay_connected() => {}
                () = worker.watch() => {}
            }
        });
        Ok(Self { link, waiting })
    }

    /// See [`super::Pool::allocate`]. The name is a slice of the buffer it was received in: copy it to keep it long.
    ///
    /// When the request is gone before its answer comes, its allocation is counted all the same.
    pub(super) async fn allocate(&self, tried: &[Name]) -> Result<Option<Name>, PoolError> {
        let deadline = Instant::now() + self.link.timeout;
        if !tried.is_empty() {
            // On the heap: fred's futures are large, and every request's would have room for one.
            return Ok(Box::pin(self.link.allocate(1, tried, deadline)).await?.pop());
        }
        if let Some(name) = self.link.take_ready() {
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
            Err(_) => Err(self.link.too_late()),
        }
    }

    /// See [`super::Pool::add`]. Long lists go in pieces, which other gateways may see one by one.
    pub(super) async fn add(&self, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        let mut start = match initial {
            Initial::Min => Value::from_static_str("min"),
            Initial::Count(count) => Value::from(count.to_string()),
        };
        let mut added = 0;
        for chunk in members.chunks(CHUNK) {
            let args = std::iter::once(start).chain(chunk.iter().cloned().map(Value::from));
            let reply = self.link.run(&ADD, &[&self.link.key], args, self.link.deadline()).await?;
            // The first piece says what "min" was: the same for all of the list.
            let [count, used] = <[Bytes; 2]>::try_from(strings(reply)?).map_err(|_| nonsense())?;
            added += number::<u64>(&count)?;
            start = Value::Bytes(used);
        }
        Ok(added)
    }

    /// See [`super::Pool::remove`].
    pub(super) async fn remove(&self, members: &[Name]) -> Result<u64, PoolError> {
        let mut removed = 0;
        for chunk in members.chunks(CHUNK) {
            let args = chunk.iter().cloned().map(Value::from);
            let reply = self.link.run(&REMOVE, &self.link.both_keys(), args, self.link.deadline()).await?;
            removed += number::<u64>(&string(reply)?)?;
        }
        Ok(removed)
    }

    /// See [`super::Pool::park`].
    pub(super) async fn park(&self, member: &Name, reason: &str) -> Result<bool, PoolError> {
        let args = [Value::from(member.clone()), Value::from(reason)];
        let reply = self.link.run(&PARK, &self.link.both_keys(), args, self.link.deadline()).await?;
        Ok(number::<u64>(&string(reply)?)? == 1)
    }

    /// See [`super::Pool::stop_prefetching`].
    pub(super) async fn stop_prefetching(&self) -> Result<(), PoolError> {
        let unused = self.link.ahead().close();
        // A call under way may bring more, and gives it back itself.
        let _turn = self.link.turn.lock().await;
        self.link.give_back(unused).await
    }

    /// See [`super::Pool::list`]. Up to 10,000 members are one consistent reading. A larger pool is read in pages
    /// of that size, so that no reply blocks Redis for long; counts that change meanwhile show as of their page.
    pub(super) async fn list(&self) -> Result<Vec<Entry>, PoolError> {
        let mut counts: HashMap<Name, f64> = HashMap::new();
        // Members that are allocated move to the back and everyone behind them one rank forward, maybe across the
        // seam into a page already read. Half a page of overlap sees them anyhow, up to 5,000 allocations a page.
        for first in (0_i64..).step_by(PAGE / 2) {
            let last = first + PAGE as i64 - 1;
            let args = vec![self.link.key.clone(), first.into(), last.into(), Value::from_static_str("WITHSCORES")];
            let page = strings(self.link.call("ZRANGE", args, self.link.deadline()).await?)?;
            for pair in page.chunks(2) {
                let [member, count] = pair else { return Err(nonsense()) };
                // -0 becomes 0: Redis holds them for equal, the order below would not.
                counts.insert(member.clone(), number::<f64>(count)? + 0.0);
            }
            if page.len() < 2 * PAGE {
                break;
            }
        }
        let mut entries: Vec<Entry> = counts.into_iter().map(|(member, count)| Entry { member, count }).collect();
        entries.sort_unstable_by(|a, b| a.count.total_cmp(&b.count).then_with(|| a.member.cmp(&b.member)));
        Ok(entries)
    }

    /// See [`super::Pool::parked`]. A record that this program did not write shows with what could be read of it.
    pub(super) async fn parked(&self) -> Result<Vec<Parked>, PoolError> {
        let mut records: HashMap<Name, Bytes> = HashMap::new();
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let count = [Value::from_static_str("COUNT"), Value::from(CHUNK as i64)];
            let args = [self.link.parked.clone(), cursor.into()].into_iter().chain(count).collect();
            let reply = self.link.call("HSCAN", args, self.link.deadline()).await?;
            let Value::Array(mut reply) = reply else { return Err(nonsense()) };
            let (Some(page), Some(next), None) = (reply.pop(), reply.pop(), reply.pop()) else {
                return Err(nonsense());
            };
            for pair in strings(page)?.chunks(2) {
                let [member, record] = pair else { return Err(nonsense()) };
                records.insert(member.clone(), record.clone());
            }
            cursor = string(next)?;
            if cursor == "0" {
                break;
            }
        }
        let mut parked: Vec<Parked> =
            records.into_iter().map(|(member, record)| parse_record(member, &record)).collect();
        parked.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        Ok(parked)
    }
}

impl Link {
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
            // Who has given up needs no member. Whoever leaves from here on is counted.
            batch.retain(|waiter| !waiter.answer.is_closed());
            let n = (batch.len() + self.ahead().room()).min(MAX_BATCH);
            if n == 0 {
                continue;
            }
            // The last to come waits longest, so nobody is cut short by another's deadline.
            let deadline = batch.last().map_or_else(|| self.deadline(), |waiter| waiter.deadline);
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
            number::<u64>(&string(self.run(&GIVE_BACK, &[&self.key], args, self.deadline()).await?)?)?;
        }
        Ok(())
    }

    fn ahead(&self) -> std::sync::MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of `lua/allocate.lua`: at most `n` members, in order.
    async fn allocate(&self, n: usize, tried: &[Name], deadline: Instant) -> Result<Vec<Name>, PoolError> {
        let args = std::iter::once(Value::from(n as i64)).chain(tried.iter().cloned().map(Value::from));
        let members = strings(self.run(&ALLOCATE, &[&self.key], args, deadline).await?)?;
        if members.len() > n { Err(nonsense()) } else { Ok(members) }
    }

    /// Runs a script by its hash, and by its text when Redis does not know it (restart, failover, SCRIPT FLUSH).
    ///
    /// The text also loads it, and unlike SCRIPT LOAD followed by another EVALSHA leaves no gap for a second flush.
    async fn run(
        &self,
        script: &Script,
        keys: &[&Value],
        args: impl IntoIterator<Item = Value>,
        deadline: Instant,
    ) -> Result<Value, PoolError> {
        let mut words = vec![Value::from(script.sha1().clone()), Value::from(keys.len() as i64)];
        words.extend(keys.iter().map(|&key| key.clone()));
        words.extend(args);
        match self.call("EVALSHA", words.clone(), deadline).await {
            Err(PoolError::Refused(why)) if why.starts_with("NOSCRIPT") => {
                words[0] = script.lua().cloned().expect("made from its text").into();
                self.call("EVAL", words, deadline).await
            }
            result => result,
        }
    }

    /// Sends one command once the link is up, and waits for its reply until `deadline`.
    ///
    /// As a "custom" command, for fred's own functions for scripts ignore the options (fred#353): `WithOptions` has no
    /// `LuaInterface`, so `with_options(…).evalsha(…)` silently derefs to the plain client.
    async fn call(&self, name: &'static str, args: Vec<Value>, deadline: Instant) -> Result<Value, PoolError> {
        self.up(deadline).await?;
        let left = deadline.saturating_duration_since(Instant::now());
        let options = Options {
            // To fred, zero means no limit.
            timeout: Some(left.max(Duration::from_millis(1))),
            // A command is refused when there is no connection, and fails when the connection breaks under it.
            fail_fast: true,
            // Sent once. A redirection counts as one more; the node that gives it has not run the command.
            max_attempts: Some(if self.client.is_clustered() { 1 + MAX_REDIRECTIONS } else { 1 }),
            ..Options::default()
        };
        let client = self.client.with_options(&options);
        let command = CustomCommand::new_static(name, self.slot.clone(), false);
        match timeout_at(deadline + GRACE, client.custom(command, args)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(e)) => Err(self.failure(&e)),
            Err(_) => Err(self.unanswered()),
        }
    }

    /// Waits for the connection: until `deadline`, but not when it has been missing for longer than `timeout`.
    async fn up(&self, deadline: Instant) -> Result<(), PoolError> {
        if self.client.is_connected() {
            self.health().down_since = None;
            return Ok(());
        }
        let since = *self.health().down_since.get_or_insert_with(Instant::now);
        let connected = async { while self.client.wait_for_connect().await.is_err() {} };
        timeout_at(deadline.min(since + self.timeout), connected).await.map_err(|_| self.too_late())
    }

    fn failure(&self, e: &FredError) -> PoolError {
        let details = e.details().to_owned();
        match e.kind() {
            ErrorKind::Timeout => self.unanswered(),
            ErrorKind::Backpressure => PoolError::Overloaded,
            ErrorKind::IO | ErrorKind::Tls | ErrorKind::Canceled | ErrorKind::Routing | ErrorKind::Sentinel => {
                PoolError::Unreachable(plain(&details).to_owned())
            }
            _ => PoolError::Refused(details),
        }
    }

    /// A call went out and nothing came back: the connection may be dead, so a new one has to prove the contrary.
    ///
    /// fred's own check for unresponsive connections starts anew with every command that is sent, so with steady
    /// traffic it never strikes; and until it does, more calls pile up in front of a frozen Redis, to be run when
    /// it wakes.
    fn unanswered(&self) -> PoolError {
        let mut health = self.health();
        if health.redial.as_ref().is_none_or(JoinHandle::is_finished) {
            let client = self.client.clone();
            health.redial = Some(tokio::spawn(async move { drop(client.force_reconnection().await) }));
        }
        drop(health);
        self.too_late()
    }

    /// Keeps fred's connection task going. It reconnects by itself, but ends when the very first attempt fails, and on
    /// what it calls a mistake in the configuration: a node that is not in cluster mode yet, which may pass.
    async fn stay_connected(&self) {
        loop {
            let mut task = AbortOnDrop(self.client.connect());
            let end = (&mut task.0).await;
            tracing::debug!(?end, "the connection task for Redis ended; starting another");
            sleep(RECONNECT_DELAY).await;
        }
    }

    /// Remembers why there is no connection, and logs when it is lost and found.
    async fn watch(&self) {
        let (mut errors, mut connects) = (self.client.error_rx(), self.client.reconnect_rx());
        let mut connected = true; // the first failure is worth a line, the first success is not
        loop {
            tokio::select! {
                error = errors.recv() => match error {
                    Ok((error, _)) => {
                        if connected {
                            tracing::warn!(error = plain(error.details()), "no connection to Redis; trying on");
                        }
                        connected = false;
                        let mut health = self.health();
                        health.down_since.get_or_insert_with(Instant::now);
                        health.reason = plain(error.details()).to_owned();
                    }
                    Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                    Err(tokio::sync::broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
                connect = connects.recv() => if connect.is_ok() {
                    if !connected {
                        tracing::info!("connected to Redis");
                    }
                    connected = true;
                    self.health().down_since = None;
                },
            }
        }
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn too_late(&self) -> PoolError {
        if self.client.is_connected() {
            return PoolError::TimedOut(self.timeout);
        }
        let reason = self.health().reason.clone();
        PoolError::Unreachable(if reason.is_empty() { "no connection yet".to_owned() } else { reason })
    }

    fn both_keys(&self) -> [&Value; 2] {
        [&self.key, &self.parked]
    }
}

/// A task that is not to outlive whoever waits for it.
struct AbortOnDrop(JoinHandle<FredResult<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The URLs that [`Redis::connect`] takes.
pub(crate) const SCHEMES: [&str; 7] =
    ["redis", "rediss", "redis+unix", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel"];

/// How often a call follows a slot to the node it has moved to.
const MAX_REDIRECTIONS: u32 = 3;

fn performance(timeout: Duration) -> PerformanceConfig {
    // Each call sets its own; this is for what fred sends by itself.
    PerformanceConfig { default_command_timeout: timeout, ..PerformanceConfig::default() }
}

fn connection() -> ConnectionConfig {
    ConnectionConfig {
        connection_timeout: CONNECT_TIMEOUT,
        internal_command_timeout: CONNECT_TIMEOUT,
        max_command_attempts: 1,
        max_redirections: MAX_REDIRECTIONS,
        max_command_buffer_len: MAX_COMMANDS,
        // A password that was changed while connected.
        reconnect_on_auth_error: true,
        tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
        // This node cannot serve now; after a failover the name or the sentinel leads to one that can. Not BUSY,
        // MISCONF, NOREPLICAS: there another connection leads to the same node in the same state.
        reconnect_errors: vec![
            ReconnectError::ClusterDown,
            ReconnectError::Loading,
            ReconnectError::MasterDown,
            ReconnectError::ReadOnly,
        ],
        ..ConnectionConfig::default()
    }
}

/// For ever, and at a steady pace: fred takes a connection that is closed at once for a success and would start a
/// growing delay from its smallest value each time.
fn reconnect_policy() -> ReconnectPolicy {
    let delay = RECONNECT_DELAY.as_millis() as u32;
    let mut policy = ReconnectPolicy::new_constant(0, delay);
    policy.set_jitter(delay / 2);
    policy
}

/// Redis Cluster hashes what is between the first `{` and the next `}`, if anything is.
pub(crate) fn has_hash_tag(key: &str) -> bool {
    key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

fn parse_record(member: Name, record: &[u8]) -> Parked {
    let json: serde_json::Value = serde_json::from_slice(record).unwrap_or_default();
    let count = &json["count"];
    Parked {
        member,
        // An infinite score is kept as a string.
        count: count.as_f64().or_else(|| count.as_str()?.parse().ok()).unwrap_or_default(),
        reason: json["reason"].as_str().unwrap_or_default().to_owned(),
        since_ms: json["since_ms"].as_u64().unwrap_or_default(),
    }
}

/// The elements of an array of strings, as they were received.
fn strings(reply: Value) -> Result<Vec<Bytes>, PoolError> {
    let Value::Array(items) = reply else { return Err(nonsense()) };
    items.into_iter().map(string).collect()
}

fn string(reply: Value) -> Result<Bytes, PoolError> {
    match reply {
        Value::String(text) => Ok(text.into_inner()),
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(nonsense()),
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Result<T, PoolError> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(nonsense)
}

/// fred keeps an I/O error as its `Debug` text; the sentence for people is what stands there in quotes.
fn plain(details: &str) -> &str {
    details.split('"').nth(1).unwrap_or(details)
}

fn nonsense() -> PoolError {
    PoolError::Refused("a reply that is no answer to the question".to_owned())
}

fn stopped() -> PoolError {
    PoolError::Unreachable("the runtime it was connected on has ended".to_owned())
}
