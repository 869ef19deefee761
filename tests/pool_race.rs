//! Several gateways run all scripts at once, die while they do and lose their connections: counts, membership and what is in
//! flight are never wrong.
//!
//! In each round some calls are made together, so that their scripts reach Redis in no particular order; what must hold in any
//! order is checked after it. Meanwhile a witness looks again and again whether the keys agree with each other, in one step.
//! No file of `lua/` is left out: in the end Redis is asked which scripts it knows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel::member::Name;
use evenkeel::pool::redis::{Redis, scripts};
use evenkeel::pool::{
    Ban, Care, Checked, Concurrency, Decay, Finding, Initial, Judged, Judging, Kind, Lease, Local, Opinion, Outcome,
    PerHost, Pool, PoolError, Prefetch, Report, Rounds, Stay, Walk,
};
use proptest::prelude::*;
use proptest::sample::Index;
use tokio::task::JoinSet;

use crate::pool_model::weight;
use crate::support::pool::{ANYTHING_GOES, KEY, NONE_AHEAD, RECOVERY, name, parking};
use crate::support::redis::{Redis as Server, Reply, eventually};

/// So long that no call fails because the machine is busy.
const TIMEOUT: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_millis(800);
/// Under least-concurrent. Behind them are others under least-used: one where members may catch up slowly, one where they do not,
/// and one where each host has counts of its own.
const LEAST_CONCURRENT: usize = 3;
const RAMPING: usize = LEAST_CONCURRENT;
const PLAIN: usize = RAMPING + 1;
const PER_HOST: usize = PLAIN + 1;
const GATEWAYS: usize = PER_HOST + 1;
const HOSTS: [&str; 2] = ["a.test", "[::1]"];
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
    /// Set aside, or kept from a host: for a long time or none, of whomever or of no more than the half.
    Ban(Name, bool),
    BanFor(usize, Vec<Name>, bool, bool),
    UnbanFor(usize, Vec<Name>),
    /// For a host, passing over those that were tried.
    AllocateFor(usize, Vec<Name>),
    TryFor(usize),
    Hosts,
    /// By one of two ways to judge, as one that has just begun to or not; what is found: passed, rejected, unknown.
    Judge(usize, bool, u32),
    Tally(Vec<Name>, bool),
    /// So many are chosen without Redis, which is told of it then.
    Locally(usize),
    Verify,
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
        2 => any_members().prop_map(Call::Remove),
        2 => (any_member(), kind(), any::<bool>()).prop_map(|(member, kind, is_due)| Call::Park(member, kind, is_due)),
        2 => (any_members(), initial()).prop_map(|(members, initial)| Call::Restore(members, initial)),
        2 => initial().prop_map(Call::RestoreDue),
        1 => any_members().prop_map(Call::Forgive),
        4 => (any_member(), 0..8_u32).prop_map(|(member, outcome)| Call::Report(member, outcome)),
        2 => Just(Call::Try),
        1 => Just(Call::Look),
        2 => any::<bool>().prop_map(Call::Check),
        3 => any_members().prop_map(Call::Propose),
        1 => any_members().prop_map(Call::Accept),
        1 => (any_members(), any::<bool>()).prop_map(|(members, for_good)| Call::Reject(members, for_good)),
        1 => (0..2_usize, any_members(), any::<bool>(), any::<bool>())
            .prop_map(|(source, members, as_candidates, remove)| Call::Read(source, members, as_candidates, remove)),
        1 => Just(Call::Decay),
        1 => Just(Call::Rebase),
        1 => (any_member(), any::<bool>()).prop_map(|(member, is_over)| Call::Ban(member, is_over)),
        2 => (0..2_usize, any_members(), any::<bool>(), any::<bool>())
            .prop_map(|(host, members, is_over, is_limited)| Call::BanFor(host, members, is_over, is_limited)),
        1 => (0..2_usize, any_members()).prop_map(|(host, members)| Call::UnbanFor(host, members)),
        8 => (0..2_usize, prop_oneof![3 => Just(vec![]), 1 => any_members()])
            .prop_map(|(host, tried)| Call::AllocateFor(host, tried)),
        1 => (0..2_usize).prop_map(Call::TryFor),
        1 => Just(Call::Hosts),
        4 => (0..2_usize, prop::bool::weighted(0.2), 0..3_u32).prop_map(|(by, is_new, found)| Call::Judge(by, is_new, found)),
        1 => (any_members(), any::<bool>()).prop_map(|(members, passed)| Call::Tally(members, passed)),
        1 => (1..9_usize).prop_map(Call::Locally),
        1 => Just(Call::Verify),
    ]
}

