//! A stream: entries by id, and consumer groups.
//!
//! ```text
//!   0, ms, seq                  --> fields and values, each with its length
//!   1, group                    --> last delivered id, entries read, entries pending
//!   2, group, consumer          --> when it was last seen, when it was last active, its pending entries
//!   3, group, ms, seq           --> a pending entry: consumer, time of delivery, number of deliveries
//!   4, group, consumer, ms, seq --> nothing: index of the consumer's pending entries
//! ```
//!
//! Names of groups, and in kind 4 those of consumers, are stored with their lengths. The head holds the last
//! id, the number of entries ever added, and the largest removed id.
//!
//! Ids only grow.

pub(in crate::types) mod groups;
mod references;

use std::ops::{Bound, ControlFlow};

pub use self::groups::{Consumer, Group, Pending};
pub use self::references::References;
use super::collection::Collection;
use crate::resp::fail::Done;
use crate::resp::numbers::parse_int;
use crate::run::cx::Cx;
use crate::store::record::Kind;
use crate::store::{Order, Span};

pub(in crate::types) const ENTRY: u8 = 0;

/// The id of an entry: a time in milliseconds, and a number within the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Number within the millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The largest id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// Parses `ms-seq`, or `ms` with this number.
    pub fn parse(text: &[u8], seq: u64) -> Option<Self> {
        let number = |text: &[u8]| {
            let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
            std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
        };
        match text.iter().position(|byte| *byte == b'-') {
            Some(at) => Some(StreamId { ms: number(&text[..at])?, seq: number(&text[at + 1..])? }),
            None => Some(StreamId { ms: number(text)?, seq }),
        }
    }

    /// The next id. `None` after the largest.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The previous id. `None` before the smallest.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    pub(in crate::types) fn bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    pub(in crate::types) fn of(bytes: &[u8]) -> Self {
        let n = bytes.try_into().map_or(0, u128::from_be_bytes);
        StreamId { ms: (n >> 64) as u64, seq: n as u64 }
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// An entry: its id, and fields and values in turn.
pub type Entry = (StreamId, Vec<Vec<u8>>);

/// A stream.
pub struct Stream {
    parts: Collection,
    counts: groups::Counts,
}

fn put_piece(bytes: &mut Vec<u8>, piece: &[u8]) {
    bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
    bytes.extend_from_slice(piece);
}

fn pieces(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        let Some(piece) = rest.get(..len) else { break };
        pieces.push(piece.to_vec());
        bytes = &rest[len..];
    }
    pieces
}

/// Counts the memory of the pieces before they are copied (command_memory.1).
fn gather_pieces(cx: &Cx<'_>, mut bytes: &[u8]) -> Done {
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        let Some(rest) = rest.get(len..) else { break };
        cx.gather(len)?;
        bytes = rest;
    }
    cx.gather(0)
}

pub(in crate::types) fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn entry_key(id: StreamId) -> Vec<u8> {
    [&[ENTRY][..], &id.bytes()].concat()
}

impl Stream {
    fn of(parts: Collection) -> Self {
        Stream { parts, counts: groups::Counts::default() }
    }

    /// See [`Collection::open`].
    ///
    /// # Errors
    /// See there.
    pub fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Self>> {
        Ok(Collection::open(cx, key, Kind::Stream)?.map(Self::of))
    }

    /// See [`Collection::open_or_new`].
    ///
    /// # Errors
    /// See there.
    pub fn open_or_new(cx: &mut Cx<'_>, key: &[u8]) -> Done<Self> {
        Collection::open_or_new(cx, key, Kind::Stream).map(Self::of)
    }

    /// Number of entries.
    pub fn len(&self) -> u64 {
        self.parts.len()
    }

    /// The last assigned id.
    pub fn last_id(&self) -> StreamId {
        StreamId { ms: self.parts.shape.head[0], seq: self.parts.shape.head[1] }
    }

    /// Sets it.
    pub fn set_last_id(&mut self, id: StreamId) {
        self.parts.shape.head[..2].copy_from_slice(&[id.ms, id.seq]);
    }

    /// Number of entries ever added.
    pub fn added(&self) -> u64 {
        self.parts.shape.head[2]
    }

