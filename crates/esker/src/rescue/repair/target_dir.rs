//! The directory that a repair fills: a new or empty one outside the damaged database. An unlocked lock file
//! in it is ignored.
//!
//! ```text
//!   target --cut off missing parts--> an existing directory --"..", ".."--> is one of them the source?
//!   claim: LOCK --> empty? --> marker --> the new database --finish--> marker removed
//!                                                     `-----clear--> files, then marker, then LOCK removed
//! ```
//!
//! Directories are compared by contents, because paths cannot identify them. A directory that has every name
//! of the source is taken for the source. So a target in a copy of the source is refused, too.
//!
//! target_dir.1. It does not lie in the source, whatever links and `..` the path contains: a file created
//!     there would change the source (rescue_repair.1). Nothing is created before this is known.
//! target_dir.3. Files of others are left alone. The directory is locked from before its first file is made
//!     until the last one is finished or removed. A failed repair removes only names that the engine uses.
//! target_dir.4. The marker exists from before the first file of the new database until the last one is
//!     durable, or durably removed (unfinished.1 of unfinished.rs). If the files cannot be removed, the
//!     marker stays. If the marker cannot be restored next to a whole database, the database stays.
//! - The lock file of a killed repair does not block the next one: it has no content. If another process has
//!   locked it, that process keeps the directory.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileLock};

use crate::encryption;
use crate::engine::base::options::Modes;
use crate::engine::disk::unfinished;
use crate::engine::life::copies::names::is_of_database;
use crate::engine::life::open::create_and_lock;
use crate::engine::life::open::reading::lock_to_read;
use crate::manifest::file_name::{LOCK, REPAIRING};
use crate::types::{Error, Result};

/// Number of directories above the target that are compared with the source. Above the root `..` has no
/// effect.
const DEPTH_MAX: usize = 1000;

/// The directory that a repair fills. Locked until this drops.
pub(super) struct TargetDir {
    /// The environment with the directory opened.
    pub(super) env: Env,
    pub(super) path: PathBuf,
    pub(super) lock: Arc<dyn FileLock>,
}

impl TargetDir {
    /// Refuses a target that is not empty or lies in the source. Changes nothing.
    pub(super) fn check(env: &Env, source: &Path, target: &Path) -> Result<()> {
        let io = |e| Error::io("look into", target, e);
        if let Some(dir) = source_above(env, source, target)? {
            let text = format!(
                "{} lies in the damaged database, or in one with files of the same names, which is {}: give a new \
                 directory outside of it",
                target.display(),
                dir.display()
            );
            return Err(Error::Invalid(text));
        }
        if let Err(error) = unfinished::refuse(env, target) {
            // The repair that left the marker may still run.
            lock_to_read(env, target)?;
            return Err(error);
        }
        if env.fs.exists(target).map_err(io)? {
            refuse_files(env, target)?;
            lock_to_read(env, target)?;
        }
        Ok(())
    }

    /// Creates, locks and marks a target that `check` has accepted (target_dir.4). Fails if other files have
    /// appeared in it since (target_dir.3). The new database gets the keys of the source.
    pub(super) fn claim(
        (env, source_env): (&Env, &Env),
        target: &Path,
        modes: Option<Modes>,
    ) -> Result<TargetDir> {
        let (env, lock) = create_and_lock(env, target, modes)?;
        refuse_files(&env, target)?;
        let mut dir = TargetDir { env, path: target.to_path_buf(), lock };
        unfinished::place(&dir.env, target)
            .and_then(|()| encryption::share(source_env, &dir.env, target))
            .map(|env| dir.env = env)
            .inspect_err(|_| dir.clear())?;
        Ok(dir)
    }

    /// Removes the marker. The database is whole, closed, and durable (target_dir.4).
    pub(super) fn finish(&self) -> Result<()> {
        unfinished::remove(&self.env, &self.path)
    }

