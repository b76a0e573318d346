//! Master keys: the interface to them, and keys from bytes or a file.

use std::fmt::Debug;
use std::io;
use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use super::key_file::ID_BYTES_MAX;
use crate::types::{EncryptionProblem, Error, Result};

/// Maximum size of a file of master keys.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Holds master keys, and wraps the keys of databases with them: in this process, in a key management
/// service, in hardware.
///
/// A database asks for its keys when it is opened, and for nothing later.
pub trait KeyProvider: Debug + Send + Sync + 'static {
    /// Returns the id of the master key that wraps new keys: UTF-8 of at most 255 bytes.
    fn current(&self) -> io::Result<String>;

    /// Encrypts a key with the master key `id`. The result says in itself whether it was changed, and has at
    /// most 64 KiB.
    fn wrap(&self, id: &str, key: &[u8; 32]) -> io::Result<Vec<u8>>;

    /// Decrypts a key that the master key `id` has wrapped.
    ///
    /// # Errors
    /// `NotFound` if there is no such master key, `InvalidData` if it did not wrap these bytes.
    fn unwrap(&self, id: &str, wrapped: &[u8]) -> io::Result<[u8; 32]>;

    /// Fills `bytes` with random numbers for keys. By default they are those of the operating system. Only
    /// simulations, whose data is not secret, may return others.
    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        SystemRandom::new().fill(bytes).map_err(|_| io::Error::other("the system has no random numbers"))
    }
}

impl<P: KeyProvider + ?Sized> KeyProvider for std::sync::Arc<P> {
    fn current(&self) -> io::Result<String> {
        (**self).current()
    }

    fn wrap(&self, id: &str, key: &[u8; 32]) -> io::Result<Vec<u8>> {
        (**self).wrap(id, key)
    }

    fn unwrap(&self, id: &str, wrapped: &[u8]) -> io::Result<[u8; 32]> {
        (**self).unwrap(id, wrapped)
    }

    fn random(&self, bytes: &mut [u8]) -> io::Result<()> {
        (**self).random(bytes)
    }
}

/// Master keys in memory.
///
/// A file of them is text, with one key per line: 64 hexadecimal digits, optionally after an id and a space.
/// `openssl rand -hex 32` prints such a line. A key without an id has 16 digits of its hash as the id.
/// The first key wraps new keys; the others only unwrap. Empty lines and lines that begin with `#` are
/// ignored. To rotate the master key, put a new line first and open the database. Then remove the old line.
pub struct MasterKeys {
    keys: Vec<(String, LessSafeKey)>,
}

impl MasterKeys {
    /// Returns one master key. Draw its bytes from a cryptographic generator.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the id is empty or longer than 255 bytes.
    pub fn new(id: &str, key: &[u8; 32]) -> Result<MasterKeys> {
        MasterKeys { keys: Vec::new() }.and_older(id, key)
    }

    /// Adds a key that only unwraps.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the id is empty or longer than 255 bytes, or if there is a key of this id.
    pub fn and_older(mut self, id: &str, key: &[u8; 32]) -> Result<MasterKeys> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(Error::Invalid(format!("the id of a master key has 1 to {ID_BYTES_MAX} bytes")));
        }
        if self.find(id).is_some() {
            return Err(Error::Invalid(format!("there are two master keys with the id {id:?}")));
        }
        let key = UnboundKey::new(&AES_256_GCM, key).expect("a key has 32 bytes");
        self.keys.push((id.to_owned(), LessSafeKey::new(key)));
        Ok(self)
    }

    /// Reads a file of master keys.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Invalid`] if the file has another form; [`Error::Encryption`] if it belongs to
    /// this process's user and others have access to it (Unix). A file of another user, for example of
    /// root, is read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<MasterKeys> {
        Self::from_file_in(&Env::real(), path)
    }

    /// Reads a file of master keys in an environment.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn from_file_in(env: &Env, path: impl AsRef<Path>) -> Result<MasterKeys> {
        let path = path.as_ref();
        let read = || {
            let file = env.fs.open(path, OpenOptions::read())?;
            let len = file.len()?.min(FILE_BYTES_MAX) as usize;
            Ok((file.exposed_mode()?, read_range(&*file, 0, len)?))
        };
        let (exposed, text) = read().map_err(|e| Error::io("read", path, e))?;
        if let Some(mode) = exposed {
            return Err(Error::encryption(path, EncryptionProblem::KeyFileExposed(mode)));
        }
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut keys = MasterKeys { keys: Vec::new() };
        for line in lines {
            let parsed = match line.split_once(' ') {
                Some((id, key)) => from_hex(key.trim()).map(|key| (id.to_owned(), key)),
                None => from_hex(line).map(|key| (id_of(&key), key)),
            };
            let Some((id, key)) = parsed else { return Err(bad_key_file(path)) };
            keys = keys.and_older(&id, &key)?;
        }
        if keys.keys.is_empty() { Err(bad_key_file(path)) } else { Ok(keys) }
    }

    fn find(&self, id: &str) -> Option<&LessSafeKey> {
        self.keys.iter().find(|(own, _)| own == id).map(|(_, key)| key)
    }

    fn get(&self, id: &str) -> io::Result<&LessSafeKey> {
        self.find(id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn bad_key_file(path: &Path) -> Error {
    Error::Invalid(format!(
        "{} is not a file of master keys: each line has 64 hexadecimal digits, optionally after an id and a space",
        path.display()
    ))
}

/// Returns the id of a key without one.
fn id_of(key: &[u8; 32]) -> String {
    let hash = digest(&SHA256, &[&b"esker master key id 1"[..], key].concat());
    hash.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair[0] << 4 | pair.last().copied().unwrap_or(0)).collect();
    if digits.len() == 64 { bytes.try_into().ok() } else { None }
}

impl KeyProvider for MasterKeys {
    fn current(&self) -> io::Result<String> {
        self.keys.first().map(|(id, _)| id.clone()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn wrap(&self, id: &str, key: &[u8; 32]) -> io::Result<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        self.random(&mut nonce)?;
        let mut out = nonce.to_vec();
        let mut sealed = key.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let done = self.get(id)?.seal_in_place_append_tag(nonce, Aad::from(id.as_bytes()), &mut sealed);
        done.map_err(|_| io::Error::other("the key cannot be wrapped"))?;
        out.append(&mut sealed);
        Ok(out)
    }

    fn unwrap(&self, id: &str, wrapped: &[u8]) -> io::Result<[u8; 32]> {
        let key = self.get(id)?;
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let (nonce, sealed) = wrapped.split_at_checked(NONCE_LEN).ok_or_else(bad)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| bad())?;
        let mut sealed = sealed.to_vec();
        let plain = key.open_in_place(nonce, Aad::from(id.as_bytes()), &mut sealed).map_err(|_| bad())?;
        <[u8; 32]>::try_from(&*plain).map_err(|_| bad())
    }
}

impl Debug for MasterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|(id, _)| id).collect();
        write!(f, "MasterKeys({ids:?})")
    }
}
