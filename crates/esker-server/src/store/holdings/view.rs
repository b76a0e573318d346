//! A state with what a transaction has written on top.
//!
//! ```text
//!   own entries   a=1      c removed   d merged
//!   the state          b   c           d          --> a=1, b, d with its operands
//! ```
//!
//! held_view.1. A view shows what the state would show had the writes been committed to it.
//! held_view.2. A view notes all of the state that an answer depended on, if it is asked to.

use std::cell::RefCell;
use std::ops::ControlFlow;

use super::overlay::{Entry, Writes};
use super::place::Place;
use super::read_set::ReadSet;
use crate::store::spans::{Stretch, next_name};
use crate::store::{Order, Reads, Result, Space, Span, Store, Value, Visit};

/// A state with writes on top (held_view.1).
pub struct View<'a> {
    /// The state.
    pub base: &'a dyn Reads,
    /// The writes: all to the space that is read; none: there are none.
    pub writes: Option<&'a Writes>,
    /// Knows how operands are merged.
    pub store: &'a dyn Store,
    /// What is read is noted there (held_view.2), as of this place.
    pub noted: Option<(&'a RefCell<ReadSet>, &'a Place)>,
}

impl View<'_> {
    fn note(&self, stretch: Stretch) {
        if let Some((reads, place)) = self.noted {
            reads.borrow_mut().note(place, stretch);
        }
    }

    fn is_removed(&self, key: &[u8]) -> bool {
        self.writes.is_some_and(|writes| writes.is_removed(key))
    }

    /// The value of a key in the state, unless it was removed since.
    fn below(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        if self.is_removed(key) {
            return Ok(None);
        }
        self.note(Stretch::point(key));
        self.base.get(space, key)
    }

    /// Shows the entries of a range; own ones, too.
    fn walk(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        let own = self.writes.into_iter().flat_map(|writes| writes.range(span));
        let own: Box<dyn Iterator<Item = (&Vec<u8>, &Entry)>> = match order {
            Order::Up => Box::new(own),
            Order::Down => Box::new(own.rev()),
        };
        let mut own = own.peekable();
        let mut failed = None;
        let mut show = |key: &[u8], entry: Option<&Entry>, below: Option<&[u8]>| match (entry, below) {
            (Some(Entry::Put(value)), _) => visit(key, value),
            (None, Some(value)) => visit(key, value),
            (Some(Entry::Removed), _) | (None, None) => ControlFlow::Continue(()),
            (Some(Entry::Merged(operands)), below) => match fold(self.store, space, key, below, operands) {
                Ok(Some(value)) => visit(key, &value),
                Ok(None) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            },
        };
        let mut flow = ControlFlow::Continue(());
        self.base.range(space, span, order, &mut |key, value| {
            let comes_first = |own: &(&Vec<u8>, &Entry)| match order {
                Order::Up => own.0.as_slice() < key,
                Order::Down => own.0.as_slice() > key,
            };
            while let Some((own_key, entry)) = own.next_if(comes_first) {
                flow = show(own_key, Some(entry), None);
                if flow.is_break() {
                    return flow;
                }
            }
            let below = (!self.is_removed(key)).then_some(value);
            let entry = own.next_if(|own| own.0.as_slice() == key);
            flow = show(key, entry.map(|own| own.1), below);
            flow
        })?;
        for (key, entry) in own {
            if flow.is_break() {
                break;
            }
            flow = show(key, Some(entry), None);
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Reads for View<'_> {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        match self.writes.and_then(|writes| writes.get(key)) {
            Some(Entry::Put(value)) => Ok(Some(Value::from(value.as_slice()))),
            Some(Entry::Removed) => Ok(None),
            Some(Entry::Merged(operands)) => {
                let below = self.below(space, key)?;
                fold(self.store, space, key, below.as_deref(), operands)
            }
            None => self.below(space, key),
        }
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        for key in keys {
            found.push(self.get(space, key)?);
            bytes += found.last().and_then(Option::as_ref).map_or(0, |value| value.len());
            if bytes > bytes_max {
                break;
            }
        }
        Ok(found)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        let mut last = None;
        let walked = self.walk(space, span, order, &mut |key, value| {
            let flow = visit(key, value);
            if flow.is_break() {
                last = Some(key.to_vec());
            }
            flow
        });
        // held_view.2: a walk that has broken off depends on nothing behind the key where it did.
        let mut seen = Stretch::of_span(span);
        match (last, order) {
            (Some(last), Order::Up) => seen.to = Some(next_name(&last)),
            (Some(last), Order::Down) => seen.from = last,
            (None, _) => {}
        }
        self.note(seen);
        walked
    }

    fn len(&self, space: &Space) -> Result<u64> {
        let mut len = 0;
        self.range(space, Span::ALL, Order::Up, &mut |_, _| {
            len += 1;
            ControlFlow::Continue(())
        })?;
        Ok(len)
    }
}

