//! The system's resolver as a test has it: names and addresses from a table, and a list of who was asked for.
//!
//! A library that the gateway is started with (LD_PRELOAD) stands in front of the C library's `getaddrinfo`, the only way
//! by which it resolves. A name that is not in the table resolves nowhere.

use std::process::Command;

use tempfile::TempDir;

use super::gateway::Setup;

/// Compiled from C at each start, by the compiler that cargo links with.
pub(crate) struct Resolver {
    dir: TempDir,
    table: String,
}

impl Resolver {
    /// Names with their addresses, in the order in which they are to be tried.
    pub(crate) fn with(table: &[(&str, &[&str])]) -> Self {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let library = dir.path().join("resolver.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/resolver.c");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", source, "-ldl", "-o"]).arg(&library).output();
        let compiled = compiled.expect("these tests need a C compiler on the PATH (apt-get install gcc)");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let table = table.iter().map(|(name, addresses)| format!("{name}={};", addresses.join(","))).collect();
        Self { dir, table }
    }

    /// A gateway that is started with this has no other resolver.
    pub(crate) fn before(&self, setup: Setup) -> Setup {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        setup.env("LD_PRELOAD", &at("resolver.so")).env("RESOLVER_LOG", &at("asked")).env("RESOLVER_TABLE", &self.table)
    }

    /// The names that were asked for so far, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = std::fs::read_to_string(self.dir.path().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }
}
