//! What a judge says: a page that answers with the address it was asked from and the header fields it saw.
//!
//! Understood are, in this order,
//! - JSON like httpbin's, `{"origin": "203.0.113.7", "headers": {"Via": "1.1 x"}}`, which our own judge ([`server`]) speaks, and
//!   JSON that tells only the address, as `ip` or `query`, and perhaps its country;
//! - lines of `REMOTE_ADDR = 203.0.113.7` and `HTTP_VIA = 1.1 x`, as "azenv" scripts write, and of `ip=…` and `loc=…`;
//! - an address and nothing else.
//!
//! A judge is any server, and what it says came through a proxy that is not trusted: both may say what they like. What is read
//! here is bounded, and of names and values nothing else is kept than what is an address, a country or the name of a field.

pub mod server;

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

/// No judge says more.
pub(crate) const MAX_ANSWER: usize = 64 << 10;
/// Where JSON has the address.
const ADDRESS_KEYS: [&str; 5] = ["origin", "ip", "ip_addr", "query", "address"];
/// Where it may have the country, as two letters.
const COUNTRY_KEYS: [&str; 5] = ["country_code", "countryCode", "country_iso", "country", "loc"];

/// What a judge saw of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// Whom it was asked by: where a proxy's traffic comes out.
    pub exit: IpAddr,
    /// Where that is, in two letters (ISO 3166-1), if it says so.
    pub country: Option<String>,
    /// The fields of the request, names in lower case; `None` if it does not tell.
    pub(crate) fields: Option<Vec<(String, String)>>,
}

impl Testimony {
    /// Reads an answer; `None` if it is none of a judge.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        if let Ok(Value::Object(object)) = serde_json::from_slice(body) {
            return of_json(&object);
        }
        let text = String::from_utf8_lossy(body);
        of_lines(&text).or_else(|| Some(Self { exit: address(text.trim())?, country: None, fields: None }))
    }
}

fn of_json(object: &serde_json::Map<String, Value>) -> Option<Testimony> {
    let text = |key: &&str| object.get(*key)?.as_str();
    // httpbin puts what it was told by `X-Forwarded-For` in front of the peer's address.
    let origin = ADDRESS_KEYS.iter().find_map(text)?;
    let (forwarded, exit) = origin.rsplit_once(',').map_or((None, origin), |(before, last)| (Some(before), last));
    let mut fields = object.get("headers").and_then(Value::as_object).map(|headers| {
        let fields = headers.iter().flat_map(|(name, value)| match value {
            Value::Array(values) => values.iter().map(|value| (name, value)).collect(),
            one => vec![(name, one)],
        });
        let fields = fields.filter_map(|(name, value)| Some((field_name(name)?, value.as_str()?.to_owned())));
        fields.collect::<Vec<_>>()
    });
    if let Some(forwarded) = forwarded {
        fields.get_or_insert_default().push(("x-forwarded-for".to_owned(), forwarded.to_owned()));
    }
    let country = COUNTRY_KEYS.iter().filter_map(text).find_map(country);
    Some(Testimony { exit: address(exit.trim())?, country, fields })
}

fn of_lines(text: &str) -> Option<Testimony> {
    let (mut exit, mut found, mut fields) = (None, None, Vec::new());
    for line in text.lines() {
        let Some((name, value)) = line.split_once('=') else { continue };
        // Many of these pages are HTML around the lines.
        let name = name.rsplit('>').next().unwrap_or_default().trim();
        let value = value.split('<').next().unwrap_or_default().trim();
        match name {
            "REMOTE_ADDR" | "ip" => exit = exit.or_else(|| address(value)),
            "loc" => found = found.or_else(|| country(value)),
            _ => {
                let name = name.strip_prefix("HTTP_").and_then(|name| field_name(&name.replace('_', "-")));
                fields.extend(name.map(|name| (name, value.to_owned())));
            }
        }
    }
    // Every request has fields; a page that shows none does not tell.
    Some(Testimony { exit: exit?, country: found, fields: Some(fields).filter(|fields| !fields.is_empty()) })
}

/// An address, perhaps with a port, IPv4 always as such.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()));
    ip.map(|ip: IpAddr| ip.to_canonical())
}

/// Every address in the value of a field, whatever else is there (`for="[2001:db8::1]:4711"`).
pub(crate) fn addresses(value: &str) -> impl Iterator<Item = IpAddr> {
    let words = value.split(|c: char| !(c.is_ascii_hexdigit() || ".:[]".contains(c)));
    words.filter_map(address)
}

fn country(text: &str) -> Option<String> {
    let is_code = text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
    is_code.then(|| text.to_ascii_uppercase())
}

