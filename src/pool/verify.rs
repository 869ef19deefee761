//! What is true of a pool that is read from outside: how far counts are apart, how far they may be, and what is wrong.
//!
//! A survey is told what was read, piece by piece, and keeps sums and a few examples, so that it is small however large the
//! pool is: 40 bytes or so per member, to know who was seen already. Its verdict judges.
//! Not here: reading ([`super::redis`]), and repairing. Most of what can be wrong ends when the member is touched next.

mod rule;

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

pub use rule::Rule;

use super::count;
use super::{Entry, Initial, Policy, Rejection};
use crate::member::{self, Member, Name};

/// So many members are kept of each finding.
const EXAMPLES: usize = 20;
/// So many of the lowest are shown.
pub(super) const LOWEST: usize = 5;
/// Scores are doubles: what was computed in two ways may differ by so much of itself.
const EPSILON: f64 = 1e-9;

/// What the configuration has to do with how far counts may be apart.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Who is chosen.
    pub policy: Policy,
    /// Allocations that each worker of a gateway makes ahead of need.
    pub prefetch: usize,
    /// Workers of all gateways.
    pub workers: usize,
    /// Whether counts shrink with time.
    pub decays: bool,
    /// The count a newcomer starts from.
    pub initial: Initial,
    /// The count a member returns with.
    pub restore: Initial,
}

impl Context {
    fn ramps(self) -> bool {
        self.initial == Initial::Ramp || self.restore == Initial::Ramp
    }
}

/// Something about a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub rule: Rule,
    /// What was found, and what to do.
    pub sentence: String,
    /// How many members it is about; 0: it is about a key, or the server.
    pub count: u64,
    /// Some of them, 20 at most.
    pub members: Vec<Name>,
}

/// How many members are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// In the set.
    pub eligible: u64,
    /// Those of them that have a weight above 1.
    pub weighted: u64,
    /// Catching up slowly.
    pub ramping: u64,
    /// Set aside.
    pub parked: u64,
    /// To be looked at.
    pub candidates: u64,
}

/// A judgement.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// How many members are in which state.
    pub numbers: Numbers,
    /// The lowest and the highest score; `None` in an empty pool.
    pub scores: Option<(f64, f64)>,
    /// How far a member without a weight may be ahead of the lowest score; one with weight w by 1 - 1/w less. `None`: counts are
    /// not what members are chosen by.
    pub bound: Option<f64>,
    /// What the bound is made of, beside the 1 that is always there.
    pub widened_by: Vec<String>,
    /// Members that are further ahead of the lowest than they may be.
    pub ahead: u64,
    /// How many allocations go to members that are behind, before the highest is chosen again.
    pub until_level: f64,
    /// What may have moved counts apart, where they are.
    pub causes: Vec<String>,
    /// The lowest, or none where the bound holds.
    pub lowest: Vec<Entry>,
    /// What is wrong, then what is worth a note.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Whether nobody is further ahead than the bound allows.
    pub fn holds(&self) -> bool {
        self.ahead == 0
    }

    /// Whether the bound holds and nothing is wrong; notes do not matter.
    pub fn is_sound(&self) -> bool {
        self.holds() && !self.findings.iter().any(|finding| finding.rule.is_wrong())
    }
}

/// A key of the pool beside the set that holds members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Parked,
    Returns,
    Candidates,
    Streaks,
    Ramping,
    Turns,
    Failures,
    Trials,
    Checks,
    Verdicts,
    Ends,
    Tallies,
    Countries,
}

/// In which keys a member is, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing<'a>(pub(super) &'a [u8]);

impl Standing<'_> {
    fn has(self, digit: usize) -> bool {
        self.0.get(digit) == Some(&b'1')
    }

    /// A candidate, eligible or set aside.
    fn is_known(self) -> bool {
        self.is_in_set()
            || [Place::Parked, Place::Candidates, Place::Ramping].into_iter().any(|place| self.is_in(place))
    }

    fn is_in_set(self) -> bool {
        self.has(0)
    }

    fn is_in(self, place: Place) -> bool {
        self.has(match place {
            Place::Parked => 1,
            Place::Returns => 2,
            Place::Candidates => 3,
            Place::Streaks => 4,
            Place::Ramping => 5,
            Place::Turns => 6,
            Place::Failures => 7,
            Place::Trials => 8,
            Place::Checks => 9,
            Place::Verdicts => 10,
            Place::Ends => 11,
            Place::Tallies => 12,
            Place::Countries => 13,
        })
    }
}

