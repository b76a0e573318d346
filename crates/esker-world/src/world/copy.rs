//! Checkpoints and backups: copies of the database, on the same disk.
//!
//! ```text
//!   Checkpoint --> Db --links, copies--> another directory --opened on an image of the disk--> what the model had at the number
//!                                          |                                     of the copy's last commit (world.10)
//!                                          `-- looked at again after each opening of the database
//!   Backup ------> Db --copies--> a directory of backups --restored on an image of the disk, opened--> the same
//! ```
//!
//! Other work may come between the steps of a copy (between.rs): the copy's number says how much of it the copy holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker::backup::Backup;
use esker::{Db, KeyspaceOptions, Result};
use esker_env::{Env, FaultAction, Fs, MemFs};

use super::World;
use super::trouble::attempt;
use crate::judge::read;
use crate::model::state::State;

/// Where a checkpoint goes.
const COPY: &str = "copy";
/// Where backups go.
const BACKUPS: &str = "backups";
/// Where the last one is restored.
const RESTORED: &str = "restored";

/// What a copy may hold.
#[derive(Clone)]
struct Moments {
    /// States, with what has expired, and the numbers of their commits, the oldest first.
    states: Vec<(u64, State)>,
    /// Options of keyspaces, if nothing has changed them meanwhile.
    options: Option<BTreeMap<String, KeyspaceOptions>>,
}

impl Moments {
    /// The state at a commit.
    fn at(&self, seqno: u64) -> &State {
        let behind = self.states.partition_point(|(number, _)| *number <= seqno);
        assert!(behind > 0, "world.10: the copy ends with {seqno}, before the call began");
        &self.states[behind - 1].1
    }
}

/// The last checkpoint.
#[derive(Clone)]
pub(super) struct Copied {
    moments: Moments,
    /// Its last commit. None: the call has not succeeded, and the copy is there, or not.
    made: Option<u64>,
}

impl World {
    /// Makes a checkpoint in the place of the last one.
    pub(super) fn checkpoint(&mut self) {
        remove(&self.disk, COPY.as_ref());
        let (mut moments, before) = (self.moments(), self.history.len());
        self.copied = Some(Copied { moments: moments.clone(), made: None });
        let made = self.capturing(&mut moments, |world| world.db().checkpoint(COPY));
        let Some(made) = made else {
            // What was read wrong was copied wrong.
            remove(&self.disk, COPY.as_ref());
            self.copied = None;
            return;
        };
        let made = self.excused_tidying(made).map(|made| made.seqno.get());
        self.copied = Some(Copied { moments, made });
        if made.is_some() {
            self.history.durable_up_to(before);
            self.tally.copied += 1;
            self.check_copy();
        }
    }

    /// Makes a backup, beside the earlier ones.
    pub(super) fn back_up(&mut self) {
        let (mut moments, before) = (self.moments(), self.history.len());
        let made =
            self.capturing(&mut moments, |world| Backup::open_in(world.env(), BACKUPS)?.create(world.db()));
        let made = made.and_then(|made| self.excused_tidying(made));
        if self.in_trouble() || made.is_none() {
            // What a call that failed has left may be wrong, and later backups would take it over.
            remove(&self.disk, BACKUPS.as_ref());
            return;
        }
        let Some(made) = made else { return };
        self.history.durable_up_to(before);
        self.tally.backed_up += 1;
        let image = self.disk.kill();
        image.set_capacity(None);
        let env = Env { clock: self.clock.clone(), ..Env::simulated(Arc::new(image), self.seed) };
        let restored =
            Backup::open_in(env.clone(), BACKUPS).and_then(|mut backups| backups.restore(made.id, RESTORED));
        restored.unwrap_or_else(|error| panic!("world.10: the backup cannot be restored: {error}"));
        self.check_copied(env, RESTORED, &moments, Some(made.seqno.get()));
    }

