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
//! | `base` | time, texts, numbers, failures |
//! | `resp` | the protocol: requests and replies |
//! | `store` | the seam to what stores the data; `holdings`: transactions, locks and topics of connections |
//! | `config` | options and parameters |
//! | `types` | how types lie in ordered maps: docs/formats/server.md, docs/formats/obigstore.md |
//! | `command` | the specification of commands |
//! | `acl` | users, and what they may do |
//! | `clients` | connections as others see them, what waits to be sent to them, what they hear |
//! | `run` | how commands run, wait, are noticed |
//! | `commands` | the table of commands, and what they do |
//! | `lua` | scripts |
//! | `replication` | primaries and replicas: docs/formats/replication.md |
//! | `observe` | what operators see |
//! | `net` | listens, and serves connections |
//!
//! For users: docs/server.md, docs/commands.md

mod acl;
mod base;
mod clients;
mod command;
mod commands;
mod config;
#[cfg(feature = "lua")]
mod lua;
mod net;
mod observe;
mod replication;
mod resp;
mod run;
pub mod store;
mod types;

pub use self::commands::commands_document;
pub use self::config::bytes_of;
pub use self::config::options::{ClientCertificates, Fsync, Options, ReplicaTls, Tls};
pub use self::net::listen::{Ended, Listeners, run};
pub use self::net::serve::{Failed, Stopper, serve};
pub use self::replication::{Source, finish_copy, is_slot_name};
pub use self::run::server::Server;
