//! User and password among fields that do not say which they are.
//!
//! They are two fields side by side, next to the host and port, or one with a colon in it. What people write behind a proxy
//! looks like that too: `Germany Berlin`, `works fine`, `ping:120`. So a login is only what can hardly be anything else, what
//! could be one as well as not has the whole line skipped, and what reads like a remark is passed over.

use super::fields::Field;
use super::form::{self, Login};
use super::place::{self, Likeness};
use super::reason::Reason;
use super::row::Between;

/// User and password that fields say by name.
#[derive(Default)]
pub(super) struct Named<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
}

impl<'a> Named<'a> {
    /// # Errors
    /// [`Reason::Contradiction`], if it has been said before and was something else.
    pub(super) fn set(&mut self, field: Field, value: &'a str) -> Result<(), Reason> {
        let (user, password) = match field {
            Field::User => (Some(value), None),
            Field::Password => (None, Some(value)),
            _ => value.split_once(':').map(|(user, password)| (Some(user), Some(password))).ok_or(Reason::Fields)?,
        };
        for (slot, value) in [(&mut self.user, user), (&mut self.password, password)] {
            let Some(value) = value else { continue };
            if *slot.get_or_insert(value) != value {
                return Err(Reason::Contradiction("user name or password"));
            }
        }
        Ok(())
    }

    /// # Errors
    /// [`Reason::Fields`], if only one of the two is there: what looks like its name may be a part of something else.
    pub(super) fn login(&self) -> Result<Option<Login<'a>>, Reason> {
        match (self.user, self.password) {
            (Some(user), Some(password)) => Ok(Some(pair(user, password))),
            (None, None) => Ok(None),
            _ => Err(Reason::Fields),
        }
    }
}

fn pair<'a>(user: &'a str, password: &'a str) -> Login<'a> {
    Login { user: user.into(), password: password.into() }
}

/// Finds them among the cells that are `unknown`. `before` and `behind`: those beside the place, which itself `is_split` into
/// two.
pub(super) fn find<'a>(
    cells: &[&'a str],
    unknown: &[usize],
    [before, behind]: [Option<usize>; 2],
    between: Between,
    is_split: bool,
) -> Result<Option<Login<'a>>, Reason> {
    // It is another proxy, or the next hop of a chain that does not hold, whose secrets are not for this one.
    if unknown.iter().any(|&at| cells[at].contains("://")) {
        return Err(Reason::Fields);
    }
    if unknown.iter().any(|&at| is_place(cells[at])) {
        return Err(Reason::Several);
    }
    if let [only] = unknown {
        let next = cells.get(only + 1).filter(|_| Some(*only) == behind);
        // The password may be a sign. Behind a name it says yes or no.
        if next.is_some_and(|next| next.len() == 1 && next.as_bytes()[0].is_ascii_punctuation())
            && !is_title(cells[*only])
        {
            return Err(Reason::Fields);
        }
        return alone(cells[*only], between);
    }
    for two in unknown.windows(2).filter(|two| two[0] + 1 == two[1]) {
        let (user, password) = (cells[two[0]], cells[two[1]]);
        let is_next = Some(two[1]) == before || Some(two[0]) == behind;
        // A number first may as well be how fast it is, or a place in a ranking.
        let is_number = place::is_digits(user);
        if is_remark(user, password) || (!is_next && is_number) {
            continue;
        }
        // Without an order of columns, two words are a remark as well as a login.
        let is_clear = between != Between::Blanks
            || (is_split && unknown.len() == 2)
            || !(is_alphabetic(user) && is_alphabetic(password));
        if is_next && unknown.len() == 2 && !is_number && is_clear && is_user(user) && is_password(password, between) {
            return Ok(Some(pair(user, password)));
        }
        return Err(Reason::Fields);
    }
    Ok(None)
}

/// A `user:password` of its own. Anything else that stands alone is no login.
fn alone(cell: &str, between: Between) -> Result<Option<Login<'_>>, Reason> {
    let Some((user, password)) = cell.split_once(':').filter(|_| !cell.contains(char::is_whitespace)) else {
        return Ok(None);
    };
    if user.is_empty() || password.is_empty() {
        return Ok(None);
    }
    let is_clear =
        !cell.contains('@') && !place::is_digits(password) && is_user(user) && is_password(password, between);
    if is_clear { Ok(Some(pair(user, password))) } else { Err(Reason::Fields) }
}

/// Whether it looks as much like another host and port as anything does.
fn is_place(cell: &str) -> bool {
    let is_address = place::parts(cell).len() > 1 && place::host(place::parts(cell)[0]) == Likeness::Ip;
    is_address || form::read(cell, None).is_ok_and(|form| form.likeness() >= Likeness::Dotted)
}

/// Whether two words side by side are what people say of a proxy: where it is, and whose.
fn is_remark(user: &str, password: &str) -> bool {
    let has_blank = |text: &str| text.contains(char::is_whitespace);
    has_blank(user) || (is_title(user) && (is_title(password) || has_blank(password)))
}

/// A name in capitals, or with one in front, like `Germany`; or what stands between such.
fn is_title(text: &str) -> bool {
    let is_name = |c: char| c.is_alphabetic() || "-'.&".contains(c);
    let mut letters = text.chars();
    let has_capital = letters.next().is_some_and(char::is_uppercase);
    let is_even = letters.clone().all(|c| !c.is_uppercase()) || letters.all(|c| !c.is_lowercase());
    ["of", "and", "the"].contains(&text) || (has_capital && is_even && text.chars().all(is_name))
}

/// Whether it may be a user name: none has a colon (RFC 7617 §2), and hardly one looks like something else.
fn is_user(text: &str) -> bool {
    let is_set = text.split_once('=').is_some_and(|(name, _)| form::is_name(name));
    !(text.contains(':') || text.starts_with('-') || is_set || is_title(text) || place::is_digits(text))
        && is_password(text, Between::Blanks)
}

/// Whether all of a password may be there, and no more: one with a blank may go on, one with a quote have another one, and a
/// delimiter at its end be none of it.
fn is_password(text: &str, between: Between) -> bool {
    let is_edge = |c: char| c == '@' || (c == '"' && between == Between::Blanks);
    let has_end = between != Between::Values && text.ends_with([',', ';', '|']);
    !(text.contains(char::is_whitespace) || text.starts_with(is_edge) || text.ends_with(is_edge) || has_end)
}

fn is_alphabetic(text: &str) -> bool {
    text.chars().all(char::is_alphabetic)
}
