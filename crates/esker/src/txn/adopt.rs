//! Commits a large transaction: its private tables are added to the version at one sequence number.
//!
//! ```text
//!   adoption.rs --adopt--> commit lock: check again, sync the log --> manifest edit adds the tables
//!                                       --> log record of the sequence number --> Published
//! ```
//!
//! adopt.1. One manifest edit adds all tables of the commit and makes it durable as a whole. The log is
//!     synced first, so earlier commits are durable before it.
//!
//! - The log receives a record of the commit without writes, so that its sequence numbers have no gap.
//!   If this record is lost in a crash, the next opening finds the commit in the manifest and writes the
//!   record again. If the log is retained for other readers, the record is synced, so that they see the
//!   commit no later than its owner.
//!
//! adopt.4. A record without writes whose commit is missing in the manifest proves that the manifest has lost
//!     its end: opening fails.

use super::commit::{Pipeline, WriteState};
use super::payload::encode_header;
use super::request::CommitRequest;
use super::write_set::CountDeltas;
use crate::read::view::ReadView;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};
use crate::wal::{LogRoom, WalWriter};

/// How a manifest edit failed.
pub(crate) enum EditFailed {
    /// The tables were certainly not added: later commits may proceed.
    Undone(Error),
    /// It is unknown whether the tables were added.
    Unknown(Error),
}

impl Pipeline {
    /// Commits a transaction whose tables are written. `is_clear` checks under the commit lock whether
    /// `deltas` still hold for the view and nothing lies above the tables; if it returns false, the result is
    /// `None`. `name` writes the edit to the manifest and updates the view. `table_bytes` is the size of the
    /// tables.
    pub(crate) fn adopt(
        &self,
        request: &CommitRequest,
        deltas: &CountDeltas,
        table_bytes: u64,
        is_clear: impl FnOnce(&ReadView) -> Result<bool>,
        name: impl FnOnce(SeqNo) -> std::result::Result<(), EditFailed>,
    ) -> Result<Option<SeqNo>> {
        let mut state = self.state.lock();
        state.poison.check()?;
        request.check_keyspaces()?;
        let view = self.view.get();
        let exact = |id| {
            let count = self.published.counter(id).now();
            Ok(count.saturating_sub(view.overcount(id, state.last_seq)?))
        };
        self.check_reads(request, &view, exact)?;
        if !is_clear(&view)? {
            return Ok(None);
        }
        let count = |id| self.published.counter(id).now();
        self.check_counts(&mut state, deltas, count)?;
        let header = encode_header(deltas);
        state.wal()?.reserve(header.len() as u64, LogRoom::HeldBack)?;
        let seq = state.last_seq.next();
        // low_water_key.2: the keys are not enumerated, so the low-water key is reset.
        self.published.enter(seq);
        for life in &*request.keyspaces {
            self.published.counter(life.id).low_water_key.note_put(seq, 0);
        }
        // From here on, a panic leaves a commit that is not published (poison.1).
        view.skip_ranges.note_adopted(seq);
        state.poison.begin();
        match make_durable(&mut state, seq, &header, name) {
            Ok(()) => {}
            Err(EditFailed::Undone(error)) => {
                state.poison.settle();
                return Err(error);
            }
            Err(EditFailed::Unknown(error)) => {
                state.poison.settle();
                return Err(state.poison.stop(error));
            }
        }
        for mark in &request.drops {
            mark.set();
        }
        state.last_seq = seq;
        state.recent.note_all(seq);
        state.active.beside_bytes += table_bytes + request.blobs.bytes;
        let wal = state.wal()?;
        if wal.shelf().is_some() {
            request.blobs.leases.iter().for_each(|lease| lease.file().note_commit(seq));
        }
        self.published.publish(seq, deltas);
        wal.notify_visible();
        state.poison.settle();
        if self.watchers.are_any() {
            self.watchers.committed(request, seq);
        }
        Ok(Some(seq))
    }
}

/// Syncs the log, adds the tables by a manifest edit (adopt.1), and appends the record to the log.
fn make_durable(
    state: &mut WriteState,
    seq: SeqNo,
    header: &[u8],
    name: impl FnOnce(SeqNo) -> std::result::Result<(), EditFailed>,
) -> std::result::Result<(), EditFailed> {
    if !canary::is_set(Canary::WalSyncSkipped) {
        state.wal().and_then(WalWriter::sync).map_err(EditFailed::Unknown)?;
    }
    name(seq)?;
    let append = |wal: &mut WalWriter| {
        wal.append(seq, &[header])?;
        if wal.shelf().is_some() { wal.sync() } else { Ok(()) }
    };
    // As after any failed log write, the next opening finds out whether the record was written.
    state.wal().and_then(append).map_err(EditFailed::Unknown)
}
