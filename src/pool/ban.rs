//! Bans: members that are set aside, or kept from the requests of one host, because an answer said so.

use std::time::Duration;

use crate::member::Name;

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
