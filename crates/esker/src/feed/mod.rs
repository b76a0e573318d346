//! The change feed: the log, kept for a while, as commits in order.
//!
//! ```text
//!   log segments on the shelf (wal/shelf.rs) --Follower--> record --Changes--> put, remove, range removal
//!   kept tables of adopted commits (keeper.rs) ---------------------^
//!   retention.rs: which segment is the first that stays      engine/state/feed.rs: lets the others go
//! ```
//!
//! feed.1. Commits come in order, each once, whole, and only once they are durable and visible.
//! feed.2. Readers hold up nobody: what they have not read goes when its time has come, and they are told which commit is the oldest left. What a program
//!      holds goes when it is more than it may hold.
//! feed.3. As long as a commit can be read, so can its values in blob files, and its tables if it was adopted.

mod changes;
mod keeper;
mod retention;

pub(crate) use changes::{Change, Changes};
pub(crate) use keeper::Keeper;
pub(crate) use retention::{Hold, first_kept};
