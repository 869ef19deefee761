//! `[admin]`: where the gateway shows what it counts, and who may ask.

use std::fmt;
use std::net::SocketAddr;

use super::reader::Reader;
use super::value::{self, Value};

/// `[admin]`: where the gateway shows what it counts and takes reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// Where it is asked; `None`: nowhere. With a token, or on loopback.
    pub listen: Option<SocketAddr>,
    /// What whoever asks must know.
    pub token: Option<Token>,
}

/// A secret; prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A header line of any client holds it.
const LONGEST: usize = 256;

impl Admin {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let token = reader.key("admin.token", None, Token::read);
        let listen = reader.key("admin.listen", None, |value| match (value.text(), &token) {
            (Some(""), _) => Ok(None),
            (_, None) if !value::address(value)?.ip().is_loopback() => {
                Err(format!("must be on this machine's loopback unless admin.token is set, not {value}"))
            }
            _ => value::address(value).map(Some),
        });
        Self { listen, token }
    }
}

impl Token {
    /// A value that is none is not shown: it may be one with a slip.
    fn read(value: &Value<'_>) -> Result<Option<Self>, String> {
        let is_token = |text: &str| text.len() <= LONGEST && text.bytes().all(|b| b.is_ascii_graphic());
        match value.text() {
            Some("") => Ok(None),
            Some(text) if is_token(text) => Ok(Some(Self(text.to_owned()))),
            _ => Err(format!("must be 1 to {LONGEST} letters, digits and signs of ASCII, without blanks")),
        }
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        // Of hashes, since how long it takes to compare them tells nothing of the token.
        let hash = |bytes: &[u8]| ring::digest::digest(&ring::digest::SHA256, bytes);
        hash(self.0.as_bytes()).as_ref() == hash(other).as_ref()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
