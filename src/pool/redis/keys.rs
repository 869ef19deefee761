//! The keys of a pool: `KEY`, and `KEY:…` for what else is known of members. In a cluster all are in one slot.

use fred::prelude::Value;

/// Every key, in the order in which the scripts that move members take them.
pub(super) struct Keys([Value; 11]);

impl Keys {
    pub(super) fn of(key: &str) -> Self {
        let derived = |suffix| Value::from(format!("{key}:{suffix}"));
        Self([
            key.into(),
            derived("parked"),
            derived("returns"),
            derived("candidates"),
            derived("streaks"),
            derived("ramping"),
            derived("ramping:turns"),
            derived("ramping:turn"),
            derived("failures"),
            derived("trials"),
            derived("checks"),
        ])
    }

    pub(super) fn all(&self) -> &[Value] {
        &self.0
    }

    /// The sorted set of the eligible alone: all that choosing needs.
    pub(super) fn set(&self) -> &[Value] {
        &self.0[..1]
    }

    /// The hash of those set aside.
    pub(super) fn parked(&self) -> &Value {
        &self.0[1]
    }

    /// The sorted set of candidates.
    pub(super) fn candidates(&self) -> &Value {
        &self.0[3]
    }

    /// The sorted set of those who catch up slowly.
    pub(super) fn ramping(&self) -> &Value {
        &self.0[5]
    }

    /// The sorted set of those that failed their last requests.
    pub(super) fn failures(&self) -> &Value {
        &self.0[8]
    }
}
