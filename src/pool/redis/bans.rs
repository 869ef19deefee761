//! Members that answers have banned, kept in Redis: set aside as a whole, or kept from the requests of one host.
//!
//! `KEY:host:HOST` holds whom a host has banned, and is gone when that is over; so are the hosts of `KEY:hosts`, of which there are
//! no more than so many. A host without bans has no key, and its requests are allocated as if there were none.
//! Choosing for a host that has some is one script (`lua/unbanned.lua`): the least-used of the pool that it has not banned, by the
//! pool's own counts. Where a great many banned members have to be passed, it says so and is called again, and goes on where it was.

use std::collections::HashMap;

use fred::prelude::Value;

use super::members::{changes, milliseconds};
use super::reply::{nonsense, number, strings};
use super::{CHUNK, Redis, scripts};
use crate::member::Name;
use crate::pool::ban::MOST_HOSTS;
use crate::pool::{Ban, BannedBy, Change, HostBan, PerHost, PoolError};

/// Calls for one request, each of which passes a thousand banned members, or looks at a thousand of the pool.
const MOST_CALLS: usize = 1000;

impl Redis {
    /// See [`crate::pool::Pool::ban`].
    pub(in crate::pool) async fn ban(&self, bans: &[Ban], max_parked: u8) -> Result<Vec<Change>, PoolError> {
        let bans = bans.iter().flat_map(|Ban { member, reason, span }| {
            [member.clone().into(), Value::from(&**reason), milliseconds(*span)]
        });
        changes(self.run(&scripts::BAN, std::iter::once(Value::from(i64::from(max_parked))).chain(bans)).await?)
    }

    /// See [`crate::pool::Pool::ban_for`].
    pub(in crate::pool) async fn ban_for(
        &self,
        host: &str,
        bans: &[Ban],
        share: Option<u8>,
    ) -> Result<Vec<HostBan>, PoolError> {
        let share = share.map_or(Value::from_static_str(""), |percent| Value::from(i64::from(percent)));
        let mut words = Vec::with_capacity(bans.len());
        for chunk in bans.chunks(CHUNK) {
            let limits = [Value::from(host), share.clone(), Value::from(MOST_HOSTS as i64)];
            let bans = chunk.iter().flat_map(|ban| [ban.member.clone().into(), milliseconds(ban.span)]);
            let reply = self.run_for(host, &scripts::BAN_FOR, limits.into_iter().chain(bans)).await?;
            for word in strings(reply)? {
                words.push(match &word[..] {
                    b"banned" => HostBan::Banned,
                    b"known" => HostBan::Known,
                    b"spared" => HostBan::Spared,
                    b"unknown" => HostBan::Unknown,
                    _ => return Err(nonsense()),
                });
            }
        }
        Ok(words)
    }

    /// See [`crate::pool::Pool::unban_for`].
    pub(in crate::pool) async fn unban_for(&self, host: &str, members: &[Name]) -> Result<Vec<Name>, PoolError> {
        let mut unbanned = Vec::new();
        for chunk in members.chunks(CHUNK) {
            let args = std::iter::once(Value::from(host)).chain(chunk.iter().cloned().map(Value::from));
            unbanned.extend(strings(self.run_for(host, &scripts::UNBAN_FOR, args).await?)?);
        }
        Ok(unbanned)
    }

    /// No host bans or has counted members that are removed. A call for each host, of which there are [`MOST_HOSTS`] at most, and one
    /// for each with counts of its own.
    pub(super) async fn leave_hosts(&self, members: &[Name]) -> Result<(), PoolError> {
        let keys = &self.shared.keys;
        for host in self.hosts(&mut None).await?.unwrap_or_default() {
            self.unban_for(&host, members).await?;
        }
        let all = vec![keys.counted(), 0.into(), (-1).into()];
        for host in strings(self.call("ZRANGE", all).await?)? {
            let [counts, _] = keys.counts_of(&String::from_utf8_lossy(&host));
            for chunk in members.chunks(CHUNK) {
                let names = chunk.iter().cloned().map(Value::from);
                self.call("ZREM", std::iter::once(counts.clone()).chain(names).collect()).await?;
            }
        }
        Ok(())
    }

