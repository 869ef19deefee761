//! A list whose first line names its columns.

use std::borrow::Cow;

use super::cells;
use super::draft::Listed;
use super::fields::{Field, Fields};
use super::place;
use super::protocol::Protocol;
use super::reason::Reason;
use super::row;

/// What the columns are about.
pub(super) struct Table {
    delimiter: Delimiter,
    columns: Vec<Option<Field>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Delimiter {
    /// Of cells, which may be quoted.
    Byte(u8),
    /// As in `ip:port:user:password`: what follows the last column belongs to it.
    Colon,
    Blank,
}

/// More columns are those of no list of proxies.
const MAX_COLUMNS: usize = 256;

impl Table {
    /// The columns that a line names, if it does: one for the place at least, and no cell is a place itself.
    pub(super) fn named_by(line: &str) -> Option<Self> {
        let delimiter = match cells::delimiter(line) {
            Some(byte) => Delimiter::Byte(byte),
            None if line.contains(':') && !line.contains(char::is_whitespace) => Delimiter::Colon,
            None => Delimiter::Blank,
        };
        let names = delimiter.split(line);
        let columns: Vec<_> = names.iter().map(|name| Field::of_column(name)).collect();
        let known = columns.iter().flatten().count();
        let has = |fields: &[Field]| columns.iter().flatten().any(|column| fields.contains(column));
        // Where anything may stand between words, a sentence must not become a header.
        let is_known =
            known == columns.len() || (matches!(delimiter, Delimiter::Byte(_)) && (known >= 2 || has(&[Field::Place])));
        let is_header = is_known
            && has(&[Field::Place, Field::Host, Field::Ip])
            && columns.len() <= MAX_COLUMNS
            && !names
                .iter()
                .any(|name| place::is_digits(name) || is_address(name) || (known < 2 && name.contains('.')));
        is_header.then_some(Self { delimiter, columns })
    }

    /// Whether a line goes on behind its end, as a cell in quotes may.
    pub(super) fn is_open(&self, line: &str) -> bool {
        line.contains('"') && self.record_length(line).is_none()
    }

    /// How long the record is that a text begins with, without its line end; `None` if that cannot be seen.
    pub(super) fn record_length(&self, text: &str) -> Option<usize> {
        match self.delimiter {
            Delimiter::Byte(delimiter) => cells::record_length(text, delimiter),
            Delimiter::Colon | Delimiter::Blank => Some(text.len()),
        }
    }

    /// Whether it says more than that there are proxies.
    pub(super) fn is_useful(&self) -> bool {
        self.columns.len() > 1
    }

    fn has(&self, fields: &[Field]) -> bool {
        self.columns.iter().flatten().any(|column| fields.contains(column))
    }

    /// Whether lines may begin with an empty cell where others begin with a comment.
    pub(super) fn has_semicolons(&self) -> bool {
        self.delimiter == Delimiter::Byte(b';')
    }

    /// Reads a line, or a record of several lines. One that is written in another way than the first line announces is read
    /// as it would be without it.
    pub(super) fn read(&self, record: &str, default: Option<Protocol>) -> Result<Listed, Reason> {
        if !self.is_useful() {
            return row::read(record, default);
        }
        let mut cells = self.delimiter.split(record);
        let has_login = self.has(&[Field::User, Field::Password, Field::Login]);
        let is_longer = cells.iter().skip(self.columns.len()).any(|cell| !cell.is_empty());
        match self.delimiter {
            Delimiter::Byte(_) if is_longer && has_login => return Err(Reason::Columns),
            Delimiter::Byte(_) => unquote_all(&mut cells),
            // Where a cell may be missing anywhere, the others are in other columns.
            Delimiter::Blank if has_login && cells.len() != self.columns.len() => {
                return row::read(record, default).map_err(|_| Reason::Columns);
            }
            Delimiter::Blank => {}
            Delimiter::Colon if record.contains("://") || cells.len() < self.columns.len() => {
                return row::read(record, default);
            }
            // A password may have colons.
            Delimiter::Colon if is_longer => match self.columns.last() {
                Some(Some(Field::Password)) => {
                    let before = cells[..self.columns.len() - 1].iter().map(|cell| cell.len() + 1).sum();
                    cells.truncate(self.columns.len() - 1);
                    cells.push(Cow::Borrowed(&record[before..]));
                }
                Some(Some(Field::Port)) => return row::read(record, default),
                _ => return Err(Reason::Columns),
            },
            Delimiter::Colon => {}
        }
        let mut fields = Fields::default();
        for (column, cell) in self.columns.iter().zip(cells) {
            if let Some(field) = column {
                fields.set(*field, cell);
            }
        }
        match fields.read(default) {
            Err(Reason::NoHost) => row::read(record, default).map_err(|_| Reason::NoHost),
            Err(reason) if self.delimiter == Delimiter::Colon => row::read(record, default).map_err(|_| reason),
            read => read,
        }
    }
}

impl Delimiter {
    fn split(self, line: &str) -> Vec<Cow<'_, str>> {
        match self {
            Self::Byte(delimiter) => cells::split(line, delimiter),
            Self::Colon => place::parts(line).into_iter().map(Cow::Borrowed).collect(),
            Self::Blank => cells::words(line, false),
        }
    }
}

/// Takes off single quotes where every cell has them: those of this table, which RFC 4180 does not know.
fn unquote_all(cells: &mut [Cow<'_, str>]) {
    let is_quoted = |cell: &Cow<'_, str>| cell.len() > 1 && cell.starts_with('\'') && cell.ends_with('\'');
    if cells.iter().all(|cell| cell.is_empty() || is_quoted(cell)) {
        for cell in cells.iter_mut().filter(|cell| !cell.is_empty()) {
            *cell = Cow::Owned(cell[1..cell.len() - 1].to_owned());
        }
    }
}

fn is_address(name: &str) -> bool {
    place::host(name) == place::Likeness::Ip || place::is_ipv6(name)
}
