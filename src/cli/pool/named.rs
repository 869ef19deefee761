//! The members that a command names.

use std::collections::HashSet;

use crate::member::{self, Name};
use crate::pool::{Pool, PoolError};

/// The members that are meant, in whatever state: byte for byte, or all those of an id, which listings show because they
/// hide passwords.
pub(super) async fn named(pool: &Pool, urls: Vec<String>) -> Result<Vec<Name>, PoolError> {
    let ids: HashSet<String> = urls.iter().filter(|url| member::is_id(url)).cloned().collect();
    let mut members: Vec<Name> = urls.into_iter().map(Name::from).collect();
    if !ids.is_empty() {
        let eligible = pool.list().await?.into_iter().map(|entry| entry.member);
        let ramping = pool.ramping().await?.into_iter().map(|entry| entry.member);
        let parked = pool.parked().await?.into_iter().map(|parked| parked.member);
        let candidates = pool.candidates().await?.into_iter().map(|candidate| candidate.member);
        members.extend(
            eligible.chain(ramping).chain(parked).chain(candidates).filter(|member| ids.contains(&member::id(member))),
        );
        // Only where somebody gave a member the form of an id is it one.
        let mut seen = HashSet::new();
        members.retain(|member| seen.insert(member.clone()));
    }
    Ok(members)
}
