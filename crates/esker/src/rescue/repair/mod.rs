//! Repair: salvages what can be read of a damaged database into a new one.
//!
//! ```text
//!   source (read only)                                              target (new)
//!   CURRENT, MANIFEST-* --sources--> tables, first log segment
//!   tables --tables: newest version of each key, tombstones applied--> puts --.
//!   log    --log: whole commits, in order----------------------------> ops ---+--> target --> checked
//!   catalog ---------------------------------------------> names completed ---'
//! ```
//!
//! Of each key the newest readable version by sequence number is taken, unless a readable tombstone covers
//! it. Commits of the log follow in order, whole ones only. The report lists everything of the source that is
//! missing from the target although it may have counted: file, offset, and keys where known. What the report
//! does not list is in the target. Memory does not grow with the database: it holds a block for each table
//! that overlaps at one key, one log segment, and one commit.
//!
//! rescue_repair.1. The source is opened for reading only: none of its bytes, names or times changes.
//! rescue_repair.4. The target is a sound database: it is opened again and checked before the repair returns.
//!     After a failure no file of it remains. If its files cannot be removed, or the process is killed,
//!     opening refuses the directory (target_dir.4). The target lies outside the source (target_dir.1), and
//!     is locked all the time (target_dir.3).
//! - The caller gets the report before the last step, which may fail without being undone (target_dir.4). So
//!   the report of a database that may stay is never lost.

mod blobs;
mod log;
mod report;
mod sources;
mod tables;
mod target;
mod target_dir;

use std::path::Path;

pub use self::report::{Loss, LostKeys, RepairReport, RepairedKeyspace};

use self::target::Target;
use self::target_dir::TargetDir;
use crate::encryption::{self, Unlock};
use crate::engine::base::options::Settings;
use crate::engine::disk::unfinished;
use crate::engine::life::open::reading::lock_to_read;
use crate::types::Result;

/// Repairs with these settings for the new database. `others` stands for other processes in tests.
pub(crate) fn repair(
    settings: &Settings,
    source: &Path,
    target: &Path,
    on_report: impl FnOnce(&RepairReport),
    mut others: impl FnMut(Moment),
) -> Result<RepairReport> {
    let (env, _lock) = lock_to_read(&settings.env, source)?;
    unfinished::refuse(&env, source)?;
    let env = encryption::unlock(&env, source, Unlock::Read)?;
    let mut report = RepairReport::default();
    let sources = sources::find(&env, source, &mut report)?;
    TargetDir::check(&settings.env, source, target)?;
    let survey = tables::survey(&env, &sources, &mut report)?;
    // Reading took time: another process may have created files meanwhile, and keeps them (target_dir.3).
    TargetDir::check(&settings.env, source, target)?;
    others(Moment::Checked);
    let modes =
        settings.opening.modes.map_or_else(|| target_dir::modes_of(&env, source), |modes| Ok(Some(modes)))?;
    let dir = TargetDir::claim((&settings.env, &env), target, modes)?;
    let fill = || {
        let mut out = Target::create(settings, &dir)?;
        out.blobs = sources.blobs.clone();
        tables::salvage(&env, survey, sources.complete, &mut out, &mut report)?;
        log::salvage(&env, source, &sources, &mut out, &mut report)?;
        let closed = out.finish(&mut report)?;
        others(Moment::Closed);
        closed.check(&mut report)?;
        on_report(&report);
        dir.finish()
    };
    fill().inspect_err(|_| dir.clear())?;
    Ok(report)
}

/// Moments at which other processes may interfere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The target was accepted and is not locked yet.
    Checked,
    /// The target was filled and closed, and will be checked.
    Closed,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

    use super::*;
    use crate::{Db, Error};

    #[test]
    fn target_dir_3_a_database_that_another_process_makes_in_the_target_meanwhile_is_left_alone() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let builder = || Db::builder().background(false).env(env.clone());
        builder().open("db").unwrap().default_keyspace().put("a", "1").unwrap();
        for (target, closes) in [("open", false), ("closed", true)] {
            let mut db = None;
            let refused = repair(
                &builder().settings,
                Path::new("db"),
                Path::new(target),
                |_| {},
                |moment| {
                    if moment != Moment::Checked {
                        return;
                    }
                    let made = builder().open(target).unwrap();
                    made.default_keyspace().put("acknowledged", "1").unwrap();
                    db = (!closes).then_some(made);
                },
            );
            assert!(matches!(refused, Err(Error::Locked { .. } | Error::Invalid(_))), "{refused:?}");
            drop(db);
            let db = builder().create_if_missing(false).open(target).unwrap();
            assert!(db.default_keyspace().contains("acknowledged").unwrap(), "target_dir.3");
        }
    }

    #[test]
    fn target_dir_3_no_process_gets_between_closing_the_target_and_the_last_look() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let builder = || Db::builder().background(false).env(env.clone());
        builder().open("db").unwrap().default_keyspace().put("a", "1").unwrap();
        let mut tried = Vec::new();
        let repaired = repair(
            &builder().settings,
            Path::new("db"),
            Path::new("new"),
            |_| {},
            |moment| {
                if moment == Moment::Closed {
                    tried.push(builder().open("new").map(drop));
                    tried.push(builder().repair("db", "new").map(drop));
                    tried.push(builder().repair("new", "newer").map(drop));
                    tried.push(builder().check_offline("new").map(drop));
                }
            },
        );
        assert_eq!(repaired.unwrap().live_keys(), 1, "the report is not lost");
        assert_eq!(tried.len(), 4);
        assert!(
            tried.iter().all(|tried| matches!(tried, Err(Error::Locked { .. }))),
            "target_dir.3: {tried:?}"
        );
        builder().open("new").unwrap();
    }

    #[test]
    fn target_dir_3_a_repair_that_fails_leaves_what_is_not_its_own() {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let env = Env::simulated(Arc::new(faults.clone()), 1);
        let builder = || Db::builder().background(false).env(env.clone());
        builder().open("db").unwrap().default_keyspace().put("a", "1").unwrap();
        let foreign = ["backup.tar", "7.sst", "notes.tmp", "wal-spare-x.tmp"];
        let failed = repair(
            &builder().settings,
            Path::new("db"),
            Path::new("new"),
            |_| {},
            |moment| {
                if moment == Moment::Closed {
                    for name in foreign {
                        fs.open(&Path::new("new").join(name), OpenOptions::create()).unwrap();
                    }
                    let no_space = FaultRule::new(&[OpKind::Open], FaultAction::NoSpace);
                    faults.add(no_space.on_path("new/").forever());
                }
            },
        );
        assert!(matches!(failed, Err(Error::NoSpace { .. })), "{failed:?}");
        let mut left = fs.list_dir(Path::new("new")).unwrap();
        left.sort();
        assert_eq!(
            left,
            ["7.sst", "backup.tar", "notes.tmp", "wal-spare-x.tmp"],
            "target_dir.3, rescue_repair.4"
        );
    }
}
