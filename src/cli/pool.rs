//! `evenkeel pool …`: the pool in Redis, by hand and from scripts.
//!
//! Lists show passwords masked; only `export` writes members as they are, so that `import` can take them back.

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{ConfigArgs, Exit, OS_ERROR, UNAVAILABLE, USAGE, connector, read_list};
use crate::config::{self, Config, Flags, Store};
use crate::member::{self, Member, Name};
use crate::pool::{Pool, PoolError};

#[derive(Args)]
pub(super) struct PoolArgs {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// The configuration; without it, config.toml in the working directory if there is one
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The Redis that keeps the pool
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// The sorted set of the pool
    #[arg(long, global = true, value_name = "KEY")]
    key: Option<String>,
    /// Write JSON for programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Show every member and its count, least used first, and those set aside
    List,
    /// Add upstream proxies; counts that exist are kept
    Add {
        /// Such as `http://user:password@host:port`
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Take members out
    Remove {
        /// Members as the pool holds them
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Add the upstream proxies of a list, one per line
    Import {
        /// The list, - for standard input
        #[arg(value_name = "FILE|-")]
        file: PathBuf,
    },
    /// Write every eligible member, passwords included, one per line
    Export,
}

pub(super) fn run(args: PoolArgs) -> Result<(), Exit> {
    let PoolArgs { verb, common } = args;
    let settings = ConfigArgs { config: common.config, store: common.store, key: common.key };
    let config = settings.load(Flags::default())?;
    if config.pool.store == Store::Embedded {
        let why = "the embedded store lives inside one gateway process; name a Redis with --store or pool.store";
        return Err(Exit::new(USAGE, why));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Exit::new(OS_ERROR, error))?;
    let report = runtime.block_on(async {
        let pool = connector(&config.pool)().map_err(|error| Exit::new(UNAVAILABLE, error))?;
        perform(verb, &pool, &config, common.json).await
    })?;
    // A reader that has seen enough (head, a pager) is no error.
    let _ = io::stdout().write_all(&report);
    Ok(())
}

async fn perform(verb: Verb, pool: &Pool, config: &Config, json: bool) -> Result<Vec<u8>, Exit> {
    match verb {
        Verb::List => list(pool, json).await.map_err(unavailable),
        Verb::Export => export(pool, json).await.map_err(unavailable),
        Verb::Add { urls } => {
            let names = urls.iter().map(|url| config::proxy(url)).collect::<Result<Vec<_>, _>>();
            let names = names.map_err(|why| Exit::new(USAGE, why))?;
            add(pool, config, &names, 0, json).await
        }
        Verb::Import { file } => {
            let text = read_list(&file)?;
            let (names, mistakes) = config::list(&file.display().to_string(), &text);
            for mistake in &mistakes {
                eprintln!("{mistake}");
            }
            add(pool, config, &names, mistakes.len(), json).await
        }
        Verb::Remove { urls } => {
            let names: Vec<_> = urls.into_iter().map(Name::from).collect();
            let removed = pool.remove(&names).await.map_err(unavailable)?;
            let unknown = names.len() as u64 - removed.min(names.len() as u64);
            if unknown > 0 && names.iter().any(|name| name.windows(3).any(|part| part == b"***")) {
                eprintln!("passwords in a listing are masked; `evenkeel pool export` shows members as they are");
            }
            Ok(say(
                json,
                &json!({"removed": removed, "unknown": unknown}),
                &format!("removed {removed}, not there {unknown}"),
            ))
        }
    }
}

async fn add(pool: &Pool, config: &Config, names: &[Name], skipped: usize, json: bool) -> Result<Vec<u8>, Exit> {
    let added = pool.add(names, config.pool.initial).await.map_err(unavailable)?;
    let known = names.len() as u64 - added.min(names.len() as u64);
    let report = json!({"added": added, "known": known, "skipped": skipped});
    Ok(say(json, &report, &format!("added {added}, already there {known}, skipped {skipped}")))
}

async fn list(pool: &Pool, json: bool) -> Result<Vec<u8>, PoolError> {
    let (eligible, parked) = (pool.list().await?, pool.parked().await?);
    if json {
        let eligible = eligible.iter().map(|entry| {
            json!({"proxy": member::masked(&entry.member), "id": member::id(&entry.member), "count": count(entry.count), "state": "eligible"})
        });
        let parked = parked.iter().map(|entry| {
            json!({"proxy": member::masked(&entry.member), "id": member::id(&entry.member), "count": count(entry.count), "state": "parked",
                "reason": entry.reason, "since_ms": entry.since_ms})
        });
        return Ok(format!("{:#}\n", Value::Array(eligible.chain(parked).collect())).into_bytes());
    }
    let mut text = format!("{:>12}  {:<11}  proxy\n", "allocations", "id");
    for entry in &eligible {
        text += &format!("{:>12}  {:<11}  {}\n", entry.count, member::id(&entry.member), member::masked(&entry.member));
    }
    for entry in &parked {
        let shown = member::masked(&entry.member);
        text += &format!(
            "{:>12}  {:<11}  {shown}  (set aside: {})\n",
            entry.count,
            member::id(&entry.member),
            entry.reason
        );
    }
    Ok(text.into_bytes())
}

async fn export(pool: &Pool, json: bool) -> Result<Vec<u8>, PoolError> {
    let members = pool.list().await?.into_iter().map(|entry| entry.member);
    if json {
        let members = members.map(|name| Value::from(String::from_utf8_lossy(&name))).collect();
        return Ok(format!("{:#}\n", Value::Array(members)).into_bytes());
    }
    let mut text = Vec::new();
    for name in members {
        // A line break inside a member would make two of it; such a member cannot be dialed anyway.
        if Member::parse(&name).is_ok() {
            text.extend_from_slice(&name);
            text.push(b'\n');
        } else {
            eprintln!("left out, since it is no proxy URL: {}", member::masked(&name));
        }
    }
    Ok(text)
}

fn say(json: bool, report: &Value, sentence: &str) -> Vec<u8> {
    if json { format!("{report}\n").into_bytes() } else { format!("{sentence}\n").into_bytes() }
}

/// Counts are whole numbers, unless someone wrote another score.
fn count(score: f64) -> Value {
    let whole = score.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&score);
    if whole { Value::from(score as u64) } else { Value::from(score) }
}

fn unavailable(error: PoolError) -> Exit {
    Exit::new(UNAVAILABLE, error)
}
