//! What the reads of a transaction have found: ops whose keys exist, and a range without live keys.
//!
//! ```text
//!   read in the snapshot --key--> last --op on the same key--> known
//!   commit: nothing wrote a known key since the snapshot? no look-up
//!   walk from a key --first live key--> nothing between them: a later walk begins at the live key
//! ```
//!
//! found.1. The key of a known op was live in the snapshot of the transaction. A transaction that takes
//!     another snapshot forgets them.
//! found.2. No key of the empty range is live in the snapshot with the writes of the transaction. A put or an
//!     operand in it, a rollback and another snapshot forget it.

use parking_lot::Mutex;

use super::WriteSet;
use crate::encoding::hash::key_hash;
use crate::types::op::Kind;

/// What a transaction has found of the keys that it writes.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The encoded key that it found last. Empty: none.
    last: Mutex<Vec<u8>>,
    /// Ops on keys that it had found, with the hashes of the keys. Ascending.
    known: Vec<(u32, u64)>,
    /// The empty range (found.2): start (included) and end (excluded), which are encoded keys.
    empty: Mutex<Option<(Vec<u8>, Vec<u8>)>>,
}

impl Clone for Found {
    fn clone(&self) -> Self {
        let empty = Mutex::new(self.empty.lock().clone());
        Found { last: Mutex::new(self.last.lock().clone()), known: self.known.clone(), empty }
    }
}

impl Found {
    /// Records op number `at`, on this encoded key.
    #[inline]
    pub(super) fn add(&mut self, at: usize, kind: Kind, key: &[u8]) {
        if kind.is_live() {
            self.note_live(key);
        }
        if **self.last.get_mut() == *key {
            self.known.push((at as u32, key_hash(key)));
        }
    }

    /// Records that a key may be live, after a put or an operand (found.2).
    #[inline]
    pub(super) fn note_live(&mut self, key: &[u8]) {
        let empty = self.empty.get_mut();
        if empty.as_ref().is_some_and(|(start, end)| start.as_slice() <= key && key < end.as_slice()) {
            *empty = None;
        }
    }

    /// Forgets the ops from number `ops` on.
    pub(super) fn go_back(&mut self, ops: usize) {
        *self.empty.get_mut() = None;
        self.known.truncate(self.known.partition_point(|known| (known.0 as usize) < ops));
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.known)
    }

    /// Forgets everything and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.last.get_mut().clear();
        self.known.clear();
        *self.empty.get_mut() = None;
    }
}

