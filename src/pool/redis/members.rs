//! What becomes of members besides being chosen: each transition one script, each state one listing.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use fred::prelude::Value;
use fred::types::scripts::Script;
use tokio::time::Instant;

use super::reply::{nonsense, number, string, strings};
use super::{CHUNK, LOOKUP, Redis, scripts};
use crate::member::Name;
use crate::pool::check::Cursor;
use crate::pool::{
    Candidate, Care, Change, Check, Checked, Decay, Entry, Initial, Look, Parked, Parking, PoolError, Rebased, Report,
    Rounds, Sizes, Walk,
};

/// How long a script may take that changes all members: a second per million of them, and plenty of time on a slow machine.
const LONG: Duration = Duration::from_secs(30);
/// Members that one call brings back at most; the script refuses more.
const MAX_DUE: usize = 1_000;
/// Members per page of a listing: 1 MB or so, a few ms of Redis' time.
const PAGE: usize = 10_000;

impl Redis {
    /// See [`crate::pool::Pool::add`]. Long lists go in pieces, which other gateways may see one by one.
    pub(in crate::pool) async fn add(&self, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        self.enter(&scripts::ADD, members, initial).await
    }

    /// See [`crate::pool::Pool::remove`].
    pub(in crate::pool) async fn remove(&self, members: &[Name]) -> Result<u64, PoolError> {
        let removed = self.count(&scripts::REMOVE, None, members).await?;
        self.lose_memory(members, true).await?;
        self.leave_hosts(members).await?;
        Ok(removed)
    }

    /// See [`crate::pool::Pool::park`].
    pub(in crate::pool) async fn park(&self, member: &Name, parking: &Parking) -> Result<Option<Parked>, PoolError> {
        let (first, longest) = match parking.stay.span() {
            Some((first, longest)) => (milliseconds(first), milliseconds(longest)),
            None => (Value::from_static_str(""), Value::from_static_str("")),
        };
        let kind = Value::from_static_str(parking.kind.as_str());
        let args = [member.clone().into(), kind, Value::from(&*parking.reason), first, longest];
        let record = string(self.run(&scripts::PARK, args).await?)?;
        Ok((!record.is_empty()).then(|| Parked::read(member.clone(), &record)))
    }

    /// See [`crate::pool::Pool::restore`].
    pub(in crate::pool) async fn restore(&self, members: &[Name], initial: Initial) -> Result<Vec<Name>, PoolError> {
        let mut restored = Vec::new();
        for chunk in members.chunks(CHUNK) {
            let args = std::iter::once(policy(initial)).chain(chunk.iter().cloned().map(Value::from));
            restored.extend(strings(self.run(&scripts::RESTORE, args).await?)?);
        }
        Ok(restored)
    }

    /// See [`crate::pool::Pool::restore_due`].
    pub(in crate::pool) async fn restore_due(&self, most: usize, initial: Initial) -> Result<Vec<Name>, PoolError> {
        let most = Value::from(most.clamp(1, MAX_DUE) as i64);
        let ramps = if self.shared.ramp_every.get().is_some() { "ramps" } else { "" };
        strings(self.run(&scripts::RESTORE_DUE, [policy(initial), most, Value::from_static_str(ramps)]).await?)
    }

    /// See [`crate::pool::Pool::forgive`].
    pub(in crate::pool) async fn forgive(&self, members: &[Name]) -> Result<u64, PoolError> {
        self.count(&scripts::FORGIVE, None, members).await
    }

    /// See [`crate::pool::Pool::report`].
    pub(in crate::pool) async fn report(&self, reports: &[Report], care: &Care) -> Result<Vec<Change>, PoolError> {
        let limits = [
            Value::from(i64::from(care.park_after)),
            milliseconds(care.cooldown),
            milliseconds(care.max_cooldown),
            Value::from(i64::from(care.max_parked)),
            policy(care.restore),
        ];
        let outcomes = reports.iter().flat_map(|Report { member, outcome, luck }| {
            let (word, times, reason) = outcome.parts();
            [
                member.clone().into(),
                Value::from_static_str(word),
                i64::from(times).into(),
                Value::from(reason),
                Value::from(luck.to_string()),
            ]
        });
        changes(self.run(&scripts::REPORT, limits.into_iter().chain(outcomes)).await?)
    }

