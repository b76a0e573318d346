//! Transactions that commit as a part of another one. Many small ones, some of them long, share a commit.
//!
//! ```text
//!   part  --reads, writes--> its snapshot, with its writes on top
//!   whole --admit: has anything changed?--> makes the part's writes, one by one --> commit
//! ```
//!
//! part.1. A part is admitted only if what it has read is unchanged, by later commits and by the earlier
//!     writes of the whole. If the part is to be kept apart, the same holds for what it writes. Operands
//!     conflict with nothing.
//! part.2. The whole conflicts if another commit changes what an admitted part has read.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Db;
use super::bounds::{encode_bounds, removal};
use super::keyspace::Keyspace;
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use super::writes::Writes;
use crate::encoding::operand::elements;
use crate::engine::core::Core;
use crate::read::point::Presence;
use crate::txn::commit::Isolation;
use crate::txn::conflict::{Conflict, find_conflict_of};
use crate::txn::layers::OwnAnswer;
use crate::types::bounds::{BoundKey, Bounds};
use crate::types::cursor::SourceCursor;
use crate::types::expiry::value_of;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::key_range::{End, KeyRange};
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
    /// Sets a key to a value.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
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
    /// in memory, whatever their size.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # use esker::{Db, Isolation, PartWrite};
    /// # let db = Db::in_memory()?;
    /// let map = db.keyspace("map")?;
    /// let (mut one, mut other) = (db.begin_part(Isolation::Snapshot), db.begin_part(Isolation::Snapshot));
    /// one.put(&map, "a", "1")?;
    /// other.put(&map, "a", "2")?;
    /// let mut whole = db.begin_with(Isolation::Snapshot);
    /// whole.admit(&one, true)?;
    /// let mut writes = Vec::new();
    /// one.visit_writes(&map, |write| {
    ///     if let PartWrite::Put { key, value } = write {
    ///         writes.push((key.to_vec(), value.to_vec()));
    ///     }
    /// })?;
    /// writes.iter().try_for_each(|(key, value)| whole.put(&map, key, value))?;
    /// assert!(whole.admit(&other, true).is_err(), "both write the same key");
    /// whole.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_part(&self, isolation: Isolation) -> Transaction {
        let mut part = self.begin_with(isolation);
        part.writes.stay_in_memory();
        part
    }
}

impl Transaction {
    /// Moves the transaction to the newest state, with its writes on top. Commits up to that state no longer
    /// conflict with it.
    pub fn refresh(&mut self) {
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
        let id = self.state_of(keyspace)?.id;
        if let Some(reads) = &self.reads {
            let (start, end) = removal(&encode_bounds(id, &range));
            self.has_read.store(true, Ordering::Relaxed);
            reads.note_range(&start, End::Excluded(end));
        }
        Ok(())
    }

    /// Checks that `part` may commit as a part of this transaction, which then depends on the part's reads.
    /// The caller makes the part's writes in this transaction: see [`visit_writes`](Self::visit_writes). With
    /// `is_apart`, others must not have written what the part writes, either.
    ///
    /// # Errors
    /// [`Error::Conflict`]: a later commit or this transaction has changed what the part has read or writes.
    pub fn admit(&mut self, part: &Transaction, is_apart: bool) -> Result<()> {
        if !Arc::ptr_eq(&self.handle, &part.handle) {
            return Err(Error::Invalid("the part is another database's".to_owned()));
        }
        if let Some(conflict) = self.find_conflict_of(part, is_apart)? {
            return Err(conflict.into_error(part.writes.keyspaces()));
        }
        // part.2
        self.parts.extend(part.reads.clone());
        Ok(())
    }

    /// Returns why a part may not be admitted (part.1).
    fn find_conflict_of(&self, part: &Transaction, is_apart: bool) -> Result<Option<Conflict>> {
        let (core, since) = (&self.handle.core, part.seqno());
        let now = Snapshot::new(self.handle.clone());
        let view = core.view.get();
        if let Some(reads) = &part.reads {
            let len_now = |id| core.exact_count(&core.published.counter(id), id, now.pin());
            if let Some(conflict) = reads.find_conflict(since, &view, len_now)? {
                return Ok(Some(conflict));
            }
            if let Some(conflict) = reads.find_among(|range| meets(&self.writes, core, range))? {
                return Ok(Some(conflict));
            }
        }
        if !is_apart {
            return Ok(None);
        }
        let set = part.writes.settled(core)?;
        if let Some(conflict) = find_conflict_of(&set, since, &view, |kind| !kind.is_operand())? {
            return Ok(Some(conflict));
        }
        let keys = set.entries(SeqNo::MAX).filter(|entry| !entry.kind.is_operand());
        let keys = keys.map(|entry| KeyRange::point(entry.key));
        let ranges = set.ranges().iter();
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
                visit(PartWrite::Put { key, value: value_of(entry.kind, entry.value) });
            } else {
                visit(PartWrite::Remove { key });
            }
        }
        Ok(())
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
    use super::*;

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
            (|t, k| t.remove_range(k, "a".."c").unwrap(), "b", false, true),
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
                let mut whole = db.begin_with(Isolation::Snapshot);
                match is_committed {
                    true => drop(map.put(key, "2").unwrap()),
                    false => whole.put(&map, key, "2").unwrap(),
                }
                let found = [false, true].map(|is_apart| is_conflict(whole.admit(&part, is_apart)));
                assert_eq!(found, [of_reads, of_reads || of_writes], "part.1: {at}, {is_committed}");
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
            let mut whole = db.begin_with(Isolation::Snapshot);
            whole.admit(&part, true).unwrap();
            whole.put(&map, "b", "1").unwrap();
            map.put(if is_changed { "a" } else { "c" }, "2").unwrap();
            assert_eq!(is_conflict(whole.commit().map(drop).map_err(Error::from)), is_changed, "part.2");
        }
    }

    #[test]
    fn part_2_reads_are_noted_while_they_are_to_be() {
        for (key, expected) in [("noted", true), ("other", false)] {
            let db = Db::in_memory().unwrap();
            let map = db.keyspace("map").unwrap();
            let mut whole = db.begin_with(Isolation::Snapshot);
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
        part.remove_range(&map, "a".."c").unwrap();
        part.remove_range(&map, "x"..).unwrap();
        part.put(&map, "b", "1").unwrap();
        part.merge(&map, "b", "2").unwrap();
        part.merge(&map, "m", "3").unwrap();
        part.merge(&map, "m", "4").unwrap();
        part.remove(&map, "r").unwrap();
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
}
