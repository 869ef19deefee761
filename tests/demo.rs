//! The demo: starts by itself, answers curl, ends on Ctrl-C.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::client::curl_text;
use crate::support::gateway::{Gateway, eventually, program};
use crate::support::wire::PATIENCE;

#[test]
fn the_demo_answers_curl_both_ways_shows_its_counts_and_ends_on_ctrl_c() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["demo", "--listen", "127.0.0.1:0"]).current_dir(dir.path());
    let mut demo = Gateway::spawn(command, dir);
    eventually(PATIENCE, "the invitation", || demo.stdout().contains("Ctrl-C"));
    let text = demo.stdout();
    // The lines it invites to try, with the addresses it gave.
    let line = text.lines().find(|line| line.trim_start().starts_with("curl -x")).expect("a curl line");
    let words: Vec<_> = line.split_whitespace().collect();
    let (proxy, origin) = (words[2], words[3]);
    assert_eq!(proxy, demo.url());
    for _ in 0..3 {
        assert!(curl_text(&["-x", proxy, origin]).starts_with("hello from the demo's origin: GET"));
        assert!(curl_text(&["-p", "-x", proxy, origin]).starts_with("hello from the demo's origin: GET"));
    }
    eventually(Duration::from_secs(10), "the counts", || {
        let text = demo.stdout();
        let counts = text.lines().rfind(|line| line.starts_with("allocations: ")).unwrap_or_default();
        counts.split(", ").filter(|part| part.ends_with(" 2")).count() == 3
    });
    demo.signal(Signal::INT);
    assert_eq!(demo.wait_exit(Duration::from_secs(3)).code(), Some(0));
}
