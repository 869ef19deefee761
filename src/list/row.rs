//! One proxy in a line of its own: in one word, or in several fields without names.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::cells;
use super::draft::{Draft, Listed};
use super::fields::Field;
use super::form::{self, Form, Open};
use super::login;
use super::meta;
use super::place::{self, Likeness};
use super::protocol::{Protocol, Protocols};
use super::reason::Reason;
use super::wrapping::unwrapped;

/// A line with more fields is not about one proxy.
const MAX_FIELDS: usize = 64;

/// What stands between fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Between {
    /// One of the delimiters, so that blanks are part of them.
    Delimiters,
    /// Blanks too: it may be a sentence, in which a word and a number are no host and port.
    Blanks,
    /// Nothing: they come as values, which are what they are.
    Values,
}

/// Reads a line that is neither empty nor a comment, without blanks around it.
pub(super) fn read(line: &str, default: Option<Protocol>) -> Result<Listed, Reason> {
    let line = unwrapped(line);
    // A bar between hops is none between fields.
    let has_hops = form::joint(line).is_some();
    let delimiter = cells::delimiter(line).filter(|&delimiter| delimiter != b'|' || !has_hops);
    let cells = delimiter.map(|delimiter| cells::split(line, delimiter));
    let fields = cells.as_deref().map(|cells| guess(cells, default, Between::Delimiters));
    let has_odd_quote = line.matches('"').count() % 2 == 1;
    let mut reason = Reason::Unknown;
    if !line.contains(char::is_whitespace) {
        match (form::read(line, default), &fields) {
            (Ok(form), Some(fields)) => match is_one_word(&form, fields) {
                Ok(true) => return Draft::of(form).finish(default),
                Ok(false) => {}
                Err(reason) => return Err(reason),
            },
            (Ok(form), None) => return Draft::of(form).finish(default),
            (Err(why), None) if !has_odd_quote => return Err(why),
            (Err(why @ Reason::Hop(..)), _) if has_next_hop(line) => return Err(why),
            (Err(why @ Reason::Extent), Some(fields)) if !fields.as_ref().is_ok_and(|fields| fields.is_plain) => {
                return Err(why);
            }
            _ => {}
        }
    }
    match fields {
        Some(Ok(fields)) if fields.draft.login.is_some() && has_odd_quote => return Err(Reason::Quote),
        Some(Ok(fields)) => return fields.finish(default),
        // Something is there; to look at it in smaller pieces would only lose what belongs together.
        Some(Err(why)) if why.has_readings() => return Err(why),
        Some(Err(why)) => reason = why,
        None => {}
    }
    match guess(&cells::words(line, has_hops), default, Between::Blanks) {
        Ok(fields) => fields.finish(default),
        Err(Reason::Unknown) if reason == Reason::Unknown && has_odd_quote => Err(Reason::Quote),
        Err(Reason::Unknown) => Err(reason),
        Err(other) => Err(other),
    }
}

/// Reads fields without names.
pub(super) fn read_cells(cells: &[String], default: Option<Protocol>) -> Result<Listed, Reason> {
    let cells: Vec<_> = cells.iter().map(|cell| Cow::Borrowed(&cell[..])).collect();
    guess(&cells, default, Between::Values)?.finish(default)
}

/// Whether a line that makes sense as one word is one, though it makes `fields` too. What stands between fields may also be
/// part of a password.
fn is_one_word(form: &Form<'_>, fields: &Result<Guess<'_>, Reason>) -> Result<bool, Reason> {
    let (Some(open), Some((user, password))) = (form.open(), form.login()) else { return Ok(true) };
    let (_, behind) = password.split_once(is_delimiter).unwrap_or((password, ""));
    let are_words = !behind.is_empty() && behind.split(is_delimiter).all(is_word);
    match fields {
        // All others of its fields say something that is known.
        Ok(fields) if fields.is_plain => Ok(false),
        // It would be part of a user name, and there is as good a place elsewhere.
        Ok(fields) if user.contains(is_delimiter) && fields.draft.form.likeness() >= form.likeness() => Ok(false),
        Err(Reason::Several) if user.contains(is_delimiter) => Err(Reason::Several),
        _ if user.contains(is_delimiter) || (open == Open::Back && are_words) => Err(Reason::Extent),
        _ => Ok(true),
    }
}

fn is_delimiter(c: char) -> bool {
    cells::DELIMITERS.iter().any(|&delimiter| char::from(delimiter) == c)
}

/// Something that people read, rather than a part of a password.
fn is_word(text: &str) -> bool {
    text.chars().count() > 2 && text.chars().all(char::is_alphabetic)
}

/// Whether behind a bar there is something that looks like another proxy.
fn has_next_hop(line: &str) -> bool {
    let is_place =
        |text: &str| matches!(place::parts(text)[..], [host, port] if place::likeness(host, port) > Likeness::No);
    line.split('|').skip(1).any(|hop| hop.contains("://") || hop.contains('@') || is_place(hop))
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
    /// What is put together of fields says its scheme; what stands alone stays as it is.
    fn finish(self, default: Option<Protocol>) -> Result<Listed, Reason> {
        let usual = (!self.is_alone).then_some(Protocol::Http);
        self.draft.finish(default.or(usual))
    }
}

