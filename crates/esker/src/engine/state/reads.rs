//! Reads of an open database: which view they read, and at which commit.
//!
//! ```text
//!   get, contains --> find_now --------> ReadView::find (read/point.rs)
//!   multi_get -----> ReadSource::find_many (many.rs)
//!   range, cursor --> source_now, source_at --> ReadSource --> walks (db/range.rs)
//! ```

use std::ops::Bound;
use std::sync::Arc;

use crate::encoding::catalog_key::name_key;
use crate::encoding::hash::key_hash;
use crate::engine::base::slow_operation::Operation;
use crate::engine::state::State;
use crate::engine::state::catalog::{KeyspaceState, varint};
use crate::read::fold::Operands;
use crate::read::point::{InlineOf, PointQuery, ValueOf};
use crate::read::view::ReadView;
use crate::txn::low_water_key::{first_key, head_of};
use crate::txn::own::OwnWrites;
use crate::txn::read_set::ReadSet;
use crate::txn::snapshots::{Counter, Published, SnapshotGuard};
use crate::types::bounds::Bounds;
use crate::types::key::{KeyBuf, decode_key, encode_key};
use crate::types::limits::check_key;
use crate::types::{Cached, KeyspaceId, Result, SeqNo};

/// Number of removals in memtables from which on it pays to know where a keyspace begins.
const REMOVALS_MIN: u64 = 16;

/// What an iterator reads from.
#[derive(Clone)]
pub(crate) struct ReadSource {
    pub(crate) view: Arc<ReadView>,
    pub(crate) at: SeqNo,
    /// Keeps a snapshot's versions alive for views loaded later.
    pub(crate) _pin: Option<SnapshotGuard>,
    /// A transaction's own writes, on top.
    pub(crate) own: Option<OwnWrites>,
    /// The counter of the keyspace, if its low-water key may be used.
    pub(crate) low_water_key: Option<LowWaterKeyOf>,
    /// The read set of a serializable transaction.
    pub(crate) reads: Option<Arc<ReadSet>>,
}

impl State {
    /// Fails if the keyspace may be gone in the state that the reader has already chosen (catalog.4).
    #[inline]
    pub(crate) fn check_there(&self, keyspace: &KeyspaceState) -> Result<()> {
        if keyspace.is_dropping() { self.check_not_dropped(keyspace) } else { Ok(()) }
    }

    #[cold]
    fn check_not_dropped(&self, keyspace: &KeyspaceState) -> Result<()> {
        self.check_open()?;
        keyspace.check_alive()?;
        let guard = crate::sync::pin();
        let view = self.view.load(&guard);
        let id = view.find::<ValueOf>(&name_key(&keyspace.name()), self.published.visible(), &guard)?;
        // Another keyspace may have the name now. Or the drop failed, and this keyspace was renamed.
        let is_there = id.as_deref() == Some(&*varint(keyspace.id.get())) || !keyspace.is_dropping();
        if is_there { Ok(()) } else { Err(keyspace.not_found()) }
    }

    /// Looks one key up in the newest state.
    #[inline]
    pub(crate) fn find_now<W: PointQuery>(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
    ) -> Result<Option<W::Out>> {
        if self.cache.activity().get_begins() {
            return self.measured(keyspace, || self.find_newest::<W>(keyspace, key));
        }
        self.find_newest::<W>(keyspace, key)
    }

