//! Merges sorted sources into one, newest version first.
//!
//! M1. Sources stand newest first: where several hold a key, the version of the first of them counts, whatever the
//!     sequence numbers (for any key, a newer source holds only newer versions).
//! M2. After a move forward all sources stand at or after the current key; those that hold it too are in `same`.
//!     After a move backward, the mirror image.
//!
//! Sources are few (a memtable or two, a handful of runs): a linear pass beats a heap.

use crate::types::cursor::SourceCursor;
use crate::types::entry::Kind;
use crate::types::{Result, SeqNo, Value};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// Several sources as one.
pub struct MergeCursor<C> {
    sources: Vec<C>,
    /// The source that holds the current key's newest version; `sources.len()` if not valid.
    current: usize,
    /// The other sources that stand on the current key.
    same: Vec<usize>,
    direction: Direction,
}

impl<C: SourceCursor> MergeCursor<C> {
    /// Merges sources, newest first.
    pub fn new(sources: Vec<C>) -> Self {
        let current = sources.len();
        MergeCursor { sources, current, same: Vec::new(), direction: Direction::Forward }
    }

    /// Finds the source of the next key to show (M2).
    #[inline]
    fn choose(&mut self) {
        if let [only] = &self.sources[..] {
            self.current = usize::from(!only.valid());
            return;
        }
        self.same.clear();
        self.current = self.sources.len();
        for (i, source) in self.sources.iter().enumerate() {
            if !source.valid() {
                continue;
            }
            let Some(best) = self.sources.get(self.current) else {
                self.current = i;
                continue;
            };
            let order = match self.direction {
                Direction::Forward => source.key().cmp(best.key()),
                Direction::Backward => best.key().cmp(source.key()),
            };
            match order {
                std::cmp::Ordering::Less => {
                    self.same.clear();
                    self.current = i;
                }
                std::cmp::Ordering::Equal => self.same.push(i),
                std::cmp::Ordering::Greater => {}
            }
        }
    }

    fn each(&mut self, direction: Direction, mut go: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        for source in &mut self.sources {
            go(source)?;
        }
        self.direction = direction;
        self.choose();
        Ok(())
    }

    /// Turns round on the current key: places all other sources on its far side.
    #[cold]
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let key = self.key().to_vec();
        for (i, source) in self.sources.iter_mut().enumerate() {
            if i == self.current {
                continue;
            }
            match direction {
                Direction::Forward => {
                    source.seek(&key)?;
                    if source.valid() && source.key() == key {
                        source.next()?;
                    }
                }
                Direction::Backward => source.seek_before(&key)?,
            }
        }
        self.same.clear();
        self.direction = direction;
        Ok(())
    }

    /// Skips forward: sources for which `skip` holds move to the first key `>= key`, the others stay; then the
    /// smallest key counts. For jumping over what a range tombstone covers.
    pub fn skip_to(&mut self, key: &[u8], skip: impl Fn(usize) -> bool) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward);
        for (i, source) in self.sources.iter_mut().enumerate() {
            if source.valid() && skip(i) && source.key() < key {
                source.seek(key)?;
            }
        }
        self.choose();
        Ok(())
    }

    /// The index of the source that shows the current key.
    pub fn current_source(&self) -> usize {
        self.current
    }
}

