//! A stream: entries by id, and groups of readers.
//!
//! ```text
//!   0, ms, seq              --> fields and values, each behind its length
//!   1, group                --> last id delivered, how many entries were read
//!   2, group, consumer      --> when it was seen, when it was active last
//!   3, group, ms, seq       --> pending: consumer, when it was delivered, how often
//! ```
//!
//! The name of a group stands behind its length. The head has the last id, how many entries were ever added, and the largest id that was removed.
//!
//! server_stream.1. Ids only grow.

use std::ops::{Bound, ControlFlow};

use super::collection::Collection;
use super::main_record::Kind;
use crate::cx::Cx;
use crate::fail::Done;
use crate::numbers::parse_int;
use crate::store::{Order, Span, Value, prefix_end};

const ENTRY: u8 = 0;
const GROUP: u8 = 1;
const CONSUMER: u8 = 2;
const PENDING: u8 = 3;

/// The id of an entry: milliseconds, and a number among those of the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Milliseconds.
    pub ms: u64,
    /// Among those of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The largest.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// Of a text: `ms-seq`, or `ms`, which has this number.
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

    /// The next one; none behind the largest.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before; none before the smallest.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { ms: self.ms, seq }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    fn bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    fn of(bytes: &[u8]) -> Self {
        let n = bytes.try_into().map_or(0, u128::from_be_bytes);
        StreamId { ms: (n >> 64) as u64, seq: n as u64 }
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// An entry: its id, and its fields and values by turns.
pub type Entry = (StreamId, Vec<Vec<u8>>);

/// A group of readers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// The last id that was delivered.
    pub last: StreamId,
    /// How many entries were read; none: it is not known.
    pub read: Option<u64>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its id.
    pub id: StreamId,
    /// To whom.
    pub consumer: Vec<u8>,
    /// When, in milliseconds since 1970.
    pub delivered: u64,
    /// How often.
    pub count: u64,
}

/// A stream.
pub struct Stream(pub Collection);

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

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn entry_key(id: StreamId) -> Vec<u8> {
    [&[ENTRY][..], &id.bytes()].concat()
}

fn in_group(kind: u8, group: &[u8], rest: &[u8]) -> Vec<u8> {
    [&[kind][..], &(group.len() as u32).to_be_bytes(), group, rest].concat()
}

impl Stream {
    /// See [`Collection::open`].
    ///
    /// # Errors
    /// See there.
    pub fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Self>> {
        Ok(Collection::open(cx, key, Kind::Stream)?.map(Stream))
    }

    /// See [`Collection::open_or_new`].
    ///
    /// # Errors
    /// See there.
    pub fn open_or_new(cx: &mut Cx<'_>, key: &[u8]) -> Done<Self> {
        Collection::open_or_new(cx, key, Kind::Stream).map(Stream)
    }

    /// How many entries.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// The last id that was given.
    pub fn last_id(&self) -> StreamId {
        StreamId { ms: self.0.shape.head[0], seq: self.0.shape.head[1] }
    }

    /// Sets it.
    pub fn set_last_id(&mut self, id: StreamId) {
        self.0.shape.head[..2].copy_from_slice(&[id.ms, id.seq]);
    }

    /// How many entries were ever added.
    pub fn added(&self) -> u64 {
        self.0.shape.head[2]
    }

    /// Sets it.
    pub fn set_added(&mut self, n: u64) {
        self.0.shape.head[2] = n;
    }

    /// The largest id that was removed.
    pub fn max_removed(&self) -> StreamId {
        StreamId { ms: self.0.shape.head[3], seq: self.0.shape.head[4] }
    }

    /// Sets it.
    pub fn set_max_removed(&mut self, id: StreamId) {
        self.0.shape.head[3..5].copy_from_slice(&[id.ms, id.seq]);
    }

