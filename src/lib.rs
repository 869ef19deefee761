//! evenkeel: a forward HTTP proxy gateway that spreads requests evenly over a pool of upstream proxies.

pub mod member;
pub mod pool;
