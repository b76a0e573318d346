//! The older writes of a large transaction: sorted layers below the write set that receives new writes.
//!
//! ```text
//!   write set --full--> piece, piece, piece ... --over the memory limit--> private run (tables)
//!   read: write set, then the layers, newest first, then committed data
//!   commit: all pieces become a run, and the runs are adopted (engine/writes/adoption.rs)
//! ```
//!
//! layers.1. For any key, a layer holds newer writes than the layers before it. Its range removals hide keys
//!     in older layers, and none of its own.
//!
//! - Private tables that are not adopted are removed when the last reference to their layer is
//!   dropped.

use std::ops::Bound;
use std::sync::Arc;

use super::packing::{Packing, Spares};
use crate::compaction::merge::Source;
use crate::encoding::hash::key_hash;
use crate::manifest::version::Run;
use crate::memtable::{PieceCursor, PieceScan};
use crate::read::fold::{Base, Operands};
use crate::read::merge::MergeCursor;
use crate::read::point::PointQuery;
use crate::read::resolve::{Answer, Resolver};
use crate::read::run_cursor::RunCursor;
use crate::read::view::ReadView;
use crate::types::bounds::Bounds;
use crate::types::cursor::SourceCursor;
use crate::types::expiry::Expiry;
use crate::types::key_range::KeyRange;
use crate::types::op::Kind;
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::types::stored::Stored;
use crate::types::{KeyspaceId, Result, SeqNo, Value};
use crossbeam_epoch::Guard;

/// Number of keys sampled per piece to split the pieces into equal parts.
const SAMPLES: usize = 64;

/// A range of keys: start (included) and end (excluded). `None` means unbounded.
pub(crate) type Part<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A run of private tables.
pub(crate) struct PrivateRun {
    /// The run.
    pub(crate) run: Arc<Run>,
    /// Number of live entries per keyspace, ascending.
    pub(crate) puts: Vec<(KeyspaceId, i64)>,
    /// Whether any entry is an operand.
    pub(crate) has_operands: bool,
    /// Number of times its entries were compacted.
    pub(crate) tier: u32,
}

impl PrivateRun {
    /// Returns its range removals. Their sequence numbers have no meaning.
    pub(crate) fn removed(&self) -> RangeTombstones {
        RangeTombstones::union(self.run.tables().iter().map(|live| live.table.range_tombstones()))
    }

    /// Returns whether neither run holds or removes a key in the range of the other.
    fn is_apart(&self, other: &PrivateRun) -> bool {
        let tables = self.run.tables().iter();
        tables.map(|live| other.run.overlapping(&live.meta.range)).all(<[_]>::is_empty)
    }
}

/// What the writes of a transaction know about a key.
pub(crate) enum OwnAnswer<T> {
    /// The answer. `None` if the key does not exist.
    Known(Option<T>),
    /// The answer depends on committed data, below these operands.
    Below(Operands),
}

/// A layer of writes.
#[derive(Clone)]
pub(crate) enum Layer {
    /// In memory.
    Piece(Arc<Packing>),
    /// In tables.
    Run(Arc<PrivateRun>),
}

/// The layers of a transaction, oldest first.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    all: Vec<Layer>,
    /// Memory for further writes.
    pub(crate) spares: Spares,
}

impl Layers {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn all(&self) -> &[Layer] {
        &self.all
    }

    /// Adds the newest layer.
    pub(crate) fn push(&mut self, layer: Layer) {
        self.all.push(layer);
    }

    /// Removes the layers from index `first` on.
    pub(crate) fn truncate(&mut self, first: usize) {
        self.all.truncate(first);
    }

    /// Replaces the layers from index `first` on by a run. The run is joined with the run before it if they
    /// do not overlap, as when keys are written in order.
    pub(crate) fn replace_from(&mut self, first: usize, mut run: PrivateRun) {
        self.all.truncate(first);
        if let Some(Layer::Run(last)) = self.all.last()
            && last.is_apart(&run)
        {
            let tables = [last.run.tables(), run.run.tables()].concat();
            let puts = sum(&last.puts, run.puts);
            run = PrivateRun {
                run: Arc::new(Run::new(run.run.level, run.run.id, tables)),
                puts,
                has_operands: last.has_operands || run.has_operands,
                tier: last.tier.max(run.tier),
            };
            self.all.pop();
        }
        self.all.push(Layer::Run(Arc::new(run)));
    }

