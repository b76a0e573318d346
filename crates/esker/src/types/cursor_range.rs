//! Walks through a range of keys from both ends, with one cursor for each end.

use std::ops::Bound;

use super::cursor::SourceCursor;
use super::{KeyBounds, Result};

/// A range that two cursors of the same source walk through until they meet. Ends after an error.
pub(crate) struct CursorRange<C> {
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// On the last key returned from the front; the back ends before it.
    front: Option<C>,
    /// On the last key returned from the back; the front ends before it.
    back: Option<C>,
    done: bool,
}

impl<C: SourceCursor> CursorRange<C> {
    pub(crate) fn new(bounds: &impl KeyBounds) -> Self {
        let owned = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
        CursorRange {
            low: owned(bounds.lower()),
            high: owned(bounds.upper()),
            front: None,
            back: None,
            done: false,
        }
    }

    /// Returns a cursor on the next key from the front. `open` returns a new cursor over the source.
    pub(crate) fn next(&mut self, open: impl FnOnce() -> C) -> Option<Result<&C>> {
        self.item(|range| range.step_front(open), |range| range.front.as_ref())
    }

    /// Returns a cursor on the next key from the back.
    pub(crate) fn next_back(&mut self, open: impl FnOnce() -> C) -> Option<Result<&C>> {
        self.item(|range| range.step_back(open), |range| range.back.as_ref())
    }

    /// Moves the front cursor to the next key of the range. Returns false if there is none.
    fn step_front(&mut self, open: impl FnOnce() -> C) -> Result<bool> {
        let started = self.front.is_some();
        let cursor = self.front.get_or_insert_with(open);
        match &self.low {
            _ if started => cursor.next()?,
            Bound::Unbounded => cursor.seek_first()?,
            Bound::Included(key) => cursor.seek(key)?,
            Bound::Excluded(key) => {
                cursor.seek(key)?;
                if cursor.valid() && cursor.key() == &**key {
                    cursor.next()?;
                }
            }
        }
        Ok(cursor.valid()
            && match (&self.back, &self.high) {
                (Some(back), _) => cursor.key() < back.key(),
                (None, Bound::Unbounded) => true,
                (None, Bound::Included(end)) => cursor.key() <= &**end,
                (None, Bound::Excluded(end)) => cursor.key() < &**end,
            })
    }

    /// Moves the back cursor to the previous key of the range. Returns false if there is none.
    fn step_back(&mut self, open: impl FnOnce() -> C) -> Result<bool> {
        let started = self.back.is_some();
        let cursor = self.back.get_or_insert_with(open);
        match &self.high {
            _ if started => cursor.prev()?,
            Bound::Unbounded => cursor.seek_last()?,
            Bound::Excluded(key) => cursor.seek_before(key)?,
            Bound::Included(key) => {
                cursor.seek(key)?;
                if !cursor.valid() || cursor.key() != &**key {
                    cursor.seek_before(key)?;
                }
            }
        }
        Ok(cursor.valid()
            && match (&self.front, &self.low) {
                (Some(front), _) => cursor.key() > front.key(),
                (None, Bound::Unbounded) => true,
                (None, Bound::Included(start)) => cursor.key() >= &**start,
                (None, Bound::Excluded(start)) => cursor.key() > &**start,
            })
    }

    fn item(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<bool>,
        cursor: impl FnOnce(&Self) -> Option<&C>,
    ) -> Option<Result<&C>> {
        if self.done {
            return None;
        }
        match step(self) {
            Ok(true) => cursor(self).map(Ok),
            Ok(false) => {
                self.done = true;
                None
            }
            Err(e) => {
                self.done = true;
                Some(Err(e))
            }
        }
    }
}
