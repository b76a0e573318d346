//! The log's writer: appends commits as records and makes them durable.
//!
//! ```text
//!   append --record--> buffer --write--> file (page cache) --sync--> disk
//!             |  segment full: End record, write, sync; then the next segment gets its name
//!             `-- reserve: files for the whole record exist before its first byte is written
//! ```
//!
//! Invariants wal.1 to wal.9: see the [module](super); wal_writer.1: active.rs; how segments end:
//! ends.rs. In addition:
//!
//! wal_writer.2. A segment always has space for its `End` record.
//! - `reserve` fails before anything of the record is written, and the writer stays usable, if the disk is
//!   full, the manifest cannot name the record's segments, or the process has no descriptor left to sync the
//!   directory. A record that fits the active segment needs none of these. A second `reserve` of no more
//!   bytes does nothing that can fail.
//! - Segments are put to use in numeric order, and the manifest names them before (pool.4).

mod ends;
mod next_file;

use std::collections::VecDeque;
use std::sync::Arc;

use super::active::{Active, room_in, sealed_more_bytes};
use super::file_name;
use super::format::{self, ALIGN, Kind, RecordHeader};
use super::old_segments::OldSegments;
use super::pool::{LogRoom, WalPool};
use super::prepared::Prepared;
use super::purpose::FilePurpose;
use super::record_parts::Parts;
use super::recovery::{EndOfLog, Recovered};
use super::shelf::Shelf;
use super::sync::{SegmentFile, SyncHandle, SyncOutcome, panicked};
use crate::encoding::checksum::{crc32c, crc32c_append};
use crate::types::canary::{self, Canary};
use crate::types::parts::{Part, timed};
use crate::types::{Error, Result, SeqNo};

/// The buffer is written out before it would exceed this size.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Writes one log. The commit lock guards it.
#[derive(Debug)]
pub(crate) struct WalWriter {
    pool: Arc<WalPool>,
    /// The active segment; made for the first record.
    active: Option<Active>,
    /// Files for the next segments, in order.
    ready: VecDeque<Prepared>,
    /// Bytes of the active segment that have not been written yet.
    buffer: Vec<u8>,
    /// Number of the next segment to get a name.
    next_segment: u64,
    /// The segments before the active one.
    old: OldSegments,
    /// Size of the record for which files are reserved.
    reserved: Option<u64>,
    /// Recovered bytes to make durable before a segment gets its name (recovery.4).
    end_before: Option<EndOfLog>,
    last_seq: SeqNo,
    poison: Option<Arc<Error>>,
    /// Set while [`guard`](Self::guard) runs, and after it panicked (wal.6).
    is_guarded: bool,
}

impl WalWriter {
    /// Returns a writer whose first segment will be `first_segment`; creates no file. `of_earlier` lists
    /// older segments to delete when they are released (recovery.8), from
    /// [`Recovered`](super::recovery::Recovered).
    pub(crate) fn create(pool: Arc<WalPool>, first_segment: u64, of_earlier: &[u64]) -> Result<WalWriter> {
        let names = pool.env.fs.list_dir(&pool.dir).map_err(|e| Error::io("list", &pool.dir, e))?;
        if let Some(n) =
            names.iter().filter_map(|n| file_name::parse_segment(n)).find(|n| *n >= first_segment)
        {
            let path = file_name::segment_path(&pool.dir, n);
            return Err(Error::corrupt(
                "WAL",
                path,
                0,
                "the segment is newer than the first one to write; recover the log first",
            ));
        }
        pool.begin(first_segment);
        let old = OldSegments::new(pool.clone(), of_earlier);
        let writer = WalWriter {
            pool,
            active: None,
            ready: VecDeque::new(),
            buffer: Vec::new(),
            next_segment: first_segment,
            old,
            reserved: None,
            end_before: None,
            last_seq: SeqNo::ZERO,
            poison: None,
            is_guarded: false,
        };
        writer.update_meter(0);
        Ok(writer)
    }

    /// Continues the recovered log.
    pub(crate) fn behind(self, recovered: &Recovered) -> WalWriter {
        WalWriter { end_before: recovered.end.clone(), ..self }
    }