    /// Calls what makes a copy. `moments` gets the states that it may hold. None if nothing is known of them.
    fn capturing<T>(
        &mut self,
        moments: &mut Moments,
        call: impl FnOnce(&Self) -> Result<T>,
    ) -> Option<Result<T>> {
        let stopped = (self.poisoned, self.panicked);
        let mut states = Vec::new();
        let made = self.interleaved_noting(
            |world| attempt(|| call(world)),
            |world, seqno| states.push((seqno, world.history.newest_whole().clone())),
        );
        if !states.is_empty() {
            moments.options = None;
        }
        moments.states.extend(states);
        let is_unknown = stopped != (self.poisoned, self.panicked);
        let mut fired = self.faults.fired_after(self.fired_before).into_iter();
        let is_wrong = fired.any(|call| matches!(call.action, FaultAction::CorruptRead { .. }));
        if is_unknown || is_wrong {
            self.excused_tidying(made);
            return None;
        }
        Some(made)
    }

    /// What a copy may hold that is made now.
    fn moments(&self) -> Moments {
        let options = attempt(|| options(self.db())).ok();
        Moments { states: vec![(self.seqno(), self.history.newest_whole().clone())], options }
    }

    /// What is there of the last copy is whole, and is what the database was (world.10).
    pub(super) fn check_copy(&mut self) {
        let Some(copied) = &self.copied else { return };
        let image = self.disk.kill();
        image.set_capacity(None);
        if !image.exists(COPY.as_ref()).expect("a file system in memory does not fail") {
            assert!(copied.made.is_none(), "world.10: the checkpoint is gone");
            self.tally.uncopied += 1;
            return;
        }
        let env = Env { clock: self.clock.clone(), ..Env::simulated(Arc::new(image), self.seed) };
        self.check_copied(env, COPY, &copied.moments, copied.made);
    }

    /// Opens a copy, and compares it with the state at its last commit, or with each state if that commit is unknown.
    fn check_copied(&self, env: Env, dir: &str, moments: &Moments, seqno: Option<u64>) {
        let Some(opening) = self.opening else { return };
        let db = self.builder(opening).env(env).open(dir);
        let db = db.unwrap_or_else(|error| panic!("world.10: the copy cannot be opened: {error}"));
        let now_ms = db.time_ms();
        // What has expired counts until it is swept.
        let found =
            db.sweep().and_then(|_| read::contents_with(&db, false, true, self.expires.then_some(now_ms)));
        let found = found.unwrap_or_else(|error| panic!("world.10: the copy cannot be read: {error}"));
        let difference = |state: &State| self.history.as_found_at(state, &found, now_ms).difference(&found);
        let different = match seqno {
            Some(seqno) => difference(moments.at(seqno)),
            None => {
                let mut differences: Vec<_> =
                    moments.states.iter().map(|(_, state)| difference(state)).collect();
                differences.swap_remove(differences.iter().position(Option::is_none).unwrap_or(0))
            }
        };
        if let Some(difference) = different {
            panic!("world.10: the copy is another: {difference}");
        }
        if let Some(expected) = &moments.options {
            let found = options(&db).unwrap_or_else(|error| panic!("world.10: options of the copy: {error}"));
            assert_eq!(found, *expected, "world.10: options of the copy");
        }
        let report = db.check().unwrap_or_else(|error| panic!("world.10: check: {error}"));
        assert!(report.problems.is_empty(), "world.10: check: {:#?}", report.problems);
    }
}

/// The options of all keyspaces.
fn options(db: &Db) -> Result<BTreeMap<String, KeyspaceOptions>> {
    let one = |name: String| Ok((name.clone(), db.open_keyspace(&name)?.options()));
    db.keyspaces()?.into_iter().map(one).collect()
}

/// Removes a directory for good, as its owner does who wants the place.
fn remove(disk: &MemFs, dir: &Path) {
    let Ok(names) = disk.list_dir(dir) else { return };
    for path in names.iter().map(|name| dir.join(name)) {
        if disk.list_dir(&path).is_ok() {
            remove(disk, &path);
        } else {
            disk.remove_file(&path).expect("a file system in memory does not fail");
        }
    }
    let parent = dir.parent().map_or_else(PathBuf::new, Path::to_owned);
    let done = disk.sync_dir(dir).and_then(|()| disk.remove_dir(dir)).and_then(|()| disk.sync_dir(&parent));
    done.expect("a file system in memory does not fail");
}
