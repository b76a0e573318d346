//! What a serializable transaction has read, so that its commit can check whether it would read the same
//! again.
//!
//! ```text
//!   get, contains --> key      iterator --> range up to its position      len --> keyspace, length
//!   commit: was anything of this written since the snapshot? --> Conflict
//! ```
//!
//! read_set.1. The set contains everything that an answer depended on: missing keys, gaps between the keys of
//!     an iterator, and the range after its last key if it reached the end.
//!
//! The set uses at most [`BYTES_MAX`] bytes. Beyond that, the reads of a keyspace become one
//! range. This may report conflicts that do not exist, and never misses one.
//!
//! - A length reveals which keys written by the transaction existed before. While the transaction
//!   still writes them, they conflict by themselves, in a part as well (part.1). Keys whose writes are
//!   undone count as read if the length of their keyspace was read.
//!
//! A length conflicts only if it has changed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::conflict::{Conflict, Newer, range_written};
use crate::read::view::ReadView;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::key_range::{End, KeyRange};
use crate::types::{KeyspaceId, Result, SeqNo};

/// Maximum memory of a read set.
const BYTES_MAX: usize = 4 << 20;
/// Memory of an entry besides its keys.
const ENTRY_BYTES: usize = 64;

/// The reads of a transaction, shared with its iterators.
#[derive(Debug, Default)]
pub(crate) struct ReadSet(Mutex<Reads>);

#[derive(Debug, Default)]
struct Reads {
    keys: HashSet<Box<[u8]>>,
    ranges: Vec<KeyRange>,
    lengths: BTreeMap<KeyspaceId, u64>,
    /// Names of the keyspaces, for error messages.
    names: BTreeMap<KeyspaceId, Arc<str>>,
    bytes: usize,
}

impl Reads {
    fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes > BYTES_MAX {
            self.coarsen();
        }
    }

    /// Replaces the reads of each keyspace by one range.
    fn coarsen(&mut self) {
        let mut hulls: BTreeMap<KeyspaceId, KeyRange> = BTreeMap::new();
        let keys = std::mem::take(&mut self.keys).into_iter();
        let keys = keys.map(|key| KeyRange { start: key.to_vec(), end: End::Included(key.into()) });
        for range in keys.chain(std::mem::take(&mut self.ranges)) {
            let Some((keyspace, _)) = decode_key(&range.start) else { continue };
            match hulls.get_mut(&keyspace) {
                Some(hull) => hull.extend(&range),
                None => drop(hulls.insert(keyspace, range)),
            }
        }
        self.ranges.extend(hulls.into_values());
        self.bytes = 0;
    }
}

impl ReadSet {
    /// Records the name of a keyspace that is read.
    pub(crate) fn note_keyspace(&self, keyspace: KeyspaceId, name: impl FnOnce() -> Arc<str>) {
        self.0.lock().names.entry(keyspace).or_insert_with(name);
    }

    /// Returns the name of a keyspace that was read.
    pub(crate) fn name_of(&self, keyspace: KeyspaceId) -> Option<Arc<str>> {
        self.0.lock().names.get(&keyspace).cloned()
    }

    /// Records the lookup of a key.
    pub(crate) fn note_key(&self, key: &[u8]) {
        let mut reads = self.0.lock();
        if reads.keys.insert(key.into()) {
            reads.grow(key.len() + ENTRY_BYTES);
        }
    }

    /// Records that a range was iterated over, in either direction.
    pub(crate) fn note_range(&self, start: &[u8], end: End) {
        if !end.admits(start) {
            return;
        }
        let mut reads = self.0.lock();
        let holds = |end: &End, key: &[u8]| matches!(end, End::Included(last) if *last == *key);
        // Most iterators continue at their last position.
        match reads.ranges.last_mut() {
            Some(last) if holds(&last.end, start) || last.start == start && last.end <= end => last.end = end,
            Some(last) if holds(&end, &last.start) => last.start = start.to_vec(),
            _ => {
                let bytes = start.len() + end.key().len() + ENTRY_BYTES;
                reads.ranges.push(KeyRange { start: start.to_vec(), end });
                reads.grow(bytes);
            }
        }
    }

    /// Records the length of a keyspace, without the changes made by the transaction itself.
    pub(crate) fn note_len(&self, keyspace: KeyspaceId, len: u64) {
        self.0.lock().lengths.insert(keyspace, len);
    }

    /// Returns the keyspaces whose lengths were read.
    pub(crate) fn counted(&self) -> Vec<KeyspaceId> {
        self.0.lock().lengths.keys().copied().collect()
    }

