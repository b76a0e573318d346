//! Opening a database beside the process that writes it, without a lock.
//!
//! ```text
//!   manifest --> open descriptors of its tables and blob files --> copy of the log --> manifest once more
//!       `<------------------ changed what recovery needs: again ----------------------------'
//!   unchanged --> frozen directory in memory --> the steps of every opening --> database without threads
//! ```
//!
//! live.1. The state is that of one commit: what recovery would find if the writer were killed after the log
//!     was copied. Recovery needs the manifest's tables, blob files, adopted commits and first log segment.
//!     They are those of a moment before the copy and of a moment after it, so they are those of the copy.
//! live.2. The writer may remove, reuse or change any file at any time. An error that this can cause is
//!     reported only if it stays the same, under an unchanged manifest.
//! live.3. A state is never older than the one before.
//! live.4. Each attempt reads the keys of an encrypted directory before all else, because the writer adds a
//!     key before it uses it (keyring.1). A file with a key that is still missing is an error of live.2.
//!
//! A table never changes, and a blob file only grows, so their descriptors are kept and not copied. The
//! writer does not know of its readers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_env::{Env, File, OpenOptions, OverlayFs};

use super::reading::private_lock;
use super::{absolute, list, open_locked, refuse_missing};
use crate::encoding::hash::key_hash;
use crate::encryption::{self, Unlock};
use crate::engine::base::options::{Options, Settings};
use crate::engine::disk::unfinished;
use crate::engine::life::handle::Handle;
use crate::manifest::edit::VersionEdit;
use crate::manifest::feed::FeedEdit;
use crate::manifest::file_name::{blob_path, table_path};
use crate::manifest::log::{FoundManifest, ManifestLog};
use crate::types::{EncryptionProblem, Error, Result, SeqNo};
use crate::wal::file_name::{parse_prepared, parse_segment, prepared_path, segment_path};
use crate::wal::read_segment;

/// Attempts to read a state while the writer changes it.
const ATTEMPTS_MAX: u32 = 100;
/// Attempts with the same error after which it is reported (live.2).
const SAME_MAX: u32 = 6;
/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(2);

/// The directory of a database that another process may have open.
#[derive(Debug)]
pub(crate) struct LiveDirectory {
    options: Options,
    /// With the keys of the last attempt.
    env: Env,
    dir: PathBuf,
    /// The state that was opened last.
    last: Option<State>,
}

/// What identifies a state, and what the next one shares with it.
#[derive(Debug)]
struct State {
    manifest: VersionEdit,
    /// Descriptors of tables and blob files.
    files: BTreeMap<String, Arc<dyn File>>,
    /// Length and hash of each log segment.
    log: BTreeMap<u64, (usize, u64)>,
    visible: SeqNo,
}

/// The result of one attempt.
enum Attempt {
    /// A new state.
    Opened(Arc<Handle>),
    /// The last state is the newest.
    Same,
    /// The writer changed something meanwhile.
    Moved,
}

/// An error that the writer can cause: where, and under which manifest.
#[derive(PartialEq)]
struct Suspicion {
    manifest: Option<VersionEdit>,
    path: PathBuf,
    offset: u64,
}

impl LiveDirectory {
    /// Prepares to read the database in `dir`.
    pub(crate) fn new(settings: Settings, dir: &Path) -> Result<LiveDirectory> {
        let options = super::reading::for_reading(settings).derive()?;
        let dir = absolute(&options, dir)?;
        let env = options.env();
        refuse_missing(env, &dir)?;
        let env = env.hold(&dir, None).map_err(|e| Error::io("open", &dir, e))?;
        unfinished::refuse(&env, &dir)?;
        Ok(LiveDirectory { options, env, dir, last: None })
    }