/// Finds out which field is what: first the host and port, which must look like ones; then what says its name, or is known by
/// its looks; then user and password, of what is left.
fn guess<'a>(cells: &'a [Cow<'_, str>], default: Option<Protocol>, between: Between) -> Result<Guess<'a>, Reason> {
    let unquoted = |cell: &'a Cow<'_, str>| if between == Between::Values { cell } else { cells::unquoted(cell) };
    let cells: Vec<&str> = cells.iter().map(unquoted).filter(|cell| !cell.is_empty()).collect();
    if cells.len() > MAX_FIELDS {
        return Err(Reason::Unknown);
    }
    let least = if between == Between::Blanks { Likeness::Dotted } else { Likeness::Label };
    let Found { form, first, last, .. } = find_place(&cells, default, least)?;
    let open = form.open();
    if form
        .login()
        .is_some_and(|(user, password)| open.is_some() && (user.to_owned() + password).contains(char::is_whitespace))
    {
        return Err(Reason::Extent);
    }
    let mut draft = Draft::of(form);
    let (mut unknown, mut named, mut says_more) = (Vec::new(), login::Named::default(), false);
    let has_password = cells.iter().any(|cell| matches!(named_by(cell), Some((Some(Field::Password), _))));
    for (at, &cell) in cells.iter().enumerate().filter(|(at, _)| !(first..=last).contains(at)) {
        says_more |= cell.contains(char::is_alphanumeric);
        if is_protocol(cell) {
            draft.protocols.add(cell.trim_end_matches(':'));
            continue;
        }
        if (at, first) == (0, 1) && place::is_digits(cell) {
            // Only the number of the row.
            continue;
        }
        match named_by(cell).filter(|_| between != Between::Values) {
            // user:password, and not its name.
            Some((Some(Field::User | Field::Login), _)) if !has_password && !cell.contains('=') => unknown.push(at),
            Some((Some(field), value)) => match field {
                Field::User | Field::Password | Field::Login => named.set(field, value)?,
                Field::Protocol => draft.protocols.add(value),
                Field::Type => draft.protocols.add_some(value),
                Field::Country => draft.meta.set_country(value),
                Field::Anonymity => draft.meta.set_anonymity(value),
                Field::Place | Field::Host | Field::Ip | Field::Port | Field::Speaks(_) => {
                    return Err(Reason::Fields);
                }
            },
            Some((None, _)) => {}
            None if are_signs(cell) => unknown.push(at),
            // Behind something unknown it may be a part of a login.
            None if cells::is_aside(cell) && open.is_none() && unknown.last().is_none_or(|&last| last + 1 < at) => {}
            None if draft.meta.takes(cell.trim()) => {}
            None => unknown.push(at),
        }
    }
    let is_beside = |&at: &usize| match open {
        Some(Open::Front) => at < first,
        Some(Open::Back) => at > last,
        None => false,
    };
    if unknown.iter().any(is_beside) {
        return Err(Reason::Extent);
    }
    // A protocol may stand between the place and the login.
    let before = (0..first).rev().find(|&at| !is_protocol(cells[at]));
    let behind = (last + 1..cells.len()).find(|&at| !is_protocol(cells[at]));
    let is_split = last > first;
    let found = login::find(&cells, &unknown, [before, behind], between, is_split)?;
    draft.login = match (named.login()?, found) {
        (Some(_), Some(_)) => return Err(Reason::Fields),
        (named, found) => named.or(found.filter(|_| draft.form.login().is_none())),
    };
    Ok(Guess { draft, is_plain: unknown.is_empty() && says_more, is_alone: cells.len() == 1 })
}

/// Whether a cell is made of signs that may be a part of a login: more than a dash or a bullet.
fn are_signs(cell: &str) -> bool {
    let is_drawn = ["--", "---", "->", "=>", "...", "||"].contains(&cell);
    cell.bytes().all(|b| b.is_ascii_punctuation()) && !is_drawn && (cell.len() > 1 || ["@", ":", "="].contains(&cell))
}

/// Whether a cell names a protocol and nothing else: `socks5`, `socks5:`.
fn is_protocol(cell: &str) -> bool {
    Protocols::are(cell.strip_suffix(':').unwrap_or(cell))
}

/// A cell that says its name, `user=…` or `country:…`: which it is, if that is of interest, and the rest.
fn named_by(cell: &str) -> Option<(Option<Field>, &str)> {
    let (name, value) = cell.split_once(['=', ':'])?;
    let field = Field::named(name);
    let is_name = !value.is_empty() && form::is_name(name) && !cell.contains("://");
    let is_said = field.is_some() || meta::is_remark(name);
    (is_name && is_said).then_some((field, value))
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
    for (first, cell) in cells.iter().map(|cell| cell.trim()).enumerate() {
        let found = match cells.get(first + 1).map(|port| port.trim()) {
            Some(port) if place::is_port(port) && (place::host(cell) > Likeness::No || place::is_ipv6(cell)) => {
                let likeness = if place::is_ipv6(cell) { Likeness::Ip } else { place::host(cell) };
                let form = Form::Parts { protocol: None, host: cell, port, login: None, open: None };
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
        let is_late = found.likeness == Likeness::Label && cells[..first].iter().any(|cell| !is_protocol(cell));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn member(line: &str) -> Result<String, Reason> {
        read(line, None).map(|listed| String::from_utf8(listed.member.name().to_vec()).unwrap())
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
            ("10.0.0.7:3128:user:p,w;|x", "http://user:p%2Cw%3B%7Cx@10.0.0.7:3128"),
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