    /// Sets it.
    pub fn set_added(&mut self, n: u64) {
        self.parts.shape.head[2] = n;
    }

    /// The largest removed id.
    pub fn max_removed(&self) -> StreamId {
        StreamId { ms: self.parts.shape.head[3], seq: self.parts.shape.head[4] }
    }

    /// Sets it.
    pub fn set_max_removed(&mut self, id: StreamId) {
        self.parts.shape.head[3..5].copy_from_slice(&[id.ms, id.seq]);
    }

    /// Adds an entry with an id above all others.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn add<'f>(&mut self, cx: &mut Cx<'_>, id: StreamId, fields: impl Iterator<Item = &'f [u8]>) -> Done {
        let mut bytes = Vec::new();
        fields.for_each(|field| put_piece(&mut bytes, field));
        self.parts.put(cx, &entry_key(id), &bytes)?;
        self.set_last_id(id);
        self.set_added(self.added() + 1);
        self.parts.shape.len += 1;
        Ok(())
    }

    /// Removes an entry. Returns whether it existed.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove(&mut self, cx: &mut Cx<'_>, id: StreamId) -> Done<bool> {
        if self.parts.get(cx, &entry_key(id))?.is_none() {
            return Ok(false);
        }
        self.parts.remove(cx, &entry_key(id))?;
        self.parts.shape.len = self.parts.shape.len.saturating_sub(1);
        Ok(true)
    }

    /// The fields of an entry.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn entry(&self, cx: &Cx<'_>, id: StreamId) -> Done<Option<Vec<Vec<u8>>>> {
        let Some(fields) = self.parts.get(cx, &entry_key(id))? else { return Ok(None) };
        gather_pieces(cx, &fields)?;
        Ok(Some(pieces(&fields)))
    }

    /// Entries between two ids, inclusive.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn entries(
        &self,
        cx: &Cx<'_>,
        from: StreamId,
        to: StreamId,
        order: Order,
        count: usize,
    ) -> Done<Vec<Entry>> {
        let mut found = Vec::new();
        if from > to || count == 0 {
            return Ok(found);
        }
        let (lower, upper) = (entry_key(from), entry_key(to));
        let span = Span { lower: Bound::Included(&lower), upper: Bound::Included(&upper) };
        self.parts.try_range(cx, span, order, &mut |sub, fields| {
            gather_pieces(cx, fields)?;
            found.push((StreamId::of(&sub[1..]), pieces(fields)));
            Ok(if found.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(found)
    }

    /// The first id, if there are entries.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn first_id(&self, cx: &Cx<'_>) -> Done<Option<StreamId>> {
        let found = self.entries(cx, StreamId::default(), StreamId::MAX, Order::Up, 1)?;
        Ok(found.first().map(|entry| entry.0))
    }

    /// See [`Collection::save`].
    ///
    /// # Errors
    /// See there.
    pub fn save(mut self, cx: &mut Cx<'_>) -> Done {
        self.save_counts(cx)?;
        self.parts.save(cx)
    }
}

/// Parses a number that counts as 0 if it is negative.
pub fn parse_count(text: &[u8]) -> Option<u64> {
    parse_int(text).map(|n| n.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_order_and_have_neighbours() {
        let id = |text: &str| StreamId::parse(text.as_bytes(), 7);
        assert_eq!(id("5-1"), Some(StreamId { ms: 5, seq: 1 }));
        assert_eq!(id("5"), Some(StreamId { ms: 5, seq: 7 }));
        for text in ["", "-", "5-", "x", "5-1-1", "-1", "99999999999999999999"] {
            assert_eq!(id(text), None, "{text}");
        }
        let last = StreamId { ms: 5, seq: u64::MAX };
        assert_eq!(last.next(), Some(StreamId { ms: 6, seq: 0 }));
        assert_eq!(last.next().and_then(StreamId::previous), Some(last));
        assert_eq!((StreamId::MAX.next(), StreamId::default().previous()), (None, None));
        assert!(entry_key(last) < entry_key(StreamId { ms: 6, seq: 0 }));
        assert_eq!(StreamId::of(&last.bytes()), last);
    }
}
