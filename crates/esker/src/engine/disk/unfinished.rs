//! The marker file in a directory that a repair fills. While it exists, the directory holds an incomplete
//! database.
//!
//! ```text
//!   repair --place--> REPAIRING, durable --> new database, filled, checked, closed --remove--> a database
//!                          `-- kill, power loss --> refused by opening, `check_offline` and `repair`
//! ```
//!
//! unfinished.1. The marker's name is durable before any file of the database is created. It is durably
//!     removed after the whole database is durable. So whatever a kill or a power loss leaves of a repair is
//!     refused.
//!
//! Only the name counts. The text is for people.

use std::path::Path;

use esker_env::{Env, OpenOptions};

use crate::manifest::file_name::REPAIRING;
use crate::types::{Error, Result};

/// Content of the marker, for people who look into the directory.
const TEXT: &[u8] =
    b"A repair into this directory is running or did not finish. If none is running, remove the \
                      directory and repair again.\n";

/// Refuses a directory that a repair has not finished filling (unfinished.1).
pub(crate) fn refuse(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(REPAIRING);
    match env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
        true => Err(Error::UnfinishedRepair(dir.to_path_buf())),
        false => Ok(()),
    }
}

/// Creates the marker durably.
pub(crate) fn place(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(REPAIRING);
    let file = env.fs.open(&path, OpenOptions::create_new()).map_err(|e| Error::io("create", &path, e))?;
    file.write_all_at(TEXT, 0).map_err(|e| Error::io("write", &path, e))?;
    file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
    sync_dir(env, dir)
}

/// Removes the marker durably: the database is complete.
pub(crate) fn remove(env: &Env, dir: &Path) -> Result<()> {
    let path = dir.join(REPAIRING);
    env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
    sync_dir(env, dir)
}

fn sync_dir(env: &Env, dir: &Path) -> Result<()> {
    env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))
}