    /// See [`crate::pool::Pool::enroll`].
    pub(in crate::pool) async fn enroll(&self, walk: &mut Walk, every: Duration) -> Result<bool, PoolError> {
        const PLACES: [&str; 3] = ["set", "ramping", "trials"];
        let cursor = match walk.cursor.take() {
            Some(Cursor::Redis(cursor)) => Value::Bytes(cursor),
            _ => Value::from_static_str("0"),
        };
        let args = [Value::from_static_str(PLACES[walk.place % PLACES.len()]), cursor, milliseconds(every)];
        let next = string(self.run(&scripts::ENROLL, args).await?)?;
        if next != "0" {
            walk.cursor = Some(Cursor::Redis(next));
            return Ok(false);
        }
        walk.place = (walk.place + 1) % PLACES.len();
        Ok(walk.place == 0)
    }

    /// See [`crate::pool::Pool::claim`].
    pub(in crate::pool) async fn claim(&self, most: usize, lease: Duration) -> Result<Vec<Check>, PoolError> {
        let args = [Value::from(most.clamp(1, CHUNK) as i64), milliseconds(lease)];
        let reply = strings(self.run(&scripts::CLAIM, args).await?)?;
        let checks = reply.chunks(3).map(|check| match check {
            [member, due, eligible] => {
                Ok(Check { member: member.clone(), due_ms: number::<f64>(due)? as u64, is_eligible: eligible == "1" })
            }
            _ => Err(nonsense()),
        });
        checks.collect()
    }

    /// See [`crate::pool::Pool::checked`].
    pub(in crate::pool) async fn checked(&self, checks: &[Checked], rounds: &Rounds) -> Result<Vec<Change>, PoolError> {
        let Rounds { every, care } = rounds;
        let limits = [
            milliseconds(*every),
            milliseconds(care.cooldown),
            milliseconds(care.max_cooldown),
            Value::from(i64::from(care.max_parked)),
            policy(care.restore),
        ];
        let findings = checks.iter().flat_map(|Checked { member, due_ms, finding, luck }| {
            let (word, reason) = finding.parts();
            [
                member.clone().into(),
                Value::from_static_str(word),
                Value::from(due_ms.to_string()),
                Value::from(reason),
                Value::from(luck.to_string()),
            ]
        });
        changes(self.run(&scripts::CHECKED, limits.into_iter().chain(findings)).await?)
    }

    /// See [`crate::pool::Pool::try_next`].
    pub(in crate::pool) async fn try_next(&self, lease: Duration) -> Result<Option<(Name, bool)>, PoolError> {
        let lease = Value::from(lease.as_millis().to_string());
        match &strings(self.run(&scripts::TRY, [lease]).await?)?[..] {
            [] => Ok(None),
            [member, more] => Ok(Some((member.clone(), more == "1"))),
            _ => Err(nonsense()),
        }
    }

    /// See [`crate::pool::Pool::look`].
    pub(in crate::pool) async fn look(&self, from: u64, most: usize) -> Result<Look, PoolError> {
        let most = Value::from(most.clamp(1, MAX_DUE) as i64);
        let reply = strings(self.run(&scripts::LOOK, [Value::from(from.to_string()), most]).await?)?;
        let [due, total, failing @ ..] = &reply[..] else { return Err(nonsense()) };
        let mut look = Look { is_due: due == "1", total: number(total)?, failing: Vec::new(), next: from };
        for pair in failing.chunks(2) {
            let [member, score] = pair else { return Err(nonsense()) };
            look.failing.push(member.clone());
            look.next = look.next.max((number::<f64>(score)? as u64).saturating_add(1));
        }
        Ok(look)
    }

