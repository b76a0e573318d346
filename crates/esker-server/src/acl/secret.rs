//! Passwords: hashes of them, and which were proven before.
//!
//! secret.1. A password is kept as a slow hash with a salt (argon2id). Hashes of Redis, SHA-256 without a salt, are taken as they come.
//! secret.2. What was proven is kept under a key of this process, so that a client's next connection costs a fast hash.

use std::collections::{HashSet, VecDeque};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// So many proofs are kept. The oldest go.
const PROOFS_MAX: usize = 4096;

/// The hash of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// SHA-256, as Redis has it.
    Fast([u8; 32]),
    /// Argon2id, in its usual text form.
    Slow(String),
}

impl Secret {
    /// The hash of a password (secret.1).
    pub fn of(password: &[u8]) -> Result<Self, String> {
        let hash = Argon2::default().hash_password(password);
        hash.map(|hash| Secret::Slow(hash.to_string()))
            .map_err(|error| format!("ERR hash a password: {error}"))
    }

    /// From the text that `text` gives.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        if text.starts_with("$argon2id$") {
            PasswordHash::new(text).ok().filter(|hash| hash.hash.is_some())?;
            return Some(Secret::Slow(text.to_owned()));
        }
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 64 || !text.bytes().all(is_hex) {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Secret::Fast(hash))
    }

    /// A text without spaces.
    pub fn text(&self) -> String {
        match self {
            Secret::Fast(hash) => hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            Secret::Slow(text) => text.clone(),
        }
    }

    /// Whether comparing takes tens of milliseconds.
    pub fn is_slow(&self) -> bool {
        matches!(self, Secret::Slow(_))
    }

    /// Whether it is the hash of this password.
    pub fn is_hash_of(&self, password: &[u8]) -> bool {
        match self {
            Secret::Fast(hash) => equal(hash, &Sha256::digest(password)),
            Secret::Slow(text) => PasswordHash::new(text)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
        }
    }
}

/// Whether bytes are equal, in a time that does not tell where they differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[derive(Default)]
struct Known {
    set: HashSet<[u8; 32]>,
    oldest_first: VecDeque<[u8; 32]>,
}

/// Slow hashes and passwords that are known to belong together (secret.2).
pub struct Proofs {
    key: [u8; 32],
    known: Mutex<Known>,
}

impl Proofs {
    pub fn new() -> Result<Self, String> {
        let mut key = [0; 32];
        super::random(&mut key)?;
        Ok(Proofs { key, known: Mutex::default() })
    }

    fn proof(&self, secret: &Secret, password: &[u8]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        let text = secret.text();
        hasher.update(self.key);
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
        hasher.update(password);
        hasher.finalize().into()
    }

    pub fn add(&self, secret: &Secret, password: &[u8]) {
        let proof = self.proof(secret, password);
        let mut known = self.known.lock();
        if known.set.insert(proof) {
            known.oldest_first.push_back(proof);
        }
        if known.oldest_first.len() > PROOFS_MAX
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.set.remove(&oldest);
        }
    }

    pub fn has(&self, secret: &Secret, password: &[u8]) -> bool {
        self.known.lock().set.contains(&self.proof(secret, password))
    }
}
