//! One blob file: a header followed by values.
//!
//! ```text
//!   header | value | value | (unused) | value ... [ map, if the file was collected (moves.rs) ]
//!            `---------- leases: each writer has a part of the file to itself
//! ```
//!
//! Each part of a file is written by one writer, which holds a lease of it. Bytes written once
//! do not change, except that zero padding is overwritten by values.
//!
//! Syncs are serialized. After a failed sync every later sync fails without calling the system,
//! which reports a failed write-back only once.
//!
//! A file marked obsolete is removed when its last reference is dropped.
//!
//! While a lease exists, the file may hold values that no table and no commit points to yet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use esker_env::{AlignedBuf, Env, File, OpenOptions, read_range};
use parking_lot::Mutex;

use super::moves::{Moves, TAIL_BYTES};
use crate::encoding::bytes::ByteReader;
use crate::encoding::checksum::crc32c;
use crate::encryption::{self, FileKind, KEY_HEADER_BYTES, Seal, TAG_BYTES};
use crate::types::descriptors::{Descriptors, ReadFile};
use crate::types::parts::{Part, timed};
use crate::types::{Error, FileId, Result, SeqNo, memory_only};

const MAGIC: [u8; 8] = *b"eskerBLB";
/// The version that this build writes, and the newest that it reads.
const FORMAT_VERSION: u32 = 1;
/// Bytes of the header without a key header.
const HEADER_BYTES: u64 = 32;
/// Flag: the values are encrypted, and a key header follows the header.
const IS_SEALED: u32 = 1;

/// Removes a file, if removal is still allowed.
pub(crate) type Remover = Arc<dyn Fn(&Path) + Send + Sync>;

/// How a file is accessed.
enum Handle {
    /// Created by this process, which may write to it.
    Written(Arc<dyn File>),
    /// Complete; opened by the first reader (`descriptors.rs`).
    Read(Arc<ReadFile>),
}

/// A blob file.
pub(crate) struct BlobFile {
    id: FileId,
    path: PathBuf,
    handle: Handle,
    /// Set once the file was opened.
    seal: Arc<OnceLock<Seal>>,
    /// Whether the values are encrypted.
    is_sealed: bool,
    /// A handle for direct writes, opened by the first one. `None` if direct writes are not supported.
    direct: OnceLock<Option<Arc<dyn File>>>,
    /// Offset of the next lease. Written under the lock of the lease allocator; other loads are relaxed,
    /// because it is only a size.
    end: AtomicU64,
    /// Leased bytes that were not used. Relaxed: a statistic.
    unused: AtomicU64,
    /// Number of leases. Decremented with Release, loaded with Acquire: everything written
    /// under a dropped lease has been committed.
    leases: AtomicUsize,
    /// Newest known commit that points into the file. Relaxed: the lease count orders it.
    newest_commit: AtomicU64,
    /// Whether no more leases will be given. Stored with Release by the lease allocator, loaded with Acquire.
    is_closed: AtomicBool,
    /// Number of completed writes. Incremented with Release, loaded with Acquire by syncs.
    writes: AtomicU64,
    /// Number of durable writes. Stored with Release under the lock of `syncs`, loaded with Acquire.
    durable: AtomicU64,
    /// The lock serializes syncs.
    syncs: Mutex<Syncs>,
    obsolete: Mutex<Option<Remover>>,
}

/// Whether a file can be synced.
#[derive(Debug, Default)]
enum Syncs {
    #[default]
    Ready,
    /// A sync has begun. A thread that locks this state finds a sync that has panicked.
    Begun,
    Failed(Arc<Error>),
}

/// A part of a file reserved for one writer. It keeps the file from being collected.
#[derive(Debug)]
pub(crate) struct Lease(Arc<BlobFile>);

