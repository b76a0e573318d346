//! A walk over the live keys of one run that nothing lies above: no memtable, no other run, no range
//! tombstone.
//!
//! ```text
//!   run: table, table, ... --BlockPosition--> block of settled entries: the next entry, without a look at its key
//!                                          block with versions:      the resolver picks
//! ```
//!
//! run_walk.1. Shows exactly what a `VisibleCursor` over the run shows.
//! run_walk.2. At most one block is held.
//! run_walk.3. A move that finds nothing, or fails, leaves the walk nowhere, until a seek succeeds.
//! run_walk.4. Who reads value after value has the next ones read by the system meanwhile, as many as he has
//!     read: at most [`AHEAD_MAX`].

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

/// Values of blob files that are asked for ahead.
const AHEAD_MAX: usize = 32;

/// The walk.
pub struct RunWalk {
    run: Arc<Run>,
    /// Those that may hold keys inside the bounds.
    tables: Range<usize>,
    at: SeqNo,
    bounds: Bounds,
    /// Bytes of the keyspace's prefix.
    prefix_len: usize,
    time: Arc<Time>,
    /// None: the run has no values in blob files.
    blobs: Option<BlobSet>,
    operators: Arc<Operators>,
    ahead: Mutex<Ahead>,
    here: Option<Here>,
    /// None: gaps are not used.
    dead_keys: Option<DeadKeys>,
    /// The user key at hand, once it was asked for, and the table and block that it begins as keys of.
    key: KeyRoom,
    key_of: (usize, usize),
}

/// How far values in blob files have been asked for (run_walk.4).
#[derive(Default)]
struct Ahead {
    /// The value read last: table, block, entry.
    last: (usize, usize, usize),
    /// Values read one after another.
    streak: usize,
    /// The entry of the block before which all have been asked for.
    asked: usize,
}

/// An entry.
struct Here {
    table: usize,
    place: BlockPosition,
    entry: usize,
    /// What its key has operands on.
    folded: Option<Box<Folded>>,
}

impl RunWalk {
    /// A walk as of `at`, inside these bounds, which lie in one keyspace. Nowhere until it is moved.
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

    /// The same, that gets over dead keys by gaps: of a walk over this view.
    pub fn with_skip_ranges(self, view: &Arc<ReadView>, is_pinned: bool) -> Self {
        RunWalk { dead_keys: Some(DeadKeys::new(view, self.at, is_pinned)), ..self }
    }

    /// Another walk over the same, which stands nowhere yet.
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

    /// Whether the walk stands on a key.
    #[inline]
    pub fn valid(&self) -> bool {
        self.here.is_some()
    }

    /// Where it stands, for comparison with another walk over the same run.
    pub fn position(&self) -> Option<(usize, usize, usize)> {
        self.here.as_ref().map(|here| (here.table, here.place.number(), here.entry))
    }

    #[inline]
    fn here(&self) -> &Here {
        self.here.as_ref().expect("a walk that stands on a key")
    }

