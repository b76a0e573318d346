//! The writes of a transaction, kept in the process until its commit.
//!
//! A buffer holds the newest write of each key, and the ranges that were removed before. A write of a key
//! counts more than the removal of a range around it.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::{Error, Result, Savepoint};

/// A write. Keys are those of the store, with the id of the space in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put(Bytes, Bytes),
    /// Removes a key.
    Remove(Bytes),
    /// Removes the keys from the first (inclusive) to the second (exclusive).
    RemoveRange(Bytes, Bytes),
}

impl Write {
    fn bytes(&self) -> u64 {
        let (Write::Put(a, b) | Write::RemoveRange(a, b)) = self else {
            let Write::Remove(key) = self else { return 0 };
            return key.len() as u64;
        };
        (a.len() + b.len()) as u64
    }
}

/// The writes of a transaction.
#[derive(Debug, Default)]
pub struct Buffer {
    /// All writes, in their order.
    log: Vec<Write>,
    /// The length of the log at each savepoint.
    points: Vec<usize>,
    /// The newest write of each key: its value, or that it was removed.
    keys: BTreeMap<Bytes, Option<Bytes>>,
    /// Removed ranges by their first key. They neither overlap nor touch.
    ranges: BTreeMap<Bytes, Bytes>,
    bytes: u64,
}

impl Buffer {
    /// Adds a write.
    pub fn write(&mut self, write: Write) {
        self.apply(&write);
        self.log.push(write);
    }

    fn apply(&mut self, write: &Write) {
        self.bytes += write.bytes();
        match write {
            Write::Put(key, value) => drop(self.keys.insert(key.clone(), Some(value.clone()))),
            Write::Remove(key) => drop(self.keys.insert(key.clone(), None)),
            Write::RemoveRange(from, to) if from < to => self.remove_range(from.clone(), to.clone()),
            Write::RemoveRange(..) => {}
        }
    }

    fn remove_range(&mut self, mut from: Bytes, mut to: Bytes) {
        let inside: Vec<Bytes> =
            self.keys.range(from.clone()..to.clone()).map(|(key, _)| key.clone()).collect();
        for key in inside {
            self.keys.remove(&key);
        }
        // Joins the ranges that overlap or touch this one.
        while let Some((first, end)) = self.ranges.range(..=to.clone()).next_back() {
            if *end < from {
                break;
            }
            from = from.min(first.clone());
            to = to.max(end.clone());
            let first = first.clone();
            self.ranges.remove(&first);
        }
        self.ranges.insert(from, to);
    }

