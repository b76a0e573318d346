//! Tools for databases that are damaged, or may be.
//!
//! ```text
//!   check   everything that must agree, of an open database or of its files
//!   repair  what can be read of a damaged database, into a new one
//!   dump    the contents of a file
//! ```

pub(crate) mod check;
pub(crate) mod dump;
pub(crate) mod repair;

use std::path::Path;

use esker_env::{Env, FileLock};

use crate::manifest::file_name::LOCK;
use crate::types::{Error, Result};

/// Opens the directory of a database and keeps writers out of it without changing it. Returns no lock if
/// there is no lock file.
pub(super) fn lock_to_read(env: &Env, dir: &Path) -> Result<(Env, Option<Box<dyn FileLock>>)> {
    if !env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
        return Err(Error::NotFound(dir.to_path_buf()));
    }
    let env = env.hold(dir, None).map_err(|e| Error::io("open", dir, e))?;
    let path = dir.join(LOCK);
    let lock = env.fs.lock_to_read(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))?;
    Ok((env, lock))
}
