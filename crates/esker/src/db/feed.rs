//! The change feed: every commit, in order, for readers that come back.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Db;
use crate::blob::BlobSet;
use crate::encoding::bytes::DecodeError;
use crate::encoding::catalog_key::{name_of, options_of};
use crate::encoding::operand::{Operand, elements};
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::id_of;
use crate::engine::state::keyspace_options::{KeyspaceOptions, StoredOptions};
use crate::feed::{Changes, CommitOp};
use crate::read::fetch;
use crate::types::expiry::Expiry;
use crate::types::key::decode_key;
use crate::types::stored::Stored;
use crate::types::{Error, KeyspaceId, Result, SeqNo, Value};
use crate::wal::Follower;

/// So long the iterator waits before it looks again.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Commits in their order, from one on: made by [`Db::feed`]. As an iterator it waits for the next commit,
/// and ends when the database is closed, or after an error. It holds up nobody, and keeps nothing from going:
/// one that falls behind what is kept fails with [`FeedTruncated`](crate::Error::FeedTruncated).
pub struct Feed {
    handle: Arc<Handle>,
    follower: Follower,
    has_failed: bool,
}

/// A commit of the [feed](Feed). It keeps the blob files that it points to, and its tables if it was large:
/// do not hold it for long.
pub struct FeedCommit {
    seqno: SeqNo,
    changes: Changes,
    blobs: BlobSet,
}

/// A change that a commit makes. Keys and values are borrowed from the commit, or from the bytes of a
/// [replayed](crate::replay) one.
#[derive(Debug)]
#[non_exhaustive]
pub enum FeedChange<'a> {
    /// A key gets a value.
    Put {
        /// The keyspace's number, see [`Keyspace::id`](crate::Keyspace::id).
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
        /// The value.
        value: FeedValue<'a>,
    },
    /// Operands are merged into what a key has, by the operator of its keyspace.
    Merge {
        /// The keyspace's number.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
        /// The operands, oldest first. One operand may stand for several that the commit merged at the same
        /// time.
        operands: Vec<FeedOperand<'a>>,
    },
    /// A key is removed. It need not have been there.
    Remove {
        /// The keyspace's number.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
    },
    /// A key has expired, and was removed for that. Until then its [`FeedValue::expires_at`] tells. Keys of a
    /// table that has expired as a whole are removed as a range.
    Expire {
        /// The keyspace's number.
        keyspace: KeyspaceId,
        /// The key.
        key: &'a [u8],
    },
    /// All keys of a range are removed.
    RemoveRange {
        /// The keyspace's number.
        keyspace: KeyspaceId,
        /// The first key of the range.
        start: &'a [u8],
        /// The first key behind it; none if it reaches to the end of the keyspace.
        end: Option<&'a [u8]>,
    },
    /// A keyspace gets a name: it is new, or renamed.
    Named {
        /// The keyspace's number.
        keyspace: KeyspaceId,
        /// The name.
        name: &'a str,
    },
    /// No keyspace has this name any more: the one that had it is dropped, or renamed. One that is dropped
    /// has its keys removed by the same commit.
    Unnamed {
        /// The name.
        name: &'a str,
    },
    /// A keyspace has these options from now on, all of them.
    Options {
        /// The keyspace's number.
        keyspace: KeyspaceId,
        /// Its options.
        options: KeyspaceOptions,
    },
    /// Something else that the engine notes about keyspaces: that options are gone with theirs, and which
    /// number is the next.
    Internal {
        /// Where it notes it.
        key: &'a [u8],
        /// What; none: nothing any more.
        value: Option<&'a [u8]>,
    },
}

/// An operand of the feed. It applies to the value that the key had at the time of the merge. If there was
/// none, or it had expired by then, the operand begins a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedOperand<'a>(pub(crate) Operand<'a>);

impl<'a> FeedOperand<'a> {
    /// The operand.
    pub fn bytes(&self) -> &'a [u8] {
        self.0.bytes
    }

    /// When it was merged, by the engine's time.
    pub fn merged_at(&self) -> std::time::SystemTime {
        let at = std::time::UNIX_EPOCH.checked_add(Duration::from_millis(self.0.at_ms));
        at.unwrap_or(std::time::UNIX_EPOCH)
    }

    /// How long the value lasts if it begins with this operand; none: it does not expire.
    pub fn lifetime(&self) -> Option<Duration> {
        (self.0.lifetime_ms > 0).then(|| Duration::from_millis(self.0.lifetime_ms))
    }
}

/// A value of the feed, read when it is asked for.
#[derive(Clone, Copy)]
pub struct FeedValue<'a> {
    stored: Stored<&'a [u8]>,
    expiry: Option<Expiry>,
    /// Absent if the value is in memory.
    blobs: Option<&'a BlobSet>,
}

