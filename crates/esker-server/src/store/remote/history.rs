//! What commits have changed, for as long as a transaction of a connection may conflict with them.
//!
//! Keys of all spaces lie in one order: the number of the space, 4 bytes, big-endian, and the key. This
//! process gives the numbers out. They are even, so that ranges of different spaces do not touch and are not
//! joined.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use esker_kv::buffer::{Buffer, Write};

use crate::store::{Space, Span};

const NUMBER_BYTES: usize = 4;

/// Returns a key of a space in the order of all keys.
pub(super) fn full_key(number: u32, key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(NUMBER_BYTES + key.len() + 1);
    bytes.put_u32(number);
    bytes.put_slice(key);
    bytes.freeze()
}

/// Returns the range of all keys of a space.
pub(super) fn range_of(number: u32) -> (Bytes, Bytes) {
    (full_key(number, b""), full_key(number + 1, b""))
}

/// Returns a range of a space: its first key and the first one behind it.
pub(super) fn full_range(number: u32, span: &Span<'_>) -> (Bytes, Bytes) {
    let behind = |key: &[u8]| full_key(number, &[key, &[0]].concat());
    let from = match span.lower {
        Bound::Included(key) => full_key(number, key),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => full_key(number, b""),
    };
    let to = match span.upper {
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => full_key(number, key),
        Bound::Unbounded => full_key(number + 1, b""),
    };
    (from, to)
}

/// Returns the user's part of a key.
pub(super) fn key_of(key: &[u8]) -> &[u8] {
    key.get(NUMBER_BYTES..).unwrap_or_default()
}

/// Returns the number of the space of a key.
pub(super) fn number_of_key(key: &[u8]) -> u32 {
    key.first_chunk().map_or(u32::MAX, |number| u32::from_be_bytes(*number))
}

/// What a commit has changed. `None`: anything.
type Changes = Option<Arc<Buffer>>;

/// The commits that transactions of connections may conflict with.
pub(super) struct History {
    /// The number of the last commit.
    last: u64,
    commits: VecDeque<(u64, Changes)>,
    /// Number of transactions that began at each commit.
    parts: BTreeMap<u64, usize>,
    /// Numbers of spaces by name. Handles keep the name by which they were opened.
    spaces: BTreeMap<Box<str>, u32>,
}

impl History {
    /// Creates a history that goes on behind a commit.
    pub(super) fn new(last: u64) -> Self {
        History { last, commits: VecDeque::new(), parts: BTreeMap::new(), spaces: BTreeMap::new() }
    }

    /// Returns the number of a space.
    pub(super) fn number_of(&mut self, space: &Space) -> u32 {
        let next = 2 * self.spaces.len() as u32;
        match self.spaces.get(space.name()) {
            Some(number) => *number,
            None => *self.spaces.entry(space.name().into()).or_insert(next),
        }
    }

    /// Returns the number of the last commit.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Begins a part. Returns the number of the last commit.
    pub(super) fn begin(&mut self) -> u64 {
        *self.parts.entry(self.last).or_default() += 1;
        self.last
    }

    /// Ends a part that began at this commit.
    pub(super) fn end(&mut self, began: u64) {
        if let Some(count) = self.parts.get_mut(&began) {
            *count -= 1;
            if *count == 0 {
                self.parts.remove(&began);
            }
        }
        let oldest = self.parts.keys().next().copied().unwrap_or(u64::MAX);
        while self.commits.front().is_some_and(|(commit, _)| *commit <= oldest) {
            self.commits.pop_front();
        }
    }

    /// Adds a commit, whose number is [`last`](Self::last) plus one.
    pub(super) fn add(&mut self, changes: Arc<Buffer>) -> u64 {
        self.add_changes(Some(changes))
    }

    /// Adds a commit that may have changed anything.
    pub(super) fn add_all(&mut self) -> u64 {
        self.add_changes(None)
    }

    fn add_changes(&mut self, changes: Changes) -> u64 {
        self.last += 1;
        if !self.parts.is_empty() {
            self.commits.push_back((self.last, changes));
        }
        self.last
    }

    /// Returns whether a commit after `began` has changed a key in one of these ranges.
    pub(super) fn has_changed(&self, began: u64, ranges: &[(Bytes, Bytes)]) -> bool {
        let later = self.commits.iter().filter(|(commit, _)| *commit > began);
        later.into_iter().any(|(_, changes)| match changes {
            None => !ranges.is_empty(),
            Some(writes) => meets(writes, ranges),
        })
    }
}

/// Returns whether a key in one of these ranges was written.
pub(super) fn meets(writes: &Buffer, ranges: &[(Bytes, Bytes)]) -> bool {
    ranges.iter().any(|(from, to)| writes.touches(from, to))
}

/// Returns the ranges that were written: keys as ranges of one key.
pub(super) fn written(writes: &Buffer) -> Vec<(Bytes, Bytes)> {
    let range = |write| match write {
        Write::RemoveRange(from, to) => (from, to),
        Write::Put(key, _) | Write::Remove(key) => {
            let behind = [&key[..], &[0]].concat();
            (key, behind.into())
        }
    };
    writes.writes().into_iter().map(range).collect()
}
