//! Who is chosen, and what goes with that only.

use std::time::Duration;

use super::reader::Reader;
use super::value::{self, Value};
use crate::pool::{Concurrency, Initial, PerHost, Policy};

/// Redis may be away or a machine stand still for 2 s or so without everything in flight being counted anew.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// A Redis that was restarted or has failed over is back by then; longer, and who was taken out of the pool is used for too long.
const LOCAL_FOR: Duration = Duration::from_secs(5 * 60);

/// More than an upstream proxy can have connections from one machine.
const MAX_IN_FLIGHT: u64 = 1_000_000;
/// Shorter, and it is how busy machines are that is measured.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
/// Longer, and the dead are counted for longer than people wait.
const MAX_HEARTBEAT: Duration = Duration::from_secs(5 * 60);
/// A crawler's usual breadth; of a pool of 1,000 they take 140 MB.
const MAX_HOSTS: usize = 1_000;
/// Longer than most pauses, and short against the time in which counts would get old.
const HOST_IDLE: Duration = Duration::from_secs(10 * 60);
const MOST_HOSTS: u64 = 1_000_000;
const SHORTEST_IDLE: Duration = Duration::from_secs(1);
const LONGEST_IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// Four script calls' worth, for each worker.
const MAX_PREFETCH: u64 = 256;

/// `pool.policy`, and the keys of least-concurrent.
pub(super) fn read(reader: &mut Reader<'_>) -> Policy {
    let is_least_concurrent = reader.key("pool.policy", false, |value| match value.text() {
        Some("least-used") => Ok(false),
        Some("least-concurrent") => Ok(true),
        _ => Err(format!(r#"must be "least-used" or "least-concurrent", not {value}"#)),
    });
    let concurrency = Concurrency {
        max_in_flight: reader.key("pool.max_in_flight", 0, |value| match value::whole(0..=MAX_IN_FLIGHT)(value)? {
            // Unheard, it would be a limit that is none.
            1.. if !is_least_concurrent => Err(r#"needs pool.policy = "least-concurrent""#.to_owned()),
            most => Ok(most),
        }),
        heartbeat: reader.key("pool.heartbeat", HEARTBEAT, value::between(MIN_HEARTBEAT, MAX_HEARTBEAT)),
    };
    if is_least_concurrent { Policy::LeastConcurrent(concurrency) } else { Policy::LeastUsed }
}

/// `pool.scope`, and its keys.
pub(super) fn scope(reader: &mut Reader<'_>, policy: Policy) -> Option<PerHost> {
    let is_host = reader.key("pool.scope", false, |value| match value.text() {
        Some("pool") => Ok(false),
        Some("host") if policy != Policy::LeastUsed => {
            Err(r#"can be "host" with pool.policy = "least-used" only: what is in flight is so whatever the host"#
                .to_owned())
        }
        Some("host") => Ok(true),
        _ => Err(format!(r#"must be "pool" or "host", not {value}"#)),
    });
    let limits = PerHost {
        max_hosts: reader.key("pool.max_hosts", MAX_HOSTS, value::whole(1..=MOST_HOSTS)),
        idle: reader.key("pool.host_idle", HOST_IDLE, value::between(SHORTEST_IDLE, LONGEST_IDLE)),
    };
    is_host.then_some(limits)
}

/// What goes with `policy` and `scope` of `pool.initial` and `pool.restore`.
pub(super) fn start(initial: Initial, policy: Policy, scope: Option<PerHost>) -> Result<Initial, String> {
    match initial {
        Initial::Ramp if scope.is_some() => {
            Err(r#"can be "ramp" with pool.scope = "pool" only: with counts for each host there is not one to catch up with"#
                .to_owned())
        }
        Initial::Ramp if policy != Policy::LeastUsed => {
            Err(r#"can be "ramp" with pool.policy = "least-used" only: under others no count has to catch up"#
                .to_owned())
        }
        initial => Ok(initial),
    }
}

/// `pool.prefetch`
pub(super) fn prefetch(value: &Value<'_>, policy: Policy, scope: Option<PerHost>) -> Result<usize, String> {
    match value::whole(0..=MAX_PREFETCH)(value)? {
        1.. if scope.is_some() => {
            Err(r#"goes with pool.scope = "pool" only: the host cannot be known ahead of need"#.to_owned())
        }
        1.. if policy != Policy::LeastUsed => {
            Err(r#"goes with pool.policy = "least-used" only: what is in flight cannot be known ahead of need"#
                .to_owned())
        }
        count => Ok(count),
    }
}

/// `pool.when_unreachable` and `pool.local_for`: for how long members are chosen in this process, if they are.
pub(super) fn local_for(reader: &mut Reader<'_>, policy: Policy) -> Option<Duration> {
    let is_local = reader.key("pool.when_unreachable", false, |value| match value.text() {
        Some("refuse") => Ok(false),
        Some("local") if policy != Policy::LeastUsed => {
            Err(r#"can be "local" with pool.policy = "least-used" only: what is in flight is known to Redis alone"#
                .to_owned())
        }
        Some("local") => Ok(true),
        _ => Err(format!(r#"must be "refuse" or "local", not {value}"#)),
    });
    let longest = reader.key("pool.local_for", LOCAL_FOR, value::timeout);
    is_local.then_some(longest)
}
