//! What follows the `?` of a member: options, joined by `&`, each at most once.
//!
//! Read here whatever the kind of member; which of them a kind takes is for [`super::kind`] to say.

use tokio_rustls::rustls::pki_types::ServerName;

use super::Malformed;

/// Every option there is.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Options {
    /// `insecure=1`: any certificate will do.
    pub(super) is_insecure: bool,
    /// `sni=name`: sent and checked instead of the host.
    pub(super) server_name: Option<ServerName<'static>>,
    /// `weight=3`: how much of the traffic it is to get, beside members that have other weights.
    pub(super) weight: Option<u16>,
}

impl Options {
    pub(super) fn parse(query: &str) -> Result<Self, Malformed> {
        let (mut options, mut seen) = (Self::default(), Vec::new());
        for option in query.split('&') {
            let (name, value) = option.split_once('=').ok_or(Malformed::NotAnOption)?;
            if seen.contains(&name) {
                return Err(Malformed::OptionTwice(name.to_owned()));
            }
            seen.push(name);
            match name {
                "insecure" if value == "1" => options.is_insecure = true,
                "insecure" => return Err(Malformed::BadOption("insecure=1")),
                "sni" => options.server_name = Some(server_name(value)?),
                "weight" => options.weight = Some(weight(value)?),
                _ if is_word(name) => return Err(Malformed::UnknownOption(name.to_owned())),
                // Not to be quoted: it may be part of a password.
                _ => return Err(Malformed::NotAnOption),
            }
        }
        Ok(options)
    }

    /// Whether there are any that only TLS gives a meaning to.
    pub(super) fn are_of_tls(&self) -> bool {
        self.is_insecure || self.server_name.is_some()
    }
}

fn server_name(value: &str) -> Result<ServerName<'static>, Malformed> {
    ServerName::try_from(value.to_owned()).map_err(|_| Malformed::BadOption("sni=name, where name is a host"))
}

fn weight(value: &str) -> Result<u16, Malformed> {
    let is_number = value.bytes().all(|b| b.is_ascii_digit());
    let number = value.parse().ok().filter(|number| is_number && (1..=1000).contains(number));
    number.ok_or(Malformed::BadOption("weight= and a number from 1 to 1000"))
}

fn is_word(name: &str) -> bool {
    (1..=32).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_known_whole_and_there_once() {
        let name = |text: &str| ServerName::try_from(text.to_owned()).ok();
        for (query, is_insecure, sni) in [
            ("insecure=1", true, None),
            ("sni=proxy.example", false, name("proxy.example")),
            ("sni=10.0.0.7", false, name("10.0.0.7")),
            ("sni=A.example&insecure=1", true, name("A.example")),
        ] {
            assert_eq!(Options::parse(query), Ok(Options { is_insecure, server_name: sni, weight: None }), "{query}");
        }
        for (query, weight) in [("weight=1", 1), ("weight=1000", 1000), ("insecure=1&weight=07", 7)] {
            assert_eq!(Options::parse(query).unwrap().weight, Some(weight), "{query}");
            assert_eq!(crate::pool::weight(format!("h:1?{query}").as_bytes()), weight, "as the pool reads it");
        }
        for bad in ["", "0", "1001", "+3", "3.5", "-1", "99999999999999999999"] {
            let query = format!("weight={bad}");
            assert!(matches!(Options::parse(&query), Err(Malformed::BadOption(_))), "{query}");
        }
        for (query, why) in [
            ("", Malformed::NotAnOption),
            ("insecure", Malformed::NotAnOption),
            ("insecure=1&", Malformed::NotAnOption),
            ("S3cret=1", Malformed::NotAnOption),
            ("=1", Malformed::NotAnOption),
            ("insecure=0", Malformed::BadOption("insecure=1")),
            ("insecure=1#x", Malformed::BadOption("insecure=1")),
            ("insecure=1&insecure=1", Malformed::OptionTwice("insecure".into())),
            ("sni=a&insecure=1&sni=a", Malformed::OptionTwice("sni".into())),
            ("sni=a&verify=none", Malformed::UnknownOption("verify".into())),
        ] {
            assert_eq!(Options::parse(query), Err(why), "{query}");
        }
        for bad in ["", "a..b", "-", "a b", "[::1]"] {
            let query = format!("sni={bad}");
            assert!(matches!(Options::parse(&query), Err(Malformed::BadOption(_))), "{query}");
        }
    }
}
