//! The change feed: the log, kept for a while, as commits in order.
//!
//! ```text
//!   log segments on the shelf (wal/shelf.rs) --Follower--> record --Changes--> put, remove, range removal
//!   kept tables of adopted commits (keeper.rs) ---------------------^
//!   retention.rs: the first segment to keep      engine/state/feed.rs: releases the others
//! ```
//!
//! feed.1. Commits come in order, once, entire, and only once they are durable and visible.
//! - Readers delay no other work. Commits that they have not read are released in time, and the readers get
//!   the number of the oldest one left. Commits that a program holds are released beyond its limit.
//!
//! feed.3. While a commit can be read, so can its values in blob files, and its tables if it was adopted.

mod changes;
mod keeper;
mod retention;

pub(crate) use changes::{Changes, CommitOp, CommitPlace};
pub(crate) use keeper::Keeper;
pub(crate) use retention::{Hold, first_kept};
