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
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::watch::Stamp;
use crate::config::{self, Gone, Place, PoolSource};
use crate::fetch::{self, Fetched, Limits, Page, Validators};
use crate::list::{List, Outcome, Protocol};
use crate::member::{Member, Name};
use crate::pool::{self, Initial, Pool, PoolError};

/// Members in one call to the store: half a millisecond in which Redis does nothing else.
const CHUNK: usize = 100;
/// Members that are looked up at once to be forgotten; finding them takes longer than giving them.
const PAGE: usize = 1_000;
/// Chunks and pieces that may wait for whoever comes next.
const AHEAD: usize = 2;
/// Skipped lines that are shown.
const SHOWN: usize = 3;
/// A list is read so many bytes at a time.
const BUFFER: usize = 64 << 10;
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
    /// A thread that did not end in time: there is never a second one.
    stuck: Option<JoinHandle<Parsed>>,
}

/// A reading that succeeded.
pub(super) enum Done {
    /// There is no newer version than the one that was read.
    Unchanged,
    /// There was one. `doubt`: why nothing was removed, though the list was read to its end.
    Read { found: Found, doubt: Option<String> },
}

/// A reading that failed.
pub(super) struct Failed {
    pub(super) why: String,
    /// What was found until then, which is in the pool.
    pub(super) found: Found,
}

/// What a reading has found, in entries of the list, and what became of it, in members of the pool.
#[derive(Default)]
pub(super) struct Found {
    pub(super) taken: u64,
    pub(super) repeated: u64,
    pub(super) skipped: u64,
    pub(super) added: u64,
    pub(super) removed: u64,
    /// The first lines that were skipped, without secrets.
    shown: Vec<String>,
}

/// Members, each with its country if the list says it.
type Part = Vec<(Name, Option<String>)>;

/// What the thread that reads has to say at the end.
struct Parsed {
    found: Found,
    end: io::Result<Ending>,
}

enum Ending {
    Whole,
    /// There is more than may be taken.
    Full,
    /// A file that was written meanwhile.
    Changing,
}

impl Found {
    /// `; skipped 17: port 99999 is not a port, …`, or nothing.
    pub(super) fn first_skipped(&self) -> String {
        match &self.shown[..] {
            [] => String::new(),
            shown => format!("; skipped {}{}", shown.join(", "), if self.skipped > SHOWN as u64 { ", …" } else { "" }),
        }
    }
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
        Self { source, pool, initial, keeps_countries, configured, readings, known: None, stuck: None }
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
    async fn read_into(&mut self, found: &mut Found) -> Result<Option<Option<String>>, String> {
        // Before the list: what is found in a version that others have read since must not outlive theirs.
        let mut reading = self.begin().await.map_err(|error| store_trouble(&error))?;
        let (ending, version) = match self.source.place.clone() {
            Place::File(path) => {
                let _permit = self.readings.clone().acquire_owned().await.expect("never closed");
                let (max_bytes, scheme, most) = self.bounds();
                let start = move |parts: mpsc::Sender<Part>| read_file(&path, max_bytes, scheme, most, &parts);
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
                let (_, scheme, most) = self.bounds();
                let (sender, pieces) = mpsc::channel(AHEAD);
                let input = BufReader::with_capacity(BUFFER, Pieces { pieces, piece: Bytes::new(), is_over: false });
                let start = move |parts: mpsc::Sender<Part>| read_list(input, scheme, most, &parts);
                (self.take(start, send_all(page, sender), &mut reading, found).await?, Some(version))
            }
        };
        let doubt = self.doubt(&ending, found);
        if doubt.is_none() {
            self.forget(&reading, found).await.map_err(|error| store_trouble(&error))?;
        }
        self.known = version.filter(|_| doubt.is_none());
        Ok(Some(doubt))
    }

    async fn begin(&self) -> Result<pool::Reading, PoolError> {
        self.pool.begin_reading(&self.source.name, self.initial).await
    }

