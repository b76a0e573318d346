//! Collects writes for a commit: checks limits, encodes keys, and records the keyspaces.
//!
//! ```text
//!   put, remove, batch, transaction --> Writes --CommitRequest--> Core::submit (engine/writes/admission.rs)
//! ```
//!
//! A key or value that is too long is refused before anything is written. The check covers the encoded bytes:
//! the user's `as_ref` is called once, because it may return different bytes each time. A commit takes no
//! more puts and removals than a write set can number.

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use super::bounds::half_open;
use super::points::Point;
use crate::blob::{BlobPointer, BlobWriter};
use crate::encoding::operand::{LIST_BYTES_MAX, Operand};
use crate::engine::core::Core;
use crate::engine::state::catalog::{Catalog, KeyspaceState};
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::engine::writes::catalog_changes::Changes;
use crate::read::fold::{Base, Operands};
use crate::read::operators::none_of;
use crate::read::point::PointQuery;
use crate::read::view::ReadView;
use crate::txn::blobs::BlobUse;
use crate::txn::commit::{CommitRequest, Durability, KeyspaceLife};
use crate::txn::counts::count_deltas;
use crate::txn::layers::{Layers, OwnAnswer};
use crate::txn::own::OwnWrites;
use crate::txn::private::PrivateWrites;
use crate::txn::read_set::ReadSet;
use crate::txn::snapshots::SnapshotGuard;
use crate::txn::write_set::{Below, CountDeltas, Own, WriteSet};
use crate::types::bounds::Bounds;
use crate::types::canary::{self, Canary};
use crate::types::expiry::{EXPIRY_BYTES, Expiry, Lifetime};
use crate::types::key::{KeyBuf, decode_key};
use crate::types::limits::{VALUE_BYTES_MAX, check_key, check_value};
use crate::types::op::Kind;
use crate::types::{Error, KeyspaceId, Result, SeqNo, Value};

/// Bytes of large values that a commit keeps in memory. Further large values are written at once.
const LARGE_BYTES_MAX: usize = 256 << 10;

/// Number of keyspaces of a commit from which on they are looked up in a set instead of scanned.
const LOOKED_UP_KEYSPACES_MIN: usize = 8;

/// Writes for a commit, with the keyspaces they touch.
#[derive(Clone, Default)]
pub(crate) struct Writes {
    pub(crate) set: Arc<WriteSet>,
    /// Earlier writes that were moved out of `set` when it became too large.
    pub(crate) layers: Layers,
    /// The keyspaces, without repetition.
    pub(super) keyspaces: Arc<Vec<KeyspaceLife>>,
    /// The ids of `keyspaces`, if there are [`LOOKED_UP_KEYSPACES_MIN`] or more.
    pub(super) ids: BTreeSet<KeyspaceId>,
    /// The keyspace of the last write.
    pub(super) last: Option<KeyspaceId>,
    /// Keyspaces created, dropped and renamed by the commit.
    pub(super) changes: Changes,
    /// Bytes of the large values in the set.
    pub(super) large_bytes: usize,
    /// Writes further large values to blob files.
    blobs: Option<Arc<Mutex<BlobWriter>>>,
    /// The savepoints, oldest first.
    pub(super) points: Vec<Point>,
    /// Keeps all writes in the set, whatever their size.
    stays_in_memory: bool,
}

/// A value of `len` bytes from a reader.
pub(super) struct ValueSource<'a, R> {
    pub(super) reader: &'a mut R,
    pub(super) len: u64,
}

/// Conditions and notices of a commit.
#[derive(Default)]
pub(crate) struct CommitConditions {
    /// The snapshot from which a transaction has read.
    pub(crate) since: Option<SnapshotGuard>,
    /// What the transaction and its parts have read, if that must not have changed.
    pub(crate) reads: Vec<Arc<ReadSet>>,
    /// Whether the commit holds the exclusive turn.
    pub(crate) is_exclusive: bool,
    /// Notices to send once the commit is visible.
    pub(crate) notices: Vec<(Arc<str>, Value)>,
}

impl Writes {
    /// Makes the commit request. None of the writes changes the catalog.
    pub(crate) fn into_request(self, core: &Core, durability: Durability) -> Result<CommitRequest> {
        let (set, blobs) = (self.settled(core)?, self.blob_use()?);
        let Writes { layers, keyspaces, .. } = self;
        Ok(CommitRequest { blobs, keyspaces, ..CommitRequest::of(set, layers, durability) })
    }

