//! What a transaction has written so far, and a state with it on top.
//!
//! overlay.1. A view shows what the state would show had the writes been committed to it.
//! overlay.2. Undoing what was written since a mark leaves what was there at the mark.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use crate::fail::Done;
use crate::store::{Order, Reads, Result, Space, Span, Transaction, Value, Visit};

/// None: the key is removed.
type Entry = Option<Vec<u8>>;

/// Writes to one space.
#[derive(Default)]
pub struct Writes {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Ranges that were removed before the entries were written: where each begins, and where it ends. None touches another.
    removed: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    marks: Vec<Mark>,
}

/// What undoing needs.
struct Mark {
    /// What keys were before each change, in order. Empty: they were not written.
    before: Vec<(Vec<u8>, Option<Entry>)>,
    removed: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Writes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.removed.is_empty()
    }

    /// How much memory they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, key: &[u8], entry: Entry) {
        self.bytes += key.len() + entry.as_ref().map_or(0, Vec::len);
        let before = self.entries.insert(key.to_vec(), entry);
        if let Some(mark) = self.marks.last_mut() {
            mark.before.push((key.to_vec(), before));
        }
    }

    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.set(key, Some(value));
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) {
        self.set(key, None);
    }

    /// Removes the keys from one on, up to another.
    pub fn remove_range(&mut self, from: &[u8], to: &[u8]) {
        if from >= to {
            return;
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let hidden: Vec<Vec<u8>> =
            self.entries.range::<[u8], _>(bounds).map(|entry| entry.0.clone()).collect();
        for key in hidden {
            let before = self.entries.remove(&key);
            if let Some(mark) = self.marks.last_mut() {
                mark.before.push((key, before));
            }
        }
        self.bytes += from.len() + to.len();
        let (mut from, mut to) = (from.to_vec(), to.to_vec());
        while let Some((start, end)) = self.removed.range(..=to.clone()).next_back()
            && *end >= from
        {
            let start = start.clone();
            if let Some(end) = self.removed.remove(&start) {
                (from, to) = (from.min(start), to.max(end));
            }
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
        for (from, to) in &self.removed {
            transaction.remove_range(space, Span::between(from, to))?;
        }
        for (key, entry) in &self.entries {
            match entry {
                Some(value) => transaction.put(space, key, value)?,
                None => transaction.remove(space, key)?,
            }
        }
        Ok(())
    }

    /// How many keys and ranges they touch.
    pub fn len(&self) -> usize {
        self.entries.len() + self.removed.len()
    }

    /// Where they touch something: keys, and beginnings of ranges.
    pub fn places(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.keys().chain(self.removed.keys()).map(Vec::as_slice)
    }

    fn is_removed(&self, key: &[u8]) -> bool {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        self.removed.range::<[u8], _>(bounds).next_back().is_some_and(|(_, end)| key < end.as_slice())
    }
}

/// A state with writes on top (overlay.1).
pub struct View<'a> {
    /// The state.
    pub base: &'a dyn Reads,
    /// The writes: all to the space that is read.
    pub writes: &'a Writes,
}

impl Reads for View<'_> {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        match self.writes.entries.get(key) {
            Some(entry) => Ok(entry.as_ref().map(|value| Value::from(value.as_slice()))),
            None if self.writes.is_removed(key) => Ok(None),
            None => self.base.get(space, key),
        }
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]]) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(space, key)).collect()
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        if span.is_empty() {
            return Ok(());
        }
        let own = self.writes.entries.range::<[u8], _>((span.lower, span.upper));
        let own: Box<dyn Iterator<Item = (&Vec<u8>, &Entry)>> = match order {
            Order::Up => Box::new(own),
            Order::Down => Box::new(own.rev()),
        };
        let mut own = own.peekable();
        let mut is_over = false;
        self.base.range(space, span, order, &mut |key, value| {
            let comes_first = |own: &(&Vec<u8>, &Entry)| match order {
                Order::Up => own.0.as_slice() <= key,
                Order::Down => own.0.as_slice() >= key,
            };
            let mut is_replaced = false;
            while let Some((own_key, entry)) = own.next_if(comes_first) {
                is_replaced |= own_key == key;
                if let Some(value) = entry
                    && visit(own_key, value) == ControlFlow::Break(())
                {
                    is_over = true;
                    return ControlFlow::Break(());
                }
            }
            if is_replaced || self.writes.is_removed(key) {
                return ControlFlow::Continue(());
            }
            let flow = visit(key, value);
            is_over = flow == ControlFlow::Break(());
            flow
        })?;
        for (key, entry) in own {
            if is_over {
                break;
            }
            if let Some(value) = entry {
                is_over = visit(key, value) == ControlFlow::Break(());
            }
        }
        Ok(())
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

    fn change(random: &mut fastrand::Rng, writes: &mut Writes, model: &mut Model) {
        let key = |random: &mut fastrand::Rng| vec![random.u8(..12)];
        let (a, b) = (key(random), key(random));
        match random.u8(..4) {
            0 => {
                writes.remove(&a);
                model.remove(&a);
            }
            1 => {
                writes.remove_range(&a, &b);
                model.retain(|key, _| *key < a || *key >= b);
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
            let (mut model, mut before) = (Model::new(), Writes::default());
            (0..6).for_each(|_| change(&mut random, &mut before, &mut model));
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
                    _ => change(&mut random, &mut writes, &mut model),
                }
            }
            let view = View { base: &store, writes: &writes };
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
}
