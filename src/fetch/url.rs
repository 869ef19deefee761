//! A page's address: as it is asked for, and as it is shown.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::header::HeaderValue;

use crate::member::{Address, Host, Login, Malformed};
use crate::target::Authority;

/// The longest address that is looked at.
const MAX_LEN: usize = 8 << 10;
/// How much of one is shown.
const SHOWN: usize = 160;
/// A part of a path that is this long and has a digit in it may be a key to the page; lists are sold that way.
const KEY_LEN: usize = 16;

/// The address of a page: `http://[user:password@]host[:port]/path?query`, or https.
///
/// It prints without what is or could be a secret: the password, the query's values, and what looks like a key in the path.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// Without user information and fragment.
    page: ::url::Url,
    uri: Uri,
    authority: Authority,
    /// Basic, marked sensitive.
    authorization: Option<HeaderValue>,
}

/// Why a page has no address that can be fetched, in words that follow what it is about. Never quotes user information.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// No URL by the WHATWG's rules, or one without a scheme.
    #[error("cannot be read: {0}")]
    NotAUrl(String),
    /// Another scheme than these two.
    #[error("has a scheme that is neither http nor https")]
    Scheme,
    /// A host with bytes that no host has, or port 0.
    #[error("has no valid host and port")]
    Host,
    /// What Basic authentication cannot carry.
    #[error("has a user name and password that cannot be used: {0}")]
    Credentials(Malformed),
    /// Longer than anyone's page has reason to be.
    #[error("is longer than {MAX_LEN} bytes")]
    TooLong,
    /// What came by TLS must not go on without it.
    #[error("would go on without TLS")]
    Downgrade,
}

impl From<::url::ParseError> for BadUrl {
    fn from(error: ::url::ParseError) -> Self {
        Self::NotAUrl(in_words(error))
    }
}

/// What is wrong with a URL, for whoever wrote it. The crate's own words name what its parser looked for.
pub(crate) fn in_words(error: ::url::ParseError) -> String {
    use ::url::ParseError;
    match error {
        ParseError::RelativeUrlWithoutBase => "it does not begin with a scheme, like https://".to_owned(),
        ParseError::InvalidPort => "its port is not a number from 0 to 65535".to_owned(),
        ParseError::EmptyHost => "it has no host".to_owned(),
        ParseError::IdnaError
        | ParseError::InvalidIpv4Address
        | ParseError::InvalidIpv6Address
        | ParseError::InvalidDomainCharacter => "its host is neither an IP address nor a host name".to_owned(),
        other => other.to_string(),
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        if text.len() > MAX_LEN {
            return Err(BadUrl::TooLong);
        }
        Self::of(text.parse().map_err(BadUrl::from)?)
    }
}

impl Url {
    fn of(mut page: ::url::Url) -> Result<Self, BadUrl> {
        if page.as_str().len() > MAX_LEN {
            return Err(BadUrl::TooLong);
        }
        let default = match page.scheme() {
            "http" => 80,
            "https" => 443,
            _ => return Err(BadUrl::Scheme),
        };
        let authorization = match (page.username(), page.password()) {
            ("", None) => None,
            (user, password) => {
                let login = Login::parse(&format!("{user}:{}", password.unwrap_or_default()));
                Some(login.and_then(|login| login.basic()).map_err(BadUrl::Credentials)?)
            }
        };
        page.set_username("").and_then(|()| page.set_password(None)).map_err(|()| BadUrl::Host)?;
        page.set_fragment(None);
        let port = page.port().map_or_else(String::new, |port| format!(":{port}"));
        let authority = Authority::parse(&format!("{}{port}", page.host_str().unwrap_or_default()), Some(default));
        let authority = authority.map_err(|_| BadUrl::Host)?;
        let uri = page.as_str().parse::<Uri>().map_err(|error| BadUrl::NotAUrl(error.to_string()))?;
        Ok(Self { page, uri, authority, authorization })
    }

