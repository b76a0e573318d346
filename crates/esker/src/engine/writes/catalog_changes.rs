//! Keyspaces that a commit creates, drops and renames, together with its other writes.
//!
//! ```text
//!   batch, transaction --create, drop, rename--> Changes: names after the commit; write set: catalog entries
//!   commit: lock the catalog --names as expected?--> store ids --> submit --> apply names
//!                                                                    `--leader: marks dropped keyspaces
//! ```
//!
//! - The names that a commit changes still have the keyspaces that the commit found, or the whole commit is
//!   refused.
//! - An id is stored as given out by a separate commit before the commit that uses it. If that commit fails,
//!   the id is not reused. An id that the caller chose is stored by the commit itself.
//!
//! catalog_changes.3. A keyspace takes no other writes before the commit that creates it has succeeded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::encoding::catalog_key::{name_key, options_key};
use crate::engine::state::catalog::{
    Catalog, DEFAULT_NAME, KeyspaceState, NEXT_ID_KEY, StoredId, check_name, varint,
};
use crate::engine::state::history::Kept;
use crate::engine::state::keyspace_options::{KeyspaceOptions, StoredOptions, check_created};
use crate::engine::writes::Writes;
use crate::txn::commit::{CommitRequest, Durability};
use crate::txn::drop_mark::DropMark;
use crate::txn::snapshots::Published;
use crate::txn::write_set::WriteSet;
use crate::types::canary::{self, Canary};
use crate::types::key::{encode_key, keyspace_end};
use crate::types::{Contended, Error, KeyspaceId, Result, SeqNo};

type Names = BTreeMap<Arc<str>, Option<Arc<KeyspaceState>>>;

/// The changes of a commit to the catalog.
#[derive(Clone, Default)]
pub(crate) struct Changes {
    /// The keyspace that had each name when the commit first looked it up.
    expected: Names,
    /// The keyspace that has each name after the commit.
    names: Names,
    created: Vec<Arc<KeyspaceState>>,
    created_ids: BTreeSet<KeyspaceId>,
    /// Ids of created keyspaces that the caller chose.
    numbered: Vec<KeyspaceId>,
    dropped: Vec<Arc<KeyspaceState>>,
    dropped_ids: BTreeSet<KeyspaceId>,
    /// Options that keyspaces get, including created ones. The last of several for one keyspace counts.
    asked_for: Vec<(Arc<KeyspaceState>, KeyspaceOptions)>,
}

