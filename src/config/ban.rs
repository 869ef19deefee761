//! `[[pool.ban]]`: what an answer must be like to ban the member it came through.

use std::ops::RangeInclusive;
use std::time::Duration;

use hyper::header::HeaderName;

use super::reader::Entry;
use super::value::{self, Value};
use crate::ban::{self, Field, Pattern, Rule, Scope};

/// Origins that ban by rate forget in minutes; who is still banned then is so again with one answer.
const SPAN: Duration = Duration::from_secs(10 * 60);

/// The schema of one rule, in the order of config.toml. `None`: what is wrong has been said.
pub(super) fn read(entry: &mut Entry<'_, '_>) -> Option<Rule> {
    let rule = Rule {
        status: entry.key("status", Vec::new(), statuses),
        header: entry.key("header", None, |value| text(value).and_then(field)),
        body: entry.key("body", None, |value| text(value).and_then(pattern)),
        hosts: entry.key("hosts", Vec::new(), hosts),
        scope: entry.key("scope", Scope::ProxyAndHost, scope),
        span: entry.key("for", SPAN, value::timeout),
    };
    if ["status", "header", "body"].iter().any(|key| entry.has(key)) {
        return Some(rule);
    }
    entry.mistake("", "would ban whoever answers at all; give status, header or body");
    None
}

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, String> {
    value.text().filter(|text| !text.is_empty()).ok_or_else(|| format!("must be text in quotes, not {value}"))
}

/// One, or a list of them: `429` or `"500-599"`.
fn statuses(value: &Value<'_>) -> Result<Vec<RangeInclusive<u16>>, String> {
    let one = |value: &Value<'_>| {
        let (first, last) = match (value.whole(), value.text()) {
            (Some(status), _) => (status, status),
            (None, Some(text)) => {
                let (first, last) = text.split_once('-')?;
                (first.trim().parse().ok()?, last.trim().parse().ok()?)
            }
            (None, None) => return None,
        };
        let is_sound = (200..=999).contains(&first) && (first..=999).contains(&last);
        is_sound.then_some(first as u16..=last as u16)
    };
    let wrong = |value: &Value<'_>| {
        format!(r#"must be a status from 200 to 999, like 429, or a range like "500-599", not {value}"#)
    };
    match value.items() {
        Ok(items) if items.is_empty() => Err("must name a status, like 429".to_owned()),
        Ok(items) => items.iter().map(|(item, _)| one(item).ok_or_else(|| wrong(item))).collect(),
        Err(_) => Ok(vec![one(value).ok_or_else(|| wrong(value))?]),
    }
}

/// `Name` or `Name: pattern`.
fn field(text: &str) -> Result<Option<Field>, String> {
    let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value.trim())));
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err(format!(r#"must be a field's name, or with a pattern "Name: pattern", not "{text}""#));
    }
    let value = value.filter(|value| !value.is_empty()).map(pattern).transpose()?.flatten();
    Ok(Some(Field { name: name.to_owned(), value }))
}

fn pattern(text: &str) -> Result<Option<Pattern>, String> {
    Pattern::new(text).map(Some).map_err(|why| format!("must be a regular expression, and \"{text}\" is none: {why}"))
}

fn hosts(value: &Value<'_>) -> Result<Vec<String>, String> {
    let one = |(item, _): &value::Item<'_>| {
        let host = item.text().and_then(|text| match text.strip_prefix('.') {
            Some(domain) => Some(format!(".{}", ban::named_host(domain)?)),
            None => ban::named_host(text),
        });
        host.ok_or_else(|| {
            format!(r#"must be hosts like "shop.example", or ".shop.example" for all below it too, not {item}"#)
        })
    };
    value.items()?.iter().map(one).collect()
}

fn scope(value: &Value<'_>) -> Result<Scope, String> {
    match value.text() {
        Some("proxy") => Ok(Scope::Proxy),
        Some("proxy+host") => Ok(Scope::ProxyAndHost),
        _ => Err(format!(r#"must be "proxy" or "proxy+host", not {value}"#)),
    }
}