impl Lease {
    /// The leased file.
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

/// Encodes a header. `random` distinguishes files of the same number made by a database and by a copy of it.
fn header(id: FileId, random: u32, is_sealed: bool) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&(if is_sealed { IS_SEALED } else { 0 }).to_le_bytes());
    out.extend_from_slice(&id.get().to_le_bytes());
    out.extend_from_slice(&random.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

/// Verifies that the header belongs to this file. Returns the seal of its values.
fn check_header(env: &Env, file: &dyn File, path: &Path, id: FileId) -> Result<Seal> {
    let read = |at: u64, len: u64| {
        read_range(file, at, len as usize).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corrupt("blob file header", path, 0, "the file ends inside the header")
            }
            _ => Error::read(path, at, len as usize, &e),
        })
    };
    let bytes = read(0, HEADER_BYTES)?;
    let number = |at: usize| ByteReader::new(&bytes[at..]).u32().unwrap_or_default();
    let (found, flags) = (number(8), number(12));
    let is_newer = found != FORMAT_VERSION || flags & !IS_SEALED != 0;
    if bytes[..8] == MAGIC && is_newer && crc32c(&bytes[..28]).to_le_bytes() == bytes[28..] {
        let (path, supported) = (path.to_owned(), FORMAT_VERSION);
        return Err(Error::UnsupportedVersion { what: "blob file", path, found, supported });
    }
    let is_sealed = flags & IS_SEALED != 0;
    if bytes != header(id, number(24), is_sealed) {
        return Err(Error::corrupt("blob file header", path, 0, "the header belongs to another file"));
    }
    let key = is_sealed.then(|| read(HEADER_BYTES, KEY_HEADER_BYTES as u64)).transpose()?;
    Seal::find(env, (path, HEADER_BYTES), FileKind::Blobs, key.as_deref(), &bytes)
}

/// What a value is called: the file that pointers to it name, and an offset there. The tag of its bytes
/// authenticates it, also in a file that received them from another.
pub(super) type UnitName = (FileId, u64);

/// Encodes what a tag authenticates besides the bytes.
fn context((file, offset): UnitName) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&file.get().to_le_bytes());
    out[8..].copy_from_slice(&offset.to_le_bytes());
    out
}

/// The path of a blob file.
pub(crate) fn blob_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(blob_name(id))
}

/// `n.blob`.
pub(crate) fn blob_name(id: FileId) -> String {
    format!("{:06}.blob", id.get())
}

impl BlobFile {
    /// Creates a blob file. Its name is not durable yet.
    pub(crate) fn create(env: &Env, path: &Path, id: FileId) -> Result<Arc<BlobFile>> {
        let options = OpenOptions::create_new();
        let seal = Seal::create(env, FileKind::Blobs)?;
        let file = env.fs.open(path, options).map_err(|e| Error::io("create", path, e))?;
        let mut begin = header(id, env.random.next_u64() as u32, seal.is_on());
        begin.extend(seal.header(&begin));
        let is_sealed = seal.is_on();
        let blob = Self::of((Handle::Written(file), Arc::new(seal.into())), path, id, (0, false), is_sealed);
        let begun = blob.append(&begin).and_then(|_| blob.sync());
        begun.map_err(|error| {
            let _ = env.fs.remove_file(path);
            error.not_of_the_log()
        })?;
        Ok(blob)
    }

    /// Describes a complete file of this length. The first reader opens it and verifies its header.
    pub(crate) fn described(env: &Env, path: &Path, id: FileId, len: u64) -> Arc<BlobFile> {
        let (owned, owned_env) = (path.to_owned(), env.clone());
        let seal = Arc::new(OnceLock::new());
        let found = seal.clone();
        let check = Box::new(move |file: &dyn File| {
            let _ = found.set(check_header(&owned_env, file, &owned, id)?);
            Ok(())
        });
        let file = ReadFile::closed(&env.fs, path, check, Descriptors::of_process());
        Self::of((Handle::Read(file), seal), path, id, (len, true), encryption::is_on(env))
    }

