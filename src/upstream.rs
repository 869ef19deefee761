//! The upstream proxies as one worker knows them: parsed members and the connections kept open to each.
//!
//! A connection comes back only when the exchange on it is really over (hyper says when), and is used again only within
//! `upstream.idle_timeout`, by whoever wants the same member and, if it leads to one origin alone, the same origin
//! ([`crate::idle`]).
//! Bounds: [`CACHED`] members in each of two generations; as many idle connections as the descriptor limit allows
//! this worker. Cost: one hash lookup per allocation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::header::HeaderValue;
use tokio::time::Instant;

use crate::forward::Speaker;
use crate::idle::{Idle, Origin};
use crate::member::{Malformed, Member, Name};
use crate::stream::Stream;
use crate::target::Authority;
use crate::tls;

/// Members parsed and kept, per generation. Beyond that a member is parsed again, which costs about a microsecond.
const CACHED: usize = 16 << 10;
/// How often idle connections are looked at for their age.
const REAP_EVERY: Duration = Duration::from_secs(1);

/// A member, and this worker's idle connections to it.
pub(crate) struct Upstream {
    pub(crate) member: Member,
    /// `Proxy-Status` of a plain success, ready to be copied.
    pub(crate) proxy_status: HeaderValue,
    /// For plain requests.
    sockets: Mutex<Idle<Stream>>,
    /// For requests with a body: hyper has spoken on them and goes on doing so.
    speakers: Mutex<Idle<Speaker>>,
    /// Whether [`Upstreams::with_idle`] holds it.
    is_listed: AtomicBool,
}

/// All upstream proxies of one worker.
pub(crate) struct Upstreams {
    known: Mutex<Generations>,
    with_idle: Mutex<Vec<Arc<Upstream>>>,
    idle_count: AtomicUsize,
    max_idle: usize,
    idle_timeout: Duration,
}

/// A cache in two halves: when the young one is full it becomes the old one, and what nobody asked for is gone.
///
/// A pool that is far larger than the cache is walked round and round, and each member is gone before its turn comes again.
/// When that shows, members are let go at once for a while, which is cheaper than keeping them in vain.
#[derive(Default)]
struct Generations {
    young: HashMap<Name, Arc<Upstream>>,
    old: HashMap<Name, Arc<Upstream>>,
    /// Members found, since the young half was last empty.
    found: usize,
    /// Members that are not to be kept.
    passing: usize,
}

impl Generations {
    fn find(&mut self, name: &Name) -> Option<Arc<Upstream>> {
        let upstream = match self.young.get(name) {
            Some(upstream) => upstream.clone(),
            None => {
                let upstream = self.old.remove(name)?;
                self.insert(&upstream);
                upstream
            }
        };
        self.found += 1;
        Some(upstream)
    }

    fn keep(&mut self, upstream: &Arc<Upstream>) {
        if self.passing > 0 {
            self.passing -= 1;
        } else {
            self.insert(upstream);
        }
    }

    fn insert(&mut self, upstream: &Arc<Upstream>) {
        if self.young.len() >= CACHED {
            if self.found < CACHED / 8 {
                self.passing = 4 * CACHED;
            }
            self.found = 0;
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(upstream.member.name().clone(), upstream.clone());
    }
}

impl Upstreams {
    pub(crate) fn new(max_idle: usize, idle_timeout: Duration) -> Self {
        Self {
            known: Mutex::default(),
            with_idle: Mutex::default(),
            idle_count: AtomicUsize::new(0),
            max_idle,
            idle_timeout,
        }
    }

    /// The upstream proxy a member stands for.
    ///
    /// # Errors
    /// Why the member cannot be used.
    pub(crate) fn get(&self, name: &Name) -> Result<Arc<Upstream>, Malformed> {
        let mut known = lock(&self.known);
        if let Some(upstream) = known.find(name) {
            return Ok(upstream);
        }
        // A copy: the name may be a slice of everything that was read from Redis with it.
        let upstream = Arc::new(Upstream::new(Member::parse(&Name::copy_from_slice(name))?));
        known.keep(&upstream);
        Ok(upstream)
    }

    /// A connection that can be used at once, if one is kept.
    pub(crate) fn take_socket(&self, upstream: &Upstream, origin: &Origin) -> Option<Stream> {
        // Bytes or an end on a silent connection: the upstream proxy has closed it, or cannot be trusted.
        self.take(&upstream.sockets, origin, Stream::is_quiet)
    }

    /// Likewise one that hyper speaks on.
    pub(crate) fn take_speaker(&self, upstream: &Upstream, origin: &Origin) -> Option<Speaker> {
        self.take(&upstream.speakers, origin, |speaker| speaker.is_ready())
    }

