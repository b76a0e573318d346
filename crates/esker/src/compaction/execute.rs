//! Executes a flush, a compaction or a trivial move. Contains no policy.
//!
//! ```text
//!   memtables, or the plan's tables --MergeScan--> Judge --> Output --> Built --> the caller's VersionEdit
//! ```
//!
//! execute.1. When `flush` or `compact` returns `Built`, its tables and their names are durable.
//! execute.2. When it returns an error, or `None` because it was cancelled, none of its files is left (unless
//!     removing fails), and its inputs are unchanged.
//!
//! Memory does not grow with the inputs: one block or window for each source, one table's index for the
//! output.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use esker_env::Env;

use super::filter::Sieve;
use super::judge::{Dropped, Horizons, Judge, Verdict, Why};
use super::merge::{MergeScan, Source};
use super::operands::Gather;
use super::output::{Output, OutputContext, Shape, Written};
use super::plan::{OutputRun, Plan, PlanKind, settled};
use super::rules::Rules;
use crate::blob::BlobSet;
use crate::manifest::edit::AddedTable;
use crate::manifest::history::Floors;
use crate::manifest::level::{Level, RunId};
use crate::manifest::overcounts::Overcounts;
use crate::manifest::version::{LiveTable, Version};
use crate::memtable::Memtable;
use crate::read::fold::FoldContext;
use crate::read::operators::Operators;
use crate::sstable::{BlockCache, Table, TableOptions};
use crate::types::entry::EntryRef;
use crate::types::op::Kind;
use crate::types::range_tombstone::RangeTombstones;
use crate::types::{FileId, Result, SeqNo};

/// Bytes of input between two progress reports.
const STRETCH_BYTES: usize = 1 << 20;
/// Tables may be larger than an even share by this fraction, so that a wrong estimate leaves no tiny table at
/// the end.
const SLACK_PART: u64 = 16;

/// What a flush or compaction works with.
pub(crate) struct Context<'a> {
    /// The file system.
    pub env: &'a Env,
    /// The database's directory.
    pub dir: &'a Path,
    /// Takes the blocks of new tables while it has space.
    pub cache: &'a Arc<BlockCache>,
    /// Format options of tables.
    pub options: TableOptions,
    /// Size at which tables are cut.
    pub table_bytes: u64,
    /// Returns a new file id.
    pub new_file: &'a (dyn Fn() -> FileId + Sync),
    /// History rules of keyspaces.
    pub rules: Rules,
    /// Called with the bytes of input compacted since the last call. If it returns false, the work ends
    /// without a result.
    pub go_on: &'a (dyn Fn(u64) -> bool + Sync),
    /// Blob files with values that are not in tables.
    pub blobs: BlobSet,
    /// Merge operators.
    pub operators: Arc<Operators>,
    /// The tables below the memtables of a flush.
    pub version: Arc<Version>,
}

impl<'a> Context<'a> {
    /// Returns what folding operands needs.
    pub(super) fn fold_context(&self) -> FoldContext<'_> {
        FoldContext { blobs: &self.blobs, operators: &self.operators }
    }

    /// Returns what its output needs.
    pub(super) fn output_context(&self) -> OutputContext<'a> {
        OutputContext {
            env: self.env.clone(),
            dir: self.dir.to_path_buf(),
            cache: self.cache.clone(),
            keeps_warm: true,
            options: self.options.clone(),
            new_file: Box::new(self.new_file),
        }
    }
}

/// Counts of one flush or compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactionStats {
    /// Bytes of the input tables; 0 for memtables.
    pub bytes_read: u64,
    /// Bytes of the new tables.
    pub bytes_written: u64,
    /// Versions read.
    pub entries_in: u64,
    /// Versions written.
    pub entries_out: u64,
    /// Versions dropped because of newer ones or range tombstones.
    pub garbage: u64,
    /// Tombstones that hid nothing any more.
    pub spent: u64,
}

impl Dropped for CompactionStats {
    #[inline]
    fn dropped(&mut self, _: &EntryRef<'_>, why: Why) {
        match why {
            Why::Outdated | Why::Covered => self.garbage += 1,
            Why::Spent => self.spent += 1,
        }
    }
}

/// The result: what the version edit adds and removes.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// Tables that join the version.
    pub added: Vec<AddedTable>,
    /// Tables that leave it.
    pub removed: Vec<FileId>,
    /// The new tables, opened.
    pub opened: HashMap<FileId, Arc<Table>>,
    /// The unresolved counts found.
    pub overcounts: Overcounts,
    /// Numbers from which on histories are complete, for keyspaces that lost versions.
    pub floors: Floors,
    /// Counts of the work.
    pub stats: CompactionStats,
}

