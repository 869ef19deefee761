//! Who keeps the pool, and under which key.

use std::fmt;

use fred::types::config::{Config as Client, ServerConfig};

use super::KEY;
use super::mistake::masked;
use super::value::Value;
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
    match Client::from_url(&url.replacen("rediss", "redis", 1)) {
        // After ": " fred repeats a part of the URL, and a password may be in it.
        Err(error) => Err(error.details().split(": ").next().unwrap_or_default().to_owned()),
        Ok(Client { server: ServerConfig::Unix { path }, .. }) if path.file_name().is_none() => {
            Err("it names no socket; write redis+unix:///path/to.sock".into())
        }
        Ok(_) => Ok(()),
    }
}
