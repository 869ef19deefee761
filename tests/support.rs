//! What the tests stand on: real servers on ports of their own.

pub(crate) mod admin;
pub(crate) mod client;
pub(crate) mod gateway;
pub(crate) mod inside;
pub(crate) mod origins;
pub(crate) mod pool;
pub(crate) mod port;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod resolver;
pub(crate) mod servers;
pub(crate) mod socks;
pub(crate) mod sources;
pub(crate) mod tls;
pub(crate) mod upstream;
pub(crate) mod wire;
