//! What the program says on standard output and standard error: the only place that writes there.
//!
//! Neither is sure to be read. Of a report on standard output the caller learns whether it was written, and decides. A note on
//! standard error is never a reason to stop half way, since what is being done may be a change of the pool: one that is lost is
//! remembered, for the exit code. Nothing here panics, as `println!` does.
//!
//! A reader that has gone (`| head`, a pager that was left) has seen enough: that loses nothing, for either stream.

#![expect(clippy::disallowed_methods, reason = "the lint sends others here")]

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether something could not be said on standard error that somebody was there to read.
static HAS_LOST_NOTES: AtomicBool = AtomicBool::new(false);

/// Writes `text` to standard output, to its last byte.
///
/// # Errors
/// [`io::ErrorKind::BrokenPipe`]: nobody reads it any more. Any other: a part of it is lost.
pub(crate) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref()).and_then(|()| out.flush())
}

/// Has clap print what it has to say, on the stream that it is for.
///
/// # Errors
/// As of [`print()`].
pub(crate) fn print_told(told: &clap::Error) -> io::Result<()> {
    told.print().and_then(|()| io::stdout().flush())
}

/// Writes a line to standard error.
pub(crate) fn note(line: impl Display) {
    // At once, so that the lines of several threads do not mix.
    let line = format!("{line}\n");
    match io::stderr().write_all(line.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => HAS_LOST_NOTES.store(true, Ordering::Relaxed),
        _ => {}
    }
}

/// Whether a note was lost, and not because its reader had gone.
pub(crate) fn has_lost_notes() -> bool {
    HAS_LOST_NOTES.load(Ordering::Relaxed)
}

/// Whether a person looks at standard output, by way of a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Has lines of the log go to standard error; `RUST_LOG` chooses the level, info without it. A line that cannot be written is
/// dropped: a gateway serves on.
pub(crate) fn start_logging() {
    use tracing_subscriber::EnvFilter;
    // fred reports every reconnect attempt; what follows from it is reported here once.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,fred=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // It would say so by eprintln!, which panics.
        .log_internal_errors(false)
        .init();
}
