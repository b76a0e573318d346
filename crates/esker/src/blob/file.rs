//! One blob file: a header, then values.
//!
//! ```text
//!   header | value | value | (left out) | value ... [ map, of a collected file (moves.rs) ]
//!            `---------- leases: each writer has a part of the file to itself
//! ```
//!
//! blob_file.1. A part of the file belongs to one writer, who takes a lease of it. What was written once does not change, except that zeros
//!      behind it become values.
//! blob_file.2. Syncs take turns, and after a failed one every later one fails without asking the system again: it reports a failed
//!      write-back once.
//! blob_file.3. A file that is marked obsolete is removed when its last user is gone.
//! blob_file.4. While there is a lease, values may be in the file that no table and no commit points to yet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{AlignedBuf, Env, File, OpenOptions, read_range};
use parking_lot::Mutex;

use super::moves::{Moves, TAIL_BYTES};
use crate::encoding::bytes::ByteReader;
use crate::encoding::checksum::crc32c;
use crate::types::descriptors::{Descriptors, ReadFile};
use crate::types::{Error, FileId, Result, SeqNo};

const MAGIC: [u8; 8] = *b"eskerBLB";
/// The format that this build writes, and the newest one that it reads.
const FORMAT_VERSION: u32 = 1;
/// Where values begin.
pub(crate) const HEADER_BYTES: u64 = 32;

/// Removes a file, if it still may.
pub(crate) type Remover = Arc<dyn Fn(&Path) + Send + Sync>;

/// How a file is reached.
enum Handle {
    /// It was made by this process, which may write to it.
    Written(Arc<dyn File>),
    /// It is complete, and opened by who reads it first (descriptors.rs).
    Read(Arc<ReadFile>),
}

/// A blob file.
pub(crate) struct BlobFile {
    id: FileId,
    path: PathBuf,
    handle: Handle,
    /// The same one for writes past the page cache, opened when they begin; none: there is no such.
    direct: OnceLock<Option<Arc<dyn File>>>,
    /// Where the next lease begins. Under the lock of who gives leases; relaxed loads elsewhere: a size.
    end: AtomicU64,
    /// Bytes that leases took and did not use. Relaxed: for the statistics.
    unused: AtomicU64,
    /// Leases (blob_file.4). Release decrements, acquire loads: what they wrote has its commit by then.
    leases: AtomicUsize,
    /// The newest commit that points into it, as far as this process knows. Relaxed: the leases order it.
    newest_commit: AtomicU64,
    /// There will be no more leases. Release store by who gave them, acquire load.
    is_closed: AtomicBool,
    /// Writes that have ended. Release increments, acquire loads by syncs.
    writes: AtomicU64,
    /// Writes that are durable. Release stores under the lock of `failed`, acquire loads.
    durable: AtomicU64,
    /// A sync has begun and not ended well: its error, if it is known. Also the lock of blob_file.2, held while the disk works.
    failed: Mutex<Option<Option<Arc<Error>>>>,
    obsolete: Mutex<Option<Remover>>,
}

/// A part of a file for one writer, and the right that the file stays (blob_file.4).
#[derive(Debug)]
pub(crate) struct Lease(Arc<BlobFile>);

impl Lease {
    /// The file.
    pub(crate) fn file(&self) -> &Arc<BlobFile> {
        &self.0
    }
}

impl Clone for Lease {
    fn clone(&self) -> Self {
        self.0.leases.fetch_add(1, Ordering::Relaxed);
        Lease(self.0.clone())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.leases.fetch_sub(1, Ordering::Release);
    }
}

/// `random` tells files of one number apart that a database and a copy of it have made.
fn header(id: FileId, random: u32) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    // Flags: none yet.
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&id.get().to_le_bytes());
    out.extend_from_slice(&random.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// Whether it is the header of this file (descriptors.1).
fn check_header(file: &dyn File, path: &Path, id: FileId) -> Result<()> {
    let bytes = read_range(file, 0, HEADER_BYTES as usize).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::corrupt("blob file header", path, 0, "the file ends in it")
        }
        _ => Error::read(path, 0, HEADER_BYTES as usize, &e),
    })?;
    let found = ByteReader::new(&bytes[8..]).u32().unwrap_or_default();
    if bytes[..8] == MAGIC && found != FORMAT_VERSION && crc32c(&bytes[..28]).to_le_bytes() == bytes[28..] {
        let (path, supported) = (path.to_owned(), FORMAT_VERSION);
        return Err(Error::UnsupportedVersion { what: "blob file", path, found, supported });
    }
    if bytes != header(id, ByteReader::new(&bytes[24..]).u32().unwrap_or_default()) {
        return Err(Error::corrupt("blob file header", path, 0, "it is not the header of this file"));
    }
    Ok(())
}

