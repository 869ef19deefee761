//! Upstream proxies as people write them: one on its own, or a list of one per line.

use super::Mistake;
use crate::member::{Member, Name, masked};

/// A member for the pool, byte for byte as written.
///
/// # Errors
/// Why it can never be dialed, in a sentence that shows no password.
pub fn proxy(text: &str) -> Result<Name, String> {
    let name = Name::copy_from_slice(text.as_bytes());
    match Member::parse(&name) {
        Ok(_) => Ok(name),
        Err(why) => {
            Err(format!("cannot use \"{}\": {why}; write http://[user:password@]host:port", masked(text.as_bytes())))
        }
    }
}

/// The members of a list: one per line; blank lines and lines that start with `#` are skipped, blanks around a
/// member, carriage returns and a byte order mark are dropped. Order and repetitions are kept.
///
/// Beside them every line that is no member, as `SOURCE:17: …`.
pub fn list(source: &str, text: &str) -> (Vec<Name>, Vec<Mistake>) {
    let (mut names, mut mistakes) = (Vec::new(), Vec::new());
    for (n, line) in text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match proxy(line) {
            Ok(name) => names.push(name),
            Err(why) => mistakes.push(Mistake::new(source, Some(n + 1), "", why)),
        }
    }
    (names, mistakes)
}
