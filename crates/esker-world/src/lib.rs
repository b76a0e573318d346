//! One world for all harnesses: what is done to a database, what it must hold, and who compares.
//!
//! ```text
//!   seed, bytes --generate.rs--> op.rs --perform.rs--> Db
//!                                  `-----> model/      what it must hold
//!   judge/     what is read, beside the model          world/     all of it in one thread, with restarts and faults
//!   failure.rs, watch.rs, budget.rs, figures.rs        why a campaign ends, that it gets nowhere, how long it goes on, what it met
//! ```
//!
//! `esker-sim` makes schedules and sweeps of it, `esker-torture` kills, power losses and histories; the engine's own tests
//! make directories with it.
//!
//! A new operation takes `op.rs`, `generate.rs`, `model/state.rs` and `perform.rs`.

pub mod budget;
mod choices;
pub mod failure;
mod figures;
pub mod generate;
pub mod judge;
pub mod model;
pub mod op;
pub mod perform;
pub mod setting;
pub mod watch;
pub mod workload;
pub mod world;

pub use failure::{Failure, Result};
