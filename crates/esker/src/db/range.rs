//! Iterators over live keys.
//!
//! ```text
//!   Range (entries), Keys (no values): DoubleEndedIterator, two walks that end where they meet
//!   Cursor: one walk, moved at will, keys and values borrowed
//! ```
//!
//! A walk stands on the last entry that it returned, and moves when the next one is requested. So reading n
//! entries loads only n. Front and back never return the same key: the front stops at the back's last key,
//! and vice versa.
//!
//! - An iterator or cursor owns what it reads from (a read view and, for snapshots, its pin), so it is
//!   `Send + 'static`.
//! - Front and back are walks of the same kind. A memtable that was empty for the first walk may hold entries
//!   when the second begins. All of them are newer than the state that is read.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::key_handle::Key;
use crate::engine::base::slow::ScanWatch;
use crate::engine::state::reads::ReadSource;
use crate::read::run_walk::RunWalk;
use crate::read::source::{Nothing, Source};
use crate::read::view::ReadView;
use crate::read::visible::VisibleCursor;
use crate::txn::own::OwnCursor;
use crate::txn::read_set::ReadSet;
use crate::types::bounds::Bounds;
use crate::types::cursor::SourceCursor;
use crate::types::key::{decode_key, keyspace_end, prefix_len};
use crate::types::key_range::End;
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones};
use crate::types::{Error, Result, SeqNo, Value, memory_only};

/// A walk over live keys.
pub(super) enum Walk {
    /// Over one run, with no other source above it.
    Run(RunWalk),
    /// Over any sources.
    Plain(VisibleCursor<Source<Nothing>>),
    /// With a transaction's writes on top.
    Own(VisibleCursor<Source<OwnCursor>>),
}

macro_rules! walk {
    ($self:expr, $c:ident => $call:expr) => {
        match $self {
            Walk::Run($c) => $call,
            Walk::Plain($c) => $call,
            Walk::Own($c) => $call,
        }
    };
}
pub(super) use walk;

impl Walk {
    pub(super) fn new(source: &ReadSource, bounds: Bounds) -> Self {
        let ReadSource { view, at, own, .. } = source;
        let Some(own) = own else {
            return match view.only_run(&bounds) {
                Some(run) => {
                    let walk = RunWalk::new(run, *at, bounds, view);
                    Walk::Run(walk.with_skip_ranges(view, source._pin.is_some()))
                }
                None => {
                    let walk = view.live(*at, bounds).at_time(&view.time);
                    Walk::Plain(walk.with_skip_ranges(view, *at, source._pin.is_some()))
                }
            };
        };
        // Read at the largest number, which shows the transaction's own writes. Of the view, use only
        // tombstones visible at `at`.
        let tombstones = own_tombstones(view, *at, own.removals());
        let sources = view.sources(*at, &bounds, own.cursors(&bounds));
        let walk = VisibleCursor::new(sources, tombstones, SeqNo::MAX, bounds);
        Walk::Own(walk.with_fold_context(view).at_time(&view.time))
    }

    pub(super) fn valid(&self) -> bool {
        walk!(self, c => c.valid())
    }

    /// Returns whether it stands before another walk over the same source.
    fn is_before(&self, other: &Walk) -> bool {
        match (self, other) {
            (Walk::Run(a), Walk::Run(b)) => a.position() < b.position(),
            (Walk::Plain(a), Walk::Plain(b)) => a.key() < b.key(),
            (Walk::Own(a), Walk::Own(b)) => a.key() < b.key(),
            _ => unreachable!("both walks are made of the same source"),
        }
    }

    /// Returns the current key as stored, in the keyspace of the bounds.
    pub(super) fn encoded_key(&self, bounds: &Bounds) -> Vec<u8> {
        match self {
            Walk::Run(c) => {
                let prefix = match &bounds.lower {
                    Bound::Included(key) | Bound::Excluded(key) => &key[..prefix_len(key)],
                    Bound::Unbounded => &[],
                };
                let [a, b, c] = c.user_key_parts(&mut [0; 4]).map(<[u8]>::to_vec);
                [prefix, &a, &b, &c].concat()
            }
            Walk::Plain(c) => c.key().to_vec(),
            Walk::Own(c) => c.key().to_vec(),
        }
    }

