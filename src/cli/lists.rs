//! Lists of proxies that the command line names: files, standard input, pages of the web, and what is said about them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;

use super::{Exit, NO_INPUT};
use crate::fetch::{self, FetchError, Fetched, Limits, Page, Url};
use crate::list::{List, Outcome, Protocol, Report};
use crate::member::{Member, Name};

/// A system call for each of them is far from what a line costs.
const BUFFER: usize = 256 << 10;

/// Of a page: ten million proxies, and as long as someone may wait for them.
const LIMITS: Limits = Limits { bytes: 1 << 30, timeout: Duration::from_secs(10 * 60) };
/// Pieces of a page that wait for their reader.
const PIECES: usize = 4;

/// An open list.
pub(super) struct Source {
    /// As it was named, for messages.
    pub(super) name: String,
    pub(super) input: Box<dyn BufRead + Send>,
    /// In bytes, as it is stored, if that can be known before.
    pub(super) size: Option<u64>,
    /// How many of them have been read.
    pub(super) read: Arc<AtomicU64>,
}

impl Source {
    /// Opens a file, `-` being standard input.
    pub(super) fn open(file: &Path) -> Result<Self, Exit> {
        let name = file.display().to_string();
        if name == "-" {
            return Ok(Self::new(name, io::stdin(), None));
        }
        let opened = File::open(file).and_then(|file| Ok((file.metadata()?, file)));
        let (about, file) = opened.map_err(|error| unreadable(&name, &error))?;
        let size = about.is_file().then_some(about.len());
        Ok(Self::new(name, file, size))
    }

    /// Fetches a page through a proxy, or directly. What is read of it comes while the caller's runtime runs.
    pub(super) async fn fetch(url: &Url, via: &Member) -> Result<Self, Exit> {
        let page = match fetch::fetch(url, via, None, &LIMITS).await {
            Ok(Fetched::Page(page)) => page,
            Ok(Fetched::Unchanged) => {
                return Err(Exit::new(NO_INPUT, format!("cannot fetch {url}: it has no content")));
            }
            Err(error) => return Err(Exit::new(NO_INPUT, error)),
        };
        let size = page.length;
        let (pieces, queue) = mpsc::channel(PIECES);
        tokio::spawn(pass(page, pieces));
        Ok(Self::new(url.to_string(), Body { pieces: queue, piece: Bytes::new() }, size))
    }

    fn new(name: String, input: impl Read + Send + 'static, size: Option<u64>) -> Self {
        let read = Arc::new(AtomicU64::new(0));
        let input = Box::new(BufReader::with_capacity(BUFFER, Counted { input, read: read.clone() }));
        Self { name, input, size, read }
    }
}

/// The members of a `--proxies`. What is skipped is warned of; only a list that cannot be read is an error.
pub(super) fn members(file: &Path, scheme: Option<Protocol>) -> Result<Vec<Name>, Exit> {
    let Source { name, input, .. } = Source::open(file)?;
    let mut report = Report::new(&name, false);
    let mut members = Vec::new();
    for line in List::new(input, scheme) {
        let line = line.map_err(|error| unreadable(&name, &error))?;
        if let Some(said) = report.note(&line) {
            tracing::warn!("{said}");
        }
        if let Outcome::Taken(listed) = line.outcome {
            members.push(listed.member.name().clone());
        }
    }
    for said in report.rest() {
        tracing::warn!("{said}");
    }
    if report.skipped() > 0 {
        let (taken, repeated, skipped) = (report.taken(), report.repeated(), report.skipped());
        tracing::warn!(list = name, taken, repeated, skipped, "a part of the list cannot be used");
    }
    Ok(members)
}

pub(super) fn unreadable(name: &str, error: &io::Error) -> Exit {
    // Which says where by itself.
    let is_fetch = error.get_ref().is_some_and(|inner| inner.is::<FetchError>());
    Exit::new(
        NO_INPUT,
        if is_fetch { error.to_string() } else { format!("cannot read {}: {error}", name.escape_debug()) },
    )
}

/// Passes a page on to its reader, until either is at its end.
async fn pass(mut page: Page, pieces: mpsc::Sender<io::Result<Bytes>>) {
    loop {
        let piece = match page.chunk().await {
            Ok(None) => return,
            Ok(Some(piece)) => Ok(piece),
            Err(error) => Err(io::Error::other(error)),
        };
        let is_last = piece.is_err();
        if pieces.send(piece).await.is_err() || is_last {
            return;
        }
    }
}

/// The pieces of a page on a thread that may wait for them.
struct Body {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        let n = self.piece.len().min(out.len());
        self.piece.copy_to_slice(&mut out[..n]);
        Ok(n)
    }
}

/// Counts what is read.
struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(out)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}
