//! The temporary directory beside the target in which a database is made. It gets the target's name once it
//! is complete and durable.
//!
//! ```text
//!   NAME.esker-new/LOCK             locked by the maker
//!   NAME.esker-new/ESKER-JOB-<id>   proves that the directory is a workplace
//!   NAME.esker-new/db/...           what is made --rename--> NAME
//! ```
//!
//! workplace.1. Nothing has the target's name before the whole database is durable. The rename is one step
//!     that replaces nothing. So a crash leaves the whole database, or a workplace and no database.
//! - A workplace whose lock is free is garbage. The next workplace made in the same directory, for any
//!   target, removes it. Its job file proves what it is; a directory that only has such a name is
//!   left alone.
//! - Only files with names of a database are removed from a workplace. Other files stay, and with them the
//!   directory.
//! - No symbolic link below the target's parent directory is followed (fs.5). Links on the way to that
//!   directory are the user's choice.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Entry, Env, FileLock, JobFile};

use super::names::{is_of_database, refuse_in_database};
use crate::engine::base::options::Modes;
use crate::manifest::file_name::LOCK;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

/// Suffix of a workplace's name.
const SUFFIX: &str = ".esker-new";
/// The directory in it that gets the target's name.
const INSIDE: &str = "db";
/// Kind of its job file.
const KIND: &str = "workplace";
/// How often a directory is made again that another process removed before it was locked.
const LOCK_ROUNDS: u32 = 100;

/// A workplace. Removed on drop, as far as possible.
pub(crate) struct Workplace {
    outer: Outer,
    /// With `inside` held.
    held: Env,
    target: PathBuf,
    inside: PathBuf,
}

/// `NAME.esker-new`.
struct Outer {
    /// With the directory above held.
    above: Env,
    /// With this directory held.
    env: Env,
    path: PathBuf,
    lock: Option<Arc<dyn FileLock>>,
    /// Made by a job of Esker, and removed with it.
    is_ours: bool,
}

impl Workplace {
    /// Makes a workplace for a database in `target`, which must not exist.
    pub(crate) fn take(env: &Env, target: &Path, modes: Option<Modes>) -> Result<Workplace> {
        if target.as_os_str().is_empty() {
            return Err(Error::Invalid("the path of the new database is empty".to_owned()));
        }
        let target = env.fs.absolute(target).map_err(|e| Error::io("find", target, e))?;
        if env.fs.entry(&target).map_err(|e| Error::io("look for", &target, e))?.is_some() {
            return Err(is_there(&target));
        }
        refuse_in_database(env, &target)?;
        let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::Invalid(format!(
                "{} cannot be made: name a directory in it",
                target.display()
            )));
        };
        env.fs.create_dir_all(above).map_err(|e| Error::io("create", above, e))?;
        let above_env = env.hold(above, None).map_err(|e| Error::io("open", above, e))?;
        let outer = Outer::make(&above_env, above, name)?;
        clear_others(&above_env, above, &outer.path);
        let inside = outer.path.join(INSIDE);
        let dir_mode = modes.map(|modes| modes.dir);
        outer.env.fs.create_dir(&inside, dir_mode).map_err(|e| match e.kind() {
            // Its proof was there when it was locked, and could not be read again.
            ErrorKind::AlreadyExists => not_ours(&outer.path),
            _ => Error::io("create", &inside, e),
        })?;
        let files = modes.map(|modes| modes.files);
        let held = outer.env.hold(&inside, files).map_err(|e| Error::io("open", &inside, e))?;
        Ok(Workplace { outer, held, target, inside })
    }

    /// The directory for the files.
    pub(crate) fn dir(&self) -> &Path {
        &self.inside
    }

    /// The environment for new files in it.
    pub(crate) fn held(&self) -> &Env {
        &self.held
    }

    /// Renames the directory to the target, durably (workplace.1). All files and their names are durable by
    /// now.
    pub(crate) fn finish(self) -> Result<()> {
        let fs = &self.outer.env.fs;
        fs.rename_dir(&self.inside, &self.target).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => is_there(&self.target),
            _ => Error::io("rename", &self.inside, e),
        })?;
        let above = fs.dir_above(&self.target);
        if let Some(above) = above.filter(|_| !canary::is_set(Canary::CopyNameNotSynced)) {
            fs.sync_dir_if_readable(&above).map_err(|e| Error::io("sync directory", &above, e))?;
        }
        Ok(())
    }
}

fn is_there(target: &Path) -> Error {
    Error::AlreadyExists(target.to_owned())
}

