//! The life of a memtable: filled by commits, sealed, flushed, released.
//!
//! ```text
//!   Active --full--> sealed (its log segment ends too) --flush--> tables --release--> its log is removed
//! ```
//!
//! A memtable is sealed together with the WAL segment it ends in: all its commits are in
//! segments before `Sealed::wal_from`.
//!
//! memtables.2. A sealed memtable is offered to the flush only once the view contains it as an immutable
//!     memtable. An earlier flush would not find it to remove, and the memtable would hide newer data
//!     forever.
//!
//! A full memtable is sealed before the next commit, or by the flush thread if there is none. The flush
//! thread also seals old memtables (engine/upkeep/memtable_age.rs). A memtable also counts as full if its
//! part of the log is four times as large as a full memtable. The log holds everything a commit
//! wrote, the memtable only what the commit did not overwrite itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::commit::{Pipeline, WriteState};
use super::flush_reason::{MemtableFacts, Moment, flush_reason};
use super::joiner::joiner;
use crate::memtable::{Applier, Memtable};
use crate::read::view::ReadView;
use crate::types::{KeyspaceId, Result, SeqNo};

/// A full memtable that waits to be flushed.
#[derive(Clone)]
pub struct Sealed {
    /// The memtable.
    pub memtable: Arc<Memtable>,
    /// Its last commit.
    pub last_seq: SeqNo,
    /// Live keys after that commit, for keyspaces whose count changed since the previous memtable was sealed.
    pub counts: Vec<(KeyspaceId, u64)>,
    /// Bytes in blob files and adopted tables that its commits wrote besides the log.
    pub beside_bytes: u64,
    /// The first WAL segment needed once this memtable is flushed.
    pub wal_from: u64,
}

/// The memtable that commits fill.
pub(super) struct Active {
    pub(super) memtable: Arc<Memtable>,
    pub(super) applier: Applier,
    /// Bytes written to the log for this memtable.
    pub(super) logged_bytes: u64,
    /// Bytes written besides the log (`Sealed::beside_bytes`).
    pub(super) beside_bytes: u64,
}

impl Active {
    /// Creates the state of a memtable without logged commits.
    pub(super) fn new(memtable: Arc<Memtable>, applier: Applier) -> Self {
        Active { memtable, applier, logged_bytes: 0, beside_bytes: 0 }
    }

    /// Returns whether the memtable should be sealed. An empty one never is, even if `bytes_max` is tiny.
    fn is_full(&self, bytes_max: usize) -> bool {
        let memtable = &self.memtable;
        let facts = MemtableFacts {
            bytes: memtable.bytes_used() as u64,
            content_bytes: 0,
            is_empty: memtable.is_empty(),
            bytes_max: bytes_max as u64,
        };
        flush_reason(facts, Moment::Commit { logged_bytes: self.logged_bytes }).is_some()
    }
}

/// The full memtables.
pub(super) struct Memtables {
    /// Oldest first.
    sealed: Mutex<VecDeque<Sealed>>,
    /// Size of a full memtable. Relaxed: it orders nothing.
    bytes_max: AtomicUsize,
}

impl Memtables {
    /// Starts with the memtables sealed by recovery, oldest first.
    pub(super) fn new(sealed: Vec<Sealed>, bytes_max: usize) -> Self {
        Memtables { sealed: Mutex::new(sealed.into()), bytes_max: AtomicUsize::new(bytes_max) }
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }
}

impl Pipeline {
    /// Seals the memtable if it is full or its log is too long.
    pub(super) fn make_room(&self, state: &mut WriteState) -> Result<()> {
        if self.is_full(state) { self.seal_active(state) } else { Ok(()) }
    }

    /// Returns whether the memtable is to be sealed before the next commit.
    pub(super) fn is_full(&self, state: &WriteState) -> bool {
        state.active.is_full(self.memtables.bytes_max())
    }

