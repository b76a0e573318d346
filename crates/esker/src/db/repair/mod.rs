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
//!      no file is left of it. It lies outside of the source (TD1).
//! RP5. Memory does not grow with the database: a block for each table that overlaps at one key, one log segment, one
//!      commit.

mod log;
mod report;
mod sources;
mod tables;
mod target;
mod target_dir;

use std::path::Path;

use esker_env::{Env, FileLock, LockError};

pub use self::report::{Loss, LostKeys, RepairReport, RepairedKeyspace};

use self::sources::Sources;
use self::tables::Survey;
use self::target::Target;
use self::target_dir::TargetDir;
use super::options::Builder;
use crate::manifest::file_name::LOCK;
use crate::types::{Error, Result};

/// Salvages what can be read of the damaged database in `source` into a new one in `target`, which must be missing or
/// empty, and not lie in the source. The source is not changed in any way. The report tells exactly what was lost. If
/// this fails, no file is left in the target; a directory that was made for it may be.
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
/// [`Error::Invalid`] if the target is not empty or lies in the source, [`Error::UnsupportedVersion`] if the source was
/// written by a newer version, and errors of writing the target.
pub fn repair(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
    Builder::default().repair(source, target)
}

impl Builder {
    /// Like [`repair`](crate::repair), with these options for the new database.
    ///
    /// # Errors
    /// See [`repair`](crate::repair).
    pub fn repair(self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<RepairReport> {
        self.repair_beside(source.as_ref(), target.as_ref(), || {})
    }

    /// Repairs; `others` do what they do at the worst moment.
    fn repair_beside(self, source: &Path, target: &Path, others: impl FnOnce()) -> Result<RepairReport> {
        let env = self.environment().clone();
        let _lock = lock_to_read(&env, source)?;
        let mut report = RepairReport::default();
        let sources = sources::find(&env, source, &mut report)?;
        TargetDir::choose(&env, source, target)?;
        let survey = tables::survey(&env, &sources, &mut report)?;
        // That took its time: who has made something there meanwhile keeps it (TD3).
        let dir = TargetDir::choose(&env, source, target)?;
        others();
        let out = Target::create(&self, target).inspect_err(|error| {
            if matches!(error, Error::Io { .. } | Error::NoSpace { .. }) {
                dir.clear(&env);
            }
        })?;
        fill(&env, source, &sources, survey, out, &mut report).inspect_err(|error| {
            // Between closing and the last look somebody may have opened it.
            if !matches!(error, Error::Locked { .. }) {
                dir.clear(&env);
            }
        })?;
        Ok(report)
    }
}

fn fill(
    env: &Env,
    source: &Path,
    sources: &Sources,
    survey: Survey<'_>,
    mut out: Target,
    report: &mut RepairReport,
) -> Result<()> {
    tables::salvage(env, survey, &mut out, report)?;
    log::salvage(env, source, sources, &mut out, report)?;
    out.finish(report)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::MemFs;

    use super::*;
    use crate::Db;

    #[test]
    fn td3_a_database_that_somebody_makes_in_the_target_meanwhile_is_left_alone() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let builder = || Db::builder().background(false).env(env.clone());
        builder().open("db").unwrap().default_keyspace().put("a", "1").unwrap();
        for (target, closes) in [("open", false), ("closed", true)] {
            let mut db = None;
            let refused = builder().repair_beside(Path::new("db"), Path::new(target), || {
                let made = builder().open(target).unwrap();
                made.default_keyspace().put("acknowledged", "1").unwrap();
                db = (!closes).then_some(made);
            });
            assert!(matches!(refused, Err(Error::Locked { .. } | Error::Invalid(_))), "{refused:?}");
            drop(db);
            let db = builder().create_if_missing(false).open(target).unwrap();
            assert!(db.default_keyspace().contains("acknowledged").unwrap(), "TD3");
        }
    }
}
