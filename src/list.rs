//! Lists of proxies as people have them, entry by entry: any of the forms in which they are written, sold and exported.
//!
//! [`List`] reads any input once, from the first byte to the last, and never holds more of it than it needs to see where an
//! entry ends (64 KiB). The first line that says anything decides what the list is: JSON, a table whose first line names its
//! columns, or lines each of which is read by itself. What is read becomes a member of the pool, what cannot be is skipped with
//! the reason, and neither costs any other entry.
//!
//! | module | |
//! |---|---|
//! | `input` | gzip, UTF-16, byte order marks, and files that are no lists |
//! | `complaint` | what servers say instead of a list |
//! | `window` | lines, and how far ahead can be seen |
//! | `wrapping` | what stands around a proxy in a line |
//! | `row`, `form`, `place`, `login` | a line: one word, or fields without names |
//! | `table`, `cells` | a line of a table |
//! | `json` | entries in JSON |
//! | `fields`, `protocol`, `meta`, `draft` | what an entry says, and the member that is meant |
//! | `seen`, `reason`, `report` | what is said about it |
//!
//! Cost: 2 to 4 µs a line, 7 for an object in JSON; 17 to 34 bytes of memory for each different proxy, to know it again, at
//! most 72 MB.
//! Not here: opening files, fetching URLs, and the pool that the members are for.

mod cells;
mod complaint;
mod draft;
mod fields;
mod form;
mod input;
mod json;
mod login;
mod meta;
mod place;
mod protocol;
mod reason;
mod report;
mod row;
mod seen;
mod table;
mod window;
mod wrapping;

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead};

pub use draft::Listed;
pub use meta::Anonymity;
pub use protocol::{NoProtocol, Protocol};
pub use reason::Reason;
pub use report::Report;

use crate::member::Name;
use input::Input;
use json::{Content, Walk};
use seen::Seen;
use table::Table;
use window::{Found, LOOKAHEAD, Window};

/// So much further than its first line a record may go on.
const MAX_RECORD: usize = 8 << 10;

/// The entries of a list, each with what became of it. Comments, blank lines and the names of columns are no entries.
///
/// Ends after an error: the input cannot be read, or is no list at all. What came before is good all the same.
pub struct List<R> {
    window: Window<Input<R>>,
    scheme: Option<Protocol>,
    mode: Mode,
    seen: Seen,
    /// The line at hand.
    line: Vec<u8>,
    is_over: bool,
}

enum Mode {
    /// Nothing has been said yet.
    Start,
    Lines,
    Table(Table),
    Json(Walk),
}

/// What became of one entry. Prints as `17: port 99999 is not a port (1 to 65535)`, without any password.
#[derive(Clone, Debug)]
pub struct Line {
    /// The line on which the entry begins, from 1.
    pub line: u64,
    /// Its number in a list in JSON, where a line may hold many; from 1.
    pub entry: Option<u64>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of an entry.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A proxy that the list has not had before.
    Taken(Box<Listed>),
    /// The same proxy as on this line, or in JSON as that entry, however it was written there.
    Repeated(u64),
    /// It cannot be used.
    Skipped(Reason),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.line)?;
        if let Some(entry) = self.entry {
            write!(f, "entry {entry}: ")?;
        }
        match &self.outcome {
            Outcome::Taken(listed) => write!(f, "taken as {}", listed.member.masked()),
            Outcome::Repeated(first) => {
                write!(f, "the same proxy as {} {first}", if self.entry.is_some() { "entry" } else { "line" })
            }
            Outcome::Skipped(reason) => write!(f, "{reason}"),
        }
    }
}

impl<R: BufRead> List<R> {
    /// Reads `input`. `scheme`: what is spoken with proxies that do not say it; http if this does not either.
    pub fn new(input: R, scheme: Option<Protocol>) -> Self {
        let window = Window::new(Input::Unread(input));
        Self { window, scheme, mode: Mode::Start, seen: Seen::default(), line: Vec::new(), is_over: false }
    }

