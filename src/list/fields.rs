//! Fields with names: the columns of a table, the keys of an object.

use std::borrow::Cow;

use super::draft::{Draft, Listed};
use super::form::{self, Form, Login};
use super::meta::Meta;
use super::place::{self, Likeness};
use super::protocol::{Protocol, Protocols};
use super::reason::Reason;

/// What a field is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// All of it: a URL, or host and port.
    Place,
    /// Where to connect, when there is an [`Field::Ip`] too.
    Host,
    Ip,
    Port,
    Protocol,
    /// The protocol, or how anonymous, or whatever else there are types of.
    Type,
    User,
    Password,
    /// `user:password`.
    Login,
    Country,
    Anonymity,
}

/// Names in small letters, without what is between words.
const NAMES: [(Field, &[&str]); 11] = [
    (
        Field::Place,
        &["proxy", "proxies", "proxyurl", "proxyuri", "url", "uri", "ipport", "hostport", "addressport", "endpoint"],
    ),
    (Field::Host, &["host", "hostname", "server", "proxyhost", "proxyserver", "proxyaddress", "domain", "gateway"]),
    (Field::Ip, &["ip", "ipaddress", "address", "addr", "ipaddr", "proxyip", "ipv4", "ipv6"]),
    (Field::Port, &["port", "proxyport", "portnumber"]),
    (Field::Protocol, &["protocol", "protocols", "scheme", "schemes", "proxyprotocol", "proto"]),
    (Field::Type, &["type", "types", "proxytype"]),
    (Field::User, &["user", "username", "login", "proxyuser", "proxyusername", "proxylogin", "authuser"]),
    (
        Field::Password,
        &[
            "password",
            "pass",
            "passwd",
            "passwort",
            "pwd",
            "pw",
            "proxypassword",
            "proxypass",
            "authpassword",
            "authpass",
        ],
    ),
    (Field::Login, &["auth", "credentials", "userpass", "userpassword", "loginpass", "loginpassword"]),
    (
        Field::Country,
        &["country", "countrycode", "countryname", "code", "cc", "isocode", "countryiso", "iso", "alpha2"],
    ),
    (Field::Anonymity, &["anonymity", "anonymitylevel", "anonymous", "anonymoustype", "anon", "anonlevel", "level"]),
];

impl Field {
    pub(super) fn named(name: &str) -> Option<Self> {
        // The longest name there is has 16 letters.
        if name.len() > 32 {
            return None;
        }
        let name: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        NAMES.iter().find(|(_, names)| names.contains(&&name[..])).map(|(field, _)| *field)
    }
}

/// What the fields of one entry hold. The first of several with the same meaning counts.
#[derive(Default)]
pub(super) struct Fields<'a> {
    place: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
    ip: Option<Cow<'a, str>>,
    port: Option<Cow<'a, str>>,
    user: Option<Cow<'a, str>>,
    password: Option<Cow<'a, str>>,
    protocols: Protocols,
    meta: Meta,
}

impl<'a> Fields<'a> {
    pub(super) fn set(&mut self, field: Field, value: Cow<'a, str>) {
        let trimmed = match value {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
            Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
        };
        if trimmed.is_empty() {
            return;
        }
        let slot = match field {
            Field::Place => &mut self.place,
            Field::Host => &mut self.host,
            Field::Ip => &mut self.ip,
            Field::Port => &mut self.port,
            Field::User => &mut self.user,
            Field::Password => &mut self.password,
            Field::Login => {
                let (user, password) = trimmed.split_once(':').unwrap_or((&trimmed, ""));
                let (user, password) = (user.to_owned(), password.to_owned());
                self.user.get_or_insert(user.into());
                self.password.get_or_insert(password.into());
                return;
            }
            Field::Protocol => return self.protocols.add(&trimmed),
            Field::Type => {
                self.protocols.add_some(&trimmed);
                return self.meta.set_anonymity(&trimmed);
            }
            Field::Country => return self.meta.set_country(&trimmed),
            Field::Anonymity => return self.meta.set_anonymity(&trimmed),
        };
        // Quotes as in source code are part of no host, but they may be part of a password.
        let is_login = matches!(field, Field::User | Field::Password);
        let bare = trimmed.trim_matches(['"', '\'']);
        slot.get_or_insert(if is_login || bare.len() == trimmed.len() { trimmed } else { bare.to_owned().into() });
    }

    pub(super) fn has_place(&self) -> bool {
        self.place.is_some() || self.host.is_some() || self.ip.is_some()
    }

    /// Whether there is a port, by itself or behind a host.
    pub(super) fn has_port(&self) -> bool {
        let places = [&self.place, &self.host, &self.ip];
        self.port.is_some() || places.iter().any(|place| place.as_ref().is_some_and(|text| text.contains(':')))
    }

    /// The proxy that they are about. `default`: what is spoken when they do not say.
    pub(super) fn read(&self, default: Option<Protocol>) -> Result<Listed, Reason> {
        let default = default.or(Some(Protocol::Http));
        let named = self.protocols.best().ok().flatten();
        let draft = Draft {
            form: self.form(named.or(default))?,
            login: self.login(),
            protocols: self.protocols,
            meta: self.meta.clone(),
        };
        draft.finish(default)
    }

    /// What has its own port says more than two fields; of those, the host is where to connect, and the address often only
    /// where it comes out.
    fn form(&self, default: Option<Protocol>) -> Result<Form<'_>, Reason> {
        let mut reason = Reason::NoHost;
        if let Some(place) = &self.place {
            match form::read(place, default) {
                Ok(form) => return Ok(form),
                Err(why) => reason = why,
            }
        }
        for host in [&self.host, &self.ip, &self.place].into_iter().flatten() {
            let Some(port) = &self.port else {
                match form::read(host, default) {
                    Ok(form) => return Ok(form),
                    Err(why) => reason = why,
                }
                continue;
            };
            if place::host(host) > Likeness::No || place::is_ipv6(host) {
                if place::is_port(port) {
                    return Ok(Form::Parts { protocol: None, host, port, login: None });
                }
                return Err(form::port_reason(port));
            }
            // A port of its own beats the one beside it.
            match form::read(host, default) {
                Ok(form) => return Ok(form),
                Err(_) => reason = Reason::Host,
            }
        }
        Err(reason)
    }

    /// What programs write for nothing is no user.
    fn login(&self) -> Option<Login<'_>> {
        let is_nothing = |text: &Option<Cow<'_, str>>| {
            let nothing = ["-", "none", "null", "nil", "n/a", "nan"];
            text.as_ref().is_none_or(|text| nothing.iter().any(|word| text.eq_ignore_ascii_case(word)))
        };
        if is_nothing(&self.user) && is_nothing(&self.password) {
            return None;
        }
        let text = |text: &'_ Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
        Some(Login { user: text(&self.user).into(), password: text(&self.password).into() })
    }
}
