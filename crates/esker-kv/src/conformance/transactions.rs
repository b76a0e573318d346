//! Transactions, one after the other and interleaved on one thread.

use super::{Case, Check, entry, holds, said, same};
use crate::{Error, Order, Query, Result, Snapshot, Span, Transaction, collect};

pub(super) const CHECKS: &[Check] = &[
    ("own-writes", own_writes),
    ("savepoints", savepoints),
    ("rollback", rollback),
    ("lost-updates", lost_updates),
    ("reads-for-update", reads_for_update),
    ("one-state", one_state),
    ("large-removals", large_removals),
];

fn begin(case: &Case<'_>) -> Result<Box<dyn Transaction>, String> {
    said("begin", case.kv.begin())
}

fn own_writes(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"), (b"e", b"1")])?;
    let mut transaction = begin(case)?;
    let done = (|| {
        transaction.put(&case.space, b"b", b"2")?;
        transaction.remove(&case.space, b"c")?;
        transaction.remove(&case.space, b"not there")?;
        transaction.remove_range(&case.space, Span::between(b"d", b"f"))?;
        transaction.put(&case.space, b"dd", b"2")?;
        transaction.put(&case.space, b"z", b"2")
    })();
    said("writes", done)?;
    let mut expected = vec![entry(b"a", b"1"), entry(b"b", b"2"), entry(b"dd", b"2"), entry(b"z", b"2")];
    same("its own range", case.all(&*transaction)?, expected.clone())?;
    same("its own count", said("count", transaction.count(&case.space, Span::ALL))?, 4)?;
    let query = Query::new(Span::ALL).order(Order::Down).entries(usize::MAX).bytes(3);
    let down = said("page", collect(&*transaction, &case.space, query))?;
    expected.reverse();
    same("its own range downwards", &down, &expected)?;
    expected.reverse();
    let keys: [&[u8]; 4] = [b"z", b"c", b"b", b"d"];
    let values = said("multi_get", transaction.multi_get(&case.space, &keys))?;
    let values: Vec<_> = values.iter().map(|value| value.as_deref()).collect();
    same("its own multi_get", values, [Some(&b"2"[..]), None, Some(b"2"), None])?;
    let own = said("get_for_update", transaction.get_for_update(&case.space, b"b"))?;
    same("its own get_for_update", own.as_deref(), Some(&b"2"[..]))?;
    same("others meanwhile", case.all(case.kv)?.len(), 5)?;
    said("commit", transaction.commit())?;
    same("others after the commit", case.all(case.kv)?, expected)
}

fn savepoints(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"a", b"1"), (b"b", b"1")])?;
    let space = &case.space;
    let mut transaction = begin(case)?;
    let put = |transaction: &mut dyn Transaction, key: &[u8]| said("put", transaction.put(space, key, b"2"));
    put(&mut *transaction, b"kept")?;
    let outer = said("savepoint", transaction.savepoint())?;
    put(&mut *transaction, b"a")?;
    let inner = said("savepoint", transaction.savepoint())?;
    said("remove_range", transaction.remove_range(space, Span::ALL))?;
    same("all keys are removed", case.all(&*transaction)?.len(), 0)?;
    said("rollback_to", transaction.rollback_to(inner))?;
    same("undone to the inner one", case.all(&*transaction)?.len(), 3)?;
    put(&mut *transaction, b"c")?;
    said("rollback_to again", transaction.rollback_to(inner))?;
    same("undone twice", case.all(&*transaction)?.len(), 3)?;
    said("rollback_to", transaction.rollback_to(outer))?;
    holds("the inner savepoint is gone", matches!(transaction.rollback_to(inner), Err(Error::Invalid(_))))?;
    put(&mut *transaction, b"d")?;
    said("release", transaction.release(outer))?;
    holds("a released savepoint is gone", matches!(transaction.release(outer), Err(Error::Invalid(_))))?;
    said("commit", transaction.commit())?;
    let expected = [entry(b"a", b"1"), entry(b"b", b"1"), entry(b"d", b"2"), entry(b"kept", b"2")];
    same("after the commit", case.all(case.kv)?, expected)
}

fn rollback(case: &Case<'_>) -> Result<(), String> {
    let mut transaction = begin(case)?;
    said("put", transaction.put(&case.space, b"a", b"1"))?;
    drop(transaction);
    same("after a drop", case.all(case.kv)?.len(), 0)?;
    said("an empty commit", begin(case)?.commit())
}

