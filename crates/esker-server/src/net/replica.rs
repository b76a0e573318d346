//! Connections between a primary and its replicas.
//!
//! ```text
//!   primary: sender, copy_out ==frames, files==> follow, copy_in :replica
//! ```

mod copy_in;
mod copy_out;
pub mod follow;
pub mod sender;
mod stream;
