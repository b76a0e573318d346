//! What a transaction has written so far, and a state with it on top.
//!
//! overlay.1. A view shows what the state would show had the writes been committed to it.
//! overlay.2. Undoing what was written since a mark leaves what was there at the mark.
//! overlay.3. A view notes all of the state that an answer depended on, if it is asked to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use super::place::Place;
use super::read_set::ReadSet;
use crate::fail::Done;
use crate::spans::{Stretch, next_name};
use crate::store::{Order, Reads, Result, Space, Span, Store, Transaction, Value, Visit};

/// What a key was written to.
#[derive(Clone)]
pub enum Entry {
    /// It is removed.
    Removed,
    /// It has this value.
    Put(Vec<u8>),
    /// These operands are merged into what it is in the state, oldest first.
    Merged(Vec<Vec<u8>>),
}

/// Writes to one space.
#[derive(Default)]
pub struct Writes {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Ranges that were removed before the entries were written: where each begins, and where it ends, if not at the end of the space. None touches
    /// another.
    removed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    marks: Vec<Mark>,
}

/// What undoing needs.
#[derive(Default)]
struct Mark {
    /// What keys were before each change, in order. Empty: they were not written.
    before: Vec<(Vec<u8>, Option<Entry>)>,
    removed: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

/// Whether a range that ends here reaches up to a key.
fn reaches(end: Option<&Vec<u8>>, key: &[u8]) -> bool {
    end.is_none_or(|end| end.as_slice() >= key)
}

impl Writes {
    /// None, with so many marks.
    pub fn with_marks(marks: usize) -> Self {
        Writes { marks: (0..marks).map(|_| Mark::default()).collect(), ..Writes::default() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.removed.is_empty()
    }

    /// How much memory they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, key: &[u8], entry: Entry) {
        self.bytes += key.len()
            + match &entry {
                Entry::Removed => 0,
                Entry::Put(value) => value.len(),
                Entry::Merged(operands) => operands.last().map_or(0, Vec::len),
            };
        let before = self.entries.insert(key.to_vec(), entry);
        if let Some(mark) = self.marks.last_mut() {
            mark.before.push((key.to_vec(), before));
        }
    }

    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.set(key, Entry::Put(value));
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        self.set(key, Entry::Removed);
    }

    /// Merges an operand into a key. `store` knows how.
    ///
    /// # Errors
    /// Those of [`Transaction::merge`].
    pub fn merge(&mut self, store: &dyn Store, space: &Space, key: &[u8], operand: &[u8]) -> Result<()> {
        let operands = [operand.to_vec()];
        let own = match self.entries.get(key) {
            Some(Entry::Put(value)) => Some(fold(store, space, key, Some(value), &operands)?),
            Some(Entry::Removed) => Some(fold(store, space, key, None, &operands)?),
            None if self.is_removed(key) => Some(fold(store, space, key, None, &operands)?),
            _ => None,
        };
        let [operand] = operands;
        match own {
            Some(Some(value)) => self.put(key, value.to_vec()),
            Some(None) => self.remove(key),
            None => {
                let mut all = match self.entries.get_mut(key) {
                    // Nobody needs what it was.
                    Some(Entry::Merged(all)) if self.marks.is_empty() => std::mem::take(all),
                    Some(Entry::Merged(all)) => all.clone(),
                    _ => Vec::new(),
                };
                all.push(operand);
                self.set(key, Entry::Merged(all));
            }
        }
        Ok(())
    }

    /// Removes the keys from one on, up to another, or to the end.
    pub fn remove_range(&mut self, from: &[u8], to: Option<&[u8]>) {
        if to.is_some_and(|to| from >= to) {
            return;
        }
        let bounds = (Bound::Included(from), to.map_or(Bound::Unbounded, Bound::Excluded));
        let hidden: Vec<Vec<u8>> =
            self.entries.range::<[u8], _>(bounds).map(|entry| entry.0.clone()).collect();
        for key in hidden {
            let before = self.entries.remove(&key);
            if let Some(mark) = self.marks.last_mut() {
                mark.before.push((key, before));
            }
        }
        self.bytes += from.len() + to.map_or(0, <[u8]>::len);
        let (mut from, mut to) = (from.to_vec(), to.map(<[u8]>::to_vec));
        loop {
            let until = to.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let before = self.removed.range::<[u8], _>((Bound::Unbounded, until)).next_back();
            let Some((start, end)) = before.filter(|(_, end)| reaches(end.as_ref(), &from)) else { break };
            let (start, end) = (start.clone(), end.clone());
            self.removed.remove(&start);
            from = from.min(start);
            to = to.zip(end).map(|(to, end)| to.max(end));
        }
        self.removed.insert(from, to);
    }

    /// Notes this point.
    pub fn mark(&mut self) {
        let (removed, bytes) = (self.removed.clone(), self.bytes);
        self.marks.push(Mark { before: Vec::new(), removed, bytes });
    }

    /// Undoes what was written since the last mark, and forgets the mark (overlay.2).
    pub fn undo(&mut self) {
        let Some(mark) = self.marks.pop() else { return };
        for (key, before) in mark.before.into_iter().rev() {
            match before {
                Some(entry) => drop(self.entries.insert(key, entry)),
                None => drop(self.entries.remove(&key)),
            }
        }
        (self.removed, self.bytes) = (mark.removed, mark.bytes);
    }

    /// Forgets the last mark. What was written since stays.
    pub fn keep(&mut self) {
        let Some(mark) = self.marks.pop() else { return };
        if let Some(outer) = self.marks.last_mut() {
            outer.before.extend(mark.before);
        }
    }

