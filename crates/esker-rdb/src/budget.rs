//! Bounds the memory of what is decoded: few bytes can stand for many.

/// Memory that a decoded piece takes beside its bytes.
const PIECE_OVERHEAD: u64 = 64;

/// The memory that decoded pieces may still take.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
    /// What did not fit, if anything did not.
    is_exceeded: bool,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Budget { left: bytes, is_exceeded: false }
    }

    /// Accounts for a piece of this size; `None` if it does not fit.
    pub(crate) fn spend(&mut self, bytes: u64) -> Option<()> {
        match self.left.checked_sub(bytes.saturating_add(PIECE_OVERHEAD)) {
            Some(left) => self.left = left,
            None => self.is_exceeded = true,
        }
        (!self.is_exceeded).then_some(())
    }

    /// Returns whether a piece did not fit.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }
}
