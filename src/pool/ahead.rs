//! Allocations made ahead of need, so that a request need not wait for Redis (`pool.prefetch`).
//!
//! Each was counted in Redis before it came here, and is used at most once, within `max_age`: a member that has left the set
//! is used for no longer than that. What is not used in time is given back.
//! Not here: when to fetch and how to give back, which is [`super::redis`]'s to do. `now` comes from outside.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::member::Name;

/// How far ahead to allocate; the default is not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// Allocations kept ready by each worker; 0: none.
    pub count: usize,
    /// How long one may wait for its request.
    pub max_age: Duration,
}

impl Prefetch {
    /// Not at all.
    pub const NONE: Self = Self { count: 0, max_age: Duration::ZERO };
}

/// Members allocated and not used yet, oldest first.
#[derive(Debug)]
pub(super) struct Ahead {
    prefetch: Prefetch,
    ready: VecDeque<(Name, Instant)>,
    is_closed: bool,
}

impl Ahead {
    pub(super) fn new(prefetch: Prefetch) -> Self {
        Self { prefetch, ready: VecDeque::with_capacity(prefetch.count), is_closed: false }
    }

    /// The oldest that may still be used. Older ones stay where they are, to be given back.
    pub(super) fn take(&mut self, now: Instant) -> Option<Name> {
        let fresh = self.ready.iter().position(|&(_, since)| now < since + self.prefetch.max_age)?;
        self.ready.remove(fresh).map(|(name, _)| name)
    }

    /// How many more may be allocated.
    pub(super) fn room(&self) -> usize {
        if self.is_closed { 0 } else { self.prefetch.count.saturating_sub(self.ready.len()) }
    }

    /// Whether it is time to fetch: half is gone.
    pub(super) fn is_low(&self) -> bool {
        self.room() > self.prefetch.count / 2
    }

    /// Keeps what was allocated; gives it back when nothing is kept any more.
    pub(super) fn put(&mut self, names: Vec<Name>, now: Instant) -> Vec<Name> {
        if self.is_closed {
            return names;
        }
        self.ready.extend(names.into_iter().map(|name| (name, now)));
        Vec::new()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// When the oldest will be too old.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ready.front().map(|&(_, since)| since + self.prefetch.max_age)
    }

    /// Takes out what is too old.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Name> {
        let old = self.ready.iter().take_while(|&&(_, since)| since + self.prefetch.max_age <= now).count();
        self.ready.drain(..old).map(|(name, _)| name).collect()
    }

    /// Takes everything out, for good.
    pub(super) fn close(&mut self) -> Vec<Name> {
        self.is_closed = true;
        self.ready.drain(..).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_is_used_once_in_order_and_in_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let name = |text: &'static str| Name::from_static(text.as_bytes());
        let mut ahead = Ahead::new(Prefetch { count: 4, max_age: Duration::from_millis(100) });
        assert_eq!((ahead.room(), ahead.is_low(), ahead.take(at(0))), (4, true, None));
        assert!(ahead.put(vec![name("a"), name("b")], at(0)).is_empty());
        assert!(ahead.put(vec![name("c")], at(50)).is_empty());
        assert_eq!((ahead.room(), ahead.is_low(), ahead.next_expiry()), (1, false, Some(at(100))));
        assert_eq!(ahead.take(at(99)), Some(name("a")));
        // b is too old by now: passed over, not used.
        assert_eq!(ahead.take(at(100)), Some(name("c")));
        assert_eq!(ahead.take(at(100)), None);
        assert_eq!(ahead.expired(at(99)), Vec::<Name>::new());
        assert_eq!(ahead.expired(at(100)), [name("b")]);
        assert!(ahead.put(vec![name("d")], at(100)).is_empty());
        assert_eq!(ahead.close(), [name("d")]);
        assert_eq!(ahead.room(), 0);
        assert_eq!(ahead.put(vec![name("e")], at(100)), [name("e")], "came too late");
    }
}
