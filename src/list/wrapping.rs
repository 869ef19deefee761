//! What stands around a proxy in a line: a comment, a bullet, the name of a setting, quotes.
//!
//! Only what can be nothing else is taken off. A name with an equals sign is one when a URL follows, when it names a proxy
//! (`http_proxy=`), or behind `export`; otherwise it may be the beginning of a user name, which is for [`super::form`] to say.

use super::form::{self, Open, is_name, split_scheme};
use super::protocol::Protocol;

/// Words in front of a variable that is set: shells, cmd.exe, Dockerfiles.
const COMMANDS: [&str; 5] = ["export", "set", "setx", "setenv", "env"];
/// So many signs are looked at that may begin a remark.
const MOST_SIGNS: usize = 4;
/// What else stands in front of an item of a list.
const BULLETS: [&str; 6] = ["-", "*", "+", "•", "–", ">"];

/// A line without what is around the proxy in it, and without blanks at its ends.
pub(super) fn unwrapped(line: &str) -> &str {
    without_remark(without_quotes(without_name(without_bullet(without_comment(line)))).trim())
}

/// Without what follows the proxy as a comment: ` # …` anywhere, and behind a single word also `#…`, `// …` and `; …`.
fn without_comment(line: &str) -> &str {
    let word = &line[..line.find(char::is_whitespace).unwrap_or(line.len())];
    let rest = line[word.len()..].trim_start();
    if !rest.is_empty() && ["#", "//", ";"].iter().any(|mark| rest.starts_with(mark)) && !word.contains('"') {
        return word;
    }
    let (mut is_quoted, mut before) = (false, None);
    for (at, c) in line.char_indices() {
        let is_mark = c == '#' && !is_quoted && before.is_some_and(char::is_whitespace);
        if is_mark && line[at + 1..].starts_with(char::is_whitespace) {
            return line[..at].trim_end();
        }
        is_quoted ^= c == '"';
        before = Some(c);
    }
    line
}

/// Without the name that is set to the port, as URLs are given names: `socks5://10.0.0.7:1080#Berlin`. Behind a password the
/// sign may be a part of that.
fn without_remark(text: &str) -> &str {
    let is_proxy = |word: &str| {
        !word.contains(char::is_whitespace)
            && form::read(word, Some(Protocol::Socks5)).is_ok_and(|form| form.open() != Some(Open::Back))
    };
    let host = text.rfind('@').unwrap_or(0);
    let words = text.match_indices('#').map(|(at, _)| at).filter(|&at| at >= host).map(|at| &text[..at]);
    let mut proxies = words.filter(|word| word.ends_with(|c: char| c.is_ascii_digit() || c == '/'));
    // No proxy has more of them in front.
    proxies.by_ref().take(MOST_SIGNS).find(|word| is_proxy(word)).unwrap_or(text)
}

/// Without the `- `, `* ` or `17. ` of a list.
fn without_bullet(text: &str) -> &str {
    let Some((first, rest)) = text.split_once(char::is_whitespace) else { return text };
    let number = first.strip_suffix(['.', ')']).unwrap_or_default();
    let is_bullet = BULLETS.contains(&first) || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
    if is_bullet { rest.trim_start() } else { text }
}

