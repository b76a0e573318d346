//! The commit of a large transaction: its private tables join the version, at one sequence number.
//!
//! ```text
//!   engine/writes/adoption.rs: counts, conflicts --adopt--> commit lock: nothing new in the way? log synced --> manifest names the tables
//!                                                    --> the commit's number in the log --> Published
//! ```
//!
//! adopt.1. The commit is durable and whole with the one edit of the manifest that names all its tables.
//! adopt.2. Commits before it are durable before it is: the log is synced first.
//! adopt.3. The log gets a record of the commit without writes, so that its numbers have no gap. That is not durable yet: if it is lost, the
//!      next opening knows of the commit by the manifest, and writes the record again.
//! adopt.4. So a record without writes of a commit that the manifest does not know proves that the manifest has lost its end: opening refuses it.
//! adopt.5. If the log is kept for others, the record is synced: they see the commit no later than its owner.

use super::commit::{CommitRequest, Pipeline};
use super::payload::encode_header;
use super::write_set::CountDeltas;
use crate::read::view::ReadView;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};
use crate::wal::{LogRoom, WalWriter};

/// How an edit of the manifest failed.
pub(crate) enum NotNamed {
    /// The tables are not named, for certain: others may commit.
    Undone(Error),
    /// Nobody knows whether they are.
    Unknown(Error),
}

impl Pipeline {
    /// Commits a transaction whose tables are written. `is_clear` says, of the view under the commit lock, whether `deltas` still hold and nothing
    /// lies above the tables; `None`: it said no. `name` makes the edit, in the manifest and in the view. The tables have `table_bytes`.
    pub(crate) fn adopt(
        &self,
        request: &CommitRequest,
        deltas: &CountDeltas,
        table_bytes: u64,
        is_clear: impl FnOnce(&ReadView) -> Result<bool>,
        name: impl FnOnce(SeqNo) -> std::result::Result<(), NotNamed>,
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
        // front.2: what it puts is not looked through.
        self.published.enter(seq);
        for life in &request.keyspaces {
            self.published.counter(life.id).front.note_put(seq, 0);
        }
        // From here on a panic leaves a commit that nobody has published (poison.1).
        view.skip_ranges.note_adopted(seq);
        state.poison.begin();
        let synced = match canary::is_set(Canary::WalSyncSkipped) {
            true => Ok(()),
            false => state.wal().and_then(WalWriter::sync),
        };
        if let Err(error) = synced {
            state.poison.settle();
            return Err(state.poison.stop(error));
        }
        match name(seq) {
            Ok(()) => {}
            Err(NotNamed::Undone(error)) => {
                state.poison.settle();
                return Err(error);
            }
            Err(NotNamed::Unknown(error)) => {
                state.poison.settle();
                return Err(state.poison.stop(error));
            }
        }
        // adopt.3, adopt.5
        let append = |wal: &mut WalWriter| {
            wal.append(seq, &[&header])?;
            if wal.is_kept() { wal.sync() } else { Ok(()) }
        };
        if let Err(error) = state.wal().and_then(append) {
            // Whether it is there shows the next opening, as after any failure of the log.
            state.poison.settle();
            return Err(state.poison.stop(error));
        }
        for mark in &request.drops {
            mark.set();
        }
        state.last_seq = seq;
        state.active.beside_bytes += table_bytes + request.blobs.bytes;
        let wal = state.wal()?;
        if wal.is_kept() {
            request.blobs.leases.iter().for_each(|lease| lease.file().note_commit(seq));
        }
        self.published.publish(seq, deltas);
        wal.tell_visible();
        state.poison.settle();
        if self.watchers.are_any() {
            self.watchers.committed(request, seq);
        }
        Ok(Some(seq))
    }
}
