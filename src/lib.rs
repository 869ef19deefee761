//! evenkeel: a forward HTTP proxy gateway that spreads requests evenly over a pool of upstream proxies.
//!
//! The modules in the order a request meets them:
//!
//! - [`server`] accepts a connection, `client` serves it, `gateway` takes one request through, with what its `worker` shares;
//! - `head` reads a request in its own bytes, `target` and `headers` one that hyper has read: what was asked for, and
//!   what may go on;
//! - [`pool`] chooses the least-used [`member`], in Redis or in this process; [`list`] reads what people put into it;
//! - `upstream` and `dial` get a connection (a `stream`, perhaps an `idle` one), over `tls` or through `socks` where the member says so;
//! - `plain` is the short way there and back, for requests without a body (`line` and `scratch` hold its bytes,
//!   `chunked` finds its end); `extent`, `forward`, `upload` and `answer` are hyper's way, for all others;
//! - `tunnel` is for CONNECT, and `splice` for its bulk;
//! - [`fetch`] goes the same way for the gateway's own sake, to get a page, and [`probe`] to try a member: what it asks is a
//!   [`judge`];
//! - [`health`] takes note of members that fail, so that they are set aside, and judges candidates by
//!   [`rules`], [`ban`] of answers that say so;
//! - `attempts` says which member is next, and by `retry` and `error` whether there is one when that fails; `refusal` tells the
//!   client of the last failure, `record` writes the line about it;
//! - `metrics` counts what happens, and `admin` shows it;
//! - beside all that, `sources` keeps the pool in step with lists, and `upkeep` does what it needs now and then; `output` is
//!   where the program says anything.
//!
//! What is not here: caching, rewriting of bodies, TLS interception. A request that was refused before a member was
//! chosen allocates nothing; nothing of a client is ever sent to an origin except through a member, be it one that says `direct://`.

pub mod config;
pub mod server;

mod client;
mod gateway;
mod worker;

mod head;
mod headers;
mod target;

pub mod list;
pub mod member;
pub mod pool;

mod chunked;
mod line;
mod plain;
mod scratch;

mod answer;
mod extent;
mod forward;
mod upload;

mod splice;
mod tunnel;

pub mod fetch;
pub mod judge;
pub mod probe;
mod sources;

mod dial;
mod idle;
mod socks;
mod stream;
mod tls;
mod upstream;

pub mod ban;
pub mod health;
pub mod rules;

mod attempts;
mod error;
mod record;
mod refusal;
mod retry;

mod upkeep;

mod admin;
mod metrics;
mod pages;

pub mod cli;
pub mod demo;
mod output;

#[cfg(feature = "internals")]
pub mod internals;
