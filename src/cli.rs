//! The command line: words in, exit codes out.
//!
//! | exit code | sysexits | meaning |
//! |---|---|---|
//! | 0 | EX_OK | done; for `serve`: drained |
//! | 64 | EX_USAGE | the command line is wrong |
//! | 65 | EX_DATAERR | `pool verify` found something wrong |
//! | 66 | EX_NOINPUT | a list of proxies cannot be read |
//! | 69 | EX_UNAVAILABLE | the store cannot be reached; for `test`: not every proxy has passed |
//! | 71 | EX_OSERR | the address cannot be bound |
//! | 73 | EX_CANTCREAT | the state cannot be kept in its file, or another process keeps it |
//! | 74 | EX_IOERR | something could not be written to standard output or standard error; not if its reader has gone |
//! | 78 | EX_CONFIG | the configuration is wrong; every mistake has been printed |

mod judge;
mod lists;
mod pool;
mod serve;
mod test;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Config, Flags, Sources, Store};
use crate::list::Protocol;
use crate::output;
use crate::pool::embedded::Embedded;
use crate::pool::redis::Redis;
use crate::pool::{Local, Policy, Pool};

const USAGE: u8 = 64;
const DATA_ERROR: u8 = 65;
const NO_INPUT: u8 = 66;
const UNAVAILABLE: u8 = 69;
const OS_ERROR: u8 = 71;
const CANNOT_CREATE: u8 = 73;
const IO_ERROR: u8 = 74;
const CONFIG: u8 = 78;

/// A forward proxy gateway: each request goes through the least-used upstream proxy of a pool.
#[derive(Parser)]
#[command(name = "evenkeel", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway (the default)
    Serve(ServeArgs),
    /// Run a gateway with three real local upstream proxies, to try with curl at once
    Demo {
        /// Where clients connect
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
    },
    /// Validate the configuration and print all mistakes with line and key
    Check(ServeArgs),
    /// Look at the pool, in Redis or in the file of pool.state, or change it
    Pool(pool::PoolArgs),
    /// Try upstream proxies: are they reached, how fast, where do they come out, what do they tell
    Test(test::TestArgs),
    /// Serve a page that says what it saw of each request, for `test`
    Judge {
        /// Where it is asked; port 0 takes any free port
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
        listen: String,
    },
}

#[derive(Args, Default)]
struct ConfigArgs {
    /// The configuration; without it, config.toml in the working directory if there is one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the pool is kept: embedded, or redis://…, rediss://…, redis+unix://…
    #[arg(long, value_name = "URL|embedded")]
    store: Option<String>,
    /// The sorted set of the pool
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

#[derive(Args, Default)]
struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Where clients connect; port 0 takes any free port
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// An upstream proxy to add to the pool; may be repeated
    #[arg(long, value_name = "URL")]
    proxy: Vec<String>,
    /// A list of upstream proxies in any of the usual forms, - for standard input; may be repeated
    #[arg(long, value_name = "FILE|-")]
    proxies: Vec<PathBuf>,
    /// What is spoken with those of --proxies that do not say it: http, https, socks5h, socks5, socks4a or socks4
    #[arg(long, value_name = "SCHEME", requires = "proxies")]
    scheme: Option<Protocol>,
}

/// A message for standard error, if anything is left to be said, and the exit code that goes with it.
struct Exit {
    code: u8,
    message: String,
}

impl Exit {
    fn new(code: u8, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// A reader that has seen enough (head, a pager) is no error.
    fn unprinted(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(0, ""),
            _ => Self::new(IO_ERROR, format!("cannot write to standard output: {error}")),
        }
    }

    /// The same end after a report. That the report is lost is what comes first.
    fn after(self, report: &[u8]) -> Self {
        match print(report) {
            Err(unprinted) if unprinted.code != 0 => {
                Self::new(unprinted.code, format!("{}\n{}", unprinted.message, self.message))
            }
            _ => self,
        }
    }
}

