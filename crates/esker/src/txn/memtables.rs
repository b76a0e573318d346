//! The life of memtables: filled by commits, sealed, offered to the flush, released.
//!
//! ```text
//!   Active --full--> sealed (its log segment ends, too) --flush--> tables --release--> its log is removed
//! ```
//!
//! memtables.1. A memtable is sealed together with the WAL segment it ends in: all its commits are in segments before
//!     `Sealed::wal_from`.
//! memtables.2. A sealed memtable is offered to the flush only once the view has it among its immutable ones: a flush that came first would
//!     find nothing to take out, and the memtable would hide for ever what came after it.
//! memtables.3. A full memtable is sealed before the next commit, or by the flush thread if none comes, which also seals old ones (engine/upkeep/memtable_age.rs). It is full, too, if its part of the log is
//!     [`LOG_FACTOR`] times as large as a full memtable: the log has all that a commit wrote, the memtable only what it did not overwrite itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::commit::{Pipeline, WriteState};
use super::joiner::joiner;
use crate::memtable::{Applier, Memtable};
use crate::read::view::ReadView;
use crate::types::{KeyspaceId, Result, SeqNo};

/// How much longer the log of a memtable may become than a full memtable is (memtables.3). Where no commit overwrites what it wrote itself, the
/// log is the shorter one.
const LOG_FACTOR: u64 = 4;

/// A full memtable on its way to tables.
#[derive(Clone)]
pub struct Sealed {
    /// It.
    pub memtable: Arc<Memtable>,
    /// Its last commit.
    pub last_seq: SeqNo,
    /// Live items after that commit, of the keyspaces where that has changed since the memtable before was sealed.
    pub counts: Vec<(KeyspaceId, u64)>,
    /// Bytes of values in blob files and of tables that its commits have beside the log.
    pub beside_bytes: u64,
    /// The first WAL segment that is needed once this memtable is in tables.
    pub wal_from: u64,
}

/// The memtable that commits fill.
pub(super) struct Active {
    pub(super) memtable: Arc<Memtable>,
    pub(super) applier: Applier,
    /// Written to the log since it was begun (memtables.3).
    pub(super) logged_bytes: u64,
    /// Written beside it (`Sealed::beside_bytes`).
    pub(super) beside_bytes: u64,
}

impl Active {
    /// One that nothing was logged for.
    pub(super) fn new(memtable: Arc<Memtable>, applier: Applier) -> Self {
        Active { memtable, applier, logged_bytes: 0, beside_bytes: 0 }
    }

    /// memtables.3. A memtable of a few bytes looks full when it is made.
    fn is_full(&self, bytes_max: usize) -> bool {
        let is_log_long = self.logged_bytes / LOG_FACTOR >= bytes_max as u64;
        (self.memtable.bytes_used() >= bytes_max || is_log_long) && !self.memtable.is_empty()
    }
}

/// The full memtables.
pub(super) struct Memtables {
    /// Oldest first.
    sealed: Mutex<VecDeque<Sealed>>,
    /// One of this size is full. Relaxed: it orders nothing.
    bytes_max: AtomicUsize,
}

impl Memtables {
    /// With those that recovery has sealed, oldest first.
    pub(super) fn new(sealed: Vec<Sealed>, bytes_max: usize) -> Self {
        Memtables { sealed: Mutex::new(sealed.into()), bytes_max: AtomicUsize::new(bytes_max) }
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }
}

impl Pipeline {
    /// Seals the memtable when it is full, or its log long (memtables.3).
    pub(super) fn make_room(&self, state: &mut WriteState) -> Result<()> {
        if state.active.is_full(self.memtables.bytes_max()) { self.seal_active(state) } else { Ok(()) }
    }

    /// From now on one of this size is full.
    pub fn limit_memtables(&self, bytes_max: usize) {
        self.memtables.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Ends the active memtable and its WAL segment, and starts new ones (memtables.1).
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
        // memtables.2: whoever flushes finds it in the view, and takes it out.
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

    /// Seals the memtable if it is full (memtables.3), or old and not empty, unless a commit is going on, after which this is asked again.
    pub fn seal_if_due(&self, is_old: bool) -> Result<()> {
        match self.state.try_lock() {
            Some(mut state) if state.poison.check().is_ok() && state.wal.is_some() => {
                if is_old && !state.active.memtable.is_empty() {
                    return self.seal_active(&mut state);
                }
                self.make_room(&mut state)
            }
            _ => Ok(()),
        }
    }

    /// Seals the active memtable if it holds anything.
    pub fn seal(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.poison.check()?;
        if state.active.memtable.is_empty() {
            return Ok(());
        }
        self.seal_active(&mut state)
    }

    /// The sealed memtables, oldest first.
    pub fn sealed(&self) -> Vec<Sealed> {
        self.memtables.sealed.lock().iter().cloned().collect()
    }

    /// The last commit of the newest sealed memtable.
    pub fn newest_sealed(&self) -> Option<SeqNo> {
        self.memtables.sealed.lock().back().map(|sealed| sealed.last_seq)
    }

    /// Whether a memtable whose last commit is at most this one is sealed.
    pub fn has_sealed(&self, last: SeqNo) -> bool {
        self.memtables.sealed.lock().front().is_some_and(|oldest| oldest.last_seq <= last)
    }

    /// How many memtables are sealed.
    pub fn sealed_len(&self) -> usize {
        self.memtables.sealed.lock().len()
    }

    /// The oldest `n` sealed memtables are in tables now: forgets them, and their part of the WAL.
    pub fn release(&self, n: usize) {
        let released = self.memtables.sealed.lock().drain(..n).next_back();
        if let Some(last) = released {
            // What cannot be removed now is tried again with the next flush.
            let _ = self.state.lock().wal().and_then(|wal| wal.release_below(last.wal_from));
        }
    }

    /// Gives up the part of the log that is not kept any more (shelf.2 of wal/shelf.rs).
    pub fn release_kept(&self) -> Result<()> {
        self.state.lock().wal()?.release_below(0)
    }
}
