//! Removes a database: its files, and nothing else.
//!
//! ```text
//!   LOCK taken --> CURRENT removed --> the other files of it --> LOCK --> the directory, if it is empty
//! ```
//!
//! rescue_destroy.1. Only files with names of the engine are removed, while the database is locked. With any
//!     other file the directory stays.
//! - `CURRENT` goes first: what a removal leaves that fails or is killed is no database, and can be removed
//!   by another one.

use std::path::Path;

use esker_env::Env;

use crate::engine::life::copies::names::is_of_database;
use crate::manifest::file_name::{CURRENT, LOCK, REPAIRING};
use crate::types::{Error, Result};

/// Removes the database in a directory, which may be damaged, and the directory if nothing else is in it.
/// Files that no database has stay.
///
/// # Errors
/// [`Error::Locked`] if the database is open; [`Error::NotFound`] if there is no file of a database; those of
/// the file system.
pub fn destroy(dir: impl AsRef<Path>) -> Result<()> {
    destroy_in(&Env::real(), dir.as_ref())
}

fn destroy_in(env: &Env, dir: &Path) -> Result<()> {
    let look = |e| Error::io("look into", dir, e);
    if !env.fs.exists(dir).map_err(look)? {
        return Err(Error::NotFound(dir.to_path_buf()));
    }
    let mut names = env.fs.list_dir(dir).map_err(look)?;
    names.retain(|name| is_of_database(name) || name == REPAIRING);
    if names.is_empty() {
        return Err(Error::NotFound(dir.to_path_buf()));
    }
    names.sort_by_key(|name| (name != CURRENT, name == REPAIRING));
    let path = dir.join(LOCK);
    let lock = env.fs.lock(&path).map_err(|e| Error::lock(path.clone(), e, env.threads.process_id()))?;
    for name in names.iter().map(|name| dir.join(name)) {
        env.fs.remove_file(&name).map_err(|e| Error::io("remove", name, e))?;
    }
    env.fs.remove_file(&path).map_err(|e| Error::io("remove", path, e))?;
    drop(lock);
    // It has files of others, or is a link.
    let _ = env.fs.remove_dir(dir);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{Env, Fs, MemFs, OpenOptions};

    use super::*;
    use crate::Db;

    #[test]
    fn rescue_destroy_1_files_of_others_stay() {
        let fs = MemFs::new();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let builder = || Db::builder().background(false).env(env.clone());
        let db = builder().open("db").unwrap();
        db.default_keyspace().put("a", "1").unwrap();
        db.flush().unwrap();
        assert!(matches!(destroy_in(&env, Path::new("db")), Err(Error::Locked { .. })));
        db.close().unwrap();
        for name in ["notes.txt", "7.sst"] {
            fs.open(&Path::new("db").join(name), OpenOptions::create()).unwrap();
        }
        destroy_in(&env, Path::new("db")).unwrap();
        let mut left = fs.list_dir(Path::new("db")).unwrap();
        left.sort();
        assert_eq!(left, ["7.sst", "notes.txt"], "rescue_destroy.1");
        assert!(matches!(destroy_in(&env, Path::new("db")), Err(Error::NotFound(_))));
        assert!(matches!(destroy_in(&env, Path::new("missing")), Err(Error::NotFound(_))));

        builder().open("whole").unwrap().close().unwrap();
        destroy_in(&env, Path::new("whole")).unwrap();
        assert!(!fs.exists(Path::new("whole")).unwrap());
    }
}
