//! All versions of a key in a view, and all changes since a commit, for keyspaces that keep history.
//!
//! ```text
//!   key --newest_item, then again below it--> 9 7 4 ...      versions and range tombstones over the key
//!   since 5 --sources with newer data--> NewerCursor --> a@9 = x, c@7 removed;  [m--p)@8 removed
//! ```
//!
//! `newest_item` finds the newest commit up to a given number that wrote or removed the key,
//! as far as it is retained, and whether it wrote operands.
//!
//! A key is shown if its newest version is newer than the given number and no range
//! tombstone hides it. Applying the removed ranges to the state at that number, and then the keys, yields
//! the state of the reader.
//!
//! Tables without newer data are not read.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use super::cover::{Cover, Layers};
use super::merge::MergeCursor;
use super::run_cursor::RunCursor;
use super::source::{Nothing, Source};
use super::view::ReadView;
use crate::encoding::hash::key_hash;
use crate::manifest::version::Run;
use crate::types::bounds::Bounds;
use crate::types::cursor::SourceCursor;
use crate::types::op::Kind;
use crate::types::range_tombstone::{Fragment, RangeTombstones};
use crate::types::{Result, SeqNo};

impl ReadView {
    /// Returns the newest commit up to `upto` that wrote or removed an encoded key, and whether it wrote
    /// operands.
    pub(crate) fn newest_item(
        &self,
        key: &[u8],
        upto: SeqNo,
        guard: &Guard,
    ) -> Result<Option<(SeqNo, bool)>> {
        let hash = key_hash(key);
        let mut newest = None;
        let mut covers = SeqNo::ZERO;
        for memtable in self.memtables() {
            if memtable.has_range_tombstones() {
                covers = covers.max(memtable.range_tombstones().cover(key, upto));
            }
            if newest.is_none() && memtable.may_contain(hash) {
                newest = memtable.get(key, upto).map(|entry| (entry.seq, entry.kind.is_operand()));
            }
        }
        for run in self.version.runs() {
            let Some(index) = run.find(key) else { continue };
            let table = &run.tables()[index].table;
            covers = covers.max(table.range_tombstones().cover(key, upto));
            if newest.is_none() {
                let found = table.get(key, hash, upto, true, guard)?;
                newest = found.map(|found| (found.seq(), found.kind().is_operand()));
            }
        }
        Ok(newest.max((covers > SeqNo::ZERO).then_some((covers, false))))
    }

    /// Returns a cursor over the keys inside the bounds that changed after `since`, for a reader at `at`. Not
    /// valid until moved.
    pub(crate) fn newer(&self, since: SeqNo, at: SeqNo, bounds: &Bounds) -> NewerCursor {
        let mut sources = Vec::new();
        for memtable in self.memtables() {
            if memtable.max_seq() > Some(since) {
                sources.push(Source::Memtable(memtable.version_cursor(at)));
            }
        }
        let runs = self.version.runs().iter();
        let parts: Vec<_> = runs.filter_map(|run| newer_part(run, since)).collect();
        sources.extend(parts.iter().filter_map(|run| Some(Source::Run(RunCursor::new(run, at, bounds)?))));
        let mut layers = Layers::default();
        for memtable in self.memtables().filter(|memtable| memtable.has_range_tombstones()) {
            layers.push(&memtable.range_tombstones());
        }
        for run in &parts {
            run.tables().iter().for_each(|table| layers.push(table.table.range_tombstones()));
        }
        let cover = Cover::new(layers, at);
        NewerCursor { merged: MergeCursor::new(sources), cover, since, bounds: bounds.clone() }
    }

    /// Returns the ranges inside `[start, end)` that were removed after `since`, for a reader at `at`: in
    /// order, each with its newest commit.
    pub(crate) fn ranges_removed(
        &self,
        since: SeqNo,
        at: SeqNo,
        start: &[u8],
        end: &[u8],
    ) -> Vec<(Vec<u8>, Vec<u8>, SeqNo)> {
        let of_memtables = self.memtables().map(|memtable| (*memtable.range_tombstones()).clone());
        let runs = self.version.runs().iter();
        let parts: Vec<_> = runs.filter_map(|run| newer_part(run, since)).collect();
        let of_tables = parts.iter().flat_map(|run| run.tables());
        let of_tables = of_tables.map(|table| table.table.range_tombstones().clone());
        let sets: Vec<_> = of_memtables.chain(of_tables).collect();
        let mut out: Vec<(Vec<u8>, Vec<u8>, SeqNo)> = Vec::new();
        for Fragment { start: from, end: to, seqs } in RangeTombstones::union(&sets).fragments() {
            let (from, to) = ((&**from).max(start), (&**to).min(end));
            let newest = seqs.newest_at(at);
            if from >= to || newest <= since {
                continue;
            }
            match out.last_mut() {
                Some(last) if last.1 == from => (last.1, last.2) = (to.to_vec(), newest.max(last.2)),
                _ => out.push((from.to_vec(), to.to_vec(), newest)),
            }
        }
        out
    }
}

/// Returns the tables of a run that hold newer data. `None` if there are none.
fn newer_part(run: &Arc<Run>, since: SeqNo) -> Option<Arc<Run>> {
    if run.max_seq() <= since {
        return None;
    }
    let newer = run.tables().iter().filter(|table| table.meta.counts.max_seq > since);
    Some(Arc::new(Run::new(run.level, run.id, newer.cloned().collect())))
}

/// A cursor over changed keys.
pub(crate) struct NewerCursor {
    merged: MergeCursor<Source<Nothing>>,
    cover: Cover,
    since: SeqNo,
    bounds: Bounds,
}

impl NewerCursor {
    /// Moves to the first key. Returns whether there is one.
    pub(crate) fn first(&mut self) -> Result<bool> {
        match self.bounds.lower.clone() {
            std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => self.merged.seek(&key)?,
            std::ops::Bound::Unbounded => self.merged.seek_first()?,
        }
        self.settle()
    }

    /// Moves to the next key. Returns whether there is one.
    pub(crate) fn next(&mut self) -> Result<bool> {
        self.merged.next()?;
        self.settle()
    }

    /// Moves forward to a key that is shown.
    fn settle(&mut self) -> Result<bool> {
        while self.merged.valid() && self.bounds.below_upper(self.merged.key()) {
            let key = self.merged.key();
            let seq = self.merged.seq();
            let is_hidden = !self.cover.is_empty() && self.cover.newest(key) > seq;
            if self.bounds.above_lower(key) && seq > self.since && !is_hidden {
                return Ok(true);
            }
            self.merged.next()?;
        }
        Ok(false)
    }

    /// Returns the encoded key, the sequence number of its newest version, and its kind.
    pub(crate) fn item(&self) -> (&[u8], SeqNo, Kind) {
        (self.merged.key(), self.merged.seq(), self.merged.kind())
    }
}