    /// Returns whether the layers have only removals.
    pub(crate) fn removes_only(&self) -> bool {
        self.all.iter().all(|layer| match layer {
            Layer::Piece(packing) => packing.removes_only(),
            Layer::Run(private) => !private.has_operands && private.puts.iter().all(|(_, puts)| *puts == 0),
        })
    }

    /// Iterates over the runs, oldest first.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Arc<PrivateRun>> {
        self.all.iter().filter_map(|layer| match layer {
            Layer::Run(run) => Some(run),
            Layer::Piece(_) => None,
        })
    }

    /// If the newest `fan_in` layers are runs of one tier, returns the index of the first of them and the
    /// tier.
    pub(crate) fn crowd(&self, fan_in: usize) -> Option<(usize, u32)> {
        let first = self.all.len().checked_sub(fan_in)?;
        let tier_of = |layer: &Layer| match layer {
            Layer::Run(run) => Some(run.tier),
            Layer::Piece(_) => None,
        };
        let tier = tier_of(&self.all[first])?;
        self.all[first..].iter().all(|layer| tier_of(layer) == Some(tier)).then_some((first, tier))
    }

    /// Returns whether a run other than the oldest removes ranges. Such a run may hide keys in older runs, so
    /// all runs must be compacted into one.
    pub(crate) fn removes_across(&self) -> bool {
        self.runs().skip(1).any(|private| private.run.has_range_tombstones())
    }

    /// Returns whether a run merges into a key that an older run puts or removes. A commit has either
    /// operands or another op for a key, so all runs must be compacted into one.
    pub(crate) fn merges_across(&self) -> Result<bool> {
        if !self.runs().skip(1).any(|private| private.has_operands) {
            return Ok(false);
        }
        let everything = Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
        let mut walk = MergeCursor::new(self.cursors(&everything));
        walk.seek_first()?;
        while walk.valid() {
            let mut is_above = walk.kind().is_operand();
            while walk.older()? {
                let is_operand = walk.kind().is_operand();
                if is_above && !is_operand {
                    return Ok(true);
                }
                is_above = is_operand;
            }
            walk.next()?;
        }
        Ok(false)
    }

    /// Returns the index of the first of the newest layers that are pieces.
    pub(crate) fn first_piece(&self) -> usize {
        self.all.iter().rposition(|layer| matches!(layer, Layer::Run(_))).map_or(0, |last| last + 1)
    }

    /// Bytes of memory used by pieces.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pieces = self.all.iter().map(|layer| match layer {
            Layer::Piece(piece) => piece.memory_bytes(),
            Layer::Run(_) => 0,
        });
        pieces.sum()
    }

    /// Upper bound of the disk space that the layers from index `first` on take as one run.
    pub(crate) fn run_bytes_max(&self, first: usize) -> u64 {
        let of_layer = |layer: &Layer| match layer {
            Layer::Piece(piece) => piece.memory_bytes(),
            Layer::Run(private) => private.run.bytes(),
        };
        self.all[first..].iter().map(of_layer).sum()
    }

    /// Number of keys written by the layers. Keys in several layers count several times.
    pub(crate) fn op_count(&self) -> usize {
        let of_layer = |layer: &Layer| match layer {
            Layer::Piece(piece) => piece.op_count(),
            Layer::Run(private) => {
                private.run.tables().iter().map(|live| live.meta.counts.entries as usize).sum()
            }
        };
        self.all.iter().map(of_layer).sum()
    }

    /// Bytes of keys and values.
    pub(crate) fn byte_len(&self) -> usize {
        let of_layer = |layer: &Layer| match layer {
            Layer::Piece(piece) => piece.byte_len(),
            Layer::Run(private) => {
                let counts = private.run.tables().iter().map(|live| live.meta.counts);
                counts.map(|counts| (counts.key_bytes + counts.value_bytes) as usize).sum()
            }
        };
        self.all.iter().map(of_layer).sum()
    }

    /// Returns the sequence number of a layer for readers: newer than any commit, older than the write set.
    fn number(&self, layer: usize) -> SeqNo {
        SeqNo::new(SeqNo::MAX.get() - (self.all.len() - layer) as u64)
    }

    /// Looks up a key below operands in the layers, for a reader of this view.
    pub(crate) fn find<W: PointQuery>(
        &self,
        key: &[u8],
        mut operands: Operands,
        view: &ReadView,
        guard: &Guard,
    ) -> Result<OwnAnswer<W::Out>> {
        let hash = key_hash(key);
        let known = |operands: Operands, base| view.folded::<W>(key, operands, base).map(OwnAnswer::Known);
        for layer in self.all.iter().rev() {
            match layer {
                Layer::Piece(piece) => {
                    let piece = piece.get();
                    if let Some(entry) = piece.get(key) {
                        // The base of operands counts even if it has expired (fold.3).
                        let expired =
                            || operands.is_empty() && view.has_expired::<W>(Some(Expiry::of(entry.value)));
                        match Resolver::default().feed_reader(SeqNo::MAX, entry.kind, expired) {
                            Answer::Live if operands.is_empty() => {
                                let found = W::of_entry(&entry, view.version.blobs());
                                return found.map(|found| OwnAnswer::Known(Some(found)));
                            }
                            Answer::Live => {
                                return known(operands, Some(Base::of(entry.kind, entry.value)));
                            }
                            Answer::Gone => return known(operands, None),
                            Answer::Operand => operands.push(Value::copy_of(entry.value)),
                            Answer::Older => {}
                        }
                    }
                    let holds = |(start, end): &(Vec<u8>, Vec<u8>)| **start <= *key && *key < **end;
                    if piece.ranges().iter().any(holds) {
                        return known(operands, None);
                    }
                }
                Layer::Run(private) => {
                    let Some(at) = private.run.find(key) else { continue };
                    let table = &private.run.tables()[at].table;
                    if let Some(found) = table.get(key, hash, SeqNo::MAX, true, guard)? {
                        let expired = || operands.is_empty() && view.has_expired::<W>(found.expiry());
                        match Resolver::default().feed_reader(SeqNo::MAX, found.kind(), expired) {
                            Answer::Live if operands.is_empty() => {
                                let found = W::of_table(found, view.version.blobs());
                                return found.map(|found| OwnAnswer::Known(Some(found)));
                            }
                            Answer::Live => {
                                let base = Base { expiry: found.expiry(), stored: found.share() };
                                return known(operands, Some(base));
                            }
                            Answer::Gone => return known(operands, None),
                            Answer::Operand => operands.push(found.share().beside()),
                            Answer::Older => {}
                        }
                    }
                    if table.range_tombstones().fragment_of(key).is_some() {
                        return known(operands, None);
                    }
                }
            }
        }
        Ok(OwnAnswer::Below(operands))
    }

    /// Returns the smallest range that covers all keys and removed ranges. `None` if nothing was written.
    pub(crate) fn range(&self) -> Option<KeyRange> {
        let of_layer = |layer: &Layer| match layer {
            Layer::Piece(piece) => piece.get().range(),
            Layer::Run(private) => union(private.run.tables().iter().map(|live| live.meta.range.clone())),
        };
        union(self.all.iter().filter_map(of_layer))
    }

    /// Returns cursors over the layers, newest first.
    pub(crate) fn cursors(&self, bounds: &Bounds) -> Vec<LayerCursor> {
        let cursor = |(at, layer): (usize, &Layer)| {
            let seq = self.number(at);
            match layer {
                Layer::Piece(piece) => Some(LayerCursor::Piece(PieceCursor::new(piece.get().clone(), seq))),
                Layer::Run(private) => {
                    let cursor = RunCursor::new(&private.run, SeqNo::MAX, bounds)?;
                    Some(LayerCursor::Run(cursor, seq))
                }
            }
        };
        self.all.iter().enumerate().rev().filter_map(cursor).collect()
    }

    /// Returns the range removals of the layers, with the sequence numbers that readers see.
    pub(crate) fn removals(&self) -> Vec<RangeTombstone> {
        self.removals_from(0, |layer| self.number(layer))
    }

    /// Returns the range removals of the layers from `first` on, with sequence numbers from `number`.
    fn removals_from(&self, first: usize, number: impl Fn(usize) -> SeqNo) -> Vec<RangeTombstone> {
        let mut removals = Vec::new();
        for (at, layer) in self.all.iter().enumerate().skip(first) {
            let seq = number(at);
            match layer {
                Layer::Piece(piece) => {
                    removals.extend(piece.get().ranges().iter().map(|(start, end)| RangeTombstone {
                        start: start.clone(),
                        end: end.clone(),
                        seq,
                    }))
                }
                Layer::Run(private) => {
                    removals
                        .extend(private.removed().iter().map(|removal| RangeTombstone { seq, ..removal }));
                }
            }
        }
        removals
    }

    /// Returns keys that divide the layers from `first` on into about `parts` equal parts. Empty unless all
    /// of them are pieces.
    pub(crate) fn cuts(&self, first: usize, parts: usize) -> Vec<Vec<u8>> {
        let mut sample = Vec::new();
        for layer in &self.all[first..] {
            match layer {
                Layer::Piece(piece) => sample.extend(piece.get().cuts(SAMPLES)),
                Layer::Run(_) => return Vec::new(),
            }
        }
        sample.sort_unstable();
        let mut cuts: Vec<_> =
            (1..parts).filter_map(|part| sample.get(sample.len() * part / parts)).collect();
        cuts.dedup();
        cuts.into_iter().map(|cut| cut.to_vec()).collect()
    }

    /// Returns the inputs for compacting the layers from `first` on: sources, newest first, and all their
    /// range removals. Pieces are restricted to `range`.
    pub(crate) fn to_merge(&self, first: usize, range: Part<'_>) -> (Vec<Source>, RangeTombstones) {
        let number = |at: usize| SeqNo::new(1 + at as u64);
        let (start, end) = range;
        let source = |(at, layer): (usize, &Layer)| match layer {
            Layer::Piece(piece) => Source::Piece(PieceScan::new(piece.get().clone(), number(at), start, end)),
            Layer::Run(private) => {
                let tables = private.run.tables().iter().map(|live| live.table.clone()).collect();
                Source::run_as(tables, number(at))
            }
        };
        let sources = self.all.iter().enumerate().skip(first).rev().map(source).collect();
        let mut removals = self.removals_from(first, number);
        for removal in &mut removals {
            if start.is_some_and(|start| *removal.start < *start) {
                removal.start = start.unwrap_or_default().to_vec();
            }
            if end.is_some_and(|end| *removal.end > *end) {
                removal.end = end.unwrap_or_default().to_vec();
            }
        }
        (sources, RangeTombstones::new(removals))
    }
}

