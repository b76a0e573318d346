//! The keys of one directory, unwrapped.
//!
//! ```text
//!   KEYS --provider: unwrap--> database keys --salt of a file--> key of a file
//!     ^-- another master key is current: new database key, all wrapped again, replaced by a rename
//! ```
//!
//! keyring.1. `KEYS` is durable before a file is sealed with a key of it, and no key leaves it.
//! keyring.2. `KEYS` is replaced as a whole, by a rename. A crash leaves the old or the new file, and both
//!     have all keys that are in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, OpenOptions, read_range};

use super::cipher::{FileKey, KEY_BYTES, KeyHeader, SALT_BYTES};
use super::key_file::{self, BYTES_MAX, ID_BYTES_MAX, WRAPPED_BYTES_MAX, WrappedKey};
use super::provider::KeyProvider;
use super::seal::{FORGED, FileKind};
use super::{KEYS, KEYS_TMP};
use crate::types::{EncryptionProblem, Error, Result, replace_file};

/// What an environment knows of keys.
#[derive(Clone, Debug)]
pub(super) struct EnvKeys {
    pub(super) provider: Arc<dyn KeyProvider>,
    /// The keys of the directory that the environment was opened for.
    pub(super) ring: Option<Arc<Keyring>>,
}

impl EnvKeys {
    pub(super) fn of(env: &Env) -> Option<&EnvKeys> {
        env.keys.as_ref()?.downcast_ref()
    }

    pub(super) fn put(self, env: &Env) -> Env {
        Env { keys: Some(Arc::new(self)), ..env.clone() }
    }
}

/// Returns the open keys of an environment.
pub(super) fn of(env: &Env) -> Option<&Keyring> {
    EnvKeys::of(env)?.ring.as_deref()
}

/// The keys of a directory.
pub(super) struct Keyring {
    path: PathBuf,
    provider: Arc<dyn KeyProvider>,
    /// New files use the first.
    keys: Vec<DatabaseKey>,
    /// The keys of a single file, which contains them.
    of_file: bool,
}

struct DatabaseKey {
    stored: WrappedKey,
    key: [u8; KEY_BYTES],
}

impl Keyring {
    /// Creates the keys of a new directory, durably.
    pub(super) fn create(env: &Env, dir: &Path, provider: &Arc<dyn KeyProvider>) -> Result<Keyring> {
        let path = dir.join(KEYS);
        let ring = Self::draw(path, provider, false)?;
        ring.store(env, dir)?;
        Ok(ring)
    }

    /// Draws a new key, for the file at `path` alone or for a directory with this `KEYS`.
    pub(super) fn draw(path: PathBuf, provider: &Arc<dyn KeyProvider>, of_file: bool) -> Result<Keyring> {
        let master = current(&**provider, &path)?;
        let keys = vec![DatabaseKey::draw(&**provider, &master, &path)?];
        Ok(Keyring { path, provider: provider.clone(), keys, of_file })
    }

    /// Returns the keys that a file contains: for itself alone, or for a directory.
    pub(super) fn of_bytes(
        bytes: &[u8],
        path: &Path,
        provider: &Arc<dyn KeyProvider>,
        of_file: bool,
    ) -> Result<Keyring> {
        let keys = key_file::decode(bytes, path)?.into_iter();
        let keys =
            keys.map(|stored| DatabaseKey::unwrap(stored, &**provider, path)).collect::<Result<_>>()?;
        Ok(Keyring { path: path.to_owned(), provider: provider.clone(), keys, of_file })
    }

    /// Returns the keys as stored in the one file that they are for.
    pub(super) fn to_store_in_file(&self) -> Option<Vec<u8>> {
        self.of_file.then(|| self.encode())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let keys: Vec<WrappedKey> = self.keys.iter().map(|key| key.stored.clone()).collect();
        key_file::encode(&keys)
    }

