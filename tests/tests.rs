//! Behaviour from outside, one module per subject, in one binary.
#![expect(clippy::print_stderr, reason = "cargo shows it of tests that fail")]

mod support;

mod cli;
mod config;
mod demo;
mod output;

mod answers;
mod forward;
mod handover;
mod ipv6;
mod kinds;
mod names;
mod tls;
mod tunnel;
mod ways;

mod foreign_values;
mod pool;
mod pool_life;
mod pool_model;
mod pool_race;
mod pool_sources;
mod pool_use;
mod redis_faults;
mod redis_tls;
mod retry;
mod spread;
mod state;
mod unreachable;
mod verify;

mod bans;
mod candidates;
mod checks;
mod fetch;
mod health;
mod lists;
mod probe;
mod sources;
mod sources_doubt;

mod fleet;
mod leases;
mod least_concurrent;

mod admin;
mod drain;
mod limits;
mod logging;
mod secrets;
