//! What is said of a source's readings: one line for each, but the same trouble with the same list is told once.

use std::time::Duration;

use super::intake::Entries;
use super::reading::{Done, Failed, Found};
use super::watch::Stamp;

/// Speaks of one source.
pub(super) struct Teller {
    source: String,
    /// The trouble that was told last, and of which file, until a reading is without.
    told: Option<(String, Option<Stamp>)>,
}

impl Teller {
    pub(super) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), told: None }
    }

    pub(super) fn tell(&mut self, outcome: &Result<Done, Failed>, took: Duration) {
        let (source, ms) = (self.source.as_str(), took.as_millis() as u64);
        let (found, trouble) = match outcome {
            Ok(Done::Unchanged) => {
                match self.told.take() {
                    Some(_) => tracing::info!(source, ms, "the list can be read again, and has not changed"),
                    None => tracing::debug!(source, ms, "the list has not changed"),
                }
                return;
            }
            Ok(Done::Read { found, doubt: None }) => (found, None),
            Ok(Done::Read { found, doubt: Some(doubt) }) => (found, Some(format!("{doubt}, so nothing is removed"))),
            Err(Failed { why, found }) => (found, Some(format!("cannot read the list: {why}; trying on"))),
        };
        let Found { entries, added, removed, named: kept, stamp } = found;
        let trouble = trouble.map(|trouble| (trouble, *stamp));
        let is_known = trouble == self.told;
        let Entries { taken, repeated, skipped, .. } = *entries;
        let lines = entries.first_skipped();
        match &trouble {
            None => tracing::info!(source, taken, added, removed, repeated, skipped, ms, "read a list{lines}"),
            Some((trouble, _)) if is_known && *added == 0 => {
                tracing::debug!(source, taken, added, removed, repeated, skipped, kept, ms, "still: {trouble}{lines}");
            }
            Some((trouble, _)) if is_known => {
                tracing::info!(source, taken, added, removed, repeated, skipped, kept, ms, "still: {trouble}{lines}");
            }
            Some((trouble, _)) => {
                tracing::warn!(source, taken, added, removed, repeated, skipped, kept, ms, "{trouble}{lines}");
            }
        }
        self.told = trouble;
    }
}
