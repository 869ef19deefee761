//! Several gateways run all scripts at once, die while they do and lose their connections: counts, membership and what is in
//! flight are never wrong.
//!
//! In each round some calls are made together, so that their scripts reach Redis in no particular order; what must hold in any
//! order is checked after it. Meanwhile a witness looks again and again whether the keys agree with each other, in one step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel::member::Name;
use evenkeel::pool::redis::Redis;
use evenkeel::pool::{
    Care, Checked, Concurrency, Decay, Finding, Initial, Kind, Lease, Outcome, Pool, PoolError, Prefetch, Report,
    Rounds, Stay, Walk,
};
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::task::JoinSet;

use crate::pool_model::weight;
use crate::support::pool::{KEY, NONE_AHEAD, RECOVERY, name, parking};
use crate::support::redis::{Redis as Server, Reply, eventually};

/// So long that no call fails because the machine is busy.
const TIMEOUT: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_millis(800);
/// Under least-concurrent; one more is under least-used, where members may catch up slowly.
const LEAST_CONCURRENT: usize = 3;
const MEMBERS: [&str; 7] =
    ["p0:1", "p1:1", "p2:1", "p3:1", "p4:1", "w3:1?weight=3", "http://a:1|socks5h://w641:1/?weight=641"];

/// One call of one gateway, or what belongs together.
#[derive(Clone, Debug)]
enum Call {
    Allocate(usize),
    Retry(Vec<Name>),
    /// So many are fetched ahead, so many used, and the rest given back.
    Ahead(usize, usize),
    Add(Vec<Name>, Initial),
    Remove(Vec<Name>),
    Park(Name, Kind, bool),
    Restore(Vec<Name>, Initial),
    RestoreDue(Initial),
    Forgive(Vec<Name>),
    /// How many failures, or another outcome: served, passed, missed, undecided.
    Report(Name, u32),
    /// A trial, held for its request.
    Try,
    Look,
    /// Who is due is found healthy or not.
    Check(bool),
    Propose(Vec<Name>),
    Accept(Vec<Name>),
    Reject(Vec<Name>, bool),
    /// A source, what it names, whether as candidates, and whether who is not named any more is removed.
    Read(usize, Vec<Name>, bool, bool),
    Decay,
    Rebase,
}

/// What else happens in a round.
#[derive(Clone, Debug)]
enum Blow {
    Nothing,
    /// This gateway dies in the middle of its calls.
    Death(usize),
    /// All connections break.
    Break,
}

#[derive(Clone, Debug)]
struct Round {
    calls: Vec<(usize, Call)>,
    /// Requests that end meanwhile.
    ends: Vec<(usize, Index)>,
    blow: Blow,
}

fn any_member() -> impl Strategy<Value = Name> {
    prop::sample::select(MEMBERS.to_vec()).prop_map(name)
}

fn any_members() -> impl Strategy<Value = Vec<Name>> {
    prop::collection::vec(any_member(), 1..4)
}

fn any_call() -> impl Strategy<Value = Call> {
    let kind = || prop::sample::select(vec![Kind::Cooldown, Kind::Unhealthy, Kind::Malformed, Kind::Hand]);
    let initial =
        || prop::sample::select(vec![Initial::Keep, Initial::Keep, Initial::Keep, Initial::Min, Initial::Ramp]);
    prop_oneof![
        10 => (1..40_usize).prop_map(Call::Allocate),
        3 => any_members().prop_map(Call::Retry),
        2 => (1..20_usize, 0..20_usize).prop_map(|(ahead, used)| Call::Ahead(ahead, used)),
        4 => (any_members(), initial()).prop_map(|(members, initial)| Call::Add(members, initial)),
        1 => any_members().prop_map(Call::Remove),
        2 => (any_member(), kind(), any::<bool>()).prop_map(|(member, kind, is_due)| Call::Park(member, kind, is_due)),
        2 => (any_members(), initial()).prop_map(|(members, initial)| Call::Restore(members, initial)),
        2 => initial().prop_map(Call::RestoreDue),
        1 => any_members().prop_map(Call::Forgive),
        4 => (any_member(), 0..8_u32).prop_map(|(member, outcome)| Call::Report(member, outcome)),
        2 => Just(Call::Try),
        1 => Just(Call::Look),
        2 => any::<bool>().prop_map(Call::Check),
        1 => any_members().prop_map(Call::Propose),
        1 => any_members().prop_map(Call::Accept),
        1 => (any_members(), any::<bool>()).prop_map(|(members, for_good)| Call::Reject(members, for_good)),
        1 => (0..2_usize, any_members(), any::<bool>(), any::<bool>())
            .prop_map(|(source, members, as_candidates, remove)| Call::Read(source, members, as_candidates, remove)),
        1 => Just(Call::Decay),
        1 => Just(Call::Rebase),
    ]
}