    #[inline(always)]
    fn find_newest<W: PointQuery>(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<W::Out>> {
        check_key(key)?;
        let guard = crate::sync::pin();
        let view = self.view.load(&guard);
        view.check_open()?;
        self.read_cost.looked_up(view);
        let at = self.published.visible();
        self.check_there(keyspace)?;
        view.find::<W>(&KeyBuf::new(keyspace.id, key), at, &guard)
    }

    /// Returns the newest value of a key, or that it is absent, if memory alone determines it.
    pub(crate) fn find_cached(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Cached> {
        check_key(key)?;
        let guard = crate::sync::pin();
        let view = self.view.load(&guard);
        view.check_open()?;
        let at = self.published.visible();
        self.check_there(keyspace)?;
        let key = KeyBuf::new(keyspace.id, key);
        let found = view.find_in_memory::<InlineOf>(&key, key_hash(&key), at, &guard)?;
        Ok(match found {
            Cached::Value(Some(value)) => Cached::Value(value),
            Cached::Absent => Cached::Absent,
            // The pointer to a blob file is in memory, but its value is not.
            Cached::Value(None) | Cached::NotCached => Cached::NotCached,
        })
    }

    /// Looks one key up at a pinned commit, below these operands.
    pub(crate) fn find_at<W: PointQuery>(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        at: SeqNo,
        operands: Operands,
    ) -> Result<Option<W::Out>> {
        let find = move || {
            check_key(key)?;
            let guard = crate::sync::pin();
            let view = self.view.load(&guard);
            view.check_open()?;
            self.read_cost.looked_up(view);
            view.find_below::<W>(&KeyBuf::new(keyspace.id, key), at, operands, &guard)
        };
        if self.cache.activity().get_begins() { self.measured(keyspace, find) } else { find() }
    }

    /// Measures a get.
    #[cold]
    fn measured<T>(&self, keyspace: &KeyspaceState, get: impl FnOnce() -> T) -> T {
        let start = self.env.clock.monotonic();
        let got = match &self.slow {
            Some(slow) => slow.watch(Operation::Get, Some(&|| keyspace.name().to_string()), get, |_| 1),
            None => get(),
        };
        self.counters.get_latency.offer(self.env.clock.monotonic().saturating_sub(start));
        got
    }

    /// Pins the newest state.
    pub(crate) fn snapshot(&self) -> SnapshotGuard {
        self.published.snapshot(self.env.clock.monotonic())
    }

    /// The newest state, for iterators within `bounds`.
    #[inline]
    pub(crate) fn source_now(&self, keyspace: &KeyspaceState, bounds: Option<&Bounds>) -> Result<ReadSource> {
        let view = self.view.get();
        view.check_open()?;
        self.read_cost.walk_started(&view);
        let at = self.published.visible();
        self.check_there(keyspace)?;
        let low_water_key = self.low_water_key_for(keyspace, bounds);
        Ok(ReadSource { view, at, _pin: None, own: None, reads: None, low_water_key })
    }

    /// The low-water key of a keyspace, if walks within these bounds can use it.
    pub(crate) fn low_water_key_for(
        &self,
        keyspace: &KeyspaceState,
        bounds: Option<&Bounds>,
    ) -> Option<LowWaterKeyOf> {
        bounds.is_some_and(Bounds::begin_keyspace).then(|| LowWaterKeyOf {
            id: keyspace.id,
            counter: keyspace.counter.clone(),
            published: self.published.clone(),
        })
    }

    /// A pinned state, for iterators over a keyspace that is there.
    pub(crate) fn source_at(&self, pin: &SnapshotGuard) -> Result<ReadSource> {
        let view = self.view.get();
        view.check_open()?;
        self.read_cost.walk_started(&view);
        let _pin = Some(pin.clone());
        Ok(ReadSource { view, at: pin.seq(), _pin, own: None, reads: None, low_water_key: None })
    }
}

/// Gives access to the low-water key of a keyspace (txn/low_water_key.rs).
#[derive(Clone)]
pub(crate) struct LowWaterKeyOf {
    id: KeyspaceId,
    counter: Arc<Counter>,
    published: Arc<Published>,
}

impl ReadSource {
    /// The encoded key below which the reader finds nothing in its keyspace, if known.
    pub(crate) fn first_possible(&self) -> Option<Vec<u8>> {
        let low_water_key = self.low_water_key.as_ref()?;
        let head = low_water_key.counter.low_water_key.head_at(self.at);
        (head > 0).then(|| encode_key(low_water_key.id, &first_key(head)))
    }

    /// The encoded key from which a walk within these bounds may begin, if known.
    pub(crate) fn first_within(&self, bounds: &Bounds) -> Option<Vec<u8>> {
        match (&self.own, &bounds.lower) {
            (Some(own), Bound::Included(lower)) => own.set.first_possible(lower),
            (None, _) if bounds.begin_keyspace() => self.first_possible(),
            _ => None,
        }
    }

    /// Returns whether the first key of a walk within these bounds is worth recording.
    pub(crate) fn notes(&self, bounds: &Bounds) -> bool {
        match &self.own {
            Some(own) => !own.set.is_empty(),
            None => self.low_water_key.is_some() && bounds.begin_keyspace(),
        }
    }

    /// Records the first key found by a walk from the low-water key or the start of the keyspace, or of a
    /// transaction. `None`: it found no key.
    pub(crate) fn note_first(&self, bounds: &Bounds, encoded: Option<&[u8]>) {
        if let (Some(own), Bound::Included(lower), Some(first)) = (&self.own, &bounds.lower, encoded) {
            own.set.note_first(lower, first);
        }
        let Some(low_water_key) = &self.low_water_key else { return };
        // Without removals there is nothing to skip.
        let removals: u64 = self.view.memtables().map(|memtable| memtable.removals()).sum();
        if removals < REMOVALS_MIN && low_water_key.counter.low_water_key.head_at(self.at) == 0 {
            return;
        }
        let head = match encoded.map(decode_key) {
            Some(Some((_, user_key))) => head_of(user_key),
            Some(None) => return,
            None => u64::MAX,
        };
        // low_water_key.2: a view that was replaced before the reader learnt its commit number may lack what
        // that number sees.
        if self.view.newest_possible() < self.at {
            return;
        }
        low_water_key.published.note_low_water_key();
        low_water_key.counter.low_water_key.raise(self.at, head, || low_water_key.published.entered());
    }
}
