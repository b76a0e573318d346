//! Keyspaces: names, ids, and whether they still exist.
//!
//! ```text
//!   keyspace 0:  "n" + name --> id (varint)        the catalog, stored like any other data
//!                "i"        --> next id (varint)
//! ```
//!
//! catalog.1. Creating, dropping and renaming are commits like any other: atomic, logged, recovered.
//! catalog.2. An id is never used again.
//! catalog.3. A keyspace is marked as being dropped before its drop is committed; commits that come later are refused, so nothing
//!      is written behind the drop, which may fail.
//! catalog.4. To readers a keyspace is there, whole, until its drop is committed, and gone from then on. Who finds it marked, having
//!      chosen the state to read, asks whether the newest state still has its name: what was chosen is no newer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::encoding::bytes::{ByteReader, put_varint};
use crate::txn::commit::KeyspaceLife;
use crate::txn::drop_mark::DropMark;
use crate::txn::snapshots::{Counter, Published};
use crate::txn::write_set::WriteSet;
use crate::types::canary::{self, Canary};
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
    /// Commits are refused: it is being dropped, or has been.
    dropping: DropMark,
    /// It is gone.
    dropped: AtomicBool,
    pub(crate) counter: Arc<Counter>,
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
        KeyspaceLife { name: self.name(), dropping: self.dropping.clone() }
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
    /// Held by whoever creates, drops or renames.
    changes: Mutex<NextId>,
    published: Arc<Published>,
}

pub(crate) struct NextId(u32);

impl NextId {
    /// The id of the keyspace that is created next.
    pub(super) fn get(&self) -> u32 {
        self.0
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
            changes: Mutex::new(NextId(FIRST_ID)),
            published: published.clone(),
        };
        catalog.insert(DEFAULT_NAME, KeyspaceId::DEFAULT);
        let mut ids = BTreeSet::from([KeyspaceId::CATALOG.get(), KeyspaceId::DEFAULT.get()]);
        let mut next = FIRST_ID;
        for entry in entries {
            let (key, value) = entry?;
            let shown = || key.escape_ascii().to_string();
            let id = ByteReader::new(&value).varint().ok().and_then(|id| u32::try_from(id).ok());
            let id = id.ok_or_else(|| corrupt(format!("no id under {:?}", shown())))?;
            match name_of(&key) {
                Some(name) if !is_stored_name(name) => {
                    return Err(corrupt(format!("{:?} is the name of no keyspace", shown())));
                }
                Some(_) if !ids.insert(id) => {
                    return Err(corrupt(format!("{:?} has id {id}, which is another's", shown())));
                }
                Some(name) => drop(catalog.insert(name, KeyspaceId::new(id))),
                None if key == NEXT_ID_KEY => next = id,
                None => return Err(corrupt(format!("unknown key {:?}", shown()))),
            }
        }
        // catalog.2: what is created next must not find the keys of another.
        match ids.last() {
            Some(last) if *last >= next => Err(corrupt(format!("id {last} has not been given out yet"))),
            _ => {
                catalog.changes.lock().0 = next;
                Ok(catalog)
            }
        }
    }

    fn insert(&self, name: &str, id: KeyspaceId) -> Arc<KeyspaceState> {
        let name: Arc<str> = name.into();
        let state = Arc::new(KeyspaceState {
            id,
            name: RwLock::new(name.clone()),
            dropping: DropMark::default(),
            dropped: AtomicBool::default(),
            counter: self.published.counter(id),
        });
        self.names.write().insert(name, state.clone());
        state
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, NextId> {
        self.changes.lock()
    }

    /// Creates a keyspace; `commit` makes the given writes durable.
    pub(crate) fn create(
        &self,
        next: &mut NextId,
        name: &str,
        commit: impl FnOnce(WriteSet) -> Result<()>,
    ) -> Result<Arc<KeyspaceState>> {
        check_name(name)?;
        if self.get(name).is_some() {
            return Err(Error::KeyspaceExists(name.to_owned()));
        }
        let id = next.0;
        let following = id.checked_add(1).ok_or_else(|| Error::Invalid("no keyspace ids left".into()))?;
        let mut set = WriteSet::new();
        set.put(&name_key(name), &varint(id));
        set.put(&encode_key(KeyspaceId::CATALOG, NEXT_ID_KEY), &varint(following));
        commit(set)?;
        next.0 = following;
        Ok(self.insert(name, KeyspaceId::new(id)))
    }

    /// Drops a keyspace (catalog.3); `commit` also removes its data.
    pub(crate) fn drop(
        &self,
        _turn: &mut NextId,
        name: &str,
        commit: impl FnOnce(WriteSet, KeyspaceId) -> Result<()>,
    ) -> Result<()> {
        let state = self.changeable(name)?;
        let mut set = WriteSet::new();
        set.remove(&name_key(name));
        let marks = !canary::is_set(Canary::DropNotMarked);
        let commit = || commit(set, state.id);
        if marks { state.dropping.set_for(commit) } else { commit() }?;
        state.dropped.store(marks, Ordering::Release);
        self.names.write().remove(name);
        Ok(())
    }

    /// Renames a keyspace.
    pub(crate) fn rename(
        &self,
        _turn: &mut NextId,
        from: &str,
        to: &str,
        commit: impl FnOnce(WriteSet) -> Result<()>,
    ) -> Result<()> {
        check_name(to)?;
        let state = self.changeable(from)?;
        if self.get(to).is_some() {
            return Err(Error::KeyspaceExists(to.to_owned()));
        }
        let mut set = WriteSet::new();
        set.remove(&name_key(from));
        set.put(&name_key(to), &varint(state.id.get()));
        commit(set)?;
        let to: Arc<str> = to.into();
        let mut names = self.names.write();
        names.remove(from);
        *state.name.write() = to.clone();
        names.insert(to, state);
        Ok(())
    }

    fn changeable(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        if name == DEFAULT_NAME {
            return Err(Error::Invalid(
                "the keyspace \"default\" can be cleared, not dropped or renamed".into(),
            ));
        }
        self.get(name).ok_or_else(|| Error::KeyspaceNotFound(name.to_owned()))
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
