//! What the file of a pool looks like: lines of JSON, so that people can read it, and a hash, so that nobody trusts half of one.
//!
//! ```text
//! {"format":"evenkeel state","version":1,"saved_ms":…,"members":2,"sources":1,"hosts":1,"readings":7,…}
//! {"member":"http://10.0.0.7:3128","is":{"eligible":5145.0}}
//! {"member":"http://10.0.0.8:3128","is":{"parked":{"count":5145.0,"kind":"hand","reason":"by hand",…}},"more":{"check":…}}
//! {"source":"list","members":1}
//! {"member":"http://10.0.0.7:3128","found":7}
//! {"host":"shop.example","members":1}
//! {"member":"http://10.0.0.7:3128","until_ms":…}
//! {"sha256":"…"}
//! ```
//!
//! The hash is of all lines before it, and nothing comes behind it. It is no protection against people: it finds files that were cut
//! off, filled with zeros, edited or concatenated.
//! Not here: where the file is, and when it is written ([`super::keeper`]).

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read as _, Write};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::record::{More, Place, Record, Text};
use crate::member::Name;

const FORMAT: &str = "evenkeel state";
/// The only one so far. What this version cannot read, it must not overwrite.
const VERSION: u32 = 1;
/// Longer than any first line of ours: of a foreign file no more is read.
const MAX_HEADER: u64 = 1 << 20;

/// What a pool is, between two processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Content {
    pub(super) members: BTreeMap<Name, Record>,
    /// Turns of those that catch up.
    pub(super) turn: u64,
    pub(super) decayed_ms: Option<u64>,
    pub(super) sources: BTreeMap<String, BTreeMap<Name, u64>>,
    pub(super) readings: u64,
    /// By which rules candidates were judged.
    pub(super) judged_by: Option<String>,
    /// Whom which host has banned, and until when.
    pub(super) bans: BTreeMap<String, BTreeMap<Name, u64>>,
    /// When it was written, in ms since 1970.
    pub(super) saved_ms: u64,
}

impl Content {
    /// One name in memory, not two.
    fn shared(&self, name: Name) -> Name {
        self.members.get_key_value(&name).map_or(name, |(name, _)| name.clone())
    }
}

/// Why a file is of no use.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it is no state of evenkeel")]
    Foreign,
    #[error("a newer version of evenkeel has written it, in format {0}, and this one knows no more than {VERSION}")]
    Newer(u32),
    #[error("it is torn or was changed: {0}")]
    Torn(String),
}

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    saved_ms: u64,
    members: u64,
    sources: u64,
    hosts: u64,
    readings: u64,
    turn: u64,
    decayed_ms: Option<u64>,
    judged_by: Option<String>,
}

/// What every version's header begins with.
#[derive(Deserialize)]
struct Format {
    format: String,
    version: u32,
}

#[derive(Serialize)]
struct MemberLine<'a> {
    member: Text<&'a Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is: Option<&'a Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<&'a More>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberRead {
    member: Text<Name>,
    is: Option<Place>,
    more: Option<Box<More>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceLine {
    source: String,
    members: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostLine {
    host: String,
    members: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "Text<N>: Deserialize<'de>", serialize = "Text<N>: Serialize"))]
struct BannedLine<N> {
    member: Text<N>,
    until_ms: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "Text<N>: Deserialize<'de>", serialize = "Text<N>: Serialize"))]
struct FoundLine<N> {
    member: Text<N>,
    found: u64,
}

/// Writes a whole file.
///
/// # Errors
/// Those of `out`.
pub(super) fn write(out: impl Write, content: &Content) -> io::Result<()> {
    let Content { members, turn, decayed_ms, sources, readings, judged_by, bans, saved_ms } = content;
    let mut out = Hashed { out, hash: Context::new(&SHA256) };
    out.line(&Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        saved_ms: *saved_ms,
        members: members.len() as u64,
        sources: sources.len() as u64,
        hosts: bans.len() as u64,
        readings: *readings,
        turn: *turn,
        decayed_ms: *decayed_ms,
        judged_by: judged_by.clone(),
    })?;
    for (member, record) in members {
        let Record { place, more } = record;
        out.line(&MemberLine { member: Text(member), is: place.as_ref(), more: more.as_deref() })?;
    }
    for (source, named) in sources {
        out.line(&SourceLine { source: source.clone(), members: named.len() as u64 })?;
        for (member, &found) in named {
            out.line(&FoundLine { member: Text(member), found })?;
        }
    }
    for (host, banned) in bans {
        out.line(&HostLine { host: host.clone(), members: banned.len() as u64 })?;
        for (member, &until_ms) in banned {
            out.line(&BannedLine { member: Text(member), until_ms })?;
        }
    }
    let last = last_line(&out.hash);
    out.out.write_all(last.as_bytes())?;
    out.out.flush()
}

