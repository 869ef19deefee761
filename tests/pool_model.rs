//! Random steps through both stores, each compared with a model that is small enough to be seen to be right.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use evenkeel::member::Name;
use evenkeel::pool::embedded::{Embedded, Keeper};
use evenkeel::pool::{Decay, Initial, Kind, Pool, Stay};
use proptest::prelude::*;

use crate::support::pool::{KEY, allocate, connect, connect_ramping, counts, futures_in_order, name, parking};
use crate::support::redis::Redis as Server;

/// What the pool is, in a few lines.
#[derive(Default)]
struct Model {
    set: Vec<(f64, Name)>,
    parked: BTreeMap<Name, Record>,
    candidates: BTreeMap<Name, ()>,
    streaks: BTreeMap<Name, u32>,
    /// Of how many turns those get one who catch up, where they are chosen.
    ramp_every: Option<u64>,
    /// Who catches up: score, and the turn at which it may be chosen next.
    ramping: BTreeMap<Name, (f64, u64)>,
    turn: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Record {
    count: f64,
    kind: Kind,
    in_a_row: u32,
    is_due: bool,
}

impl Model {
    fn allocate(&mut self, tried: &[Name]) -> Option<Name> {
        let Some(every) = self.ramp_every.filter(|_| !self.ramping.is_empty()) else {
            return self.allocate_least_used(tried);
        };
        let untried = self.ramping.iter().filter(|(member, _)| !tried.contains(member));
        let first = untried.map(|(member, (_, due))| (*due, member.clone())).min();
        let is_due = first.as_ref().is_some_and(|(due, _)| *due <= self.turn + 1);
        if let Some(member) = (!is_due).then(|| self.allocate_least_used(tried)).flatten() {
            self.turn += 1;
            return Some(member);
        }
        let (_, member) = first?;
        self.turn += 1;
        let score = raised(self.ramping.remove(&member)?.0, weight(&member));
        self.sort();
        if self.set.first().is_some_and(|(lowest, _)| score >= *lowest) {
            self.set.push((score, member.clone()));
        } else {
            let due = self.turn + every.min((self.set.len() + self.ramping.len() + 1) as u64);
            self.ramping.insert(member.clone(), (score, due));
        }
        Some(member)
    }

    fn allocate_least_used(&mut self, tried: &[Name]) -> Option<Name> {
        self.sort();
        let at = self.set.iter().position(|(_, member)| !tried.contains(member))?;
        let (score, member) = &mut self.set[at];
        *score = raised(*score, weight(member));
        Some(member.clone())
    }

    fn add(&mut self, members: &[Name], initial: Initial) -> u64 {
        let start = self.start(initial);
        let mut added = 0;
        for member in
            members.iter().filter(|member| !self.parked.contains_key(*member)).cloned().collect::<HashSet<_>>()
        {
            self.candidates.remove(&member);
            added += u64::from(self.enter_new(member, initial, start));
        }
        added
    }

    fn remove(&mut self, members: &[Name]) -> u64 {
        let mut removed = 0;
        for member in members.iter().collect::<HashSet<_>>() {
            self.streaks.remove(member);
            let found = [
                self.take(member).is_some(),
                self.ramping.remove(member).is_some(),
                self.parked.remove(member).is_some(),
                self.candidates.remove(member).is_some(),
            ];
            removed += u64::from(found.contains(&true));
        }
        removed
    }

    fn park(&mut self, member: &Name, kind: Kind, is_due: bool) -> Option<Record> {
        let old = self.parked.get(member).map(|record| (record.count, record.in_a_row));
        let (count, before) = match self.take(member).or_else(|| self.ramping.remove(member).map(|(score, _)| score)) {
            Some(count) => (count, self.streaks.remove(member).unwrap_or(0)),
            None if kind == Kind::Hand => old.or(self.candidates.remove(member).map(|()| (0.0, 0)))?,
            None => return None,
        };
        let in_a_row = before + u32::from(matches!(kind, Kind::Cooldown | Kind::Unhealthy));
        let record = Record { count, kind, in_a_row, is_due };
        self.parked.insert(member.clone(), record.clone());
        Some(record)
    }