impl BlobFile {
    /// Makes a new one. Its name is not durable yet.
    pub(crate) fn create(env: &Env, path: &Path, id: FileId) -> Result<Arc<BlobFile>> {
        let options = OpenOptions::create_new();
        let file = env.fs.open(path, options).map_err(|e| Error::io("create", path, e))?;
        let blob = Self::of(Handle::Written(file), path, id, 0, false);
        let begun = blob.append(&header(id, env.random.next_u64() as u32)).and_then(|_| blob.sync());
        begun.map_err(|error| {
            let _ = env.fs.remove_file(path);
            error.not_of_the_log()
        })?;
        Ok(blob)
    }

    /// A complete file of this length. The first reader opens it and checks its header.
    pub(crate) fn described(env: &Env, path: &Path, id: FileId, len: u64) -> Arc<BlobFile> {
        let owned = path.to_owned();
        let check = Box::new(move |file: &dyn File| check_header(file, &owned, id));
        let file = ReadFile::closed(&env.fs, path, check, Descriptors::of_process());
        Self::of(Handle::Read(file), path, id, len, true)
    }

    /// Opens one that is complete.
    pub(crate) fn open(env: &Env, path: &Path, id: FileId) -> Result<Arc<BlobFile>> {
        let len = env.fs.file_size(path).map_err(|e| Error::io("measure", path, e))?;
        let blob = Self::described(env, path, id, len);
        blob.file()?;
        Ok(blob)
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        match &self.handle {
            Handle::Written(file) => Ok(file.clone()),
            Handle::Read(file) => file.get(),
        }
    }

    fn of(handle: Handle, path: &Path, id: FileId, len: u64, is_closed: bool) -> Arc<BlobFile> {
        Arc::new(BlobFile {
            id,
            path: path.to_owned(),
            handle,
            direct: OnceLock::new(),
            end: AtomicU64::new(len),
            unused: AtomicU64::new(0),
            leases: AtomicUsize::new(0),
            newest_commit: AtomicU64::new(0),
            is_closed: AtomicBool::new(is_closed),
            writes: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            failed: Mutex::default(),
            obsolete: Mutex::default(),
        })
    }

