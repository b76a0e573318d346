//! Compares a large transaction with committed data: counts, conflicts, and what lies above the tables it
//! will become.
//!
//! ```text
//!   layers       --meet--> live keys of a view      : change of the live counts
//!                --meet--> versions newer than ...  : conflicts
//!                --meet--> memtables                : adopted tables would lie below older versions
//! ```
//!
//! Each question is answered by one pass over the view and the layers together, not by a lookup per key.

use std::ops::Bound;

use super::conflict::{Conflict, Newer, range_written};
use super::counts::{Deltas, live_in_ranges};
use super::join::{Live, meet};
use super::layers::{Layer, LayerCursor, Layers};
use super::write_set::CountDeltas;
use crate::memtable::Memtable;
use crate::read::merge::MergeCursor;
use crate::read::view::ReadView;
use crate::read::visible::VisibleCursor;
use crate::types::bounds::{BoundKey, Bounds};
use crate::types::canary::{self, Canary};
use crate::types::cursor::SourceCursor;
use crate::types::key::decode_key;
use crate::types::key_range::{End, KeyRange};
use crate::types::op::Kind;
use crate::types::range_tombstone::{Fragment, RangeTombstones};
use crate::types::{KeyspaceId, Result, SeqNo};

/// The writes of a transaction, all of them in layers.
pub(crate) struct PrivateWrites<'a> {
    layers: &'a Layers,
    /// All range removals, with the sequence numbers of the layers.
    removed: RangeTombstones,
    /// The smallest range that covers all keys and removed ranges.
    range: KeyRange,
}

impl<'a> PrivateWrites<'a> {
    /// Creates the writes of these layers. `None` if they are empty.
    pub(crate) fn new(layers: &'a Layers) -> Option<Self> {
        let removed = RangeTombstones::new(layers.removals());
        Some(PrivateWrites { removed, range: layers.range()?, layers })
    }

    fn bounds(&self) -> Bounds {
        let upper = match &self.range.end {
            End::Included(key) => Bound::Included(BoundKey::copy_of(key)),
            End::Excluded(key) => Bound::Excluded(BoundKey::copy_of(key)),
        };
        Bounds { lower: Bound::Included(BoundKey::copy_of(&self.range.start)), upper }
    }

    /// Returns a cursor on the first of all keys put or removed.
    fn walk(&self) -> Result<MergeCursor<LayerCursor>> {
        let mut walk = MergeCursor::new(self.layers.cursors(&self.bounds()));
        walk.seek_first()?;
        Ok(walk)
    }

    /// Returns how the writes change the live counts at `at`. `count` returns the live count of a whole
    /// keyspace.
    pub(crate) fn count_deltas(
        &self,
        view: &ReadView,
        at: SeqNo,
        count: impl Fn(KeyspaceId) -> Result<u64>,
    ) -> Result<CountDeltas> {
        let mut deltas = Deltas::default();
        let ranges = self.removed.iter().map(|removal| (removal.start, removal.end));
        live_in_ranges(&ranges.collect::<Vec<_>>(), view, at, count, None, &mut deltas)?;
        self.count_puts(&mut deltas)?;
        let mut live = Live(view.live(at, self.bounds()));
        live.0.seek_first()?;
        let mut walk = self.walk()?;
        while meet(&mut walk, &mut live)? {
            let key = SourceCursor::key(&walk);
            if self.removed.fragment_of(key).is_none() && !canary::is_set(Canary::CountNotUpdated) {
                deltas.add(keyspace_of(key), -1);
            }
            SourceCursor::next(&mut walk)?;
            live.0.next()?;
        }
        Ok(deltas.sums())
    }

    fn count_puts(&self, deltas: &mut Deltas) -> Result<()> {
        if let [Layer::Run(only)] = self.layers.all() {
            only.puts.iter().for_each(|&(keyspace, puts)| deltas.add(keyspace, puts));
            return Ok(());
        }
        let sources = self.layers.cursors(&self.bounds()).into_iter().map(|cursor| (cursor, SeqNo::MAX));
        let mut puts = VisibleCursor::new(sources.collect(), self.removed.clone(), SeqNo::MAX, self.bounds());
        puts.seek_first()?;
        while puts.valid() {
            deltas.add(keyspace_of(puts.key()), 1);
            puts.next()?;
        }
        Ok(())
    }

    /// Returns the first conflict with commits later than `since` (conflict.1).
    pub(crate) fn find_conflict(&self, since: SeqNo, view: &ReadView) -> Result<Option<Conflict>> {
        self.find_newer(since, view, Newer::Writes)
    }

    /// Returns whether a key of these writes has any version newer than `since`. That version
    /// would lie above the tables although it is older, and the counts at `since` may not hold.
    pub(crate) fn is_overtaken(&self, since: SeqNo, view: &ReadView) -> Result<bool> {
        let which = match canary::is_set(Canary::SweptAboveAdopted) {
            true => Newer::Writes,
            false => Newer::Versions,
        };
        Ok(self.find_newer(since, view, which)?.is_some())
    }

