//! Runs commands: what they work with, their turns and waits, and what follows once they have committed.

pub mod cursors;
pub mod cx;
pub mod effects;
pub mod memory;
pub mod pause;
pub mod readers;
pub mod sequencer;
pub mod server;
pub mod session;
pub mod waiters;
pub mod watches;
