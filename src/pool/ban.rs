//! Bans: members that are set aside, or kept from the requests of one host, because an answer said so.

use std::time::Duration;

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
