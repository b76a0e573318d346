//! Large transactions: their writes become private tables while the transaction runs, and the commit adopts
//! the tables.
//!
//! ```text
//!   write set --pack--> piece --spill--> private run     while the transaction is filled, in its thread
//!   commit: spill the rest, count, check for conflicts --Pipeline::adopt (txn/adopt.rs)--> manifest edit
//! ```
//!
//! adoption.1. Adopted tables lie below the memtables. So no memtable may hold older versions of their keys
//!     (view.1). Such a memtable is flushed first, while other commits continue. If these write the same keys
//!     meanwhile, the adoption is tried again; after some attempts other commits wait.
//! adoption.2. Counts and conflicts are computed outside the commit lock, as of a pinned commit. Under the
//!     lock only newer versions are checked, whether from users, sweeps or compaction filters.
//!     Any such version means another attempt.
//! - Nothing is left of a transaction that is dropped or fails: its tables go with the last user of its
//!   layers. After a crash they are files that the manifest does not name.

use std::collections::HashMap;
use std::sync::Arc;

use crate::compaction::output::Written;
use crate::compaction::private::{PrivateBuilt, write_private};
use crate::engine::base::options::Background;
use crate::engine::base::stats::add;
use crate::engine::writes::Writes;
use crate::manifest::edit::{AddedTable, Adopted, VersionEdit};
use crate::manifest::feed::KeptCommit;
use crate::manifest::file_name::table_path;
use crate::manifest::level::{Level, RunId};
use crate::manifest::version::{LiveTable, Run, Version};
use crate::read::view::ReadView;
use crate::sstable::Table;
use crate::txn::adopt::EditFailed;
use crate::txn::commit::CommitRequest;
use crate::txn::conflict::name_among;
use crate::txn::layers::{Layer, Layers, Part, PrivateRun, sum};
use crate::txn::packing::Packing;
use crate::txn::private::PrivateWrites;
use crate::txn::write_set::{CountDeltas, WriteSet};
use crate::types::canary::{self, Canary};
use crate::types::interleave::{self, Point};
use crate::types::{KeyspaceId, Result, SeqNo};

/// Number of private runs of similar size that are merged into one.
const FAN_IN: usize = 16;
/// Number of attempts after which other commits wait (adoption.1).
const TRIES_BEFORE_TURN: u32 = 3;

/// Maximum number of threads that write one transaction.
const PARTS_MAX: usize = 4;

/// Tables, the number of their live entries by keyspace, and whether any entry is an operand.
type WrittenPart = (Vec<Arc<LiveTable>>, Vec<(KeyspaceId, i64)>, bool);

impl Writes {
    /// Writes pieces to tables if they take all of their memory.
    pub(crate) fn make_room_for_piece(&self, layers: &mut Layers) -> Result<()> {
        if layers.memory_bytes() < self.options.transaction_bytes() { Ok(()) } else { self.spill(layers) }
    }

    /// Makes a write set the newest layer.
    pub(crate) fn push_piece(&self, set: Arc<WriteSet>, layers: &mut Layers) {
        let piece = Arc::new(Packing::new(set, layers.spares.clone(), self.cache.budget()));
        self.cache.shrink(&crate::cache::pin());
        if let Some(Layer::Piece(last)) = layers.all().last() {
            // Waits for the previous piece, so that only one thread runs for a transaction.
            last.get();
        }
        if self.options.background() == Background::Threads {
            let piece = piece.clone();
            // If no thread starts, the first reader of the piece packs it.
            let _ = self.env.threads.spawn("esker-sort", Box::new(move || drop(piece.get().clone())));
        }
        layers.push(Layer::Piece(piece));
    }

    /// Writes the pieces to a private run.
    fn spill(&self, layers: &mut Layers) -> Result<()> {
        let first = layers.first_piece();
        if first == layers.all().len() {
            return Ok(());
        }
        self.merge_layers(layers, first, 0)?;
        while let Some((first, tier)) = layers.crowd(FAN_IN) {
            self.merge_layers(layers, first, tier + 1)?;
        }
        Ok(())
    }

    /// Fails if the layers put something and `bytes` more would leave less than the reserve free (reserve.1).
    fn check_reserve_for(&self, layers: &Layers, bytes: u64) -> Result<()> {
        if layers.removes_only() { Ok(()) } else { self.check_reserve(bytes) }
    }

