//! Members that answers have banned, kept in Redis.

use fred::prelude::Value;

use super::members::{changes, milliseconds};
use super::{Redis, scripts};
use crate::pool::{Ban, Change, PoolError};

impl Redis {
    /// See [`crate::pool::Pool::ban`].
    pub(in crate::pool) async fn ban(&self, bans: &[Ban], max_parked: u8) -> Result<Vec<Change>, PoolError> {
        let bans = bans.iter().flat_map(|Ban { member, reason, span }| {
            [member.clone().into(), Value::from(&**reason), milliseconds(*span)]
        });
        changes(self.run(&scripts::BAN, std::iter::once(Value::from(i64::from(max_parked))).chain(bans)).await?)
    }
}
