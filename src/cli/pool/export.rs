//! `evenkeel pool export`: members as they are, passwords included.

use serde_json::Value;

use crate::list;
use crate::member::{self, Member, Name};
use crate::output::note;
use crate::pool::{Pool, PoolError};

/// Every member that gets requests, for `import` to take back.
pub(super) async fn export(pool: &Pool, json: bool) -> Result<Vec<u8>, PoolError> {
    let (set, ramping) = (pool.list().await?, pool.ramping().await?);
    let members = set.into_iter().chain(ramping).map(|entry| entry.member);
    let is_usable = |name: &Name| Member::parse(name).is_ok();
    if json {
        let text = |name: Name| match is_usable(&name) {
            true => String::from_utf8_lossy(&list::as_line(&name)).into_owned(),
            false => String::from_utf8_lossy(&name).into_owned(),
        };
        let members = members.map(text).map(Value::from).collect();
        return Ok(format!("{:#}\n", Value::Array(members)).into_bytes());
    }
    let mut text = Vec::new();
    for name in members {
        // A line break inside a member would make two of it; such a member cannot be dialed anyway.
        if is_usable(&name) {
            text.extend_from_slice(&list::as_line(&name));
            text.push(b'\n');
        } else {
            note(format_args!("left out, since it is no proxy URL: {}", member::masked(&name)));
        }
    }
    Ok(text)
}
