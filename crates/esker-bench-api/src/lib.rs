//! Code that the lab (`esker-bench`) and the adapters of engines share. An adapter with a heavy build is a
//! crate of its own, which depends only on this one. A program in another language uses the same generators
//! and prints the same results.
//!
//! ```text
//! engine       Engine                                what an adapter implements
//! store        Store -> Writer, Reader               an open database with one ordered map
//! async_commits                                      what an async commit has done when it returns
//! keyspaces    Engine -> Keyspaces                   the same over many keyspaces, natively or by prefixes
//! transactions Engine -> Transactions                the same for transactions that read what they write
//! expiring     Engine -> Expiring                    the same for entries that expire
//! serving      Engine -> a server of the Redis protocol
//! generate/    the bytes of every workload and the order of reads, from a seed
//! results      Record, Message                       a measured row
//! conformance  the test that every adapter passes
//! ```
//!
//! docs/benchmarking.md explains how to add an engine or a workload, and has the rules of fairness.

pub mod async_commits;
pub mod conformance;
pub mod engine;
pub mod expiring;
pub mod generate;
pub mod keyspaces;
pub mod results;
pub mod serving;
pub mod store;
pub mod transactions;

pub use async_commits::{AsyncCommits, Reached};
pub use engine::{Engine, EngineOption, Isolation};
pub use expiring::Expiring;
pub use keyspaces::{Handles, KeyspaceWriter, Keyspaces, KeyspacesWork};
pub use serving::{Serving, Syncing};
pub use store::{
    Committing, Durability, Failure, Feature, OpenOptions, Reader, Result, Store, VisitItem, Writer,
    visit_some,
};
pub use transactions::{
    ByWriter, OneWriter, Transaction, TransactionKind, TransactionWork, Transactions, until_no_conflict,
};
