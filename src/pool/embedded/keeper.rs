//! Keeps a pool's state in a file, so that it survives a restart of the process.
//!
//! It knows the pool as of the last save, and asks it who has changed since: a few members at a time, so that no request waits
//! long for the pool's lock, however large the pool is. Then it writes the whole file anew, beside the old one, and puts it
//! in its place when it is on the disk: at any moment there is one whole file.
//! A lock beside it keeps a second process away. A file that cannot be used is set aside and never written over.
//! Not here: what the file looks like ([`super::file`]). Cost: the members' names and 100 bytes each once more; nothing on a request's
//! way but noting who was chosen.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::changes::Changed;
use super::file::{self, Content};
use super::{Embedded, now_ms};
use crate::member::Name;

/// Between two saves, from start to start: so much is lost at most when the process is killed.
const EVERY: Duration = Duration::from_secs(10);
/// Members for which the pool is locked at a time: a tenth of a millisecond.
const CHUNK: usize = 64;
/// How often a pass begins anew, because all counts or a list have changed meanwhile.
const PASSES: u32 = 4;

/// A pool whose state is kept in a file; nobody else's as long as this lives.
pub struct Keeper {
    pool: Embedded,
    path: PathBuf,
    _lock: Lock,
    saved: Content,
    sources_seen: u64,
    /// The file is not what `saved` is.
    is_behind: bool,
    has_failed: bool,
    hurry: Arc<AtomicBool>,
}

/// What was found in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// Members in whatever state.
    pub members: usize,
    /// When it was written, in ms since 1970-01-01 UTC.
    pub saved_ms: u64,
}

/// Saves every 10 s, on a thread of its own, and once more in the end.
pub struct Keeping {
    end: Option<mpsc::Sender<()>>,
    hurry: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Why a state cannot be kept, in words for an operator.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Another process has it.
    #[error("{0} is kept by another process")]
    Locked(String),
    /// The system says no.
    #[error("cannot {0} {1}: {2}")]
    Io(&'static str, String, io::Error),
    /// It is no file: a folder, a device.
    #[error("{0} is not a file")]
    NoFile(String),
}

impl Keeper {
    /// Takes the file at `path` for this process, and puts what it holds into `pool`, which is empty. Without a file, it
    /// begins one. A file that cannot be used is renamed to `….unusable-TIME`, and the log says why.
    ///
    /// # Errors
    /// See [`KeepError`]. A file that cannot be read, or not be set aside, stays where it is.
    pub fn open(path: &Path, pool: Embedded) -> Result<(Self, Option<Saved>), KeepError> {
        let shown = path.display();
        // Through a link, so that it is not the link that is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let lock = lock(&path)?.ok_or_else(|| KeepError::Locked(shown.to_string()))?;
        let content = match read(&path)? {
            None => None,
            Some(Ok(content)) => Some(content),
            Some(Err(why)) => {
                let aside = set_aside(&path)?;
                tracing::error!(file = %shown, renamed = %aside.display(), %why,
                    "the state cannot be used and was set aside; the pool begins anew");
                None
            }
        };
        let found =
            content.as_ref().map(|content| Saved { members: content.members.len(), saved_ms: content.saved_ms });
        let saved = content.unwrap_or_default();
        pool.put_back(&saved);
        pool.state().changes.begin();
        let sources_seen = pool.sources().changes();
        let keeper = Self {
            pool,
            path,
            _lock: lock,
            saved,
            sources_seen,
            is_behind: false,
            has_failed: false,
            hurry: Arc::default(),
        };
        // What cannot be written must not come out after 10 s, when nobody looks any more.
        keeper.check_writable()?;
        Ok((keeper, found))
    }

    /// The pool that it keeps.
    pub fn pool(&self) -> Embedded {
        self.pool.clone()
    }

    /// Saves from now on.
    pub fn start(mut self) -> Keeping {
        let (end, ends) = mpsc::channel();
        let hurry = self.hurry.clone();
        let thread = thread::spawn(move || {
            loop {
                let began = Instant::now();
                self.save_or_say();
                let left = EVERY.saturating_sub(began.elapsed());
                if !matches!(ends.recv_timeout(left), Err(RecvTimeoutError::Timeout)) {
                    return self.save();
                }
            }
        });
        Keeping { end: Some(end), hurry, thread: Some(thread) }
    }

