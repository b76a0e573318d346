//! Databases that are only read: without a writer, and beside the process that writes.

use std::path::Path;

use super::Db;
use crate::engine::base::options::Settings;
use crate::engine::life::open::live::LiveDirectory;
#[cfg(doc)]
use crate::types::Error;
use crate::types::{Result, SeqNo};

/// Reads a database while another process writes it. The writer does not know of it, and neither waits for
/// the other. [`Db::open_follower`] opens one.
///
/// [`db`](Self::db) is the database as of one commit. It does not change: [`catch_up`](Self::catch_up)
/// replaces it by the database as of a newer commit. Writes to it fail with [`Error::ReadOnly`]. It has no
/// [feed](Db::feed_after). A clone, and handles made from it, keep showing their commit for as long as they
/// exist. Meanwhile the files that they need take space on the disk and a descriptor each, even after the
/// writer has removed them.
///
/// A follower sees each commit that the writer has given to the operating system: those with
/// [`Durability::Sync`](crate::Durability::Sync) and [`Durability::Buffered`](crate::Durability::Buffered)
/// once they are acknowledged, and those with [`Durability::None`](crate::Durability::None) a little later. A
/// power loss can take a commit that was not synced.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path();
/// let writer = esker::Db::open(path)?; // in another process
/// writer.default_keyspace().put("a", "1")?;
///
/// let mut follower = esker::Db::open_follower(path)?;
/// let before = follower.db().default_keyspace();
/// writer.default_keyspace().put("a", "2")?;
/// follower.catch_up()?;
/// assert_eq!(follower.db().default_keyspace().get("a")?.as_deref(), Some(&b"2"[..]));
/// assert_eq!(before.get("a")?.as_deref(), Some(&b"1"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Follower {
    directory: LiveDirectory,
    db: Db,
}

impl Db {
    /// Opens the database in a directory to read it, with default options. Other processes may do the same at
    /// the same time; a process that opens it to write gets [`Error::Locked`] meanwhile.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path();
    /// # let db = esker::Db::open(path)?;
    /// # db.default_keyspace().put("a", "1")?;
    /// # drop(db);
    /// let db = esker::Db::open_read_only(path)?;
    /// let map = db.default_keyspace();
    /// assert_eq!(map.get("a")?.as_deref(), Some(&b"1"[..]));
    /// assert!(matches!(map.put("a", "2"), Err(esker::Error::ReadOnly(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Builder::open_read_only`](crate::Builder::open_read_only).
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Db> {
        Self::builder().open_read_only(path)
    }

    /// Opens the database in a directory to read it beside the process that writes it, with default options:
    /// see [`Follower`].
    ///
    /// # Errors
    /// See [`Builder::open_follower`](crate::Builder::open_follower).
    pub fn open_follower(path: impl AsRef<Path>) -> Result<Follower> {
        Self::builder().open_follower(path)
    }
}

impl Follower {
    pub(super) fn open(settings: Settings, path: &Path) -> Result<Follower> {
        let mut directory = LiveDirectory::new(settings, path)?;
        let opened = directory.open_newest()?.expect("the first state is a new one");
        Ok(Follower { directory, db: Db::new(opened) })
    }

    /// The database as of the commit that was the newest when this was opened or last caught up.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Goes on to the newest commit, and returns its number, which is never smaller than before. Opens the
    /// database once more if there is something new, so it takes as long as replaying the log since the last
    /// flush: by default at most 4 MiB, or what the writer writes in a second.
    ///
    /// # Errors
    /// Those of [`Builder::open_follower`](crate::Builder::open_follower). After an error the database is
    /// that of the last success.
    pub fn catch_up(&mut self) -> Result<SeqNo> {
        if let Some(opened) = self.directory.open_newest()? {
            self.db = Db::new(opened);
        }
        Ok(self.seqno())
    }

    /// The number of the commit that the database shows.
    pub fn seqno(&self) -> SeqNo {
        self.db.handle.core.published.visible()
    }
}
