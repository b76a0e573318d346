//! A cursor over the live keys between two bounds at one sequence number. User iterators are built on it.
//!
//! ```text
//!   MergeCursor --drops tombstones, keys under range tombstones, keys out of bounds--> VisibleCursor
//! ```
//!
//! The cursor shows exactly the live keys inside the bounds. The newest version of such a key up to `at` is a
//! put or an operand, and no range tombstone visible at `at` covers it.
//!
//! A range tombstone hides versions with a smaller sequence number (range_tombstone.2). Sources
//! whose newest version is older than the tombstone are moved to its end in one seek.
//!
//! After an error the cursor is not valid until a seek succeeds.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::cover::{Cover, Layers};
use super::dead_keys::DeadKeys;
use super::fetch;
use super::fold::{Base, FoldContext, Folded, Operands};
use super::merge::MergeCursor;
use super::operators::Operators;
use super::resolve::{Answer, Resolver};
use super::source::{Nothing, Source};
use super::time::Time;
use super::values_ahead::ValuesAhead;
use super::view::ReadView;
use crate::blob::BlobSet;
use crate::types::bounds::{BoundKey, Bounds};
use crate::types::cursor::SourceCursor;
use crate::types::key::head8;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// A cursor over live keys.
pub struct VisibleCursor<C> {
    merged: MergeCursor<C>,
    /// The largest sequence number that each source may hold, in the order of the merging cursor.
    newest: Vec<SeqNo>,
    cover: Cover,
    bounds: Bounds,
    /// A key with a smaller head than `upper_head` is below the upper bound; one with a larger head than
    /// `lower_head` is above the lower bound.
    upper_head: u64,
    lower_head: u64,
    blobs: BlobSet,
    /// `None` disables skip ranges.
    dead_keys: DeadKeys,
    /// If set, expired keys are hidden.
    time: Option<Arc<Time>>,
    operators: Arc<Operators>,
    /// The operands of the current key.
    folded: Option<Box<Folded>>,
    /// Whether the value of these operands has expired.
    has_folded_expired: bool,
    /// Whether the cursor is on a live key inside the bounds.
    valid: bool,
    ahead: Ahead,
    values_ahead: ValuesAhead,
}

/// The source that has led a walk forward.
#[derive(Default)]
struct Ahead {
    source: usize,
    /// Number of keys that it has shown in sequence, up to [`STEADY`].
    shown: u8,
    /// Number of its next keys that are live and inside the bounds, and come before those of other sources.
    plain: usize,
}

/// After this many keys of one source, a walk asks it how many of its next keys it can show alone.
const STEADY: u8 = 4;

impl ReadView {
    /// Returns a cursor over the live keys inside the bounds at `at`. Keys that have expired but were not
    /// swept are shown, as they are counted; see [`at_time`](VisibleCursor::at_time).
    pub fn live(&self, at: SeqNo, bounds: Bounds) -> VisibleCursor<Source<Nothing>> {
        let sources = self.sources(at, &bounds, Vec::new());
        VisibleCursor::new(sources, self.tombstones(Vec::new()), at, bounds).with_fold_context(self)
    }
}

impl<C: SourceCursor> VisibleCursor<C> {
    /// Creates a cursor at `at` over sources (newest first, each with the largest sequence number it may
    /// hold) under all range tombstones of these sources. Not valid until moved.
    pub fn new(sources: Vec<(C, SeqNo)>, tombstones: impl Into<Layers>, at: SeqNo, bounds: Bounds) -> Self {
        let cover = Cover::new(tombstones.into(), at);
        let newest =
            if cover.is_empty() { Vec::new() } else { sources.iter().map(|source| source.1).collect() };
        let head = |bound: &Bound<BoundKey>, unbounded| match bound {
            Bound::Included(key) | Bound::Excluded(key) => head8(key),
            Bound::Unbounded => unbounded,
        };
        let (lower_head, upper_head) = (head(&bounds.lower, 0), head(&bounds.upper, u64::MAX));
        VisibleCursor {
            upper_head,
            lower_head,
            merged: MergeCursor::new(sources.into_iter().map(|source| source.0)),
            newest,
            cover,
            bounds,
            blobs: BlobSet::default(),
            dead_keys: DeadKeys::default(),
            time: None,
            operators: Arc::default(),
            folded: None,
            has_folded_expired: false,
            valid: false,
            ahead: Ahead::default(),
            values_ahead: ValuesAhead::default(),
        }
    }

