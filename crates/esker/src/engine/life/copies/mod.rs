//! Copies of the running database: what one consists of, and how it comes to stand in a directory of its own.
//!
//! ```text
//!   capture.rs     database --flush--> state of the manifest, files pinned
//!   checkpoint.rs  capture --links, copies--> workplace --rename--> a database
//!   transfer.rs    one file --> its copy, durable
//!   workplace.rs   the directory beside, in which it is made
//! ```
//!
//! [`backup`](crate::backup) makes and reads its own files of the same captures.

pub(crate) mod capture;
pub(crate) mod checkpoint;
pub(crate) mod names;
pub(crate) mod transfer;
pub(crate) mod workplace;
