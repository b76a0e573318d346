//! Storage for [`openraft`] 0.9 in an Esker database: the log with its vote, and the state machine.
//!
//! ```text
//!   Raft --> LogStore      vote, entries        > keyspaces NAME/log, NAME/meta
//!        `-> StateMachine  applied, snapshot    > keyspaces NAME/meta, NAME/snapshot
//!              `-> Machine the program's state  > keyspaces of the program
//! ```
//!
//! raft.1. A vote is on the disk before `save_vote` returns. Entries are on the disk before the callback of
//!   `append` is called.
//! raft.2. One commit has the effects of entries and the position up to which they are applied.
//! raft.3. One commit replaces the state, the position and the snapshot, when a snapshot is installed.
//!
//! Several groups can share a database: each has a name.

mod error;
mod log_store;
mod snapshot;
mod state_machine;
mod stored;

pub use error::Error;
pub use log_store::LogStore;
pub use state_machine::{Machine, SnapshotBuilder, StateMachine};