/// Reads a whole file. Nothing is believed of one that is not whole.
///
/// # Errors
/// Outside: those of `input`. Inside: what is wrong with what was read.
pub(super) fn read(input: impl BufRead) -> io::Result<Result<Content, Unusable>> {
    let mut lines = Lines { input, hash: Context::new(&SHA256), line: Vec::new(), number: 0 };
    match lines.content() {
        Ok(content) => Ok(Ok(content)),
        Err(Failure::Unusable(why)) => Ok(Err(why)),
        Err(Failure::Io(error)) => Err(error),
    }
}

fn last_line(hash: &Context) -> String {
    let digest = hash.clone().finish();
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"sha256\":\"{hex}\"}}\n")
}

struct Hashed<W> {
    out: W,
    hash: Context,
}

impl<W: Write> Hashed<W> {
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.hash.update(&text);
        self.out.write_all(&text)
    }
}

enum Failure {
    Unusable(Unusable),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn torn(why: impl Into<String>) -> Failure {
    Failure::Unusable(Unusable::Torn(why.into()))
}

struct Lines<R> {
    input: R,
    hash: Context,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn content(&mut self) -> Result<Content, Failure> {
        let foreign = || Failure::Unusable(Unusable::Foreign);
        self.input.by_ref().take(MAX_HEADER).read_until(b'\n', &mut self.line)?;
        self.number = 1;
        let Format { format, version } = serde_json::from_slice(&self.line).map_err(|_| foreign())?;
        if format != FORMAT {
            return Err(foreign());
        }
        if version > VERSION {
            return Err(Failure::Unusable(Unusable::Newer(version)));
        }
        let header: Header = self.parsed()?;
        let mut content = Content {
            turn: header.turn,
            decayed_ms: header.decayed_ms,
            judged_by: header.judged_by,
            readings: header.readings,
            saved_ms: header.saved_ms,
            ..Content::default()
        };
        for _ in 0..header.members {
            let MemberRead { member, is, more } = self.next()?;
            if content.members.insert(member.0, Record { place: is, more }).is_some() {
                return Err(torn(format!("line {}: a member that was there before", self.number)));
            }
        }
        for _ in 0..header.sources {
            let SourceLine { source, members } = self.next()?;
            let mut named = BTreeMap::new();
            for _ in 0..members {
                let FoundLine { member, found } = self.next::<FoundLine<Name>>()?;
                named.insert(content.shared(member.0), found);
            }
            if content.sources.insert(source, named).is_some() {
                return Err(torn(format!("line {}: a source that was there before", self.number)));
            }
        }
        for _ in 0..header.hosts {
            let HostLine { host, members } = self.next()?;
            let mut banned = BTreeMap::new();
            for _ in 0..members {
                let BannedLine { member, until_ms } = self.next::<BannedLine<Name>>()?;
                banned.insert(content.shared(member.0), until_ms);
            }
            if content.bans.insert(host, banned).is_some() {
                return Err(torn(format!("line {}: a host that was there before", self.number)));
            }
        }
        self.end()?;
        Ok(content)
    }

    fn next<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, Failure> {
        self.line.clear();
        self.number += 1;
        self.input.read_until(b'\n', &mut self.line)?;
        self.parsed()
    }

    fn parsed<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T, Failure> {
        if self.line.last() != Some(&b'\n') {
            return Err(torn(format!("it ends in line {}", self.number)));
        }
        self.hash.update(&self.line);
        // The text itself may hold a password: not a word of it in the error.
        serde_json::from_slice(&self.line)
            .map_err(|error| torn(format!("line {}, column {} is not as expected", self.number, error.column())))
    }

