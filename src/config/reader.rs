//! Looks each key up in every source, and keeps what goes wrong.
//!
//! The schema asks for its keys one by one; when it is through, [`Reader::finish`] knows every key there is, and so
//! which of those that were given mean nothing.

use std::collections::HashSet;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::mistake::masked;
use super::value::Value;
use super::{Flags, Mistake};

/// Begins every variable of ours, which has `__` after its table too. For a service of that name Kubernetes sets others that
/// begin so, like `EVENKEEL_SERVICE_HOST` and `EVENKEEL_PORT_8080_TCP`.
pub(super) const PREFIX: &str = "EVENKEEL_";

/// A file's tables and values, with the line of each.
pub(super) struct Document<'a> {
    name: &'a str,
    /// Where each line but the first begins.
    lines: Vec<usize>,
    root: DeTable<'a>,
}

pub(super) struct Reader<'a> {
    document: Option<&'a Document<'a>>,
    env: &'a [(String, String)],
    flags: &'a Flags,
    keys: Vec<&'static str>,
    /// Those of them that are any number of tables.
    each: Vec<&'static str>,
    mistakes: Vec<Mistake>,
}

/// A value and where it was given.
struct Given<'a> {
    source: &'a str,
    line: Option<usize>,
    /// Empty where the source's name is the key.
    key: &'static str,
    value: Value<'a>,
}

/// The file's name as given and its text. `None` when none was asked for and there is no `usual` one.
pub(super) fn read_file(asked: Option<&Path>, usual: &str) -> Result<Option<(String, String)>, Mistake> {
    let path = asked.unwrap_or(Path::new(usual));
    let name = path.display().to_string();
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if asked.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let why = format!("cannot be read: {error}; give --config the name of a file that can");
            return Err(Mistake::new(&name, None, "", why));
        }
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some((name, text))),
        Err(error) => {
            let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
            Err(Mistake::new(&name, Some(line), "", "is not UTF-8; save the file as UTF-8 text"))
        }
    }
}

impl<'a> Document<'a> {
    /// # Errors
    /// The lines that are not TOML. The rest of such a file is not looked at: a broken line may move what follows
    /// to another table, and every key in it would seem unknown.
    pub(super) fn parse(name: &'a str, text: &'a str) -> Result<Self, Vec<Mistake>> {
        let lines = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        let (root, errors) = DeTable::parse_recoverable(text);
        let document = Self { name, lines, root: root.into_inner() };
        let mut mistakes: Vec<Mistake> = errors.iter().map(|error| document.syntax(error)).collect();
        mistakes.sort_by_key(Mistake::line);
        // After the first of a line, the parser is mostly lost.
        mistakes.dedup_by_key(|mistake| mistake.line());
        if mistakes.is_empty() { Ok(document) } else { Err(mistakes) }
    }

    /// The parser's message names what it expected and never quotes the file.
    fn syntax(&self, error: &toml::de::Error) -> Mistake {
        let line = error.span().map(|span| self.line(span.start));
        let advice = match error.message() {
            "duplicate key" => "keep one of them",
            _ => "write key = value, text in quotes",
        };
        Mistake::new(self.name, line, "", format!("is not TOML: {}; {advice}", error.message()))
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.lines.partition_point(|&start| start <= offset)
    }

