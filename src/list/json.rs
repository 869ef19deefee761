//! Lists in JSON, value by value: nothing is kept but the value at hand.
//!
//! What holds the entries (an array, `{"data": […]}`, objects in objects) is walked through bracket by bracket; an entry is
//! found whole by counting brackets, and only then read as JSON. So one that is broken does not take the others with it:
//! the walk goes on inside of it and finds the next. Not here: what an entry means ([`super::fields`], [`super::row`]).

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::fields::{Field, Fields};
use super::protocol::Protocol;
use super::reason::Reason;
use super::window::{LOOKAHEAD, Window};

/// Deeper than any list that means well.
const MAX_DEPTH: usize = 64;

/// Bytes that may be looked at in search of closing brackets, for each byte that is read: a list has a few brackets around
/// its entries, and whoever opens brackets without end would have each of them searched for.
const MAX_EFFORT: u64 = 16;
/// The same before anything was read.
const FREE_EFFORT: u64 = 4 << 20;

/// Where the walk is.
#[derive(Default)]
pub(super) struct Walk {
    /// What has been entered and not left, the outermost first.
    inside: Vec<Container>,
    entries: u64,
    /// Inside a string whose end could not be seen.
    is_in_string: bool,
    /// A value may come, and not the next key.
    is_after_colon: bool,
    /// The line on which something was last said not to be JSON. Once is enough.
    said: u64,
    /// Bytes read, and bytes looked at.
    read: u64,
    effort: u64,
}

struct Container {
    is_array: bool,
    /// Where it begins.
    line: u64,
    /// How many entries came before it.
    entries: u64,
    /// An array is inside of it, be it empty.
    has_array: bool,
    /// It has been reported as broken.
    is_broken: bool,
    /// What is spoken with those inside, if the key of this or of something around it says so: `{"socks5": […]}`.
    protocol: Option<Protocol>,
    /// The same for what comes next.
    next: Option<Protocol>,
}

/// The next entry.
pub(super) struct Entry {
    /// The line it begins on, from 1.
    pub(super) line: u64,
    /// Its number in the list, from 1.
    pub(super) number: u64,
    pub(super) protocol: Option<Protocol>,
    pub(super) content: Result<Content, Reason>,
}

/// What an entry is.
pub(super) enum Content {
    Object(Object),
    /// As a line of its own would be.
    Text(String),
    /// Fields without names.
    Row(Vec<String>),
}

impl Walk {
    /// The next entry, `None` at the end of the input.
    pub(super) fn next<R: Read>(&mut self, window: &mut Window<R>) -> io::Result<Option<Entry>> {
        loop {
            let line = window.line();
            let view = window.peek(LOOKAHEAD)?;
            let Some(&byte) = view.first() else { return Ok(self.end()) };
            if matches!(byte, b'{' | b'[') && !self.is_in_string {
                self.leave_unclosed();
            }
            let is_between = b" \t\r\n,:".contains(&byte) && !self.is_in_string;
            let (length, content) = match byte {
                _ if self.is_in_string => (self.rest_of_string(view), None),
                _ if is_between => self.between(view),
                b']' | b'}' => (1, self.leave(byte == b']')),
                b'"' => self.string(view),
                b'{' => self.object(view, line),
                b'[' => self.array(view, line),
                _ => self.other(view),
            };
            window.consume(length);
            self.is_after_colon &= is_between;
            self.read += length as u64;
            if self.effort > FREE_EFFORT + MAX_EFFORT * self.read {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it has too many brackets that are not closed"));
            }
            let is_said =
                matches!(content, Some(Err(Reason::NotJson))) && std::mem::replace(&mut self.said, line) == line;
            if let Some(content) = content.filter(|_| !is_said) {
                return Ok(Some(self.entry(line, content)));
            }
        }
    }

    fn entry(&mut self, line: u64, content: Result<Content, Reason>) -> Entry {
        self.entries += 1;
        let protocol = self.inside.last().and_then(|container| container.next.or(container.protocol));
        Entry { line, number: self.entries, protocol, content }
    }

    fn is_in_array(&self) -> bool {
        self.inside.last().is_none_or(|container| container.is_array)
    }

    fn is_broken(&self) -> bool {
        self.inside.last().is_some_and(|container| container.is_broken)
    }

