//! What was found out about a member: plain data, to be shown, kept and judged by rules.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Anonymity;
use crate::fetch::Trouble;

/// What one probe found. `None` is "not known", never "no".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Why it did not serve; `None`: it did.
    pub fault: Option<Fault>,
    /// Until there was a connection on which to ask: TCP, TLS, SOCKS, and with an https page the tunnel and TLS in it.
    #[serde(rename = "connect_ms", with = "ms")]
    pub connect: Option<Duration>,
    /// Until the head of the answer had come, from the same beginning.
    #[serde(rename = "first_byte_ms", with = "ms")]
    pub first_byte: Option<Duration>,
    /// Until the answer was whole, from the same beginning.
    #[serde(rename = "total_ms", with = "ms")]
    pub total: Option<Duration>,
    /// Where its traffic comes out, as the judge saw it.
    pub exit: Option<IpAddr>,
    /// The country of that, in two letters, if the judge has said so.
    pub country: Option<String>,
    /// What it tells of whoever uses it.
    pub anonymity: Option<Anonymity>,
    /// The fields that tell it, names in lower case.
    pub seen: Vec<String>,
    /// Whether it opens tunnels.
    pub can_connect: Option<bool>,
    /// Why it opened none.
    pub connect_fault: Option<Fault>,
}

/// Why something did not work, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The name in RFC 9209 §2.3, as in `Proxy-Status`.
    pub error: String,
    /// A sentence for an operator.
    pub reason: String,
    /// The status that was the answer.
    pub received_status: Option<u16>,
}

impl Verdict {
    /// Whether the member has served.
    pub fn is_reachable(&self) -> bool {
        self.fault.is_none()
    }
}

impl Fault {
    pub(super) fn of(trouble: &Trouble) -> Self {
        let error = trouble.error().to_owned();
        Self { error, reason: trouble.to_string(), received_status: trouble.received_status() }
    }

    /// A member that cannot even be tried, and why.
    pub fn malformed(why: &crate::member::Malformed) -> Self {
        let reason = format!("the member cannot be used: {why}");
        Self { error: "proxy_configuration_error".to_owned(), reason, received_status: None }
    }

    /// Whether this process is to blame, which has run out of descriptors, and not the member.
    pub fn is_own(&self) -> bool {
        self.error == "connection_limit_reached"
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error, self.reason)
    }
}

/// Whole milliseconds, as everywhere outside.
mod ms {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde's way")]
    pub(super) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        span.map(|span| span.as_millis() as u64).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}
