//! Fields with names: the columns of a table, the keys of an object.

use std::borrow::Cow;
use std::cmp::Ordering;

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
    /// Whether this protocol is spoken: a column `socks5` with yes or no in it.
    Speaks(Protocol),
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

    /// The same of a column's name or a key, which may have been put together of several, `geolocation.country`, and may be a
    /// protocol's: not "https", by which lists mean that CONNECT works.
    pub(super) fn of_column(name: &str) -> Option<Self> {
        let inner = || {
            let (_, last) = name.rsplit_once('.')?;
            Self::named(last).filter(|field| matches!(field, Self::User | Self::Password | Self::Login | Self::Country))
        };
        let speaks = || name.parse().ok().filter(|&protocol| protocol != Protocol::Https).map(Self::Speaks);
        Self::named(name).or_else(inner).or_else(speaks)
    }
}

/// What the fields of one entry hold. Of several with the same meaning the first counts that makes sense; where two of them make
/// sense and differ, the entry has no reading.
#[derive(Default)]
pub(super) struct Fields<'a> {
    place: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
    ip: Option<Cow<'a, str>>,
    port: Option<Cow<'a, str>>,
    user: Option<Cow<'a, str>>,
    password: Option<Cow<'a, str>>,
    /// `user:password`, or a word about how one logs in.
    login: Option<Cow<'a, str>>,
    protocols: Protocols,
    /// What is spoken by the yes and no of fields of their own.
    spoken: Protocols,
    meta: Meta,
    trouble: Option<Reason>,
}

impl<'a> Fields<'a> {
    /// Takes a value. A user name and a password are what they are, blanks at their ends included; of everything else those
    /// are no part.
    pub(super) fn set(&mut self, field: Field, value: Cow<'a, str>) {
        let trimmed = match value {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
            Cow::Owned(ref text) => Cow::Owned(text.trim().to_owned()),
        };
        if trimmed.is_empty() {
            return;
        }
        let (slot, value) = match field {
            Field::User => (&mut self.user, value),
            Field::Password => (&mut self.password, value),
            Field::Login => (&mut self.login, value),
            Field::Place => (&mut self.place, bare(trimmed)),
            Field::Host => (&mut self.host, bare(trimmed)),
            Field::Ip => (&mut self.ip, bare(trimmed)),
            Field::Port => (&mut self.port, bare(trimmed)),
            Field::Protocol => return self.protocols.add(&trimmed),
            Field::Speaks(protocol) if is_yes(&trimmed) => return self.spoken.add(protocol.name()),
            Field::Speaks(_) => return,
            Field::Type => {
                self.protocols.add_some(&trimmed);
                return self.meta.set_anonymity(&trimmed);
            }
            Field::Country => return self.meta.set_country(&trimmed),
            Field::Anonymity => return self.meta.set_anonymity(&trimmed),
        };
        let Some(known) = slot else {
            *slot = Some(value);
            return;
        };
        if known.eq_ignore_ascii_case(&value) && (known == &value || !field.is_secret()) {
            return;
        }
        match sense(field, known).cmp(&sense(field, &value)) {
            Ordering::Greater => {}
            Ordering::Less => *slot = Some(value),
            Ordering::Equal if sense(field, &value) == Likeness::No => {}
            Ordering::Equal => self.refuse(Reason::Contradiction(field.name())),
        }
    }

    /// That the entry cannot be taken, whatever else it says. The first reason counts.
    pub(super) fn refuse(&mut self, reason: Reason) {
        self.trouble.get_or_insert(reason);
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
        if let Some(reason) = &self.trouble {
            return Err(reason.clone());
        }
        let default = default.or(Some(Protocol::Http));
        let named = if self.protocols == Protocols::default() { self.spoken } else { self.protocols };
        let form = self.form(named.best(default).ok().flatten().or(default))?;
        // Beside a scheme, yes and no may be about what the proxy lets through.
        let protocols = if form.has_scheme() { self.protocols } else { named };
        let draft = Draft { form, login: self.login()?, protocols, meta: self.meta.clone() };
        draft.finish(default)
    }

