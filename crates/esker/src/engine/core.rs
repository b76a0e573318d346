//! The running database, as a stack of layers. Each owns the one below it and dereferences to it, so that a
//! method of a layer calls the methods below it as its own and cannot call one above it.
//!
//! ```text
//!   life/     opening, closing, background threads, checkpoints                  owns a Core
//!   writes/   commits: admission, large transactions, locks, sweeps, filters     Writes
//!   upkeep/   flush, compaction, blob collection, and when each is due           Upkeep
//!   state/    what readers see: view, catalog, commit pipeline, change feed      State
//!   disk/     files: directory lock, manifest, log pool, blob files, cache       Disk
//!   base/     options, statistics, health, signals between threads               Base
//! ```
//!
//! Lock order: the exclusive turn, the catalog's changes, `turns.compact`, `turns.flush`, the pipeline's
//! state, the log pool's numbers, the blob file in use, the manifest (which names a log segment before it is
//! put to use), the view, the published state. No I/O under the last two. No other lock is taken while the
//! list of bytes that the pipeline still has to sync is locked.

use std::ops::Deref;

use super::writes::Writes;

/// A running database: the top of the stack. Its methods are defined in the layers: `submit` in
/// `engine/writes/admission.rs`, for example.
pub(crate) struct Core {
    writes: Writes,
    /// Dropped last, after the layers have released their memory.
    _memory: ReleaseMemory,
}

impl Core {
    pub(in crate::engine) fn new(writes: Writes) -> Self {
        Core { writes, _memory: ReleaseMemory }
    }
}

impl Deref for Core {
    type Target = Writes;

    fn deref(&self) -> &Writes {
        &self.writes
    }
}

/// Returns memory that the database no longer uses to the system when dropped.
struct ReleaseMemory;

impl Drop for ReleaseMemory {
    fn drop(&mut self) {
        esker_env::settle_page_bufs();
    }
}