    /// Sets what is needed to compute values.
    pub fn with_fold_context(self, view: &ReadView) -> Self {
        VisibleCursor { blobs: view.version.blobs().clone(), operators: view.operators.clone(), ..self }
    }

    /// Enables skip ranges, for a cursor over this view alone.
    pub fn with_skip_ranges(self, view: &Arc<ReadView>, at: SeqNo, is_pinned: bool) -> Self {
        VisibleCursor { dead_keys: DeadKeys::new(view, at, is_pinned), ..self }
    }

    #[inline]
    fn below_upper(&self) -> bool {
        let key = self.merged.key();
        head8(key) < self.upper_head || self.bounds.below_upper(key)
    }

    #[inline]
    fn above_lower(&self) -> bool {
        let key = self.merged.key();
        head8(key) > self.lower_head || self.bounds.above_lower(key)
    }

    /// Hides keys that have expired.
    pub fn at_time(self, time: &Arc<Time>) -> Self {
        VisibleCursor { time: Some(time.clone()), ..self }
    }

    #[inline]
    fn settle_forward(&mut self) -> Result<()> {
        assert!(!self.valid);
        self.dead_keys.forget();
        while self.merged.valid() && self.below_upper() {
            let cover = self.cover_here();
            let is_covered = cover > self.merged.seq();
            self.has_folded_expired = false;
            if !is_covered && self.is_live(cover)? {
                self.valid = true;
                break;
            }
            self.pass_forward(cover, is_covered)?;
        }
        let live = self.valid.then_some(|| self.merged.key().to_vec());
        self.dead_keys.end(live, &self.bounds);
        if self.valid {
            self.look_ahead();
        }
        Ok(())
    }

    /// Counts the keys that the current source can show alone, once it has led for a while.
    #[inline]
    fn look_ahead(&mut self) {
        let (source, ahead) = (self.merged.current_source(), &mut self.ahead);
        ahead.plain = 0;
        ahead.shown = if ahead.source == source { (ahead.shown + 1).min(STEADY) } else { 0 };
        ahead.source = source;
        if ahead.shown == STEADY && self.cover.is_empty() && self.folded.is_none() {
            ahead.plain = self.merged.plain_ahead(&self.bounds.upper);
            // The other source is near, or this one cannot tell.
            if ahead.plain == 0 {
                ahead.shown = 0;
            }
        }
    }

    /// Moves past a dead key, or past the skip range that contains it.
    fn pass_forward(&mut self, cover: SeqNo, is_covered: bool) -> Result<()> {
        if self.has_folded_expired || cover <= self.merged.seq() && self.merged.kind().is_live() {
            self.dead_keys.forget();
        } else if self.dead_keys.step(|| self.merged.key().into())
            && let Some(end) = self.dead_keys.end_after(self.merged.key())
        {
            return self.merged.seek(&end);
        }
        if is_covered { self.skip_covered(cover) } else { self.merged.next() }
    }

    /// Returns whether the current key is live under the range tombstone `cover`. Leaves the cursor on the
    /// version that decides.
    #[inline]
    fn is_live(&mut self, cover: SeqNo) -> Result<bool> {
        let mut resolver = Resolver::default();
        resolver.cover(cover);
        self.folded = None;
        self.has_folded_expired = false;
        loop {
            match resolver.feed_reader(self.merged.seq(), self.merged.kind(), || self.has_expired()) {
                Answer::Live => return Ok(true),
                Answer::Gone => return Ok(false),
                Answer::Operand => return self.gather(resolver),
                Answer::Older if self.merged.older()? => {}
                Answer::Older => return Ok(false),
            }
        }
    }

    /// Returns whether the current version has expired for a reader.
    fn has_expired(&self) -> bool {
        match (&self.time, self.merged.expiry()) {
            (Some(time), Some(expiry)) => time.has_come(expiry),
            _ => false,
        }
    }

