//! Consumer groups of a stream, their consumers, and pending entries.
//!
//! - The count of a group equals the sum of its consumers' counts, and the number of its pending entries. So
//!   a reply costs time only for the entries it returns.
//! - A pending entry is indexed by its group and by its consumer: it has one part of kind 3 and one of kind
//!   4.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use super::{Stream, StreamId, number};
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::store::{Order, Span, Value, prefix_end};

pub(in crate::types) const GROUP: u8 = 1;
pub(in crate::types) const CONSUMER: u8 = 2;
pub(in crate::types) const PENDING: u8 = 3;
pub(in crate::types) const BY_CONSUMER: u8 = 4;

/// Offset of the count of pending entries in the value of a group and of a consumer. It is the last 8 bytes.
pub(in crate::types) const GROUP_COUNT_AT: usize = 24;
pub(in crate::types) const CONSUMER_COUNT_AT: usize = 16;

/// A consumer group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    /// The last delivered id.
    pub last: StreamId,
    /// Number of entries read, if known.
    pub read: Option<u64>,
    /// Number of pending entries. [`Stream::put_group`] ignores it.
    pub pending: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    /// Its name.
    pub name: Vec<u8>,
    /// When it was last seen, in Unix milliseconds.
    pub seen: u64,
    /// When it last received an entry; 0: never.
    pub active: u64,
    /// Number of its pending entries.
    pub pending: u64,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its id.
    pub id: StreamId,
    /// Its consumer.
    pub consumer: Vec<u8>,
    /// When it was delivered, in Unix milliseconds.
    pub delivered: u64,
    /// Number of deliveries.
    pub count: u64,
}

/// Changes of counts not stored yet, by the sub-key of the group or consumer.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<Vec<u8>, i64>);

fn group_key(group: &[u8]) -> Vec<u8> {
    [&[GROUP], group].concat()
}

pub(super) fn in_group(kind: u8, group: &[u8], rest: &[u8]) -> Vec<u8> {
    [&[kind][..], &(group.len() as u32).to_be_bytes(), group, rest].concat()
}

fn of_consumer(group: &[u8], consumer: &[u8], rest: &[u8]) -> Vec<u8> {
    let rest = [&(consumer.len() as u32).to_be_bytes(), consumer, rest].concat();
    in_group(BY_CONSUMER, group, &rest)
}

/// Offset of the count in a value.
fn count_at(sub: &[u8]) -> usize {
    if sub.first() == Some(&GROUP) { GROUP_COUNT_AT } else { CONSUMER_COUNT_AT }
}

fn group_of(value: &[u8]) -> Group {
    let read = number(value, 16);
    Group {
        last: StreamId::of(value.get(..16).unwrap_or_default()),
        read: (read != u64::MAX).then_some(read),
        pending: number(value, GROUP_COUNT_AT),
    }
}

fn consumer_of(name: &[u8], value: &[u8]) -> Consumer {
    let [seen, active] = [0, 8].map(|at| number(value, at));
    Consumer { name: name.to_vec(), seen, active, pending: number(value, CONSUMER_COUNT_AT) }
}

fn pending_of(id: StreamId, value: &[u8]) -> Pending {
    let consumer = value.get(16..).unwrap_or_default().to_vec();
    Pending { id, consumer, delivered: number(value, 0), count: number(value, 8) }
}

