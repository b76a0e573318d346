//! Keyspaces: names, ids, and whether they still exist.
//!
//! ```text
//!   keyspace 0:  "n" + name --> id (varint)        the catalog, stored like any other data
//!                "i"        --> next id (varint)
//!                "o" + id   --> options (keyspace_options.rs)
//!                "t"        --> the engine's time (varint, Unix milliseconds), stored by sweeps (sweep.rs)
//! ```
//!
//! Changes of the catalog are part of ordinary commits: atomic, logged and recovered (catalog_changes.rs).
//!
//! catalog.2. An id is never reused.
//! catalog.3. A keyspace is marked as dropped when its drop is appended to the log. Later commits to it are
//!     refused, so nothing is written after the drop. A refused drop leaves no mark (drop_mark.2).
//! catalog.4. To readers a keyspace is there, whole, until its drop is committed, and then it is gone. A
//!     reader that finds the mark has already chosen its state. It checks whether the newest state, which is
//!     not older, still has the name.
//!
//! Names found at opening are kept as text. A `KeyspaceState` is made when the keyspace is first used: most
//! of many keyspaces never are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::encoding::bytes::{ByteReader, put_varint};
use crate::encoding::catalog_key::{name_of, options_of};
use crate::engine::state::keyspace_options::{Counting, KeyspaceOptions, StoredOptions};
use crate::read::time::Time;
use crate::txn::commit::KeyspaceLife;
use crate::txn::drop_mark::DropMark;
use crate::txn::snapshots::{Counter, Published};
use crate::types::expiry::{Expiry, Lifetime};
use crate::types::{Error, KeyspaceId, Result};

/// The keyspace that always exists.
pub(crate) const DEFAULT_NAME: &str = "default";
pub(crate) const NEXT_ID_KEY: &[u8] = b"i";
pub(crate) const TIME_KEY: &[u8] = b"t";
const FIRST_ID: u32 = KeyspaceId::DEFAULT.get() + 1;

/// Receives an entry of the catalog.
pub(in crate::engine) type TakeEntry<'a> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'a;

/// A keyspace, shared by all its handles.
#[derive(Debug)]
pub(crate) struct KeyspaceState {
    pub(crate) id: KeyspaceId,
    name: RwLock<Arc<str>>,
    /// Commits are refused: the keyspace has been dropped, or has not been created yet.
    pub(in crate::engine) dropping: DropMark,
    /// The keyspace is gone.
    pub(in crate::engine) dropped: AtomicBool,
    pub(crate) counter: Arc<Counter>,
    /// Whether counting is lazy: commits do not check whether keys exist. Relaxed: it orders nothing.
    is_lazy: AtomicBool,
    /// Default lifetime of puts in milliseconds; 0: unlimited. Relaxed: it orders nothing.
    pub(crate) ttl_ms: AtomicU64,
}

impl KeyspaceState {
    pub(crate) fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    #[inline]
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Puts options into force.
    pub(crate) fn take(&self, options: &KeyspaceOptions) {
        self.is_lazy.store(options.counting == Counting::Lazy, Ordering::Relaxed);
        self.ttl_ms.store(options.ttl_ms(), Ordering::Relaxed);
    }

    /// What a commit needs to refuse its writes if the keyspace is dropped by then.
    pub(crate) fn life(&self) -> KeyspaceLife {
        let is_lazy = self.is_lazy();
        KeyspaceLife { id: self.id, name: self.name(), dropping: Some(self.dropping.clone()), is_lazy }
    }

    /// Returns whether commits skip the lookup of its keys.
    #[inline]
    pub(crate) fn is_lazy(&self) -> bool {
        self.is_lazy.load(Ordering::Relaxed)
    }

    /// Returns the lifetime in milliseconds, rounded up. 0: unlimited.
    #[inline]
    pub(crate) fn lifetime_ms(&self, lifetime: Lifetime) -> u64 {
        match lifetime {
            Lifetime::AsKeyspace => self.ttl_ms.load(Ordering::Relaxed),
            Lifetime::Unlimited => 0,
            Lifetime::For(ttl) => Expiry::after(0, ttl).ms().max(1),
        }
    }