/// A version that waits for the next one to be judged.
#[derive(Default)]
struct Waiting {
    key: Vec<u8>,
    value: Vec<u8>,
    seq_and_kind: Option<(SeqNo, Kind)>,
}

impl Waiting {
    fn set(&mut self, entry: &EntryRef<'_>) {
        self.key.clear();
        self.key.extend_from_slice(entry.key);
        self.value.clear();
        self.value.extend_from_slice(entry.value);
        self.seq_and_kind = Some((entry.seq, entry.kind));
    }

    /// Returns the version and clears the slot.
    fn take(&mut self) -> Option<EntryRef<'_>> {
        let (seq, kind) = self.seq_and_kind.take()?;
        Some(EntryRef { key: &self.key, seq, kind, value: &self.value })
    }
}

/// Writes memtables, newest first, as one run of L0. `snapshots` contains every registered snapshot and the
/// visible sequence number. `bottommost` states that there are no tables at all. Returns `None` if it was
/// cancelled.
pub(crate) fn flush(
    context: &Context<'_>,
    memtables: &[Arc<Memtable>],
    snapshots: Vec<SeqNo>,
    fences: &[Vec<u8>],
    bottommost: bool,
    run: RunId,
) -> Result<Option<Built>> {
    let tombstones: Vec<_> = memtables.iter().map(|m| m.range_tombstones()).collect();
    let tombstones = RangeTombstones::union(tombstones.iter().map(|set| &**set));
    let bytes = memtables.iter().map(|m| m.bytes_used() as u64).sum();
    let shape = Shape {
        level: Level::L0,
        run,
        table_bytes: even_share(bytes, context.table_bytes),
        fences: fences.to_vec(),
        newest_commit: memtables.iter().filter_map(|m| m.max_seq()).max().unwrap_or_default(),
    };
    let judge =
        Judge::new(Horizons::new(snapshots), tombstones, bottommost).with_rules(context.rules.clone());
    let sources = memtables.iter().map(|m| Source::Memtable(m.scan()));
    write(context, sources, judge, shape, (None, &|key| may_expire(&context.version, &[], key)))
}

/// Executes a plan made from `version`, or from an earlier version with the same input tables. `new_run`
/// returns a new run id, `sieve` receives the kept versions. [`place`] then assigns the new tables to runs.
/// Returns `None` if it was cancelled.
pub(crate) fn compact(
    context: &Context<'_>,
    plan: &Plan,
    version: &Version,
    snapshots: Vec<SeqNo>,
    sieve: Option<&mut Sieve<'_>>,
    new_run: impl FnOnce() -> RunId,
) -> Result<Option<Built>> {
    let run = match plan.output_run {
        OutputRun::Existing(run) => run,
        OutputRun::New => new_run(),
    };
    let inputs = input_tables(plan, version);
    let removed: Vec<_> = inputs.iter().flatten().map(|t| t.file).collect();
    if plan.kind == PlanKind::TrivialMove {
        let moved = |t: &Arc<LiveTable>| AddedTable {
            file: t.file,
            level: plan.output_level,
            run,
            meta: t.meta.clone(),
        };
        let added = inputs.iter().flatten().map(|t| moved(t)).collect();
        return Ok(Some(Built { added, removed, ..Built::default() }));
    }
    let bytes = inputs.iter().flatten().map(|t| t.meta.file_bytes).sum();
    let tombstones = inputs.iter().flatten().map(|t| t.table.range_tombstones());
    let judge = Judge::new(Horizons::new(snapshots), RangeTombstones::union(tombstones), plan.bottommost)
        .with_rules(context.rules.clone());
    let newest_commits: Result<Vec<_>> = inputs.iter().flatten().map(|t| t.table.newest_commit()).collect();
    let shape = Shape {
        level: plan.output_level,
        run,
        table_bytes: even_share(bytes, context.table_bytes),
        fences: plan.fences.clone(),
        newest_commit: newest_commits?.into_iter().max().unwrap_or_default(),
    };
    let sources = inputs.iter().map(|run| Source::run(run.iter().map(|t| t.table.clone()).collect()));
    let may_expire_below = |key: &[u8]| may_expire(version, &removed, key);
    let built = write(context, sources, judge, shape, (sieve, &may_expire_below))?;
    Ok(built.map(|built| {
        let stats = CompactionStats { bytes_read: bytes, ..built.stats };
        Built { removed, stats, ..built }
    }))
}