impl Stream {
    /// A group.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn group(&self, cx: &Cx<'_>, name: &[u8]) -> Done<Option<Group>> {
        Ok(self.parts.get(cx, &group_key(name))?.map(|value| group_of(&value)))
    }

    /// Sets a group. Keeps its count of pending entries.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put_group(&mut self, cx: &mut Cx<'_>, name: &[u8], group: Group) -> Done {
        let pending = self.group(cx, name)?.map_or(0, |old| old.pending);
        let read = group.read.unwrap_or(u64::MAX);
        let value = [&group.last.bytes()[..], &read.to_le_bytes(), &pending.to_le_bytes()].concat();
        self.parts.put(cx, &group_key(name), &value)
    }

    /// Sets the last delivered id of a group if this one is larger. The number of entries read stays, as in
    /// replicas of Redis.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn advance_group(&mut self, cx: &mut Cx<'_>, name: &[u8], last: Option<StreamId>) -> Done {
        match (self.group(cx, name)?, last) {
            (Some(group), Some(last)) if last > group.last => {
                self.put_group(cx, name, Group { last, ..group })
            }
            _ => Ok(()),
        }
    }

    fn all_with(&self, cx: &Cx<'_>, prefix: &[u8]) -> Done<Vec<(Vec<u8>, Value)>> {
        let end = prefix_end(prefix).unwrap_or_default();
        let mut found = Vec::new();
        self.parts.try_range(cx, Span::between(prefix, &end), Order::Up, &mut |sub, value| {
            cx.gather(sub.len() + value.len())?;
            found.push((sub[prefix.len()..].to_vec(), Value::from(value)));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// All groups.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn groups(&self, cx: &Cx<'_>) -> Done<Vec<(Vec<u8>, Group)>> {
        let found = self.all_with(cx, &[GROUP])?;
        Ok(found.into_iter().map(|(name, value)| (name, group_of(&value))).collect())
    }

    /// Removes a group and everything in it.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove_group(&mut self, cx: &mut Cx<'_>, name: &[u8]) -> Done {
        for kind in [CONSUMER, PENDING, BY_CONSUMER] {
            self.parts.remove_all_with(cx, &in_group(kind, name, b""))?;
        }
        self.parts.remove(cx, &group_key(name))
    }

    /// A consumer.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn consumer(&self, cx: &Cx<'_>, group: &[u8], name: &[u8]) -> Done<Option<Consumer>> {
        let value = self.parts.get(cx, &in_group(CONSUMER, group, name))?;
        Ok(value.map(|value| consumer_of(name, &value)))
    }

    /// Sets when a consumer was last seen and active. Keeps its count of pending entries.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put_consumer(
        &mut self,
        cx: &mut Cx<'_>,
        group: &[u8],
        name: &[u8],
        seen: u64,
        active: u64,
    ) -> Done {
        let pending = self.consumer(cx, group, name)?.map_or(0, |old| old.pending);
        let value = [seen, active, pending].map(u64::to_le_bytes).concat();
        self.parts.put(cx, &in_group(CONSUMER, group, name), &value)
    }

    /// All consumers of a group.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn consumers(&self, cx: &Cx<'_>, group: &[u8]) -> Done<Vec<Consumer>> {
        let found = self.all_with(cx, &in_group(CONSUMER, group, b""))?;
        Ok(found.into_iter().map(|(name, value)| consumer_of(&name, &value)).collect())
    }

    /// Removes a consumer and its pending entries. Returns their number.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn remove_consumer(&mut self, cx: &mut Cx<'_>, group: &[u8], name: &[u8]) -> Done<usize> {
        let ids = self.ids_of(cx, (group, name), (StreamId::default(), StreamId::MAX), usize::MAX)?;
        for id in &ids {
            self.acknowledge(cx, group, *id)?;
        }
        let sub = in_group(CONSUMER, group, name);
        self.counts.0.remove(&sub);
        self.parts.remove(cx, &sub)?;
        Ok(ids.len())
    }

    /// A pending entry.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn pending(&self, cx: &Cx<'_>, group: &[u8], id: StreamId) -> Done<Option<Pending>> {
        let value = self.parts.get(cx, &in_group(PENDING, group, &id.bytes()))?;
        Ok(value.map(|value| pending_of(id, &value)))
    }

    /// Sets a pending entry. Its consumer must exist when the stream is saved.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn put_pending(&mut self, cx: &mut Cx<'_>, group: &[u8], pending: &Pending) -> Done {
        let old = self.pending(cx, group, pending.id)?;
        if old.as_ref().is_none_or(|old| old.consumer != pending.consumer) {
            if let Some(old) = old {
                self.forget_pending(cx, group, &old)?;
            }
            self.count(group, &pending.consumer, 1);
            self.parts.put(cx, &of_consumer(group, &pending.consumer, &pending.id.bytes()), b"")?;
        }
        let numbers = [pending.delivered.to_le_bytes(), pending.count.to_le_bytes()].concat();
        let value = [&numbers, &pending.consumer[..]].concat();
        self.parts.put(cx, &in_group(PENDING, group, &pending.id.bytes()), &value)
    }

    /// Removes the index entry of a pending entry under its consumer.
    fn forget_pending(&mut self, cx: &mut Cx<'_>, group: &[u8], pending: &Pending) -> Done {
        self.count(group, &pending.consumer, -1);
        self.parts.remove(cx, &of_consumer(group, &pending.consumer, &pending.id.bytes()))
    }

    fn count(&mut self, group: &[u8], consumer: &[u8], by: i64) {
        for sub in [group_key(group), in_group(CONSUMER, group, consumer)] {
            *self.counts.0.entry(sub).or_default() += by;
        }
    }

    /// Removes a pending entry. Returns whether it existed.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn acknowledge(&mut self, cx: &mut Cx<'_>, group: &[u8], id: StreamId) -> Done<bool> {
        let Some(pending) = self.pending(cx, group, id)? else { return Ok(false) };
        self.forget_pending(cx, group, &pending)?;
        self.parts.remove(cx, &in_group(PENDING, group, &id.bytes()))?;
        Ok(true)
    }

    /// Pending entries of a group between two ids (inclusive) for which `is_wanted` holds, at most `limit`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn pending_between(
        &self,
        cx: &Cx<'_>,
        group: &[u8],
        (from, to, order): (StreamId, StreamId, Order),
        limit: usize,
        is_wanted: impl Fn(&Pending) -> bool,
    ) -> Done<Vec<Pending>> {
        let ends = [from, to].map(|id| in_group(PENDING, group, &id.bytes()));
        let span = Span { lower: Bound::Included(&ends[0]), upper: Bound::Included(&ends[1]) };
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        self.parts.try_range(cx, span, order, &mut |sub, value| {
            let pending = pending_of(StreamId::of(&sub[sub.len() - 16..]), value);
            if is_wanted(&pending) {
                cx.gather(pending.consumer.len())?;
                found.push(pending);
            }
            Ok(if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(found)
    }

    /// Ids of a consumer's pending entries between two ids (inclusive), at most `limit`.
    fn ids_of(
        &self,
        cx: &Cx<'_>,
        (group, consumer): (&[u8], &[u8]),
        (from, to): (StreamId, StreamId),
        limit: usize,
    ) -> Done<Vec<StreamId>> {
        let ends = [from, to].map(|id| of_consumer(group, consumer, &id.bytes()));
        let span = Span { lower: Bound::Included(&ends[0]), upper: Bound::Included(&ends[1]) };
        let mut ids = Vec::new();
        if limit == 0 {
            return Ok(ids);
        }
        self.parts.try_range(cx, span, Order::Up, &mut |sub, _| {
            cx.gather(0)?;
            ids.push(StreamId::of(&sub[sub.len() - 16..]));
            Ok(if ids.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(ids)
    }

    /// A consumer's pending entries between two ids (inclusive), at most `limit`.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn pending_of(
        &self,
        cx: &Cx<'_>,
        (group, consumer): (&[u8], &[u8]),
        (from, to): (StreamId, StreamId),
        limit: usize,
    ) -> Done<Vec<Pending>> {
        let mut found = Vec::new();
        for id in self.ids_of(cx, (group, consumer), (from, to), limit)? {
            cx.gather(consumer.len())?;
            found.extend(self.pending(cx, group, id)?);
        }
        Ok(found)
    }

    /// Stores the changed counts.
    pub(super) fn save_counts(&mut self, cx: &mut Cx<'_>) -> Done {
        for (sub, change) in std::mem::take(&mut self.counts.0) {
            let Some(value) = self.parts.get(cx, &sub)?.filter(|_| change != 0) else { continue };
            let at = count_at(&sub);
            let count = number(&value, at).saturating_add_signed(change);
            let kept = value.get(..at).unwrap_or_default();
            self.parts.put(cx, &sub, &[kept, &count.to_le_bytes()].concat())?;
        }
        Ok(())
    }

    /// Returns whether pending entries were added or removed since the stream was opened.
    pub fn has_changed_groups(&self) -> bool {
        !self.counts.0.is_empty()
    }

    /// Saves changes that only concern groups. Watchers of the key are not notified.
    ///
    /// # Errors
    /// See [`Collection::save`](crate::types::Collection::save).
    pub fn save_groups(mut self, cx: &mut Cx<'_>) -> Done {
        self.save_counts(cx)?;
        let is_new = self.parts.is_new();
        cx.effects.is_quiet = !is_new;
        let saved = self.parts.save(cx);
        cx.effects.is_quiet = false;
        saved
    }
}
