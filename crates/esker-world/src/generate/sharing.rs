//! Generates what concerns several writers: events of guests, exclusive transactions, and full disks.
//!
//! Each kind occurs at a fixed stride in seeds that have it, so it does not change the other operations.

use super::Generator;
use crate::model::values::ValueNo;
use crate::op::{Crowd, GuestEvent, KeyspaceNo, Op, Write};

/// Strides of the kinds, and their positions within the stride.
const GUESTS_STRIDE: usize = 7;
const GUESTS_AT: usize = 4;
const EXCLUSIVE_STRIDE: usize = 19;
const EXCLUSIVE_AT: usize = 8;
const TURNS_STRIDE: usize = 61;
const TURNS_AT: usize = 30;
const CROWD_STRIDE: usize = 151;
const CROWD_AT: usize = 70;

impl Generator<'_> {
    /// Returns the operation due now, if any.
    pub(super) fn sharing_that_is_due(&mut self) -> Option<Op> {
        let made = self.made;
        match () {
            () if self.features.crowds && made % CROWD_STRIDE == CROWD_AT => Some(Op::Crowd(self.crowd())),
            () if self.features.exclusive && made % TURNS_STRIDE == TURNS_AT => {
                let writes = [(); 3].map(|()| Write::Put(self.key(), self.value()));
                Some(Op::TakeTurns(self.keyspace(), writes))
            }
            () if self.features.exclusive && made % EXCLUSIVE_STRIDE == EXCLUSIVE_AT => {
                Some(Op::BeginExclusive(self.slot()))
            }
            () if self.features.guests && made % GUESTS_STRIDE == GUESTS_AT => {
                Some(Op::Guest(self.guest_event()))
            }
            () => None,
        }
    }

    fn guest_event(&mut self) -> GuestEvent {
        // An update has about four requests.
        match self.choices.u8(0..10) {
            0..2 => GuestEvent::LoseRequest(self.choices.u32(0..4)),
            2..5 => GuestEvent::LoseReply(self.choices.u32(0..4)),
            5..8 => GuestEvent::Delay(self.choices.u32(0..4)),
            8 => GuestEvent::Kill,
            _ => GuestEvent::TakeOver,
        }
    }

    /// Returns large commits, and removals of all that they may have put.
    fn crowd(&mut self) -> Crowd {
        let most = [200_000, 800_000][self.choices.usize(0..2)];
        let bytes = self.choices.u32(60_000..most);
        let mut fills = Vec::new();
        for _ in 0..self.choices.usize(4..12) {
            self.fill(&mut fills);
        }
        let mut empties = Vec::new();
        let (slot, no) = (self.slot(), self.keyspace());
        match self.choices.u8(0..3) {
            // Too many for the memory of a transaction.
            0 => {
                empties.push(Op::Begin(slot));
                for _ in 0..self.choices.usize(40..120) {
                    empties.push(Op::TransactionWrite(slot, no, Write::Remove(self.key())));
                }
                empties.push(Op::Commit(slot, self.durability()));
            }
            1 => {
                let removals = (0..20).map(|_| (no, Write::Remove(self.key()))).collect();
                empties.push(Op::Batch(removals, self.durability()));
            }
            _ => empties.push(Op::Write(no, Write::RemoveRange(self.bounds()))),
        }
        empties.push(Op::Write(KeyspaceNo(0), Write::Clear));
        Crowd { bytes, fills, empties, stays: self.one_in(3) }
    }

    /// Adds the operations of a large commit.
    fn fill(&mut self, fills: &mut Vec<Op>) {
        let (slot, no) = (self.slot(), self.keyspace());
        let puts: Vec<_> = (0..self.choices.usize(3..8)).map(|_| (self.key(), self.large())).collect();
        match self.choices.u8(0..3) {
            0 => {
                let mut pairs = puts;
                pairs.sort_by_key(|(key, _)| *key);
                pairs.dedup_by_key(|(key, _)| *key);
                fills.push(Op::Ingest(no, pairs));
            }
            1 => {
                let writes = puts.into_iter().map(|(key, value)| (no, Write::Put(key, value))).collect();
                fills.push(Op::Batch(writes, self.durability()));
            }
            _ => {
                fills.push(Op::Begin(slot));
                let writes = puts.into_iter().map(|(key, value)| Write::Put(key, value));
                fills.extend(writes.map(|write| Op::TransactionWrite(slot, no, write)));
                fills.push(Op::Commit(slot, self.durability()));
            }
        }
    }

    fn large(&mut self) -> ValueNo {
        let len = self.choices.u32(5_000..40_000);
        self.stamped(len)
    }
}