    /// Returns what the writes say about a key. `None`: nothing. `Some(None)`: it was removed.
    pub fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        match self.keys.get(key) {
            Some(written) => Some(written.clone()),
            None => self.removed_to(key).map(|_| None),
        }
    }

    /// Returns the end of the removed range around a key.
    pub fn removed_to(&self, key: &[u8]) -> Option<&Bytes> {
        let before = (Bound::Unbounded, Bound::Included(key));
        self.ranges.range::<[u8], _>(before).next_back().map(|(_, end)| end).filter(|end| &end[..] > key)
    }

    /// Returns the newest writes of keys in a range, by key.
    pub fn written<'a>(
        &'a self,
        lower: Bound<&'a [u8]>,
        upper: Bound<&'a [u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'a Bytes, &'a Option<Bytes>)> {
        self.keys.range::<[u8], _>((lower, upper))
    }

    /// Returns whether something was written in a range of keys.
    pub fn touches(&self, from: &[u8], to: &[u8]) -> bool {
        if from >= to {
            return false;
        }
        let range = (Bound::Included(from), Bound::Excluded(to));
        self.keys.range::<[u8], _>(range).next().is_some()
            || self.removed_to(from).is_some()
            || self.ranges.range::<[u8], _>(range).next().is_some()
    }

    /// Bytes of the keys and values written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the writes with the effect of all: removals of ranges, then one write for each key.
    pub fn writes(&self) -> Vec<Write> {
        let ranges = self.ranges.iter().map(|(from, to)| Write::RemoveRange(from.clone(), to.clone()));
        let keys = self.keys.iter().map(|(key, value)| match value {
            Some(value) => Write::Put(key.clone(), value.clone()),
            None => Write::Remove(key.clone()),
        });
        ranges.chain(keys).collect()
    }

    /// Calls `step` with each write and, as `None`, at each savepoint, in their order.
    ///
    /// # Errors
    /// Those of `step`.
    pub fn replay<E>(&self, mut step: impl FnMut(Option<&Write>) -> Result<(), E>) -> Result<(), E> {
        let mut points = self.points.iter().peekable();
        for at in 0..=self.log.len() {
            while points.next_if(|point| **point == at).is_some() {
                step(None)?;
            }
            if let Some(write) = self.log.get(at) {
                step(Some(write))?;
            }
        }
        Ok(())
    }

    /// Sets a savepoint.
    pub fn savepoint(&mut self) -> Savepoint {
        self.points.push(self.log.len());
        Savepoint(self.points.len() - 1)
    }

    /// Undoes the writes since a savepoint.
    ///
    /// # Errors
    /// If the savepoint was released.
    pub fn rollback_to(&mut self, point: Savepoint) -> Result<()> {
        let len = *self.points.get(point.0).ok_or_else(released)?;
        self.points.truncate(point.0 + 1);
        if len < self.log.len() {
            self.log.truncate(len);
            (self.keys, self.ranges, self.bytes) = Default::default();
            for write in std::mem::take(&mut self.log) {
                self.write(write);
            }
        }
        Ok(())
    }

    /// Releases a savepoint and later ones.
    ///
    /// # Errors
    /// If the savepoint was released.
    pub fn release(&mut self, point: Savepoint) -> Result<()> {
        if point.0 >= self.points.len() {
            return Err(released());
        }
        self.points.truncate(point.0);
        Ok(())
    }
}

fn released() -> Error {
    Error::Invalid("the savepoint was released".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a buffer says about 16 keys.
    fn state(buffer: &Buffer) -> Vec<Option<Option<Bytes>>> {
        (0..16).map(|key| buffer.get(&[key])).collect()
    }

    #[test]
    fn random_writes_agree_with_a_list_of_keys_and_rollbacks_undo_them() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut buffer = Buffer::default();
            let mut model = vec![None; 16];
            let mut points = Vec::new();
            for step in 0..40_u8 {
                let (a, b) = (random.u8(0..16), random.u8(0..16));
                let (key, value) = (Bytes::copy_from_slice(&[a]), Bytes::copy_from_slice(&[step]));
                match random.u8(0..7) {
                    0 | 1 => {
                        model[usize::from(a)] = Some(Some(value.clone()));
                        buffer.write(Write::Put(key, value));
                    }
                    2 => {
                        model[usize::from(a)] = Some(None);
                        buffer.write(Write::Remove(key));
                    }
                    3 | 4 => {
                        (a..b).for_each(|key| model[usize::from(key)] = Some(None));
                        buffer.write(Write::RemoveRange(key, Bytes::copy_from_slice(&[b])));
                    }
                    5 => points.push((buffer.savepoint(), model.clone())),
                    _ if points.is_empty() => {}
                    _ => {
                        let at = random.usize(..points.len());
                        let (point, old) = points[at].clone();
                        if random.bool() {
                            buffer.rollback_to(point).unwrap();
                            model = old;
                            points.truncate(at + 1);
                        } else {
                            buffer.release(point).unwrap();
                            points.truncate(at);
                        }
                    }
                }
                assert_eq!(state(&buffer), model, "seed {seed}, step {step}");
            }
            let mut again = Buffer::default();
            buffer.writes().into_iter().for_each(|write| again.write(write));
            assert_eq!(state(&again), model, "seed {seed}");
        }
    }
}