    fn bounds(&self) -> (u64, Option<Protocol>, u64) {
        (self.source.max_bytes, self.source.scheme, self.source.max_members)
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
        let Parsed { found: parsed, end } = parsed.map_err(|_| "its reader failed".to_owned())?;
        *found = parsed;
        found.added = added;
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

    /// Why a list that was read to its end takes nothing out of the pool.
    fn doubt(&self, ending: &Ending, found: &Found) -> Option<String> {
        match ending {
            Ending::Full => Some(format!("it has more than max_members = {} proxies", self.source.max_members)),
            Ending::Changing => Some("it was written while it was read".to_owned()),
            Ending::Whole if found.taken == 0 && found.skipped > 0 => Some("none of it can be used".to_owned()),
            Ending::Whole if self.source.gone == Gone::Remove && found.skipped > found.taken => {
                Some("most of it cannot be used".to_owned())
            }
            Ending::Whole if found.taken == 0 && !self.source.may_be_empty => Some("it is empty".to_owned()),
            Ending::Whole => None,
        }
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

/// A page as a reader that may wait.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
    is_over: bool,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.is_over {
            self.piece = self.pieces.blocking_recv().ok_or(io::ErrorKind::UnexpectedEof)?;
            self.is_over = self.piece.is_empty();
        }
        let n = out.len().min(self.piece.len());
        out[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}

fn read_file(path: &Path, max_bytes: u64, scheme: Option<Protocol>, most: u64, parts: &mpsc::Sender<Part>) -> Parsed {
    let opened = open(path);
    let (file, before) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            return Parsed { found: Found::default(), end: Err(error) };
        }
    };
    let input = BufReader::with_capacity(BUFFER, Bounded { input: &file, left: max_bytes, most: max_bytes });
    let mut parsed = read_list(input, scheme, most, parts);
    let is_same = file.metadata().is_ok_and(|about| Stamp::of(&about) == before);
    if let Ok(end @ Ending::Whole) = &mut parsed.end
        && !is_same
    {
        *end = Ending::Changing;
    }
    parsed
}

/// Only what is a file: a pipe could keep whoever opens it for ever.
fn open(path: &Path) -> io::Result<(File, Stamp)> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let file = File::open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    Ok((file, stamp))
}

/// Not more than so many bytes.
struct Bounded<R> {
    input: R,
    left: u64,
    most: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(out)?;
        match self.left.checked_sub(n as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(format!("it is longer than {} bytes", self.most))),
        }
        Ok(n)
    }
}

/// Reads a list and hands its members on; stops when nobody wants them any more.
fn read_list(input: impl BufRead, scheme: Option<Protocol>, most: u64, parts: &mpsc::Sender<Part>) -> Parsed {
    let mut found = Found::default();
    let mut part = Vec::with_capacity(CHUNK);
    let mut end = Ok(Ending::Whole);
    for line in List::new(input, scheme) {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                end = Err(error);
                break;
            }
        };
        match &line.outcome {
            Outcome::Taken(_) if found.taken == most => {
                end = Ok(Ending::Full);
                break;
            }
            Outcome::Taken(listed) => {
                found.taken += 1;
                part.push((listed.member.name().clone(), listed.country.clone()));
            }
            Outcome::Repeated(_) => found.repeated += 1,
            Outcome::Skipped(_) => {
                found.skipped += 1;
                if found.shown.len() < SHOWN {
                    found.shown.push(line.to_string());
                }
            }
        }
        if part.len() == CHUNK && parts.blocking_send(std::mem::replace(&mut part, Vec::with_capacity(CHUNK))).is_err()
        {
            break;
        }
    }
    if !part.is_empty() {
        let _ = parts.blocking_send(part); // whoever wants no more knows why
    }
    Parsed { found, end }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use super::*;

    /// Whoever writes it has not done: what is not there may still come.
    #[test]
    fn a_file_that_is_written_while_it_is_read_is_not_believed() {
        let mut text = String::new();
        (0..4 * CHUNK).for_each(|n| writeln!(text, "h{n}.test:80").expect("a text"));
        for grows in [false, true] {
            let mut file = tempfile::NamedTempFile::new().expect("a scratch file");
            file.write_all(text.as_bytes()).expect("a written file");
            let (path, (sender, mut parts)) = (file.path().to_owned(), mpsc::channel(1));
            let reader = std::thread::spawn(move || read_file(&path, u64::MAX, None, u64::MAX, &sender));
            // It waits for whoever takes what it has found.
            assert_eq!(parts.blocking_recv().map(|part| part.len()), Some(CHUNK));
            if grows {
                file.write_all(b"another.test:80").expect("a written file");
            }
            while parts.blocking_recv().is_some() {}
            let Parsed { found, end } = reader.join().expect("no panic");
            assert_eq!((matches!(end, Ok(Ending::Whole)), matches!(end, Ok(Ending::Changing))), (!grows, grows));
            assert_eq!(found.taken, 4 * CHUNK as u64 + u64::from(grows));
        }
    }

    #[test]
    fn a_page_that_is_dropped_is_not_taken_for_its_end() {
        let (sender, pieces) = mpsc::channel(2);
        sender.blocking_send(Bytes::from_static(b"a.test:80\n")).expect("room");
        drop(sender);
        let input = BufReader::new(Pieces { pieces, piece: Bytes::new(), is_over: false });
        let (sender, mut parts) = mpsc::channel(2);
        let Parsed { end, .. } = read_list(input, None, 10, &sender);
        assert!(matches!(end, Err(error) if error.kind() == io::ErrorKind::UnexpectedEof));
        assert_eq!(parts.blocking_recv().map(|part| part.len()), Some(1), "what came before is good");
    }
}
