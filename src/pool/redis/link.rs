//! The connection to one Redis: scripts and commands, each answered in time and never sent twice.
//!
//! It connects in the background and for ever. A break shorter than the timeout is bridged (the call waits for the new
//! connection); when Redis has been away for longer, a call is refused at once. A call that was sent and not answered
//! makes the connection suspect, and nothing more is sent until a new one has answered.
//! Not here: what the calls are for ([`super`]), and what their replies mean ([`super::reply`]).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fred::prelude::{
    Client, ClientLike, Config, ConnectionConfig, Error as FredError, ErrorKind, EventInterface, FredResult, Options,
    PerformanceConfig, ReconnectPolicy, TcpConfig, Value,
};
use fred::types::config::ReconnectError;
use fred::types::scripts::Script;
use fred::types::{ClusterHash, CustomCommand};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::PoolError;
use crate::tls;

/// For TCP, TLS and the first commands on a new connection. Longer than one lost SYN (repeated after 1 s).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between attempts to connect; plus up to half of it, so that many gateways do not come back in step.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// fred enforces the timeout of a command itself and so knows not to send it later; ours is behind it, in case
/// fred's does not fire (fred#353).
const GRACE: Duration = Duration::from_millis(100);
/// Commands in fred's own queue. Ours holds requests back before they become commands, so this is never full.
const MAX_COMMANDS: usize = 1_024;

/// The connection, and what is known about its health.
pub(super) struct Link {
    client: Client,
    /// Where the pool's keys live in a cluster.
    slot: ClusterHash,
    is_tls: bool,
    timeout: Duration,
    health: Mutex<Health>,
    /// There is a new connection.
    connected: Notify,
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

impl Link {
    /// A link that connects once [`Link::keep`] runs. All keys of its calls hash as `key` does.
    ///
    /// # Errors
    /// As [`super::Redis::connect`].
    pub(super) fn new(url: &str, key: &str, timeout: Duration) -> Result<Self, String> {
        let scheme = url.split("://").next().unwrap_or_default();
        if !SCHEMES.contains(&scheme) {
            return Err(format!("the store's URL must start with one of {}", SCHEMES.join("://, ") + "://"));
        }
        // fred's own TLS refuses to start without any of the root certificates, and says it as a Debug text.
        let (address, is_tls) = match url.strip_prefix("rediss") {
            Some(rest) => (format!("redis{rest}"), true),
            None => (url.to_owned(), false),
        };
        // fred's messages name the kind of mistake; what may follow after a colon is a piece of the URL.
        let mut config = Config::from_url(&address).map_err(|e| {
            format!("the store's URL cannot be used: {}", e.details().split(": ").next().unwrap_or_default())
        })?;
        config.tls = is_tls.then(|| tls::speaking_connector().into());
        // The first attempt at once, and an end of fred's task if it fails; `stay_connected` starts the next. Without
        // this, fred waits before the first attempt as it does before every other.
        config.fail_fast = true;
        if config.server.is_clustered() && !has_hash_tag(key) {
            return Err(format!(
                "in a Redis Cluster the key needs a part in braces, such as {{{key}}}: its keys must share a slot"
            ));
        }
        let client = Client::new(config, Some(performance(timeout)), Some(connection()), Some(reconnect_policy()));
        Ok(Self { client, slot: key.into(), is_tls, timeout, health: Mutex::default(), connected: Notify::new() })
    }

    /// Connects, reconnects and reports, for ever.
    pub(super) async fn keep(&self) {
        tokio::join!(self.stay_connected(), self.watch());
    }

    /// Ends when there is a new connection, the first included, or has been since the last time. For one to wait.
    pub(super) async fn connected(&self) {
        self.connected.notified().await;
    }

    /// When a call that is made now must have its answer.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Runs a script by its hash, and by its text when Redis does not know it (restart, failover, SCRIPT FLUSH).
    ///
    /// The text also loads it, and unlike SCRIPT LOAD followed by another EVALSHA leaves no gap for a second flush.
    pub(super) async fn run(
        &self,
        script: &Script,
        keys: &[Value],
        args: impl IntoIterator<Item = Value>,
        deadline: Instant,
    ) -> Result<Value, PoolError> {
        let mut words = vec![Value::from(script.sha1().clone()), Value::from(keys.len() as i64)];
        words.extend_from_slice(keys);
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
    pub(super) async fn call(
        &self,
        name: &'static str,
        args: Vec<Value>,
        deadline: Instant,
    ) -> Result<Value, PoolError> {
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
                PoolError::Unreachable(plain(&details))
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
                        let reason = self.reason(&error);
                        if connected {
                            tracing::warn!(error = reason, "no connection to Redis; trying on");
                        }
                        connected = false;
                        let mut health = self.health();
                        health.down_since.get_or_insert_with(Instant::now);
                        health.reason = reason;
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
                    self.connected.notify_one();
                },
            }
        }
    }

    /// Why there is no connection.
    fn reason(&self, error: &FredError) -> String {
        // Without TLS, Redis waits for the end of the line that it takes a handshake for.
        if self.is_tls && *error.kind() == ErrorKind::Timeout {
            return format!("no answer to TLS within {CONNECT_TIMEOUT:?}; a URL without TLS begins with redis://");
        }
        plain(error.details())
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a call whose time is over.
    pub(super) fn too_late(&self) -> PoolError {
        if self.client.is_connected() {
            return PoolError::TimedOut(self.timeout);
        }
        let reason = self.health().reason.clone();
        PoolError::Unreachable(if reason.is_empty() { "no connection yet".to_owned() } else { reason })
    }
}

/// A task that is not to outlive whoever waits for it.
struct AbortOnDrop(JoinHandle<FredResult<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The URLs that [`super::Redis::connect`] takes.
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

/// fred keeps an I/O error as its `Debug` text; the sentence for people is what stands there in quotes. What rustls finds has
/// none, but for [`tls::speaking_connector`].
fn plain(details: &str) -> String {
    if let Some(sentence) = details.split('"').nth(1) {
        return sentence.to_owned();
    }
    let Some((_, error)) = details.split_once(", error: ") else { return details.to_owned() };
    let error = error.trim_end_matches([' ', '}']);
    match error.split_once('(').map_or((error, ""), |(kind, rest)| (kind, rest.trim_end_matches(')'))) {
        ("AlertReceived", "CertificateRequired") => {
            "it asks for a client certificate, and there is none to show; see tls-auth-clients in redis.conf".to_owned()
        }
        ("AlertReceived", alert) => format!("it refused TLS with the alert {alert}"),
        ("InvalidMessage", _) => "what it says is not TLS; a URL without TLS begins with redis://".to_owned(),
        _ => format!("TLS failed: {error}"),
    }
}
