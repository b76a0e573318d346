//! Repair: salvages what can be read of a damaged database into a new one.
//!
//! ```text
//!   source (read only)                                              target (new)
//!   CURRENT, MANIFEST-* --sources--> tables, first log segment
//!   tables --tables: newest version of each key, tombstones honoured--> puts --.
//!   log    --log: whole commits, in order-----------------------------> ops ---+--> target --> checked
//!   catalog ----------------------------------------------> names made whole --'
//! ```
//!
//! RP1. The source is opened for reading only: no byte, name or time of it changes.
//! RP2. The newest version that can be read of each key counts, by sequence number; what a tombstone that can be read
//!      covers is gone. Commits of the log follow in their order, whole ones only.
//! RP3. Whatever of the source is not in the target although it may have counted is in the report: file, offset, and
//!      keys where they are known. What is absent from the report is in the target.
//! RP4. The target is a sound database: it is opened anew and checked before this returns. If that cannot be reached,
//!      nothing is left of it.
//! RP5. Memory does not grow with the database: a block for each table that overlaps at one key, one log segment, one
//!      commit.

mod log;
mod report;
mod sources;
mod tables;
mod target;

use std::path::{Path, PathBuf};

use esker_env::{Env, FileLock, LockError};

pub use self::report::{Loss, LostKeys, RepairReport, RepairedKeyspace};

use super::options::Builder;
use crate::manifest::file_name::LOCK;
use crate::types::{Error, Result};

/// Salvages what can be read of the damaged database in `source` into a new one in `target`, which must be missing or
/// empty. The source is not changed in any way. The report tells exactly what was lost.
///
/// ```no_run
/// # fn main() -> esker::Result<()> {
/// let report = esker::repair("damaged", "repaired")?;
/// for loss in &report.losses {
///     println!("{loss}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Locked`] if the source is open elsewhere, [`Error::NotFound`] if there is nothing of a database in it,
/// [`Error::UnsupportedVersion`] if it was written by a newer version, and errors of writing the target.
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    Builder::default().repair(source, target)
}

impl Builder {
    /// Like [`repair`](crate::repair), with these options for the new database.
    ///
    /// # Errors
    /// See [`repair`](crate::repair).
    pub fn repair(self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
        let (source, target) = (source.as_ref(), target.as_ref());
        let env = self.environment().clone();
        let _lock = lock_to_read(&env, source)?;
        let made = make_target_dir(&env, source, target)?;
        run(&env, &self, source, target).inspect_err(|_| made.remove(&env))
    }
}

fn run(env: &Env, options: &Builder, source: &Path, target: &Path) -> Result<RepairReport> {
    let mut report = RepairReport::default();
    let sources = sources::find(env, source, &mut report)?;
    let mut out = target::Target::create(options, target)?;
    tables::salvage(env, &sources, &mut out, &mut report)?;
    log::salvage(env, source, &sources, &mut out, &mut report)?;
    out.finish(&mut report)?;
    Ok(report)
}

/// Keeps writers out of a database without changing anything; there may be no lock file to hold.
pub(super) fn lock_to_read(env: &Env, dir: &Path) -> Result<Option<Box<dyn FileLock>>> {
    if !env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
        return Err(Error::NotFound(dir.to_path_buf()));
    }
    env.fs.lock_to_read(&dir.join(LOCK)).map_err(|e| match e {
        LockError::Held { path, pid } => Error::Locked { path, pid },
        LockError::Io(e) => Error::io("lock", dir.join(LOCK), e),
    })
}

/// The directory that a repair fills.
struct TargetDir(PathBuf);

fn make_target_dir(env: &Env, source: &Path, target: &Path) -> Result<TargetDir> {
    let io = |e| Error::io("look into", target, e);
    if source == target {
        return Err(Error::Invalid("a database is repaired into another directory: give a new one".into()));
    }
    if env.fs.exists(target).map_err(io)? && !env.fs.list_dir(target).map_err(io)?.is_empty() {
        let text = format!("{} is not empty: give a new directory to repair into", target.display());
        return Err(Error::Invalid(text));
    }
    env.fs.create_dir_all(target).map_err(|e| Error::io("create", target, e))?;
    Ok(TargetDir(target.to_path_buf()))
}

impl TargetDir {
    /// Removes what an unfinished repair has made (RP4). The directory was empty, so all in it is ours.
    fn remove(&self, env: &Env) {
        for name in env.fs.list_dir(&self.0).unwrap_or_default() {
            // The error that matters is the one that ended the repair.
            let _ = env.fs.remove_file(&self.0.join(name));
        }
    }
}
