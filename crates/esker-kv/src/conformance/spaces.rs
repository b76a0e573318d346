//! Spaces: making, dropping, renaming.

use super::{Case, Check, holds, said, same};
use crate::{Error, Result, transact};

pub(super) const CHECKS: &[Check] = &[
    ("spaces-are-apart", spaces_are_apart),
    ("dropped-spaces", dropped_spaces),
    ("new-spaces-in-a-transaction", new_spaces),
    ("renamed-spaces", renamed_spaces),
];

fn spaces_are_apart(case: &Case<'_>) -> Result<(), String> {
    let name = "conformance-another.one_2";
    let other = said("space", case.kv.space(name))?;
    case.put(&[(b"k", b"1")])?;
    same("the key in another space", said("get", case.kv.get(&other, b"k"))?, None::<bytes::Bytes>)?;
    let done = transact(case.kv, |transaction| {
        transaction.put(&other, b"k", b"2")?;
        transaction.remove_range(&case.space, crate::Span::ALL)
    });
    said("a transaction over two spaces", done)?;
    same("one space after it", case.all(case.kv)?.len(), 0)?;
    same("the other space", said("get", case.kv.get(&other, b"k"))?.as_deref(), Some(&b"2"[..]))?;
    let again = said("space", case.kv.space(name))?;
    same("a space opened again", said("get", case.kv.get(&again, b"k"))?.as_deref(), Some(&b"2"[..]))?;
    let names = said("spaces", case.kv.spaces())?;
    holds(
        "`spaces` has both",
        [name, case.space.name()].iter().all(|name| names.iter().any(|known| known == name)),
    )?;
    holds("`spaces` is in order", names.is_sorted())?;
    said("drop_space", case.kv.drop_space(name))
}

fn dropped_spaces(case: &Case<'_>) -> Result<(), String> {
    let name = case.space.name();
    case.put(&[(b"k", b"1"), (b"l", b"2")])?;
    said("drop_space", case.kv.drop_space(name))?;
    said("drop_space of a space that is gone", case.kv.drop_space(name))?;
    holds("a dropped space is not found", said("find_space", case.kv.find_space(name))?.is_none())?;
    let new = said("space", case.kv.space(name))?;
    same(
        "a key in a new space of the same name",
        said("get", case.kv.get(&new, b"k"))?,
        None::<bytes::Bytes>,
    )?;
    let done = transact(case.kv, |transaction| transaction.put(&case.space, b"k", b"3"));
    holds("a write to the dropped space is refused", matches!(done, Err(Error::Invalid(_))))?;
    same("the new space after it", said("get", case.kv.get(&new, b"k"))?, None::<bytes::Bytes>)
}

fn new_spaces(case: &Case<'_>) -> Result<(), String> {
    let name = "conformance-new";
    said("drop_space", case.kv.drop_space(name))?;
    // A serializable store may take the new space for a conflict, once.
    let done = transact(case.kv, |transaction| {
        transaction.get(&case.space, b"k")?;
        let new = case.kv.space(name)?;
        transaction.put(&new, b"k", b"1")?;
        transaction.put(&case.space, b"k", b"2")
    });
    said("a write to a space that is newer than the transaction", done)?;
    let new = said("space", case.kv.space(name))?;
    same("the new space", said("get", case.kv.get(&new, b"k"))?.as_deref(), Some(&b"1"[..]))?;
    said("drop_space", case.kv.drop_space(name))
}

fn renamed_spaces(case: &Case<'_>) -> Result<(), String> {
    let (a, b, spare) = ("conformance-a", "conformance-b", "conformance-spare");
    for name in [a, b, spare] {
        said("drop_space", case.kv.drop_space(name))?;
    }
    let (first, second) = (said("space", case.kv.space(a))?, said("space", case.kv.space(b))?);
    let done = transact(case.kv, |transaction| {
        transaction.put(&first, b"k", b"1")?;
        transaction.put(&second, b"k", b"2")
    });
    said("put", done)?;
    let exchanged = case.kv.rename_spaces(&[(a, spare), (b, a), (spare, b)]);
    if matches!(exchanged, Err(Error::Unsupported(_))) {
        for pair in [(a, spare), (b, a), (spare, b)] {
            said("rename_spaces", case.kv.rename_spaces(&[pair]))?;
        }
    } else {
        said("rename_spaces", exchanged)?;
    }
    for (name, value) in [(a, b"2"), (b, b"1")] {
        let space = said("space", case.kv.space(name))?;
        same(name, said("get", case.kv.get(&space, b"k"))?.as_deref(), Some(&value[..]))?;
    }
    same("an old handle", said("get", case.kv.get(&first, b"k"))?.as_deref(), Some(&b"1"[..]))?;
    for names in [[(a, b)], [(spare, "conformance-x")]] {
        let done = case.kv.rename_spaces(&names);
        holds("a name that is there, or is not, is refused", matches!(done, Err(Error::Invalid(_))))?;
    }
    said("drop_space", case.kv.drop_space(a).and(case.kv.drop_space(b)))
}