/// Assigns the output of a plan to runs of `version`, the newest one. Other plans may have changed its runs
/// since it was picked.
pub(crate) fn place<T>(added: &mut [AddedTable], plan: &Plan, version: &Version<T>) {
    for table in added {
        table.run = settled(version, plan, &table.meta.range).unwrap_or(table.run);
    }
}

/// Returns the plan's tables, newest run first, each run in key order.
fn input_tables<'v>(plan: &Plan, version: &'v Version) -> Vec<Vec<&'v Arc<LiveTable>>> {
    let of_run = |input: &super::plan::PlanInput| {
        let run = version.runs().iter().find(|run| (run.level, run.id) == (input.level, input.run));
        let tables = run.into_iter().flat_map(|run| run.tables());
        let tables: Vec<_> = tables.filter(|t| input.files.contains(&t.file)).collect();
        assert_eq!(tables.len(), input.files.len(), "a plan's tables stay until it is executed");
        tables
    };
    plan.inputs.iter().map(of_run).collect()
}

/// Returns the table size that cuts `bytes` into tables of equal size.
fn even_share(bytes: u64, table_bytes: u64) -> u64 {
    let share = bytes / bytes.div_ceil(table_bytes.max(1)).max(1);
    (share + share / SLACK_PART).clamp(1, table_bytes.max(1))
}

/// Returns whether a table outside `inputs` may hold an expiring version of an encoded key (fold.4).
fn may_expire(version: &Version, inputs: &[FileId], key: &[u8]) -> bool {
    version.runs().iter().any(|run| {
        let live = run.find(key).map(|index| &run.tables()[index]);
        live.is_some_and(|live| live.meta.counts.expiring > 0 && !inputs.contains(&live.file))
    })
}

/// Receives the kept versions, and answers whether an expiring one may lie below a key.
type Seeing<'s, 'f> = (Option<&'s mut Sieve<'f>>, &'s dyn Fn(&[u8]) -> bool);

fn write(
    context: &Context<'_>,
    sources: impl Iterator<Item = Source>,
    mut judge: Judge,
    shape: Shape,
    seeing: Seeing<'_, '_>,
) -> Result<Option<Built>> {
    let survivors = judge.surviving_tombstones();
    let mut output = Output::new(context.output_context(), shape, &survivors);
    match write_to(context, sources, &mut judge, &mut output, seeing) {
        Ok(Some(built)) => Ok(Some(built)),
        failed => {
            output.discard();
            failed
        }
    }
}

fn write_to(
    context: &Context<'_>,
    sources: impl Iterator<Item = Source>,
    judge: &mut Judge,
    output: &mut Output<'_>,
    (mut sieve, may_expire_below): Seeing<'_, '_>,
) -> Result<Option<Built>> {
    let mut stats = CompactionStats::default();
    if !(context.go_on)(0) {
        return Ok(None);
    }
    let mut stretch = 0;
    let mut scan = MergeScan::new(sources)?;
    let (mut waiting, mut gather) =
        (Waiting::default(), Gather::new(context.fold_context(), may_expire_below));
    let mut write = |entry: EntryRef<'_>, seq| {
        if let Some(sieve) = &mut sieve {
            sieve.see(&entry, seq)?;
        }
        output.add(entry)
    };
    while let Some(entry) = scan.next()? {
        if let Some(earlier) = waiting.take() {
            let verdict = judge.resolve(earlier, Some(&entry), &mut stats);
            stats.garbage += gather.take(earlier, verdict, judge, &mut write)?;
        }
        stretch += entry.key.len() + entry.value.len();
        if stretch >= STRETCH_BYTES && !(context.go_on)(std::mem::take(&mut stretch) as u64) {
            return Ok(None);
        }
        stats.entries_in += 1;
        match judge.judge(entry, &mut stats) {
            Verdict::Wait => waiting.set(&entry),
            verdict => stats.garbage += gather.take(entry, verdict, judge, &mut write)?,
        }
    }
    if let Some(last) = waiting.take() {
        let verdict = judge.resolve(last, None, &mut stats);
        stats.garbage += gather.take(last, verdict, judge, &mut write)?;
    }
    gather.finish(judge, &mut write)?;
    let Written { added, opened } = output.finish()?;
    stats.bytes_written = added.iter().map(|t| t.meta.file_bytes).sum();
    stats.entries_out = added.iter().map(|t| t.meta.counts.entries).sum();
    assert_eq!(stats.entries_in, stats.entries_out + stats.garbage + stats.spent, "every version has a fate");
    let (overcounts, floors) = (judge.overcounts().clone(), judge.floors().clone());
    Ok(Some(Built { added, removed: Vec::new(), opened, overcounts, floors, stats }))
}

#[cfg(test)]
mod tests;