    /// Collects the operands of the current key, starting at its newest one, and their base. Returns whether
    /// the key is live (fold.3).
    #[cold]
    fn gather(&mut self, resolver: Resolver) -> Result<bool> {
        let mut operands = Operands::default();
        let base = loop {
            match resolver.feed(self.merged.seq(), self.merged.kind()) {
                Answer::Live => {
                    break Some(Base { expiry: self.merged.expiry(), stored: self.merged.share() });
                }
                Answer::Gone => break None,
                Answer::Operand => operands.push(self.merged.share().beside()),
                Answer::Older => {}
            }
            if !self.merged.older()? {
                break None;
            }
        };
        self.folded = Folded::new(operands, base);
        let expiry = self.folded.as_ref().and_then(|folded| folded.expiry());
        self.has_folded_expired = match (&self.time, expiry) {
            (Some(time), Some(expiry)) => time.has_come(expiry),
            _ => false,
        };
        Ok(!self.has_folded_expired)
    }

    /// Returns the newest range tombstone over the current key; zero if there is none.
    #[inline]
    fn cover_here(&mut self) -> SeqNo {
        if self.cover.is_empty() { SeqNo::ZERO } else { self.cover.newest(self.merged.key()) }
    }

    /// Moves past the current version, which `cover` hides.
    fn skip_covered(&mut self, cover: SeqNo) -> Result<()> {
        let newest = &self.newest;
        if newest[self.merged.current_source()] < cover
            && let Some(end) = self.cover.covered_to(self.merged.key(), cover)
        {
            return self.merged.skip_to(end, |source| newest[source] < cover);
        }
        self.merged.next()
    }

    fn settle_backward(&mut self) -> Result<()> {
        assert!(!self.valid);
        self.ahead = Ahead::default();
        self.values_ahead.back();
        self.dead_keys.forget();
        while self.merged.valid() && self.above_lower() {
            let cover = self.cover_here();
            if self.is_live(cover)? {
                self.valid = true;
                break;
            }
            self.pass_backward(cover)?;
        }
        let live = self.valid.then_some(|| self.merged.key().to_vec());
        self.dead_keys.end_backward(live, &self.bounds);
        Ok(())
    }

    fn pass_backward(&mut self, cover: SeqNo) -> Result<()> {
        if self.has_folded_expired || cover <= self.merged.seq() && self.merged.kind().is_live() {
            self.dead_keys.forget();
        } else if self.dead_keys.step(|| self.merged.key().into())
            && let Some(start) = self.dead_keys.start_before(self.merged.key())
        {
            return self.merged.seek_before(&start);
        }
        self.merged.prev()
    }