    #[cfg(test)]
    pub(super) fn has(&'a self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    fn get(&'a self, key: &'static str) -> Option<Given<'a>> {
        let (tables, name) = split(key);
        let inside = tables.split('.').try_fold(&self.root, |table, name| table.get(name)?.get_ref().as_table())?;
        let (at, value) = inside.get_key_value(name)?;
        let line = Some(self.line(at.span().start));
        Some(Given { source: self.name, line, key, value: Value::Toml(value.get_ref()) })
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(document: Option<&'a Document<'a>>, env: &'a [(String, String)], flags: &'a Flags) -> Self {
        Self { document, env, flags, keys: Vec::new(), each: Vec::new(), mistakes: Vec::new() }
    }

    /// The value of the strongest source that has one; `form` tells what it may be.
    pub(super) fn key<T>(
        &mut self,
        key: &'static str,
        default: T,
        form: impl Fn(&Value<'_>) -> Result<T, String>,
    ) -> T {
        let mut result = default;
        for given in self.given(key) {
            match form(&given.value) {
                Ok(value) => result = value,
                Err(why) => self.mistakes.push(given.mistake(why)),
            }
        }
        result
    }

    /// As [`Reader::key`], for a list of texts that is empty by default; what is wrong with one item is said of it.
    pub(super) fn list<T>(&mut self, key: &'static str, form: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let mut result = Vec::new();
        for given in self.given(key) {
            let items = match given.value.items() {
                Ok(items) => items,
                Err(why) => {
                    self.mistakes.push(given.mistake(why));
                    continue;
                }
            };
            result.clear();
            for (n, (item, offset)) in items.iter().enumerate() {
                let text = item.text().ok_or_else(|| format!("must be text in quotes, not {item}"));
                match text.and_then(&form) {
                    Ok(value) => result.push(value),
                    Err(why) => self.mistakes.push(given.mistake_at(n, self.line(*offset), why)),
                }
            }
        }
        result
    }

    /// As [`Reader::key`], for a table of which there may be any number; `form` reads one and says itself what is wrong with it.
    pub(super) fn each<T>(
        &mut self,
        key: &'static str,
        mut form: impl FnMut(&mut Entry<'_, 'a>) -> Option<T>,
    ) -> Vec<T> {
        self.each.push(key);
        let mut result = Vec::new();
        for given in self.given(key) {
            let Value::Toml(value) = given.value else {
                self.mistakes.push(given.mistake(format!("cannot be given here; write [[{key}]] in a file")));
                continue;
            };
            let tables: Option<Vec<_>> = value.as_array().and_then(|array| {
                array.iter().map(|item| Some((item.get_ref().as_table()?, item.span().start))).collect()
            });
            let (Some(document), Some(tables)) = (self.document, tables) else {
                self.mistakes
                    .push(given.mistake(format!("is any number of tables; write [[{key}]] above the keys of each")));
                continue;
            };
            for (n, (table, offset)) in tables.into_iter().enumerate() {
                let path = format!("{key}[{n}]");
                let mut entry = Entry { document, table, path, offset, keys: Vec::new(), mistakes: &mut self.mistakes };
                let read = form(&mut entry);
                entry.refuse_unknown_keys();
                result.extend(read);
            }
        }
        result
    }

    /// The keys asked for so far, in the schema's order.
    #[cfg(test)]
    pub(super) fn keys(&self) -> &[&'static str] {
        &self.keys
    }

    /// Everything that went wrong, the file's by line, once the schema has asked for every key.
    pub(super) fn finish(mut self) -> Vec<Mistake> {
        if let Some(document) = self.document {
            self.refuse_unknown_keys(document);
        }
        self.refuse_unknown_variables();
        let file = self.document.map(|document| document.name);
        self.mistakes.sort_by_key(|mistake| match mistake.line() {
            Some(line) if file == Some(mistake.source()) => line,
            _ => usize::MAX,
        });
        self.mistakes
    }

    /// From the weakest source to the strongest.
    fn given(&mut self, key: &'static str) -> impl Iterator<Item = Given<'a>> + use<'a> {
        self.keys.push(key);
        let word = |source, value: &'a str| Given { source, line: None, key: "", value: Value::Word(value.into()) };
        let name = variable(key);
        let file = self.document.and_then(|document| document.get(key));
        let env = self.env.iter().find(|(set, _)| *set == name).map(|(set, value)| word(set, value));
        let flag = self.flags.get(key).map(|(flag, value)| word(flag, value));
        file.into_iter().chain(env).chain(flag)
    }

    fn line(&self, offset: Option<usize>) -> Option<usize> {
        Some(self.document?.line(offset?))
    }

    fn refuse_unknown_keys(&mut self, document: &Document<'_>) {
        self.refuse_unknown_keys_of(document, "", &document.root);
    }

    /// Of one table; `outer` is its name.
    fn refuse_unknown_keys_of(&mut self, document: &Document<'_>, outer: &str, entries: &DeTable<'_>) {
        for (key, value) in entries {
            let name = match outer {
                "" => key.get_ref().to_string(),
                outer => format!("{outer}.{}", key.get_ref()),
            };
            let is_table = tables(&self.keys).any(|known| known == name);
            let why = match value.get_ref() {
                DeValue::Table(inner) if is_table => {
                    self.refuse_unknown_keys_of(document, &name, inner);
                    continue;
                }
                _ if self.keys.contains(&name.as_str()) => continue,
                DeValue::Table(_) if outer.is_empty() => unknown_table(&self.keys, &name),
                _ if is_table => format!("is a table; write [{name}], and its keys below"),
                _ => unknown_key(&self.keys, &name),
            };
            let line = Some(document.line(key.span().start));
            self.mistakes.push(Mistake::new(document.name, line, &masked(&name), why));
        }
    }

    fn refuse_unknown_variables(&mut self) {
        for (name, _) in self.env {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            if self.keys.iter().any(|known| variable(known) == *name) {
                continue;
            }
            let key = match key.contains("__") {
                true => key.to_lowercase().replacen("__", ".", 1),
                false => {
                    self.refuse_misspelt(name, key);
                    continue;
                }
            };
            if let Some(table) = self.each.iter().find(|table| name.starts_with(&format!("{}_", variable(table)))) {
                let why = format!("cannot be given here; write [[{table}]] in a file");
                self.mistakes.push(Mistake::new(&masked(name), None, "", why));
                continue;
            }
            let meant = nearest_key(&self.keys, &key);
            let advice = meant.map_or("unset it".to_owned(), |key| format!("did you mean {}?", variable(key)));
            self.mistakes.push(Mistake::new(&masked(name), None, "", format!("sets no key there is; {advice}")));
        }
    }

    /// A variable without `__` is nobody's mistake unless it spells a key: with `_` in its place, or without the table. `key` is
    /// what follows [`PREFIX`].
    fn refuse_misspelt(&mut self, name: &str, key: &str) {
        let key = key.to_lowercase();
        let find = |is_meant: &dyn Fn(&str) -> bool| -> Vec<&'static str> {
            self.keys.iter().filter(|known| is_meant(known)).copied().collect()
        };
        let mut meant = find(&|known| known.replace('.', "_") == key);
        if meant.is_empty() {
            meant = find(&|known| split(known).1 == key);
        }
        let why = match meant[..] {
            [] => return,
            [table] if self.each.contains(&table) => format!("cannot be given here; write [[{table}]] in a file"),
            _ => {
                let meant: Vec<String> = meant.into_iter().map(variable).collect();
                format!("sets no key there is; did you mean {}?", meant.join(" or "))
            }
        };
        self.mistakes.push(Mistake::new(name, None, "", why));
    }
}

/// One of several tables of the same name.
pub(super) struct Entry<'r, 'a> {
    document: &'a Document<'a>,
    table: &'a DeTable<'a>,
    /// Its name and number, like `pool.sources[1]`.
    path: String,
    offset: usize,
    keys: Vec<&'static str>,
    mistakes: &'r mut Vec<Mistake>,
}

impl Entry<'_, '_> {
    /// A value of this table.
    pub(super) fn key<T>(
        &mut self,
        key: &'static str,
        default: T,
        form: impl Fn(&Value<'_>) -> Result<T, String>,
    ) -> T {
        self.keys.push(key);
        match self.table.get(key).map(|value| form(&Value::Toml(value.get_ref()))) {
            Some(Ok(value)) => value,
            Some(Err(why)) => {
                self.mistake(key, why);
                default
            }
            None => default,
        }
    }

    /// Whether it was given, rightly or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The folder of the file, from which names of other files start.
    pub(super) fn folder(&self) -> &'_ Path {
        Path::new(self.document.name).parent().unwrap_or(Path::new(""))
    }

    /// What is wrong with a key, or with all of it if that is empty.
    pub(super) fn mistake(&mut self, key: &str, why: impl Into<String>) {
        let (offset, path) = match self.table.get_key_value(key) {
            Some((at, _)) => (at.span().start, format!("{}.{key}", self.path)),
            None => (self.offset, self.path.clone()),
        };
        self.mistakes.push(Mistake::new(self.document.name, Some(self.document.line(offset)), &path, why));
    }

    fn refuse_unknown_keys(&mut self) {
        for (key, _) in self.table {
            let name = key.get_ref().as_ref();
            if self.keys.contains(&name) {
                continue;
            }
            let near = self.keys.iter().map(|known| (distance(name, known), *known)).min();
            let why = match near {
                Some((distance, known)) if is_near(distance, name) => {
                    format!("there is no such key; did you mean {known}?")
                }
                _ => format!("there is no such key; there are {}", self.keys.join(", ")),
            };
            let line = Some(self.document.line(key.span().start));
            let path = format!("{}.{}", self.path, masked(name));
            self.mistakes.push(Mistake::new(self.document.name, line, &path, why));
        }
    }
}

impl Given<'_> {
    fn mistake(&self, why: String) -> Mistake {
        Mistake::new(self.source, self.line, self.key, why)
    }

    fn mistake_at(&self, n: usize, line: Option<usize>, why: String) -> Mistake {
        if self.key.is_empty() {
            return Mistake::new(&format!("{}[{n}]", self.source), line, "", why);
        }
        Mistake::new(self.source, line, &format!("{}[{n}]", self.key), why)
    }
}

/// `pool.key` → `EVENKEEL_POOL__KEY`.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// The tables of the schema, in its order.
fn tables<'k>(keys: &'k [&'static str]) -> impl Iterator<Item = &'static str> + use<'k> {
    let mut seen = HashSet::new();
    keys.iter().map(|key| split(key).0).filter(move |table| seen.insert(*table))
}

fn unknown_table(keys: &[&'static str], name: &str) -> String {
    let near = tables(keys).map(|table| (distance(name, table), table)).min();
    match near {
        Some((distance, table)) if is_near(distance, name) => {
            format!("there is no such table; did you mean [{table}]?")
        }
        _ => format!("there is no such table; there are [{}]", tables(keys).collect::<Vec<_>>().join("], [")),
    }
}

fn unknown_key(keys: &[&'static str], name: &str) -> String {
    if let Some(key) = nearest_key(keys, name) {
        return format!("there is no such key; did you mean {key}?");
    }
    let table = split(name).0;
    let inside: Vec<&str> = keys.iter().map(|key| split(key)).filter(|key| key.0 == table).map(|key| key.1).collect();
    match inside.is_empty() {
        true => "there is no such key; every key is in a table".to_owned(),
        false => format!("there is no such key; [{table}] has {}", inside.join(", ")),
    }
}

/// By the last part first: a key under the wrong table is nearer than another key under the right one. Without a table, and
/// where several have that key, it is the first in the schema.
fn nearest_key(keys: &[&'static str], name: &str) -> Option<&'static str> {
    let (table, last) = split(name);
    let from_table = |known: &str| if table.is_empty() { 0 } else { distance(known, table) };
    let far = |key: &str| (distance(split(key).1, last), from_table(split(key).0));
    let key = keys.iter().min_by_key(|key| far(key))?;
    is_near(far(key).0, last).then_some(key)
}

/// Table and rest; a key outside every table has an empty one.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

/// A third of the letters may be wrong, and in a short name two.
fn is_near(distance: usize, name: &str) -> bool {
    distance <= (name.len() / 3).max(2) && distance < name.len()
}

/// Letters to insert, remove or change (Levenshtein), one row of the table at a time.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