    /// Returns when a put with this lifetime expires, if it does.
    #[inline]
    pub(crate) fn expiry(&self, time: &Time, lifetime: Lifetime) -> Option<Expiry> {
        let ttl = match lifetime {
            Lifetime::AsKeyspace => match self.ttl_ms.load(Ordering::Relaxed) {
                0 => return None,
                ms => Duration::from_millis(ms),
            },
            Lifetime::Unlimited => return None,
            Lifetime::For(ttl) => ttl,
        };
        Some(Expiry::after(time.now_ms(), ttl))
    }

    /// Returns whether it is being dropped or has been.
    #[inline]
    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping.is_set()
    }

    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.is_dropped() { Err(self.not_found()) } else { Ok(()) }
    }

    /// The error for a lookup after the keyspace is gone.
    pub(crate) fn not_found(&self) -> Error {
        Error::KeyspaceNotFound(self.name().to_string())
    }
}

/// The names found at opening, sorted.
#[derive(Default)]
struct StoredNames {
    text: String,
    /// For each name the offset of its end in the text, and the keyspace's id.
    ends: Vec<(usize, KeyspaceId)>,
}

impl StoredNames {
    fn name(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].0);
        &self.text[start..self.ends[at].0]
    }

    fn push(&mut self, name: &str, id: KeyspaceId) {
        self.text.push_str(name);
        self.ends.push((self.text.len(), id));
    }

    fn find(&self, name: &str) -> Option<KeyspaceId> {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.name(middle).cmp(name) {
                std::cmp::Ordering::Equal => return Some(self.ends[middle].1),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// Names and their keyspaces.
#[derive(Default)]
struct Names {
    /// Names that were used, or that commits changed since the opening. `None`: the name is free again.
    made: BTreeMap<Arc<str>, Option<Arc<KeyspaceState>>>,
    stored: StoredNames,
}

/// All keyspaces.
pub(crate) struct Catalog {
    names: RwLock<Names>,
    /// Id of the next new keyspace. Relaxed: it orders nothing.
    next_id: AtomicU32,
    /// Locked while a keyspace is created, dropped or renamed.
    changes: Mutex<StoredId>,
    /// Stored options of keyspaces that have any (keyspace_options.rs).
    with_options: Mutex<BTreeMap<KeyspaceId, StoredOptions>>,
    /// The newest stored time when the database was opened (time.2 in read/time.rs).
    pub(in crate::engine) time_ms: u64,
    published: Arc<Published>,
}

/// The next id as it is stored. All smaller ids have been given out, in this opening or before.
pub(crate) struct StoredId(u32);

impl StoredId {
    pub(in crate::engine) fn get(&self) -> u32 {
        self.0
    }

    pub(in crate::engine) fn set(&mut self, next: u32) {
        self.0 = next;
    }
}

impl Catalog {
    /// Rebuilds the catalog from its stored entries. `each` passes the keys and values of keyspace 0 in
    /// order.
    pub(crate) fn load(
        published: &Arc<Published>,
        each: impl FnOnce(&mut TakeEntry<'_>) -> Result<()>,
        corrupt: impl Fn(String) -> Error,
    ) -> Result<Self> {
        let mut catalog = Catalog {
            names: RwLock::default(),
            next_id: AtomicU32::new(FIRST_ID),
            changes: Mutex::new(StoredId(FIRST_ID)),
            with_options: Mutex::default(),
            time_ms: 0,
            published: published.clone(),
        };
        catalog.take_over(DEFAULT_NAME, KeyspaceId::DEFAULT);
        let mut stored = StoredNames::default();
        let mut ids = vec![KeyspaceId::CATALOG.get(), KeyspaceId::DEFAULT.get()];
        let mut next = FIRST_ID;
        each(&mut |key, value| {
            let shown = || key.escape_ascii().to_string();
            if let Some(id) = options_of(key) {
                let options = StoredOptions::decode(value)
                    .map_err(|e| corrupt(format!("{:?}: {}", shown(), e.detail)))?;
                catalog.with_options.lock().insert(id, options);
                return Ok(());
            }
            if key == TIME_KEY {
                let ms = ByteReader::new(value).varint();
                catalog.time_ms = ms.map_err(|_| corrupt("no time under \"t\"".to_owned()))?;
                return Ok(());
            }
            let id = id_of(value).map(KeyspaceId::get);
            let id = id.ok_or_else(|| corrupt(format!("no id under {:?}", shown())))?;
            match name_of(key) {
                Some(name) if !is_stored_name(name) => {
                    return Err(corrupt(format!("{:?} is the name of no keyspace", shown())));
                }
                Some(name) => {
                    ids.push(id);
                    stored.push(name, KeyspaceId::new(id));
                }
                None if key == NEXT_ID_KEY => next = id,
                None => return Err(corrupt(format!("unknown key {:?}", shown()))),
            }
            Ok(())
        })?;
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            let id = KeyspaceId::new(twice[0]);
            let last = (0..stored.ends.len()).rev().find(|at| stored.ends[*at].1 == id);
            let name = last.map_or("", |at| stored.name(at));
            return Err(corrupt(format!("{name:?} has id {id}, which is another's")));
        }
        catalog.names.write().stored = stored;
        // catalog.2: a new keyspace must not find the keys of another one.
        match ids.last() {
            Some(last) if *last >= next => Err(corrupt(format!("id {last} has not been allocated yet"))),
            _ => {
                catalog.next_id.store(next, Ordering::Relaxed);
                catalog.changes.lock().0 = next;
                Ok(catalog)
            }
        }
    }

    /// Makes the keyspace for a name found at opening. Another thread may have made it first.
    fn take_over(&self, name: &str, id: KeyspaceId) -> Option<Arc<KeyspaceState>> {
        let made = || {
            let state = Self::state(name.into(), id, DropMark::default(), self.published.counter(id));
            let options = self.options_of(id);
            state.take(&options.given);
            Some(state)
        };
        self.names.write().made.entry(name.into()).or_insert_with(made).clone()
    }

    /// Makes the keyspaces of all names found at opening.
    fn take_over_all(&self) {
        loop {
            let (name, id) = {
                let mut names = self.names.write();
                let Some((_, id)) = names.stored.ends.last().copied() else { return };
                let name = names.stored.name(names.stored.ends.len() - 1).to_owned();
                if names.made.contains_key(&*name) {
                    names.stored.ends.pop();
                    continue;
                }
                (name, id)
            };
            self.take_over(&name, id);
        }
    }

    fn state(
        name: Arc<str>,
        id: KeyspaceId,
        dropping: DropMark,
        counter: Arc<Counter>,
    ) -> Arc<KeyspaceState> {
        let (name, dropped, is_lazy) = (RwLock::new(name), AtomicBool::default(), AtomicBool::default());
        let ttl_ms = AtomicU64::new(0);
        Arc::new(KeyspaceState { id, name, dropping, dropped, counter, is_lazy, ttl_ms })
    }

    /// The stored options of all keyspaces.
    pub(in crate::engine) fn all_options(&self) -> Vec<(KeyspaceId, StoredOptions)> {
        self.with_options.lock().iter().map(|(&id, options)| (id, options.clone())).collect()
    }

    /// The keyspaces with a maximum size, and that size.
    pub(in crate::engine) fn limited(&self) -> Vec<(KeyspaceId, u64)> {
        let all = self.with_options.lock();
        all.iter().filter_map(|(&id, options)| Some((id, options.given.bytes_max?))).collect()
    }

    /// Records stored options of a keyspace. `state` is given for a keyspace that the catalog may not have
    /// yet.
    pub(in crate::engine) fn note_options(
        &self,
        id: KeyspaceId,
        state: Option<&Arc<KeyspaceState>>,
        options: StoredOptions,
    ) {
        let made = || self.names.read().made.values().flatten().find(|state| state.id == id).cloned();
        if let Some(state) = state.cloned().or_else(made) {
            state.take(&options.given);
        }
        self.with_options.lock().insert(id, options);
    }

    /// Returns the keyspace with this id.
    pub(crate) fn with_id(&self, id: KeyspaceId) -> Option<Arc<KeyspaceState>> {
        let names = self.names.read();
        if let Some(made) = names.made.values().flatten().find(|state| state.id == id) {
            return Some(made.clone());
        }
        let at = names.stored.ends.iter().position(|(_, stored)| *stored == id)?;
        let name = names.stored.name(at).to_owned();
        drop(names);
        self.take_over(&name, id).filter(|state| state.id == id)
    }

    /// Returns the stored options of a keyspace.
    pub(crate) fn options_of(&self, id: KeyspaceId) -> StoredOptions {
        self.with_options.lock().get(&id).cloned().unwrap_or_default()
    }

    /// Returns whether a keyspace has stored options.
    pub(in crate::engine) fn has_options(&self, id: KeyspaceId) -> bool {
        self.with_options.lock().contains_key(&id)
    }

    /// Id of the next new keyspace.
    pub(in crate::engine) fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Returns the keyspace with this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<KeyspaceState>> {
        let id = {
            let names = self.names.read();
            match names.made.get(name) {
                Some(made) => return made.clone(),
                None => names.stored.find(name)?,
            }
        };
        self.take_over(name, id)
    }

    /// All keyspaces and their names at one moment, sorted by name.
    pub(crate) fn all(&self) -> Vec<(String, Arc<KeyspaceState>)> {
        self.take_over_all();
        let names = self.names.read();
        let there = names.made.iter().filter_map(|(name, state)| Some((name.to_string(), state.clone()?)));
        there.collect()
    }

    /// The names of all keyspaces at one moment, sorted. Keyspaces that were being dropped at that moment are
    /// left out if `is_gone` says so. A drop that begins later does not matter: the list may lack keyspaces
    /// created before it.
    pub(crate) fn names(&self, is_gone: impl Fn(&KeyspaceState) -> bool) -> Vec<String> {
        self.take_over_all();
        let listed = |(name, state): (&Arc<str>, &Option<Arc<KeyspaceState>>)| {
            let state = state.as_ref()?;
            Some((name.to_string(), state.is_dropping().then(|| state.clone())))
        };
        let all: Vec<_> = self.names.read().made.iter().filter_map(listed).collect();
        let there = |(name, dropping): (String, Option<Arc<KeyspaceState>>)| match dropping {
            Some(state) if is_gone(&state) => None,
            _ => Some(name),
        };
        all.into_iter().filter_map(there).collect()
    }

    /// Returns those of these keyspaces that exist, for a commit.
    pub(in crate::engine) fn lives(&self, ids: &BTreeSet<KeyspaceId>) -> Vec<KeyspaceLife> {
        let all = self.all().into_iter().map(|(_, state)| state);
        all.filter(|state| ids.contains(&state.id)).map(|state| state.life()).collect()
    }

    /// The ids of all keyspaces.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn ids(&self) -> Vec<KeyspaceId> {
        self.all().into_iter().map(|(_, state)| state.id).collect()
    }

    /// Locks the catalog against changes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, StoredId> {
        self.changes.lock()
    }

    /// Makes a new keyspace. Other commits neither find it nor write to it before the one that creates it
    /// (catalog_changes.3).
    pub(in crate::engine) fn reserve(&self, name: &str) -> Result<Arc<KeyspaceState>> {
        let following = |id: u32| id.checked_add(1);
        let id = self.next_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, following);
        let id = id.map_err(|_| Error::Invalid("no keyspace ids left".into()))?;
        // The shared counter starts with the creating commit.
        let counter = Arc::default();
        Ok(Self::state(name.into(), KeyspaceId::new(id), DropMark::new_set(), counter))
    }

    /// Makes a new keyspace with this id, for a copy that recreates the keyspaces of its original.
    pub(in crate::engine) fn reserve_numbered(&self, name: &str, id: KeyspaceId) -> Arc<KeyspaceState> {
        self.next_id.fetch_max(id.get().saturating_add(1), Ordering::Relaxed);
        Self::state(name.into(), id, DropMark::new_set(), Arc::default())
    }

    /// Applies changed names. `None`: the name is free.
    pub(in crate::engine) fn take(&self, changed: &BTreeMap<Arc<str>, Option<Arc<KeyspaceState>>>) {
        let mut names = self.names.write();
        for (name, state) in changed {
            if let Some(state) = state {
                *state.name.write() = name.clone();
            }
            // A name found at opening needs an entry that says it is free.
            if state.is_some() || names.stored.find(name).is_some() {
                names.made.insert(name.clone(), state.clone());
            } else {
                names.made.remove(name);
            }
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

/// Returns whether the catalog may hold an entry for this name.
pub(crate) fn is_stored_name(name: &str) -> bool {
    name != DEFAULT_NAME && check_name(name).is_ok()
}

/// Decodes the id stored under a name.
pub(crate) fn id_of(value: &[u8]) -> Option<KeyspaceId> {
    let id = ByteReader::new(value).varint().ok()?;
    u32::try_from(id).ok().map(KeyspaceId::new)
}

/// Encodes an id as the catalog stores it.
pub(crate) fn varint(n: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, u64::from(n));
    out
}

#[cfg(test)]
mod tests;
