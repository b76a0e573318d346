//! An iterator over the live keys of one run with nothing above it: no memtable, no other run, no range
//! tombstone.
//!
//! ```text
//!   run: table, table, ... --BlockPosition--> block with settled entries: the next entry
//!                                             block with versions:        the resolver chooses
//! ```
//!
//! An iterator returns exactly the same entries as a `VisibleCursor` over the run. It holds at most one
//! block and one window of a file (sstable/table/walk_window.rs). A move that finds nothing, or fails, leaves
//! it without a position until a seek succeeds.

mod slice;

use std::ops::ControlFlow;
use std::sync::Arc;

use self::slice::RunSlice;
use super::dead_keys::DeadKeys;
use super::fetch;
use super::fold::Folded;
use super::values_ahead::ValuesAhead;
use super::view::ReadView;
use crate::manifest::version::Run;
use crate::sstable::{BlockPosition, WalkWindow};
use crate::types::bounds::Bounds;
use crate::types::key_room::KeyRoom;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// An iterator over a run.
pub struct RunWalk {
    slice: RunSlice,
    window: WalkWindow,
    ahead: ValuesAhead,
    here: Option<CurrentEntry>,
    dead_keys: DeadKeys,
    /// The current user key, once it was requested, and the table and block whose prefix starts it.
    key: KeyRoom,
    key_of: (usize, usize),
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
        Self::over(RunSlice::new(run, at, bounds, view), DeadKeys::default())
    }

    fn over(slice: RunSlice, dead_keys: DeadKeys) -> Self {
        RunWalk {
            slice,
            window: WalkWindow::new(true),
            ahead: ValuesAhead::default(),
            here: None,
            dead_keys,
            key: KeyRoom::default(),
            key_of: (usize::MAX, 0),
        }
    }

    /// Enables skip ranges, for an iterator over this view.
    pub fn with_skip_ranges(self, view: &Arc<ReadView>, is_pinned: bool) -> Self {
        RunWalk { dead_keys: DeadKeys::new(view, self.slice.at, is_pinned), ..self }
    }

    /// Creates another iterator over the same range, without a position.
    pub fn again(&self) -> Self {
        Self::over(self.slice.clone(), self.dead_keys.again())
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
        let mut skip = self.slice.prefix_len;
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
        let Some(own) = prefix.get(self.slice.prefix_len..) else {
            // The block has keys of several keyspaces.
            let user_key = &[prefix, head, rest].concat()[self.slice.prefix_len..];
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
        if self.key_of.0 != here.table {
            return ControlFlow::Continue(());
        }
        let (first, end) = (here.entry + 1, here.position.inside().end);
        for entry in first..end {
            if !here.position.is_settled() && !here.position.is_live_after(entry - 1) {
                break;
            }
            let mut head = [0; 4];
            let [prefix, head, rest] = here.position.key_parts(entry, &mut head);
            self.key.set_suffix(prefix.len() - self.slice.prefix_len, head, rest);
            here.position.prefetch_behind(entry);
            here.entry = entry;
            visit(&self.key, here.position.stored(entry).beside())?;
        }
        ControlFlow::Continue(())
    }

    /// Returns whether the current value is stored inline. If so, the following values of the same block are
    /// too.
    #[inline]
    pub fn shows_bytes(&self) -> bool {
        self.slice.blobs.is_none() && self.here().folded.is_none()
    }

    /// Returns the value.
    #[inline]
    pub fn value(&self) -> Result<Value> {
        let here = self.here();
        if let Some(folded) = &here.folded {
            return self.slice.fold(here, folded);
        }
        let (position, entry) = (&here.position, here.entry);
        match (position.stored(entry), &self.slice.blobs) {
            (Stored::Blob(pointer), Some(blobs)) => {
                let end = position.inside().end;
                self.ahead.read(blobs, |n| (entry + n < end).then(|| position.stored(entry + n)));
                blobs.read_in_passing(pointer)
            }
            _ => Ok(position.share(entry).beside()),
        }
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
        self.dead_keys.forget();
        self.here.take()
    }

    /// Starts a seek.
    fn begin(&mut self) {
        self.ahead.seek();
        self.leave();
    }

    /// Moves to the first live key inside the bounds.
    pub fn seek_first(&mut self) -> Result<()> {
        self.begin();
        self.begin_at(self.slice.tables.start)
    }

    /// Moves to the last live key inside the bounds.
    pub fn seek_last(&mut self) -> Result<()> {
        self.begin();
        self.ahead.back();
        self.slice.tables.end.checked_sub(1).map_or(Ok(()), |last| self.end_at(last))
    }

    /// Moves to the first live key inside the bounds that is `>= key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        if !self.slice.bounds.above_lower(key) {
            return self.seek_first();
        }
        self.begin();
        let table = self.slice.run.first_from(key).max(self.slice.tables.start);
        let Some(open) = self.slice.table(table) else { return Ok(()) };
        match BlockPosition::of_key(open, key, self.slice.reader(), &mut self.window)? {
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
        if !self.slice.bounds.below_upper(key) {
            return self.seek_last();
        }
        self.begin();
        self.ahead.back();
        let Some(table) = self.slice.run.count_before(key).min(self.slice.tables.end).checked_sub(1) else {
            return Ok(());
        };
        let Some(open) = self.slice.table(table) else { return Ok(()) };
        match BlockPosition::of_key(open, key, self.slice.reader(), &mut self.window)? {
            Some(position) => {
                let end = position.rank(key).min(position.inside().end);
                self.settle_backward(table, position, end)
            }
            None => self.end_at(table),
        }
    }

    /// Moves to the first live key inside the bounds in this table or a later one.
    fn begin_at(&mut self, mut table: usize) -> Result<()> {
        while let Some(open) = self.slice.table(table) {
            if let Some(position) = BlockPosition::first(open, self.slice.reader(), &mut self.window)? {
                let first = position.inside().start;
                position.prefetch(first);
                return self.settle_forward(table, position, first);
            }
            table += 1;
        }
        self.end_forward(None)
    }

    /// Moves to the last live key inside the bounds in this table or an earlier one.
    fn end_at(&mut self, mut table: usize) -> Result<()> {
        while let Some(open) = self.slice.table(table) {
            if let Some(position) = BlockPosition::last(open, self.slice.reader(), &mut self.window)? {
                let end = position.inside().end;
                return self.settle_backward(table, position, end);
            }
            let Some(previous) = table.checked_sub(1) else { break };
            table = previous;
        }
        self.end_backward(None)
    }

    /// Ends a forward move: on a live key, or without a position at the end of the bounds.
    #[inline]
    fn end_forward(&mut self, here: Option<CurrentEntry>) -> Result<()> {
        let live = here.as_ref().map(|here| || here.position.key(here.entry));
        self.dead_keys.end(live, &self.slice.bounds);
        self.here = here;
        Ok(())
    }

    /// Ends a backward move: on a live key, or without a position at the start of the bounds.
    #[inline]
    fn end_backward(&mut self, here: Option<CurrentEntry>) -> Result<()> {
        let live = here.as_ref().map(|here| || here.position.key(here.entry));
        self.dead_keys.end_backward(live, &self.slice.bounds);
        self.here = here;
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
        self.ahead.back();
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
        let (position, entry) = (&here.position, here.entry);
        let is_inside =
            entry + 1 < position.inside().end && (position.is_settled() || position.is_live_after(entry));
        if is_inside {
            self.ahead.next();
            here.entry += 1;
            here.folded = None;
            here.position.prefetch_behind(here.entry);
        }
        is_inside
    }

    #[cold]
    fn next_slowly(&mut self) -> Result<()> {
        self.ahead.next();
        let CurrentEntry { table, position, entry, .. } =
            self.leave().expect("next of a walk that stands on a key");
        match self.slice.next_key(position, entry, &mut self.window)? {
            Some((position, entry)) => self.settle_forward(table, position, entry),
            None => self.begin_at(table + 1),
        }
    }

    #[cold]
    fn prev_slowly(&mut self) -> Result<()> {
        let CurrentEntry { table, position, entry, .. } = self.leave().expect("the caller has looked");
        let (position, first) = self.slice.key_start(position, entry, &mut self.window)?;
        self.settle_backward(table, position, first)
    }

    /// Moves to the first live key at or after an entry, which must be the newest version of its key or the
    /// end of its block.
    fn settle_forward(&mut self, table: usize, mut position: BlockPosition, mut entry: usize) -> Result<()> {
        loop {
            if entry >= position.inside().end {
                if position.meets_upper() {
                    return self.end_forward(None);
                }
                let Some(next) = position.next(&self.slice.bounds, &mut self.window)? else {
                    return self.begin_at(table + 1);
                };
                entry = next.inside().start;
                position = next;
                continue;
            }
            if position.is_settled() {
                return self.end_forward(Some(CurrentEntry { table, position, entry, folded: None }));
            }
            if let Some(here) = self.slice.resolve(table, position.clone(), entry, &mut self.window)? {
                return self.end_forward(Some(here));
            }
            if self.dead_keys.step(|| position.key(entry).into())
                && let Some(end) = self.dead_keys.end_after(&position.key(entry))
            {
                return self.seek(&end);
            }
            match self.slice.next_key(position, entry, &mut self.window)? {
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
                    return self.end_backward(None);
                }
                let previous = position.prev(&self.slice.bounds, &mut self.window)?;
                let Some(previous) = previous else {
                    // At the first table this ends the iteration.
                    return self.end_at(table.wrapping_sub(1));
                };
                end = previous.inside().end;
                position = previous;
                continue;
            }
            if position.is_settled() {
                let entry = end - 1;
                return self.end_backward(Some(CurrentEntry { table, position, entry, folded: None }));
            }
            (position, end) = self.slice.key_start(position, end - 1, &mut self.window)?;
            if let Some(here) = self.slice.resolve(table, position.clone(), end, &mut self.window)? {
                return self.end_backward(Some(here));
            }
            if self.dead_keys.step(|| position.key(end).into())
                && let Some(start) = self.dead_keys.start_before(&position.key(end))
            {
                return self.seek_before(&start);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;
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
            let builder =
                Db::builder().background(false).env(env).tuning(|t| t.block_bytes(64 + rng.usize(..200)));
            let db = builder.tuning(|t| t.table_bytes(400 + rng.u64(..2000))).open(Path::new("db")).unwrap();
            let map = db.default_keyspace();
            map.set_merge_operator("append").unwrap();
            let mut snapshots = Vec::new();
            for n in 0..rng.u32(1..400) {
                let key = [rng.u8(..50), rng.u8(..3)];
                match rng.u8(..5) {
                    0 => map.delete(key).map(drop).unwrap(),
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
