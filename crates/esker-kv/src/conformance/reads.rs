//! Keys, values, ranges and pages.

use std::ops::Bound;

use super::{Case, Check, entry, holds, said, same};
use crate::{Error, Order, Query, Result, Span, collect, transact};

pub(super) const CHECKS: &[Check] = &[
    ("values", values),
    ("keys-of-all-bytes", keys_of_all_bytes),
    ("ranges", ranges),
    ("pages", pages),
    ("many-keys-at-once", many_keys_at_once),
    ("limits", limits),
];

fn values(case: &Case<'_>) -> Result<(), String> {
    let long = vec![7; 100_000];
    let longest_key = vec![b'k'; case.kv.limits().key_bytes.min(1_000)];
    case.put(&[(b"empty", b""), (b"long", &long), (b"", b"of the empty key"), (&longest_key, b"1")])?;
    let get = |key: &[u8]| said("get", case.kv.get(&case.space, key));
    same("an empty value", get(b"empty")?.as_deref(), Some(&b""[..]))?;
    same("a long value", get(b"long")?.as_deref(), Some(&long[..]))?;
    same("the empty key", get(b"")?.as_deref(), Some(&b"of the empty key"[..]))?;
    same("a long key", get(&longest_key)?.as_deref(), Some(&b"1"[..]))?;
    same("a missing key", get(b"emp")?, None::<bytes::Bytes>)?;
    case.put(&[(b"long", b"short")])?;
    same("a value that was replaced", get(b"long")?.as_deref(), Some(&b"short"[..]))
}

fn keys_of_all_bytes(case: &Case<'_>) -> Result<(), String> {
    let mut keys: Vec<Vec<u8>> =
        (0..=255_u8).flat_map(|byte| [vec![byte], vec![byte, 0], vec![byte, 255]]).collect();
    keys.sort();
    let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[..])).collect();
    case.put(&entries)?;
    let found: Vec<_> = case.all(case.kv)?.into_iter().map(|(key, _)| key.to_vec()).collect();
    same("keys in the order of their bytes", found, keys)
}

fn ranges(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"a", b"1"), (b"b", b"2"), (b"b\0", b"3"), (b"c", b"4"), (b"d", b"5")])?;
    let bounds = [Bound::Unbounded, Bound::Included(&b"b"[..]), Bound::Excluded(&b"b"[..])];
    let uppers = [Bound::Unbounded, Bound::Included(&b"c"[..]), Bound::Excluded(&b"c"[..])];
    for lower in bounds {
        for upper in uppers {
            let span = Span { lower, upper };
            let inside = |key: &[u8]| match (lower, upper) {
                (Bound::Included(from), _) if key < from => false,
                (Bound::Excluded(from), _) if key <= from => false,
                (_, Bound::Included(to)) => key <= to,
                (_, Bound::Excluded(to)) => key < to,
                _ => true,
            };
            let mut expected: Vec<_> =
                [(&b"a"[..], b"1"), (b"b", b"2"), (b"b\0", b"3"), (b"c", b"4"), (b"d", b"5")]
                    .into_iter()
                    .filter(|(key, _)| inside(key))
                    .map(|(key, value)| entry(key, value))
                    .collect();
            let up = said("page", collect(case.kv, &case.space, Query::new(span)))?;
            same(&format!("{span:?} up"), &up, &expected)?;
            let count = said("count", case.kv.count(&case.space, span))?;
            same(&format!("count of {span:?}"), count, expected.len() as u64)?;
            expected.reverse();
            let down = said("page", collect(case.kv, &case.space, Query::new(span).order(Order::Down)))?;
            same(&format!("{span:?} down"), &down, &expected)?;
        }
    }
    for span in [Span::between(b"c", b"b"), Span::between(b"b", b"b"), Span::from(b"e")] {
        let none = said("page", case.kv.page(&case.space, Query::new(span)))?;
        same(&format!("{span:?}"), (none.entries.len(), none.has_more), (0, false))?;
        same(&format!("count of {span:?}"), said("count", case.kv.count(&case.space, span))?, 0)?;
    }
    Ok(())
}

