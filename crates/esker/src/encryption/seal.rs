//! `Seal`: how the content of one file is encrypted, or that it is not.
//!
//! ```text
//!   block, record or value --format: compress--> seal(position, context) --> ciphertext, tag (16 B) --> file
//!   key header (64 B) in the file --find--> Seal --open(position, context)--> block, record or value
//! ```
//!
//! The formats store what they always store, with the ciphertext in place of the content and their own
//! checksums over the ciphertext. So a torn write looks as it does in a file that is not encrypted.
//!
//! seal.1. No pair of key and nonce is used twice. A key is made of 256 random bits for one use of one file:
//!     its creation, or the reuse of a recycled log segment. Only the `Seal` that made the key seals with it;
//!     a key found in a file opens only. The nonce is the position in the file, and no position is sealed
//!     twice: positions rise, which an assertion checks. A blob file has concurrent writers, each with a
//!     lease of positions of its own. There, debug builds check that no position repeats.
//! seal.2. What `open` accepts was sealed in this use of this file, at this position, with this context. The
//!     key depends on the kind of the file; the context has the fields that the format stores beside it.
//!
//! Bytes: docs/formats/encryption.md

use std::path::Path;

use esker_env::Env;

#[cfg(feature = "encryption")]
use std::sync::Arc;

#[cfg(feature = "encryption")]
use super::{cipher::FileKey, keyring};
use crate::encoding::bytes::Decoded;
use crate::types::{EncryptionProblem, Error, Result};

/// Bytes of the header that holds what a file's key is derived from.
pub(crate) const KEY_HEADER_BYTES: usize = 64;
/// Bytes that sealing adds.
pub(crate) const TAG_BYTES: usize = 16;

/// The first bytes of a key header.
pub(super) const MAGIC: [u8; 4] = *b"eKEY";

/// What a file is. Part of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A table.
    Table = 1,
    /// A blob file.
    Blobs = 2,
    /// A segment of the log.
    Segment = 3,
    /// A record file.
    Records = 4,
}

/// How the content of a file is sealed. The default is not at all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seal {
    #[cfg(feature = "encryption")]
    key: Option<Arc<FileKey>>,
}

impl Seal {
    /// Returns a new key for a use of a file, or none if the environment has no open keys.
    pub(crate) fn create(env: &Env, kind: FileKind) -> Result<Seal> {
        #[cfg(feature = "encryption")]
        if let Some(ring) = keyring::of(env) {
            return Ok(Seal { key: Some(Arc::new(ring.new_key(kind)?)) });
        }
        let _ = (env, kind);
        Ok(Seal::default())
    }

    /// Returns the seal of the file at `path`, given its key header and where that is, or `None` for a file
    /// without. `bound` is what the header must authenticate.
    pub(crate) fn find(
        env: &Env,
        (path, at): (&Path, u64),
        kind: FileKind,
        header: Option<&[u8]>,
        bound: &[u8],
    ) -> Result<Seal> {
        #[cfg(feature = "encryption")]
        match (keyring::of(env), header) {
            (Some(ring), Some(header)) => {
                let key = ring.key_of((path, at), kind, header, bound)?;
                return Ok(Seal { key: Some(Arc::new(key)) });
            }
            (Some(_), None) => return Err(Error::encryption(path, EncryptionProblem::NotEncrypted)),
            (None, _) => {}
        }
        let _ = (env, at, kind, bound);
        match header {
            Some(_) => Err(Error::encryption(path, EncryptionProblem::KeyMissing)),
            None => Ok(Seal::default()),
        }
    }

    /// Returns whether these bytes look like a key header.
    pub(crate) fn has_header(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Returns whether the content is encrypted.
    pub(crate) fn is_on(&self) -> bool {
        #[cfg(feature = "encryption")]
        return self.key.is_some();
        #[cfg(not(feature = "encryption"))]
        false
    }

    /// Returns whether the content is encrypted with an older key of the database than new files.
    pub(crate) fn has_old_key(&self, env: &Env) -> bool {
        #[cfg(feature = "encryption")]
        if let (Some(key), Some(ring)) = (&self.key, keyring::of(env)) {
            return !ring.is_newest(key);
        }
        let _ = env;
        false
    }

    /// Bytes that sealing adds to a unit.
    pub(crate) fn tag_bytes(&self) -> usize {
        if self.is_on() { TAG_BYTES } else { 0 }
    }

    /// Returns the key header, empty if the content is not encrypted. It authenticates `bound`, and is made
    /// once (seal.1).
    pub(crate) fn header(&self, bound: &[u8]) -> Vec<u8> {
        #[cfg(feature = "encryption")]
        if let Some(key) = &self.key {
            return key.header(bound).to_vec();
        }
        let _ = bound;
        Vec::new()
    }

    /// Encrypts bytes that will be stored at `position` of the file, and appends the tag.
    pub(crate) fn seal(&self, position: u64, context: &[u8], bytes: &mut Vec<u8>) {
        #[cfg(feature = "encryption")]
        if let Some(key) = &self.key {
            let tag = key.seal(position, context, bytes);
            bytes.extend_from_slice(&tag);
        }
        let _ = (position, context, bytes);
    }

    /// Decrypts bytes in place and returns how many there are without the tag. Fails if they were not sealed
    /// so (seal.2).
    pub(crate) fn open(&self, position: u64, context: &[u8], bytes: &mut [u8]) -> Decoded<usize> {
        #[cfg(feature = "encryption")]
        if let Some(key) = &self.key {
            let opened = key.open(position, context, bytes);
            return opened.ok_or_else(|| crate::encoding::bytes::DecodeError::new(0, FORGED));
        }
        let _ = (position, context);
        Ok(bytes.len())
    }
}

/// The detail of an error about bytes that do not match their tag.
#[cfg(feature = "encryption")]
pub(super) const FORGED: &str = "the encrypted bytes were changed or moved: they do not match their tag";
