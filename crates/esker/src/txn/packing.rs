//! Packing: a full write set becomes a piece, in another thread if there is one, while its owner goes on writing.
//!
//! ```text
//!   write set --> Packing --get: by whoever comes first--> Piece
//!                    `-- the empty set goes back to its owner, with its memory
//! ```

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::write_set::WriteSet;
use crate::cache::{BudgetKind, MemoryBudget, Reservation};
use crate::memtable::Piece;
use crate::types::SeqNo;

/// Sets that are kept for their memory.
const SPARES_MAX: usize = 2;

/// Empty write sets, with memory for new writes.
#[derive(Clone, Default)]
pub(crate) struct Spares(Arc<Mutex<Vec<WriteSet>>>);

impl Spares {
    /// An empty set.
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

/// A piece, or the write set that it is made of.
pub(crate) struct Packing {
    set: Mutex<Option<Arc<WriteSet>>>,
    piece: OnceLock<Arc<Piece>>,
    spares: Spares,
    op_count: usize,
    byte_len: usize,
    memory_bytes: u64,
    _memory: Reservation,
}

impl Packing {
    pub(crate) fn new(set: Arc<WriteSet>, spares: Spares, budget: &Arc<MemoryBudget>) -> Self {
        let (op_count, byte_len) = (set.op_count(), set.byte_len());
        let memory_bytes = Piece::memory_bytes_of(op_count, byte_len);
        Packing {
            set: Mutex::new(Some(set)),
            piece: OnceLock::new(),
            spares,
            op_count,
            byte_len,
            memory_bytes,
            _memory: budget.reserve(BudgetKind::Transaction, memory_bytes),
        }
    }

    /// The piece; made now if it is not yet.
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

    /// Puts and removals of the set.
    pub(crate) fn op_count(&self) -> usize {
        self.op_count
    }

    /// Bytes of its keys and values.
    pub(crate) fn byte_len(&self) -> usize {
        self.byte_len
    }

    /// Bytes of memory that the piece takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
