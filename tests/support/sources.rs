//! Lists that a gateway keeps its pool in step with, and what its log says of them.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::gateway::{Gateway, KEY, Store, eventually};
use super::redis::Redis;
use super::upstream::{Conn, Upstream};
use super::wire::PATIENCE;

/// A file in a folder of its own.
pub(crate) struct List {
    dir: TempDir,
}

impl List {
    pub(crate) fn of(text: impl AsRef<[u8]>) -> Self {
        let list = Self { dir: tempfile::tempdir().expect("a scratch folder") };
        list.rewrite(text);
        list
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("list.txt")
    }

    /// As many editors do: the same file with other content.
    pub(crate) fn rewrite(&self, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(), text).expect("a written file");
    }

    /// As other editors and deployments do: another file in its place.
    pub(crate) fn replace(&self, text: impl AsRef<[u8]>) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, text).expect("a written file");
        std::fs::rename(new, self.path()).expect("a renamed file");
    }

    pub(crate) fn delete(&self) {
        std::fs::remove_file(self.path()).expect("a deleted file");
    }

    pub(crate) fn source(&self, more: &str) -> String {
        source(&self.path(), more)
    }
}

pub(crate) fn source(file: &Path, more: &str) -> String {
    format!("name = \"list\"\nfile = {:?}\n{more}", file.display().to_string())
}

/// What a page answers at the moment.
#[derive(Clone)]
pub(crate) struct Shelf(Arc<Mutex<Vec<u8>>>);

impl Shelf {
    pub(crate) fn serve(answer: impl Into<Vec<u8>>) -> (Self, Upstream) {
        let shelf = Self(Arc::new(Mutex::new(answer.into())));
        let served = shelf.clone();
        let origin = Upstream::start(move |conn: &mut Conn| {
            conn.request()?;
            let answer = served.0.lock().unwrap().clone();
            conn.send(answer)
        });
        (shelf, origin)
    }

    pub(crate) fn put(&self, answer: impl Into<Vec<u8>>) {
        *self.0.lock().unwrap() = answer.into();
    }
}

pub(crate) fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

pub(crate) fn page(url: impl Display, more: &str) -> String {
    format!("name = \"list\"\nurl = \"{url}\"\nevery = \"1s\"\n{more}")
}

/// The lines about the source `list` so far.
pub(crate) fn told(gateway: &Gateway) -> Vec<String> {
    gateway.log().lines().filter(|line| line.contains("source=\"list\"")).map(str::to_owned).collect()
}

/// Waits until a line about the source `list` says that, and gives it.
pub(crate) fn wait_told(gateway: &Gateway, what: &str) -> String {
    let said = || told(gateway).into_iter().rev().find(|line| line.contains(what));
    eventually(PATIENCE, what, || said().is_some());
    said().expect("it was there")
}

/// What a reading must say of taken, added and removed.
pub(crate) fn wait_read(gateway: &Gateway, taken: u64, added: u64, removed: u64) -> String {
    wait_told(gateway, &format!("taken={taken} added={added} removed={removed} "))
}

pub(crate) fn members(redis: &Redis) -> Vec<String> {
    let mut members: Vec<_> =
        redis.scores(KEY).into_iter().map(|(member, _)| String::from_utf8(member).unwrap()).collect();
    members.sort();
    members
}

/// As `with_both_stores`, at the same time: files are looked at twice a second.
pub(crate) fn on_both_stores(test: impl Fn(&Store) + Sync) {
    std::thread::scope(|scope| {
        let redis = scope.spawn(|| test(&Store::Redis(Box::new(Redis::start()))));
        test(&Store::Embedded);
        redis.join().expect("the same with Redis");
    });
}
