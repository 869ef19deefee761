//! What became of a list, for whoever gave it.

use std::collections::BTreeMap;

use super::{Line, Outcome};

/// So many lines are shown one by one; of more, a count for each reason.
const MAX_SHOWN: u64 = 1_000;

/// Counts what became of the entries of a list, and says it.
///
/// Every text is a line without its end, and shows no password.
pub struct Report {
    source: String,
    is_verbose: bool,
    taken: u64,
    repeated: u64,
    skipped: u64,
    /// How many of each kind were not shown.
    hidden: BTreeMap<String, u64>,
}

impl Report {
    /// For the list `source`: a file's name, a URL without secrets. `is_verbose`: says also what was taken.
    pub fn new(source: &str, is_verbose: bool) -> Self {
        let source = source.escape_debug().to_string();
        Self { source, is_verbose, taken: 0, repeated: 0, skipped: 0, hidden: BTreeMap::new() }
    }

    /// Counts an entry, and gives what is to be said of it: `list.txt:17: port 99999 is not a port (1 to 65535)`.
    pub fn note(&mut self, line: &Line) -> Option<String> {
        let kind = match &line.outcome {
            Outcome::Taken(_) => {
                self.taken += 1;
                return self.is_verbose.then(|| format!("{}:{line}", self.source));
            }
            Outcome::Repeated(_) => {
                self.repeated += 1;
                "the same as an earlier one".to_owned()
            }
            Outcome::Skipped(reason) => {
                self.skipped += 1;
                reason.kind().to_string()
            }
        };
        if self.repeated + self.skipped <= MAX_SHOWN {
            return Some(format!("{}:{line}", self.source));
        }
        *self.hidden.entry(kind).or_default() += 1;
        None
    }

    /// The lines to be said at the end of a list of which not every skipped line was.
    pub fn rest(&self) -> Vec<String> {
        let hidden: u64 = self.hidden.values().sum();
        let times = |count: u64| if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let kinds = self.hidden.iter().map(|(kind, &count)| format!("{}: {}: {kind}", self.source, times(count)));
        let more = (hidden > 0).then(|| format!("{}: and {hidden} more:", self.source));
        more.into_iter().chain(kinds).collect()
    }

    /// Entries that were taken.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Entries that were the same as an earlier one.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Entries that could not be taken.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}
