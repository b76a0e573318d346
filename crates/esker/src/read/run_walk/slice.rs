//! A range of a run as a reader at a sequence number sees it: which version of a key counts.

use std::ops::{Bound, Range};
use std::sync::Arc;

use super::CurrentEntry;
use crate::blob::BlobSet;
use crate::manifest::version::Run;
use crate::read::fold::{Base, FoldContext, Folded, Operands};
use crate::read::operators::Operators;
use crate::read::resolve::{Answer, Resolver};
use crate::read::time::Time;
use crate::read::view::ReadView;
use crate::sstable::{BlockPosition, Table, WalkWindow};
use crate::types::bounds::Bounds;
use crate::types::{Result, SeqNo, Value, key};

/// A range of a run.
#[derive(Clone)]
pub(super) struct RunSlice {
    pub(super) run: Arc<Run>,
    /// Tables that may hold keys inside the bounds.
    pub(super) tables: Range<usize>,
    pub(super) at: SeqNo,
    pub(super) bounds: Bounds,
    /// Length of the prefix of the keyspace.
    pub(super) prefix_len: usize,
    time: Arc<Time>,
    /// `None` if the run has no values in blob files.
    pub(super) blobs: Option<BlobSet>,
    operators: Arc<Operators>,
}

impl RunSlice {
    pub(super) fn new(run: &Arc<Run>, at: SeqNo, bounds: Bounds, view: &ReadView) -> Self {
        let blobs = view.version.blobs();
        RunSlice {
            run: run.clone(),
            tables: run.within(&bounds.lower, &bounds.upper),
            at,
            prefix_len: match &bounds.lower {
                Bound::Included(key) | Bound::Excluded(key) => key::prefix_len(key),
                Bound::Unbounded => 0,
            },
            bounds,
            time: view.time.clone(),
            blobs: (!blobs.is_empty()).then(|| blobs.clone()),
            operators: view.operators.clone(),
        }
    }

    /// Returns what a reader of blocks needs to know.
    pub(super) fn reader(&self) -> (&Bounds, SeqNo) {
        (&self.bounds, self.at)
    }

    /// Returns a table of the slice.
    pub(super) fn table(&self, index: usize) -> Option<&Arc<Table>> {
        self.tables.contains(&index).then(|| &self.run.tables()[index].table)
    }

    /// Computes a value from operands.
    #[cold]
    pub(super) fn fold(&self, here: &CurrentEntry, folded: &Folded) -> Result<Value> {
        let key = here.position.key_parts(here.entry, &mut [0; 4]).concat();
        let none = BlobSet::default();
        let blobs = self.blobs.as_ref().unwrap_or(&none);
        folded.value(&key, FoldContext { blobs, operators: &self.operators })
    }

    /// Starts at the newest version of a key and returns the version that makes the key live, if any. With
    /// operands, returns the version at which they end.
    pub(super) fn resolve(
        &self,
        table: usize,
        mut position: BlockPosition,
        mut entry: usize,
        window: &mut WalkWindow,
    ) -> Result<Option<CurrentEntry>> {
        let (resolver, mut operands) = (Resolver::default(), Operands::default());
        let base = loop {
            if position.seq(entry) <= self.at {
                let expiry = || position.expiry(entry);
                let expired =
                    || operands.is_empty() && expiry().is_some_and(|expiry| self.time.has_come(expiry));
                match resolver.feed_reader(position.seq(entry), position.kind(entry), expired) {
                    Answer::Live if operands.is_empty() => {
                        return Ok(Some(CurrentEntry { table, position, entry, folded: None }));
                    }
                    Answer::Live => break Some(Base { stored: position.share(entry), expiry: expiry() }),
                    Answer::Gone => break None,
                    Answer::Operand => operands.push(position.share(entry).beside()),
                    Answer::Older => {}
                }
            }
            let last = (!operands.is_empty()).then(|| (position.clone(), entry));
            match self.older(position, entry, window)? {
                (next, entry_of_next, true) => (position, entry) = (next, entry_of_next),
                _ => {
                    let Some(last) = last else { return Ok(None) };
                    (position, entry) = last;
                    break None;
                }
            }
        };
        // The expiry of the resulting value decides (fold.3).
        let folded = Folded::new(operands, base);
        let folded = folded.filter(|folded| folded.expiry().is_none_or(|expiry| !self.time.has_come(expiry)));
        Ok(folded.map(|folded| CurrentEntry { table, position, entry, folded: Some(folded) }))
    }

    /// Returns the next entry, and whether it is an older version of the same key. Stays at the last entry of
    /// the table.
    fn older(
        &self,
        position: BlockPosition,
        entry: usize,
        window: &mut WalkWindow,
    ) -> Result<(BlockPosition, usize, bool)> {
        if entry + 1 < position.count() {
            let is_same = position.same_key_as_next(entry);
            return Ok((position, entry + 1, is_same));
        }
        Ok(match position.next(&self.bounds, window)? {
            Some(next) => {
                let is_same = next.continues_key();
                (next, 0, is_same)
            }
            None => (position, entry, false),
        })
    }

    /// Returns the newest version of the next key in the table.
    pub(super) fn next_key(
        &self,
        mut position: BlockPosition,
        mut entry: usize,
        window: &mut WalkWindow,
    ) -> Result<Option<(BlockPosition, usize)>> {
        loop {
            let before = (position.number(), entry);
            let is_same;
            (position, entry, is_same) = self.older(position, entry, window)?;
            if !is_same {
                return Ok(((position.number(), entry) != before).then_some((position, entry)));
            }
        }
    }

    /// Returns the newest version of the key of an entry.
    pub(super) fn key_start(
        &self,
        mut position: BlockPosition,
        mut entry: usize,
        window: &mut WalkWindow,
    ) -> Result<(BlockPosition, usize)> {
        loop {
            if entry > 0 {
                if !position.same_key_as_next(entry - 1) {
                    return Ok((position, entry));
                }
                entry -= 1;
                continue;
            }
            let previous = if position.continues_key() { position.prev(&self.bounds, window)? } else { None };
            let Some(previous) = previous else { return Ok((position, entry)) };
            entry = previous.count() - 1;
            position = previous;
        }
    }
}
