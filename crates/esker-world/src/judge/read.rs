//! Compares all kinds of reads, of the newest state, a snapshot or a transaction, with the model.
//!
//! Errors are returned to the caller; wrong answers panic.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use esker::{Cursor, Db, Keyspace, Past, Range, Result, Snapshot, Transaction, Ttl, Value};

use super::walk::{HeldCursor, is_entry, shown, slice, take};
use crate::model::keys::{self, KeyBounds, KeyNo, bounds, key};
use crate::model::map::Map;
use crate::model::state::Contents;
use crate::model::values::ValueNo;
use crate::op::Read;

/// The keyspace in which `esker-shared` keeps records of guests' commits.
pub(crate) const RECORDS: &str = "esker.shared";

/// The view that is read.
pub(crate) enum Source<'a> {
    Latest(&'a Keyspace),
    Snapshot(&'a Snapshot, &'a Keyspace),
    Transaction(&'a Transaction, &'a Keyspace),
    Past(&'a Past),
}

use Source::{Latest, Past as Then, Snapshot as At, Transaction as Within};

type ByteBounds = (Bound<&'static [u8]>, Bound<&'static [u8]>);

impl Source<'_> {
    /// Returns the entries of a range.
    pub(crate) fn range(&self, bounds: ByteBounds) -> Range {
        match self {
            Latest(keyspace) => keyspace.range(bounds),
            At(snapshot, keyspace) => snapshot.range(keyspace, bounds),
            Within(transaction, keyspace) => transaction.range(keyspace, bounds),
            Then(past) => past.range(bounds),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> Range {
        match self {
            Latest(keyspace) => keyspace.prefix(prefix),
            At(snapshot, keyspace) => snapshot.prefix(keyspace, prefix),
            Within(transaction, keyspace) => transaction.prefix(keyspace, prefix),
            Then(past) => past.prefix(prefix),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Latest(keyspace) => keyspace.get(key),
            At(snapshot, keyspace) => snapshot.get(keyspace, key),
            Within(transaction, keyspace) => transaction.get(keyspace, key),
            Then(past) => past.get(key),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Latest(keyspace) => keyspace.contains(key),
            At(snapshot, keyspace) => snapshot.contains(keyspace, key),
            Within(transaction, keyspace) => transaction.contains(keyspace, key),
            Then(past) => past.contains(key),
        }
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        match self {
            Latest(keyspace) => keyspace.multi_get(keys),
            At(snapshot, keyspace) => snapshot.multi_get(keyspace, keys),
            Within(..) => keys.iter().map(|key| self.get(key)).collect(),
            Then(past) => past.multi_get(keys),
        }
    }

    fn len(&self) -> Result<u64> {
        match self {
            Latest(keyspace) => keyspace.len(),
            At(snapshot, keyspace) => snapshot.len(keyspace),
            Within(transaction, keyspace) => transaction.len(keyspace),
            Then(past) => past.len(),
        }
    }

    pub(crate) fn cursor(&self) -> Option<Result<Cursor>> {
        match self {
            Latest(keyspace) => Some(keyspace.cursor()),
            At(snapshot, keyspace) => Some(snapshot.cursor(keyspace)),
            Within(..) => None,
            Then(past) => Some(past.cursor()),
        }
    }
}

/// An iterator held while the database changes. It must show the state in which it was created.
pub(crate) struct HeldIterator {
    db: Range,
    rest: VecDeque<(KeyNo, ValueNo)>,
    /// Expiry times of its entries.
    until: BTreeMap<KeyNo, u64>,
}

impl HeldIterator {
    /// Takes a new iterator over `bounds` of `map`.
    pub(crate) fn new(db: Range, map: &Map, bounds: KeyBounds) -> Self {
        HeldIterator { db, rest: slice(map, bounds), until: map.until().clone() }
    }

    /// Removes entries that have expired by `now_ms`.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        self.rest.retain(|(key, _)| self.until.get(key).is_none_or(|until| *until > now_ms));
    }

    /// Takes one entry from the front or the back.
    pub(crate) fn take(&mut self, back: bool) -> Result<()> {
        take(&mut self.db, &mut self.rest, back).map(drop)
    }
}

/// Returns a read of all entries, from both ends in turn.
pub fn everything() -> Read {
    Read::Range {
        bounds: (Bound::Unbounded, Bound::Unbounded),
        takes: vec![true, false, true],
        keys_only: false,
    }
}

/// Performs a read and compares its result. `has_expired` says whether unswept expired entries may exist.
pub(crate) fn check_read(source: &Source<'_>, map: &Map, read: &Read, has_expired: bool) -> Result<()> {
    let expected = |no: &KeyNo| map.entries().get(no).copied();
    let agrees = |found: &Option<Value>, expected: Option<ValueNo>| match (found, expected) {
        (Some(found), Some(expected)) => expected.is(found),
        (found, expected) => found.is_none() && expected.is_none(),
    };
    match read {
        Read::Get(no) => {
            let (found, expected) = (source.get(key(*no))?, expected(no));
            assert!(agrees(&found, expected), "world.1: get {no:?}: {found:?}, expected {expected:?}");
        }
        Read::Contains(no) => {
            assert_eq!(source.contains(key(*no))?, expected(no).is_some(), "world.1: contains {no:?}");
        }
        Read::MultiGet(nos) => {
            let keys: Vec<_> = nos.iter().map(|no| key(*no)).collect();
            let found = source.multi_get(&keys)?;
            let agree = found.iter().zip(nos).all(|(found, no)| agrees(found, expected(no)));
            assert!(agree && found.len() == nos.len(), "world.1: multi_get {nos:?}: {found:?}");
        }
        Read::Ends => {
            let everything = (Bound::Unbounded, Bound::Unbounded);
            let (first, last) = (map.entries().first_key_value(), map.entries().last_key_value());
            for (entry, expected) in [
                (source.range(everything).next().transpose()?, first),
                (source.range(everything).next_back().transpose()?, last),
            ] {
                let expected = expected.map(|(k, v)| (*k, *v));
                let is_right = is_entry(&entry, expected);
                assert!(is_right, "world.1: an end: {}, expected {expected:?}", shown(&entry));
            }
        }
        Read::Len => {
            // Expired entries count until they are swept.
            let (len, exact) = (source.len()?, map.entries().len() as u64);
            assert!(len == exact || has_expired && len > exact, "world.1: len {len}, not {exact}");
        }
        Read::Range { bounds: range, takes, keys_only: false } => {
            let (mut found, mut expected) = (source.range(bounds(*range)), slice(map, *range));
            for back in takes {
                take(&mut found, &mut expected, *back)?;
            }
            while take(&mut found, &mut expected, false)? {}
        }
        Read::Range { bounds: range, takes, keys_only: true } => check_keys(source, map, *range, takes)?,
        Read::Prefix { key: no, len, backwards } => {
            let prefix = &key(*no)[..key(*no).len().min(usize::from(*len))];
            let mut expected = slice(map, (Bound::Unbounded, Bound::Unbounded));
            expected.retain(|(no, _)| key(*no).starts_with(prefix));
            let mut found = source.prefix(prefix);
            while take(&mut found, &mut expected, *backwards)? {}
        }
        Read::Cursor(moves) => {
            if let Some(cursor) = source.cursor() {
                HeldCursor::new(cursor?, map).go(moves)?;
            }
        }
    }
    Ok(())
}

/// Compares the keys of a range, which it takes from the front (`false`) and the back (`true`).
fn check_keys(source: &Source<'_>, map: &Map, range: KeyBounds, takes: &[bool]) -> Result<()> {
    let (mut found, mut expected) = (source.range(bounds(range)).keys(), slice(map, range));
    let rest = std::iter::repeat_n(&false, expected.len() + 1);
    for back in takes.iter().chain(rest) {
        let (found, expected) = match back {
            false => (found.next().transpose()?, expected.pop_front()),
            true => (found.next_back().transpose()?, expected.pop_back()),
        };
        let agree = found.as_deref() == expected.map(|(no, _)| key(no));
        assert!(agree, "world.1: keys: {found:?}, expected {expected:?}");
    }
    Ok(())
}

/// Returns the contents of a database; see [`contents_of`].
///
/// # Errors
/// Those of the calls.
pub fn contents(db: &Db, thorough: bool) -> Result<Contents> {
    contents_with(db, thorough, true, None)
}

/// Does the same. `is_swept` says that no expired entry counts. With `now_ms`, the engine's time, expiry
/// times are read, too.
pub(crate) fn contents_with(
    db: &Db,
    thorough: bool,
    is_swept: bool,
    now_ms: Option<u64>,
) -> Result<Contents> {
    let one = |name: String| {
        let keyspace = db.open_keyspace(&name)?;
        let mut map = content(&keyspace, thorough, is_swept)?;
        if let Some(now_ms) = now_ms {
            for no in map.entries().keys().copied().collect::<Vec<_>>() {
                if let Some(Ttl::Left(left)) = keyspace.ttl(key(no))? {
                    map.set_until(no, now_ms + left.as_millis() as u64);
                }
            }
        }
        Ok((name, map))
    };
    // The records of guests' commits are not in the model.
    db.keyspaces()?.into_iter().filter(|name| name != RECORDS).map(one).collect()
}

/// Returns the contents of a keyspace. With `thorough`, also reads backwards, without values, and key by key,
/// and compares.
///
/// # Errors
/// Those of the calls.
///
/// # Panics
/// If the results differ, or there is a key or value that no model contains.
pub fn contents_of(keyspace: &Keyspace, thorough: bool) -> Result<Map> {
    content(keyspace, thorough, true)
}

fn content(keyspace: &Keyspace, thorough: bool, is_swept: bool) -> Result<Map> {
    let map = read_all(keyspace, is_swept)?;
    if thorough {
        let source = Source::Latest(keyspace);
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut backwards = slice(&map, all);
        let mut found = keyspace.iter();
        while take(&mut found, &mut backwards, true)? {}
        check_read(&source, &map, &Read::Range { bounds: all, takes: Vec::new(), keys_only: true }, false)?;
        for no in map.entries().keys() {
            check_read(&source, &map, &Read::Get(*no), false)?;
        }
    }
    Ok(map)
}

/// Reads the entries of a keyspace and compares their number with its length.
fn read_all(keyspace: &Keyspace, is_swept: bool) -> Result<Map> {
    let mut map = Map::default();
    let mut last = None;
    for entry in keyspace.iter() {
        let (k, v) = entry?;
        let no = keys::find(&k).unwrap_or_else(|| panic!("world.1: unknown key {}", k.escape_ascii()));
        assert!(last < Some(no), "world.1: keys ascend");
        last = Some(no);
        let value = ValueNo::parse(&v);
        map.put(no, value.unwrap_or_else(|| panic!("world.1: unknown value of {}", k.escape_ascii())));
    }
    let (len, exact) = (keyspace.len()?, map.entries().len() as u64);
    assert!(len == exact || !is_swept && len > exact, "world.1: len is exact: {len}, not {exact}");
    Ok(map)
}