    /// Keeps a connection whose exchange is over; dropping it closes it.
    pub(crate) fn keep_socket(&self, upstream: &Arc<Upstream>, socket: Stream, origin: Origin) {
        self.keep(upstream, &upstream.sockets, socket, origin);
    }

    /// Likewise one that hyper speaks on.
    pub(crate) fn keep_speaker(&self, upstream: &Arc<Upstream>, speaker: Speaker, origin: Origin) {
        if !speaker.is_closed() {
            self.keep(upstream, &upstream.speakers, speaker, origin);
        }
    }

    fn take<C>(&self, idle: &Mutex<Idle<C>>, origin: &Origin, is_usable: impl Fn(&mut C) -> bool) -> Option<C> {
        let (found, fewer) = lock(idle).take(origin, Instant::now(), is_usable);
        self.idle_count.fetch_sub(fewer, Ordering::Relaxed);
        found
    }

    fn keep<C>(&self, upstream: &Arc<Upstream>, idle: &Mutex<Idle<C>>, connection: C, origin: Origin) {
        if self.idle_timeout.is_zero() || self.idle_count.load(Ordering::Relaxed) >= self.max_idle {
            return;
        }
        self.idle_count.fetch_add(1, Ordering::Relaxed);
        lock(idle).keep(origin, connection, Instant::now() + self.idle_timeout);
        if !upstream.is_listed.swap(true, Ordering::Relaxed) {
            lock(&self.with_idle).push(upstream.clone());
        }
    }

    /// Closes connections that have been idle too long, for ever.
    pub(crate) async fn reap(&self) {
        let mut ticks = tokio::time::interval(REAP_EVERY);
        loop {
            let now = ticks.tick().await;
            lock(&self.with_idle).retain(|upstream| {
                let stays = self.drop_old(&upstream.sockets, now, |_| true)
                    | self.drop_old(&upstream.speakers, now, |speaker| !speaker.is_closed());
                upstream.is_listed.store(stays, Ordering::Relaxed);
                stays
            });
        }
    }

    /// Whether any stay.
    fn drop_old<C>(&self, idle: &Mutex<Idle<C>>, now: Instant, is_usable: impl Fn(&C) -> bool) -> bool {
        let (fewer, any_stay) = lock(idle).drop_old(now, is_usable);
        self.idle_count.fetch_sub(fewer, Ordering::Relaxed);
        any_stay
    }
}

impl Upstream {
    fn new(member: Member) -> Self {
        tls::warn_if_insecure(&member);
        let is_per_origin = !member.is_http_proxy();
        let proxy_status = HeaderValue::try_from(format!("evenkeel; next-hop={}", member.id()));
        Self {
            proxy_status: proxy_status.expect("an id is a token"),
            member,
            sockets: Mutex::new(Idle::new(is_per_origin)),
            speakers: Mutex::new(Idle::new(is_per_origin)),
            is_listed: AtomicBool::new(false),
        }
    }

    /// Where a connection leads that is dialed through this member for `to`.
    pub(crate) fn origin(&self, to: &Authority) -> Origin {
        (!self.member.is_http_proxy()).then(|| to.text.clone())
    }
}

/// A panic elsewhere leaves these maps and lists usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_members_is_bounded_and_keeps_what_is_used() {
        let upstreams = Upstreams::new(0, Duration::from_secs(5));
        let name = |i: usize| Name::from(format!("http://10.0.0.1:{}", i % 65535 + 1).into_bytes());
        let first = upstreams.get(&name(0)).unwrap();
        for i in 0..3 * CACHED {
            upstreams.get(&name(i)).unwrap();
            assert!(Arc::ptr_eq(&first, &upstreams.get(&name(0)).unwrap()), "a member in use was dropped");
        }
        let known = lock(&upstreams.known);
        assert!(known.young.len() <= CACHED && known.old.len() <= CACHED);
    }

    #[test]
    fn a_pool_far_larger_than_the_cache_passes_and_a_smaller_one_is_kept_again() {
        let upstreams = Upstreams::new(0, Duration::from_secs(5));
        let name = |i: usize| Name::from(format!("http://10.0.{}.1:{}", i / 60_000, i % 60_000 + 1).into_bytes());
        for i in 0..2 * CACHED {
            upstreams.get(&name(i)).unwrap();
        }
        let passing = lock(&upstreams.known).passing;
        assert!(passing > 0, "kept in vain");
        for i in 0..passing {
            upstreams.get(&name(2 * CACHED + i)).unwrap();
        }
        let few = upstreams.get(&name(7)).unwrap();
        assert!(Arc::ptr_eq(&few, &upstreams.get(&name(7)).unwrap()));
    }
}
