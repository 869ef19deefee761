//! Answers that say a member is not welcome, by rules that the operator has written, and what follows.
//!
//! A rule looks at what an answer is like: its status, a field, the beginning of its body. What it decides goes to the pool beside
//! the requests: the answer itself is passed on unchanged and undelayed, also its body, of which at most the first 4 KiB are
//! copied, and only where a rule wants to see them. What is inside a tunnel nobody sees; of a CONNECT that the upstream proxy refuses
//! the status counts.
//!
//! What a client sees inside its tunnel it may report (`X-Evenkeel-Report`), where the configuration wants that.
//!
//! A ban is from all requests, or from those to one host. In the latter case the member stays in the pool, and requests to that host are
//! allocated in a way that passes it over ([`Pool::allocate_for`]); requests to other hosts are not touched. Every gateway
//! knows which hosts have banned anybody: it looks four times a second whether those are others, whoever made the bans.
//! Cost: without rules and bans nothing but that look; with rules that name statuses, a comparison per answer; while hosts have
//! bans, a lookup per request.

mod beginning;
mod hosts;
mod report;
mod rule;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use beginning::Beginning;
use hosts::Hosts;
use report::{Ids, Report};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

pub use rule::{BODY, Field, Pattern, Rule, Scope};

use crate::config::{Config, Reports};
use crate::head::Framing;
use crate::health::Watch;
use crate::member::{self, Member, Name};
use crate::pool::{Ban, HostBan, Pool, PoolError};