/// A pool while it is read.
pub(super) struct Survey {
    context: Context,
    numbers: Numbers,
    findings: BTreeMap<Rule, Finding>,
    keys: Vec<Finding>,
    /// The highest finite score, and the lowest at the end.
    scores: Option<(f64, f64)>,
    least_weight: Option<u16>,
    ahead: u64,
    /// Of members with finite scores: the sum of weights, and of scores times weights.
    sums: (f64, f64),
    /// Hashes of members of the key that is being read: a scan may show one twice.
    seen: HashSet<u64>,
    ids: HashSet<u64>,
    hasher: RandomState,
    lowest: Vec<Entry>,
}

impl Survey {
    pub(super) fn new(context: Context) -> Self {
        Self {
            context,
            numbers: Numbers::default(),
            findings: BTreeMap::new(),
            keys: Vec::new(),
            scores: None,
            least_weight: None,
            ahead: 0,
            sums: (0.0, 0.0),
            seen: HashSet::new(),
            ids: HashSet::new(),
            hasher: RandomState::new(),
            lowest: Vec::new(),
        }
    }

    /// About a key, or the server.
    pub(super) fn about_keys(&mut self, rule: Rule, sentence: String) {
        self.keys.push(Finding { rule, sentence, count: 0, members: Vec::new() });
    }

    /// The next key is going to be read.
    pub(super) fn next_key(&mut self) {
        self.seen.clear();
    }

    /// Some of the set, how many members it had about then, and its lowest score, read behind them: so that no traffic in
    /// between makes anybody look too far ahead.
    pub(super) fn set(&mut self, page: &[(Name, f64)], size: u64, lowest: f64) {
        let weights = page.iter().map(|(member, _)| count::weight(member)).filter(|&weight| weight > 1);
        self.least_weight = weights.chain(self.least_weight).min();
        let bound = self.bound(size);
        for (member, score) in page {
            if !self.is_new(member) {
                continue;
            }
            let weight = count::weight(member);
            self.numbers.eligible += 1;
            self.numbers.weighted += u64::from(weight > 1);
            let may = bound - 1.0 + 1.0 / f64::from(weight);
            self.ahead += u64::from(score - lowest > may + EPSILON * score.abs().max(1.0));
            let highest = self.scores.map_or(*score, |(_, highest)| highest.max(*score));
            self.scores = Some((lowest.min(highest), highest));
            if score.is_finite() {
                self.sums.0 += f64::from(weight);
                self.sums.1 += score * f64::from(weight);
            }
            self.judge_score(member, *score);
            match Member::parse(member) {
                Ok(parsed) => {
                    let id = parsed.id().get(1..).and_then(|digits| u64::from_str_radix(digits, 16).ok());
                    if id.is_some_and(|id| !self.ids.insert(id)) {
                        self.found(Rule::SharedId, member);
                    }
                }
                Err(_) => self.found(Rule::Malformed, member),
            }
        }
    }

    /// The lowest of the set, when all of it has been read.
    pub(super) fn lowest(&mut self, lowest: Vec<Entry>) {
        if let (Some((least, highest)), Some(first)) = (self.scores, lowest.first()) {
            self.scores = Some((least.max(first.count).min(highest), highest));
        }
        self.lowest = lowest;
    }

