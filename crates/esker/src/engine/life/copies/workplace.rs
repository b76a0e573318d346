//! The directory beside the target in which a database is made: whole and durable before it has its name.
//!
//! ```text
//!   NAME.esker-new/LOCK             who makes it
//!   NAME.esker-new/ESKER-JOB-<id>   proves that the directory is a workplace
//!   NAME.esker-new/db/...           what is made --rename--> NAME
//! ```
//!
//! workplace.1. Nothing has the target's name before all of the database is durable, and the renaming is one step that replaces nothing.
//!      So a crash leaves the whole database, or none and a workplace.
//! workplace.2. A workplace whose lock is free is garbage. The next one that is made in the same directory, under any name, removes it.
//!      Its job file proves what it is (job.2); a directory that only has such a name is left alone.
//! workplace.3. Only files with names of a database are removed from a workplace. What others have put there stays, and with it the directory.
//! workplace.4. No symbolic link below the target's directory is followed (fs.5). What leads to that directory is the user's business.

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

/// What the name of a workplace ends with.
const SUFFIX: &str = ".esker-new";
/// The directory in it that gets the name.
const INSIDE: &str = "db";
/// What its job file says.
const KIND: &str = "workplace";
/// How often a directory is made again that another process has removed before it was locked.
const LOCK_ROUNDS: u32 = 100;

/// See the module's text. Removed when it drops, as far as it can be.
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
    /// It was made by a job of Esker, and goes with it.
    is_ours: bool,
}

impl Workplace {
    /// A workplace for a database in `target`, where nothing may be yet.
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
        outer.env.fs.create_dir(&inside, dir_mode).map_err(|e| Error::io("create", &inside, e))?;
        let files = modes.map(|modes| modes.files);
        let held = outer.env.hold(&inside, files).map_err(|e| Error::io("open", &inside, e))?;
        Ok(Workplace { outer, held, target, inside })
    }

    /// Where the files go.
    pub(crate) fn dir(&self) -> &Path {
        &self.inside
    }

    /// For new files in it.
    pub(crate) fn held(&self) -> &Env {
        &self.held
    }

    /// Gives what was made its name, durably (workplace.1). All files are durable, and so are their names.
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
    Error::Invalid(format!("{} is there already: name a directory that is to be made", target.display()))
}

impl Outer {
    /// Makes, or finds, and locks the workplace for this name. Proves it before anything is made in it.
    fn make(above_env: &Env, above: &Path, name: &OsStr) -> Result<Outer> {
        let mut workplace_name = name.to_owned();
        workplace_name.push(SUFFIX);
        let path = above.join(workplace_name);
        let mut rounds = 0;
        let mut outer = loop {
            match Self::make_and_lock(above_env, &path) {
                // Others take it for garbage until it is locked.
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
                // Fails if another process has come to use it meanwhile.
                let _ = above_env.fs.remove_dir(path);
            }
        })
    }

    fn lock_made(above_env: &Env, path: &Path, is_ours: bool) -> Result<Outer> {
        let env = above_env.hold(path, None).map_err(|e| Error::io("open", path, e))?;
        let mut outer = Outer { above: above_env.clone(), env, path: path.to_owned(), lock: None, is_ours };
        if !is_ours && outer.jobs()?.is_empty() {
            // A crash leaves no more of one that is not proved yet, nor does another process have more while it begins.
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

    /// Removes the directory inside, durably, and the files of a database in it (workplace.3).
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
        // Before the proof of what it was goes (job.1).
        fs.sync_dir_if_readable(&self.path).map_err(|e| Error::io("sync directory", &self.path, e))
    }

    /// Removes the workplace, which is locked.
    fn remove(&mut self) -> Result<()> {
        let (fs, path) = (&self.env.fs, &self.path);
        self.empty()?;
        if self.is_ours {
            // While it is locked, so that no process locks a file that has no name. The proof goes last.
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
        // What cannot be removed is for the next one (workplace.2). Without the lock it is another's.
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

/// Removes the workplaces that were left in a directory, all that it can (workplace.2).
fn clear_others(above_env: &Env, above: &Path, own: &Path) {
    let mut names = above_env.fs.list_dir(above).unwrap_or_default();
    // In one order, so that a simulation repeats itself.
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
            // It may have ended meanwhile, and be another's.
            && is_proved(&outer)
        {
            outer.lock = Some(lock);
        } else {
            // A crash may leave an empty one; nothing else goes.
            let _ = above_env.fs.remove_dir(&outer.path);
        }
    }
}
