//! Whether two states of a place hold the same.

use std::ops::ControlFlow;

use super::place::Place;
use crate::store::spans::{Stretch, next_name};
use crate::store::{Order, Reads, Result, Span, Value};

/// So many bytes of a state are kept at a time, and some more.
const CHUNK_BYTES: usize = 64 << 10;

/// A state, and the time by which its keys expire.
pub type At<'a> = (&'a dyn Reads, u64);

/// Whether readers of two states find different entries in a stretch of keys.
///
/// # Errors
/// The store's.
pub fn differs(place: &Place, stretch: &Stretch, before: At<'_>, now: At<'_>) -> Result<bool> {
    if stretch.to.as_ref().is_some_and(|to| *to == next_name(&stretch.from)) {
        return differs_at(place, &stretch.from, before, now);
    }
    let mut part = stretch.clone();
    while !part.span().is_empty() {
        let (mut kept, mut bytes, mut last) = (Vec::new(), 0, Vec::new());
        before.0.range(&place.space, part.span(), Order::Up, &mut |key, value| {
            bytes += key.len() + value.len();
            if place.is_live(value, before.1) {
                kept.push((key.to_vec(), value.to_vec()));
            }
            last = key.to_vec();
            if bytes < CHUNK_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let is_last = bytes < CHUNK_BYTES;
        let next = next_name(&last);
        let span = if is_last { part.span() } else { Span::between(&part.from, &next) };
        let mut rest = kept.iter();
        let mut is_same = true;
        now.0.range(&place.space, span, Order::Up, &mut |key, value| {
            if place.is_live(value, now.1) {
                is_same = rest.next().is_some_and(|(k, v)| *k == key && *v == value);
            }
            if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !is_same || rest.next().is_some() {
            return Ok(true);
        }
        if is_last {
            break;
        }
        part.from = next;
    }
    Ok(false)
}

fn differs_at(place: &Place, key: &[u8], before: At<'_>, now: At<'_>) -> Result<bool> {
    let found = |(reads, now): At<'_>| -> Result<Option<Value>> {
        let found = reads.get(&place.space, key)?;
        Ok(found.filter(|value| place.is_live(value, now)))
    };
    Ok(found(before)?.as_deref() != found(now)?.as_deref())
}

#[cfg(test)]
mod tests {
    use esker::Db;

    use super::*;
    use crate::store::{Durability, LocalStore, Store};
    use crate::types::string_record;

    #[test]
    fn differences_are_found_wherever_they_are_and_nothing_else_is() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
        let space = store.space("s", false).unwrap();
        let place = Place::keyspace(space.clone());
        let key = |n: usize| format!("{n:04}").into_bytes();
        let write = |n: usize, value: Option<&[u8]>| {
            let mut transaction = store.begin();
            match value {
                Some(value) => transaction.put(&space, &key(n), value).unwrap(),
                None => transaction.remove(&space, &key(n)).unwrap(),
            }
            transaction.commit(Durability::None).unwrap();
        };
        let large = vec![b'x'; 9000];
        (10..50).for_each(|n| write(n, Some(&large)));
        let all = Stretch::range(&key(10), &key(50));
        let before = store.snapshot();
        let is_other = |stretch: &Stretch| differs(&place, stretch, (&*before, 0), (&store, 0)).unwrap();
        assert!(!is_other(&all) && !is_other(&Stretch::range(b"", b"")));
        let other = Some(&b"y"[..]);
        for (n, value) in [(10, None), (49, other), (30, other), (55, other), (5, other)] {
            write(n, value);
            assert_eq!(is_other(&all), (10..50).contains(&n), "{n}");
            assert!(is_other(&Stretch::point(&key(n))) && is_other(&Stretch::range(b"", b"")));
            let was = (10..50).contains(&n).then_some(&*large);
            write(n, was);
            assert!(!is_other(&all));
        }
    }

    #[test]
    fn what_has_expired_is_as_good_as_gone() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
        let space = store.space("r0", false).unwrap();
        let place = Place { space: space.clone(), database: Some(0) };
        let mut transaction = store.begin();
        transaction.put(&space, b"k", &string_record(b"v", 100)).unwrap();
        transaction.commit(Durability::None).unwrap();
        let before = store.snapshot();
        for stretch in [Stretch::point(b"k"), Stretch::range(b"", b"")] {
            let is_other = |then, now| differs(&place, &stretch, (&*before, then), (&store, now)).unwrap();
            assert_eq!([is_other(50, 60), is_other(50, 100), is_other(100, 110)], [false, true, false]);
        }
    }
}
