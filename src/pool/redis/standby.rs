//! What choosing without Redis needs of Redis while it is there: the set, read now and then, and an ear for what was chosen.
//!
//! The set is read in pages with pauses, and every allocation that was made without Redis is told once: a batch without an
//! answer is sent again under its number, which `lua/count.lua` remembers.
//! Not here: choosing ([`crate::pool::local`]). Cost: one call a second, and a reading every 10 s or more.

use std::time::Duration;

use fred::prelude::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::reply::{nonsense, number, string, strings};
use super::{CHUNK, Redis, scripts};
use crate::pool::PoolError;
use crate::pool::local::{Local, Reading};

/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(1);
/// Between two readings of the set.
const READ_EVERY: Duration = Duration::from_secs(10);
/// And longer for large ones, so that reading takes less than a hundredth of Redis' time: 100,000 members every 20 s, in 0.14 s.
const READ_EVERY_PER_MEMBER: Duration = Duration::from_micros(200);
/// Members per page, about: 0.6 ms in which Redis does nothing else.
const PAGE: i64 = 500;
/// From one page to the next.
const PAGE_PAUSE: Duration = Duration::from_millis(5);
/// Redis remembers a batch for so long, ms: a day, in which its answer should come.
const MEMORY_MS: i64 = 24 * 60 * 60 * 1000;

impl Redis {
    /// See [`crate::pool::Pool::stand_by`].
    pub(in crate::pool) async fn stand_by(&self) {
        let Some(local) = self.shared.local.get() else { return std::future::pending().await };
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut due = Instant::now();
        loop {
            ticks.tick().await;
            if let Err(error) = self.keep_up(local, &mut due).await {
                tracing::debug!(%error, "could not read the pool for times without Redis");
            }
        }
    }

    /// See [`crate::pool::Pool::tell_owed`].
    pub(in crate::pool) async fn tell_owed(&self) -> Result<(), PoolError> {
        let Some(local) = self.shared.local.get() else { return Ok(()) };
        if local.owed() == 0 {
            return Ok(());
        }
        let told = self.tell(local).await;
        let allocations = local.owed();
        if allocations > 0 {
            tracing::warn!("the pool was not told of {allocations} allocations that were made without Redis");
        }
        told.map(drop)
    }

    async fn keep_up(&self, local: &Local, due: &mut Instant) -> Result<(), PoolError> {
        let members = self.tell(local).await?;
        local.hear(Instant::now());
        if Instant::now() >= *due {
            self.read(local).await?;
            let members = u32::try_from(members).unwrap_or(u32::MAX);
            *due = Instant::now() + READ_EVERY.max(READ_EVERY_PER_MEMBER * members);
        }
        Ok(())
    }

    /// Returns how many members are in the set. While it is empty nothing is told: a Redis that has lost it gets it back from
    /// somebody.
    async fn tell(&self, local: &Local) -> Result<i64, PoolError> {
        let set = self.shared.keys.set()[0].clone();
        let Value::Integer(members) = self.call("ZCARD", vec![set]).await? else { return Err(nonsense()) };
        if members == 0 {
            return Ok(0);
        }
        let keys = self.shared.keys.with_told(&self.shared.name);
        while let Some(batch) = local.next_batch(CHUNK) {
            let limits = [batch.number.to_string().into(), Value::from(MEMORY_MS)];
            let members = batch.members.into_iter();
            let counts = members.flat_map(|(member, n)| [Value::from(member), Value::from(n.to_string())]);
            let link = &self.shared.link;
            let args = limits.into_iter().chain(counts);
            let reply = link.run(&scripts::COUNT, &keys, args, link.deadline()).await?;
            let counted: i64 = number(&string(reply)?)?;
            local.told(batch.number);
            tracing::debug!(batch = batch.number, counted, "told the pool of allocations that were made without Redis");
        }
        Ok(members)
    }

    /// Whoever is in the set all the while is read; who comes or goes meanwhile, perhaps.
    async fn read(&self, local: &Local) -> Result<(), PoolError> {
        let mut reading = Reading::default();
        let mut cursor = Value::from_static_str("0");
        loop {
            let count = [Value::from_static_str("COUNT"), Value::from(PAGE)];
            let args = [self.shared.keys.set()[0].clone(), cursor].into_iter().chain(count).collect();
            let Value::Array(reply) = self.call("ZSCAN", args).await? else { return Err(nonsense()) };
            let Ok([next, page]) = <[Value; 2]>::try_from(reply) else { return Err(nonsense()) };
            for pair in strings(page)?.chunks(2) {
                let [member, score] = pair else { return Err(nonsense()) };
                reading.push(member, number::<f64>(score)? + 0.0);
            }
            let next = string(next)?;
            if next == "0" {
                break;
            }
            cursor = next.into();
            sleep(PAGE_PAUSE).await;
        }
        local.know(reading).await;
        Ok(())
    }
}
