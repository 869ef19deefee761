//! How much a member tells of whoever uses it, by what a judge saw.
//!
//! | | the judge saw |
//! |---|---|
//! | transparent | an address of ours: as its peer, or in any field |
//! | anonymous | none, but fields that only proxies add |
//! | elite | neither |
//!
//! Ours are the address that the judge saw when it was asked without a member between, and this machine's end of the
//! connection to the member (not a loopback address, which is everyone's). A judge may stand behind proxies of its own, which add
//! fields to every request: a field that was there without a member tells nothing, unless it has grown.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::judge::{self, Testimony};

/// What a member tells, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Anonymity {
    /// Who uses it.
    Transparent,
    /// That it is a proxy.
    Anonymous,
    /// Nothing.
    Elite,
}

impl Anonymity {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transparent => "transparent",
            Self::Anonymous => "anonymous",
            Self::Elite => "elite",
        }
    }
}

/// What is known of us.
pub(super) struct Own<'a> {
    /// What the judge saw without a member between.
    pub(super) testimony: Option<&'a Testimony>,
    /// Our end of the connection to the member.
    pub(super) local: Option<IpAddr>,
}

/// Fields that we have sent ourselves, with values that are not about us: the judge may well live at our address.
const SENT: [&str; 6] = ["host", "user-agent", "accept", "accept-encoding", "authorization", "cache-control"];
/// Fields that proxies add, besides all that speak of proxies and of forwarding.
const TELLING: [&str; 15] = [
    "via",
    "client-ip",
    "x-client-ip",
    "x-real-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "x-cluster-client-ip",
    "x-originating-ip",
    "x-remote-ip",
    "x-remote-addr",
    "x-bluecoat-via",
    "x-via",
    "x-coming-from",
    "coming-from",
];
/// Nobody reads more names than that.
const MOST_SHOWN: usize = 16;

/// What `seen` shows, and the names of the fields that show it.
pub(super) fn of(seen: &Testimony, own: &Own<'_>) -> (Option<Anonymity>, Vec<String>) {
    let fields = seen.fields.as_deref().unwrap_or_default();
    let is_ours = |ip: &IpAddr| own.has(ip);
    let names = |shows: &dyn Fn(&str, &str) -> bool| {
        let mut names: Vec<_> =
            fields.iter().filter(|(name, value)| shows(name, value)).map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        names.into_iter().take(MOST_SHOWN).cloned().collect::<Vec<_>>()
    };
    let revealing = names(&|name, value| !SENT.contains(&name) && judge::addresses(value).any(|ip| is_ours(&ip)));
    if is_ours(&seen.exit) || !revealing.is_empty() {
        return (Some(Anonymity::Transparent), revealing);
    }
    let telling = names(&|name, _| is_telling(name) && parts(fields, name) > own.parts(name));
    // Without knowing who we are, nobody can say that it was not seen; without fields, not what they tell.
    if own.testimony.is_none() || seen.fields.is_none() {
        return (None, telling);
    }
    (Some(if telling.is_empty() { Anonymity::Elite } else { Anonymity::Anonymous }), telling)
}

impl Own<'_> {
    fn has(&self, ip: &IpAddr) -> bool {
        let local = self.local.map(|local| local.to_canonical()).filter(|local| !local.is_loopback());
        local == Some(*ip) || self.testimony.is_some_and(|own| own.exit == *ip)
    }

    fn parts(&self, name: &str) -> usize {
        self.testimony.and_then(|own| own.fields.as_deref()).map_or(0, |fields| parts(fields, name))
    }
}

/// How many things a list field says, over all its lines.
fn parts(fields: &[(String, String)], name: &str) -> usize {
    fields.iter().filter(|(other, _)| other == name).map(|(_, value)| value.split(',').count()).sum()
}

