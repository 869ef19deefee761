//! The `evenkeel` program; see [`evenkeel::cli`] for its words and exit codes.

use std::process::ExitCode;

fn main() -> ExitCode {
    evenkeel::cli::main()
}
