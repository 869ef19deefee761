//! The cells of a line, by RFC 4180 and as spreadsheets write it: any delimiter, quotes where they are needed.

use std::borrow::Cow;
use std::cell::RefCell;

use csv_core::{Reader, ReaderBuilder};

/// What stands between cells. Of several in a line, the most frequent one; of equals, the first of these.
pub(super) const DELIMITERS: [u8; 4] = [b'\t', b';', b',', b'|'];

thread_local! {
    /// One for each of them: making one costs more than a line, and a clone of one does not work (csv-core 0.1.13).
    static READERS: RefCell<[Reader; 4]> =
        RefCell::new(DELIMITERS.map(|delimiter| ReaderBuilder::new().delimiter(delimiter).build()));
}

/// The delimiter of a line, outside quotes.
pub(super) fn delimiter(line: &str) -> Option<u8> {
    let mut counts = [0_usize; DELIMITERS.len()];
    let mut is_quoted = false;
    for byte in line.bytes() {
        is_quoted ^= byte == b'"';
        if let Some(at) = DELIMITERS.iter().position(|&d| d == byte && !is_quoted) {
            counts[at] += 1;
        }
    }
    let most = *counts.iter().max().expect("an array");
    let first = counts.iter().position(|&count| count == most).expect("one of them");
    (most > 0).then_some(DELIMITERS[first])
}

/// The cells of a record, without blanks around them but for those in quotes. `delimiter`: one of [`DELIMITERS`].
pub(super) fn split(record: &str, delimiter: u8) -> Vec<Cow<'_, str>> {
    if !record.contains('"') {
        return record.split(char::from(delimiter)).map(|cell| Cow::Borrowed(cell.trim())).collect();
    }
    let record = &*without_blanks(record, delimiter);
    let cells = record.bytes().filter(|&b| b == delimiter).count() + 1;
    let (mut text, mut ends) = (vec![0; record.len()], vec![0; cells]);
    let count = READERS.with_borrow_mut(|readers| {
        let at = DELIMITERS.iter().position(|&known| known == delimiter).expect("one of them");
        let reader = &mut readers[at];
        reader.reset();
        let (_, _, length, count) = reader.read_record(record.as_bytes(), &mut text, &mut ends);
        // No more input ends the last cell.
        let (_, _, _, more) = reader.read_record(&[], &mut text[length..], &mut ends[count..]);
        count + more
    });
    let ends = &ends[..count];
    let starts = [0].into_iter().chain(ends.iter().copied());
    let cells = starts.zip(ends).zip(are_quoted(record, delimiter).chain(std::iter::repeat(false)));
    let cell = |((start, &end), is_quoted): ((usize, &usize), bool)| {
        let cell = String::from_utf8_lossy(&text[start..end]);
        Cow::Owned(if is_quoted { cell.into_owned() } else { cell.trim().to_owned() })
    };
    cells.map(cell).collect()
}

/// Which cells of a record begin with a quote; the last is left out if it is empty.
fn are_quoted(record: &str, delimiter: u8) -> impl Iterator<Item = bool> {
    let mut at = At::Start;
    record.chars().filter_map(move |c| {
        let is_first = at == At::Start;
        at = at.then(c, delimiter);
        is_first.then_some(c == '"')
    })
}

/// Without blanks around cells in quotes: to RFC 4180 they would be part of them, and so a quote behind.
fn without_blanks(record: &str, delimiter: u8) -> Cow<'_, str> {
    if ![" \"", "\t\"", "\" ", "\"\t"].iter().any(|blank| record.contains(blank)) {
        return Cow::Borrowed(record);
    }
    let mut at = At::Start;
    let is_kept = |c: &char| {
        let is_around = matches!(at, At::Start | At::Quote);
        let is_blank = is_around && (*c == ' ' || (*c == '\t' && delimiter != b'\t'));
        if !is_blank {
            at = at.then(*c, delimiter);
        }
        !is_blank
    };
    Cow::Owned(record.chars().filter(is_kept).collect())
}

/// The words of a line, whatever stands between them; a bar does not if it is `joined` by it. What is in brackets is one.
pub(super) fn words(line: &str, joined: bool) -> Vec<Cow<'_, str>> {
    let is_delimiter = |c: char| DELIMITERS.iter().any(|&d| char::from(d) == c) && !(joined && c == '|');
    let is_between = |c: char| c.is_whitespace() || is_delimiter(c);
    let (mut words, mut rest) = (Vec::new(), line.trim_start_matches(is_between));
    while !rest.is_empty() {
        let is_end = |end: &usize| rest[*end..].starts_with(is_between) || *end == rest.len();
        let aside = bracketed(rest).filter(is_end);
        let (word, behind) = rest.split_at(aside.or_else(|| rest.find(is_between)).unwrap_or(rest.len()));
        words.push(Cow::Borrowed(word));
        rest = behind.trim_start_matches(is_between);
    }
    words
}

