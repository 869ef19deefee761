//! The keys of a pool: `KEY`, and `KEY:…` for what else is known of members. In a cluster all are in one slot.

use bytes::Bytes;
use fred::prelude::Value;

/// Every key that is there once, in the order in which the scripts that move members take them.
pub(super) struct Keys {
    moving: [Value; 11],
    key: String,
}

impl Keys {
    pub(super) fn of(key: &str) -> Self {
        let derived = |suffix| Value::from(format!("{key}:{suffix}"));
        let moving = [
            key.into(),
            derived("parked"),
            derived("returns"),
            derived("candidates"),
            derived("streaks"),
            derived("ramping"),
            derived("ramping:turns"),
            derived("ramping:turn"),
            derived("failures"),
            derived("trials"),
            derived("checks"),
        ];
        Self { moving, key: key.to_owned() }
    }

    pub(super) fn all(&self) -> &[Value] {
        &self.moving
    }

    /// The sorted set of the eligible alone: all that choosing needs.
    pub(super) fn set(&self) -> &[Value] {
        &self.moving[..1]
    }

    /// The hash of those set aside.
    pub(super) fn parked(&self) -> &Value {
        &self.moving[1]
    }

    /// The sorted set of candidates.
    pub(super) fn candidates(&self) -> &Value {
        &self.moving[3]
    }

    /// Every key that is there once, and the type it should have.
    pub(super) fn typed(&self) -> Vec<(Value, &'static str)> {
        const MOVING: [&str; 12] =
            ["zset", "hash", "zset", "zset", "hash", "zset", "zset", "string", "zset", "zset", "zset", "string"];
        let LeaseKeys { shared: [_, load, in_flight, gateways], walk, .. } = LeaseKeys::of(&self.key);
        let [tallies, countries] = self.memory();
        let others = [
            (self.sources(), "set"),
            (self.hosts(), "zset"),
            (self.host_changes(), "string"),
            (self.counted(), "zset"),
            (self.verdicts(), "hash"),
            (self.verdict_ends(), "zset"),
            (self.judging(), "hash"),
            (tallies, "hash"),
            (countries, "hash"),
            (load, "zset"),
            (in_flight, "hash"),
            (gateways, "zset"),
            (walk, "string"),
        ];
        self.with_decayed().into_iter().zip(MOVING).chain(others).collect()
    }

    /// A key as the README names it. Hosts and sources are others' words.
    pub(super) fn shown(&self, key: &Value) -> String {
        let suffix = key.as_str().unwrap_or_default().get(self.key.len()..).unwrap_or_default().to_owned();
        format!("KEY{}", suffix.escape_debug())
    }

    /// For `lua/standing.lua`.
    pub(super) fn for_standing(&self) -> Vec<Value> {
        [&self.moving[..], &[self.verdicts(), self.verdict_ends()], &self.memory()].concat()
    }

    /// All of these, and when counts have shrunk last.
    pub(super) fn with_decayed(&self) -> Vec<Value> {
        let mut keys = self.moving.to_vec();
        keys.push(format!("{}:decayed", self.key).into());
        keys
    }

    /// All of these, the hosts that have banned members, how often those have changed; and of `host` whom it has banned, and how
    /// far they reach.
    pub(super) fn with_host(&self, host: &str) -> Vec<Value> {
        [&self.moving[..], &[self.hosts(), self.host_changes()], &self.of_host(host)].concat()
    }

    /// Whom a host has banned, and how far they reach.
    pub(super) fn of_host(&self, host: &str) -> [Value; 2] {
        [self.banned_by(host), format!("{}:host:{host}:place", self.key).into()]
    }

    /// All of these, the counts of `host`, how far they follow the pool, and which hosts have some.
    pub(super) fn with_counts(&self, host: &str) -> Vec<Value> {
        let mut keys = self.with_host(host);
        keys.extend(self.counts_of(host));
        keys.push(self.counted());
        keys
    }

    /// The counts of a host, and how far they follow the pool.
    pub(super) fn counts_of(&self, host: &str) -> [Value; 2] {
        [format!("{}:host:{host}:counts", self.key).into(), format!("{}:host:{host}:sync", self.key).into()]
    }

    /// The sorted set of the hosts that have counts of their own.
    pub(super) fn counted(&self) -> Value {
        format!("{}:counted", self.key).into()
    }

