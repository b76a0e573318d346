//! Files for segments to come: filled with zeros ahead of their use, only reserved for large commits, or
//! recycled from obsolete segments.
//!
//! ```text
//!   background --prepare_step--> spares <--recycle-- WalWriter::release_below
//!                                  |  header, name `000008.wal-next`, both durable; then the manifest names segment 8
//!                                  `--> prepared --take--> WalWriter (has one prepared itself if there is none)
//! ```
//!
//! pool.2. Spares have temporary names: recovery deletes them, and prepared files.
//! pool.3. The pool keeps one prepared file, and as many spares as segments were taken lately: [`SPARES_MIN`]
//!     at rest, [`SPARES_MAX`] at the most. Beyond `SPARES_MIN` they take no more than a part of what is held
//!     back (pool.8).
//! pool.4. A segment is named in the manifest when its prepared file is durable, and before it is put to use.
//!     So each segment that is named is there, under one of its two names, or it was lost.
//! pool.5. A prepared file is deleted only after the manifest has stopped to name it. If it fails to, it may
//!     have stopped all the same: the file stays, and is named again before it is put to use.
//! pool.6. Removing a missing file succeeds: an earlier call that failed may have removed it.
//! pool.8. A file is put to use, or made ahead, only if the disk has more room than is held back, except for
//!     records that may use that (reserve.1 of engine/disk/reserve.rs); and no file made is larger than a
//!     part of it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_env::{Env, OpenOptions};
use parking_lot::Mutex;

use super::file_name;
use super::format::{SEGMENT_BYTES_LIMIT, SegmentHeader};
use super::meter::Meter;
use super::options::{Register, WalOptions};
use super::purpose::Use;
use super::recovery::remove_if_there;
use super::shelf::Shelf;
use super::spare::{Prepared, SEGMENT_BYTES_UNIT, Spare};
use super::sync::SyncBeside;
use super::window::LogWindow;
use crate::types::{Error, Result};

/// Number of spares that are kept at rest, and the maximum (pool.3).
const SPARES_MIN: usize = 2;
const SPARES_MAX: usize = 8;
/// Number of spares made ahead, beside the prepared file, if segments are taken often.
const SPARES_AHEAD: usize = 2;
/// Segments are taken often if this number was taken, each within `REST_AFTER` of the one before.
const OFTEN: usize = 4;
const REST_AFTER: Duration = Duration::from_secs(2);
/// A segment may have this part of the database at once.
const DATABASE_PART: u64 = 8;
/// A new file takes at most this part of what is held back (pool.8).
const HELD_BACK_PART: u64 = 4;

/// The spare files of one log. Shared by its writer and the background work. Lock order: `numbers`, then
/// `state`.
#[derive(Debug)]
pub(crate) struct WalPool {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) options: WalOptions,
    /// Bytes (pool.8). Relaxed: a size that orders nothing.
    held_back: AtomicU64,
    register: Register,
    pub(super) meter: Arc<Meter>,
    /// Held over I/O.
    numbers: Mutex<Numbers>,
    state: Mutex<State>,
    /// The writer has asked for a file since [`take_wish`](Self::take_wish) was called last. Relaxed: a hint.
    has_wish: AtomicBool,
}

#[derive(Debug)]
struct Numbers {
    /// The number of the next file to prepare.
    next: u64,
    prepared: Option<Prepared>,
    /// The manifest names all segments up to this one, for certain.
    named_to: u64,
}

#[derive(Debug)]
struct State {
    spares: Vec<Spare>,
    /// The size of the next file to make, apart from pool.9.
    next_bytes: u64,
    /// The size of the newest file that was prepared; 0: none was.
    newest_bytes: u64,
    /// The writer will need a file soon, for records of this kind.
    wanted: Option<Use>,
    /// Segments taken lately, up to [`SPARES_MAX`], and when the last one was.
    taken: usize,
    last_taken: Duration,
    /// The number in the next spare's name.
    next_name: u64,
    /// Files of obsolete segments that became spares.
    recycled: u64,
}

