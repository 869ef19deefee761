//! One proxy in a line of its own: in one word, or in several fields without names.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::cells;
use super::draft::{Draft, Listed};
use super::form::{self, Form, Login};
use super::place::{self, Likeness};
use super::protocol::{Protocol, Protocols};
use super::reason::Reason;

/// A line with more fields is not about one proxy.
const MAX_FIELDS: usize = 64;

/// Reads a line that is neither empty nor a comment, without blanks around it.
pub(super) fn read(line: &str, default: Option<Protocol>) -> Result<Listed, Reason> {
    let line = without_comment(line);
    let cells = cells::delimiter(line).map(|delimiter| cells::split(line, delimiter));
    let fields = cells.as_deref().map(|cells| guess(cells, default, Likeness::Label));
    if !line.contains(char::is_whitespace) {
        match (form::read(line, default), &fields) {
            // What stands between fields may also be part of a password. A line that makes sense as one word is one, unless
            // all others of its fields say something that is known, or it would be part of the user name.
            (Ok(form), Some(Ok(fields))) if fields.is_plain || fields.is_better_than(&form) => {}
            (Ok(form), Some(Err(Reason::Several))) if form.has_in_user(&cells::DELIMITERS) => {
                return Err(Reason::Several);
            }
            (Ok(form), _) => return Draft::of(form).finish(default),
            (Err(reason), None) if !line.contains(['"', '\'']) => return Err(reason),
            _ => {}
        }
    }
    let reason = match fields {
        Some(Ok(fields)) => return fields.finish(default),
        Some(Err(reason)) => reason,
        None => Reason::Unknown,
    };
    // Between blanks there may be a sentence, in which a word and a number are no host and port.
    match guess(&cells::words(line), default, Likeness::Dotted) {
        Ok(fields) => fields.finish(default),
        Err(Reason::Unknown) if reason == Reason::Unknown && line.matches('"').count() % 2 == 1 => Err(Reason::Quote),
        Err(Reason::Unknown) => Err(reason),
        Err(other) => Err(other),
    }
}

/// Reads fields without names.
pub(super) fn read_cells(cells: &[String], default: Option<Protocol>) -> Result<Listed, Reason> {
    let cells: Vec<_> = cells.iter().map(|cell| Cow::Borrowed(&cell[..])).collect();
    guess(&cells, default, Likeness::Label)?.finish(default)
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

/// What fields without names seem to say.
struct Guess<'a> {
    draft: Draft<'a>,
    /// There is more than the place, and all of it is known.
    is_plain: bool,
    /// There is nothing but the place.
    is_alone: bool,
}

impl Guess<'_> {
    fn is_better_than(&self, form: &Form<'_>) -> bool {
        self.draft.form.likeness() >= form.likeness() && form.has_in_user(&cells::DELIMITERS)
    }

    /// What is put together of fields says its scheme; what stands alone stays as it is.
    fn finish(self, default: Option<Protocol>) -> Result<Listed, Reason> {
        let usual = (!self.is_alone).then_some(Protocol::Http);
        self.draft.finish(default.or(usual))
    }
}

/// Finds out which field is what: first the host and port, which must look like ones, at least like `least`; then what is
/// known by its looks; then user and password, which must stand together and next to them.
fn guess<'a>(cells: &'a [Cow<'_, str>], default: Option<Protocol>, least: Likeness) -> Result<Guess<'a>, Reason> {
    let cells: Vec<&str> = cells.iter().map(|cell| cells::unquoted(cell)).filter(|cell| !cell.is_empty()).collect();
    if cells.len() > MAX_FIELDS {
        return Err(Reason::Unknown);
    }
    let Found { form, first, last, .. } = find_place(&cells, default, least)?;
    let mut draft = Draft::of(form);
    let (mut open, mut says_more) = (Vec::new(), false);
    for (at, &cell) in cells.iter().enumerate().filter(|(at, _)| !(first..=last).contains(at)) {
        says_more |= cell.contains(char::is_alphanumeric);
        if Protocols::are(cell) {
            draft.protocols.add(cell);
        } else if (at, first) == (0, 1) && place::is_digits(cell) {
            // Only the number of the row.
        } else if !cell.contains(char::is_whitespace) && !draft.meta.takes(cell) {
            open.push(at);
        }
    }
    // A protocol may stand between the place and the login.
    let is_protocol = |at: &usize| Protocols::are(cells[*at]);
    let before = (0..first).rev().find(|at| !is_protocol(at));
    let behind = (last + 1..cells.len()).find(|at| !is_protocol(at));
    draft.login = find_login(&cells, &open, before, behind)?;
    Ok(Guess { draft, is_plain: open.is_empty() && says_more, is_alone: cells.len() == 1 })
}

/// A host and a port, in one cell or in two.
struct Found<'a> {
    form: Form<'a>,
    likeness: Likeness,
    first: usize,
    last: usize,
}