    /// Commits the writes, and keeps them in case the commit fails.
    pub(super) fn commit(
        &self,
        core: &Core,
        durability: Durability,
        conditions: CommitConditions,
    ) -> Result<SeqNo> {
        core.submit_changing(self.request(core, durability, conditions)?, &self.changes)
    }

    /// Makes the commit request, and keeps the writes in case the commit fails.
    pub(super) fn request(
        &self,
        core: &Core,
        durability: Durability,
        conditions: CommitConditions,
    ) -> Result<CommitRequest> {
        let CommitConditions { since, reads, is_exclusive, notices } = conditions;
        let set = self.settled(core)?;
        Ok(CommitRequest {
            blobs: self.blob_use()?,
            since,
            reads,
            may_pass: is_exclusive,
            keyspaces: self.keyspaces.clone(),
            drops: self.changes.drop_marks(),
            notices,
            ..CommitRequest::of(set, self.layers.clone(), durability)
        })
    }

    /// Returns the used blob files, after making their values readable.
    fn blob_use(&self) -> Result<BlobUse> {
        let mut used = BlobUse::default();
        if let Some(writer) = &self.blobs {
            let mut writer = writer.lock();
            writer.flush()?;
            used.extend(writer.leases(), writer.bytes());
        }
        Ok(used)
    }

