//! What a list gives, read by a thread of its own: a file, or the pieces of a page, into members for the pool.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::OFlags;
use tokio::sync::mpsc;

use super::watch::Stamp;
use crate::list::{List, Outcome, Protocol};
use crate::member::Name;

/// Members in one part: half a millisecond in which Redis does nothing else.
pub(super) const CHUNK: usize = 100;
/// Skipped lines that are shown.
const SHOWN: usize = 3;
/// A list is read so many bytes at a time.
const BUFFER: usize = 64 << 10;

/// Members, each with its country if the list says it.
pub(super) type Part = Vec<(Name, Option<String>)>;

/// How much of a list is read, and how.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) bytes: u64,
    pub(super) members: u64,
    pub(super) scheme: Option<Protocol>,
}

/// What was found, in entries of the list.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) taken: u64,
    pub(super) repeated: u64,
    pub(super) skipped: u64,
    /// The first lines that were skipped, without secrets.
    shown: Vec<String>,
}

/// What the thread that reads has to say at the end.
pub(super) struct Parsed {
    pub(super) entries: Entries,
    pub(super) end: io::Result<Ending>,
}

pub(super) enum Ending {
    Whole,
    /// There is more than may be taken.
    Full,
    /// A file that was written meanwhile.
    Changing,
}

impl Entries {
    /// `; line 17: port 99999 is not a port (1 to 65535); …`, or nothing.
    pub(super) fn first_skipped(&self) -> String {
        match &self.shown[..] {
            [] => String::new(),
            shown => {
                let more = if self.skipped > SHOWN as u64 { "; …" } else { "" };
                format!("; line {}{more}", shown.join("; line "))
            }
        }
    }
}

/// Reads a file, and hands its members on.
pub(super) fn read_file(path: &Path, bounds: Bounds, parts: &mpsc::Sender<Part>) -> Parsed {
    let (file, before) = match open(path) {
        Ok(opened) => opened,
        Err(error) => {
            let error = io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            return Parsed { entries: Entries::default(), end: Err(error) };
        }
    };
    let input = BufReader::with_capacity(BUFFER, Bounded { input: &file, left: bounds.bytes, most: bounds.bytes });
    let mut parsed = read_list(input, bounds, parts);
    let is_same = file.metadata().is_ok_and(|about| Stamp::of(&about) == before);
    if let Ok(end @ Ending::Whole) = &mut parsed.end
        && !is_same
    {
        *end = Ending::Changing;
    }
    parsed
}

/// Only what is a file: a pipe could keep whoever opens it for ever, also one that has taken the place of a file just now.
fn open(path: &Path) -> io::Result<(File, Stamp)> {
    let no_file = || io::Error::other("it is not a file");
    if !std::fs::metadata(path)?.is_file() {
        return Err(no_file());
    }
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let about = file.metadata()?;
    if about.is_file() { Ok((file, Stamp::of(&about))) } else { Err(no_file()) }
}

/// Reads a page that comes in pieces, the last of them empty, and hands its members on.
pub(super) fn read_page(pieces: mpsc::Receiver<Bytes>, bounds: Bounds, parts: &mpsc::Sender<Part>) -> Parsed {
    let pieces = Pieces { pieces, piece: Bytes::new(), is_over: false };
    read_list(BufReader::with_capacity(BUFFER, pieces), bounds, parts)
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
fn read_list(input: impl BufRead, bounds: Bounds, parts: &mpsc::Sender<Part>) -> Parsed {
    let mut entries = Entries::default();
    let mut part = Vec::with_capacity(CHUNK);
    let mut end = Ok(Ending::Whole);
    for line in List::new(input, bounds.scheme) {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                end = Err(error);
                break;
            }
        };
        match &line.outcome {
            Outcome::Taken(_) if entries.taken == bounds.members => {
                end = Ok(Ending::Full);
                break;
            }
            Outcome::Taken(listed) => {
                entries.taken += 1;
                part.push((listed.member.name().clone(), listed.country.clone()));
            }
            Outcome::Repeated(_) => entries.repeated += 1,
            Outcome::Skipped(_) => {
                entries.skipped += 1;
                if entries.shown.len() < SHOWN {
                    entries.shown.push(line.to_string());
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
    Parsed { entries, end }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::io::Write as _;

    use super::*;

    const ALL: Bounds = Bounds { bytes: u64::MAX, members: u64::MAX, scheme: None };

    /// Whoever writes it has not done: what is not there may still come.
    #[test]
    fn a_file_that_is_written_while_it_is_read_is_not_believed() {
        let mut text = String::new();
        (0..4 * CHUNK).for_each(|n| writeln!(text, "h{n}.test:80").expect("a text"));
        for grows in [false, true] {
            let mut file = tempfile::NamedTempFile::new().expect("a scratch file");
            file.write_all(text.as_bytes()).expect("a written file");
            let (path, (sender, mut parts)) = (file.path().to_owned(), mpsc::channel(1));
            let reader = std::thread::spawn(move || read_file(&path, ALL, &sender));
            // It waits for whoever takes what it has found.
            assert_eq!(parts.blocking_recv().map(|part| part.len()), Some(CHUNK));
            if grows {
                file.write_all(b"another.test:80").expect("a written file");
            }
            while parts.blocking_recv().is_some() {}
            let Parsed { entries, end } = reader.join().expect("no panic");
            assert_eq!((matches!(end, Ok(Ending::Whole)), matches!(end, Ok(Ending::Changing))), (!grows, grows));
            assert_eq!(entries.taken, 4 * CHUNK as u64 + u64::from(grows));
        }
    }

    #[test]
    fn a_page_that_is_dropped_is_not_taken_for_its_end() {
        let (sender, pieces) = mpsc::channel(2);
        sender.blocking_send(Bytes::from_static(b"a.test:80\n")).expect("room");
        drop(sender);
        let (sender, mut parts) = mpsc::channel(2);
        let Parsed { end, .. } = read_page(pieces, ALL, &sender);
        assert!(matches!(end, Err(error) if error.kind() == io::ErrorKind::UnexpectedEof));
        assert_eq!(parts.blocking_recv().map(|part| part.len()), Some(1), "what came before is good");
    }
}