fn any_round() -> impl Strategy<Value = Round> {
    let blow = prop_oneof![
        12 => Just(Blow::Nothing),
        2 => (0..=LEAST_CONCURRENT).prop_map(Blow::Death),
        1 => Just(Blow::Break),
    ];
    let calls = prop::collection::vec((0..=LEAST_CONCURRENT, any_call()), 1..16);
    let ends = prop::collection::vec((0..LEAST_CONCURRENT, any::<Index>()), 0..12);
    (calls, ends, blow).prop_map(|(calls, ends, blow)| Round { calls, ends, blow })
}

/// What a call may do to members, and what it did.
#[derive(Default)]
struct Effect {
    /// Allocated for certain.
    chosen: Vec<Name>,
    held: Vec<(Name, Lease)>,
    /// So many of whomever may have been allocated as well.
    perhaps: u64,
    /// Subtracted from all scores.
    rebased: f64,
}

/// What a round may do to members besides allocating them, whatever becomes of the calls.
#[derive(Default)]
struct Reach {
    entering: BTreeSet<Name>,
    leaving: BTreeSet<Name>,
    /// Their counts may be raised to those of others.
    raises: bool,
    /// They may be set aside.
    moves: bool,
    shrinks: bool,
}

impl Reach {
    fn of(calls: &[(usize, Call)]) -> Self {
        let mut reach = Self::default();
        for (_, call) in calls {
            match call {
                Call::Add(members, _) | Call::Propose(members) | Call::Accept(members) => {
                    reach.entering.extend(members.iter().cloned());
                }
                Call::Remove(members) | Call::Reject(members, true) => reach.leaving.extend(members.iter().cloned()),
                Call::Read(_, members, ..) => {
                    reach.entering.extend(members.iter().cloned());
                    reach.leaving.extend(MEMBERS.map(name).into_iter().filter(|member| !members.contains(member)));
                }
                Call::Restore(_, initial) => reach.raises |= *initial == Initial::Min,
                // Also those who catch up, where the gateway that looks chooses none of them.
                Call::RestoreDue(initial) => reach.raises |= *initial != Initial::Keep,
                Call::Park(..) | Call::Report(..) | Call::Check(_) => reach.moves = true,
                Call::Decay => reach.shrinks = true,
                _ => {}
            }
        }
        reach
    }
}

/// Before it is made, how many allocations a call may come to that nobody hears of.
fn most(call: &Call) -> u64 {
    match call {
        Call::Allocate(n) => *n as u64,
        Call::Retry(_) | Call::Try => 1,
        // What was kept ready, and one call's worth under way.
        Call::Ahead(ahead, used) => (ahead + used + 64) as u64,
        _ => 0,
    }
}