    /// The user key, in parts. `head` is room for one that the block does not hold as it is.
    #[inline]
    pub fn user_key_parts<'a>(&'a self, head: &'a mut [u8; 4]) -> [&'a [u8]; 3] {
        let here = self.here();
        let mut parts = here.place.key_parts(here.entry, head);
        let mut skip = self.prefix_len;
        for part in &mut parts {
            let of_part = skip.min(part.len());
            *part = &part[of_part..];
            skip -= of_part;
        }
        parts
    }

    /// Makes the user key one piece, for `key`.
    #[inline]
    pub fn load_key(&mut self) {
        let here = self.here.as_ref().expect("a walk that stands on a key");
        let mut head = [0; 4];
        let [prefix, head, rest] = here.place.key_parts(here.entry, &mut head);
        let Some(own) = prefix.get(self.prefix_len..) else {
            // A block of keys of several keyspaces.
            let user_key = &[prefix, head, rest].concat()[self.prefix_len..];
            self.key.set_prefix(user_key);
            self.key_of = (usize::MAX, 0);
            return;
        };
        if self.key_of != (here.table, here.place.number()) {
            self.key.set_prefix(own);
            self.key_of = (here.table, here.place.number());
        }
        self.key.set_suffix(own.len(), head, rest);
    }

    /// The user key, which was loaded.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid(), "key() of a walk that stands on no key");
        &self.key
    }

    /// Shows the entry at hand, and those that follow it up to the end of its block, while `visit` wants
    /// more. Values that are in blob files are none of its business: the run has none. The walk stands on the
    /// entry that was shown last.
    #[inline]
    pub fn visit_block(
        &mut self,
        visit: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        assert!(self.shows_bytes(), "values that are beside their keys");
        self.load_key();
        let here = self.here.as_mut().expect("a walk that stands on a key");
        visit(&self.key, here.place.stored(here.entry).beside())?;
        if !here.place.is_settled() || self.key_of.0 != here.table {
            return ControlFlow::Continue(());
        }
        let (first, end) = (here.entry + 1, here.place.inside().end);
        for entry in first..end {
            let mut head = [0; 4];
            let [prefix, head, rest] = here.place.key_parts(entry, &mut head);
            self.key.set_suffix(prefix.len() - self.prefix_len, head, rest);
            here.place.prefetch_behind(entry);
            here.entry = entry;
            visit(&self.key, here.place.value(entry))?;
        }
        ControlFlow::Continue(())
    }

    /// Whether the value at hand lies beside its key, as do those behind it that the same block has for
    /// certain.
    #[inline]
    pub fn shows_bytes(&self) -> bool {
        self.blobs.is_none() && self.here().folded.is_none()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> Result<Value> {
        let here = self.here();
        if let Some(folded) = &here.folded {
            return self.fold(here, folded);
        }
        match (here.place.share(here.entry), &self.blobs) {
            (stored, Some(blobs)) => {
                if matches!(stored, Stored::Blob(_)) {
                    self.read_ahead(here, blobs);
                }
                fetch::value_in_passing(stored, blobs)
            }
            (stored, None) => Ok(stored.beside()),
        }
    }

    /// The value that operands make.
    #[cold]
    fn fold(&self, here: &Here, folded: &Folded) -> Result<Value> {
        let key = here.place.key_parts(here.entry, &mut [0; 4]).concat();
        let none = BlobSet::default();
        let blobs = self.blobs.as_ref().unwrap_or(&none);
        folded.value(&key, FoldContext { blobs, operators: &self.operators })
    }

    /// Has the system read the next values of the block, if the ones before were read one after another
    /// (run_walk.4).
    #[cold]
    fn read_ahead(&self, here: &Here, blobs: &BlobSet) {
        let (table, block, entry) = (here.table, here.place.number(), here.entry);
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
        let end = (entry + 1 + ahead.streak.min(AHEAD_MAX)).min(here.place.inside().end);
        for next in ahead.asked.max(entry + 1)..end {
            if let Stored::Blob(pointer) = here.place.stored(next) {
                blobs.will_need(pointer);
            }
        }
        ahead.asked = ahead.asked.max(end);
    }

    /// The bytes of the value; none if they are in a blob file, or have to be made of operands.
    #[inline]
    pub fn value_bytes(&self) -> Option<&[u8]> {
        let here = self.here();
        if here.folded.is_some() {
            return None;
        }
        fetch::bytes(here.place.stored(here.entry))
    }

    /// Stands nowhere from now on, and has stepped over nothing yet.
    fn leave(&mut self) -> Option<Here> {
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
            Some(place) => {
                let entry = place.rank(key).max(place.inside().start);
                place.prefetch(entry);
                self.settle_forward(table, place, entry)
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
            Some(place) => {
                let end = place.rank(key).min(place.inside().end);
                self.settle_backward(table, place, end)
            }
            None => self.end_at(table),
        }
    }

    /// From the first key inside the bounds of a table, or of one behind it.
    fn begin_at(&mut self, mut table: usize) -> Result<()> {
        while let Some(open) = self.table(table) {
            if let Some(place) = BlockPosition::first(open, &self.bounds, self.at)? {
                let first = place.inside().start;
                place.prefetch(first);
                return self.settle_forward(table, place, first);
            }
            table += 1;
        }
        if let Some(dead_keys) = &mut self.dead_keys {
            dead_keys.end(None, &self.bounds);
        }
        Ok(())
    }

    /// From the last key inside the bounds of a table, or of one before it.
    fn end_at(&mut self, mut table: usize) -> Result<()> {
        while let Some(open) = self.table(table) {
            if let Some(place) = BlockPosition::last(open, &self.bounds, self.at)? {
                let end = place.inside().end;
                return self.settle_backward(table, place, end);
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

    /// Moves to the live key before.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        let here = self.here.as_mut().expect("prev of a walk that stands on a key");
        if here.place.is_settled() && here.entry > here.place.inside().start {
            here.entry -= 1;
            here.place.prefetch_before(here.entry);
            return Ok(());
        }
        self.prev_slowly()
    }

    /// Moves to the next live key if that is in the same block, and all of the block is live.
    #[inline]
    pub fn step_inside(&mut self) -> bool {
        let Some(here) = &mut self.here else { return false };
        let is_inside = here.place.is_settled() && here.entry + 1 < here.place.inside().end;
        if is_inside {
            here.entry += 1;
            here.place.prefetch_behind(here.entry);
        }
        is_inside
    }

    #[cold]
    fn next_slowly(&mut self) -> Result<()> {
        let Here { table, place, entry, .. } = self.leave().expect("next of a walk that stands on a key");
        match self.next_key(place, entry)? {
            Some((place, entry)) => self.settle_forward(table, place, entry),
            None => self.begin_at(table + 1),
        }
    }

    #[cold]
    fn prev_slowly(&mut self) -> Result<()> {
        let Here { table, place, entry, .. } = self.leave().expect("the caller has looked");
        let (place, first) = self.key_start(place, entry)?;
        self.settle_backward(table, place, first)
    }

    /// Stands on the first live key from an entry on that is the newest version of its key, or behind the
    /// last of its block.
    fn settle_forward(&mut self, table: usize, mut place: BlockPosition, mut entry: usize) -> Result<()> {
        loop {
            if entry >= place.inside().end {
                if place.meets_upper() {
                    if let Some(dead_keys) = &mut self.dead_keys {
                        dead_keys.end(None, &self.bounds);
                    }
                    return Ok(());
                }
                let Some(next) = place.next(&self.bounds)? else { return self.begin_at(table + 1) };
                entry = next.inside().start;
                place = next;
                continue;
            }
            if place.is_settled() {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_at(|| place.key(entry), &self.bounds);
                }
                self.here = Some(Here { table, place, entry, folded: None });
                return Ok(());
            }
            if let Some(here) = self.resolve(table, place.clone(), entry)? {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_at(|| here.place.key(here.entry), &self.bounds);
                }
                self.here = Some(here);
                return Ok(());
            }
            if let Some(dead_keys) = &mut self.dead_keys
                && dead_keys.step(|| place.key(entry).into())
                && let Some(end) = dead_keys.end_after(&place.key(entry))
            {
                return self.seek(&end);
            }
            match self.next_key(place, entry)? {
                Some(next) => (place, entry) = next,
                None => return self.begin_at(table + 1),
            }
        }
    }

    /// Stands on the last live key before an entry that is the newest version of its key.
    fn settle_backward(&mut self, table: usize, mut place: BlockPosition, mut end: usize) -> Result<()> {
        loop {
            if end <= place.inside().start {
                if place.meets_lower() {
                    if let Some(dead_keys) = &mut self.dead_keys {
                        dead_keys.end_backward(None, &self.bounds);
                    }
                    return Ok(());
                }
                let previous = place.prev(&self.bounds)?;
                let Some(previous) = previous else {
                    // At the first table it ends there as well.
                    return self.end_at(table.wrapping_sub(1));
                };
                end = previous.inside().end;
                place = previous;
                continue;
            }
            if place.is_settled() {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_backward_at(|| place.key(end - 1), &self.bounds);
                }
                self.here = Some(Here { table, place, entry: end - 1, folded: None });
                return Ok(());
            }
            (place, end) = self.key_start(place, end - 1)?;
            if let Some(here) = self.resolve(table, place.clone(), end)? {
                if let Some(dead_keys) = &mut self.dead_keys {
                    dead_keys.end_backward_at(|| here.place.key(here.entry), &self.bounds);
                }
                self.here = Some(here);
                return Ok(());
            }
            if let Some(dead_keys) = &mut self.dead_keys
                && dead_keys.step(|| place.key(end).into())
                && let Some(start) = dead_keys.start_before(&place.key(end))
            {
                return self.seek_before(&start);
            }
        }
    }

    /// From the newest version of a key: the version that makes the key live, if one does. With operands,
    /// that at which they end.
    fn resolve(&self, table: usize, mut place: BlockPosition, mut entry: usize) -> Result<Option<Here>> {
        let (resolver, mut operands) = (Resolver::default(), Operands::default());
        let base = loop {
            if place.seq(entry) <= self.at {
                let expiry = || place.expiry(entry);
                let expired =
                    || operands.is_empty() && expiry().is_some_and(|expiry| self.time.has_come(expiry));
                match resolver.feed_reader(place.seq(entry), place.kind(entry), expired) {
                    Answer::Live if operands.is_empty() => {
                        return Ok(Some(Here { table, place, entry, folded: None }));
                    }
                    Answer::Live => break Some(Base { stored: place.share(entry), expiry: expiry() }),
                    Answer::Gone => break None,
                    Answer::Operand => operands.push(place.share(entry).beside()),
                    Answer::Older => {}
                }
            }
            let last = (!operands.is_empty()).then(|| (place.clone(), entry));
            match self.older(place, entry)? {
                (next, entry_of_next, true) => (place, entry) = (next, entry_of_next),
                _ => {
                    let Some(last) = last else { return Ok(None) };
                    (place, entry) = last;
                    break None;
                }
            }
        };
        // fold.3
        let folded = Folded::new(operands, base);
        let folded = folded.filter(|folded| folded.expiry().is_none_or(|expiry| !self.time.has_come(expiry)));
        Ok(folded.map(|folded| Here { table, place, entry, folded: Some(folded) }))
    }

    /// The entry behind this one, and whether it is an older version of the same key. At the end of the table
    /// it stays.
    fn older(&self, place: BlockPosition, entry: usize) -> Result<(BlockPosition, usize, bool)> {
        if entry + 1 < place.count() {
            let is_same = place.same_key_as_next(entry);
            return Ok((place, entry + 1, is_same));
        }
        Ok(match place.next(&self.bounds)? {
            Some(next) => {
                let is_same = next.continues_key();
                (next, 0, is_same)
            }
            None => (place, entry, false),
        })
    }

    /// The newest version of the next key in the table.
    fn next_key(&self, mut place: BlockPosition, mut entry: usize) -> Result<Option<(BlockPosition, usize)>> {
        loop {
            let before = (place.number(), entry);
            let is_same;
            (place, entry, is_same) = self.older(place, entry)?;
            if !is_same {
                return Ok(((place.number(), entry) != before).then_some((place, entry)));
            }
        }
    }

    /// The newest version of the key of an entry.
    fn key_start(&self, mut place: BlockPosition, mut entry: usize) -> Result<(BlockPosition, usize)> {
        loop {
            if entry > 0 {
                if !place.same_key_as_next(entry - 1) {
                    return Ok((place, entry));
                }
                entry -= 1;
                continue;
            }
            let previous = if place.continues_key() { place.prev(&self.bounds)? } else { None };
            let Some(previous) = previous else { return Ok((place, entry)) };
            entry = previous.count() - 1;
            place = previous;
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
            // Blocks of a few entries, tables of a few blocks, some of one key's versions alone.
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
                    assert_eq!(shown(&walk), expected, "run_walk.1: round {round}, {bounds:?} at {at}");
                    walked += u32::from(expected.is_some());
                }
            }
        }
        assert!(walked > 20_000 && with_versions > 300, "{walked} {with_versions}");
    }
}
