//! Compares iterators from both ends and cursors with the model, step by step.

use std::collections::{BTreeMap, VecDeque};

use esker::{Cursor, Key, Range, Result, Value};

use crate::model::keys::{self, KeyBounds, KeyNo, key};
use crate::model::map::Map;
use crate::model::values::ValueNo;
use crate::op::Move;

/// Returns the model's entries within bounds.
pub(crate) fn slice(map: &Map, bounds: KeyBounds) -> VecDeque<(KeyNo, ValueNo)> {
    let range = keys::range(bounds);
    range.map(|range| map.entries().range(range).map(|(k, v)| (*k, *v)).collect()).unwrap_or_default()
}

/// Returns whether an entry equals the model's.
pub(crate) fn is_entry(found: &Option<(Key, Value)>, expected: Option<(KeyNo, ValueNo)>) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some((k, v)), Some((key_no, value))) => &k[..] == key(key_no) && value.is(v),
        _ => false,
    }
}

/// Formats an entry for messages.
pub(crate) fn shown(found: &Option<(Key, Value)>) -> String {
    let text = |(k, v): &(Key, Value)| {
        let start = k[..k.len().min(40)].escape_ascii();
        format!("{start} = {} bytes, {:?}", v.len(), ValueNo::parse(v))
    };
    found.as_ref().map_or("none".to_owned(), text)
}

/// Takes an entry from one end of an iterator and of the model, and compares.
pub(crate) fn take(found: &mut Range, expected: &mut VecDeque<(KeyNo, ValueNo)>, back: bool) -> Result<bool> {
    let (entry, expected) = match back {
        false => (found.next().transpose()?, expected.pop_front()),
        true => (found.next_back().transpose()?, expected.pop_back()),
    };
    assert!(
        is_entry(&entry, expected),
        "world.1: walk, from the back {back}: {}, expected {expected:?}",
        shown(&entry)
    );
    Ok(entry.is_some())
}

/// A cursor and its expected position. It must show the state in which it was created.
pub(crate) struct HeldCursor {
    db: Cursor,
    entries: Vec<(KeyNo, ValueNo)>,
    /// Expiry times of its entries.
    until: BTreeMap<KeyNo, u64>,
    /// `None` if the cursor is not valid.
    at: Option<usize>,
    /// Whether the last move went backwards; `None` before the first.
    back: Option<bool>,
}

impl HeldCursor {
    /// Takes a new cursor over `map`.
    pub(crate) fn new(db: Cursor, map: &Map) -> Self {
        let entries = map.entries().iter().map(|(k, v)| (*k, *v)).collect();
        HeldCursor { db, entries, until: map.until().clone(), at: None, back: None }
    }

    /// Removes entries that have expired by `now_ms`. Returns false if the cursor stands on one.
    pub(crate) fn expire(&mut self, now_ms: u64) -> bool {
        let is_gone = |key: &KeyNo| self.until.get(key).is_some_and(|until| *until <= now_ms);
        if let Some(at) = self.at {
            if is_gone(&self.entries[at].0) {
                return false;
            }
            self.at = Some(at - self.entries[..at].iter().filter(|(key, _)| is_gone(key)).count());
        }
        let until = &self.until;
        self.entries.retain(|(key, _)| until.get(key).is_none_or(|until| *until > now_ms));
        true
    }

    /// Moves the cursor. After an error it is invalid until a seek succeeds. Returns whether the first step
    /// changed direction.
    pub(crate) fn go(&mut self, moves: &[Move]) -> Result<bool> {
        let is_turn = match moves {
            [step @ (Move::Next | Move::Prev), ..] if self.at.is_some() => {
                self.back != Some(leads_back(step))
            }
            _ => false,
        };
        for (step, move_) in moves.iter().enumerate() {
            let from = self.at.take();
            let to = self.ask(move_, from);
            assert!(
                to.is_ok() || !self.db.valid(),
                "world.1: cursor, step {step}: {move_:?} fails, and it is valid"
            );
            self.at = to?.filter(|&i| i < self.entries.len());
            assert_eq!(self.db.valid(), self.at.is_some(), "world.1: cursor, step {step}: {move_:?}");
            if let Some(i) = self.at {
                let (no, value) = self.entries[i];
                // The value may be in a blob file. If that cannot be read, the cursor keeps its position.
                let found = self.db.value()?;
                assert!(
                    self.db.key() == key(no) && value.is(found),
                    "world.1: cursor, step {step}: {move_:?} to {} = {:?}, expected {no:?} = {value:?}",
                    self.db.key().escape_ascii(),
                    ValueNo::parse(found)
                );
            }
        }
        Ok(is_turn)
    }

    /// Performs a move. Returns the expected position.
    fn ask(&mut self, move_: &Move, from: Option<usize>) -> Result<Option<usize>> {
        let rank = |key: KeyNo| self.entries.partition_point(|(k, _)| *k < key);
        let (len, db) = (self.entries.len(), &mut self.db);
        let to = match move_ {
            Move::Seek(no) => db.seek(key(*no)).map(|_| Some(rank(*no)))?,
            Move::SeekBefore(no) => db.seek_before(key(*no)).map(|_| rank(*no).checked_sub(1))?,
            Move::Next if from.is_none() => db.seek_first().map(|_| Some(0))?,
            Move::Prev if from.is_none() => db.seek_last().map(|_| len.checked_sub(1))?,
            Move::First => db.seek_first().map(|_| Some(0))?,
            Move::Last => db.seek_last().map(|_| len.checked_sub(1))?,
            Move::Next => db.next().map(|_| from.map(|i| i + 1))?,
            Move::Prev => db.prev().map(|_| from.and_then(|i| i.checked_sub(1)))?,
        };
        self.back = Some(leads_back(move_));
        Ok(to)
    }
}

/// Returns whether the next step backwards continues a move.
fn leads_back(move_: &Move) -> bool {
    matches!(move_, Move::Prev | Move::SeekBefore(_) | Move::Last)
}
