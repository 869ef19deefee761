//! What lists say about a proxy beside how to reach it.

use std::net::Ipv4Addr;

/// How much a proxy tells the origin about its client, as the list says; nobody has checked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anonymity {
    /// It names the client.
    Transparent,
    /// It does not name the client, and says that it is a proxy.
    Anonymous,
    /// It does not say that it is one.
    Elite,
}

/// What a list says about a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) country: Option<String>,
    pub(super) anonymity: Option<Anonymity>,
}

/// The longest name of a country has 56 letters.
const MAX_COUNTRY: usize = 64;

impl Meta {
    /// A country's code, in capitals, or its name as it is. A code beats a name.
    pub(super) fn set_country(&mut self, text: &str) {
        let text = text.trim();
        let is_code = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
        if is_code(text) {
            self.country = Some(text.to_ascii_uppercase());
        } else if self.country.is_none() && is_word(text) && text.len() <= MAX_COUNTRY {
            self.country = Some(text.to_owned());
        }
    }

    pub(super) fn set_anonymity(&mut self, text: &str) {
        self.anonymity = self.anonymity.or_else(|| anonymity(text));
    }

    /// Takes a field without a name, if it is a code of a country or a word for anonymity, or nothing about a proxy at all.
    pub(super) fn takes(&mut self, field: &str) -> bool {
        if is_country(field) {
            self.set_country(field);
            return true;
        }
        // As spys.one writes them: country, then N, A or H, then S for TLS and ! for a doubt.
        if let Some((country, level)) = field.split_once('-')
            && is_country(country)
            && level.bytes().all(|b| b"NAHS!-".contains(&b))
        {
            self.set_country(country);
            let level = ["N", "A", "H"].iter().position(|letter| level.starts_with(letter));
            self.set_anonymity(["transparent", "anonymous", "elite"][level.unwrap_or(0)]);
            return true;
        }
        self.set_anonymity(field);
        anonymity(field).is_some() || !is_word(field) || is_flag(field) || is_measure(field)
    }
}

/// What lists say of a proxy under its name, and nobody needs here: `ping:120`, `city=Berlin`.
const REMARKS: [&str; 29] = [
    "asn", "checked", "city", "comment", "delay", "google", "https", "isp", "last", "latency", "note", "org", "ping",
    "provider", "rank", "region", "response", "score", "seen", "source", "speed", "ssl", "state", "status", "tag",
    "time", "updated", "uptime", "works",
];

/// Whether a name is one of those.
pub(super) fn is_remark(name: &str) -> bool {
    REMARKS.iter().any(|remark| name.eq_ignore_ascii_case(remark))
}

/// Has letters or digits in it.
fn is_word(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn is_flag(text: &str) -> bool {
    ["yes", "no", "true", "false", "null", "none", "n/a"].iter().any(|flag| text.eq_ignore_ascii_case(flag))
}

/// A number with a unit, a date, a time: something with digits that is no plain number.
fn is_measure(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || ".,:/-+T".contains(c));
    let has_number = text.starts_with(|c: char| c.is_ascii_digit());
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    let is_place = text.split_once(':').is_some_and(|(host, _)| host.parse::<Ipv4Addr>().is_ok());
    has_number
        && !is_plain
        && !is_place
        && ["", "ms", "s", "sec", "min", "h", "d", "%", "Z", "kb", "kbps"].contains(&unit)
}

/// Whether a text is the code of a country, in capitals.
pub(super) fn is_country(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|b| b.is_ascii_uppercase())
}

pub(super) fn anonymity(text: &str) -> Option<Anonymity> {
    let words = text.trim().to_ascii_lowercase();
    let words = words.strip_suffix(" proxy").unwrap_or(&words).replace([' ', '-', '_'], "");
    match &words[..] {
        "elite" | "highanonymous" | "highanonymity" | "highlyanonymous" | "high" | "hia" | "level1" => {
            Some(Anonymity::Elite)
        }
        "anonymous" | "anonymity" | "distorting" | "medium" | "anm" | "level2" => Some(Anonymity::Anonymous),
        "transparent" | "noanonymity" | "nonanonymous" | "low" | "noa" | "level3" => Some(Anonymity::Transparent),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_a_proxy_is_read() {
        for (field, country, anonymity) in [
            ("DE", Some("DE"), None),
            ("US-N-S", Some("US"), Some(Anonymity::Transparent)),
            ("BR-H!", Some("BR"), Some(Anonymity::Elite)),
            ("elite proxy", None, Some(Anonymity::Elite)),
            ("High Anonymous", None, Some(Anonymity::Elite)),
            ("anonymous", None, Some(Anonymity::Anonymous)),
            ("transparent", None, Some(Anonymity::Transparent)),
            ("+", None, None),
            ("0.33s", None, None),
            ("2026-11-30T12:00:00Z", None, None),
            ("12:30", None, None),
            ("99%", None, None),
            ("yes", None, None),
        ] {
            let mut meta = Meta::default();
            assert!(meta.takes(field), "{field}");
            assert_eq!(meta, Meta { country: country.map(str::to_owned), anonymity }, "{field}");
        }
        for field in ["user", "de", "s3cret", "12345", "U-1", "usr:pw", "12s3", "10.0.0.7:99999"] {
            assert!(!Meta::default().takes(field), "{field}");
        }
    }

    #[test]
    fn a_code_of_a_country_beats_its_name() {
        let mut meta = Meta::default();
        for text in ["-", "Germany", "", "de", "France"] {
            meta.set_country(text);
        }
        assert_eq!(meta.country.as_deref(), Some("DE"));
    }
}