    /// Prepares for a newer snapshot. A length may differ there, so the whole keyspace counts as read
    /// instead.
    pub(crate) fn renew(&self) {
        self.note_counted();
        self.0.lock().lengths.clear();
    }

    /// Records that writes of these keys and ranges were undone.
    pub(crate) fn note_undone<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
        ranges: &[(Vec<u8>, Vec<u8>)],
    ) {
        let counted = self.counted();
        if counted.is_empty() {
            return;
        }
        let is_counted = |key: &[u8]| decode_key(key).is_some_and(|(id, _)| counted.contains(&id));
        keys.filter(|key| is_counted(key)).for_each(|key| self.note_key(key));
        for (start, end) in ranges.iter().filter(|(start, _)| is_counted(start)) {
            self.note_range(start, End::Excluded(end.clone()));
        }
    }

    /// Records that writes to unknown keys were undone.
    pub(crate) fn note_counted(&self) {
        let whole = |id| self.note_range(&encode_key(id, &[]), End::Excluded(keyspace_end(id)));
        self.counted().into_iter().for_each(whole);
    }

    /// Returns the first read that uncommitted writes change. Any write of a keyspace changes its length.
    pub(crate) fn find_among(&self, meets: impl Fn(&KeyRange) -> Result<bool>) -> Result<Option<Conflict>> {
        let reads = self.0.lock();
        let keys = reads.keys.iter().map(|key| KeyRange::point(key));
        let whole =
            |id: &KeyspaceId| KeyRange { start: encode_key(*id, &[]), end: End::Excluded(keyspace_end(*id)) };
        let lengths = reads.lengths.keys().map(whole);
        for range in keys.chain(reads.ranges.iter().cloned()).chain(lengths) {
            if meets(&range)? {
                return Ok(Some(Conflict::over(range)));
            }
        }
        Ok(None)
    }

    /// Returns the first read that a commit later than `since` has changed. `len_now` returns the length of a
    /// keyspace in the view.
    pub(crate) fn find_conflict(
        &self,
        since: SeqNo,
        view: &ReadView,
        len_now: impl Fn(KeyspaceId) -> Result<u64>,
    ) -> Result<Option<Conflict>> {
        let reads = self.0.lock();
        if view.newest_possible() <= since {
            return Ok(None);
        }
        for key in &reads.keys {
            if view.newest_write(key, since)?.is_some() {
                return Ok(Some(Conflict { start: key.to_vec(), end: None }));
            }
        }
        for range in &reads.ranges {
            if range_written(range, since, view, Newer::Writes)? {
                return Ok(Some(Conflict::over(range.clone())));
            }
        }
        for (&keyspace, &len) in &reads.lengths {
            // A length conflicts only if it has changed.
            if len_now(keyspace)? != len {
                let (start, end) = (encode_key(keyspace, &[]), keyspace_end(keyspace));
                return Ok(Some(Conflict { start, end: Some(end) }));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: &str, end: &str) -> KeyRange {
        KeyRange { start: start.into(), end: End::Included(end.into()) }
    }

    #[test]
    fn read_set_1_a_walk_becomes_one_range_and_others_their_own() {
        let set = ReadSet::default();
        let note = |start: &str, end: &str| set.note_range(start.as_bytes(), End::Included(end.into()));
        note("\x01b", "\x01c");
        note("\x01c", "\x01d");
        note("\x01b", "\x01e");
        note("\x01f", "\x01f");
        note("\x01z", "\x01a");
        note("\x01ef", "\x01f");
        assert_eq!(set.0.lock().ranges, [range("\x01b", "\x01e"), range("\x01ef", "\x01f")]);
    }

    #[test]
    fn read_set_2_what_is_too_much_becomes_a_range_for_each_keyspace() {
        let set = ReadSet::default();
        for n in 0..200_000_u32 {
            set.note_key(&encode_key(KeyspaceId::new(n % 2 + 1), &n.to_be_bytes()));
        }
        let reads = set.0.lock();
        assert!(reads.bytes <= BYTES_MAX);
        assert!(!reads.ranges.is_empty());
        let covered = |n: u32| {
            let key = encode_key(KeyspaceId::new(n % 2 + 1), &n.to_be_bytes());
            reads.keys.contains(&key[..]) || reads.ranges.iter().any(|range| range.contains(&key))
        };
        assert!((0..200_000).all(covered), "read_set.1");
    }
}