    fn restore(&mut self, members: &[Name], initial: Initial, keeps_streak: bool) -> HashSet<Name> {
        let start = self.start(initial);
        self.restore_from(members, initial, start, keeps_streak)
    }

    fn restore_from(
        &mut self,
        members: &[Name],
        initial: Initial,
        start: Option<f64>,
        keeps_streak: bool,
    ) -> HashSet<Name> {
        let mut restored = HashSet::new();
        for member in members {
            let Some(record) = self.parked.remove(member) else { continue };
            let place = start.map(|start| placed(start, weight(member)));
            let count = match (initial, place) {
                (Initial::Ramp, _) => record.count,
                (Initial::Zero | Initial::Count(_), Some(place)) => place,
                (_, place) => record.count.max(place.unwrap_or(f64::NEG_INFINITY)),
            };
            if keeps_streak && record.in_a_row > 0 {
                self.streaks.insert(member.clone(), record.in_a_row);
            }
            self.enter(member.clone(), count, initial, start);
            restored.insert(member.clone());
        }
        restored
    }

    fn restore_due(&mut self, initial: Initial) -> HashSet<Name> {
        let start = self.start(initial);
        if self.ramp_every.is_none() {
            for (member, (score, _)) in std::mem::take(&mut self.ramping) {
                let place = start.map_or(f64::NEG_INFINITY, |start| placed(start, weight(&member)));
                self.put(member, score.max(place));
            }
        }
        let due: Vec<_> =
            self.parked.iter().filter(|(_, record)| record.is_due).map(|(name, _)| name.clone()).collect();
        self.restore_from(&due, initial, start, true)
    }

    fn forgive(&mut self, members: &[Name]) -> u64 {
        members.iter().filter(|&member| self.streaks.remove(member).is_some()).count() as u64
    }

    fn propose(&mut self, members: &[Name]) -> u64 {
        let is_new = |member: &&Name| {
            self.count(member).is_none() && !self.ramping.contains_key(*member) && !self.parked.contains_key(*member)
        };
        let new: Vec<_> = members.iter().filter(is_new).cloned().collect();
        new.into_iter().filter(|member| self.candidates.insert(member.clone(), ()).is_none()).count() as u64
    }

    fn accept(&mut self, members: &[Name], initial: Initial) -> u64 {
        let start = self.start(initial);
        let mut accepted = 0;
        for member in members {
            if self.candidates.remove(member).is_some() {
                accepted += u64::from(self.enter_new(member.clone(), initial, start));
            }
        }
        accepted
    }

    fn reject(&mut self, members: &[Name], for_good: bool) -> u64 {
        let mut rejected = 0;
        for member in members {
            let there = self.candidates.contains_key(member);
            if for_good {
                self.candidates.remove(member);
            }
            rejected += u64::from(there);
        }
        rejected
    }

    /// What is infinite is no number to subtract, and stays so; what is finite stays that.
    fn rebase(&mut self) -> f64 {
        self.sort();
        let by = self.set.iter().find(|(score, _)| score.is_finite()).map_or(0.0, |(score, _)| score.floor());
        let less = |member: &Name, score: f64, least: f64| {
            let weight = weight(member);
            let allocations = (score * weight + 0.5).floor() - by * weight;
            match () {
                () if score.is_infinite() => score,
                () if weight > 1.0 && allocations.is_finite() => (allocations / weight).max(least),
                () => (score - by).clamp(f64::MIN, f64::MAX).max(least),
            }
        };
        if by != 0.0 {
            self.set.iter_mut().for_each(|(score, member)| *score = less(member, *score, f64::MIN));
            self.ramping.iter_mut().for_each(|(member, (score, _))| *score = less(member, *score, 0.0));
            self.parked.iter_mut().for_each(|(member, record)| record.count = less(member, record.count, 0.0));
        }
        by
    }

