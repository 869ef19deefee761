//! Candidates kept in Redis: who is judged by whom, what was thought of them, and what is remembered of members.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use fred::prelude::Value;

use super::members::newcomer;
use super::reply::{nonsense, strings};
use super::{CHUNK, Redis, scripts};
use crate::member::Name;
use crate::pool::{Judged, Judging, Memory, PoolError, Rejection};

impl Redis {
    /// See [`crate::pool::Pool::claim_candidates`].
    pub(in crate::pool) async fn claim_candidates(
        &self,
        most: usize,
        lease: Duration,
        by: &str,
        is_new: bool,
    ) -> Result<Option<Vec<Name>>, PoolError> {
        let (keys, link) = (self.shared.keys.with_verdicts(), &self.shared.link);
        let lease = Value::from(lease.as_millis().to_string());
        let args = [Value::from(most.clamp(1, CHUNK) as i64), lease, by.into(), i64::from(is_new).to_string().into()];
        let mut reply = strings(link.run(&scripts::CLAIM_CANDIDATES, &keys, args, link.deadline()).await?)?;
        match reply.first() {
            Some(word) if word == "1" => Ok(Some(reply.split_off(1))),
            Some(_) => Ok(None),
            None => Err(nonsense()),
        }
    }

    /// See [`crate::pool::Pool::judged`].
    pub(in crate::pool) async fn judged(&self, judged: &[Judged], judging: &Judging) -> Result<Vec<Name>, PoolError> {
        let (keys, link) = (self.shared.keys.with_verdicts(), &self.shared.link);
        let milliseconds = |span: Duration| Value::from(span.as_millis().to_string());
        let limits = [
            Value::from(&*judging.by),
            milliseconds(judging.first),
            milliseconds(judging.longest),
            newcomer(judging.initial),
        ];
        let opinions = judged.iter().flat_map(|Judged { member, opinion, luck }| {
            let (word, reason) = opinion.parts();
            [member.clone().into(), Value::from_static_str(word), reason.into(), luck.to_string().into()]
        });
        strings(link.run(&scripts::JUDGED, &keys, limits.into_iter().chain(opinions), link.deadline()).await?)
    }

    /// See [`crate::pool::Pool::rejections`].
    pub(in crate::pool) async fn rejections(&self) -> Result<HashMap<Name, Rejection>, PoolError> {
        let verdicts = self.fields_of(&self.shared.keys.verdicts()).await?;
        // A verdict that somebody else wrote tells nothing.
        let read = |(member, text): (Name, Bytes)| Some((member, serde_json::from_slice(&text).ok()?));
        Ok(verdicts.into_iter().filter_map(read).collect())
    }

    /// See [`crate::pool::Pool::tally`].
    pub(in crate::pool) async fn tally(&self, checks: &[(Name, Option<bool>)]) -> Result<Vec<Memory>, PoolError> {
        let (keys, link) = (self.shared.keys.memory(), &self.shared.link);
        let mut memories = Vec::with_capacity(checks.len());
        for chunk in checks.chunks(CHUNK) {
            let args = chunk.iter().flat_map(|(member, passed)| {
                let mark = passed.map_or("", |passed| if passed { "+" } else { "-" });
                [Value::from(member.clone()), Value::from_static_str(mark)]
            });
            let reply = strings(link.run(&scripts::TALLY, &keys, args, link.deadline()).await?)?;
            for one in reply.chunks(2) {
                let [checks, country] = one else { return Err(nonsense()) };
                let country = String::from_utf8_lossy(country).into_owned();
                memories.push(Memory::of(&String::from_utf8_lossy(checks), Some(country).filter(|c| !c.is_empty())));
            }
        }
        Ok(memories)
    }

    /// See [`crate::pool::Pool::note_countries`].
    pub(in crate::pool) async fn note_countries(&self, countries: &[(Name, String)]) -> Result<(), PoolError> {
        for chunk in countries.chunks(CHUNK) {
            let [_, countries] = self.shared.keys.memory();
            let pairs = chunk.iter().flat_map(|(member, country)| [member.clone().into(), Value::from(&**country)]);
            self.call("HSET", std::iter::once(countries).chain(pairs).collect()).await?;
        }
        Ok(())
    }

    /// What is known of members beside their state goes with them. `all`: also the verdicts on them.
    pub(in crate::pool) async fn lose_memory(&self, members: &[Name], all: bool) -> Result<(), PoolError> {
        let (keys, link) = (&self.shared.keys, &self.shared.link);
        let mut forgetting = keys.memory().to_vec();
        if all {
            forgetting.extend([keys.verdicts(), keys.verdict_ends()]);
        }
        for chunk in members.chunks(CHUNK) {
            let names = chunk.iter().cloned().map(Value::from);
            link.run(&scripts::FORGET, &forgetting, names, link.deadline()).await?;
        }
        Ok(())
    }
}
