//! Repeats the commits of a database in a copy of it.
//!
//! ```text
//!   feed --encode--> bytes: sent, or kept --Replay--> one commit of the other database each
//! ```
//!
//! `esker serve` sends these bytes to replicas, and [`backup`](crate::backup) keeps them between backups.
//! Programs can use them as follows:
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
//! let mut feed = db.feed_after(made.seqno)?;
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
//! - After a replayed commit the copy has the same values, expiries, and keyspaces with their names
//!   and options. It does not have the same history, which begins where the copy got its history option.
//!   Nor does it use the same space, which depends on the copy's own compactions.
//!
//! replay.2. Keyspaces are identified by number, and a new keyspace gets its number of the source. If that
//!     number is taken, the databases are not copies of one another, and nothing is committed.
//!
//! Bytes: docs/formats/changes.md

mod apply;
mod change;

pub use self::apply::Replay;
pub use self::change::encode;
