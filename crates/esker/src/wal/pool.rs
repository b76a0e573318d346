//! Files for future segments: filled with zeros in advance, reserved for very large records, or recycled.
//!
//! ```text
//!   background --prepare_step--> spares <--recycle-- WalWriter::release_below
//!                                  |  header, name `000008.wal-next`, durable; then the manifest names it
//!                                  `--> prepared --take--> WalWriter (prepares one itself if there is none)
//! ```
//!
//! - The pool keeps one prepared file, and a spare for each recently taken segment, up to [`SPARES_MAX`].
//!   Spares beyond those kept at rest (purpose.rs) take at most a part of the reserved disk space (pool.8).
//!
//! pool.4. The manifest names a segment after its prepared file is durable and before it is put to use. So
//!     each named segment exists under one of its two names, or it was lost.
//! pool.5. A prepared file is deleted only after the manifest has ceased to name it. If that manifest write
//!     fails, its outcome is unknown: the file stays, and is named again before it is put to use.
//! pool.8. A file is made or put to use only if more than the reserved disk space is free. Commits that may
//!     use the reserve are excepted (reserve.1). No new file exceeds a part of the reserve.
//!
//! Spares have temporary names. Recovery deletes spares and prepared files. The writer may take over a single
//! prepared file (pool.10).

mod unused;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker_env::{Env, OpenOptions};
use parking_lot::Mutex;

use super::file_name;
use super::files::remove_if_there;
use super::format::{SEGMENT_BYTES_LIMIT, SegmentHeader};
use super::meter::Meter;
use super::options::{Register, WalOptions};
use super::prepared::Prepared;
use super::purpose::{FIRST_FILE_PART, FilePurpose, Plan};
use super::shelf::Shelf;
use super::spare::{self, SEGMENT_BYTES_UNIT, Spare};
use super::sync::SyncBeside;
use super::window::LogWindow;
use crate::types::{Error, Result};

/// Maximum number of spares kept.
const SPARES_MAX: usize = 8;
/// Number of spares made in advance while segments are taken often, not counting the prepared file.
const SPARES_AHEAD: usize = 2;
/// Segments are taken often after this many in a row, each less than `REST_AFTER` after the one before.
const OFTEN: usize = 4;
/// The log rests once no segment has been taken for this long. Then surplus spares are deleted. So a log that
/// takes segments less often makes none in advance.
const REST_AFTER: Duration = Duration::from_millis(300);
/// A new file takes at most this fraction of the reserved disk space (pool.8).
const HELD_BACK_PART: u64 = 4;

/// The spare files of one log, shared by writer and background work. Lock order: `numbers`, `making`,
/// `state`.
#[derive(Debug)]
pub(crate) struct WalPool {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    pub(super) options: WalOptions,
    /// Reserved disk space in bytes (pool.8). Relaxed: it orders nothing.
    held_back: AtomicU64,
    register: Register,
    pub(super) meter: Arc<Meter>,
    /// Held during I/O.
    numbers: Mutex<Numbers>,
    state: Mutex<State>,
    /// Held while the background makes a file.
    making: Mutex<()>,
    /// Whether the writer has asked for a file since the last [`take_wish`](Self::take_wish). Relaxed.
    has_wish: AtomicBool,
}

#[derive(Debug)]
struct Numbers {
    /// Number of the next file to prepare.
    next: u64,
    prepared: Option<Prepared>,
    /// Whether an earlier process left a file for segment `next`, which the manifest names (pool.10).
    is_left: bool,
    /// The manifest certainly names all segments up to this one.
    named_to: u64,
}

#[derive(Debug)]
struct State {
    spares: Vec<Spare>,
    /// Size of the database without the log.
    database_bytes: u64,
    /// Size of the newest prepared file; 0 if there was none.
    newest_bytes: u64,
    /// Purpose of the file that the writer will need soon, if it will.
    wanted: Option<FilePurpose>,
    /// Number of segments taken recently, up to [`SPARES_MAX`], and when the last one was taken.
    taken: usize,
    last_taken: Duration,
    /// Number in the name of the next spare.
    next_name: u64,
    /// Number of obsolete segment files that became spares.
    recycled: u64,
}

/// Which free disk space a record may use (pool.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogRoom {
    /// Only what is free beyond the reserve.
    Common,
    /// All of it.
    HeldBack,
}

impl WalPool {
    /// Returns what each sync of the log also syncs.
    pub(super) fn sync_beside(&self) -> SyncBeside {
        self.register.sync_beside.clone()
    }

