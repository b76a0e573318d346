//! An iterator over the live keys of one run with nothing above it: no memtable, no other run, no range
//! tombstone.
//!
//! ```text
//!   run: table, table, ... --BlockPosition--> block with settled entries: the next entry
//!                                             block with versions:        the resolver chooses
//! ```
//!
//! An iterator returns exactly the same entries as a `VisibleCursor` over the run. It holds at most one
//! block. A move that finds nothing, or fails, leaves it without a position until a seek succeeds. When
//! values in blob files are read in sequence, it prefetches as many of the next ones as were read, up to
//! [`AHEAD_MAX`].

use std::ops::{Bound, ControlFlow, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use super::dead_keys::DeadKeys;
use super::fetch;
use super::fold::{Base, FoldContext, Folded, Operands};
use super::operators::Operators;
use super::resolve::{Answer, Resolver};
use super::time::Time;
use super::view::ReadView;
use crate::blob::BlobSet;
use crate::manifest::version::Run;
use crate::sstable::{BlockPosition, Table};
use crate::types::bounds::Bounds;
use crate::types::key_room::KeyRoom;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value, key};

/// Maximum number of blob values that are prefetched.
const AHEAD_MAX: usize = 32;

/// An iterator over a run.
pub struct RunWalk {
    run: Arc<Run>,
    /// Tables that may hold keys inside the bounds.
    tables: Range<usize>,
    at: SeqNo,
    bounds: Bounds,
    /// Length of the prefix of the keyspace.
    prefix_len: usize,
    time: Arc<Time>,
    /// `None` if the run has no values in blob files.
    blobs: Option<BlobSet>,
    operators: Arc<Operators>,
    ahead: Mutex<ReadAhead>,
    here: Option<CurrentEntry>,
    /// `None` disables skip ranges.
    /// The current user key, once it was requested, and the table and block whose prefix starts it.
    dead_keys: Option<DeadKeys>,
    key: KeyRoom,
    key_of: (usize, usize),
}

/// How far values in blob files have been prefetched.
#[derive(Default)]
struct ReadAhead {
    /// The value read last: table, block, entry.
    last: (usize, usize, usize),
    /// Number of values read in sequence.
    streak: usize,
    /// All entries of the block before this one have been prefetched.
    asked: usize,
}

/// The current entry.
struct CurrentEntry {
    table: usize,
    position: BlockPosition,
    entry: usize,
    /// The operands of its key, if any.
    folded: Option<Box<Folded>>,
}

impl RunWalk {
    /// Creates an iterator at `at` within bounds, which must be in one keyspace. It has no position yet.
    pub fn new(run: &Arc<Run>, at: SeqNo, bounds: Bounds, view: &ReadView) -> Self {
        let tables = run.within(&bounds.lower, &bounds.upper);
        let prefix_len = match &bounds.lower {
            Bound::Included(key) | Bound::Excluded(key) => key::prefix_len(key),
            Bound::Unbounded => 0,
        };
        let ahead = Mutex::default();
        let (blobs, operators) = (view.version.blobs(), view.operators.clone());
        RunWalk {
            run: run.clone(),
            tables,
            at,
            bounds,
            prefix_len,
            time: view.time.clone(),
            blobs: (!blobs.is_empty()).then(|| blobs.clone()),
            operators,
            ahead,
            here: None,
            dead_keys: None,
            key: KeyRoom::default(),
            key_of: (usize::MAX, 0),
        }
    }

    /// Enables skip ranges, for an iterator over this view.
    pub fn with_skip_ranges(self, view: &Arc<ReadView>, is_pinned: bool) -> Self {
        RunWalk { dead_keys: Some(DeadKeys::new(view, self.at, is_pinned)), ..self }
    }

    /// Creates another iterator over the same range, without a position.
    pub fn again(&self) -> Self {
        RunWalk {
            run: self.run.clone(),
            tables: self.tables.clone(),
            at: self.at,
            bounds: self.bounds.clone(),
            prefix_len: self.prefix_len,
            time: self.time.clone(),
            blobs: self.blobs.clone(),
            operators: self.operators.clone(),
            ahead: Mutex::default(),
            here: None,
            dead_keys: self.dead_keys.as_ref().map(DeadKeys::again),
            key: KeyRoom::default(),
            key_of: (usize::MAX, 0),
        }
    }

