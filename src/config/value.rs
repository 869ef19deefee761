//! One value as it was given, and the forms it may take.
//!
//! A form is a function from [`Value`] to what the gateway uses, or to the sentence that says what must be written.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::mistake::masked;
use crate::fetch::Url;

/// A value before its form is known.
pub(super) enum Value<'a> {
    /// From the environment or a flag, where everything is text: it may turn out to be a number or a list.
    Word(Cow<'a, str>),
    /// From a file, where `5` and `"5"` differ.
    Toml(&'a DeValue<'a>),
}

/// One value of a list, and where it begins in the file.
pub(super) type Item<'a> = (Value<'a>, Option<usize>);

/// A day: whatever should wait longer should not be waited for.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

impl<'a> Value<'a> {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Toml(value) => value.as_str(),
        }
    }

    pub(super) fn whole(&self) -> Option<u64> {
        match self {
            Self::Word(word) => word.parse().ok(),
            Self::Toml(value) => value.as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok()),
        }
    }

    fn switch(&self) -> Option<bool> {
        match self {
            Self::Word(word) => word.parse().ok(),
            Self::Toml(value) => value.as_bool(),
        }
    }

    /// A word is a list when it is written as in the file, or with commas between.
    pub(super) fn items(&self) -> Result<Vec<Item<'_>>, String> {
        let items = match self {
            Self::Toml(DeValue::Array(array)) => {
                Some(array.iter().map(|item| (Value::Toml(item.get_ref()), Some(item.span().start))).collect())
            }
            Self::Toml(_) => None,
            Self::Word(word) if word.trim_start().starts_with('[') => words(word),
            Self::Word(word) => {
                let parts = word.split(',').map(str::trim).filter(|part| !part.is_empty());
                Some(parts.map(|part| (Value::Word(part.into()), None)).collect())
            }
        };
        items.ok_or_else(|| format!(r#"must be a list like ["a", "b"], not {self}"#))
    }
}

/// The strings of an array written in TOML; owned, since the parsed array ends here.
fn words(array: &str) -> Option<Vec<Item<'static>>> {
    let array = DeValue::parse(array).ok()?;
    let word = |item: &DeValue<'_>| Some((Value::Word(item.as_str()?.to_owned().into()), None));
    array.get_ref().as_array()?.iter().map(|item| word(item.get_ref())).collect()
}

/// As written, for a message: text in quotes and masked.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(text) => write!(f, "\"{}\"", masked(text)),
            Self::Toml(DeValue::String(text)) => write!(f, "\"{}\"", masked(text)),
            Self::Toml(DeValue::Integer(number)) => write!(f, "{number}"),
            Self::Toml(DeValue::Float(number)) => write!(f, "{number}"),
            Self::Toml(DeValue::Boolean(switch)) => write!(f, "{switch}"),
            Self::Toml(other) => write!(f, "this {}", other.type_str()),
        }
    }
}

/// A page, or "" for none; `like` one for example. What is no URL is not shown: nobody knows which part of it is a password.
pub(super) fn page(value: &Value<'_>, like: &str) -> Result<Option<Url>, String> {
    match value.text() {
        Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|why| format!("must be a URL like {like:?}, and this one {why}")),
        None => Err(format!("must be a URL like {like:?}, not {value}")),
    }
}

/// A file, or "" for none.
pub(super) fn file(value: &Value<'_>) -> Result<Option<PathBuf>, String> {
    match value.text() {
        Some("") => Ok(None),
        Some(text) if !text.contains('\0') && !text.ends_with('/') => Ok(Some(text.into())),
        _ => Err(format!("must be the path of a file, not {value}")),
    }
}

/// Where to listen. A name other than localhost could be many addresses, or another machine's.
pub(super) fn address(value: &Value<'_>) -> Result<SocketAddr, String> {
    const FORM: &str = r#"must be IP:port or localhost:port, like "127.0.0.1:8080", "[::1]:8080" or "0.0.0.0:8080""#;
    let parse = |text: &str| match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        None => text.parse().ok(),
    };
    value.text().and_then(parse).ok_or_else(|| format!("{FORM}, not {value}"))
}

