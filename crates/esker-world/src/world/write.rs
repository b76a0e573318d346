//! Commits: writes, batches, updates, and changes of keyspaces.

use std::collections::BTreeSet;

use esker::{Durability, Error, Keyspace, Result};

use super::{World, faults};
use crate::generate::LARGE_VALUE_BYTES;
use crate::model::footprint::Footprint;
use crate::model::state::{Commit, Id, NotANumber, Refusal};
use crate::op::{KeyspaceNo, Op, Update, Write};

/// Ids of keyspaces below this take one byte in keys.
pub(super) const SHORT_IDS: u32 = 0xF0;
/// From this number of keyspaces on, a commit looks them up in a set.
const MANY_KEYSPACES: usize = 9;

impl World {
    /// Performs an operation that commits something or must fail.
    pub(super) fn change(&mut self, op: &Op) {
        // A transaction that changes keyspaces would conflict with interleaved work.
        let is_alone = matches!(op, Op::Names(..));
        let outcome = if is_alone { self.done(op) } else { self.interleaved(|world| world.done(op)) };
        let durability = self.durability_of(op);
        self.changed(op, outcome, durability);
    }

    /// Notes the outcome of such an operation.
    pub(super) fn changed(&mut self, op: &Op, outcome: Result<()>, durability: Durability) {
        let commit = match self.history.newest().commit_of(op) {
            Err(Refusal::Default) => return assert!(matches!(outcome, Err(Error::Invalid(_)))),
            Err(Refusal::Exists(name)) => {
                return assert!(matches!(outcome, Err(Error::KeyspaceExists(n)) if n == name));
            }
            Ok(commit) => commit.expect("it commits something").dated(self.now_ms(), self.history.newest()),
        };
        self.expires |= commit.expires();
        if let Commit::Writes(writes) = commit {
            return self.wrote(outcome, writes, durability);
        }
        let footprint = self.history.newest().footprint_of(&commit);
        if footprint.is_empty() {
            // An empty transaction commits nothing and waits for nothing.
            self.excused(outcome);
            return;
        }
        if self.committed(outcome, commit, footprint, durability) {
            self.check_keyspaces();
        }
    }

    /// Performs a read-modify-write change. A single thread meets no conflict.
    pub(super) fn update(&mut self, op: &Op, no: KeyspaceNo, update: Update) {
        let (id, _) = self.pick(no);
        if self.leads_too_far(id, update) {
            return;
        }
        let outcome =
            if update.looks_first() { self.done(op) } else { self.interleaved(|world| world.done(op)) };
        let newest = self.history.newest();
        match newest.update(id, update, self.now_ms(), newest.lifetime_ms(id)) {
            Ok(Some(write)) => {
                self.expires |= write.expires();
                self.tally.updated += u64::from(outcome.is_ok());
                self.wrote(outcome, vec![(id, write)], self.durability_of(op));
            }
            Ok(None) => drop(self.excused(outcome)),
            Err(NotANumber) => self.refused(outcome),
        }
    }

    /// Returns whether a sequence would exceed the numbers that values can represent.
    fn leads_too_far(&self, id: Id, update: Update) -> bool {
        let Update::Lease(key, lease) = update else { return false };
        let number = self.history.newest().map(id).entries().get(&key).and_then(|old| old.as_number());
        number.is_some_and(|number| number.checked_add(u32::from(lease)).is_none())
    }

    /// Notes that a call was refused, as expected, or failed.
    pub(super) fn refused(&mut self, outcome: Result<()>) {
        match outcome {
            Ok(()) => panic!("world.1: an addition to a value that is not a number succeeds"),
            Err(Error::Invalid(_)) => {}
            Err(error) => drop(self.excused::<()>(Err(error))),
        }
    }

    /// Returns the default durability of commits.
    pub(super) fn durability(&self) -> Durability {
        self.process.opening.map_or(Durability::Sync, |opening| opening.durability)
    }

    /// Returns the durability that an acknowledged commit has.
    fn durability_of(&self, op: &Op) -> Durability {
        let durability = op.durability(self.durability());
        // A guest's commit survives the end of its host.
        let is_raised = durability == Durability::None && self.goes_by_guest(op);
        if is_raised { Durability::Buffered } else { durability }
    }