    /// Returns whether the iterator is on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        self.here.is_some()
    }

    /// Returns the position, for comparison with another iterator over the same run.
    pub fn position(&self) -> Option<(usize, usize, usize)> {
        self.here.as_ref().map(|here| (here.table, here.position.number(), here.entry))
    }

    #[inline]
    fn here(&self) -> &CurrentEntry {
        self.here.as_ref().expect("a walk that stands on a key")
    }

    /// Returns the user key in parts. `head` receives a part that the block does not store contiguously.
    #[inline]
    pub fn user_key_parts<'a>(&'a self, head: &'a mut [u8; 4]) -> [&'a [u8]; 3] {
        let here = self.here();
        let mut parts = here.position.key_parts(here.entry, head);
        let mut skip = self.prefix_len;
        for part in &mut parts {
            let of_part = skip.min(part.len());
            *part = &part[of_part..];
            skip -= of_part;
        }
        parts
    }

    /// Assembles the user key for `key`.
    #[inline]
    pub fn load_key(&mut self) {
        let here = self.here.as_ref().expect("a walk that stands on a key");
        let mut head = [0; 4];
        let [prefix, head, rest] = here.position.key_parts(here.entry, &mut head);
        let Some(own) = prefix.get(self.prefix_len..) else {
            // The block has keys of several keyspaces.
            let user_key = &[prefix, head, rest].concat()[self.prefix_len..];
            self.key.set_prefix(user_key);
            self.key_of = (usize::MAX, 0);
            return;
        };
        if self.key_of != (here.table, here.position.number()) {
            self.key.set_prefix(own);
            self.key_of = (here.table, here.position.number());
        }
        self.key.set_suffix(own.len(), head, rest);
    }

    /// Returns the user key, which must have been loaded.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "key() of a walk that stands on no key");
        &self.key
    }

    /// Passes the current entry and the following ones of the same block to `visit` until it breaks. The run
    /// must have no values in blob files. Ends on the last entry visited.
    #[inline]
    pub fn visit_block(
        &mut self,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        assert!(self.shows_bytes(), "values that are beside their keys");
        self.load_key();
        let here = self.here.as_mut().expect("a walk that stands on a key");
        visit(&self.key, here.position.stored(here.entry).beside())?;
        if !here.position.is_settled() || self.key_of.0 != here.table {
            return ControlFlow::Continue(());
        }
        let (first, end) = (here.entry + 1, here.position.inside().end);
        for entry in first..end {
            let mut head = [0; 4];
            let [prefix, head, rest] = here.position.key_parts(entry, &mut head);
            self.key.set_suffix(prefix.len() - self.prefix_len, head, rest);
            here.position.prefetch_behind(entry);
            here.entry = entry;
            visit(&self.key, here.position.value(entry))?;
        }
        ControlFlow::Continue(())
    }

    /// Returns whether the current value is stored inline. If so, the following values of the same block are
    /// too.
    #[inline]
    pub fn shows_bytes(&self) -> bool {
        self.blobs.is_none() && self.here().folded.is_none()
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> Result<Value> {
        let here = self.here();
        if let Some(folded) = &here.folded {
            return self.fold(here, folded);
        }
        match (here.position.share(here.entry), &self.blobs) {
            (stored, Some(blobs)) => {
                if matches!(stored, Stored::Blob(_)) {
                    self.read_ahead(here, blobs);
                }
                fetch::value_in_passing(stored, blobs)
            }
            (stored, None) => Ok(stored.beside()),
        }
    }

    /// Computes the value from operands.
    #[cold]
    fn fold(&self, here: &CurrentEntry, folded: &Folded) -> Result<Value> {
        let key = here.position.key_parts(here.entry, &mut [0; 4]).concat();
        let none = BlobSet::default();
        let blobs = self.blobs.as_ref().unwrap_or(&none);
        folded.value(&key, FoldContext { blobs, operators: &self.operators })
    }

    /// Prefetches the next values of the block if the preceding ones were read in sequence.
    #[cold]
    fn read_ahead(&self, here: &CurrentEntry, blobs: &BlobSet) {
        let (table, block, entry) = (here.table, here.position.number(), here.entry);
        let mut ahead = self.ahead.lock();
        let is_next = match ahead.last {
            (t, b, e) if (t, b) == (table, block) => entry == e + 1,
            (t, b, _) => (t, b + 1) == (table, block) || t + 1 == table,
        };
        ahead.streak = if is_next { ahead.streak + 1 } else { 0 };
        if (ahead.last.0, ahead.last.1) != (table, block) || !is_next {
            ahead.asked = entry + 1;
        }
        ahead.last = (table, block, entry);
        let end = (entry + 1 + ahead.streak.min(AHEAD_MAX)).min(here.position.inside().end);
        for next in ahead.asked.max(entry + 1)..end {
            if let Stored::Blob(pointer) = here.position.stored(next) {
                blobs.will_need(pointer);
            }
        }
        ahead.asked = ahead.asked.max(end);
    }

    /// Returns the bytes of the value. `None` if they are in a blob file or must be computed from operands.
    #[inline]
    pub fn value_bytes(&self) -> Option<&[u8]> {
        let here = self.here();
        if here.folded.is_some() {
            return None;
        }
        fetch::bytes(here.position.stored(here.entry))
    }

    /// Clears the position and the count of dead keys.
    fn leave(&mut self) -> Option<CurrentEntry> {
        if let Some(dead_keys) = &mut self.dead_keys {
            dead_keys.forget();
        }
        self.here.take()
    }

    fn table(&self, index: usize) -> Option<&Arc<Table>> {
        self.tables.contains(&index).then(|| &self.run.tables()[index].table)
    }

    /// Moves to the first live key inside the bounds.
    pub fn seek_first(&mut self) -> Result<()> {
        self.leave();
        self.begin_at(self.tables.start)
    }

    /// Moves to the last live key inside the bounds.
    pub fn seek_last(&mut self) -> Result<()> {
        self.leave();
        self.tables.end.checked_sub(1).map_or(Ok(()), |last| self.end_at(last))
    }

    /// Moves to the first live key inside the bounds that is `>= key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !self.bounds.above_lower(key) {
            return self.seek_first();
        }
        self.leave();
        let table = self.run.first_from(key).max(self.tables.start);
        let Some(open) = self.table(table) else { return Ok(()) };
        match BlockPosition::of_key(open, key, &self.bounds, self.at)? {
            Some(position) => {
                let entry = position.rank(key).max(position.inside().start);
                position.prefetch(entry);
                self.settle_forward(table, position, entry)
            }
            None => self.begin_at(table + 1),
        }
    }

    /// Moves to the last live key inside the bounds that is `< key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        if !self.bounds.below_upper(key) {
            return self.seek_last();
        }
        self.leave();
        let Some(table) = self.run.count_before(key).min(self.tables.end).checked_sub(1) else {
            return Ok(());
        };
        let Some(open) = self.table(table) else { return Ok(()) };
        match BlockPosition::of_key(open, key, &self.bounds, self.at)? {
            Some(position) => {
                let end = position.rank(key).min(position.inside().end);
                self.settle_backward(table, position, end)
            }
            None => self.end_at(table),
        }
    }

    /// Moves to the first live key inside the bounds in this table or a later one.
    fn begin_at(&mut self, mut table: usize) -> Result<()> {
        while let Some(open) = self.table(table) {
            if let Some(position) = BlockPosition::first(open, &self.bounds, self.at)? {
                let first = position.inside().start;
                position.prefetch(first);
                return self.settle_forward(table, position, first);
            }
            table += 1;
        }
        if let Some(dead_keys) = &mut self.dead_keys {
            dead_keys.end(None, &self.bounds);
        }
        Ok(())
    }

    /// Moves to the last live key inside the bounds in this table or an earlier one.
    fn end_at(&mut self, mut table: usize) -> Result<()> {
        while let Some(open) = self.table(table) {
            if let Some(position) = BlockPosition::last(open, &self.bounds, self.at)? {
                let end = position.inside().end;
                return self.settle_backward(table, position, end);
            }
            let Some(previous) = table.checked_sub(1) else { break };
            table = previous;
        }
        if let Some(dead_keys) = &mut self.dead_keys {
            dead_keys.end_backward(None, &self.bounds);
        }
        Ok(())
    }

    /// Moves to the next live key.
    #[inline]
    pub fn next(&mut self) -> Result<()> {
        if self.step_inside() { Ok(()) } else { self.next_slowly() }
    }

    /// Moves to the previous live key.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let here = self.here.as_mut().expect("prev of a walk that stands on a key");
        if here.position.is_settled() && here.entry > here.position.inside().start {
            here.entry -= 1;
            here.position.prefetch_before(here.entry);
            return Ok(());
        }
        self.prev_slowly()
    }

    /// Moves to the next live key if it is in the same block and the whole block is live. Returns whether it
    /// did.
    #[inline]
    pub fn step_inside(&mut self) -> bool {
        let Some(here) = &mut self.here else { return false };
        let is_inside = here.position.is_settled() && here.entry + 1 < here.position.inside().end;
        if is_inside {
            here.entry += 1;
            here.position.prefetch_behind(here.entry);
        }
        is_inside
    }

    #[cold]
    fn next_slowly(&mut self) -> Result<()> {
        let CurrentEntry { table, position, entry, .. } =
            self.leave().expect("next of a walk that stands on a key");
        match self.next_key(position, entry)? {
            Some((position, entry)) => self.settle_forward(table, position, entry),
            None => self.begin_at(table + 1),
        }
    }

    #[cold]
    fn prev_slowly(&mut self) -> Result<()> {
        let CurrentEntry { table, position, entry, .. } = self.leave().expect("the caller has looked");
        let (position, first) = self.key_start(position, entry)?;
        self.settle_backward(table, position, first)
    }

    /// Moves to the first live key at or after an entry, which must be the newest version of its key or the
    /// end of its block.
    fn settle_forward(&mut self, table: usize, mut position: BlockPosition, mut entry: usize) -> Result<()> {
        loop {
            if entry >= position.inside().end {
                if position.meets_upper() {
                    if let Some(dead_keys) = &mut self.dead_keys {
                        dead_keys.end(None, &self.bounds);
                    }
                    return Ok(());
                }
                let Some(next) = position.next(&self.bounds)? else { return self.begin_at(table + 1) };
                entry = next.inside().start;
                position = next;
                continue;
            }
            if position.is_settled() {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_at(|| position.key(entry), &self.bounds);
                }
                self.here = Some(CurrentEntry { table, position, entry, folded: None });
                return Ok(());
            }
            if let Some(here) = self.resolve(table, position.clone(), entry)? {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_at(|| here.position.key(here.entry), &self.bounds);
                }
                self.here = Some(here);
                return Ok(());
            }
            if let Some(dead_keys) = &mut self.dead_keys
                && dead_keys.step(|| position.key(entry).into())
                && let Some(end) = dead_keys.end_after(&position.key(entry))
            {
                return self.seek(&end);
            }
            match self.next_key(position, entry)? {
                Some(next) => (position, entry) = next,
                None => return self.begin_at(table + 1),
            }
        }
    }

    /// Moves to the last live key before an entry, which must be the newest version of its key.
    fn settle_backward(&mut self, table: usize, mut position: BlockPosition, mut end: usize) -> Result<()> {
        loop {
            if end <= position.inside().start {
                if position.meets_lower() {
                    if let Some(dead_keys) = &mut self.dead_keys {
                        dead_keys.end_backward(None, &self.bounds);
                    }
                    return Ok(());
                }
                let previous = position.prev(&self.bounds)?;
                let Some(previous) = previous else {
                    // At the first table this ends the iteration.
                    return self.end_at(table.wrapping_sub(1));
                };
                end = previous.inside().end;
                position = previous;
                continue;
            }
            if position.is_settled() {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_backward_at(|| position.key(end - 1), &self.bounds);
                }
                self.here = Some(CurrentEntry { table, position, entry: end - 1, folded: None });
                return Ok(());
            }
            (position, end) = self.key_start(position, end - 1)?;
            if let Some(here) = self.resolve(table, position.clone(), end)? {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_backward_at(|| here.position.key(here.entry), &self.bounds);
                }
                self.here = Some(here);
                return Ok(());
            }
            if let Some(dead_keys) = &mut self.dead_keys
                && dead_keys.step(|| position.key(end).into())
                && let Some(start) = dead_keys.start_before(&position.key(end))
            {
                return self.seek_before(&start);
            }
        }
    }

    /// Starts at the newest version of a key and returns the version that makes the key live, if any. With
    /// operands, returns the version at which they end.
    fn resolve(
        &self,
        table: usize,
        mut position: BlockPosition,
        mut entry: usize,
    ) -> Result<Option<CurrentEntry>> {
        let (resolver, mut operands) = (Resolver::default(), Operands::default());
        let base = loop {
            if position.seq(entry) <= self.at {
                let expiry = || position.expiry(entry);
                let expired =
                    || operands.is_empty() && expiry().is_some_and(|expiry| self.time.has_come(expiry));
                match resolver.feed_reader(position.seq(entry), position.kind(entry), expired) {
                    Answer::Live if operands.is_empty() => {
                        return Ok(Some(CurrentEntry { table, position, entry, folded: None }));
                    }
                    Answer::Live => break Some(Base { stored: position.share(entry), expiry: expiry() }),
                    Answer::Gone => break None,
                    Answer::Operand => operands.push(position.share(entry).beside()),
                    Answer::Older => {}
                }
            }
            let last = (!operands.is_empty()).then(|| (position.clone(), entry));
            match self.older(position, entry)? {
                (next, entry_of_next, true) => (position, entry) = (next, entry_of_next),
                _ => {
                    let Some(last) = last else { return Ok(None) };
                    (position, entry) = last;
                    break None;
                }
            }
        };
        // The expiry of the resulting value decides (fold.3).
        let folded = Folded::new(operands, base);
        let folded = folded.filter(|folded| folded.expiry().is_none_or(|expiry| !self.time.has_come(expiry)));
        Ok(folded.map(|folded| CurrentEntry { table, position, entry, folded: Some(folded) }))
    }

    /// Returns the next entry, and whether it is an older version of the same key. Stays at the last entry of
    /// the table.
    fn older(&self, position: BlockPosition, entry: usize) -> Result<(BlockPosition, usize, bool)> {
        if entry + 1 < position.count() {
            let is_same = position.same_key_as_next(entry);
            return Ok((position, entry + 1, is_same));
        }
        Ok(match position.next(&self.bounds)? {
            Some(next) => {
                let is_same = next.continues_key();
                (next, 0, is_same)
            }
            None => (position, entry, false),
        })
    }

    /// Returns the newest version of the next key in the table.
    fn next_key(
        &self,
        mut position: BlockPosition,
        mut entry: usize,
    ) -> Result<Option<(BlockPosition, usize)>> {
        loop {
            let before = (position.number(), entry);
            let is_same;
            (position, entry, is_same) = self.older(position, entry)?;
            if !is_same {
                return Ok(((position.number(), entry) != before).then_some((position, entry)));
            }
        }
    }

    /// Returns the newest version of the key of an entry.
    fn key_start(&self, mut position: BlockPosition, mut entry: usize) -> Result<(BlockPosition, usize)> {
        loop {
            if entry > 0 {
                if !position.same_key_as_next(entry - 1) {
                    return Ok((position, entry));
                }
                entry -= 1;
                continue;
            }
            let previous = if position.continues_key() { position.prev(&self.bounds)? } else { None };
            let Some(previous) = previous else { return Ok((position, entry)) };
            entry = previous.count() - 1;
            position = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_env::{Env, MemFs};

    use super::*;
    use crate::Db;
    use crate::types::KeyspaceId;
    use crate::types::key::encode_key;

    fn random_bounds(rng: &mut fastrand::Rng) -> Bounds {
        let id = KeyspaceId::DEFAULT;
        let lower = encode_key(id, &[rng.u8(..40), rng.u8(..2)][..rng.usize(..3)]).into();
        let upper = encode_key(id, &[rng.u8(..60), rng.u8(..2)]).into();
        Bounds {
            lower: if rng.bool() { Bound::Included(lower) } else { Bound::Excluded(lower) },
            upper: if rng.bool() { Bound::Included(upper) } else { Bound::Excluded(upper) },
        }
    }

    fn shown(walk: &RunWalk) -> Option<(Vec<u8>, Value)> {
        let key = || [&[1], &walk.user_key_parts(&mut [0; 4]).concat()[..]].concat();
        walk.valid().then(|| (key(), walk.value().unwrap()))
    }

    #[test]
    fn run_walk_1_a_walk_over_one_run_shows_what_any_other_walk_shows() {
        let mut rng = fastrand::Rng::with_seed(4);
        let (mut walked, mut with_versions) = (0, 0);
        for round in 0..60 {
            let env = Env::simulated(Arc::new(MemFs::new()), round);
            // Blocks of a few entries, tables of a few blocks, and some with versions of only one key.
            let builder = Db::builder().background(false).env(env).block_bytes(64 + rng.usize(..200));
            let db = builder.table_bytes(400 + rng.u64(..2000)).open(Path::new("db")).unwrap();
            let map = db.default_keyspace();
            map.set_merge_operator("append").unwrap();
            let mut snapshots = Vec::new();
            for n in 0..rng.u32(1..400) {
                let key = [rng.u8(..50), rng.u8(..3)];
                match rng.u8(..5) {
                    0 => map.remove(key).map(drop).unwrap(),
                    1 => map.merge(key, n.to_be_bytes()).map(drop).unwrap(),
                    _ => map.put(key, n.to_be_bytes().repeat(rng.usize(..10))).map(drop).unwrap(),
                }
                if round % 3 > 0 && rng.u8(..30) == 0 {
                    snapshots.push(db.snapshot());
                }
            }
            db.compact().unwrap();
            let view = db.handle.core.view.get();
            for _ in 0..30 {
                let at = match snapshots.len() {
                    0 => SeqNo::MAX,
                    len => snapshots[rng.usize(..len)].seqno(),
                };
                let bounds = random_bounds(&mut rng);
                let Some(run) = view.only_run(&bounds) else { continue };
                with_versions += u32::from(run.max_seq() > SeqNo::ZERO);
                let (mut walk, mut model) =
                    (RunWalk::new(run, at, bounds.clone(), &view), view.live(at, bounds.clone()));
                for _ in 0..40 {
                    let key =
                        encode_key(KeyspaceId::DEFAULT, &[rng.u8(..52), rng.u8(..3)][..rng.usize(1..3)]);
                    match rng.u8(..10) {
                        0 => (walk.seek(&key).unwrap(), model.seek(&key).unwrap()).0,
                        1 => (walk.seek_before(&key).unwrap(), model.seek_before(&key).unwrap()).0,
                        2 => (walk.seek_first().unwrap(), model.seek_first().unwrap()).0,
                        3 => (walk.seek_last().unwrap(), model.seek_last().unwrap()).0,
                        _ if !model.valid() => {}
                        4..7 => (walk.next().unwrap(), model.next().unwrap()).0,
                        _ => (walk.prev().unwrap(), model.prev().unwrap()).0,
                    }
                    let expected = model.valid().then(|| (model.key().to_vec(), model.value().unwrap()));
                    assert_eq!(shown(&walk), expected, "round {round}, {bounds:?} at {at}");
                    walked += u32::from(expected.is_some());
                }
            }
        }
        assert!(walked > 20_000 && with_versions > 300, "{walked} {with_versions}");
    }
}
