//! What a transaction has written so far.
//!
//! overlay.1. Undoing what was written since a mark leaves what was there at the mark.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::view::fold;
use crate::base::fail::Done;
use crate::store::spans::Stretch;
use crate::store::{Result, Space, Span, Store, Transaction};

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

    /// Undoes what was written since the last mark, and forgets the mark (overlay.1).
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

    /// What a key was written to.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// What keys between bounds were written to, in order.
    pub fn range(&self, span: Span<'_>) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Entry)> {
        self.entries.range::<[u8], _>((span.lower, span.upper))
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

    /// Whether a key lies in a removed range.
    pub fn is_removed(&self, key: &[u8]) -> bool {
        let bounds = (Bound::Unbounded, Bound::Included(key));
        let before = self.removed.range::<[u8], _>(bounds).next_back();
        before.is_some_and(|(_, end)| end.as_deref().is_none_or(|end| key < end))
    }
}