    /// Makes them in a transaction of the store.
    ///
    /// # Errors
    /// The store's.
    pub fn apply(&self, space: &Space, transaction: &mut dyn Transaction) -> Done {
        for stretch in self.removed() {
            transaction.remove_range(space, stretch.span())?;
        }
        for (key, entry) in &self.entries {
            match entry {
                Entry::Removed => transaction.remove(space, key)?,
                Entry::Put(value) => transaction.put(space, key, value)?,
                Entry::Merged(operands) => {
                    operands.iter().try_for_each(|operand| transaction.merge(space, key, operand))?;
                }
            }
        }
        Ok(())
    }

    /// How many keys and ranges they touch.
    pub fn len(&self) -> usize {
        self.entries.len() + self.removed.len()
    }

    /// What keys were written to, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.entries.iter().map(|(key, entry)| (key.as_slice(), entry))
    }

    /// Ranges that were removed before the entries were written.
    pub fn removed(&self) -> impl Iterator<Item = Stretch> {
        self.removed.iter().map(|(from, to)| Stretch { from: from.clone(), to: to.clone() })
    }

    /// Where they touch something: keys, and beginnings of ranges.
    pub fn places(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.keys().chain(self.removed.keys()).map(Vec::as_slice)
    }

    /// What they replace: who has written it meanwhile is not to lose that. Operands replace nothing.
    pub fn replaced(&self) -> impl Iterator<Item = Stretch> {
        let keys = self.entries.iter().filter(|(_, entry)| !matches!(entry, Entry::Merged(_)));
        keys.map(|(key, _)| Stretch::point(key)).chain(self.removed())
    }

    fn is_removed(&self, key: &[u8]) -> bool {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        let before = self.removed.range::<[u8], _>(bounds).next_back();
        before.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }
}

/// What a key is once operands have been merged into it.
fn fold(
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

/// A state with writes on top (overlay.1).
pub struct View<'a> {
    /// The state.
    pub base: &'a dyn Reads,
    /// The writes: all to the space that is read; none: there are none.
    pub writes: Option<&'a Writes>,
    /// Knows how operands are merged.
    pub store: &'a dyn Store,
    /// What is read is noted there (overlay.3), as of this place.
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
        let none = BTreeMap::new();
        let own = self.writes.map_or(&none, |writes| &writes.entries);
        let own = own.range::<[u8], _>((span.lower, span.upper));
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
        match self.writes.and_then(|writes| writes.entries.get(key)) {
            Some(Entry::Put(value)) => Ok(Some(Value::from(value.as_slice()))),
            Some(Entry::Removed) => Ok(None),
            Some(Entry::Merged(operands)) => {
                let below = self.below(space, key)?;
                fold(self.store, space, key, below.as_deref(), operands)
            }
            None => self.below(space, key),
        }
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(space, key)).collect()
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
        // overlay.3: a walk that has broken off depends on nothing behind the key where it did.
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

#[cfg(test)]
mod tests {
    use esker::Db;

    use super::*;
    use crate::store::{Durability, LocalStore, Store};

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
    fn overlay_1_overlay_2_a_view_is_what_a_commit_makes() {
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
                assert_eq!(view.get(&space, &[key]).unwrap().as_deref(), expected, "overlay.1");
            }
            let (lower, upper, max) = (random.u8(..6), random.u8(5..12), random.usize(1..8));
            let bounds = ([lower], [upper]);
            let span = Span::between(&bounds.0, &bounds.1);
            let all: Vec<_> =
                model.clone().into_iter().filter(|(k, _)| k[0] >= lower && k[0] < upper).collect();
            let up: Vec<_> = all.iter().take(max).cloned().collect();
            let down: Vec<_> = all.into_iter().rev().take(max).collect();
            assert_eq!(shown(&view, &space, span, Order::Up, max), up, "overlay.1");
            assert_eq!(shown(&view, &space, span, Order::Down, max), down, "overlay.1");
            let mut transaction = store.begin();
            writes.apply(&space, &mut *transaction).unwrap();
            transaction.commit(Durability::None).unwrap();
            let committed = shown(&store, &space, Span::ALL, Order::Up, usize::MAX);
            assert_eq!(committed, model.into_iter().collect::<Vec<_>>(), "overlay.2");
        }
    }
    #[test]
    fn overlay_3_what_was_read_is_noted() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 20);
        let place = Place::keyspace(store.space("s", false).unwrap());
        let space = &place.space;
        let mut transaction = store.begin();
        ["b", "d"].iter().for_each(|key| transaction.put(space, key.as_bytes(), b"1").unwrap());
        transaction.commit(Durability::None).unwrap();
        let (mut writes, reads) = (Writes::default(), RefCell::default());
        writes.put(b"c", b"2".to_vec());
        let view =
            View { base: &store, writes: Some(&writes), store: &store, noted: Some((&reads, &place)) };
        let noted = || reads.take().places().next().map_or(Vec::new(), |(_, stretches)| stretches.to_vec());
        view.get(space, b"c").unwrap();
        assert!(noted().is_empty());
        view.get(space, b"x").unwrap();
        assert_eq!(noted(), [Stretch::point(b"x")], "overlay.3: that it is not there");
        shown(&view, space, Span::between(b"a", b"z"), Order::Up, 2);
        assert_eq!(noted(), [Stretch { from: b"a".to_vec(), to: Some(b"c\0".to_vec()) }]);
        shown(&view, space, Span::between(b"a", b"z"), Order::Down, 1);
        assert_eq!(noted(), [Stretch::range(b"d", b"z")]);
        view.len(space).unwrap();
        assert_eq!(noted(), [Stretch::range(b"", b"")]);
    }
}
