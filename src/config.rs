//! config.toml, the environment and the flags → [`Config`], or every mistake in them at once.
//!
//! `read` is the schema: each key is named there once, beside its default, the form its value takes and its
//! place in [`Config`]. File, environment and flags go the same way through it; a flag beats the environment,
//! which beats the file, which beats the default. A value that is beaten is still checked.
//! Afterwards nothing is optional or unchecked: what a [`Config`] holds can be used as it is.
//! Not here: opening what is named (sockets, stores), reading `--proxies` files, and the command line itself.

mod admin;
mod ban;
mod effect;
mod mistake;
mod policy;
mod proxies;
mod reader;
mod rules;
mod source;
mod store;
mod value;

use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use admin::{Admin, Token};
pub use mistake::{Mistake, Mistakes};
pub use proxies::proxy;
pub use source::{Gone, Place, PoolSource};
pub use store::{RedisUrl, Store};

use crate::ban::Rule;
use crate::fetch::Url;
use crate::member;
use crate::pool::{Decay, Initial, PerHost, Policy, Prefetch};
use crate::rules::Rules;
use reader::{Document, Reader};

/// Read when no `--config` is given and the working directory has it.
const FILE: &str = "config.toml";

/// What one gateway does, every value checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The side towards clients.
    pub gateway: Gateway,
    /// Where the upstream proxies and their counts are kept.
    pub pool: Pool,
    /// The side towards upstream proxies.
    pub upstream: Upstream,
    /// Further attempts after a failure.
    pub retry: Retry,
    /// When members are set aside for failing, and how they are tried.
    pub health: Health,
    /// The gateway's own pages.
    pub admin: Admin,
    /// What is written to standard error.
    pub log: Log,
}

/// `[gateway]`: the side towards clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Where clients connect; port 0 lets the system choose one.
    pub listen: SocketAddr,
    /// Worker threads; 0: one per core.
    pub threads: usize,
    /// Clients connected at once; 0: what the descriptor limit allows.
    pub max_connections: usize,
    /// The longest a client may take for a whole request head.
    pub head_timeout: Duration,
    /// How long a kept-alive client may have nothing to say.
    pub idle_timeout: Duration,
    /// How long a tunnel may stand in which nothing moves either way.
    pub tunnel_idle_timeout: Duration,
    /// How long running requests may go on after SIGTERM; zero cuts them at once.
    pub drain_timeout: Duration,
    /// Which answers carry `Proxy-Status`.
    pub proxy_status: ProxyStatus,
    /// Whether `Via` is added, and with it loops through other proxies are found.
    pub via: bool,
    /// Which reports of clients ban members.
    pub reports: Reports,
}

/// Which reports of clients (`X-Evenkeel-Report`) ban members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// None.
    Never,
    /// Those that ban a member from one host.
    Host,
    /// Those that ban it from all as well.
    Any,
}

/// Which answers say in `Proxy-Status` (RFC 9209) what happened to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyStatus {
    /// Every answer.
    Always,
    /// Only those the gateway makes itself.
    Errors,
    /// None.
    Never,
}

