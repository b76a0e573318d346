//! Commits that wait for nothing: not for the disk, for a file, or for another commit.
//!
//! ```text
//!   commit_async --lock free, space in memtable and segment, all in memory--> WAL, memtable --> number
//!                `-otherwise, unchanged--> the queue of the commit thread (engine/writes/committer.rs)
//! ```
//!
//! at_once.1. A commit that is given back has changed nothing: what it has to look up is looked up before it
//!     enters the log.

use super::commit::{CommitRequest, Durability, Pipeline};
use crate::types::{Result, SeqNo, memory_only};

/// Larger commits are for the commit thread.
const OPS_MAX: usize = 256;
const BYTES_MAX: usize = 64 << 10;
/// Bytes of a record besides its writes, at most: for the record, and for each write.
const RECORD_BYTES: usize = 4 << 10;
const WRITE_BYTES: usize = 32;

impl CommitRequest {
    /// Returns whether the commit is small and waits neither for the disk nor for an exclusive turn.
    pub(crate) fn may_be_at_once(&self) -> bool {
        let set = &self.set;
        let is_small = set.op_count() <= OPS_MAX && set.byte_len() <= BYTES_MAX;
        let is_plain = set.ranges().is_empty() && self.layers.is_empty() && self.drops.is_empty();
        self.durability != Durability::Sync && !self.may_pass && is_small && is_plain && !set.is_empty()
    }
}

impl Pipeline {
    /// Makes a small commit, unless it would have to wait. `Err`: nothing was changed.
    pub(crate) fn commit_at_once(&self, request: CommitRequest) -> Result<Result<SeqNo>, Box<CommitRequest>> {
        if !request.set.is_decodable() {
            return Err(Box::new(request));
        }
        request.set.sort();
        let Some(mut state) = self.state.try_lock() else { return Err(Box::new(request)) };
        let bytes = request.set.byte_len() + RECORD_BYTES + WRITE_BYTES * request.set.op_count();
        let has_room = state.wal.as_ref().is_some_and(|wal| wal.has_room(bytes as u64));
        if !has_room || state.poison.check().is_err() || self.is_full(&state) {
            return Err(Box::new(request));
        }
        let (before, group) = (state.last_seq, [request]);
        let (mut outcomes, has_missed) = memory_only::noting_misses(|| self.lead_ready(&mut state, &group));
        match outcomes.pop() {
            Some(outcome) if state.last_seq != before || !has_missed => Ok(outcome),
            _ => {
                let [request] = group;
                // at_once.1
                Err(Box::new(request))
            }
        }
    }
}
