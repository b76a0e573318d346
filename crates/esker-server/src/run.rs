//! Runs commands: dispatch, the sequencer, waits, and the effects after a commit.

pub mod calls;
pub mod cursors;
pub mod cx;
pub mod dispatch;
pub mod effects;
#[cfg(feature = "lua")]
pub mod functions;
pub mod leave;
pub mod memory;
pub mod parts;
pub mod queue;
pub mod readers;
pub mod registry;
pub mod scripts;
pub mod server;
pub mod session;
pub mod shown;
pub mod waiters;
pub mod watches;
