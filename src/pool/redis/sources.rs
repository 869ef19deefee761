//! What sources name, kept in Redis: which members came from which list, for every gateway that reads it.

use bytes::Bytes;
use fred::prelude::Value;

use super::members::newcomer;
use super::reply::{nonsense, number, strings};
use super::{CHUNK, LOOKUP, Redis, scripts};
use crate::member::Name;
use crate::pool::{Dropped, Initial, PoolError, Reading};

/// How often the names of the other sources may change while members are forgotten.
const MAX_CHANGES: usize = 8;

impl Redis {
    /// See [`crate::pool::Pool::begin_reading`].
    pub(in crate::pool) async fn begin_reading(&self, name: &str, initial: Initial) -> Result<Reading, PoolError> {
        let (keys, link) = (self.shared.keys.with_source(name), &self.shared.link);
        let reply = link.run(&scripts::BEGIN_READING, &keys, [name.into()], link.deadline()).await?;
        let [since, known, eligible] = <[Bytes; 3]>::try_from(strings(reply)?).map_err(|_| nonsense())?;
        Ok(Reading::new(name, number(&since)?, number(&known)?, number(&eligible)?, initial))
    }

    /// See [`crate::pool::Pool::sources`].
    pub(in crate::pool) async fn source_names(&self) -> Result<Vec<String>, PoolError> {
        let names = strings(self.call("SMEMBERS", vec![self.shared.keys.sources()]).await?)?;
        let mut names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// That there is such a source.
    pub(in crate::pool) async fn forget_source(&self, name: &str) -> Result<(), PoolError> {
        self.call("SREM", vec![self.shared.keys.sources(), name.into()]).await?;
        Ok(())
    }

    /// See [`crate::pool::Pool::take`].
    pub(in crate::pool) async fn take(
        &self,
        reading: &mut Reading,
        members: &[Name],
        as_candidates: bool,
    ) -> Result<u64, PoolError> {
        let (keys, link) = (self.shared.keys.with_source(&reading.source), &self.shared.link);
        let kind = Value::from_static_str(if as_candidates { "candidate" } else { "eligible" });
        let which = Value::from_static_str(if reading.refills { "all" } else { "new" });
        let mut taken = 0;
        for chunk in members.chunks(CHUNK) {
            let start = reading.start.map_or_else(|| newcomer(reading.initial), |count| count.to_string().into());
            let first = [Value::from(reading.since.to_string()), kind.clone(), which.clone(), start];
            let args = first.into_iter().chain(chunk.iter().cloned().map(Value::from));
            let reply = strings(link.run(&scripts::TAKE, &keys, args, link.deadline()).await?)?;
            let [entered, start] = <[Bytes; 2]>::try_from(reply).map_err(|_| nonsense())?;
            taken += number::<u64>(&entered)?;
            // Who catches up slowly starts at nothing, whatever the others have.
            reading.start = if start == "ramp" { None } else { Some(number(&start)?) };
        }
        Ok(taken)
    }

    /// See [`crate::pool::Pool::missing`].
    pub(in crate::pool) async fn missing(&self, reading: &Reading, most: usize) -> Result<Vec<Name>, PoolError> {
        let before = Value::from(format!("({}", reading.since));
        let limit = [Value::from_static_str("LIMIT"), Value::from(0), Value::from(most.clamp(1, LOOKUP) as i64)];
        let range = [self.shared.keys.source(&reading.source), Value::from_static_str("-inf"), before];
        strings(self.call("ZRANGEBYSCORE", range.into_iter().chain(limit).collect()).await?)
    }

    /// See [`crate::pool::Pool::forget`].
    pub(in crate::pool) async fn forget(
        &self,
        reading: &Reading,
        members: &[Name],
        remove: bool,
    ) -> Result<Dropped, PoolError> {
        let mut dropped = Dropped::default();
        let mut left = Vec::new();
        for chunk in members.chunks(CHUNK) {
            let (forgotten, more) = self.forget_chunk(reading, chunk, remove).await?;
            dropped.forgotten += forgotten;
            left.extend(more);
        }
        dropped.removed = left.len() as u64;
        if !left.is_empty() {
            if remove {
                self.lose_memory(&left, false).await?;
            }
            self.leave_hosts(&left).await?;
        }
        Ok(dropped)
    }

    /// How many were forgotten, and who of them left the pool. Sources come and go elsewhere; the script only runs if it was given
    /// every one there is.
    async fn forget_chunk(
        &self,
        reading: &Reading,
        members: &[Name],
        remove: bool,
    ) -> Result<(u64, Vec<Name>), PoolError> {
        let (all, link) = (&self.shared.keys, &self.shared.link);
        let what = Value::from_static_str(if remove { "remove" } else { "keep" });
        for _ in 0..MAX_CHANGES {
            let names = strings(self.call("SMEMBERS", vec![all.sources()]).await?)?;
            let others: Vec<&str> = names
                .iter()
                .filter(|name| **name != reading.source)
                .map(|name| std::str::from_utf8(name).map_err(|_| nonsense()))
                .collect::<Result<_, _>>()?;
            let mut keys = all.with_source(&reading.source);
            keys.extend(others.iter().map(|name| all.source(name)));
            let first = [Value::from(reading.since.to_string()), what.clone(), Value::from(others.len() as i64)];
            let named = others.iter().copied().map(Value::from);
            let args = first.into_iter().chain(named).chain(members.iter().cloned().map(Value::from));
            let mut reply = strings(link.run(&scripts::DROP, &keys, args, link.deadline()).await?)?.into_iter();
            let forgotten = reply.next().ok_or_else(nonsense)?;
            if forgotten != "-1" {
                return Ok((number(&forgotten)?, reply.collect()));
            }
        }
        Err(PoolError::Refused("the set of sources changes all the time".to_owned()))
    }
}
