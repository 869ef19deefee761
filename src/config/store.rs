//! Who keeps the pool, and under which key.

use std::fmt;

use fred::types::config::{Config as Client, ServerConfig};

use super::KEY;
use super::mistake::masked;
use super::value::Value;
use crate::fetch::in_words;
use crate::pool::redis::{SCHEMES, has_hash_tag};

/// Who keeps the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Store {
    /// This process.
    Embedded,
    /// Redis, shared by every gateway that uses the same key.
    Redis(RedisUrl),
}

/// Where Redis is: a URL that fred can read. Prints with its password masked.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

/// Redis would take 512 MB; every request sends the key.
const MAX_KEY: usize = 512;

impl Store {
    pub(super) fn read(value: &Value<'_>) -> Result<Self, String> {
        match value.text() {
            Some("embedded") => Ok(Self::Embedded),
            Some(text) if scheme(text).is_some_and(|scheme| SCHEMES.contains(&scheme)) => {
                check(text).map_err(|why| format!("cannot use {value}: {why}"))?;
                Ok(Self::Redis(RedisUrl(text.to_owned())))
            }
            _ => Err(format!(
                r#"must be "embedded" or a URL that starts with {}://, not {value}"#,
                SCHEMES.join("://, ")
            )),
        }
    }

    /// Whether keys are spread over slots, and those of one pool must meet in one of them.
    fn is_cluster(&self) -> bool {
        matches!(self, Self::Redis(url) if scheme(&url.0).is_some_and(|scheme| scheme.ends_with("-cluster")))
    }
}

impl RedisUrl {
    /// The URL with its password: for the client that connects, never for a log.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// `pool.key`, also for a cluster: KEY and KEY:… are hashed by the tag alone when there is one, and by the whole
/// text, so to different slots, when there is none (Redis Cluster specification, "Hash tags").
pub(super) fn key(value: &Value<'_>, store: &Store) -> Result<String, String> {
    let Some(key) = value.text().filter(|key| (1..=MAX_KEY).contains(&key.len())) else {
        return Err(format!("must be the name of a Redis key, 1 to {MAX_KEY} bytes of text, not {value}"));
    };
    if store.is_cluster() && !has_hash_tag(key) {
        return Err(format!("must have a part in braces, like {KEY:?}, to be in one slot of the cluster, not {value}"));
    }
    Ok(key.to_owned())
}

fn scheme(url: &str) -> Option<&str> {
    url.split_once("://").map(|(scheme, _)| scheme)
}

/// Whether fred can read it; TLS is left out, since for that fred would load the system's certificates.
fn check(url: &str) -> Result<(), String> {
    // A forgotten slash makes the first folder a host, which fred ignores.
    if let Some(rest) = url.strip_prefix("redis+unix://")
        && !rest.starts_with('/')
        && !rest.contains('@')
    {
        return Err("a socket's path is absolute; write redis+unix:///path/to.sock".into());
    }
    let parsed = url::Url::parse(url).map_err(in_words)?;
    let database = parsed.path().trim_start_matches('/');
    let is_socket = parsed.scheme().ends_with("unix");
    if !is_socket && !database.is_empty() && database.parse::<u8>().is_err() {
        return Err("what follows the host is not the number of a database, like /0".into());
    }
    match Client::from_url(&url.replacen("rediss", "redis", 1)) {
        Err(error) => Err(reason(error.details())),
        Ok(Client { server: ServerConfig::Unix { path }, .. }) if path.file_name().is_none() => {
            Err("it names no socket; write redis+unix:///path/to.sock".into())
        }
        Ok(_) => Ok(()),
    }
}

/// What is wrong, in our words where fred's name what its parser looked for.
fn reason(details: &str) -> String {
    // After ": " fred repeats a part of the URL, and a password may be in it.
    match details.split(": ").next().unwrap_or_default() {
        "Invalid or missing host." => "it has no host",
        "Invalid or missing port." => "it has no port",
        "Invalid database path." => "what follows the host is not the number of a database, like /0",
        "Invalid or missing sentinel service name query parameter." => {
            "it names no service; add ?sentinelServiceName=name"
        }
        // That, or a number in it that is no port.
        "Invalid host:port for cluster node" => "its node= is not host:port",
        number if number.contains("digit") || number.contains("number") || number.contains("integer") => {
            "its node= is not host:port"
        }
        other => return other.to_owned(),
    }
    .to_owned()
}