    fn enter(&mut self, is_array: bool, is_broken: bool, line: u64) {
        if self.inside.len() < MAX_DEPTH {
            if is_array {
                self.inside.iter_mut().for_each(|around| around.has_array = true);
            }
            let protocol = self.inside.last().and_then(|around| around.next.or(around.protocol));
            let entries = self.entries;
            let container = Container { is_array, line, entries, has_array: false, is_broken, protocol, next: None };
            self.inside.push(container);
        }
    }

    /// Where a bracket opens inside of an object and is no value of it, that object was not closed, nor those around it.
    fn leave_unclosed(&mut self) {
        while !self.is_after_colon && !self.is_in_array() {
            self.inside.pop();
        }
    }

    /// At a closing bracket: leaves what it closes, and what is still open inside of that.
    fn leave(&mut self, is_array: bool) -> Option<Result<Content, Reason>> {
        if self.is_broken() && self.is_in_array() != is_array {
            self.inside.pop();
            return None;
        }
        let at = self.inside.iter().rposition(|container| container.is_array == is_array)?;
        let closed = self.inside.drain(at..).next()?;
        let is_barren = !is_array && closed.entries == self.entries && !closed.has_array && !closed.is_broken;
        (is_barren && self.is_in_array()).then_some(Err(Reason::NoHost))
    }

    fn end(&mut self) -> Option<Entry> {
        let open = self.inside.drain(..).next()?;
        Some(self.entry(open.line, Err(Reason::Unclosed)))
    }

    fn between(&mut self, view: &[u8]) -> (usize, Option<Result<Content, Reason>>) {
        let all = view.iter().take_while(|b| b" \t\r\n,:".contains(b));
        let (length, last) =
            all.fold((0, None), |(length, last), &b| (length + 1, if b == b',' || b == b':' { Some(b) } else { last }));
        self.is_after_colon = last.map_or(self.is_after_colon, |b| b == b':');
        (length, None)
    }

    /// A key, an entry, or a value of something that is no entry.
    fn string(&mut self, view: &[u8]) -> (usize, Option<Result<Content, Reason>>) {
        let is_entry = self.is_in_array() && !self.is_broken();
        let Some(length) = string_length(view) else {
            self.is_in_string = true;
            return (1, is_entry.then_some(Err(Reason::TooLong)));
        };
        let text = || serde_json::from_slice::<String>(&view[..length]);
        if is_entry {
            return (length, Some(text().map(Content::Text).map_err(|_| Reason::NotJson)));
        }
        let is_key = view[length..].iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':');
        if let (true, Some(container)) = (is_key, self.inside.last_mut()) {
            container.next = text().ok().and_then(|key| key.parse().ok());
        }
        (length, None)
    }

    fn rest_of_string(&mut self, view: &[u8]) -> usize {
        let end = view.iter().position(|b| b"\"\r\n".contains(b));
        self.is_in_string = end.is_none();
        end.map_or(view.len(), |end| end + 1)
    }

    /// How far the object or array goes that is in view.
    fn extent(&mut self, view: &[u8]) -> Extent {
        if self.inside.len() >= MAX_DEPTH {
            return Extent::Unseen;
        }
        let (extent, looked_at) = extent(view);
        self.effort += looked_at as u64;
        extent
    }

    /// An entry, or something to go into.
    fn object(&mut self, view: &[u8], line: u64) -> (usize, Option<Result<Content, Reason>>) {
        let is_broken = match self.extent(view) {
            Extent::Ends(length) => match serde_json::from_slice::<Object>(&view[..length]) {
                Ok(object) if object.is_entry() => return (length, Some(Ok(Content::Object(object)))),
                whole => whole.is_err(),
            },
            Extent::Breaks => true,
            Extent::Unseen => false,
        };
        self.enter_perhaps_broken(false, is_broken, line)
    }

    /// A row of fields, or something to go into.
    fn array(&mut self, view: &[u8], line: u64) -> (usize, Option<Result<Content, Reason>>) {
        if !self.is_in_array() || self.inside.is_empty() {
            self.enter(true, self.is_broken(), line);
            return (1, None);
        }
        let extent = self.extent(view);
        if let Extent::Ends(length) = extent
            && let Some(row) = row(&view[..length])
        {
            return (length, Some(Ok(Content::Row(row))));
        }
        self.enter_perhaps_broken(true, matches!(extent, Extent::Breaks), line)
    }

    fn enter_perhaps_broken(
        &mut self,
        is_array: bool,
        is_broken: bool,
        line: u64,
    ) -> (usize, Option<Result<Content, Reason>>) {
        let is_known = self.is_broken();
        // Around it all, it is whatever is found inside that may be broken.
        let is_broken = is_broken && self.is_in_array() && !self.inside.is_empty();
        self.enter(is_array, is_broken || is_known, line);
        (1, (is_broken && !is_known).then_some(Err(Reason::NotJson)))
    }

    /// A number, true, false, null, or what is not JSON.
    fn other(&mut self, view: &[u8]) -> (usize, Option<Result<Content, Reason>>) {
        let length = view.iter().take_while(|b| !b" \t\r\n,:[]{}\"".contains(b)).count();
        let is_value = serde_json::from_slice::<Value>(&view[..length]).is_ok();
        let content = (self.is_in_array() && !self.is_broken()).then_some(Err(if is_value {
            Reason::Unknown
        } else {
            Reason::NotJson
        }));
        (length, content)
    }
}

