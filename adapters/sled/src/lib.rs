//! The interface of sled 0.34 on Esker, for programs that use sled and want another engine under it.
//!
//! ```text
//!   Db --> Tree            a keyspace each; writes return before they are on the disk, as in sled
//!    |      |-> Iter       a snapshot
//!    |      |-> Subscriber a watch
//!    |      `-> Batch, transactions over trees
//!    `--> Config           options; those of sled's files have no effect
//! ```
//!
//! In `Cargo.toml`: `sled = { package = "esker-sled", path = ".." }`. The files are not those of sled:
//! `Db::export` of sled and [`Db::import`] of this crate move the data.

mod batch;
mod config;
mod db;
mod error;
mod iter;
mod ivec;
mod names;
mod shared;
mod subscriber;
pub mod transaction;
mod tree;

pub use batch::Batch;
pub use config::{Config, Mode};
pub use db::{Db, open};
pub use error::{At, Error, Result};
pub use iter::Iter;
pub use ivec::IVec;
pub use subscriber::{Event, Subscriber};
pub use transaction::Transactional;
pub use tree::{CompareAndSwapError, CompareAndSwapResult, MergeOperator, Tree};