/// Which room on the disk a record may use (pool.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRoom {
    /// What is free beyond what is held back.
    Common,
    /// All there is.
    HeldBack,
}

impl WalPool {
    /// What is to be synced before the log.
    pub(super) fn sync_beside(&self) -> SyncBeside {
        self.register.sync_beside.clone()
    }

    /// Where the log is kept for others, if it is.
    pub(super) fn shelf(&self) -> Option<&Arc<Shelf>> {
        self.register.shelf.as_ref()
    }

    /// A pool without files, for the log in `dir`, which exists.
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        options: WalOptions,
        register: Register,
    ) -> Result<Arc<WalPool>> {
        let max = options.segment_bytes_max;
        if max == 0 || !max.is_multiple_of(SEGMENT_BYTES_UNIT) || max > SEGMENT_BYTES_LIMIT {
            let problem = format!("WAL segments of {max} bytes: give a multiple of 512, at most 1 GiB");
            return Err(Error::Invalid(problem));
        }
        let first = options.first_segment_bytes;
        assert!(first > 0 && first.is_multiple_of(SEGMENT_BYTES_UNIT), "a first segment of {first} bytes");
        let next_bytes = first.min(max);
        let state = State {
            spares: Vec::new(),
            next_bytes,
            newest_bytes: 0,
            wanted: None,
            taken: 0,
            last_taken: Duration::ZERO,
            next_name: 0,
            recycled: 0,
        };
        let numbers = Numbers { next: 0, prepared: None, named_to: 0 };
        Ok(Arc::new(WalPool {
            meter: Meter::new(env.clock.clone()),
            env,
            dir,
            options,
            held_back: AtomicU64::new(0),
            register,
            numbers: Mutex::new(numbers),
            state: Mutex::new(state),
            has_wish: AtomicBool::new(false),
        }))
    }

    /// The database has become this large: files that are made from now on need not begin small.
    pub(crate) fn suit(&self, database_bytes: u64) {
        let enough = (database_bytes / DATABASE_PART).min(self.segment_bytes_max());
        let mut state = self.state.lock();
        while state.next_bytes * 2 <= enough {
            state.next_bytes *= 2;
        }
    }

    /// The database will soon be this large, by what does not go through the log: the file for what follows
    /// is made meanwhile.
    pub(crate) fn expect(&self, database_bytes: u64) {
        self.suit(database_bytes);
        self.want_spare(Use::Ordinary);
    }

    /// From now on, `bytes` are held back (pool.8).
    pub(crate) fn hold_back(&self, bytes: u64) {
        self.held_back.store(bytes, Ordering::Relaxed);
    }

    /// Whether a file of `bytes` leaves on the disk what is held back.
    fn has_common_room(&self, bytes: u64) -> bool {
        let held_back = self.held_back.load(Ordering::Relaxed);
        held_back == 0 || self.env.fs.free_bytes(&self.dir).map_or(true, |free| free >= held_back + bytes)
    }

    /// The size of a file to make, if `due` bytes are due (pool.8).
    fn allowed_bytes(&self, due: u64) -> u64 {
        match self.held_back.load(Ordering::Relaxed) / HELD_BACK_PART {
            0 => due,
            part => due.min(part.next_multiple_of(SEGMENT_BYTES_UNIT).max(self.options.first_segment_bytes)),
        }
    }

    /// The size of a file to make.
    fn due_bytes(&self, state: &State, purpose: Use) -> u64 {
        self.allowed_bytes(purpose.file_bytes(state.next_bytes, state.newest_bytes, self.segment_bytes_max()))
    }

    /// Deletes the spares, so that others have their space; false if there were none.
    pub(crate) fn give_up_spares(&self) -> bool {
        let spares = std::mem::take(&mut self.state.lock().spares);
        let had_some = !spares.is_empty();
        // What is still there is garbage that the next open collects.
        let _ = self.remove_all(spares);
        had_some
    }

    /// The number of the first file to prepare.
    pub(super) fn begin(&self, first_segment: u64) {
        let mut numbers = self.numbers.lock();
        (numbers.next, numbers.named_to) = (first_segment, first_segment.saturating_sub(1));
    }

    /// One step of background work: prepares a file if the writer will need one soon. False if there was
    /// nothing to do. An error is harmless: the writer makes the file itself.
    pub(crate) fn prepare_step(&self) -> Result<bool> {
        let prepared = self.try_prepare();
        // With nothing to do it is as it was, and as long as puts are refused a file that is ready mends
        // nothing.
        let is_mended = matches!(prepared, Ok(true)) && self.has_common_room(0);
        if prepared.is_err() || is_mended {
            self.meter.note_files(&prepared);
        }
        prepared
    }

    fn try_prepare(&self) -> Result<bool> {
        let wanted = self.state.lock().wanted.take();
        let is_ready = |numbers: &Numbers| {
            numbers.prepared.as_ref().is_some_and(|prepared| prepared.number <= numbers.named_to)
        };
        let Some(purpose) = wanted else {
            self.shrink();
            return Ok(false);
        };
        let is_often = self.state.lock().taken >= OFTEN;
        let ahead = if is_often { SPARES_AHEAD } else { 0 };
        if is_ready(&self.numbers.lock()) {
            return self.make_ahead(purpose, ahead);
        }
        // The long part, without the lock: a writer that cannot wait makes its own.
        let is_made = self.make_ahead(purpose, 1)?;
        if self.state.lock().spares.is_empty() {
            return Ok(is_made);
        }
        let mut numbers = self.numbers.lock();
        if is_ready(&numbers) {
            return Ok(is_made);
        }
        self.get_ready(&mut numbers, purpose)?;
        drop(numbers);
        self.make_ahead(purpose, ahead).map(|_| true)
    }

    /// Makes spares until there are `spares`. False if there was nothing to do, or the disk has too little
    /// room (pool.8).
    fn make_ahead(&self, purpose: Use, spares: usize) -> Result<bool> {
        let mut is_made = false;
        loop {
            let (have, bytes) = {
                let state = self.state.lock();
                (state.spares.len(), self.due_bytes(&state, purpose))
            };
            if have >= spares || !self.has_common_room(bytes) {
                return Ok(is_made);
            }
            let spare = self.new_file(purpose, bytes)?;
            self.state.lock().spares.push(spare);
            is_made = true;
        }
    }

    /// How many spares are kept (pool.3).
    fn spares_max(&self, state: &State) -> usize {
        let bytes_max = match self.held_back.load(Ordering::Relaxed) {
            0 => u64::MAX,
            held_back => held_back / 3 * 2,
        };
        let lately = state.taken.min((bytes_max / self.segment_bytes_max()) as usize);
        lately.clamp(SPARES_MIN, SPARES_MAX)
    }

    /// Deletes spares beyond those that are kept at rest, if there is rest (pool.3).
    fn shrink(&self) {
        let now = self.env.clock.monotonic();
        let beyond = {
            let mut state = self.state.lock();
            if now.saturating_sub(state.last_taken) < REST_AFTER {
                return;
            }
            state.taken = 0;
            let kept = state.spares.len().min(SPARES_MIN);
            state.spares.split_off(kept)
        };
        // What cannot be removed goes at the next opening (pool.2).
        beyond.iter().for_each(|spare| drop(self.remove(&spare.path)));
    }

    /// Whether the writer has asked for a file since the last call.
    pub(crate) fn take_wish(&self) -> bool {
        self.has_wish.load(Ordering::Relaxed) && self.has_wish.swap(false, Ordering::Relaxed)
    }

    /// Whether [`prepare_step`](Self::prepare_step) has something to do.
    #[cfg(test)]
    pub(crate) fn spare_wanted(&self) -> bool {
        let prepared = self.numbers.lock().prepared.is_some();
        self.state.lock().wanted.is_some() && !prepared
    }

    /// Deletes all files that wait for their use.
    pub(crate) fn trim(&self) -> Result<()> {
        self.give_back(&mut VecDeque::new())?;
        let spares = {
            let mut state = self.state.lock();
            state.wanted = None;
            std::mem::take(&mut state.spares)
        };
        self.remove_all(spares)
    }

    /// Deletes the newest files that the writer has taken, without having put them to use, and the one after
    /// them. If the manifest cannot be written, they stay in `taken`: their numbers are theirs, and the
    /// writer goes on with them.
    pub(super) fn give_back(&self, taken: &mut VecDeque<Prepared>) -> Result<()> {
        let mut numbers = self.numbers.lock();
        let first = taken.front().or(numbers.prepared.as_ref()).map(|prepared| prepared.number);
        let Some(first) = first else { return Ok(()) };
        // pool.5: from here on only these are named for certain.
        let before = first.saturating_sub(1);
        numbers.named_to = numbers.named_to.min(before);
        (self.register.name)(before)?;
        numbers.named_to = before;
        numbers.next = first;
        let unused = std::mem::take(taken).into_iter().chain(numbers.prepared.take());
        self.remove_all(unused.map(|prepared| prepared.spare))
    }

    pub(super) fn want_spare(&self, purpose: Use) {
        self.state.lock().wanted = Some(purpose);
        self.has_wish.store(true, Ordering::Relaxed);
    }

    /// The size that segments grow to.
    pub(super) fn segment_bytes_max(&self) -> u64 {
        self.options.segment_bytes_max
    }

    /// The file for the next segment, prepared now if none is. One that is ready already may have another
    /// size than was asked for.
    pub(super) fn take(&self, purpose: Use, room: LogRoom) -> Result<Prepared> {
        let mut numbers = self.numbers.lock();
        if room == LogRoom::Common && !self.has_common_room(self.missing_bytes(&numbers, purpose)) {
            return Err(Error::NoSpace { op: "make a WAL segment in", path: self.dir.clone() });
        }
        self.get_ready(&mut numbers, purpose)?;
        let mut state = self.state.lock();
        let now = self.env.clock.monotonic();
        let lately = if now.saturating_sub(state.last_taken) < REST_AFTER { state.taken } else { 0 };
        (state.taken, state.last_taken) = ((lately + 1).min(SPARES_MAX), now);
        Ok(numbers.prepared.take().expect("it is ready"))
    }

    /// What the next file takes of the disk that it does not have yet.
    fn missing_bytes(&self, numbers: &Numbers, purpose: Use) -> u64 {
        let state = self.state.lock();
        match purpose {
            _ if numbers.prepared.is_some() => 0,
            Use::Bulk(bytes) => bytes,
            _ if !state.spares.is_empty() => 0,
            purpose => self.due_bytes(&state, purpose),
        }
    }

    /// Sees to it that a file is prepared and named (pool.4). A failed one is tried again by the next call.
    fn get_ready(&self, numbers: &mut Numbers, purpose: Use) -> Result<()> {
        if numbers.prepared.is_none() {
            let spare = match purpose {
                Use::Small | Use::Ordinary | Use::Large(_) => self.take_spare(purpose)?,
                Use::Bulk(bytes) => self.new_file(purpose, bytes)?,
            };
            let number = numbers.next;
            numbers.prepared = Some(self.prepare(spare, number)?);
            numbers.next = number + 1;
        }
        self.name_up_to(numbers, numbers.next - 1)
    }

    /// Sees to it that the files which the writer has taken, up to this one, are named: they may be so no
    /// more (pool.5).
    pub(super) fn name_taken(&self, number: u64) -> Result<()> {
        self.name_up_to(&mut self.numbers.lock(), number)
    }

    /// Names all that are prepared if those up to `number` may not be named.
    fn name_up_to(&self, numbers: &mut Numbers, number: u64) -> Result<()> {
        if number > numbers.named_to {
            let newest = numbers.next - 1;
            (self.register.name)(newest)?;
            numbers.named_to = newest;
        }
        Ok(())
    }

    /// The window of a new segment.
    pub(super) fn window(&self) -> LogWindow {
        LogWindow::new(self.options.maps)
    }

    /// The header of a segment in a file of this size.
    pub(super) fn header_of(&self, number: u64, bytes: u64) -> SegmentHeader {
        let made_bytes = u32::try_from(bytes).expect("segments are at most 1 GiB long");
        SegmentHeader { number, made_bytes, database_id: self.options.database_id }
    }

    /// Gives a file its header and the name of a prepared one, both durable (pool.4).
    fn prepare(&self, spare: Spare, number: u64) -> Result<Prepared> {
        let header = self.header_of(number, spare.bytes);
        Prepared::new(&self.env, &self.dir, spare, header)
    }

    /// A spare, made now if there is none.
    fn take_spare(&self, purpose: Use) -> Result<Spare> {
        let (ready, bytes) = {
            let mut state = self.state.lock();
            (state.spares.pop(), self.due_bytes(&state, purpose))
        };
        let spare = ready.map_or_else(|| self.new_file(purpose, bytes), Ok)?;
        let mut state = self.state.lock();
        state.next_bytes = state.next_bytes.max(bytes * 2).min(self.segment_bytes_max());
        state.newest_bytes = spare.bytes;
        Ok(spare)
    }

    /// A new file: filled with zeros, or reserved where records write all of it (pool.1).
    fn new_file(&self, purpose: Use, bytes: u64) -> Result<Spare> {
        let path = file_name::spare_path(&self.dir, self.state.lock().take_name());
        match purpose {
            Use::Small | Use::Ordinary => Spare::make(&self.env, path, bytes),
            Use::Large(_) | Use::Bulk(_) => Spare::reserve(&self.env, path, bytes),
        }
    }

    /// Keeps the file of an obsolete segment of this process for another use, or deletes it.
    pub(super) fn recycle(&self, spare: &Spare) -> Result<()> {
        let name = {
            let mut state = self.state.lock();
            let due = self.allowed_bytes(state.next_bytes);
            let fits = (due..=self.segment_bytes_max()).contains(&spare.bytes);
            let keep = spare.is_written && fits && state.spares.len() < self.spares_max(&state);
            keep.then(|| state.take_name())
        };
        let Some(name) = name else { return self.remove(&spare.path) };
        let path = file_name::spare_path(&self.dir, name);
        if self.env.fs.rename(&spare.path, &path).is_err() {
            // pool.6: it has one of the two names, or none.
            let (renamed, kept) = (self.remove(&path), self.remove(&spare.path));
            return renamed.and(kept);
        }
        let mut state = self.state.lock();
        state.spares.push(Spare { path, ..spare.clone() });
        state.recycled += 1;
        Ok(())
    }

    /// The same of one whose file is closed.
    pub(super) fn recycle_closed(&self, path: &Path, bytes: u64, is_reusable: bool) -> Result<()> {
        if is_reusable && let Ok(file) = self.env.fs.open(path, OpenOptions::write()) {
            return self.recycle(&Spare { path: path.to_owned(), file, bytes, is_written: true });
        }
        self.remove(path)
    }

    /// What the log costs.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Files of obsolete segments that were kept for another use so far.
    pub(crate) fn recycled(&self) -> u64 {
        self.state.lock().recycled
    }

    /// Removes all that it can; fails if one is left.
    fn remove_all(&self, spares: impl IntoIterator<Item = Spare>) -> Result<()> {
        let mut removed = Ok(());
        for spare in spares {
            removed = removed.and(self.remove(&spare.path));
        }
        removed
    }

    /// Removes a file, if it is there (pool.6).
    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        remove_if_there(&self.env, path)
    }
}

impl State {
    fn take_name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }
}
