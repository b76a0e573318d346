//! The numbers of ops in the order of their keys, in chunks, so that an insertion moves only one chunk.
//!
//! ```text
//!   first chunk | chunk | chunk | ...     starts: the place of the first op of each chunk but the first
//! ```
//!
//! op_list.1. No chunk is empty, except the first one of an empty list. `starts` has the number of ops before
//!     each chunk of `rest`.
//!
//! A list made at once is one chunk, whatever its length. The first insertion splits it.

/// An insertion splits longer chunks.
#[cfg(not(test))]
const CHUNK_OPS_MAX: usize = 2048;
#[cfg(test)]
const CHUNK_OPS_MAX: usize = 8;

/// Numbers of ops in an order that the caller chooses.
#[derive(Clone, Debug, Default)]
pub(super) struct OpList {
    first: Vec<u32>,
    rest: Vec<Vec<u32>>,
    starts: Vec<u32>,
}

impl OpList {
    /// Creates a list of ops in this order.
    pub(super) fn new(ops: Vec<u32>) -> Self {
        OpList { first: ops, ..OpList::default() }
    }

    /// Number of ops.
    pub(super) fn len(&self) -> usize {
        match (self.starts.last(), self.rest.last()) {
            (Some(start), Some(last)) => *start as usize + last.len(),
            _ => self.first.len(),
        }
    }

    fn chunk(&self, number: usize) -> &Vec<u32> {
        number.checked_sub(1).map_or(&self.first, |at| &self.rest[at])
    }

    fn chunk_mut(&mut self, number: usize) -> &mut Vec<u32> {
        match number.checked_sub(1) {
            Some(at) => &mut self.rest[at],
            None => &mut self.first,
        }
    }

    /// Returns the chunk of a place, and the place in it. The last chunk if the place is past the end.
    #[inline]
    fn find(&self, place: usize) -> (usize, usize) {
        let number = self.starts.partition_point(|start| *start as usize <= place);
        (number, number.checked_sub(1).map_or(place, |at| place - self.starts[at] as usize))
    }

    /// Returns the op at a place.
    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<u32> {
        let (number, at) = self.find(place);
        self.chunk(number).get(at).copied()
    }

    /// Returns the number of ops for which this holds. It holds for the first ones.
    pub(super) fn partition_point(&self, holds: impl Fn(u32) -> bool) -> usize {
        let number = self.rest.partition_point(|chunk| holds(chunk[0]));
        let start = number.checked_sub(1).map_or(0, |at| self.starts[at] as usize);
        start + self.chunk(number).partition_point(|op| holds(*op))
    }

    /// Iterates over the ops from a place on.
    #[inline]
    pub(super) fn iter_from(&self, place: usize) -> impl Iterator<Item = u32> + Clone {
        let (number, at) = self.find(place);
        let chunk = self.chunk(number);
        let rest = self.rest[number..].iter().flatten();
        chunk[at.min(chunk.len())..].iter().chain(rest).copied()
    }

    /// Replaces the op at a place.
    pub(super) fn set(&mut self, place: usize, op: u32) {
        let (number, at) = self.find(place);
        self.chunk_mut(number)[at] = op;
    }

    /// Inserts an op before the one at a place.
    pub(super) fn insert(&mut self, place: usize, op: u32) {
        let (mut number, mut at) = self.find(place);
        if self.chunk(number).len() >= CHUNK_OPS_MAX {
            self.split(number);
            (number, at) = self.find(place);
        }
        self.chunk_mut(number).insert(at, op);
        self.starts[number..].iter_mut().for_each(|start| *start += 1);
    }

    /// Splits a chunk into halves of the longest ones.
    fn split(&mut self, number: usize) {
        let chunk = self.chunk_mut(number);
        let mut parts = chunk.chunks(CHUNK_OPS_MAX / 2).map(<[u32]>::to_vec);
        let first = parts.next().unwrap_or_default();
        let further: Vec<_> = parts.collect();
        *chunk = first;
        self.rest.splice(number..number, further);
        self.count();
    }

    /// Makes the list hold op_list.1.
    fn count(&mut self) {
        self.rest.retain(|chunk| !chunk.is_empty());
        if self.first.is_empty() && !self.rest.is_empty() {
            self.first = self.rest.remove(0);
        }
        self.starts.clear();
        let mut start = self.first.len() as u32;
        for chunk in &self.rest {
            self.starts.push(start);
            start += chunk.len() as u32;
        }
    }

    /// Removes the ops from a place to another one and returns them.
    pub(super) fn remove(&mut self, from: usize, to: usize) -> Vec<u32> {
        let mut removed = Vec::new();
        let (mut number, mut at) = self.find(from);
        let (first, count) = (number, to.saturating_sub(from));
        while removed.len() < count {
            let chunk = self.chunk_mut(number);
            let end = chunk.len().min(at + count - removed.len());
            removed.extend(chunk.drain(at..end));
            (number, at) = (number + 1, 0);
        }
        match number == first + 1 && !self.chunk(first).is_empty() {
            true => self.starts[first..].iter_mut().for_each(|start| *start -= count as u32),
            false => self.count(),
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &OpList, model: &[u32]) {
        assert_eq!(list.len(), model.len());
        assert!(list.rest.iter().all(|chunk| !chunk.is_empty()), "op_list.1");
        assert_eq!(list.rest.is_empty(), list.starts.is_empty(), "op_list.1");
        for place in 0..=model.len() {
            assert_eq!(list.get(place), model.get(place).copied(), "{place}");
            assert!(list.iter_from(place).eq(model[place..].iter().copied()), "{place}");
        }
        for op in 0..100 {
            assert_eq!(list.partition_point(|at| at < op), model.partition_point(|at| *at < op), "{op}");
        }
    }

    #[test]
    fn op_list_1_a_list_is_the_same_as_one_vector() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut chunks_max = 0;
        for _ in 0..200 {
            let mut model: Vec<u32> = (0..rng.u32(0..60)).map(|_| rng.u32(..100)).collect();
            model.sort_unstable();
            let mut list = OpList::new(model.clone());
            for _ in 0..rng.usize(0..100) {
                let place = rng.usize(..=model.len());
                match rng.u8(..8) {
                    0 => {
                        let to = rng.usize(place..=model.len().min(place + 30));
                        let removed: Vec<_> = model.drain(place..to).collect();
                        assert_eq!(list.remove(place, to), removed);
                    }
                    1 if place < model.len() => {
                        list.set(place, model[place]);
                    }
                    _ => {
                        let op = rng.u32(..100);
                        let place = model.partition_point(|at| *at < op);
                        model.insert(place, op);
                        list.insert(place, op);
                    }
                }
                chunks_max = chunks_max.max(list.rest.len());
                check(&list, &model);
            }
        }
        assert!(chunks_max > 8, "{chunks_max}");
    }
}
