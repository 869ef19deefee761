//! `evenkeel pool …`: the pool, in Redis or in the file of `pool.state`, by hand and from scripts.
//!
//! Listings show passwords masked; only `export` writes members as they are, so that `import` can take them back.

mod aside;
mod export;
mod import;
mod listing;
mod named;
pub(super) mod saved;
mod verdict;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{CANNOT_CREATE, ConfigArgs, DATA_ERROR, Exit, OS_ERROR, UNAVAILABLE, USAGE, connector, print};
use crate::config::{self, Config, Flags, Store};
use crate::member::Name;
use crate::output::note;
use crate::pool::{Dropped, Pool, PoolError, Rebased};
use named::named;

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
    /// The Redis that keeps the pool, or embedded: the file of pool.state
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
    /// Show every member and its count, least used first; those set aside, and why; and candidates
    List,
    /// Add upstream proxies; counts that exist are kept
    Add {
        /// Such as `http://user:password@host:port`
        #[arg(required = true, value_name = "URL")]
        urls: Vec<String>,
    },
    /// Take members out, in whatever state they are
    Remove {
        /// Members as the pool holds them, or their ids
        #[arg(required = true, value_name = "URL|ID")]
        urls: Vec<String>,
    },
    /// Set members aside: no request goes to them, and their counts are kept
    Park {
        /// Members as the pool holds them, or their ids
        #[arg(required = true, value_name = "URL|ID")]
        urls: Vec<String>,
        /// How long, such as 10m; then they return by themselves. Without it, until they are restored
        #[arg(long = "for", value_name = "TIME")]
        span: Option<String>,
        /// Why, for those who read the list
        #[arg(long, value_name = "TEXT", default_value = "by hand")]
        reason: String,
    },
    /// Ban members for a time, as answers do: from all requests, or from those to one host
    Ban {
        /// Members as the pool holds them, or their ids
        #[arg(required = true, value_name = "URL|ID")]
        urls: Vec<String>,
        /// Only from requests to this host
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
        /// How long, such as 10m
        #[arg(long = "for", value_name = "TIME", default_value = "10m")]
        span: String,
        /// Why, for those who read the list
        #[arg(long, value_name = "TEXT", default_value = "by hand")]
        reason: String,
    },
    /// Lift bans, whoever made them
    Unban {
        /// Members as the pool holds them, or their ids
        #[arg(required = true, value_name = "URL|ID")]
        urls: Vec<String>,
        /// Only those from requests to this host
        #[arg(long, value_name = "HOST")]
        host: Option<String>,
    },
    /// Bring members back that were set aside
    Restore {
        /// Members as the pool holds them, or their ids
        #[arg(required = true, value_name = "URL|ID")]
        urls: Vec<String>,
    },
    /// Add the upstream proxies of a list, in whatever form it comes; counts that exist are kept
    Import(import::ImportArgs),
    /// Forget a source: what it named leaves the pool, unless another source names it
    Drop {
        /// As in `[[pool.sources]]`, which must not name it any more
        #[arg(value_name = "SOURCE")]
        source: String,
        /// Members stay; only candidates leave
        #[arg(long)]
        keep: bool,
    },
    /// Subtract the lowest count from all, so that counts are small again and as far apart as they were
    Rebase,
    /// Tell how far counts are apart, how far they may be, and what is wrong; exits with 65 if anything is
    Verify {
        /// How many gateways share the pool; matters with pool.prefetch only
        #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
        gateways: u16,
    },
    /// Write every eligible member, passwords included, one per line
    Export,
}

pub(super) fn run(args: PoolArgs) -> Result<(), Exit> {
    let PoolArgs { verb, common } = args;
    let settings = ConfigArgs { config: common.config, store: common.store, key: common.key };
    let config = settings.load(Flags::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Exit::new(OS_ERROR, error))?;
    let (pool, keeper) = if config.pool.store == Store::Embedded {
        let (pool, keeper) = saved::open(&config.pool, verb.changes())?;
        (Some(Pool::Embedded(pool)), keeper)
    } else {
        (None, None)
    };
    let report = runtime.block_on(async {
        let pool = pool.map_or_else(connector(&config.pool), Ok).map_err(|error| Exit::new(UNAVAILABLE, error))?;
        perform(verb, &pool, &config, common.json).await
    });
    // What was done before an error is done.
    if let Some(mut keeper) = keeper {
        keeper.save().map_err(|error| Exit::new(CANNOT_CREATE, format!("cannot save the state: {error}")))?;
    }
    print(report?)
}

impl Verb {
    fn changes(&self) -> bool {
        !matches!(self, Self::List | Self::Export | Self::Verify { .. })
    }
}

