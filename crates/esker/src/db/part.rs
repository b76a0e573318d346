//! Transactions that commit as a part of another one. Many small ones, some of them long, share a commit.
//!
//! ```text
//!   part  --reads, writes--> its snapshot, with its writes on top
//!   whole --admit: has anything changed?--> makes the part's writes, one by one --> commit
//! ```
//!
//! part.1. A part is admitted only if what it has read is unchanged, by later commits and by the earlier
//!     writes of the whole. If the part is to be kept apart, the same holds for what it writes. Operands
//!     conflict with nothing, unless the part has read the length of their keyspace.
//! part.2. The whole conflicts if another commit changes what an admitted part has read or writes. So its
//!     snapshot is not moved anymore, except by [`refresh`](Transaction::refresh).

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Db;
use super::bounds::{encode_bounds, half_open};
use super::handles::Gather;
use super::keyspace::Keyspace;
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use super::writes::Writes;
use crate::encoding::operand::elements;
use crate::engine::core::Core;
use crate::read::point::Presence;
use crate::txn::commit::Isolation;
use crate::txn::conflict::{Conflict, find_conflict_of, name_among};
use crate::txn::layers::OwnAnswer;
use crate::types::bounds::{BoundKey, Bounds};
use crate::types::cursor::SourceCursor;
use crate::types::expiry::{Expiry, value_of};
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::key_range::{End, KeyRange};
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstone;
use crate::types::{Error, KeyBounds, Result, SeqNo};

/// A write of a [part](Db::begin_part).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartWrite<'a> {
    /// Removes the keys from `from` up to `to`, or to the end of the keyspace.
    RemoveRange {
        /// The first key.
        from: &'a [u8],
        /// The first key that stays.
        to: Option<&'a [u8]>,
    },
    /// Sets a key to a value that does not expire.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Sets a key to a value that expires.
    PutUntil {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When the value expires, in milliseconds since 1970.
        expires_ms: u64,
    },
    /// Removes a key.
    Remove {
        /// The key.
        key: &'a [u8],
    },
    /// Merges an operand into a key.
    Merge {
        /// The key.
        key: &'a [u8],
        /// The operand.
        operand: &'a [u8],
    },
}

impl Db {
    /// Begins a transaction to commit as a part of another one: see [`Transaction::admit`]. Its writes stay
    /// in memory, whatever their size. It cannot change keyspaces. `Exclusive` isolation means `Serializable`
    /// here: the other transaction has the turn, if any has.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # use esker::{Db, Isolation};
    /// # let db = Db::in_memory()?;
    /// let map = db.keyspace("map")?;
    /// let (mut one, mut other) = (db.begin_part(Isolation::Snapshot), db.begin_part(Isolation::Snapshot));
    /// one.put(&map, "a", "1")?;
    /// other.put(&map, "a", "2")?;
    /// let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
    /// whole.admit(&one, true)?;
    /// let mut done = Ok(());
    /// one.visit_writes(&map, |write| {
    ///     if done.is_ok() {
    ///         done = whole.repeat(&map, write);
    ///     }
    /// })?;
    /// done?;
    /// assert!(whole.admit(&other, true).is_err(), "both write the same key");
    /// whole.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_part(&self, isolation: Isolation) -> Transaction {
        let isolation = if isolation == Isolation::Exclusive { Isolation::Serializable } else { isolation };
        let mut part = self.transaction().isolation(isolation).begin();
        part.writes.stay_in_memory();
        part
    }
}

impl Transaction {
    /// Moves the transaction to the newest state, with its writes on top. Commits up to that state no longer
    /// conflict with it, not even over what admitted parts have read: refresh it before it
    /// [admits](Self::admit) any.
    pub fn refresh(&mut self) {
        self.reads.iter().chain(&self.parts).for_each(|reads| reads.renew());
        self.renew(Snapshot::new(self.handle.clone()));
    }

    /// Returns the number of bytes of the keys and values written so far.
    pub fn written_bytes(&self) -> usize {
        self.writes.byte_len()
    }

    /// Returns the number of puts, removals and operands, including repeated ones, without those that a range
    /// removal cancelled.
    pub fn write_count(&self) -> usize {
        self.writes.op_count()
    }

    /// Starts or stops to depend on reads, whatever the isolation. This makes single steps of a transaction
    /// serializable (part.2).
    pub fn note_reads(&mut self, notes: bool) {
        match notes {
            true => drop(self.reads.get_or_insert_default()),
            false => self.parts.extend(self.reads.take()),
        }
    }