    /// What has its own port says more than two fields, which must not say something else; of those, the host is where to
    /// connect, and the address often only where it comes out.
    fn form(&self, default: Option<Protocol>) -> Result<Form<'_>, Reason> {
        let mut reason = Reason::NoHost;
        if let Some(place) = &self.place {
            match form::read(place, default) {
                Ok(form) => return self.agreed(form),
                Err(why) => reason = why,
            }
        }
        for host in [&self.host, &self.ip, &self.place].into_iter().flatten() {
            let Some(port) = &self.port else {
                match form::read(host, default) {
                    Ok(form) => return self.agreed(form),
                    Err(why) => reason = why,
                }
                continue;
            };
            if place::host(host) > Likeness::No || place::is_ipv6(host) {
                if place::is_port(port) {
                    return Ok(Form::Parts { protocol: None, host, port, login: None, open: None });
                }
                return Err(form::port_reason(port));
            }
            match form::read(host, default) {
                Ok(form) => return self.agreed(form),
                Err(why @ Reason::Port(_)) => return Err(why),
                Err(_) => reason = Reason::Host,
            }
        }
        Err(reason)
    }

    /// A host and port from one field, unless there are others in fields of their own. Of a name and an address neither is
    /// wrong.
    fn agreed<'f>(&self, form: Form<'f>) -> Result<Form<'f>, Reason> {
        let Some((host, port)) = form.place() else { return Ok(form) };
        let is_other_port = |text: &Cow<'_, str>| place::is_port(text) && text.parse() != Ok(port);
        if self.port.as_ref().is_some_and(is_other_port) {
            return Err(Reason::Contradiction("port"));
        }
        let is_name = |text: &str| place::host(text) == Likeness::Dotted;
        let is_other_host = |text: &Cow<'_, str>| is_name(text) && is_name(&host) && !text.eq_ignore_ascii_case(&host);
        if self.host.as_ref().is_some_and(is_other_host) {
            return Err(Reason::Contradiction("host"));
        }
        Ok(form)
    }

    /// What programs write for nothing is no user.
    fn login(&self) -> Result<Option<Login<'_>>, Reason> {
        let some = |text: &'_ Option<Cow<'_, str>>| text.as_deref().filter(|text| !is_nothing(text)).map(str::to_owned);
        let given = (some(&self.user).is_some() || some(&self.password).is_some()).then(|| {
            let text = |text: &Option<Cow<'_, str>>| text.as_deref().unwrap_or_default().to_owned();
            Login { user: text(&self.user).into(), password: text(&self.password).into() }
        });
        let Some(login) = some(&self.login) else { return Ok(given) };
        match (login.split_once(':'), given) {
            (Some((user, password)), Some(given)) if (user, password) != (&given.user, &given.password) => {
                Err(Reason::Contradiction("user name or password"))
            }
            (_, Some(given)) => Ok(Some(given)),
            (Some((user, password)), None) => {
                Ok(Some(Login { user: user.to_owned().into(), password: password.to_owned().into() }))
            }
            // How one logs in, and not with what.
            (None, None)
                if ["basic", "digest", "ip", "yes", "no", "true", "false"]
                    .iter()
                    .any(|word| login.eq_ignore_ascii_case(word)) =>
            {
                Ok(None)
            }
            (None, None) => Err(Reason::Extent),
        }
    }
}

impl Field {
    /// As a reason calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Place | Self::Host | Self::Ip => "host",
            Self::Port => "port",
            Self::User | Self::Password | Self::Login => "user name or password",
            Self::Protocol | Self::Type | Self::Speaks(_) => "protocol",
            Self::Country => "country",
            Self::Anonymity => "anonymity",
        }
    }

    fn is_secret(self) -> bool {
        matches!(self, Self::User | Self::Password | Self::Login)
    }
}

/// How much sense a value makes in a field.
fn sense(field: Field, text: &str) -> Likeness {
    let host = if place::is_ipv6(text) { Likeness::Ip } else { place::host(text) };
    match field {
        Field::Port if place::is_port(text) => Likeness::Ip,
        Field::Port => Likeness::No,
        Field::User | Field::Password | Field::Login if is_nothing(text) => Likeness::No,
        Field::User | Field::Password | Field::Login => Likeness::Ip,
        _ if form::read(text, None).is_ok() => Likeness::Ip,
        _ => host,
    }
}

/// Quotes as in source code are part of no host.
fn bare(text: Cow<'_, str>) -> Cow<'_, str> {
    let bare = text.trim_matches(['"', '\'']);
    if bare.len() == text.len() { text } else { bare.to_owned().into() }
}

fn is_yes(text: &str) -> bool {
    ["1", "yes", "y", "true", "on", "+", "x", "✓", "✔", "✅"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// What programs write where there is nothing.
fn is_nothing(text: &str) -> bool {
    ["", "-", "none", "null", "nil", "n/a", "nan"].iter().any(|word| text.trim().eq_ignore_ascii_case(word))
}
