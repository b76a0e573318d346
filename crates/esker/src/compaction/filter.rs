//! Compaction filters: user functions called for the values that a compaction passes.
//!
//! ```text
//!   compaction --newest version, in no snapshot--> Filter (user) --Decision--> Sieve --batches--> commits
//! ```
//!
//! A compaction does not change data by a filter. The decisions become commits of their own
//! (engine/writes/decisions.rs). So readers, snapshots, counts, transactions and the log treat them like any
//! other removal or put.
//!
//! - A filter sees no version that a snapshot may read, none that is not visible yet, and none with a newer
//!   version in the compaction.
//! - A number does not identify a version: the runs of one large transaction have one number, and several of
//!   them may have the same key. So a decision is dropped if a table beside the compaction has a version of
//!   the key with this number. A compaction that takes in all of them decides about the newest.
//! - Batches are passed on as they fill, so memory does not grow with the compaction.
//! - An entry on which a filter panics is kept, and the failure is reported once per compaction.
//!
//! Of operands a filter sees the value that the compaction folds them into, under the number of the newest
//! one. It is not called for a key whose newest version stays an operand.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::blob::BlobSet;
use crate::read::operators::text_of_panic;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::stored::Stored;
use crate::types::{Error, Result, SeqNo, Value};

/// Approximate size of a batch in bytes.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes counted for an entry of a batch in addition to key and value.
const ENTRY_BYTES: usize = 64;

/// The fate of an entry: see [`Builder::compaction_filter`](crate::Builder::compaction_filter).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Keeps it.
    Keep,
    /// Removes its key.
    Drop,
    /// Gives its key this value.
    Change(Vec<u8>),
}

/// A filter function.
#[derive(Clone)]
pub(crate) struct Filter(pub(crate) Arc<Decide>);

/// Decides about a key and its value.
type Decide = dyn Fn(&[u8], &[u8]) -> Decision + Send + Sync;

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

/// A keyspace with a filter.
#[derive(Clone, Debug)]
pub(crate) struct Filtered {
    /// Range of the keyspace's encoded keys, which all start with that of the empty key.
    pub(crate) keys: Range<Vec<u8>>,
    /// Its filter.
    pub(crate) filter: Filter,
}

/// An entry to remove or change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    /// Its encoded key.
    pub(crate) key: Vec<u8>,
    /// The number of its version in its source.
    pub(crate) seq: SeqNo,
    /// The new value; `None` to remove the entry.
    pub(crate) value: Option<Vec<u8>>,
    /// When the entry expires, before and after the change.
    pub(crate) expiry: Option<Expiry>,
}

/// Tells whether a table that is not compacted has a version of a key with this number or a newer one.
pub(crate) type IsBeside = Box<dyn Fn(&[u8], SeqNo) -> Result<bool>>;

/// Calls the filters for the versions that a compaction keeps.
pub(crate) struct Sieve<'a> {
    /// In key order.
    filtered: Vec<Filtered>,
    /// Index of the first keyspace that may contain the current key.
    at: usize,
    /// The newest snapshot, if there is one.
    newest_snapshot: Option<SeqNo>,
    visible: SeqNo,
    is_beside: IsBeside,
    blobs: BlobSet,
    /// The key seen last.
    key: Vec<u8>,
    batch: Vec<Decided>,
    batch_bytes: usize,
    /// Whether a filter has panicked.
    has_failed: bool,
    /// Receives batches and failures.
    take: Box<dyn FnMut(Result<Vec<Decided>>) + 'a>,
}

impl<'a> Sieve<'a> {
    /// Returns a sieve for a compaction while snapshots up to `newest_snapshot` are open; `None` without
    /// filters.
    pub(crate) fn new(
        mut filtered: Vec<Filtered>,
        newest_snapshot: Option<SeqNo>,
        visible: SeqNo,
        is_beside: IsBeside,
        blobs: BlobSet,
        take: impl FnMut(Result<Vec<Decided>>) + 'a,
    ) -> Option<Self> {
        if filtered.is_empty() {
            return None;
        }
        filtered.sort_by(|a, b| a.keys.start.cmp(&b.keys.start));
        Some(Sieve {
            filtered,
            at: 0,
            newest_snapshot,
            visible,
            is_beside,
            blobs,
            key: Vec::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            has_failed: false,
            take: Box::new(take),
        })
    }

