//! The simulator: the whole engine, background work included, in one thread from a seed, against a model.
//!
//! ```text
//!   seed, bytes --esker-world--> operations --World--> Db on FaultFs(MemFs)     crashes inside calls, kills, faults, full disks
//!                                              `-----> the model               what the database must hold
//!     on a mismatch: report.rs --> the seed, the command that replays it, the shortest failing part found
//!   workload --sweep.rs--> the same world, with a crash or a fault at each single call
//!   seed --damage/--> a database of the same world, its files harmed: opened, read, checked, merged, repaired
//! ```
//!
//! sim.1. A run depends on its seed and its number of operations, or on its bytes, alone: no clock, no threads, no order
//!       of a hash table.
//! sim.2. One simulation at a time in a process, each in a thread of its own: the engine frees memory, and with it
//!       files, by epochs that the whole process shares.
//!
//! How to run it, what is modelled, and what it found: docs/testing.md

pub mod damage;
pub mod report;
pub mod runner;
pub mod shrink;
pub mod sweep;
