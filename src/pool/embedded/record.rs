//! All that is kept of one member, taken out of the state and put back: what a restart must not lose.
//!
//! Not here: what is in flight (it ends with the process), and in which order members are chosen (it follows from their counts).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::state::State;
use crate::member::Name;
use crate::pool::count::Count;
use crate::pool::{Kind, Parked, Rejection};

/// Everything about a member but its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    pub(super) place: Option<Place>,
    /// On the heap: most members have none of it, and there are many.
    pub(super) more: Option<Box<More>>,
}

/// In which state it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Place {
    /// With this count.
    Eligible(Score),
    /// With this count, and the turn that is its next.
    Ramping(Score, u64),
    /// Why, and what goes with it.
    Parked(Box<Aside>),
    /// When it is looked at.
    Candidate(u64),
}

/// What else is known of some.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct More {
    /// How often in a row it was set aside, if it is back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) streak: Option<u32>,
    /// When it failed last, and how often in a row (`State::failures`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<u64>,
    /// When it may be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trial: Option<u64>,
    /// When it is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) check: Option<u64>,
    /// Why it was rejected as a candidate, until when that holds, and how often in a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejected: Option<(String, u64, u32)>,
    /// Its last checks, and its country.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<(String, Option<String>)>,
}

/// [`Parked`] without its member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Aside {
    pub(super) count: Score,
    #[serde(serialize_with = "write_kind", deserialize_with = "read_kind")]
    pub(super) kind: Kind,
    pub(super) reason: String,
    pub(super) since_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until_ms: Option<u64>,
    pub(super) in_a_row: u32,
}

/// A count as JSON has it: which knows no infinity, so that is a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score(pub(super) f64);

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() { serializer.serialize_f64(self.0) } else { serializer.collect_str(&self.0) }
    }
}

impl<'de> Deserialize<'de> for Score {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Word(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Self(number)),
            Written::Word(word) => match &*word {
                "inf" => Ok(Self(f64::INFINITY)),
                "-inf" => Ok(Self(f64::NEG_INFINITY)),
                _ => Err(D::Error::custom("a count that is no number")),
            },
        }
    }
}

/// A member's bytes: as text, or where they are none in base64.
pub(super) struct Text<T>(pub(super) T);

impl Serialize for Text<&Name> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => [BASE64.encode(self.0)].serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text<Name> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Bytes([String; 1]),
        }
        match Written::deserialize(deserializer)? {
            Written::Text(text) => Ok(Self(text.into())),
            Written::Bytes([encoded]) => {
                BASE64.decode(encoded).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
            }
        }
    }
}

fn write_kind<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.as_str())
}

fn read_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    let word = String::deserialize(deserializer)?;
    Kind::read(&word).ok_or_else(|| D::Error::custom("a kind of being set aside that there is not"))
}

impl State {
    /// `None`: it is not known.
    pub(super) fn record(&self, member: &Name) -> Option<Record> {
        let place = if let Some((_, count)) = self.counts.get(member) {
            Some(Place::Eligible(Score(count.0)))
        } else if let Some((count, turn)) = self.ramp.get(member) {
            Some(Place::Ramping(Score(count.0), turn))
        } else if let Some(Parked { count, kind, reason, since_ms, until_ms, in_a_row, .. }) = self.parked.get(member) {
            Some(Place::Parked(Box::new(Aside {
                count: Score(*count),
                kind: *kind,
                reason: reason.clone(),
                since_ms: *since_ms,
                until_ms: *until_ms,
                in_a_row: *in_a_row,
            })))
        } else {
            self.candidates.get(member).map(Place::Candidate)
        };
        let more = More {
            streak: self.streaks.get(member).copied(),
            failed: self.failures.get(member),
            trial: self.trials.get(member),
            check: self.checks.get(member),
            rejected: self.verdicts.rejections.get(member).map(|(_, rejection)| {
                let Rejection { reason, until_ms, in_a_row } = rejection;
                (reason.clone(), *until_ms, *in_a_row)
            }),
            memory: self.verdicts.memory.get(member).map(|(_, memory)| memory.clone()),
        };
        let more = (more != More::default()).then(|| Box::new(more));
        (place.is_some() || more.is_some()).then_some(Record { place, more })
    }

    /// Puts back what [`State::record`] has told of a member that is not there.
    pub(super) fn put_record(&mut self, member: &Name, record: &Record) {
        let more = record.more.as_deref().cloned().unwrap_or_default();
        let More { streak, failed, trial, check, rejected, memory } = more;
        if let Some((reason, until_ms, in_a_row)) = rejected {
            self.verdicts.rejections.put(member.clone(), Rejection { reason, until_ms, in_a_row });
        }
        if let Some(memory) = memory {
            self.verdicts.memory.put(member.clone(), memory);
        }
        for (order, number) in [(&mut self.failures, failed), (&mut self.trials, trial), (&mut self.checks, check)] {
            if let Some(number) = number {
                order.put(member, number);
            }
        }
        if let Some(streak) = streak {
            self.streaks.insert(member.clone(), streak);
        }
        match &record.place {
            None => {}
            Some(Place::Eligible(count)) => self.put(member.clone(), Count(count.0)),
            Some(Place::Ramping(count, turn)) => self.ramp.put_at(member.clone(), Count(count.0), *turn),
            Some(Place::Candidate(due)) => self.candidates.put(member, *due),
            Some(Place::Parked(aside)) => {
                let Aside { count, kind, reason, since_ms, until_ms, in_a_row } = &**aside;
                if let (Some(until), None) = (until_ms, trial) {
                    self.returns.insert((*until, member.clone()));
                }
                let parked = Parked {
                    member: member.clone(),
                    count: count.0,
                    kind: *kind,
                    reason: reason.clone(),
                    since_ms: *since_ms,
                    until_ms: *until_ms,
                    in_a_row: *in_a_row,
                };
                self.parked.insert(member.clone(), parked);
            }
        }
    }
}