    /// Its own number.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next lease begins.
    pub(crate) fn len(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Bytes that were written to it, or will be by those who have leases.
    pub(crate) fn used(&self) -> u64 {
        self.len().saturating_sub(self.unused.load(Ordering::Relaxed))
    }

    /// Whether nothing was leased of it.
    pub(crate) fn is_fresh(&self) -> bool {
        self.len() <= HEADER_BYTES
    }

    /// A lease of `bytes` bytes, and the offset where they begin. `alone`: on blocks of their own, for direct writes. One caller at a time.
    pub(super) fn lease(self: &Arc<Self>, bytes: u64, alone: bool) -> (Lease, u64) {
        self.leases.fetch_add(1, Ordering::Relaxed);
        let block = AlignedBuf::ALIGN as u64;
        let end = self.len();
        let at = if alone { end.next_multiple_of(block) } else { end };
        let new_end = if alone { at + bytes.next_multiple_of(block) } else { at + bytes };
        self.unused.fetch_add(at - end, Ordering::Relaxed);
        self.end.store(new_end, Ordering::Relaxed);
        (Lease(self.clone()), at)
    }

    /// The rest of a lease is not needed. One caller at a time, and none that takes a lease.
    pub(super) fn give_back(&self, from: u64, to: u64) {
        if self.len() == to {
            self.end.store(from, Ordering::Relaxed);
        } else {
            self.unused.fetch_add(to - from, Ordering::Relaxed);
        }
    }

    /// A commit points into it.
    pub(crate) fn note_commit(&self, seq: SeqNo) {
        self.newest_commit.fetch_max(seq.get(), Ordering::Relaxed);
    }

    /// There will be no more leases.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Whether there will be no more leases.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Whether there is no lease: whatever was written to it has its commit.
    pub(crate) fn is_quiet(&self) -> bool {
        self.leases.load(Ordering::Acquire) == 0
    }

    /// The newest commit that points into it.
    pub(crate) fn newest_commit(&self) -> SeqNo {
        SeqNo::new(self.newest_commit.load(Ordering::Relaxed))
    }

    /// Whether something was written that is not durable. Waits for no sync; after a failed one it stays so.
    pub(super) fn is_dirty(&self) -> bool {
        self.durable.load(Ordering::Acquire) < self.writes.load(Ordering::Acquire)
    }

    /// Hands bytes of a lease to the operating system.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if !bytes.is_empty() {
            self.file()?.write_all_at(bytes, at).map_err(|e| Error::io("write", &self.path, e))?;
            self.writes.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Hands whole blocks of a lease to the device, past the page cache where that is possible. `blocks` begin at an address, and the place at
    /// an offset, that direct writes take.
    pub(super) fn write_direct(&self, env: &Env, at: u64, blocks: &[u8]) -> Result<()> {
        let options = OpenOptions::write().direct();
        let open = || env.fs.open(&self.path, options).ok().filter(|file| file.is_direct());
        match self.direct.get_or_init(open) {
            Some(direct) => direct.write_all_at(blocks, at).map_err(|e| Error::io("write", &self.path, e))?,
            None => return self.write_behind(at, blocks),
        }
        self.writes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Hands bytes of a lease to the operating system, which begins to write them to the device.
    pub(super) fn write_behind(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write(at, bytes)?;
        // A hint: the sync that follows says whether it worked.
        let _ = self.file()?.start_writeback(at, bytes.len() as u64);
        Ok(())
    }

    /// Writes bytes behind all others; returns where they begin. For one who has the file for himself.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64> {
        let at = self.len();
        self.write(at, bytes)?;
        self.end.store(at + bytes.len() as u64, Ordering::Relaxed);
        Ok(at)
    }

    /// Makes all that was written so far durable (blob_file.2).
    pub(crate) fn sync(&self) -> Result<()> {
        let mut failed = self.failed.lock();
        if let Some(failed) = &*failed {
            let unknown = || Arc::new(Error::Invalid("a thread panicked while it synced a blob file".into()));
            return Err(Error::Poisoned(failed.clone().unwrap_or_else(unknown)));
        }
        let writes = self.writes.load(Ordering::Acquire);
        if writes == self.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        let file = self.file()?;
        *failed = Some(None);
        match file.sync_data().map_err(|e| Arc::new(Error::io("sync", &self.path, e))) {
            Ok(()) => {
                *failed = None;
                self.durable.store(writes, Ordering::Release);
            }
            Err(cause) => {
                *failed = Some(Some(cause.clone()));
                return Err(Error::Poisoned(cause));
            }
        }
        Ok(())
    }

    /// Somebody is about to read these bytes.
    pub(super) fn will_need(&self, offset: u64, len: u64) {
        // A hint: the read that follows says what is wrong.
        let _ = self.file().map(|file| file.will_need(offset, len));
    }

    /// Bytes of it, not checked.
    pub(crate) fn bytes_at(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        let Some(len) = usize::try_from(len).ok().filter(|_| is_inside) else {
            return Err(Error::corrupt("blob", &self.path, offset, "the file ends before the value does"));
        };
        read_range(&*self.file()?, offset, len).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corrupt("blob", &self.path, offset, "the file ends before the value does")
            }
            _ => Error::read(&self.path, offset, len, &e),
        })
    }

    /// The map at its end.
    pub(super) fn moves(&self) -> Result<Moves> {
        let len = self.len();
        let tail_at = len.saturating_sub(TAIL_BYTES as u64);
        let tail = self.bytes_at(tail_at, len - tail_at)?;
        let bytes = Moves::bytes_of(&tail).map_err(|e| e.in_file("blob map", &self.path, tail_at))?;
        let Some(start) = len.checked_sub(bytes) else {
            return Err(Error::corrupt("blob map", &self.path, tail_at, "it is longer than the file"));
        };
        let map = self.bytes_at(start, bytes)?;
        Moves::decode(&map).map_err(|e| e.in_file("blob map", &self.path, start))
    }

    /// The file is to be removed when its last user is gone (blob_file.3).
    pub(crate) fn mark_obsolete(&self, remover: Remover) {
        *self.obsolete.lock() = Some(remover);
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        if let Some(remove) = self.obsolete.get_mut().take() {
            // As for tables: files are freed wherever epochs end, in the middle of others' reads and commits.
            let _ = catch_unwind(AssertUnwindSafe(|| remove(&self.path)));
        }
    }
}

impl std::fmt::Debug for BlobFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlobFile({}, {} bytes)", self.path.display(), self.len())
    }
}
