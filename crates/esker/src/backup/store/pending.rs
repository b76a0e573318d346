//! A file that is being written and is not in the store yet.
//!
//! ```text
//!   write --> memory, one part --longer, final name known--> parts of an upload
//!                             `--longer, name not known----> an unnamed local file, uploaded at its naming
//! ```

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions, read_range};
use parking_lot::Mutex;

use super::lease::Lease;
use super::reading::unsupported;
use super::{BackupStore, PART_BYTES, PARTS_MAX, Upload};

/// The name that a file will get, and its length.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    pub(super) object: String,
    pub(super) len: u64,
}

/// The store and the lease under which a process changes it.
#[derive(Clone, Debug)]
pub(super) struct Leased {
    pub(super) store: Arc<dyn BackupStore>,
    pub(super) lease: Arc<Lease>,
}

/// A file being written. Bytes are appended only.
#[derive(Debug)]
pub(super) struct Pending {
    env: Env,
    /// Where the file goes once it exceeds a part. `None`: to a local file.
    target: Option<(Leased, Announced)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    len: u64,
    /// The bytes after those that were passed on.
    buffer: Vec<u8>,
    passed: Passed,
}

/// Where the first bytes of a pending file are.
#[derive(Debug, Default)]
enum Passed {
    #[default]
    Nowhere,
    Spooled(Spool),
    Uploaded(UploadGuard),
    /// After an error, or once the file has its name.
    Closed,
}

/// A complete file, on its way to its name.
pub(super) enum Complete {
    Bytes(Vec<u8>),
    Spooled { spool: Spool, len: u64 },
    Uploaded { upload: UploadGuard, len: u64 },
}

impl Pending {
    pub(super) fn new(env: &Env, target: Option<(Leased, Announced)>) -> Pending {
        Pending { env: env.clone(), target, state: Mutex::default() }
    }

    fn append(&self, state: &mut State, bytes: &[u8]) -> io::Result<()> {
        if matches!(state.passed, Passed::Closed) {
            return Err(io::Error::other("the file could not be written earlier"));
        }
        state.len += bytes.len() as u64;
        if let Passed::Spooled(spool) = &state.passed {
            return spool.file.write_all_at(bytes, state.len - bytes.len() as u64);
        }
        state.buffer.extend_from_slice(bytes);
        let part = self.target.as_ref().map_or(PART_BYTES, |(_, announced)| part_bytes(announced.len));
        while state.buffer.len() > part {
            match (&mut state.passed, &self.target) {
                (Passed::Uploaded(upload), _) => {
                    let rest = state.buffer.split_off(part);
                    upload.write(std::mem::replace(&mut state.buffer, rest))?;
                }
                (_, Some((leased, announced))) => {
                    state.passed = Passed::Uploaded(UploadGuard::begin(leased.clone(), &announced.object)?);
                }
                _ => {
                    let spool = Spool::create(&self.env)?;
                    spool.file.write_all_at(&std::mem::take(&mut state.buffer), 0)?;
                    state.passed = Passed::Spooled(spool);
                }
            }
        }
        Ok(())
    }

    /// Takes the complete content.
    pub(super) fn complete(&self) -> io::Result<Complete> {
        let mut state = self.state.lock();
        let State { len, buffer, passed } =
            std::mem::replace(&mut *state, State { passed: Passed::Closed, ..State::default() });
        match passed {
            Passed::Nowhere => Ok(Complete::Bytes(buffer)),
            Passed::Spooled(spool) => Ok(Complete::Spooled { spool, len }),
            Passed::Uploaded(mut upload) => {
                upload.write(buffer)?;
                Ok(Complete::Uploaded { upload, len })
            }
            Passed::Closed => Err(io::Error::other("the file could not be written earlier")),
        }
    }
}

impl File for Pending {
    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(unsupported())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if offset != state.len {
            return Err(unsupported());
        }
        self.append(&mut state, buf).inspect_err(|_| state.passed = Passed::Closed)
    }

    /// Does nothing. The file becomes durable when it gets its name.
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.state.lock().len == len { Ok(()) } else { Err(unsupported()) }
    }

    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(unsupported())
    }

    fn drop_cache(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }
}

/// Returns the size of the parts of a file of this length.
fn part_bytes(len: u64) -> usize {
    PART_BYTES.max(usize::try_from(len.div_ceil(PARTS_MAX)).unwrap_or(usize::MAX))
}

/// A local file without a name.
#[derive(Debug)]
pub(super) struct Spool {
    env: Env,
    file: Arc<dyn File>,
    /// Set if the name could not be removed at once.
    named: Option<PathBuf>,
}

impl Spool {
    fn create(env: &Env) -> io::Result<Spool> {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("esker-backup-{:016x}", env.random.next_u64()));
        env.fs.create_dir_all(&dir)?;
        let placed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = env.fs.open(&path, OpenOptions::create_new()).map_err(placed)?;
        let named = env.fs.remove_file(&path).err().map(|_| path);
        Ok(Spool { env: env.clone(), file, named })
    }

    pub(super) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        read_range(&*self.file, at, len)
    }

    /// Uploads the file in parts.
    pub(super) fn upload(&self, leased: &Leased, object: &str, len: u64) -> io::Result<()> {
        let mut upload = UploadGuard::begin(leased.clone(), object)?;
        let (part, mut at) = (part_bytes(len), 0);
        while at < len {
            let bytes = self.read(at, part.min((len - at) as usize))?;
            at += bytes.len() as u64;
            upload.write(bytes)?;
        }
        upload.complete(len)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some(path) = &self.named {
            let _ = self.env.fs.remove_file(path);
        }
    }
}

/// An upload. The lease names it until it is completed or aborted, so that the next process that takes the
/// lease can remove its parts.
#[derive(Debug)]
pub(super) struct UploadGuard {
    leased: Leased,
    object: String,
    /// `None` once it is complete.
    upload: Option<Box<dyn Upload>>,
}

impl UploadGuard {
    fn begin(leased: Leased, object: &str) -> io::Result<UploadGuard> {
        leased.lease.check()?;
        let upload = leased.store.upload(object)?;
        let id = upload.id().to_owned();
        let guard = UploadGuard { object: object.to_owned(), upload: Some(upload), leased };
        guard.leased.lease.begin_upload(&id, object)?;
        Ok(guard)
    }

    fn write(&mut self, part: Vec<u8>) -> io::Result<()> {
        self.leased.lease.check()?;
        self.upload.as_mut().expect("the upload is not complete").write(part)
    }

    /// Creates the object. If the outcome is unknown, looks whether the object is there (backup_store.2).
    pub(super) fn complete(&mut self, len: u64) -> io::Result<()> {
        let Leased { store, lease } = &self.leased;
        lease.check()?;
        let upload = self.upload.as_mut().expect("the upload is not complete");
        if let Err(error) = upload.complete() {
            let (dir, name) = super::names::split(&self.object);
            let is_it = |listed: &super::Listed| listed.name == name && listed.size == Some(len);
            if !store.list(dir).is_ok_and(|found| found.iter().any(is_it)) {
                return Err(error);
            }
        }
        lease.end_upload(upload.id());
        self.upload = None;
        Ok(())
    }
}

impl Drop for UploadGuard {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        // If this fails, the next process that takes the lease removes the parts.
        if self.leased.store.abort(&self.object, upload.id()).is_ok() {
            self.leased.lease.end_upload(upload.id());
        }
    }
}