/// Every call of every gateway that can make it, twice, so that what is done the second time is raced too.
fn all_calls() -> Vec<(usize, Call)> {
    let members = || MEMBERS[2..].iter().map(|text| name(text)).collect::<Vec<_>>();
    let one = || name(MEMBERS[3]);
    let calls = || {
        let mut calls = vec![
            Call::Allocate(5),
            Call::Retry(members()),
            Call::Ahead(9, 2),
            Call::Propose(members()),
            Call::Judge(0, false, 0),
            Call::Judge(0, false, 1),
            Call::Judge(1, true, 0),
            Call::Add(members(), Initial::Ramp),
            Call::Park(one(), Kind::Cooldown, true),
            Call::RestoreDue(Initial::Min),
            Call::Restore(members(), Initial::Keep),
            Call::Forgive(members()),
            Call::Try,
            Call::Look,
            Call::Check(false),
            Call::Accept(members()),
            Call::Reject(members(), false),
            Call::Read(0, members(), true, true),
            Call::Read(1, members()[..1].to_vec(), false, true),
            Call::Decay,
            Call::Rebase,
            Call::Ban(one(), true),
            Call::Hosts,
            Call::Tally(members(), true),
            Call::Locally(3),
            Call::Verify,
            Call::Remove(vec![one()]),
        ];
        for outcome in 0..7 {
            calls.push(Call::Report(one(), outcome));
        }
        for host in 0..HOSTS.len() {
            calls.push(Call::BanFor(host, members(), false, true));
            calls.push(Call::AllocateFor(host, vec![]));
            calls.push(Call::AllocateFor(host, vec![one()]));
            calls.push(Call::UnbanFor(host, vec![one()]));
            calls.push(Call::TryFor(host));
        }
        calls
    };
    (0..2 * GATEWAYS).flat_map(|at| calls().into_iter().map(move |call| (at % GATEWAYS, call))).collect()
}

fn any_round() -> impl Strategy<Value = Round> {
    let blow = prop_oneof![
        12 => Just(Blow::Nothing),
        2 => (0..GATEWAYS).prop_map(Blow::Death),
        1 => Just(Blow::Break),
    ];
    let calls = prop::collection::vec((0..GATEWAYS, any_call()), 1..20);
    let ends = prop::collection::vec((0..LEAST_CONCURRENT, any::<Index>()), 0..12);
    (calls, ends, blow).prop_map(|(calls, ends, blow)| Round { calls, ends, blow })
}

/// What a call may do to members, and what it did.
#[derive(Default)]
struct Effect {
    /// Allocated for certain.
    chosen: Vec<Name>,
    held: Vec<(Name, Lease)>,
    /// For which host, where it was for one; and whether by its own counts.
    for_hosts: Vec<(usize, Name, bool)>,
    /// Chosen without Redis, and told of: counted where they are eligible.
    locally: Vec<Name>,
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
                Call::Park(..) | Call::Report(..) | Call::Check(_) | Call::Ban(..) => reach.moves = true,
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
        Call::Retry(_) | Call::Try | Call::TryFor(_) | Call::AllocateFor(..) => 1,
        Call::Locally(n) => *n as u64,
        // What was kept ready, and one call's worth under way.
        Call::Ahead(ahead, used) => (ahead + used + 64) as u64,
        _ => 0,
    }
}