    /// See [`crate::pool::Pool::failures`].
    pub(in crate::pool) async fn failures(&self) -> Result<HashMap<Name, u64>, PoolError> {
        let scores = self.scores(self.shared.keys.failures()).await?;
        Ok(scores.into_iter().map(|(member, score)| (member, score as u64 % 1000)).collect())
    }

    /// See [`crate::pool::Pool::propose`].
    pub(in crate::pool) async fn propose(&self, members: &[Name]) -> Result<u64, PoolError> {
        self.count(&scripts::PROPOSE, None, members).await
    }

    /// See [`crate::pool::Pool::accept`].
    pub(in crate::pool) async fn accept(&self, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        self.enter(&scripts::ACCEPT, members, initial).await
    }

    /// See [`crate::pool::Pool::reject`].
    pub(in crate::pool) async fn reject(&self, members: &[Name], again: Option<Duration>) -> Result<u64, PoolError> {
        let again = again.map_or_else(String::new, |span| span.as_millis().to_string());
        self.count(&scripts::REJECT, Some(again.into()), members).await
    }

    /// See [`crate::pool::Pool::decay`].
    pub(in crate::pool) async fn decay(&self, Decay { keep, period }: Decay) -> Result<u64, PoolError> {
        let args = [Value::from(keep.to_string()), Value::from(period.as_millis().to_string())];
        number(&string(self.run_long(&scripts::DECAY, args).await?)?)
    }

    /// See [`crate::pool::Pool::rebase`].
    pub(in crate::pool) async fn rebase(&self) -> Result<Rebased, PoolError> {
        let reply = strings(self.run_long(&scripts::REBASE, []).await?)?;
        let [by, members] = <[Bytes; 2]>::try_from(reply).map_err(|_| nonsense())?;
        Ok(Rebased { by: number(&by)?, members: number(&members)? })
    }

    /// See [`crate::pool::Pool::list`]. Up to 10,000 members are one consistent reading. A larger pool is read in pages
    /// of that size, so that no reply blocks Redis for long; counts that change meanwhile show as of their page.
    pub(in crate::pool) async fn list(&self) -> Result<Vec<Entry>, PoolError> {
        Ok(entries(self.scores(&self.shared.keys.set()[0]).await?))
    }

    /// See [`crate::pool::Pool::sizes`].
    pub(in crate::pool) async fn sizes(&self) -> Result<Sizes, PoolError> {
        let size = async |command, key: &Value| match self.call(command, vec![key.clone()]).await? {
            Value::Integer(size) => Ok(size.unsigned_abs()),
            _ => Err(nonsense()),
        };
        let keys = &self.shared.keys;
        let (eligible, ramping, parked, candidates) = tokio::try_join!(
            size("ZCARD", &keys.set()[0]),
            size("ZCARD", keys.ramping()),
            size("HLEN", keys.parked()),
            size("ZCARD", keys.candidates())
        )?;
        Ok(Sizes { eligible, ramping, parked, candidates })
    }

    /// See [`crate::pool::Pool::ramping`].
    pub(in crate::pool) async fn ramping(&self) -> Result<Vec<Entry>, PoolError> {
        let ramping = self.scores(self.shared.keys.ramping()).await?;
        Ok(entries(self.without_eligible(ramping.into_iter().collect()).await?))
    }

    /// See [`crate::pool::Pool::candidates`].
    pub(in crate::pool) async fn candidates(&self) -> Result<Vec<Candidate>, PoolError> {
        let due = self.scores(self.shared.keys.candidates()).await?;
        let due = self.without_eligible(due.into_iter().collect()).await?;
        let mut candidates: Vec<Candidate> =
            due.into_iter().map(|(member, due)| Candidate { member, due_ms: due as u64 }).collect();
        candidates.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        Ok(candidates)
    }

