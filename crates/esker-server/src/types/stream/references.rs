//! What consumer groups still hold of the entries of a stream.
//!
//! - A group refers to the entries that it has not delivered yet, and to its pending entries.

use std::ops::{Bound, ControlFlow};

use super::groups::{PENDING, in_group};
use super::{Stream, StreamId, entry_key, number};
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::store::{Order, Span};

/// Number of ids that a walk over entries reads at a time.
const PAGE: usize = 256;

/// The groups of a stream, as they were when this was read.
pub struct References {
    groups: Vec<Vec<u8>>,
    /// The last id that all groups have delivered.
    pub delivered: StreamId,
}

/// The pending entries of a group that are idle for some time.
#[derive(Debug, Default)]
pub struct Idle {
    /// The entries with the times of their delivery, longest idle first.
    pub entries: Vec<(u64, StreamId)>,
    /// When the next entry will have been idle for that time, in Unix milliseconds.
    pub next: Option<u64>,
}

impl Stream {
    /// The groups of the stream, with what they have delivered.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn references(&self, cx: &Cx<'_>) -> Done<References> {
        let groups = self.groups(cx)?;
        let delivered = groups.iter().map(|(_, group)| group.last).min().unwrap_or(StreamId::MAX);
        Ok(References { groups: groups.into_iter().map(|(name, _)| name).collect(), delivered })
    }

    /// Returns whether a group refers to an entry.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn is_referenced(&self, cx: &Cx<'_>, references: &References, id: StreamId) -> Done<bool> {
        if id > references.delivered {
            return Ok(true);
        }
        for group in &references.groups {
            if self.pending(cx, group, id)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Acknowledges an entry in all groups. Returns whether it was pending in one.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn acknowledge_everywhere(
        &mut self,
        cx: &mut Cx<'_>,
        references: &References,
        id: StreamId,
    ) -> Done<bool> {
        let mut was_pending = false;
        for group in &references.groups {
            was_pending |= self.acknowledge(cx, group, id)?;
        }
        Ok(was_pending)
    }

    /// The first ids up to `to` for which `is_wanted` holds, at most `limit`.
    ///
    /// # Errors
    /// Errors of the store, and those of `is_wanted`.
    pub fn ids_until(
        &self,
        cx: &Cx<'_>,
        to: StreamId,
        limit: usize,
        is_wanted: impl Fn(StreamId) -> Done<bool>,
    ) -> Done<Vec<StreamId>> {
        let (mut found, mut from) = (Vec::new(), Some(StreamId::default()));
        while let Some(first) = from.filter(|first| *first <= to && found.len() < limit) {
            let page = self.page(cx, first, to, PAGE.min(limit - found.len()))?;
            from = page.last().and_then(|last| last.next());
            for id in page {
                if is_wanted(id)? {
                    cx.gather(0)?;
                    found.push(id);
                }
            }
        }
        Ok(found)
    }

    fn page(&self, cx: &Cx<'_>, from: StreamId, to: StreamId, limit: usize) -> Done<Vec<StreamId>> {
        let (lower, upper) = (entry_key(from), entry_key(to));
        let span = Span { lower: Bound::Included(&lower), upper: Bound::Included(&upper) };
        let mut page = Vec::new();
        self.parts.try_range(cx, span, Order::Up, &mut |sub, _| {
            page.push(StreamId::of(&sub[1..]));
            Ok(if page.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(page)
    }

    /// The pending entries of a group that have been idle for `least` milliseconds. Takes time in proportion
    /// to all pending entries.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn idle(&self, cx: &Cx<'_>, group: &[u8], least: u64) -> Done<Idle> {
        let ends = [StreamId::default(), StreamId::MAX].map(|id| in_group(PENDING, group, &id.bytes()));
        let span = Span { lower: Bound::Included(&ends[0]), upper: Bound::Included(&ends[1]) };
        let mut idle = Idle::default();
        self.parts.try_range(cx, span, Order::Up, &mut |sub, value| {
            let (id, delivered) = (StreamId::of(&sub[sub.len() - 16..]), number(value, 0));
            if cx.now.saturating_sub(delivered) >= least {
                cx.gather(0)?;
                idle.entries.push((delivered, id));
            } else {
                let due = delivered.saturating_add(least);
                idle.next = Some(idle.next.map_or(due, |next| next.min(due)));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        idle.entries.sort_unstable();
        Ok(idle)
    }
}
