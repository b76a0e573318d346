//! Unloads the database to a file, and loads it.
//!
//! ```text
//!   Unload --> Db --one file--> image of the disk --load, interrupted--> another database --compare
//! ```
//!
//! A file under its final name is complete, and contains the newest commit at the start of the call. This
//! also holds for interrupted calls, whether resumed or restarted. A load restores entries, expiry times,
//! keyspaces and options, however often it was interrupted and whatever options the empty target keyspaces
//! had.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::unload::{Load, Unload};
use esker::{Db, Error};
use esker_env::{Env, FaultAction, FaultFs, Fs, MemFs};

use super::World;
use super::copy::{Options, options_of};
use super::faults::{attempt, death};
use super::restart::lose;
use crate::judge::read;
use crate::model::state::State;
use crate::op::Loading;

/// The unloaded file.
const FILE: &str = "unloaded";
/// The incomplete file.
const PARTIAL: &str = "unloaded.partial";
/// The keyspace in which an unfinished load stores its position.
const LOADING: &str = "esker.load";
/// Directory of the loaded database.
const LOADED: &str = "loaded";

impl World {
    /// Unloads, loads and compares.
    pub(super) fn unload(&mut self, how: &Loading) {
        // An earlier process may have ended after writing the file.
        remove_file(&self.machine.disk, FILE);
        let (state, options) = (self.history.newest_whole().clone(), attempt(|| options_of(self.db())).ok());
        let written = attempt(|| Unload::new().env(self.env()).write(self.db(), FILE));
        let mut fired = self.machine.faults.fired_after(self.process.fired_before).into_iter();
        let is_wrong = fired.any(|call| matches!(call.action, FaultAction::CorruptRead { .. }));
        if let Err(Error::Invalid(_)) = &written
            && self.copies.has_lost_power
        {
            // After a power loss, an unsynced file may contain anything, so its owner removes it.
            remove_file(&self.machine.disk, PARTIAL);
            return;
        }
        let written = self.excused_tidying(written);
        if is_wrong {
            remove_file(&self.machine.disk, FILE);
            remove_file(&self.machine.disk, PARTIAL);
        } else if let (Some(done), Some(options)) = (written, options) {
            self.tally.unloaded += 1;
            self.tally.resumed += u64::from(done.resumed_entries > 0);
            if let Some(disk) = self.write_again(how) {
                self.load(disk, how, &state, &options);
            }
            remove_file(&self.machine.disk, FILE);
        }
    }

    /// Writes the file again on an image of the disk, in interrupted calls. Returns `None` if the database
    /// cannot be read.
    fn write_again(&mut self, how: &Loading) -> Option<MemFs> {
        let mut disk = self.machine.disk.kill();
        disk.set_capacity(None);
        if how.cuts.is_empty() {
            return Some(disk);
        }
        remove_file(&disk, FILE);
        for cut in how.cuts.iter().map(Some).chain(std::iter::repeat(None)) {
            let (faults, env) = self.door_to(&disk);
            if let Some((after, keep)) = cut {
                faults.add(death(*after, *keep));
            }
            let written = attempt(|| Unload::new().env(env).write(self.db(), FILE));
            if faults.is_frozen() {
                disk = how.loss.map_or_else(|| disk.kill(), |loss| lose(&disk, loss));
                continue;
            }
            let is_there = || disk.exists(FILE.as_ref()).expect("a file system in memory does not fail");
            match written {
                Ok(done) => {
                    self.tally.resumed += u64::from(done.resumed_entries > 0);
                    break;
                }
                // A process ended after completing the file.
                Err(Error::AlreadyExists(_)) if is_there() => break,
                // The incomplete file may contain anything after a power loss.
                Err(Error::Invalid(_)) if how.loss.is_some() => remove_file(&disk, PARTIAL),
                Err(error) => {
                    self.read::<()>(Err(error));
                    return None;
                }
            }
        }
        Some(disk)
    }

    /// Returns a file system on a disk for a process that may end, and its environment.
    fn door_to(&self, disk: &MemFs) -> (FaultFs, Env) {
        let faults = FaultFs::new(Arc::new(disk.clone()));
        let fs = Arc::new(faults.clone());
        (faults, Env { clock: self.machine.clock.clone(), ..Env::simulated(fs, self.seed) })
    }

    /// Loads the file and compares.
    fn load(&mut self, mut disk: MemFs, how: &Loading, state: &State, options: &Options) {
        let mut cuts = how.cuts.iter();
        let (mut is_new, mut is_cut) = (true, false);
        let db = loop {
            let (faults, env) = self.door_to(&disk);
            let opened = self.builder(self.opening_of_copies()).env(env.clone()).open(LOADED);
            let db = opened.unwrap_or_else(|error| panic!("no database: {error}"));
            if let (true, Some(ms)) = (std::mem::take(&mut is_new), how.lifetime_ms) {
                let ttl = Duration::from_millis(u64::from(ms));
                let prepared = prepare(&db, options.keys(), ttl);
                prepared.unwrap_or_else(|error| panic!("empty keyspaces: {error}"));
            }
            if let Some((after, keep)) = cuts.next() {
                faults.add(death(*after, *keep));
            }
            let loaded = Load::new().env(env).read(&db, FILE);
            if faults.is_frozen() {
                drop(db);
                disk = how.loss.map_or_else(|| disk.kill(), |loss| lose(&disk, loss));
                self.tally.cut += 1;
                is_cut = true;
                continue;
            }
            faults.clear();
            match loaded {
                // A process ended after the last commit of its load, before the call returned.
                Err(Error::KeyspaceExists(_)) if is_cut && db.open_keyspace(LOADING).is_err() => {}
                loaded => {
                    loaded.unwrap_or_else(|error| panic!("{FILE} cannot be loaded: {error}"));
                }
            }
            break db;
        };
        self.check_loaded(&db, state, options);
    }

    fn check_loaded(&self, db: &Db, state: &State, options: &Options) {
        let now_ms = db.time_ms();
        let found = read::contents_with(db, false, !self.expires, Some(now_ms));
        let found = found.unwrap_or_else(|error| panic!("it cannot be read: {error}"));
        if let Some(difference) = self.difference(&[state], &found, now_ms) {
            panic!("what is loaded is another: {difference}");
        }
        let found = options_of(db).unwrap_or_else(|error| panic!("options: {error}"));
        assert_eq!(found, *options, "options");
        let report = db.check().unwrap_or_else(|error| panic!("check: {error}"));
        assert!(report.problems.is_empty(), "check: {:#?}", report.problems);
    }
}

/// Creates empty keyspaces with a default lifetime.
fn prepare<'a>(db: &Db, names: impl Iterator<Item = &'a String>, ttl: Duration) -> esker::Result<()> {
    for name in names {
        db.keyspace(name)?.set_default_ttl(Some(ttl))?;
    }
    Ok(())
}

/// Removes a file durably, if it exists.
fn remove_file(disk: &MemFs, name: &str) {
    if disk.exists(name.as_ref()).expect("a file system in memory does not fail") {
        disk.remove_file(name.as_ref()).expect("a file system in memory does not fail");
        disk.sync_dir(Path::new("")).expect("a file system in memory does not fail");
    }
}
