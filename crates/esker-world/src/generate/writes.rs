//! Generates keys, values and writes.

use std::collections::BTreeMap;
use std::ops::Bound;

use esker::Durability;

use super::Generator;
use crate::model::keys::{self, KeyBounds, KeyNo};
use crate::model::values::ValueNo;
use crate::op::{DRAWN_NAMES, KeyspaceNo, NameChange, Op, Point, Update, Write};

impl Generator<'_> {
    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.choices.u32(0..n) == 0
    }

    pub(super) fn key(&mut self) -> KeyNo {
        let n = self.hot.len();
        let at =
            if self.choices.bool() { self.choices.usize(0..n) } else { self.choices.usize(0..n.div_ceil(4)) };
        let key = self.hot[at];
        // The longest keys are slow, so they are rare.
        let key = if keys::is_long(key) && !self.one_in(10) { self.hot[0] } else { key };
        if !keys::is_long(key) {
            return key;
        }
        let Some(room) = self.room.checked_sub(keys::key(key).len() as u64) else { return KeyNo(0) };
        self.room = room;
        key
    }

    pub(super) fn value(&mut self) -> ValueNo {
        let len = match self.choices.u16(0..1000) {
            0..100 => 0,
            100..700 => self.choices.u32(1..20),
            700..970 => self.choices.u32(20..300),
            970..997 => self.choices.u32(1000..5000),
            _ => self.choices.u32(5_000..100_000),
        };
        self.stamped(len)
    }

    pub(super) fn stamped(&mut self, len: u32) -> ValueNo {
        let len = self.room.min(u64::from(len));
        self.room -= len;
        self.stamp += 1;
        ValueNo::new(len as u32, self.stamp)
    }

    pub(super) fn keyspace(&mut self) -> KeyspaceNo {
        // Half of the operations use one keyspace, so that it grows.
        KeyspaceNo(if self.choices.bool() { 0 } else { self.choices.any_u8() })
    }

    pub(super) fn bounds(&mut self) -> KeyBounds {
        let bound = |generator: &mut Self| match generator.choices.u8(0..10) {
            0 => Bound::Unbounded,
            1..6 => Bound::Included(generator.key()),
            _ => Bound::Excluded(generator.key()),
        };
        let (a, b) = (bound(self), bound(self));
        let rank = |bound: &Bound<KeyNo>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(*key),
            Bound::Unbounded => None,
        };
        // Mostly ordered: in an empty range little happens.
        let reversed = matches!((rank(&a), rank(&b)), (Some(a), Some(b)) if a > b);
        if reversed && !self.one_in(8) { (b, a) } else { (a, b) }
    }

    pub(super) fn write(&mut self) -> Write {
        match self.choices.u8(0..40) {
            0..28 if self.features.expiry && self.one_in(2) => {
                Write::PutFor(self.key(), self.value(), self.lifetime())
            }
            20..28 if self.features.expiry && !self.features.guests && self.one_in(3) => {
                Write::MergeFor(self.key(), self.value(), self.lifetime())
            }
            20..28 => Write::Merge(self.key(), self.value()),
            0..28 => Write::Put(self.key(), self.value()),
            28..37 => Write::Remove(self.key()),
            37 if self.one_in(4) => Write::Clear,
            _ => Write::RemoveRange(self.bounds()),
        }
    }

    /// Returns a read-modify-write change.
    pub(super) fn update(&mut self) -> Update {
        match self.choices.u8(0..16) {
            0..4 => Update::Swap(self.key(), self.value(), !self.one_in(3)),
            4 => Update::Take(self.key()),
            5 => Update::PopFirst,
            6 => Update::PopLast,
            7..9 => Update::Add(self.key(), self.choices.u32(0..1000)),
            9 => Update::Lease(self.hot[self.hot.len() / 3], self.choices.u8(1..4)),
            10..12 if self.features.expiry => Update::Expire(self.key(), self.lifetime()),
            12 if self.features.expiry => Update::Persist(self.key()),
            _ => Update::Change(self.key(), self.value()),
        }
    }

    /// Returns a read-modify-write change that a transaction supports.
    pub(super) fn update_within(&mut self) -> Update {
        match self.update() {
            Update::Lease(key, lease) => Update::Add(key, lease.into()),
            other => other,
        }
    }

    /// Returns a lifetime in milliseconds.
    pub(super) fn lifetime(&mut self) -> u32 {
        [0, 1, 300, 2000, 10_000, u32::MAX][self.choices.usize(0..6)]
    }

    pub(super) fn point(&mut self) -> Point {
        match self.choices.u8(0..5) {
            0..2 => Point::Set,
            4 => Point::Forget(self.choices.u8(0..3)),
            _ => Point::Back(self.choices.u8(0..3)),
        }
    }

    /// Returns the changes of one commit to keyspaces and their contents.
    pub(super) fn name_changes(&mut self) -> Vec<NameChange> {
        let writes = |g: &mut Self| {
            let n = g.choices.usize(0..8);
            (0..n).map(|_| g.write()).collect()
        };
        let one = |g: &mut Self| match g.choices.u8(0..8) {
            0 => NameChange::Create(g.choices.u8(0..DRAWN_NAMES), writes(g)),
            1 => NameChange::Drop(g.keyspace()),
            2 => NameChange::Rename(g.keyspace(), g.choices.u8(0..DRAWN_NAMES)),
            3..6 => NameChange::Replace(g.keyspace(), writes(g)),
            _ => NameChange::Write(g.keyspace(), g.write()),
        };
        (0..self.choices.usize(1..5)).map(|_| one(self)).collect()
    }

    /// Returns an ingest of sorted pairs without duplicates.
    pub(super) fn ingest(&mut self) -> Op {
        let no = self.keyspace();
        let n = if self.one_in(4) { self.choices.usize(20..60) } else { self.choices.usize(0..8) };
        let pairs: BTreeMap<_, _> = (0..n).map(|_| (self.key(), self.value())).collect();
        Op::Ingest(no, pairs.into_iter().collect())
    }

    /// Returns a large batch, which gets log segments of its own.
    pub(super) fn bulk(&mut self) -> Vec<(KeyspaceNo, Write)> {
        let one = |g: &mut Self| {
            let len = g.choices.u32(80_000..100_000);
            (g.keyspace(), Write::Put(g.key(), g.stamped(len)))
        };
        (0..14).map(|_| one(self)).collect()
    }

    pub(super) fn durability(&mut self) -> Durability {
        [Durability::Sync, Durability::Buffered, Durability::None][self.choices.usize(0..3)]
    }
}
