//! `evenkeel pool list`: every member, its state, its count, and what there is to say about it.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::member::{self, Name};
use crate::pool::{BannedBy, Candidate, Entry, Kind, Parked, Policy, Pool, PoolError, Rejection};

/// All members of a pool, by state.
pub(super) struct Listing {
    eligible: Vec<Entry>,
    ramping: Vec<Entry>,
    failures: HashMap<Name, u64>,
    parked: Vec<Parked>,
    candidates: Vec<Candidate>,
    /// Whom which hosts have banned, in their order.
    banned: HashMap<Name, Vec<BannedBy>>,
    rejections: HashMap<Name, Rejection>,
    /// Where the policy counts that.
    in_flight: Option<HashMap<Name, u64>>,
    now_ms: u64,
}

pub(super) async fn read(pool: &Pool, policy: Policy) -> Result<Listing, PoolError> {
    let (eligible, ramping) = (pool.list().await?, pool.ramping().await?);
    let (parked, candidates) = (pool.parked().await?, pool.candidates().await?);
    let (failures, rejections) = (pool.failures().await?, pool.rejections().await?);
    let mut banned: HashMap<Name, Vec<BannedBy>> = HashMap::new();
    for one in pool.banned().await? {
        banned.entry(one.member.clone()).or_default().push(one);
    }
    // Gateways may have another configuration than whoever asks here.
    let in_flight = Some(pool.in_flight().await?).filter(|some| policy != Policy::LeastUsed || !some.is_empty());
    let now_ms = now_ms();
    Ok(Listing { eligible, ramping, failures, parked, candidates, rejections, banned, in_flight, now_ms })
}

impl Listing {
    pub(super) fn print(&self, json: bool) -> Vec<u8> {
        if json { format!("{:#}\n", self.json()).into_bytes() } else { self.text().into_bytes() }
    }

    /// Who gets requests, and as what.
    fn entries(&self) -> impl Iterator<Item = (&Entry, &'static str)> {
        let ramping = self.ramping.iter().map(|entry| (entry, "ramping"));
        self.eligible.iter().map(|entry| (entry, "eligible")).chain(ramping)
    }

    fn json(&self) -> Value {
        let eligible = self.entries().map(|(entry, state)| {
            let mut shown = json!({"proxy": member::masked(&entry.member), "id": member::id(&entry.member),
                "count": whole(entry.allocations()), "state": state});
            if entry.weight() > 1 {
                shown["weight"] = entry.weight().into();
                shown["score"] = entry.count.into();
            }
            if let Some(failures) = self.failures.get(&entry.member) {
                shown["failures"] = json!(failures);
            }
            self.with_others(shown, &entry.member)
        });
        let parked = self.parked.iter().map(|parked| {
            let count = parked.allocations();
            let Parked { member, kind, reason, since_ms, until_ms, in_a_row, .. } = parked;
            let shown = json!({"proxy": member::masked(member), "id": member::id(member), "count": whole(count), "state": "parked",
                "kind": kind.as_str(), "reason": reason, "since_ms": since_ms, "until_ms": until_ms, "in_a_row": in_a_row});
            self.with_others(shown, member)
        });
        let candidates = self.candidates.iter().map(|Candidate { member, due_ms }| {
            let mut shown = json!({"proxy": member::masked(member), "id": member::id(member), "count": 0,
                "state": "candidate", "due_ms": due_ms});
            if let Some(Rejection { reason, in_a_row, .. }) = self.rejections.get(member) {
                (shown["reason"], shown["in_a_row"]) = (json!(reason), json!(in_a_row));
            }
            shown
        });
        Value::Array(eligible.chain(parked).chain(candidates).collect())
    }

    /// And what is known of it in whatever state.
    fn with_others(&self, mut about: Value, member: &Name) -> Value {
        let banned: serde_json::Map<_, _> =
            self.bans_of(member).map(|ban| (ban.host.clone(), ban.until_ms.into())).collect();
        if !banned.is_empty() {
            about["banned_until_ms"] = banned.into();
        }
        if let Some(in_flight) = &self.in_flight {
            about["in_flight"] = in_flight.get(member).copied().unwrap_or_default().into();
        }
        about
    }

    fn bans_of(&self, member: &Name) -> impl Iterator<Item = &BannedBy> {
        self.banned.get(member).into_iter().flatten().filter(|ban| ban.until_ms > self.now_ms)
    }

