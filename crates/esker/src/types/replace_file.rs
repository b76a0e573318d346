//! Replaces a small file atomically.

use std::path::Path;

use esker_env::{Env, OpenOptions};

use super::canary::{self, Canary};
use super::{Error, Result};

/// Replaces a small file atomically and durably: it is written and synced under a temporary name, then
/// renamed.
pub(crate) fn replace_file(env: &Env, dir: &Path, temporary: &str, name: &str, content: &[u8]) -> Result<()> {
    let (from, to) = (dir.join(temporary), dir.join(name));
    let file = env.fs.open(&from, OpenOptions::create()).map_err(|e| Error::io("create", &from, e))?;
    file.write_all_at(content, 0).map_err(|e| Error::io("write", &from, e))?;
    if !canary::is_set(Canary::CurrentNotSynced) {
        file.sync_data().map_err(|e| Error::io("sync", &from, e))?;
    }
    drop(file);
    env.fs.rename(&from, &to).map_err(|e| Error::io("rename", &from, e))?;
    env.fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}
