//! What Redis replies, read as what was asked for.

use bytes::Bytes;
use fred::prelude::Value;

use super::PoolError;

/// The elements of an array of strings, as they were received.
pub(super) fn strings(reply: Value) -> Result<Vec<Bytes>, PoolError> {
    let Value::Array(items) = reply else { return Err(nonsense()) };
    items.into_iter().map(string).collect()
}

/// A string, as it was received.
pub(super) fn string(reply: Value) -> Result<Bytes, PoolError> {
    match reply {
        Value::String(text) => Ok(text.into_inner()),
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(nonsense()),
    }
}

/// A number in digits.
pub(super) fn number<T: std::str::FromStr>(text: &[u8]) -> Result<T, PoolError> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(nonsense)
}

/// A reply that cannot be one.
pub(super) fn nonsense() -> PoolError {
    PoolError::Refused("a reply that is no answer to the question".to_owned())
}