impl WriteSet {
    /// Records that a transaction has found this encoded key in its snapshot.
    pub(crate) fn note_found(&self, key: &[u8]) {
        let mut last = self.found.last.lock();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Returns the key from which a walk from `key` on may begin, if keys before it are known not to be live.
    pub(crate) fn first_possible(&self, key: &[u8]) -> Option<Vec<u8>> {
        let empty = self.found.empty.lock();
        let (_, end) = empty.as_ref().filter(|(start, end)| **start <= *key && *key < **end)?;
        Some(end.clone())
    }

    /// Records that a walk from `key` on has found `first` as the first live key.
    pub(crate) fn note_first(&self, key: &[u8], first: &[u8]) {
        match &mut *self.found.empty.lock() {
            Some((start, end)) if **start <= *key && *key <= **end => {
                if *first > **end {
                    end.clear();
                    end.extend_from_slice(first);
                }
            }
            empty => *empty = Some((key.to_vec(), first.to_vec())),
        }
    }

    /// Forgets what was found, since the transaction takes another snapshot (found.1, found.2).
    pub(crate) fn forget_found(&mut self) {
        self.found.clear();
    }

    /// Returns the hash of the key at a place of the order, if it was live in the snapshot (found.1).
    #[inline]
    pub(crate) fn known_hash(&self, place: usize) -> Option<u64> {
        let known = &self.found.known;
        if known.is_empty() || !self.ranges.is_empty() {
            return None;
        }
        let op = self.nth(place)?;
        known.binary_search_by_key(&op, |known| known.0).ok().map(|at| known[at].1)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use esker_env::{Env, ManualClock, MemFs};

    use super::{Kind, WriteSet};
    use crate::types::expiry::Expiry;
    use crate::{Db, Isolation, Keyspace, Result, Transaction};

    type Write = fn(&mut Transaction, &Keyspace) -> Result<()>;

    /// Writes of the key `a` after it was read.
    const WRITES: [Write; 7] = [
        |txn, map| txn.put(map, "a", "x"),
        |txn, map| txn.delete(map, "a"),
        |txn, map| txn.put(map, "a", "x").and_then(|()| txn.delete(map, "a")),
        |txn, map| txn.delete(map, "a").and_then(|()| txn.put(map, "a", "x")),
        |txn, map| txn.delete_range(map, "a".."b").and_then(|()| txn.put(map, "a", "x")),
        |txn, map| txn.put(map, "b", "x").and_then(|()| txn.put(map, "a", "x")),
        |txn, map| {
            let point = txn.savepoint();
            txn.put(map, "a", "x")?;
            txn.rollback_to(&point)?;
            txn.put(map, "b", "x")?;
            txn.put(map, "a", "x")
        },
    ];

    /// Runs each write, with `between` after the read. Returns how many of the commits conflict.
    fn conflicts(lifetime: Duration, between: fn(&Db, &Keyspace, &ManualClock, &mut Transaction)) -> usize {
        let mut conflicts = 0;
        for (n, write) in (0..4 * WRITES.len()).map(|n| (n, WRITES[n / 4])) {
            let clock = Arc::new(ManualClock::new());
            let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(MemFs::new()), 1) };
            let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
            let map = db.default_keyspace();
            map.put_with_ttl("a", "first", lifetime).unwrap();
            if n % 2 == 1 {
                db.flush().unwrap();
            }
            let isolation = [Isolation::Snapshot, Isolation::Serializable][n / 2 % 2];
            let mut txn = db.transaction().isolation(isolation).begin();
            assert!(txn.get(&map, "a").unwrap().is_some());
            between(&db, &map, &clock, &mut txn);
            write(&mut txn, &map).unwrap();
            conflicts += usize::from(txn.commit().is_err());
            assert_eq!(map.len().unwrap(), map.iter().count() as u64, "write {n}");
            assert!(db.check().unwrap().is_sound());
        }
        conflicts
    }

    #[test]
    fn found_1_counts_include_keys_that_were_read() {
        let long = Duration::from_secs(99);
        assert_eq!(conflicts(long, |_, _, _, _| {}), 0);
        assert_eq!(conflicts(long, |_, map, _, _| _ = map.delete("a").unwrap()), 4 * WRITES.len());
        let refresh = |_: &Db, map: &Keyspace, _: &ManualClock, txn: &mut Transaction| {
            map.delete("a").unwrap();
            txn.refresh();
        };
        assert_eq!(conflicts(long, refresh), 0, "another snapshot");
        // No conflict, although the key is gone.
        let swept = |db: &Db, _: &Keyspace, clock: &ManualClock, _: &mut Transaction| {
            clock.advance(Duration::from_secs(9));
            assert_eq!(db.sweep().unwrap(), 1);
        };
        assert_eq!(conflicts(Duration::from_secs(5), swept), 0);
    }

    #[test]
    fn found_2_a_key_that_becomes_live_ends_the_empty_range() {
        let first = |set: &WriteSet, key: &[u8]| set.first_possible(key);
        let mut set = WriteSet::new();
        let found = |set: &WriteSet| {
            set.note_first(b"\x01b", b"\x01f");
            set.note_first(b"\x01c", b"\x01h");
            assert_eq!(first(set, b"\x01b").as_deref(), Some(&b"\x01h"[..]));
        };
        found(&set);
        assert_eq!(first(&set, b"\x01a"), None);
        assert_eq!(first(&set, b"\x01h"), None);
        set.remove(b"\x01h");
        set.put(b"\x01a", b"");
        set.put(b"\x01h", b"");
        set.remove(b"\x01c");
        set.delete_range(b"\x01c", b"\x01g");
        found(&set);
        let mark = set.mark();
        set.put(b"\x01b", b"");
        assert_eq!(first(&set, b"\x01b"), None);
        found(&set);
        set.put_until(Kind::PUT, b"\x01g", Some(Expiry::at_ms(7)), b"");
        assert_eq!(first(&set, b"\x01b"), None);
        found(&set);
        set.write(Kind::MERGE, b"\x01c", b"");
        assert_eq!(first(&set, b"\x01b"), None);
        found(&set);
        set.go_back(&mark);
        assert_eq!(first(&set, b"\x01b"), None);
        found(&set);
        set.forget_found();
        assert_eq!(first(&set, b"\x01b"), None);
    }
}