    /// See [`crate::pool::Pool::parked`]. A record that this program did not write shows with what could be read of it.
    pub(in crate::pool) async fn parked(&self) -> Result<Vec<Parked>, PoolError> {
        let records = self.fields_of(self.shared.keys.parked()).await?;
        let records = self.without_eligible(records.into_iter().collect()).await?;
        let mut parked: Vec<Parked> =
            records.into_iter().map(|(member, record)| Parked::read(member, &record)).collect();
        parked.sort_unstable_by(|a, b| a.member.cmp(&b.member));
        Ok(parked)
    }

    /// See [`crate::pool::Pool::in_flight`].
    pub(in crate::pool) async fn in_flight(&self) -> Result<HashMap<Name, u64>, PoolError> {
        let fields = self.fields_of(self.shared.lease_keys.in_flight()).await?;
        // As the scripts read it (in_flight.lua), what is no such number is none.
        let read = |text: &Bytes| number(text).ok().filter(|number| *number < 2_f64.powi(53)).unwrap_or(0.0) as u64;
        Ok(fields.into_iter().map(|(member, in_flight)| (member, read(&in_flight))).collect())
    }

    /// All of a hash, a page at a time.
    pub(super) async fn fields_of(&self, hash: &Value) -> Result<HashMap<Name, Bytes>, PoolError> {
        let mut fields: HashMap<Name, Bytes> = HashMap::new();
        let mut cursor = Bytes::from_static(b"0");
        loop {
            let count = [Value::from_static_str("COUNT"), Value::from(LOOKUP as i64)];
            let args = [hash.clone(), cursor.into()].into_iter().chain(count).collect();
            let Value::Array(mut reply) = self.call("HSCAN", args).await? else { return Err(nonsense()) };
            let (Some(page), Some(next), None) = (reply.pop(), reply.pop(), reply.pop()) else {
                return Err(nonsense());
            };
            for pair in strings(page)?.chunks(2) {
                let [field, value] = pair else { return Err(nonsense()) };
                fields.insert(field.clone(), value.clone());
            }
            cursor = string(next)?;
            if cursor == "0" {
                return Ok(fields);
            }
        }
    }

    /// Those that are not in the set. Being there is being eligible, whatever other keys still say: any tool may have added
    /// them.
    async fn without_eligible<T>(&self, members: Vec<(Name, T)>) -> Result<Vec<(Name, T)>, PoolError> {
        let mut others = Vec::with_capacity(members.len());
        let mut members = members.into_iter().peekable();
        while members.peek().is_some() {
            let page: Vec<(Name, T)> = members.by_ref().take(LOOKUP).collect();
            let names = page.iter().map(|(member, _)| Value::from(member.clone()));
            let args = std::iter::once(self.shared.keys.set()[0].clone()).chain(names).collect();
            let Value::Array(scores) = self.call("ZMSCORE", args).await? else { return Err(nonsense()) };
            let kept = page.into_iter().zip(scores).filter(|(_, score)| matches!(score, Value::Null));
            others.extend(kept.map(|(entry, _)| entry));
        }
        Ok(others)
    }

    /// Runs a script that lets members into the set, piece by piece; returns how many it let in.
    async fn enter(&self, script: &Script, members: &[Name], initial: Initial) -> Result<u64, PoolError> {
        let mut start = newcomer(initial);
        let mut entered = 0;
        for chunk in members.chunks(CHUNK) {
            let args = std::iter::once(start).chain(chunk.iter().cloned().map(Value::from));
            // The first piece says what "min" was: the same for all of the list.
            let reply = strings(self.run(script, args).await?)?;
            let [count, used] = <[Bytes; 2]>::try_from(reply).map_err(|_| nonsense())?;
            entered += number::<u64>(&count)?;
            start = Value::Bytes(used);
        }
        Ok(entered)
    }