    /// Takes a kept version. Versions come by key ascending, then sequence number descending. `seq` is its
    /// number in its source.
    pub(super) fn see(&mut self, entry: &EntryRef<'_>, seq: SeqNo) -> Result<()> {
        while self.filtered.get(self.at).is_some_and(|f| f.keys.end.as_slice() <= entry.key) {
            self.at += 1;
        }
        let Some(of) = self.filtered.get(self.at) else { return Ok(()) };
        let Some(user_key) = entry.key.strip_prefix(of.keys.start.as_slice()) else { return Ok(()) };
        if self.key == entry.key {
            return Ok(());
        }
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        let is_seen = self.newest_snapshot.is_some_and(|newest| seq <= newest);
        if is_seen || seq > self.visible || !entry.kind.is_live() || !entry.kind.ends_search() {
            return Ok(());
        }
        let fetched: Value;
        let value = match Stored::of(entry.kind, entry.value) {
            Stored::Inline(value) => value,
            Stored::Blob(pointer) => {
                fetched = self.blobs.read(pointer)?;
                &fetched
            }
        };
        let value = match catch_unwind(AssertUnwindSafe(|| (of.filter.0)(user_key, value))) {
            Ok(Decision::Keep) => return Ok(()),
            Ok(Decision::Drop) => None,
            Ok(Decision::Change(value)) => Some(value),
            Err(panic) => {
                self.note_panic(user_key.escape_ascii().to_string(), &*panic);
                return Ok(());
            }
        };
        if (self.is_beside)(entry.key, seq)? {
            return Ok(());
        }
        self.batch_bytes += entry.key.len() + value.as_ref().map_or(0, Vec::len) + ENTRY_BYTES;
        let expiry = Expiry::of_version(entry.kind, entry.value);
        self.batch.push(Decided { key: entry.key.to_vec(), seq, value, expiry });
        if self.batch_bytes >= BATCH_BYTES {
            self.give();
        }
        Ok(())
    }

    /// Reports the first panic of a filter.
    #[cold]
    fn note_panic(&mut self, key: String, panic: &(dyn Any + Send)) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let text = text_of_panic(panic);
            (self.take)(Err(Error::Panicked(format!(
                "a compaction filter panicked on key \"{key}\": {text}"
            ))));
        }
    }

    /// Passes on the last batch.
    pub(crate) fn give(&mut self) {
        self.batch_bytes = 0;
        if !self.batch.is_empty() {
            (self.take)(Ok(std::mem::take(&mut self.batch)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::KeyspaceId;
    use crate::types::key::{encode_key, keyspace_end};
    use crate::types::op::Kind;

    #[test]
    fn a_filter_sees_the_newest_versions_that_no_snapshot_reads() {
        let filtered = |n: u32| {
            let id = KeyspaceId::new(n);
            let drop_all = Filter(Arc::new(|_: &[u8], _: &[u8]| Decision::Drop));
            Filtered { keys: encode_key(id, b"")..keyspace_end(id), filter: drop_all }
        };
        let sifted = |snapshot: Option<u64>, versions: &[(u32, &str, u64, Kind)]| {
            let mut given = Vec::new();
            let filters = vec![filtered(5), filtered(2)];
            let take = |batch: Result<Vec<Decided>>| given.extend(batch.unwrap());
            let (snapshot, visible) = (snapshot.map(SeqNo::new), SeqNo::new(20));
            let is_beside: IsBeside = Box::new(|key: &[u8], _| Ok(key.ends_with(b"h")));
            let mut sieve =
                Sieve::new(filters, snapshot, visible, is_beside, BlobSet::default(), take).unwrap();
            for (keyspace, key, seq, kind) in versions {
                let key = encode_key(KeyspaceId::new(*keyspace), key.as_bytes());
                let seq = SeqNo::new(*seq);
                sieve.see(&EntryRef { key: &key, seq: SeqNo::ZERO, kind: *kind, value: b"v" }, seq).unwrap();
            }
            sieve.give();
            drop(sieve);
            let shown = |d: &Decided| format!("{}@{}", d.key[1..].escape_ascii(), d.seq);
            given.iter().map(shown).collect::<Vec<_>>().join(" ")
        };
        let (put, remove) = (Kind::PUT, Kind::REMOVE);
        let versions = [
            (1, "a", 9, put),
            (2, "b", 9, put),
            (2, "b", 8, put),
            (2, "c", 9, remove),
            (2, "c", 8, put),
            (2, "d", 21, put),
            (2, "d", 20, put),
            (2, "e", 0, put),
            (3, "f", 9, put),
            (5, "g", 20, Kind::PUT.unresolved()),
            (5, "h", 9, put),
            (6, "h", 9, put),
        ];
        assert_eq!(sifted(None, &versions), "b@9 e@0 g@20");
        assert_eq!(sifted(Some(8), &versions), "b@9 g@20");
        assert_eq!(sifted(Some(9), &versions), "g@20");
        assert_eq!(sifted(Some(20), &versions), "");
        let many: Vec<_> = (0..20_000).map(|n| format!("{n:06}")).collect();
        let mut batches = 0;
        let take = |batch: Result<Vec<Decided>>| {
            assert!(batch.unwrap().len() < 10_000);
            batches += 1;
        };
        let (filters, is_beside) = (vec![filtered(2)], Box::new(|_: &[u8], _| Ok(false)));
        let mut sieve =
            Sieve::new(filters, None, SeqNo::new(9), is_beside, BlobSet::default(), take).unwrap();
        for key in &many {
            let key = encode_key(KeyspaceId::new(2), key.as_bytes());
            let entry = EntryRef { key: &key, seq: SeqNo::ZERO, kind: Kind::PUT, value: b"v" };
            sieve.see(&entry, SeqNo::ZERO).unwrap();
        }
        drop(sieve);
        assert!(batches > 1);
    }
}
