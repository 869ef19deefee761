//! `evenkeel test …`: tries members on the path that traffic takes, many at once, and prints what was found in their order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{ConfigArgs, Exit, OS_ERROR, UNAVAILABLE, USAGE, connector, print};
use crate::config::{self, Config, Flags, Store};
use crate::member::{self, Member, Name};
use crate::output::note;
use crate::pool::Pool;
use crate::probe::{Fault, Judge, Place, Verdict, probe};
use crate::server;

#[derive(Args)]
#[command(group(ArgGroup::new("which").required(true).args(["urls", "all"])))]
pub(super) struct TestArgs {
    /// Upstream proxies of any kind, such as `socks5h://user:password@host:port`
    #[arg(value_name = "URL")]
    urls: Vec<String>,
    /// Every eligible member of the pool; with the embedded store, those in the file of pool.state, or of the configuration
    #[arg(long)]
    all: bool,
    /// A page that says what it saw, as `evenkeel judge` does: nothing else will do
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    judge: Option<String>,
    /// Any page; if it says what it saw, the better
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Where a tunnel is to lead (without it, to the page's own host and port)
    #[arg(long, value_name = "HOST:PORT")]
    connect: Option<String>,
    /// How this machine gets at the page without a member between; directly if not said
    #[arg(long, value_name = "PROXY")]
    via: Option<String>,
    /// The longest a proxy may take for everything
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// How many are tried at once
    #[arg(long, value_name = "N")]
    parallel: Option<String>,
    /// Write JSON for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: TestArgs) -> Result<(), Exit> {
    let flags = Flags { url: args.url, timeout: args.timeout, parallel: args.parallel, ..Flags::default() };
    let config = args.config.load(flags)?;
    let wrong = |flag: &str, why: String| Exit::new(USAGE, format!("{flag}: {why}"));
    let connect = args.connect.map(|text| text.parse::<Place>()).transpose().map_err(|why| wrong("--connect", why))?;
    let must_connect = connect.is_some();
    let judge = match args.judge.as_deref().map(str::parse).transpose() {
        Ok(page) => choose(page.map(Judge::strict), &config, connect)?,
        Err(why) => return Err(wrong("--judge", format!("the URL {why}"))),
    };
    let via = match args.via.as_deref().map(config::proxy).transpose().map_err(|why| wrong("--via", why))? {
        Some(name) => Member::parse(&name).map_err(|why| wrong("--via", why.to_string()))?,
        None => Member::direct(),
    };
    let named = args.urls.iter().map(|url| config::proxy(url)).collect::<Result<Vec<_>, _>>();
    let named = named.map_err(|why| Exit::new(USAGE, why))?;
    server::raise_descriptors();
    let runtime = tokio::runtime::Runtime::new().map_err(|error| Exit::new(OS_ERROR, error))?;
    let passed = runtime.block_on(async {
        let names = if args.all { pool(&config).await? } else { named };
        let judge = introduced(judge, &via, config.health.timeout).await;
        let mut table = Table::new(args.json, must_connect, names.len());
        // A reader that has seen enough (head, a pager) needs no more tests.
        try_all(names, judge, &config.health, &mut table).await.and_then(|()| table.result())
    });
    // A resolver thread may still wait for an answer nobody wants.
    runtime.shutdown_background();
    passed
}

fn choose(strict: Option<Judge>, config: &Config, connect: Option<Place>) -> Result<Judge, Exit> {
    const NOTHING: &str = "say what to ask for through the proxies: --judge URL for a page that says what it saw \
        (`evenkeel judge` serves one), --url URL for any page, --connect HOST:PORT for a tunnel, or health.url in the \
        configuration";
    match (strict.or_else(|| config.health.url.clone().map(Judge::lenient)), connect) {
        (Some(judge), connect) => Ok(judge.and_tunnel(connect)),
        (None, Some(place)) => Ok(Judge::tunnel(place)),
        (None, None) => Err(Exit::new(USAGE, NOTHING)),
    }
}

async fn pool(config: &Config) -> Result<Vec<Name>, Exit> {
    let names = match config.pool.store {
        Store::Embedded if config.pool.state.as_deref().is_some_and(Path::exists) => {
            let (pool, _) = super::pool::saved::open(&config.pool, false)?;
            let entries = Pool::Embedded(pool).list().await.map_err(|error| Exit::new(UNAVAILABLE, error))?;
            entries.into_iter().map(|entry| entry.member).collect()
        }
        Store::Embedded => config.pool.proxies.clone(),
        Store::Redis(_) => {
            let pool = connector(&config.pool)().map_err(|error| Exit::new(UNAVAILABLE, error))?;
            let entries = pool.list().await.map_err(|error| Exit::new(UNAVAILABLE, error))?;
            entries.into_iter().map(|entry| entry.member).collect()
        }
    };
    if names.is_empty() {
        return Err(Exit::new(UNAVAILABLE, "no upstream proxy is eligible: the pool is empty"));
    }
    Ok(names)
}

/// The judge that knows how this machine looks, if it can be asked.
async fn introduced(mut judge: Judge, via: &Member, timeout: Duration) -> Judge {
    match judge.introduce(via, timeout).await {
        Ok(true) => {}
        Ok(false) if judge.has_page() => {
            note("the page does not say what it saw: where the proxies come out and what they tell stays unknown");
        }
        Ok(false) => {}
        Err(fault) => note(format_args!(
            "the page cannot be fetched without the proxies, so what they tell of this machine stays unknown ({fault})"
        )),
    }
    judge
}

/// The error is that what is printed reaches nobody.
async fn try_all(names: Vec<Name>, judge: Judge, limits: &config::Health, table: &mut Table) -> Result<(), Exit> {
    let (names, judge, next) = (Arc::new(names), Arc::new(judge), Arc::new(AtomicUsize::new(0)));
    let parallel = limits.parallel.min(names.len());
    let (done, mut verdicts) = mpsc::channel(parallel);
    for _ in 0..parallel {
        let (names, judge, next, done, timeout) =
            (names.clone(), judge.clone(), next.clone(), done.clone(), limits.timeout);
        tokio::spawn(async move {
            while let Some((n, name)) =
                Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, names.get(n)?)))
            {
                let verdict = match Member::parse(name) {
                    Ok(member) => probe(&member, &judge, timeout).await,
                    Err(why) => Verdict { fault: Some(Fault::malformed(&why)), ..Verdict::default() },
                };
                if done.send((n, verdict)).await.is_err() {
                    break;
                }
            }
        });
    }
    drop(done);
    let mut early = BTreeMap::new();
    let mut shown = 0;
    table.begin()?;
    while let Some((n, verdict)) = verdicts.recv().await {
        early.insert(n, verdict);
        let mut rows = String::new();
        while let Some(verdict) = early.remove(&shown) {
            rows += &table.row(&names[shown], &verdict);
            shown += 1;
        }
        table.advance(&rows)?;
    }
    table.end()
}