    /// Moves to the first live key inside the bounds that is `>= key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !self.bounds.above_lower(key) {
            return self.seek_first();
        }
        (self.valid, self.ahead) = (false, Ahead::default());
        self.values_ahead.seek();
        self.merged.seek(key)?;
        self.settle_forward()
    }

    /// Moves to the last live key inside the bounds that is `< key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if !self.bounds.below_upper(key) {
            return self.seek_last();
        }
        self.valid = false;
        self.merged.seek_before(key)?;
        self.settle_backward()
    }

    /// Moves to the first live key inside the bounds.
    pub fn seek_first(&mut self) -> Result<()> {
        (self.valid, self.ahead) = (false, Ahead::default());
        self.values_ahead.seek();
        match &self.bounds.lower {
            Bound::Included(key) => self.merged.seek(key)?,
            Bound::Excluded(key) => {
                self.merged.seek(key)?;
                if self.merged.valid() && *key == *self.merged.key() {
                    self.merged.next()?;
                }
            }
            Bound::Unbounded => self.merged.seek_first()?,
        }
        self.settle_forward()
    }

    /// Moves to the last live key inside the bounds.
    pub fn seek_last(&mut self) -> Result<()> {
        self.valid = false;
        match &self.bounds.upper {
            Bound::Excluded(key) => self.merged.seek_before(key)?,
            Bound::Included(key) => {
                self.merged.seek(key)?;
                if !self.merged.valid() {
                    self.merged.seek_last()?;
                } else if *key != *self.merged.key() {
                    self.merged.prev()?;
                }
            }
            Bound::Unbounded => self.merged.seek_last()?,
        }
        self.settle_backward()
    }

    /// Moves to the next live key. Not valid after the last one.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        assert!(self.valid, "next() on a cursor that is not valid");
        self.values_ahead.next();
        if self.ahead.plain > 0 {
            self.ahead.plain -= 1;
            self.merged.current().step();
            return Ok(());
        }
        self.valid = false;
        self.merged.next()?;
        self.settle_forward()
    }

    /// Moves to the previous live key. Not valid before the first one.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        assert!(self.valid, "prev() on a cursor that is not valid");
        self.valid = false;
        self.merged.prev()?;
        self.settle_backward()
    }

    /// Returns whether the cursor is on a live key.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Returns the encoded key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid, "key() of a cursor that is not valid");
        self.merged.key()
    }

    /// Returns the bytes of the value. `None` if they are in a blob file or must be computed from operands.
    #[inline]
    pub fn value_bytes(&self) -> Option<&[u8]> {
        assert!(self.valid, "value of a cursor that is not valid");
        if self.folded.is_some() { None } else { fetch::bytes(self.merged.stored()) }
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> Result<Value> {
        assert!(self.valid, "value of a cursor that is not valid");
        if let Some(folded) = &self.folded {
            let fold_context = FoldContext { blobs: &self.blobs, operators: &self.operators };
            return folded.value(self.merged.key(), fold_context);
        }
        if let Stored::Blob(pointer) = self.merged.stored() {
            self.values_ahead.read(&self.blobs, |keys| self.merged.stored_ahead(keys));
            return self.blobs.read_in_passing(pointer);
        }
        Ok(self.merged.share().beside())
    }
}

