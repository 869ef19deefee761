//! `[pool.rules]`: what is asked of members that are checked, and of candidates before they enter.

use std::time::Duration;

use super::reader::Reader;
use super::value::{self, Value};
use crate::list::Protocol;
use crate::probe::Anonymity;
use crate::rules::{Connect, Rules};

/// Room for a store that was away; longer ago, and nobody knows.
const CHECKED_WITHIN: Duration = Duration::from_secs(10 * 60);
/// Free proxies come and go by the minute,
const PAUSE: Duration = Duration::from_secs(5 * 60);
/// and who has been dead for half a day mostly stays so.
const MAX_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

/// The schema, in the order of config.toml.
pub(super) fn read(reader: &mut Reader<'_>) -> Rules {
    let checked_within = reader.key("pool.rules.checked_within", CHECKED_WITHIN, value::timeout);
    let max_latency = reader.key("pool.rules.max_latency", None, |value| match value.text() {
        Some("") => Ok(None),
        _ => value::timeout(value).map(Some),
    });
    let countries = reader.list("pool.rules.countries", country);
    let not_countries = reader.list("pool.rules.not_countries", country);
    let anonymity = reader.key("pool.rules.anonymity", None, anonymity);
    let connect = reader.key("pool.rules.connect", None, connect);
    let max_failures = reader.key("pool.rules.max_failures", None, |value| match value.text() {
        Some("") => Ok(None),
        _ => value::percent(value).map(Some),
    });
    let protocols = reader.list("pool.rules.protocols", |text| {
        text.parse::<Protocol>().map_err(|why| format!("{why}, not {}", Value::Word(text.into())))
    });
    let pause = reader.key("pool.rules.pause", PAUSE, value::timeout);
    let max_pause = reader
        .key("pool.rules.max_pause", MAX_PAUSE.max(pause), |value| super::no_less(value, "pool.rules.pause", pause));
    Rules {
        checked_within,
        max_latency,
        countries,
        not_countries,
        anonymity,
        connect,
        max_failures,
        protocols,
        pause,
        max_pause,
    }
}

fn country(text: &str) -> Result<String, String> {
    let is_code = text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
    let wrong = || format!(r#"must be a country in two letters, like "DE", not {}"#, Value::Word(text.into()));
    if is_code { Ok(text.to_ascii_uppercase()) } else { Err(wrong()) }
}

fn anonymity(value: &Value<'_>) -> Result<Option<Anonymity>, String> {
    match value.text() {
        Some("") => Ok(None),
        Some("transparent") => Ok(Some(Anonymity::Transparent)),
        Some("anonymous") => Ok(Some(Anonymity::Anonymous)),
        Some("elite") => Ok(Some(Anonymity::Elite)),
        _ => Err(format!(r#"must be "transparent", "anonymous", "elite" or "" for any, not {value}"#)),
    }
}

/// Empty: not needed.
fn connect(value: &Value<'_>) -> Result<Option<Connect>, String> {
    match value.text() {
        Some("") => Ok(None),
        Some("judge") => Ok(Some(Connect::Judge)),
        Some(text) => text
            .parse()
            .map(|place| Some(Connect::To(place)))
            .map_err(|why| format!(r#"{why}, or "judge", not {value}"#)),
        None => Err(format!(r#"must be "host:port", "judge" or "" in quotes, not {value}"#)),
    }
}