/// Prints a report. The error is how the program ends without it.
fn print(report: impl AsRef<[u8]>) -> Result<(), Exit> {
    output::print(report).map_err(|error| Exit::unprinted(&error))
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => {
            // Help and version are no errors to clap either, but everything else would exit with 2.
            let printed = output::print_told(&told);
            return end(if told.use_stderr() {
                Err(Exit::new(USAGE, ""))
            } else {
                printed.map_err(|error| Exit::unprinted(&error))
            });
        }
    };
    output::start_logging();
    end(match cli.command.unwrap_or(Command::Serve(cli.serve)) {
        Command::Serve(args) => args.load().and_then(serve::serve),
        Command::Demo { listen } => serve::demo(listen),
        Command::Check(args) => args.load().and_then(|config| check(&config)),
        Command::Pool(args) => pool::run(args),
        Command::Test(args) => test::run(args),
        Command::Judge { listen } => judge::run(&listen),
    })
}

fn end(done: Result<(), Exit>) -> ExitCode {
    let Exit { code, message } = done.err().unwrap_or(Exit::new(0, ""));
    if !message.is_empty() {
        output::note(message.trim_end());
    }
    ExitCode::from(if code == 0 && output::has_lost_notes() { IO_ERROR } else { code })
}

/// Says what a gateway would start with all the same, and try on.
fn check(config: &Config) -> Result<(), Exit> {
    for sentence in config.without_effect() {
        output::note(format_args!("warning: {sentence}"));
    }
    for source in &config.pool.sources {
        if let Some(trouble) = source.trouble() {
            let name = &source.name;
            output::note(format_args!("warning: pool.sources {name:?}: {trouble}; a gateway would start and try on"));
        }
    }
    print("the configuration is valid\n")
}

impl ConfigArgs {
    fn load(self, flags: Flags) -> Result<Config, Exit> {
        let flags = Flags { store: self.store, key: self.key, ..flags };
        let sources = Sources { file: self.config, env: config::environment(), flags };
        Config::load(&sources).map_err(|mistakes| Exit::new(CONFIG, mistakes))
    }
}

impl ServeArgs {
    fn load(self) -> Result<Config, Exit> {
        let mut listed = Vec::new();
        for file in &self.proxies {
            listed.extend(lists::members(file, self.scheme)?);
        }
        let flags = Flags { listen: self.listen, proxies: self.proxy, listed, ..Flags::default() };
        self.config.load(flags)
    }
}

/// A way to the pool; in Redis, one client for each call.
fn connector(config: &config::Pool) -> impl Fn() -> Result<Pool, String> + Send + Sync + use<> {
    connector_with(config, embedded(config))
}

/// An embedded store, empty.
fn embedded(config: &config::Pool) -> Embedded {
    let mut embedded = match config.policy {
        Policy::LeastUsed => Embedded::new(),
        Policy::LeastConcurrent(concurrency) => Embedded::least_concurrent(concurrency.max_in_flight),
    };
    if config.ramps() {
        embedded = embedded.with_ramp(config.ramp_every);
    }
    if let Some(limits) = config.scope {
        embedded = embedded.with_hosts(limits);
    }
    embedded
}

/// The same where the embedded store, if it is that, holds something.
fn connector_with(
    config: &config::Pool,
    embedded: Embedded,
) -> impl Fn() -> Result<Pool, String> + Send + Sync + use<> {
    let config = config.clone();
    let ramp_every = config.ramps().then_some(config.ramp_every);
    let local = config.local_for.map(|longest| Arc::new(Local::new(longest)));
    move || match (&config.store, config.policy) {
        (Store::Embedded, _) => Ok(Pool::Embedded(embedded.clone())),
        (Store::Redis(url), Policy::LeastUsed) => {
            let mut redis = Redis::connect(url.expose(), &config.key, config.timeout, config.prefetch)?;
            if let Some(every) = ramp_every {
                redis = redis.with_ramp(every);
            }
            if let Some(limits) = config.scope {
                redis = redis.with_hosts(limits);
            }
            if let Some(local) = &local {
                redis = redis.with_local(local.clone());
            }
            Ok(Pool::Redis(redis))
        }
        (Store::Redis(url), Policy::LeastConcurrent(concurrency)) => {
            Redis::connect_least_concurrent(url.expose(), &config.key, config.timeout, concurrency).map(Pool::Redis)
        }
    }
}