    /// Reads the keys of a directory. The provider unwraps those that are not in `known`.
    pub(super) fn load(
        env: &Env,
        dir: &Path,
        provider: &Arc<dyn KeyProvider>,
        known: Option<&Keyring>,
    ) -> Result<Keyring> {
        let path = dir.join(KEYS);
        let read = || {
            let file = env.fs.open(&path, OpenOptions::read())?;
            let len = file.len()?.min(BYTES_MAX) as usize;
            read_range(&*file, 0, len)
        };
        let bytes = read().map_err(|e| Error::io("read", &path, e))?;
        let keys = key_file::decode(&bytes, &path)?.into_iter();
        let keys = keys.map(|stored| match known.and_then(|ring| ring.find(stored.id)) {
            Some(key) if key.stored == stored => Ok(key.copy()),
            _ => DatabaseKey::unwrap(stored, &**provider, &path),
        });
        Ok(Keyring { keys: keys.collect::<Result<_>>()?, path, provider: provider.clone(), of_file: false })
    }

    /// If another master key has become the current one, wraps all keys again, durably. New files then get a
    /// new database key, so that compaction takes data away from the old ones.
    pub(super) fn rotated(self, env: &Env, dir: &Path) -> Result<Keyring> {
        let (mut ring, is_changed) = self.wrapped_again()?;
        if is_changed {
            let master = current(&*ring.provider, &ring.path)?;
            ring.keys.insert(0, DatabaseKey::draw(&*ring.provider, &master, &ring.path)?);
            ring.store(env, dir)?;
        }
        Ok(ring)
    }

    /// Has the current master key wrap all keys. Returns whether another one has wrapped any.
    fn wrapped_again(self) -> Result<(Keyring, bool)> {
        let master = current(&*self.provider, &self.path)?;
        if self.keys.iter().all(|key| key.stored.master == master) {
            return Ok((self, false));
        }
        let again = |key: &DatabaseKey| {
            DatabaseKey::wrap(key.stored.id, key.key, &*self.provider, &master, &self.path)
        };
        let keys = self.keys.iter().map(again).collect::<Result<_>>()?;
        Ok((Keyring { keys, ..self }, true))
    }

    /// Gives `dir` these keys, before those that it has, durably. Returns all of them.
    pub(super) fn share(&self, env: &Env, dir: &Path, is_there: bool) -> Result<Keyring> {
        let mut keys: Vec<DatabaseKey> = self.keys.iter().map(DatabaseKey::copy).collect();
        let mut is_changed = true;
        if is_there {
            let old = Self::load(env, dir, &self.provider, Some(self))?;
            is_changed = keys.iter().any(|key| old.find(key.stored.id).is_none());
            keys.extend(old.keys.into_iter().filter(|key| self.find(key.stored.id).is_none()));
        }
        let provider = self.provider.clone();
        let all = Keyring { path: dir.join(KEYS), provider, keys, of_file: false };
        let (all, is_wrapped) = all.wrapped_again()?;
        if is_changed || is_wrapped {
            all.store(env, dir)?;
        }
        Ok(all)
    }

    /// Writes `KEYS` (keyring.2).
    pub(super) fn store(&self, env: &Env, dir: &Path) -> Result<()> {
        replace_file(env, dir, KEYS_TMP, KEYS, &self.encode())
    }

    fn find(&self, id: u64) -> Option<&DatabaseKey> {
        self.keys.iter().find(|key| key.stored.id == id)
    }

    /// Returns whether there are keys that new files do not use.
    pub(super) fn has_older(&self) -> bool {
        self.keys.len() > 1
    }

    /// Returns whether a file's key is derived from the key that new files use.
    pub(super) fn is_newest(&self, key: &FileKey) -> bool {
        self.keys[0].stored.id == key.database_key()
    }