    /// Adds an entry whose id is larger than all (server_stream.1).
    ///
    /// # Errors
    /// The store's.
    pub fn add<'f>(&mut self, cx: &mut Cx<'_>, id: StreamId, fields: impl Iterator<Item = &'f [u8]>) -> Done {
        let mut bytes = Vec::new();
        fields.for_each(|field| put_piece(&mut bytes, field));
        self.0.put(cx, &entry_key(id), &bytes)?;
        self.set_last_id(id);
        self.set_added(self.added() + 1);
        self.0.shape.len += 1;
        Ok(())
    }

    /// Removes an entry; whether it was there.
    ///
    /// # Errors
    /// The store's.
    pub fn remove(&mut self, cx: &mut Cx<'_>, id: StreamId) -> Done<bool> {
        if self.0.get(cx, &entry_key(id))?.is_none() {
            return Ok(false);
        }
        self.0.remove(cx, &entry_key(id))?;
        self.0.shape.len = self.0.shape.len.saturating_sub(1);
        Ok(true)
    }

    /// The fields of an entry.
    ///
    /// # Errors
    /// The store's.
    pub fn entry(&self, cx: &Cx<'_>, id: StreamId) -> Done<Option<Vec<Vec<u8>>>> {
        Ok(self.0.get(cx, &entry_key(id))?.map(|fields| pieces(&fields)))
    }

    /// Entries from one id to another, both included.
    ///
    /// # Errors
    /// The store's.
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
        self.0.range(cx, span, order, &mut |sub, fields| {
            found.push((StreamId::of(&sub[1..]), pieces(fields)));
            if found.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(found)
    }

    /// The first id; none if there are no entries.
    ///
    /// # Errors
    /// The store's.
    pub fn first_id(&self, cx: &Cx<'_>) -> Done<Option<StreamId>> {
        let found = self.entries(cx, StreamId::default(), StreamId::MAX, Order::Up, 1)?;
        Ok(found.first().map(|entry| entry.0))
    }

    /// A group.
    ///
    /// # Errors
    /// The store's.
    pub fn group(&self, cx: &Cx<'_>, name: &[u8]) -> Done<Option<Group>> {
        let value = self.0.get(cx, &[&[GROUP], name].concat())?;
        Ok(value.map(|value| group_of(&value)))
    }

    /// Sets a group.
    ///
    /// # Errors
    /// The store's.
    pub fn put_group(&mut self, cx: &mut Cx<'_>, name: &[u8], group: Group) -> Done {
        let read = group.read.map_or(u64::MAX, |read| read).to_le_bytes();
        self.0.put(cx, &[&[GROUP], name].concat(), &[&group.last.bytes()[..], &read].concat())
    }

    fn all_with(&self, cx: &Cx<'_>, prefix: &[u8]) -> Done<Vec<(Vec<u8>, Value)>> {
        let end = prefix_end(prefix).unwrap_or_default();
        let mut found = Vec::new();
        self.0.range(cx, Span::between(prefix, &end), Order::Up, &mut |sub, value| {
            found.push((sub[prefix.len()..].to_vec(), Value::from(value)));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// All groups.
    ///
    /// # Errors
    /// The store's.
    pub fn groups(&self, cx: &Cx<'_>) -> Done<Vec<(Vec<u8>, Group)>> {
        let found = self.all_with(cx, &[GROUP])?;
        Ok(found.into_iter().map(|(name, value)| (name, group_of(&value))).collect())
    }

    /// Removes a group with all it has.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_group(&mut self, cx: &mut Cx<'_>, name: &[u8]) -> Done {
        for kind in [CONSUMER, PENDING] {
            let prefix = in_group(kind, name, b"");
            for (rest, _) in self.all_with(cx, &prefix)? {
                self.0.remove(cx, &[&prefix[..], &rest].concat())?;
            }
        }
        self.0.remove(cx, &[&[GROUP], name].concat())
    }

    /// When a consumer was seen, and was active last.
    ///
    /// # Errors
    /// The store's.
    pub fn consumer(&self, cx: &Cx<'_>, group: &[u8], name: &[u8]) -> Done<Option<(u64, u64)>> {
        let value = self.0.get(cx, &in_group(CONSUMER, group, name))?;
        Ok(value.map(|value| (number(&value, 0), number(&value, 8))))
    }

    /// Sets it.
    ///
    /// # Errors
    /// The store's.
    pub fn put_consumer(
        &mut self,
        cx: &mut Cx<'_>,
        group: &[u8],
        name: &[u8],
        seen: u64,
        active: u64,
    ) -> Done {
        let value = [seen.to_le_bytes(), active.to_le_bytes()].concat();
        self.0.put(cx, &in_group(CONSUMER, group, name), &value)
    }

    /// All consumers of a group: name, when seen, when active.
    ///
    /// # Errors
    /// The store's.
    pub fn consumers(&self, cx: &Cx<'_>, group: &[u8]) -> Done<Vec<(Vec<u8>, u64, u64)>> {
        let found = self.all_with(cx, &in_group(CONSUMER, group, b""))?;
        Ok(found.into_iter().map(|(name, value)| (name, number(&value, 0), number(&value, 8))).collect())
    }

    /// Removes a consumer with what is pending for it: how many entries that was.
    ///
    /// # Errors
    /// The store's.
    pub fn remove_consumer(&mut self, cx: &mut Cx<'_>, group: &[u8], name: &[u8]) -> Done<usize> {
        let pending = self.pending_between(cx, group, StreamId::default(), StreamId::MAX)?;
        let own: Vec<_> = pending.into_iter().filter(|pending| pending.consumer == name).collect();
        for pending in &own {
            self.acknowledge(cx, group, pending.id)?;
        }
        self.0.remove(cx, &in_group(CONSUMER, group, name))?;
        Ok(own.len())
    }

    /// A pending entry.
    ///
    /// # Errors
    /// The store's.
    pub fn pending(&self, cx: &Cx<'_>, group: &[u8], id: StreamId) -> Done<Option<Pending>> {
        let value = self.0.get(cx, &in_group(PENDING, group, &id.bytes()))?;
        Ok(value.map(|value| pending_of(id, &value)))
    }

    /// Sets one.
    ///
    /// # Errors
    /// The store's.
    pub fn put_pending(&mut self, cx: &mut Cx<'_>, group: &[u8], pending: &Pending) -> Done {
        let numbers = [pending.delivered.to_le_bytes(), pending.count.to_le_bytes()].concat();
        let value = [&numbers, &pending.consumer[..]].concat();
        self.0.put(cx, &in_group(PENDING, group, &pending.id.bytes()), &value)
    }

    /// Removes one; whether it was there.
    ///
    /// # Errors
    /// The store's.
    pub fn acknowledge(&mut self, cx: &mut Cx<'_>, group: &[u8], id: StreamId) -> Done<bool> {
        let key = in_group(PENDING, group, &id.bytes());
        let is_there = self.0.get(cx, &key)?.is_some();
        if is_there {
            self.0.remove(cx, &key)?;
        }
        Ok(is_there)
    }

    /// Pending entries of a group from one id to another, both included.
    ///
    /// # Errors
    /// The store's.
    pub fn pending_between(
        &self,
        cx: &Cx<'_>,
        group: &[u8],
        from: StreamId,
        to: StreamId,
    ) -> Done<Vec<Pending>> {
        let ends = [from, to].map(|id| in_group(PENDING, group, &id.bytes()));
        let span = Span { lower: Bound::Included(&ends[0]), upper: Bound::Included(&ends[1]) };
        let mut found = Vec::new();
        self.0.range(cx, span, Order::Up, &mut |sub, value| {
            found.push(pending_of(StreamId::of(&sub[sub.len() - 16..]), value));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// The same, after changes of groups alone: who watches the key is not told of them.
    ///
    /// # Errors
    /// See [`Collection::save`].
    pub fn save_groups(self, cx: &mut Cx<'_>) -> Done {
        let is_new = self.0.is_new();
        cx.effects.is_quiet = !is_new;
        let saved = self.0.save(cx);
        cx.effects.is_quiet = false;
        saved
    }

    /// See [`Collection::save`].
    ///
    /// # Errors
    /// See there.
    pub fn save(self, cx: &mut Cx<'_>) -> Done {
        self.0.save(cx)
    }
}

fn group_of(value: &[u8]) -> Group {
    let read = number(value, 16);
    Group {
        last: StreamId::of(value.get(..16).unwrap_or_default()),
        read: (read != u64::MAX).then_some(read),
    }
}

fn pending_of(id: StreamId, value: &[u8]) -> Pending {
    let consumer = value.get(16..).unwrap_or_default().to_vec();
    Pending { id, consumer, delivered: number(value, 0), count: number(value, 8) }
}

/// A number of an argument that is never negative here.
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
