//! The key of one file: AES-256-GCM with positions as nonces.
//!
//! ```text
//!   database key, salt of the file, kind --HKDF-SHA256--> FileKey --> seal, open, header
//! ```
//!
//! Invariants: seal.1 and seal.2 of seal.rs.

use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::seal::{FileKind, KEY_HEADER_BYTES, MAGIC, TAG_BYTES};

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;
/// Bytes of the salt of a file.
pub(super) const SALT_BYTES: usize = 32;
/// The position whose nonce authenticates the key header. No file reaches it.
const HEADER_POSITION: u64 = u64::MAX;

const VERSION: u8 = 1;
const AES_256_GCM_ID: u8 = 1;
/// Bytes of a key header before its tag.
const FIELD_BYTES: usize = KEY_HEADER_BYTES - TAG_BYTES;

/// The fields of a key header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHeader {
    /// The database key from which the file's key is derived.
    pub(super) database_key: u64,
    pub(super) kind: u8,
    pub(super) salt: [u8; SALT_BYTES],
}

impl KeyHeader {
    fn encode(&self) -> [u8; FIELD_BYTES] {
        let mut out = [0; FIELD_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&[VERSION, AES_256_GCM_ID, self.kind, 0]);
        out[8..16].copy_from_slice(&self.database_key.to_le_bytes());
        out[16..].copy_from_slice(&self.salt);
        out
    }

    /// Decodes the fields. `Err` has the version or algorithm of a newer format, or `None` for damage.
    pub(super) fn decode(bytes: &[u8]) -> Result<KeyHeader, Option<u8>> {
        let fields: &[u8; KEY_HEADER_BYTES] = bytes.try_into().map_err(|_| None)?;
        if fields[..4] != MAGIC {
            return Err(None);
        }
        if let Some(newer) = [(fields[4], VERSION), (fields[5], AES_256_GCM_ID)].iter().find(|(a, b)| a != b)
        {
            return Err(Some(newer.0));
        }
        let number = fields[8..16].try_into().map_err(|_| None)?;
        let salt = fields[16..FIELD_BYTES].try_into().map_err(|_| None)?;
        Ok(KeyHeader { database_key: u64::from_le_bytes(number), kind: fields[6], salt })
    }
}

/// The key of a file.
pub(crate) struct FileKey {
    key: LessSafeKey,
    header: KeyHeader,
    /// What has been sealed. `None` for a key found in a file, which only opens (seal.1).
    sealed: Option<Sealed>,
}

/// The positions that a key has sealed.
#[derive(Default)]
struct Sealed {
    /// The lowest position that may follow. Relaxed: a check of the caller's order, which it does not make.
    next: AtomicU64,
    has_header: std::sync::atomic::AtomicBool,
    #[cfg(debug_assertions)]
    all: parking_lot::Mutex<std::collections::HashSet<u64>>,
}

impl Sealed {
    /// Notes that a position is sealed (seal.1).
    fn note(&self, position: u64, kind: u8) {
        #[cfg(debug_assertions)]
        assert!(self.all.lock().insert(position), "seal.1: position {position} is sealed twice");
        if kind != FileKind::Blobs as u8 {
            let next = self.next.fetch_max(position + 1, Ordering::Relaxed);
            assert!(position >= next, "seal.1: position {position} after {next}");
        }
    }
}

impl FileKey {
    /// Derives the key of a file. `may_seal` if its salt was just drawn (seal.1).
    pub(super) fn derive(database_key: &[u8; KEY_BYTES], header: KeyHeader, may_seal: bool) -> FileKey {
        let extracted = Salt::new(HKDF_SHA256, &header.salt).extract(database_key);
        let info = [&b"esker file key 1"[..], &[header.kind]];
        let derived = extracted.expand(&info, &AES_256_GCM).expect("a key is shorter than HKDF's limit");
        let key = LessSafeKey::new(UnboundKey::from(derived));
        FileKey { key, header, sealed: may_seal.then(Sealed::default) }
    }

    /// Returns the id of the database key that it is derived from.
    pub(super) fn database_key(&self) -> u64 {
        self.header.database_key
    }

    pub(super) fn seal(&self, position: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let sealed = self.sealed.as_ref().expect("seal.1: a key found in a file only opens");
        assert!(position < HEADER_POSITION, "seal.1");
        sealed.note(position, self.header.kind);
        self.seal_at(position, context, bytes)
    }

    fn seal_at(&self, position: u64, context: &[u8], bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let tag = self.key.seal_in_place_separate_tag(nonce(position), Aad::from(context), bytes);
        let tag = tag.expect("a unit of a file is shorter than the 64 GiB of AES-GCM");
        tag.as_ref().try_into().expect("tags have 16 bytes")
    }

    /// Decrypts in place. Returns the number of bytes without the tag; `None` if the tag does not match.
    pub(super) fn open(&self, position: u64, context: &[u8], bytes: &mut [u8]) -> Option<usize> {
        let opened = self.key.open_in_place(nonce(position), Aad::from(context), bytes);
        opened.ok().map(|bytes| bytes.len())
    }

    /// Returns the key header, which authenticates `bound`.
    pub(super) fn header(&self, bound: &[u8]) -> [u8; KEY_HEADER_BYTES] {
        let sealed = self.sealed.as_ref().expect("seal.1: a key found in a file only opens");
        assert!(!sealed.has_header.swap(true, Ordering::Relaxed), "seal.1: the header is made once");
        let fields = self.header.encode();
        let tag = self.seal_at(HEADER_POSITION, &[&fields, bound].concat(), &mut []);
        let mut out = [0; KEY_HEADER_BYTES];
        out[..FIELD_BYTES].copy_from_slice(&fields);
        out[FIELD_BYTES..].copy_from_slice(&tag);
        out
    }

    /// Returns whether this is the header of this key, and authenticates `bound`.
    pub(super) fn is_of(&self, header: &[u8], bound: &[u8]) -> bool {
        let Some((fields, tag)) = header.split_at_checked(FIELD_BYTES) else { return false };
        self.open(HEADER_POSITION, &[fields, bound].concat(), &mut tag.to_vec()) == Some(0)
    }
}

impl std::fmt::Debug for FileKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileKey({:016x})", self.header.database_key)
    }
}

fn nonce(position: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&position.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}
