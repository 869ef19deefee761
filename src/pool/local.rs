//! Choosing while Redis is away (`pool.when_unreachable = "local"`): from the set as it was last read, in this process.
//!
//! One for all workers. The least used goes first by the last known count and what was allocated here since, so that fairness
//! goes on among the choices of this process; of others' choices it knows nothing. What is allocated here is owed to Redis, and
//! told when it is back ([`super::redis`]).
//!
//! A set that was read is its members' bytes in one buffer, and 16 bytes per member in the order of choice; only those that are
//! allocated here get a place of their own besides. A million members of 41 bytes are 60 MB, and twice that while they are read anew. A choice costs O(log n), whatever the size of the set.
//! Not here: reading the set, and telling what is owed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::count::{self, Count};
use crate::member::Name;

/// Of members' bytes, that is some ten million members; of a larger set only a part is known.
const MAX_BYTES: usize = 1 << 30;

/// The last known set of one pool, for all workers of this process.
pub struct Local {
    longest: Duration,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    known: Option<Known>,
    /// When Redis last answered whoever reads the set.
    heard: Option<Instant>,
    mode: Mode,
    /// Allocations that Redis does not know of.
    owed: HashMap<Name, u64>,
    /// Those of them that are being told, so much at a time, until Redis has said that it has heard.
    telling: Option<Batch>,
    /// Batches so far.
    number: u64,
}

/// How members are chosen; for the log.
#[derive(Clone, Copy, Default, PartialEq)]
enum Mode {
    #[default]
    ByRedis,
    Here,
    Refused,
}

/// Allocations that Redis is told of in one call.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// From 1 on, one more each time.
    pub(super) number: u64,
    pub(super) members: Vec<(Name, u64)>,
}

impl Local {
    /// Chooses for no longer than `longest` after Redis was last heard of.
    #[must_use]
    pub fn new(longest: Duration) -> Self {
        Self { longest, books: Mutex::default() }
    }

    /// The least used that is not in `tried`, its count raised by one; `Ok(None)` if nobody is left.
    ///
    /// # Errors
    /// Nobody is known, or not any more.
    pub(super) fn choose(&self, tried: &[Name], now: Instant) -> Result<Option<Name>, Unknown> {
        let mut books = self.books();
        let Books { known: Some(known), heard: Some(heard), mode, owed, .. } = &mut *books else { return Err(Unknown) };
        let since = now.saturating_duration_since(*heard);
        if known.order.is_empty() {
            return Err(Unknown);
        }
        if since > self.longest {
            if *mode != Mode::Refused {
                tracing::warn!(pool.local_for = ?self.longest, "Redis is away for too long; requests are refused until it is back");
                *mode = Mode::Refused;
            }
            return Err(Unknown);
        }
        let Some(name) = known.choose(tried) else { return Ok(None) };
        if *mode != Mode::Here {
            let members = known.order.len();
            tracing::warn!(members, pool.local_for = ?self.longest, "Redis is away; members are chosen here, from the set as it was last read");
            *mode = Mode::Here;
        }
        *owed.entry(name.clone()).or_default() += 1;
        Ok(Some(name))
    }

    /// Redis has answered.
    pub(super) fn hear(&self, now: Instant) {
        let mut books = self.books();
        books.heard = Some(now);
        if books.mode != Mode::ByRedis && books.owed.is_empty() && books.telling.is_none() {
            books.mode = Mode::ByRedis;
            tracing::info!("Redis is back; it knows what was chosen without it");
        }
    }

    /// What Redis is to be told next: what it was told last, until [`Local::told`], otherwise at most so many members.
    pub(super) fn next_batch(&self, most: usize) -> Option<Batch> {
        let mut books = self.books();
        if books.telling.is_none() && !books.owed.is_empty() {
            let some: Vec<Name> = books.owed.keys().take(most).cloned().collect();
            let members = some.into_iter().filter_map(|member| books.owed.remove_entry(&member)).collect();
            books.number += 1;
            books.telling = Some(Batch { number: books.number, members });
        }
        books.telling.clone()
    }