    fn decay(&mut self, keep: f64) {
        let shrunk = |member: &Name, score: f64| {
            let allocations = (score * weight(member) * keep + 1e-6).floor();
            match () {
                () if score.is_infinite() => score,
                () if allocations.is_finite() => allocations / weight(member),
                () => score * keep,
            }
        };
        self.set.iter_mut().for_each(|(score, member)| *score = shrunk(member, *score));
        self.ramping.iter_mut().for_each(|(member, (score, _))| *score = shrunk(member, *score));
        self.parked.iter_mut().for_each(|(member, record)| record.count = shrunk(member, record.count));
    }

    /// Somebody else's ZADD: in the set is eligible, whatever it was before.
    fn set_score(&mut self, member: &Name, score: f64) {
        self.take(member);
        self.ramping.remove(member);
        self.parked.remove(member);
        self.candidates.remove(member);
        self.put(member.clone(), score);
    }

    fn start(&mut self, initial: Initial) -> Option<f64> {
        self.sort();
        let at = |index: usize| self.set.get(index).map(|(count, _)| *count);
        match initial {
            Initial::Keep => None,
            Initial::Min | Initial::Ramp => at(0),
            Initial::Median => at(self.set.len().saturating_sub(1) / 2),
            Initial::Max => at(self.set.len().saturating_sub(1)),
            Initial::Zero => Some(0.0),
            Initial::Count(count) => Some(count as f64),
        }
    }

    fn count(&self, member: &Name) -> Option<f64> {
        self.set.iter().find(|(_, old)| old == member).map(|(count, _)| *count)
    }

    fn enter_new(&mut self, member: Name, initial: Initial, start: Option<f64>) -> bool {
        let count = match start {
            Some(start) if initial != Initial::Ramp => placed(start, weight(&member)),
            _ => 0.0,
        };
        self.enter(member, count, initial, start)
    }

    fn enter(&mut self, member: Name, count: f64, initial: Initial, start: Option<f64>) -> bool {
        if self.ramping.contains_key(&member) || self.count(&member).is_some() {
            return false;
        }
        match start {
            Some(start) if initial == Initial::Ramp && count < start => {
                self.ramping.insert(member, (count, 0)).is_none()
            }
            _ => self.put(member, count),
        }
    }

    fn put(&mut self, member: Name, count: f64) -> bool {
        let is_new = self.count(&member).is_none();
        if is_new {
            self.set.push((count, member));
        }
        is_new
    }

    fn take(&mut self, member: &Name) -> Option<f64> {
        let count = self.count(member);
        self.set.retain(|(_, old)| old != member);
        count
    }

    fn sort(&mut self) {
        // `partial_cmp`: to Redis, -0 and 0 are equal.
        self.set.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap().then_with(|| a.1.cmp(&b.1)));
    }
}

/// The weights of [`any_member`].
pub(crate) fn weight(member: &Name) -> f64 {
    match &member[..] {
        b"w2:1?weight=2" => 2.0,
        b"w3:1?weight=3" => 3.0,
        b"https://w7:1?insecure=1&weight=7" => 7.0,
        b"http://a:1|socks5h://w641:1/?weight=641" => 641.0,
        b"w1000:1?weight=1000" => 1000.0,
        _ => 1.0,
    }
}

pub(crate) fn raised(score: f64, weight: f64) -> f64 {
    let count = (score * weight + 0.5).floor();
    match weight {
        1.0 => score + 1.0,
        _ if count.abs() < 2_f64.powi(50) => (count + 1.0) / weight,
        _ => score,
    }
}

pub(crate) fn placed(start: f64, weight: f64) -> f64 {
    let count = (start * weight).ceil();
    if count.is_infinite() {
        return start;
    }
    if (count - 1.0) / weight >= start { (count - 1.0) / weight } else { count / weight }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Retry(Vec<Name>),
    Add(Vec<Name>, Initial),
    Remove(Vec<Name>),
    /// Whether it returns at once when asked for.
    Park(Name, Kind, bool),
    Restore(Vec<Name>, Initial),
    RestoreDue(Initial),
    Forgive(Vec<Name>),
    Propose(Vec<Name>),
    Accept(Vec<Name>, Initial),
    /// Whether for good.
    Reject(Vec<Name>, bool),
    Rebase,
    /// What is left of a count after a millisecond.
    Decay(f64),
    /// The process ends and another begins; embedded, where it saves its state.
    Restart,
    /// Someone else's ZADD; Redis only.
    SetScore(Name, f64),
}

