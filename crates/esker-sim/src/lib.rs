//! The simulator: the whole engine, background work included, in one thread from a seed, against a model.
//!
//! ```text
//!   seed, bytes --generate.rs--> ops --world/--> Db on FaultFs(MemFs)     crashes inside calls, kills, faults, full disks
//!     `-----setting.rs: disk, directory --^
//!                                        `-----> model/                   what the database must hold
//!     on a mismatch: report.rs --> the seed, the command that replays it, the shortest failing part found
//!   script --sweep/--> the same world, with a crash or a fault at each single call
//!   seed --damage/--> a database of the same world, its files harmed: opened, read, checked, merged, repaired
//! ```
//!
//! SIM1. A run depends on its seed and its number of operations, or on its bytes, alone: no clock, no threads, no order
//!       of a hash table.
//! SIM2. One simulation at a time in a process, each in a thread of its own: the engine frees memory, and with it
//!       files, by epochs that the whole process shares.
//!
//! How to run it, what is modelled, and what it found: docs/simulation.md

mod choices;
pub mod damage;
pub mod generate;
pub mod model;
pub mod op;
pub mod report;
pub mod runner;
mod setting;
pub mod shrink;
pub mod sweep;
mod watch;
pub mod world;