impl Outer {
    /// Makes or finds the workplace for this name, locks it, and proves it before anything is made in it.
    fn make(above_env: &Env, above: &Path, name: &OsStr) -> Result<Outer> {
        let mut workplace_name = name.to_owned();
        workplace_name.push(SUFFIX);
        let path = above.join(workplace_name);
        let mut rounds = 0;
        let mut outer = loop {
            match Self::make_and_lock(above_env, &path) {
                // Until it is locked, other processes take it for garbage.
                Err(Error::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound && rounds < LOCK_ROUNDS =>
                {
                    rounds += 1;
                }
                made => break made?,
            }
        };
        let left = outer.jobs()?;
        outer.is_ours |= !left.is_empty();
        if !left.is_empty() {
            outer.empty()?;
        }
        let begun = JobFile::begin(&outer.env, &outer.path, KIND);
        begun.map_err(|e| Error::io("mark", &outer.path, e))?;
        Ok(outer)
    }

    fn make_and_lock(above_env: &Env, path: &Path) -> Result<Outer> {
        let io = |e| Error::io("create", path, e);
        let is_ours = match above_env.fs.create_dir(path, None) {
            Ok(()) => true,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
            Err(e) => return Err(io(e)),
        };
        if !is_ours && !matches!(above_env.fs.entry(path).map_err(io)?, None | Some(Entry::Dir)) {
            return Err(not_ours(path));
        }
        Self::lock_made(above_env, path, is_ours).inspect_err(|_| {
            if is_ours {
                // Fails if another process uses it by now.
                let _ = above_env.fs.remove_dir(path);
            }
        })
    }

    fn lock_made(above_env: &Env, path: &Path, is_ours: bool) -> Result<Outer> {
        let env = above_env.hold(path, None).map_err(|e| Error::io("open", path, e))?;
        let mut outer = Outer { above: above_env.clone(), env, path: path.to_owned(), lock: None, is_ours };
        if !is_ours && outer.jobs()?.is_empty() {
            // A workplace without proof holds no more than this, whether it was left by a crash or is being
            // made.
            let is_left = |name: &String| name == LOCK || JobFile::is_name(name);
            let names = outer.env.fs.list_dir(path).map_err(|e| Error::io("list", path, e))?;
            if !names.iter().all(is_left) {
                return Err(not_ours(path));
            }
        }
        outer.lock = Some(lock(&outer.env, path)?);
        Ok(outer)
    }

    fn jobs(&self) -> Result<Vec<JobFile>> {
        JobFile::left(&self.env, &self.path, KIND).map_err(|e| Error::io("look into", &self.path, e))
    }

    /// Removes the inner directory and the files of a database in it, durably.
    fn empty(&self) -> Result<()> {
        let fs = &self.env.fs;
        let dir = self.path.join(INSIDE);
        if fs.entry(&dir).map_err(|e| Error::io("look for", &dir, e))?.is_none() {
            return Ok(());
        }
        let held = self.env.hold(&dir, None).map_err(|e| Error::io("open", &dir, e))?;
        let names = held.fs.list_dir(&dir).map_err(|e| Error::io("list", &dir, e))?;
        for name in names.iter().filter(|name| *name == LOCK || is_of_database(name)) {
            let path = dir.join(name);
            held.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        fs.remove_dir(&dir).map_err(|e| Error::io("remove", &dir, e))?;
        // Before the proof is removed (job.1).
        fs.sync_dir_if_readable(&self.path).map_err(|e| Error::io("sync directory", &self.path, e))
    }

    /// Removes the locked workplace.
    fn remove(&mut self) -> Result<()> {
        let (fs, path) = (&self.env.fs, &self.path);
        self.empty()?;
        if self.is_ours {
            // Removed while locked, so that no process locks a file without a name. The proof is removed
            // last.
            let lock = path.join(LOCK);
            fs.remove_file(&lock).map_err(|e| Error::io("remove", &lock, e))?;
        }
        for job in self.jobs()? {
            job.end(&self.env).map_err(|e| Error::io("remove the job file in", path, e))?;
        }
        drop(self.lock.take());
        match self.is_ours {
            true => self.above.fs.remove_dir(path).map_err(|e| Error::io("remove", path, e)),
            false => Ok(()),
        }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        // The next workplace removes what stays. Without the lock it belongs to another
        // process.
        if self.lock.is_some() {
            let _ = self.remove();
        }
    }
}

fn not_ours(path: &Path) -> Error {
    Error::Invalid(format!(
        "{} is there, and is not what an unfinished copy has left: move it away, or give the copy another name",
        path.display()
    ))
}

fn lock(env: &Env, outer: &Path) -> Result<Arc<dyn FileLock>> {
    let path = outer.join(LOCK);
    let lock = env.fs.lock(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))?;
    Ok(lock.into())
}

/// Removes the workplaces left in a directory, as far as it can.
fn clear_others(above_env: &Env, above: &Path, own: &Path) {
    let mut names = above_env.fs.list_dir(above).unwrap_or_default();
    // Sorted, so that a simulation is repeatable.
    names.sort_unstable();
    for path in names.iter().filter(|name| name.ends_with(SUFFIX)).map(|name| above.join(name)) {
        if path == own || !matches!(above_env.fs.entry(&path), Ok(Some(Entry::Dir))) {
            continue;
        }
        let Ok(env) = above_env.hold(&path, None) else { continue };
        let mut outer = Outer { above: above_env.clone(), env, path, lock: None, is_ours: true };
        let is_proved = |outer: &Outer| outer.jobs().is_ok_and(|jobs| !jobs.is_empty());
        if is_proved(&outer)
            && let Ok(lock) = lock(&outer.env, &outer.path)
            // The first job may have ended meanwhile, and the name may belong to another.
            && is_proved(&outer)
        {
            outer.lock = Some(lock);
        } else {
            // A crash may leave an empty directory. Others are not removed.
            let _ = above_env.fs.remove_dir(&outer.path);
        }
    }
}
