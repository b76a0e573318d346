//! The native part of the Node binding. Its classes are private to the JavaScript in `lib`, which checks
//! arguments and makes promises.
//!
//! ```text
//!   lib/*.js --call with a number--> db, view, txn, iter, feed --job--> pool.rs or the commit thread
//!      ^                                                                      |
//!      +------ resolves the promise of the number <-- completion.rs <-outcome-+
//! ```
//!
//! - A call that can wait takes a number and returns at once. Its outcome arrives in [`completion`].
//! - Jobs run in threads of this crate rather than in libuv's pool: its four threads also serve files and
//!   names, and jobs that wait for a transaction would stop the job that ends it.
//! - A call that fails throws an `Error` of JavaScript with `code`, `path` and `offset`. No panic leaves a
//!   call or a job.
#![allow(missing_docs, reason = "the interface is that of lib/*.js, documented in index.d.ts")]

mod chunk;
mod commits;
mod completion;
mod db;
mod error;
mod feed;
mod iter;
mod options;
mod pool;
mod registry;
mod shared;
mod transaction;
mod tuple;
mod txn;
mod view;
mod write;
mod writes;