    /// Returns a new key for a use of a file (seal.1).
    pub(super) fn new_key(&self, kind: FileKind) -> Result<FileKey> {
        let mut salt = [0; SALT_BYTES];
        random(&*self.provider, &mut salt, &self.path)?;
        let first = &self.keys[0];
        let header = KeyHeader { database_key: first.stored.id, kind: kind as u8, salt };
        Ok(FileKey::derive(&first.key, header, true))
    }

    /// Returns the key of a file with this header, which must authenticate `bound`.
    pub(super) fn key_of(
        &self,
        (path, at): (&Path, u64),
        kind: FileKind,
        header: &[u8],
        bound: &[u8],
    ) -> Result<FileKey> {
        const WHAT: &str = "key header";
        let fields = KeyHeader::decode(header).map_err(|newer| match newer {
            Some(found) => Error::UnsupportedVersion {
                what: WHAT,
                path: path.to_owned(),
                found: found.into(),
                supported: 1,
            },
            None => Error::corrupt(WHAT, path, at, "not a key header"),
        })?;
        let Some(key) = self.find(fields.database_key) else {
            return Err(Error::encryption(path, EncryptionProblem::FileKeyUnknown));
        };
        let key = FileKey::derive(&key.key, fields, false);
        match fields.kind == kind as u8 && key.is_of(header, bound) {
            true => Ok(key),
            false => Err(Error::corrupt(WHAT, path, at, FORGED)),
        }
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyring({}, {} keys)", self.path.display(), self.keys.len())
    }
}

impl DatabaseKey {
    fn draw(provider: &dyn KeyProvider, master: &str, path: &Path) -> Result<DatabaseKey> {
        let (mut id, mut key) = ([0; 8], [0; KEY_BYTES]);
        random(provider, &mut id, path)?;
        random(provider, &mut key, path)?;
        Self::wrap(u64::from_le_bytes(id), key, provider, master, path)
    }

    fn wrap(
        id: u64,
        key: [u8; KEY_BYTES],
        provider: &dyn KeyProvider,
        master: &str,
        path: &Path,
    ) -> Result<DatabaseKey> {
        let wrapped = provider.wrap(master, &key).map_err(|e| problem(path, master, e))?;
        if wrapped.len() > WRAPPED_BYTES_MAX {
            return Err(Error::Invalid(format!("the key provider wraps a key in {} bytes", wrapped.len())));
        }
        Ok(DatabaseKey { stored: WrappedKey { id, master: master.to_owned(), wrapped }, key })
    }

    fn unwrap(stored: WrappedKey, provider: &dyn KeyProvider, path: &Path) -> Result<DatabaseKey> {
        let key = provider.unwrap(&stored.master, &stored.wrapped);
        Ok(DatabaseKey { key: key.map_err(|e| problem(path, &stored.master, e))?, stored })
    }

    fn copy(&self) -> DatabaseKey {
        DatabaseKey { stored: self.stored.clone(), key: self.key }
    }
}

fn current(provider: &dyn KeyProvider, path: &Path) -> Result<String> {
    let id = provider.current().map_err(|e| problem(path, "", e))?;
    match id.len() {
        1..=ID_BYTES_MAX => Ok(id),
        len => Err(Error::Invalid(format!("the key provider has a master key with an id of {len} bytes"))),
    }
}

fn random(provider: &dyn KeyProvider, bytes: &mut [u8], path: &Path) -> Result<()> {
    provider.random(bytes).map_err(|e| problem(path, "", e))
}

/// Returns the error of a provider that failed with the master key `id`.
fn problem(path: &Path, id: &str, error: std::io::Error) -> Error {
    let id = id.to_owned();
    let problem = match error.kind() {
        std::io::ErrorKind::NotFound => EncryptionProblem::MasterKeyUnknown(id),
        std::io::ErrorKind::InvalidData => EncryptionProblem::MasterKeyWrong(id),
        _ => EncryptionProblem::Provider(Arc::new(error)),
    };
    Error::encryption(path, problem)
}