    #[inline]
    fn key(&self) -> Key {
        match self {
            Walk::Run(c) => Key::of_parts(c.user_key_parts(&mut [0; 4])),
            Walk::Plain(c) => Key::new(user_key(c.key())),
            Walk::Own(c) => Key::new(user_key(c.key())),
        }
    }

    #[inline]
    fn entry(&self) -> Result<(Key, Value)> {
        Ok((self.key(), walk!(self, c => c.value())?))
    }
}

/// Combines the view's tombstones visible at `at` with the transaction's own.
fn own_tombstones(view: &ReadView, at: SeqNo, own: Vec<RangeTombstone>) -> RangeTombstones {
    let seen = view.tombstones(Vec::new());
    RangeTombstones::new(seen.iter().filter(|t| t.seq <= at).chain(own))
}

/// Entries in key order, from either end. Made by `range`, `prefix` and `iter`. An error is the last item,
/// also one in making the iterator, such as [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound). Only after
/// a [`Merge`](crate::Error::Merge) error, which concerns one value, do the entries go on. A range that ends
/// before it begins is empty.
pub struct Range {
    walks: Walks,
}

/// Keys in key order, from either end. The iterator reads and checks whole blocks, including values, but
/// makes no [`Value`]s. Made by [`Range::keys`].
pub struct Keys {
    walks: Walks,
}

/// Records the progress of an iterator in the read set of its transaction.
struct Seen {
    reads: Arc<ReadSet>,
    /// Positions of the front and of the back.
    front: Vec<u8>,
    back: End,
}

impl Seen {
    fn new(reads: Arc<ReadSet>, bounds: &Bounds) -> Self {
        let (front, back) = ends(bounds);
        Seen { reads, front, back }
    }

    fn front_at(&mut self, key: Vec<u8>) {
        self.reads.note_range(&self.front, End::Included(key.clone()));
        self.front = key;
    }

    fn back_at(&mut self, key: Vec<u8>) {
        self.reads.note_range(&key, std::mem::replace(&mut self.back, End::Included(key.clone())));
    }

    /// Records the whole range: the walks have met or reached their ends.
    fn end(&self) {
        self.reads.note_range(&self.front, self.back.clone());
    }
}

/// Records that a walk has reached its first key, or the end of the bounds.
pub(super) fn note_first(source: &ReadSource, walk: &Walk, bounds: &Bounds) {
    if !source.notes(bounds) {
        return;
    }
    if walk.valid() {
        source.note_first(bounds, Some(&walk.encoded_key(bounds)));
    } else if reaches_end(bounds) {
        source.note_first(bounds, None);
    }
}

/// Returns whether the bounds reach to the end of their keyspace.
fn reaches_end(bounds: &Bounds) -> bool {
    let (Bound::Included(lower) | Bound::Excluded(lower)) = &bounds.lower else { return false };
    let end = decode_key(lower).map(|(id, _)| keyspace_end(id));
    matches!((&bounds.upper, end), (Bound::Excluded(upper), Some(end)) if *upper == end)
}

/// Returns the first key inside the bounds of a keyspace, and their end.
pub(super) fn ends(bounds: &Bounds) -> (Vec<u8>, End) {
    let start = match &bounds.lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => [key, &[0][..]].concat(),
        Bound::Unbounded => Vec::new(),
    };
    let end = match &bounds.upper {
        Bound::Included(key) => End::Included(key.to_vec()),
        Bound::Excluded(key) => End::Excluded(key.to_vec()),
        Bound::Unbounded => End::Included(Vec::new()),
    };
    (start, end)
}

struct Walks {
    source: Option<ReadSource>,
    seen: Option<Seen>,
    bounds: Bounds,
    front: Option<Walk>,
    back: Option<Walk>,
    /// Whether no entry is left, or an error was returned.
    ended: bool,
    /// The error in making the iterator. The first call returns it.
    failed: Option<Error>,
    /// Watches whether the walk is slow.
    watch: Option<Box<ScanWatch>>,
}

impl Walks {
    /// Runs a step, watched if the user wants to know slow scans.
    #[inline(always)]
    fn step<T>(&mut self, step: impl FnOnce(&mut Walks) -> Option<T>) -> Option<T> {
        if self.watch.is_none() { step(self) } else { self.watched(step, |item| u64::from(item.is_some())) }
    }

