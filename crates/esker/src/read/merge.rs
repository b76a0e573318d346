//! Merges sorted sources into one, newest version first.
//!
//! Sources are ordered newest first: if several hold a key, the version of the first one wins,
//! whatever the sequence numbers. (For any key, a newer source holds only newer versions.)
//!
//! After a move forward, all sources are at or after the current key; those at the current key
//! are in `same`. After a move backward, the mirror image holds.
//!
//! After an error the cursor is not valid, whatever the positions of its sources, until a seek
//! succeeds.
//!
//! There are few sources (one or two memtables, a handful of runs), so a linear pass beats a heap. While one
//! source is ahead of the others, a step compares its key only with the smallest key of the others. A table
//! that stays ahead is asked once for each block how many of its keys come before that key.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::types::bounds::BoundKey;
use crate::types::cursor::SourceCursor;
use crate::types::expiry::Expiry;
use crate::types::key::head8;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Forward,
    Backward,
}

/// Merges several sources into one cursor.
pub struct MergeCursor<C> {
    lanes: Vec<Lane<C>>,
    /// The source with the newest version of the current key; `lanes.len()` if not valid.
    current: usize,
    /// The other sources at the current key.
    same: Vec<usize>,
    /// Among the sources at other keys, the one with the next key; `lanes.len()` if there is none. `None` if
    /// not known.
    rival: Option<usize>,
    direction: Direction,
}

/// A source with cached data for comparisons. With a single source nothing is cached.
struct Lane<C> {
    cursor: C,
    valid: bool,
    /// First bytes of the key.
    head: u64,
}

impl<C: SourceCursor> Lane<C> {
    /// Updates the cached data after a move.
    #[inline(always)]
    fn note(&mut self) {
        self.valid = self.cursor.valid();
        if self.valid {
            self.head = head8(self.cursor.key());
        }
    }
}

impl<C: SourceCursor> MergeCursor<C> {
    /// Creates a cursor over sources ordered newest first.
    pub fn new(sources: impl IntoIterator<Item = C>) -> Self {
        let lane = |cursor| Lane { cursor, valid: false, head: 0 };
        let lanes: Vec<_> = sources.into_iter().map(lane).collect();
        let current = lanes.len();
        MergeCursor { lanes, current, same: Vec::new(), rival: None, direction: Direction::Forward }
    }

    /// Compares the keys of two sources in the current direction.
    #[inline]
    fn order(&self, a: usize, b: usize) -> Ordering {
        let (a, b) = (&self.lanes[a], &self.lanes[b]);
        let order = a.head.cmp(&b.head).then_with(|| a.cursor.key().cmp(b.cursor.key()));
        if self.direction == Direction::Forward { order } else { order.reverse() }
    }

    /// Finds the source of the next key after all sources have moved.
    #[inline]
    fn choose(&mut self) {
        if let [only] = &self.lanes[..] {
            self.current = usize::from(!only.cursor.valid());
            return;
        }
        self.lanes.iter_mut().for_each(Lane::note);
        self.choose_noted();
    }

    /// Like `choose`, for sources whose cached data is up to date.
    fn choose_noted(&mut self) {
        self.same.clear();
        let none = self.lanes.len();
        let (mut first, mut second) = (none, none);
        for i in 0..self.lanes.len() {
            if !self.lanes[i].valid {
                continue;
            }
            if first == none {
                first = i;
                continue;
            }
            match self.order(i, first) {
                Ordering::Less => {
                    self.same.clear();
                    (first, second) = (i, first);
                }
                Ordering::Equal => self.same.push(i),
                Ordering::Greater if second == none || self.order(i, second).is_lt() => second = i,
                Ordering::Greater => {}
            }
        }
        (self.current, self.rival) = (first, Some(second));
    }

    /// Finds the next source after the current one and those in `same` have moved. Usually one comparison
    /// shows that the current source is still ahead.
    #[inline]
    fn choose_after(&mut self, moved: usize) {
        if self.lanes.len() == 1 {
            return self.choose();
        }
        self.lanes[moved].note();
        if self.same.is_empty()
            && self.lanes[moved].valid
            && let Some(rival) = self.rival
            && (rival == self.lanes.len() || self.order(moved, rival).is_lt())
        {
            self.current = moved;
            return;
        }
        for i in 0..self.same.len() {
            self.lanes[self.same[i]].note();
        }
        if self.rival.is_none() {
            return self.choose();
        }
        self.choose_noted();
    }