    /// Opens the newest state. Returns `None` if it is the last one.
    pub(crate) fn open_newest(&mut self) -> Result<Option<Arc<Handle>>> {
        let mut suspected: Option<(Suspicion, u32)> = None;
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                self.env.clock.sleep(PAUSE);
            }
            let mut manifest = None;
            match self.attempt(&mut manifest) {
                Ok(Attempt::Opened(handle)) => return Ok(Some(handle)),
                Ok(Attempt::Same) => return Ok(None),
                Ok(Attempt::Moved) => suspected = None,
                Err(error) => {
                    let Some((path, offset)) = place_of(&error) else { return Err(error) };
                    let suspicion = Suspicion { manifest, path, offset };
                    let times = match suspected.take() {
                        Some((before, times)) if before == suspicion => times + 1,
                        _ => 1,
                    };
                    if times == SAME_MAX {
                        return Err(error);
                    }
                    suspected = Some((suspicion, times));
                }
            }
        }
        Err(Error::Behind { path: self.dir.clone(), attempts: ATTEMPTS_MAX })
    }

    /// Tries to open the newest state. Stores the manifest in `read` once it is read.
    fn attempt(&mut self, read: &mut Option<VersionEdit>) -> Result<Attempt> {
        self.env = encryption::unlock(&self.env, &self.dir, Unlock::Read)?;
        let found = self.manifest()?;
        *read = Some(found.state.clone());
        let files = self.open_files(&found.state)?;
        let overlay = OverlayFs::frozen(self.env.fs.clone(), &self.dir);
        files.iter().for_each(|(name, file)| overlay.add(name, file.clone()));
        let env = Env { fs: Arc::new(overlay), ..self.env.clone() };
        let log = self.copy_log(&env, &found.state)?;
        let after = self.manifest()?;
        if !is_same(&found.state, &after.state) {
            return Ok(Attempt::Moved);
        }
        if self.last.as_ref().is_some_and(|last| is_same(&last.manifest, &found.state) && last.log == log) {
            return Ok(Attempt::Same);
        }
        let FoundManifest { id, state, .. } = found;
        // Segments that are kept for the feed are not copied.
        let state = VersionEdit { feed: FeedEdit::default(), ..state };
        ManifestLog::create(&env, &self.dir, id, state.clone())?;
        let handle = self.open_frozen(env)?;
        let visible = handle.core.published.visible();
        if self.last.as_ref().is_some_and(|last| visible < last.visible) {
            // live.3
            return Ok(Attempt::Moved);
        }
        self.last = Some(State { manifest: state, files, log, visible });
        Ok(Attempt::Opened(handle))
    }

    /// Reads the manifest.
    fn manifest(&self) -> Result<FoundManifest> {
        let found = ManifestLog::find(&self.env, &self.dir)?;
        found.ok_or_else(|| Error::NotFound(self.dir.clone()))
    }

    /// Opens the tables and blob files that the manifest names, except those that are open.
    fn open_files(&self, state: &VersionEdit) -> Result<BTreeMap<String, Arc<dyn File>>> {
        let tables = state.added.iter().map(|table| table_path(&self.dir, table.file));
        let blobs = state.blobs.added.iter().map(|(_, file)| blob_path(&self.dir, *file));
        let mut files = BTreeMap::new();
        for path in tables.chain(blobs) {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let file = match self.last.as_ref().and_then(|last| last.files.get(&name)) {
                Some(open) => open.clone(),
                None => {
                    let opened = self.env.fs.open(&path, OpenOptions::read());
                    opened.map_err(|e| Error::io("open", &path, e))?
                }
            };
            files.insert(name, file);
        }
        Ok(files)
    }

    /// Copies the log segments that recovery needs, the newest first: if a commit is in the copy, so are all
    /// before it. Prepared files are only named.
    fn copy_log(&self, to: &Env, state: &VersionEdit) -> Result<BTreeMap<u64, (usize, u64)>> {
        let from = state.log_extent().from;
        let names = list(&self.env, &self.dir)?;
        let segments: BTreeSet<u64> = names.iter().filter_map(|name| parse_segment(name)).collect();
        let mut log = BTreeMap::new();
        for number in segments.range(from..).rev() {
            let path = segment_path(&self.dir, *number);
            let bytes = read_segment(&self.env, &path)?;
            Self::write(to, &path, &bytes)?;
            log.insert(*number, (bytes.len(), key_hash(&bytes)));
        }
        for number in names.iter().filter_map(|name| parse_prepared(name)) {
            Self::write(to, &prepared_path(&self.dir, number), &[])?;
        }
        Ok(log)
    }

    /// Writes a file of the directory in memory.
    fn write(to: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
        let file = to.fs.open(path, OpenOptions::create());
        file.and_then(|file| file.write_all_at(bytes, 0)).map_err(|e| Error::io("copy", path, e))
    }

    /// Opens the directory in memory.
    fn open_frozen(&self, env: Env) -> Result<Arc<Handle>> {
        let lock = private_lock(&env, &self.dir)?;
        open_locked(self.options.clone(), env, &self.dir, lock.into())
    }
}

/// Returns whether recovery needs the same of both states (live.1).
fn is_same(a: &VersionEdit, b: &VersionEdit) -> bool {
    let needed = |state: &VersionEdit| (state.log_extent().from, state.flushed_seq);
    needed(a) == needed(b) && a.adopted == b.adopted && a.blobs == b.blobs
}

/// Returns the place of an error that the writer can cause (live.2).
fn place_of(error: &Error) -> Option<(PathBuf, u64)> {
    match error {
        Error::Corrupt { path, offset, .. } => Some((path.clone(), *offset)),
        Error::Encryption { path, problem: EncryptionProblem::FileKeyUnknown } => Some((path.clone(), 0)),
        Error::Io { path, source, .. } => {
            use std::io::ErrorKind::{NotFound, UnexpectedEof};
            matches!(source.kind(), NotFound | UnexpectedEof).then(|| (path.clone(), 0))
        }
        _ => None,
    }
}
