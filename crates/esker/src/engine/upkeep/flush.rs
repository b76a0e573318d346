//! Flush: writes sealed memtables as a run, one step at a time.
//!
//! ```text
//!   flush_step: sealed memtables --compaction::flush--> L0 run --install--> memtables and log released
//! ```
//!
//! flush.1. Memtables and their log are released only after the manifest names the tables that replace them.
//!
//! - The number of log segments, which each opening reads, is bounded even if processes write little
//!   before they are closed or killed. Closing flushes if there are many segments. So does an opening that
//!   finds many, soon after.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::compaction::execute;
use crate::compaction::shape::flush_cuts;
use crate::engine::base::event::Event;
use crate::engine::base::stats::add;
use crate::engine::upkeep::Upkeep;
use crate::engine::upkeep::compact::Written;
use crate::manifest::edit::{HistoryEdit, LiveCounts, VersionEdit};
use crate::memtable::Memtable;
use crate::read::view::ReadView;
use crate::txn::flush_reason::{MemtableFacts, Moment, flush_reason};
use crate::txn::memtables::Sealed;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

impl Upkeep {
    /// Flushes all sealed memtables, and the active one if it is full or old, into one run.
    /// Returns false if there are none.
    pub(crate) fn flush_step(&self) -> Result<bool> {
        // Before taking the turn, which may stay taken for ever in a forked child (handle.3).
        self.check_process()?;
        let turn = self.turns.flush.lock();
        self.check_able()?;
        self.in_this_thread(|| {
            let writes_go_on = self.memtable_age.saw_commits(self.published.visible());
            let sealed = self.pipeline.seal_if_due(self.is_memtable_old(), writes_go_on);
            let flushed = sealed.and_then(|()| self.flush_in_turn(&turn));
            self.note_flush(&turn, &flushed);
            esker_env::age_page_bufs(self.env.clock.monotonic());
            flushed
        })
    }

    /// Flushes all sealed memtables into one run. If the disk lacks space, the log first gives up its spare
    /// files. Then the oldest memtable is flushed alone, which may free enough of the log for the
    /// next one.
    fn flush_in_turn(&self, _turn: &MutexGuard<'_, ()>) -> Result<bool> {
        let sealed = self.pipeline.sealed();
        match self.giving_up_spares(|| self.flush_together(&sealed)) {
            Err(Error::NoSpace { .. }) if sealed.len() > 1 => self.flush_together(&sealed[..1]),
            flushed => flushed,
        }
    }

    /// Flushes the oldest sealed memtables, `sealed`, into one run.
    fn flush_together(&self, sealed: &[Sealed]) -> Result<bool> {
        let Some(newest) = sealed.last() else { return Ok(false) };
        let bytes = sealed.iter().map(|s| s.memtable.bytes_used() as u64).sum();
        let begun = || Event::FlushBegun { memtables: sealed.len(), bytes };
        let ended = |time, flushed: &Result<Option<Written>>| {
            let (Written { tables, stats }, error) = Written::of(flushed);
            Event::FlushEnded { tables, bytes_written: stats.bytes_written, time, error }
        };
        let flushed = self.between(begun, || self.write_run(sealed, newest, bytes), ended)?;
        Ok(flushed.is_some())
    }