async fn perform(verb: Verb, pool: &Pool, config: &Config, json: bool) -> Result<Vec<u8>, Exit> {
    match verb {
        Verb::List => {
            listing::read(pool, config.pool.policy).await.map(|listing| listing.print(json)).map_err(unavailable)
        }
        Verb::Verify { gateways } => {
            let context = verdict::context(config, usize::from(gateways));
            let verdict = pool.verify(context).await.map_err(unavailable)?;
            let report = verdict::print(&verdict, json);
            if verdict.is_sound() {
                return Ok(report);
            }
            Err(Exit::new(DATA_ERROR, "the pool is not sound").after(&report))
        }
        Verb::Export => export::export(pool, json).await.map_err(unavailable),
        Verb::Add { urls } => {
            let names = urls.iter().map(|url| config::proxy(url)).collect::<Result<Vec<_>, _>>();
            let names = names.map_err(|why| Exit::new(USAGE, why))?;
            add(pool, config, &names, json).await
        }
        Verb::Drop { source, keep } => {
            if config.pool.sources.iter().any(|configured| configured.name == source) {
                let why = format!(
                    "the configuration still names the source {source:?}, and a gateway would read it again; take it out \
                     of [[pool.sources]] and restart the gateways first"
                );
                return Err(Exit::new(USAGE, why));
            }
            drop_source(pool, &source, !keep, json).await
        }
        Verb::Import(args) => import::import(args, pool, config.pool.initial, json).await,
        Verb::Remove { urls } => {
            let asked = urls.len();
            let members = named(pool, urls).await.map_err(unavailable)?;
            let removed = pool.remove(&members).await.map_err(unavailable)?;
            Ok(told(json, "removed", removed, asked))
        }
        Verb::Park { urls, span, reason } => aside::park(pool, urls, span, reason, json).await,
        Verb::Ban { urls, host: Some(host), span, reason } => {
            aside::ban_from(pool, urls, &host, &span, reason, json).await
        }
        Verb::Ban { urls, host: None, span, reason } => aside::ban(pool, urls, &span, reason, json).await,
        Verb::Unban { urls, host } => aside::unban(pool, urls, host, config.pool.restore, json).await,
        Verb::Restore { urls } => aside::restore(pool, urls, config.pool.restore, json).await,
        Verb::Rebase => {
            let Rebased { by, members } = pool.rebase().await.map_err(unavailable)?;
            let report = json!({"subtracted": listing::whole(by), "members": members});
            Ok(say(json, &report, &format!("subtracted {by} from {members} members")))
        }
    }
}

async fn drop_source(pool: &Pool, source: &str, remove: bool, json: bool) -> Result<Vec<u8>, Exit> {
    let sources = pool.sources().await.map_err(unavailable)?;
    if !sources.iter().any(|name| name == source) {
        let known = if sources.is_empty() { "none".to_owned() } else { format!("{sources:?}") };
        return Err(Exit::new(USAGE, format!("there is no source {source:?} in the pool; there are {known}")));
    }
    let Dropped { forgotten, removed } = pool.drop_source(source, remove).await.map_err(unavailable)?;
    let report = json!({"forgotten": forgotten, "removed": removed});
    Ok(say(json, &report, &format!("forgotten {forgotten}, removed {removed}")))
}

/// What was done to how many members, and how many of those `asked` for it was not.
fn told(json: bool, what: &str, done: u64, asked: usize) -> Vec<u8> {
    let unknown = (asked as u64).saturating_sub(done);
    say(json, &json!({what: done, "unknown": unknown}), &format!("{what} {done}, not there {unknown}"))
}

async fn add(pool: &Pool, config: &Config, names: &[Name], json: bool) -> Result<Vec<u8>, Exit> {
    let added = pool.add(names, config.pool.initial).await.map_err(unavailable)?;
    let known = names.len() as u64 - added.min(names.len() as u64);
    if known > 0 {
        let names: HashSet<&Name> = names.iter().collect();
        let parked = pool.parked().await.map_err(unavailable)?;
        say_aside(parked.iter().filter(|parked| names.contains(&parked.member)).count());
    }
    let report = json!({"added": added, "known": known, "skipped": 0});
    Ok(say(json, &report, &format!("added {added}, already there {known}, skipped 0")))
}

/// Adding members does not bring those back that were set aside.
fn say_aside(count: usize) {
    if count > 0 {
        note(format_args!("{count} of them set aside, and stay so; `evenkeel pool restore` brings them back"));
    }
}

fn say(json: bool, report: &Value, sentence: &str) -> Vec<u8> {
    if json { format!("{report}\n").into_bytes() } else { format!("{sentence}\n").into_bytes() }
}

fn unavailable(error: PoolError) -> Exit {
    Exit::new(UNAVAILABLE, error)
}
