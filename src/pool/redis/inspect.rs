//! Reading a pool as it is, whatever anyone has done to its keys: in pages, so that Redis serves others in between, and nothing
//! is kept of a page.

use bytes::Bytes;
use fred::prelude::Value;

use super::reply::{nonsense, number, string, strings};
use super::{CHUNK, LOOKUP, Redis, scripts};
use crate::member::Name;
use crate::pool::verify::{Context, LOWEST, Place, Rule, Standing, Survey, Verdict};
use crate::pool::{Entry, PoolError};

impl Redis {
    /// See [`crate::pool::Pool::verify`].
    pub(in crate::pool) async fn verify(&self, context: Context) -> Result<Verdict, PoolError> {
        let mut survey = Survey::new(context);
        if let Some(policy) = self.evicts().await? {
            let sentence =
                format!("maxmemory-policy is {policy}: a Redis that is full may evict the pool; set it to noeviction");
            survey.about_keys(Rule::Evicts, sentence);
        }
        let usable = self.usable(&mut survey).await?;
        let [set, parked, returns, candidates, streaks, ramping, turns, _, failures, trials, ..] =
            self.shared.keys.all()
        else {
            return Ok(survey.verdict());
        };
        for (key, place) in [
            (parked, Place::Parked),
            (returns, Place::Returns),
            (candidates, Place::Candidates),
            (streaks, Place::Streaks),
            (ramping, Place::Ramping),
            (turns, Place::Turns),
            (failures, Place::Failures),
            (trials, Place::Trials),
        ] {
            if usable.contains(key) {
                self.read_other(key, place, &mut survey).await?;
            }
        }
        if usable.contains(set) {
            self.read_set(set, &mut survey).await?;
        }
        Ok(survey.verdict())
    }

    /// The keys that are there and of the right type.
    async fn usable(&self, survey: &mut Survey) -> Result<Vec<Value>, PoolError> {
        let mut usable = Vec::new();
        for (key, shown, expected) in self.shared.keys.typed() {
            let found = string(self.call("TYPE", vec![key.clone()]).await?)?;
            if found == expected {
                usable.push(key.clone());
                if let Value::Integer(ms @ 0..) = self.call("PTTL", vec![key]).await? {
                    let sentence =
                        format!("{shown} expires in {} s, and with it what it holds; PERSIST it", ms / 1_000);
                    survey.about_keys(Rule::Expires, sentence);
                }
            } else if found != "none" {
                let kind = String::from_utf8_lossy(&found).into_owned();
                let sentence = format!("{shown} is a {kind} instead of a {expected}, which is of no use; delete it");
                survey.about_keys(Rule::WrongType, sentence);
            }
        }
        Ok(usable)
    }

    async fn read_set(&self, key: &Value, survey: &mut Survey) -> Result<(), PoolError> {
        survey.next_key();
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let (next, page) = self.scan("ZSCAN", key, cursor).await?;
            let page: Vec<(Name, f64)> =
                page.chunks_exact(2).map(|pair| Ok((pair[0].clone(), score(&pair[1])?))).collect::<Result<_, _>>()?;
            let Value::Integer(size) = self.call("ZCARD", vec![key.clone()]).await? else { return Err(nonsense()) };
            let lowest = self.lowest(key, 1).await?.first().map_or(f64::NEG_INFINITY, |entry| entry.count);
            survey.set(&page, size.try_into().unwrap_or(0), lowest);
            if next == "0" {
                break;
            }
            cursor = next;
        }
        survey.lowest(self.lowest(key, LOWEST as i64).await?);
        Ok(())
    }

    async fn read_other(&self, key: &Value, place: Place, survey: &mut Survey) -> Result<(), PoolError> {
        survey.next_key();
        let scan = if matches!(place, Place::Parked | Place::Streaks) { "HSCAN" } else { "ZSCAN" };
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let (next, page) = self.scan(scan, key, cursor).await?;
            for chunk in page.chunks(2 * CHUNK) {
                let members = chunk.chunks_exact(2).map(|pair| Value::from(pair[0].clone()));
                let standings = strings(self.run(&scripts::STANDING, members).await?)?;
                for (pair, standing) in chunk.chunks_exact(2).zip(&standings) {
                    survey.other(place, &pair[0], &pair[1], Standing(standing));
                }
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// The least used.
    async fn lowest(&self, key: &Value, n: i64) -> Result<Vec<Entry>, PoolError> {
        let args = vec![key.clone(), 0.into(), (n - 1).into(), Value::from_static_str("WITHSCORES")];
        let reply = strings(self.call("ZRANGE", args).await?)?;
        reply
            .chunks_exact(2)
            .map(|pair| Ok(Entry { member: Name::copy_from_slice(&pair[0]), count: score(&pair[1])? }))
            .collect()
    }

    /// A page of a sorted set or a hash, and the cursor of the next.
    async fn scan(&self, command: &'static str, key: &Value, cursor: Bytes) -> Result<(Bytes, Vec<Bytes>), PoolError> {
        let count = [Value::from_static_str("COUNT"), Value::from(LOOKUP as i64)];
        let args = [key.clone(), cursor.into()].into_iter().chain(count).collect();
        let Value::Array(reply) = self.call(command, args).await? else { return Err(nonsense()) };
        let [next, page] = <[Value; 2]>::try_from(reply).map_err(|_| nonsense())?;
        Ok((string(next)?, strings(page)?))
    }

    /// The policy of a Redis with a limit of memory that evicts keys without a time to live, as those of a pool are.
    async fn evicts(&self) -> Result<Option<String>, PoolError> {
        let info = string(self.call("INFO", vec![Value::from_static_str("memory")]).await?)?;
        let info = String::from_utf8_lossy(&info);
        let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let policy = field("maxmemory_policy:");
        let is_limited = !matches!(field("maxmemory:"), "" | "0");
        Ok((is_limited && policy.starts_with("allkeys")).then(|| policy.to_owned()))
    }
}

/// Redis holds -0 and 0 for equal.
fn score(text: &Bytes) -> Result<f64, PoolError> {
    Ok(number::<f64>(text)? + 0.0)
}