    /// Sets the size of a full memtable.
    pub fn limit_memtables(&self, bytes_max: usize) {
        self.memtables.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Seals the active memtable and its WAL segment, and starts new ones.
    fn seal_active(&self, state: &mut WriteState) -> Result<()> {
        // poison.1
        state.poison.begin();
        let sealed = self.seal_halfway(state);
        state.poison.settle();
        sealed
    }

    fn seal_halfway(&self, state: &mut WriteState) -> Result<()> {
        let wal_from = match state.wal()?.rotate() {
            Ok(segment) => segment,
            Err(error) => return Err(state.poison.stop(error)),
        };
        let memtable = Arc::new(Memtable::new(self.memtables.bytes_max()));
        let fresh = Active::new(memtable.clone(), memtable.applier().joining(joiner(&self.view)));
        let Active { memtable: full, beside_bytes, .. } = std::mem::replace(&mut state.active, fresh);
        let (last_seq, counts) = (state.last_seq, self.published.take_changed());
        // memtables.2: a flush finds the memtable in the view.
        self.view.update(|old| {
            let mut immutables = old.immutables.clone();
            immutables.insert(0, full.clone());
            ReadView { active: memtable, immutables, ..old.clone() }
        });
        self.memtables.sealed.lock().push_back(Sealed {
            memtable: full,
            last_seq,
            counts,
            beside_bytes,
            wal_from,
        });
        Ok(())
    }

    /// Seals the memtable if it is full, or if `is_old` and it is not empty. Does nothing while a commit is
    /// running; the caller tries again afterwards. If writes go on, the next file of the log is made ready
    /// before, so that they do not wait for it.
    pub fn seal_if_due(&self, is_old: bool, writes_go_on: bool) -> Result<()> {
        let is_due = |state: &WriteState| is_old && !state.active.memtable.is_empty() || self.is_full(state);
        let (due, next_file) = match self.state.try_lock() {
            Some(mut state) if state.poison.check().is_ok() && state.wal.is_some() && is_due(&state) => {
                (state.active.memtable.clone(), state.wal()?.next_file())
            }
            _ => return Ok(()),
        };
        if writes_go_on {
            next_file();
        }
        self.sync_unsynced()?;
        match self.state.try_lock() {
            Some(mut state) if state.poison.check().is_ok() && Arc::ptr_eq(&due, &state.active.memtable) => {
                self.seal_active(&mut state)
            }
            _ => Ok(()),
        }
    }

    /// Seals the active memtable unless it is empty. The log is synced before, while commits go on, so that
    /// they hardly wait.
    pub fn seal(&self) -> Result<()> {
        let is_empty = |state: &WriteState| -> Result<bool> {
            state.poison.check()?;
            Ok(state.active.memtable.is_empty())
        };
        if is_empty(&self.state.lock())? {
            return Ok(());
        }
        self.sync_unsynced()?;
        let mut state = self.state.lock();
        if is_empty(&state)? { Ok(()) } else { self.seal_active(&mut state) }
    }

    /// Returns the sealed memtables, oldest first.
    pub fn sealed(&self) -> Vec<Sealed> {
        self.memtables.sealed.lock().iter().cloned().collect()
    }

    /// Returns the last commit of the newest sealed memtable.
    pub fn newest_sealed(&self) -> Option<SeqNo> {
        self.memtables.sealed.lock().back().map(|sealed| sealed.last_seq)
    }

    /// Returns whether a memtable with commits only up to `last` is sealed.
    pub fn has_sealed(&self, last: SeqNo) -> bool {
        self.memtables.sealed.lock().front().is_some_and(|oldest| oldest.last_seq <= last)
    }

    /// Number of sealed memtables.
    pub fn sealed_len(&self) -> usize {
        self.memtables.sealed.lock().len()
    }

    /// Prepares for the log of sealed memtables to be given up (wal.9).
    pub fn prepare_to_release(&self) -> Result<()> {
        self.state.lock().wal()?.prepare_to_give_up()
    }

    /// Forgets the oldest `n` sealed memtables, which are now in tables, and releases their part of the WAL.
    pub fn release(&self, n: usize) {
        let released = self.memtables.sealed.lock().drain(..n).next_back();
        if let Some(last) = released {
            // Files that cannot be removed now are removed by the next flush.
            let _ = self.state.lock().wal().and_then(|wal| wal.release_below(last.wal_from));
        }
    }

    /// Releases the part of the log that is no longer retained (shelf.2 of wal/shelf.rs).
    pub fn release_kept(&self) -> Result<()> {
        self.state.lock().wal()?.release_below(0)
    }
}
