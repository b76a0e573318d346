//! Disks that large commits fill up to the reserve, which is for removals.
//!
//! ```text
//!   limit --flush--> the reserve is known --large commits--> NoSpace --removals--> succeed
//! ```
//!
//! A flush may find no space there. Then removals go on until they have filled two memtables, so only
//! removals that fit in one are certain to succeed. Removals of guests are not: they also put a record.

use std::ops::Bound;

use esker_env::Fs;

use super::{DIR, World};
use crate::model::keys::{self, KeyNo};
use crate::model::values::ValueNo;
use crate::op::{Crowd, KeyspaceNo, Op, Write};

/// More than what the record of a removal takes beside its key.
const RECORD_BYTES: usize = 64;

impl World {
    /// Fills the disk and removes, unless something else could fail.
    pub(super) fn crowd(&mut self, crowd: &Crowd) {
        if !self.is_calm() {
            return;
        }
        self.fill_disk(crowd.bytes);
        // The reserve is that of the newest version: this makes one.
        self.step_of_crowd(&Op::Write(KeyspaceNo(0), Write::Put(KeyNo(0), ValueNo::new(8, 0))));
        self.step_of_crowd(&Op::Flush);
        let before = self.tally.refused;
        for op in &crowd.fills {
            self.step_of_crowd(op);
            if self.tally.refused > before {
                break;
            }
        }
        let is_crowded = self.tally.refused > before;
        self.tally.crowded += u64::from(is_crowded);
        let before = self.tally.refused;
        let bytes: usize = crowd.empties.iter().map(removal_bytes).sum();
        // Half of the reserve, which is an eighth of what was free.
        let fits = self.opening().is_some_and(|opening| bytes <= opening.memtable_bytes)
            && bytes as u64 <= u64::from(crowd.bytes) / 16;
        let by_guests = self.tally.by_guests;
        for op in &crowd.empties {
            self.step_of_crowd(op);
            let free = self.machine.disk.free_bytes(DIR.as_ref());
            assert!(
                self.tally.refused == before || !fits || self.tally.by_guests > by_guests,
                "a removal finds no space: {free:?} bytes are free"
            );
        }
        if !crowd.stays {
            self.machine.disk.set_capacity(None);
        }
    }

    fn step_of_crowd(&mut self, op: &Op) {
        self.begin_operation();
        self.dispatch(op);
        // Each makes a commit.
        self.note_moment();
    }
}

/// An upper bound of the memory that the removals of an operation take in a memtable.
fn removal_bytes(op: &Op) -> usize {
    let of_bound = |bound: Bound<&[u8]>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    };
    let of_write = |write: &Write| match write {
        Write::Remove(key) => keys::key(*key).len() + RECORD_BYTES,
        Write::RemoveRange(range) => {
            let (lower, upper) = keys::bounds(*range);
            of_bound(lower) + of_bound(upper) + RECORD_BYTES
        }
        _ => RECORD_BYTES,
    };
    match op {
        Op::Batch(writes, _) => writes.iter().map(|(_, write)| of_write(write)).sum(),
        Op::TransactionWrite(_, _, write) | Op::Write(_, write) => of_write(write),
        _ => 0,
    }
}
