//! Reading a pool as it is, whatever anyone has done to its keys: in pages, so that Redis serves others in between, and nothing
//! is kept of a page.

use std::collections::BTreeSet;

use bytes::Bytes;
use fred::prelude::Value;

use super::reply::{nonsense, number, string, strings};
use super::{CHUNK, LOOKUP, Redis, scripts};
use crate::member::Name;
use crate::pool::verify::{Context, LOWEST, Place, Rule, Standing, Survey, Verdict};
use crate::pool::{Entry, PoolError};

/// How often gateways may come and go while a few of their leases are read.
const TRIES: usize = 8;

/// What a key should do.
#[derive(Clone, Copy)]
enum Life {
    ForEver,
    /// Expire when nobody needs it any more.
    Short,
}

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
        let [set, parked, returns, candidates, streaks, ramping, turns, _, failures, trials, checks] =
            self.shared.keys.all()
        else {
            return Ok(survey.verdict());
        };
        let [verdicts, ends] = &[self.shared.keys.verdicts(), self.shared.keys.verdict_ends()];
        let [tallies, countries] = &self.shared.keys.memory();
        for (key, place) in [
            (parked, Place::Parked),
            (returns, Place::Returns),
            (candidates, Place::Candidates),
            (streaks, Place::Streaks),
            (ramping, Place::Ramping),
            (turns, Place::Turns),
            (failures, Place::Failures),
            (trials, Place::Trials),
            (checks, Place::Checks),
            (verdicts, Place::Verdicts),
            (ends, Place::Ends),
            (tallies, Place::Tallies),
            (countries, Place::Countries),
        ] {
            if usable.contains(key) {
                self.read_other(key, place, &mut survey).await?;
            }
        }
        self.read_hosts(&usable, &mut survey).await?;
        self.read_sources(&usable, &mut survey).await?;
        self.read_leases(&usable, &mut survey).await?;
        if usable.contains(set) {
            self.read_set(set, &mut survey).await?;
        }
        Ok(survey.verdict())
    }

    /// The keys that are there and of the right type.
    async fn usable(&self, survey: &mut Survey) -> Result<Vec<Value>, PoolError> {
        let mut usable = Vec::new();
        for (key, expected) in self.shared.keys.typed() {
            if self.is_usable(&key, expected, Life::ForEver, survey).await? {
                usable.push(key);
            }
        }
        Ok(usable)
    }

    /// Whether a key is there, of the right type.
    async fn is_usable(&self, key: &Value, expected: &str, life: Life, survey: &mut Survey) -> Result<bool, PoolError> {
        let found = string(self.call("TYPE", vec![key.clone()]).await?)?;
        if found == "none" {
            return Ok(false);
        }
        let shown = self.shared.keys.shown(key);
        if found != expected {
            let kind = String::from_utf8_lossy(&found).into_owned();
            let sentence = format!("{shown} is a {kind} instead of a {expected}, which is of no use; delete it");
            survey.about_keys(Rule::WrongType, sentence);
            return Ok(false);
        }
        match (self.call("PTTL", vec![key.clone()]).await?, life) {
            (Value::Integer(ms @ 0..), Life::ForEver) => {
                let sentence = format!("{shown} expires in {} s, and with it what it holds; PERSIST it", ms / 1_000);
                survey.about_keys(Rule::Expires, sentence);
            }
            (Value::Integer(-1), Life::Short) => {
                let sentence = format!("{shown} never expires, and stays when nobody needs it any more; delete it");
                survey.about_keys(Rule::Lingers, sentence);
            }
            _ => {}
        }
        Ok(true)
    }

    /// What there is of each host: whom it has banned, how far they reach, its counts, and how far these follow the pool.
    async fn read_hosts(&self, usable: &[Value], survey: &mut Survey) -> Result<(), PoolError> {
        let keys = &self.shared.keys;
        let mut hosts = BTreeSet::new();
        for key in [keys.counted(), keys.hosts()].iter().filter(|key| usable.contains(key)) {
            hosts.extend(self.scores(key).await?.into_keys());
        }
        for host in hosts {
            let host = String::from_utf8_lossy(&host).into_owned();
            let [banned, place] = keys.of_host(&host);
            let [counts, sync] = keys.counts_of(&host);
            if self.is_usable(&banned, "zset", Life::Short, survey).await? {
                self.read_bans(&host, &banned, survey).await?;
            }
            if self.is_usable(&counts, "zset", Life::Short, survey).await? {
                let given = self.scores(&counts).await?;
                given.iter().for_each(|(member, score)| survey.given(member, *score));
            }
            for key in [place, sync] {
                self.is_usable(&key, "hash", Life::Short, survey).await?;
            }
        }
        Ok(())
    }

    async fn read_bans(&self, host: &str, key: &Value, survey: &mut Survey) -> Result<(), PoolError> {
        let mut banned: Vec<(Name, f64)> = self.scores(key).await?.into_iter().collect();
        // Read behind them, as it only grows while members are banned. Where it does not go with them, that may be because the
        // last of them has just been let off.
        let mut heard_ms = self.heard_ms(host).await?;
        if banned.iter().any(|(_, until)| *until > heard_ms) {
            banned = self.scores(key).await?.into_iter().collect();
            heard_ms = self.heard_ms(host).await?;
        }
        // Of what is over nobody need hear: the host is forgotten then, perhaps before the ban is taken out.
        heard_ms = heard_ms.max(self.now_ms().await?);
        for chunk in banned.chunks(CHUNK) {
            let standings = self.standings(chunk.iter().map(|(member, _)| member)).await?;
            for ((member, until), standing) in chunk.iter().zip(&standings) {
                survey.banned(member, *until, heard_ms, Standing(standing));
            }
        }
        Ok(())
    }

    /// By the clock of Redis.
    async fn now_ms(&self) -> Result<f64, PoolError> {
        let time = strings(self.call("TIME", vec![]).await?)?;
        let [seconds, micros] = &time[..] else { return Err(nonsense()) };
        Ok((number::<f64>(seconds)? * 1000.0 + number::<f64>(micros)? / 1000.0).floor())
    }

    /// Until when gateways believe that a host has banned members.
    async fn heard_ms(&self, host: &str) -> Result<f64, PoolError> {
        match self.call("ZSCORE", vec![self.shared.keys.hosts(), host.into()]).await? {
            Value::Null => Ok(f64::NEG_INFINITY),
            score => number(&string(score)?),
        }
    }

    /// Of sources, whether they can be used: who is named and in no state was removed by hand.
    async fn read_sources(&self, usable: &[Value], survey: &mut Survey) -> Result<(), PoolError> {
        if usable.contains(&self.shared.keys.sources()) {
            for name in self.source_names().await? {
                self.is_usable(&self.shared.keys.source(&name), "zset", Life::ForEver, survey).await?;
            }
        }
        Ok(())
    }

    /// What is in flight must be what gateways have in flight, together.
    async fn read_leases(&self, usable: &[Value], survey: &mut Survey) -> Result<(), PoolError> {
        let keys = &self.shared.lease_keys;
        if !usable.contains(keys.in_flight()) {
            return Ok(());
        }
        survey.next_key();
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let (next, page) = self.scan("HSCAN", keys.in_flight(), cursor).await?;
            let members: Vec<Name> = page.chunks_exact(2).map(|pair| pair[0].clone()).collect();
            for chunk in members.chunks(CHUNK) {
                self.read_leases_of(chunk, survey).await?;
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }

    async fn read_leases_of(&self, members: &[Name], survey: &mut Survey) -> Result<(), PoolError> {
        let (keys, link) = (&self.shared.lease_keys, &self.shared.link);
        // Gateways come and go; whoever reads a pool in which they never stop doing that says nothing of it.
        for _ in 0..TRIES {
            let gateways = self.scores(keys.gateways()).await?;
            let all = keys.of_gateways(gateways.keys());
            let args = gateways.into_keys().chain(members.iter().cloned()).map(Value::from);
            let reply = strings(link.run(&scripts::IN_HAND, &all, args, link.deadline()).await?)?;
            if let [word, told @ ..] = &reply[..]
                && word == "same"
            {
                for (member, one) in members.iter().zip(told.chunks_exact(2)) {
                    survey.flying(member, &one[0], &one[1]);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    async fn standings(&self, members: impl Iterator<Item = &Name>) -> Result<Vec<Bytes>, PoolError> {
        let link = &self.shared.link;
        let args = members.cloned().map(Value::from);
        strings(link.run(&scripts::STANDING, &self.shared.keys.for_standing(), args, link.deadline()).await?)
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
        let is_hash =
            matches!(place, Place::Parked | Place::Streaks | Place::Verdicts | Place::Tallies | Place::Countries);
        let scan = if is_hash { "HSCAN" } else { "ZSCAN" };
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let (next, page) = self.scan(scan, key, cursor).await?;
            for chunk in page.chunks(2 * CHUNK) {
                let standings = self.standings(chunk.chunks_exact(2).map(|pair| &pair[0])).await?;
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
