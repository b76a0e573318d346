//! Files for segments to come: filled with zeros ahead of their use, or recycled from obsolete segments.
//!
//! ```text
//!   background --prepare_step--> spares <--recycle-- WalWriter::release_below
//!                                   `--take--> WalWriter (makes one itself if there is none)
//! ```
//!
//! P1. Every block of a spare has been written and synced, so that a record overwrites blocks that the file system
//!     knows already: a sync then flushes data only (figures in docs/formats/wal.md).
//! P2. Spares have temporary names: recovery deletes them.
//! P3. The pool keeps at most [`SPARES_MAX`] files.

use std::path::PathBuf;
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};
use parking_lot::Mutex;

use super::file_name;
use super::format::SEGMENT_BYTES_LIMIT;
use crate::types::{Error, Result};

/// Files waiting for their use, beyond which obsolete segments are deleted (P3).
const SPARES_MAX: usize = 2;
/// The first segment is small, so that a small database is; each next one is twice as large, up to the limit.
const FIRST_SEGMENT_BYTES: u64 = 256 << 10;
/// Zeros are written in pieces of this size.
const ZEROS_CHUNK: usize = 256 << 10;
/// The smallest and the unit of all segment sizes.
const SEGMENT_BYTES_UNIT: u64 = 512;

/// How the log lays out its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalOptions {
    /// The size that segments grow to, in bytes: a multiple of 512, at most 1 GiB.
    pub segment_bytes_max: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions { segment_bytes_max: 16 << 20 }
    }
}

/// The spare files of one log. Shared by its writer and the background work.
#[derive(Debug)]
pub(crate) struct WalPool {
    pub(super) env: Env,
    pub(super) dir: PathBuf,
    segment_bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    spares: Vec<Spare>,
    /// The size of the next file to make.
    next_bytes: u64,
    /// The writer will need a file soon.
    wanted: bool,
    /// The number in the next spare's name.
    next_name: u64,
}

/// A file whose blocks are all written (P1).
#[derive(Clone, Debug)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    pub(super) bytes: u64,
}

impl WalPool {
    /// A pool without files, for the log in `dir`, which exists.
    pub(crate) fn new(env: Env, dir: PathBuf, options: WalOptions) -> Result<Arc<WalPool>> {
        let max = options.segment_bytes_max;
        if max == 0 || !max.is_multiple_of(SEGMENT_BYTES_UNIT) || max > SEGMENT_BYTES_LIMIT {
            let problem = format!("WAL segments of {max} bytes: give a multiple of 512, at most 1 GiB");
            return Err(Error::Invalid(problem));
        }
        let next_bytes = FIRST_SEGMENT_BYTES.min(max);
        let state = State { spares: Vec::new(), next_bytes, wanted: false, next_name: 0 };
        Ok(Arc::new(WalPool { env, dir, segment_bytes_max: max, state: Mutex::new(state) }))
    }

    /// One step of background work: prepares a file if the writer will need one soon. False if there was nothing to
    /// do. An error hurts nobody: the writer will try for itself.
    pub(crate) fn prepare_step(&self) -> Result<bool> {
        let bytes = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.wanted) || !state.spares.is_empty() {
                return Ok(false);
            }
            state.next_bytes
        };
        let spare = self.make(bytes)?;
        self.state.lock().spares.push(spare);
        Ok(true)
    }

    /// Whether [`prepare_step`](Self::prepare_step) has something to do.
    #[cfg(test)]
    pub(crate) fn spare_wanted(&self) -> bool {
        let state = self.state.lock();
        state.wanted && state.spares.is_empty()
    }

    /// Deletes all spares.
    pub(crate) fn trim(&self) -> Result<()> {
        let spares = std::mem::take(&mut self.state.lock().spares);
        spares.into_iter().try_for_each(|spare| self.remove(spare))
    }

    pub(super) fn want_spare(&self) {
        self.state.lock().wanted = true;
    }

    /// The size that segments grow to.
    pub(super) fn segment_bytes_max(&self) -> u64 {
        self.segment_bytes_max
    }

    /// A file for a segment, made now if none is ready.
    pub(super) fn take(&self) -> Result<Spare> {
        let (ready, bytes) = {
            let mut state = self.state.lock();
            (state.spares.pop(), state.next_bytes)
        };
        let spare = match ready {
            Some(spare) => spare,
            None => self.make(bytes)?,
        };
        self.state.lock().next_bytes = (bytes * 2).min(self.segment_bytes_max);
        Ok(spare)
    }

    /// A file for a record that will fill it whole, of `bytes` at the least: its blocks are reserved, not written, because
    /// the record itself writes them. Writing zeros first would double the work of a bulk load.
    pub(super) fn take_for_bulk(&self, bytes: u64) -> Result<Spare> {
        let bytes = bytes.next_multiple_of(SEGMENT_BYTES_UNIT);
        let path = file_name::spare_path(&self.dir, self.state.lock().take_name());
        let reserve = || {
            let file = self.env.fs.open(&path, OpenOptions::create())?;
            file.allocate(0, bytes)?;
            file.sync_data()?;
            Ok(file)
        };
        reserve().map(|file| Spare { path: path.clone(), file, bytes }).or_else(|e: std::io::Error| {
            let _ = self.env.fs.remove_file(&path);
            if e.kind() == std::io::ErrorKind::Unsupported {
                self.make(bytes)
            } else {
                Err(Error::io("make a WAL segment", &path, e))
            }
        })
    }

    /// Keeps the file of an obsolete segment of this process for another use, or deletes it.
    pub(super) fn recycle(&self, mut spare: Spare) -> Result<()> {
        let name = {
            let mut state = self.state.lock();
            let fits = (state.next_bytes..=self.segment_bytes_max).contains(&spare.bytes);
            let keep = state.spares.len() < SPARES_MAX && fits;
            keep.then(|| state.take_name())
        };
        let Some(name) = name else { return self.remove(spare) };
        let path = file_name::spare_path(&self.dir, name);
        self.env.fs.rename(&spare.path, &path).map_err(|e| Error::io("rename", &spare.path, e))?;
        spare.path = path;
        self.state.lock().spares.push(spare);
        Ok(())
    }

    pub(super) fn remove(&self, spare: Spare) -> Result<()> {
        self.env.fs.remove_file(&spare.path).map_err(|e| Error::io("remove", &spare.path, e))
    }

    /// Makes a file of zeros, durable but for its name.
    fn make(&self, bytes: u64) -> Result<Spare> {
        let path = file_name::spare_path(&self.dir, self.state.lock().take_name());
        let fill = || {
            let file = self.env.fs.open(&path, OpenOptions::create())?;
            let zeros = vec![0; ZEROS_CHUNK.min(bytes as usize)];
            let mut at = 0;
            while at < bytes {
                let n = zeros.len().min((bytes - at) as usize);
                file.write_all_at(&zeros[..n], at)?;
                at += n as u64;
            }
            file.sync_data()?;
            Ok(file)
        };
        match fill() {
            Ok(file) => Ok(Spare { path, file, bytes }),
            Err(e) => {
                // A full disk should get its space back; the error that matters is the first.
                let _ = self.env.fs.remove_file(&path);
                Err(Error::io("make a WAL segment", &path, e))
            }
        }
    }
}

impl State {
    fn take_name(&mut self) -> u64 {
        self.next_name += 1;
        self.next_name
    }
}
