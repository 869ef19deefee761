//! `evenkeel pool park`, `ban`, `unban` and `restore`: members set aside by hand, and back.

use std::collections::HashSet;

use super::named::named;
use super::{told, unavailable};
use crate::ban;
use crate::cli::{Exit, UNAVAILABLE, USAGE};
use crate::config;
use crate::member::Name;
use crate::pool::{Ban, HostBan, Initial, Kind, Parking, Pool, PoolError, Stay};

/// Sets members aside, for a time or until they are restored.
pub(super) async fn park(
    pool: &Pool,
    urls: Vec<String>,
    span: Option<String>,
    reason: String,
    json: bool,
) -> Result<Vec<u8>, Exit> {
    let span = span.map(|text| config::span(&text)).transpose().map_err(|why| Exit::new(USAGE, why))?;
    let parking = Parking { kind: Kind::Hand, reason, stay: span.map_or(Stay::UntilRestored, Stay::For) };
    let asked = urls.len();
    let parked = set_aside(pool, urls, &parking).await.map_err(unavailable)?;
    Ok(told(json, "parked", parked, asked))
}

/// Bans members from all requests.
pub(super) async fn ban(
    pool: &Pool,
    urls: Vec<String>,
    span: &str,
    reason: String,
    json: bool,
) -> Result<Vec<u8>, Exit> {
    let span = config::span(span).map_err(|why| Exit::new(USAGE, why))?;
    let parking = Parking { kind: Kind::Banned, reason, stay: Stay::For(span) };
    let asked = urls.len();
    let banned = set_aside(pool, urls, &parking).await.map_err(unavailable)?;
    Ok(told(json, "banned", banned, asked))
}

/// Bans members from the requests to one host.
pub(super) async fn ban_from(
    pool: &Pool,
    urls: Vec<String>,
    host: &str,
    span: &str,
    reason: String,
    json: bool,
) -> Result<Vec<u8>, Exit> {
    let (host, span) = (named_host(host)?, config::span(span).map_err(|why| Exit::new(USAGE, why))?);
    let asked = urls.len();
    let members = named(pool, urls).await.map_err(unavailable)?;
    let ban = |member| Ban { member, reason: reason.clone(), span };
    let bans: Vec<Ban> = members.into_iter().map(ban).collect();
    let words = pool.ban_for(&host, &bans, None).await.map_err(unavailable)?;
    if words.contains(&HostBan::Spared) {
        return Err(Exit::new(UNAVAILABLE, "too many hosts have banned members; lift some of those bans first"));
    }
    let banned = words.iter().filter(|word| **word != HostBan::Unknown).count();
    Ok(told(json, "banned", banned as u64, asked))
}

/// Lifts bans, those of one host or all. `restore`: the count with which members return.
pub(super) async fn unban(
    pool: &Pool,
    urls: Vec<String>,
    host: Option<String>,
    restore: Initial,
    json: bool,
) -> Result<Vec<u8>, Exit> {
    let asked = urls.len();
    let host = host.map(|host| named_host(&host)).transpose()?;
    let members = named(pool, urls).await.map_err(unavailable)?;
    let unbanned = lift(pool, &members, host, restore).await.map_err(unavailable)?;
    Ok(told(json, "unbanned", unbanned, asked))
}

/// Brings members back, for whatever they were set aside.
pub(super) async fn restore(pool: &Pool, urls: Vec<String>, restore: Initial, json: bool) -> Result<Vec<u8>, Exit> {
    let asked = urls.len();
    let members = named(pool, urls).await.map_err(unavailable)?;
    let restored = pool.restore(&members, restore).await.map_err(unavailable)?;
    Ok(told(json, "restored", restored.len() as u64, asked))
}

/// How many of them were set aside.
async fn set_aside(pool: &Pool, urls: Vec<String>, parking: &Parking) -> Result<u64, PoolError> {
    let mut parked = 0;
    for member in named(pool, urls).await? {
        parked += u64::from(pool.park(&member, parking).await?.is_some());
    }
    Ok(parked)
}

/// How many of them were banned: from one host, or from any and from all.
async fn lift(pool: &Pool, members: &[Name], host: Option<String>, restore: Initial) -> Result<u64, PoolError> {
    let (hosts, is_whole) = match host {
        Some(host) => (vec![host], false),
        None => (pool.hosts(&mut None).await?.unwrap_or_default(), true),
    };
    let mut unbanned = HashSet::new();
    for host in hosts {
        unbanned.extend(pool.unban_for(&host, members).await?);
    }
    if is_whole {
        let parked = pool.parked().await?;
        let banned = parked.into_iter().filter(|parked| parked.kind == Kind::Banned).map(|parked| parked.member);
        let banned: Vec<Name> = banned.filter(|member| members.contains(member)).collect();
        unbanned.extend(pool.restore(&banned, restore).await?);
    }
    Ok(unbanned.len() as u64)
}

fn named_host(text: &str) -> Result<String, Exit> {
    ban::named_host(text)
        .ok_or_else(|| Exit::new(USAGE, format!("--host takes a name or an address like shop.example, not {text:?}")))
}