impl<'a> FeedChange<'a> {
    /// The change that an op of a commit makes. Keys are encoded: the log and tables hold no others.
    fn of_op(op: CommitOp<'a>, blobs: &'a BlobSet) -> Result<Self> {
        let split = |key: &'a [u8]| decode_key(key).unwrap_or((KeyspaceId::CATALOG, key));
        let (kind, key, stored) = match op {
            CommitOp::Key(kind, key, stored) => (kind, key, stored),
            CommitOp::Range(start, end) => {
                let (keyspace, start) = split(start);
                let end = decode_key(end).filter(|(id, _)| *id == keyspace).map(|(_, end)| end);
                return Ok(FeedChange::RemoveRange { keyspace, start, end });
            }
        };
        Ok(match split(key) {
            (KeyspaceId::CATALOG, key) => Self::of_catalog(key, kind.is_live().then_some(stored))?,
            (keyspace, key) if kind.is_operand() => {
                let operands = elements(stored).map_err(damaged)?.into_iter().map(FeedOperand).collect();
                FeedChange::Merge { keyspace, key, operands }
            }
            (keyspace, key) if kind.is_live() => {
                let expiry = Expiry::of_version(kind, stored);
                let value = FeedValue { stored: Stored::of(kind, stored), expiry, blobs: Some(blobs) };
                FeedChange::Put { keyspace, key, value }
            }
            (keyspace, key) if kind.is_sweep() => FeedChange::Expire { keyspace, key },
            (keyspace, key) => FeedChange::Remove { keyspace, key },
        })
    }

    fn of_catalog(key: &'a [u8], value: Option<&'a [u8]>) -> Result<Self> {
        if let (Some(keyspace), Some(stored)) = (options_of(key), value) {
            let options = StoredOptions::decode(stored).map_err(damaged)?.given;
            return Ok(FeedChange::Options { keyspace, options });
        }
        let Some(name) = name_of(key) else { return Ok(FeedChange::Internal { key, value }) };
        Ok(match value.map(id_of) {
            Some(Some(keyspace)) => FeedChange::Named { keyspace, name },
            Some(None) => FeedChange::Internal { key, value },
            None => FeedChange::Unnamed { name },
        })
    }

    /// The keyspace and the key that it changes, or the first key of a range. None if it changes no keys.
    pub fn key(&self) -> Option<(KeyspaceId, &'a [u8])> {
        match *self {
            FeedChange::Put { keyspace, key, .. }
            | FeedChange::Merge { keyspace, key, .. }
            | FeedChange::Remove { keyspace, key }
            | FeedChange::Expire { keyspace, key }
            | FeedChange::RemoveRange { keyspace, start: key, .. } => Some((keyspace, key)),
            _ => None,
        }
    }
}

fn damaged(error: DecodeError) -> Error {
    error.in_file("commit payload", Path::new(""), 0)
}

impl Db {
    /// The commits from this one on, in order, each once it is durable. A database has a feed if it is opened
    /// with [`feed_retention`](crate::Builder::feed_retention), and commits are kept as long as that says.
    ///
    /// A reader notes the number of the last commit that it has dealt with, and comes back with the one
    /// after. One that begins takes a snapshot, reads it, and goes on with the commit after [the
    /// snapshot's](crate::Snapshot::seqno): it misses nothing and sees nothing twice.
    ///
    /// Commits with less than [`Sync`](crate::Durability::Sync) come when they have reached the disk. A
    /// snapshot sees them before: [`Db::sync`] before it is taken keeps a power loss from taking back what a
    /// reader has read of it.
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
    /// let mut feed = db.feed(snapshot.seqno().next())?;
    /// users.put("bob", "2")?;
    /// users.remove("ann")?;
    /// while let Some(mut commit) = feed.next_within(Duration::ZERO)? {
    ///     while let Some(change) = commit.next_change()? {
    ///         match change {
    ///             FeedChange::Put { key, value, .. } => println!("{key:?} = {:?}", value.read()?),
    ///             FeedChange::Remove { key, .. } => println!("{key:?} is gone"),
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
    /// [`FeedTruncated`](crate::Error::FeedTruncated) if the commit is not kept any more;
    /// [`Invalid`](crate::Error::Invalid) if there is no feed, or the commit is none of this database: beyond
    /// its next one. [`Closed`](crate::Error::Closed).
    pub fn feed(&self, from: SeqNo) -> Result<Feed> {
        let follower = self.handle.core.follow(from)?;
        Ok(Feed { handle: self.handle.clone(), follower, has_failed: false })
    }