    /// Writes memtables of `bytes` bytes as one run. `None` if they need no table.
    fn write_run(&self, sealed: &[Sealed], newest: &Sealed, bytes: u64) -> Result<Option<Written>> {
        self.heal_manifest()?;
        let version = self.version();
        let memtables: Vec<_> = sealed.iter().rev().map(|s| s.memtable.clone()).collect();
        let limits = self.limits();
        let fences = flush_cuts(&version, &limits, bytes, self.has_little_space());
        let bottommost = version.runs().is_empty();
        let new_file = || self.tables.new_file();
        // Before reading the history rules (engine_history.2).
        let horizons = self.published.horizons();
        let context = self.compaction_context(&new_file, &|_| true);
        let run = self.tables.new_run();
        let begun = self.env.clock.monotonic();
        let built = execute::flush(&context, &memtables, horizons, &fences, bottommost, run);
        let Some(built) = built? else { return Ok(None) };
        let written = Written { tables: built.added.len(), stats: built.stats };
        if bytes > self.options.replay_bytes() {
            self.memtable_age.note_flush(bytes);
        }
        self.pace.flushes.note(bytes, self.env.clock.monotonic().saturating_sub(begun));
        let beside = sealed.iter().map(|sealed| sealed.beside_bytes).sum();
        // The newest memtable determines the count of each keyspace.
        let counts: BTreeMap<_, _> = sealed.iter().flat_map(|s| s.counts.iter().copied()).collect();
        let changed: Vec<_> = counts.into_iter().collect();
        let edit = VersionEdit {
            feed: self.released_now(newest.wal_from, beside),
            wal_from: Some(newest.wal_from),
            flushed_seq: Some(newest.last_seq),
            counts: LiveCounts { changed: Some(changed).filter(|changed| !changed.is_empty()), all: None },
            added: built.added,
            overcounts: built.overcounts,
            history: HistoryEdit { marks: self.history_mark(), floors: built.floors },
            ..VersionEdit::default()
        };
        self.histories.raise(&edit.history.floors);
        self.pipeline.prepare_to_release()?;
        if canary::is_set(Canary::WalReleasedEarly) {
            self.pipeline.release(sealed.len());
            let forgotten = |m: &Arc<Memtable>| memtables.iter().any(|f| Arc::ptr_eq(f, m));
            self.install(edit, built.opened, &memtables).inspect_err(|_| {
                self.view.update(|old| {
                    let rest = old.immutables.iter().filter(|m| !forgotten(m)).cloned().collect();
                    ReadView { immutables: rest, ..old.clone() }
                });
            })?;
        } else {
            self.install(edit, built.opened, &memtables)?;
            self.pipeline.release(sealed.len());
        }
        // A failure is retried after the next flush.
        self.note_error(self.retain());
        add(&self.counters.flush.done, 1);
        add(&self.counters.flush.bytes_written, written.stats.bytes_written);
        self.signal.wake();
        Ok(Some(written))
    }

    /// Reports the outcome of a flush to threads that wait, or pause after a failure. The caller holds the
    /// flush turn (engine_background.6).
    pub(in crate::engine) fn note_flush(&self, _turn: &MutexGuard<'_, ()>, flushed: &Result<bool>) {
        if let Err(error) = flushed {
            add(&self.counters.flush.failed, 1);
            self.counters.note_error(error);
        }
        let is_lack = matches!(flushed, Err(Error::NoSpace { .. }));
        let free = if is_lack { self.free_bytes() } else { None };
        self.watch.flush.note(flushed, self.env.clock.monotonic());
        self.signal.note(flushed.as_ref().map(drop).map_err(|error| Arc::new(error.clone())), free);
        self.report_health();
    }

    /// Flushes all current memtables, but not what other threads write meanwhile. Waits while the flush
    /// thread is flushing.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.check_able()?;
        self.pipeline.seal()?;
        self.flush_sealed(|| self.flush_step())
    }

    /// Flushes all memtables if the next opening would have to replay too much, or too many segments. Called
    /// by close, which holds the turn.
    pub(crate) fn shorten_replay(&self, turn: &MutexGuard<'_, ()>) -> Result<()> {
        self.signal.check_alive()?;
        let unflushed_bytes = self.view.get().memtables().map(|m| m.bytes_used() as u64).sum();
        let (segments, replay_bytes) = (self.segments_to_replay()?, self.options.replay_bytes());
        let closing = Moment::Close { segments, unflushed_bytes, replay_bytes };
        if flush_reason(MemtableFacts::default(), closing).is_some() {
            self.pipeline.seal()?;
            while self.flush_in_turn(turn)? {}
        }
        Ok(())
    }
}