/// `[pool]`: where the upstream proxies and their counts are kept.
#[derive(Clone, PartialEq)]
pub struct Pool {
    /// Who keeps it.
    pub store: Store,
    /// The sorted set: 1 to 512 bytes, and with a `{tag}` when the store is a cluster.
    pub key: String,
    /// The longest a request waits for the store.
    pub timeout: Duration,
    /// Added at start if absent, in this order and each once; all of them can be dialed.
    pub proxies: Vec<member::Name>,
    /// The count a newcomer starts from.
    pub initial: Initial,
    /// The count a member returns with that was set aside; never [`Initial::Count`].
    pub restore: Initial,
    /// Of how many allocations a member gets one that catches up slowly, at least 2; for [`Initial::Ramp`].
    pub ramp_every: u64,
    /// Where the embedded store keeps its state beyond the end of the process, if it does.
    pub state: Option<PathBuf>,
    /// How counts shrink with time, if they do.
    pub decay: Option<Decay>,
    /// Who is chosen.
    pub policy: Policy,
    /// Where hosts have counts of their own; only with [`Policy::LeastUsed`].
    pub scope: Option<PerHost>,
    /// How far ahead of need to allocate; in Redis only, and under least-used.
    pub prefetch: Prefetch,
    /// For how long members are chosen in this process while the store cannot be reached; `None`: requests are refused. In
    /// Redis only, and under least-used.
    pub local_for: Option<Duration>,
    /// What an answer must be like to ban the member it came through.
    pub ban: Vec<Rule>,
    /// Lists that the pool is kept in step with, each with a name of its own.
    pub sources: Vec<PoolSource>,
    /// What is asked of candidates, and of members that are checked.
    pub rules: Rules,
}

/// `[upstream]`: the side towards upstream proxies.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// TCP, TLS and proxy handshake together.
    pub dial_timeout: Duration,
    /// Until the response head.
    pub response_timeout: Duration,
    /// How long a kept-alive connection may be reused; zero: never.
    pub idle_timeout: Duration,
}

/// `[retry]`: further attempts after a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Counting the first: 1 to 64.
    pub attempts: u32,
    /// No attempt begins later than this after the request; zero: only the first.
    pub deadline: Duration,
    /// The largest request body kept for a second try, in bytes.
    pub replay_bytes: usize,
}

/// `[health]`: when members are set aside for failing, for how long, and how they are tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// After so many failures in a row: 1 to 999; 0: never.
    pub park_after: u32,
    /// For how long the first time.
    pub cooldown: Duration,
    /// Doubled for each time in a row, but never longer than this; no less than `cooldown`.
    pub max_cooldown: Duration,
    /// At most so many percent of the pool: 1 to 100.
    pub max_parked: u8,
    /// What is asked for through them, best of a judge; without it none is checked.
    pub url: Option<Url>,
    /// Between two checks of a member; zero: none is checked.
    pub every: Duration,
    /// The longest one may take for everything.
    pub timeout: Duration,
    /// How many are tried at once: 1 to 10,000.
    pub parallel: usize,
}

/// `[log]`: what is written to standard error.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// One line per request.
    pub requests: bool,
}

/// Where values may come from; [`Config::load`] gives their order.
#[derive(Clone, Default)]
pub struct Sources {
    /// `--config`: must exist. Without it, `config.toml` in the working directory if there is one.
    pub file: Option<PathBuf>,
    /// Names and values; what does not look like `EVENKEEL_TABLE__KEY`, or a slip at it, is ignored.
    pub env: Vec<(String, String)>,
    /// What the command line said.
    pub flags: Flags,
}

/// What the command line said.
#[derive(Clone, Default)]
pub struct Flags {
    /// `--listen`
    pub listen: Option<String>,
    /// `--store`
    pub store: Option<String>,
    /// `--key`
    pub key: Option<String>,
    /// `--url`
    pub url: Option<String>,
    /// `--timeout`
    pub timeout: Option<String>,
    /// `--parallel`
    pub parallel: Option<String>,
    /// Every `--proxy`: added to `pool.proxies`.
    pub proxies: Vec<String>,
    /// What the lists of `--proxies` hold, checked: added after those of `--proxy`.
    pub listed: Vec<member::Name>,
}

