//! Tests of shared databases. Several handles in one process are host and guests of each other.

#![cfg(unix)]

mod api;
mod bytes;
mod kill;
mod takeover;