    /// Appends a record, the concatenation of `parts`, to the buffer. [`write`](Self::write) hands it to the
    /// operating system, [`sync`](Self::sync) makes it durable. If the record fills the active segment, this
    /// call writes and syncs that segment.
    ///
    /// Returns [`Error::NoSpace`] if nothing was written and a later append may succeed.
    ///
    /// # Panics
    /// If `seq` is not larger than that of the previous record (wal.2).
    pub(crate) fn append(&mut self, seq: SeqNo, parts: &[&[u8]]) -> Result<()> {
        assert!(seq > self.last_seq, "wal.2: {seq} after {}", self.last_seq);
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        self.reserve(bytes, LogRoom::HeldBack)?;
        self.reserved = None;
        let appended = self.guard(|writer| writer.append_record(seq, bytes, Parts { parts, skip: 0 }));
        self.update_meter(0);
        appended
    }

    /// Updates the meter with the bytes of the log that recovery needs, and those of a record to come.
    fn update_meter(&self, to_come: u64) {
        let active = self.active.as_ref().map_or(0, |active| active.appended);
        self.pool.meter.set_live(self.old.needed_bytes() + active + to_come);
    }

    /// Ensures that files exist for a record of `bytes`; has missing ones prepared.
    pub(crate) fn reserve(&mut self, bytes: u64, on_disk: LogRoom) -> Result<()> {
        self.check()?;
        if self.reserved.is_some_and(|reserved| bytes <= reserved) || self.has_room(bytes) {
            return Ok(());
        }
        self.update_meter(bytes); // The files of a large record suit the log that it makes long.
        let reserved = timed(Part::LogFiles, || self.reserve_files(bytes, on_disk));
        self.update_meter(0);
        self.pool.meter.note_files(&reserved);
        reserved
    }

