//! A proxy in the making: what an entry says, before it is one member.

use percent_encoding::percent_decode_str;

use super::form::{self, Form, Login};
use super::meta::{Anonymity, Meta};
use super::place;
use super::protocol::{Protocol, Protocols};
use super::reason::Reason;
use crate::member::{Host, Member, Name};

/// A proxy of a list.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What goes into the pool.
    pub member: Member,
    /// Where it is, as the list says: an ISO 3166-1 code of two capitals, or a name as it was written.
    pub country: Option<String>,
    /// How much it tells, as the list says.
    pub anonymity: Option<Anonymity>,
}

/// What an entry says.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) form: Form<'a>,
    /// Credentials from elsewhere than the form.
    pub(super) login: Option<Login<'a>>,
    pub(super) protocols: Protocols,
    pub(super) meta: Meta,
}

impl<'a> Draft<'a> {
    pub(super) fn of(form: Form<'a>) -> Self {
        Self { form, login: None, protocols: Protocols::default(), meta: Meta::default() }
    }

    /// The member that is meant. The scheme of a URL comes first, then the protocols named, then `default`, then http.
    ///
    /// A URL without a scheme stays without one if nothing names it: as it is in the pool it can be found again.
    pub(super) fn finish(self, default: Option<Protocol>) -> Result<Listed, Reason> {
        let login = self.login.as_ref().filter(|login| !login.is_empty());
        let within = match &self.form {
            Form::Parts { login, .. } => login.as_ref(),
            Form::Url(..) => None,
        };
        if within.into_iter().chain(login).any(Login::has_control) {
            return Err(Reason::Control);
        }
        if let Some(invisible) = within.into_iter().chain(login).find_map(Login::invisible) {
            return Err(Reason::Invisible(invisible));
        }
        self.check_agreement(login)?;
        let member = match &self.form {
            Form::Url(url, member) => {
                let (scheme, rest) = match form::split_scheme(url) {
                    Some((scheme, rest)) => (Some(scheme), rest),
                    None => (self.protocol(default)?.map(Protocol::name), *url),
                };
                let login = login.filter(|_| !rest.contains('@'));
                if login.is_some() && (rest.contains("://") || member.is_direct()) {
                    return Err(Reason::Login);
                }
                let scheme = scheme.map_or(String::new(), |scheme| format!("{scheme}://"));
                let login = login.map_or(String::new(), |login| login.encoded() + "@");
                let name = format!("{scheme}{login}{rest}");
                // Mostly it is the member that it was found to be.
                if name.as_bytes() == member.name() { member.clone() } else { Member::parse(&Name::from(name))? }
            }
            Form::Parts { protocol, host, port, login, .. } => {
                let scheme = match protocol {
                    Some(protocol) => *protocol,
                    None => self.protocol(default)?.unwrap_or(Protocol::Http),
                };
                let login = login.as_ref().filter(|login| !login.is_empty()).or(self.login.as_ref());
                let login =
                    login.filter(|login| !login.is_empty()).map_or(String::new(), |login| login.encoded() + "@");
                // Beside a port of its own, an IPv6 address needs no brackets.
                let host = if place::is_ipv6(host) { format!("[{host}]") } else { (*host).to_owned() };
                Member::parse(&Name::from(format!("{scheme}://{login}{host}:{port}")))?
            }
        };
        let has_bad_host = member.way().filter_map(|hop| hop.address()).any(|address| match &address.host {
            Host::Name(name) => place::ends_in_number(name),
            Host::Ip(_) => false,
        });
        if has_bad_host {
            return Err(Reason::Host);
        }
        Ok(Listed { member, country: self.meta.country, anonymity: self.meta.anonymity })
    }

    /// That what stands in the form is not said otherwise elsewhere.
    fn check_agreement(&self, login: Option<&Login<'_>>) -> Result<(), Reason> {
        if let (Some((user, password)), Some(login)) = (self.form.login(), login) {
            let is_same = |said: &str, other: &str| {
                said == other || percent_decode_str(said).eq(other.bytes()) && matches!(self.form, Form::Url(..))
            };
            if !is_same(user, &login.user) || !is_same(password, &login.password) {
                return Err(Reason::Contradiction("user name or password"));
            }
        }
        let said = match &self.form {
            Form::Url(url, member) => form::split_scheme(url).and_then(|_| member.scheme().parse().ok()),
            Form::Parts { protocol, .. } => *protocol,
        };
        match said {
            Some(said) if !self.protocols.may_mean(said) => Err(Reason::Contradiction("protocol")),
            _ => Ok(()),
        }
    }

    fn protocol(&self, default: Option<Protocol>) -> Result<Option<Protocol>, Reason> {
        Ok(self.protocols.best(default)?.or(default))
    }
}
