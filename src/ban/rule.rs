//! What an answer must be like to ban the member it came through: pure, values in and a verdict out.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};

/// One `[[pool.ban]]`: all that it names must be so.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Any of these; empty: any status.
    pub status: Vec<RangeInclusive<u16>>,
    /// One field that the answer has.
    pub header: Option<Field>,
    /// What is somewhere in the first [`BODY`] bytes of the body.
    pub body: Option<Pattern>,
    /// Answers of these hosts only; empty: of any. In lower case; with a dot in front, those below it as well.
    pub hosts: Vec<String>,
    /// Whom it bans from what.
    pub scope: Scope,
    /// For how long.
    pub span: Duration,
}

/// Whom a ban keeps from what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The member gets no requests.
    Proxy,
    /// It gets none to the host whose answer it was.
    ProxyAndHost,
}

/// A header field, and what its value is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name, as it was written; case does not matter.
    pub name: String,
    /// Without one it only has to be there.
    pub value: Option<Pattern>,
}

impl Field {
    /// Whether a field with this value is such a one.
    pub(crate) fn is_met_by(&self, value: &[u8]) -> bool {
        self.value.as_ref().is_none_or(|pattern| pattern.is_in(value))
    }
}

/// A regular expression over bytes, without Unicode classes. Matching takes time in proportion to what is looked at.
#[derive(Clone)]
pub struct Pattern(Regex);

/// As much of a body is looked at.
pub const BODY: usize = 4096;
/// The largest pattern, compiled: far more than anyone writes by hand.
const MAX_COMPILED: usize = 256 << 10;

impl Pattern {
    /// # Errors
    /// What is wrong with it, in one line.
    pub fn new(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).unicode(false).size_limit(MAX_COMPILED).build();
        built.map(Self).map_err(|error| {
            // The last line says it; those before point into the pattern.
            let text = error.to_string();
            text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
        })
    }

    /// Whether it is found in there.
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }

    /// Whether it is found in there whatever comes behind. What a pattern asks of its surroundings (`$`, `\\b`) looks one
    /// byte ahead, so a match that ends before the last byte stays one.
    pub(super) fn is_surely_in(&self, bytes: &[u8]) -> bool {
        self.0.shortest_match(bytes).is_some_and(|end| end < bytes.len())
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_str())
    }
}

impl Rule {
    /// Whether an answer with this status may be one that it is about.
    pub(super) fn names(&self, status: u16) -> bool {
        self.status.is_empty() || self.status.iter().any(|range| range.contains(&status))
    }

    /// Whether an answer of `host` may be one that it is about.
    pub(super) fn is_about(&self, host: &str) -> bool {
        let is_one = |known: &String| match known.strip_prefix('.') {
            Some(domain) => host == domain || host.strip_suffix(domain).is_some_and(|below| below.ends_with('.')),
            None => known == host,
        };
        self.hosts.is_empty() || self.hosts.iter().any(is_one)
    }

    /// Why, in words.
    pub(super) fn reason(&self, host: &str, status: u16) -> String {
        match self {
            Self { header: None, body: None, .. } => format!("{status} from {host}"),
            Self { header: Some(Field { name, .. }), body: None, .. } => format!("{status} with {name} from {host}"),
            Self { body: Some(_), .. } => format!("{status} with a body that says so from {host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(status: &[RangeInclusive<u16>], hosts: &[&str]) -> Rule {
        Rule {
            status: status.to_vec(),
            header: None,
            body: None,
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            scope: Scope::Proxy,
            span: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_rule_is_about_its_status_and_its_hosts() {
        let statuses = rule(&[403..=403, 500..=599], &[]);
        assert_eq!(
            [402, 403, 404, 499, 500, 599, 600].map(|status| statuses.names(status)),
            [false, true, false, false, true, true, false]
        );
        let hosts = rule(&[], &["shop.example", ".wide.example", "[::1]"]);
        for host in ["shop.example", "wide.example", "a.wide.example", "a.b.wide.example", "[::1]"] {
            assert!(hosts.is_about(host), "{host}");
        }
        for host in ["a.shop.example", "myshop.example", "awide.example", "example", "", ".wide.example.org"] {
            assert!(!hosts.is_about(host), "{host}");
        }
    }

    #[test]
    fn a_pattern_finds_bytes_and_says_in_one_line_what_is_wrong() {
        let pattern = Pattern::new("(?i)access denied").unwrap();
        assert!(pattern.is_in(b"\xff\xfe ACCESS Denied") && !pattern.is_in(b"access"));
        for open_ended in ["denied$", r"denied\b", "denied", "(?m)denied$", r"denied\z", "den.*ed", "x*$"] {
            let pattern = Pattern::new(open_ended).unwrap();
            assert!(pattern.is_in(b"access denied") && !pattern.is_surely_in(b"access denied"), "{open_ended}");
        }
        assert!(Pattern::new(r"denied\b").unwrap().is_surely_in(b"access denied."));
        assert!(Pattern::new("(").is_err_and(|why| why == "unclosed group"));
        assert!(Pattern::new("a{1000}{1000}").is_err_and(|why| !why.contains('\n')));
    }
}
