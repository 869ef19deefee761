//! `evenkeel pool import`: a list of any length into the pool.
//!
//! One thread reads the list while the calls that add what it has read are on their way, a few at a time. Neither gets far
//! ahead of the other, so memory does not grow with the list.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{say, say_aside, unavailable};
use crate::cli::lists::{Source, unreadable};
use crate::cli::{Exit, UNAVAILABLE, USAGE};
use crate::config;
use crate::fetch::Url;
use crate::list::{List, Outcome, Protocol, Report};
use crate::member::{Member, Name};
use crate::output;
use crate::pool::{Initial, Pool, PoolError};

/// Members per call, as many as go in one script call.
const CHUNK: usize = 1_000;
/// Calls on their way at once: while Redis works on one, the next is already there.
const CALLS: usize = 4;

/// For a reader that is told that nobody wants more.
const PARTING: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(super) struct ImportArgs {
    /// The list, - for standard input: one proxy per line in any of the usual forms, CSV or JSON, gzip or not
    #[arg(value_name = "FILE|-|URL")]
    list: PathBuf,
    /// The proxy through which to fetch a URL; directly if not said
    #[arg(long, value_name = "PROXY")]
    via: Option<String>,
    /// What is spoken with proxies that do not say it: http, https, socks5h, socks5, socks4a or socks4
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<Protocol>,
    /// Say also what was taken
    #[arg(long, short)]
    verbose: bool,
}

impl ImportArgs {
    async fn open(&self) -> Result<Source, Exit> {
        let via = self.via.as_deref().map(config::proxy).transpose();
        let via = via.map_err(|why| Exit::new(USAGE, format!("--via: {why}")))?;
        let via = via.map_or(Ok(Member::direct()), |name| Member::parse(&name));
        let via = via.map_err(|why| Exit::new(USAGE, format!("--via: {why}")))?;
        let text = self.list.to_string_lossy();
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => {
                let url: Url = text.parse().map_err(|why| Exit::new(USAGE, format!("the list's URL {why}")))?;
                Source::fetch(&url, &via).await
            }
            // What a URL would look like and no file there is looks like.
            Some(_) if !self.list.exists() => Err(Exit::new(
                USAGE,
                "a list is fetched from http:// or https:// only; save it, and give the file's name",
            )),
            _ if self.via.is_some() => Err(Exit::new(USAGE, "--via is for a list with a URL (http:// or https://)")),
            _ => Source::open(&self.list),
        }
    }
}

/// What became of the members of a list, as far as the store knows.
#[derive(Clone, Copy, Default)]
struct Stored {
    added: u64,
    known: u64,
    /// Of those known, set aside.
    aside: usize,
}

/// Imports a list and gives what is to be printed. A part that was read before an error is in the pool, and is reported.
pub(super) async fn import(args: ImportArgs, pool: &Pool, initial: Initial, json: bool) -> Result<Vec<u8>, Exit> {
    let source = args.open().await?;
    let name = source.name.clone();
    let parked = pool.parked().await.map_err(unavailable)?;
    let parked = parked.into_iter().map(|parked| parked.member).collect();
    let (chunks, queue) = mpsc::channel(1);
    let (done, read) = oneshot::channel();
    // Not one of the runtime's: a list that never ends must not keep the program from ending.
    thread::spawn(move || done.send(read_all(source, &args, &chunks)));
    let (stored, failure) = store_all(queue, pool, initial, &parked).await;
    say_aside(stored.aside);
    if let Some(error) = failure {
        // It has nothing to wait for but its input, and takes its bar off the terminal.
        let _ = tokio::time::timeout(PARTING, read).await;
        let Stored { added, known, .. } = stored;
        let so_far = format!("added {added}, already there {known} until then; importing it again does no harm");
        return Err(Exit::new(UNAVAILABLE, format!("{error}; {so_far}")));
    }
    let (report, end) = read.await.map_err(|_| unreadable(&name, &io::Error::other("its reader failed")))?;
    let totals = totals(&report, stored, json);
    match end {
        Ok(()) => Ok(totals),
        Err(error) => Err(unreadable(&name, &error).after(&totals)),
    }
}

