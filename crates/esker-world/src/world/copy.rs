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
use super::archive::Archive;
use super::replica::Replica;
use super::timeline::Timeline;
use super::trouble::attempt;
use crate::judge::read;
use crate::model::state::{Contents, State};
use crate::op::Opening;

/// Where a checkpoint goes.
pub(super) const COPY: &str = "copy";
/// Where backups go.
pub(super) const BACKUPS: &str = "backups";
/// Where the last one is restored.
pub(super) const RESTORED: &str = "restored";

/// More memory takes longer to open.
const COPY_MEMTABLE_BYTES_MAX: usize = 32 << 10;

/// Options of keyspaces, by name.
pub(super) type Options = BTreeMap<String, KeyspaceOptions>;

/// The copies of the database, and what they may hold.
#[derive(Default)]
pub(super) struct Copies {
    /// The last checkpoint.
    pub(super) checkpoint: Option<Copied>,
    /// What can be restored (archive.rs).
    pub(super) archive: Option<Archive>,
    /// The database that follows (replica.rs).
    pub(super) replica: Option<Replica>,
    /// States by the numbers of commits.
    pub(super) timeline: Timeline,
    /// The last commit that the first of the processes has found since which the feed keeps everything.
    pub(super) kept_from: Option<u64>,
    /// A power loss has happened.
    pub(super) has_lost_power: bool,
}

/// What a copy may hold.
#[derive(Clone)]
struct Moments {
    /// States, with what has expired, and the numbers of their commits, the oldest first.
    states: Vec<(u64, State)>,
    /// Options of keyspaces, if nothing has changed them meanwhile.
    options: Option<Options>,
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
    pub(super) made: Option<u64>,
}

impl World {
    /// An opening has found the database with this commit as the last.
    pub(super) fn note_opening_for_copies(&mut self, seqno: u64) {
        self.forget_moments_after(seqno);
        self.check_replica_is_behind(seqno);
        let first = *self.copies.kept_from.get_or_insert(seqno);
        self.copies.kept_from = Some(first).filter(|_| self.keeps_all() == Some(true));
    }

    /// Makes a checkpoint in the place of the last one.
    pub(super) fn checkpoint(&mut self) {
        remove(&self.disk, COPY.as_ref());
        let (mut moments, before) = (self.moments(), self.history.len());
        self.copies.checkpoint = Some(Copied { moments: moments.clone(), made: None });
        let made = self.capturing(&mut moments, |world| world.db().checkpoint(COPY));
        let Some(made) = made else {
            // What was read wrong was copied wrong.
            remove(&self.disk, COPY.as_ref());
            self.copies.checkpoint = None;
            return;
        };
        let made = self.excused_tidying(made).map(|made| made.seqno.get());
        self.copies.checkpoint = Some(Copied { moments, made });
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
        if self.in_trouble() && !self.is_dead() {
            // Where the log fails as the digest of its last commit is read, it does without that.
            self.maintain(attempt(|| self.db().sync()));
        }
        if self.in_trouble() || made.is_none() {
            self.forget_backups();
            return;
        }
        let Some(made) = made else { return };
        self.history.durable_up_to(before);
        self.tally.backed_up += 1;
        self.note_backup(made.seqno.get());
        let env = self.env_of_image();
        let restored =
            Backup::open_in(env.clone(), BACKUPS).and_then(|mut backups| backups.restore(made.id, RESTORED));
        restored.unwrap_or_else(|error| panic!("world.10: the backup cannot be restored: {error}"));
        self.check_copied(env, RESTORED, &[moments.at(made.seqno.get())], moments.options.as_ref());
    }

    /// How copies are opened: as the database, in little memory, and writers do their background work.
    pub(super) fn opening_of_copies(&self) -> Opening {
        let opening = self.opening.expect("a process has opened the database");
        let memtable_bytes = opening.memtable_bytes.min(COPY_MEMTABLE_BYTES_MAX);
        Opening { stepped: false, memory: 1 << 20, memtable_bytes, ..opening }
    }

    /// Removes all backups. What a call that failed has left may be wrong, and later ones would take it over.
    pub(super) fn forget_backups(&mut self) {
        remove(&self.disk, BACKUPS.as_ref());
        self.copies.archive = None;
    }

    /// What another process would see now, with a disk of its own that is as this one, and no faults.
    pub(super) fn env_of_image(&self) -> Env {
        let image = self.disk.kill();
        image.set_capacity(None);
        Env { clock: self.clock.clone(), ..Env::simulated(Arc::new(image), self.seed) }
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
        let options = attempt(|| options_of(self.db())).ok();
        Moments { states: vec![(self.seqno(), self.history.newest_whole().clone())], options }
    }

    /// What is there of the last copy is whole, and is what the database was (world.10).
    pub(super) fn check_copy(&mut self) {
        let Some(copied) = &self.copies.checkpoint else { return };
        if !self.disk.exists(COPY.as_ref()).expect("a file system in memory does not fail") {
            assert!(copied.made.is_none(), "world.10: the checkpoint is gone");
            self.tally.uncopied += 1;
            return;
        }
        let moments = &copied.moments;
        let states: Vec<_> = match copied.made {
            Some(seqno) => vec![moments.at(seqno)],
            None => moments.states.iter().map(|(_, state)| state).collect(),
        };
        self.check_copied(self.env_of_image(), COPY, &states, moments.options.as_ref());
    }

    /// Opens a copy, and compares it with the states that it may hold.
    pub(super) fn check_copied(&self, env: Env, dir: &str, states: &[&State], options: Option<&Options>) {
        let db = self.builder(self.opening_of_copies()).env(env).open(dir);
        let db = db.unwrap_or_else(|error| panic!("world.10: the copy cannot be opened: {error}"));
        let now_ms = db.time_ms();
        // What has expired counts until it is swept.
        let found =
            db.sweep().and_then(|_| read::contents_with(&db, false, true, self.expires.then_some(now_ms)));
        let found = found.unwrap_or_else(|error| panic!("world.10: the copy cannot be read: {error}"));
        if let Some(difference) = self.difference(states, &found, now_ms) {
            panic!("world.10: the copy is another: {difference}");
        }
        if let Some(expected) = options {
            let found =
                options_of(&db).unwrap_or_else(|error| panic!("world.10: options of the copy: {error}"));
            assert_eq!(found, *expected, "world.10: options of the copy");
        }
        let report = db.check().unwrap_or_else(|error| panic!("world.10: check: {error}"));
        assert!(report.problems.is_empty(), "world.10: check: {:#?}", report.problems);
    }

    /// How what was found at a time differs from all of these states; from which of them makes no difference.
    pub(super) fn difference(&self, states: &[&State], found: &Contents, now_ms: u64) -> Option<String> {
        let difference = |state: &&State| self.history.as_found_at(state, found, now_ms).difference(found);
        let mut differences: Vec<_> = states.iter().map(difference).collect();
        differences.swap_remove(differences.iter().position(Option::is_none).unwrap_or(0))
    }
}

/// The options of all keyspaces.
pub(super) fn options_of(db: &Db) -> Result<Options> {
    let one = |name: String| Ok((name.clone(), db.open_keyspace(&name)?.options()));
    db.keyspaces()?.into_iter().map(one).collect()
}

/// Removes a directory for good, as its owner does who wants the place.
pub(super) fn remove(disk: &MemFs, dir: &Path) {
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