/// Chooses for one whom Redis is away from, and has it told; whom it has chosen, and whether Redis has heard of it.
async fn choose_locally(url: &str, n: usize) -> (Vec<Name>, bool) {
    let local = Arc::new(Local::new(TIMEOUT));
    let here =
        Pool::Redis(Redis::connect(url, KEY, TIMEOUT, NONE_AHEAD).expect("a good URL").with_local(local.clone()));
    // Nobody listens there.
    let (nowhere, soon) = ("redis://127.0.0.1:1", Duration::from_millis(20));
    let away = Pool::Redis(Redis::connect(nowhere, KEY, soon, NONE_AHEAD).expect("a good URL").with_local(local));
    let mut chosen = Vec::new();
    let choose = async {
        // Until the set has been read; it may be empty, or Redis gone.
        for _ in 0..n + 20 {
            if chosen.len() == n {
                break;
            }
            if let Ok(Some((member, _))) = away.allocate(&[]).await {
                chosen.push(member);
            }
        }
    };
    tokio::select! {
        () = here.stand_by() => {}
        () = choose => {}
    }
    let is_told = here.tell_owed().await.is_ok();
    (chosen, is_told)
}

async fn make((at, pool): (usize, Pool), url: String, call: Call) -> Effect {
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
        Call::TryFor(host) => match pool.try_next_for(HOSTS[host], Duration::ZERO).await {
            Ok(Some((member, _))) => {
                note(Ok(Some((member.clone(), pool.hold(&member).await.ok()))));
                effect.for_hosts.push((host, Name::copy_from_slice(&member), false));
            }
            other => note(other.map(|_| None)),
        },
        Call::AllocateFor(host, tried) => {
            let chosen = pool.allocate_for(HOSTS[host], &tried).await;
            if let Ok(Some((member, _))) = &chosen {
                assert!(!tried.contains(member), "{member:?} was tried");
                effect.for_hosts.push((host, Name::copy_from_slice(member), at == PER_HOST));
            }
            note(chosen.map(leased));
        }
        Call::Ban(member, is_over) => drop(pool.ban(&[ban(&member, is_over)], care.max_parked).await),
        Call::BanFor(host, members, is_over, is_limited) => {
            let bans: Vec<_> = members.iter().map(|member| ban(member, is_over)).collect();
            drop(pool.ban_for(HOSTS[host], &bans, is_limited.then_some(50)).await);
        }
        Call::UnbanFor(host, members) => drop(pool.unban_for(HOSTS[host], &members).await),
        Call::Hosts => drop(pool.hosts(&mut None).await),
        Call::Judge(by, is_new, found) => {
            let by = ["one", "two"][by].to_owned();
            let opinion = match found {
                0 => Opinion::Passed,
                1 => Opinion::Rejected("why".to_owned()),
                _ => Opinion::Unknown,
            };
            if let Ok(Some(claimed)) = pool.claim_candidates(100, Duration::ZERO, &by, is_new).await {
                let judged = |member| Judged { member, opinion: opinion.clone(), luck: 1.0 };
                let judged: Vec<_> = claimed.into_iter().map(judged).collect();
                // Verdicts are kept for twice as long: some candidates pass who have one, and some after it has ended.
                let soon = Duration::from_millis(30);
                let judging = Judging { by, initial: Initial::Min, first: soon, longest: 4 * soon };
                drop(pool.judged(&judged, &judging).await);
            }
        }
        Call::Tally(members, passed) => {
            let checks: Vec<_> = members.into_iter().map(|member| (member, Some(passed))).collect();
            drop(pool.note_countries(&[(checks[0].0.clone(), "DE".to_owned())]).await);
            drop(pool.tally(&checks).await);
        }
        Call::Locally(n) => {
            let (chosen, is_told) = choose_locally(&url, n).await;
            if is_told {
                effect.locally.extend(chosen);
            } else {
                effect.perhaps += chosen.len() as u64;
            }
        }
        Call::Verify => {
            if let Ok(verdict) = pool.verify(ANYTHING_GOES).await {
                let wrong: Vec<_> = verdict.findings.into_iter().filter(|finding| finding.rule.is_wrong()).collect();
                assert_eq!(wrong, []);
            }
        }
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

/// Over at once, or not while this lasts.
fn ban(member: &Name, is_over: bool) -> Ban {
    let span = if is_over { Duration::ZERO } else { Duration::from_secs(600) };
    Ban { member: member.clone(), reason: "why".to_owned(), span }
}

/// What hosts think of members: until when each is banned, and how often it was given to the host by the host's own counts.
#[derive(Default)]
struct Opinions {
    banned: [BTreeMap<Name, u64>; HOSTS.len()],
    given: [BTreeMap<Name, f64>; HOSTS.len()],
}

fn opinions(server: &Server) -> Opinions {
    let read = |key: &str| {
        let scores = server.scores(key).into_iter();
        scores.map(|(member, score)| (Name::from(member), score.parse().unwrap())).collect::<BTreeMap<Name, f64>>()
    };
    let mut opinions = Opinions::default();
    for (at, host) in HOSTS.iter().enumerate() {
        let banned = read(&format!("{KEY}:host:{host}")).into_iter();
        opinions.banned[at] = banned.map(|(member, until)| (member, until as u64)).collect();
        let given = read(&format!("{KEY}:host:{host}:counts")).into_iter();
        opinions.given[at] = given.map(|(member, score)| (member.clone(), score * weight(&member))).collect();
    }
    opinions
}

/// Where a member is, and how many allocations it has had.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    allocations: f64,
    is_candidate: bool,
    is_eligible: bool,
    is_in_set: bool,
}

