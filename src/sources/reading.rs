//! One reading: from a file or a page through [`crate::list`] into the pool.
//!
//! ```text
//! page ──pieces──▶ thread: List ──members, 100 at a time──▶ pool
//! file ──────────▶
//! ```
//!
//! Nothing on the way gets far ahead of the next. Only a list that was read to its end, and can be believed, lets the pool forget
//! what it does not name.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::doubt::Doubt;
use super::intake::{Bounds, CHUNK, Ending, Entries, Parsed, Part, read_file, read_page};
use super::watch::{self, Stamp};
use crate::config::{self, Gone, Place, PoolSource};
use crate::fetch::{self, Fetched, Limits, Page, Validators};
use crate::member::{Member, Name};
use crate::pool::{self, Initial, Pool, PoolError};

/// Members that are looked up at once to be forgotten; finding them takes longer than giving them.
const PAGE: usize = 1_000;
/// Parts and pieces that may wait for whoever comes next.
const AHEAD: usize = 2;
/// How much threads that read lists let others go first.
const NICENESS: i32 = 10;

/// Reads one source, again and again.
pub(super) struct Reader {
    source: PoolSource,
    pool: Pool,
    initial: Initial,
    /// Whether the pool is told what the list says of countries.
    keeps_countries: bool,
    /// Members that stay whatever becomes of the list.
    configured: Arc<HashSet<Name>>,
    /// A permit is held while a list is read.
    readings: Arc<Semaphore>,
    /// The version of a page that was read to its end.
    known: Option<Validators>,
    /// How many proxies the list had when it was believed last.
    had: Option<u64>,
    /// What the last list was doubted for that was read to its end.
    doubted: Option<Doubt>,
    /// A thread that did not end in time: there is never a second one.
    stuck: Option<JoinHandle<Parsed>>,
}

/// A reading that succeeded.
pub(super) enum Done {
    /// There is no newer version than the one that was read.
    Unchanged,
    /// There was one. `doubt`: why nothing was removed, though the list was read to its end.
    Read { found: Found, doubt: Option<Doubt> },
}

/// A reading that failed.
pub(super) struct Failed {
    pub(super) why: String,
    /// What was found until then, which is in the pool.
    pub(super) found: Found,
}

/// What a reading has found, and what became of it, in members of the pool.
#[derive(Default)]
pub(super) struct Found {
    pub(super) entries: Entries,
    pub(super) added: u64,
    pub(super) removed: u64,
    /// How many the source named before, if the store could say.
    pub(super) named: Option<u64>,
    /// Of a file, which one it was.
    pub(super) stamp: Option<Stamp>,
}

impl Reader {
    pub(super) fn new(
        source: PoolSource,
        pool: Pool,
        config: &config::Pool,
        configured: Arc<HashSet<Name>>,
        readings: Arc<Semaphore>,
    ) -> Self {
        let keeps_countries = source.candidates && config.rules.need_country();
        let initial = config.initial;
        Self {
            source,
            pool,
            initial,
            keeps_countries,
            configured,
            readings,
            known: None,
            had: None,
            doubted: None,
            stuck: None,
        }
    }

    /// Reads the list and brings the pool into step with it.
    pub(super) async fn read(&mut self) -> Result<Done, Failed> {
        if let Some(stuck) = self.stuck.take() {
            let _ = stuck.await;
        }
        let mut found = Found::default();
        match self.read_into(&mut found).await {
            Ok(None) => Ok(Done::Unchanged),
            Ok(Some(doubt)) => Ok(Done::Read { found, doubt }),
            Err(why) => Err(Failed { why, found }),
        }
    }

    /// `None`: it has not changed; otherwise what is doubtful about it, if anything is.
    async fn read_into(&mut self, found: &mut Found) -> Result<Option<Option<Doubt>>, String> {
        let started = Instant::now();
        // Before the list: what is found in a version that others have read since must not outlive theirs.
        let mut reading = self.begin().await.map_err(|error| store_trouble(&error))?;
        found.named = Some(reading.named());
        let stamp = self.stamp().await;
        found.stamp = stamp;
        let bounds = self.bounds();
        let (ending, version) = match self.source.place.clone() {
            Place::File(path) => {
                let _permit = self.readings.clone().acquire_owned().await.expect("never closed");
                let start = move |parts: mpsc::Sender<Part>| read_file(&path, bounds, &parts);
                (self.take(start, async { Ok(()) }, &mut reading, found).await?, None)
            }
            Place::Page(url, via) => {
                let through = via.map_or_else(Member::direct, |via| *via);
                let limits = Limits { bytes: self.source.max_bytes, timeout: self.source.timeout };
                let known = self.known.as_ref().filter(|_| reading.may_skip_unchanged());
                let page = match fetch::fetch(&url, &through, known, &limits).await {
                    Ok(Fetched::Page(page)) => page,
                    Ok(Fetched::Unchanged) => return Ok(None),
                    Err(error) => return Err(error.to_string()),
                };
                let _permit = self.readings.clone().acquire_owned().await.expect("never closed");
                let version = page.validators.clone();
                let (sender, pieces) = mpsc::channel(AHEAD);
                let start = move |parts: mpsc::Sender<Part>| read_page(pieces, bounds, &parts);
                (self.take(start, send_all(page, sender), &mut reading, found).await?, Some(version))
            }
        };
        // What the pool remembers may be more: also lists that were doubted have added to it.
        let before = self.had.unwrap_or(reading.named());
        let mut doubt = Doubt::about(&self.source, &ending, &found.entries, before, self.doubted.as_ref());
        if doubt.is_none() && self.removes_anyone(&reading).await.map_err(|error| store_trouble(&error))? {
            // A list that is being written was perhaps read between two writes.
            sleep_until(started + watch::EVERY).await;
            doubt = (self.stamp().await != stamp).then_some(Doubt::Changing);
        }
        if doubt.is_none() {
            self.forget(&reading, found).await.map_err(|error| store_trouble(&error))?;
            self.had = Some(found.entries.taken);
        }
        self.known = version.filter(|_| doubt.is_none());
        self.doubted.clone_from(&doubt);
        Ok(Some(doubt))
    }

