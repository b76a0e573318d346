//! The directory beside the one that is to be, in which a database is made: whole and durable before it has its name.
//!
//! ```text
//!   NAME.esker-new/LOCK      who makes it
//!   NAME.esker-new/db/...    what is made --rename--> NAME
//! ```
//!
//! workplace.1. Nothing has the name before all of the database is durable, and the renaming is one step. So a crash leaves the whole
//!      database, or none and a workplace.
//! workplace.2. A workplace whose lock is free is garbage: the next one that is made in the same directory, under whatever name, removes it.
//! workplace.3. Only its own files are removed: what others have put there stays, and with it the directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FileLock};

use crate::engine::options::Modes;
use crate::manifest::file_name::LOCK;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

/// What the name of a workplace ends with.
const SUFFIX: &str = ".esker-new";
/// The directory in it that gets the name.
const INSIDE: &str = "db";
/// How often a directory is made anew that somebody has removed before it was locked.
const LOCK_ROUNDS: u32 = 100;

/// See the module's text. Removed when it drops, as far as it can be.
pub(crate) struct Workplace {
    env: Env,
    /// The same with `inside` held.
    held: Env,
    target: PathBuf,
    /// `NAME.esker-new`.
    outer: PathBuf,
    inside: PathBuf,
    lock: Option<Arc<dyn FileLock>>,
}

impl Workplace {
    /// One for a database in `target`, where nothing may be yet.
    pub(crate) fn take(env: &Env, target: &Path, modes: Option<Modes>) -> Result<Workplace> {
        if target.as_os_str().is_empty() {
            return Err(Error::Invalid("the path of the new database is empty".to_owned()));
        }
        let target = env.fs.absolute(target).map_err(|e| Error::io("find", target, e))?;
        if env.fs.exists(&target).map_err(|e| Error::io("look for", &target, e))? {
            let text = format!("{} is there already: name a directory that is to be made", target.display());
            return Err(Error::Invalid(text));
        }
        let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Error::Invalid(format!(
                "{} cannot be made: name a directory in it",
                target.display()
            )));
        };
        let mut workplace_name = name.to_owned();
        workplace_name.push(SUFFIX);
        let outer = above.join(workplace_name);
        let lock = make_and_lock(env, &outer)?;
        clear_others(env, above, &outer);
        let inside = outer.join(INSIDE);
        empty(env, &inside)?;
        let made = match modes {
            Some(modes) => env.fs.create_dir_all_as(&inside, modes.dir),
            None => env.fs.create_dir_all(&inside),
        };
        made.map_err(|e| Error::io("create", &inside, e))?;
        let files = modes.map(|modes| modes.files);
        let held = env.hold(&inside, files).map_err(|e| Error::io("open", &inside, e))?;
        Ok(Workplace { env: env.clone(), held, target, outer, inside, lock: Some(lock) })
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
        let io = |e| Error::io("rename", &self.inside, e);
        self.env.fs.rename_dir(&self.inside, &self.target).map_err(io)?;
        let above = self.env.fs.dir_above(&self.target);
        if let Some(above) = above.filter(|_| !canary::is_set(Canary::CopyNameNotSynced)) {
            let synced = self.env.fs.sync_dir_if_readable(&above);
            synced.map_err(|e| Error::io("sync directory", &above, e))?;
        }
        Ok(())
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // What cannot be removed is for the next one (workplace.2).
        let _ = remove(&self.env, &self.outer, self.lock.take());
    }
}

/// Makes the outer directory and locks it. Others may take it for garbage until it is locked.
fn make_and_lock(env: &Env, outer: &Path) -> Result<Arc<dyn FileLock>> {
    let mut rounds = 0;
    loop {
        env.fs.create_dir_all(outer).map_err(|e| Error::io("create", outer, e))?;
        match lock(env, outer) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound && rounds < LOCK_ROUNDS => {
                rounds += 1;
            }
            locked => return locked,
        }
    }
}

fn lock(env: &Env, outer: &Path) -> Result<Arc<dyn FileLock>> {
    let path = outer.join(LOCK);
    let lock = env.fs.lock(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))?;
    Ok(lock.into())
}

/// Removes a directory and the files in it; none is none.
fn empty(env: &Env, dir: &Path) -> Result<()> {
    if !env.fs.exists(dir).map_err(|e| Error::io("look for", dir, e))? {
        return Ok(());
    }
    for name in env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))? {
        let path = dir.join(name);
        env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
    }
    env.fs.remove_dir(dir).map_err(|e| Error::io("remove", dir, e))
}

/// Removes a workplace, which the caller has locked.
fn remove(env: &Env, outer: &Path, lock: Option<Arc<dyn FileLock>>) -> Result<()> {
    empty(env, &outer.join(INSIDE))?;
    // While it is locked, so that nobody locks a file that has no name any more.
    let path = outer.join(LOCK);
    env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
    drop(lock);
    env.fs.remove_dir(outer).map_err(|e| Error::io("remove", outer, e))
}

/// Removes the workplaces that were left in a directory, all that it can (workplace.2).
fn clear_others(env: &Env, above: &Path, own: &Path) {
    let mut names = env.fs.list_dir(above).unwrap_or_default();
    // In one order, so that a simulation repeats itself.
    names.sort_unstable();
    for outer in names.iter().filter(|name| name.ends_with(SUFFIX)).map(|name| above.join(name)) {
        let is_there = |name| env.fs.exists(&outer.join(name)).unwrap_or(false);
        if outer == own {
            continue;
        }
        if !is_there(LOCK) && !is_there(INSIDE) {
            // What a crash has left of one, if it is empty.
            let _ = env.fs.remove_dir(&outer);
        } else if let Ok(lock) = lock(env, &outer) {
            let _ = remove(env, &outer, Some(lock));
        }
    }
}