    /// Redis has heard of the batch.
    pub(super) fn told(&self, number: u64) {
        let mut books = self.books();
        books.telling.take_if(|batch| batch.number == number);
    }

    /// How many allocations Redis has not said that it knows of.
    pub(super) fn owed(&self) -> u64 {
        let books = self.books();
        let telling = books.telling.iter().flat_map(|batch| &batch.members).map(|(_, n)| n);
        books.owed.values().chain(telling).sum()
    }

    /// Begins to choose from what was read. What is owed counts besides.
    pub(super) async fn know(&self, reading: Reading) {
        let owed = {
            let books = self.books();
            let mut owed = books.owed.clone();
            for (member, n) in books.telling.iter().flat_map(|batch| &batch.members) {
                *owed.entry(member.clone()).or_default() += n;
            }
            owed
        };
        // Sorting a million takes half a second, in which this thread has other things to do.
        let Ok(known) = tokio::task::spawn_blocking(move || reading.finish(&owed)).await else { return };
        let members = known.order.len();
        // Dropped behind the lock.
        let former = self.books().known.replace(known);
        if former.is_none() {
            tracing::info!(members, "read the pool, to choose from while Redis is away");
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing here panics between two writes.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody is known to choose from, or has been for too long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unknown;

/// A set that is being read.
#[derive(Default)]
pub(super) struct Reading {
    bytes: Vec<u8>,
    order: Vec<Spot>,
}

/// A member in the buffer.
#[derive(Clone, Copy)]
struct Spot {
    score: f64,
    start: u32,
    length: u32,
}

impl Spot {
    fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..][..self.length as usize]
    }
}

impl Reading {
    /// A member that comes again has the score with which it came last.
    pub(super) fn push(&mut self, member: &[u8], score: f64) {
        let start = self.bytes.len();
        if start + member.len() <= MAX_BYTES {
            self.bytes.extend_from_slice(member);
            self.order.push(Spot { score, start: start as u32, length: member.len() as u32 });
        }
    }

    fn finish(self, owed: &HashMap<Name, u64>) -> Known {
        let Self { mut bytes, mut order } = self;
        order.sort_unstable_by(|a, b| a.of(&bytes).cmp(b.of(&bytes)).then(b.start.cmp(&a.start)));
        order.dedup_by(|b, a| a.of(&bytes) == b.of(&bytes));
        if !owed.is_empty() {
            for spot in &mut order {
                let member = spot.of(&bytes);
                let more = owed.get(member).copied().unwrap_or(0);
                spot.score = count::plus(spot.score, count::weight(member), more as f64);
            }
        }
        order.sort_unstable_by(|a, b| a.score.total_cmp(&b.score).then_with(|| a.of(&bytes).cmp(b.of(&bytes))));
        bytes.shrink_to_fit();
        order.shrink_to_fit();
        Known { bytes, order, next: 0, raised: BTreeSet::new() }
    }
}

/// A set that was read.
struct Known {
    bytes: Vec<u8>,
    /// Least used first, equals by their bytes. Those before `next` are in `raised` instead.
    order: Vec<Spot>,
    next: usize,
    /// Those that were allocated here, or stood before one that was.
    raised: BTreeSet<(Count, Name)>,
}

impl Known {
    fn choose(&mut self, tried: &[Name]) -> Option<Name> {
        let is_tried = |member: &[u8]| tried.iter().any(|other| other == member);
        let in_order = (self.next..self.order.len()).find(|&at| !is_tried(self.member(at)));
        let raised = self.raised.iter().find(|(_, member)| !is_tried(member));
        let next = match (in_order, raised) {
            (Some(at), Some((score, member))) if (*score, &member[..]) < (self.score(at), self.member(at)) => None,
            (at, _) => at,
        };
        let (score, member) = match next {
            Some(at) => {
                let taken = (self.next..=at).map(|at| (self.score(at), Name::copy_from_slice(self.member(at))));
                let mut taken: Vec<_> = taken.collect();
                self.next = at + 1;
                let chosen = taken.pop()?;
                self.raised.extend(taken);
                chosen
            }
            None => {
                let chosen = raised.cloned()?;
                self.raised.take(&chosen)?
            }
        };
        self.raised.insert((score.raised(&member), member.clone()));
        Some(member)
    }

