//! Tests of shared databases. Several handles in one process are host and guests of each other.

#![cfg(unix)]
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests with other processes, which look at files from outside"
)]

mod api;
mod bytes;
mod encrypted;
mod features;
mod fork;
mod kill;
#[path = "../../../esker/tests/it/own_process.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod own_process;
mod replicated;
mod takeover;
