//! The directory that a repair fills: a new or an empty one, and nowhere in the damaged database. A lock file that nobody holds does not count.
//!
//! ```text
//!   target --what is missing of it cut off--> a directory that is there --"..", ".."--> is one of them the source?
//!   claim: LOCK --> nothing else? --> marker --> the new database --finish--> marker removed
//!                                                     `-----------clear--> its files, then marker, then LOCK removed
//! ```
//!
//! target_dir.1. It does not lie in the source, whatever links and `..` are on the way: what is made there would be a change of
//!      the source (rescue_repair.1). Nothing is created before that is known.
//! target_dir.2. Directories are told by what is in them, since their paths do not tell: one that has every name that the source
//!      has is taken for the source. So a target in a copy of the source is refused, too.
//! target_dir.3. What others have made there is left alone: it is locked from before the first file of ours until the last one is made or
//!      removed, and of a repair that fails only names that the engine gives are removed.
//! target_dir.4. From before the first file of the new database until the last one is durable, or removed durably, the marker is there
//!      (unfinished.1 of unfinished.rs). If they cannot be removed it stays; if it cannot be put back in front of a whole database, that stays.
//! target_dir.5. What a repair leaves that is killed outside of that, its lock file, is not in the way of the next one. It has no content that could be
//!      lost; whoever has it locked is about to make something there, and keeps the directory.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileLock};

use crate::engine::base::options::Modes;
use crate::engine::disk::unfinished;
use crate::engine::life::copies::names::is_of_database;
use crate::engine::life::open::create_and_lock;
use crate::manifest::file_name::{LOCK, REPAIRING};
use crate::rescue::lock_to_read;
use crate::types::{Error, Result};

/// So many directories above the target are looked at. Above the root `..` leads nowhere.
const DEPTH_MAX: usize = 1000;

/// The directory that a repair fills. Locked for as long as this is there.
pub(super) struct TargetDir {
    /// With the directory opened.
    pub(super) env: Env,
    pub(super) path: PathBuf,
    pub(super) lock: Arc<dyn FileLock>,
}

impl TargetDir {
    /// Refuses a target that is not empty or lies in the source. Changes nothing.
    pub(super) fn check(env: &Env, source: &Path, target: &Path) -> Result<()> {
        let io = |e| Error::io("look into", target, e);
        if lies_in(env, source, target)? {
            let text = format!(
                "{} lies in the damaged database, or in a directory that looks the same: give a new directory outside \
                 of it",
                target.display()
            );
            return Err(Error::Invalid(text));
        }
        if let Err(error) = unfinished::refuse(env, target) {
            // One that still runs is not to be removed.
            lock_to_read(env, target)?;
            return Err(error);
        }
        if env.fs.exists(target).map_err(io)? {
            refuse_files(env, target)?;
            // target_dir.5
            lock_to_read(env, target)?;
        }
        Ok(())
    }

    /// Makes and locks a target that was found good, unless others have been there since (target_dir.3), and marks it (target_dir.4).
    pub(super) fn claim(env: &Env, target: &Path, modes: Option<Modes>) -> Result<TargetDir> {
        let (env, lock) = create_and_lock(env, target, modes)?;
        refuse_files(&env, target)?;
        let dir = TargetDir { env, path: target.to_path_buf(), lock };
        unfinished::place(&dir.env, target).inspect_err(|_| dir.clear())?;
        Ok(dir)
    }

    /// The database is whole, closed, and durable (target_dir.4).
    pub(super) fn finish(&self) -> Result<()> {
        unfinished::remove(&self.env, &self.path)
    }

    /// Removes what an unfinished repair has made (rescue_repair.4). There was nothing but a lock file, so what has our names is ours (target_dir.3). Errors are
    /// passed by: the one that matters is the one that ended the repair.
    pub(super) fn clear(&self) {
        let env = &self.env;
        let Ok(names) = env.fs.list_dir(&self.path) else { return };
        let of_database = || names.iter().filter(|name| is_of_database(name));
        let is_whole = of_database().next().is_some() && !names.iter().any(|name| name == REPAIRING);
        // target_dir.4. The marker is gone, though perhaps not for good: it has to be back before the first file goes.
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

/// The modes that let nobody see more in the new database than in this one; none where there are no modes.
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

/// Refuses a directory that holds more than a lock file (target_dir.5).
fn refuse_files(env: &Env, target: &Path) -> Result<()> {
    let names = env.fs.list_dir(target).map_err(|e| Error::io("look into", target, e))?;
    if names.iter().any(|name| name != LOCK) {
        let text = format!("{} is not empty: give a new directory to repair into", target.display());
        return Err(Error::Invalid(text));
    }
    Ok(())
}

/// Whether the target is the source or lies in it (target_dir.1).
fn lies_in(env: &Env, source: &Path, target: &Path) -> Result<bool> {
    let mut names = env.fs.list_dir(source).map_err(|e| Error::io("list", source, e))?;
    // A directory that cannot be looked into is none that a repair could have read.
    let has = |dir: &Path, name: &String| env.fs.exists(&dir.join(name)).unwrap_or(false);
    // A name that is no text was listed in another form.
    names.retain(|name| has(source, name));
    let is_source = |dir: &Path| names.iter().all(|name| has(dir, name));
    let mut there = None;
    for dir in upwards(target) {
        if env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
            there = Some(dir);
            break;
        }
        if ends_in_parent(dir) {
            let text =
                format!("{}: leave out the `..` behind a directory that is not there", target.display());
            return Err(Error::Invalid(text));
        }
    }
    if upwards(target).any(|dir| dir == source || is_source(dir)) {
        return Ok(true);
    }
    let Some(mut above) = there.map(Path::to_path_buf) else { return Ok(false) };
    for _ in 0..DEPTH_MAX {
        above.push("..");
        // A file system that only compares paths knows no `..`: the path itself said all there is to say.
        if !env.fs.exists(&above).unwrap_or(false) {
            break;
        }
        if is_source(&above) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The path, and the directories above it as far as it names them.
fn upwards(path: &Path) -> impl Iterator<Item = &Path> {
    let all =
        std::iter::successors(Some(path), |path| if ends_in_parent(path) { None } else { path.parent() });
    // The empty path is the directory that relative ones start at.
    all.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path })
}

fn ends_in_parent(path: &Path) -> bool {
    path.components().next_back() == Some(Component::ParentDir)
}
