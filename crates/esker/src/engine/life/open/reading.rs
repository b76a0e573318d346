//! Opening a database to read it. What an opening writes stays in memory.
//!
//! ```text
//!   directory, locked in shared mode --OverlayFs--> the steps of every opening --> database without threads
//! ```
//!
//! reading.1. The directory is not changed: the opened database sees it through an overlay (overlay.1 of
//!     esker-env's overlay.rs), and refuses writes before they reach even that
//!     ([`check_writable`](crate::engine::disk::Disk::check_writable)).
//! reading.2. While the shared lock is held, no process changes the directory. Without a lock file there is
//!     no lock: then no process has opened the directory since it was copied.

use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FileLock, OverlayFs};

use super::{absolute, open_locked, refuse_missing, wait_for_lock};
use crate::blob::Blobs;
use crate::encryption::{self, Unlock};
use crate::engine::base::options::{Background, Settings};
use crate::engine::disk::unfinished;
use crate::engine::life::handle::Handle;
use crate::manifest::file_name::LOCK;
use crate::types::{Error, Result};

/// Opens the database in `dir` without changing it (reading.1).
pub(crate) fn open_read_only(settings: Settings, dir: &Path) -> Result<Arc<Handle>> {
    let options = for_reading(settings).derive()?;
    let dir = absolute(&options, dir)?;
    let (env, lock) = wait_for_lock(&options, || lock_to_read(options.env(), &dir))?;
    refuse_missing(&env, &dir)?;
    unfinished::refuse(&env, &dir)?;
    let env = encryption::unlock(&env, &dir, Unlock::Read)?;
    let env = Env { fs: Arc::new(OverlayFs::new(env.fs.clone(), &dir)), ..env };
    let lock = lock.map_or_else(|| private_lock(&env, &dir), Ok)?;
    open_locked(options, env, &dir, lock.into())
}

/// Returns the lock of a directory in memory.
pub(super) fn private_lock(env: &Env, dir: &Path) -> Result<Box<dyn FileLock>> {
    let path = dir.join(LOCK);
    env.fs.lock(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))
}

/// Opens the directory of a database and keeps writers out of it without changing it. Returns no lock if
/// there is no lock file.
pub(crate) fn lock_to_read(env: &Env, dir: &Path) -> Result<(Env, Option<Box<dyn FileLock>>)> {
    if !env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
        return Err(Error::NotFound(dir.to_path_buf()));
    }
    let env = env.hold(dir, None).map_err(|e| Error::io("open", dir, e))?;
    let path = dir.join(LOCK);
    let lock = env.fs.lock_to_read(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))?;
    Ok((env, lock))
}

/// Returns the settings for an opening that changes nothing on disk, and does no background work.
pub(super) fn for_reading(mut settings: Settings) -> Settings {
    settings.opening.read_only = true;
    settings.opening.create_if_missing = false;
    settings.opening.error_if_exists = false;
    settings.functions.filters.clear();
    settings.blobs.rule = Blobs::Never;
    settings.log.map = false;
    Settings { background: Background::Steps, ..settings }
}