    /// See [`crate::pool::Pool::hosts`].
    pub(in crate::pool) async fn hosts(&self, seen: &mut Option<u64>) -> Result<Option<Vec<String>>, PoolError> {
        let (keys, link) = (&self.shared.keys, &self.shared.link);
        let known = Value::from(seen.map_or_else(String::new, |seen| seen.to_string()));
        let keys = [keys.hosts(), keys.host_changes()];
        let reply = strings(link.run(&scripts::HOSTS, &keys, [known], link.deadline()).await?)?;
        let [changes, word, hosts @ ..] = &reply[..] else { return Err(nonsense()) };
        *seen = Some(number(changes)?);
        let hosts = hosts.iter().filter_map(|host| std::str::from_utf8(host).ok()).map(str::to_owned);
        Ok((word != "same").then(|| hosts.collect()))
    }

    /// See [`crate::pool::Pool::banned`].
    pub(in crate::pool) async fn banned(&self) -> Result<Vec<BannedBy>, PoolError> {
        let mut banned = Vec::new();
        for host in self.hosts(&mut None).await?.unwrap_or_default() {
            let scores: HashMap<Name, f64> = self.scores(&self.shared.keys.banned_by(&host)).await?;
            banned.extend(scores.into_iter().map(|(member, until)| BannedBy {
                host: host.clone(),
                member,
                until_ms: until as u64,
            }));
        }
        banned.sort_unstable_by(|a, b| (&a.host, &a.member).cmp(&(&b.host, &b.member)));
        Ok(banned)
    }

    /// The least-used that `host` has not banned; see [`crate::pool::Pool::allocate_for`].
    pub(super) async fn least_used_for(&self, host: &str, tried: &[Name]) -> Result<Option<Name>, PoolError> {
        let (link, all) = (&self.shared.link, &self.shared.keys);
        let deadline = link.deadline();
        let (script, keys, first) = match (self.shared.per_host.get(), self.shared.ramp_every.get()) {
            (Some(PerHost { max_hosts, idle }), _) => {
                let limits = vec![Value::from(host), Value::from(*max_hosts as i64), milliseconds(*idle)];
                (&scripts::SPREAD, all.with_counts(host), limits)
            }
            (None, None) => (&scripts::CHOOSE_FOR, all.with_host(host), vec![]),
            (None, Some(every)) => (&scripts::RAMP_FOR, all.with_host(host), vec![Value::from(every.to_string())]),
        };
        for _ in 0..MOST_CALLS {
            let args = first.iter().cloned().chain(tried.iter().cloned().map(Value::from));
            let mut reply = strings(link.run(script, &keys, args, deadline).await?)?;
            match &reply[..] {
                [] => return Ok(None),
                [_] => return Ok(reply.pop()),
                [none, word] if none.is_empty() && word == "again" => {}
                [_, _] => {
                    // The request need not wait for it; should it fail, they expire.
                    let (pool, lost) = (self.clone(), reply.pop().unwrap_or_default());
                    tokio::spawn(async move {
                        let lost = pool.shared.keys.counts_of(&String::from_utf8_lossy(&lost));
                        pool.call("DEL", lost.into()).await
                    });
                    return Ok(reply.pop());
                }
                _ => return Err(nonsense()),
            }
        }
        Ok(None)
    }

    /// See [`crate::pool::Pool::try_next_for`].
    pub(in crate::pool) async fn try_next_for(
        &self,
        host: &str,
        lease: std::time::Duration,
    ) -> Result<Option<(Name, bool)>, PoolError> {
        let reply = self.run_for(host, &scripts::TRY, [milliseconds(lease)]).await?;
        match &strings(reply)?[..] {
            [] => Ok(None),
            [member, more] => Ok(Some((member.clone(), more == "1"))),
            _ => Err(nonsense()),
        }
    }

    async fn run_for(
        &self,
        host: &str,
        script: &fred::types::scripts::Script,
        args: impl IntoIterator<Item = Value>,
    ) -> Result<Value, PoolError> {
        let link = &self.shared.link;
        link.run(script, &self.shared.keys.with_host(host), args, link.deadline()).await
    }
}
