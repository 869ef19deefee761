//! The rules of eligibility (`[pool.rules]`): what a probe must have found for a candidate to enter the pool, and for a member
//! to stay.
//!
//! Pure: a [`Verdict`] and what is remembered of the member go in, a [`Ruling`] comes out. Rules that are not set hold for all.
//! Not here: probing, and what follows from a ruling ([`crate::health`]).

use std::time::Duration;

use crate::list::Protocol;
use crate::member::Member;
use crate::pool::Memory;
use crate::probe::{Anonymity, Place, Verdict};

/// Fewer checks say nothing about a share.
const LEAST_CHECKS: u32 = 5;

/// `[pool.rules]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// A check that was passed longer ago counts for nothing.
    pub checked_within: Duration,
    /// The longest until the whole answer has come.
    pub max_latency: Option<Duration>,
    /// The countries of exit, one of which it must be in, as two capitals (ISO 3166-1); empty: any.
    pub countries: Vec<String>,
    /// Those that it must not be in.
    pub not_countries: Vec<String>,
    /// It must tell no more than this.
    pub anonymity: Option<Anonymity>,
    /// It must open tunnels.
    pub connect: Option<Connect>,
    /// Less than so many percent of its last checks may have failed.
    pub max_failures: Option<u8>,
    /// What is spoken with it, in a chain with the last; empty: anything.
    pub protocols: Vec<Protocol>,
    /// A candidate that was rejected is looked at again after this, doubled for each time in a row,
    pub pause: Duration,
    /// but after no more than this.
    pub max_pause: Duration,
}

/// Where a tunnel must lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connect {
    /// To the judge's own host and port.
    Judge,
    /// To this place.
    To(Place),
}

/// What the rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// All are met.
    Meets,
    /// This one is not.
    Breaks(String),
    /// Nobody can tell, for a reason that is not the member's.
    Unclear,
}

impl Rules {
    /// Whether the page that is asked must say what it saw.
    pub fn need_testimony(&self) -> bool {
        self.anonymity.is_some()
    }

    /// Whether what is remembered of a member matters.
    pub fn need_memory(&self) -> bool {
        self.max_failures.is_some() || self.need_country()
    }

    /// Whether it matters where a member is.
    pub fn need_country(&self) -> bool {
        !self.countries.is_empty() || !self.not_countries.is_empty()
    }

    /// Whether anything is asked of those who pass a check.
    pub fn are_any(&self) -> bool {
        let Self { max_latency, anonymity, connect, protocols, .. } = self;
        max_latency.is_some() || anonymity.is_some() || connect.is_some() || !protocols.is_empty() || self.need_memory()
    }

    /// What they say of a member that has passed a check. `knows_us`: the judge was also asked without a member between.
    pub fn judge(&self, member: &Member, verdict: &Verdict, memory: &Memory, knows_us: bool) -> Ruling {
        let breaks = |why: String| Ruling::Breaks(why);
        if let Some(why) = self.refuses(member) {
            return breaks(why);
        }
        if let (Some(most), Some(took)) = (self.max_latency, verdict.total)
            && took > most
        {
            return breaks(format!("it takes {} ms, and may take {}", took.as_millis(), most.as_millis()));
        }
        if let Some(why) = self.misplaced(verdict.country.as_ref().or(memory.country.as_ref())) {
            return breaks(why);
        }
        match (self.anonymity, verdict.anonymity) {
            (Some(least), Some(found)) if found < least => {
                return breaks(format!("it is {}, and must be {}", found.name(), least.name()));
            }
            (Some(_), None) if !knows_us => return Ruling::Unclear,
            (Some(_), None) => return breaks("health.url does not say how anonymous it is".to_owned()),
            _ => {}
        }
        if self.connect.is_some() && verdict.can_connect != Some(true) {
            let why = verdict.connect_fault.as_ref().map_or(String::new(), |fault| format!(": {}", fault.reason));
            return breaks(format!("it opens no tunnel{why}"));
        }
        let Memory { passed, failed, .. } = memory;
        if let Some(most) = self.max_failures
            && passed + failed >= LEAST_CHECKS
            && failed * 100 >= u32::from(most) * (passed + failed)
        {
            return breaks(format!("{failed} of its last {} checks failed", passed + failed));
        }
        Ruling::Meets
    }

    fn refuses(&self, member: &Member) -> Option<String> {
        let scheme = member.scheme();
        let is_named = self.protocols.iter().any(|protocol| protocol.name() == scheme);
        (!self.protocols.is_empty() && !is_named).then(|| format!("{scheme} is none of pool.rules.protocols"))
    }

