//! Encryption at rest: master keys, the keys of databases and of files, and the sealing of their content.
//!
//! ```text
//!   KeyProvider --unwrap--> KEYS of a directory --salt in each file--> key of a file --Seal--> blocks
//!   (master keys)           (database keys)
//! ```
//!
//! Everything that holds keys, values or names of keyspaces is sealed: tables, blob files, the log,
//! manifests, and what is copied from them to checkpoints, backups and archives. `CURRENT`, `LOCK` and job
//! files hold numbers only. An encrypted directory has no `OPTIONS`. A file written by
//! [`unload`](crate::unload) contains a key of its own, wrapped by the master key. Lengths, times and numbers
//! of commits can be seen.
//!
//! An attacker who can write to the disk cannot make the database return what was not written. But a complete
//! older state of the directory, or of its newest log, is accepted.

#[cfg(feature = "encryption")]
mod cipher;
#[cfg(all(feature = "encryption", any(test, feature = "fuzzing")))]
pub mod fuzzing;
#[cfg(feature = "encryption")]
mod key_file;
#[cfg(feature = "encryption")]
mod keyring;
#[cfg(feature = "encryption")]
mod provider;
mod seal;
#[cfg(all(test, feature = "encryption"))]
mod tests;

use std::path::Path;

use esker_env::Env;

#[cfg(feature = "encryption")]
pub use self::provider::{KeyProvider, MasterKeys};
pub(crate) use self::seal::{FileKind, KEY_HEADER_BYTES, Seal, TAG_BYTES};
use crate::types::{EncryptionProblem, Error, Result};

/// The keys of a directory.
pub(crate) const KEYS: &str = "KEYS";
/// The next `KEYS`, before it is renamed into place.
pub(crate) const KEYS_TMP: &str = "KEYS.tmp";

/// Bytes for the keys of a file that contains its own.
pub(crate) const OWN_KEYS_BYTES: usize = 4096;

/// Why a directory's keys are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unlock {
    /// To read what is there.
    Read,
    /// To change what is there. If the master key has changed, all keys are wrapped again.
    Change,
    /// To create a database or backups in an empty directory. Keys that are there already are used.
    Create,
}

/// Returns an environment that opens encrypted databases and backups with these master keys, and creates new
/// ones encrypted. [`Builder::encryption`](crate::Builder::encryption) does the same for a builder.
#[cfg(feature = "encryption")]
pub fn with_keys(env: &Env, provider: impl KeyProvider) -> Env {
    keyring::EnvKeys { provider: std::sync::Arc::new(provider), ring: None }.put(env)
}

/// Returns an environment that encrypts one file with a key of its own, if the database of `db_env` is
/// encrypted. The file contains the key, wrapped by the current master key ([`own_keys`]).
pub(crate) fn for_one_file(env: &Env, db_env: &Env, path: &Path) -> Result<Env> {
    #[cfg(feature = "encryption")]
    if let Some(keyring::EnvKeys { provider, ring: Some(_) }) = keyring::EnvKeys::of(db_env) {
        let ring = keyring::Keyring::draw(path.to_owned(), provider, true)?;
        return Ok(keyring::EnvKeys { provider: provider.clone(), ring: Some(ring.into()) }.put(env));
    }
    let _ = (db_env, path);
    Ok(without_keys(env))
}

/// Returns an environment with the provider of this one and without open keys. It reads plain files, and
/// files that contain their keys.
pub(crate) fn locked(env: &Env) -> Env {
    #[cfg(feature = "encryption")]
    if let Some(keyring::EnvKeys { provider, .. }) = keyring::EnvKeys::of(env) {
        return keyring::EnvKeys { provider: provider.clone(), ring: None }.put(env);
    }
    env.clone()
}

/// Returns what a file made in this environment contains of keys, in [`OWN_KEYS_BYTES`].
pub(crate) fn own_keys(env: &Env) -> Result<Option<Vec<u8>>> {
    #[cfg(feature = "encryption")]
    if let Some(keys) = keyring::of(env).and_then(keyring::Keyring::to_store_in_file) {
        let mut out = (keys.len() as u32).to_le_bytes().to_vec();
        out.extend(keys);
        if out.len() > OWN_KEYS_BYTES {
            let text = format!("the key provider wraps a key in too many bytes: a file has {OWN_KEYS_BYTES}");
            return Err(Error::Invalid(text));
        }
        out.resize(OWN_KEYS_BYTES, 0);
        return Ok(Some(out));
    }
    let _ = env;
    Ok(None)
}

