//! Keyspaces: names, ids, and whether they still exist.
//!
//! ```text
//!   keyspace 0:  "n" + name --> id (varint)        the catalog, stored like any other data
//!                "i"        --> next id (varint)
//!                "o" + id   --> options (keyspace_options.rs)
//! ```
//!
//! catalog.1. Creating, dropping and renaming are parts of commits like any other: atomic, logged, recovered (catalog_changes.rs).
//! catalog.2. An id is never used again.
//! catalog.3. A keyspace is marked as dropped as its drop is entered in the log; commits behind it are refused, so nothing is written behind
//!      the drop. One that is refused leaves no mark (drop_mark.2).
//! catalog.4. To readers a keyspace is there, whole, until its drop is committed, and gone from then on. Who finds it marked, having
//!      chosen the state to read, asks whether the newest state still has its name: what was chosen is no newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::keyspace_options::{KeyspaceOptions, options_of};
use crate::encoding::bytes::{ByteReader, put_varint};
use crate::txn::commit::KeyspaceLife;
use crate::txn::drop_mark::DropMark;
use crate::txn::snapshots::{Counter, Published};
use crate::types::key::encode_key;
use crate::types::{Error, KeyspaceId, Result};

/// The keyspace that always exists.
pub(crate) const DEFAULT_NAME: &str = "default";
const NAME_PREFIX: u8 = b'n';
pub(crate) const NEXT_ID_KEY: &[u8] = b"i";
const FIRST_ID: u32 = KeyspaceId::DEFAULT.get() + 1;

/// A keyspace as all its handles share it.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    name: RwLock<Arc<str>>,
    /// Commits are refused: it has been dropped, or has not been created yet.
    pub(super) dropping: DropMark,
    /// It is gone.
    pub(super) dropped: AtomicBool,
    pub(crate) counter: Arc<Counter>,
    /// It does not look up keys to count them. Relaxed: it orders nothing.
    pub(super) is_lazy: AtomicBool,
}

impl KeyspaceState {
    pub(crate) fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// For a commit: refuse it if the keyspace is dropped by then.
    pub(crate) fn life(&self) -> KeyspaceLife {
        let is_lazy = self.is_lazy.load(Ordering::Relaxed);
        KeyspaceLife { id: self.id, name: self.name(), dropping: Some(self.dropping.clone()), is_lazy }
    }

    /// Whether it is being dropped, or has been.
    #[inline]
    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping.is_set()
    }

    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_dropped() { Err(self.not_found()) } else { Ok(()) }
    }

    /// What those are told who look for it when it is gone.
    pub(crate) fn not_found(&self) -> Error {
        Error::KeyspaceNotFound(self.name().to_string())
    }
}

/// All keyspaces.
pub(crate) struct Catalog {
    names: RwLock<BTreeMap<Arc<str>, Arc<KeyspaceState>>>,
    /// The id of the keyspace that is created next. Relaxed: it orders nothing.
    next_id: AtomicU32,
    /// Held by whoever creates, drops or renames.
    changes: Mutex<StoredId>,
    /// Keyspaces that have options of their own stored (keyspace_options.rs).
    with_options: Mutex<BTreeMap<KeyspaceId, KeyspaceOptions>>,
    published: Arc<Published>,
}

/// The next id as it is stored: smaller ones are given out, here or by earlier openings.
pub(crate) struct StoredId(u32);

impl StoredId {
    pub(super) fn get(&self) -> u32 {
        self.0
    }

    pub(super) fn set(&mut self, next: u32) {
        self.0 = next;
    }
}