    /// Opens a complete file.
    pub(crate) fn open(env: &Env, path: &Path, id: FileId) -> Result<Arc<BlobFile>> {
        let len = env.fs.file_size(path).map_err(|e| Error::io("measure", path, e))?;
        let blob = Self::described(env, path, id, len);
        blob.file()?;
        Ok(blob)
    }

    fn file(&self) -> Result<Arc<dyn File>> {
        match &self.handle {
            Handle::Written(file) => {
                memory_only::check(&self.path)?;
                Ok(file.clone())
            }
            Handle::Read(file) => file.get(),
        }
    }

    fn of(
        (handle, seal): (Handle, Arc<OnceLock<Seal>>),
        path: &Path,
        id: FileId,
        (len, is_closed): (u64, bool),
        is_sealed: bool,
    ) -> Arc<BlobFile> {
        Arc::new(BlobFile {
            id,
            path: path.to_owned(),
            handle,
            seal,
            is_sealed,
            direct: OnceLock::new(),
            end: AtomicU64::new(len),
            unused: AtomicU64::new(0),
            leases: AtomicUsize::new(0),
            newest_commit: AtomicU64::new(0),
            is_closed: AtomicBool::new(is_closed),
            writes: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            syncs: Mutex::default(),
            obsolete: Mutex::default(),
        })
    }

    /// Number of the file.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Offset of the next lease.
    pub(crate) fn len(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Bytes that were written to the file, or that current leases may write.
    pub(crate) fn used(&self) -> u64 {
        self.len().saturating_sub(self.unused.load(Ordering::Relaxed))
    }

    /// Offset of the first value.
    pub(super) fn start(&self) -> u64 {
        HEADER_BYTES + if self.is_sealed { KEY_HEADER_BYTES as u64 } else { 0 }
    }

    /// Bytes that sealing adds to a unit: to a chunk, to a table of chunks, and to a value of one chunk.
    pub(super) fn tag_bytes(&self) -> u64 {
        if self.is_sealed { TAG_BYTES as u64 } else { 0 }
    }

    /// Returns whether the values are encrypted with an older key of the database than those of new files.
    pub(crate) fn has_old_key(&self, env: &Env) -> Result<bool> {
        // Reading opens the file.
        self.bytes_at(0, HEADER_BYTES)?;
        Ok(self.seal.get().is_some_and(|seal| seal.has_old_key(env)))
    }

    /// Seals a unit that will be written at this offset.
    pub(crate) fn seal(&self, at: u64, name: UnitName, unit: &mut Vec<u8>) {
        if let Some(seal) = self.seal.get() {
            seal.seal(at, &context(name), unit);
        }
    }

    /// Returns whether nothing was leased.
    pub(crate) fn is_fresh(&self) -> bool {
        self.len() <= self.start()
    }

    /// Leases `bytes` bytes and returns their offset. If `alone`, the lease consists of whole blocks, for
    /// direct writes. Calls must be serialized.
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

    /// Returns the unused end of a lease. Must be serialized with other calls and with `lease`.
    pub(super) fn give_back(&self, from: u64, to: u64) {
        if self.len() == to {
            self.end.store(from, Ordering::Relaxed);
        } else {
            self.unused.fetch_add(to - from, Ordering::Relaxed);
        }
    }

    /// Records that the commit `seq` points into the file.
    pub(crate) fn note_commit(&self, seq: SeqNo) {
        self.newest_commit.fetch_max(seq.get(), Ordering::Relaxed);
    }

    /// Ends the allocation of leases.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Returns whether no more leases will be given.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether there are no leases: everything written to the file has been committed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.leases.load(Ordering::Acquire) == 0
    }

    /// Returns the newest commit that points into the file.
    pub(crate) fn newest_commit(&self) -> SeqNo {
        SeqNo::new(self.newest_commit.load(Ordering::Relaxed))
    }

