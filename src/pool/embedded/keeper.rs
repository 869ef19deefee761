//! Keeps a pool's state in a file, so that it survives a restart of the process.
//!
//! It knows the pool as of the last save, and asks it who has changed since: a few members at a time, so that no request waits
//! long for the pool's lock, however large the pool is. Then it writes the whole file anew, beside the old one, and puts it
//! in its place when it is on the disk: at any moment there is one whole file.
//! A lock beside it keeps a second process away. A file that cannot be used is set aside and never written over.
//! Not here: what the file looks like ([`super::file`]). Cost: the members' names and 100 bytes each once more; nothing on a request's
//! way but noting who was chosen.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::changes::Changed;
use super::disk::{KeepError, Lock, create, is_there, lock, parent, read, set_aside, with_suffix};
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
        // Beside what cannot be a state, no lock is left behind.
        is_there(&path)?;
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
mod tests;
