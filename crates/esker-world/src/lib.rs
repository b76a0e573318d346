//! The operations, the model and the comparison that all harnesses share.
//!
//! ```text
//!   seed, bytes --generate.rs--> op.rs --perform.rs--> Db
//!                                  `-----> model/      the expected contents
//!   judge/     compares reads with the model           world/     one thread, with restarts and faults
//!   seals.rs   watches what encrypted disks are given
//!   failure.rs, watch.rs, budget.rs, figures.rs        failures, hangs, limits and counters of campaigns
//! ```
//!
//! `esker-sim` builds schedules and sweeps on it, `esker-torture` kills, power losses and histories. The
//! engine's own tests use it to create directories.
//!
//! A new operation is added in `op.rs`, `generate.rs`, `model/state.rs` and `perform.rs`.

pub mod budget;
mod choices;
pub mod failure;
mod figures;
pub mod generate;
pub mod judge;
pub mod keys;
pub mod model;
pub mod op;
pub mod perform;
pub mod seals;
pub mod setting;
pub mod watch;
pub mod workload;
pub mod world;

pub use failure::{Failure, Result};