    fn misplaced(&self, country: Option<&String>) -> Option<String> {
        let named = |list: &[String]| country.is_some_and(|country| list.contains(country));
        match country {
            Some(country) if named(&self.not_countries) => {
                Some(format!("it is in {}, which pool.rules.not_countries names", shown(country)))
            }
            Some(country) if !self.countries.is_empty() && !named(&self.countries) => {
                Some(format!("it is in {}, which is none of pool.rules.countries", shown(country)))
            }
            None if self.need_country() => Some("nobody says which country it is in".to_owned()),
            _ => None,
        }
    }
}

/// A list may say anything.
fn shown(country: &str) -> String {
    country.escape_default().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::member::Name;
    use crate::probe::Fault;

    fn ruling(change: impl Fn(&mut Rules), verdict: &Verdict, memory: &Memory, knows_us: bool) -> Ruling {
        let mut rules = Config::default().pool.rules;
        change(&mut rules);
        let member = Member::parse(&Name::from("socks5h://u:s3cret@10.0.0.7:1080")).unwrap();
        rules.judge(&member, verdict, memory, knows_us)
    }

    #[test]
    fn each_rule_is_held_against_what_was_found() {
        let of = |total, country: Option<&str>, anonymity, can_connect| Verdict {
            total: Some(Duration::from_millis(total)),
            country: country.map(str::to_owned),
            anonymity,
            can_connect,
            ..Verdict::default()
        };
        let good = of(900, Some("DE"), Some(Anonymity::Anonymous), Some(true));
        let none = Memory::default();
        type Change = fn(&mut Rules);
        let cases: [(Change, Verdict, &str); 9] = [
            (|rules| rules.max_latency = Some(Duration::from_secs(1)), of(1001, None, None, None), "it takes 1001 ms"),
            (
                |rules| rules.countries = vec!["DE".into(), "FR".into()],
                of(1, Some("US"), None, None),
                "in US, which is none",
            ),
            (|rules| rules.countries = vec!["DE".into()], of(1, None, None, None), "nobody says which country"),
            (|rules| rules.not_countries = vec!["US".into()], of(1, Some("US"), None, None), "in US, which pool.rules"),
            (|rules| rules.not_countries = vec!["US".into()], of(1, None, None, None), "nobody says which country"),
            (
                |rules| rules.anonymity = Some(Anonymity::Anonymous),
                of(1, None, Some(Anonymity::Transparent), None),
                "it is transparent, and must be anonymous",
            ),
            (
                |rules| rules.anonymity = Some(Anonymity::Transparent),
                of(1, None, None, None),
                "does not say how anonymous",
            ),
            (
                |rules| rules.connect = Some(Connect::Judge),
                Verdict {
                    connect_fault: Some(Fault { error: String::new(), reason: "403".into(), received_status: None }),
                    ..of(1, None, None, Some(false))
                },
                "it opens no tunnel: 403",
            ),
            (
                |rules| rules.protocols = vec![Protocol::Http, Protocol::Socks5],
                of(1, None, None, None),
                "socks5h is none",
            ),
        ];
        for (change, verdict, expected) in cases {
            let Ruling::Breaks(why) = ruling(change, &verdict, &none, true) else { panic!("{expected}") };
            assert!(why.contains(expected), "{why}: {expected}");
            if !expected.starts_with("socks5h") {
                assert_eq!(ruling(change, &good, &none, true), Ruling::Meets, "{expected}");
            }
        }
        assert_eq!(ruling(|rules| rules.protocols = vec![Protocol::Socks5h], &good, &none, true), Ruling::Meets);
    }

    #[test]
    fn what_a_list_says_counts_where_the_judge_is_silent() {
        let silent = Verdict::default();
        let listed = |country: &str| Memory { country: Some(country.into()), ..Memory::default() };
        let german: fn(&mut Rules) = |rules| rules.countries = vec!["DE".into()];
        assert_eq!(ruling(german, &silent, &listed("DE"), true), Ruling::Meets);
        assert!(matches!(ruling(german, &silent, &listed("US"), true), Ruling::Breaks(_)));
        let judged = Verdict { country: Some("US".into()), ..Verdict::default() };
        assert!(matches!(ruling(german, &judged, &listed("DE"), true), Ruling::Breaks(_)), "the judge saw it");
    }

    #[test]
    fn a_share_needs_some_checks() {
        let few: fn(&mut Rules) = |rules| rules.max_failures = Some(50);
        let of = |passed, failed| Memory { passed, failed, country: None };
        for (memory, meets) in [(of(1, 3), true), (of(3, 2), true), (of(10, 10), false), (of(1, 4), false)] {
            assert_eq!(ruling(few, &Verdict::default(), &memory, true) == Ruling::Meets, meets, "{memory:?}");
        }
    }

    #[test]
    fn nobody_is_held_to_what_cannot_be_known() {
        let hidden: fn(&mut Rules) = |rules| rules.anonymity = Some(Anonymity::Elite);
        assert_eq!(ruling(hidden, &Verdict::default(), &Memory::default(), false), Ruling::Unclear);
    }
}
