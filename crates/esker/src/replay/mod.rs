//! The commits of a database, made again in another one that was a copy of it.
//!
//! ```text
//!   feed --encode--> bytes: sent, or kept --Replay--> one commit of the other database each
//! ```
//!
//! What `esker serve` sends to replicas, and what [`backup`](crate::backup) keeps between backups. For
//! programs that want the same for themselves:
//!
//! ```
//! use esker::replay::{Replay, encode};
//! # let temp = tempfile::tempdir().unwrap();
//! # let (path, copy) = (temp.path().join("db"), temp.path().join("copy"));
//! use std::time::Duration;
//!
//! let db = esker::Db::builder().feed_retention(64 << 20, Duration::MAX).open(&path)?;
//! let users = db.keyspace("users")?;
//! let made = db.checkpoint(&copy)?;
//! users.put("ann", "1")?;
//! users.set_merge_operator("add-u64")?;
//!
//! let copy = esker::Db::open(&copy)?;
//! let mut replay = Replay::new(&copy)?;
//! let mut feed = db.feed(made.seqno.next())?;
//! while let Some(mut commit) = feed.try_next()? {
//!     let mut changes = Vec::new();
//!     while let Some(change) = commit.next_change()? {
//!         encode(&change, &mut changes)?;
//!     }
//!     replay.take(&changes, |_, _| {})?;
//!     replay.commit(esker::Durability::Buffered)?;
//! }
//! assert_eq!(copy.keyspace("users")?.get("ann")?.as_deref(), Some(&b"1"[..]));
//! assert_eq!(copy.keyspace("users")?.merge_operator().as_deref(), Some("add-u64"));
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! replay.1. The other database has what the commit has made: values, how long they last, names of keyspaces,
//!     and their options. Exceptions: what is kept of the past, which begins where its rule came; and space,
//!     which each database takes as it merges.
//! replay.2. Keyspaces are known by their numbers, and a new one gets the number that it has at home. Where
//!     that is not possible the two are no copies of one another, and nothing is committed.
//!
//! Bytes: docs/formats/changes.md

mod apply;
mod change;

pub use self::apply::Replay;
pub use self::change::encode;