/// What people say in brackets is shorter.
const MAX_ASIDE: usize = 256;

/// How far the brackets go that a text begins with.
fn bracketed(text: &str) -> Option<usize> {
    let close = match text.as_bytes().first()? {
        b'[' => ']',
        b'(' => ')',
        _ => return None,
    };
    text.char_indices().take(MAX_ASIDE).find(|&(_, c)| c == close).map(|(at, _)| at + 1)
}

/// Whether a word is several in brackets, as lists say whose a proxy is: `[Some Hosting, Inc.]`.
pub(super) fn is_aside(word: &str) -> bool {
    word.contains(char::is_whitespace) && bracketed(word) == Some(word.len())
}

/// Without a pair of quotes around it, as in source code.
pub(super) fn unquoted(text: &str) -> &str {
    let inner = |quote| text.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// Where in a record one is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Of a cell.
    Start,
    Plain,
    Quoted,
    /// Behind a quote, which is doubled if another one follows.
    Quote,
}

impl At {
    fn then(self, c: char, delimiter: u8) -> Self {
        match (self, c) {
            (Self::Start | Self::Quote, '"') => Self::Quoted,
            (Self::Quoted, '"') => Self::Quote,
            (Self::Quoted, _) => Self::Quoted,
            (_, c) if c == char::from(delimiter) => Self::Start,
            _ => Self::Plain,
        }
    }
}

/// How long the record is that a text begins with, up to a line end that is in no quotes. `None`: it goes on, or several lines
/// are no record.
pub(super) fn record_length(text: &str, delimiter: u8) -> Option<usize> {
    let (mut at, mut has_lines) = (At::Start, false);
    for (length, c) in text.char_indices() {
        let is_line_end = c == '\r' || c == '\n';
        if is_line_end && at != At::Quoted {
            return Some(length);
        }
        has_lines |= is_line_end;
        let next = at.then(c, delimiter);
        // This quote belongs to something else than the one before.
        if has_lines && at == At::Quote && next == At::Plain {
            return None;
        }
        at = next;
    }
    (at != At::Quoted).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_the_most_frequent_one_outside_quotes() {
        for (line, delimiter) in [
            ("a,b;c;d", Some(b';')),
            ("\"a;b;c\",d", Some(b',')),
            ("a\tb,c", Some(b'\t')),
            ("a|b", Some(b'|')),
            ("a b", None),
        ] {
            assert_eq!(super::delimiter(line), delimiter, "{line}");
        }
    }

    #[test]
    fn cells_are_split_as_spreadsheets_write_them() {
        for (line, cells) in [
            ("a, b ,,c", &["a", "b", "", "c"][..]),
            ("\"a,b\",\"c \"\"d\"\"\",e", &["a,b", "c \"d\"", "e"]),
            ("'a','b'", &["'a'", "'b'"]),
            ("a, \"b, \"\"c\", d", &["a", "b, \"c", "d"]),
            ("\"\"\"a\"\"\",' b'", &["\"a\"", "' b'"]),
            ("\"a\",", &["a", ""]),
            (" \" a \" , b,\"\",\"c \"", &[" a ", "b", "", "c "]),
            ("a,\"b", &["a", "b"]),
            ("a,b\"c", &["a", "b\"c"]),
            ("\"a\nb\",c", &["a\nb", "c"]),
            ("", &[""]),
            ("\"\"", &[""]),
        ] {
            assert_eq!(split(line, b','), cells, "{line}");
        }
    }

    #[test]
    fn a_record_goes_on_while_a_quote_is_open() {
        for (bytes, length) in [
            ("a\nb", Some(1)),
            ("\"a\nb\",c\nd", Some(7)),
            ("\"a\"\"\nb\"\r\n", Some(7)),
            ("a\"b\nc", Some(3)),
            ("\"a\"b\nc", Some(4)),
            ("a,\"\"", Some(4)),
            ("\"a\nb", None),
            ("\"a\n\"b\",c", None),
            ("a,\"b\"\"\nc", None),
        ] {
            assert_eq!(record_length(bytes, b','), length, "{bytes:?}");
        }
    }
}
