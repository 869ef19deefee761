//! Bans: members that are set aside, or kept from the requests of one host, because an answer said so.

use std::time::Duration;

use super::{Change, Pool, PoolError};
use crate::member::Name;

/// Hosts that may have banned members at once. What they have banned is in the store, and their names in each gateway.
pub(super) const MOST_HOSTS: usize = 10_000;

/// What became of a ban from the requests of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostBan {
    /// The member gets no more of them.
    Banned,
    /// That was so already.
    Known,
    /// It would have been one too many, or the host.
    Spared,
    /// There is no such member.
    Unknown,
}

/// A member that a host has banned.
#[derive(Clone, Debug, PartialEq)]
pub struct BannedBy {
    /// The host.
    pub host: String,
    /// The member, byte for byte.
    pub member: Name,
    /// Until when, in milliseconds since 1970-01-01 UTC.
    pub until_ms: u64,
}

/// One ban.
#[derive(Clone, Debug, PartialEq)]
pub struct Ban {
    /// The member, byte for byte.
    pub member: Name,
    /// Why, in a sentence.
    pub reason: String,
    /// For how long.
    pub span: Duration,
}

impl Pool {
    /// Sets members aside for a time because an answer that came through them says so, at most so many percent of all members.
    /// Those that are set aside otherwise, or are no members any more, stay what they are. Returns what followed.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn ban(&self, bans: &[Ban], max_parked: u8) -> Result<Vec<Change>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.ban(bans, max_parked)),
            Self::Redis(pool) => pool.ban(bans, max_parked).await,
        }
    }

    /// Keeps members from the requests of one host for a time: no more than so many percent of the eligible, and never the last;
    /// without a share, as many as are named. Returns what became of each. Reasons are for logs, and are not kept.
    ///
    /// A host is named as in a URL, in lower case, IPv6 in brackets, and without a port.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn ban_for(&self, host: &str, bans: &[Ban], share: Option<u8>) -> Result<Vec<HostBan>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.ban_for(host, bans, share)),
            Self::Redis(pool) => pool.ban_for(host, bans, share).await,
        }
    }

    /// Lets members have the requests of a host again. Returns those that were banned.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn unban_for(&self, host: &str, members: &[Name]) -> Result<Vec<Name>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.unban_for(host, members)),
            Self::Redis(pool) => pool.unban_for(host, members).await,
        }
    }

    /// The hosts that have banned members, if they are others than when `seen` was given; it is given anew.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn hosts(&self, seen: &mut Option<u64>) -> Result<Option<Vec<String>>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.hosts(seen)),
            Self::Redis(pool) => pool.hosts(seen).await,
        }
    }

    /// Whom which host has banned, in order of hosts, then members. A large answer, read in pages.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn banned(&self) -> Result<Vec<BannedBy>, PoolError> {
        match self {
            Self::Embedded(pool) => Ok(pool.banned()),
            Self::Redis(pool) => pool.banned().await,
        }
    }
}