pub(super) fn switch(value: &Value<'_>) -> Result<bool, String> {
    value.switch().ok_or_else(|| format!("must be true or false, not {value}"))
}

pub(super) fn whole<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&Value<'_>) -> Result<T, String> {
    move |value| {
        let number = value.whole().filter(|number| range.contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("must be a whole number from {} to {}, not {value}", range.start(), range.end()))
    }
}

/// A length of time that may be zero, up to a day.
pub(super) fn duration(value: &Value<'_>) -> Result<Duration, String> {
    match value.text().and_then(parse_duration) {
        Some(duration) if duration <= MAX_DURATION => Ok(duration),
        Some(_) => Err(format!("must be at most 24h, not {value}")),
        None => Err(format!(
            r#"must be a length of time like "500ms", "30s", "10m", "1h" or "1m30s", at most "24h", not {value}"#
        )),
    }
}

/// As [`duration`], but waiting not at all would fail every time.
pub(super) fn timeout(value: &Value<'_>) -> Result<Duration, String> {
    match duration(value)? {
        Duration::ZERO => Err(format!(r#"must be longer than nothing, from "1ms" to "24h", not {value}"#)),
        duration => Ok(duration),
    }
}

/// From 1 % to 100 %.
pub(super) fn percent(value: &Value<'_>) -> Result<u8, String> {
    let number = value.text().and_then(|text| text.strip_suffix('%')).and_then(|number| number.parse().ok());
    number
        .filter(|number| (1..=100).contains(number))
        .ok_or_else(|| format!(r#"must be a share from "1%" to "100%", not {value}"#))
}

/// As [`timeout`], up to a year: somebody's wish, and nobody waits for its end.
pub(super) fn span(value: &Value<'_>) -> Result<Duration, String> {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    value
        .text()
        .and_then(parse_duration)
        .filter(|span| (Duration::from_millis(1)..=YEAR).contains(span))
        .ok_or_else(|| format!(r#"must be a length of time like "30s", "10m" or "12h", at most "8760h", not {value}"#))
}

/// As [`duration`], within bounds.
pub(super) fn between(least: Duration, most: Duration) -> impl Fn(&Value<'_>) -> Result<Duration, String> {
    move |value| match duration(value)? {
        duration if (least..=most).contains(&duration) => Ok(duration),
        _ => Err(format!("must be from {least:?} to {most:?}, not {value}")),
    }
}

/// A size in bytes.
pub(super) fn bytes(max: u64) -> impl Fn(&Value<'_>) -> Result<usize, String> {
    move |value| match value.whole().or_else(|| value.text().and_then(parse_bytes)) {
        Some(bytes) if bytes <= max => Ok(usize::try_from(bytes).expect("max is far below usize::MAX")),
        Some(_) => Err(format!("must be at most {} MiB, not {value}", max >> 20)),
        None => Err(format!(r#"must be a number of bytes like 65536, "64KiB", "1MiB" or "10kB", not {value}"#)),
    }
}

/// Numbers with units, one after the other, added up. Never overflows: too much stays too much.
fn parse_duration(text: &str) -> Option<Duration> {
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() || text.is_empty() {
        let (number, after) = split_number(rest)?;
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        let unit = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(60 * 60),
            _ => return None,
        };
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        total = total.saturating_add(unit.saturating_mul(number));
        rest = after;
    }
    Some(total)
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let unit: u64 = match unit {
        "" | "B" => 1,
        "kB" => 1000,
        "KiB" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" => 1 << 30,
        _ => return None,
    };
    Some(number.saturating_mul(unit))
}

/// The digits in front, saturating, and what follows.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    (digits > 0).then(|| (number.parse().unwrap_or(u64::MAX), rest))
}
