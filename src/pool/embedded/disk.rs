//! The file of a state on the disk: read, locked, begun anew, set aside. What is in it is no matter here.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::file::{self, Content};
use super::now_ms;

/// Why a state cannot be kept, in words for an operator.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// Another process has it.
    #[error("{0} is kept by another process")]
    Locked(String),
    /// The system says no.
    #[error("cannot {0} {1}: {2}")]
    Io(&'static str, String, io::Error),
    /// It is no file: a folder, a device.
    #[error("{0} is not a file")]
    NoFile(String),
}

/// Whether there is such a file.
pub(super) fn is_there(path: &Path) -> Result<bool, KeepError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(KeepError::Io("read", path.display().to_string(), error)),
        Ok(found) if !found.is_file() => Err(KeepError::NoFile(path.display().to_string())),
        Ok(_) => Ok(true),
    }
}

/// `None`: there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Result<Content, file::Unusable>>, KeepError> {
    let failed = |error| KeepError::Io("read", path.display().to_string(), error);
    if !is_there(path)? {
        return Ok(None);
    }
    let file = File::open(path).map_err(failed)?;
    file::read(BufReader::with_capacity(1 << 16, file)).map(Some).map_err(failed)
}

/// It goes when the process does, however that ends.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // By word: a child that is just being started has the descriptor too, until it becomes another program.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// `None`: another process has it.
pub(super) fn lock(path: &Path) -> Result<Option<Lock>, KeepError> {
    let beside = with_suffix(path, ".lock");
    let failed = |error| KeepError::Io("open", beside.display().to_string(), error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&beside).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(KeepError::Io("lock", beside.display().to_string(), error.into())),
    }
}

/// A new file, for the eyes of its owner: members hold passwords.
pub(super) fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Under a name that nothing has.
pub(super) fn set_aside(path: &Path) -> Result<PathBuf, KeepError> {
    let seconds = now_ms() / 1_000;
    let names = (0..1_000).map(|n| match n {
        0 => with_suffix(path, &format!(".unusable-{seconds}")),
        n => with_suffix(path, &format!(".unusable-{seconds}-{n}")),
    });
    let mut free = names.filter(|name| fs::symlink_metadata(name).is_err());
    let aside = free.next().unwrap_or_else(|| with_suffix(path, ".unusable"));
    let failed = |error| KeepError::Io("set aside", path.display().to_string(), error);
    fs::rename(path, &aside).map_err(failed)?;
    Ok(aside)
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