    /// Returns the shelf on which segments are kept for readers, if there is one.
    pub(super) fn shelf(&self) -> Option<&Arc<Shelf>> {
        self.register.shelf.as_ref()
    }

    /// Returns a pool without files for the log in `dir`, which exists.
    pub(crate) fn new(
        env: Env,
        dir: PathBuf,
        options: WalOptions,
        register: Register,
    ) -> Result<Arc<WalPool>> {
        let max = options.segment_bytes_max;
        if max == 0 || !max.is_multiple_of(SEGMENT_BYTES_UNIT) || max > SEGMENT_BYTES_LIMIT {
            let problem = format!("the WAL segment size of {max} bytes is not a multiple of 512 up to 1 GiB");
            return Err(Error::Invalid(problem));
        }
        let first = options.first_segment_bytes;
        assert!(first > 0 && first.is_multiple_of(SEGMENT_BYTES_UNIT), "a first segment of {first} bytes");
        let state = State {
            spares: Vec::new(),
            database_bytes: 0,
            newest_bytes: 0,
            wanted: None,
            taken: 0,
            last_taken: Duration::ZERO,
            next_name: 0,
            recycled: 0,
        };
        let numbers = Numbers { next: 0, prepared: None, is_left: false, named_to: 0 };
        Ok(Arc::new(WalPool {
            meter: Meter::new(env.clock.clone()),
            env,
            dir,
            options,
            held_back: AtomicU64::new(0),
            register,
            numbers: Mutex::new(numbers),
            state: Mutex::new(state),
            making: Mutex::new(()),
            has_wish: AtomicBool::new(false),
        }))
    }

    /// Adapts the size of new files to the size of the database.
    pub(crate) fn suit(&self, database_bytes: u64) {
        self.state.lock().database_bytes = database_bytes;
    }

    /// Returns the sizes that suit the database and the log that recovery needs.
    fn plan(&self, state: &State) -> Plan {
        let data_bytes = state.database_bytes.saturating_add(self.meter.live());
        let part = if state.newest_bytes == 0 { FIRST_FILE_PART } else { 1 };
        Plan::new(data_bytes / part, self.options.first_segment_bytes, self.segment_bytes_max())
    }

    /// Has the next file made for a database that a bulk load makes this large without the log.
    pub(crate) fn expect(&self, database_bytes: u64) {
        self.suit(database_bytes);
        self.want_spare(FilePurpose::Ordinary);
    }

    /// Sets the reserved disk space (pool.8).
    pub(crate) fn hold_back(&self, bytes: u64) {
        self.held_back.store(bytes, Ordering::Relaxed);
    }

    /// Returns whether a file of `bytes` leaves the reserved disk space free.
    fn has_common_room(&self, bytes: u64) -> bool {
        let held_back = self.held_back.load(Ordering::Relaxed);
        held_back == 0 || self.env.fs.free_bytes(&self.dir).map_or(true, |free| free >= held_back + bytes)
    }

    /// Limits the size of a file to make to a part of the reserved disk space (pool.8).
    fn allowed_bytes(&self, due: u64) -> u64 {
        match self.held_back.load(Ordering::Relaxed) / HELD_BACK_PART {
            0 => due,
            part => due.min(part.next_multiple_of(SEGMENT_BYTES_UNIT).max(self.options.first_segment_bytes)),
        }
    }

    /// Returns the size of a file to make for `purpose`.
    fn due_bytes(&self, state: &State, purpose: FilePurpose) -> u64 {
        self.allowed_bytes(purpose.file_bytes(self.plan(state).bytes, state.newest_bytes))
    }

    /// Deletes the spares to free their space; returns false if there were none.
    pub(crate) fn give_up_spares(&self) -> bool {
        let spares = std::mem::take(&mut self.state.lock().spares);
        let had_some = !spares.is_empty();
        // The next opening deletes what is left.
        let _ = self.remove_all(spares);
        had_some
    }

    /// Sets the number of the first file to prepare.
    pub(super) fn begin(&self, first_segment: u64) {
        let mut numbers = self.numbers.lock();
        (numbers.next, numbers.named_to) = (first_segment, first_segment.saturating_sub(1));
    }

