//! Background compaction, one step at a time. A failed step leaves the version unchanged.
//!
//! ```text
//!   try_compact: covered.rs --tables that no reader sees--> log synced --install--> removed unread
//!                txn/flush_reason.rs --idle, and a flush pays--> flush
//!                backoff.rs, picker --Plan--> compaction::execute --install--> input tables removed
//!                collect.rs --nothing to compact--> blob files collected
//! ```
//!
//! - A step holds its turn until it ends (compaction_turns.rs). It does nothing in a closed database
//!   (handle.1), nor after a panic of a thread or of another step (engine_background.2).
//! - A step that finds other plans running does only what is due without idleness or lost seeks: those pay
//!   for one compaction.
//!
//! compact.3. Before tables are removed because of a range tombstone in a memtable (covered.3), the log is
//!     durable up to that tombstone. The same manifest edit records this, so that a log that lost the
//!     tombstone is noticed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::compaction::claim::Claim;
use crate::compaction::covered::covered;
use crate::compaction::execute::{self, Built, CompactionStats, Context};
use crate::compaction::filter::{IsBeside, Sieve};
use crate::compaction::judge::Horizons;
use crate::compaction::plan::{PickInput, Plan, PlanKind};
use crate::encoding::hash::key_hash;
use crate::engine::base::event::Event;
use crate::engine::base::stats::add;
use crate::engine::upkeep::Upkeep;
use crate::engine::upkeep::amplification::Space;
use crate::engine::upkeep::backoff::Choice;
use crate::manifest::edit::{HistoryEdit, VersionEdit};
use crate::manifest::file_name::table_path;
use crate::manifest::history::Floors;
use crate::manifest::version::{Run, Version};
use crate::txn::flush_reason::FlushReason;
use crate::types::canary::{self, Canary};
use crate::types::interleave::{self, Point};
use crate::types::key_range::KeyRange;
use crate::types::{Error, FileId, Result, SeqNo};

/// Approximate speed of compactions (measured: 150 to 220 ns for a record of 174 bytes).
pub(crate) const COMPACTION_BYTES_PER_SECOND: u64 = 800 << 20;

/// Outcome of a compaction step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionStep {
    /// Something was done.
    Done,
    /// There was nothing to do.
    Nothing,
    /// The compaction that is due waits for space.
    PutOff,
}

/// Which compactions a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Scope {
    /// Those that are due.
    Due,
    /// Also those that only an idle database does.
    Idle,
    /// Those that are due, except of tables whose output could not be written recently: another thread
    /// retries these.
    Beside,
}

/// The compaction filters. The layer above commits their decisions.
pub(in crate::engine) trait Filters {
    /// Returns a sieve for a compaction at this visible number; `None` if there are no filters.
    fn sieve(&self, visible: SeqNo, is_beside: IsBeside) -> Option<Sieve<'_>>;

    /// Forgets earlier decisions that are not carried out about keys that a compaction takes in as it begins.
    fn forget(&self, takes_in: &dyn Fn(&[u8]) -> bool);
}

/// Returns whether a plan takes in a table of this version whose range has a key.
fn takes_in(version: &Version, plan: &Plan) -> impl Fn(&[u8]) -> bool {
    let files = plan.files();
    move |key| {
        let is_in = |run: &Arc<Run>| run.find(key).is_some_and(|at| files.contains(&run.tables()[at].file));
        version.runs().iter().any(is_in)
    }
}

