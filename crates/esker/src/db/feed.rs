//! The change feed: every durable commit in order, for readers that can resume.

use std::sync::Arc;
use std::time::Duration;

use super::Db;
use crate::blob::BlobSet;
use crate::encoding::bytes::Decoded;
use crate::encoding::catalog_key::{name_of, options_of};
use crate::encoding::operand::{Operand, elements};
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::id_of;
use crate::engine::state::keyspace_options::{KeyspaceOptions, StoredOptions};
use crate::feed::{Changes, CommitOp, CommitPlace};
use crate::read::fetch;
use crate::types::expiry::Expiry;
use crate::types::key::decode_key;
use crate::types::stored::Stored;
use crate::types::{Error, KeyspaceId, Result, SeqNo, Value};
use crate::wal::Follower;

/// How long the iterator waits before it checks again.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Commits in order, made by [`Db::feed_after`]. As an iterator it waits for the next commit, and ends when
/// the database is closed, or after an error. A slow reader blocks no commit and keeps no files. A reader
/// that falls behind the kept commits gets [`FeedTruncated`](crate::Error::FeedTruncated).
pub struct Feed {
    handle: Arc<Handle>,
    follower: Follower,
    has_failed: bool,
}

/// A commit of the [feed](Feed). It keeps the blob files that it refers to, and the tables of a large commit,
/// on disk. Drop it soon.
pub struct FeedCommit {
    place: CommitPlace,
    changes: Changes,
    blobs: BlobSet,
}

/// A change made by a commit. It borrows keys and values from the commit, or from the bytes of a
/// [replayed](crate::replay) commit.
#[derive(Debug)]
#[non_exhaustive]
pub enum FeedChange<'a> {
    /// Sets a key to a value.
    Put {
        /// The number of the keyspace, see [`Keyspace::id`](crate::Keyspace::id).
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: FeedValue<'a>,
    },
    /// Merges operands into the value of a key, with the merge operator of its keyspace.
    Merge {
        /// The number of the keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
        /// The operands, oldest first. One operand may stand for several that the commit merged at the same
        /// time.
        operands: Vec<FeedOperand<'a>>,
    },
    /// Removes a key, which may not exist.
    Delete {
        /// The number of the keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
    },
    /// Removes a key because it has expired. Until then [`FeedValue::expires_at`] of its last put applies. If
    /// all keys of a table have expired, they are removed as a range.
    Expire {
        /// The number of the keyspace.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
    },
    /// Removes all keys of a range.
    DeleteRange {
        /// The number of the keyspace.
        keyspace: KeyspaceId,
        /// The first key of the range.
        start: &'a [u8],
        /// The first key after the range. `None`: the range reaches to the end of the keyspace.
        end: Option<&'a [u8]>,
    },
    /// Names a keyspace that was created or renamed.
    Named {
        /// The number of the keyspace.
        keyspace: KeyspaceId,
        /// The name.
        name: &'a str,
    },
    /// Frees a name, because its keyspace was dropped or renamed. The commit that drops a keyspace also
    /// removes its keys.
    Unnamed {
        /// The name.
        name: &'a str,
    },
    /// Sets all options of a keyspace.
    Options {
        /// The number of the keyspace.
        keyspace: KeyspaceId,
        /// The new options.
        options: KeyspaceOptions,
    },
    /// Changes another catalog entry of the engine: options of a dropped keyspace, or the number of the next
    /// keyspace.
    Internal {
        /// The key of the entry.
        key: &'a [u8],
        /// The value of the entry. `None`: the entry is removed.
        value: Option<&'a [u8]>,
    },
}

/// A merge operand in the feed. It applies to the value of the key at the time of the merge. If the key was
/// absent or expired then, the operand begins a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedOperand<'a>(pub(crate) Operand<'a>);

