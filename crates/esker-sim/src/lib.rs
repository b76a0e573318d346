//! The simulator: runs the whole engine, including background work, in one thread from a seed,
//! against a model.
//!
//! ```text
//!   seed, bytes --esker-world--> operations --World--> Db on FaultFs(MemFs)  crashes, faults, full disks
//!                                              `-----> the model            the expected contents
//!     on a mismatch: report.rs --> the seed, the command that replays it, the shortest failing part
//!   workload --sweep.rs--> the same checks, with a crash or a fault at every single call
//!   seed --damage/--> a database with damaged files: opened, read, checked, compacted, repaired
//! ```
//!
//! A process runs one simulation at a time, each in its own thread, because the engine frees memory and files
//! by epochs that the whole process shares.
//!
//! A run depends only on its seed and number of operations, or on its bytes: not on clocks, threads or hash
//! orders. Usage, model and findings: docs/testing.md

pub mod damage;
pub mod report;
pub mod runner;
pub mod shrink;
pub mod sweep;