/// The cells that look most like a host and a port.
fn find_place<'a>(cells: &[&'a str], default: Option<Protocol>, least: Likeness) -> Result<Found<'a>, Reason> {
    let mut best: Option<Found<'a>> = None;
    let (mut rivals, mut reason) = (0, Reason::Unknown);
    for (first, &cell) in cells.iter().enumerate() {
        let found = match cells.get(first + 1) {
            Some(port) if place::is_port(port) && (place::host(cell) > Likeness::No || place::is_ipv6(cell)) => {
                let likeness = if place::is_ipv6(cell) { Likeness::Ip } else { place::host(cell) };
                let form = Form::Parts { protocol: None, host: cell, port, login: None };
                Found { form, likeness, first, last: first + 1 }
            }
            Some(port) if place::host(cell) == Likeness::Ip => {
                reason = form::port_reason(port);
                continue;
            }
            _ => match form::read(cell, default) {
                Ok(form) => Found { likeness: form.likeness(), form, first, last: first },
                Err(why) => {
                    let is_news = reason == Reason::Unknown && !matches!(why, Reason::Host | Reason::NotAPort);
                    reason = if is_news { why } else { reason };
                    continue;
                }
            },
        };
        // A port is no host, and a single label is one only in front.
        let is_behind = best.as_ref().is_some_and(|best| first <= best.last);
        let is_late = found.likeness == Likeness::Label && cells[..first].iter().any(|cell| !Protocols::are(cell));
        if is_behind || is_late || found.likeness < least {
            continue;
        }
        match best.as_ref().map(|best| best.likeness.cmp(&found.likeness)) {
            Some(Ordering::Greater) => {}
            Some(Ordering::Equal) => rivals += 1,
            None | Some(Ordering::Less) => (best, rivals) = (Some(found), 0),
        }
    }
    if rivals > 0 { Err(Reason::Several) } else { best.ok_or(reason) }
}

