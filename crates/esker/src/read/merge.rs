//! Merges sorted sources into one, newest version first.
//!
//! read_merge.1. Sources stand newest first: where several hold a key, the version of the first of them counts, whatever the
//!     sequence numbers (for any key, a newer source holds only newer versions).
//! read_merge.2. After a move forward all sources stand at or after the current key; those that hold it too are in `same`.
//!     After a move backward, the mirror image.
//! read_merge.3. After an error the cursor is not valid, whatever its sources stand on, until a seek succeeds.
//!
//! Sources are few (a memtable or two, a handful of runs): a linear pass beats a heap.

use crate::types::cursor::SourceCursor;
use crate::types::expiry::Expiry;
use crate::types::op::Kind;
use crate::types::stored::Stored;
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

    /// Finds the source of the next key to show (read_merge.2).
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

    /// Stands on no key until `choose` has run (read_merge.3); says which source held the current one.
    #[inline]
    fn leave(&mut self) -> usize {
        std::mem::replace(&mut self.current, self.sources.len())
    }

    fn each(&mut self, direction: Direction, mut go: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.leave();
        for source in &mut self.sources {
            go(source)?;
        }
        self.direction = direction;
        self.choose();
        Ok(())
    }

    /// Turns round on the key of the source `current`: places all others on its far side.
    #[cold]
    fn turn(&mut self, current: usize, direction: Direction) -> Result<()> {
        let key = self.sources[current].key().to_vec();
        for (i, source) in self.sources.iter_mut().enumerate() {
            if i == current {
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
        self.leave();
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
        let current = self.leave();
        if self.direction == Direction::Backward {
            self.turn(current, Direction::Forward)?;
        }
        self.sources[current].next()?;
        for i in 0..self.same.len() {
            self.sources[self.same[i]].next()?;
        }
        self.choose();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let current = self.leave();
        if self.direction == Direction::Forward {
            self.turn(current, Direction::Backward)?;
        }
        self.sources[current].prev()?;
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
    fn stored(&self) -> Stored<&[u8]> {
        self.sources[self.current].stored()
    }

    #[inline]
    fn expiry(&self) -> Option<Expiry> {
        self.sources[self.current].expiry()
    }

    #[inline]
    fn share(&self) -> Stored<Value> {
        self.sources[self.current].share()
    }

    fn older(&mut self) -> Result<bool> {
        let current = self.leave();
        if self.sources[current].older()? {
            self.current = current;
            return Ok(true);
        }
        // read_merge.1: the next source that holds the key has the next older version. All of them stay in `same` or current (read_merge.2).
        self.current = current;
        let Some(at) = self.same.iter().position(|&i| i > current) else { return Ok(false) };
        self.current = std::mem::replace(&mut self.same[at], current);
        Ok(true)
    }
}

#[cfg(test)]
pub(crate) mod tests;
