//! What becomes of words that cannot be written, or that nobody reads.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _, pipe};
use std::process::{Child, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::gateway::{KEY, program};
use crate::support::redis::Redis;
use crate::support::upstream::Upstream;

/// Where everything that is written is lost.
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("a device")
}

/// A pipe whose reader has gone.
fn gone() -> Stdio {
    pipe().expect("a pipe").1.into()
}

fn run(args: &[&str], out: impl Into<Stdio>, err: impl Into<Stdio>) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let mut command = program();
    let child = command.args(args).current_dir(dir.path()).stdout(out).stderr(err).spawn().expect("the program starts");
    let Output { status, stderr, .. } = child.wait_with_output().expect("our own child");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

/// A list of so many, in a folder that holds it.
fn list(count: usize) -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let path = dir.path().join("list.txt");
    let mut file = File::create(&path).expect("a file");
    (1..=count).for_each(|port| writeln!(file, "10.0.0.1:{port}").expect("a written file"));
    (dir, path.to_str().expect("text").to_owned())
}

/// A report that is lost is a failure, and one that nobody wants is none; what was asked for is done either way.
#[test]
fn a_report_that_cannot_be_written_exits_with_74_and_one_that_nobody_reads_does_not() {
    let redis = Redis::start();
    let url = redis.url();
    let (_dir, list) = list(3);
    for args in [
        &["--help"][..],
        &["pool", "import", "--help"],
        &["--version"],
        &["check"],
        &["pool", "import", &list],
        &["pool", "add", "10.0.0.1:4"],
        &["pool", "list"],
        &["pool", "list", "--json"],
        &["pool", "export"],
        &["pool", "verify"],
        &["pool", "rebase"],
        &["pool", "park", "10.0.0.1:1"],
        &["pool", "restore", "10.0.0.1:1"],
        &["pool", "ban", "10.0.0.1:1"],
        &["pool", "unban", "10.0.0.1:1"],
        &["pool", "remove", "10.0.0.1:4"],
    ] {
        let store = ["--store", &url];
        let store = if args[0] == "pool" { &store[..] } else { &[] };
        let args = [args, store].concat();
        let (code, said) = run(&args, full(), Stdio::piped());
        assert_eq!(code, Some(74), "{args:?}: {said}");
        assert_eq!(said, "cannot write to standard output: No space left on device (os error 28)\n", "{args:?}");
        assert_eq!(run(&args, gone(), Stdio::piped()), (Some(0), String::new()), "{args:?}");
        assert_eq!(run(&args, gone(), gone()).0, Some(0), "{args:?}");
    }
    assert_eq!(redis.int(&["ZCARD", KEY]), 3);
}

/// The exit code is that of the trouble, unless the report about it is lost as well.
#[test]
fn trouble_is_told_by_the_exit_code_although_nobody_reads_of_it() {
    let redis = Redis::start();
    redis.cmd(&["ZADD", KEY, "inf", "10.0.0.1:1"]);
    let (_dir, list) = list(2);
    let verify = ["pool", "verify", "--store", &redis.url()];
    assert_eq!(run(&verify, gone(), Stdio::piped()), (Some(65), "the pool is not sound\n".to_owned()));
    let (code, said) = run(&verify, full(), Stdio::piped());
    assert_eq!(code, Some(74));
    assert!(
        said.starts_with("cannot write to standard output: ") && said.ends_with("the pool is not sound\n"),
        "{said}"
    );
    for (args, code) in [
        (&["sevre"][..], 64),
        (&["pool", "list"], 64),
        (&["pool", "import", "absent.txt", "--store", &redis.url()], 66),
        (&["check", "--config", "absent.toml"], 78),
        (&["pool", "import", &list, "--store", "redis://127.0.0.1:1"], 69),
    ] {
        for err in [full().into(), gone()] {
            assert_eq!(run(args, gone(), err).0, Some(code), "{args:?}");
        }
    }
}

/// What is said of each line of a list is lost, and the list is not.
#[test]
fn an_import_goes_on_without_a_reader_of_its_notes() {
    let redis = Redis::start();
    let (_dir, list) = list(3_000);
    for (err, expected) in [(gone(), 0), (full().into(), 74)] {
        redis.cmd(&["DEL", KEY]);
        let args = ["pool", "import", "--verbose", &list, "--store", &redis.url()];
        assert_eq!(run(&args, Stdio::null(), err).0, Some(expected));
        assert_eq!(redis.int(&["ZCARD", KEY]), 3_000);
    }
}

#[test]
fn a_test_of_members_ends_when_its_table_is_lost() {
    let (upstream, judge) = (Upstream::ok("a page"), Upstream::ok("a page"));
    let url = upstream.url();
    let judge = judge.url();
    let args = ["test", &url, &url, "--url", &judge];
    for json in [&[][..], &["--json"]] {
        let args = [&args, json].concat();
        let (code, said) = run(&args, full(), Stdio::piped());
        assert!(code == Some(74) && said.contains("cannot write to standard output: "), "{code:?}: {said}");
        let (code, said) = run(&args, gone(), Stdio::piped());
        assert!(code == Some(0) && !said.contains("standard output"), "{code:?}: {said}");
    }
}

/// Ends a gateway by a signal; its exit code.
fn end(mut child: Child) -> Option<i32> {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("our own child");
    child.wait().expect("our own child").code()
}

/// Its log says then where it listens.
#[test]
fn a_gateway_serves_though_its_first_line_is_lost() {
    for (args, out) in [(&[][..], gone()), (&[], full().into()), (&["demo"], gone()), (&["judge"], full().into())] {
        let mut command = program();
        command.args(args).args(["--listen", "127.0.0.1:0"]).stdout(out).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let line = log.lines().map_while(Result::ok).find(|line| line.contains("cannot say on standard output"));
        let line = line.unwrap_or_else(|| panic!("{args:?}: nothing is said of it"));
        let address = line.rsplit_once("address=").expect("an address").1.parse().expect("an address");
        // A judge answers itself; a gateway says that this is a proxy, or that it has none.
        let status = Client::to(address).get("http://origin.invalid/").status();
        assert!([200, 502, 503].contains(&status), "{args:?}: {status}");
        assert_eq!(end(child), Some(0), "{args:?}");
    }
}

/// A line of the log for each request, and none of them can be written.
#[test]
fn a_gateway_serves_though_its_log_is_lost() {
    let upstream = Upstream::ok("served");
    for err in [full().into(), gone()] {
        let mut command = program();
        command.args(["--listen", "127.0.0.1:0", "--proxy", &upstream.url()]);
        command.env("EVENKEEL_LOG__REQUESTS", "true").env("RUST_LOG", "debug");
        let mut child = command.stdout(Stdio::piped()).stderr(err).spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let address =
            line.trim_end().strip_prefix("listening on http://").expect("an address").parse().expect("an address");
        for _ in 0..3 {
            assert_eq!(Client::to(address).get("http://origin.test/").text(), "served");
        }
        assert_eq!(end(child), Some(0));
    }
}
