//! Every way to read, from the newest state, a snapshot or a transaction, compared with the model's map.

use std::ops::Bound;

use esker::{Cursor, Keyspace, Range, Result, Snapshot, Transaction, Value};

use super::keys::{bounds, key};
use super::op::{Move, Read};
use super::state::{Bounds, Map, slice};

/// Who reads.
pub enum Source<'a> {
    Latest(&'a Keyspace),
    Snapshot(&'a Snapshot, &'a Keyspace),
    Transaction(&'a Transaction, &'a Keyspace),
}

use Source::{Latest, Snapshot as At, Transaction as Within};

impl Source<'_> {
    /// The entries of a range.
    pub fn range(&self, bounds: Bounds) -> Range {
        match self {
            Latest(keyspace) => keyspace.range(bounds),
            At(snapshot, keyspace) => snapshot.range(keyspace, bounds),
            Within(transaction, keyspace) => transaction.range(keyspace, bounds),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> Range {
        match self {
            Latest(keyspace) => keyspace.prefix(prefix),
            At(snapshot, keyspace) => snapshot.prefix(keyspace, prefix),
            Within(transaction, keyspace) => transaction.prefix(keyspace, prefix),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Latest(keyspace) => keyspace.get(key),
            At(snapshot, keyspace) => snapshot.get(keyspace, key),
            Within(transaction, keyspace) => transaction.get(keyspace, key),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Latest(keyspace) => keyspace.contains(key),
            At(snapshot, keyspace) => snapshot.contains(keyspace, key),
            Within(transaction, keyspace) => transaction.contains(keyspace, key),
        }
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Value>>> {
        match self {
            Latest(keyspace) => keyspace.multi_get(keys),
            At(snapshot, keyspace) => snapshot.multi_get(keyspace, keys),
            Within(..) => keys.iter().map(|key| self.get(key)).collect(),
        }
    }

    fn len(&self) -> Result<u64> {
        match self {
            Latest(keyspace) => keyspace.len(),
            At(snapshot, keyspace) => snapshot.len(keyspace),
            Within(transaction, keyspace) => Ok(transaction.iter(keyspace).count() as u64),
        }
    }

    fn ends(&self) -> [Option<Entry>; 2] {
        let (first, last) = match self {
            Latest(keyspace) => (keyspace.first(), keyspace.last()),
            At(snapshot, keyspace) => (snapshot.first(keyspace), snapshot.last(keyspace)),
            Within(transaction, keyspace) => (
                transaction.iter(keyspace).next().transpose(),
                transaction.iter(keyspace).next_back().transpose(),
            ),
        };
        [first, last].map(|entry| entry.expect("first, last").map(owned))
    }

    fn cursor(&self) -> Option<Result<Cursor>> {
        match self {
            Latest(keyspace) => Some(keyspace.cursor()),
            At(snapshot, keyspace) => Some(snapshot.cursor(keyspace)),
            Within(..) => None,
        }
    }
}

type Entry = (Vec<u8>, Vec<u8>);

fn owned((key, value): (esker::Key, Value)) -> Entry {
    (key.to_vec(), value.to_vec())
}

fn entry((key, value): (&[u8], &[u8])) -> Entry {
    (key.to_vec(), value.to_vec())
}

/// Reads all entries, from both ends in turn.
pub fn everything() -> Read {
    Read::Range {
        bounds: (Bound::Unbounded, Bound::Unbounded),
        takes: vec![true, false, true],
        keys_only: false,
    }
}

/// Does one read and compares.
pub fn check_read(source: &Source<'_>, map: &Map, read: &Read) {
    let of_map = |k: &Vec<u8>| map.get(k).map(|v| v.to_vec());
    match read {
        Read::Get(k) => {
            let found = source.get(&key(*k)).expect("get").map(|v| v.to_vec());
            assert_eq!(found, of_map(&key(*k)), "get");
        }
        Read::Contains(k) => {
            assert_eq!(source.contains(&key(*k)).expect("contains"), map.contains_key(&key(*k)), "contains");
        }
        Read::MultiGet(nos) => {
            let keys: Vec<_> = nos.iter().map(|k| key(*k)).collect();
            let found = source.multi_get(&keys).expect("multi_get");
            let found: Vec<_> = found.into_iter().map(|v| v.map(|v| v.to_vec())).collect();
            assert_eq!(found, keys.iter().map(of_map).collect::<Vec<_>>(), "multi_get");
        }
        Read::First | Read::Last => {
            let ends = [map.first_key_value(), map.last_key_value()];
            assert_eq!(
                source.ends(),
                ends.map(|e| e.map(|(k, v)| (k.clone(), v.to_vec()))),
                "first and last"
            );
        }
        Read::Len => assert_eq!(source.len().expect("len"), map.len() as u64, "len"),
        Read::Range { bounds: range, takes, keys_only } => {
            let expected = slice(map, &bounds(*range)).into_iter().map(entry);
            let range = source.range(bounds(*range));
            match keys_only {
                false => check_walk(range.map(|e| e.map(owned)), expected, takes),
                true => check_walk(range.keys().map(|k| k.map(|k| k.to_vec())), expected.map(|e| e.0), takes),
            }
        }
        Read::Prefix { key: k, len, backwards } => {
            let mut prefix = key(*k);
            prefix.truncate(usize::from(*len));
            let expected = slice(map, &(Bound::Unbounded, Bound::Unbounded)).into_iter().map(entry);
            let expected: Vec<_> = expected.filter(|(k, _)| k.starts_with(&prefix)).collect();
            let takes = vec![*backwards; expected.len() + 1];
            check_walk(source.prefix(&prefix).map(|e| e.map(owned)), expected.into_iter(), &takes);
        }
        Read::Cursor(moves) => {
            if let Some(cursor) = source.cursor() {
                check_cursor(cursor.expect("cursor"), map, moves);
            }
        }
    }
}

/// Takes as told from both ends, then the rest from the front; both must agree all the way and then end.
fn check_walk<T: PartialEq + std::fmt::Debug>(
    mut found: impl DoubleEndedIterator<Item = Result<T>>,
    mut expected: impl DoubleEndedIterator<Item = T>,
    takes: &[bool],
) {
    for (step, back) in takes.iter().enumerate() {
        let (found, expected) = match back {
            false => (found.next(), expected.next()),
            true => (found.next_back(), expected.next_back()),
        };
        assert_eq!(found.map(|e| e.expect("walk")), expected, "walk, step {step} of {takes:?}");
    }
    let found: Vec<_> = found.map(|e| e.expect("walk")).collect();
    assert_eq!(found, expected.collect::<Vec<_>>(), "the rest of a walk after {takes:?}");
}

fn check_cursor(mut cursor: Cursor, map: &Map, moves: &[Move]) {
    let entries: Vec<_> = map.iter().collect();
    let rank = |key: &[u8]| entries.partition_point(|(k, _)| &k[..] < key);
    let mut at: Option<usize> = None;
    for (step, move_) in moves.iter().enumerate() {
        let (done, to) = match move_ {
            Move::Seek(k) => (cursor.seek(key(*k)), Some(rank(&key(*k)))),
            Move::SeekBefore(k) => (cursor.seek_before(key(*k)), rank(&key(*k)).checked_sub(1)),
            Move::First => (cursor.seek_first(), Some(0)),
            Move::Last => (cursor.seek_last(), entries.len().checked_sub(1)),
            Move::Next | Move::Prev if at.is_none() => continue,
            Move::Next => (cursor.next(), at.map(|i| i + 1)),
            Move::Prev => (cursor.prev(), at.and_then(|i| i.checked_sub(1))),
        };
        done.expect("move a cursor");
        at = to.filter(|&i| i < entries.len());
        assert_eq!(cursor.valid(), at.is_some(), "cursor, step {step}: {move_:?}");
        if let Some(i) = at {
            assert_eq!(
                (cursor.key(), cursor.value()),
                (&entries[i].0[..], &entries[i].1[..]),
                "cursor, step {step}"
            );
        }
    }
}
