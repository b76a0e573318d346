//! Backups in object storage: the interface to a store of objects, and the directory of backups in one.
//!
//! ```text
//!   Backup --Fs calls--> StoreFs --below its URL--> BackupStore (S3, ...)
//!                           |  `-- elsewhere ---> the environment's files: databases, restored copies
//!                           `-- Lease: one process changes the backups at a time
//! ```
//!
//! The object `URL/files/NAME` is the file `files/NAME` of a directory of backups. Three things differ,
//! because a store cannot rename and has no locks:
//!
//! - A file gets its name by the completed upload. What was not completed is not visible.
//! - A file that replaces another one, or that may be removed, has the generation of the
//!   [lease](lease) in its name: `NAME.g000007`. The highest generation is the file.
//! - A record has its plain name, and is put only if there is no object of that name. An empty object in its
//!   place is a void record: it says that no backup has, or will get, this id.
//!
//! backup_store.1. No object that a backup needs is overwritten or removed by a process that has lost its
//!     lease. Such a process removes no object of a later generation, and it puts no record, because its
//!     successor has voided the id. `create` uses stored files only if the newest backup of the database has
//!     them: no `prune` removes those.
//! backup_store.2. A failed call may have had its effect. The outcome of a put is therefore read back before
//!     it is reported. A record whose outcome stays unknown is voided.

mod fs;
mod lease;
mod names;
mod pending;
mod reading;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::fs::StoreFs;

/// Bytes of a part of an upload. A longer file has longer parts, because stores limit their number.
const PART_BYTES: usize = 8 << 20;
/// Maximum number of parts of an upload. S3 allows 10,000.
const PARTS_MAX: u64 = 9_000;

/// Object storage for backups: a bucket, or a part of one. See
/// [`Backup::open_store`](super::Backup::open_store).
///
/// Names of objects are relative to [`url`](Self::url), and contain at most one `/`. The store must be
/// strongly consistent: a completed put or removal is visible to all later calls of all processes.
///
/// Calls block. They retry failures that may pass, for a limited time. Errors have the kinds of
/// [`io::ErrorKind`] that their documentation names, and a text that says what the store answered.
pub trait BackupStore: Send + Sync + Debug + 'static {
    /// Returns the address of the backups, such as `s3://bucket/prefix`. Messages contain it.
    fn url(&self) -> &str;

    /// Returns the objects directly below `dir`, in any order, and the directories in it. `dir` is empty or
    /// has no `/`. Empty if there are none.
    fn list(&self, dir: &str) -> io::Result<Vec<Listed>>;

    /// Reads a range of an object, or the whole object. Fails with `NotFound`, and with `UnexpectedEof` if
    /// the object ends before the range does.
    fn read(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Vec<u8>>;

    /// Creates or replaces an object, all at once and durably.
    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()>;

    /// Creates an object, all at once and durably. Fails with `AlreadyExists` if there is one of this name.
    /// Of several concurrent calls, one succeeds.
    fn put_new(&self, name: &str, bytes: Vec<u8>) -> io::Result<()>;

    /// Begins to put an object in parts.
    fn upload(&self, name: &str) -> io::Result<Box<dyn Upload>>;

    /// Removes the parts of an upload that was not completed. Succeeds if there is no such upload.
    fn abort(&self, name: &str, upload: &str) -> io::Result<()>;

    /// Removes an object. Succeeds if there is none.
    fn delete(&self, name: &str) -> io::Result<()>;

    /// Returns how long a process that changes backups may be silent before another one takes over.
    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }
}

impl<S: BackupStore + ?Sized> BackupStore for Arc<S> {
    fn url(&self) -> &str {
        (**self).url()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Listed>> {
        (**self).list(dir)
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> io::Result<Vec<u8>> {
        (**self).read(name, range)
    }

    fn put(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        (**self).put(name, bytes)
    }

    fn put_new(&self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        (**self).put_new(name, bytes)
    }

    fn upload(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        (**self).upload(name)
    }

    fn abort(&self, name: &str, upload: &str) -> io::Result<()> {
        (**self).abort(name, upload)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        (**self).delete(name)
    }

    fn lease(&self) -> Duration {
        (**self).lease()
    }
}

/// An upload in parts.
pub trait Upload: Send + Debug {
    /// Returns the id of the upload. It contains no spaces and no control characters.
    fn id(&self) -> &str;

    /// Appends a part. All parts but the last have the same size. May return before the part is stored;
    /// an error is then returned by a later call.
    fn write(&mut self, part: Vec<u8>) -> io::Result<()>;

    /// Waits for all parts and creates the object from them, durably. It replaces one of the same name.
    fn complete(&mut self) -> io::Result<()>;
}

/// What [`BackupStore::list`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Name of the object or directory in the listed directory.
    pub name: String,
    /// Bytes of the object. `None` for a directory.
    pub size: Option<u64>,
}
