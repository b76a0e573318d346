//! Copies of the running database: their contents, and how they get a directory of their own.
//!
//! ```text
//!   capture.rs     database --flush--> state of the manifest, files pinned
//!   checkpoint.rs  capture --links, copies--> workplace --rename--> a database
//!   transfer.rs    one file --> its durable copy
//!   workplace.rs   the directory in which the copy is made
//! ```
//!
//! [`backup`](crate::backup) copies the same captures to files of its own.

pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod names;
pub(crate) mod transfer;
pub(crate) mod workplace;