impl<C: SourceCursor> SourceCursor for MergeCursor<C> {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.each(Direction::Forward, |s| s.seek(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.each(Direction::Backward, |s| s.seek_before(key))
    }

    fn seek_first(&mut self) -> Result<()> {
        self.each(Direction::Forward, |s| s.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.each(Direction::Backward, |s| s.seek_last())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.direction == Direction::Backward {
            self.turn(Direction::Forward)?;
        }
        self.sources[self.current].next()?;
        for i in 0..self.same.len() {
            self.sources[self.same[i]].next()?;
        }
        self.choose();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.direction == Direction::Forward {
            self.turn(Direction::Backward)?;
        }
        self.sources[self.current].prev()?;
        for i in 0..self.same.len() {
            self.sources[self.same[i]].prev()?;
        }
        self.choose();
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current < self.sources.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.sources[self.current].key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.sources[self.current].seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.sources[self.current].kind()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.sources[self.current].value()
    }

    fn value_handle(&self) -> Value {
        self.sources[self.current].value_handle()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A source of distinct keys in memory.
    pub(crate) struct VecCursor {
        entries: Vec<(Vec<u8>, SeqNo, Kind)>,
        at: Option<usize>,
    }

    impl VecCursor {
        pub(crate) fn new(entries: Vec<(Vec<u8>, SeqNo, Kind)>) -> Self {
            VecCursor { entries, at: None }
        }
        fn go(&mut self, at: Option<usize>) -> Result<()> {
            self.at = at.filter(|&i| i < self.entries.len());
            Ok(())
        }
        fn here(&self) -> &(Vec<u8>, SeqNo, Kind) {
            &self.entries[self.at.expect("a valid cursor")]
        }
    }

    impl SourceCursor for VecCursor {
        fn seek(&mut self, key: &[u8]) -> Result<()> {
            self.go(Some(self.entries.partition_point(|e| e.0.as_slice() < key)))
        }
        fn seek_before(&mut self, key: &[u8]) -> Result<()> {
            self.go(self.entries.partition_point(|e| e.0.as_slice() < key).checked_sub(1))
        }
        fn seek_first(&mut self) -> Result<()> {
            self.go(Some(0))
        }
        fn seek_last(&mut self) -> Result<()> {
            self.go(self.entries.len().checked_sub(1))
        }
        fn next(&mut self) -> Result<()> {
            self.go(self.at.map(|i| i + 1))
        }
        fn prev(&mut self) -> Result<()> {
            self.go(self.at.and_then(|i| i.checked_sub(1)))
        }
        fn valid(&self) -> bool {
            self.at.is_some()
        }
        fn key(&self) -> &[u8] {
            &self.here().0
        }
        fn seq(&self) -> SeqNo {
            self.here().1
        }
        fn kind(&self) -> Kind {
            self.here().2
        }
        fn value(&self) -> &[u8] {
            &self.here().0
        }
        fn value_handle(&self) -> Value {
            Value::copy_of(self.value())
        }
    }

    #[test]
    fn m1_m2_any_walk_agrees_with_a_map() {
        let mut rng = fastrand::Rng::with_seed(8);
        for round in 0..400 {
            let sources = rng.usize(0..4);
            let mut model: BTreeMap<Vec<u8>, SeqNo> = BTreeMap::new();
            let mut cursors = Vec::new();
            for source in 0..sources {
                let mut own = BTreeMap::new();
                for _ in 0..rng.usize(0..12) {
                    let seq = SeqNo::new((10 - source as u64) * 10);
                    own.insert(vec![rng.u8(0..20)], (seq, Kind::Put));
                }
                for (key, (seq, _)) in &own {
                    model.entry(key.clone()).or_insert(*seq);
                }
                cursors.push(VecCursor::new(own.into_iter().map(|(k, (s, kind))| (k, s, kind)).collect()));
            }
            let mut merged = MergeCursor::new(cursors);
            let keys: Vec<_> = model.iter().collect();
            let mut at: Option<usize> = None;
            for step in 0..60 {
                let key = [rng.u8(0..21)];
                let rank = keys.partition_point(|(k, _)| k.as_slice() < &key[..]);
                match rng.u8(0..8) {
                    0 => (merged.seek(&key).unwrap(), at = Some(rank)).0,
                    1 => (merged.seek_before(&key).unwrap(), at = rank.checked_sub(1)).0,
                    2 => (merged.seek_first().unwrap(), at = Some(0)).0,
                    3 => (merged.seek_last().unwrap(), at = keys.len().checked_sub(1)).0,
                    4 | 5 if at.is_some() => (merged.next().unwrap(), at = at.map(|i| i + 1)).0,
                    _ if at.is_some() => (merged.prev().unwrap(), at = at.and_then(|i| i.checked_sub(1))).0,
                    _ => {}
                }
                at = at.filter(|&i| i < keys.len());
                let shown = merged.valid().then(|| (merged.key().to_vec(), merged.seq()));
                assert_eq!(shown, at.map(|i| (keys[i].0.clone(), *keys[i].1)), "round {round} step {step}");
            }
        }
    }
}