pub(crate) fn any_member() -> impl Strategy<Value = Name> {
    prop_oneof![
        4 => (0..6_u8).prop_map(|i| name(&format!("p{i}:1"))),
        3 => prop::sample::select(vec![
            "w2:1?weight=2",
            "w3:1?weight=3",
            "https://w7:1?insecure=1&weight=7",
            "http://a:1|socks5h://w641:1/?weight=641",
            "w1000:1?weight=1000",
            // None of these is one.
            "http://u:p&weight=5@h:1",
            "https://a:1?insecure=1|socks5://u:p&weight=9@b:2",
            "http://a:1?weight=4|http://b:2",
            "h:1?weight=0",
            "h:1?weight=1001",
        ])
        .prop_map(name),
        1 => Just(Name::from_static(b"\xff\x00\r\n?&weight=\x00")),
        1 => Just(name("P1:1")),
        1 => Just(name("")),
    ]
}

pub(crate) fn any_members() -> impl Strategy<Value = Vec<Name>> {
    prop::collection::vec(any_member(), 0..6)
}

/// Whole, fractional, far apart, beyond what one can be added to, infinite.
pub(crate) fn any_score() -> impl Strategy<Value = f64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    prop_oneof![
        4 => (-3..8_i32).prop_map(f64::from),
        2 => (-20..20_i32).prop_map(|tenths| f64::from(tenths) / 10.0),
        1 => prop::sample::select(vec![
            0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, EXACT - 1.0, EXACT, EXACT + 2.0, -EXACT - 2.0, -EXACT,
            1e300, -1e300, 1e-300, f64::MAX, f64::MIN, 1.797e308, f64::MIN_POSITIVE, 0.1 + 0.2, 8.098814871335836e300,
        ]),
        1 => prop::num::f64::NORMAL,
    ]
}

fn any_initial() -> impl Strategy<Value = Initial> {
    use Initial::{Count, Keep, Max, Median, Min, Ramp, Zero};
    prop_oneof![3 => prop::sample::select(vec![Keep, Min, Median, Max, Ramp, Ramp, Zero]), 1 => (0..6_u64).prop_map(Count),]
}

fn any_step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![Kind::Cooldown, Kind::Unhealthy, Kind::Malformed, Kind::Hand]);
    prop_oneof![
        6 => (1..70_usize).prop_map(Step::Allocate),
        3 => any_members().prop_map(Step::Retry),
        4 => (any_members(), any_initial()).prop_map(|(members, initial)| Step::Add(members, initial)),
        1 => any_members().prop_map(Step::Remove),
        4 => (any_member(), kind, any::<bool>()).prop_map(|(member, kind, is_due)| Step::Park(member, kind, is_due)),
        1 => (any_members(), any_initial()).prop_map(|(members, initial)| Step::Restore(members, initial)),
        2 => any_initial().prop_map(Step::RestoreDue),
        1 => any_members().prop_map(Step::Forgive),
        2 => any_members().prop_map(Step::Propose),
        1 => (any_members(), any_initial()).prop_map(|(members, initial)| Step::Accept(members, initial)),
        1 => (any_members(), any::<bool>()).prop_map(|(members, for_good)| Step::Reject(members, for_good)),
        1 => Just(Step::Rebase),
        2 => prop::sample::select(vec![0.5, 0.9, 0.1, 1e-5, 0.99999]).prop_map(Step::Decay),
        2 => Just(Step::Restart),
        2 => (any_member(), any_score()).prop_map(|(member, score)| Step::SetScore(member, score)),
    ]
}

type SetScore<'a> = &'a dyn Fn(&Name, f64);

