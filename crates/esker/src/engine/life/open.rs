//! Opening: from a directory to a running database.
//!
//! ```text
//!   LOCK --> CURRENT, MANIFEST --> tables --> log replayed into memtables --> catalog   (read only)
//!        --> manifest continued or written --> torn tail of the log cut --> leftovers removed --> threads
//! ```
//!
//! open.1. Nothing on disk changes before the manifest, the log and the catalog have been read without an
//!     error. Exceptions: the end of the log is written again, unchanged, to make it durable (recovery.4 of
//!     wal/recovery.rs), and the keys of a new directory, or with a new master key, are written. Tables must
//!     exist. They are read when they are needed, and then compared with the manifest (table.6).
//! open.2. Replay puts each commit after `flushed_seq` into memtables as it was: same sequence number, all or
//!     nothing.
//! open.3. Only files that the engine names, and that the manifest does not need, are removed. Not removed
//!     are tables with commits that neither manifest nor log know, or of a newer format (unnamed.1 of
//!     unnamed.rs).
//! - Each message about damage says what to do.
//! - A directory that a repair has not finished filling is refused (unfinished.1 of unfinished.rs).
//!
//! open.6. A leftover that cannot be removed does not keep the database from opening, nor other leftovers
//!     from being removed. It is harmless: numbers of tables and manifests are not reused (`first_number`),
//!     and a replacement overwrites what has its temporary name. Log files are the exception (recovery.8 of
//!     wal/recovery.rs).
//! open.7. The name of a new database's directory is durable before anything in it is.
//! - The directory stays the same if the process changes its working directory, or a link in its path
//!   changes: the path is made absolute first. The directory is opened once (fs.5 of esker-env's fs.rs). If
//!   it is moved or replaced, the database continues in the one that it opened. No file in it is reached
//!   through a link.
//! - After a clean close an opening writes and syncs nothing: the manifest is settled.
//!   Exceptions are unresolved counts in the manifest, a keyspace with history by age, and encryption.

mod assemble;
pub(crate) mod live;
mod log;
mod manifest;
pub(in crate::engine::life) mod progress;
mod read;
pub(crate) mod reading;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_env::{Env, FileLock};

pub(crate) use self::manifest::draw_database_id;
pub(crate) use self::read::{first_number, is_data};
pub(in crate::engine) use self::read::{list, open_tables, settle_counts};
use super::handle::Handle;
use crate::encryption::{self, Unlock};
use crate::engine::base::events::Events;
use crate::engine::base::options::{Modes, Options};
use crate::engine::disk::dir_lock::DirLock;
use crate::engine::disk::unfinished;
use crate::manifest::file_name::{CURRENT, LOCK, REPAIRING};
use crate::types::{Error, Result};

/// How often a waiting opening tries the lock.
const LOCK_RETRY: Duration = Duration::from_millis(10);

/// Opens or creates the database in `dir`.
pub(crate) fn open(options: Options, dir: &Path) -> Result<Arc<Handle>> {
    let dir = absolute(&options, dir)?;
    let (env, lock) = wait_for_lock(&options, || lock_dir(&options, &dir))?;
    unfinished::refuse(&env, &dir)?;
    let env = unlock(&env, &dir)?;
    open_locked(options, env, &dir, lock)
}

/// Returns a path that stays valid (open.7).
fn absolute(options: &Options, dir: &Path) -> Result<PathBuf> {
    if dir.as_os_str().is_empty() {
        let text = "the path of the database is empty: name a directory; `.` is the working directory";
        return Err(Error::Invalid(text.to_owned()));
    }
    options.env().fs.absolute(dir).map_err(|e| cannot_open(options.env(), dir, e))
}

/// Opens the keys of the directory. A new database gets new ones.
fn unlock(env: &Env, dir: &Path) -> Result<Env> {
    let has_current = env.fs.exists(&dir.join(CURRENT)).map_err(|e| cannot_open(env, dir, e))?;
    let is_new = !has_current && !list(env, dir)?.iter().any(|name| is_data(name));
    encryption::unlock(env, dir, if is_new { Unlock::Create } else { Unlock::Change })
}

/// Repeats an attempt to lock the directory for as long as the options allow.
fn wait_for_lock<T>(options: &Options, lock: impl Fn() -> Result<T>) -> Result<T> {
    let clock = &options.env().clock;
    let start = clock.monotonic();
    loop {
        let left = options.lock_timeout().saturating_sub(clock.monotonic().saturating_sub(start));
        match lock() {
            Err(Error::Locked { .. }) if !left.is_zero() => clock.sleep(left.min(LOCK_RETRY)),
            locked => return locked,
        }
    }
}

/// Opens a directory that the caller has locked, even one that a repair is filling.
pub(crate) fn open_locked(
    options: Options,
    env: Env,
    dir: &Path,
    lock: Arc<dyn FileLock>,
) -> Result<Arc<Handle>> {
    let lock = DirLock::new(lock, &env);
    let begun = env.clock.monotonic();
    let opened = Events::start(&options, &env, dir).and_then(|events| {
        let opening = Opening { options, env, dir: dir.to_path_buf(), lock: lock.clone(), events, begun };
        opening.run_with_events()
    });
    // If opening fails, readers of its tables may keep the lock for a while.
    opened.inspect_err(|_| lock.give_back()).map_err(Error::with_remedy)
}