/// Returns the environment with the keys that the file at `path` contains, given the [`OWN_KEYS_BYTES`] at
/// this offset.
pub(crate) fn with_own_keys(env: &Env, (path, at): (&Path, u64), bytes: &[u8]) -> Result<Env> {
    #[cfg(feature = "encryption")]
    if let Some(keyring::EnvKeys { provider, .. }) = keyring::EnvKeys::of(env) {
        let keys = bytes
            .split_first_chunk::<4>()
            .and_then(|(len, rest)| rest.get(..u32::from_le_bytes(*len) as usize));
        let Some(keys) = keys else {
            return Err(Error::corrupt("keys of a file", path, at, "their length is wrong"));
        };
        let ring = keyring::Keyring::of_bytes(keys, path, provider, true)?;
        return Ok(keyring::EnvKeys { provider: provider.clone(), ring: Some(ring.into()) }.put(env));
    }
    let _ = (env, at, bytes);
    Err(Error::encryption(path, EncryptionProblem::KeyMissing))
}

/// Returns the keys of the environment's directory as `KEYS` stores them. Empty if there are none.
pub(crate) fn wrapped_keys(env: &Env) -> Vec<u8> {
    #[cfg(feature = "encryption")]
    if let Some(ring) = keyring::of(env) {
        return ring.encode();
    }
    let _ = env;
    Vec::new()
}

/// Returns the environment for a directory that gets these keys, which the stream at `path` contains. Without
/// a provider, a stream without keys gives a directory that is not encrypted. With one, it is refused, as is
/// a stream that is not encrypted itself (`is_sealed`): no key was needed to make it.
pub(crate) fn with_wrapped_keys(env: &Env, path: &Path, bytes: &[u8], is_sealed: bool) -> Result<Env> {
    #[cfg(feature = "encryption")]
    if let Some(keyring::EnvKeys { provider, .. }) = keyring::EnvKeys::of(env) {
        if bytes.is_empty() || !is_sealed {
            return Err(Error::encryption(path, EncryptionProblem::NotEncrypted));
        }
        let ring = keyring::Keyring::of_bytes(bytes, path, provider, false)?;
        return Ok(keyring::EnvKeys { provider: provider.clone(), ring: Some(ring.into()) }.put(env));
    }
    let _ = is_sealed;
    match bytes.is_empty() {
        true => Ok(without_keys(env)),
        false => Err(Error::encryption(path, EncryptionProblem::KeyMissing)),
    }
}

/// Returns an environment without keys: what it writes is not encrypted.
pub(crate) fn without_keys(env: &Env) -> Env {
    Env { keys: None, ..env.clone() }
}

/// Returns whether the environment encrypts what it writes.
pub(crate) fn is_on(env: &Env) -> bool {
    #[cfg(feature = "encryption")]
    return keyring::of(env).is_some();
    #[cfg(not(feature = "encryption"))]
    {
        let _ = env;
        false
    }
}

/// Returns whether the directory has older keys, which no new file uses.
pub(crate) fn has_older_keys(env: &Env) -> bool {
    #[cfg(feature = "encryption")]
    return keyring::of(env).is_some_and(keyring::Keyring::has_older);
    #[cfg(not(feature = "encryption"))]
    {
        let _ = env;
        false
    }
}

/// Returns the environment with the keys of a directory. The caller has locked the directory, or reads it
/// beside a writer. A provider is asked only for keys that the environment does not have yet.
pub(crate) fn unlock(env: &Env, dir: &Path, purpose: Unlock) -> Result<Env> {
    let path = dir.join(KEYS);
    let is_there = env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))?;
    #[cfg(feature = "encryption")]
    if let Some(keyring::EnvKeys { provider, ring }) = keyring::EnvKeys::of(env) {
        let ring = match (is_there, purpose) {
            (true, Unlock::Read) => keyring::Keyring::load(env, dir, provider, ring.as_deref())?,
            (true, _) => keyring::Keyring::load(env, dir, provider, None)?.rotated(env, dir)?,
            (false, Unlock::Create) => keyring::Keyring::create(env, dir, provider)?,
            (false, _) => return Err(Error::encryption(dir, EncryptionProblem::NotEncrypted)),
        };
        let ring = Some(std::sync::Arc::new(ring));
        return Ok(keyring::EnvKeys { provider: provider.clone(), ring }.put(env));
    }
    let _ = purpose;
    match is_there {
        true => Err(Error::encryption(dir, EncryptionProblem::KeyMissing)),
        false => Ok(env.clone()),
    }
}

/// Gives `dir` the keys of `from`, durably, and returns `to` with all keys of the directory.
pub(crate) fn share(from: &Env, to: &Env, dir: &Path) -> Result<Env> {
    #[cfg(feature = "encryption")]
    if let Some(ring) = keyring::of(from) {
        let path = dir.join(KEYS);
        let provider = keyring::EnvKeys::of(from).expect("it has keys").provider.clone();
        let is_there = to.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))?;
        let ring = Some(std::sync::Arc::new(ring.share(to, dir, is_there)?));
        return Ok(keyring::EnvKeys { provider, ring }.put(to));
    }
    let _ = (from, dir);
    Ok(to.clone())
}
