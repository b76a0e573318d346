//! Checkpoints and backups on the same disk.
//!
//! ```text
//!   Checkpoint --> Db --links, copies--> another directory --open an image--> compare with the model
//!                                          |                            at the copy's last commit
//!                                          `-- checked again after each opening of the database
//!   Backup ------> Db --copies--> a directory of backups --restore, open--> compare
//! ```
//!
//! Other work may be interleaved with the steps of a copy (between.rs). The commit number of the copy tells
//! how much of it the copy contains.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker::backup::Backup;
use esker::{Db, KeyspaceOptions, Result};
use esker_env::{Env, FaultAction, Fs, MemFs};

use super::World;
use super::faults::attempt;
use super::limited::is_limited;
use crate::judge::read;
use crate::model::state::{Contents, State};
use crate::op::Opening;

/// Directory of the checkpoint.
pub(super) const COPY: &str = "copy";
/// Directory of the backups.
pub(super) const BACKUPS: &str = "backups";
/// Directory in which the last backup is restored.
pub(super) const RESTORED: &str = "restored";

/// More memory would make opening slower.
const COPY_MEMTABLE_BYTES_MAX: usize = 32 << 10;

/// Options of keyspaces by name.
pub(super) type Options = BTreeMap<String, KeyspaceOptions>;

/// What a copy may contain.
#[derive(Clone)]
struct Moments {
    /// States, including expired entries, with the numbers of their commits, oldest first.
    states: Vec<(u64, State)>,
    /// Options of keyspaces, unless they changed meanwhile.
    options: Option<Options>,
}

impl Moments {
    /// Returns the state at a commit.
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
    /// Its last commit. `None` if the call did not succeed, so the copy may or may not exist.
    pub(super) made: Option<u64>,
}

impl World {
    /// Notes the last commit that an opening found.
    pub(super) fn note_opening_for_copies(&mut self, seqno: u64) {
        self.forget_moments_after(seqno);
        self.check_replica_is_behind(seqno);
        let first = *self.copies.kept_from.get_or_insert(seqno);
        self.copies.kept_from = Some(first).filter(|_| self.keeps_all() == Some(true));
    }

    /// Makes a checkpoint, replacing the last one.
    pub(super) fn checkpoint(&mut self) {
        remove(&self.machine.disk, COPY.as_ref());
        let (mut moments, before) = (self.moments(), self.history.len());
        self.copies.checkpoint = Some(Copied { moments: moments.clone(), made: None });
        let made = self.capturing(&mut moments, |world| world.db().checkpoint(COPY));
        let Some(made) = made else {
            // A misread during the copy makes the copy wrong.
            remove(&self.machine.disk, COPY.as_ref());
            self.copies.checkpoint = None;
            return;
        };
        let made = self.excused_tidying(made).map(|made| made.seqno.get());
        self.copies.checkpoint = Some(Copied { moments, made });
        if made.is_some() {
            self.history.durable_up_to(before);
            self.tally.copied += 1;
            self.tally.copied_beside += self.compactions();
            self.check_copy();
        }
    }

    /// Makes a backup beside the earlier ones.
    pub(super) fn back_up(&mut self) {
        let (mut moments, before) = (self.moments(), self.history.len());
        let made =
            self.capturing(&mut moments, |world| Backup::open_in(world.env(), BACKUPS)?.create(world.db()));
        let made = made.and_then(|made| self.excused_tidying(made));
        if self.met_fault() && !self.is_dead() {
            // If reading the digest of its last commit fails, the backup lacks that.
            self.maintain(attempt(|| self.db().sync()));
        }
        if self.met_fault() || made.is_none() {
            self.forget_backups();
            return;
        }
        let Some(made) = made else { return };
        self.history.durable_up_to(before);
        self.tally.backed_up += 1;
        self.tally.copied_beside += self.compactions();
        self.note_backup(made.seqno.get());
        let env = self.env_of_image();
        let restored = Backup::open_in(env.clone(), BACKUPS)
            .and_then(|mut backups| backups.restore(RESTORED).backup(made.id).run());
        restored.unwrap_or_else(|error| panic!("world.10: the backup cannot be restored: {error}"));
        self.check_copied(env, RESTORED, &[moments.at(made.seqno.get())], moments.options.as_ref());
    }

