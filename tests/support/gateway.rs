//! A gateway under test: the real program, with a configuration, a folder and a port of its own.

use std::fmt::{Display, Write as _};
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::client::Client;
use super::redis::Redis;
use super::upstream::id;
use super::wire::PATIENCE;

/// The key of the tests' pools.
pub(crate) const KEY: &str = "evenkeel:{default}";

/// The stores a pool can be kept in.
pub(crate) enum Store {
    Embedded,
    Redis(Box<Redis>),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Self::Embedded => "embedded".into(),
            Self::Redis(redis) => redis.url(),
        }
    }
}

/// Runs a test against each store: they differ in where the pool lives, never in behaviour.
pub(crate) fn with_both_stores(test: impl Fn(&Store)) {
    test(&Store::Embedded);
    test(&Store::Redis(Box::new(Redis::start())));
}

/// A configuration in the making.
#[derive(Clone)]
pub(crate) struct Setup {
    listen: String,
    lines: String,
    sources: String,
    proxies: Vec<String>,
    store: String,
    env: Vec<(String, String)>,
}

impl Setup {
    /// These members in the embedded store, and every other key at its default.
    pub(crate) fn of<I: IntoIterator<Item: Into<String>>>(members: I) -> Self {
        let proxies = members.into_iter().map(Into::into).collect();
        Self {
            listen: "127.0.0.1:0".into(),
            lines: String::new(),
            sources: String::new(),
            proxies,
            store: "embedded".into(),
            env: Vec::new(),
        }
    }

    pub(crate) fn listen(self, listen: impl Into<String>) -> Self {
        Self { listen: listen.into(), ..self }
    }

    pub(crate) fn over(self, store: &Store) -> Self {
        self.store(&store.url())
    }

    pub(crate) fn redis(self, redis: &Redis) -> Self {
        self.store(&redis.url())
    }

    pub(crate) fn store(self, url: &str) -> Self {
        Self { store: url.into(), ..self }
    }

    /// One key, like `retry.attempts`.
    pub(crate) fn set(mut self, key: &str, value: impl Display) -> Self {
        let value = value.to_string();
        let is_bare = value.parse::<u64>().is_ok() || value.parse::<bool>().is_ok();
        let _ =
            if is_bare { writeln!(self.lines, "{key} = {value}") } else { writeln!(self.lines, "{key} = {value:?}") };
        self
    }

    /// A line as it is.
    pub(crate) fn line(mut self, line: &str) -> Self {
        let _ = writeln!(self.lines, "{line}");
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// One of `[[pool.sources]]`, as its lines.
    pub(crate) fn source(mut self, lines: &str) -> Self {
        let _ = writeln!(self.sources, "[[pool.sources]]\n{lines}");
        self
    }

    fn text(&self) -> String {
        let Self { listen, lines, sources, proxies, store, .. } = self;
        format!("gateway.listen = {listen:?}\npool.store = {store:?}\npool.proxies = {proxies:?}\n{lines}{sources}")
    }

    /// Starts it and waits until it says that it serves.
    pub(crate) fn start(&self) -> Gateway {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let config = dir.path().join("gateway.toml");
        std::fs::write(&config, self.text()).expect("a written file");
        let mut command = program();
        command.arg("--config").arg(config).current_dir(dir.path()).envs(self.env.iter().cloned());
        Gateway::spawn(command, dir)
    }
}

/// The program with nothing of this machine's environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// Runs the program to its end in a folder without a configuration.
pub(crate) fn run(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().expect("a scratch folder");
    program().args(args).current_dir(dir.path()).output().expect("the program runs")
}

/// A gateway that serves. Killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    address: SocketAddr,
    out: Lines,
    log: Lines,
    _dir: TempDir,
}

impl Gateway {
    /// Starts `command`, which must say where it listens.
    pub(crate) fn spawn(mut command: Command, dir: TempDir) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let (found, address) = mpsc::channel();
        let out = Lines::collect(child.stdout.take().expect("piped"), move |line| {
            if let Some(address) = line.strip_prefix("listening on http://") {
                let _ = found.send(address.parse().expect("an address"));
            }
        });
        let log = Lines::collect(child.stderr.take().expect("piped"), |_| {});
        let Ok(address) = address.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it did not say where it listens; its log:\n{}", log.text());
        };
        Self { child, address, out, log, _dir: dir }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A new connection to it.
    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child");
    }

    /// Waits for its end, which must come within `limit`.
    pub(crate) fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("our own child") {
                self.log.wait();
                self.out.wait();
                return status;
            }
            assert!(started.elapsed() < limit, "still running after {limit:?}; its log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2)); // between two looks
        }
    }

    /// Ends it, and gives everything that it wrote to standard error.
    pub(crate) fn finish(mut self) -> String {
        self.signal(Signal::TERM);
        self.wait_exit(PATIENCE);
        self.log()
    }

    /// What it has written to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// How often its log says this of a member.
    pub(crate) fn said(&self, what: &str, member: &str) -> usize {
        let id = id(member);
        self.log().lines().filter(|line| line.contains(what) && line.contains(&id)).count()
    }

    /// What it has written to standard output so far.
    pub(crate) fn stdout(&self) -> String {
        self.out.text()
    }

    /// Processor time it has used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("a running process");
        // proc(5): the name, in parentheses, may hold blanks; utime and stime are fields 14 and 15, in 1/100 s.
        let fields = stat.rsplit_once(") ").expect("a name in parentheses").1.split(' ').skip(11).take(2);
        fields.map(|ticks| Duration::from_millis(10 * ticks.parse::<u64>().expect("ticks"))).sum()
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the log of the gateway on {}:\n{}", self.address, self.log());
        }
    }
}

/// What a process writes, collected line by line by a thread that ends with it.
struct Lines {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Lines {
    fn collect(from: impl Read + Send + 'static, mut seen: impl FnMut(&str) + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let shared = text.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                seen(&line);
                *lock(&shared) += &(line + "\n");
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        lock(&self.text).clone()
    }

    /// Until the process has closed its end.
    fn wait(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until something is true, which must be within `limit`.
pub(crate) fn eventually(limit: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5)); // between two looks
    }
}
