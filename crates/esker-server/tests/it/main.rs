//! Tests of the server through its client interface.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start threads, processes and sockets of their own, and fail where something does"
)]

mod accesses;
mod bits;
mod blocked;
mod clients;
mod cold;
mod differential;
#[cfg(feature = "sentinel")]
mod elections;
mod embedding;
mod exchanges;
mod failing;
mod feed;
#[cfg(feature = "lua")]
mod functions;
mod generator;
mod harness;
mod hash_fields;
mod hash_fields_model;
mod hostile;
#[cfg(feature = "lua")]
mod hostile_scripts;
mod importing;
mod limits;
mod memory;
mod monitoring;
mod node;
mod operations;
mod ordered;
mod parameters;
mod proxy;
mod quorum;
mod replication;
mod replication_faults;
mod restoring;
mod rights;
mod rows;
mod rows_model;
mod safety;
#[cfg(feature = "lua")]
mod scripts;
mod seam;
mod streams;
mod string_conditions;
#[cfg(feature = "tls")]
mod tls;
mod tracking;
mod tracking_model;
mod users;
mod waiting;
mod wire;
mod words;