    /// Returns whether written data is not durable yet. Does not wait for a sync; stays true after a failed
    /// one.
    pub(super) fn is_dirty(&self) -> bool {
        self.durable.load(Ordering::Acquire) < self.writes.load(Ordering::Acquire)
    }

    /// Writes bytes of a lease through the page cache.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if !bytes.is_empty() {
            self.file()?.write_all_at(bytes, at).map_err(|e| Error::io("write", &self.path, e))?;
            self.writes.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Writes whole blocks of a lease, bypassing the page cache if possible. The address and the offset must
    /// be aligned for direct writes.
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

    /// Writes bytes of a lease through the page cache and starts writing them to the device.
    pub(super) fn write_behind(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.write(at, bytes)?;
        // Only a hint: the following sync reports errors.
        let _ = self.file()?.start_writeback(at, bytes.len() as u64);
        Ok(())
    }

    /// Appends bytes and returns their offset. The caller must be the only user of the file.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64> {
        let at = self.len();
        self.write(at, bytes)?;
        self.end.store(at + bytes.len() as u64, Ordering::Relaxed);
        Ok(at)
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let mut state = self.syncs.lock();
        match &*state {
            Syncs::Ready => {}
            Syncs::Begun => {
                let cause = Error::Panicked("a thread panicked while syncing a blob file".into());
                return Err(Error::Poisoned(Arc::new(cause)));
            }
            Syncs::Failed(cause) => return Err(Error::Poisoned(cause.clone())),
        }
        let writes = self.writes.load(Ordering::Acquire);
        if writes == self.durable.load(Ordering::Acquire) {
            return Ok(());
        }
        let file = self.file()?;
        *state = Syncs::Begun;
        match file.sync_data().map_err(|e| Arc::new(Error::io("sync", &self.path, e))) {
            Ok(()) => {
                *state = Syncs::Ready;
                self.durable.store(writes, Ordering::Release);
            }
            Err(cause) => {
                *state = Syncs::Failed(cause.clone());
                return Err(Error::Poisoned(cause));
            }
        }
        Ok(())
    }

    /// Starts reading bytes that a caller will need soon.
    pub(super) fn will_need(&self, offset: u64, len: u64) {
        // Only a hint: the following read reports errors.
        let _ = self.file().map(|file| file.will_need(offset, len));
    }

    /// Reads bytes without verifying them.
    pub(crate) fn bytes_at(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        let Some(len) = usize::try_from(len).ok().filter(|_| is_inside) else {
            return Err(Error::corrupt("blob", &self.path, offset, "the file ends before the value does"));
        };
        let file = self.file()?;
        timed(Part::BlobRead, || read_range(&*file, offset, len)).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corrupt("blob", &self.path, offset, "the file ends before the value does")
            }
            _ => Error::read(&self.path, offset, len, &e),
        })
    }

    /// Reads a unit and decrypts it.
    pub(super) fn unit_at(&self, offset: u64, len: u64, name: UnitName) -> Result<Vec<u8>> {
        let mut bytes = self.bytes_at(offset, len.saturating_add(self.tag_bytes()))?;
        let seal = self.seal.get().expect("reading opens the file");
        let opened = seal.open(offset, &context(name), &mut bytes);
        let len = opened.map_err(|e| e.in_file("blob", &self.path, offset))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Reads the map at the end of a collected file.
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

    /// Removes the file when its last reference is dropped.
    pub(crate) fn mark_obsolete(&self, remover: Remover) {
        *self.obsolete.lock() = Some(remover);
    }
}

impl Drop for BlobFile {
    fn drop(&mut self) {
        if let Some(remove) = self.obsolete.get_mut().take() {
            // Like tables: the last reference may be dropped anywhere, also inside a read or a commit, so a
            // panic must not escape.
            let _ = catch_unwind(AssertUnwindSafe(|| remove(&self.path)));
        }
    }
}

impl std::fmt::Debug for BlobFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlobFile({}, {} bytes)", self.path.display(), self.len())
    }
}