    /// A member of another key, what that key holds of it, and in which keys it is.
    pub(super) fn other(&mut self, place: Place, member: &Name, value: &[u8], standing: Standing<'_>) {
        if !standing.is_in(place) || !self.is_new(member) {
            return; // It has gone since, or was seen already.
        }
        let is_eligible = standing.is_in_set() || standing.is_in(Place::Ramping);
        match place {
            Place::Parked => {
                self.numbers.parked += 1;
                let record: Option<serde_json::Value> = serde_json::from_slice(value).ok();
                let record = record.filter(serde_json::Value::is_object);
                let returns = standing.is_in(Place::Returns) || standing.is_in(Place::Trials);
                if is_eligible {
                    self.found(Rule::TwoStates, member);
                } else if record.is_none() {
                    self.found(Rule::Unreadable, member);
                } else if record.is_some_and(|record| record["until_ms"].is_number()) && !returns {
                    self.found(Rule::NeverReturns, member);
                }
            }
            Place::Candidates => {
                self.numbers.candidates += 1;
                if is_eligible || standing.is_in(Place::Parked) {
                    self.found(Rule::TwoStates, member);
                }
            }
            Place::Ramping => {
                self.numbers.ramping += 1;
                let score = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN);
                self.judge_score(member, score);
                if Member::parse(member).is_err() {
                    self.found(Rule::Malformed, member);
                }
                if standing.is_in_set() {
                    self.found(Rule::TwoStates, member);
                } else if !standing.is_in(Place::Turns) {
                    self.found(Rule::NoTurn, member);
                } else if !self.context.ramps() {
                    self.found(Rule::NobodyRamps, member);
                }
            }
            Place::Returns | Place::Trials if !standing.is_in(Place::Parked) => self.found(Rule::Stale, member),
            Place::Turns if !standing.is_in(Place::Ramping) => self.found(Rule::Stale, member),
            Place::Failures | Place::Streaks if !is_eligible => self.found(Rule::Stale, member),
            Place::Checks if !is_eligible && !standing.is_in(Place::Trials) => self.found(Rule::Stale, member),
            Place::Ends if !standing.is_in(Place::Verdicts) => self.found(Rule::Stale, member),
            Place::Verdicts => {
                if !standing.is_in(Place::Ends) {
                    self.found(Rule::NeverEnds, member);
                } else if serde_json::from_slice::<Rejection>(value).is_err() {
                    self.found(Rule::Garbled, member);
                }
            }
            Place::Tallies | Place::Countries if !standing.is_known() => self.found(Rule::Stale, member),
            Place::Tallies if value.len() > 20 || value.iter().any(|mark| !b"+-".contains(mark)) => {
                self.found(Rule::Garbled, member);
            }
            Place::Returns | Place::Trials | Place::Turns | Place::Failures | Place::Streaks => {}
            Place::Checks | Place::Ends | Place::Tallies | Place::Countries => {}
        }
    }

    /// A member that a host has banned, until when, and until when gateways believe that the host has bans.
    pub(super) fn banned(&mut self, member: &Name, until_ms: f64, heard_ms: f64, standing: Standing<'_>) {
        if until_ms > heard_ms {
            self.found(Rule::Unheard, member);
        } else if !standing.is_known() {
            self.found(Rule::Stale, member);
        }
    }

    /// How often a host was given a member, by the host's own counts.
    pub(super) fn given(&mut self, member: &Name, score: f64) {
        self.judge_score(member, score);
    }

    /// What is in flight through a member, and what gateways have in flight through it, together.
    pub(super) fn flying(&mut self, member: &Name, in_flight: &[u8], together: &[u8]) {
        let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        if number(in_flight).is_none() || number(in_flight) != number(together) {
            self.found(Rule::Unbalanced, member);
        }
    }

    pub(super) fn verdict(self) -> Verdict {
        let bound = Some(self.bound(self.numbers.eligible)).filter(|bound| bound.is_finite());
        let highest = self.scores.map_or(0.0, |(_, highest)| highest);
        let until_level = (highest * self.sums.0 - self.sums.1).ceil().max(0.0);
        let (causes, widened_by) = (self.causes(), self.widened_by());
        let Self { numbers, findings, keys, scores, ahead, lowest, .. } = self;
        let mut findings: Vec<Finding> = keys.into_iter().chain(findings.into_values()).collect();
        findings.sort_by_key(|finding| finding.rule);
        let holds = ahead == 0;
        Verdict {
            numbers,
            scores,
            bound,
            widened_by,
            ahead,
            until_level,
            causes: if holds { Vec::new() } else { causes },
            lowest: if holds { Vec::new() } else { lowest },
            findings,
        }
    }

    fn bound(&self, members: u64) -> f64 {
        let Context { policy, prefetch, workers, decays, .. } = self.context;
        if policy != Policy::LeastUsed {
            return f64::INFINITY;
        }
        let mut bound = 1.0;
        if prefetch > 0 {
            bound += workers as f64 * ((prefetch as f64 / members.max(1) as f64).ceil() + 1.0);
        }
        if let (true, Some(weight)) = (decays, self.least_weight) {
            // Rounding may take one allocation of its own from the one that is behind.
            bound += 1.0 / f64::from(weight);
        }
        bound
    }

    fn widened_by(&self) -> Vec<String> {
        let Context { policy, prefetch, workers, decays, .. } = self.context;
        let mut parts = Vec::new();
        if policy != Policy::LeastUsed {
            return parts;
        }
        if let Some(weight) = self.least_weight {
            parts.push("weights: a member of weight w may be ahead by 1 - 1/w less".to_owned());
            if decays {
                parts.push(format!("pool.decay: rounding adds 1/{weight} where members have weights"));
            }
        }
        if prefetch > 0 {
            parts.push(format!(
                "pool.prefetch = {prefetch}: workers × (⌈prefetch / members⌉ + 1) more, with {workers} workers in all"
            ));
        }
        if self.numbers.ramping > 0 {
            parts
                .push("members that catch up slowly are behind, and not in the set: they do not count here".to_owned());
        }
        parts
    }

    fn causes(&self) -> Vec<String> {
        let behind = |policy: Initial| match policy {
            Initial::Keep => Some("keep"),
            Initial::Zero => Some("zero"),
            Initial::Count(_) => Some("a number"),
            Initial::Min | Initial::Median | Initial::Max | Initial::Ramp => None,
        };
        let mut causes = Vec::new();
        if let Some(word) = behind(self.context.initial) {
            causes.push(format!(
                "pool.initial is {word}: who joins is not level, and catches up with all others waiting"
            ));
        }
        if let Some(word) = behind(self.context.restore) {
            causes
                .push(format!("pool.restore is {word}: who returns is behind, and catches up with all others waiting"));
        }
        let written = [Rule::Fraction, Rule::Negative, Rule::TooLarge];
        if written.iter().any(|rule| self.findings.contains_key(rule)) {
            causes.push("another tool has written scores, see below".to_owned());
        } else {
            causes.push("another tool may have written scores: ZADD KEY 0 into a pool with higher counts".to_owned());
        }
        causes.push("retries: each takes the least used of those that its request has not tried".to_owned());
        causes
    }

    fn judge_score(&mut self, member: &Name, score: f64) {
        if count::raised(score, count::weight(member)) <= score {
            self.found(Rule::TooLarge, member);
        } else if !is_whole(member, score) {
            self.found(Rule::Fraction, member);
        }
        if score.is_finite() && score < 0.0 {
            self.found(Rule::Negative, member);
        }
    }

    fn found(&mut self, rule: Rule, member: &Name) {
        let finding = self.findings.entry(rule).or_insert_with(|| Finding {
            rule,
            sentence: rule.about_members().to_owned(),
            count: 0,
            members: Vec::new(),
        });
        finding.count += 1;
        if finding.members.len() < EXAMPLES {
            // A copy: the name is a slice of a whole page.
            finding.members.push(Name::copy_from_slice(member));
        }
    }

    /// By hashes of 64 bits: of a million members two share one by chance once in 37 million runs.
    fn is_new(&mut self, member: &Name) -> bool {
        self.seen.insert(self.hasher.hash_one(member))
    }
}

fn is_whole(member: &Name, score: f64) -> bool {
    let weight = count::weight(member);
    let allocations = count::allocations(score, weight);
    allocations.fract() == 0.0 && (allocations / f64::from(weight) - score).abs() <= f64::EPSILON * score.abs()
}

impl Finding {
    /// The ids and masked URLs of the members that are kept.
    pub fn shown(&self) -> impl Iterator<Item = (String, String)> {
        self.members.iter().map(|name| (member::id(name), member::masked(name)))
    }
}
