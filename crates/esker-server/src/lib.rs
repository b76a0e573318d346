//! A server for Esker databases that speaks the Redis protocol.
//!
//! ```text
//!   listen --> connection --requests--> commands --reads--> store
//!                  |                        ^
//!                  `--writes, and the requests after them--> sequencer: many commands, one commit
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `base` | time, texts, numbers, errors |
//! | `resp` | the protocol: requests and replies |
//! | `store` | the interface to the storage; `holdings`: transactions, locks and topics of connections |
//! | `config` | options and parameters |
//! | `types` | data types in ordered maps: docs/formats/server.md, docs/formats/obigstore.md |
//! | `command` | specifications of commands |
//! | `acl` | users and their rights |
//! | `clients` | the shared state of connections: output, subscriptions, pauses |
//! | `run` | dispatch, the sequencer, waits, effects, accounting |
//! | `commands` | the table of commands, and their functions |
//! | `lua` | scripts |
//! | `replication` | primaries and replicas: docs/formats/replication.md |
//! | `sentinel` | `esker sentinel`: has another server take over if the primary fails |
//! | `observe` | counters, latencies, slow commands, traces |
//! | `net` | listeners and connections |
//!
//! For users: docs/server.md, docs/commands.md

mod acl;
mod base;
mod clients;
mod command;
mod commands;
mod config;
mod holdings;
#[cfg(feature = "lua")]
mod lua;
mod net;
mod observe;
mod replication;
mod resp;
mod run;
#[cfg(feature = "sentinel")]
mod sentinel;
mod sequencer;
pub mod store;
mod types;

pub use self::command::secrets::is_secret_option;
pub use self::commands::commands_document;
pub use self::config::file::{Entry, Written, read as read_config};
pub use self::config::options::{
    BackupTarget, ClientCertificates, Fsync, Options, ReplicaTls, Tls, Upstream,
};
pub use self::config::setting::{Given, Origin, Setting};
pub use self::config::source::Source;
pub use self::config::{Kind, SYNONYMS, check_parameter, parameters};
pub use self::net::listen::{Ended, Listeners, run};
pub use self::net::serve::{Failed, Stopper, serve, serve_store};
pub use self::observe::trace::engine as trace_engine;
pub use self::replication::{finish_copy, is_slot_name};
pub use self::resp::numbers::bytes_of;
pub use self::run::server::Server;
#[cfg(feature = "sentinel")]
pub use self::sentinel::{SentinelOptions, run as run_sentinel};