    fn read(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Mode::Json(walk) = &mut self.mode {
                let Some(entry) = walk.next(&mut self.window)? else { return Ok(None) };
                let scheme = entry.protocol.or(self.scheme);
                let read = entry.content.and_then(|content| read_content(&content, scheme));
                return Ok(Some(self.line(entry.line, Some(entry.number), read)));
            }
            if let Mode::Start = self.mode
                && self.is_json()?
            {
                self.mode = Mode::Json(Walk::default());
                continue;
            }
            let number = self.window.line();
            match self.window.next_line(&mut self.line)? {
                Found::End => return Ok(None),
                Found::TooLong => return Ok(Some(self.line(number, None, Err(Reason::TooLong)))),
                Found::Line => {
                    if let Some(read) = self.read_line()? {
                        return Ok(Some(self.line(number, None, read)));
                    }
                }
            }
        }
    }

    /// Whether what comes next is JSON that is not one entry per line.
    fn is_json(&mut self) -> io::Result<bool> {
        // Only what may be JSON is worth waiting for more of it.
        let mut wanted = 1;
        loop {
            let view = self.window.peek(wanted)?;
            let seen = view.len();
            match view.iter().find(|b| !b.is_ascii_whitespace()) {
                Some(b'[' | b'{' | b'<') => break,
                None if seen >= wanted && wanted < LOOKAHEAD => wanted = seen + 1,
                _ => return Ok(false),
            }
        }
        let view = self.window.peek(LOOKAHEAD)?;
        let is_whole = view.len() < LOOKAHEAD;
        let view = view.trim_ascii_start();
        if complaint::is_markup(view) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is a web page, not a list"));
        }
        if is_whole && complaint::is_report(view) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it reports an error and is no list"));
        }
        let inside = view[1..].trim_ascii_start().first();
        match view[0] {
            b'[' => Ok(matches!(inside, Some(b'"' | b'{' | b'[' | b']'))),
            b'{' => {
                let line = view.split(|b| b"\r\n".contains(b)).next().unwrap_or_default();
                let is_entry = serde_json::from_slice(line).is_ok_and(|object: json::Object| object.is_entry());
                Ok(matches!(inside, Some(b'"' | b'}')) && !is_entry)
            }
            _ => Ok(false),
        }
    }

    /// Reads the line at hand; `None` if it is no entry.
    fn read_line(&mut self) -> io::Result<Option<Result<Listed, Reason>>> {
        let (line, text) = match text(&self.line) {
            // An empty row, as spreadsheets leave them behind.
            Ok((_, text)) if text.bytes().all(|b| cells::DELIMITERS.contains(&b)) => return Ok(None),
            Ok(both) => both,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        let is_start = matches!(self.mode, Mode::Start);
        if let Some(comment) = comment(text, &self.mode) {
            if is_start && let Some(table) = Table::named_by(comment).filter(Table::is_useful) {
                self.mode = Mode::Table(table);
            }
            return Ok(None);
        }
        if is_start {
            if complaint::is_sentence(text) && self.window.is_blank_to_the_end()? {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it is a message about a refusal and no list"));
            }
            self.mode = Mode::Lines;
            // How spreadsheets are told what stands between cells.
            let is_note =
                text.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case("sep=")) && text.chars().count() == 5;
            let table = Table::named_by(text);
            if is_note || table.is_some() {
                self.mode = table.map_or(Mode::Start, Mode::Table);
                return Ok(None);
            }
        }
        let read = match &self.mode {
            _ if text.starts_with('{') => read_json(text, self.scheme),
            Mode::Table(table) if table.is_open(line) => read_record(table, line, &mut self.window, self.scheme)?,
            Mode::Table(table) => table.read(line, self.scheme),
            _ => row::read(text, self.scheme),
        };
        if read.is_err()
            && let Some(table) = Table::named_by(text)
        {
            // The next of several tables in one file.
            self.mode = Mode::Table(table);
            return Ok(None);
        }
        Ok(Some(read))
    }

    fn line(&mut self, line: u64, entry: Option<u64>, read: Result<Listed, Reason>) -> Line {
        let outcome = match read {
            Err(reason) => Outcome::Skipped(reason),
            Ok(listed) => match self.seen.before(&listed.member, entry.unwrap_or(line)) {
                Some(before) => Outcome::Repeated(before),
                None => Outcome::Taken(Box::new(listed)),
            },
        };
        Line { line, entry, outcome }
    }
}

