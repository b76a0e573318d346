//! Why encrypted files cannot be read.

use std::io;
use std::sync::Arc;

/// Why encrypted files cannot be read: the problem of [`Error::Encryption`](super::Error::Encryption).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionProblem {
    /// The files are encrypted, and no key was given.
    #[error("it is encrypted: give its master key (`Builder::encryption`, `--key-file`)")]
    KeyMissing,
    /// A key was given, and the files are not encrypted.
    #[error(
        "it is not encrypted, or its KEYS are lost: open it without a key, or unload it and load it into a new, encrypted database"
    )]
    NotEncrypted,
    /// The provider does not have the master key of this id.
    #[error("master key {0:?} is needed, which the key provider does not have")]
    MasterKeyUnknown(String),
    /// The provider has another master key of this id.
    #[error("master key {0:?} is not the one that wrapped its keys")]
    MasterKeyWrong(String),
    /// The file is encrypted with a key of another database.
    #[error("it is encrypted with a key that the database does not have: it belongs to another one")]
    FileKeyUnknown,
    /// Others than the owner have access to a file of master keys, which has these permission bits.
    #[error("others than you have access to the master keys in it (mode {0:03o}): `chmod 600` it")]
    KeyFileExposed(u32),
    /// The key provider failed.
    #[error("the key provider failed: {0}")]
    Provider(Arc<io::Error>),
}
