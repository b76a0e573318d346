//! What the lab asks of an engine: one trait to open it, three to use it.
//!
//! ```text
//! Engine --open(dir)--> Store --write(txn)--> Writer   put, remove
//!                             --reader()----> Reader   get, range, len, at one snapshot
//! ```
//!
//! S1. `Store::write` is one atomic transaction; when it returns in mode `Sync`, the data is on the device.
//! S2. A `Reader` is a snapshot: it sees each transaction whole or not at all, and none committed after it began.
//! S3. Values are handed to a visitor, so an engine that can lend its bytes copies nothing, and every engine pays
//!     the same one virtual call.
//! S4. Going back to mode `Sync` makes durable what was written without: no engine carries that debt into a later row.

use std::path::Path;

/// An engine, as the lab knows it before any database exists.
pub(crate) trait Engine: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Version of the engine and of the crate that binds it.
    fn version(&self) -> String;

    /// Every setting that differs from the engine's defaults, or that readers ask about, with its reason.
    fn options(&self) -> &'static [EngineOption];

    /// Engines that test the lab itself are kept out of `list` and of the default run.
    fn hidden(&self) -> bool {
        false
    }

    /// Creates a database in the empty directory `dir`, or opens the one that is there, with `memory_bytes` of cache.
    fn open(&self, dir: &Path, memory_bytes: u64) -> Result<Box<dyn Store>, Failure>;
}

/// One setting of an adapter and why it is so.
pub(crate) struct EngineOption {
    /// The setting as the engine calls it.
    pub(crate) setting: &'static str,
    /// Why, and where the engine's authors advise it.
    pub(crate) reason: &'static str,
}

/// How far a commit must have got before it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// On the device.
    Sync,
    /// Anywhere: the engine's fastest mode that still leaves a sound database after a crash of the process.
    NoSync,
}

/// An open database with one ordered map in it.
pub(crate) trait Store: Send + Sync {
    /// Chooses the durability of the transactions that follow; the default is `Sync`.
    /// [`Failure::Unsupported`] says that the engine has no such mode.
    fn set_durability(&mut self, durability: Durability) -> Result<(), Failure>;

    /// Runs `work` in one transaction and commits it (S1). An error from `work` rolls back.
    fn write(&self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<(), Failure>) -> Result<(), Failure>;

    /// Opens a snapshot (S2).
    fn reader(&self) -> Result<Box<dyn Reader + '_>, Failure>;

    /// The engine's own best compaction, run to its end.
    fn compact(&mut self) -> Result<(), Failure>;
}

/// The open transaction of a [`Store::write`].
pub(crate) trait Writer {
    /// Inserts or replaces.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Removes `key`, which need not exist.
    fn remove(&mut self, key: &[u8]) -> Result<(), Failure>;
}

/// A snapshot.
pub(crate) trait Reader {
    /// Shows the value of `key` to `visit`; false when there is none.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure>;

    /// Shows up to `limit` items from the first key >= `from`, in key order; returns how many there were.
    fn range(&mut self, from: &[u8], limit: u64, visit: &mut dyn FnMut(&[u8], &[u8]))
    -> Result<u64, Failure>;

    /// The exact number of items.
    fn len(&mut self) -> Result<u64, Failure>;
}

/// Why a row has no value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The engine cannot do this by design: its row says so, and the run goes on.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The engine answered wrongly: the row fails, and the run goes on.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// The engine failed: what follows would measure a broken database, so the run of this engine ends.
    #[error("{0}")]
    Engine(String),
}

impl Failure {
    /// Wraps an engine's own error.
    pub(crate) fn engine(error: impl std::fmt::Display) -> Self {
        Self::Engine(error.to_string())
    }
}
