//! `[[pool.sources]]`: lists that the gateway keeps the pool in step with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::proxies::proxy;
use super::reader::Entry;
use super::value::{self, Value};
use crate::fetch::Url;
use crate::list::Protocol;
use crate::member::Member;

/// A list that the pool is kept in step with.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSource {
    /// What it is called in logs and in the store, unlike every other: 1 to 200 bytes, no control characters.
    pub name: String,
    /// Where the list is.
    pub place: Place,
    /// How often it is read again.
    pub every: Duration,
    /// The longest one reading may take.
    pub timeout: Duration,
    /// The largest list, in bytes as it is stored or sent.
    pub max_bytes: u64,
    /// So many of its proxies are taken.
    pub max_members: u64,
    /// What is spoken with those that do not say it.
    pub scheme: Option<Protocol>,
    /// What becomes of members that the list names no more.
    pub gone: Gone,
    /// Whether a list without any entry is believed.
    pub may_be_empty: bool,
    /// Whether its proxies are judged before they enter the set.
    pub candidates: bool,
}

/// Where a list is.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A file.
    File(PathBuf),
    /// A page, and the proxy through which it is fetched if not directly.
    Page(Box<Url>, Option<Box<Member>>),
}

/// What becomes of members that a list names no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// They stay.
    Keep,
    /// They leave the pool, unless another source or `pool.proxies` names them.
    Remove,
}

/// Lists change by the hour; those who sell them ask for no more than this.
const EVERY: Duration = Duration::from_secs(10 * 60);
/// More often is a burden for whoever serves the list.
const MIN_EVERY: Duration = Duration::from_secs(1);
/// A million proxies take a few seconds, most lists less than one.
const TIMEOUT: Duration = Duration::from_secs(2 * 60);
/// A million proxies with passwords, twice.
const MAX_BYTES: u64 = 128 << 20;
/// Memory here and in the store goes by this.
const MAX_MEMBERS: u64 = 1_000_000;

/// 16 GiB.
const LARGEST: u64 = 16 << 30;
/// What a sorted set and this program's memory of a list can bear.
const MOST_MEMBERS: u64 = 100_000_000;
/// It is in a key's name.
const MAX_NAME: usize = 200;

impl PoolSource {
    /// The schema, in the order of config.toml. `None`: what is wrong has been said.
    pub(super) fn read(entry: &mut Entry<'_, '_>) -> Option<Self> {
        let name = entry.key("name", None, |value| name(value).map(Some));
        let file = entry.key("file", None, |value| file(value).map(Some));
        let url = entry.key("url", None, |value| page(value).map(Some));
        let via = entry.key("via", None, via);
        let source = Self {
            name: String::new(),
            place: Place::File(PathBuf::new()),
            every: entry.key("every", EVERY, every),
            timeout: entry.key("timeout", TIMEOUT, value::timeout),
            max_bytes: entry.key("max_bytes", MAX_BYTES, |value| value::bytes(LARGEST)(value).map(|n| n as u64)),
            max_members: entry.key("max_members", MAX_MEMBERS, value::whole(1..=MOST_MEMBERS)),
            scheme: entry.key("scheme", None, scheme),
            gone: entry.key("gone", Gone::Keep, Gone::read),
            may_be_empty: entry.key("may_be_empty", false, value::switch),
            candidates: entry.key("candidates", false, value::switch),
        };
        let (place, shown) = match (file, url) {
            (Some(file), None) => {
                if via.is_some() {
                    entry.mistake("via", "is for a url; a file is read directly");
                }
                (Place::File(entry.folder().join(&file)), file)
            }
            (None, Some(url)) => {
                let shown = url.to_string();
                (Place::Page(Box::new(url), via.map(Box::new)), shown)
            }
            (Some(_), Some(_)) => {
                entry.mistake("url", "one source is one list; give file or url, and the other a source of its own");
                return None;
            }
            (None, None) => {
                // A value that was refused has been spoken of.
                if !entry.has("file") && !entry.has("url") {
                    entry.mistake("", r#"names no list; write file = "list.txt" or url = "https://host/list""#);
                }
                return None;
            }
        };
        let name = match name {
            Some(name) => name,
            None if is_name(&shown) => shown,
            None => {
                if !entry.has("name") {
                    entry.mistake("", "is too long to be called by its address; give it a name");
                }
                return None;
            }
        };
        Some(Self { name, place, ..source })
    }

    /// What can be known of a list without reading it: why it could not be read now.
    pub fn trouble(&self) -> Option<String> {
        let Place::File(path) = &self.place else { return None };
        match std::fs::metadata(path) {
            Ok(about) if about.is_file() => None,
            Ok(_) => Some(format!("{} is not a file", path.display())),
            Err(error) => Some(format!("{} cannot be read: {error}", path.display())),
        }
    }
}

impl Gone {
    fn read(value: &Value<'_>) -> Result<Self, String> {
        match value.text() {
            Some("keep") => Ok(Self::Keep),
            Some("remove") => Ok(Self::Remove),
            _ => Err(format!(r#"must be "keep" or "remove", not {value}"#)),
        }
    }
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && !text.contains(char::is_control)
}

fn name(value: &Value<'_>) -> Result<String, String> {
    let name = value.text().filter(|text| is_name(text));
    name.map(str::to_owned)
        .ok_or_else(|| format!("must be 1 to {MAX_NAME} bytes of text without control characters, not {value}"))
}

fn file(value: &Value<'_>) -> Result<String, String> {
    let file =
        value.text().filter(|text| !text.is_empty() && !text.contains('\0') && Path::new(text).file_name().is_some());
    let Some(file) = file else { return Err(format!("must be the name of a file, not {value}")) };
    match file.contains("://") {
        true => Err(format!("must be the name of a file, not {value}; an address goes into url")),
        false => Ok(file.to_owned()),
    }
}

fn page(value: &Value<'_>) -> Result<Url, String> {
    const LIKE: &str = "https://host/list.txt";
    value::page(value, LIKE)?.ok_or_else(|| format!("must be a URL like {LIKE:?}, not {value}"))
}

/// Empty: directly.
fn via(value: &Value<'_>) -> Result<Option<Member>, String> {
    match value.text() {
        Some("") => Ok(None),
        Some(text) => Ok(Some(Member::parse(&proxy(text)?).map_err(|why| why.to_string())?)),
        None => Err(format!("must be a proxy in quotes, not {value}")),
    }
}

fn every(value: &Value<'_>) -> Result<Duration, String> {
    value::duration(value).and_then(|every| {
        if every < MIN_EVERY { Err(format!(r#"must be at least "1s", not {value}"#)) } else { Ok(every) }
    })
}

/// Empty: http.
fn scheme(value: &Value<'_>) -> Result<Option<Protocol>, String> {
    match value.text() {
        Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|why| format!("{why}, not {value}")),
        None => Err(format!("must be a scheme in quotes, not {value}")),
    }
}
