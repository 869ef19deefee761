use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::record::Record;
use super::super::state::State;
use super::*;
use crate::pool::{
    Ban, Care, Checked, Decay, Finding, Initial, Judged, Judging, Kind, Opinion, Outcome, Parking, PerHost, Report,
    Rounds, Stay, Walk,
};

fn name(n: usize) -> Name {
    format!("http://10.0.0.{n}:1{}", ["", "?weight=3"][n % 2]).into()
}

/// Everybody there can be.
fn everything(state: &State) -> BTreeMap<Name, Record> {
    (0..8).filter_map(|n| Some((name(n), state.record(&name(n))?))).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    AllocateFor(usize),
    Add(Initial),
    Remove,
    Park(Kind, Stay),
    Ban,
    Restore(Initial),
    RestoreDue(Initial),
    Forgive,
    Propose,
    Accept,
    Reject(Option<Duration>),
    Report(u8, u32),
    TryNext,
    Enroll,
    Claim,
    Checked(bool),
    Decay,
    Rebase,
    Take(bool),
    Forget(bool),
    BanFor(u64),
    UnbanFor,
    Tally(bool),
    Country,
    Judge(bool),
    Later(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let initial =
        || prop::sample::select(vec![Initial::Min, Initial::Ramp, Initial::Keep, Initial::Max, Initial::Count(9)]);
    let stay = prop::sample::select(vec![Stay::UntilRestored, Stay::For(Duration::from_secs(20))]);
    let kind = prop::sample::select(vec![Kind::Hand, Kind::Malformed, Kind::Unhealthy]);
    prop_oneof![
        4 => (1_usize..9).prop_map(Step::Allocate),
        3 => (1_usize..9).prop_map(Step::AllocateFor),
        4 => initial().prop_map(Step::Add),
        1 => Just(Step::Remove),
        2 => (kind, stay).prop_map(|(kind, stay)| Step::Park(kind, stay)),
        1 => Just(Step::Ban),
        1 => initial().prop_map(Step::Restore),
        1 => initial().prop_map(Step::RestoreDue),
        1 => Just(Step::Forgive),
        2 => Just(Step::Propose),
        1 => Just(Step::Accept),
        1 => prop::option::of(Just(Duration::from_secs(5))).prop_map(Step::Reject),
        6 => (0_u8..5, 1_u32..4).prop_map(|(what, times)| Step::Report(what, times)),
        2 => Just(Step::TryNext),
        1 => Just(Step::Enroll),
        2 => Just(Step::Claim),
        2 => any::<bool>().prop_map(Step::Checked),
        1 => Just(Step::Decay),
        1 => Just(Step::Rebase),
        2 => any::<bool>().prop_map(Step::Take),
        1 => any::<bool>().prop_map(Step::Forget),
        2 => (1_u64..9).prop_map(Step::BanFor),
        1 => Just(Step::UnbanFor),
        1 => any::<bool>().prop_map(Step::Tally),
        1 => Just(Step::Country),
        2 => any::<bool>().prop_map(Step::Judge),
        2 => (1_u64..100_000_000).prop_map(Step::Later),
    ]
}

const CARE: Care = Care {
    park_after: 2,
    cooldown: Duration::from_secs(10),
    max_cooldown: Duration::from_secs(100),
    max_parked: 70,
    restore: Initial::Min,
};

fn perform(pool: &Embedded, step: &Step, members: &[Name], now_ms: &mut u64) {
    let now = *now_ms;
    let hour = Duration::from_secs(3_600);
    match step {
        Step::Allocate(n) => {
            for _ in 0..*n {
                drop(pool.allocate(&members[..1]));
            }
        }
        Step::AllocateFor(n) => {
            for _ in 0..*n {
                drop(pool.state().allocate_for("shop.example", &[], super::now_ms()));
            }
        }
        Step::Add(initial) => drop(pool.add(members, *initial)),
        Step::Remove => drop(pool.remove(members)),
        Step::Park(kind, stay) => {
            let parking = Parking { kind: *kind, reason: "why".into(), stay: *stay };
            drop(pool.state().park(&members[0], &parking, now));
        }
        Step::Ban => {
            let ban = Ban { member: members[0].clone(), reason: "status 403".into(), span: hour };
            drop(pool.state().ban(&[ban], 70, now));
        }
        Step::Restore(initial) => drop(pool.restore(members, *initial)),
        Step::RestoreDue(initial) => drop(pool.state().restore_due(100, *initial, now)),
        Step::Forgive => drop(pool.forgive(members)),
        Step::Propose => drop(pool.state().propose(members, now)),
        Step::Accept => drop(pool.accept(members, Initial::Min)),
        Step::Reject(again) => drop(pool.reject(members, *again)),
        Step::Report(what, times) => {
            let outcome = match what {
                0 => Outcome::Served,
                1 => Outcome::Passed,
                2 => Outcome::Missed("late".into()),
                3 => Outcome::Undecided,
                _ => Outcome::Failed(*times, "refused".into()),
            };
            let report = |member: &Name| Report { member: member.clone(), outcome: outcome.clone(), luck: 0.5 };
            let reports: Vec<_> = members.iter().map(report).collect();
            drop(pool.state().report(&reports, &CARE, now));
        }
        Step::TryNext => drop(pool.state().try_next(None, hour, now)),
        Step::Enroll => drop(pool.state().enroll(&mut Walk::default(), hour, now)),
        Step::Claim => drop(pool.state().claim(3, hour, now + 3_600_000)),
        Step::Checked(is_healthy) => {
            let finding = if *is_healthy { Finding::Healthy } else { Finding::Unhealthy("404".into()) };
            let check = Checked { member: members[0].clone(), due_ms: now, finding, luck: 1.0 };
            drop(pool.state().checked(&[check], &Rounds { every: hour, care: CARE }, now));
        }
        Step::Decay => drop(pool.state().decay(Decay { keep: 0.5, period: hour }, now)),
        Step::Rebase => drop(pool.rebase()),
        Step::Take(as_candidates) => {
            let mut reading = pool.begin_reading("list", Initial::Min);
            pool.take(&mut reading, members, *as_candidates);
        }
        Step::Forget(remove) => {
            let reading = pool.begin_reading("list", Initial::Min);
            let missing = pool.missing(&reading, 2);
            pool.forget(&reading, &missing, *remove);
        }
        Step::BanFor(hours) => {
            let ban = |member: &Name| Ban { member: member.clone(), reason: "x".into(), span: hour * *hours as u32 };
            let bans: Vec<_> = members.iter().map(ban).collect();
            drop(pool.state().ban_for("shop.example", &bans, None, super::now_ms()));
        }
        Step::UnbanFor => drop(pool.state().unban_for("shop.example", &members[..1])),
        Step::Tally(passed) => drop(pool.tally(&[(members[0].clone(), Some(*passed))])),
        Step::Country => pool.note_countries(&[(members[0].clone(), "DE".into())]),
        Step::Judge(has_passed) => {
            let by = ["one", "two"][members.len() % 2];
            drop(pool.claim_candidates(2, hour, by, members.len() > 2));
            let opinion = if *has_passed { Opinion::Passed } else { Opinion::Rejected("slow".into()) };
            let judged = Judged { member: members[0].clone(), opinion, luck: 1.0 };
            let judging = Judging { by: by.into(), initial: Initial::Min, first: hour, longest: hour };
            drop(pool.judged(&[judged], &judging));
        }
        Step::Later(ms) => *now_ms += ms,
    }
}

/// With counts for each host, or members that catch up.
fn kept(path: &Path, has_hosts: bool) -> Keeper {
    let limits = PerHost { idle: Duration::from_secs(60), max_hosts: 3 };
    let pool = if has_hosts { Embedded::new().with_hosts(limits) } else { Embedded::new().with_ramp(3) };
    Keeper::open(path, pool).expect("a folder to write to").0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn nothing_changes_unnoticed_and_a_restart_changes_nothing(
        steps in prop::collection::vec((any_step(), prop::sample::subsequence((0..8).collect::<Vec<_>>(), 1..5)), 1..40),
        has_hosts in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let mut keeper = kept(&path, has_hosts);
        let mut now = 1_700_000_000_000;
        for (step, members) in &steps {
            let members: Vec<Name> = members.iter().map(|&n| name(n)).collect();
            perform(&keeper.pool, step, &members, &mut now);
            keeper.catch_up();
            let state = keeper.pool.state();
            prop_assert_eq!(&keeper.saved.members, &everything(&state), "after {:?}", step);
            prop_assert_eq!((keeper.saved.turn, keeper.saved.decayed_ms), (state.ramp.turn(), state.decayed_ms));
        }
        keeper.is_behind = true;
        keeper.save().unwrap();
        let banned = keeper.pool.banned();
        let (before, returns) = (keeper.saved.clone(), keeper.pool.state().returns.clone());
        let (listed, sources) = (keeper.pool.list(), keeper.pool.sources().changed_since(u64::MAX));
        drop(keeper);
        let keeper = kept(&path, has_hosts);
        prop_assert_eq!(&keeper.saved, &before);
        let state = keeper.pool.state();
        prop_assert_eq!((&everything(&state), &state.returns), (&before.members, &returns));
        drop(state);
        prop_assert_eq!((keeper.pool.list(), keeper.pool.banned()), (listed, banned));
        let restored = keeper.pool.sources().changed_since(u64::MAX).map(|(_, readings, named)| (readings, named));
        prop_assert_eq!(restored, sources.map(|(_, readings, named)| (readings, named)));
    }
}

#[test]
fn a_state_that_did_not_change_is_not_written_and_a_failure_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep").join("state");
    fs::create_dir(path.parent().unwrap()).unwrap();
    let mut keeper = kept(&path, false);
    keeper.save().unwrap();
    assert!(!path.exists(), "nothing has happened yet");
    keeper.pool.add(&["a:1".into()], Initial::Min);
    keeper.save().unwrap();
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    keeper.save().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);

    keeper.pool.add(&["b:1".into()], Initial::Min);
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    assert!(keeper.save().is_err());
    fs::create_dir(path.parent().unwrap()).unwrap();
    keeper.save().unwrap();
    let pool = Embedded::new();
    assert_eq!(peek(&path, &pool).unwrap().map(|found| found.members), Some(2));
    assert_eq!(pool.list().len(), 2);
}