impl<X: SourceCursor> VisibleCursor<Source<X>> {
    /// Passes the entries after the current one to `visit` while the source alone can tell that they are
    /// live, until `visit` breaks. Ends on the last entry visited. Does nothing while several sources lead in
    /// turn.
    #[inline]
    pub fn visit_behind(
        &mut self,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let VisibleCursor { merged, cover, bounds, upper_head, ahead, .. } = self;
        if ahead.plain > 0
            && let Source::Run(run) = merged.current()
        {
            let plain = ahead.plain;
            return run.visit_plain(plain, &mut |key, value| {
                ahead.plain -= 1;
                visit(key, value)
            });
        }
        match merged.only() {
            Some(Source::Memtable(memtable)) if cover.is_empty() => {
                self.folded = None;
                memtable.visit_leaf(|key| head8(key) < *upper_head || bounds.below_upper(key), visit)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::read::merge::tests::VecCursor;
    use crate::types::op::Kind;
    use crate::types::range_tombstone::{RangeTombstone, RangeTombstones};

    fn random_bounds(rng: &mut fastrand::Rng) -> Bounds {
        let mut bound = || match rng.u8(0..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(vec![rng.u8(0..20)].into()),
            _ => Bound::Excluded(vec![rng.u8(0..20)].into()),
        };
        Bounds { lower: bound(), upper: bound() }
    }

    /// Returns sources from newest to oldest, with point versions and range tombstones of decreasing sequence
    /// numbers.
    fn random_world(rng: &mut fastrand::Rng) -> (Vec<(VecCursor, SeqNo)>, RangeTombstones, Vec<Vec<u8>>) {
        let (mut cursors, mut tombstones) = (Vec::new(), Vec::new());
        let mut newest: BTreeMap<Vec<u8>, (SeqNo, Kind)> = BTreeMap::new();
        for source in 0..rng.u64(0..4) {
            let base = (10 - source) * 10;
            let mut own = BTreeMap::new();
            let mut newest_seq = SeqNo::ZERO;
            for _ in 0..rng.usize(0..14) {
                let seq = SeqNo::new(base + rng.u64(0..9));
                newest_seq = newest_seq.max(seq);
                let kind = if rng.u8(0..4) == 0 { Kind::REMOVE } else { Kind::PUT };
                own.insert(vec![rng.u8(0..20)], (seq, kind));
            }
            for _ in 0..rng.usize(0..3) {
                let (start, end) = (vec![rng.u8(0..20)], vec![rng.u8(0..22)]);
                tombstones.push(RangeTombstone { start, end, seq: SeqNo::new(base + rng.u64(0..9)) });
            }
            for (key, version) in &own {
                newest.entry(key.clone()).or_insert(*version);
            }
            let entries = own.into_iter().map(|(k, (s, kind))| (k, s, kind)).collect();
            cursors.push((VecCursor::new(entries), newest_seq));
        }
        let tombstones = RangeTombstones::new(tombstones);
        let live = newest
            .into_iter()
            .filter(|(key, (seq, kind))| *kind == Kind::PUT && tombstones.cover(key, SeqNo::MAX) <= *seq);
        let live = live.map(|(key, _)| key).collect();
        (cursors, tombstones, live)
    }

    #[test]
    fn visible_1_visible_2_any_walk_agrees_with_the_definition() {
        let mut rng = fastrand::Rng::with_seed(9);
        for round in 0..3000 {
            let (sources, tombstones, live) = random_world(&mut rng);
            let bounds = random_bounds(&mut rng);
            let keys: Vec<_> =
                live.into_iter().filter(|k| bounds.above_lower(k) && bounds.below_upper(k)).collect();
            let mut cursor = VisibleCursor::new(sources, tombstones, SeqNo::MAX, bounds);
            let mut at: Option<usize> = None;
            for step in 0..40 {
                let key = [rng.u8(0..21)];
                let rank = keys.partition_point(|k| k.as_slice() < &key[..]);
                match rng.u8(0..8) {
                    0 => (cursor.seek(&key).unwrap(), at = Some(rank)).0,
                    1 => (cursor.seek_before(&key).unwrap(), at = rank.checked_sub(1)).0,
                    2 => (cursor.seek_first().unwrap(), at = Some(0)).0,
                    3 => (cursor.seek_last().unwrap(), at = keys.len().checked_sub(1)).0,
                    4 | 5 if at.is_some() => (cursor.next().unwrap(), at = at.map(|i| i + 1)).0,
                    _ if at.is_some() => (cursor.prev().unwrap(), at = at.and_then(|i| i.checked_sub(1))).0,
                    _ => {}
                }
                at = at.filter(|&i| i < keys.len());
                let shown = cursor.valid().then(|| cursor.key().to_vec());
                assert_eq!(shown, at.map(|i| keys[i].clone()), "round {round} step {step}");
            }
        }
    }

    #[test]
    fn visible_3_a_failed_move_shows_nothing_and_the_next_good_seek_the_right_key() {
        let mut rng = fastrand::Rng::with_seed(10);
        let mut failed = 0;
        for round in 0..3000 {
            let (sources, tombstones, live) = random_world(&mut rng);
            let sources = sources.into_iter().map(|(c, seq)| (c.failing(rng.u64(..)), seq)).collect();
            let bounds = random_bounds(&mut rng);
            let keys: Vec<_> =
                live.into_iter().filter(|k| bounds.above_lower(k) && bounds.below_upper(k)).collect();
            let mut cursor = VisibleCursor::new(sources, tombstones, SeqNo::MAX, bounds);
            let mut at: Option<usize> = None;
            for step in 0..40 {
                let key = [rng.u8(0..21)];
                let rank = keys.partition_point(|k| k.as_slice() < &key[..]);
                let (outcome, to) = match rng.u8(0..8) {
                    0 => (cursor.seek(&key), Some(rank)),
                    1 => (cursor.seek_before(&key), rank.checked_sub(1)),
                    2 => (cursor.seek_first(), Some(0)),
                    3 => (cursor.seek_last(), keys.len().checked_sub(1)),
                    _ if !cursor.valid() => continue,
                    4 | 5 => (cursor.next(), at.map(|i| i + 1)),
                    _ => (cursor.prev(), at.and_then(|i| i.checked_sub(1))),
                };
                failed += u32::from(outcome.is_err());
                at = to.filter(|&i| i < keys.len() && outcome.is_ok());
                let shown = cursor.valid().then(|| cursor.key().to_vec());
                assert_eq!(shown, at.map(|i| keys[i].clone()), "round {round} step {step}");
            }
        }
        assert!(failed > 1000, "{failed}");
    }
}
