//! What an operator is told: where, which key, what is wrong and what to do.

use std::fmt;

use crate::member;

/// One mistake. Prints as `config.toml:12: pool.key: …`, `EVENKEEL_POOL__KEY: …` or `--listen: …`, in one line,
/// every password masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    source: String,
    line: Option<usize>,
    key: String,
    why: String,
}

/// All mistakes of one load, one line each; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistake {
    /// `line` counts from 1; an empty `key` is not printed, for sources whose name says it already.
    pub(super) fn new(source: &str, line: Option<usize>, key: &str, why: impl Into<String>) -> Self {
        Self { source: source.to_owned(), line, key: key.to_owned(), why: why.into() }
    }

    /// The file as it was given, the variable or the flag.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The line in a file, from 1.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.why)
    }
}

impl Mistakes {
    /// In the order to print them.
    pub fn iter(&self) -> std::slice::Iter<'_, Mistake> {
        self.0.iter()
    }
}

impl From<Vec<Mistake>> for Mistakes {
    fn from(mistakes: Vec<Mistake>) -> Self {
        debug_assert!(!mistakes.is_empty());
        Self(mistakes)
    }
}

impl IntoIterator for Mistakes {
    type Item = Mistake;
    type IntoIter = std::vec::IntoIter<Mistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Mistakes {
    type Item = &'a Mistake;
    type IntoIter = std::slice::Iter<'a, Mistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, mistake) in self.iter().enumerate() {
            write!(f, "{}{mistake}", if n == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Any text for an operator's eyes; any of it may be a URL in the wrong place. Beyond [`member::masked_text`], a password
/// in the query is hidden, and what has no name there.
pub(super) fn masked(text: &str) -> String {
    let shown = member::masked_text(text.as_bytes());
    let Some((url, query)) = shown.split_once('?') else { return shown };
    let query: Vec<String> = query.split('&').map(hide_password).collect();
    format!("{url}?{}", query.join("&"))
}

fn hide_password(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("password") => format!("{name}=***"),
        Some(_) => parameter.to_owned(),
        None => "***".to_owned(),
    }
}