    /// Makes the cursor invalid until a source is chosen. Returns the previous current source.
    #[inline]
    fn leave(&mut self) -> usize {
        std::mem::replace(&mut self.current, self.lanes.len())
    }

    fn each(&mut self, direction: Direction, mut go: impl FnMut(&mut C) -> Result<()>) -> Result<()> {
        self.leave();
        self.rival = None;
        for lane in &mut self.lanes {
            go(&mut lane.cursor)?;
        }
        self.direction = direction;
        self.choose();
        Ok(())
    }

    /// Reverses the direction at the key of the source `current`: moves the other sources to the other side
    /// of that key.
    #[cold]
    fn turn(&mut self, current: usize, direction: Direction) -> Result<()> {
        self.rival = None;
        let key = self.lanes[current].cursor.key().to_vec();
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            if i == current {
                continue;
            }
            let source = &mut lane.cursor;
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

    /// Skips forward over keys covered by a range tombstone: sources for which `skip` returns true seek to
    /// the first key `>= key`, the others stay.
    pub fn skip_to(&mut self, key: &[u8], skip: impl Fn(usize) -> bool) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward);
        self.leave();
        self.rival = None;
        for (i, lane) in self.lanes.iter_mut().enumerate() {
            let source = &mut lane.cursor;
            if source.valid() && skip(i) && source.key() < key {
                source.seek(key)?;
            }
        }
        self.choose();
        Ok(())
    }

    /// Returns the source if there is only one and the cursor moves forward.
    #[inline]
    pub fn only(&mut self) -> Option<&mut C> {
        match &mut self.lanes[..] {
            [only] if self.direction == Direction::Forward => Some(&mut only.cursor),
            _ => None,
        }
    }

    /// Returns how many of the next keys the current source may show alone; see
    /// [`SourceCursor::plain_before`]. Zero if another source is at the current key.
    pub fn plain_ahead(&self, upper: &Bound<BoundKey>) -> usize {
        if self.direction != Direction::Forward || !self.same.is_empty() || !self.valid() {
            return 0;
        }
        let rival = match (&self.lanes[..], self.rival) {
            ([_], _) => None,
            (_, None) => return 0,
            (lanes, Some(rival)) => lanes.get(rival).map(|lane| lane.cursor.key()),
        };
        self.lanes[self.current].cursor.plain_before(rival, upper)
    }

    /// Returns the current source, for moves to keys that `plain_ahead` has counted. The other sources stay
    /// ahead of it.
    #[inline]
    pub fn current(&mut self) -> &mut C {
        &mut self.lanes[self.current].cursor
    }

    /// Returns the index of the source at the current key.
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
        self.lanes[current].cursor.next()?;
        for i in 0..self.same.len() {
            self.lanes[self.same[i]].cursor.next()?;
        }
        self.choose_after(current);
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        let current = self.leave();
        if self.direction == Direction::Forward {
            self.turn(current, Direction::Backward)?;
        }
        self.lanes[current].cursor.prev()?;
        for i in 0..self.same.len() {
            self.lanes[self.same[i]].cursor.prev()?;
        }
        self.choose_after(current);
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current < self.lanes.len()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.lanes[self.current].cursor.key()
    }

    #[inline]
    fn seq(&self) -> SeqNo {
        self.lanes[self.current].cursor.seq()
    }

    #[inline]
    fn kind(&self) -> Kind {
        self.lanes[self.current].cursor.kind()
    }

    #[inline]
    fn stored(&self) -> Stored<&[u8]> {
        self.lanes[self.current].cursor.stored()
    }

    #[inline]
    fn expiry(&self) -> Option<Expiry> {
        self.lanes[self.current].cursor.expiry()
    }

    #[inline]
    fn share(&self) -> Stored<Value> {
        self.lanes[self.current].cursor.share()
    }

    fn stored_ahead(&self, keys: usize) -> Option<Stored<&[u8]>> {
        self.lanes[self.current].cursor.stored_ahead(keys)
    }

    fn older(&mut self) -> Result<bool> {
        let current = self.leave();
        if self.lanes[current].cursor.older()? {
            self.current = current;
            return Ok(true);
        }
        // The next source with this key has the next older version. All of them are in `same`
        // or current.
        self.current = current;
        let Some(at) = self.same.iter().position(|&i| i > current) else { return Ok(false) };
        self.current = std::mem::replace(&mut self.same[at], current);
        Ok(true)
    }
}

#[cfg(test)]
pub(crate) mod tests;