impl<'a> FeedOperand<'a> {
    /// The bytes of the operand.
    pub fn bytes(&self) -> &'a [u8] {
        self.0.bytes
    }

    /// When it was merged, in the engine's time.
    pub fn merged_at(&self) -> std::time::SystemTime {
        let at = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(self.0.at_ms));
        at.unwrap_or(std::time::UNIX_EPOCH)
    }

    /// The lifetime of a value that begins with this operand. `None`: the value does not expire.
    pub fn lifetime(&self) -> Option<Duration> {
        (self.0.lifetime_ms > 0).then(|| Duration::from_millis(self.0.lifetime_ms))
    }
}

/// A value in the feed. It is read on request.
#[derive(Clone, Copy)]
pub struct FeedValue<'a> {
    stored: Stored<&'a [u8]>,
    expiry: Option<Expiry>,
    /// `None` if the value is in memory.
    blobs: Option<&'a BlobSet>,
}

impl<'a> FeedChange<'a> {
    /// Decodes an op of a commit. Its keys are encoded, as in the log and in tables.
    fn of_op(op: CommitOp<'a>, blobs: &'a BlobSet) -> Decoded<Self> {
        let split = |key: &'a [u8]| decode_key(key).unwrap_or((KeyspaceId::CATALOG, key));
        let (kind, key, stored) = match op {
            CommitOp::Key(kind, key, stored) => (kind, key, stored),
            CommitOp::Range(start, end) => {
                let (keyspace, start) = split(start);
                let end = decode_key(end).filter(|(id, _)| *id == keyspace).map(|(_, end)| end);
                return Ok(FeedChange::DeleteRange { keyspace, start, end });
            }
        };
        Ok(match split(key) {
            (KeyspaceId::CATALOG, key) => Self::of_catalog(key, kind.is_live().then_some(stored))?,
            (keyspace, key) if kind.is_operand() => {
                let operands = elements(stored)?.into_iter().map(FeedOperand).collect();
                FeedChange::Merge { keyspace, key, operands }
            }
            (keyspace, key) if kind.is_live() => {
                let expiry = Expiry::of_version(kind, stored);
                let value = FeedValue { stored: Stored::of(kind, stored), expiry, blobs: Some(blobs) };
                FeedChange::Put { keyspace, key, value }
            }
            (keyspace, key) if kind.is_sweep() => FeedChange::Expire { keyspace, key },
            (keyspace, key) => FeedChange::Delete { keyspace, key },
        })
    }

    fn of_catalog(key: &'a [u8], value: Option<&'a [u8]>) -> Decoded<Self> {
        if let (Some(keyspace), Some(stored)) = (options_of(key), value) {
            let options = StoredOptions::decode(stored)?.given;
            return Ok(FeedChange::Options { keyspace, options });
        }
        let Some(name) = name_of(key) else { return Ok(FeedChange::Internal { key, value }) };
        Ok(match value.map(id_of) {
            Some(Some(keyspace)) => FeedChange::Named { keyspace, name },
            Some(None) => FeedChange::Internal { key, value },
            None => FeedChange::Unnamed { name },
        })
    }

    /// Returns the keyspace and the changed key, or the first key of a range. `None` if no keys change.
    pub fn key(&self) -> Option<(KeyspaceId, &'a [u8])> {
        match *self {
            FeedChange::Put { keyspace, key, .. }
            | FeedChange::Merge { keyspace, key, .. }
            | FeedChange::Delete { keyspace, key }
            | FeedChange::Expire { keyspace, key }
            | FeedChange::DeleteRange { keyspace, start: key, .. } => Some((keyspace, key)),
            _ => None,
        }
    }
}

/// Returns the number of the next commit. No commit follows the largest number.
fn behind(after: SeqNo) -> SeqNo {
    if after == SeqNo::MAX { after } else { after.next() }
}

