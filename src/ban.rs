//! Answers that say a member is not welcome, by rules that the operator has written, and what follows.
//!
//! A rule looks at what an answer is like: its status, a field, the beginning of its body. What it decides goes to the pool beside
//! the requests: the answer itself is passed on unchanged and undelayed, also its body, of which at most the first 4 KiB are
//! copied, and only where a rule wants to see them. What is inside a tunnel nobody sees; of a CONNECT that the upstream proxy refuses
//! the status counts.
//! Cost: without rules nothing; with rules that name statuses, a comparison per answer.

mod rule;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

pub use rule::{BODY, Field, Pattern, Rule, Scope};

use crate::chunked::Chunked;
use crate::config::Config;
use crate::head::Framing;
use crate::health::Watch;
use crate::member::Name;
use crate::pool::{Ban, Pool};

/// Verdicts that wait for the store; what comes beyond will come again.
const MOST_NOTES: usize = 4096;
/// Told with one call.
const BATCH: usize = 100;
/// Before the next try when the store could not be told.
const PAUSE: Duration = Duration::from_secs(1);
/// A longer name is no host's (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// What one gateway knows of bans.
pub(crate) struct Bans {
    rules: Vec<Rule>,
    max_parked: u8,
    notes: Mutex<HashMap<Name, Note>>,
    is_noted: Notify,
}

struct Note {
    reason: String,
    span: Duration,
}

/// An answer, as far as rules look at it.
pub(crate) struct Judged<'a> {
    pub(crate) member: &'a Name,
    /// Of the target.
    pub(crate) host: &'a str,
    pub(crate) status: u16,
    pub(crate) framing: Framing,
}

impl Bans {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            rules: config.pool.ban.clone(),
            max_parked: config.health.max_parked,
            notes: Mutex::default(),
            is_noted: Notify::new(),
        }
    }

    /// Whether answers are to be judged at all.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Judges an answer by its head; `has` tells whether it has a field. Gives what is to see its body, if a rule wants to.
    pub(crate) fn judge(self: &Arc<Self>, answer: &Judged<'_>, has: impl Fn(&Field) -> bool) -> Option<Box<Beginning>> {
        let &Judged { member, status, framing, .. } = answer;
        let host = host_key(answer.host)?;
        let mut open = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            if !rule.is_about(&host, status) || !rule.header.as_ref().is_none_or(&has) {
                continue;
            }
            if rule.body.is_none() {
                self.note(member, rule, &host, status);
                return None;
            }
            open.push(index);
        }
        if open.is_empty() || framing == Framing::Nothing {
            return None;
        }
        let chunked = (framing == Framing::Chunked).then(Chunked::default);
        Some(Box::new(Beginning {
            bans: self.clone(),
            member: member.clone(),
            host,
            status,
            open,
            chunked,
            bytes: Vec::new(),
            seen: 0,
        }))
    }

    /// Judges a CONNECT that the upstream proxy refused with this status.
    pub(crate) fn judge_refusal(&self, member: &Name, host: &str, status: u16) {
        let Some(host) = host_key(host) else { return };
        let is_told = |rule: &&Rule| rule.header.is_none() && rule.body.is_none() && rule.is_about(&host, status);
        if let Some(rule) = self.rules.iter().find(is_told) {
            self.note(member, rule, &host, status);
        }
    }

    fn note(&self, member: &Name, rule: &Rule, host: &str, status: u16) {
        let mut notes = self.notes();
        if notes.len() >= MOST_NOTES {
            return;
        }
        // A copy: the name may be a slice of everything that was read from Redis with it.
        if let Entry::Vacant(place) = notes.entry(Name::copy_from_slice(member)) {
            place.insert(Note { reason: rule.reason(host, status), span: rule.span });
            self.is_noted.notify_one();
        }
    }

    /// Tells the pool; goes on for ever.
    pub(crate) async fn run(&self, pool: &Pool, watch: &Watch) {
        let mut complained: Option<Instant> = None;
        loop {
            self.is_noted.notified().await;
            loop {
                let batch = self.take();
                if batch.is_empty() {
                    break;
                }
                match pool.ban(&batch, self.max_parked).await {
                    Ok(changes) => changes.iter().for_each(|change| watch.tell(change, &mut complained)),
                    Err(error) => {
                        tracing::debug!(%error, "could not tell the pool of bans; trying on");
                        self.put_back(batch);
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }

    fn take(&self) -> Vec<Ban> {
        let mut notes = self.notes();
        let members: Vec<Name> = notes.keys().take(BATCH).cloned().collect();
        let taken = members.into_iter().filter_map(|member| notes.remove_entry(&member));
        taken.map(|(member, Note { reason, span })| Ban { member, reason, span }).collect()
    }

    fn put_back(&self, batch: Vec<Ban>) {
        let mut notes = self.notes();
        for Ban { member, reason, span } in batch {
            notes.entry(member).or_insert(Note { reason, span });
        }
    }

    fn notes(&self) -> MutexGuard<'_, HashMap<Name, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The beginning of a body, as it passes by.
pub(crate) struct Beginning {
    bans: Arc<Bans>,
    member: Name,
    host: String,
    status: u16,
    /// Rules that everything but the body has met.
    open: Vec<usize>,
    /// Where the bytes that pass are chunks.
    chunked: Option<Chunked>,
    bytes: Vec<u8>,
    /// How many of them were searched.
    seen: usize,
}

impl Beginning {
    /// More of the body has come. Whether there is nothing more to see.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> bool {
        let room = |kept: &Vec<u8>| BODY - kept.len();
        match &mut self.chunked {
            None => self.bytes.extend_from_slice(&bytes[..bytes.len().min(room(&self.bytes))]),
            Some(chunked) => {
                let kept = &mut self.bytes;
                let read = chunked.advance_with(bytes, |data| {
                    kept.extend_from_slice(&data[..data.len().min(room(kept))]);
                });
                if read.is_err() {
                    return true;
                }
            }
        }
        // A body that comes byte by byte is not searched for each of them.
        let is_full = self.bytes.len() == BODY;
        let is_met = (is_full || self.bytes.len() >= 2 * self.seen) && self.search();
        is_met || is_full
    }

    /// Whether a rule was met.
    fn search(&mut self) -> bool {
        self.seen = self.bytes.len();
        let is_met = |index: &&usize| {
            let rule = self.bans.rules.get(**index);
            rule.and_then(|rule| rule.body.as_ref()).is_some_and(|body| body.is_in(&self.bytes))
        };
        let Some(&met) = self.open.iter().find(is_met) else { return false };
        self.bans.note(&self.member, &self.bans.rules[met], &self.host, self.status);
        self.open.clear();
        true
    }
}

impl Drop for Beginning {
    /// A short body may have ended between two searches.
    fn drop(&mut self) {
        if self.bytes.len() > self.seen {
            self.search();
        }
    }
}

/// A host as bans name it: in lower case, without a final dot; an IPv6 address in brackets and in its shortest form. `None`: too
/// long for one.
pub(crate) fn host_key(host: &str) -> Option<String> {
    if host.len() > MAX_HOST {
        return None;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<Ipv6Addr>() {
        return Some(match ip.to_ipv4_mapped() {
            Some(ip) => ip.to_string(),
            None => format!("[{ip}]"),
        });
    }
    Some(host.trim_end_matches('.').to_ascii_lowercase()).filter(|host| !host.is_empty())
}