/// What is printed, row by row, and what it adds up to.
struct Table {
    is_json: bool,
    /// Whether a proxy that opens no tunnel has failed.
    must_connect: bool,
    bar: ProgressBar,
    tested: usize,
    passed: usize,
}

impl Table {
    fn new(is_json: bool, must_connect: bool, count: usize) -> Self {
        // It draws on standard error, and only if that is a terminal.
        let bar = ProgressBar::new(count as u64);
        let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {msg} did not pass, {eta} to go");
        bar.set_style(style.expect("a template"));
        bar.set_message("0");
        Self { is_json, must_connect, bar, tested: 0, passed: 0 }
    }

    fn begin(&self) -> Result<(), Exit> {
        if self.is_json {
            return self.print("[");
        }
        let [result, connect, first, total] = ["result", "connect", "first byte", "whole"];
        self.print(&format!(
            " {result:<6}  {connect:>9}  {first:>10}  {total:>9}  {:<7}  {:<15}  {:<11}  {:<11}  proxy\n",
            "CONNECT", "exit", "anonymity", "id"
        ))
    }

    fn row(&mut self, name: &Name, verdict: &Verdict) -> String {
        let has_passed = verdict.is_reachable() && !(self.must_connect && verdict.can_connect == Some(false));
        let is_first = self.tested == 0;
        self.tested += 1;
        self.passed += usize::from(has_passed);
        if self.is_json {
            let begin = if is_first { "\n" } else { ",\n" };
            return format!("{begin}  {}", as_json(name, verdict));
        }
        let span = |span: Option<Duration>| span.map_or_else(|| "-".into(), |span| format!("{} ms", span.as_millis()));
        let can_connect = match verdict.can_connect {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        format!(
            " {:<6}  {:>9}  {:>10}  {:>9}  {can_connect:<7}  {:<15}  {:<11}  {:<11}  {}{}\n",
            if has_passed { "ok" } else { "failed" },
            span(verdict.connect),
            span(verdict.first_byte),
            span(verdict.total),
            verdict.exit.map_or_else(|| "-".to_owned(), |exit| exit.to_string()),
            verdict.anonymity.map_or("-", |anonymity| anonymity.name()),
            member::id(name),
            member::masked(name),
            remark(verdict),
        )
    }

    fn advance(&self, rows: &str) -> Result<(), Exit> {
        self.bar.inc(1);
        self.bar.set_message((self.tested - self.passed).to_string());
        if rows.is_empty() { Ok(()) } else { self.print(rows) }
    }

    fn end(&self) -> Result<(), Exit> {
        self.bar.finish_and_clear();
        self.print(&if self.is_json { "\n]\n".to_owned() } else { format!("{}\n", self.sum()) })
    }

    fn sum(&self) -> String {
        format!("{} tested, {} passed, {} did not", self.tested, self.passed, self.tested - self.passed)
    }

    /// For the exit code.
    fn result(&self) -> Result<(), Exit> {
        let is_said = !self.is_json;
        if self.passed == self.tested {
            return Ok(());
        }
        Err(Exit::new(UNAVAILABLE, if is_said { String::new() } else { self.sum() }))
    }

    fn print(&self, text: &str) -> Result<(), Exit> {
        self.bar.suspend(|| print(text))
    }
}

/// What the columns do not say.
fn remark(verdict: &Verdict) -> String {
    let country = verdict.country.as_ref().map(|country| format!("in {country}"));
    let seen = (!verdict.seen.is_empty()).then(|| format!("seen: {}", verdict.seen.join(", ")));
    let fault = verdict.fault.as_ref().map(ToString::to_string);
    let tunnel = verdict.connect_fault.as_ref().filter(|_| fault.is_none());
    let tunnel = tunnel.map(|fault| format!("no tunnel: {}", fault.reason));
    let parts: Vec<_> = [country, seen, fault, tunnel].into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { format!("  ({})", parts.join("; ")) }
}

fn as_json(name: &Name, verdict: &Verdict) -> Value {
    let mut object = json!({
        "proxy": member::masked(name),
        "id": member::id(name),
        "reachable": verdict.is_reachable(),
    });
    let found = serde_json::to_value(verdict).unwrap_or_default();
    if let (Some(object), Value::Object(found)) = (object.as_object_mut(), found) {
        object.extend(found);
    }
    object
}
