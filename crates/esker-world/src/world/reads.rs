//! Reads of the newest state, snapshots and transactions, and iterators and cursors held across operations.

use std::sync::Arc;

use super::World;
use super::faults::{attempt, is_panic};
use crate::judge::read::{HeldIterator, Source, check_read};
use crate::judge::walk::HeldCursor;
use crate::model::keys::{KeyBounds, bounds};
use crate::model::map::Map;
use crate::model::state::Id;
use crate::op::{KeyspaceNo, Move, Read, Reader};
use esker::Keyspace;

impl World {
    pub(super) fn read_view(&mut self, reader: Reader, no: KeyspaceNo, read: &Read) {
        let (id, keyspace) = self.pick(no);
        let (source, map) = self.source(reader, &keyspace, id);
        let found = attempt(|| check_read(&source, &map, read, self.expires));
        self.note_read(reader, id, read, found.is_ok());
        self.read(found);
    }

    pub(super) fn iterate(&mut self, slot: usize, reader: Reader, no: KeyspaceNo, range: KeyBounds) {
        let (id, keyspace) = self.pick(no);
        let (source, map) = self.source(reader, &keyspace, id);
        let held = HeldIterator::new(source.range(bounds(range)), &map, range);
        self.held.iterators[slot] = Some(held);
        self.note_read(reader, id, &Read::Ends, true);
    }

    pub(super) fn iterate_on(&mut self, slot: usize, takes: &[bool]) {
        if let Some(mut iterator) = self.held.iterators[slot].take() {
            let taken = attempt(|| takes.iter().try_for_each(|back| iterator.take(*back)));
            if self.read(taken).is_some() {
                self.held.iterators[slot] = Some(iterator);
            }
        }
    }

    pub(super) fn move_cursor(&mut self, slot: usize, moves: &[Move]) {
        if self.held.cursors[slot].is_none() {
            self.hold_cursor(slot, Reader::Latest, KeyspaceNo(0));
        }
        if let Some(mut cursor) = self.held.cursors[slot].take() {
            let moved = attempt(|| cursor.go(moves));
            // After a panic, its position is unknown.
            let is_lost = moved.as_ref().is_err_and(is_panic);
            self.tally.turns += u64::from(self.read(moved).unwrap_or(false));
            self.held.cursors[slot] = Some(cursor).filter(|_| !is_lost);
        }
    }

    pub(super) fn hold_cursor(&mut self, slot: usize, reader: Reader, no: KeyspaceNo) {
        let (id, keyspace) = self.pick(no);
        let (source, map) = self.source(reader, &keyspace, id);
        // Transactions have no cursors.
        let held = attempt(|| source.cursor().transpose());
        let held = held.transpose().map(|made| made.map(|cursor| HeldCursor::new(cursor, &map)));
        self.held.cursors[slot] = held.and_then(|made| self.read(made));
    }

    pub(super) fn note_read(&mut self, reader: Reader, id: Id, read: &Read, is_answered: bool) {
        if let Reader::Transaction(slot) = reader
            && let Some(transaction) = &mut self.held.transactions[slot]
        {
            transaction.note_read(id, read, is_answered);
        }
    }

    pub(super) fn source<'a>(
        &'a self,
        reader: Reader,
        keyspace: &'a Keyspace,
        id: Id,
    ) -> (Source<'a>, Arc<Map>) {
        let held = match reader {
            Reader::Latest => None,
            Reader::Snapshot(slot) => {
                let held = self.held.snapshots[slot].as_ref();
                held.map(|(snapshot, state)| (Source::Snapshot(snapshot, keyspace), state.map(id)))
            }
            Reader::Transaction(slot) => {
                let held = self.held.transactions[slot].as_ref();
                held.map(|held| (Source::Transaction(&held.db, keyspace), held.state().map(id)))
            }
        };
        held.unwrap_or_else(|| (Source::Latest(keyspace), self.history.newest().map(id)))
    }
}