    /// Holds the commits from this one on for the [feed](Self::feed), up to the bytes of
    /// [`feed_hold`](crate::Builder::feed_hold), and lets go what was held before; none: holds nothing. It
    /// lasts until the database is closed. A program whose readers come back stores where each is, and holds
    /// from the one that is farthest behind.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let hour = std::time::Duration::from_secs(3600);
    /// let db = esker::Db::builder().feed_retention(1 << 20, hour).feed_hold(1 << 30).open_in_memory()?;
    /// db.default_keyspace().put("k", "v")?;
    /// let reader_is_at = db.snapshot().seqno();
    /// db.hold_feed(Some(reader_is_at.next()));
    /// // The reader is away while much is committed. Later:
    /// match db.feed(reader_is_at.next()) {
    ///     Err(esker::Error::FeedTruncated { .. }) => println!("more than a GiB was committed: it reads all anew"),
    ///     feed => println!("{:?} are kept for it: {} bytes", feed?, db.feed_bytes(reader_is_at.next())?),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_feed(&self, from: Option<SeqNo>) {
        self.handle.core.hold_feed(from);
    }

    /// Bytes that are kept for the [feed](Self::feed) from this commit on, in whole files of the log; the one
    /// that is being written does not count.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed).
    pub fn feed_bytes(&self, from: SeqNo) -> Result<u64> {
        self.handle.core.check_ours()?;
        Ok(self.handle.core.feed_bytes(from))
    }
}

impl Feed {
    /// The number of the commit that comes next.
    pub fn position(&self) -> SeqNo {
        self.follower.position()
    }

    /// The next commit, if there is one already.
    ///
    /// # Errors
    /// Those of [`next_within`](Self::next_within).
    pub fn try_next(&mut self) -> Result<Option<FeedCommit>> {
        self.next_within(Duration::ZERO)
    }

    /// The next commit, if there is one within this time.
    ///
    /// # Errors
    /// [`FeedTruncated`](crate::Error::FeedTruncated) if it is not kept any more;
    /// [`Poisoned`](crate::Error::Poisoned) if nothing is left and writes have been stopped;
    /// [`Closed`](crate::Error::Closed); [`Io`](crate::Error::Io) and [`Corrupt`](crate::Error::Corrupt) if
    /// it cannot be read: it can be tried again.
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<FeedCommit>> {
        let next = self.handle.core.next_of(&mut self.follower, patience)?;
        Ok(next.map(|(seqno, changes, blobs)| FeedCommit { seqno, changes, blobs }))
    }
}

#[cfg(feature = "tokio")]
impl Feed {
    /// Counts changes of what can be read.
    pub(super) fn moves(&self) -> u64 {
        self.shelf().moves()
    }

    /// Has a task woken when there have been more changes than these; false if there have been.
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
    /// Its number.
    pub fn seqno(&self) -> SeqNo {
        self.seqno
    }

    /// The next change; none after the last. Who applies them in this order has what the commit has made: a
    /// later one may be of the same key. Not an iterator, since a change borrows the commit.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt), and [`Io`](crate::Error::Io) if the commit is so large that it is
    /// read from tables.
    pub fn next_change(&mut self) -> Result<Option<FeedChange<'_>>> {
        let op = self.changes.next(self.seqno)?;
        op.map(|op| FeedChange::of_op(op, &self.blobs)).transpose()
    }
}

impl std::fmt::Debug for FeedCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FeedCommit({})", self.seqno)
    }
}

impl<'a> FeedValue<'a> {
    /// A value in memory.
    pub(crate) fn new(bytes: &'a [u8], expiry: Option<Expiry>) -> Self {
        FeedValue { stored: Stored::Inline(bytes), expiry, blobs: None }
    }

    /// Bytes of the value.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) if the pointer to it is damaged.
    pub fn size(&self) -> Result<u64> {
        match self.stored {
            Stored::Inline(bytes) => Ok(bytes.len() as u64),
            Stored::Blob(pointer) => self.blobs().open(pointer).map(|value| value.len()),
        }
    }

    /// Its bytes, if they are in memory: not in a blob file.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        fetch::bytes(self.stored)
    }

    /// The value.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io) and [`Corrupt`](crate::Error::Corrupt) of its blob file.
    pub fn read(&self) -> Result<Value> {
        match self.stored {
            Stored::Inline(bytes) => Ok(Value::copy_of(bytes)),
            Stored::Blob(pointer) => self.blobs().read(pointer),
        }
    }

    /// When it expires, if it does.
    pub fn expires_at(&self) -> Option<std::time::SystemTime> {
        std::time::UNIX_EPOCH.checked_add(std::time::Duration::from_millis(self.expiry()?.ms()))
    }

    /// When it expires, if it does.
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