    /// The hosts that have banned it, at most a few by name.
    fn told_bans(&self, member: &Name) -> String {
        const FEW: usize = 3;
        let mut text = String::new();
        for (n, ban) in self.bans_of(member).take(FEW).enumerate() {
            let host: String = ban.host.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let (before, left) =
                (if n == 0 { "  (banned by " } else { ", " }, ban.until_ms.saturating_sub(self.now_ms));
            let _ = write!(text, "{before}{host} for another {}", span(left));
        }
        match self.bans_of(member).count() {
            0 => text,
            1..=FEW => text + ")",
            count => format!("{text}, and {} more)", count - FEW),
        }
    }

    fn text(&self) -> String {
        let column = |number: &dyn Fn(&HashMap<Name, u64>) -> String| {
            self.in_flight.as_ref().map(|in_flight| format!("  {:>9}", number(in_flight))).unwrap_or_default()
        };
        let mut text = format!(
            "{:>12}{}  {:<11}  {:<9}  proxy\n",
            "allocations",
            column(&|_| "in flight".to_owned()),
            "id",
            "state"
        );
        let mut line = |count: f64, member, state, told: &str| {
            let (id, proxy) = (member::id(member), member::masked(member));
            let in_flight = column(&|all| all.get(member).copied().unwrap_or_default().to_string());
            let bans = self.told_bans(member);
            let _ = writeln!(text, "{:>12}{in_flight}  {id:<11}  {state:<9}  {proxy}{told}{bans}", digits(count));
        };
        for (entry, state) in self.entries() {
            let told = match self.failures.get(&entry.member) {
                Some(1) => "  (its last request failed)".to_owned(),
                Some(failures) => format!("  (its last {failures} requests failed)"),
                None => String::new(),
            };
            line(entry.allocations(), &entry.member, state, &told);
        }
        for parked in &self.parked {
            line(parked.allocations(), &parked.member, "parked", &self.told(parked));
        }
        for Candidate { member, due_ms } in &self.candidates {
            let when = match due_ms.checked_sub(self.now_ms) {
                Some(left @ 1..) => format!("to be looked at in {}", span(left)),
                _ => "to be looked at".to_owned(),
            };
            let told = match self.rejections.get(member) {
                None => format!("  ({when})"),
                Some(Rejection { reason, in_a_row, .. }) => {
                    let times = if *in_a_row > 1 { format!("; {in_a_row} times in a row") } else { String::new() };
                    format!("  (rejected: {}{times}; {when})", on_a_line(reason))
                }
            };
            line(0.0, member, "candidate", &told);
        }
        text
    }

    fn told(&self, parked: &Parked) -> String {
        let reason = on_a_line(&parked.reason);
        let mut text = format!("  (set aside: {}", parked.kind.as_str());
        if !reason.is_empty() {
            let _ = write!(text, ", {reason}");
        }
        if parked.since_ms > 0 {
            let _ = write!(text, "; {} ago", span(self.now_ms.saturating_sub(parked.since_ms)));
        }
        if parked.in_a_row > 1 {
            let _ = write!(text, "; {} times in a row", parked.in_a_row);
        }
        if let Some(until) = parked.until_ms {
            let left = span(until.saturating_sub(self.now_ms));
            let _ = match parked.kind {
                Kind::Unhealthy => {
                    write!(text, "; returns when it passes a check, where none are made tried again in {left}")
                }
                Kind::Cooldown => write!(text, "; tried again in {left}"),
                _ => write!(text, "; returns in {left}"),
            };
        }
        text + ")"
    }
}

/// Counts are whole numbers, unless someone wrote another score.
pub(super) fn whole(score: f64) -> Value {
    let is_whole = score.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&score);
    if is_whole { Value::from(score as u64) } else { Value::from(score) }
}

/// A count or score, in a few digits whatever somebody wrote there.
pub(super) fn digits(score: f64) -> String {
    if score.is_finite() && score.abs() >= 1e15 { format!("{score:e}") } else { score.to_string() }
}

/// Somebody else may have written it: nothing in it may move a terminal's cursor.
fn on_a_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A length of time in its two largest units.
pub(super) fn since(ms: u64) -> String {
    span(now_ms().saturating_sub(ms))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn span(ms: u64) -> String {
    match ms / 1000 {
        s @ ..60 => format!("{s}s"),
        s @ ..3_600 => format!("{}m{}s", s / 60, s % 60),
        s @ ..86_400 => format!("{}h{}m", s / 3_600, s / 60 % 60),
        s => format!("{}d{}h", s / 86_400, s / 3_600 % 24),
    }
}