/// Adds counts per keyspace.
pub(crate) fn sum(a: &[(KeyspaceId, i64)], b: Vec<(KeyspaceId, i64)>) -> Vec<(KeyspaceId, i64)> {
    let mut sum = a.to_vec();
    for (keyspace, count) in b {
        match sum.iter_mut().find(|of| of.0 == keyspace) {
            Some(of) => of.1 += count,
            None => sum.push((keyspace, count)),
        }
    }
    sum
}

/// Returns the smallest range that covers all ranges, which are in order.
fn union(ranges: impl Iterator<Item = KeyRange>) -> Option<KeyRange> {
    ranges.reduce(|mut all, range| {
        all.extend(&range);
        all
    })
}

/// A cursor over a layer.
pub(crate) enum LayerCursor {
    /// A cursor over a piece.
    Piece(PieceCursor),
    /// A cursor over a private run, with the sequence number of its layer.
    Run(RunCursor, SeqNo),
}

macro_rules! delegate {
    ($self:ident, $c:ident => $call:expr) => {
        match $self {
            LayerCursor::Piece($c) => $call,
            LayerCursor::Run($c, _) => $call,
        }
    };
}

impl SourceCursor for LayerCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        delegate!(self, c => c.seek(key))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        delegate!(self, c => c.seek_before(key))
    }
    fn seek_first(&mut self) -> Result<()> {
        delegate!(self, c => c.seek_first())
    }
    fn seek_last(&mut self) -> Result<()> {
        delegate!(self, c => c.seek_last())
    }
    fn next(&mut self) -> Result<()> {
        delegate!(self, c => c.next())
    }
    fn prev(&mut self) -> Result<()> {
        delegate!(self, c => c.prev())
    }
    fn valid(&self) -> bool {
        delegate!(self, c => c.valid())
    }
    fn key(&self) -> &[u8] {
        delegate!(self, c => c.key())
    }
    fn seq(&self) -> SeqNo {
        match self {
            LayerCursor::Piece(cursor) => cursor.seq(),
            LayerCursor::Run(_, seq) => *seq,
        }
    }
    fn kind(&self) -> Kind {
        delegate!(self, c => c.kind())
    }
    fn stored(&self) -> Stored<&[u8]> {
        delegate!(self, c => c.stored())
    }
    fn expiry(&self) -> Option<Expiry> {
        delegate!(self, c => c.expiry())
    }
    fn share(&self) -> Stored<Value> {
        delegate!(self, c => c.share())
    }
    fn older(&mut self) -> Result<bool> {
        // layers.1: each layer has one version of a key.
        Ok(false)
    }
}