    /// Returns whether a record of `bytes` bytes fits the active segment.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.active.as_ref().and_then(Active::payload_room).is_some_and(|room| room >= bytes)
    }

    /// Has files prepared for the part of the record that does not fit the active segment.
    fn reserve_files(&mut self, bytes: u64, on_disk: LogRoom) -> Result<()> {
        let room = self.active.as_ref().and_then(Active::payload_room);
        let kept = self.ready.len();
        self.store_end()?;
        let dir = &self.pool.dir;
        self.pool.env.fs.can_sync_dir(dir).map_err(|e| Error::io("open directory", dir, e))?;
        let mut room = self.ready.iter().fold(room, |room, file| Some(room.unwrap_or(0) + room_in(file)));
        let (segment_max, bulk_max) = (self.pool.segment_bytes_max(), self.pool.options.bulk_segment_bytes);
        while room.is_none_or(|room| room < bytes) {
            let missing = bytes - room.unwrap_or(0) + sealed_more_bytes(&self.pool.env);
            let bulk = FilePurpose::of_missing(missing, segment_max, bulk_max);
            let prepared = match self.pool.take(bulk.unwrap_or_else(|| self.next_purpose()), on_disk) {
                Ok(prepared) => prepared,
                Err(error) => {
                    // Returns the space that this record took, because the disk is full.
                    let mut taken = self.ready.split_off(kept);
                    let _ = self.pool.give_back(&mut taken);
                    self.ready.append(&mut taken);
                    return Err(error);
                }
            };
            room = Some(room.unwrap_or(0) + room_in(&prepared));
            self.ready.push_back(prepared);
        }
        let last = self.ready.back().expect("the active segment has too little room");
        self.pool.name_taken(last.number)?;
        self.reserved = Some(bytes);
        Ok(())
    }

    /// Hands all appended records to the operating system, so that they survive the end of this process.
    pub(crate) fn write(&mut self) -> Result<()> {
        self.guard(|writer| if writer.store() { Ok(()) } else { writer.write_out() })
    }

    /// Hands them over through the mapped window (window.rs); returns false if it cannot be used.
    fn store(&mut self) -> bool {
        let is_stored = self.active.as_mut().is_some_and(|active| active.store(&self.buffer));
        if is_stored {
            self.note_written();
        }
        is_stored
    }

    /// Asks the system to start writing unsynced bytes. Pays if other work and then a sync follow soon.
    pub(crate) fn start_writeback(&self) {
        if let Some(active) = self.active.as_ref().filter(|active| active.synced < active.written) {
            // Only a hint: the next sync reports every error.
            let _ = active.segment.file.start_writeback(active.synced, active.written - active.synced);
        }
    }

    /// Reports the durable end to readers of the log (shelf.1).
    fn publish_durable(&self) {
        if let (Some(shelf), Some(active)) = (self.pool.shelf(), &self.active) {
            shelf.note_durable(active.segment.number, active.synced);
        }
    }

    /// Returns the shelf on which segments are kept for readers, if there is one.
    pub(crate) fn shelf(&self) -> Option<Arc<Shelf>> {
        self.pool.shelf().cloned()
    }

    /// Notifies readers of the log that commits became visible.
    pub(crate) fn notify_visible(&self) {
        if let Some(shelf) = self.pool.shelf() {
            if let Some(active) = self.active.as_ref().filter(|_| canary::is_set(Canary::FeedBeforeDurable)) {
                shelf.note_durable(active.segment.number, active.written);
            }
            shelf.notify();
        }
    }

    /// Makes all appended records durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.guard(Self::sync_active)
    }

    /// Returns a handle with which a thread can sync the written bytes without the writer's lock; `None` if
    /// there are none. The thread passes the outcome to [`synced`](Self::synced).
    pub(crate) fn sync_handle(&self) -> Option<SyncHandle> {
        let active = self.active.as_ref().filter(|active| active.synced < active.written)?;
        Some(SyncHandle { segment: active.segment.clone(), written: active.written })
    }

    /// Records the outcome of a [`SyncHandle`]; a failure poisons the writer.
    pub(crate) fn synced(&mut self, outcome: SyncOutcome) -> Result<()> {
        self.guard(|writer| {
            outcome.result?;
            if let Some(active) = writer.active.as_mut().filter(|a| a.segment.number == outcome.segment) {
                active.note_synced(outcome.written);
            }
            writer.publish_durable();
            Ok(())
        })
    }

    /// Returns the directory of its segments.
    pub(crate) fn dir(&self) -> &std::path::Path {
        &self.pool.dir
    }

    /// Returns the segment that the next record goes to, or starts in.
    pub(crate) fn current_segment(&self) -> u64 {
        self.active.as_ref().map_or(self.next_segment, |active| active.segment.number)
    }

    /// Returns the number of bytes that a power loss would take.
    #[cfg(test)]
    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.active.as_ref().map_or(0, |active| active.appended - active.synced)
    }

    fn check(&self) -> Result<()> {
        match &self.poison {
            Some(cause) => Err(Error::Poisoned(cause.clone())),
            None if self.is_guarded && !canary::is_set(Canary::PoisonForgotten) => {
                Err(Error::Poisoned(Arc::new(panicked())))
            }
            None => Ok(()),
        }
    }

    /// Runs `work`, and poisons the writer if it fails. Refuses after an earlier failure or panic (wal.6).
    fn guard<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.check()?;
        self.is_guarded = true;
        let done = work(self);
        self.is_guarded = false;
        done.map_err(|e| {
            let cause = match e {
                Error::Poisoned(cause) => cause,
                first => Arc::new(first),
            };
            if !canary::is_set(Canary::PoisonForgotten) {
                self.poison = Some(cause.clone());
            }
            Error::Poisoned(cause)
        })
    }

    fn append_record(&mut self, seq: SeqNo, bytes: u64, mut parts: Parts<'_>) -> Result<()> {
        self.last_seq = seq;
        let mut left = bytes;
        loop {
            let Some(room) = self.active.as_ref().and_then(Active::payload_room) else {
                if self.active.is_some() {
                    self.finish_active()?;
                }
                self.activate()?;
                continue;
            };
            let n = left.min(room);
            self.put_record(seq, Kind::of_fragment(left == bytes, n == left), n, &mut parts)?;
            left -= n;
            if left == 0 {
                break;
            }
        }
        let active = self.active.as_mut().expect("the record is in it");
        if !active.spare_wanted && active.appended > active.bytes / 2 {
            active.spare_wanted = true;
            self.pool.want_spare(active.next_purpose());
        }
        Ok(())
    }

    fn put_record(&mut self, seq: SeqNo, kind: Kind, n: u64, parts: &mut Parts<'_>) -> Result<()> {
        let active = self.active.as_mut().expect("a record has a segment");
        if let Some(shelf) = self.pool.shelf()
            && matches!(kind, Kind::Full | Kind::First)
            && !std::mem::replace(&mut active.has_first, true)
        {
            shelf.note_first(active.segment.number, seq);
        }
        let n = n as usize;
        let (payload_len, synced_to) = ((n + active.seal.tag_bytes()) as u32, active.synced as u32);
        let header = RecordHeader { kind, seq, synced_to, payload_len, payload_crc: 0 };
        if active.seal.is_on() {
            return self.put_sealed(header, n, parts);
        }
        let mut payload_crc = 0;
        parts.clone().take(n, |piece| {
            payload_crc = crc32c_append(payload_crc, piece);
            Ok(())
        })?;
        let header = RecordHeader { payload_crc, ..header }.encode(active.segment.stamp);
        self.put(&header)?;
        parts.take(n, |piece| self.put(piece))?;
        self.put(&[0; ALIGN][..format::padded(n) - n])
    }

    fn put_sealed(&mut self, header: RecordHeader, n: usize, parts: &mut Parts<'_>) -> Result<()> {
        let active = self.active.as_mut().expect("a record has a segment");
        let mut payload = Vec::with_capacity(format::padded(header.payload_len as usize));
        parts.take(n, |piece| {
            payload.extend_from_slice(piece);
            Ok(())
        })?;
        header.seal_payload(&active.seal, active.appended, &mut payload);
        let header = RecordHeader { payload_crc: crc32c(&payload), ..header }.encode(active.segment.stamp);
        self.put(&header)?;
        payload.resize(format::padded(payload.len()), 0);
        self.put(&payload)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES_MAX {
            self.write_out()?;
        }
        self.buffer.extend_from_slice(&bytes[..bytes.len().min(BUFFER_BYTES_MAX)]);
        let active = self.active.as_mut().expect("bytes go to a segment");
        active.appended += bytes.len().min(BUFFER_BYTES_MAX) as u64;
        match bytes.get(BUFFER_BYTES_MAX..) {
            Some(rest) if !rest.is_empty() => self.put(rest),
            _ => Ok(()),
        }
    }

    fn write_out(&mut self) -> Result<()> {
        let Some(active) = self.active.as_mut().filter(|active| active.written < active.appended) else {
            return Ok(());
        };
        timed(Part::LogWrite, || active.write(&self.buffer))?;
        self.note_written();
        Ok(())
    }

    fn note_written(&mut self) {
        let active = self.active.as_mut().expect("it was written to");
        self.pool.meter.add_written(active.note_written());
        self.buffer.clear();
    }

    fn sync_active(&mut self) -> Result<()> {
        self.write_out()?;
        if let Some(active) = self.active.as_mut().filter(|active| active.synced < active.written) {
            active.sync()?;
            self.publish_durable();
        }
        Ok(())
    }

    /// Turns the first prepared file into the active segment by giving it its name, durably (wal.1, wal.3).
    fn activate(&mut self) -> Result<()> {
        let Prepared { number, spare, seal } = self.ready.pop_front().expect("append reserves first");
        assert!(number == self.next_segment, "{number}, not {}", self.next_segment);
        let (env, dir) = (&self.pool.env, &self.pool.dir);
        let path = file_name::segment_path(dir, number);
        env.fs.rename(&spare.path, &path).map_err(|e| Error::io("rename", &spare.path, e))?;
        if !canary::is_set(Canary::WalNameNotSynced) {
            env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))?;
        }
        let header = self.pool.header_of(number, spare.bytes);
        let segment = SegmentFile::new(header, path, spare.file, self.pool.meter.clone());
        let segment = segment.together_with(self.pool.sync_beside());
        self.next_segment = number + 1;
        if let Some(shelf) = self.pool.shelf() {
            shelf.begin(number);
        }
        self.active = Some(Active::new(segment, seal, spare.bytes, self.pool.window()));
        Ok(())
    }
}
