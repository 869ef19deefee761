//! What is said of a source's readings: one line for each, and of failures that repeat only the first.

use std::time::Duration;

use super::reading::{Done, Failed, Found};

/// Speaks of one source.
pub(super) struct Teller {
    source: String,
    /// The failure that was told last, until a reading succeeds.
    told: Option<String>,
}

impl Teller {
    pub(super) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), told: None }
    }

    pub(super) fn tell(&mut self, outcome: &Result<Done, Failed>, took: Duration) {
        let (source, ms) = (self.source.as_str(), took.as_millis() as u64);
        let (found, trouble) = match outcome {
            Ok(Done::Unchanged) => {
                tracing::debug!(source, ms, "the list has not changed");
                self.told = None;
                return;
            }
            Ok(Done::Read { found, doubt: None }) => (found, None),
            Ok(Done::Read { found, doubt: Some(doubt) }) => (found, Some(format!("{doubt}, so nothing is removed"))),
            Err(Failed { why, .. }) if self.told.as_ref() == Some(why) => {
                tracing::debug!(source, ms, "still cannot read the list: {why}");
                return;
            }
            Err(Failed { why, found }) => (found, Some(format!("cannot read the list: {why}; trying on"))),
        };
        self.told = outcome.as_ref().err().map(|failed| failed.why.clone());
        let Found { taken, added, removed, repeated, skipped, .. } = *found;
        let lines = found.first_skipped();
        match trouble {
            None => tracing::info!(source, taken, added, removed, repeated, skipped, ms, "read a list{lines}"),
            Some(trouble) => tracing::warn!(source, taken, added, removed, repeated, skipped, ms, "{trouble}{lines}"),
        }
    }
}