    /// Returns whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.layers.is_empty() && self.changes.is_empty()
    }

    /// Returns whether no keyspace is created, dropped or renamed.
    pub(super) fn changes_nothing(&self) -> bool {
        self.changes.is_empty()
    }

    /// Number of puts and removals, as far as they are still counted separately.
    pub(crate) fn op_count(&self) -> usize {
        self.set.op_count() + self.layers.op_count()
    }

    /// Bytes of keys and values, and the log's overhead.
    pub(crate) fn byte_len(&self) -> usize {
        self.set.byte_len() + self.layers.byte_len()
    }

    /// Looks up an encoded key in these writes.
    pub(super) fn find<W: PointQuery>(&self, core: &Core, key: &[u8]) -> Result<OwnAnswer<W::Out>> {
        let own = self.set.get(key);
        match own {
            Own::Removed => return Ok(OwnAnswer::Known(None)),
            Own::Untouched if self.layers.is_empty() => return Ok(OwnAnswer::Below(Operands::default())),
            _ => {}
        }
        if !matches!(own, Own::Put(entry) if !entry.kind.needs_fetch()) {
            self.blob_use()?;
        }
        let guard = crate::sync::pin();
        let view = core.view.load(&guard);
        let mut operands = Operands::default();
        match own {
            Own::Put(entry) if view.has_expired::<W>(Expiry::of_version(entry.kind, entry.value)) => {
                return Ok(OwnAnswer::Known(None));
            }
            Own::Put(entry) => {
                let value = W::of_entry(&entry, view.version.blobs());
                return value.map(|value| OwnAnswer::Known(Some(value)));
            }
            Own::Operands(lists, below) => {
                // Join the lists: there may be many.
                operands.push(lists.into_iter().rev().collect::<Vec<_>>().concat().into());
                let base = match below {
                    Below::Put(entry) => Some(Base::of(entry.kind, entry.value)),
                    Below::Removed => None,
                    Below::Untouched => return self.layers.find::<W>(key, operands, view, &guard),
                };
                return view.folded::<W>(key, operands, base).map(OwnAnswer::Known);
            }
            Own::Removed | Own::Untouched => {}
        }
        self.layers.find::<W>(key, operands, view, &guard)
    }

    /// Merges an operand into the current value of a key (fold.3).
    pub(crate) fn merge(
        &mut self,
        core: &Core,
        keyspace: &KeyspaceState,
        key: &[u8],
        operand: &[u8],
        lifetime: Lifetime,
    ) -> Result<()> {
        let lifetime_ms = match canary::is_set(Canary::MergeIgnoresDefault) {
            true => 0,
            false => keyspace.lifetime_ms(lifetime),
        };
        // A stored zero means unlimited. A lifetime of one millisecond that has passed expires at once.
        let is_over = matches!(lifetime, Lifetime::For(ttl) if ttl.is_zero());
        let at_ms = core.time.now_ms().saturating_sub(u64::from(is_over));
        self.merge_of(core, keyspace, key, Operand { at_ms, lifetime_ms, bytes: operand })
    }

    /// Merges an operand that holds the time of its merge.
    pub(super) fn merge_of(
        &mut self,
        core: &Core,
        keyspace: &KeyspaceState,
        key: &[u8],
        operand: Operand<'_>,
    ) -> Result<()> {
        check_key(key)?;
        if operand.bytes.len() > VALUE_BYTES_MAX - LIST_BYTES_MAX {
            return Err(Error::ValueTooLong { len: operand.bytes.len() });
        }
        if self.changes.creates_without_operator(keyspace.id) {
            return Err(none_of(&keyspace.name()));
        }
        let operator = core.operators.of(keyspace.id).map_err(|_| none_of(&keyspace.name()))?;
        operator.check(key, operand.bytes)?;
        // Keep the writes to which a savepoint may roll back.
        let kept = self.points.last().filter(|point| point.set.is_none());
        let kept = kept.map_or(0, |point| point.mark.op_count());
        let encoded = KeyBuf::new(keyspace.id, key);
        self.touch(keyspace)?.merge(&encoded, operand, &operator, kept);
        Ok(())
    }

    /// Returns the set in the form to commit: operands that follow a put or a removal in it become puts.
    pub(super) fn settled(&self, core: &Core) -> Result<Arc<WriteSet>> {
        let settled = self.set.settled(|operands, base| {
            // The base may be in a blob file.
            self.blob_use()?;
            let mut lists = Operands::default();
            lists.push(Value::copy_of(operands.value));
            let base = base.kind.is_live().then(|| Base::of(base.kind, base.value));
            lists.fold(operands.key, base, core.view.get().fold_context())
        })?;
        Ok(settled.map_or_else(|| self.set.clone(), Arc::new))
    }

    /// Keeps all later writes in the set, whatever their size.
    pub(super) fn stay_in_memory(&mut self) {
        self.stays_in_memory = true;
    }

    /// Returns the keyspaces that the writes touch.
    pub(super) fn keyspaces(&self) -> &[KeyspaceLife] {
        &self.keyspaces
    }

    /// Returns the writes so far, for iterators.
    pub(super) fn own(&self) -> Result<OwnWrites> {
        self.blob_use()?;
        Ok(OwnWrites { set: self.set.clone(), layers: self.layers.clone() })
    }

    /// Returns how the writes change the live counts at `at`. `count` returns the live count of a keyspace.
    pub(super) fn count_deltas(
        &self,
        core: &Core,
        view: &ReadView,
        at: SeqNo,
        count: impl Fn(KeyspaceId) -> Result<u64>,
    ) -> Result<CountDeltas> {
        if self.layers.is_empty() {
            return count_deltas(&self.set, view, at, count);
        }
        let mut layers = self.layers.clone();
        core.push_piece(self.settled(core)?, &mut layers);
        let writes = PrivateWrites::new(&layers);
        writes.map_or(Ok(CountDeltas::new()), |writes| writes.count_deltas(view, at, count))
    }

    /// Before a write to a transaction or batch: moves the set to a layer if it is large
    /// (engine/writes/adoption.rs).
    pub(super) fn make_room(&mut self, core: &Core) -> Result<()> {
        let bytes = self.set.memory_bytes() as u64;
        let (small, large) = (core.options.piece_bytes(), core.options.adoption_bytes());
        if self.stays_in_memory || bytes < small || (bytes < large && self.layers.is_empty()) {
            return Ok(());
        }
        // Operands may be in a blob file.
        self.blob_use()?;
        let settled = self.settled(core)?;
        core.make_room_for_piece(&mut self.layers)?;
        for point in self.points.iter_mut().filter(|point| point.set.is_none()) {
            point.set = Some(self.set.clone());
        }
        self.set = Arc::new(self.layers.spares.take());
        core.push_piece(settled, &mut self.layers);
        Ok(())
    }

    /// Returns the catalog changes, and the set for their entries.
    pub(super) fn changes_mut(&mut self) -> (&mut Changes, &mut WriteSet) {
        (&mut self.changes, Arc::make_mut(&mut self.set))
    }

    pub(super) fn set_options(
        &mut self,
        core: &Core,
        keyspace: &Arc<KeyspaceState>,
        options: KeyspaceOptions,
    ) -> Result<()> {
        keyspace.check_alive()?;
        if self.changes.creates(keyspace.id)
            && let Some(name) = &options.merge_operator
        {
            // For merges of the same commit. No other keyspace gets this number.
            let state = keyspace.clone();
            core.operators.set(keyspace.id, name, move || state.name().to_string());
        }
        self.changes.set_options(Arc::make_mut(&mut self.set), keyspace, options);
        Ok(())
    }

    pub(super) fn drop_keyspace(&mut self, catalog: &Catalog, name: &str) -> Result<()> {
        let dropped = self.changes.drop(catalog, Arc::make_mut(&mut self.set), name)?;
        let is_new = self.note(&dropped);
        let lives = Arc::make_mut(&mut self.keyspaces);
        // A keyspace that was not noted before is the last one.
        let life =
            if is_new { lives.last_mut() } else { lives.iter_mut().find(|life| life.id == dropped.id) };
        life.expect("it is noted").dropping = None;
        Ok(())
    }

    fn touch(&mut self, keyspace: &KeyspaceState) -> Result<&mut WriteSet> {
        keyspace.check_alive()?;
        // A keyspace that does not exist yet belongs to another commit, or was created in a part that was
        // rolled back.
        let is_others = keyspace.is_dropping() && !self.changes.creates(keyspace.id);
        if is_others || self.changes.drops(keyspace.id) {
            return Err(keyspace.not_found());
        }
        if !self.set.has_room() {
            let text = "a batch or transaction takes 4,294,967,295 puts and removals: commit it in parts";
            return Err(Error::Invalid(text.to_owned()));
        }
        if self.last != Some(keyspace.id) {
            self.note(keyspace);
        }
        // Copies if an iterator of the transaction still reads the set.
        Ok(Arc::make_mut(&mut self.set))
    }

    /// Adds the keyspace of a write to the list, unless it is in it. Returns whether it was not.
    fn note(&mut self, keyspace: &KeyspaceState) -> bool {
        let id = keyspace.id;
        let is_new = if self.keyspaces.len() < LOOKED_UP_KEYSPACES_MIN {
            self.keyspaces.iter().all(|noted| noted.id != id)
        } else {
            if self.ids.is_empty() {
                self.ids.extend(self.keyspaces.iter().map(|noted| noted.id));
            }
            self.ids.insert(id)
        };
        if is_new {
            let life = keyspace.life();
            let dropping = life.dropping.filter(|_| !self.changes.creates(id));
            Arc::make_mut(&mut self.keyspaces).push(KeyspaceLife { dropping, ..life });
        }
        self.last = Some(id);
        is_new
    }

    /// Sets a key to a value with this lifetime.
    pub(crate) fn put_for(
        &mut self,
        core: &Core,
        keyspace: &KeyspaceState,
        key: &[u8],
        value: &[u8],
        lifetime: Lifetime,
    ) -> Result<()> {
        self.put_until(core, keyspace, key, value, keyspace.expiry(&core.time, lifetime))
    }

    /// Sets a key to a value that expires at this moment. `None`: never.
    pub(super) fn put_until(
        &mut self,
        core: &Core,
        keyspace: &KeyspaceState,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        if expiry.is_some() && value.len() > VALUE_BYTES_MAX - EXPIRY_BYTES {
            return Err(Error::ValueTooLong { len: value.len() });
        }
        if core.blobs.takes(keyspace.id, value.len()) && !self.stays_in_memory {
            if self.large_bytes + value.len() > LARGE_BYTES_MAX {
                return self.put_blob(core, keyspace, key, expiry, |blobs| blobs.put(value));
            }
            self.large_bytes += value.len();
        }
        let encoded = KeyBuf::new(keyspace.id, key);
        self.touch(keyspace)?.put_until(Kind::PUT, &encoded, expiry, value);
        Ok(())
    }

    /// Sets a key to a value of `len` bytes from a reader.
    pub(super) fn put_from(
        &mut self,
        core: &Core,
        keyspace: &KeyspaceState,
        key: &[u8],
        source: ValueSource<'_, impl Read>,
        lifetime: Lifetime,
    ) -> Result<()> {
        check_key(key)?;
        let ValueSource { reader, len } = source;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { len });
        }
        let mut next = |bytes: &mut [u8]| {
            reader.read_exact(bytes).map_err(|e| Error::io("read a value from", "its reader", e))
        };
        if len > LARGE_BYTES_MAX && core.blobs.takes(keyspace.id, len) && !self.stays_in_memory {
            let expiry = keyspace.expiry(&core.time, lifetime);
            return self.put_blob(core, keyspace, key, expiry, |blobs| blobs.put_from(len, next));
        }
        let mut value = vec![0; len];
        next(&mut value)?;
        self.put_for(core, keyspace, key, &value, lifetime)
    }

    /// Sets a key to a value that is written to a blob file at once.
    #[cold]
    fn put_blob(
        &mut self,
        core: &Core,
        keyspace: &KeyspaceState,
        key: &[u8],
        expiry: Option<Expiry>,
        write: impl FnOnce(&mut BlobWriter) -> Result<BlobPointer>,
    ) -> Result<()> {
        self.touch(keyspace)?;
        core.check_able()?;
        let writer = self.blobs.get_or_insert_with(|| Arc::new(Mutex::new(BlobWriter::new(&core.blobs))));
        let pointer = write(&mut writer.lock())?;
        let mut encoded = Vec::new();
        pointer.encode(&mut encoded);
        let key = KeyBuf::new(keyspace.id, key);
        self.touch(keyspace)?.put_until(Kind::PUT_BLOB, &key, expiry, &encoded);
        Ok(())
    }

    pub(crate) fn delete(&mut self, keyspace: &KeyspaceState, key: &[u8]) -> Result<()> {
        check_key(key)?;
        let encoded = KeyBuf::new(keyspace.id, key);
        self.touch(keyspace)?.remove(&encoded);
        Ok(())
    }

    /// Removes all keys between encoded bounds.
    pub(crate) fn delete_range(&mut self, keyspace: &KeyspaceState, bounds: Bounds) -> Result<()> {
        for bound in [&bounds.lower, &bounds.upper] {
            if let Bound::Included(key) | Bound::Excluded(key) = bound
                && let Some((_, user_key)) = decode_key(key)
            {
                check_key(user_key)?;
            }
        }
        let (start, end) = half_open(&bounds);
        self.touch(keyspace)?.delete_range(&start, &end);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_env::{Env, MemFs};

    use super::*;
    use crate::Db;

    #[test]
    fn each_keyspace_of_a_commit_is_counted_and_may_refuse_it_however_many_there_are() {
        const MIN: usize = LOOKED_UP_KEYSPACES_MIN;
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        for count in [1, MIN - 1, MIN, MIN + 1, 50] {
            let name = |n: usize| format!("{n} of {count}");
            let maps: Vec<_> = (0..count).map(|n| db.create_keyspace(&name(n)).unwrap()).collect();
            let mut order: Vec<usize> = (0..4).flat_map(|_| 0..count).collect();
            rng.shuffle(&mut order);
            let mut writes = Writes::default();
            for (key, &n) in order.iter().enumerate() {
                writes
                    .put_for(&db.handle.core, &maps[n].state, &key.to_be_bytes(), b"", Lifetime::AsKeyspace)
                    .unwrap();
            }
            let mut noted: Vec<_> = writes.keyspaces.iter().map(|life| life.id).collect();
            noted.sort_unstable();
            assert_eq!(noted, maps.iter().map(|map| map.state.id).collect::<Vec<_>>(), "each once");
            db.handle
                .core
                .submit(writes.clone().into_request(&db.handle.core, Durability::Sync).unwrap())
                .unwrap();
            assert!(maps.iter().all(|map| map.len().unwrap() == 4), "counts.1");
            let dropped = name(rng.usize(..count));
            db.drop_keyspace(&dropped).unwrap();
            let refused =
                db.handle.core.submit(writes.into_request(&db.handle.core, Durability::Sync).unwrap());
            let is_named = matches!(&refused, Err(Error::KeyspaceNotFound(gone)) if *gone == dropped);
            assert!(is_named, "catalog.3: {refused:?}");
        }
    }
}
