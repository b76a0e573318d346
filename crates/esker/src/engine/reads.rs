//! Reads of an open database: what they read from, and at which commit.
//!
//! ```text
//!   get, contains --> find_now --------> ReadView::find (read/point.rs)
//!   range, cursor --> source_now, source_at --> ReadSource --> walks (db/range.rs)
//! ```

use std::sync::Arc;

use super::catalog::{KeyspaceState, name_key, varint};
use super::core::Core;
use crate::read::point::{LOOKUPS_PER_PIN, ValueOf, Want};
use crate::read::view::ReadView;
use crate::txn::own::OwnWrites;
use crate::txn::read_set::ReadSet;
use crate::txn::snapshots::SnapshotGuard;
use crate::types::key::KeyBuf;
use crate::types::limits::check_key;
use crate::types::{Result, SeqNo, Value};

/// What an iterator reads from.
#[derive(Clone)]
pub(crate) struct ReadSource {
    pub(crate) view: Arc<ReadView>,
    pub(crate) at: SeqNo,
    /// Keeps a snapshot's versions alive for views loaded later.
    pub(crate) _pin: Option<SnapshotGuard>,
    /// A transaction's own writes, on top.
    pub(crate) own: Option<OwnWrites>,
    /// Of a serializable transaction: what it has read.
    pub(crate) reads: Option<Arc<ReadSet>>,
}

impl Core {
    /// For a reader that has chosen the state that it reads: fails if the keyspace may be gone in it (catalog.4).
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
        // By now another one may have the name, or the drop may have failed, and this one have another.
        let is_there = id.as_deref() == Some(&*varint(keyspace.id.get())) || !keyspace.is_dropping();
        if is_there { Ok(()) } else { Err(keyspace.not_found()) }
    }

    /// Looks one key up in the newest state.
    #[inline]
    pub(crate) fn find_now<W: Want>(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<W::Out>> {
        if self.cache.activity().get_begins() {
            return self.measured(|| self.find_newest::<W>(keyspace, key));
        }
        self.find_newest::<W>(keyspace, key)
    }

    #[inline(always)]
    fn find_newest<W: Want>(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<W::Out>> {
        check_key(key)?;
        let guard = crate::sync::pin();
        let view = self.view.load(&guard);
        view.check_open()?;
        self.read_cost.looked_up(view);
        let at = self.published.visible();
        self.check_there(keyspace)?;
        view.find::<W>(&KeyBuf::new(keyspace.id, key), at, &guard)
    }

    /// Looks one key up at a pinned number.
    pub(crate) fn find_at<W: Want>(
        &self,
        keyspace: &KeyspaceState,
        key: &[u8],
        at: SeqNo,
    ) -> Result<Option<W::Out>> {
        let find = || {
            check_key(key)?;
            let guard = crate::sync::pin();
            let view = self.view.load(&guard);
            view.check_open()?;
            self.read_cost.looked_up(view);
            view.find::<W>(&KeyBuf::new(keyspace.id, key), at, &guard)
        };
        if self.cache.activity().get_begins() { self.measured(find) } else { find() }
    }

    /// Measures a get.
    #[cold]
    fn measured<T>(&self, get: impl FnOnce() -> T) -> T {
        let start = self.env.clock.monotonic();
        let got = get();
        self.counters.get_latency.offer(self.env.clock.monotonic().saturating_sub(start));
        got
    }

    /// Pins the newest state.
    pub(crate) fn snapshot(&self) -> SnapshotGuard {
        self.published.snapshot(self.env.clock.monotonic())
    }

    /// The newest state, for iterators.
    #[inline]
    pub(crate) fn source_now(&self, keyspace: &KeyspaceState) -> Result<ReadSource> {
        let view = self.view.get();
        view.check_open()?;
        self.read_cost.walk_started(&view);
        let at = self.published.visible();
        self.check_there(keyspace)?;
        Ok(ReadSource { view, at, _pin: None, own: None, reads: None })
    }

    /// A pinned state, for iterators over a keyspace that is there.
    pub(crate) fn source_at(&self, pin: &SnapshotGuard) -> Result<ReadSource> {
        let view = self.view.get();
        view.check_open()?;
        self.read_cost.walk_started(&view);
        Ok(ReadSource { view, at: pin.seq(), _pin: Some(pin.clone()), own: None, reads: None })
    }
}

impl ReadSource {
    /// Looks several keys up.
    pub(crate) fn find_many<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        let mut guard = crate::sync::pin();
        let find = |(n, key): (usize, &K)| {
            // Once: it may answer differently the next time.
            let key = key.as_ref();
            check_key(key)?;
            if n.is_multiple_of(LOOKUPS_PER_PIN) {
                guard.repin();
            }
            let found = self.view.find::<ValueOf>(&KeyBuf::new(keyspace.id, key), self.at, &guard)?;
            // Many values together would keep every block that they are in.
            Ok(found.map(Value::unpinned))
        };
        keys.iter().enumerate().map(find).collect()
    }
}
