//! Which file names belong to a database, and where no copy may be made.

use std::path::Path;

use esker_env::{Entry, Env};

use crate::encryption::KEYS;
use crate::manifest::file_name::{CURRENT, FileKind, OPTIONS, parse};
use crate::manifest::log::read_current;
use crate::types::{Error, Result};
use crate::wal;

/// Returns whether a database has files of this name, apart from its lock.
pub fn is_of_database(name: &str) -> bool {
    let of_log = wal::file_name::parse_segment(name).or(wal::file_name::parse_prepared(name)).is_some();
    let is_fixed = name == CURRENT || name == OPTIONS || name == KEYS;
    is_fixed || of_log || wal::file_name::is_spare(name) || parse(name) != FileKind::Other
}

/// Refuses a path in, or equal to, the directory of a database. Changes nothing.
pub fn refuse_in_database(env: &Env, path: &Path) -> Result<()> {
    for dir in path.ancestors() {
        // A directory that cannot be read is not that of a database that this process could harm.
        let has_current = matches!(env.fs.entry(&dir.join(CURRENT)), Ok(Some(Entry::File { .. })));
        if has_current && matches!(read_current(env, dir), Ok(Some(_))) {
            return Err(Error::Invalid(format!(
                "{} lies in the directory of a database, {}: name a place outside of it",
                path.display(),
                dir.display()
            )));
        }
    }
    Ok(())
}