    /// Merges all layers from `first` on into one private run.
    fn merge_layers(&self, layers: &mut Layers, first: usize, tier: u32) -> Result<()> {
        self.check_able()?;
        self.check_reserve_for(layers, layers.run_bytes_max(first))?;
        self.wal_pool.expect(self.table_bytes() + layers.memory_bytes());
        self.signal.wake_log();
        let (mut tables, mut puts, mut has_operands) = (Vec::new(), Vec::new(), false);
        for part in self.write_parts(layers, first) {
            let (more, more_puts, has_more) = part?;
            tables.extend(more);
            puts = sum(&puts, more_puts);
            has_operands |= has_more;
        }
        if tables.is_empty() {
            layers.truncate(first);
            return Ok(());
        }
        let run = Arc::new(Run::new(Level::L0, RunId(0), tables));
        layers.replace_from(first, PrivateRun { run, puts, has_operands, tier });
        Ok(())
    }

    /// Writes the layers from `first` on, in parts, one thread for each processor. All parts have ended when
    /// this returns.
    fn write_parts(&self, layers: &Layers, first: usize) -> Vec<Result<WrittenPart>> {
        let threads = match self.options.background() {
            Background::Threads => std::thread::available_parallelism().map_or(1, usize::from),
            Background::Writers | Background::Steps => 1,
        };
        let cuts = layers.cuts(first, threads.min(PARTS_MAX));
        let ends = cuts.iter().map(|cut| Some(&**cut)).chain([None]);
        let parts: Vec<Part<'_>> =
            [None].into_iter().chain(cuts.iter().map(|cut| Some(&**cut))).zip(ends).collect();
        let Some((last, others)) = parts.split_last() else { return Vec::new() };
        std::thread::scope(|scope| {
            let start = |&part| scope.spawn(move || self.write_part(layers, first, part));
            let started: Vec<_> = others.iter().map(start).collect();
            let last = self.write_part(layers, first, *last);
            let joined = started.into_iter().map(|part| match part.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.chain([last]).collect()
        })
    }

    /// Writes one part.
    fn write_part(&self, layers: &Layers, first: usize, part: Part<'_>) -> Result<WrittenPart> {
        let (sources, removed) = layers.to_merge(first, part);
        let new_file = || self.tables.new_file();
        let context = self.compaction_context(&new_file, &|_| true);
        // A transaction larger than its memory would evict its own tables from the cache.
        let keep_warm = first == 0 && layers.memory_bytes() < self.options.transaction_bytes();
        let PrivateBuilt { built, puts, has_operands } =
            write_private(&context, sources, removed, keep_warm)?;
        let tables = self.private_tables(Written { added: built.added, opened: built.opened });
        Ok((tables, puts, has_operands))
    }

    /// Opens tables that are removed with their last user until they are adopted.
    pub(in crate::engine) fn private_tables(&self, written: Written) -> Vec<Arc<LiveTable>> {
        let remover = self.lock.remover(self.env.fs.clone());
        let live = |AddedTable { file, meta, .. }| {
            let table = written.opened[&file].clone();
            table.mark_obsolete(remover.clone());
            Arc::new(LiveTable { file, meta, table })
        };
        written.added.into_iter().map(live).collect()
    }

    /// Commits a large transaction.
    pub(in crate::engine) fn adopt(&self, request: &CommitRequest) -> Result<SeqNo> {
        let mut layers = request.layers.clone();
        if !request.set.is_empty() {
            self.push_piece(request.set.clone(), &mut layers);
        }
        self.spill(&mut layers)?;
        if layers.removes_across() || layers.merges_across()? {
            self.merge_layers(&mut layers, 0, 0)?;
        }
        // Others may have taken space since. If this fails, dropping the layers frees theirs.
        self.check_reserve_for(&layers, 0)?;
        for lease in &request.blobs.leases {
            // After a failed sync no other commit with values in the file can become durable either.
            lease.file().sync().map_err(|error| self.pipeline.stop(error))?;
        }
        let Some(writes) = PrivateWrites::new(&layers) else { return Ok(self.published.visible()) };
        let mut turn = None;
        for tries in 0_u32.. {
            if let Some(seq) = self.try_to_adopt(request, &layers, &writes)? {
                add(&self.counters.adoptions, 1);
                self.signal.wake();
                return Ok(seq);
            }
            match &turn {
                None if tries >= TRIES_BEFORE_TURN => turn = self.exclusive_turn.take(),
                None => {}
                Some(held) => held.be_patient(),
            }
        }
        unreachable!("the tries have no end")
    }

    /// Tries to commit. Returns `None` if another commit has just written the same keys.
    fn try_to_adopt(
        &self,
        request: &CommitRequest,
        layers: &Layers,
        writes: &PrivateWrites<'_>,
    ) -> Result<Option<SeqNo>> {
        request.check_keyspaces()?;
        // The number is taken before the view, so that the view has all commits up to it.
        let pin = self.snapshot();
        let view = self.view.get();
        if let Some(since) = &request.since
            && !canary::is_set(Canary::ConflictCheckSkipped)
            && let Some(conflict) = writes.find_conflict(since.seq(), &view)?
        {
            // A failed commit may have left writes in a memtable. They are no conflict, but no commit follows
            // them.
            self.pipeline.check_poison()?;
            return Err(conflict.into_error(|id| name_among(&request.keyspaces, id)));
        }
        // adoption.1
        if !self.is_below(writes, &view)? {
            drop((pin, view));
            self.flush_all()?;
            return Ok(None);
        }
        let count = |id| self.exact_count(&self.published.counter(id), id, &pin);
        let deltas = writes.count_deltas(&view, pin.seq(), count)?;
        drop(view);
        self.heal_manifest()?;
        interleave::reached(Point::AdoptionCounted);
        // A compaction in progress may be writing tables that span a gap of the base.
        let is_quiet = self.turns.compact.try_lock();
        let is_clear = |view: &ReadView| Ok(!writes.is_overtaken(pin.seq(), view)?);
        let name = |seq| self.name_adopted(layers, seq, &deltas, is_quiet.is_some());
        let tables = layers.runs().flat_map(|private| private.run.tables());
        let bytes = tables.map(|live| live.meta.file_bytes).sum();
        self.pipeline.adopt(request, &deltas, bytes, is_clear, name)
    }

    /// Returns whether no memtable holds older versions of these writes.
    fn is_below(&self, writes: &PrivateWrites<'_>, view: &ReadView) -> Result<bool> {
        for memtable in view.memtables() {
            if writes.lies_under(memtable)? && !canary::is_set(Canary::AdoptedUnderMemtable) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Names the tables of all layers as those of commit `seq`, in the manifest and then in the view. Runs
    /// under the commit lock.
    fn name_adopted(
        &self,
        layers: &Layers,
        seq: SeqNo,
        deltas: &CountDeltas,
        may_join_base: bool,
    ) -> std::result::Result<(), EditFailed> {
        let version = self.version();
        let runs: Vec<_> = layers.runs().collect();
        let place = match &runs[..] {
            [only] if may_join_base && overlaps_nothing(&only.run, &version) => {
                let base = version.base().map_or_else(|| self.tables.new_run(), |base| base.id);
                Some((Level::BASE, base))
            }
            _ => None,
        };
        let mut edit = VersionEdit {
            durable_seq: seq.before(),
            adopted: vec![Adopted { seq, deltas: deltas.clone() }],
            ..VersionEdit::default()
        };
        let mut opened = HashMap::new();
        for private in &runs {
            let (level, run) = place.unwrap_or_else(|| (Level::L0, self.tables.new_run()));
            for live in private.run.tables() {
                let table = self.without_base(live).map_err(EditFailed::Undone)?;
                table.set_base(seq);
                let meta = live.meta.clone().based(seq);
                edit.added.push(AddedTable { file: live.file, level, run, meta });
                opened.insert(live.file, table);
            }
        }
        // Failed attempts share these files.
        let kept: Vec<_> = opened.values().cloned().collect();
        let of_layers = || runs.iter().flat_map(|private| private.run.tables()).map(|live| &live.table);
        kept.iter().chain(of_layers()).for_each(|table| table.keep_file());
        if let Some(keeper) = &self.feed {
            // keeper.1 of feed/keeper.rs
            let open: Vec<_> = opened.iter().map(|(file, table)| (*file, table.clone())).collect();
            let tables = edit.added.iter().map(|added| (added.file, added.run)).collect();
            let commit = KeptCommit { seq, tables };
            keeper.keep(commit.clone(), &open);
            edit.feed.kept.push(commit);
        }
        let Err(error) = self.install_or(edit, opened, &[], |_| {}) else { return Ok(()) };
        if let Some(keeper) = &self.feed {
            keeper.unkeep(seq);
        }
        match self.heal_manifest() {
            Ok(()) => {
                let remover = self.lock.remover(self.env.fs.clone());
                of_layers().for_each(|table| table.mark_obsolete(remover.clone()));
                Err(EditFailed::Undone(error))
            }
            Err(_) => Err(EditFailed::Unknown(error)),
        }
    }

    /// Returns the table, opened again if an earlier attempt to adopt it has failed.
    fn without_base(&self, live: &LiveTable) -> Result<Arc<Table>> {
        match live.table.base_seq() {
            SeqNo::ZERO => Ok(live.table.clone()),
            _ => Table::open(&self.env, &table_path(&self.dir, live.file), &self.cache),
        }
    }
}

/// Returns whether no table of a version shares a key with the run.
fn overlaps_nothing(run: &Run, version: &Version) -> bool {
    let is_apart = |range| version.runs().iter().all(|other| other.overlapping(range).is_empty());
    run.tables().iter().all(|live| is_apart(&live.meta.range))
}

#[cfg(test)]
mod tests;