impl Db {
    /// Returns the commits after the commit `after`, in order, each once it is durable. The feed exists if
    /// the database is opened with [`feed_retention`](crate::Builder::feed_retention), which also sets how
    /// long commits are kept.
    ///
    /// A reader stores the number of the last commit that it has processed, and resumes after it. A new
    /// reader takes a snapshot, reads it, and continues after [the snapshot's](crate::Snapshot::seqno)
    /// commit. So it misses no commit and sees none twice. [`SeqNo::ZERO`] is before the first commit.
    ///
    /// Commits with less than [`Sync`](crate::Durability::Sync) appear once they have reached the disk. A
    /// snapshot contains them earlier, so after a power loss a reader may have seen commits that are lost.
    /// Call [`Db::sync`] before taking the snapshot to prevent that.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// use esker::FeedChange;
    /// use std::time::Duration;
    ///
    /// let db = esker::Db::builder().feed_retention(64 << 20, Duration::from_secs(3600)).open_in_memory()?;
    /// let users = db.keyspace("users")?;
    /// users.put("ann", "1")?;
    /// let snapshot = db.snapshot();
    /// // Read it, then:
    /// let mut feed = db.feed_after(snapshot.seqno())?;
    /// users.put("bob", "2")?;
    /// users.delete("ann")?;
    /// while let Some(mut commit) = feed.next_within(Duration::ZERO)? {
    ///     while let Some(change) = commit.next_change()? {
    ///         match change {
    ///             FeedChange::Put { key, value, .. } => println!("{key:?} = {:?}", value.read()?),
    ///             FeedChange::Delete { key, .. } => println!("{key:?} is removed"),
    ///             other => println!("{other:?}"),
    ///         }
    ///     }
    /// }
    /// # assert_eq!(feed.position(), snapshot.seqno().next().next().next());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FeedTruncated`](crate::Error::FeedTruncated) if the next commit is no longer kept;
    /// [`NoFeed`](crate::Error::NoFeed) if the database has no feed;
    /// [`FeedAhead`](crate::Error::FeedAhead) if it has not made the commit `after`;
    /// [`Closed`](crate::Error::Closed).
    pub fn feed_after(&self, after: SeqNo) -> Result<Feed> {
        let follower = self.handle.core.follow(behind(after))?;
        Ok(Feed { handle: self.handle.clone(), follower, has_failed: false })
    }

    /// Keeps the commits after the commit `after` for the [feed](Self::feed_after), up to
    /// [`feed_hold`](crate::Tuning::feed_hold) bytes, and releases the others. `None` keeps none. The hold
    /// ends when the database is closed. A program with readers that resume stores the position of each, and
    /// passes the oldest one.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let hour = std::time::Duration::from_secs(3600);
    /// let builder = esker::Db::builder().feed_retention(1 << 20, hour);
    /// let db = builder.tuning(|t| t.feed_hold(1 << 30)).open_in_memory()?;
    /// db.default_keyspace().put("k", "v")?;
    /// let reader_is_at = db.snapshot().seqno();
    /// db.hold_feed_after(Some(reader_is_at));
    /// // The reader is away while much is committed. Later:
    /// match db.feed_after(reader_is_at) {
    ///     Err(esker::Error::FeedTruncated { .. }) => println!("more than 1 GiB was committed"),
    ///     feed => println!("{:?} are kept for it: {} bytes", feed?, db.feed_bytes_after(reader_is_at)?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_feed_after(&self, after: Option<SeqNo>) {
        self.handle.core.hold_feed(after.map(behind));
    }

    /// Bytes of log files kept for the [feed](Self::feed_after) after this commit. The file that is being
    /// written does not count.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed).
    pub fn feed_bytes_after(&self, after: SeqNo) -> Result<u64> {
        self.handle.core.check_ours()?;
        Ok(self.handle.core.feed_bytes(behind(after)))
    }
}

impl Feed {
    /// The number of the next commit.
    pub fn position(&self) -> SeqNo {
        self.follower.position()
    }

    /// Returns the next commit if it is available.
    ///
    /// # Errors
    /// Those of [`next_within`](Self::next_within).
    pub fn try_next(&mut self) -> Result<Option<FeedCommit>> {
        self.next_within(Duration::ZERO)
    }