    /// Depends on the keys of a range as if they had been read. Has an effect only while reads are noted: see
    /// [`note_reads`](Self::note_reads) and [`Isolation::Serializable`].
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`].
    pub fn depend_on(&self, keyspace: &Keyspace, range: impl KeyBounds) -> Result<()> {
        let state = self.state_of(keyspace)?;
        if let Some(reads) = self.reads_of(state) {
            let (start, end) = half_open(&encode_bounds(state.id, &range));
            self.has_read.store(true, Ordering::Relaxed);
            reads.note_range(&start, End::Excluded(end));
        }
        Ok(())
    }

    /// Checks that `part` may commit as a part of this transaction, which then depends on the part's reads
    /// and sends its notices. The caller makes the part's writes in this transaction: see
    /// [`visit_writes`](Self::visit_writes) and [`repeat`](Self::repeat). With `is_apart`, others must not
    /// have written what the part writes, either. The part keeps its locks until it drops.
    ///
    /// # Errors
    /// [`Error::Conflict`]: a later commit or this transaction has changed what the part has read or writes.
    /// This includes commits between the beginning of this transaction and of the part, if this one has read
    /// or written before.
    /// [`Error::Invalid`]: the part belongs to another database, or changes keyspaces.
    pub fn admit(&mut self, part: &Transaction, is_apart: bool) -> Result<()> {
        self.begin_operation()?;
        self.move_to_newest();
        let done = self.check_part(part, is_apart);
        self.note_failure(done)?;
        // part.2
        self.has_read.store(true, Ordering::Relaxed);
        self.parts.extend(part.reads.iter().chain(&part.parts).cloned());
        self.notices.extend_from_slice(&part.notices);
        Ok(())
    }

    /// Fails if a part may not be admitted.
    fn check_part(&self, part: &Transaction, is_apart: bool) -> Result<()> {
        if !Arc::ptr_eq(&self.handle, &part.handle) {
            return Err(Error::Invalid("the part belongs to another database".to_owned()));
        }
        if !part.writes.changes.is_empty() {
            let text = "a part of a transaction cannot change keyspaces: do that in the whole transaction";
            return Err(Error::Invalid(text.to_owned()));
        }
        match self.find_conflict_of(part, is_apart)? {
            Some(conflict) => {
                let of_reads = |id| part.reads.iter().chain(&part.parts).find_map(|reads| reads.name_of(id));
                let of_writes = |id| name_among(part.writes.keyspaces(), id);
                Err(conflict.into_error(|id| of_reads(id).or_else(|| of_writes(id))))
            }
            None => Ok(()),
        }
    }

    /// Returns a conflict of a part with later commits or with this transaction (part.1).
    fn find_conflict_of(&self, part: &Transaction, is_apart: bool) -> Result<Option<Conflict>> {
        let (core, since) = (&self.handle.core, part.seqno().min(self.seqno()));
        let now = Snapshot::new(self.handle.clone());
        let view = core.view.get();
        let mut counted = Vec::new();
        for reads in part.reads.iter().chain(&part.parts) {
            counted.extend(reads.counted());
            let len_now = |id| core.exact_count(&core.published.counter(id), id, now.pin());
            if let Some(conflict) = reads.find_conflict(since, &view, len_now)? {
                return Ok(Some(conflict));
            }
            if let Some(conflict) = reads.find_among(|range| meets(&self.writes, core, range))? {
                return Ok(Some(conflict));
            }
        }
        let counts = |key: &[u8], kind: Option<Kind>| {
            is_apart && !kind.is_some_and(Kind::is_operand)
                || decode_key(key).is_some_and(|(id, _)| counted.contains(&id))
        };
        let set = part.writes.settled(core)?;
        if let Some(conflict) = find_conflict_of(&set, since, &view, counts)? {
            return Ok(Some(conflict));
        }
        let keys = set.entries(SeqNo::MAX).filter(|entry| counts(entry.key, Some(entry.kind)));
        let keys = keys.map(|entry| KeyRange::point(entry.key));
        let ranges = set.ranges().iter().filter(|(start, _)| counts(start, None));
        let ranges =
            ranges.map(|(start, end)| KeyRange { start: start.clone(), end: End::Excluded(end.clone()) });
        for range in keys.chain(ranges) {
            if meets(&self.writes, core, &range)? {
                return Ok(Some(Conflict::over(range)));
            }
        }
        Ok(None)
    }

    /// Visits the writes to a keyspace: first the removals of ranges, then the writes of each key, in order
    /// of keys.
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`].
    pub fn visit_writes(&self, keyspace: &Keyspace, mut visit: impl FnMut(PartWrite<'_>)) -> Result<()> {
        let id = self.state_of(keyspace)?.id;
        let set = self.writes.settled(&self.handle.core)?;
        let (first, behind) = (encode_key(id, &[]), keyspace_end(id));
        for (start, end) in set.ranges().iter().filter(|(start, _)| first <= *start && *start < behind) {
            let to = (*end < behind).then(|| user_key(end));
            visit(PartWrite::RemoveRange { from: user_key(start), to });
        }
        for entry in set.entries_from(&first, SeqNo::MAX).take_while(|entry| *entry.key < *behind) {
            let key = user_key(entry.key);
            if entry.kind.is_operand() {
                for operand in elements(entry.value).expect("operands were encoded here") {
                    visit(PartWrite::Merge { key, operand: operand.bytes });
                }
            } else if entry.kind.is_live() {
                let value = value_of(entry.kind, entry.value);
                visit(match Expiry::of_version(entry.kind, entry.value) {
                    Some(expiry) => PartWrite::PutUntil { key, value, expires_ms: expiry.ms() },
                    None => PartWrite::Put { key, value },
                });
            } else {
                visit(PartWrite::Remove { key });
            }
        }
        Ok(())
    }

    /// Makes a write of a part in this transaction. A value expires when it would in the part. The time of a
    /// merge is now.
    ///
    /// # Errors
    /// See [`put`](Self::put).
    pub fn repeat(&mut self, keyspace: &Keyspace, write: PartWrite<'_>) -> Result<()> {
        let (key, value, expiry) = match write {
            PartWrite::RemoveRange { from, to } => {
                let upper = to.map_or(Bound::Unbounded, Bound::Excluded);
                return self.delete_range(keyspace, (Bound::Included(from), upper));
            }
            PartWrite::Remove { key } => return self.delete(keyspace, key),
            PartWrite::Merge { key, operand } => return self.merge(keyspace, key, operand),
            PartWrite::Put { key, value } => (key, value, None),
            PartWrite::PutUntil { key, value, expires_ms } => (key, value, Some(Expiry::at_ms(expires_ms))),
        };
        let (writes, core, state) = self.room_in(keyspace)?;
        writes.put_until(core, state, key, value, expiry)
    }
}