/// Takes the steps with the pool and with the model, and compares after each.
async fn walk(
    pool: &Pool,
    ramp_every: Option<u64>,
    steps: &[Step],
    set_score: Option<SetScore<'_>>,
    restart: Option<&mut dyn FnMut() -> Pool>,
) {
    const LATER: Duration = Duration::from_secs(3600);
    let (mut pool, mut restart) = (pool.clone(), restart);
    let mut model = Model { ramp_every, ..Model::default() };
    for step in steps {
        if let (Step::Restart, Some(restart)) = (step, &mut restart) {
            pool = restart();
        }
        let pool = &pool;
        match step {
            Step::Restart => {}
            // At once: in Redis the first goes alone and the others share the calls after it.
            Step::Allocate(n) => {
                let taken = futures_in_order(*n, || allocate(pool, &[])).await;
                let expected: Vec<_> = (0..*n).map(|_| model.allocate(&[])).collect();
                assert_eq!(taken, expected, "{step:?}");
            }
            Step::Retry(tried) => assert_eq!(allocate(pool, tried).await.unwrap(), model.allocate(tried), "{step:?}"),
            Step::Add(members, initial) => {
                assert_eq!(pool.add(members, *initial).await.unwrap(), model.add(members, *initial), "{step:?}");
            }
            Step::Remove(members) => {
                assert_eq!(pool.remove(members).await.unwrap(), model.remove(members), "{step:?}");
            }
            Step::Park(member, kind, is_due) => {
                let stay = Stay::For(if *is_due { Duration::ZERO } else { LATER });
                let parked = pool.park(member, &parking(*kind, stay)).await.unwrap();
                let expected = model.park(member, *kind, *is_due);
                let seen = parked.map(|p| (p.count, p.kind, p.in_a_row));
                assert_eq!(seen, expected.map(|r| (r.count, r.kind, r.in_a_row)), "{step:?}");
            }
            Step::Restore(members, initial) => {
                let restored = pool.restore(members, *initial).await.unwrap();
                assert_eq!(HashSet::from_iter(restored), model.restore(members, *initial, false), "{step:?}");
            }
            Step::RestoreDue(initial) => {
                let restored = pool.restore_due(100, *initial).await.unwrap();
                assert_eq!(HashSet::from_iter(restored), model.restore_due(*initial), "{step:?}");
            }
            Step::Forgive(members) => {
                assert_eq!(pool.forgive(members).await.unwrap(), model.forgive(members), "{step:?}");
            }
            Step::Propose(members) => {
                assert_eq!(pool.propose(members).await.unwrap(), model.propose(members), "{step:?}");
            }
            Step::Accept(members, initial) => {
                assert_eq!(pool.accept(members, *initial).await.unwrap(), model.accept(members, *initial), "{step:?}");
            }
            Step::Reject(members, for_good) => {
                let again = (!for_good).then_some(LATER);
                assert_eq!(pool.reject(members, again).await.unwrap(), model.reject(members, *for_good), "{step:?}");
            }
            Step::Rebase => {
                let rebased = pool.rebase().await.unwrap();
                assert_eq!((rebased.by, rebased.members), (model.rebase(), model.set.len() as u64));
            }
            Step::Decay(keep) => {
                let periods = pool.decay(Decay { keep: *keep, period: Duration::from_millis(1) }).await.unwrap();
                if periods > 0 {
                    model.decay(keep.powf(periods as f64));
                }
            }
            Step::SetScore(member, score) => {
                if let Some(set_score) = set_score {
                    set_score(member, *score);
                    model.set_score(member, *score);
                }
            }
        }
        model.sort();
        let listed: Vec<_> = pool.list().await.unwrap().into_iter().map(|e| (e.count, e.member)).collect();
        assert_eq!(listed, model.set, "after {step:?}");
        let ramping: BTreeMap<_, _> = pool.ramping().await.unwrap().into_iter().map(|e| (e.member, e.count)).collect();
        let expected = model.ramping.iter().map(|(name, (score, _))| (name.clone(), *score));
        assert_eq!(ramping, expected.collect(), "after {step:?}");
        let parked: Vec<_> = pool.parked().await.unwrap();
        let parked: Vec<_> = parked.into_iter().map(|p| (p.member, p.count, p.kind, p.in_a_row)).collect();
        let expected = model.parked.iter().map(|(name, r)| (name.clone(), r.count, r.kind, r.in_a_row));
        assert_eq!(parked, expected.collect::<Vec<_>>(), "after {step:?}");
        let candidates: Vec<_> = pool.candidates().await.unwrap().into_iter().map(|c| c.member).collect();
        assert_eq!(candidates, model.candidates.keys().cloned().collect::<Vec<_>>(), "after {step:?}");
    }
}