    /// Returns the options for opening copies: those of the database with little memory, and without explicit
    /// background steps.
    pub(super) fn opening_of_copies(&self) -> Opening {
        let opening = self.process.opening.expect("a process has opened the database");
        let memtable_bytes = opening.memtable_bytes.min(COPY_MEMTABLE_BYTES_MAX);
        Opening { stepped: false, memory: 1 << 20, memtable_bytes, ..opening }
    }

    /// Removes all backups. Leftovers of a failed call may be wrong, and later calls would reuse them.
    pub(super) fn forget_backups(&mut self) {
        remove(&self.machine.disk, BACKUPS.as_ref());
        self.copies.archive = None;
    }

    /// Returns the environment of another process on a copy of the disk, without faults.
    pub(super) fn env_of_image(&self) -> Env {
        let image = self.machine.disk.kill();
        image.set_capacity(None);
        let (clock, keys) = (self.machine.clock.clone(), self.machine.keys.clone());
        Env { clock, keys, ..Env::simulated(Arc::new(image), self.seed) }
    }

    /// Runs a call that makes a copy, and collects the states that it may contain. Returns `None` if nothing
    /// is known of them.
    fn capturing<T>(
        &mut self,
        moments: &mut Moments,
        call: impl FnOnce(&Self) -> Result<T>,
    ) -> Option<Result<T>> {
        let stopped = (self.process.poisoned, self.process.panicked);
        let mut states = Vec::new();
        let made = self.interleaved_noting(
            |world| attempt(|| call(world)),
            |world, seqno| states.push((seqno, world.history.newest_whole().clone())),
        );
        if !states.is_empty() {
            moments.options = None;
        }
        moments.states.extend(states);
        let is_unknown = stopped != (self.process.poisoned, self.process.panicked);
        let mut fired = self.machine.faults.fired_after(self.process.fired_before).into_iter();
        let is_wrong = fired.any(|call| matches!(call.action, FaultAction::CorruptRead { .. }));
        if is_unknown || is_wrong {
            self.excused_tidying(made);
            return None;
        }
        Some(made)
    }

    /// Returns what a copy made now may contain.
    fn moments(&self) -> Moments {
        let options = attempt(|| options_of(self.db())).ok();
        Moments { states: vec![(self.seqno(), self.history.newest_whole().clone())], options }
    }

    /// Checks that the last copy is complete and equals the database at its commit (world.10).
    pub(super) fn check_copy(&mut self) {
        let Some(copied) = &self.copies.checkpoint else { return };
        if !self.machine.disk.exists(COPY.as_ref()).expect("a file system in memory does not fail") {
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

    /// Opens a copy and compares it with the states that it may contain.
    pub(super) fn check_copied(&self, env: Env, dir: &str, states: &[&State], options: Option<&Options>) {
        let db = self.builder(self.opening_of_copies()).env(env).open(dir);
        let db = db.unwrap_or_else(|error| panic!("world.10: the copy cannot be opened: {error}"));
        let now_ms = db.time_ms();
        // Expired entries count until they are swept.
        let is_swept = !is_limited(&db);
        let swept = if is_swept { db.sweep().map(drop) } else { Ok(()) };
        let found =
            swept.and_then(|()| read::contents_with(&db, false, is_swept, self.expires.then_some(now_ms)));
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

    /// Returns how the contents found at a time differ from all of these states, or `None` if they equal one.
    pub(super) fn difference(&self, states: &[&State], found: &Contents, now_ms: u64) -> Option<String> {
        let difference = |state: &&State| self.history.as_found_at(state, found, now_ms).difference(found);
        let mut differences: Vec<_> = states.iter().map(difference).collect();
        differences.swap_remove(differences.iter().position(Option::is_none).unwrap_or(0))
    }
}

/// Returns the options of all keyspaces.
pub(super) fn options_of(db: &Db) -> Result<Options> {
    let one = |name: String| Ok((name.clone(), db.open_keyspace(&name)?.options()));
    db.keyspaces()?.into_iter().map(one).collect()
}

/// Removes a directory durably, as its owner would.
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