    /// Removes the files of an unfinished repair (rescue_repair.4). The directory was empty except for a lock
    /// file, so files with names of the engine belong to the repair (target_dir.3). Errors are ignored: the
    /// caller reports the error that ended the repair.
    pub(super) fn clear(&self) {
        let env = &self.env;
        let Ok(names) = env.fs.list_dir(&self.path) else { return };
        let of_database = || names.iter().filter(|name| is_of_database(name));
        let is_whole = of_database().next().is_some() && !names.iter().any(|name| name == REPAIRING);
        // The marker was removed, perhaps not durably. It has to exist again before the first file is removed
        // (target_dir.4).
        if is_whole && unfinished::place(env, &self.path).is_err() {
            return;
        }
        let is_gone = |name: &str| match env.fs.remove_file(&self.path.join(name)) {
            Err(e) => e.kind() == std::io::ErrorKind::NotFound,
            Ok(()) => true,
        };
        let (made, gone) = (of_database().count(), of_database().filter(|name| is_gone(name)).count());
        // target_dir.4
        if made == gone && (made == 0 || env.fs.sync_dir(&self.path).is_ok()) && is_gone(REPAIRING) {
            is_gone(LOCK);
        }
    }
}

/// Returns modes with which no user can read more in the new database than in this one. `None` where the
/// system has no modes.
pub(super) fn modes_of(env: &Env, source: &Path) -> Result<Option<Modes>> {
    let mode = |path: &Path| env.fs.mode(path).map_err(|e| Error::io("look at", path, e));
    let Some(dir) = mode(source)? else { return Ok(None) };
    let mut files = dir & 0o666;
    let names = env.fs.list_dir(source).map_err(|e| Error::io("list", source, e))?;
    for name in names.iter().filter(|name| is_of_database(name)) {
        files &= mode(&source.join(name))?.unwrap_or(0);
    }
    Ok(Some(Modes { dir, files }))
}

/// Refuses a directory with any file but a lock file.
fn refuse_files(env: &Env, target: &Path) -> Result<()> {
    let names = env.fs.list_dir(target).map_err(|e| Error::io("look into", target, e))?;
    if names.iter().any(|name| name != LOCK) {
        let text = format!("{} is not empty: give a new directory to repair into", target.display());
        return Err(Error::Invalid(text));
    }
    Ok(())
}

/// Returns the directory above the target, or the target itself, that is the source (target_dir.1).
fn source_above(env: &Env, source: &Path, target: &Path) -> Result<Option<PathBuf>> {
    let mut names = env.fs.list_dir(source).map_err(|e| Error::io("list", source, e))?;
    // A repair could not have read a directory that cannot be listed.
    let has = |dir: &Path, name: &String| env.fs.exists(&dir.join(name)).unwrap_or(false);
    // Names that are not valid text were listed in another form.
    names.retain(|name| has(source, name));
    let is_source = |dir: &Path| names.iter().all(|name| has(dir, name));
    let mut there = None;
    for dir in upwards(target) {
        if env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            there = Some(dir);
            break;
        }
        if ends_in_parent(dir) {
            let text = format!("{}: remove the `..` after a directory that does not exist", target.display());
            return Err(Error::Invalid(text));
        }
    }
    if let Some(dir) = upwards(target).find(|dir| *dir == source || is_source(dir)) {
        return Ok(Some(dir.to_path_buf()));
    }
    let Some(mut above) = there.map(Path::to_path_buf) else { return Ok(None) };
    for _ in 0..DEPTH_MAX {
        above.push("..");
        // A file system that only compares paths does not know `..`: then the path itself has been decisive.
        if !env.fs.exists(&above).unwrap_or(false) {
            break;
        }
        if is_source(&above) {
            return Ok(Some(above));
        }
    }
    Ok(None)
}

/// Iterates over the path and the directories above it that it names.
fn upwards(path: &Path) -> impl Iterator<Item = &Path> {
    let all =
        std::iter::successors(Some(path), |path| if ends_in_parent(path) { None } else { path.parent() });
    // The empty path is the current directory.
    all.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path })
}

fn ends_in_parent(path: &Path) -> bool {
    path.components().next_back() == Some(Component::ParentDir)
}
