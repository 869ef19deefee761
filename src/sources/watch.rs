//! Whether a file has changed, by looking at it twice a second.
//!
//! That also sees what notifications of the kernel do not: changes on network file systems, and files that editors, deployments
//! and Kubernetes replace by renaming or by a symbolic link. Cost: one system call per look.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// Between two looks.
pub(super) const EVERY: Duration = Duration::from_millis(500);

/// What is different when a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    /// Also of a file whose time was set back, as unpacking does.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(about: &Metadata) -> Self {
        Self {
            device: about.dev(),
            inode: about.ino(),
            size: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }
}

/// A file that is looked at.
pub(super) struct Watch {
    path: PathBuf,
    /// As it was when it was read last; `None`: it was not there.
    read: Option<Stamp>,
}

impl Watch {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), read: None }
    }

    /// It is about to be read.
    pub(super) async fn remember(&mut self) {
        self.read = look(&self.path).await;
    }

    /// Returns when it is another than the one that was read, and has stayed the same for two looks: whoever writes it has
    /// probably done.
    pub(super) async fn changed(&self) {
        let mut before = self.read;
        loop {
            sleep(EVERY).await;
            let now = look(&self.path).await;
            if now != self.read && now == before {
                return;
            }
            before = now;
        }
    }
}

/// What is there now, if anything is.
pub(super) async fn look(path: &Path) -> Option<Stamp> {
    tokio::fs::metadata(path).await.ok().map(|about| Stamp::of(&about))
}
