//! Tries to lose acknowledged commits, with real processes, real files and real threads.
//!
//! ```text
//!   writers.rs  the writers' operations  kill/      a child process killed by SIGKILL
//!     (esker-world: operations, model)   power/     power loss on real files
//!   journal.rs  promises                 block/     power loss below ext4
//!   storm/      all features at once, killed; copies compared by commit number
//!   content.rs  bytes after power loss   history/   concurrent clients: linearizable? isolated?
//! ```
//!
//! Each harness has canaries: injected faults that it must detect. For users: docs/testing.md
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a harness around the engine: it works on the real machine's files, processes and time"
)]

#[cfg(target_os = "linux")]
pub mod block;
mod content;
pub mod history;
mod journal;
pub mod kill;
mod panicky;
pub mod power;
mod shape;
pub mod storm;
mod writers;

pub use esker_world::budget::Budget;
pub use esker_world::{Failure, Result};
