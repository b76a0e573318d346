//! What the lab (`esker-bench`) and the adapters of engines share. Adapters with heavy builds live in crates
//! of their own and depend on this one alone; an engine in another language is a program that follows the
//! same generators and prints the same results.
//!
//! ```text
//! engine       Engine -> Store -> Writer, Reader     what an adapter implements
//! async_commits                                      what an async commit has done when it returns
//! keyspaces    Engine -> Keyspaces                   the same over many keyspaces, natively or by prefixes
//! transactions Engine -> Transactions                the same for transactions that read what they write
//! expiring     Engine -> Expiring                    the same for entries that expire
//! serving      Engine -> a server of the Redis protocol
//! generate/    the bytes of every workload, from a seed; who is asked for next
//! results      Record, Message                       what a measured row looks like
//! conformance  the test that every adapter passes
//! ```
//!
//! docs/benchmarking.md says how to add an engine or a workload, and has the rules of fairness.

pub mod async_commits;
pub mod conformance;
pub mod engine;
pub mod expiring;
pub mod generate;
pub mod keyspaces;
pub mod results;
pub mod serving;
pub mod transactions;

pub use async_commits::{AsyncCommits, Reached};
pub use engine::{
    Durability, Engine, EngineOption, Failure, Feature, Isolation, OpenOptions, Reader, Store, Writer,
};
pub use expiring::Expiring;
pub use keyspaces::{Handles, KeyspaceWriter, Keyspaces, KeyspacesWork};
pub use serving::{Serving, Syncing};
pub use transactions::{
    ByWriter, OneWriter, Transaction, TransactionKind, TransactionWork, Transactions, until_no_conflict,
};