/// What a key is once operands have been merged into it.
///
/// # Errors
/// Those of [`crate::store::Transaction::merge`].
pub fn fold(
    store: &dyn Store,
    space: &Space,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[Vec<u8>],
) -> Result<Option<Value>> {
    // It is never committed.
    let mut trial = store.begin();
    match base {
        Some(value) => trial.put(space, key, value)?,
        None => trial.remove(space, key)?,
    }
    for operand in operands {
        trial.merge(space, key, operand)?;
    }
    trial.get(space, key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use esker::Db;

    use super::*;
    use crate::store::{Durability, LocalStore};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn shown(
        reads: &dyn Reads,
        space: &Space,
        span: Span<'_>,
        order: Order,
        max: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut shown = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            shown.push((key.to_vec(), value.to_vec()));
            if shown.len() < max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        reads.range(space, span, order, &mut visit).unwrap();
        shown
    }

    fn change(store: &dyn Store, random: &mut fastrand::Rng, writes: &mut Writes, model: &mut Model) {
        let space = store.space("s", false).unwrap();
        let key = |random: &mut fastrand::Rng| vec![random.u8(..12)];
        let (a, b) = (key(random), key(random));
        match random.u8(..8) {
            0 => {
                writes.remove(&a);
                model.remove(&a);
            }
            1 => {
                writes.remove_range(&a, Some(&b));
                model.retain(|key, _| *key < a || *key >= b);
            }
            2 => {
                writes.remove_range(&a, None);
                model.retain(|key, _| *key < a);
            }
            3..=4 => {
                writes.merge(store, &space, &a, &b).unwrap();
                model.entry(a).or_default().extend(b);
            }
            _ => {
                writes.put(&a, b.clone());
                model.insert(a, b);
            }
        }
    }

    #[test]
    fn held_view_1_overlay_1_a_view_is_what_a_commit_makes() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..300 {
            let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
            let space = store.space("s", false).unwrap();
            store.set_merge_operator(&space, "append").unwrap();
            let (mut model, mut before) = (Model::new(), Writes::default());
            (0..6).for_each(|_| change(&store, &mut random, &mut before, &mut model));
            let mut transaction = store.begin();
            before.apply(&space, &mut *transaction).unwrap();
            transaction.commit(Durability::None).unwrap();
            let mut writes = Writes::default();
            let mut saved = Vec::new();
            for _ in 0..12 {
                match random.u8(..6) {
                    0 => {
                        writes.mark();
                        saved.push(model.clone());
                    }
                    1 => {
                        writes.undo();
                        model = saved.pop().unwrap_or(model);
                    }
                    2 => {
                        writes.keep();
                        saved.pop();
                    }
                    _ => change(&store, &mut random, &mut writes, &mut model),
                }
            }
            let view = View { base: &store, writes: Some(&writes), store: &store, noted: None };
            for key in 0..12 {
                let expected = model.get([key].as_slice()).map(Vec::as_slice);
                assert_eq!(view.get(&space, &[key]).unwrap().as_deref(), expected, "held_view.1");
            }
            let (lower, upper, max) = (random.u8(..6), random.u8(5..12), random.usize(1..8));
            let bounds = ([lower], [upper]);
            let span = Span::between(&bounds.0, &bounds.1);
            let all: Vec<_> =
                model.clone().into_iter().filter(|(k, _)| k[0] >= lower && k[0] < upper).collect();
            let up: Vec<_> = all.iter().take(max).cloned().collect();
            let down: Vec<_> = all.into_iter().rev().take(max).collect();
            assert_eq!(shown(&view, &space, span, Order::Up, max), up, "held_view.1");
            assert_eq!(shown(&view, &space, span, Order::Down, max), down, "held_view.1");
            let mut transaction = store.begin();
            writes.apply(&space, &mut *transaction).unwrap();
            transaction.commit(Durability::None).unwrap();
            let committed = shown(&store, &space, Span::ALL, Order::Up, usize::MAX);
            assert_eq!(committed, model.into_iter().collect::<Vec<_>>(), "overlay.1");
        }
    }

    #[test]
    fn held_view_2_what_was_read_is_noted() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
        let place = Place::keyspace(store.space("s", false).unwrap());
        let space = &place.space;
        let mut transaction = store.begin();
        ["b", "d"].iter().for_each(|key| transaction.put(space, key.as_bytes(), b"1").unwrap());
        transaction.commit(Durability::None).unwrap();
        let (mut writes, reads) = (Writes::default(), RefCell::default());
        writes.put(b"c", b"2".to_vec());
        let view = View { base: &store, writes: Some(&writes), store: &store, noted: Some((&reads, &place)) };
        let noted = || reads.take().places().next().map_or(Vec::new(), |(_, stretches)| stretches.to_vec());
        view.get(space, b"c").unwrap();
        assert!(noted().is_empty());
        view.get(space, b"x").unwrap();
        assert_eq!(noted(), [Stretch::point(b"x")], "held_view.2: that it is not there");
        shown(&view, space, Span::between(b"a", b"z"), Order::Up, 2);
        assert_eq!(noted(), [Stretch { from: b"a".to_vec(), to: Some(b"c\0".to_vec()) }]);
        shown(&view, space, Span::between(b"a", b"z"), Order::Down, 1);
        assert_eq!(noted(), [Stretch::range(b"d", b"z")]);
        view.len(space).unwrap();
        assert_eq!(noted(), [Stretch::range(b"", b"")]);
    }
}