async fn places(pool: &Pool) -> BTreeMap<Name, Place> {
    let mut places = BTreeMap::new();
    let mut put = |member: Name, score: f64, [is_candidate, is_eligible, is_in_set]: [bool; 3]| {
        let allocations = score * weight(&member);
        assert!((allocations - allocations.round()).abs() < 1e-6 && allocations > -0.5, "{member:?}: {score}");
        let place = Place { allocations: allocations.round(), is_candidate, is_eligible, is_in_set };
        assert_eq!(places.insert(member.clone(), place), None, "{member:?} is in two states");
    };
    pool.list().await.unwrap().into_iter().for_each(|entry| put(entry.member, entry.count, [false, true, true]));
    let ramping = pool.ramping().await.unwrap().into_iter();
    ramping.for_each(|entry| put(entry.member, entry.count, [false, true, false]));
    pool.parked().await.unwrap().into_iter().for_each(|parked| put(parked.member, parked.count, [false; 3]));
    let candidates = pool.candidates().await.unwrap().into_iter();
    candidates.for_each(|candidate| put(candidate.member, 0.0, [true, false, false]));
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
    local verdicts, ends = hash(':verdicts'), of(zset(':verdicts:ends'))
    for member in pairs(verdicts) do
        if not ends[member] then wrong[#wrong + 1] = member .. ' has a verdict that never ends' end
    end
    for member in pairs(ends) do
        if not verdicts[member] then wrong[#wrong + 1] = member .. ' has an end and no verdict' end
    end
    for member, checks in pairs(hash(':tallies')) do
        if #checks > 20 or #checks < 1 or string.find(checks, '[^+-]') then
            wrong[#wrong + 1] = member .. ' has the checks ' .. checks
        end
    end
    local now = redis.call('TIME')
    now = now[1] * 1000 + math.floor(now[2] / 1000)
    for _, host in ipairs({'a.test', '[::1]'}) do
        local last = redis.call('ZRANGE', KEY .. ':host:' .. host, -1, -1, 'WITHSCORES')[2]
        local till = redis.call('ZSCORE', KEY .. ':hosts', host)
        if last and tonumber(last) > now and not (till and tonumber(till) >= tonumber(last)) then
            wrong[#wrong + 1] = host .. ' has banned somebody and is not among the hosts'
        end
        local counts = redis.call('ZRANGE', KEY .. ':host:' .. host .. ':counts', 0, -1, 'WITHSCORES')
        for i = 2, #counts, 2 do
            if tonumber(counts[i]) < 0 then wrong[#wrong + 1] = counts[i - 1] .. ' has less than nothing of ' .. host end
        end
        if #counts > 0 and not redis.call('ZSCORE', KEY .. ':counted', host) then
            wrong[#wrong + 1] = host .. ' has counts and nobody knows'
        end
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
        let redis = Redis::connect(&url, KEY, TIMEOUT, NONE_AHEAD).expect("a good URL");
        match gateway {
            RAMPING => redis.with_ramp(3),
            PER_HOST => redis.with_hosts(PerHost { max_hosts: 9, idle: Duration::from_secs(600) }),
            _ => redis,
        }
    };
    let pool = Pool::Redis(redis);
    // So that it hears of the dead before it chooses anybody itself.
    pool.register();
    pool
}

/// How many tasks run: of pools, and of calls.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn connects(gateways: &[(Pool, Vec<(Name, Lease)>)]) {
    for (pool, _) in gateways {
        eventually(RECOVERY, "a connection", async || pool.list().await.is_ok()).await;
    }
}

/// Until the dead have ended, and Redis has run what they have sent and closed their connections: those that are left are of the
/// gateways and of the observer, as are so many tasks as are `alive`.
async fn buries(server: &Server, gateways: &[(Pool, Vec<(Name, Lease)>)], alive: usize) {
    connects(gateways).await;
    // Who dies while its connection is broken has none that Redis could show, and makes one yet for what is in its queue: also
    // for calls that nobody waits for any more.
    eventually(RECOVERY, "the last task of the dead", async || tasks() == alive).await;
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
        let (at, task) = (*at, make((*at, gateways[*at].0.clone()), server.url(), call.clone()));
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
        let (at, effect) = match done {
            Ok(done) => done,
            // One that was aborted is no news.
            Err(error) if error.is_cancelled() => continue,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        if matches!(round.blow, Blow::Death(victim) if victim == at) {
            lost.push(effect.held);
            continue;
        }
        gateways[at].1.extend(effect.held);
        sum.chosen.extend(effect.chosen);
        sum.for_hosts.extend(effect.for_hosts);
        sum.locally.extend(effect.locally);
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
        let locally = effect.locally.iter().filter(|chosen| **chosen == member).count() as u64;
        // Whoever is not eligible when Redis is told is not counted.
        let is_told = was.is_eligible && is.is_eligible && !reach.moves;
        let chosen = chosen + if is_told { locally as f64 } else { 0.0 };
        let exact = was.allocations + chosen - effect.rebased * weight(&member);
        // Of members that are not in the set the count goes down to 0 at most, and what was given back too late stays.
        let was_in_set_throughout = was.is_in_set && is.is_in_set && !reach.moves;
        let ahead = round.calls.iter().filter(|(_, call)| matches!(call, Call::Ahead(..))).map(|(_, call)| most(call));
        let slack =
            effect.perhaps + if was_in_set_throughout { 0 } else { ahead.sum() } + if is_told { 0 } else { locally };
        let high = match () {
            () if reach.raises => f64::INFINITY,
            // Not max, which would make a number of what is not known.
            () if effect.rebased == 0.0 || was_in_set_throughout => (exact + slack as f64).clamp(0.0, f64::INFINITY),
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

/// Nobody is given to a host that has banned him all the while, and each host's own counts go up by what it was given.
fn compare_hosts(
    round: &Round,
    (before, after): (&Opinions, &Opinions),
    (was, is): (&BTreeMap<Name, Place>, &BTreeMap<Name, Place>),
    effect: &Effect,
) {
    let reach = Reach::of(&round.calls);
    for (host, shown) in HOSTS.iter().enumerate() {
        let calls = || round.calls.iter().map(|(_, call)| call);
        let is_unbanned = calls().any(|call| matches!(call, Call::UnbanFor(other, _) if *other == host));
        let is_banned = calls().any(|call| matches!(call, Call::BanFor(other, ..) if *other == host));
        for (member, until) in &before.banned[host] {
            let is_banned_throughout = !is_unbanned && after.banned[host].get(member).is_some_and(|end| end >= until);
            // Bans are for ten minutes, or over as soon as they are given.
            let is_long =
                after.banned[host].get(member).is_some_and(|end| *end > now_ms() + 60_000) && *until > now_ms();
            let is_given = effect.for_hosts.iter().any(|(other, given, _)| *other == host && given == member);
            assert!(!(is_banned_throughout && is_long && is_given), "{member:?} is banned by {}, {round:?}", shown);
        }
        for (member, before) in &before.given[host] {
            let stays = [was, is].iter().all(|places| places.get(member).is_some_and(|place| place.is_in_set));
            let is_quiet = !reach.moves && !reach.leaving.contains(member) && !is_banned && !is_unbanned;
            // Gone, it had been out, and was noticed only now.
            let Some(now) = after.given[host].get(member).filter(|_| stays && is_quiet) else { continue };
            let given = effect
                .for_hosts
                .iter()
                .filter(|(other, name, by_counts)| (*other, name) == (host, member) && *by_counts);
            let given = given.count() as f64;
            let high = before.round() + given + effect.perhaps as f64;
            assert!(
                (before.round() + given..=high).contains(&now.round()),
                "{member:?} was given to {} {before} times, then {given}, now {now}: {round:?}",
                shown
            );
        }
    }
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

async fn race(server: &Server, rounds: &[Round]) {
    eventually(RECOVERY, "the last task of the case before", async || tasks() == 0).await;
    let mut gateways: Vec<_> = (0..GATEWAYS).map(|at| (connect(server, at), Vec::new())).collect();
    let mut lost = Vec::new();
    let observer = connect(server, RAMPING);
    observer.add(&MEMBERS[..5].iter().map(|text| name(text)).collect::<Vec<_>>(), Initial::Min).await.unwrap();
    connects(&gateways).await;
    let alive = tasks();
    // The others are candidates, and rejected once.
    observer.propose(&MEMBERS[5..].iter().map(|text| name(text)).collect::<Vec<_>>()).await.unwrap();
    make((RAMPING, observer.clone()), server.url(), Call::Judge(0, true, 1)).await;
    let mut before = places(&observer).await;
    let mut thought = opinions(server);
    for round in rounds {
        let effect = play(server, &mut gateways, &mut lost, round).await;
        // A call whose connection broke may still be on its way.
        eventually(RECOVERY, "a connection", async || observer.list().await.is_ok()).await;
        if matches!(round.blow, Blow::Death(_)) {
            buries(server, &gateways, alive).await;
        }
        let after = places(&observer).await;
        compare(round, &before, &after, &effect);
        let think = opinions(server);
        compare_hosts(round, (&thought, &think), (&before, &after), &effect);
        (before, thought) = (after, think);
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
        // The first round has everything in it, and the second loses one who leases.
        let rounds: Vec<Round> = [Blow::Nothing, Blow::Death(0)]
            .map(|blow| Round { calls: all_calls(), ends: vec![], blow })
            .into_iter()
            .chain(rounds)
            .collect();
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
    assert_eq!(not_run(&server), Vec::<String>::new(), "these scripts were not raced");
}

/// Scripts that Redis has never run. Every file of `lua/` that is no part of others must be among those that it is asked for.
fn not_run(server: &Server) -> Vec<String> {
    let (names, digests): (Vec<_>, Vec<_>) = scripts().unzip();
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).expect("the scripts");
    let files = folder.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "lua"));
    let is_part =
        |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap().contains("In front of the scripts");
    let alone =
        files.filter(|path| !is_part(path)).map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    let unknown: Vec<_> = alone.filter(|file| !names.contains(file)).collect();
    assert_eq!(unknown, Vec::<String>::new(), "these files are no scripts");
    let words: Vec<_> = ["SCRIPT".to_owned(), "EXISTS".to_owned()].into_iter().chain(digests).collect();
    let Reply::Array(known) = server.cmd(&words) else { panic!("no array") };
    names.into_iter().zip(known).filter(|(_, known)| *known == Reply::Int(0)).map(|(name, _)| name).collect()
}
