//! Tests of the `esker` program.

mod backup;
mod changes;
mod commands;
mod common;
#[cfg(feature = "server")]
mod copying;
mod files;
mod inputs;
#[cfg(feature = "encryption")]
mod keys;
mod keyspaces;
#[cfg(feature = "server")]
mod migration;
mod past;
#[cfg(all(feature = "server", unix))]
mod replicas;
#[cfg(all(feature = "log", unix))]
mod service;
#[cfg(feature = "server")]
mod serving;
mod shell;
#[cfg(feature = "server")]
mod shell_server;
#[cfg(unix)]
mod sinks;
mod special_files;
mod upkeep;