    /// Runs a script that tells how many of the members it was about, piece by piece.
    async fn count(&self, script: &Script, first: Option<Value>, members: &[Name]) -> Result<u64, PoolError> {
        let mut sum = 0;
        for chunk in members.chunks(CHUNK) {
            let args = first.iter().cloned().chain(chunk.iter().cloned().map(Value::from));
            sum += number::<u64>(&string(self.run(script, args).await?)?)?;
        }
        Ok(sum)
    }

    /// A whole sorted set in pages; see [`Redis::list`].
    pub(super) async fn scores(&self, key: &Value) -> Result<HashMap<Name, f64>, PoolError> {
        let mut scores = HashMap::new();
        // Members that are allocated move to the back and everyone behind them one rank forward, maybe across the
        // seam into a page already read. Half a page of overlap sees them anyhow, up to 5,000 allocations a page.
        for first in (0_i64..).step_by(PAGE / 2) {
            let last = first + PAGE as i64 - 1;
            let args = vec![key.clone(), first.into(), last.into(), Value::from_static_str("WITHSCORES")];
            let page = strings(self.call("ZRANGE", args).await?)?;
            for pair in page.chunks(2) {
                let [member, score] = pair else { return Err(nonsense()) };
                // -0 becomes 0: Redis holds them for equal, an order by all bits would not.
                scores.insert(member.clone(), number::<f64>(score)? + 0.0);
            }
            if page.len() < 2 * PAGE {
                break;
            }
        }
        Ok(scores)
    }

    pub(super) async fn run(&self, script: &Script, args: impl IntoIterator<Item = Value>) -> Result<Value, PoolError> {
        let link = &self.shared.link;
        link.run(script, self.shared.keys.all(), args, link.deadline()).await
    }

    /// For a script that changes all members, which no request waits for.
    async fn run_long<const N: usize>(&self, script: &Script, args: [Value; N]) -> Result<Value, PoolError> {
        let deadline = Instant::now() + LONG;
        self.shared.link.run(script, &self.shared.keys.with_decayed(), args, deadline).await
    }

    pub(super) async fn call(&self, name: &'static str, args: Vec<Value>) -> Result<Value, PoolError> {
        let link = &self.shared.link;
        link.call(name, args, link.deadline()).await
    }
}

/// Least used first.
fn entries(counts: impl IntoIterator<Item = (Name, f64)>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = counts.into_iter().map(|(member, count)| Entry { member, count }).collect();
    entries.sort_unstable_by(|a, b| a.count.total_cmp(&b.count).then_with(|| a.member.cmp(&b.member)));
    entries
}

/// What followed, three strings for each.
pub(super) fn changes(reply: Value) -> Result<Vec<Change>, PoolError> {
    let reply = strings(reply)?;
    let changes = reply.chunks(3).map(|change| match change {
        [member, what, record] if what == "parked" => Ok(Change::Parked(Parked::read(member.clone(), record))),
        [member, what, _] if what == "restored" => Ok(Change::Restored(member.clone())),
        [member, what, _] if what == "spared" => Ok(Change::Spared(member.clone())),
        _ => Err(nonsense()),
    });
    changes.collect()
}

pub(super) fn milliseconds(span: Duration) -> Value {
    Value::from(span.as_millis().to_string())
}

/// As the scripts call it.
fn policy(initial: Initial) -> Value {
    match initial {
        Initial::Keep => Value::from_static_str("keep"),
        Initial::Min => Value::from_static_str("min"),
        Initial::Median => Value::from_static_str("median"),
        Initial::Max => Value::from_static_str("max"),
        Initial::Ramp => Value::from_static_str("ramp"),
        Initial::Zero => Value::from_static_str("0"),
        Initial::Count(count) => Value::from(count.to_string()),
    }
}

/// The same for members without a history to keep.
pub(super) fn newcomer(initial: Initial) -> Value {
    policy(if initial == Initial::Keep { Initial::Zero } else { initial })
}