    /// The hash, and nothing behind it.
    fn end(&mut self) -> Result<(), Failure> {
        let expected = last_line(&self.hash);
        let mut rest = Vec::with_capacity(expected.len() + 1);
        self.input.by_ref().take(expected.len() as u64 + 1).read_to_end(&mut rest)?;
        if rest == expected.as_bytes() { Ok(()) } else { Err(torn("its hash is not that of its lines")) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::{Aside, Score};
    use super::*;
    use crate::pool::Kind;

    fn any_name() -> impl Strategy<Value = Name> {
        prop_oneof![
            "[ -~]{0,40}".prop_map(Name::from),
            "\\PC{0,12}".prop_map(Name::from),
            prop::collection::vec(any::<u8>(), 0..12).prop_map(Name::from),
        ]
    }

    fn any_score() -> impl Strategy<Value = Score> {
        let numbers = prop_oneof![
            any::<f64>().prop_filter("never in a pool", |score| !score.is_nan()),
            (0_u64..1 << 53).prop_map(|count| count as f64),
            (0_u32..100_000, 1_u16..=1000).prop_map(|(count, weight)| f64::from(count) / f64::from(weight)),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
        ];
        numbers.prop_map(Score)
    }

    fn any_place() -> impl Strategy<Value = Place> {
        let kinds = [Kind::Cooldown, Kind::Unhealthy, Kind::Malformed, Kind::Hand, Kind::Banned];
        let aside = (any_score(), prop::sample::select(kinds.to_vec()), ".{0,20}", any::<u64>(), any::<Option<u64>>());
        prop_oneof![
            any_score().prop_map(Place::Eligible),
            (any_score(), any::<u64>()).prop_map(|(score, turn)| Place::Ramping(score, turn)),
            any::<u64>().prop_map(Place::Candidate),
            (aside, any::<u32>()).prop_map(|((count, kind, reason, since_ms, until_ms), in_a_row)| {
                Place::Parked(Box::new(Aside { count, kind, reason, since_ms, until_ms, in_a_row }))
            }),
        ]
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let rejected = prop::option::of((".{0,9}", any::<u64>(), any::<u32>()));
        let memory = prop::option::of(("[+-]{0,9}", prop::option::of("[A-Z]{2}")));
        let more = (any::<(Option<u32>, Option<u64>, Option<u64>, Option<u64>)>(), rejected, memory);
        let more = more.prop_map(|((streak, failed, trial, check), rejected, memory)| {
            Box::new(More { streak, failed, trial, check, rejected, memory })
        });
        (prop::option::of(any_place()), prop::option::of(more)).prop_map(|(place, more)| Record { place, more })
    }

    prop_compose! {
        fn any_content(most: usize)(
            members in prop::collection::btree_map(any_name(), any_record(), 0..most),
            sources in prop::collection::btree_map(
                ".{0,9}", prop::collection::btree_map(any_name(), any::<u64>(), 0..most), 0..3),
            (turn, readings, saved_ms) in any::<(u64, u64, u64)>(),
            decayed_ms in any::<Option<u64>>(),
            judged_by in prop::option::of(".{0,9}"),
            bans in prop::collection::btree_map(
                ".{0,9}", prop::collection::btree_map(any_name(), any::<u64>(), 0..most), 0..3),
        ) -> Content {
            Content { members, turn, decayed_ms, sources, readings, judged_by, bans, saved_ms }
        }
    }

    fn written(content: &Content) -> Vec<u8> {
        let mut file = Vec::new();
        write(&mut file, content).unwrap();
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_is_written_is_read(content in any_content(12)) {
            prop_assert_eq!(read(&written(&content)[..]).unwrap(), Ok(content));
        }

        #[test]
        fn nothing_that_is_not_ours_is_believed(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(read(&bytes[..]).unwrap(), Err(Unusable::Foreign));
        }
    }

    #[test]
    fn one_bit_more_or_less_anywhere_is_noticed() {
        let mut members = BTreeMap::new();
        let aside = Aside {
            count: Score(5.0),
            kind: Kind::Hand,
            reason: "by \"hand\"".into(),
            since_ms: 7,
            until_ms: Some(9),
            in_a_row: 2,
        };
        let more = Some(Box::new(More { streak: Some(1), trial: Some(3), ..More::default() }));
        members.insert("http://user:s3cret@h:1".into(), Record { place: Some(Place::Parked(aside.into())), more });
        members.insert(
            Name::from_static(b"\xff\xfe"),
            Record { place: Some(Place::Eligible(Score(1.0 / 3.0))), more: None },
        );
        let sources = BTreeMap::from([("list".into(), BTreeMap::from([(Name::from("http://a:1"), 7)]))]);
        let bans = BTreeMap::from([("h.example".into(), BTreeMap::from([(Name::from("http://a:1"), 8)]))]);
        let content =
            Content { members, sources, bans, judged_by: None, readings: 7, turn: 3, decayed_ms: Some(2), saved_ms: 1 };
        let file = written(&content);
        assert_eq!(read(&file[..]).unwrap(), Ok(content));
        for at in 0..file.len() {
            assert!(read(&file[..at]).unwrap().is_err(), "cut off at {at}");
            for bit in 0..8 {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                let why = read(&changed[..]).unwrap().expect_err("noticed");
                assert!(!why.to_string().contains("s3cret"), "{why}");
            }
            let mut zeroed = file.clone();
            zeroed[at..].fill(0);
            assert!(read(&zeroed[..]).unwrap().is_err(), "zeros from {at} on");
        }
        assert!(read(&[&file[..], b"\n"].concat()[..]).unwrap().is_err());
        assert!(read(&[&file[..], &file[..]].concat()[..]).unwrap().is_err());
    }

    #[test]
    fn a_newer_version_is_told_apart_however_it_looks() {
        let newer = b"{\"format\":\"evenkeel state\",\"version\":2,\"compressed\":true}\n\x00\x01";
        assert_eq!(read(&newer[..]).unwrap(), Err(Unusable::Newer(2)));
        let long = [b"{".repeat(2 << 20), written(&Content::default())].concat();
        assert_eq!(read(&long[..]).unwrap(), Err(Unusable::Foreign));
    }
}