/// Returns whether writes set, merge or remove any key of a range.
fn meets(writes: &Writes, core: &Core, range: &KeyRange) -> Result<bool> {
    if writes.is_empty() {
        return Ok(false);
    }
    if range.is_point() {
        return Ok(match writes.find::<Presence>(core, &range.start)? {
            OwnAnswer::Known(_) => true,
            OwnAnswer::Below(operands) => !operands.is_empty(),
        });
    }
    let own = writes.own()?;
    let removes = |removal: &RangeTombstone| range.start < removal.end && range.end.admits(&removal.start);
    if own.removals().iter().any(removes) {
        return Ok(true);
    }
    let upper = BoundKey::copy_of(range.end.key());
    let upper = match &range.end {
        End::Included(_) => Bound::Included(upper),
        End::Excluded(_) => Bound::Excluded(upper),
    };
    let bounds = Bounds { lower: Bound::Included(BoundKey::copy_of(&range.start)), upper };
    for mut cursor in own.cursors(&bounds) {
        cursor.seek(&range.start)?;
        if cursor.valid() && range.end.admits(cursor.key()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn user_key(encoded: &[u8]) -> &[u8] {
    decode_key(encoded).expect("a write set holds encoded keys").1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::LockMode;
    use crate::db::ttl::Ttl;
    use crate::engine::state::keyspace_options::Counting;

    fn is_conflict(done: Result<()>) -> bool {
        match done {
            Ok(()) => false,
            Err(Error::Conflict { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn part_1_changes_of_what_a_part_has_read_or_writes_are_found_wherever_they_are() {
        // What the part does, the key that another one writes, and whether that is a conflict of reads, and
        // of writes.
        type Work = fn(&mut Transaction, &Keyspace);
        let cases: [(Work, &str, bool, bool); 8] = [
            (|t, k| drop(t.get(k, "a").unwrap()), "a", true, false),
            (|t, k| drop(t.get(k, "a").unwrap()), "b", false, false),
            (|t, k| assert_eq!(t.range(k, "a".."c").count(), 1), "b", true, false),
            (|t, k| t.depend_on(k, "a".."c").unwrap(), "b", true, false),
            (|t, k| assert_eq!(t.len(k).unwrap(), 1), "new", true, false),
            (|t, k| t.put(k, "a", "1").unwrap(), "a", false, true),
            (|t, k| t.delete_range(k, "a".."c").unwrap(), "b", false, true),
            (|t, k| t.merge(k, "a", "1").unwrap(), "a", false, false),
        ];
        for (at, (work, key, of_reads, of_writes)) in cases.into_iter().enumerate() {
            for is_committed in [true, false] {
                let db = Db::in_memory().unwrap();
                let map = db.keyspace("map").unwrap();
                map.set_merge_operator("append").unwrap();
                map.put("a", "0").unwrap();
                let mut part = db.begin_part(Isolation::Serializable);
                work(&mut part, &map);
                let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
                match is_committed {
                    true => drop(map.put(key, "2").unwrap()),
                    false => whole.put(&map, key, "2").unwrap(),
                }
                let admitted = [false, true].map(|is_apart| whole.admit(&part, is_apart));
                let expected = [of_reads, of_reads || of_writes];
                for (admitted, expected) in admitted.into_iter().zip(expected) {
                    if let Err(Error::Conflict { keyspace, .. }) = &admitted {
                        assert_eq!(keyspace, "map");
                    }
                    assert_eq!(is_conflict(admitted), expected, "part.1: {at}, {is_committed}");
                }
            }
        }
    }

    #[test]
    fn part_2_the_whole_conflicts_over_what_its_parts_have_read() {
        for is_changed in [false, true] {
            let db = Db::in_memory().unwrap();
            let map = db.keyspace("map").unwrap();
            let part = db.begin_part(Isolation::Serializable);
            part.get(&map, "a").unwrap();
            let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
            whole.admit(&part, true).unwrap();
            whole.put(&map, "b", "1").unwrap();
            map.put(if is_changed { "a" } else { "c" }, "2").unwrap();
            let done = whole.commit().map(drop).map_err(Error::from);
            if let Err(Error::Conflict { keyspace, .. }) = &done {
                assert_eq!(keyspace, "map");
            }
            assert_eq!(is_conflict(done), is_changed, "part.2");
        }
    }

    #[test]
    fn part_2_reads_are_noted_while_they_are_to_be() {
        for (key, expected) in [("noted", true), ("other", false)] {
            let db = Db::in_memory().unwrap();
            let map = db.keyspace("map").unwrap();
            let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
            for notes in [true, false] {
                whole.note_reads(notes);
                whole.get(&map, if notes { "noted" } else { "other" }).unwrap();
            }
            whole.put(&map, "b", "1").unwrap();
            map.put(key, "2").unwrap();
            assert_eq!(is_conflict(whole.commit().map(drop).map_err(Error::from)), expected, "{key}");
        }
    }

    #[test]
    fn the_writes_of_a_part_are_shown_as_they_would_be_committed() {
        let db = Db::in_memory().unwrap();
        let [map, other] = ["map", "other"].map(|name| db.keyspace(name).unwrap());
        map.set_merge_operator("append").unwrap();
        let mut part = db.begin_part(Isolation::Snapshot);
        part.put(&map, "a", "0").unwrap();
        part.delete_range(&map, "a".."c").unwrap();
        part.delete_range(&map, "x"..).unwrap();
        part.put(&map, "b", "1").unwrap();
        part.merge(&map, "b", "2").unwrap();
        part.merge(&map, "m", "3").unwrap();
        part.merge(&map, "m", "4").unwrap();
        part.delete(&map, "r").unwrap();
        let large = vec![7; 1 << 20];
        part.put(&map, "z", &large).unwrap();
        part.put(&other, "o", "1").unwrap();
        part.refresh();
        let expected = [
            PartWrite::RemoveRange { from: b"a", to: Some(b"c") },
            PartWrite::RemoveRange { from: b"x", to: None },
            PartWrite::Put { key: b"b", value: b"12" },
            PartWrite::Merge { key: b"m", operand: b"3" },
            PartWrite::Merge { key: b"m", operand: b"4" },
            PartWrite::Remove { key: b"r" },
            PartWrite::Put { key: b"z", value: &large },
        ];
        let mut rest = expected.iter();
        part.visit_writes(&map, |write| assert_eq!(Some(&write), rest.next())).unwrap();
        assert_eq!(rest.next(), None);
    }

    /// Makes all writes of a part in the whole.
    fn repeat_all(whole: &mut Transaction, part: &Transaction, maps: &[Keyspace]) {
        whole.admit(part, true).unwrap();
        for map in maps {
            part.visit_writes(map, |write| whole.repeat(map, write).unwrap()).unwrap();
        }
    }

    #[test]
    fn what_parts_write_is_what_transactions_write() {
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..200 {
            // Two databases with the same content: one commits parts together, the other each by itself.
            let dbs = [0, 1].map(|_| Db::in_memory().unwrap());
            let maps = dbs.each_ref().map(|db| {
                let [counted, lazy] = ["counted", "lazy"].map(|name| db.keyspace(name).unwrap());
                lazy.set_counting(Counting::Lazy).unwrap();
                counted.set_merge_operator("append").unwrap();
                lazy.set_merge_operator("append").unwrap();
                lazy.set_default_ttl(Some(Duration::from_secs(1000))).unwrap();
                [counted, lazy]
            });
            let mut whole = dbs[0].transaction().isolation(Isolation::Snapshot).begin();
            for part_number in 0..3 {
                let mut part = dbs[0].begin_part(Isolation::Serializable);
                let mut alone = dbs[1].begin();
                // Parts that write the same keys conflict, so each has keys of its own.
                for _ in 0..rng.usize(0..12) {
                    let at = rng.usize(0..2);
                    let key = format!("{part_number}{}", rng.u8(0..6));
                    let (choice, long) = (rng.u8(0..8), vec![b'x'; 10_000]);
                    for (t, map) in [(&mut part, &maps[0][at]), (&mut alone, &maps[1][at])] {
                        match choice {
                            0 => t.put(map, &key, "value").unwrap(),
                            1 => t.put(map, &key, &long).unwrap(),
                            2 => t.put_with_ttl(map, &key, "short", Duration::from_secs(500)).unwrap(),
                            3 => drop(t.keyspace_mut(map).persist(&key).unwrap()),
                            4 => drop(t.keyspace_mut(map).expire(&key, Duration::from_secs(100)).unwrap()),
                            5 => t.delete(map, &key).unwrap(),
                            6 => t.delete_range(map, &*key..&*format!("{part_number}9")).unwrap(),
                            _ => t.merge(map, &key, "+").unwrap(),
                        }
                    }
                }
                repeat_all(&mut whole, &part, &maps[0]);
                alone.commit().unwrap();
            }
            whole.commit().unwrap();
            for (mine, expected) in maps[0].iter().zip(&maps[1]) {
                let all = |map: &Keyspace| map.iter().collect::<Result<Vec<_>>>().unwrap();
                assert_eq!(all(mine), all(expected), "round {round}");
                assert_eq!(mine.len().unwrap(), expected.len().unwrap(), "round {round}");
                for (key, _) in all(mine) {
                    let seconds = |map: &Keyspace| match map.ttl(&key).unwrap().unwrap() {
                        Ttl::Unlimited => None,
                        Ttl::Left(left) => Some(left.as_secs().div_ceil(50)),
                    };
                    assert_eq!(seconds(mine), seconds(expected), "round {round}: {key:?}");
                }
            }
            assert_eq!(dbs[0].check().unwrap().problems, [""; 0], "round {round}");
        }
    }

    #[test]
    fn a_part_with_changes_of_keyspaces_is_refused_and_its_notices_are_sent() {
        let db = Db::in_memory().unwrap();
        let map = db.keyspace("map").unwrap();
        let mut listener = db.listen("topic").unwrap();
        let mut part = db.begin_part(Isolation::Exclusive);
        part.put(&map, "a", "1").unwrap();
        part.notify("topic", "text");
        let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
        repeat_all(&mut whole, &part, std::slice::from_ref(&map));
        let mut creating = db.begin_part(Isolation::Snapshot);
        creating.create_keyspace("new").unwrap();
        assert!(matches!(whole.admit(&creating, true), Err(Error::Invalid(_))));
        whole.commit().unwrap();
        assert_eq!(map.get("a").unwrap(), Some("1".into()));
        assert!(listener.try_next().is_some());
    }

    #[test]
    fn part_1_reads_that_were_noted_for_a_time_count() {
        let db = Db::in_memory().unwrap();
        let map = db.keyspace("map").unwrap();
        let mut part = db.begin_part(Isolation::Snapshot);
        part.note_reads(true);
        part.get(&map, "a").unwrap();
        part.note_reads(false);
        map.put("a", "1").unwrap();
        assert!(
            is_conflict(db.transaction().isolation(Isolation::Snapshot).begin().admit(&part, true)),
            "part.1"
        );
    }

    #[test]
    fn part_2_an_admitted_part_holds_the_whole_to_its_snapshot() {
        type Lock = fn(&mut Transaction, &Keyspace) -> Result<()>;
        let locks: [Lock; 3] = [
            |_, _| Ok(()),
            |t, _| t.lock_name_for("x", LockMode::Exclusive, Duration::ZERO),
            |t, map| t.lock(map, "n", LockMode::Exclusive),
        ];
        for (at, lock) in locks.into_iter().enumerate() {
            for key in ["read", "n"] {
                let db = Db::in_memory().unwrap();
                let map = db.keyspace("map").unwrap();
                let mut part = db.begin_part(Isolation::Serializable);
                part.get(&map, "read").unwrap();
                part.put(&map, "n", "1").unwrap();
                let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
                whole.admit(&part, true).unwrap();
                map.put(key, "2").unwrap();
                let commit = || {
                    lock(&mut whole, &map)?;
                    part.visit_writes(&map, |write| whole.repeat(&map, write).unwrap())?;
                    whole.commit().map(drop).map_err(Error::from)
                };
                assert!(is_conflict(commit()), "part.2: {at}, {key}");
            }
        }
    }

    #[test]
    fn a_length_that_a_part_has_read_depends_on_the_keys_it_wrote() {
        type Work = fn(&mut Transaction, &Keyspace);
        let counts: [(Work, bool); 3] = [
            (|t, map| assert_eq!((t.merge(map, "a", "1").unwrap(), t.len(map).unwrap()), ((), 2)), true),
            (|t, map| assert_eq!((t.put(map, "a", "1").unwrap(), t.len(map).unwrap()), ((), 2)), false),
            (
                |t, map| {
                    let point = t.savepoint();
                    t.put(map, "a", "1").unwrap();
                    t.note_reads(true);
                    t.len(map).unwrap();
                    t.note_reads(false);
                    t.rollback_to(&point).unwrap();
                },
                true,
            ),
        ];
        for (at, (work, is_apart)) in counts.into_iter().enumerate() {
            let db = Db::in_memory().unwrap();
            let map = db.keyspace("map").unwrap();
            map.set_merge_operator("append").unwrap();
            map.put("b", "1").unwrap();
            let mut part = db.begin_part(Isolation::Serializable);
            work(&mut part, &map);
            // The length stays, but the part would have found another one.
            let mut other = db.begin();
            other.put(&map, "a", "2").unwrap();
            other.delete(&map, "b").unwrap();
            other.commit().unwrap();
            let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
            assert!(is_conflict(whole.admit(&part, is_apart)), "{at}");
        }
    }

    #[test]
    fn commits_before_a_part_began_or_was_refreshed_are_no_conflict() {
        let db = Db::in_memory().unwrap();
        let map = db.keyspace("map").unwrap();
        let mut whole = db.transaction().isolation(Isolation::Snapshot).begin();
        map.put("a", "1").unwrap();
        let mut part = db.begin_part(Isolation::Serializable);
        part.get(&map, "a").unwrap();
        part.len(&map).unwrap();
        map.put("b", "1").unwrap();
        part.refresh();
        whole.admit(&part, true).unwrap();
        whole.put(&map, "c", "1").unwrap();
        whole.commit().unwrap();
        assert!(
            is_conflict(db.transaction().isolation(Isolation::Snapshot).begin().admit(&part, true)),
            "c is new"
        );
    }

    #[test]
    fn transact_repeats_after_a_conflict_of_a_part_and_after_no_other_error() {
        let db = Db::in_memory().unwrap();
        let foreign = Db::in_memory().unwrap();
        let map = db.keyspace("map").unwrap();
        let run = |is_foreign: bool| {
            let mut tries = 0;
            let done = db.transact(|whole| {
                tries += 1;
                assert!(tries < 4, "it is repeated without end");
                whole.get(&map, "x")?;
                if is_foreign {
                    map.put("k", tries.to_string())?;
                    assert!(is_conflict(whole.lock(&map, "k", LockMode::Exclusive)));
                    return whole.admit(&foreign.begin_part(Isolation::Snapshot), true);
                }
                let part = db.begin_part(Isolation::Serializable);
                part.get(&map, "a")?;
                if tries == 1 {
                    map.put("a", "1")?;
                }
                whole.admit(&part, true)
            });
            (tries, done.is_ok())
        };
        assert_eq!([run(false), run(true)], [(2, true), (1, false)]);
    }
}