/// On an embedded store that saves its state.
async fn walk_restarting(empty: impl Fn() -> Embedded, ramp_every: Option<u64>, steps: &[Step]) {
    let dir = tempfile::tempdir().unwrap();
    let open = || Keeper::open(&dir.path().join("state"), empty()).expect("a folder to write to").0;
    let mut keeper = Some(open());
    let pool = Pool::Embedded(keeper.as_ref().expect("just opened").pool());
    let mut restart = || {
        keeper.take().expect("one at a time").save().expect("saved");
        Pool::Embedded(keeper.insert(open()).pool())
    };
    walk(&pool, ramp_every, steps, None, Some(&mut restart)).await;
}

#[test]
fn both_stores_do_what_the_model_does() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    const EVERY: u64 = 3;
    let plain = runtime.block_on(async { connect(&server) });
    let ramping = runtime.block_on(async { connect_ramping(&server, EVERY) });
    let steps = prop::collection::vec(any_step(), 1..20);
    proptest!(ProptestConfig::with_cases(250), |(steps in steps, ramps in any::<bool>())| {
        server.cmd(&["FLUSHDB"]);
        let set_score = |member: &Name, score: f64| {
            let score = format!("{score:e}");
            server.cmd(&[b"ZADD".as_slice(), KEY.as_bytes(), score.as_bytes(), member.as_ref()]);
        };
        runtime.block_on(async {
            if ramps {
                walk_restarting(|| Embedded::new().with_ramp(EVERY), Some(EVERY), &steps).await;
                walk(&ramping, Some(EVERY), &steps, Some(&set_score), None).await;
            } else {
                walk_restarting(Embedded::new, None, &steps).await;
                walk(&plain, None, &steps, Some(&set_score), None).await;
            }
        });
    });
}

/// Weights multiply scores, and counts are subtracted from each other: none of it may leave what a double holds, and what
/// Redis takes for a score.
#[test]
fn no_finite_score_makes_another_that_is_none() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pool = runtime.block_on(async { connect(&server) });
    let members = ["w2:1?weight=2", "w1000:1?weight=1000", "p0:1"].map(name);
    let scores = [f64::MAX, 1e306, 0.0, f64::MIN, f64::INFINITY, f64::NEG_INFINITY];
    let set_score = |member: &Name, score: f64| {
        let score = format!("{score:e}");
        server.cmd(&[b"ZADD".as_slice(), KEY.as_bytes(), score.as_bytes(), member.as_ref()]);
    };
    for (a, b) in scores.into_iter().flat_map(|a| scores.map(|b| (a, b))) {
        let [first, second, third] = members.clone();
        for policy in [Initial::Min, Initial::Median, Initial::Max, Initial::Ramp, Initial::Keep] {
            let newcomers = vec![second.clone(), third.clone()];
            let steps = [
                Step::SetScore(first.clone(), a),
                Step::SetScore(second.clone(), b),
                Step::Allocate(3),
                Step::Park(second.clone(), Kind::Cooldown, true),
                Step::Decay(1e-5),
                Step::Rebase,
                Step::RestoreDue(policy),
                Step::Add(newcomers.clone(), policy),
                Step::Rebase,
                Step::Decay(1e-5),
                Step::Decay(1e-5),
                Step::Allocate(3),
            ];
            server.cmd(&["FLUSHDB"]);
            runtime.block_on(walk(&pool, None, &steps, Some(&set_score), None));
            let counts = runtime.block_on(counts(&pool));
            let is_finite = |(_, count): &(Name, f64)| count.is_finite();
            assert!(
                counts.iter().all(is_finite) || !(a.is_finite() && b.is_finite()),
                "{a}, {b}, {policy:?}: {counts:?}"
            );
        }
    }
}