/// Returns whether a table of this version that the plan leaves out has a version of a key.
fn beside(version: &Arc<Version>, plan: &Plan) -> IsBeside {
    let (version, files) = (version.clone(), plan.files());
    Box::new(move |key, seq| {
        let (hash, pin) = (key_hash(key), crate::sync::pin());
        for run in version.runs().iter().filter(|run| run.max_seq() >= seq) {
            let table = run.find(key).map(|index| &run.tables()[index]);
            let Some(live) = table.filter(|live| !files.contains(&live.file)) else { continue };
            let newest = live.table.newest_seq(key, hash, &pin)?;
            let removed = live.table.range_tombstones().cover(key, SeqNo::MAX);
            if newest.is_some_and(|newest| newest >= seq) || (removed > SeqNo::ZERO && removed >= seq) {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Returns how many nanoseconds a compaction takes that reads `bytes`.
pub(super) fn compaction_ns(bytes: u64) -> u128 {
    u128::from(bytes) * 1_000_000_000 / u128::from(COMPACTION_BYTES_PER_SECOND)
}

/// What a flush or a compaction has written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) tables: usize,
    pub(super) stats: CompactionStats,
}

impl Written {
    /// Returns the parts of an outcome for its event.
    pub(super) fn of(outcome: &Result<Option<Written>>) -> (Written, Option<Error>) {
        match outcome {
            Ok(written) => (written.unwrap_or_default(), None),
            Err(error) => (Written::default(), Some(error.clone())),
        }
    }
}

impl CompactionStep {
    fn done(is_done: bool) -> Self {
        if is_done { CompactionStep::Done } else { CompactionStep::Nothing }
    }
}

impl Upkeep {
    /// Does the compaction that the policy wants most, unless it has to wait.
    pub(in crate::engine) fn try_compact(
        &self,
        scope: Scope,
        filters: &dyn Filters,
    ) -> Result<CompactionStep> {
        // Before taking the turn, which may stay taken for ever in a forked child (handle.3).
        self.check_writable()?;
        let turn = self.turns.compact.choose();
        self.check_able()?;
        if self.tables.has_disowned() {
            self.heal_manifest().inspect_err(|error| self.count_failed_compaction(error))?;
        }
        if self.drop_covered()? {
            return Ok(CompactionStep::Done);
        }
        // compaction_turns.2
        let running = self.turns.compact.claims();
        let is_alone = running.is_empty();
        if !is_alone && (running.len() >= self.options.compactions() || self.has_little_space()) {
            return Ok(CompactionStep::Nothing);
        }
        let version = self.version();
        let lost_ns = if is_alone { self.read_cost.lost_ns() } else { 0 };
        let idle = scope == Scope::Idle && is_alone;
        if idle && let Some(reason) = self.idle_flush_reason(lost_ns) {
            if reason == FlushReason::ReadersPaid {
                self.read_cost.reset();
            }
            self.pipeline.seal()?;
            return self.flush_step().map(CompactionStep::done);
        }
        let compacts_idle = idle && self.idle_compaction_is_due(&version);
        let now = self.env.clock.monotonic();
        let mut input = self.pick_input(&version, compacts_idle, lost_ns, running);
        if scope == Scope::Beside {
            input.skip = self.backoff.lock().unwritable(now);
        }
        let fits_cache = input.limits.fits_cache;
        let choice = self.backoff.lock().choose(&version, input, now, || self.free_bytes());
        let plan = match choice {
            Choice::Plan(plan) => plan,
            Choice::Nothing => {
                let collected = self.in_this_thread(|| self.collect_blobs(idle));
                if collected.inspect_err(|error| self.count_failed_compaction(error))? {
                    return Ok(CompactionStep::Done);
                }
                if compacts_idle {
                    self.note_nothing_due(now);
                }
                return Ok(CompactionStep::Nothing);
            }
            Choice::PutOff => return Ok(CompactionStep::PutOff),
        };
        let cost_ns = match plan.kind {
            PlanKind::Rewrite => compaction_ns(plan.input_bytes(&version)),
            PlanKind::TrivialMove => 0,
        };
        let _running = turn.begin(&plan, &version, self.options.compactions() == 1);
        drop(version);
        let done = self.run_plan(plan, Some(filters))?;
        if self.version().runs().len() <= 1 {
            self.read_cost.reset();
        } else if !fits_cache {
            // The time that readers lost pays for one compaction, not for all that follow.
            self.read_cost.deduct(u64::try_from(cost_ns).unwrap_or(u64::MAX));
        }
        Ok(CompactionStep::done(done))
    }

    /// Returns what the picker needs to know besides the version.
    fn pick_input(&self, version: &Version, idle: bool, lost_ns: u64, running: Vec<Claim>) -> PickInput {
        let needs_compaction = Space::of(version).needs_compaction(self.options.amplification_percent_max());
        PickInput {
            limits: if idle { self.limits_when_idle() } else { self.limits() },
            idle: idle || needs_compaction,
            wasted_seek_ns: lost_ns,
            bytes_per_second: COMPACTION_BYTES_PER_SECOND,
            skip: BTreeSet::new(),
            put_off: BTreeSet::new(),
            running,
            oldest_horizon: self.published.oldest_horizon(),
            rules: self.history_rules(),
        }
    }

    /// Drops tables that range tombstones cover; returns false if there are none. Tables with keys of running
    /// plans wait. The caller holds the turn to choose or the exclusive one.
    pub(in crate::engine) fn drop_covered(&self) -> Result<bool> {
        // compaction_turns.2
        let running = self.turns.compact.claims();
        let horizons = match canary::is_set(Canary::CoveredTableDroppedEarly) {
            true => vec![self.published.visible()],
            false => self.published.horizons(),
        };
        let durable_seq = horizons.last().copied();
        let (horizons, rules) = (Horizons::new(horizons), self.history_rules());
        let view = self.view.get();
        let holding = view.memtables().filter(|memtable| memtable.has_range_tombstones());
        let mut memtables: Vec<_> = holding.map(|memtable| memtable.range_tombstones()).collect();
        let version = view.version.clone();
        let waiting: Vec<_> =
            view.memtables().filter(|memtable| memtable.unresolved() > 0).cloned().collect();
        drop(view);
        let is_waiting = |range: &KeyRange| {
            let is_unresolved = waiting.iter().any(|memtable| memtable.is_unresolved_in(range));
            is_unresolved || running.iter().any(|claim| claim.overlaps(range))
        };
        let under = |memtables: &[_]| {
            covered(&version, memtables, |t| t.table.range_tombstones(), is_waiting, &horizons, &rules)
        };
        let (mut removed, mut floors) = under(&memtables);
        // A log that has failed cannot be made durable.
        if !removed.is_empty() && !memtables.is_empty() && self.pipeline.poisoned().is_some() {
            memtables.clear();
            (removed, floors) = under(&memtables);
        }
        drop(version);
        if removed.is_empty() {
            return Ok(false);
        }
        let durable_seq = durable_seq.filter(|_| !memtables.is_empty());
        let remove = || self.remove_covered(&removed, &floors, durable_seq);
        self.in_this_thread(|| self.giving_up_spares(remove))
            .inspect_err(|error| self.count_failed_compaction(error))?;
        Ok(true)
    }

    /// Removes tables. If they are covered by a memtable, `durable_seq` is set, and the log is made durable
    /// before (compact.3).
    fn remove_covered(&self, removed: &[FileId], floors: &Floors, durable_seq: Option<SeqNo>) -> Result<()> {
        if durable_seq.is_some() && !canary::is_set(Canary::CoverNotSynced) {
            self.pipeline.sync()?;
        }
        self.heal_manifest()?;
        self.histories.raise(floors);
        let (removed_files, floors) = (removed.to_vec(), floors.clone());
        let edit = VersionEdit {
            removed: removed_files,
            history: HistoryEdit { floors, ..HistoryEdit::default() },
            durable_seq,
            ..VersionEdit::default()
        };
        self.install(edit, HashMap::new(), &[])?;
        add(&self.counters.compaction.tables_dropped, removed.len() as u64);
        self.events.report(|| Event::TablesDropped { tables: removed.len() });
        Ok(())
    }

    /// Executes a plan; returns false if it was cancelled because the database closes.
    pub(in crate::engine) fn run_plan(&self, plan: Plan, filters: Option<&dyn Filters>) -> Result<bool> {
        let begun = || Event::CompactionBegun {
            tables: plan.files().len(),
            bytes: plan.input_bytes(&self.version()),
            is_move: plan.kind == PlanKind::TrivialMove,
        };
        let ended = |time, done: &Result<Option<Written>>| {
            let (Written { tables, stats }, error) = Written::of(done);
            let CompactionStats { bytes_read, bytes_written, .. } = stats;
            Event::CompactionEnded { tables, bytes_read, bytes_written, time, error }
        };
        let execute = || self.in_this_thread(|| self.execute(&plan, filters));
        let done = self.between(begun, execute, ended);
        match &done {
            // After a trivial move the tables are still in the version.
            Ok(Some(_)) => self.watch.retain_failed(|file| !plan.files().contains(&file)),
            Ok(None) => {}
            Err(error) => self.note_failed_compaction(&plan, error),
        }
        self.report_health();
        done.map(|written| written.is_some())
    }

    /// Records a failed compaction (backoff.rs). After a failed read, compactions skip that input for a
    /// while. After a failed write, the tables are not compacted just because the database is idle, for a
    /// while.
    pub(in crate::engine) fn note_failed_compaction(&self, plan: &Plan, error: &Error) {
        self.count_failed_compaction(error);
        let now = self.env.clock.monotonic();
        let unreadable = self.unreadable_input(plan, error);
        let failed_on = unreadable.map_or_else(|| plan.files(), |file| [file].into());
        self.watch.compaction_failed(failed_on, error, now);
        match unreadable {
            Some(file) => {
                self.backoff.lock().note_unreadable(file, now);
                self.account_backlog();
            }
            None => self.backoff.lock().note_unwritable(&plan.files(), now),
        }
    }

    /// Returns the input whose file the error names.
    fn unreadable_input(&self, plan: &Plan, error: &Error) -> Option<FileId> {
        let (Error::Corrupt { path, .. } | Error::Io { path, .. }) = error else { return None };
        let mut files = plan.inputs.iter().flat_map(|input| &input.files);
        files.find(|file| table_path(&self.dir, **file) == *path).copied()
    }

    /// Clears the recorded compaction failures when nothing is due while idle, except for tables that cannot
    /// be read or are put off.
    fn note_nothing_due(&self, now: Duration) {
        let paused = self.backoff.lock().paused(now);
        self.watch.retain_failed(|file| paused.contains(&file));
    }

    /// Executes a plan. `None` if it was cancelled because the database closes.
    fn execute(&self, plan: &Plan, filters: Option<&dyn Filters>) -> Result<Option<Written>> {
        self.heal_manifest()?;
        let version = self.version();
        // Before reading the history rules (engine_history.2).
        let horizons = self.published.horizons();
        if let Some(filters) = filters.filter(|_| plan.kind == PlanKind::Rewrite) {
            filters.forget(&takes_in(&version, plan));
        }
        let mut sieve = match (filters, horizons.last()) {
            (Some(filters), Some(visible)) => filters.sieve(*visible, beside(&version, plan)),
            _ => None,
        };
        let new_file = || self.tables.new_file();
        let (allowance, begun) = (self.compaction_allowance(), self.env.clock.monotonic());
        let go_on = |bytes| allowance.go_on(bytes);
        let context = Context {
            options: self.options.table_options(self.writes_past_page_cache()),
            ..self.compaction_context(&new_file, &go_on)
        };
        let new_run = || self.tables.new_run();
        let built = execute::compact(&context, plan, &version, horizons, sieve.as_mut(), new_run);
        // Measured here: after a later failure the output stays until the manifest has been healed.
        if plan.kind == PlanKind::Rewrite {
            let is_lack = matches!(built, Err(Error::NoSpace { .. }));
            let free = if is_lack { self.free_bytes() } else { None };
            self.backoff.lock().note_space(&plan.files(), free, self.env.clock.monotonic());
        }
        let Some(Built { mut added, removed, opened, overcounts, floors, stats }) = built? else {
            return Ok(None);
        };
        // Before another compaction can take in what this one has shown (engine/writes/decisions.rs).
        if let Some(sieve) = &mut sieve {
            sieve.give();
        }
        let written = Written { tables: added.len(), stats };
        if self.turns.compact.is_shared() {
            interleave::reached(Point::CompactionBuilt);
        }
        let running = self.turns.compact.count().max(1) as u64;
        let took = self.env.clock.monotonic().saturating_sub(begun);
        self.pace.compactions.note(stats.bytes_written * running, took);
        if canary::is_set(Canary::TableRemovedEarly) {
            for file in removed.iter().filter(|file| added.iter().all(|a| a.file != **file)) {
                let _ = self.env.fs.remove_file(&table_path(&self.dir, *file));
            }
        }
        self.histories.raise(&floors);
        let history = HistoryEdit { floors, ..HistoryEdit::default() };
        {
            let _placing = self.turns.compact.place();
            execute::place(&mut added, plan, &self.version());
            let edit = VersionEdit { added, removed, overcounts, history, ..VersionEdit::default() };
            self.install(edit, opened, &[])?;
        }
        add(&self.counters.compaction.done, 1);
        add(&self.counters.compaction.moves, u64::from(plan.kind == PlanKind::TrivialMove));
        add(&self.counters.compaction.bytes_read, stats.bytes_read);
        add(&self.counters.compaction.bytes_written, stats.bytes_written);
        Ok(Some(written))
    }

    /// Returns a context for work that writes tables past the page cache.
    pub(in crate::engine) fn compaction_context<'a>(
        &'a self,
        new_file: &'a (dyn Fn() -> FileId + Sync),
        go_on: &'a (dyn Fn(u64) -> bool + Sync),
    ) -> Context<'a> {
        let version = self.version();
        Context {
            env: &self.env,
            dir: &self.dir,
            cache: &self.cache,
            options: self.options.table_options(true),
            table_bytes: self.limits().table_bytes,
            new_file,
            rules: self.history_rules(),
            go_on,
            blobs: version.blobs().clone(),
            operators: self.operators.clone(),
            version,
        }
    }
}

#[cfg(test)]
mod tests;