/// Verdicts that wait for the store; what comes beyond will come again.
const MOST_NOTES: usize = 4096;
/// Told with one call.
const BATCH: usize = 100;
/// Before the next try when the store could not be told.
const PAUSE: Duration = Duration::from_secs(1);
/// Reports about members that are not known by their ids yet; what comes beyond is dropped.
const MOST_REPORTS: usize = 256;
/// Of one request.
const FEW_REPORTS: usize = 8;
/// Between two readings of the whole pool for such.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Between two looks at which hosts have bans.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// And between two complaints.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// How `Content-Encoding` spells the one coding that rules see through (RFC 9110 §8.4.1.3).
const GZIP: [&[u8]; 2] = [b"gzip", b"x-gzip"];
/// A longer name is no host's (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// What one gateway knows of bans.
pub(crate) struct Bans {
    rules: Vec<Rule>,
    max_parked: u8,
    /// Requests to every host are allocated by its own counts.
    is_per_host: bool,
    reports: Reports,
    ids: Mutex<Ids>,
    /// About members that are not known by their ids.
    unresolved: Mutex<Vec<Report>>,
    is_unresolved: Notify,
    notes: Mutex<HashMap<(Name, Option<String>), Note>>,
    is_noted: Notify,
    hosts: Hosts,
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
            is_per_host: config.pool.scope.is_some(),
            reports: config.gateway.reports,
            ids: Mutex::default(),
            unresolved: Mutex::default(),
            is_unresolved: Notify::new(),
            notes: Mutex::default(),
            is_noted: Notify::new(),
            hosts: Hosts::default(),
        }
    }

    /// Takes in what a client reports, where it may; what it must not or cannot be is refused with a sentence.
    pub(crate) fn hear<'v>(&self, reports: impl Iterator<Item = &'v [u8]>) -> Result<(), &'static str> {
        if self.reports == Reports::Never {
            return Ok(());
        }
        for (n, report) in reports.flat_map(report::each).enumerate() {
            if n >= FEW_REPORTS {
                return Err("X-Evenkeel-Report takes no more than 8 reports at once");
            }
            let report = Report::read(report)?;
            if report.host.is_none() && self.reports == Reports::Host {
                return Err("X-Evenkeel-Report must say from which host; this gateway takes no other reports");
            }
            self.take_in(report);
        }
        Ok(())
    }

    /// Takes in what somebody reports who may report all; all of it or nothing. Gives how many reports there were.
    pub(crate) fn hear_all<'v>(&self, reports: impl Iterator<Item = &'v [u8]>) -> Result<usize, &'static str> {
        let reports: Vec<Report> = reports.map(Report::read).collect::<Result<_, _>>()?;
        let heard = reports.len();
        reports.into_iter().for_each(|report| self.take_in(report));
        Ok(heard)
    }

    fn take_in(&self, report: Report) {
        let known = self.ids().find(&report.id).cloned();
        match known {
            Some(member) => self.note_report(&member, report),
            None => {
                let mut unresolved = self.unresolved();
                if unresolved.len() < MOST_REPORTS && !unresolved.contains(&report) {
                    unresolved.push(report);
                    self.is_unresolved.notify_one();
                }
            }
        }
    }

    /// A client is told this id, and may report it.
    pub(crate) fn remember(&self, member: &Member) {
        if self.reports != Reports::Never {
            self.ids().remember(member.id(), member.name());
        }
    }

    fn note_report(&self, member: &Name, report: Report) {
        let Report { host, reason, span, .. } = report;
        self.note_as(member, host, || Note { reason, span });
    }

    /// Finds members by their ids that others have served with; not often, since it reads the whole pool.
    async fn resolve(&self, pool: &Pool) {
        loop {
            self.is_unresolved.notified().await;
            let reports = std::mem::take(&mut *self.unresolved());
            match all_members(pool).await {
                Ok(members) => {
                    for report in reports {
                        for member in members.iter().filter(|member| member::id(member) == report.id) {
                            self.note_report(member, report.clone());
                        }
                    }
                }
                Err(error) => tracing::debug!(%error, "could not find the members that clients report"),
            }
            sleep(READ_EVERY).await;
        }
    }

    fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unresolved(&self) -> MutexGuard<'_, Vec<Report>> {
        self.unresolved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host as bans name it, if its requests are allocated in a way of their own: it has banned members, or all hosts have
    /// counts.
    pub(crate) fn host_of_its_own(&self, host: &str) -> Option<String> {
        if !self.is_per_host && !self.hosts.any() {
            return None;
        }
        host_key(host).filter(|host| self.is_per_host || self.has_banned(host))
    }

    /// Whether it has banned members.
    pub(crate) fn has_banned(&self, host: &str) -> bool {
        self.hosts.contains(host)
    }

    /// Whether answers are to be judged at all.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Judges an answer by its head; `has` tells whether it has a field of a name, with such a value. Gives what is to see its
    /// body, if a rule wants to.
    pub(crate) fn judge(
        self: &Arc<Self>,
        answer: &Judged<'_>,
        has: impl Fn(&str, &dyn Fn(&[u8]) -> bool) -> bool,
    ) -> Option<Box<Beginning>> {
        let &Judged { member, status, framing, .. } = answer;
        let mut rules = self.rules.iter().enumerate().filter(|(_, rule)| rule.names(status)).peekable();
        rules.peek()?;
        let host = host_key(answer.host)?;
        let has_field = |field: &Field| has(&field.name, &|value| field.is_met_by(value));
        let mut open = Vec::new();
        for (index, rule) in rules {
            if !rule.is_about(&host) || !rule.header.as_ref().is_none_or(has_field) {
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
        let is_gzip = has("content-encoding", &|coding| GZIP.iter().any(|gzip| coding.eq_ignore_ascii_case(gzip)));
        Some(Beginning::new(self.clone(), member.clone(), (host, status), open, framing, is_gzip))
    }

    /// Judges a CONNECT that the upstream proxy refused with this status.
    pub(crate) fn judge_refusal(&self, member: &Name, host: &str, status: u16) {
        let Some(host) = host_key(host) else { return };
        let is_told =
            |rule: &&Rule| rule.header.is_none() && rule.body.is_none() && rule.names(status) && rule.is_about(&host);
        if let Some(rule) = self.rules.iter().find(is_told) {
            self.note(member, rule, &host, status);
        }
    }

    fn note(&self, member: &Name, rule: &Rule, host: &str, status: u16) {
        let host_only = (rule.scope == Scope::ProxyAndHost).then(|| host.to_owned());
        self.note_as(member, host_only, || Note { reason: rule.reason(host, status), span: rule.span });
    }

    fn note_as(&self, member: &Name, host: Option<String>, note: impl FnOnce() -> Note) {
        let mut notes = self.notes();
        if notes.len() >= MOST_NOTES {
            return;
        }
        // A copy: the name may be a slice of everything that was read from Redis with it.
        if let Entry::Vacant(place) = notes.entry((Name::copy_from_slice(member), host)) {
            place.insert(note());
            self.is_noted.notify_one();
        }
    }

    /// Tells the pool, and looks which hosts have bans; goes on for ever.
    pub(crate) async fn run(&self, pool: &Pool, watch: &Watch) {
        tokio::join!(self.tell_all(pool, watch), self.look(pool), self.resolve(pool));
    }

    async fn tell_all(&self, pool: &Pool, watch: &Watch) {
        let mut complained: Option<Instant> = None;
        loop {
            self.is_noted.notified().await;
            loop {
                let (host, batch) = self.take();
                if batch.is_empty() {
                    break;
                }
                let told = match &host {
                    None => pool
                        .ban(&batch, self.max_parked)
                        .await
                        .map(|changes| changes.iter().for_each(|change| watch.tell(change, &mut complained))),
                    Some(host) => self.tell_of(pool, watch, host, &batch, &mut complained).await,
                };
                if let Err(error) = told {
                    tracing::debug!(%error, "could not tell the pool of bans; trying on");
                    self.put_back(host, batch);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Bans from one host.
    async fn tell_of(
        &self,
        pool: &Pool,
        watch: &Watch,
        host: &str,
        batch: &[Ban],
        complained: &mut Option<Instant>,
    ) -> Result<(), PoolError> {
        let words = pool.ban_for(host, batch, Some(self.max_parked)).await?;
        if words.iter().any(|word| matches!(word, HostBan::Banned | HostBan::Known)) {
            self.hosts.insert(host);
        }
        for (Ban { member, reason, span }, word) in batch.iter().zip(words) {
            let (proxy, id) = (member::masked(member), member::id(member));
            match word {
                HostBan::Banned => {
                    watch.metrics.banned();
                    tracing::warn!(proxy, id, host, reason, r#for = ?span, "keeps a pool member from a host");
                }
                HostBan::Spared if complained.is_none_or(|at| at.elapsed() > COMPLAIN_EVERY) => {
                    *complained = Some(Instant::now());
                    tracing::warn!(
                        proxy,
                        id,
                        host,
                        reason,
                        "is not kept from the host: as many as health.max_parked allows are already, or too many hosts have bans"
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn look(&self, pool: &Pool) {
        let mut seen = None;
        loop {
            self.hosts.begin_look();
            match pool.hosts(&mut seen).await {
                Ok(Some(hosts)) => self.hosts.end_look(hosts),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "could not look which hosts have bans"),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Some that are about the same host, or about all.
    fn take(&self) -> (Option<String>, Vec<Ban>) {
        let mut notes = self.notes();
        let Some(host) = notes.keys().next().map(|(_, host)| host.clone()) else { return (None, Vec::new()) };
        let keys: Vec<_> = notes.keys().filter(|(_, other)| *other == host).take(BATCH).cloned().collect();
        let taken = keys.into_iter().filter_map(|key| notes.remove_entry(&key));
        let bans = taken.map(|((member, _), Note { reason, span })| Ban { member, reason, span }).collect();
        (host, bans)
    }

    fn put_back(&self, host: Option<String>, batch: Vec<Ban>) {
        let mut notes = self.notes();
        for Ban { member, reason, span } in batch {
            notes.entry((member, host.clone())).or_insert(Note { reason, span });
        }
    }

    fn notes(&self) -> MutexGuard<'_, HashMap<(Name, Option<String>), Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever can be banned.
async fn all_members(pool: &Pool) -> Result<Vec<Name>, PoolError> {
    let (set, ramping, parked) = (pool.list().await?, pool.ramping().await?, pool.parked().await?);
    let eligible = set.into_iter().chain(ramping).map(|entry| entry.member);
    Ok(eligible.chain(parked.into_iter().map(|parked| parked.member)).collect())
}

/// A host as a person writes it, without a port and perhaps in Unicode, as bans name it. `None`: it is none.
pub(crate) fn named_host(text: &str) -> Option<String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let is_odd = |c: char| c.is_ascii_control() || " /@*?#\\\"<>:[]%".contains(c);
    let host = match bare.parse::<Ipv6Addr>() {
        Ok(_) => host_key(bare),
        Err(_) if text.contains(is_odd) => None,
        // Clients ask for it in ASCII (RFC 5891 §4.4).
        Err(_) if !text.is_ascii() => host_key(&url::Host::parse(text).ok()?.to_string()),
        Err(_) => host_key(text),
    };
    // A dot before it means all below it, which only a rule's `hosts` can say; nobody asks for such a host.
    host.filter(|host| !host.starts_with('.'))
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
