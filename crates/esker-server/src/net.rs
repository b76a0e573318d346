//! Listens, and serves connections: those of the Redis protocol and those of HTTP.

pub mod connection;
pub mod http;
pub mod listen;
pub mod pulse;
pub mod replica;
pub mod serve;
#[cfg(feature = "tls")]
pub mod tls;
