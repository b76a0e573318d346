//! Converts a full write set to a piece, on another thread if possible, while its owner continues to write.
//!
//! ```text
//!   write set --> Packing --get: by the first caller--> Piece
//!                    `-- the emptied set returns to its owner, with its memory
//! ```

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::write_set::WriteSet;
use crate::cache::{BudgetKind, MemoryBudget, Reservation};
use crate::memtable::Piece;
use crate::types::SeqNo;

/// Number of sets kept for their memory.
const SPARES_MAX: usize = 2;

/// Empty write sets with memory for new writes.
#[derive(Clone, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<WriteSet>>>);

impl Spares {
    /// Returns an empty set.
    pub(crate) fn take(&self) -> WriteSet {
        self.0.lock().pop().unwrap_or_default()
    }

    fn give(&self, mut set: WriteSet) {
        set.clear();
        let mut spares = self.0.lock();
        if spares.len() < SPARES_MAX {
            spares.push(set);
        }
    }
}

/// A piece, or the write set from which it will be made.
pub(crate) struct Packing {
    set: Mutex<Option<Arc<WriteSet>>>,
    piece: OnceLock<Arc<Piece>>,
    spares: Spares,
    op_count: usize,
    byte_len: usize,
    memory_bytes: u64,
    removes_only: bool,
    _memory: Reservation,
}

impl Packing {
    pub(crate) fn new(set: Arc<WriteSet>, spares: Spares, budget: &Arc<MemoryBudget>) -> Self {
        let (op_count, byte_len) = (set.op_count(), set.byte_len());
        let memory_bytes = Piece::memory_bytes_of(op_count, byte_len);
        Packing {
            piece: OnceLock::new(),
            spares,
            op_count,
            byte_len,
            memory_bytes,
            removes_only: set.removes_only(),
            _memory: budget.reserve(BudgetKind::Transaction, memory_bytes),
            set: Mutex::new(Some(set)),
        }
    }

    /// Returns the piece, making it if necessary.
    pub(crate) fn get(&self) -> &Arc<Piece> {
        self.piece.get_or_init(|| {
            let set = self.set.lock().take().expect("a set is packed once");
            let size = (set.key_count(), self.byte_len);
            let piece = Piece::new(set.entries(SeqNo::ZERO), size, set.ranges().to_vec());
            if let Ok(set) = Arc::try_unwrap(set) {
                self.spares.give(set);
            }
            Arc::new(piece)
        })
    }

    /// Returns whether the set has only removals.
    pub(crate) fn removes_only(&self) -> bool {
        self.removes_only
    }

    /// Number of puts and removals in the set.
    pub(crate) fn op_count(&self) -> usize {
        self.op_count
    }

    /// Bytes of its keys and values.
    pub(crate) fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Bytes of memory used by the piece.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
