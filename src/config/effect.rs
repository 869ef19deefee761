//! Settings that change nothing beside the others that were given.

use super::{Config, Store};

impl Config {
    /// A sentence for each: which key, why it has no effect, and what to do. They are no mistakes, for a file may serve several
    /// gateways, and be beaten by a flag.
    pub fn without_effect(&self) -> Vec<String> {
        let defaults = Self::default();
        let is_embedded = self.pool.store == Store::Embedded;
        let mut told = Vec::new();
        let mut tell = |is_idle: bool, sentence: &str| {
            if is_idle {
                told.push(sentence.to_owned());
            }
        };
        tell(
            self.pool.state.is_some() && !is_embedded,
            "pool.state has no effect with a store in Redis, which keeps the pool itself; leave it out",
        );
        tell(
            self.pool.prefetch.count > 0 && is_embedded,
            "pool.prefetch has no effect with the embedded store, which answers at once; leave it out, or name a Redis in \
             pool.store",
        );
        tell(
            self.pool.local_for.is_some() && is_embedded,
            "pool.when_unreachable = \"local\" has no effect with the embedded store, which is never away; leave it out, or \
             name a Redis in pool.store",
        );
        tell(
            self.pool.rules != defaults.pool.rules && self.health.url.is_none(),
            "pool.rules has no effect without health.url, for nobody is tried; name a judge there",
        );
        told
    }
}