/// An object as it is written.
pub(super) struct Object {
    values: Map<String, Value>,
    /// What it says twice by the same key, and not the same: JSON leaves open which counts (RFC 8259 §4).
    twice: Option<Field>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Object, A::Error> {
                let (mut values, mut twice) = (Map::new(), None);
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    let field = values.get(&key).filter(|before| **before != value).and_then(|_| Field::named(&key));
                    twice = twice.or(field);
                    values.insert(key, value);
                }
                Ok(Object { values, twice })
            }
        }

        input.deserialize_map(Members)
    }
}

impl Object {
    /// Whether it is about one proxy and not around several.
    pub(super) fn is_entry(&self) -> bool {
        is_entry(&self.values)
    }

    /// What the keys say.
    pub(super) fn fields(&self) -> Fields<'_> {
        let mut fields = fields(&self.values);
        if let Some(field) = self.twice {
            fields.refuse(Reason::Contradiction(field.name()));
        }
        fields
    }
}

/// Whether an object is about one proxy and not around several.
pub(super) fn is_entry(object: &Map<String, Value>) -> bool {
    let fields = fields(object);
    let is_around = |value: &Value| match value {
        Value::Array(values) => values.iter().any(|value| value.is_object() || value.is_array()),
        _ => false,
    };
    fields.has_place() && (fields.has_port() || !object.values().any(is_around))
}

fn fields(object: &Map<String, Value>) -> Fields<'_> {
    let mut fields = Fields::default();
    for (key, value) in object {
        match (Field::of_column(key), value) {
            (Some(field @ (Field::Protocol | Field::Type)), Value::Array(values)) => {
                values.iter().for_each(|value| set_protocol(&mut fields, field, value));
            }
            (Some(field @ (Field::Protocol | Field::Type)), Value::Object(_)) => {
                set_protocol(&mut fields, field, value)
            }
            (Some(field @ Field::Speaks(_)), Value::Bool(true)) => fields.set(field, "yes".into()),
            (Some(Field::Country), Value::Object(inner)) => set_country(&mut fields, inner),
            (Some(Field::Login), Value::Object(inner)) => {
                for (key, value) in inner {
                    if let Some(field @ (Field::User | Field::Password)) = Field::named(key) {
                        set_secret(&mut fields, field, value);
                    }
                }
            }
            (Some(field @ (Field::User | Field::Password | Field::Login)), value) => {
                set_secret(&mut fields, field, value);
            }
            (Some(field), value) => {
                if let Some(text) = text(value) {
                    fields.set(field, text);
                }
            }
            // Where many say the country: {"geolocation": {"country": …}}.
            (None, Value::Object(inner)) if is_about_place(key) => set_country(&mut fields, inner),
            (None, _) => {}
        }
    }
    fields
}

/// Only what is text is sure to be whole: of a number, zeros in front may have been lost.
fn set_secret<'a>(fields: &mut Fields<'a>, field: Field, value: &'a Value) {
    match value {
        Value::String(text) => fields.set(field, text.into()),
        Value::Null | Value::Bool(false) => {}
        // That there is one.
        Value::Bool(true) if field == Field::Login => {}
        Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_) => fields.refuse(Reason::NotText),
    }
}