    /// Saves what has changed, if anything has.
    ///
    /// # Errors
    /// Those of the file system. The old file is still there, and the next save has everything.
    pub fn save(&mut self) -> io::Result<()> {
        self.is_behind |= self.catch_up();
        if self.is_behind {
            self.saved.saved_ms = now_ms();
            self.forget_old_bans();
            self.write()?;
            self.is_behind = false;
        }
        Ok(())
    }

    fn save_or_say(&mut self) {
        match self.save() {
            Ok(()) if self.has_failed => {
                tracing::info!(file = %self.path.display(), "the state is saved again");
                self.has_failed = false;
            }
            Ok(()) => {}
            Err(error) if !self.has_failed => {
                tracing::error!(file = %self.path.display(), %error, "cannot save the state; trying on");
                self.has_failed = true;
            }
            Err(_) => {}
        }
    }

    /// Makes `saved` what the pool is; whether it was not.
    fn catch_up(&mut self) -> bool {
        let mut has_changed = false;
        for pass in 1.. {
            // The sources first: of who is named and not yet in the pool, a restart would think that somebody had removed it.
            let sources = self.pool.sources().changed_since(self.sources_seen);
            if let Some((seen, readings, named)) = sources {
                has_changed = true;
                self.sources_seen = seen;
                (self.saved.readings, self.saved.sources) = (readings, named);
            }
            let mut changed = self.pool.state().changes.take();
            let rounds = changed.rounds;
            has_changed |= self.read_bans(std::mem::take(&mut changed.bans));
            has_changed |= self.read_members(changed);
            let state = self.pool.state();
            (self.saved.turn, self.saved.decayed_ms) = (state.ramp.turn(), state.decayed_ms);
            self.saved.judged_by.clone_from(&state.verdicts.by);
            let is_one_state = state.changes.rounds() == rounds;
            drop(state);
            let is_one_list = self.pool.sources().changes() == self.sources_seen;
            // Counts of before and after a decay do not go together.
            if (is_one_state && is_one_list) || pass == PASSES {
                break;
            }
        }
        has_changed
    }

    fn read_bans(&mut self, changed: BTreeSet<(String, Name)>) -> bool {
        let bans: Vec<(String, Name)> = changed.into_iter().collect();
        for chunk in bans.chunks(CHUNK) {
            let ends: Vec<_> = {
                let state = self.pool.state();
                chunk.iter().map(|(host, member)| state.bans.end(host, member)).collect()
            };
            for ((host, member), end) in chunk.iter().zip(ends) {
                let of_host = self.saved.bans.entry(host.clone()).or_default();
                match end {
                    Some(end) => drop(of_host.insert(member.clone(), end)),
                    None => drop(of_host.remove(member)),
                }
            }
        }
        !bans.is_empty()
    }

    /// Bans end by themselves, and nobody notes that.
    fn forget_old_bans(&mut self) {
        let now_ms = now_ms();
        self.saved.bans.retain(|_, of_host| {
            of_host.retain(|_, end| *end > now_ms);
            !of_host.is_empty()
        });
    }

    fn read_members(&mut self, changed: Changed) -> bool {
        let Changed { mut members, is_all, .. } = changed;
        if is_all {
            members.extend(self.saved.members.keys().cloned());
        }
        let members: Vec<Name> = members.into_iter().collect();
        for chunk in members.chunks(CHUNK) {
            let began = Instant::now();
            let records: Vec<_> = {
                let state = self.pool.state();
                chunk.iter().map(|member| state.record(member)).collect()
            };
            for (member, record) in chunk.iter().zip(records) {
                match record {
                    Some(record) => match self.saved.members.get_mut(member) {
                        Some(saved) => *saved = record,
                        None => drop(self.saved.members.insert(member.clone(), record)),
                    },
                    None => drop(self.saved.members.remove(member)),
                }
            }
            if members.len() > CHUNK && !self.hurry.load(Ordering::Relaxed) {
                // Others have their turn: a lock that is let go and taken at once is taken from nobody.
                thread::sleep(began.elapsed());
            }
        }
        is_all || !members.is_empty()
    }

