//! Replaces a small file atomically.
//!
//! ```text
//!   write --> NAME.tmp --sync--> durable content --put_in_place--> NAME
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, File, OpenOptions};

use super::canary::{self, Canary};
use super::{Error, Result};

/// Replaces a small file atomically and durably: it is written and synced under a temporary name, then
/// renamed.
#[cfg(feature = "encryption")]
pub(crate) fn replace_file(env: &Env, dir: &Path, temporary: &str, name: &str, content: &[u8]) -> Result<()> {
    let new = NewFile::write(env, dir, temporary, content)?;
    new.sync()?;
    new.put_in_place(env, dir, name)?;
    env.fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

/// Replaces a small file atomically: a crash leaves the old or the new one. The new one is durable once the
/// directory is synced.
pub(crate) fn replace_file_in_time(
    env: &Env,
    dir: &Path,
    temporary: &str,
    name: &str,
    content: &[u8],
) -> Result<()> {
    let new = NewFile::write(env, dir, temporary, content)?;
    new.sync()?;
    new.put_in_place(env, dir, name)
}

/// A small file under its temporary name.
pub(crate) struct NewFile {
    path: PathBuf,
    file: Arc<dyn File>,
}

impl NewFile {
    /// Writes the file.
    pub(crate) fn write(env: &Env, dir: &Path, temporary: &str, content: &[u8]) -> Result<NewFile> {
        let path = dir.join(temporary);
        let file = env.fs.open(&path, OpenOptions::create()).map_err(|e| Error::io("create", &path, e))?;
        file.write_all_at(content, 0).map_err(|e| Error::io("write", &path, e))?;
        Ok(NewFile { path, file })
    }

    /// Makes its content durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if canary::is_set(Canary::CurrentNotSynced) {
            return Ok(());
        }
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Gives it its name. The caller syncs the directory.
    pub(crate) fn put_in_place(self, env: &Env, dir: &Path, name: &str) -> Result<()> {
        let NewFile { path, file } = self;
        drop(file);
        env.fs.rename(&path, &dir.join(name)).map_err(|e| Error::io("rename", &path, e))
    }
}