impl Changes {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.asked_for.is_empty()
    }

    /// Returns whether the commit creates this keyspace.
    pub(crate) fn creates(&self, id: KeyspaceId) -> bool {
        self.created_ids.contains(&id)
    }

    /// Returns whether the commit creates this keyspace without a merge operator.
    pub(crate) fn creates_without_operator(&self, id: KeyspaceId) -> bool {
        let is_given = |(state, options): &(Arc<KeyspaceState>, KeyspaceOptions)| {
            state.id == id && options.merge_operator.is_some()
        };
        self.creates(id) && !self.asked_for.iter().any(is_given)
    }

    /// Returns whether the commit drops this keyspace.
    pub(crate) fn drops(&self, id: KeyspaceId) -> bool {
        self.dropped_ids.contains(&id)
    }

    /// The drop marks of dropped keyspaces. Those that the commit itself created are marked already.
    pub(crate) fn drop_marks(&self) -> Vec<DropMark> {
        let is_marked =
            |state: &&Arc<KeyspaceState>| !self.creates(state.id) && !canary::is_set(Canary::DropNotMarked);
        self.dropped.iter().filter(is_marked).map(|state| state.dropping.clone()).collect()
    }

    /// The keyspace with this name, as the commit sees it.
    pub(crate) fn find(&self, catalog: &Catalog, name: &str) -> Option<Arc<KeyspaceState>> {
        self.names.get(name).cloned().unwrap_or_else(|| catalog.get(name))
    }

    /// The keyspace with this name, to be dropped or renamed.
    fn find_changeable(&self, catalog: &Catalog, name: &str) -> Result<Arc<KeyspaceState>> {
        if name == DEFAULT_NAME {
            let text = "the keyspace \"default\" can be cleared, not dropped or renamed";
            return Err(Error::Invalid(text.to_owned()));
        }
        self.find(catalog, name).ok_or_else(|| Error::KeyspaceNotFound(name.to_owned()))
    }

    fn check_free(&self, catalog: &Catalog, name: &str) -> Result<()> {
        check_name(name)?;
        match self.find(catalog, name) {
            Some(_) => Err(Error::KeyspaceExists(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Changes the keyspace of a name. `before` is the one that the commit sees.
    fn set(&mut self, name: &str, before: Option<Arc<KeyspaceState>>, after: Option<Arc<KeyspaceState>>) {
        self.expected.entry(name.into()).or_insert(before);
        self.names.insert(name.into(), after);
    }

    /// Creates a keyspace that only this commit can write (catalog_changes.3).
    pub(crate) fn create(
        &mut self,
        catalog: &Catalog,
        set: &mut WriteSet,
        name: &str,
    ) -> Result<Arc<KeyspaceState>> {
        self.check_free(catalog, name)?;
        let state = catalog.reserve(name)?;
        Ok(self.make(set, name, state))
    }

    /// Creates a keyspace with this id, for a copy that recreates the keyspaces of its original. The commit
    /// is refused if a keyspace has the id.
    pub(crate) fn create_numbered(
        &mut self,
        catalog: &Catalog,
        set: &mut WriteSet,
        name: &str,
        id: KeyspaceId,
    ) -> Result<Arc<KeyspaceState>> {
        self.check_free(catalog, name)?;
        self.numbered.push(id);
        Ok(self.make(set, name, catalog.reserve_numbered(name, id)))
    }

    fn make(&mut self, set: &mut WriteSet, name: &str, state: Arc<KeyspaceState>) -> Arc<KeyspaceState> {
        set.put(&name_key(name), &varint(state.id.get()));
        self.set(name, None, Some(state.clone()));
        self.created_ids.insert(state.id);
        self.created.push(state.clone());
        state
    }

    /// Sets the options of a keyspace. Those of a keyspace that the commit creates precede its other writes,
    /// so that a replay of the commit knows them in time. The commit number from which its history holds is
    /// added at the commit.
    pub(crate) fn set_options(
        &mut self,
        set: &mut WriteSet,
        state: &Arc<KeyspaceState>,
        options: KeyspaceOptions,
    ) {
        if self.creates(state.id) {
            let stored = StoredOptions::new(&options, Kept::default());
            set.put(&options_key(state.id), &stored.encode());
        }
        self.asked_for.retain(|(other, _)| other.id != state.id);
        self.asked_for.push((state.clone(), options));
    }

    /// Drops a keyspace and everything in it.
    pub(crate) fn drop(
        &mut self,
        catalog: &Catalog,
        set: &mut WriteSet,
        name: &str,
    ) -> Result<Arc<KeyspaceState>> {
        let state = self.find_changeable(catalog, name)?;
        set.remove(&name_key(name));
        set.delete_range(&encode_key(state.id, &[]), &keyspace_end(state.id));
        if catalog.has_options(state.id) || self.asked_for.iter().any(|(to, _)| to.id == state.id) {
            set.remove(&options_key(state.id));
        }
        self.set(name, Some(state.clone()), None);
        self.dropped_ids.insert(state.id);
        self.dropped.push(state.clone());
        Ok(state)
    }

    /// Renames a keyspace.
    pub(crate) fn rename(
        &mut self,
        catalog: &Catalog,
        set: &mut WriteSet,
        from: &str,
        to: &str,
    ) -> Result<()> {
        check_name(to)?;
        let state = self.find_changeable(catalog, from)?;
        self.check_free(catalog, to)?;
        set.remove(&name_key(from));
        set.put(&name_key(to), &varint(state.id.get()));
        self.set(from, Some(state.clone()), None);
        self.set(to, None, Some(state));
        Ok(())
    }

    /// Refuses the commit if a name has changed its keyspace.
    fn check(&self, catalog: &Catalog, is_transaction: bool) -> Result<()> {
        for (name, expected) in &self.expected {
            let is_same = match (expected, &catalog.get(name)) {
                (Some(expected), Some(found)) => Arc::ptr_eq(expected, found),
                (None, None) => true,
                _ => false,
            };
            let keyspace = name.to_string();
            match expected {
                _ if is_same => {}
                _ if is_transaction => {
                    return Err(Error::Conflict { keyspace, contended: Contended::Keyspace });
                }
                Some(_) => return Err(Error::KeyspaceNotFound(keyspace)),
                None => return Err(Error::KeyspaceExists(keyspace)),
            }
        }
        Ok(())
    }
}

impl Writes {
    /// Commits a request that changes the catalog.
    pub(crate) fn submit_changing(&self, mut request: CommitRequest, changes: &Changes) -> Result<SeqNo> {
        if changes.is_empty() {
            return self.submit(request);
        }
        // Checked before the lock, which may stay locked for ever in the child of a fork (handle.3).
        self.check_writable()?;
        // Also before the lock, which the transaction that is waited for may need.
        let _passage = if request.may_pass { None } else { Some(self.wait_for_exclusive()?) };
        request.may_pass = true;
        let mut stored = self.catalog.lock();
        changes.check(&self.catalog, request.since.is_some())?;
        if let Some(taken) = changes.numbered.iter().find(|id| self.catalog.with_id(**id).is_some()) {
            return Err(Error::Invalid(format!("keyspace {taken} is there already")));
        }
        self.store_id(&mut request, &mut stored, changes)?;
        let counted = Counted::new(&self.published, &changes.created);
        let options = self.store_options(&mut request, changes)?;
        let seq = self.submit(request).inspect_err(|_| self.forget_options(changes))?;
        std::mem::forget(counted);
        if let Some(last) = changes.numbered.iter().max() {
            let next = stored.get().max(last.get().saturating_add(1));
            stored.set(next);
        }
        for state in &changes.dropped {
            self.published.forget(state.id);
            self.histories.set(state.id, Default::default());
            state.dropped.store(!canary::is_set(Canary::DropNotMarked), Ordering::Release);
        }
        for (state, options) in options {
            self.take_options(state.id, Some(state), options);
        }
        for state in changes.created.iter().filter(|state| !changes.drops(state.id)) {
            state.dropping.clear();
        }
        self.catalog.take(&changes.names);
        Ok(seq)
    }

    /// Adds the options that a commit sets to its writes. What they depend on is known only under the lock.
    fn store_options<'a>(
        &self,
        request: &mut CommitRequest,
        changes: &'a Changes,
    ) -> Result<Vec<(&'a Arc<KeyspaceState>, StoredOptions)>> {
        let mut stored = Vec::new();
        for (state, asked_for) in changes.asked_for.iter().filter(|(state, _)| !changes.drops(state.id)) {
            let is_own = changes.creates(state.id);
            let options = if is_own { Ok(()) } else { check_created(state) }
                .and_then(|()| self.to_store(state, &self.catalog.options_of(state.id), asked_for))
                .inspect_err(|_| self.forget_options(changes))?;
            Arc::make_mut(&mut request.set).put(&options_key(state.id), &options.encode());
            stored.push((state, options));
        }
        Ok(stored)
    }

    /// Returns to the stored history rules after a failed commit.
    fn forget_options(&self, changes: &Changes) {
        changes.asked_for.iter().for_each(|(state, _)| self.keep_history(state.id));
    }

    /// Stores the ids given out.
    fn store_id(&self, request: &mut CommitRequest, stored: &mut StoredId, changes: &Changes) -> Result<()> {
        let Some(last) = changes.created.iter().map(|state| state.id.get()).max() else { return Ok(()) };
        let next = self.catalog.next_id();
        let id_key = encode_key(KeyspaceId::CATALOG, NEXT_ID_KEY);
        if !changes.numbered.is_empty() {
            // A copy that crashes between two commits would lack a number that its original gave out.
            Arc::make_mut(&mut request.set).put(&id_key, &varint(stored.get().max(last.saturating_add(1))));
            return Ok(());
        }
        if last < stored.get() {
            return Ok(());
        }
        let mut set = WriteSet::new();
        set.put(&id_key, &varint(next));
        self.commit_encoded(set, Durability::None)?;
        stored.set(next);
        Ok(())
    }
}

/// Counts new keyspaces from their commit on. Undone if the commit fails.
struct Counted<'a> {
    published: &'a Published,
    created: &'a [Arc<KeyspaceState>],
}

impl<'a> Counted<'a> {
    fn new(published: &'a Published, created: &'a [Arc<KeyspaceState>]) -> Self {
        created.iter().for_each(|state| published.count(state.id, &state.counter));
        Counted { published, created }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.created.iter().for_each(|state| self.published.forget(state.id));
    }
}
