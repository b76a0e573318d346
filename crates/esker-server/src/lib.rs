//! A server for Esker databases that speaks the Redis protocol.
//!
//! ```text
//!   listen --> connection --requests--> commands --reads--> store
//!                  |                        ^
//!                  `--a write, and what follows--> sequencer: many commands, one commit
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `store` | the seam to what stores the data |
//! | `resp` | the protocol: requests and replies |
//! | `listen`, `tls`, `connection`, `session`, `clients`, `outbox` | connections |
//! | `sequencer`, `waiters`, `watches`, `effects` | how commands run, wait, are noticed |
//! | `acl` | users, and what they may do |
//! | `stats`, `rates`, `latency`, `slow_log`, `http`, `trace` | what operators see |
//! | `commands` | the table of commands, and what they do |
//! | `geo` | places as scores of sorted sets |
//! | `holdings` | what connections hold: transactions, locks, topics |
//! | `rows` | tables of keys with columns: docs/formats/obigstore.md |
//! | `replication` | primaries and replicas: docs/formats/replication.md |
//! | `data` | how types lie in ordered maps: docs/formats/server.md |
//! | `verify` | whether what is stored makes sense |
//!
//! For users: docs/server.md, docs/commands.md

mod acl;
mod clients;
mod clock;
mod commands;
mod config;
mod connection;
mod cursors;
mod cx;
mod data;
mod effects;
mod fail;
mod geo;
mod glob;
mod holdings;
mod http;
mod latency;
mod listen;
#[cfg(feature = "lua")]
mod lua;
mod memory;
mod numbers;
mod options;
mod outbox;
mod pause;
mod process;
mod pubsub;
mod rates;
mod readers;
mod replication;
mod resp;
mod rows;
mod sequencer;
mod serve;
mod server;
mod session;
mod sha1;
mod slow_log;
mod spans;
mod stats;
pub mod store;
#[cfg(feature = "tls")]
mod tls;
mod trace;
mod verify;
mod waiters;
mod watches;

pub use self::commands::commands_document;
pub use self::config::bytes_of;
pub use self::listen::{Ended, Listeners, run};
pub use self::options::{ClientCertificates, Fsync, Options, ReplicaTls, Tls};
pub use self::replication::{Source, finish_copy, is_slot_name};
pub use self::serve::{Failed, Stopper, serve};
pub use self::server::Server;
