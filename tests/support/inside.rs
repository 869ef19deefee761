//! A gateway inside the test's own process, so that its pool can be looked at whatever keeps it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel::config::{Config, Flags, Sources};
use evenkeel::health::Watch;
use evenkeel::member::Name;
use evenkeel::pool::redis::Redis;
use evenkeel::pool::{Concurrency, Initial, Pool};
use evenkeel::server::{self, Listeners};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::gateway::{KEY, eventually};
use super::wire::PATIENCE;

/// A client of the tests' pool in Redis, as a gateway's worker has it.
pub(crate) fn least_concurrent(url: &str, max_in_flight: u64) -> Pool {
    let concurrency = Concurrency { max_in_flight, heartbeat: Duration::from_secs(2) };
    let timeout = Duration::from_secs(1);
    Pool::Redis(Redis::connect_least_concurrent(url, KEY, timeout, concurrency).expect("a good URL"))
}

/// A gateway that serves. Drained when dropped.
pub(crate) struct Inside {
    address: SocketAddr,
    pool: Pool,
    /// On which the test's own side of the pool lives.
    look: Runtime,
    stop: CancellationToken,
    gateway: Option<JoinHandle<Result<(), String>>>,
}

impl Inside {
    /// Starts one with these members and keys, like `retry.attempts`; `connect` gives each of its workers the pool.
    pub(crate) fn start<F>(connect: F, members: &[String], keys: &[(&str, &str)]) -> Self
    where
        F: Fn() -> Pool + Clone + Send + Sync + 'static,
    {
        let env = keys
            .iter()
            .map(|(key, value)| (format!("EVENKEEL_{}", key.replace('.', "__").to_uppercase()), (*value).to_owned()));
        let flags = Flags { listen: Some("127.0.0.1:0".into()), ..Flags::default() };
        let config = Config::load(&Sources { env: env.collect(), flags, ..Sources::default() }).expect("good keys");
        let look =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let pool = look.block_on(async { connect() });
        let names: Vec<_> = members.iter().map(|member| Name::from(member.clone())).collect();
        look.block_on(pool.add(&names, Initial::Min)).expect("a store that answers");
        let listeners = Listeners::bind(config.gateway.listen, server::workers(&config.gateway)).expect("a free port");
        let address = listeners.address();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let watch = Arc::new(Watch::new(&config));
        let gateway =
            std::thread::spawn(move || server::run(config, listeners, move || Ok(connect()), watch, None, stopped));
        Self { address, pool, look, stop, gateway: Some(gateway) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    pub(crate) fn remove(&self, member: &str) {
        self.look
            .block_on(self.pool.remove(&[Name::copy_from_slice(member.as_bytes())]))
            .expect("a store that answers");
    }

    pub(crate) fn add(&self, member: &str) {
        self.look
            .block_on(self.pool.add(&[Name::from(member.to_owned())], Initial::Min))
            .expect("a store that answers");
    }

    /// What each member has in flight.
    pub(crate) fn in_flight(&self) -> HashMap<Name, u64> {
        self.look.block_on(self.pool.in_flight()).expect("a store that answers")
    }

    /// Waits until so many requests are in flight.
    #[track_caller]
    pub(crate) fn wait_in_flight(&self, count: u64) {
        let at = std::panic::Location::caller();
        eventually(PATIENCE, &format!("{count} in flight at {at}"), || self.in_flight().values().sum::<u64>() == count);
    }

    /// Drains it.
    pub(crate) fn finish(&mut self) {
        self.stop.cancel();
        if let Some(gateway) = self.gateway.take() {
            gateway.join().expect("no panic").expect("a clean end");
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(gateway) = self.gateway.take().filter(|_| !std::thread::panicking()) {
            let _ = gateway.join();
        }
    }
}
