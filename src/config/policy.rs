//! Who is chosen, and what goes with that only.

use std::time::Duration;

use super::reader::Reader;
use super::value::{self, Value};
use crate::pool::{Concurrency, Initial, Policy};

/// Redis may be away or a machine stand still for 2 s or so without everything in flight being counted anew.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// More than an upstream proxy can have connections from one machine.
const MAX_IN_FLIGHT: u64 = 1_000_000;
/// Shorter, and it is how busy machines are that is measured.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
/// Longer, and the dead are counted for longer than people wait.
const MAX_HEARTBEAT: Duration = Duration::from_secs(5 * 60);
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

/// What goes with `policy` of `pool.initial` and `pool.restore`.
pub(super) fn start(initial: Initial, policy: Policy) -> Result<Initial, String> {
    match initial {
        Initial::Ramp if policy != Policy::LeastUsed => {
            Err(r#"can be "ramp" with pool.policy = "least-used" only: under others no count has to catch up"#
                .to_owned())
        }
        initial => Ok(initial),
    }
}

/// `pool.prefetch`
pub(super) fn prefetch(value: &Value<'_>, policy: Policy) -> Result<usize, String> {
    match value::whole(0..=MAX_PREFETCH)(value)? {
        1.. if policy != Policy::LeastUsed => {
            Err(r#"goes with pool.policy = "least-used" only: what is in flight cannot be known ahead of need"#
                .to_owned())
        }
        count => Ok(count),
    }
}