    fn score(&self, at: usize) -> Count {
        Count(self.order[at].score)
    }

    fn member(&self, at: usize) -> &[u8] {
        self.order[at].of(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::embedded::Embedded;
    use crate::pool::{Initial, Pool};

    fn known(members: &[(Name, f64)], owed: &HashMap<Name, u64>) -> Known {
        let mut reading = Reading::default();
        members.iter().for_each(|(member, score)| reading.push(member, *score));
        reading.finish(owed)
    }

    fn any_member() -> impl Strategy<Value = Name> {
        (0..6_u8, prop::sample::select(vec!["", "?weight=3", "?weight=7"]))
            .prop_map(|(i, weight)| format!("p{i}:1{weight}").into())
    }

    #[test]
    fn choices_are_those_of_the_embedded_store() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let calls = prop::collection::vec(prop::collection::vec(any_member(), 0..4), 0..60);
        let members = prop::collection::btree_set(any_member(), 0..10);
        proptest!(|(members in members, warm in 0..40_usize, calls in calls)| runtime.block_on(async {
            let pool = Pool::Embedded(Embedded::new());
            let members: Vec<_> = members.into_iter().collect();
            pool.add(&members, Initial::Min).await.unwrap();
            for _ in 0..warm {
                pool.allocate(&[]).await.unwrap();
            }
            let read: Vec<_> = pool.list().await.unwrap().into_iter().map(|entry| (entry.member, entry.count)).collect();
            let mut known = known(&read, &HashMap::new());
            for tried in calls {
                let expected = pool.allocate(&tried).await.unwrap().map(|(member, _)| member);
                assert_eq!(known.choose(&tried), expected, "{tried:?}");
            }
        }));
    }

    #[test]
    fn a_member_read_twice_is_one_with_its_last_score_and_what_is_owed() {
        let [a, b] = ["a:1", "b:1?weight=2"].map(Name::from);
        let owed = HashMap::from([(b.clone(), 3)]);
        let mut known = known(&[(a.clone(), 9.0), (b.clone(), 0.5), (a.clone(), 1.0)], &owed);
        assert_eq!(known.order.iter().map(|spot| spot.score).collect::<Vec<_>>(), [1.0, 2.0]);
        let chosen: Vec<_> = (0..4).map(|_| known.choose(&[]).unwrap()).collect();
        assert_eq!(chosen, [a.clone(), a, b.clone(), b]); // at 1, 2, 2, 2.5
    }

    #[tokio::test]
    async fn what_is_owed_is_told_in_batches_again_and_again_until_it_is_heard() {
        let local = Local::new(Duration::from_secs(60));
        let now = Instant::now();
        assert_eq!(local.choose(&[], now), Err(Unknown));
        let mut reading = Reading::default();
        (0..3).for_each(|i| reading.push(format!("p{i}:1").as_bytes(), 0.0));
        local.know(reading).await;
        local.hear(now);
        for _ in 0..7 {
            local.choose(&[], now).unwrap().unwrap();
        }
        let mut told: HashMap<Name, u64> = HashMap::new();
        while let Some(batch) = local.next_batch(2) {
            assert_eq!(local.next_batch(2).map(|again| again.members), Some(batch.members.clone()));
            local.told(batch.number - 1);
            assert!(local.owed() > 0);
            local.told(batch.number);
            told.extend(batch.members);
        }
        assert_eq!(told, HashMap::from([("p0:1", 3), ("p1:1", 2), ("p2:1", 2)].map(|(name, n)| (name.into(), n))));
        assert_eq!(local.owed(), 0);
        assert_eq!(local.choose(&[], now + Duration::from_secs(61)), Err(Unknown));
        local.hear(now + Duration::from_secs(61));
        assert_eq!(local.choose(&[], now + Duration::from_secs(61)).unwrap().unwrap(), "p1:1");
    }
}