fn pages(case: &Case<'_>) -> Result<(), String> {
    let keys: Vec<_> = (0..500_u16).map(u16::to_be_bytes).collect();
    let value = [1; 1_000];
    let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &value[..])).collect();
    case.put(&entries)?;
    case.put(&[(&250_u16.to_be_bytes(), &[2; 50_000])])?;
    let page = |query: Query<'_>| said("page", case.kv.page(&case.space, query));
    let few = page(Query::new(Span::ALL).entries(3))?;
    same("a page of three entries", (few.entries.len(), few.has_more), (3, true))?;
    let small = page(Query::new(Span::ALL).bytes(10_000))?;
    same("a page of 10,000 bytes", (small.entries.len(), small.has_more), (10, true))?;
    let big = page(Query::new(Span::from(&250_u16.to_be_bytes())).bytes(10_000))?;
    same("a page whose first entry is larger than it", (big.entries.len(), big.has_more), (1, true))?;
    for order in [Order::Up, Order::Down] {
        let query = Query::new(Span::ALL).order(order).bytes(7_000);
        let all = said("page", collect(case.kv, &case.space, query))?;
        let mut found: Vec<_> = all.iter().map(|(key, _)| &key[..]).collect();
        if order == Order::Down {
            found.reverse();
        }
        let expected: Vec<_> = keys.iter().map(|key| &key[..]).collect();
        same(&format!("all pages, {order:?}"), found, expected)?;
    }
    Ok(())
}

fn many_keys_at_once(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"a", b"1"), (b"b", b""), (b"c", b"3")])?;
    let keys: [&[u8]; 5] = [b"c", b"x", b"b", b"c", b"a"];
    let values = said("multi_get", case.kv.multi_get(&case.space, &keys))?;
    let values: Vec<_> = values.iter().map(|value| value.as_deref()).collect();
    same("multi_get", values, [Some(&b"3"[..]), None, Some(b""), Some(b"3"), Some(b"1")])?;
    same("multi_get of nothing", said("multi_get", case.kv.multi_get(&case.space, &[]))?.len(), 0)?;
    let keys: Vec<_> = (0..3_000_u16).map(u16::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let values = said("multi_get", case.kv.multi_get(&case.space, &keys))?;
    same("multi_get of 3,000 missing keys", values, vec![None::<bytes::Bytes>; 3_000])
}

fn limits(case: &Case<'_>) -> Result<(), String> {
    let limits = case.kv.limits();
    let too_large = |done: Result<()>| matches!(done, Err(Error::TooLarge(_)));
    let key = vec![b'k'; limits.key_bytes + 1];
    let done = transact(case.kv, |transaction| transaction.put(&case.space, &key, b""));
    holds("a key that is too long is refused", too_large(done))?;
    case.put(&[(&key[1..], b"1")])?;
    if limits.value_bytes < 64 << 20 {
        let value = vec![0; limits.value_bytes + 1];
        let done = transact(case.kv, |transaction| transaction.put(&case.space, b"v", &value));
        holds("a value that is too long is refused", too_large(done))?;
        case.put(&[(b"v", &value[1..])])?;
    }
    if limits.transaction_bytes < 256 << 20 {
        let value = vec![0; limits.value_bytes.min(1 << 20)];
        let done = transact(case.kv, |transaction| {
            (0..=limits.transaction_bytes / value.len() as u64 + 1)
                .try_for_each(|n| transaction.put(&case.space, &n.to_be_bytes(), &value))
        });
        holds("a transaction that is too large is refused", too_large(done))?;
    }
    same("keys after refused writes", said("get", case.kv.get(&case.space, &[0; 8]))?, None::<bytes::Bytes>)
}