fn is_telling(name: &str) -> bool {
    TELLING.contains(&name) || name.contains("forwarded") || name.contains("proxy")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testimony(exit: &str, fields: Option<&[(&str, &str)]>) -> Testimony {
        let owned = |fields: &[(&str, &str)]| fields.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        Testimony { exit: exit.parse().unwrap(), country: None, fields: fields.map(owned) }
    }

    const US: &str = "198.51.100.1";
    const EXIT: &str = "203.0.113.7";

    /// What is found of a member with this exit and these fields, when the judge sees `direct` of ourselves.
    fn found(exit: &str, fields: &[(&str, &str)], direct: &[(&str, &str)]) -> (Option<Anonymity>, String) {
        let own = testimony(US, Some(direct));
        let own = Own { testimony: Some(&own), local: Some("10.0.0.5".parse().unwrap()) };
        let (anonymity, seen) = of(&testimony(exit, Some(fields)), &own);
        (anonymity, seen.join(" "))
    }

    #[test]
    fn what_the_judge_saw_decides() {
        use Anonymity::{Anonymous, Elite, Transparent};
        for (exit, fields, anonymity, seen) in [
            (EXIT, &[("host", "h"), ("accept", "*/*"), ("connection", "close")][..], Elite, ""),
            (EXIT, &[("via", "1.1 squid")], Anonymous, "via"),
            (
                EXIT,
                &[("x-forwarded-for", "unknown"), ("via", "1.1 x"), ("via", "1.1 y")],
                Anonymous,
                "via x-forwarded-for",
            ),
            (EXIT, &[("forwarded", "for=_hidden")], Anonymous, "forwarded"),
            (EXIT, &[("proxy-connection", "keep-alive")], Anonymous, "proxy-connection"),
            (EXIT, &[("proxy-authorization", "Basic eDp5")], Anonymous, "proxy-authorization"),
            (EXIT, &[("via", "1.1 x"), ("x-forwarded-for", US)], Transparent, "x-forwarded-for"),
            (EXIT, &[("x-anything", "seen 198.51.100.1:4711!")], Transparent, "x-anything"),
            (EXIT, &[("forwarded", "for=\"[::ffff:198.51.100.1]:80\"")], Transparent, "forwarded"),
            (EXIT, &[("x-forwarded-for", "10.0.0.5")], Transparent, "x-forwarded-for"),
            (US, &[], Transparent, ""),
            ("10.0.0.5", &[], Transparent, ""),
            // Ours only in what we have sent ourselves, or another's that begins alike.
            (EXIT, &[("host", "198.51.100.1:8080")], Elite, ""),
            (EXIT, &[("x-trace", "198.51.100.10")], Elite, ""),
        ] {
            assert_eq!(found(exit, fields, &[]), (Some(anonymity), seen.into()), "{fields:?}");
        }
    }

    #[test]
    fn what_the_judges_own_proxies_add_is_not_the_members() {
        let direct = [("x-forwarded-for", US), ("via", "1.1 balancer")];
        let through = |forwarded, via| found(EXIT, &[("x-forwarded-for", forwarded), ("via", via)], &direct);
        assert_eq!(through(EXIT, "1.1 balancer"), (Some(Anonymity::Elite), String::new()));
        let grown = (Some(Anonymity::Anonymous), "via".to_owned());
        assert_eq!(through(EXIT, "1.1 squid, 1.1 balancer"), grown);
        let hidden = (Some(Anonymity::Anonymous), "x-forwarded-for".to_owned());
        assert_eq!(through("unknown, 203.0.113.7", "1.1 balancer"), hidden);
        assert_eq!(through("198.51.100.1, 203.0.113.7", "1.1 balancer").0, Some(Anonymity::Transparent));
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let nobody = Own { testimony: None, local: Some("127.0.0.1".parse().unwrap()) };
        let via = testimony(EXIT, Some(&[("via", "1.1 x")]));
        assert_eq!(of(&via, &nobody), (None, vec!["via".to_owned()]));
        assert_eq!(of(&testimony(EXIT, Some(&[])), &nobody).0, None);
        // Everyone's own address is this one.
        assert_eq!(of(&testimony("127.0.0.1", Some(&[])), &nobody).0, None);
        let known = Own { local: Some("10.0.0.5".parse().unwrap()), ..nobody };
        assert_eq!(of(&testimony("10.0.0.5", None), &known).0, Some(Anonymity::Transparent));
        let us = testimony(US, None);
        let own = Own { testimony: Some(&us), local: None };
        assert_eq!(of(&testimony(EXIT, None), &own).0, None);
        assert_eq!(of(&testimony(US, None), &own).0, Some(Anonymity::Transparent));
    }

    #[test]
    fn the_worst_is_the_least() {
        assert!(Anonymity::Transparent < Anonymity::Anonymous && Anonymity::Anonymous < Anonymity::Elite);
        for anonymity in [Anonymity::Transparent, Anonymity::Anonymous, Anonymity::Elite] {
            assert_eq!(serde_json::to_value(anonymity).unwrap(), anonymity.name());
        }
    }
}
