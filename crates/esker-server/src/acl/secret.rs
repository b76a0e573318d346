//! Password hashes, and a cache of verified passwords.
//!
//! A password is stored as a slow hash with a salt (argon2id). SHA-256 hashes without a salt, as Redis has
//! them, are accepted as they are. Slow hashes are computed in at most [`HASHED_AT_ONCE`] buffers, which are
//! reused. So clients that guess or set many passwords do not take more memory.
//!
//! Verified passwords are cached under a key of this process, so that the next login costs a fast hash.

use std::collections::{HashSet, VecDeque};

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Maximum number of cached proofs. The oldest are dropped.
const PROOFS_MAX: usize = 4096;

/// Maximum number of concurrent hashes. Each takes 19 MiB and tens of milliseconds.
pub const HASHED_AT_ONCE: usize = 2;
const SALT_BYTES: usize = 16;
/// Maximum memory cost of an accepted hash, in KiB.
const HASH_KIB_MAX: u32 = 256 << 10;

/// Memory for computing hashes.
static BUFFERS: [Mutex<Vec<Block>>; HASHED_AT_ONCE] = [const { Mutex::new(Vec::new()) }; HASHED_AT_ONCE];

/// A password hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// SHA-256, as in Redis.
    Fast([u8; 32]),
    /// Argon2id, in its standard text form.
    Slow(String),
}

impl Secret {
    /// Hashes a password with a new salt.
    pub fn of(password: &[u8]) -> Result<Self, String> {
        let mut salt = [0; SALT_BYTES];
        super::random(&mut salt)?;
        let hash = slow_hash(password, &salt).ok_or("ERR a password could not be hashed")?;
        Ok(Secret::Slow(hash.to_string()))
    }

    /// Parses the output of `text`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        if text.starts_with("$argon2id$") {
            let hash =
                PasswordHash::new(text).ok().filter(|hash| hash.hash.is_some() && hash.salt.is_some())?;
            Params::try_from(&hash).ok().filter(|params| params.m_cost() <= HASH_KIB_MAX)?;
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

    /// The text form, without spaces.
    pub fn text(&self) -> String {
        match self {
            Secret::Fast(hash) => hash.iter().map(|byte| format!("{byte:02x}")).collect(),
            Secret::Slow(text) => text.clone(),
        }
    }

    /// Returns whether a comparison takes tens of milliseconds.
    pub fn is_slow(&self) -> bool {
        matches!(self, Secret::Slow(_))
    }

    /// Returns whether this is the hash of a password.
    pub fn is_hash_of(&self, password: &[u8]) -> bool {
        match self {
            Secret::Fast(hash) => equal(hash, &Sha256::digest(password)),
            Secret::Slow(text) => PasswordHash::new(text).is_ok_and(|hash| is_slow_hash_of(&hash, password)),
        }
    }
}

/// Computes the argon2id hash of a password with the default costs.
fn slow_hash(password: &[u8], salt: &[u8]) -> Option<PasswordHash> {
    let params = Params::default();
    let mut found = [0; Params::DEFAULT_OUTPUT_LEN];
    hash_into(Version::default(), params.clone(), password, salt, &mut found)?;
    Some(PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::default().into()),
        params: ParamsString::try_from(&params).ok()?,
        salt: Some(Salt::new(salt).ok()?),
        hash: Some(Output::new(&found).ok()?),
    })
}

/// Computes a hash in one of the buffers. Blocks if all are in use.
fn hash_into(version: Version, params: Params, password: &[u8], salt: &[u8], found: &mut [u8]) -> Option<()> {
    let mut buffer = match BUFFERS.iter().find_map(Mutex::try_lock) {
        Some(buffer) => buffer,
        None => BUFFERS[0].lock(),
    };
    let count = params.block_count();
    if buffer.len() < count {
        buffer.resize(count, Block::default());
    }
    Argon2::new(Algorithm::Argon2id, version, params)
        .hash_password_into_with_memory(password, salt, found, &mut buffer[..count])
        .ok()
}

/// Returns whether this is the argon2id hash of a password.
fn is_slow_hash_of(hash: &PasswordHash, password: &[u8]) -> bool {
    let (Some(salt), Some(expected), Ok(params)) = (&hash.salt, &hash.hash, Params::try_from(hash)) else {
        return false;
    };
    let version = hash.version.map_or(Ok(Version::default()), Version::try_from);
    let Ok(version) = version else { return false };
    let mut found = vec![0; expected.as_bytes().len()];
    hash_into(version, params, password, salt, &mut found)
        .is_some_and(|()| equal(&found, expected.as_bytes()))
}

/// Compares bytes in a time that does not depend on where they differ.
fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[derive(Default)]
struct Known {
    set: HashSet<[u8; 32]>,
    oldest_first: VecDeque<[u8; 32]>,
}

/// Cache of passwords that were verified against slow hashes.
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