impl Config {
    /// Reads everything that was given. Flags beat the environment, which beats the file, which beats defaults;
    /// only proxies given by flag are added to those of `pool.proxies` instead.
    ///
    /// # Errors
    /// Every mistake in any of the sources: those of the file by line, then the environment's and the flags'.
    pub fn load(sources: &Sources) -> Result<Self, Mistakes> {
        let mut mistakes = Vec::new();
        let file = reader::read_file(sources.file.as_deref(), FILE).unwrap_or_else(|mistake| {
            mistakes.push(mistake);
            None
        });
        let document = file
            .as_ref()
            .and_then(|(name, text)| Document::parse(name, text).map_err(|syntax| mistakes.extend(syntax)).ok());
        let mut reader = Reader::new(document.as_ref(), &sources.env, &sources.flags);
        let mut config = read(&mut reader);
        mistakes.extend(reader.finish());
        config.pool.proxies.extend(sources.flags.proxies(&mut mistakes));
        let mut seen = HashSet::new();
        config.pool.proxies.retain(|name| seen.insert(name.clone()));
        if mistakes.is_empty() { Ok(config) } else { Err(Mistakes::from(mistakes)) }
    }
}

/// What an empty file gives.
impl Default for Config {
    fn default() -> Self {
        read(&mut Reader::new(None, &[], &Flags::default()))
    }
}

impl Flags {
    /// The one value the command line gave for a key, with the flag's name.
    fn get(&self, key: &str) -> Option<(&'static str, &str)> {
        let (flag, value) = match key {
            "gateway.listen" => ("--listen", &self.listen),
            "pool.store" => ("--store", &self.store),
            "pool.key" => ("--key", &self.key),
            "health.url" => ("--url", &self.url),
            "health.timeout" => ("--timeout", &self.timeout),
            "health.parallel" => ("--parallel", &self.parallel),
            _ => return None,
        };
        value.as_deref().map(|value| (flag, value))
    }

    fn proxies(&self, mistakes: &mut Vec<Mistake>) -> Vec<member::Name> {
        let mut names = Vec::new();
        for text in &self.proxies {
            match proxy(text) {
                Ok(name) => names.push(name),
                Err(why) => mistakes.push(Mistake::new("--proxy", None, "", why)),
            }
        }
        names.extend(self.listed.iter().cloned());
        names
    }
}

/// The address that a `--listen` names.
///
/// # Errors
/// What it should look like.
pub fn listen(text: &str) -> Result<SocketAddr, Mistake> {
    let value = value::Value::Word(text.into());
    value::address(&value).map_err(|why| Mistake::new("--listen", None, "", why))
}

/// A length of time as in the configuration, from 1 ms to a year.
///
/// # Errors
/// What it should look like.
pub fn span(text: &str) -> Result<Duration, Mistake> {
    let value = value::Value::Word(text.into());
    value::span(&value).map_err(|why| Mistake::new("--for", None, "", why))
}

/// The environment's variables that may be ours, for [`Sources::env`]. Bytes that are not UTF-8 become U+FFFD;
/// `std::env::vars` would panic over them, also in a variable that is none of our business.
pub fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(reader::PREFIX))
        .collect()
}

/// Only this machine: an open proxy must be asked for.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// A head is a few kilobytes, a few seconds on the slowest line; longer is a client that holds on to a place.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Above the 60 s after which common clients and balancers give an idle connection up, so that they close first.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// Long polls and quiet WebSockets live in tunnels; their pings come every few minutes at most.
const TUNNEL_IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// What Kubernetes waits between SIGTERM and SIGKILL.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The braces keep all keys of a pool in one Redis Cluster slot.
const KEY: &str = "evenkeel:{default}";
/// Redis answers within milliseconds; whoever waits a second waits for one that is gone.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// A twentieth: what a proxy gets that was away is hardly missed by the others, and no burst for its origins.
const RAMP_EVERY: u64 = 20;
/// A member that was taken out of the pool is used no longer than this.
const PREFETCH_MAX_AGE: Duration = Duration::from_secs(1);
/// Three lost SYNs (1 s, 2 s, 4 s) and the handshakes after them.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The origin's time to think, seen through the upstream proxy; curl and browsers wait longer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Common proxies and servers close after 5 s or more; reuse after that meets a closed connection.
const UPSTREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Two of three proxies may be down before a client hears of it.
const ATTEMPTS: u32 = 3;
/// One whole dial timeout and half a second one: a client seldom waits longer for a first byte.
const DEADLINE: Duration = Duration::from_secs(15);
/// Forms and API calls fit; uploads, kept per request in memory, do not.
const REPLAY_BYTES: usize = 64 << 10;
/// As Envoy has it: fewer would hit proxies over a few unlucky targets in a row, and each one more costs a client a retry.
const PARK_AFTER: u32 = 5;
/// A restart, a changed address, a provider's hiccup: most trouble is over or will last.
const COOLDOWN: Duration = Duration::from_secs(30);
/// A proxy that is dead for good costs one request in so much time.
const MAX_COOLDOWN: Duration = Duration::from_secs(10 * 60);
/// Two of three may go, as `retry.attempts` has it; the rest bears up to 3.3 times its load.
const MAX_PARKED: u8 = 70;
/// A dead member costs few clients a retry, and a judge is asked as often as a busy pool has members, once a minute.
const EVERY: Duration = Duration::from_secs(60);
/// As long as dialing alone may take for a client; a proxy that needs longer serves nobody.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Enough for ten thousand in a few minutes when most of them are dead, and little for a judge to bear.
const HEALTH_PARALLEL: usize = 64;

