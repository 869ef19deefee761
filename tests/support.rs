//! What the tests stand on: real servers on ports of their own.

pub(crate) mod redis;
