//! Tries to lose acknowledged commits, with real processes, real files and real threads.
//!
//! ```text
//!   writers.rs  what writers do          kill/      a child process dies by SIGKILL
//!     (esker-world: operations, model)   power/     what a disk may hold after power loss, as real files
//!   journal.rs  what was promised        block/     what a block device may hold after power loss, below ext4
//!   storm/      all features at once, killed; copies by commit number
//!   content.rs  bytes after power loss   history/   what concurrent clients saw: linearizable? snapshot isolation?
//! ```
//!
//! Each harness has canaries: faults on purpose that it must find. For users: docs/testing.md
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