    /// Returns the next commit, waiting up to `patience` for it.
    ///
    /// # Errors
    /// [`FeedTruncated`](crate::Error::FeedTruncated) if the commit is no longer kept;
    /// [`Poisoned`](crate::Error::Poisoned) if all commits were returned and writes have stopped;
    /// [`Closed`](crate::Error::Closed); [`Io`](crate::Error::Io) and [`Corrupt`](crate::Error::Corrupt) if
    /// the commit cannot be read. The call can be repeated.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<FeedCommit>> {
        let next = self.handle.core.next_of(&mut self.follower, patience)?;
        Ok(next.map(|(place, changes, blobs)| FeedCommit { place, changes, blobs }))
    }
}

#[cfg(feature = "tokio")]
impl Feed {
    /// Number of times the set of readable commits has changed.
    pub(super) fn moves(&self) -> u64 {
        self.shelf().moves()
    }

    /// Registers a task to be woken after more than `seen` changes. Returns false if there have been more
    /// already.
    pub(super) fn wake_after(&self, seen: u64, waker: &std::task::Waker) -> bool {
        self.shelf().wake_after(seen, waker)
    }

    fn shelf(&self) -> &crate::wal::Shelf {
        self.follower.shelf()
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Feed({})", self.position())
    }
}

impl Iterator for Feed {
    type Item = Result<FeedCommit>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.has_failed {
            match self.next_within(PATIENCE) {
                Ok(None) => {}
                Ok(Some(commit)) => return Some(Ok(commit)),
                Err(Error::Closed) => self.has_failed = true,
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl FeedCommit {
    /// The number of the commit.
    pub fn seqno(&self) -> SeqNo {
        self.place.seq
    }

    /// Returns the next change, or `None` after the last. Applying the changes in this order reproduces the
    /// commit: several may concern the same key. This is not an iterator, because a change borrows the
    /// commit.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt); [`Io`](crate::Error::Io) for a large commit, which is read from
    /// tables.
    pub fn next_change(&mut self) -> Result<Option<FeedChange<'_>>> {
        let op = self.changes.next(&self.place)?;
        let change = op.map(|op| FeedChange::of_op(op, &self.blobs)).transpose();
        change.map_err(|error| self.place.damaged(error))
    }
}

impl std::fmt::Debug for FeedCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FeedCommit({})", self.seqno())
    }
}

impl<'a> FeedValue<'a> {
    /// Makes a value from bytes in memory.
    pub(crate) fn new(bytes: &'a [u8], expiry: Option<Expiry>) -> Self {
        FeedValue { stored: Stored::Inline(bytes), expiry, blobs: None }
    }

    /// Size of the value in bytes.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) if the pointer to the value is damaged.
    pub fn size(&self) -> Result<u64> {
        match self.stored {
            Stored::Inline(bytes) => Ok(bytes.len() as u64),
            Stored::Blob(pointer) => self.blobs().open(pointer).map(|value| value.len()),
        }
    }

    /// Returns the bytes if they are in memory, `None` if they are in a blob file.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        fetch::bytes(self.stored)
    }

    /// Reads the value.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) and [`Corrupt`](crate::Error::Corrupt) from its blob file.
    pub fn read(&self) -> Result<Value> {
        match self.stored {
            Stored::Inline(bytes) => Ok(Value::copy_of(bytes)),
            Stored::Blob(pointer) => self.blobs().read(pointer),
        }
    }

    /// When the value expires. `None`: never.
    pub fn expires_at(&self) -> Option<std::time::SystemTime> {
        std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(self.expiry()?.ms()))
    }

    /// When the value expires. `None`: never.
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        self.expiry
    }

    fn blobs(&self) -> &'a BlobSet {
        self.blobs.expect("a value outside of memory comes with its blob files")
    }
}

impl std::fmt::Debug for FeedValue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{}", bytes.escape_ascii()),
            None => f.write_str("(in a blob file)"),
        }
    }
}
