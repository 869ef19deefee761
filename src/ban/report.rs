//! `X-Evenkeel-Report`: a client tells what the gateway cannot see, since it happened inside a tunnel.
//!
//! ```text
//! X-Evenkeel-Report: ban; proxy=p52dc652fc2; host=shop.example; for=10m; reason="captcha"
//! ```
//!
//! It is about an earlier answer, comes with any request or CONNECT, and goes no further than this gateway. `proxy` is the id that
//! `Proxy-Status` gave. A report may be a lie: it counts only where the operator wants it to, and bans no more than rules may.

use std::collections::HashMap;
use std::time::Duration;

use super::named_host;
use crate::config;
use crate::member::{self, Name};

/// How long a ban is that does not say it, and at most.
const SPAN: Duration = Duration::from_secs(10 * 60);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Of a reason, so many characters are kept.
const REASON: usize = 200;
/// Members that are known by their ids, per generation.
const KNOWN: usize = 16 << 10;

/// What a client reports.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Report {
    /// Of the member.
    pub(super) id: String,
    pub(super) host: Option<String>,
    pub(super) span: Duration,
    pub(super) reason: String,
}

impl Report {
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(value: &[u8]) -> Result<Self, &'static str> {
        let parts: Vec<_> = value.split(outside_quotes(b';')).map(String::from_utf8_lossy).collect();
        let mut parts = parts.iter().map(|part| part.trim());
        if !parts.next().is_some_and(|word| word.eq_ignore_ascii_case("ban")) {
            return Err("X-Evenkeel-Report must begin with ban, like: ban; proxy=p0123456789; host=shop.example");
        }
        let mut report = Self { id: String::new(), host: None, span: SPAN, reason: "reported by a client".to_owned() };
        for part in parts.filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').map_or((part, String::new()), |(name, v)| (name, unquoted(v)));
            match &name.trim().to_ascii_lowercase()[..] {
                "proxy" if member::is_id(&value) => report.id = value,
                "proxy" => {
                    return Err("X-Evenkeel-Report: proxy must be the id that Proxy-Status gave, like p0123456789");
                }
                "host" => {
                    let host = named_host(&value);
                    report.host =
                        Some(host.ok_or("X-Evenkeel-Report: host must be a name or an address, without a port")?);
                }
                "for" => match config::span(&value) {
                    Ok(span) => report.span = span.min(LONGEST),
                    Err(_) => return Err("X-Evenkeel-Report: for must be a length of time like 30s, 10m or 12h"),
                },
                "reason" => {
                    let kept = value.chars().filter(|c| !c.is_control()).take(REASON);
                    report.reason = format!("reported by a client: {}", kept.collect::<String>());
                }
                _ => return Err("X-Evenkeel-Report has proxy, host, for and reason, and nothing else"),
            }
        }
        if report.id.is_empty() { Err("X-Evenkeel-Report must say which proxy it is about") } else { Ok(report) }
    }
}

/// The reports of one field line: several may have been joined to a list on the way (RFC 9110 §5.3).
pub(super) fn each(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(outside_quotes(b',')).map(<[u8]>::trim_ascii).enumerate().filter_map(|(n, report)| {
        // A list may have empty places (§5.6.1.2); a value may not be one.
        (n == 0 || !report.is_empty()).then_some(report)
    })
}

/// Finds a separator that is not in a quoted string (RFC 9110 §5.6.4), byte after byte.
fn outside_quotes(separator: u8) -> impl FnMut(&u8) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    move |&byte| {
        let is_found = byte == separator && !is_quoted;
        if byte == b'"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = is_quoted && byte == b'\\' && !is_escaped;
        is_found
    }
}

/// A token, or what a quoted string stands for (RFC 9110 §5.6.4).
fn unquoted(value: &str) -> String {
    let value = value.trim();
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return value.to_owned() };
    let mut is_escaped = false;
    inner
        .chars()
        .filter(|&c| {
            is_escaped = c == '\\' && !is_escaped;
            !is_escaped
        })
        .collect()
}

/// Members by the ids that clients were told, the last ones that served.
#[derive(Default)]
pub(super) struct Ids {
    young: HashMap<String, Name>,
    old: HashMap<String, Name>,
}

impl Ids {
    pub(super) fn remember(&mut self, id: &str, member: &Name) {
        if self.young.contains_key(id) {
            return;
        }
        if self.young.len() >= KNOWN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id.to_owned(), Name::copy_from_slice(member));
    }

    pub(super) fn find(&self, id: &str) -> Option<&Name> {
        self.young.get(id).or_else(|| self.old.get(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_in_every_form_that_parameters_have() {
        let full = br#"BAN ;proxy=p0123456789;  Host="Shop.Example."; for=30s ; reason="a \"captcha\"; again";"#;
        let report = Report::read(full).unwrap();
        assert_eq!((&*report.id, report.host.as_deref()), ("p0123456789", Some("shop.example")));
        assert_eq!(
            (report.span, &*report.reason),
            (Duration::from_secs(30), r#"reported by a client: a "captcha"; again"#)
        );
        let short = Report::read(b"ban; proxy=p0123456789; for=8000h").unwrap();
        assert_eq!((short.host, short.span, &*short.reason), (None, LONGEST, "reported by a client"));
    }

    #[test]
    fn several_reports_may_share_a_line() {
        let line = br#"ban; proxy=p0123456789; reason="a, b\", c",, BAN;proxy=p1123456789 ,"#;
        let ids: Vec<_> = each(line).map(|report| Report::read(report).unwrap().id).collect();
        assert_eq!(ids, ["p0123456789", "p1123456789"]);
        assert_eq!(each(b"").count(), 1);
    }

    #[test]
    fn whatever_else_is_sent_is_refused_with_what_is_wrong() {
        for wrong in [
            &b""[..],
            b"ban",
            b"unban; proxy=p0123456789",
            b"ban; proxy=http://user:s3cret@h:1",
            b"ban; proxy=p0123456789; host=shop.example:443",
            b"ban; proxy=p0123456789; host=",
            b"ban; proxy=p0123456789; for=soon",
            b"ban; proxy=p0123456789; until=now",
            b"ban; proxy=\"p0123456789",
            b"\xff\xfe; \"\\",
            b"ban; proxy=p0123456789; host=%73hop.example",
            b"ban; proxy=p0123456789; reason=a, b",
        ] {
            let why = each(wrong).find_map(|report| Report::read(report).err()).unwrap();
            assert!(why.starts_with("X-Evenkeel-Report") && !why.contains("s3cret"), "{}", wrong.escape_ascii());
        }
    }
}