impl Catalog {
    /// Rebuilds the catalog from its stored entries (user keys and values of keyspace 0).
    pub(crate) fn load(
        published: &Arc<Published>,
        entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
        corrupt: impl Fn(String) -> Error,
    ) -> Result<Self> {
        let catalog = Catalog {
            names: RwLock::default(),
            next_id: AtomicU32::new(FIRST_ID),
            changes: Mutex::new(StoredId(FIRST_ID)),
            with_options: Mutex::default(),
            published: published.clone(),
        };
        catalog.insert(DEFAULT_NAME, KeyspaceId::DEFAULT);
        let mut ids = BTreeSet::from([KeyspaceId::CATALOG.get(), KeyspaceId::DEFAULT.get()]);
        let mut next = FIRST_ID;
        for entry in entries {
            let (key, value) = entry?;
            let shown = || key.escape_ascii().to_string();
            if options_of(&key).is_some() {
                KeyspaceOptions::decode(&value)
                    .map_err(|e| corrupt(format!("{:?}: {}", shown(), e.detail)))?;
                continue;
            }
            let id = ByteReader::new(&value).varint().ok().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| corrupt(format!("no id under {:?}", shown())))?;
            match name_of(&key) {
                Some(name) if !is_stored_name(name) => {
                    return Err(corrupt(format!("{:?} is the name of no keyspace", shown())));
                }
                Some(_) if !ids.insert(id) => {
                    return Err(corrupt(format!("{:?} has id {id}, which is another's", shown())));
                }
                Some(name) => catalog.insert(name, KeyspaceId::new(id)),
                None if key == NEXT_ID_KEY => next = id,
                None => return Err(corrupt(format!("unknown key {:?}", shown()))),
            }
        }
        // catalog.2: what is created next must not find the keys of another.
        match ids.last() {
            Some(last) if *last >= next => Err(corrupt(format!("id {last} has not been given out yet"))),
            _ => {
                catalog.next_id.store(next, Ordering::Relaxed);
                catalog.changes.lock().0 = next;
                Ok(catalog)
            }
        }
    }

    fn insert(&self, name: &str, id: KeyspaceId) {
        let state = Self::state(name.into(), id, DropMark::default(), self.published.counter(id));
        self.names.write().insert(name.into(), state);
    }

    fn state(
        name: Arc<str>,
        id: KeyspaceId,
        dropping: DropMark,
        counter: Arc<Counter>,
    ) -> Arc<KeyspaceState> {
        let (name, dropped, is_lazy) = (RwLock::new(name), AtomicBool::default(), AtomicBool::default());
        Arc::new(KeyspaceState { id, name, dropping, dropped, counter, is_lazy })
    }

    /// A keyspace, here if it is there, has these options of its own stored.
    pub(super) fn note_options(
        &self,
        id: KeyspaceId,
        state: Option<&Arc<KeyspaceState>>,
        options: KeyspaceOptions,
    ) {
        if let Some(state) = state {
            state.is_lazy.store(options.is_lazy, Ordering::Relaxed);
        }
        self.with_options.lock().insert(id, options);
    }

    /// The keyspace of this number.
    pub(super) fn with_id(&self, id: KeyspaceId) -> Option<Arc<KeyspaceState>> {
        self.names.read().values().find(|state| state.id == id).cloned()
    }

    /// The options of its own that a keyspace has stored.
    pub(crate) fn options_of(&self, id: KeyspaceId) -> KeyspaceOptions {
        self.with_options.lock().get(&id).cloned().unwrap_or_default()
    }

    /// Whether a keyspace has options of its own stored.
    pub(super) fn has_options(&self, id: KeyspaceId) -> bool {
        self.with_options.lock().contains_key(&id)
    }

    /// The id of the keyspace that is created next.
    pub(super) fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// The keyspace of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        self.names.read().get(name).cloned()
    }

    /// All keyspaces with their names of one moment, sorted by name.
    pub(crate) fn all(&self) -> Vec<(String, Arc<KeyspaceState>)> {
        self.names.read().iter().map(|(name, state)| (name.to_string(), state.clone())).collect()
    }

    /// The names of all keyspaces at one moment, sorted, but for those that were being dropped then and by now are gone, which `is_gone`
    /// tells. A drop that begins later is none of the list's concern: it may have in it no keyspace that was created before that.
    pub(crate) fn names(&self, is_gone: impl Fn(&KeyspaceState) -> bool) -> Vec<String> {
        let listed = |(name, state): (&Arc<str>, &Arc<KeyspaceState>)| {
            (name.to_string(), state.is_dropping().then(|| state.clone()))
        };
        let all: Vec<_> = self.names.read().iter().map(listed).collect();
        let there = |(name, dropping): (String, Option<Arc<KeyspaceState>>)| match dropping {
            Some(state) if is_gone(&state) => None,
            _ => Some(name),
        };
        all.into_iter().filter_map(there).collect()
    }

    /// The ids of all keyspaces.
    pub(crate) fn ids(&self) -> Vec<KeyspaceId> {
        self.names.read().values().map(|state| state.id).collect()
    }

    /// Keeps others from changing the catalog.
    pub(crate) fn lock(&self) -> MutexGuard<'_, StoredId> {
        self.changes.lock()
    }

    /// A new keyspace that nobody else finds, nor writes, before the commit that creates it (catalog_changes.3).
    pub(super) fn reserve(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        let following = |id: u32| id.checked_add(1);
        let id = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, following);
        let id = id.map_err(|_| Error::Invalid("no keyspace ids left".into()))?;
        // What others count begins with its commit.
        let counter = Arc::default();
        Ok(Self::state(name.into(), KeyspaceId::new(id), DropMark::new_set(), counter))
    }

    /// Which keyspace has which name from now on, or none.
    pub(super) fn take(&self, changed: &BTreeMap<Arc<str>, Option<Arc<KeyspaceState>>>) {
        let mut names = self.names.write();
        for (name, state) in changed {
            match state {
                Some(state) => {
                    *state.name.write() = name.clone();
                    names.insert(name.clone(), state.clone())
                }
                None => names.remove(name),
            };
        }
    }
}

/// Refuses names that no keyspace can have.
pub(crate) fn check_name(name: &str) -> Result<()> {
    match name.len() {
        0 => Err(Error::Invalid("a keyspace needs a name".into())),
        1..=1024 => Ok(()),
        len => Err(Error::Invalid(format!("a keyspace name of {len} bytes: the longest is 1024 bytes"))),
    }
}

/// Whether the catalog can have an entry for this name.
pub(crate) fn is_stored_name(name: &str) -> bool {
    name != DEFAULT_NAME && check_name(name).is_ok()
}

/// The encoded key of a name's entry.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    encode_key(KeyspaceId::CATALOG, &[&[NAME_PREFIX], name.as_bytes()].concat())
}

/// The name whose entry has this user key; `None` if it is no name's.
pub(crate) fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(&[NAME_PREFIX])?).ok()
}

/// An id as the catalog stores it.
pub(crate) fn varint(n: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, u64::from(n));
    out
}

#[cfg(test)]
mod tests;