    /// The sorted set of the hosts that have banned members.
    pub(super) fn hosts(&self) -> Value {
        format!("{}:hosts", self.key).into()
    }

    /// How often they have come and gone.
    pub(super) fn host_changes(&self) -> Value {
        format!("{}:hosts:changes", self.key).into()
    }

    /// The sorted set of members that a host has banned.
    pub(super) fn banned_by(&self, host: &str) -> Value {
        format!("{}:host:{host}", self.key).into()
    }

    /// All of these, and what is thought of candidates.
    pub(super) fn with_verdicts(&self) -> Vec<Value> {
        [&self.moving[..], &[self.verdicts(), self.verdict_ends(), self.judging()]].concat()
    }

    /// The hash of who judges candidates.
    fn judging(&self) -> Value {
        format!("{}:judging", self.key).into()
    }

    /// The hash of the verdicts on candidates that were rejected.
    pub(super) fn verdicts(&self) -> Value {
        format!("{}:verdicts", self.key).into()
    }

    /// The sorted set of when verdicts are thrown away.
    pub(super) fn verdict_ends(&self) -> Value {
        format!("{}:verdicts:ends", self.key).into()
    }

    /// The hashes of members' last checks, and of their countries.
    pub(super) fn memory(&self) -> [Value; 2] {
        ["tallies", "countries"].map(|suffix| format!("{}:{suffix}", self.key).into())
    }

    /// All of these, and the number of the last batch of allocations that the client `name` has told of.
    pub(super) fn with_told(&self, name: &str) -> Vec<Value> {
        let mut keys = self.moving.to_vec();
        keys.push(format!("{}:told:{name}", self.key).into());
        keys
    }

    /// All of these, what the source `name` names, and the set of all sources.
    pub(super) fn with_source(&self, name: &str) -> Vec<Value> {
        [&self.moving[..], &[self.source(name), self.sources()]].concat()
    }

    /// The sorted set of what a source names.
    pub(super) fn source(&self, name: &str) -> Value {
        format!("{}:source:{name}", self.key).into()
    }

    /// The set of the names of all sources.
    pub(super) fn sources(&self) -> Value {
        format!("{}:sources", self.key).into()
    }

    /// The sorted set of those who catch up slowly.
    pub(super) fn ramping(&self) -> &Value {
        &self.moving[5]
    }

    /// The sorted set of those that failed their last requests.
    pub(super) fn failures(&self) -> &Value {
        &self.moving[8]
    }
}

/// The keys of least-concurrent (`lua/in_flight.lua`).
pub(super) struct LeaseKeys {
    /// The first four, which all of its scripts take.
    shared: [Value; 4],
    /// What the keys of gateways begin with.
    leases: String,
    walk: Value,
}

impl LeaseKeys {
    pub(super) fn of(key: &str) -> Self {
        let derived = |suffix| Value::from(format!("{key}:{suffix}"));
        Self {
            shared: [key.into(), derived("load"), derived("in_flight"), derived("gateways")],
            leases: format!("{key}:leases:"),
            walk: derived("walk"),
        }
    }

    /// The hash of what members have in flight.
    pub(super) fn in_flight(&self) -> &Value {
        &self.shared[2]
    }

    /// For a script about what this gateway has in flight.
    pub(super) fn of_gateway(&self, name: &[u8]) -> [Value; 5] {
        self.and(self.leases_of(name))
    }

    /// The sorted set of gateways.
    pub(super) fn gateways(&self) -> &Value {
        &self.shared[3]
    }

    /// For a script about what all of these have in flight.
    pub(super) fn of_gateways<'a>(&self, names: impl Iterator<Item = &'a Bytes>) -> Vec<Value> {
        let leases = names.map(|name| self.leases_of(name));
        self.shared.iter().cloned().chain(leases).collect()
    }

    /// For `lua/walk.lua`.
    pub(super) fn of_walk(&self) -> [Value; 5] {
        self.and(self.walk.clone())
    }

    /// Whatever bytes the name is: another tool may have written one.
    fn leases_of(&self, gateway: &[u8]) -> Value {
        Value::Bytes([self.leases.as_bytes(), gateway].concat().into())
    }

    fn and(&self, last: Value) -> [Value; 5] {
        let [key, load, in_flight, gateways] = self.shared.clone();
        [key, load, in_flight, gateways, last]
    }
}
