//! The server as its clients see it.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start threads, processes and sockets of their own, and fail where something does"
)]

mod clients;
mod differential;
mod generator;
mod harness;
mod hostile;
mod node;
mod proxy;
mod replication;
mod replication_faults;
mod rows;
mod rows_model;
#[cfg(feature = "lua")]
mod scripts;
mod waiting;
mod wire;
