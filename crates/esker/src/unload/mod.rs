//! Writes a database to one file that is independent of the storage format, and loads it.
//!
//! ```text
//!   Db --snapshot, key by key--> FILE.partial --renamed when it is complete--> FILE
//!   FILE --batches, each with the position of its end--> Db
//! ```
//!
//! For other versions of Esker, other machines and other tools. The file holds the newest values of all or
//! some keyspaces, with their expiry, and the options of the keyspaces, but not their history.
//! [`backup`](crate::backup) is faster, and incremental.
//!
//! Both operations can be interrupted at any time, even by killing the process, and continue later:
//! [`Unload::write`] if there was no commit in between, [`Load::read`] always.
//!
//! ```
//! use esker::unload::{Load, Unload};
//! # let temp = tempfile::tempdir().unwrap();
//! # let (path, file, copy) = (temp.path().join("db"), temp.path().join("file"), temp.path().join("copy"));
//! let db = esker::Db::open(&path)?;
//! db.keyspace("users")?.put("ann", "1")?;
//! let written = Unload::new().on_progress(|done| println!("{} entries", done.entries)).write(&db, &file)?;
//! assert_eq!((written.keyspaces, written.entries), (2, 1));
//!
//! let copy = esker::Db::open(&copy)?;
//! Load::new().read(&copy, &file)?;
//! assert_eq!(copy.keyspace("users")?.get("ann")?.as_deref(), Some(&b"1"[..]));
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! The keyspaces `es.repl` and `es.none` are left out: a server records in them which commits of which
//! history its database holds. A load never creates them.
//!
//! unload.1. A file under its final name is complete, durable, and represents one commit.
//! unload.2. The committed part of a load is a prefix of the file, and the database stores its end. No part
//!     is loaded twice or skipped.
//! unload.3. A call continues a job only if job and database are the same. Otherwise it starts over or fails.
//!     An unload compares the existing part of the file with the database. A load compares the file, the
//!     requested keyspaces, and those it has created.
//!
//! An unload replaces nothing: no file under its name, and no `FILE.partial` that does not start like its
//! own. It follows no links, and it removes a name instead of writing to a file with several names.
//!
//! Bytes: docs/formats/unload.md

mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod load;
mod write;

pub use self::load::{Load, OpenedLoad};
pub use self::write::Unload;
use crate::types::{Error, Result};

/// The keyspace in which an unfinished load stores its position.
const LOADING: &str = "esker.load";

/// Keyspaces that are neither written to files nor loaded from them.
const LEFT_OUT: [&str; 3] = [LOADING, "es.repl", "es.none"];

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name)
}

/// Fails if a keyspace that is left out was requested by name.
fn check_asked_for(names: Option<&Vec<String>>) -> Result<()> {
    match names.into_iter().flatten().find(|name| is_left_out(name)) {
        Some(name) => Err(Error::Invalid(format!(
            "the keyspace {name:?} is specific to this database and cannot be unloaded or loaded"
        ))),
        None => Ok(()),
    }
}

/// Progress or result of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unloaded {
    /// Number of keyspaces completed.
    pub keyspaces: u64,
    /// Number of entries completed, including those of an earlier call that was continued.
    pub entries: u64,
    /// Total number of entries.
    pub entries_total: u64,
    /// Bytes of the file so far.
    pub bytes: u64,
    /// Number of entries completed by an earlier call.
    pub resumed_entries: u64,
}

type OnProgress = Box<dyn FnMut(&Unloaded) + Send>;