/// A protocol by itself, or in an object with more about it.
fn set_protocol<'a>(fields: &mut Fields<'a>, field: Field, value: &'a Value) {
    if let Some(text) = text(value) {
        fields.set(field, text);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        match (Field::of_column(key), value) {
            // {"http": true, "socks5": false}
            (Some(Field::Speaks(protocol)), Value::Bool(true)) => fields.set(field, protocol.name().into()),
            (Some(inner @ (Field::Protocol | Field::Type | Field::Anonymity)), value) => {
                text(value).into_iter().for_each(|text| fields.set(inner, text));
            }
            _ => {}
        }
    }
}

fn is_about_place(key: &str) -> bool {
    ["geo", "geolocation", "location", "geoip", "ip_data", "ipdata", "ipinfo"]
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name))
}

/// A country, at most one object further in: `{"country": {"iso_code": "DE"}}`.
fn set_country<'a>(fields: &mut Fields<'a>, object: &'a Map<String, Value>) {
    for (key, value) in object {
        let is_name = key.eq_ignore_ascii_case("name");
        match (Field::named(key), value) {
            (Some(Field::Country), Value::Object(inner)) => {
                for (key, value) in inner.iter().filter(|(_, value)| value.is_string()) {
                    if key.eq_ignore_ascii_case("name") || Field::named(key) == Some(Field::Country) {
                        fields.set(Field::Country, text(value).unwrap_or_default());
                    }
                }
            }
            (Some(Field::Country), value) => fields.set(Field::Country, text(value).unwrap_or_default()),
            (None, Value::String(name)) if is_name => fields.set(Field::Country, name.into()),
            _ => {}
        }
    }
}

/// The text of a value that has one; a port may be a number.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => match number.as_f64() {
            Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 1e15 => {
                Some(format!("{whole:.0}").into())
            }
            _ => Some(number.to_string().into()),
        },
        Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The fields of an array that is about one proxy: none of them is one by itself.
fn row(bytes: &[u8]) -> Option<Vec<String>> {
    let values: Vec<Value> = serde_json::from_slice(bytes).ok()?;
    let is_field = |value: &Value| !matches!(value, Value::Array(_) | Value::Object(_));
    let is_port = |value: &Value| value.is_u64() || value.as_str().is_some_and(super::place::is_port);
    let is_row = values.len() >= 2 && values.iter().all(is_field) && values.iter().any(is_port);
    is_row.then(|| values.iter().map(|value| text(value).unwrap_or_default().into_owned()).collect())
}

/// How long the string is that the bytes begin with; a line end ends it too, as JSON has none in strings.
fn string_length(bytes: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    for (at, &byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            b'\n' | b'\r' => return Some(at),
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// How far an object or an array goes.
enum Extent {
    /// So many bytes.
    Ends(usize),
    /// Something is in it that cannot be: it was not closed, or by another bracket.
    Breaks,
    /// Its end cannot be seen.
    Unseen,
}

/// How far the object or array goes that the bytes begin with, and how many of them were looked at.
fn extent(bytes: &[u8]) -> (Extent, usize) {
    // What is open in an array is an entry of its own, and broken by itself.
    let broken = |open: u64| if open >> 1 == 0 { Extent::Breaks } else { Extent::Unseen };
    // The brackets that are open, each a bit that says whether it is an array, the last one lowest, and how many they are.
    let (mut open, mut depth) = (0_u64, 0);
    let (mut at, mut is_after_colon) = (0, false);
    while at < bytes.len() {
        let byte = bytes[at];
        let is_in_object = depth > 0 && open & 1 == 0;
        match byte {
            b'"' => {
                let Some(length) = string_length(&bytes[at..]) else { return (Extent::Unseen, bytes.len()) };
                at += length;
                is_after_colon = false;
                continue;
            }
            b'{' | b'[' if is_in_object && !is_after_colon => return (broken(open), at),
            b'{' | b'[' if depth == MAX_DEPTH => return (Extent::Unseen, at),
            b'{' | b'[' => (open, depth) = (open << 1 | u64::from(byte == b'['), depth + 1),
            b'}' | b']' if (byte == b'}') != is_in_object => return (broken(open), at),
            b'}' | b']' => (open, depth) = (open >> 1, depth - 1),
            _ => {}
        }
        at += 1;
        is_after_colon = byte == b':' || (is_after_colon && byte.is_ascii_whitespace());
        if depth == 0 {
            return (Extent::Ends(at), at);
        }
    }
    (Extent::Unseen, at)
}