    /// Where a redirect leads. Credentials go along only to where they were meant for: the same scheme, host and port.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, BadUrl> {
        if location.len() > MAX_LEN {
            return Err(BadUrl::TooLong);
        }
        let page = self.page.join(location)?;
        let mut next = Self::of(page)?;
        if self.is_https() && !next.is_https() {
            return Err(BadUrl::Downgrade);
        }
        if next.authorization.is_none() && next.page.origin() == self.page.origin() {
            next.authorization = self.authorization.clone();
        }
        Ok(next)
    }

    pub(crate) fn is_https(&self) -> bool {
        self.page.scheme() == "https"
    }

    /// The whole address, in absolute-form.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Host and port, the port only where it is not the scheme's own.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The same to be dialed.
    pub(crate) fn address(&self) -> Address {
        Address { host: Host::of_target(&self.authority.host), port: self.authority.port }
    }

    pub(crate) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = if self.authorization.is_some() { "***@" } else { "" };
        let authority = self.authority.text.to_str().unwrap_or_default();
        let path: Vec<_> =
            self.page.path().split('/').map(|part| if may_be_key(part) { "***" } else { part }).collect();
        let query = self.page.query().map_or("", |_| "?***");
        let shown = format!("{}://{user}{authority}{}{query}", self.page.scheme(), path.join("/"));
        // The URL's rules leave nothing in it but ASCII.
        match shown.get(..SHOWN) {
            Some(cut) if shown.len() > SHOWN => write!(f, "{cut}…"),
            _ => f.write_str(&shown),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

/// The name of a file has a dot, and seldom digits.
fn may_be_key(part: &str) -> bool {
    part.len() >= KEY_LEN && !part.contains('.') && part.bytes().any(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn an_address_is_taken_apart_into_what_is_sent() {
        let page = url("HTTP://us%40er:p%3Aw@Lists.Example:8080/a/../b?c=d#e");
        assert_eq!(page.uri().to_string(), "http://lists.example:8080/b?c=d");
        assert_eq!((page.authority().text.to_str().unwrap(), page.authority().port), ("lists.example:8080", 8080));
        // base64 of us@er:p:w
        assert_eq!(page.authorization().unwrap(), "Basic dXNAZXI6cDp3");
        assert!(page.authorization().unwrap().is_sensitive());
        let page = url("https://[2001:db8::1]");
        assert_eq!(page.uri().to_string(), "https://[2001:db8::1]/");
        assert_eq!((&*page.authority().host, page.authority().port), ("2001:db8::1", 443));
        assert_eq!(page.authority().text, "[2001:db8::1]");
        assert_eq!(url("http://bücher.example/").authority().text, "xn--bcher-kva.example");
    }

    #[test]
    fn what_cannot_be_fetched_says_why_and_shows_no_secret() {
        for text in [
            "",
            "lists.example/a",
            "10.0.0.7:3128",
            "ftp://u:s3cret@h/",
            "file:///etc/passwd",
            "http://",
            "http://u:s3cret@",
            "http://u:s3cret@h:0/",
            "http://u:s3cret@h:99999/",
            "http://u:s3cret@a b/",
            "http://u%3Ax:s3cret@h/",
            "http://u:s3cret%zz@h/",
        ] {
            let why = text.parse::<Url>().map(|url| url.to_string()).expect_err(text).to_string();
            assert!(!why.contains("s3cret"), "{why}");
        }
        assert_eq!(format!("http://h/{}", "a".repeat(MAX_LEN)).parse::<Url>(), Err(BadUrl::TooLong));
    }

    #[test]
    fn what_is_shown_has_no_secret() {
        for (text, shown) in [
            ("http://h", "http://h/"),
            ("http://u:s3cret@h:81/list.txt", "http://***@h:81/list.txt"),
            ("http://s3cret@h/", "http://***@h/"),
            ("https://h/list?key=s3cret&a=b#s3cret", "https://h/list?***"),
            ("https://h/download/abcdefs3cretghijk/-/any/", "https://h/download/***/-/any/"),
            ("https://h/proxies-of-2026-11-30.txt", "https://h/proxies-of-2026-11-30.txt"),
            ("http://h/\u{1b}[2J", "http://h/%1B[2J"),
        ] {
            assert_eq!(url(text).to_string(), shown);
            assert!(!format!("{:?}", url(text)).contains("s3cret"));
        }
        assert!(url(&format!("http://h/{}", "a/".repeat(999))).to_string().len() < 200);
    }

    #[test]
    fn credentials_follow_a_redirect_only_to_the_same_origin() {
        let from = url("https://u:p@h/a/b");
        let to = |location: &str| from.redirected(location).map(|to| (to.uri.to_string(), to.authorization.is_some()));
        for (location, uri, goes_along) in [
            ("c?d", "https://h/a/c?d", true),
            ("/c", "https://h/c", true),
            ("//h:443/c", "https://h/c", true),
            ("https://h:444/", "https://h:444/", false),
            ("//other/", "https://other/", false),
            ("//v:w@other/", "https://other/", true),
        ] {
            assert_eq!(to(location), Ok((uri.to_owned(), goes_along)), "{location}");
        }
        assert_eq!(to("http://h/"), Err(BadUrl::Downgrade));
        assert_eq!(to("file:///etc/passwd"), Err(BadUrl::Scheme));
        assert!(url("http://h/").redirected("https://h/").is_ok());
        assert_eq!(from.redirected("https://v:w@h/").unwrap().authorization, url("http://v:w@h/").authorization);
    }
}