/// Two transactions read a key and write it: the second must not commit.
fn lost_updates(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"k", b"0"), (b"r", b"0")])?;
    for removes in [false, true] {
        let (mut first, mut second) = (begin(case)?, begin(case)?);
        said("get", first.get(&case.space, b"k").and(second.get(&case.space, b"k")))?;
        said("put", first.put(&case.space, b"k", b"1"))?;
        said("commit", first.commit())?;
        let done = match removes {
            true => second.remove(&case.space, b"k"),
            false => second.put(&case.space, b"k", b"2"),
        };
        let done = done.and_then(|()| second.commit());
        holds("a commit over a newer one conflicts", matches!(done, Err(Error::Conflict)))?;
        let value = said("get", case.kv.get(&case.space, b"k"))?;
        same("the first commit stays", value.as_deref(), Some(&b"1"[..]))?;
    }
    let (mut first, mut second) = (begin(case)?, begin(case)?);
    said("get", second.get(&case.space, b"k").and(first.remove(&case.space, b"k")))?;
    said("commit", first.commit())?;
    let done = second.put(&case.space, b"k", b"2").and_then(|()| second.commit());
    holds("a commit over a removal conflicts", matches!(done, Err(Error::Conflict)))?;
    let (mut first, mut second) = (begin(case)?, begin(case)?);
    said("put", second.get(&case.space, b"new").and(first.put(&case.space, b"new", b"1")))?;
    said("commit", first.commit())?;
    let done = second.put(&case.space, b"new", b"2").and_then(|()| second.commit());
    holds("two inserts of a key conflict", matches!(done, Err(Error::Conflict)))?;
    let (mut first, mut second) = (begin(case)?, begin(case)?);
    said("get", first.get(&case.space, b"x").and(second.get(&case.space, b"y")))?;
    said("put", first.put(&case.space, b"x", b"1").and(second.put(&case.space, b"y", b"1")))?;
    said("commits of different keys", first.commit().and_then(|()| second.commit()))
}

/// A transaction depends on what it reads for update, also on a key that is not there.
fn reads_for_update(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"there", b"0")])?;
    for key in [&b"there"[..], b"missing"] {
        let mut reader = begin(case)?;
        // The state is that of the first read.
        said("get", reader.get(&case.space, b"other"))?;
        case.put(&[(key, b"1")])?;
        let done = reader.get_for_update(&case.space, key);
        let done = done.and_then(|_| reader.put(&case.space, b"skew", b"1")).and_then(|()| reader.commit());
        let what =
            format!("a read for update of {:?}, written before, conflicts", key.escape_ascii().to_string());
        holds(&what, matches!(done, Err(Error::Conflict)))?;
    }
    same(
        "the reader has not committed",
        said("get", case.kv.get(&case.space, b"skew"))?,
        None::<bytes::Bytes>,
    )
}

/// Transactions and snapshots read one state.
fn one_state(case: &Case<'_>) -> Result<(), String> {
    case.put(&[(b"a", b"1"), (b"b", b"1")])?;
    let snapshot: Box<dyn Snapshot> = said("snapshot", case.kv.snapshot())?;
    let transaction = begin(case)?;
    said("get", snapshot.get(&case.space, b"a"))?;
    said("get", transaction.get(&case.space, b"a"))?;
    case.put(&[(b"a", b"2"), (b"b", b"2"), (b"c", b"2")])?;
    let old = [entry(b"a", b"1"), entry(b"b", b"1")];
    same("the state of a snapshot", case.all(&*snapshot)?, &old[..])?;
    same("its count", said("count", snapshot.count(&case.space, Span::ALL))?, 2)?;
    same("the state of a transaction", case.all(&*transaction)?, &old[..])?;
    let value = said("get", snapshot.get(&case.space, b"b"))?;
    same("a value of a snapshot", value.as_deref(), Some(&b"1"[..]))?;
    drop(transaction);
    let newest = begin(case)?;
    let value = said("get", newest.get(&case.space, b"b"))?;
    same("a transaction that begins after the commit", value.as_deref(), Some(&b"2"[..]))
}

/// Pages of a transaction that has removed most of what the store has.
fn large_removals(case: &Case<'_>) -> Result<(), String> {
    let keys: Vec<_> = (0..2_000_u16).map(u16::to_be_bytes).collect();
    let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"value"[..])).collect();
    case.put(&entries)?;
    let mut transaction = begin(case)?;
    said("remove_range", transaction.remove_range(&case.space, Span::between(&keys[10], &keys[1_990])))?;
    for order in [Order::Up, Order::Down] {
        let query = Query::new(Span::ALL).order(order).bytes(50);
        let found = said("page", collect(&*transaction, &case.space, query))?;
        same(&format!("the rest, {order:?}"), found.len(), 20)?;
    }
    said("commit", transaction.commit())?;
    same("after the commit", said("count", case.kv.count(&case.space, Span::ALL))?, 20)
}