    /// Opens and drops handles according to the keyspaces.
    fn check_keyspaces(&mut self) {
        let names = self.history.newest().names().clone();
        for (name, id) in &names {
            if !self.keyspaces.contains_key(id) {
                let made = self.db().open_keyspace(name).expect("it was made");
                self.keyspaces.insert(*id, made);
            }
            assert_eq!(self.keyspaces[id].name(), *name);
        }
        let is_gone = |id: &Id| names.values().all(|named| named != id);
        for (_, gone) in self.keyspaces.extract_if(.., |id, _| is_gone(id)).collect::<Vec<_>>() {
            assert!(matches!(gone.put("k", "v"), Err(Error::KeyspaceNotFound(_))));
            if !names.contains_key(&gone.name()) {
                assert!(matches!(self.db().open_keyspace(&gone.name()), Err(Error::KeyspaceNotFound(_))));
            }
        }
    }

    /// Creates and drops keyspaces until new ids take more than one byte. The model does not see them: no
    /// call fails, and nothing is left.
    pub(super) fn use_up_short_ids(&mut self) {
        for _ in 0..SHORT_IDS {
            self.db().create_keyspace("short").expect("nothing fails yet");
            self.db().drop_keyspace("short").expect("nothing fails yet");
        }
        // Creating and dropping do not sync.
        self.db().sync().expect("nothing fails yet");
    }

    /// Notes the outcome of a commit of writes.
    pub(super) fn wrote(&mut self, outcome: Result<()>, writes: Vec<(Id, Write)>, durability: Durability) {
        let footprint = Footprint::of(&writes);
        if footprint.is_empty() {
            // The states do not tell whether it exists.
            self.forget_unknown();
            // An empty commit may wait for a failed flush, and may sync earlier commits.
            if self.excused(outcome).is_some() && durability == Durability::Sync {
                self.history.all_durable();
            }
            return;
        }
        self.committed(outcome, Commit::Writes(writes), footprint, durability);
    }

    /// Notes the outcome of a commit. Returns whether it was acknowledged.
    pub(super) fn committed(
        &mut self,
        outcome: Result<()>,
        commit: Commit,
        footprint: Footprint,
        durability: Durability,
    ) -> bool {
        let before = (self.process.poisoned, self.process.panicked);
        let is_unknown = outcome.as_ref().is_err_and(faults::is_unknown);
        match self.excused(outcome) {
            Some(()) => {
                self.tally.commits += 1;
                self.note_commit_coverage(&commit);
                self.history.push(commit, footprint, durability);
                true
            }
            None => {
                if is_unknown && self.history.is_in_doubt() {
                    // The next opening tells only of the first one.
                    self.forget_unknown();
                }
                if is_unknown || before != (self.process.poisoned, self.process.panicked) {
                    self.history.doubt(commit);
                }
                false
            }
        }
    }

    /// Counts rare properties of commits.
    fn note_commit_coverage(&mut self, commit: &Commit) {
        let Commit::Writes(writes) = commit else { return };
        self.tally.large |= u64::from(writes.iter().any(|(_, write)| is_large(write)));
        // Most commits are small.
        if writes.len() >= MANY_KEYSPACES {
            let ids: BTreeSet<_> = writes.iter().map(|(id, _)| *id).collect();
            self.tally.scattered |= u64::from(ids.len() >= MANY_KEYSPACES);
        }
    }

    /// Sets the default lifetime of a keyspace. After a failed call, the database tells which one holds.
    pub(super) fn set_lifetime(&mut self, op: &Op, no: KeyspaceNo) {
        let (id, keyspace) = self.pick(no);
        self.maintain(self.done(op));
        self.note_lifetime(id, &keyspace);
    }

    /// Copies the default lifetime of a keyspace from the database.
    pub(super) fn note_lifetime(&mut self, id: Id, keyspace: &Keyspace) {
        let ms = keyspace.default_ttl().map_or(0, |ttl| ttl.as_millis() as u64);
        self.history.set_lifetime_ms(id, ms);
    }
}

fn is_large(write: &Write) -> bool {
    matches!(write, Write::Put(_, value) if value.len >= LARGE_VALUE_BYTES.start)
}