    /// Does one step of background work; returns false if there was nothing to do. An error is harmless.
    pub(crate) fn prepare_step(&self) -> Result<bool> {
        let prepared = self.try_prepare();
        // A step without work proves nothing. A prepared file does not end a shortage while puts are refused.
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
        let ahead = if self.state.lock().taken >= OFTEN { SPARES_AHEAD } else { 0 };
        if is_ready(&self.numbers.lock()) {
            return self.make_ahead(purpose, ahead);
        }
        // Makes the file without the lock, so that a writer that cannot wait can make its own.
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

    /// Makes spares until there are `spares`. Returns false if it made none; the disk may lack space
    /// (pool.8).
    fn make_ahead(&self, purpose: FilePurpose, spares: usize) -> Result<bool> {
        let mut is_made = false;
        loop {
            let _making = self.making.lock();
            let (have, bytes) = {
                let state = self.state.lock();
                (state.spares.len(), self.due_bytes(&state, purpose))
            };
            if have >= spares || !self.has_common_room(bytes) {
                return Ok(is_made);
            }
            let spare = self.new_file(purpose, bytes, true)?;
            self.state.lock().spares.push(spare);
            is_made = true;
        }
    }

    /// Returns whether a spare of these bytes may be kept besides those that are there.
    fn may_keep(&self, state: &State, plan: Plan, bytes: u64) -> bool {
        let lately_max = match self.held_back.load(Ordering::Relaxed) {
            0 => u64::MAX,
            held_back => held_back / 3 * 2,
        };
        let (count, total) = (state.spares.len(), spare::total_bytes(&state.spares) + bytes);
        plan.may_rest(count, total) || count < state.taken.min(SPARES_MAX) && total <= lately_max
    }

    /// Deletes surplus spares when the log is idle.
    fn shrink(&self) {
        let now = self.env.clock.monotonic();
        let beyond = {
            let mut state = self.state.lock();
            if now.saturating_sub(state.last_taken) < REST_AFTER {
                return;
            }
            state.taken = 0;
            let (plan, mut beyond) = (self.plan(&state), Vec::new());
            state.spares.sort_by_key(|spare| std::cmp::Reverse(spare.bytes));
            for spare in std::mem::take(&mut state.spares) {
                let stays = spare.bytes <= plan.bytes && self.may_keep(&state, plan, spare.bytes);
                if stays { state.spares.push(spare) } else { beyond.push(spare) }
            }
            beyond
        };
        // The next opening deletes what is left.
        beyond.iter().for_each(|spare| drop(self.remove(&spare.path)));
    }

    /// Returns whether the writer has asked for a file since the last call.
    pub(crate) fn take_wish(&self) -> bool {
        self.has_wish.load(Ordering::Relaxed) && self.has_wish.swap(false, Ordering::Relaxed)
    }

    /// Returns whether [`prepare_step`](Self::prepare_step) has something to do.
    #[cfg(test)]
    pub(crate) fn spare_wanted(&self) -> bool {
        let prepared = self.numbers.lock().prepared.is_some();
        self.state.lock().wanted.is_some() && !prepared
    }

    pub(super) fn want_spare(&self, purpose: FilePurpose) {
        self.state.lock().wanted = Some(purpose);
        self.has_wish.store(true, Ordering::Relaxed);
    }

    /// Returns the maximum segment size.
    pub(super) fn segment_bytes_max(&self) -> u64 {
        self.options.segment_bytes_max
    }

    /// Returns the file for the next segment; prepares one if there is none. A file that was prepared earlier
    /// may have another size than requested.
    pub(super) fn take(&self, purpose: FilePurpose, room: LogRoom) -> Result<Prepared> {
        let mut numbers = self.numbers.lock();
        self.take_left(&mut numbers);
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

    /// Returns how many more bytes of the disk the next file takes.
    fn missing_bytes(&self, numbers: &Numbers, purpose: FilePurpose) -> u64 {
        let state = self.state.lock();
        match purpose {
            _ if numbers.prepared.is_some() => 0,
            FilePurpose::Bulk(bytes) => bytes,
            _ if !state.spares.is_empty() => 0,
            purpose => self.due_bytes(&state, purpose),
        }
    }

    /// Ensures that a file is prepared and named (pool.4). After an error the next call tries again.
    fn get_ready(&self, numbers: &mut Numbers, purpose: FilePurpose) -> Result<()> {
        self.take_left(numbers);
        if numbers.prepared.is_none() {
            let spare = match purpose {
                FilePurpose::Small | FilePurpose::Ordinary => self.take_spare(purpose)?,
                FilePurpose::Bulk(bytes) => self.new_file(purpose, bytes, true)?,
            };
            numbers.prepared = Some(self.prepare(spare, numbers)?);
            numbers.next += 1;
        }
        self.name_up_to(numbers, numbers.next - 1)
    }

    /// Ensures that the files that the writer has taken, up to `number`, are named: the manifest may have
    /// ceased to name them (pool.5).
    pub(super) fn name_taken(&self, number: u64) -> Result<()> {
        self.name_up_to(&mut self.numbers.lock(), number)
    }

    /// Names all prepared files if the manifest may not name those up to `number`.
    fn name_up_to(&self, numbers: &mut Numbers, number: u64) -> Result<()> {
        if number > numbers.named_to {
            let newest = numbers.next - 1;
            (self.register.name)(newest)?;
            numbers.named_to = newest;
        }
        Ok(())
    }

    /// Returns the window of a new segment.
    pub(super) fn window(&self) -> LogWindow {
        LogWindow::new(self.options.maps)
    }

    /// Returns the header of a segment in a file of `bytes`.
    pub(super) fn header_of(&self, number: u64, bytes: u64) -> SegmentHeader {
        self.options.header_of(&self.env, number, bytes)
    }

    /// Gives a file its header and its prepared name, both durably (pool.4).
    fn prepare(&self, spare: Spare, numbers: &Numbers) -> Result<Prepared> {
        let header = self.header_of(numbers.next, spare.bytes);
        Prepared::new(&self.env, &self.dir, spare, header, numbers.next <= numbers.named_to)
    }

    /// Takes a spare. If there is none, waits for the one that the background is making, or makes one: two
    /// files at once would take twice as long.
    fn take_spare(&self, purpose: FilePurpose) -> Result<Spare> {
        if self.state.lock().spares.is_empty() {
            drop(self.making.lock());
        }
        let (ready, bytes) = {
            let mut state = self.state.lock();
            (spare::take_largest(&mut state.spares), self.due_bytes(&state, purpose))
        };
        // Preparing a file syncs its header, and with it the zeros (pool.1).
        let spare = ready.map_or_else(|| self.new_file(purpose, bytes, false), Ok)?;
        let mut state = self.state.lock();
        state.newest_bytes = spare.bytes;
        Ok(spare)
    }

    /// Makes a file: filled with zeros, or only reserved if records will write all of it (pool.1).
    fn new_file(&self, purpose: FilePurpose, bytes: u64, is_durable: bool) -> Result<Spare> {
        Spare::fitting(bytes, |bytes| {
            let path = file_name::spare_path(&self.dir, self.state.lock().take_name());
            match purpose {
                FilePurpose::Small | FilePurpose::Ordinary => Spare::make(&self.env, path, bytes, is_durable),
                FilePurpose::Bulk(_) => Spare::reserve(&self.env, path, bytes),
            }
        })
    }

    /// Keeps the file of an obsolete segment of this process as a spare, perhaps in place of a smaller one,
    /// or deletes it.
    pub(super) fn recycle(&self, spare: &Spare) -> Result<()> {
        let (name, smaller) = {
            let mut state = self.state.lock();
            let plan = self.plan(&state);
            let fits = plan.takes(spare.bytes) && spare.bytes <= self.segment_bytes_max();
            let has_room = self.may_keep(&state, plan, spare.bytes);
            let mut smaller = None;
            if fits && !has_room {
                smaller = spare::take_smallest(&mut state.spares, spare.bytes);
            }
            let keep = fits && self.may_keep(&state, plan, spare.bytes);
            if !keep {
                state.spares.extend(smaller.take());
            }
            (keep.then(|| state.take_name()), smaller)
        };
        if let Some(smaller) = smaller {
            self.remove(&smaller.path)?;
        }
        let Some(name) = name else { return self.remove(&spare.path) };
        let path = file_name::spare_path(&self.dir, name);
        if self.env.fs.rename(&spare.path, &path).is_err() {
            // After a failed rename the file has either name, or none.
            let (renamed, kept) = (self.remove(&path), self.remove(&spare.path));
            return renamed.and(kept);
        }
        let mut state = self.state.lock();
        state.spares.push(Spare { path, ..spare.clone() });
        state.recycled += 1;
        Ok(())
    }

    /// Recycles a file that is closed.
    pub(super) fn recycle_closed(&self, path: &Path, bytes: u64, is_reusable: bool) -> Result<()> {
        if is_reusable && let Ok(file) = self.env.fs.open(path, OpenOptions::write()) {
            return self.recycle(&Spare { path: path.to_owned(), file, bytes });
        }
        self.remove(path)
    }

    /// Returns the log's counters.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Returns how many files of obsolete segments became spares.
    pub(crate) fn recycled(&self) -> u64 {
        self.state.lock().recycled
    }

    /// Removes all files that it can; fails if one is left.
    fn remove_all(&self, spares: impl IntoIterator<Item = Spare>) -> Result<()> {
        // `reduce` calls `remove` for each.
        spares.into_iter().map(|spare| self.remove(&spare.path)).reduce(Result::and).unwrap_or(Ok(()))
    }

    /// Removes a file if it exists.
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