/// Without the name of what is set to the proxy: `export http_proxy=…`, `"proxy": "…"`, `https: …`.
fn without_name(text: &str) -> &str {
    let command = text.split_once(char::is_whitespace).filter(|(word, _)| is_any(word, &COMMANDS));
    let setting = command.map_or(text, |(_, rest)| rest.trim_start());
    let setting = setting.strip_prefix("$env:").unwrap_or(setting);
    let quote = setting.chars().next().filter(|c| ['"', '\''].contains(c));
    let from_name = setting.strip_prefix(['"', '\'']).unwrap_or(setting);
    let end = from_name.find(|c| !is_of_name(c)).unwrap_or(from_name.len());
    let (name, behind) = from_name.split_at(end);
    let closed = quote.and_then(|quote| behind.strip_prefix(quote));
    let behind = closed.unwrap_or(behind);
    let value = behind.trim_start().strip_prefix(['=', ':']).map(|value| (value, behind.trim_start().starts_with('=')));
    let (value, has_sign) = match value {
        Some((value, is_equal)) => (value, is_equal || value.starts_with(char::is_whitespace)),
        None if command.is_some() && behind.starts_with(char::is_whitespace) => (behind, true),
        None => return text,
    };
    // cmd.exe has both quotes around name and value: set "http_proxy=…".
    let value = match quote.filter(|_| closed.is_none()) {
        Some(quote) => value.strip_suffix(quote).unwrap_or(value),
        None => value,
    };
    let value = value.trim();
    let is_url = split_scheme(value.trim_start_matches(['"', '\'', '`'])).is_some();
    let word = name.to_ascii_lowercase();
    let names_proxy = word.contains("proxy") && !word.starts_with("no") && !word.contains('.');
    // A colon may be behind a user name too, and a name with a sign be one.
    let is_set = is_name(name) && (is_url || (has_sign && (names_proxy || command.is_some())));
    if is_set { without_quotes(value.strip_suffix(';').unwrap_or(value)) } else { text }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// Without quotes around all of it, or `<…>`, and without a comma behind them.
fn without_quotes(text: &str) -> &str {
    let bare = text.strip_suffix([',', ';']).unwrap_or(text).trim_end();
    unquoted(bare).map_or(text, str::trim)
}

/// What is between a pair of quotes that has no third in it.
fn unquoted(text: &str) -> Option<&str> {
    [('"', '"'), ('\'', '\''), ('`', '`'), ('<', '>')].iter().find_map(|&(open, close)| {
        let inner = text.strip_prefix(open)?.strip_suffix(close)?;
        (!inner.contains([open, close])).then_some(inner)
    })
}

fn is_any(word: &str, words: &[&str]) -> bool {
    words.iter().any(|one| word.eq_ignore_ascii_case(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_behind_the_proxy_is_no_part_of_it() {
        for (line, rest) in [
            ("h:80 # a: b", "h:80"),
            ("h:80 #a", "h:80"),
            ("h:80\t// a", "h:80"),
            ("h:80 ; a", "h:80"),
            ("h:80#a", "h:80#a"),
            ("h, 80, u, p#w", "h, 80, u, p#w"),
            ("h 80 u #p", "h 80 u #p"),
            ("h 80 u p # a", "h 80 u p"),
            ("h,80,u,\"p # w\" # a", "h,80,u,\"p # w\""),
        ] {
            assert_eq!(without_comment(line), rest, "{line}");
        }
    }

    #[test]
    fn what_is_around_a_proxy_comes_off() {
        for (line, proxy) in [
            ("- h:80", "h:80"),
            ("17. h:80", "h:80"),
            ("(1) h:80", "(1) h:80"),
            ("1 h:80", "1 h:80"),
            ("http_proxy=http://u:p@h:80", "http://u:p@h:80"),
            ("export HTTPS_PROXY='http://u:p@h:80';", "http://u:p@h:80"),
            ("export x=u:p@h:80", "u:p@h:80"),
            ("set \"http_proxy=u:p@h:80\"", "u:p@h:80"),
            ("setenv http_proxy http://u:p@h:80", "http://u:p@h:80"),
            ("$env:HTTP_PROXY = \"http://u:p@h:80\"", "http://u:p@h:80"),
            ("- https: http://u:p@h:80", "http://u:p@h:80"),
            ("\"proxy\": \"u:p@h:80\",", "u:p@h:80"),
            ("proxy: u:p@h:80", "u:p@h:80"),
            ("<http://u:p@h:80>", "http://u:p@h:80"),
            ("`h:80`", "h:80"),
            ("\" h:80 \",", "h:80"),
            ("h:80#a", "h:80"),
            ("- \"http://u:p#q@h:80/#a b\"", "http://u:p#q@h:80/"),
            ("u:p@h:80#DE#1 // x", "u:p@h:80"),
            ("socks://h:80#a", "socks://h:80"),
            ("u:p@h:80#x@h:81", "u:p@h:80#x@h:81"),
            ("10.0.0.7:80:u:1#a", "10.0.0.7:80:u:1#a"),
            ("10.0.0.7:80@u:1#a", "10.0.0.7:80@u:1#a"),
            // What may be a user name, or a password, stays.
            ("user=x:p@h:80", "user=x:p@h:80"),
            ("user: p@h:80", "user: p@h:80"),
            ("proxy.example: 80", "proxy.example: 80"),
            ("set\u{a0}h:80", "set\u{a0}h:80"),
            ("set\u{a0}x\u{a0}h:80", "h:80"),
            ("proxy:p@h:80", "proxy:p@h:80"),
            ("no_proxy=h:80", "no_proxy=h:80"),
            ("user:p=w@h:80", "user:p=w@h:80"),
            ("h:80:u:p,", "h:80:u:p,"),
            ("'h','80','u','p'", "'h','80','u','p'"),
            ("http://u:p@h:80", "http://u:p@h:80"),
            ("", ""),
        ] {
            assert_eq!(unwrapped(line), proxy, "{line}");
        }
    }
}