/// A pool is tried member by member while a client waits; more attempts than this serve nobody.
const MAX_ATTEMPTS: u64 = 64;
/// Far more than there are cores.
const MAX_THREADS: u64 = 1024;
/// Every time, all counts are written.
const MIN_DECAY_PERIOD: Duration = Duration::from_secs(1);
/// A pool of a million members, of which one catches up by its equal share.
const MAX_RAMP_EVERY: u64 = 1_000_000;
/// More than any descriptor limit.
const MAX_CONNECTIONS: u64 = u32::MAX as u64;
/// The pool counts no further.
const MAX_PARK_AFTER: u64 = 999;
/// More than that is a load test of the judge.
const MAX_PARALLEL: u64 = 10_000;
/// Each is looked after by itself.
const MAX_SOURCES: usize = 100;
/// Bytes of one body in memory, times every request that runs.
const MAX_REPLAY_BYTES: u64 = 16 << 20;

/// The schema, in the order of config.toml.
fn read(reader: &mut Reader<'_>) -> Config {
    let gateway = Gateway {
        listen: reader.key("gateway.listen", LISTEN, value::address),
        threads: reader.key("gateway.threads", 0, value::whole(0..=MAX_THREADS)),
        max_connections: reader.key("gateway.max_connections", 0, value::whole(0..=MAX_CONNECTIONS)),
        head_timeout: reader.key("gateway.head_timeout", HEAD_TIMEOUT, value::timeout),
        idle_timeout: reader.key("gateway.idle_timeout", CLIENT_IDLE_TIMEOUT, value::timeout),
        tunnel_idle_timeout: reader.key("gateway.tunnel_idle_timeout", TUNNEL_IDLE_TIMEOUT, value::timeout),
        drain_timeout: reader.key("gateway.drain_timeout", DRAIN_TIMEOUT, value::duration),
        proxy_status: reader.key("gateway.proxy_status", ProxyStatus::Always, ProxyStatus::read),
        via: reader.key("gateway.via", false, value::switch),
        reports: reader.key("gateway.reports", Reports::Never, Reports::read),
    };
    let store = reader.key("pool.store", Store::Embedded, Store::read);
    let policy = policy::read(reader);
    let scope = policy::scope(reader, policy);
    let pool = Pool {
        key: reader.key("pool.key", KEY.to_owned(), |value| store::key(value, &store)),
        store,
        timeout: reader.key("pool.timeout", STORE_TIMEOUT, value::timeout),
        proxies: reader.list("pool.proxies", proxy),
        initial: reader.key("pool.initial", Initial::Min, |value| policy::start(initial(value)?, policy, scope)),
        restore: reader.key("pool.restore", Initial::Min, |value| policy::start(restore(value)?, policy, scope)),
        ramp_every: reader.key("pool.ramp_every", RAMP_EVERY, value::whole(2..=MAX_RAMP_EVERY)),
        state: reader.key("pool.state", None, value::file),
        decay: reader.key("pool.decay", None, decay),
        policy,
        scope,
        prefetch: Prefetch {
            count: reader.key("pool.prefetch", 0, |value| policy::prefetch(value, policy, scope)),
            max_age: reader.key("pool.prefetch_max_age", PREFETCH_MAX_AGE, value::timeout),
        },
        local_for: policy::local_for(reader, policy),
        ban: reader.each("pool.ban", ban::read),
        sources: Vec::new(),
        rules: rules::read(reader),
    };
    let upstream = Upstream {
        dial_timeout: reader.key("upstream.dial_timeout", DIAL_TIMEOUT, value::timeout),
        response_timeout: reader.key("upstream.response_timeout", RESPONSE_TIMEOUT, value::timeout),
        idle_timeout: reader.key("upstream.idle_timeout", UPSTREAM_IDLE_TIMEOUT, value::duration),
    };
    let retry = Retry {
        attempts: reader.key("retry.attempts", ATTEMPTS, value::whole(1..=MAX_ATTEMPTS)),
        deadline: reader.key("retry.deadline", DEADLINE, value::duration),
        replay_bytes: reader.key("retry.replay_bytes", REPLAY_BYTES, value::bytes(MAX_REPLAY_BYTES)),
    };
    let cooldown = reader.key("health.cooldown", COOLDOWN, value::timeout);
    let health = Health {
        park_after: reader.key("health.park_after", PARK_AFTER, value::whole(0..=MAX_PARK_AFTER)),
        cooldown,
        max_cooldown: reader.key("health.max_cooldown", MAX_COOLDOWN.max(cooldown), |value| {
            no_less(value, "health.cooldown", cooldown)
        }),
        max_parked: reader.key("health.max_parked", MAX_PARKED, value::percent),
        url: reader.key("health.url", None, |value| value::page(value, "http://judge.example/")),
        every: reader.key("health.every", EVERY, every),
        timeout: reader.key("health.timeout", HEALTH_TIMEOUT, value::timeout),
        parallel: reader.key("health.parallel", HEALTH_PARALLEL, value::whole(1..=MAX_PARALLEL)),
    };
    let pool = Pool { sources: sources(reader, health.url.is_some()), ..pool };
    let admin = Admin::read(reader);
    let log = Log { requests: reader.key("log.requests", false, value::switch) };
    Config { gateway, pool, upstream, retry, health, admin, log }
}

