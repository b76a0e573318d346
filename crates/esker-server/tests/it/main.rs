//! The server as its clients see it.
#![expect(clippy::disallowed_methods, reason = "tests start threads, processes and sockets of their own")]

mod clients;
mod differential;
mod generator;
mod harness;
mod hostile;
#[cfg(feature = "lua")]
mod scripts;
mod waiting;
mod wire;
