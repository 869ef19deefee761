//! A real `redis-server` of one's own, on a TCP port and a unix socket, gone when the test is.

use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::pool::KEY;
use super::port::free_port;
use super::servers::Certificate;

/// Long enough for a loaded machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running server. Nothing is saved; a restart finds it empty.
pub(crate) struct Redis {
    port: u16,
    dir: TempDir,
    options: Vec<String>,
    process: Option<Child>,
}

/// A reply as RESP2 spells it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Redis {
    /// Starts a server and waits until it answers.
    pub(crate) fn start() -> Self {
        let mut redis = Self::stopped();
        redis.restart();
        redis
    }

    /// A cluster of one node that serves all slots.
    pub(crate) async fn cluster() -> Self {
        let redis = Self::cluster_node();
        redis.cmd(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        eventually(PATIENCE, "a cluster", async || redis.cluster_is_ok()).await;
        redis
    }

    /// A node that could become part of a cluster.
    pub(crate) fn cluster_node() -> Self {
        let mut redis = Self::stopped();
        // Alone, a node does not know the address it is reached at, and tells none.
        redis.options = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"].map(str::to_owned).into();
        redis.restart();
        redis
    }

    /// One that takes TLS on the port it gives, and there only clients with a certificate, as Redis does by itself.
    pub(crate) fn for_known_clients(certificate: &Certificate) -> (Self, u16) {
        let mut redis = Self::stopped();
        let port = free_port([127, 0, 0, 1].into());
        let (own, authority) = (certificate.chain(), certificate.authority());
        let options = [("--tls-cert-file", &own), ("--tls-key-file", &own), ("--tls-ca-cert-file", &authority)];
        redis.options = vec!["--tls-port".to_owned(), port.to_string()];
        redis
            .options
            .extend(options.into_iter().flat_map(|(name, file)| [name.to_owned(), file.display().to_string()]));
        redis.restart();
        (redis, port)
    }

    pub(crate) fn cluster_is_ok(&self) -> bool {
        matches!(self.cmd(&["CLUSTER", "INFO"]), Reply::Bulk(info) if info.starts_with(b"cluster_state:ok"))
    }

    /// Its port and folder without the server: nobody listens yet. Start it with [`Redis::restart`].
    pub(crate) fn stopped() -> Self {
        let port = free_port([127, 0, 0, 1].into());
        let dir = tempfile::tempdir().expect("a scratch folder");
        Self { port, dir, options: Vec::new(), process: None }
    }

    /// Stops it if it runs, and starts it on the same port.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(self.dir.path().join("redis.sock"))
            .arg("--dir")
            .arg(self.dir.path())
            .args(&self.options)
            .stdout(Stdio::null())
            .spawn()
            .expect("these tests need redis-server on the PATH (apt-get install redis-server)");
        self.process = Some(child);
        let started = Instant::now();
        while !matches!(self.try_cmd(&["PING"]), Ok(Reply::Simple(_))) {
            assert!(started.elapsed() < PATIENCE, "redis-server does not answer on port {}", self.port);
            std::thread::sleep(Duration::from_millis(5)); // between two looks, not for good measure
        }
    }

    /// Kills it: connections break, the data is gone.
    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Freezes it: connections stay open and silent (SIGSTOP).
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Wakes it (SIGCONT).
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// For the user that the README's line makes, who may do no more than it says, with the keys of these tests.
    pub(crate) fn restricted_url(&self) -> String {
        let readme = include_str!("../../README.md");
        let line = readme.lines().find(|line| line.starts_with("$ redis-cli ACL SETUSER")).expect("the line");
        let words: Vec<_> =
            line.split(' ').skip(2).map(|word| word.trim_matches('\'').replace("evenkeel:{default}", KEY)).collect();
        assert_eq!(self.cmd(&words), Reply::Simple("OK".to_owned()));
        self.url().replace("redis://", "redis://evenkeel:s3cret@")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn unix_url(&self) -> String {
        format!("redis+unix://{}", self.dir.path().join("redis.sock").display())
    }

    /// One command, its reply.
    pub(crate) fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.try_cmd(args).expect("redis-server answers")
    }

    /// One command whose reply must be a whole number.
    pub(crate) fn int<A: AsRef<[u8]>>(&self, args: &[A]) -> i64 {
        match self.cmd(args) {
            Reply::Int(n) => n,
            other => panic!("{other:?} is no number"),
        }
    }

    /// `ZRANGE key 0 -1 WITHSCORES`, scores as Redis prints them.
    pub(crate) fn scores(&self, key: &str) -> Vec<(Vec<u8>, String)> {
        let Reply::Array(flat) = self.cmd(&["ZRANGE", key, "0", "-1", "WITHSCORES"]) else { panic!("no array") };
        flat.chunks(2)
            .map(|pair| match pair {
                [Reply::Bulk(member), Reply::Bulk(score)] => (member.clone(), String::from_utf8_lossy(score).into()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// How often a command was called, and how often that failed, since the start or `CONFIG RESETSTAT`.
    pub(crate) fn calls(&self, command: &str) -> (u64, u64) {
        let Reply::Bulk(info) = self.cmd(&["INFO", "commandstats"]) else { panic!("no INFO") };
        let info = String::from_utf8_lossy(&info).into_owned();
        let Some(line) = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:"))) else {
            return (0, 0);
        };
        let field = |name: &str| {
            line.split(',')
                .find_map(|f| f.strip_prefix(name)?.strip_prefix('='))
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        };
        (field("calls"), field("failed_calls") + field("rejected_calls"))
    }

    /// The same, where the connection may break.
    pub(crate) fn try_cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        // The socket is made after the port opens and never survives its server, so it cannot answer for another.
        let mut stream = UnixStream::connect(self.dir.path().join("redis.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&encode(args))?;
        read_reply(&mut BufReader::new(stream))
    }

    fn signal(&self, signal: Signal) {
        let child = self.process.as_ref().expect("a running redis-server");
        kill_process(Pid::from_child(child), signal).expect("our own child");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop(); // SIGKILL also ends one that is frozen
    }
}

/// Waits until something is true; the caller says for how long at most.
pub(crate) async fn eventually<F>(limit: Duration, what: &str, mut done: F)
where
    F: AsyncFnMut() -> bool,
{
    let start = Instant::now();
    while !done().await {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await; // between two looks
    }
}

/// A server that answers PING, CLIENT and INFO as Redis does, and every script with bytes of the test's choice.
pub(crate) struct FakeRedis {
    port: u16,
    answer: std::sync::Arc<std::sync::Mutex<Vec<u8>>>,
}

impl FakeRedis {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let answer = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let shared = answer.clone();
        // Blocking threads; they end with their connection or with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = shared.clone();
                std::thread::spawn(move || Self::serve(stream, &answer));
            }
        });
        Self { port, answer }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn answer_scripts_with(&self, bytes: &[u8]) {
        *self.answer.lock().unwrap() = bytes.to_vec();
    }

    fn serve(stream: TcpStream, answer: &std::sync::Mutex<Vec<u8>>) -> Option<()> {
        let mut out = stream.try_clone().ok()?;
        let mut input = BufReader::new(stream);
        while let Ok(Reply::Array(command)) = read_reply(&mut input) {
            let Some(Reply::Bulk(name)) = command.first() else { return None };
            let bytes = match name.to_ascii_uppercase().as_slice() {
                b"PING" => b"+PONG\r\n".to_vec(),
                b"CLIENT" => b":1\r\n".to_vec(),
                b"INFO" => b"$21\r\nredis_version:7.0.0\r\n\r\n".to_vec(),
                _ => answer.lock().unwrap().clone(),
            };
            out.write_all(&bytes).ok()?;
        }
        None
    }
}

fn encode<A: AsRef<[u8]>>(args: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        out.extend_from_slice(arg.as_ref());
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn read_reply(input: &mut impl io::BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    if input.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let rest = line.get(1..).unwrap_or_default();
    let number = || rest.parse::<i64>().map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    Ok(match line.as_bytes().first() {
        Some(b'+') => Reply::Simple(rest.to_owned()),
        Some(b'-') => Reply::Error(rest.to_owned()),
        Some(b':') => Reply::Int(number()?),
        Some(b'$') if rest == "-1" => Reply::Nil,
        Some(b'$') => {
            let mut bytes = vec![0; usize::try_from(number()?).unwrap_or_default() + 2];
            input.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Bulk(bytes)
        }
        Some(b'*') => Reply::Array((0..number()?).map(|_| read_reply(input)).collect::<io::Result<_>>()?),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    })
}