    /// Beside the old file, then in its place.
    fn write(&self) -> io::Result<()> {
        let beside = with_suffix(&self.path, ".new");
        let written = (|| {
            let file = create(&beside)?;
            let mut out = BufWriter::with_capacity(1 << 16, &file);
            file::write(&mut out, &self.saved)?;
            out.flush()?;
            drop(out);
            file.sync_all()?;
            fs::rename(&beside, &self.path)?;
            // The folder too: otherwise a loss of power may undo the renaming.
            File::open(parent(&self.path))?.sync_all()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn check_writable(&self) -> Result<(), KeepError> {
        let beside = with_suffix(&self.path, ".new");
        let tried = create(&beside).and_then(|_| fs::remove_file(&beside));
        tried.map_err(|error| KeepError::Io("write", beside.display().to_string(), error))
    }
}

impl Keeping {
    /// Saves what is left.
    ///
    /// # Errors
    /// Those of the file system: what has happened since the last save is lost.
    pub fn finish(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.hurry.store(true, Ordering::Relaxed);
        drop(self.end.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that saves has panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Puts what the file at `path` holds into `pool`, which is empty, and leaves the file to whoever keeps it.
///
/// # Errors
/// See [`KeepError`], and why a file cannot be used. `Ok(None)`: there is none.
pub fn peek(path: &Path, pool: &Embedded) -> Result<Option<Saved>, String> {
    match read(path).map_err(|error| error.to_string())? {
        None => Ok(None),
        Some(Err(why)) => Err(format!("{} cannot be used: {why}", path.display())),
        Some(Ok(content)) => {
            pool.put_back(&content);
            Ok(Some(Saved { members: content.members.len(), saved_ms: content.saved_ms }))
        }
    }
}

/// `None`: there is no such file.
fn read(path: &Path) -> Result<Option<Result<Content, file::Unusable>>, KeepError> {
    let failed = |error| KeepError::Io("read", path.display().to_string(), error);
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.is_file() => return Err(KeepError::NoFile(path.display().to_string())),
        Ok(_) => {}
    }
    let file = File::open(path).map_err(failed)?;
    file::read(BufReader::with_capacity(1 << 16, file)).map(Some).map_err(failed)
}

/// It goes when the process does, however that ends.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // By word: a child that is just being started has the descriptor too, until it becomes another program.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// `None`: another process has it.
fn lock(path: &Path) -> Result<Option<Lock>, KeepError> {
    let beside = with_suffix(path, ".lock");
    let failed = |error| KeepError::Io("open", beside.display().to_string(), error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&beside).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(KeepError::Io("lock", beside.display().to_string(), error.into())),
    }
}

/// A new file, for the eyes of its owner: members hold passwords.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Under a name that nothing has.
fn set_aside(path: &Path) -> Result<PathBuf, KeepError> {
    let seconds = now_ms() / 1_000;
    let names = (0..1_000).map(|n| match n {
        0 => with_suffix(path, &format!(".unusable-{seconds}")),
        n => with_suffix(path, &format!(".unusable-{seconds}-{n}")),
    });
    let mut free = names.filter(|name| fs::symlink_metadata(name).is_err());
    let aside = free.next().unwrap_or_else(|| with_suffix(path, ".unusable"));
    let failed = |error| KeepError::Io("set aside", path.display().to_string(), error);
    fs::rename(path, &aside).map_err(failed)?;
    Ok(aside)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Embedded {
    /// Puts a state into an empty pool.
    fn put_back(&self, content: &Content) {
        let mut state = self.state();
        for (member, record) in &content.members {
            state.put_record(member, record);
        }
        state.ramp.set_turn(content.turn);
        state.decayed_ms = content.decayed_ms;
        state.bans.put_back(&content.bans);
        state.verdicts.by.clone_from(&content.judged_by);
        drop(state);
        self.sources().put_back(content.readings, &content.sources);
    }
}

#[cfg(test)]
mod tests {
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
                let ban =
                    |member: &Name| Ban { member: member.clone(), reason: "x".into(), span: hour * *hours as u32 };
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
}