/// User and password, among the cells that are `open`, next to the place.
fn find_login<'a>(
    cells: &[&'a str],
    open: &[usize],
    before: Option<usize>,
    behind: Option<usize>,
) -> Result<Option<Login<'a>>, Reason> {
    let login = |user: &'a str, password: &'a str| Ok(Some(Login { user: user.into(), password: password.into() }));
    // A URL is no login: it is another proxy, or the next hop of a chain that does not hold, whose secrets are not for this one.
    if open.iter().any(|&at| cells[at].contains("://")) {
        return Err(Reason::Fields);
    }
    if let [only] = open {
        // A user:password of its own. Anything else that stands alone is no login.
        return match cells[*only].split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => login(user, password),
            _ => Ok(None),
        };
    }
    let pair = open.windows(2).find(|pair| {
        let is_next = Some(pair[0]) == behind || Some(pair[1]) == before;
        pair[0] + 1 == pair[1] && is_next
    });
    match pair {
        None => Ok(None),
        // A number first may as well be how fast it is, or a place in a ranking.
        Some(&[user, password]) if open.len() == 2 && !place::is_digits(cells[user]) => {
            login(cells[user], cells[password])
        }
        Some(_) => Err(Reason::Fields),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(line: &str) -> Result<String, Reason> {
        read(line, None).map(|listed| String::from_utf8(listed.member.name().to_vec()).unwrap())
    }

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
    fn fields_without_names_are_known_by_their_looks() {
        for (line, name) in [
            ("10.0.0.7,3128", "http://10.0.0.7:3128"),
            ("10.0.0.7;3128;socks5", "socks5://10.0.0.7:3128"),
            ("socks5 10.0.0.7 1080 user s3cret", "socks5://user:s3cret@10.0.0.7:1080"),
            ("10.0.0.7\t3128\tuser\ts3cret", "http://user:s3cret@10.0.0.7:3128"),
            ("10.0.0.7,3128,http,user,s3:cret,DE,elite", "http://user:s3%3Acret@10.0.0.7:3128"),
            ("user,12345,10.0.0.7,3128", "http://user:12345@10.0.0.7:3128"),
            ("10.0.0.7,3128,user,12345", "http://user:12345@10.0.0.7:3128"),
            ("10.0.0.7:3128,user:s3cret", "http://user:s3cret@10.0.0.7:3128"),
            ("10.0.0.7:3128 DE-A-S +", "http://10.0.0.7:3128"),
            ("10.0.0.7|3128|Germany|New York|yes|0.3 s", "http://10.0.0.7:3128"),
            ("1, 10.0.0.7, 3128, john.doe, 1234", "http://john.doe:1234@10.0.0.7:3128"),
            ("2001:db8::1,3128", "http://[2001:db8::1]:3128"),
            ("gate.example,3128,DE", "http://gate.example:3128"),
            ("proxy,3128", "http://proxy:3128"),
            ("http,proxy,3128,u,p", "http://u:p@proxy:3128"),
            ("\"10.0.0.7:3128\",", "10.0.0.7:3128"),
            ("'10.0.0.7:3128'", "10.0.0.7:3128"),
            ("- http://u:p@10.0.0.7:3128", "http://u:p@10.0.0.7:3128"),
            ("10.0.0.7,3128,user,a:b@c:80", "http://user:a%3Ab%40c%3A80@10.0.0.7:3128"),
            ("user,x:p,w@proxy:3128", "user,x:p,w@proxy:3128"),
            ("10.0.0.7:3128:user:p,w;|", "http://user:p%2Cw%3B%7C@10.0.0.7:3128"),
            ("10.0.0.7:3128:user:s3cret,DE", "http://user:s3cret@10.0.0.7:3128"),
            ("http://u:a,b@10.0.0.7:3128", "http://u:a,b@10.0.0.7:3128"),
            ("http://10.0.0.7:3128|socks5://10.0.0.8:1080", "http://10.0.0.7:3128|socks5://10.0.0.8:1080"),
        ] {
            assert_eq!(member(line).as_deref(), Ok(name), "{line}");
        }
    }

    #[test]
    fn fields_that_could_mean_several_things_are_not_guessed_at() {
        for (line, reason) in [
            ("10.0.0.7,3128,user,s3cret,token", Reason::Fields),
            ("10.0.0.7,3128,120,Germany", Reason::Fields),
            ("10.0.0.7:3128, 10.0.0.8:3128", Reason::Several),
            ("10.0.0.7,3128,user,a:b@10.0.0.8:80", Reason::Several),
            ("10.0.0.7,99999,u,p", Reason::Port(99999)),
            ("10.0.0.7,DE", Reason::NotAPort),
            ("http://10.0.0.1:3128|socks5://user:s3cret@b.example", Reason::Fields),
            ("http://10.0.0.1:3128|socks5://b.example:99999", Reason::Fields),
            ("http://10.0.0.1:3128|ftp://b.example:21", Reason::Fields),
            ("10.0.0.7:99999 DE", Reason::Port(99999)),
            ("page 12 of them", Reason::Unknown),
            ("Updated 2026-11-30 12:00", Reason::Unknown),
            ("see http://10.0.0.7:3128 for how it is done", Reason::Fields),
            ("<td>10.0.0.7</td><td>3128</td>", Reason::Unknown),
        ] {
            assert_eq!(member(line), Err(reason), "{line}");
        }
    }
}