async fn make(pool: Pool, url: String, call: Call) -> Effect {
    let mut effect = Effect::default();
    // Under least-used, and of what was fetched ahead, there is no lease.
    let mut note = |result: Result<Option<(Name, Option<Lease>)>, PoolError>| match result {
        Ok(Some((member, lease))) => {
            // Not the buffer it came in.
            let member = Name::copy_from_slice(&member);
            effect.chosen.push(member.clone());
            effect.held.extend(lease.map(|lease| (member, lease)));
        }
        Ok(None) => {}
        Err(_) => effect.perhaps += 1,
    };
    let leased = |chosen: Option<(Name, Lease)>| chosen.map(|(member, lease)| (member, Some(lease)));
    let care = Care {
        park_after: 3,
        cooldown: Duration::ZERO,
        max_cooldown: Duration::from_secs(1),
        max_parked: 80,
        restore: Initial::Keep,
    };
    // Errors are those of broken connections, and what they leave open is allowed for.
    match call {
        Call::Allocate(n) => {
            let mut asked = JoinSet::new();
            for _ in 0..n {
                let pool = pool.clone();
                asked.spawn(async move { pool.allocate(&[]).await });
            }
            asked.join_all().await.into_iter().for_each(|answer| note(answer.map(leased)));
        }
        Call::Retry(tried) => note(pool.allocate(&tried).await.map(leased)),
        Call::Ahead(count, used) => {
            let prefetch = Prefetch { count, max_age: Duration::from_secs(60) };
            let ahead = Pool::Redis(Redis::connect(&url, KEY, TIMEOUT, prefetch).expect("a good URL"));
            for _ in 0..used {
                note(ahead.allocate(&[]).await.map(|chosen| chosen.map(|(member, _)| (member, None))));
            }
            if ahead.stop_prefetching().await.is_err() {
                effect.perhaps += count as u64 + 64;
            }
        }
        Call::Add(members, initial) => drop(pool.add(&members, initial).await),
        Call::Remove(members) => drop(pool.remove(&members).await),
        Call::Park(member, kind, is_due) => {
            let stay = if is_due { Stay::For(Duration::ZERO) } else { Stay::UntilRestored };
            drop(pool.park(&member, &parking(kind, stay)).await);
        }
        Call::Restore(members, initial) => drop(pool.restore(&members, initial).await),
        Call::RestoreDue(initial) => drop(pool.restore_due(100, initial).await),
        Call::Forgive(members) => drop(pool.forgive(&members).await),
        Call::Report(member, outcome) => {
            let outcome = match outcome {
                0 => Outcome::Served,
                1 => Outcome::Passed,
                2 => Outcome::Missed("why".to_owned()),
                3 => Outcome::Undecided,
                times => Outcome::Failed(times - 3, "why".to_owned()),
            };
            drop(pool.report(&[Report { member, outcome, luck: 1.0 }], &care).await);
        }
        Call::Try => match pool.try_next(Duration::ZERO).await {
            Ok(Some((member, _))) => note(Ok(Some((member.clone(), pool.hold(&member).await.ok())))),
            other => note(other.map(|_| None)),
        },
        Call::Look => drop(pool.look(0, 100).await),
        Call::Check(is_healthy) => {
            let every = Duration::from_millis(5);
            let (mut walk, rounds) = (Walk::default(), Rounds { every, care });
            for _ in 0..3 {
                drop(pool.enroll(&mut walk, every).await);
            }
            let finding = if is_healthy { Finding::Healthy } else { Finding::Unhealthy("why".to_owned()) };
            let checked = |check: evenkeel::pool::Check| Checked {
                member: check.member,
                due_ms: check.due_ms,
                finding: finding.clone(),
                luck: 1.0,
            };
            if let Ok(claimed) = pool.claim(100, TIMEOUT).await {
                drop(pool.checked(&claimed.into_iter().map(checked).collect::<Vec<_>>(), &rounds).await);
            }
        }
        Call::Propose(members) => drop(pool.propose(&members).await),
        Call::Accept(members) => drop(pool.accept(&members, Initial::Min).await),
        Call::Reject(members, for_good) => drop(pool.reject(&members, (!for_good).then_some(TIMEOUT)).await),
        Call::Read(source, members, as_candidates, remove) => {
            let source = ["one", "two"][source];
            if let Ok(mut reading) = pool.begin_reading(source, Initial::Min).await {
                let taken = pool.take(&mut reading, &members, as_candidates).await;
                if let (Ok(_), Ok(missing)) = (taken, pool.missing(&reading, 100).await) {
                    drop(pool.forget(&reading, &missing, remove).await);
                }
            }
        }
        Call::Decay => drop(pool.decay(Decay { keep: 0.9, period: Duration::from_millis(20) }).await),
        Call::Rebase => match pool.rebase().await {
            Ok(rebased) => effect.rebased = rebased.by,
            Err(_) => effect.rebased = f64::NAN,
        },
    }
    effect
}

/// Where a member is, and how many allocations it has had.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    allocations: f64,
    is_candidate: bool,
    is_in_set: bool,
}