/// Names are those of keys in the store, so no two sources may share one. `may_judge`: there is a page to try candidates with.
fn sources(reader: &mut Reader<'_>, may_judge: bool) -> Vec<PoolSource> {
    let mut names = HashSet::new();
    reader.each("pool.sources", |entry| {
        let source = PoolSource::read(entry)?;
        if source.candidates && !may_judge {
            entry.mistake("candidates", "candidates are judged by what they answer; name a judge in health.url");
        }
        if names.len() >= MAX_SOURCES {
            entry.mistake("", format!("is one too many: there may be {MAX_SOURCES}"));
        }
        if !names.insert(source.name.clone()) {
            entry.mistake(
                "name",
                format!("another source is called {:?} too; give each a name of its own", source.name),
            );
        }
        Some(source)
    })
}

impl Reports {
    fn read(value: &value::Value<'_>) -> Result<Self, String> {
        match value.text() {
            Some("never") => Ok(Self::Never),
            Some("host") => Ok(Self::Host),
            Some("any") => Ok(Self::Any),
            _ => Err(format!(r#"must be "never", "host" or "any", not {value}"#)),
        }
    }
}

impl ProxyStatus {
    fn read(value: &value::Value<'_>) -> Result<Self, String> {
        match value.text() {
            Some("always") => Ok(Self::Always),
            Some("errors") => Ok(Self::Errors),
            Some("never") => Ok(Self::Never),
            _ => Err(format!(r#"must be "always", "errors" or "never", not {value}"#)),
        }
    }
}

fn every(value: &value::Value<'_>) -> Result<Duration, String> {
    match value::duration(value)? {
        span if !span.is_zero() && span < Duration::from_millis(100) => {
            Err(format!(r#"must be "0s" or from "100ms" to "24h", not {value}"#))
        }
        span => Ok(span),
    }
}

fn no_less(value: &value::Value<'_>, key: &str, least: Duration) -> Result<Duration, String> {
    let span = value::timeout(value)?;
    if span < least { Err(format!("must be no less than {key}, which is {least:?}, not {value}")) } else { Ok(span) }
}

fn initial(value: &value::Value<'_>) -> Result<Initial, String> {
    /// Scores are doubles: above this, adding 1 may change nothing.
    const MAX: u64 = 1 << 53;
    let number = || value.whole().filter(|&count| count <= MAX).map(Initial::Count);
    policy(value).or_else(number).ok_or_else(|| {
        format!("must be {} or a whole number from 0 to {MAX}, not {value}", POLICIES.map(quoted).join(", "))
    })
}

fn restore(value: &value::Value<'_>) -> Result<Initial, String> {
    policy(value).ok_or_else(|| format!("must be one of {}, not {value}", POLICIES.map(quoted).join(", ")))
}

/// `10%/24h`: how much of every count is taken away, and how often.
fn decay(value: &value::Value<'_>) -> Result<Option<Decay>, String> {
    let read = |text: &str| {
        let (share, period) = text.split_once("%/")?;
        let is_number = share.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let percent: f64 = share.parse().ok().filter(|_| is_number)?;
        let period =
            value::span(&value::Value::Word(period.into())).ok().filter(|period| *period >= MIN_DECAY_PERIOD)?;
        (0.001..=99.999).contains(&percent).then(|| Decay { keep: (100.0 - percent) / 100.0, period })
    };
    match value.text() {
        Some("") => Ok(None),
        text => text.and_then(read).map(Some).ok_or_else(|| {
            format!(r#"must be a share and a time, from 1s to 8760h, like "10%/24h" or "0.5%/1h", or "" for none, not {value}"#)
        }),
    }
}

const POLICIES: [(&str, Initial); 6] = [
    ("min", Initial::Min),
    ("keep", Initial::Keep),
    ("median", Initial::Median),
    ("max", Initial::Max),
    ("zero", Initial::Zero),
    ("ramp", Initial::Ramp),
];

fn policy(value: &value::Value<'_>) -> Option<Initial> {
    let word = value.text()?;
    POLICIES.into_iter().find(|(name, _)| *name == word).map(|(_, initial)| initial)
}

fn quoted((word, _): (&str, Initial)) -> String {
    format!("\"{word}\"")
}

impl Pool {
    /// Whether members may be catching up slowly, and so must be looked for when one is chosen.
    pub fn ramps(&self) -> bool {
        self.initial == Initial::Ramp || self.restore == Initial::Ramp
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let proxies: Vec<String> = self.proxies.iter().map(|name| member::masked(name)).collect();
        f.debug_struct("Pool")
            .field("store", &self.store)
            .field("key", &self.key)
            .field("timeout", &self.timeout)
            .field("proxies", &proxies)
            .field("initial", &self.initial)
            .field("restore", &self.restore)
            .field("ramp_every", &self.ramp_every)
            .field("state", &self.state)
            .field("decay", &self.decay)
            .field("policy", &self.policy)
            .field("scope", &self.scope)
            .field("prefetch", &self.prefetch)
            .field("local_for", &self.local_for)
            .field("ban", &self.ban)
            .field("sources", &self.sources)
            .field("rules", &self.rules)
            .finish()
    }
}

#[cfg(test)]
mod tests;