/// An opening in progress: what all of its steps need.
struct Opening {
    options: Options,
    env: Env,
    dir: PathBuf,
    lock: Arc<DirLock>,
    events: Events,
    begun: Duration,
}

impl Opening {
    /// Runs the steps and reports the outcome.
    fn run_with_events(self) -> Result<Arc<Handle>> {
        let (events, begun) = (self.events.clone(), self.begun);
        let opened = self.run();
        match &opened {
            Ok(handle) => events.report(|| handle.core.opened_since(begun)),
            Err(_) => events.end(),
        }
        opened
    }

    /// Runs the steps. Each takes what the earlier ones found.
    fn run(self) -> Result<Arc<Handle>> {
        let mut found = self.read()?;
        let readers = self.readers(&found)?;
        // From here on the directory is changed (open.1).
        let mut named = self.put_in_force(&mut found, &readers.catalog)?;
        let log = self.resume_log(&mut found, &readers.view, &mut named)?;
        self.remove_leftovers(&found, &named.tables);
        self.options.save(&self.env, &self.dir)?;
        self.assemble(found, readers, named, log)
    }
}

fn lock_dir(options: &Options, dir: &Path) -> Result<(Env, Arc<dyn FileLock>)> {
    let env = options.env();
    if !options.create_if_missing() {
        refuse_missing(env, dir)?;
    }
    create_and_lock(env, dir, options.modes())
}

/// Fails if there is no database.
fn refuse_missing(env: &Env, dir: &Path) -> Result<()> {
    let exists = |path: &Path| env.fs.exists(path).map_err(|e| cannot_open(env, dir, e));
    if exists(&dir.join(CURRENT))? {
        return Ok(());
    }
    // A directory with data has lost its CURRENT; `read_manifest` reports that.
    let has_data = exists(dir)? && list(env, dir)?.iter().any(|name| is_data(name) || name == REPAIRING);
    if has_data { Ok(()) } else { Err(Error::NotFound(dir.to_path_buf())) }
}

/// Creates the directory if it is missing, opens it, and locks it.
pub(crate) fn create_and_lock(
    env: &Env,
    dir: &Path,
    modes: Option<Modes>,
) -> Result<(Env, Arc<dyn FileLock>)> {
    let io = |e| cannot_open(env, dir, e);
    let is_named = create(env, dir, modes.map(|modes| modes.dir)).map_err(io)?;
    let env = env.hold(dir, modes.map(|modes| modes.files)).map_err(io)?;
    let path = dir.join(LOCK);
    let lock = env.fs.lock(&path).map_err(|e| Error::lock(path, e, env.threads.process_id()))?;
    if !is_named && !env.fs.exists(&dir.join(CURRENT)).map_err(|e| cannot_open(&env, dir, e))? {
        sync_parent(&env, dir)?;
    }
    Ok((env, lock.into()))
}

/// Creates the directory if it is missing. Returns whether its name is certainly durable: if this call
/// created it.
fn create(env: &Env, dir: &Path, mode: Option<u32>) -> io::Result<bool> {
    if !env.fs.exists(dir)? {
        match env.fs.create_dir(dir, mode) {
            Ok(()) => return Ok(true),
            // A parent is missing, or another process was first.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            Err(e) => return Err(e),
        }
    }
    let created = match mode {
        Some(mode) => env.fs.create_dir_all_as(dir, mode),
        None => env.fs.create_dir_all(dir),
    };
    created.map(|()| false)
}

/// Makes the name of a new database's directory durable, which another program may have just made (open.7).
fn sync_parent(env: &Env, dir: &Path) -> Result<()> {
    let Some(above) = env.fs.dir_above(dir) else { return Ok(()) };
    env.fs.sync_dir_if_readable(&above).map_err(|e| Error::io("sync directory", &above, e))
}

/// Explains why a path cannot be opened as a directory.
fn cannot_open(env: &Env, dir: &Path, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory};
    if !matches!(error.kind(), AlreadyExists | NotADirectory) {
        return Error::io("open", dir, error);
    }
    // Windows says of a path in a file only that it does not exist.
    let above = || dir.ancestors().skip(1).find(|above| matches!(env.fs.exists(above), Ok(true)));
    let lies_in_file = || above().is_some_and(|above| env.fs.list_dir(above).is_err());
    let is = match env.fs.exists(dir) {
        Ok(true) => "is a file, not a directory: a database is a directory",
        Ok(false) if lies_in_file() => "lies in a file, not in a directory",
        Ok(false) => "is a link that leads nowhere, or lies behind one",
        Err(_) => "lies in a file, not in a directory",
    };
    Error::Invalid(format!("{} {is}", dir.display()))
}

#[cfg(test)]
mod tests;
