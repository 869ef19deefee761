//! Who is chosen.

use std::time::Duration;

/// Who is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The member with the fewest allocations so far.
    LeastUsed,
    /// The member with the fewest requests in flight, among equals the least used.
    LeastConcurrent(Concurrency),
}

/// How members are chosen by what they have in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// As many requests as a member may have in flight; 0: any number.
    pub max_in_flight: u64,
    /// What a gateway that died had in flight is returned after this at the latest; in Redis only.
    pub heartbeat: Duration,
}