    /// Of a file, what it looks like now.
    async fn stamp(&self) -> Option<Stamp> {
        match &self.source.place {
            Place::File(path) => watch::look(path).await,
            Place::Page(..) => None,
        }
    }

    async fn removes_anyone(&self, reading: &pool::Reading) -> Result<bool, PoolError> {
        let is_file = matches!(self.source.place, Place::File(_));
        Ok(is_file && self.source.gone == Gone::Remove && !self.pool.missing(reading, 1).await?.is_empty())
    }

    async fn begin(&self) -> Result<pool::Reading, PoolError> {
        self.pool.begin_reading(&self.source.name, self.initial).await
    }

    fn bounds(&self) -> Bounds {
        let &PoolSource { max_bytes: bytes, max_members: members, scheme, .. } = &self.source;
        Bounds { bytes, members, scheme }
    }

    /// Has a thread read the list while `feed` gives it its input, and takes what it finds into the pool.
    async fn take(
        &mut self,
        read: impl FnOnce(mpsc::Sender<Part>) -> Parsed + Send + 'static,
        feed: impl Future<Output = Result<(), String>>,
        reading: &mut pool::Reading,
        found: &mut Found,
    ) -> Result<Ending, String> {
        let deadline = Instant::now() + self.source.timeout;
        let (sender, mut parts) = mpsc::channel(AHEAD);
        let mut thread = tokio::task::spawn_blocking(move || {
            let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
            read(sender)
        });
        let store = async {
            let mut added = 0;
            while let Some(part) = parts.recv().await {
                let called = Instant::now();
                let members: Vec<Name> = part.iter().map(|(name, _)| name.clone()).collect();
                match self.take_part(reading, &members, part).await {
                    Ok(entered) => added += entered,
                    Err(error) => {
                        // Nobody waits for what is not wanted any more.
                        parts.close();
                        return (added, Err(store_trouble(&error)));
                    }
                }
                sleep(called.elapsed()).await;
            }
            (added, Ok(()))
        };
        let both = async { tokio::join!(feed, store) };
        let Ok((fed, (added, stored))) = timeout_at(deadline, both).await else {
            // It ends as soon as it wants to hand something on.
            drop(parts);
            self.stuck = Some(thread);
            return Err(format!("it was not read within {:?}", self.source.timeout));
        };
        drop(parts);
        let parsed = timeout_at(deadline, &mut thread).await;
        let Ok(parsed) = parsed else {
            self.stuck = Some(thread);
            return Err(format!("it was not read within {:?}", self.source.timeout));
        };
        let Parsed { entries, end } = parsed.map_err(|_| "its reader failed".to_owned())?;
        (found.entries, found.added) = (entries, added);
        stored?;
        // A page that breaks off is the cause of whatever the reader says.
        fed?;
        end.map_err(|error| error.to_string())
    }

    /// Where candidates are is known before they are judged.
    async fn take_part(&self, reading: &mut pool::Reading, members: &[Name], part: Part) -> Result<u64, PoolError> {
        if self.keeps_countries {
            let known: Vec<_> = part.into_iter().filter_map(|(name, country)| Some((name, country?))).collect();
            self.pool.note_countries(&known).await?;
        }
        self.pool.take(reading, members, self.source.candidates).await
    }

    /// Lets the pool forget what the list does not name any more.
    async fn forget(&self, reading: &pool::Reading, found: &mut Found) -> Result<(), PoolError> {
        loop {
            let gone = self.pool.missing(reading, PAGE).await?;
            if gone.is_empty() {
                return Ok(());
            }
            let (stay, go): (Vec<_>, Vec<_>) =
                gone.into_iter().partition(|name| self.source.gone == Gone::Keep || self.configured.contains(name));
            for (members, remove) in [(stay, false), (go, true)] {
                for chunk in members.chunks(CHUNK) {
                    let called = Instant::now();
                    found.removed += self.pool.forget(reading, chunk, remove).await?.removed;
                    sleep(called.elapsed()).await;
                }
            }
        }
    }
}

fn store_trouble(error: &PoolError) -> String {
    format!("the pool's store does not take it: {error}")
}

/// Hands a page on as it comes, and then an empty piece: the end.
async fn send_all(mut page: Page, pieces: mpsc::Sender<Bytes>) -> Result<(), String> {
    while let Some(piece) = page.chunk().await.map_err(|error| error.to_string())? {
        if pieces.send(piece).await.is_err() {
            // Its reader has seen enough, and says why.
            return Ok(());
        }
    }
    let _ = pieces.send(Bytes::new()).await;
    Ok(())
}
