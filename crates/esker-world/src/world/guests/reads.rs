//! Reads of a guest, compared with the model.

use std::collections::VecDeque;
use std::ops::Bound;

use esker::Value;
use esker_shared::{Result, SharedKeyspace, SharedRange, SharedTransaction};

use crate::judge::walk::{is_entry, shown, slice};
use crate::model::keys::{KeyNo, bounds, key};
use crate::model::map::Map;
use crate::model::values::ValueNo;
use crate::op::Read;

/// The view that a guest reads.
pub(super) enum Source<'a> {
    Latest(&'a SharedKeyspace),
    Within(&'a SharedTransaction, &'a SharedKeyspace),
}

impl Source<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        match self {
            Source::Latest(keyspace) => keyspace.get(key),
            Source::Within(transaction, keyspace) => transaction.get(keyspace, key),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        match self {
            Source::Latest(keyspace) => keyspace.contains(key),
            Source::Within(transaction, keyspace) => transaction.contains(keyspace, key),
        }
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        match self {
            Source::Latest(keyspace) => keyspace.multi_get(keys),
            Source::Within(transaction, keyspace) => transaction.multi_get(keyspace, keys),
        }
    }

    fn len(&self) -> Result<u64> {
        match self {
            Source::Latest(keyspace) => keyspace.len(),
            Source::Within(transaction, keyspace) => transaction.len(keyspace),
        }
    }

    fn prefix(&self, prefix: &[u8]) -> SharedRange {
        match self {
            Source::Latest(keyspace) => keyspace.prefix(prefix),
            Source::Within(transaction, keyspace) => transaction.prefix(keyspace, prefix),
        }
    }

    fn range(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> SharedRange {
        match self {
            Source::Latest(keyspace) => keyspace.range(bounds),
            Source::Within(transaction, keyspace) => transaction.range(keyspace, bounds),
        }
    }
}

/// Performs a read and compares its result. `has_expired` says whether unswept expired entries may exist.
pub(super) fn check_read(source: &Source<'_>, map: &Map, read: &Read, has_expired: bool) -> Result<()> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let expected = |no: &KeyNo| map.entries().get(no).copied();
    let agrees = |found: &Option<Value>, no| match (found, expected(no)) {
        (Some(found), Some(expected)) => expected.is(found),
        (found, expected) => found.is_none() && expected.is_none(),
    };
    match read {
        Read::Get(no) => {
            let found = source.get(key(*no))?;
            assert!(agrees(&found, no), "world.12: get {no:?}: {found:?}, expected {:?}", expected(no));
        }
        Read::Contains(no) => {
            assert_eq!(source.contains(key(*no))?, expected(no).is_some(), "world.12: contains {no:?}");
        }
        Read::MultiGet(nos) => {
            let keys: Vec<_> = nos.iter().map(|no| key(*no)).collect();
            let found = source.multi_get(&keys)?;
            let agree = found.iter().zip(nos).all(|(found, no)| agrees(found, no));
            assert!(agree && found.len() == nos.len(), "world.12: multi_get {nos:?}: {found:?}");
        }
        Read::Len => {
            let (len, exact) = (source.len()?, map.entries().len() as u64);
            assert!(len == exact || has_expired && len > exact, "world.12: len {len}, not {exact}");
        }
        Read::Range { bounds: range, takes, .. } => {
            walk(source.range(bounds(*range)), slice(map, *range), takes)?;
        }
        Read::Ends => walk(source.range(bounds(all)), slice(map, all), &[false, true])?,
        Read::Prefix { key: no, len, backwards } => {
            let prefix = &key(*no)[..key(*no).len().min(usize::from(*len))];
            let mut expected = slice(map, all);
            expected.retain(|(no, _)| key(*no).starts_with(prefix));
            let takes = vec![*backwards; expected.len()];
            walk(source.prefix(prefix), expected, &takes)?;
        }
        Read::Cursor(_) => {}
    }
    Ok(())
}

/// Takes entries of a range from the front (`false`) and the back (`true`), then all others from the front.
fn walk(mut found: SharedRange, mut expected: VecDeque<(KeyNo, ValueNo)>, takes: &[bool]) -> Result<()> {
    let rest = std::iter::repeat_n(&false, expected.len() + 1);
    for back in takes.iter().chain(rest) {
        let (entry, expected) = match back {
            false => (found.next().transpose()?, expected.pop_front()),
            true => (found.next_back().transpose()?, expected.pop_back()),
        };
        assert!(is_entry(&entry, expected), "world.12: walk: {}, expected {expected:?}", shown(&entry));
    }
    Ok(())
}