fn totals(report: &Report, Stored { added, known, .. }: Stored, json: bool) -> Vec<u8> {
    let (skipped, repeated) = (report.skipped(), report.repeated());
    let mut sentence = format!("added {added}, already there {known}, skipped {skipped}");
    if repeated > 0 {
        sentence += &format!(", repeated {repeated}");
    }
    say(json, &json!({"added": added, "known": known, "skipped": skipped, "repeated": repeated}), &sentence)
}

/// Reads a list to its end and says what is to be said of its lines; stops when nobody wants the members any more.
fn read_all(source: Source, args: &ImportArgs, chunks: &mpsc::Sender<Vec<Name>>) -> (Report, io::Result<()>) {
    let Source { name, input, size, read } = source;
    let mut report = Report::new(&name, args.verbose);
    let bar = Bar::new(size, args.verbose);
    bar.show(0, &report);
    let mut chunk = Vec::new();
    let read_chunks = || -> io::Result<()> {
        for line in List::new(input, args.scheme) {
            let line = line?;
            if let Some(said) = report.note(&line) {
                bar.say(&said);
            }
            if let Outcome::Taken(listed) = line.outcome {
                chunk.push(listed.member.name().clone());
            }
            if chunk.len() == CHUNK {
                bar.show(read.load(Ordering::Relaxed), &report);
                if chunks.blocking_send(std::mem::take(&mut chunk)).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    };
    let end = read_chunks();
    for said in report.rest() {
        bar.say(&said);
    }
    if !chunk.is_empty() {
        let _ = chunks.blocking_send(chunk); // whoever wants no more knows why
    }
    bar.clear();
    (report, end)
}

/// Adds chunk after chunk. After a failure no more are begun.
async fn store_all(
    mut chunks: mpsc::Receiver<Vec<Name>>,
    pool: &Pool,
    initial: Initial,
    parked: &HashSet<Name>,
) -> (Stored, Option<PoolError>) {
    let (mut stored, mut failure) = (Stored::default(), None);
    let mut calls = JoinSet::new();
    while failure.is_none() {
        tokio::select! {
            chunk = chunks.recv(), if calls.len() < CALLS => {
                let Some(names) = chunk else { break };
                stored.aside += names.iter().filter(|name| parked.contains(*name)).count();
                let pool = pool.clone();
                calls.spawn(async move { (names.len() as u64, pool.add(&names, initial).await) });
            }
            Some(call) = calls.join_next() => failure = stored.count(call.expect("adding does not panic")).err(),
        }
    }
    drop(chunks);
    while let Some(call) = calls.join_next().await {
        failure = failure.or(stored.count(call.expect("adding does not panic")).err());
    }
    (stored, failure)
}

impl Stored {
    fn count(&mut self, (given, result): (u64, Result<u64, PoolError>)) -> Result<(), PoolError> {
        let added = result?;
        self.added += added;
        self.known += given.saturating_sub(added);
        Ok(())
    }
}

/// How far a reader has come, on a terminal; elsewhere, and beside what is said of every line, nothing.
struct Bar(ProgressBar);

impl Bar {
    fn new(size: Option<u64>, is_verbose: bool) -> Self {
        let (bar, template) = match size {
            _ if is_verbose => (ProgressBar::hidden(), ""),
            Some(size) => (ProgressBar::new(size), "{wide_bar} {bytes} of {total_bytes}, {msg}, {eta} left"),
            None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {msg}, {elapsed}"),
        };
        Self(bar.with_style(ProgressStyle::with_template(template).expect("a template")))
    }

    fn show(&self, bytes: u64, report: &Report) {
        self.0.set_position(bytes);
        self.0.set_message(format!("{} taken, {} skipped", report.taken(), report.skipped()));
    }

    /// A line of its own.
    fn say(&self, text: &str) {
        self.0.suspend(|| output::note(text));
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}