    fn find_newer(&self, since: SeqNo, view: &ReadView, which: Newer) -> Result<Option<Conflict>> {
        if view.newest_possible() <= since {
            return Ok(None);
        }
        for memtable in view.memtables().filter(|memtable| memtable.max_seq() > Some(since)) {
            if let Some(conflict) = self.removed_since(&memtable.range_tombstones(), since, view, which)? {
                return Ok(Some(conflict));
            }
            if let Some(conflict) = self.written_since(since, memtable.cursor(SeqNo::MAX), which)? {
                return Ok(Some(conflict));
            }
        }
        for table in view.tables_newer(&self.range, since) {
            if let Some(conflict) = self.removed_since(table.range_tombstones(), since, view, which)? {
                return Ok(Some(conflict));
            }
            if let Some(conflict) = self.written_since(since, table.cursor(SeqNo::MAX, false), which)? {
                return Ok(Some(conflict));
            }
        }
        for removal in self.removed.fragments() {
            let (start, end) = (removal.start.to_vec(), removal.end.to_vec());
            let range = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
            if range_written(&range, since, view, which)? {
                return Ok(Some(Conflict { start, end: Some(end) }));
            }
        }
        Ok(None)
    }

    /// Returns the first key of these writes for which a source has such a version newer than `since`.
    fn written_since(
        &self,
        since: SeqNo,
        mut source: impl SourceCursor,
        which: Newer,
    ) -> Result<Option<Conflict>> {
        let mut walk = self.walk()?;
        source.seek(&self.range.start)?;
        while meet(&mut walk, &mut source)? {
            let which = which.of(SourceCursor::kind(&walk));
            while source.seq() > since && !which.includes(source.kind()) && source.older()? {}
            if source.seq() > since && which.includes(source.kind()) {
                return Ok(Some(Conflict { start: source.key().to_vec(), end: None }));
            }
            SourceCursor::next(&mut walk)?;
            SourceCursor::next(&mut source)?;
        }
        Ok(None)
    }

    /// Returns a key of these writes that a range tombstone newer than `since` covers.
    fn removed_since(
        &self,
        tombstones: &RangeTombstones,
        since: SeqNo,
        view: &ReadView,
        which: Newer,
    ) -> Result<Option<Conflict>> {
        let is_newer = |which: Newer| move |seq| which.includes_range(seq, since, view);
        match self.removed_by(tombstones, is_newer(which), |_| true)? {
            None if which == Newer::Writes => {
                self.removed_by(tombstones, is_newer(Newer::Versions), Kind::is_operand)
            }
            found => Ok(found),
        }
    }

    /// Returns a key of these writes, with an op accepted by `is_of`, that a range tombstone accepted by
    /// `is_it` covers.
    fn removed_by(
        &self,
        tombstones: &RangeTombstones,
        is_it: impl Fn(SeqNo) -> bool,
        is_of: impl Fn(Kind) -> bool,
    ) -> Result<Option<Conflict>> {
        let newer: Vec<_> = tombstones.iter().filter(|removal| is_it(removal.seq)).collect();
        if newer.is_empty() {
            return Ok(None);
        }
        let mut walk = self.walk()?;
        for removal in newer {
            SourceCursor::seek(&mut walk, &removal.start)?;
            while SourceCursor::valid(&walk) && SourceCursor::key(&walk) < &removal.end[..] {
                if is_of(SourceCursor::kind(&walk)) {
                    return Ok(Some(Conflict { start: SourceCursor::key(&walk).to_vec(), end: None }));
                }
                SourceCursor::next(&mut walk)?;
            }
        }
        Ok(None)
    }

    /// Returns whether a memtable holds or removes a key that these writes put or remove, singly or in a
    /// range. The writes then belong above it (view.1).
    pub(crate) fn lies_under(&self, memtable: &Memtable) -> Result<bool> {
        if memtable.is_empty() {
            return Ok(false);
        }
        let tombstones = memtable.range_tombstones();
        let removes = |removal: &Fragment| {
            let end = End::Excluded(removal.end.to_vec());
            !self.removed.clipped(&KeyRange { start: removal.start.to_vec(), end }).is_empty()
        };
        if tombstones.fragments().any(removes)
            || self.removed_by(&tombstones, |seq| seq > SeqNo::ZERO, |_| true)?.is_some()
        {
            return Ok(true);
        }
        let mut walk = self.walk()?;
        let mut keys = memtable.cursor(SeqNo::MAX);
        keys.seek(&self.range.start)?;
        if meet(&mut walk, &mut keys)? {
            return Ok(true);
        }
        for removal in self.removed.fragments() {
            keys.seek(&removal.start)?;
            if SourceCursor::valid(&keys) && *SourceCursor::key(&keys) < *removal.end {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn keyspace_of(key: &[u8]) -> KeyspaceId {
    decode_key(key).expect("writes have encoded keys").0
}
