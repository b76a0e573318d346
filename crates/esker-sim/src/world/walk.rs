//! Walks: iterators from both ends, and cursors, compared step by step.

use std::collections::VecDeque;

use esker::{Cursor, Key, Range, Result, Value};

use crate::model::keys::{self, KeyBounds, KeyNo, key};
use crate::model::state::Map;
use crate::model::values::ValueNo;
use crate::op::Move;

/// What a model holds between bounds.
pub(super) fn slice(map: &Map, bounds: KeyBounds) -> VecDeque<(KeyNo, ValueNo)> {
    let range = keys::range(bounds);
    range.map(|range| map.entries().range(range).map(|(k, v)| (*k, *v)).collect()).unwrap_or_default()
}

/// Whether an entry is what the model says.
pub(super) fn is_entry(found: &Option<(Key, Value)>, expected: Option<(KeyNo, ValueNo)>) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some((k, v)), Some((key_no, value))) => &k[..] == key(key_no) && value.is(v),
        _ => false,
    }
}

/// An entry for people.
pub(super) fn shown(found: &Option<(Key, Value)>) -> String {
    let text = |(k, v): &(Key, Value)| {
        let start = k[..k.len().min(40)].escape_ascii();
        format!("{start} = {} bytes, {:?}", v.len(), ValueNo::parse(v))
    };
    found.as_ref().map_or("none".to_owned(), text)
}

/// Takes from one end of an iterator, and the same from the model.
pub(super) fn take(found: &mut Range, expected: &mut VecDeque<(KeyNo, ValueNo)>, back: bool) -> Result<bool> {
    let (entry, expected) = match back {
        false => (found.next().transpose()?, expected.pop_front()),
        true => (found.next_back().transpose()?, expected.pop_back()),
    };
    assert!(
        is_entry(&entry, expected),
        "W1: walk, from the back {back}: {}, expected {expected:?}",
        shown(&entry)
    );
    Ok(entry.is_some())
}

/// Moves a cursor about.
pub(super) fn check_cursor(mut cursor: Cursor, map: &Map, moves: &[Move]) -> Result<()> {
    let entries: Vec<_> = map.entries().iter().collect();
    let rank = |key: KeyNo| entries.partition_point(|(k, _)| **k < key);
    let mut at: Option<usize> = None;
    for (step, move_) in moves.iter().enumerate() {
        let to = match move_ {
            Move::Next | Move::Prev if at.is_none() => continue,
            Move::Seek(no) => cursor.seek(key(*no)).map(|()| Some(rank(*no)))?,
            Move::SeekBefore(no) => cursor.seek_before(key(*no)).map(|()| rank(*no).checked_sub(1))?,
            Move::First => cursor.seek_first().map(|()| Some(0))?,
            Move::Last => cursor.seek_last().map(|()| entries.len().checked_sub(1))?,
            Move::Next => cursor.next().map(|()| at.map(|i| i + 1))?,
            Move::Prev => cursor.prev().map(|()| at.and_then(|i| i.checked_sub(1)))?,
        };
        at = to.filter(|&i| i < entries.len());
        assert_eq!(cursor.valid(), at.is_some(), "W1: cursor, step {step}: {move_:?}");
        if let Some(i) = at {
            let (no, value) = entries[i];
            assert!(
                cursor.key() == key(*no) && value.is(cursor.value()),
                "W1: cursor, step {step}: {move_:?} to {}",
                cursor.key().escape_ascii()
            );
        }
    }
    Ok(())
}