    #[cold]
    fn watched<T>(&mut self, run: impl FnOnce(&mut Walks) -> T, entries: impl FnOnce(&T) -> u64) -> T {
        let Some(mut watch) = self.watch.take() else { return run(self) };
        let done = watch.step(|| run(self), entries);
        self.watch = Some(watch);
        done
    }

    fn end(&mut self, result: Result<bool>) -> Option<Result<()>> {
        match result {
            Ok(true) => Some(Ok(())),
            Ok(false) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }

    /// Fails if making the iterator did.
    fn check_made(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Returns a walk for an end, after `check_made`. Not as a result: a walk is large to move.
    fn walk(&self) -> Walk {
        let source = self.source.as_ref().expect("an iterator that failed has ended");
        match (&self.front, &self.back) {
            (Some(Walk::Run(other)), None) | (None, Some(Walk::Run(other))) => Walk::Run(other.again()),
            _ => Walk::new(source, self.bounds.clone()),
        }
    }

    #[inline]
    fn check_open(&self) -> Result<()> {
        self.source.as_ref().map_or(Ok(()), |source| source.view.check_open())
    }

    /// Moves the front. Returns whether it stands on an entry.
    #[inline]
    fn advance_front(&mut self) -> Result<bool> {
        match &mut self.front {
            Some(front) => walk!(front, c => c.next())?,
            None => {
                self.check_made()?;
                let front = self.walk();
                let front = self.front.insert(front);
                match self.source.as_ref().and_then(|source| source.first_within(&self.bounds)) {
                    Some(first) => walk!(front, c => c.seek(&first))?,
                    None => walk!(front, c => c.seek_first())?,
                }
                self.source.iter().for_each(|source| note_first(source, front, &self.bounds));
            }
        }
        Ok(self.is_open())
    }

    fn advance_back(&mut self) -> Result<bool> {
        match &mut self.back {
            Some(back) => walk!(back, c => c.prev())?,
            None => {
                self.check_made()?;
                let back = self.walk();
                walk!(self.back.insert(back), c => c.seek_last())?;
            }
        }
        Ok(self.is_open())
    }

    /// Returns whether all existing walks stand on keys and have not met.
    #[inline]
    fn is_open(&self) -> bool {
        match (&self.front, &self.back) {
            (Some(only), None) | (None, Some(only)) => only.valid(),
            (Some(front), Some(back)) => front.valid() && back.valid() && front.is_before(back),
            (None, None) => false,
        }
    }

    #[inline]
    fn next(&mut self) -> Option<Result<&Walk>> {
        if self.ended {
            return None;
        }
        let moved = self.check_open().and_then(|()| self.advance_front());
        if let Some(seen) = &mut self.seen {
            match (&moved, &self.front) {
                (Ok(true), Some(front)) => seen.front_at(front.encoded_key(&self.bounds)),
                (Err(_), _) if memory_only::has_missed() => {}
                _ => seen.end(),
            }
        }
        match self.end(moved)? {
            Ok(()) => Some(Ok(self.front.as_ref().expect("it just moved"))),
            Err(error) => Some(Err(error)),
        }
    }

    /// Moves the front to the next entry of its block, if no other work is necessary and nothing is watched.
    #[inline]
    fn step_inside(&mut self) -> Option<&RunWalk> {
        let Some(Walk::Run(run)) = &mut self.front else { return None };
        let is_open = self.source.as_ref().is_some_and(|source| source.view.check_open().is_ok());
        let is_alone = self.back.is_none() && self.seen.is_none() && self.watch.is_none();
        (is_open && is_alone && !self.ended && run.step_inside()).then_some(run)
    }

    fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            match self.next() {
                None => return Ok(()),
                Some(moved) => moved.map(drop)?,
            }
            let is_alone = self.back.is_none() && self.seen.is_none();
            let flow = match self.front.as_mut().expect("it just moved") {
                Walk::Run(run) if is_alone && run.shows_bytes() => run.visit_block(&mut visit),
                Walk::Run(run) => {
                    run.load_key();
                    visit(run.key(), &run.value()?)
                }
                Walk::Plain(walk) => match visit_here(walk, &mut visit)? {
                    ControlFlow::Continue(()) if is_alone => walk.visit_behind(&mut visit),
                    flow => flow,
                },
                Walk::Own(walk) => match visit_here(walk, &mut visit)? {
                    ControlFlow::Continue(()) if is_alone => walk.visit_behind(&mut visit),
                    flow => flow,
                },
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    fn next_back(&mut self) -> Option<Result<&Walk>> {
        if self.ended {
            return None;
        }
        let moved = self.check_open().and_then(|()| self.advance_back());
        if let Some(seen) = &mut self.seen {
            match (&moved, &self.back) {
                (Ok(true), Some(back)) => seen.back_at(back.encoded_key(&self.bounds)),
                (Err(_), _) if memory_only::has_missed() => {}
                _ => seen.end(),
            }
        }
        match self.end(moved)? {
            Ok(()) => Some(Ok(self.back.as_ref().expect("it just moved"))),
            Err(error) => Some(Err(error)),
        }
    }
}

/// Passes the current entry of a walk to `visit`.
#[inline]
fn visit_here<C: SourceCursor>(
    walk: &VisibleCursor<C>,
    visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    let key = user_key(walk.key());
    Ok(match walk.value_bytes() {
        Some(value) => visit(key, value),
        None => visit(key, &walk.value()?),
    })
}

#[inline]
pub(super) fn user_key(encoded: &[u8]) -> &[u8] {
    decode_key(encoded).expect("memtables and tables hold encoded keys").1
}

impl Range {
    /// Makes an iterator. An error in `source` becomes its first item.
    pub(crate) fn from_result(source: Result<ReadSource>, bounds: Bounds) -> Self {
        let (source, failed) = match source {
            Ok(source) => (Some(source), None),
            Err(error) => (None, Some(error)),
        };
        let reads = source.as_ref().and_then(|source| source.reads.clone());
        let seen = reads.map(|reads| Seen::new(reads, &bounds));
        let (front, back) = (None, None);
        Range { walks: Walks { source, seen, bounds, front, back, ended: false, failed, watch: None } }
    }

    /// Has the scan watched.
    pub(super) fn watched(mut self, watch: ScanWatch) -> Self {
        self.walks.watch = Some(Box::new(watch));
        self
    }

    /// Passes the remaining entries to `visit`, until it breaks or none is left. Keys and values that are
    /// contiguous in memory are not copied. This is the fastest way to read many entries. After a break the
    /// iterator goes on behind the last entry that `visit` was given.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # fn main() -> esker::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = esker::Db::open(dir.path())?;
    /// let stock = db.keyspace("stock")?;
    /// stock.put("apples", "4")?;
    /// stock.put("pears", "12")?;
    /// let mut bytes = 0;
    /// stock.iter().visit(|key, value| {
    ///     bytes += key.len() + value.len();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(bytes, 14);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors that the iterator would return.
    pub fn visit(&mut self, mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        if self.walks.watch.is_none() {
            return self.walks.visit(visit);
        }
        let counted = |walks: &mut Walks| {
            let mut entries = 0;
            let done = walks.visit(|key, value| {
                entries += 1;
                visit(key, value)
            });
            (done, entries)
        };
        self.walks.watched(counted, |(_, entries)| *entries).0
    }

    /// Converts to an iterator over the keys alone. It reads the same from disk; see [`Keys`].
    pub fn keys(self) -> Keys {
        Keys { walks: self.walks }
    }
}

impl Iterator for Range {
    type Item = Result<(Key, Value)>;
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(run) = self.walks.step_inside() {
            return Some(run.value().map(|value| (Key::of_parts(run.user_key_parts(&mut [0; 4])), value)));
        }
        self.walks.step(|walks| walks.next().map(|walk| walk.and_then(Walk::entry)))
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.walks.step(|walks| walks.next_back().map(|walk| walk.and_then(Walk::entry)))
    }
}

impl Iterator for Keys {
    type Item = Result<Key>;
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(run) = self.walks.step_inside() {
            return Some(Ok(Key::of_parts(run.user_key_parts(&mut [0; 4]))));
        }
        self.walks.step(|walks| walks.next().map(|walk| walk.map(Walk::key)))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.walks.step(|walks| walks.next_back().map(|walk| walk.map(Walk::key)))
    }
}
