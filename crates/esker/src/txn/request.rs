//! What a caller asks of the commit pipeline: the writes, their conditions, and how they are acknowledged.

use std::sync::Arc;

use super::ahead::KeysAhead;
use super::blobs::BlobUse;
use super::counts::Effort;
use super::drop_mark::DropMark;
use super::layers::Layers;
use super::range_count::RangeCounts;
use super::read_set::ReadSet;
use super::recent_writes::RecentWrites;
use super::snapshots::SnapshotGuard;
use super::write_set::WriteSet;
use crate::types::key::decode_key;
use crate::types::{Error, KeyspaceId, Result, Value};

/// A group with this many operations or bytes, or with a range removal, may take long, because each key is
/// looked up, possibly on disk.
const LONG_OPS: usize = 1000;
const LONG_BYTES: usize = 1 << 20;

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Immediately. The commit reaches the disk later; a crash of the process or the machine may lose recent
    /// commits.
    None,
    /// When the commit is in the operating system's page cache. A crash of the process loses nothing, a power
    /// failure may lose recent commits.
    Buffered,
    /// When the commit is on disk.
    #[default]
    Sync,
}

/// How a transaction is isolated from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isolation {
    /// The transaction commits only if everything it read is unchanged: keys, missing keys, ranges as far as
    /// they were iterated, lengths, and names of keyspaces. The outcome is as if transactions ran one after
    /// the other. Expiry is not a conflict: an entry that was read may expire and be
    /// [swept](crate::Db::sweep) meanwhile. But a length changed by a sweep is a conflict. So is a sweep of a
    /// key that the transaction merges into, at any isolation level.
    #[default]
    Serializable,
    /// The transaction commits if no other commit has written what it writes. Two transactions that each read
    /// what the other writes can both commit (write skew). Reads are slightly cheaper.
    Snapshot,
    /// The transaction starts once it holds the exclusive turn. Exclusive transactions run one after the
    /// other, in the order of their start. All other commits wait until the transaction ends. It conflicts
    /// only if its own thread, the one that last used it, makes another commit meanwhile. A thread with an
    /// open exclusive transaction that waits for a commit of another thread waits forever. If a transaction
    /// does not get its turn within [`lock_patience`](crate::Builder::lock_patience), its operations fail
    /// with [`Error::LockTimeout`]. If a thread starts a second exclusive transaction, operations of the
    /// second one fail with [`Error::Invalid`] after a second. If the database is closed, waiting
    /// transactions and commits fail with [`Error::Closed`].
    Exclusive,
}

/// A commit in progress.
pub struct CommitRequest {
    /// The writes.
    pub set: Arc<WriteSet>,
    /// Older writes of a large transaction, below those in `set`.
    pub(crate) layers: Layers,
    /// Values of both that are in blob files.
    pub(crate) blobs: BlobUse,
    /// What the commit waits for before it is acknowledged.
    pub durability: Durability,
    /// The snapshot that a transaction read from.
    pub since: Option<SnapshotGuard>,
    /// What the transaction and its parts have read, if that must be unchanged.
    pub(crate) reads: Vec<Arc<ReadSet>>,
    /// Whether the request holds the exclusive turn or has lent it to others
    /// (engine/writes/exclusive_turn.rs).
    pub(crate) may_pass: bool,
    /// The keyspaces that the commit writes: name, whether dropped, how they count.
    pub keyspaces: Arc<Vec<KeyspaceLife>>,
    /// Marks of the keyspaces that the commit drops.
    pub drops: Vec<DropMark>,
    /// Number of live keys in the removed ranges, counted before the commit lock was taken.
    pub(crate) ranges: Option<RangeCounts>,
    /// What is known of the keys of `set`, if they were looked up before the commit lock was taken.
    pub(crate) ahead: Option<KeysAhead>,
    /// Notices published once the commit is visible: topic and text.
    pub(crate) notices: Vec<(Arc<str>, Value)>,
}

impl CommitRequest {
    /// Returns a request to commit these writes, without conditions.
    pub(crate) fn of(set: Arc<WriteSet>, layers: Layers, durability: Durability) -> Self {
        CommitRequest {
            set,
            layers,
            blobs: BlobUse::default(),
            durability,
            since: None,
            reads: Vec::new(),
            may_pass: false,
            keyspaces: Arc::default(),
            drops: Vec::new(),
            ranges: None,
            ahead: None,
            notices: Vec::new(),
        }
    }

    /// Returns whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.layers.is_empty()
    }

    /// Returns whether a group may take longer than a few single-key commits.
    pub(super) fn may_take_long(group: &[CommitRequest]) -> bool {
        let sets = || group.iter().map(|request| &request.set);
        sets().map(|set| set.op_count()).sum::<usize>() >= LONG_OPS
            || sets().map(|set| set.byte_len()).sum::<usize>() >= LONG_BYTES
            || sets().any(|set| !set.ranges().is_empty())
    }

    /// Returns the effort for an encoded key, given that for keyspaces that count exactly.
    pub(super) fn effort(&self, key: &[u8], usual: Effort) -> Effort {
        if self.keyspaces.iter().all(|keyspace| !keyspace.is_lazy) {
            return usual;
        }
        let id = decode_key(key).map(|(id, _)| id);
        let is_lazy = |keyspace: &KeyspaceLife| keyspace.is_lazy && Some(keyspace.id) == id;
        if self.keyspaces.iter().any(is_lazy) { Effort::None } else { usual }
    }

    /// Returns whether the transaction has found the key at a place of its set, and nothing has written the
    /// key since (found.1).
    pub(super) fn has_found(&self, place: usize, recent: &RecentWrites) -> bool {
        match (&self.since, self.set.known_hash(place)) {
            (Some(since), Some(hash)) => recent.is_unchanged(hash, since.seq()),
            _ => false,
        }
    }

    /// Fails if a keyspace that the commit writes was dropped. The answer can change until the caller holds
    /// the commit lock.
    pub(crate) fn check_keyspaces(&self) -> Result<()> {
        match self.keyspaces.iter().find(|keyspace| keyspace.is_dropping()) {
            Some(gone) => Err(Error::KeyspaceNotFound(gone.name.to_string())),
            None => Ok(()),
        }
    }
}

/// State of a keyspace that a commit writes.
#[derive(Clone, Debug)]
pub struct KeyspaceLife {
    /// Id of the keyspace.
    pub id: KeyspaceId,
    /// Name for error messages.
    pub name: Arc<str>,
    /// Set once the keyspace was dropped. `None` if this commit creates or drops the keyspace itself.
    pub dropping: Option<DropMark>,
    /// Whether commits skip the lookup of its keys (counts.3).
    pub is_lazy: bool,
}

impl KeyspaceLife {
    fn is_dropping(&self) -> bool {
        self.dropping.as_ref().is_some_and(DropMark::is_set)
    }
}