impl<R: BufRead> Iterator for List<R> {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<io::Result<Line>> {
        if self.is_over {
            return None;
        }
        let next = self.read().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// A member as a line of a list from which it comes back.
///
/// That is the member as it is, but for a few that say no scheme and look like something else: a comment, or a user and password
/// like a host and its port. Those get the scheme that they mean, and come back as the same proxy.
pub fn as_line(member: &Name) -> Cow<'_, [u8]> {
    let text = str::from_utf8(member).unwrap_or_default();
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
    let is_kept = || row::read(text, None).is_ok_and(|listed| listed.member.name() == member);
    match form::split_scheme(text) {
        None if !is_plain || !is_kept() => Cow::Owned([b"http://", &member[..]].concat()),
        _ => Cow::Borrowed(member),
    }
}

/// A line as text, and the same without what is around it. Nothing in it can break a line or move a cursor.
fn text(line: &[u8]) -> Result<(&str, &str), Reason> {
    let is_around = |c: char| c.is_whitespace() || form::is_invisible(c);
    let text = std::str::from_utf8(line).map_err(|_| Reason::NotUtf8)?;
    match text.trim().bytes().find(|b| b.is_ascii_control() && *b != b'\t') {
        Some(0) => Err(Reason::Zero),
        Some(_) => Err(Reason::Control),
        None => Ok((text, text.trim_matches(is_around))),
    }
}

/// What a comment says, if the line is one.
fn comment<'a>(text: &'a str, mode: &Mode) -> Option<&'a str> {
    let may_begin_empty = matches!(mode, Mode::Table(table) if table.has_semicolons());
    let comment = match text.as_bytes() {
        [b'#', ..] => text.trim_start_matches('#'),
        [b'/', b'/', ..] => &text[2..],
        [b';', ..] if !may_begin_empty => text.trim_start_matches(';'),
        _ => return None,
    };
    Some(comment.trim())
}

/// A line that is an object of its own.
fn read_json(text: &str, scheme: Option<Protocol>) -> Result<Listed, Reason> {
    let text = text.strip_suffix(',').unwrap_or(text);
    match serde_json::from_str(text) {
        Ok(object) => read_content(&Content::Object(object), scheme),
        Err(_) => Err(Reason::NotJson),
    }
}

fn read_content(content: &Content, scheme: Option<Protocol>) -> Result<Listed, Reason> {
    match content {
        Content::Object(object) => object.fields().read(scheme),
        Content::Text(line) => match text(line.as_bytes())? {
            (_, "") => Err(Reason::Unknown),
            (_, line) => row::read(line, scheme),
        },
        Content::Row(cells) => row::read_cells(cells, scheme),
    }
}

/// A record whose first line is at hand and that goes on in the next. If it makes no sense, it was one line all the same, with
/// a quote too few.
fn read_record<R: BufRead>(
    table: &Table,
    line: &str,
    window: &mut Window<Input<R>>,
    scheme: Option<Protocol>,
) -> io::Result<Result<Listed, Reason>> {
    let view = window.peek(MAX_RECORD)?;
    let view = &view[..view.len().min(MAX_RECORD)];
    // As far as it is text; the last character may be cut.
    let view = view.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    let text = [line, "\n", view].concat();
    let Some(record) = table.record_length(&text).map(|length| &text[..length]) else {
        return Ok(Err(Reason::Quote));
    };
    // A line in the middle that makes sense by itself was not meant as part of a cell.
    let mut lines = record.lines().skip(1).peekable();
    while let Some(line) = lines.next() {
        if lines.peek().is_some() && table.read(line, scheme).is_ok() {
            return Ok(Err(Reason::Quote));
        }
    }
    let read = table.read(record, scheme);
    if read.is_ok() {
        window.consume(record.len() - line.len() - 1);
    }
    Ok(read.map_err(|_| Reason::Quote))
}

#[cfg(test)]
mod tests;