async fn places(pool: &Pool) -> BTreeMap<Name, Place> {
    let mut places = BTreeMap::new();
    let mut put = |member: Name, score: f64, is_candidate, is_in_set| {
        let allocations = score * weight(&member);
        assert!((allocations - allocations.round()).abs() < 1e-6 && allocations > -0.5, "{member:?}: {score}");
        let place = Place { allocations: allocations.round(), is_candidate, is_in_set };
        assert_eq!(places.insert(member.clone(), place), None, "{member:?} is in two states");
    };
    pool.list().await.unwrap().into_iter().for_each(|entry| put(entry.member, entry.count, false, true));
    pool.ramping().await.unwrap().into_iter().for_each(|entry| put(entry.member, entry.count, false, false));
    pool.parked().await.unwrap().into_iter().for_each(|parked| put(parked.member, parked.count, false, false));
    pool.candidates().await.unwrap().into_iter().for_each(|candidate| put(candidate.member, 0.0, true, false));
    places
}

/// What must be so at any moment, between any two scripts; what is not, in words.
const WITNESS: &str = "
    local KEY, wrong = KEYS[1], {}
    local function zset(suffix) return redis.call('ZRANGE', KEY .. suffix, 0, -1) end
    local function hash(suffix)
        local flat, fields = redis.call('HGETALL', KEY .. suffix), {}
        for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
        return fields
    end
    local function of(list)
        local all = {}
        for _, member in ipairs(list) do all[member] = true end
        return all
    end
    local set, ramping, candidates, parked = of(zset('')), of(zset(':ramping')), of(zset(':candidates')), hash(':parked')
    local states = {}
    for name, state in pairs({set = set, ramping = ramping, candidates = candidates, parked = parked}) do
        for member in pairs(state) do
            if states[member] then wrong[#wrong + 1] = member .. ' is in ' .. states[member] .. ' and ' .. name end
            states[member] = name
        end
    end
    local turns = of(zset(':ramping:turns'))
    for member in pairs(turns) do
        if not ramping[member] then wrong[#wrong + 1] = member .. ' has a turn and is not ramping' end
    end
    for member in pairs(ramping) do
        if not turns[member] then wrong[#wrong + 1] = member .. ' is ramping without a turn' end
    end
    local trials = of(zset(':trials'))
    for _, member in ipairs(zset(':returns')) do
        if not parked[member] then wrong[#wrong + 1] = member .. ' returns and is not parked' end
        if trials[member] then wrong[#wrong + 1] = member .. ' returns and is tried' end
    end
    for member in pairs(trials) do
        if not parked[member] then wrong[#wrong + 1] = member .. ' is tried and not parked' end
    end
    for _, member in ipairs(zset(':failures')) do
        if not (set[member] or ramping[member]) then wrong[#wrong + 1] = member .. ' fails and is not eligible' end
    end
    for member in pairs(hash(':streaks')) do
        if not (set[member] or ramping[member]) then wrong[#wrong + 1] = member .. ' has a streak and is not eligible' end
    end
    local gateways, sums = of(zset(':gateways')), {}
    for _, key in ipairs(redis.call('KEYS', KEY .. ':leases:*')) do
        local gateway = string.sub(key, #KEY + #':leases:' + 1)
        if not gateways[gateway] then wrong[#wrong + 1] = gateway .. ' has leases and is not registered' end
        for member, count in pairs(hash(':leases:' .. gateway)) do
            if tonumber(count) < 1 then wrong[#wrong + 1] = gateway .. ' has ' .. count .. ' of ' .. member end
            sums[member] = (sums[member] or 0) + count
        end
    end
    local in_flight = hash(':in_flight')
    for member, count in pairs(in_flight) do
        if sums[member] ~= tonumber(count) then
            wrong[#wrong + 1] = member .. ' has ' .. count .. ' in flight, of gateways ' .. tostring(sums[member])
        end
    end
    for member, count in pairs(sums) do
        if not in_flight[member] then wrong[#wrong + 1] = member .. ' has none in flight, of gateways ' .. count end
    end
    return wrong";

fn testify(server: &Server) {
    // Its own connection may be among those that break.
    if let Ok(reply) = server.try_cmd(&["EVAL", WITNESS, "1", KEY]) {
        assert_eq!(reply, Reply::Array(vec![]));
    }
}

/// What is in flight of requests that somebody alive holds.
fn truth(gateways: &[(Pool, Vec<(Name, Lease)>)]) -> HashMap<Name, u64> {
    let mut truth = HashMap::new();
    for (member, _) in gateways[..LEAST_CONCURRENT].iter().flat_map(|(_, held)| held) {
        *truth.entry(member.clone()).or_default() += 1;
    }
    truth
}

async fn settles(pool: &Pool, limit: Duration, truth: &HashMap<Name, u64>) {
    let what = format!("{truth:?} in flight");
    eventually(limit, &what, async || pool.in_flight().await.is_ok_and(|told| told == *truth)).await;
}

fn connect(server: &Server, gateway: usize) -> Pool {
    let url = server.url();
    let redis = if gateway < LEAST_CONCURRENT {
        let concurrency = Concurrency { max_in_flight: 0, heartbeat: HEARTBEAT };
        Redis::connect_least_concurrent(&url, KEY, TIMEOUT, concurrency).expect("a good URL")
    } else {
        Redis::connect(&url, KEY, TIMEOUT, NONE_AHEAD).expect("a good URL").with_ramp(3)
    };
    let pool = Pool::Redis(redis);
    // So that it hears of the dead before it chooses anybody itself.
    pool.register();
    pool
}

/// Until Redis has run what the dead have sent, and closed their connections: those that are left are of the gateways and of
/// the observer.
async fn buries(server: &Server, gateways: &[(Pool, Vec<(Name, Lease)>)]) {
    for (pool, _) in gateways {
        eventually(RECOVERY, "a connection", async || pool.list().await.is_ok()).await;
    }
    let connections = || {
        let Reply::Bulk(list) = server.cmd(&["CLIENT", "LIST"]) else { panic!("no list") };
        // What the test asks for itself goes by a socket.
        String::from_utf8_lossy(&list).lines().filter(|line| line.contains(" addr=127.0.0.1:")).count()
    };
    eventually(RECOVERY, "the end of the dead", async || connections() == gateways.len() + 1).await;
}

/// The calls of one round, all at once; what they did together.
async fn play(
    server: &Server,
    gateways: &mut [(Pool, Vec<(Name, Lease)>)],
    lost: &mut Vec<Vec<(Name, Lease)>>,
    round: &Round,
) -> Effect {
    let mut sum = Effect::default();
    let (mut under_way, mut dying) = (JoinSet::new(), Vec::new());
    for (at, call) in &round.calls {
        let (at, task) = (*at, make(gateways[*at].0.clone(), server.url(), call.clone()));
        let handle = under_way.spawn(async move { (at, task.await) });
        if matches!(round.blow, Blow::Death(victim) if victim == at) {
            // What it was told nobody hears any more.
            sum.perhaps += most(call);
            if matches!(call, Call::Rebase) {
                sum.rebased = f64::NAN;
            }
            dying.push(handle);
        }
    }
    for (at, index) in &round.ends {
        let held = &mut gateways[*at].1;
        if !held.is_empty() {
            drop(held.swap_remove(index.index(held.len())));
        }
        tokio::task::yield_now().await;
    }
    match round.blow {
        Blow::Nothing => {}
        Blow::Death(victim) => {
            dying.into_iter().for_each(|handle| handle.abort());
            let (_, held) = std::mem::replace(&mut gateways[victim], (connect(server, victim), Vec::new()));
            lost.push(held);
        }
        Blow::Break => drop(server.cmd(&["CLIENT", "KILL", "TYPE", "normal"])),
    }
    while let Some(done) = under_way.join_next().await {
        // One that was aborted is no news.
        let Ok((at, effect)) = done else { continue };
        if matches!(round.blow, Blow::Death(victim) if victim == at) {
            lost.push(effect.held);
            continue;
        }
        gateways[at].1.extend(effect.held);
        sum.chosen.extend(effect.chosen);
        sum.perhaps += effect.perhaps;
        sum.rebased += effect.rebased;
    }
    sum
}

/// Who is in the pool, and how often everyone was allocated, follows from what there was before and what was done.
fn compare(round: &Round, before: &BTreeMap<Name, Place>, after: &BTreeMap<Name, Place>, effect: &Effect) {
    let reach = Reach::of(&round.calls);
    for member in MEMBERS.map(name) {
        let (was, is) = (before.get(&member), after.get(&member));
        let (enters, leaves) = (reach.entering.contains(&member), reach.leaving.contains(&member));
        assert!(was.is_none() || is.is_some() || leaves, "{member:?} is gone: {was:?}, {round:?}");
        assert!(was.is_some() || is.is_none() || enters, "{member:?} is there: {is:?}, {round:?}");
        let (Some(was), Some(is)) = (was, is) else { continue };
        // It may have begun anew.
        if leaves || was.is_candidate {
            continue;
        }
        let chosen = effect.chosen.iter().filter(|chosen| **chosen == member).count() as f64;
        let exact = was.allocations + chosen - effect.rebased * weight(&member);
        // Of members that are not in the set the count goes down to 0 at most, and what was given back too late stays.
        let was_in_set_throughout = was.is_in_set && is.is_in_set && !reach.moves;
        let ahead = round.calls.iter().filter(|(_, call)| matches!(call, Call::Ahead(..))).map(|(_, call)| most(call));
        let slack = effect.perhaps + if was_in_set_throughout { 0 } else { ahead.sum() };
        let high = match () {
            () if reach.raises => f64::INFINITY,
            () if effect.rebased == 0.0 || was_in_set_throughout => exact + slack as f64,
            () => was.allocations + chosen + slack as f64,
        };
        let low = if reach.shrinks || effect.rebased.is_nan() { 0.0 } else { exact.max(0.0) };
        let high = if high.is_nan() { was.allocations + chosen + slack as f64 } else { high };
        assert!(
            (low..=high).contains(&is.allocations),
            "{member:?} has {} allocations, not {low} to {high}; {was:?}, {is:?}, chosen {chosen}, {round:?}",
            is.allocations
        );
    }
}

async fn race(server: &Server, rounds: &[Round]) {
    let mut gateways: Vec<_> = (0..=LEAST_CONCURRENT).map(|at| (connect(server, at), Vec::new())).collect();
    let mut lost = Vec::new();
    let observer = connect(server, LEAST_CONCURRENT);
    observer.add(&MEMBERS[..5].iter().map(|text| name(text)).collect::<Vec<_>>(), Initial::Min).await.unwrap();
    let mut before = places(&observer).await;
    for round in rounds {
        let effect = play(server, &mut gateways, &mut lost, round).await;
        // A call whose connection broke may still be on its way.
        eventually(RECOVERY, "a connection", async || observer.list().await.is_ok()).await;
        if matches!(round.blow, Blow::Death(_)) {
            buries(server, &gateways).await;
        }
        let after = places(&observer).await;
        compare(round, &before, &after, &effect);
        before = after;
        // Ended by somebody dead: unheard.
        lost.iter_mut().for_each(|held| drop(held.pop()));
        if lost.is_empty() {
            settles(&observer, RECOVERY, &truth(&gateways)).await;
        }
    }
    settles(&observer, HEARTBEAT + RECOVERY, &truth(&gateways)).await;
    drop(lost);
    gateways.iter_mut().for_each(|(_, held)| held.clear());
    settles(&observer, RECOVERY, &HashMap::new()).await;
    assert_eq!(server.cmd(&["KEYS", &format!("{KEY}:leases:*")]), Reply::Array(vec![]));
    testify(server);
}

#[test]
fn whatever_several_gateways_do_at_once_counts_membership_and_in_flight_are_right() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 10, max_shrink_iters: 30, ..ProptestConfig::default() };
    proptest!(config, |(rounds in prop::collection::vec(any_round(), 5..25))| {
        server.cmd(&["FLUSHALL"]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let witness = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    testify(&server);
                    std::thread::sleep(Duration::from_millis(1)); // between two looks
                }
            });
            let raced = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(race(&server, &rounds))));
            is_over.store(true, Ordering::Relaxed);
            let seen = witness.join();
            raced.and(seen).unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        });
    });
}
