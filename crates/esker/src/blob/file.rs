//! One blob file: a header, then values back to back.
//!
//! ```text
//!   header | value | value | ... [ map, of a collected file (moves.rs) ]
//! ```
//!
//! blob_file.1. One thread appends. What lies before `written` is with the operating system, and never changes.
//! blob_file.2. Syncs take turns, and after a failed one every later one fails without asking the system again: it reports a failed
//!      write-back once.
//! blob_file.3. A file that is marked obsolete is removed when its last user is gone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_env::{Env, File, OpenOptions, read_range};
use parking_lot::Mutex;

use super::moves::{Moves, TAIL_BYTES};
use crate::encoding::bytes::ByteReader;
use crate::encoding::checksum::crc32c;
use crate::types::{Error, FileId, Result, SeqNo};

const MAGIC: [u8; 8] = *b"eskerBLB";
/// The format that this build writes, and the newest one that it reads.
const FORMAT_VERSION: u32 = 1;
/// Where values begin.
pub(crate) const HEADER_BYTES: u64 = 32;

/// Removes a file, if it still may.
pub(crate) type Remover = Arc<dyn Fn(&Path) + Send + Sync>;

/// An open blob file.
pub(crate) struct BlobFile {
    id: FileId,
    path: PathBuf,
    file: Arc<dyn File>,
    /// Where the next value goes. Release store after the bytes are written, acquire load by readers.
    written: AtomicU64,
    /// The newest commit that points into it, as far as this process knows. Relaxed: `is_closed` orders it.
    newest_commit: AtomicU64,
    /// Nothing is written to it any more. Release store by who wrote, acquire load.
    is_closed: AtomicBool,
    progress: Mutex<Progress>,
    obsolete: Mutex<Option<Remover>>,
}

/// How far it is synced; also the lock of blob_file.2.
#[derive(Default)]
struct Progress {
    synced: u64,
    /// A sync has begun and not ended well: its error, if it is known.
    failed: Option<Option<Arc<Error>>>,
}

fn header(id: FileId) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    // Flags: none yet.
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&id.get().to_le_bytes());
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&crc32c(&out).to_le_bytes());
    out
}

impl BlobFile {
    /// Makes a new one. Its name is not durable yet.
    pub(crate) fn create(env: &Env, path: &Path, id: FileId) -> Result<Arc<BlobFile>> {
        let options = OpenOptions::create_new();
        let file = env.fs.open(path, options).map_err(|e| Error::io("create", path, e))?;
        let blob = Self::of(file, path, id, 0);
        let begun = blob.append(&header(id)).and_then(|_| blob.sync());
        begun.inspect_err(|_| {
            let _ = env.fs.remove_file(path);
        })?;
        Ok(blob)
    }

    /// Opens one that is complete.
    pub(crate) fn open(env: &Env, path: &Path, id: FileId) -> Result<Arc<BlobFile>> {
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let len = file.len().map_err(|e| Error::io("measure", path, e))?;
        let blob = Self::of(file, path, id, len);
        let bytes = blob.bytes_at(0, HEADER_BYTES)?;
        let version = ByteReader::new(&bytes[8..]).u32().unwrap_or_default();
        if bytes[..8] == MAGIC
            && version != FORMAT_VERSION
            && crc32c(&bytes[..28]).to_le_bytes() == bytes[28..]
        {
            let path = path.to_owned();
            let supported = FORMAT_VERSION;
            return Err(Error::UnsupportedVersion { what: "blob file", path, found: version, supported });
        }
        if bytes != header(id) {
            return Err(Error::corrupt("blob file header", path, 0, "it is not the header of this file"));
        }
        Ok(blob)
    }

    fn of(file: Arc<dyn File>, path: &Path, id: FileId, len: u64) -> Arc<BlobFile> {
        Arc::new(BlobFile {
            id,
            path: path.to_owned(),
            file,
            written: AtomicU64::new(len),
            newest_commit: AtomicU64::new(0),
            is_closed: AtomicBool::new(len > 0),
            progress: Mutex::new(Progress { synced: len, failed: None }),
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

    /// Its length so far; where the next value goes.
    pub(crate) fn len(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether nothing was written to it.
    pub(crate) fn is_fresh(&self) -> bool {
        self.len() <= HEADER_BYTES
    }

    /// A commit points into it.
    pub(crate) fn note_commit(&self, seq: SeqNo) {
        self.newest_commit.fetch_max(seq.get(), Ordering::Relaxed);
    }

    /// Nothing more will be written to it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Whether only tables reference it, once all commits up to `flushed` are in tables.
    pub(crate) fn is_settled(&self, flushed: SeqNo) -> bool {
        self.is_closed.load(Ordering::Acquire) && self.newest_commit.load(Ordering::Relaxed) <= flushed.get()
    }

    /// Hands bytes to the operating system; returns where they end. They count once [`set_written`](Self::set_written) says so.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Result<u64> {
        if !bytes.is_empty() {
            self.file.write_all_at(bytes, at).map_err(|e| Error::io("write", &self.path, e))?;
        }
        Ok(at + bytes.len() as u64)
    }

    /// What lies before this counts (blob_file.1).
    pub(crate) fn set_written(&self, end: u64) {
        self.written.store(end, Ordering::Release);
    }

    /// Writes bytes behind all others; returns where they begin.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<u64> {
        let at = self.len();
        self.set_written(self.write(at, bytes)?);
        Ok(at)
    }

    /// Makes all bytes so far durable (blob_file.2).
    pub(crate) fn sync(&self) -> Result<()> {
        let mut progress = self.progress.lock();
        if let Some(failed) = &progress.failed {
            let unknown = || Arc::new(Error::Invalid("a thread panicked while it synced a blob file".into()));
            return Err(Error::Poisoned(failed.clone().unwrap_or_else(unknown)));
        }
        let written = self.len();
        if written == progress.synced {
            return Ok(());
        }
        progress.failed = Some(None);
        match self.file.sync_data().map_err(|e| Arc::new(Error::io("sync", &self.path, e))) {
            Ok(()) => *progress = Progress { synced: written, failed: None },
            Err(cause) => {
                progress.failed = Some(Some(cause.clone()));
                return Err(Error::Poisoned(cause));
            }
        }
        Ok(())
    }

    /// Bytes of it, not checked.
    pub(crate) fn bytes_at(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len());
        let Some(len) = usize::try_from(len).ok().filter(|_| is_inside) else {
            return Err(Error::corrupt("blob", &self.path, offset, "the file ends before the value does"));
        };
        read_range(&*self.file, offset, len).map_err(|e| match e.kind() {
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
