//! A read view: all sources of data at one moment. It is immutable and replaced as a whole.
//!
//! ```text
//!   newest                                                   oldest
//!   active memtable | immutable memtables, newest first | runs of the version, newest first
//! ```
//!
//! view.1. For any key, a source holds only newer versions than the sources after it.
//! view.2. Every read through a view checks whether the database was closed, whenever the view was loaded:
//!     another process may have opened and changed the directory since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cover::Layers;
use super::operators::Operators;
use super::run_cursor::RunCursor;
use super::skip_ranges::{Seen, SkipRanges};
use super::source::Source;
use super::time::Time;
use super::unresolved::Known;
use crate::manifest::version::{Run, Version};
use crate::memtable::Memtable;
use crate::types::bounds::Bounds;
use crate::types::key_range::KeyRange;
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::types::{Error, Result, SeqNo};

/// All sources of data.
#[derive(Clone)]
pub struct ReadView {
    /// The memtable that commits insert into.
    pub active: Arc<Memtable>,
    /// Full memtables that are being flushed, newest first.
    pub immutables: Vec<Arc<Memtable>>,
    /// The tables.
    pub version: Arc<Version>,
    /// Set once the database is closed. The sources may be out of date from then on.
    pub closed: Arc<AtomicBool>,
    /// What is known about unresolved versions.
    pub known: Arc<Known>,
    /// Ranges without live keys.
    pub(crate) skip_ranges: Arc<SkipRanges>,
    /// The time that decides which versions have expired.
    pub time: Arc<Time>,
    /// The merge operators.
    pub operators: Arc<Operators>,
}

impl ReadView {
    /// Fails once the database is closed (view.2).
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Number of versions that expire.
    #[inline]
    pub fn expiring(&self) -> u64 {
        self.memtables().map(|memtable| memtable.expiring()).sum::<u64>() + self.version.expiring()
    }

    /// The memtables, newest first.
    #[inline]
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.immutables)
    }

    /// Returns whether all data is in the active memtable. Checking its filter then saves nothing.
    #[inline(always)]
    pub(crate) fn is_memtable_alone(&self) -> bool {
        self.immutables.is_empty() && self.version.runs().is_empty()
    }

    /// Returns cursors over all sources that may hold keys inside the bounds, newest first, each with the
    /// largest sequence number that it may hold. For memtables that is the maximum. `tops` come before all of
    /// them.
    pub fn sources<X>(&self, at: SeqNo, bounds: &Bounds, tops: Vec<X>) -> Vec<(Source<X>, SeqNo)> {
        let memtables = 1 + self.immutables.len();
        let mut sources = Vec::with_capacity(tops.len() + memtables + self.version.runs().len());
        sources.extend(tops.into_iter().map(|top| (Source::Top(top), SeqNo::MAX)));
        for memtable in self.memtables() {
            if !memtable.is_empty() {
                sources.push((Source::Memtable(memtable.cursor(at)), SeqNo::MAX));
            }
        }
        for run in self.version.runs() {
            sources
                .extend(RunCursor::new(run, at, bounds).map(|cursor| (Source::Run(cursor), run.max_seq())));
        }
        sources
    }

    /// Returns the only source that may hold keys inside the bounds, if it is a run without range tombstones.
    pub fn only_run(&self, bounds: &Bounds) -> Option<&Arc<Run>> {
        if self.memtables().any(|memtable| !memtable.is_empty()) {
            return None;
        }
        let runs = self.version.runs().iter();
        let mut runs = runs.filter(|run| !run.within(&bounds.lower, &bounds.upper).is_empty());
        let only = runs.next().filter(|run| !run.has_range_tombstones());
        if runs.next().is_some() { None } else { only }
    }

    /// Returns the range tombstones of all sources, and `more`.
    pub fn tombstones(&self, more: Vec<RangeTombstone>) -> Layers {
        let mut layers = Layers::default();
        if !more.is_empty() {
            layers.push(&RangeTombstones::new(more));
        }
        for memtable in self.memtables() {
            if memtable.has_range_tombstones() {
                layers.push(&memtable.range_tombstones());
            }
        }
        for run in self.version.runs() {
            if run.has_range_tombstones() {
                run.tables().iter().for_each(|t| layers.push(t.table.range_tombstones()));
            }
        }
        layers
    }

    /// Returns what a reader at `at` sees, for adding skip ranges.
    pub(crate) fn seen(&self, at: SeqNo, is_pinned: bool) -> Seen {
        let in_tables = self.version.runs().iter().map(|run| run.max_seq()).max().unwrap_or_default();
        Seen { at, held: self.newest_possible(), in_tables, is_pinned }
    }

    /// Returns the largest sequence number in the view.
    pub fn newest_possible(&self) -> SeqNo {
        let memtables = self.memtables().filter_map(|m| m.max_seq());
        let runs = self.version.runs().iter().map(|run| run.max_seq());
        memtables.chain(runs).max().unwrap_or_default()
    }

    /// Returns the tables that overlap `range` and hold data newer than `since`.
    pub fn tables_newer<'a>(
        &'a self,
        range: &'a KeyRange,
        since: SeqNo,
    ) -> impl Iterator<Item = &'a Arc<crate::sstable::Table>> {
        let runs = self.version.runs().iter().filter(move |run| run.max_seq() > since);
        runs.flat_map(move |run| run.overlapping(range))
            .filter(move |t| t.meta.counts.max_seq > since)
            .map(|t| &t.table)
    }
}
