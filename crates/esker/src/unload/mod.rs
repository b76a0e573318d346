//! A database as one file that does not depend on how databases are stored, and back.
//!
//! ```text
//!   Db --snapshot, key by key--> FILE.partial --renamed when it is complete--> FILE
//!   FILE --batches, each with the place in the file that it ends at--> Db
//! ```
//!
//! For another version of Esker, another machine, another tool. It holds the newest values of all keyspaces or of some, how long they last, and the options of
//! the keyspaces; not what they keep of the past. [`backup`](crate::backup) is faster, and keeps only what is new.
//!
//! Both ways can be stopped at any time, by a kill too, and go on where they were: [`Unload::write`] if there has been no commit since, [`Load::read`] always.
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
//! The keyspaces `es.repl` and `es.none` stay behind: a server notes there which commits of which history its database holds. What a load makes holds none of them.
//!
//! unload.1. A file under its name is complete, durable, and of one commit.
//! unload.2. What a load has committed is a prefix of the file; the database knows where that ends. So no part is loaded twice, and none is left out.
//! unload.3. A call that goes on does so for the same job and the same database, and otherwise starts again or refuses: an unload compares the part
//!      of the file that is there with the database; a load compares the file, the keyspaces that are asked for, and those that it has made.
//! unload.4. An unload replaces nothing: no file under its name, and no `FILE.partial` that does not begin as one of its own does. It
//!     follows no link, and removes a name rather than write to a file that has another one.
//!
//! Bytes: docs/formats/unload.md

mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod load;
mod write;

pub use self::load::Load;
pub use self::write::Unload;
use crate::types::{Error, Result};

/// The keyspace in which a load that has not ended keeps its place.
const LOADING: &str = "esker.load";

/// Keyspaces that files leave out, and loads of files that have them all the same (see the module).
const LEFT_OUT: [&str; 3] = [LOADING, "es.repl", "es.none"];

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name)
}

/// Refuses those that are asked for by name.
fn check_asked_for(names: Option<&Vec<String>>) -> Result<()> {
    match names.into_iter().flatten().find(|name| is_left_out(name)) {
        Some(name) => Err(Error::Invalid(format!(
            "the keyspace {name:?} is about this very database, and means nothing in another one: leave it out"
        ))),
        None => Ok(()),
    }
}

/// How far a call is, or what it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unloaded {
    /// Keyspaces that are done.
    pub keyspaces: u64,
    /// Entries that are done, those of an earlier call that it goes on with included.
    pub entries: u64,
    /// All entries.
    pub entries_total: u64,
    /// Bytes of the file so far.
    pub bytes: u64,
    /// Of the entries, those that an earlier call had done.
    pub resumed_entries: u64,
}

type OnProgress = Box<dyn FnMut(&Unloaded) + Send>;