/// In lower case, if it can be one: names are shown to operators.
fn field_name(name: &str) -> Option<String> {
    let is_token = (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    is_token.then(|| name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Option<Vec<(String, String)>>;

    fn read(body: &str) -> Option<(String, Option<String>, Fields)> {
        Testimony::read(body.as_bytes()).map(|seen| (seen.exit.to_string(), seen.country, seen.fields))
    }

    fn fields(fields: &[(&str, &str)]) -> Fields {
        Some(fields.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn json_of_several_kinds_is_understood() {
        let ip = || "203.0.113.7".to_owned();
        let httpbin =
            r#"{"args": {}, "headers": {"Host": "h", "Via": "1.1 x"}, "origin": "203.0.113.7", "url": "http://h/get"}"#;
        assert_eq!(read(httpbin), Some((ip(), None, fields(&[("host", "h"), ("via", "1.1 x")]))));
        let forwarded = r#"{"origin": "198.51.100.1, 203.0.113.7", "headers": {"Via": ["a", "b"]}}"#;
        let seen = fields(&[("via", "a"), ("via", "b"), ("x-forwarded-for", "198.51.100.1")]);
        assert_eq!(read(forwarded), Some((ip(), None, seen)));
        let forwarded = r#"{"origin": "198.51.100.1, 203.0.113.7"}"#;
        assert_eq!(read(forwarded), Some((ip(), None, fields(&[("x-forwarded-for", "198.51.100.1")]))));
        assert_eq!(read(r#"{"ip": "203.0.113.7"}"#), Some((ip(), None, None)));
        let de = Some("DE".to_owned());
        for body in [
            r#"{"ip":"203.0.113.7","country":"DE","loc":"52.5,13.4"}"#,
            r#"{"query":"203.0.113.7","country":"Germany","countryCode":"DE"}"#,
            r#"{"ip":"203.0.113.7","country":"Germany","country_iso":"de"}"#,
        ] {
            assert_eq!(read(body), Some((ip(), de.clone(), None)), "{body}");
        }
        assert_eq!(read(r#"{"origin":"::ffff:203.0.113.7"}"#).unwrap().0, ip());
    }

    #[test]
    fn lines_are_understood_in_html_or_bare() {
        let azenv = "<html><pre>REMOTE_ADDR = 203.0.113.7\nREQUEST_METHOD = GET\nHTTP_HOST = h\r\nHTTP_X_FORWARDED_FOR = unknown<br>\n</pre>";
        let seen = fields(&[("host", "h"), ("x-forwarded-for", "unknown")]);
        assert_eq!(read(azenv), Some(("203.0.113.7".into(), None, seen)));
        let trace = "fl=1f\nh=h\nip=2001:db8::7\nts=1.2\nuag=x=y\nloc=DE\ntls=off\n";
        assert_eq!(read(trace), Some(("2001:db8::7".into(), Some("DE".into()), None)));
        assert_eq!(read("203.0.113.7\n"), Some(("203.0.113.7".into(), None, None)));
        assert_eq!(read("2001:db8::7"), Some(("2001:db8::7".into(), None, None)));
    }

    #[test]
    fn anything_else_is_no_testimony() {
        for body in [
            "",
            "{",
            "null",
            "[]",
            "{}",
            r#""203.0.113.7""#,
            r#"{"origin": 7}"#,
            r#"{"origin": "here", "headers": {}}"#,
            r#"{"origin": "203.0.113.7,"}"#,
            "<html>Please log in, 10.0.0.1</html>",
            "REMOTE_ADDR = here\nHTTP_HOST = h",
            "203.0.113.7 and more",
            "\u{fffd}\0",
        ] {
            assert_eq!(read(body), None, "{body}");
        }
        assert_eq!(Testimony::read(&[b'['; MAX_ANSWER]), None);
        assert_eq!(Testimony::read(b"\xff\xfe"), None);
    }

    /// They are shown to operators.
    #[test]
    fn names_and_countries_cannot_carry_anything() {
        let evil =
            r#"{"ip":"203.0.113.7","country":"\u001b[","headers":{"\u001b[2J":"x","a b":"x","":"x","Via":"\u001b"}}"#;
        assert_eq!(read(evil), Some(("203.0.113.7".into(), None, fields(&[("via", "\u{1b}")]))));
        let long = format!("ip=203.0.113.7\nHTTP_{} = x\nHTTP_\u{1b} = x\nHTTP_A = x", "X".repeat(65));
        assert_eq!(read(&long), Some(("203.0.113.7".into(), None, fields(&[("a", "x")]))));
    }

    #[test]
    fn addresses_are_found_wherever_they_stand() {
        let found = |value: &str| addresses(value).map(|ip| ip.to_string()).collect::<Vec<_>>().join(" ");
        for (value, expected) in [
            ("198.51.100.1", "198.51.100.1"),
            ("198.51.100.1, 203.0.113.7:80", "198.51.100.1 203.0.113.7"),
            (r#"for="[2001:db8::1]:4711";proto=http, for=_x"#, "2001:db8::1"),
            ("[2001:DB8::1]", "2001:db8::1"),
            ("::ffff:198.51.100.1", "198.51.100.1"),
            ("1.1 proxy.example (squid/5.7)", ""),
            ("unknown", ""),
            ("198.51.100.10", "198.51.100.10"),
        ] {
            assert_eq!(found(value), expected, "{value}");
        }
    }

    proptest::proptest! {
        /// Whatever comes is read to its end, and what is kept of it may be shown.
        #[test]
        fn any_answer_is_read(parts in proptest::collection::vec(0..PARTS.len() + 1, 0..12), bytes: Vec<u8>) {
            let part = |n: usize| PARTS.get(n).map_or(&bytes[..], |part| part.as_bytes());
            let answer = parts.into_iter().map(part).collect::<Vec<_>>().concat();
            if let Some(seen) = Testimony::read(&answer) {
                let shown = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
                assert!(seen.country.is_none_or(|country| shown(&country)));
                for (name, value) in seen.fields.unwrap_or_default() {
                    assert!(shown(&name));
                    addresses(&value).count();
                }
            }
        }
    }

    const PARTS: [&str; 14] = [
        "{",
        "}",
        "\"origin\":",
        "\"headers\":",
        "\"203.0.113.7\"",
        ",",
        "[",
        "]",
        "REMOTE_ADDR = ",
        "HTTP_VIA=",
        "\n",
        ":",
        "::1",
        "<",
    ];
}
