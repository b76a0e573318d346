//! The lowest and the highest key of a set's ops. A range removal outside of them cancels no op.

use super::Op;

/// The keys that the first ops of a set lie between. Ops that were undone still count.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyExtent {
    /// Number of ops whose keys are known.
    ops: usize,
    low: Vec<u8>,
    high: Vec<u8>,
}

impl KeyExtent {
    /// Takes the keys of further ops, which are in `bytes`. Returns whether the range may hold a key.
    pub(super) fn may_hold(&mut self, ops: &[Op], bytes: &[u8], start: &[u8], end: &[u8]) -> bool {
        for (at, op) in ops.iter().enumerate().skip(self.ops) {
            let key = &bytes[op.key_start..][..op.key_len as usize];
            if at == 0 || key < &self.low[..] {
                self.low.clear();
                self.low.extend_from_slice(key);
            }
            if at == 0 || key > &self.high[..] {
                self.high.clear();
                self.high.extend_from_slice(key);
            }
        }
        self.ops = ops.len();
        self.ops > 0 && start <= &self.high[..] && &self.low[..] < end
    }

    /// Undoes all ops but the first `ops`.
    pub(super) fn go_back(&mut self, ops: usize) {
        self.ops = self.ops.min(ops);
    }
}
