//! Commits: writes, batches, transactions, and what becomes of keyspaces.

use std::collections::BTreeSet;
use std::ops::Bound;

use esker::{Durability, Error, Isolation, Keyspace, Result, Transaction};

use super::World;
use super::trouble::attempt;
use crate::generate::LARGE_VALUE_BYTES;
use crate::model::footprint::Footprint;
use crate::model::keys::KeyNo;
use crate::model::state::{Commit, Id, Refusal, State};
use crate::model::timed::Timed;
use crate::op::{KeyspaceNo, Op, Read, Write};
use crate::perform;

/// Numbers of keyspaces below this take one byte in front of a key.
pub(super) const SHORT_IDS: u32 = 0xF0;
/// From so many keyspaces on a commit looks them up instead of comparing each with each.
const MANY_KEYSPACES: usize = 9;

/// A transaction and what it must see.
pub(super) struct HeldTransaction {
    db: Transaction,
    /// The newest state at its beginning with its own writes.
    state: Timed,
    /// How many commits there were when it began.
    since: usize,
    footprint: Footprint,
    writes: Vec<(Id, Write)>,
    /// It is serializable: what it has read for certain, and what it may have read.
    read: Option<[Footprint; 2]>,
}

impl HeldTransaction {
    pub(super) fn db(&self) -> &Transaction {
        &self.db
    }

    pub(super) fn state(&self) -> &State {
        self.state.seen()
    }

    /// It has read something, and has an answer or not.
    pub(super) fn note_read(&mut self, id: Id, read: &Read, is_answered: bool) {
        let Some([certain, possible]) = &mut self.read else { return };
        let whole = (Bound::Unbounded, Bound::Unbounded);
        let one = |key: KeyNo| (Bound::Included(key), Bound::Included(key));
        possible.add_range(id, whole);
        if !is_answered {
            return;
        }
        match read {
            Read::Get(key) | Read::Contains(key) => certain.add_range(id, one(*key)),
            Read::MultiGet(keys) => keys.iter().for_each(|key| certain.add_range(id, one(*key))),
            Read::Range { bounds, .. } => certain.add_range(id, *bounds),
            Read::Ends | Read::Len | Read::Prefix { .. } | Read::Cursor(_) => {}
        }
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        self.state.set_now(now_ms);
    }

    pub(super) fn rollback(self) {
        self.db.rollback();
    }
}

impl World {
    /// Does an operation that commits something by itself, or must fail.
    pub(super) fn change(&mut self, op: &Op) {
        // A keyspace that goes, or gets another name.
        let subject = match op {
            Op::Drop(no) | Op::Rename(no, _) | Op::Replace(no, ..) => Some(self.pick(*no).1),
            _ => None,
        };
        let outcome = self.interleaved(|world| world.done(op));
        self.changed(op, subject, outcome);
    }

    /// Notes the outcome of such an operation.
    pub(super) fn changed(&mut self, op: &Op, subject: Option<Keyspace>, outcome: Result<()>) {
        let commit = match self.history.newest().commit_of(op) {
            Err(Refusal::Default) => return assert!(matches!(outcome, Err(Error::Invalid(_)))),
            Err(Refusal::Exists(name)) => {
                return assert!(matches!(outcome, Err(Error::KeyspaceExists(n)) if n == name));
            }
            Ok(commit) => commit.expect("it commits something").dated(self.now_ms(), self.history.newest()),
        };
        self.expires |= commit.expires();
        let durability = op.durability(self.durability);
        if let Commit::Writes(writes) = commit {
            return self.wrote(outcome, writes, durability);
        }
        let footprint = match &commit {
            Commit::Replace(_, writes) => self.history.newest().footprint_of_new(writes),
            _ => Footprint::default(),
        };
        if self.committed(outcome, commit.clone(), footprint, durability) {
            self.check_keyspaces(&commit, subject);
        }
    }

    /// Handles follow what has become of their keyspaces.
    fn check_keyspaces(&mut self, commit: &Commit, subject: Option<Keyspace>) {
        let names = self.history.newest().names().clone();
        self.keyspaces.retain(|id, _| names.values().any(|named| named == id));
        match (commit, subject) {
            (Commit::Create(name), _) => {
                let keyspace = self.db().open_keyspace(name).expect("it was made");
                self.keyspaces.insert(names[name], keyspace);
            }
            (Commit::Drop(name), Some(gone)) => {
                assert!(matches!(gone.put("k", "v"), Err(Error::KeyspaceNotFound(n)) if n == *name));
                assert!(matches!(self.db().open_keyspace(name), Err(Error::KeyspaceNotFound(_))));
            }
            (Commit::Replace(name, _), Some(gone)) => {
                assert!(matches!(gone.put("k", "v"), Err(Error::KeyspaceNotFound(n)) if n == *name));
                let keyspace = self.db().open_keyspace(name).expect("it was made");
                self.keyspaces.insert(names[name], keyspace);
            }
            (Commit::Rename(_, to), Some(renamed)) => assert_eq!(renamed.name(), *to),
            _ => {}
        }
    }

    /// Makes and drops keyspaces until their numbers are longer than a byte. The model does not see them: nothing fails, and
    /// nothing of them is left.
    pub(super) fn use_up_short_ids(&mut self) {
        for _ in 0..SHORT_IDS {
            self.db().create_keyspace("short").expect("nothing fails yet");
            self.db().drop_keyspace("short").expect("nothing fails yet");
        }
        // Neither waits for that.
        self.db().sync().expect("nothing fails yet");
    }

    /// Notes the outcome of a commit of writes.
    fn wrote(&mut self, outcome: Result<()>, writes: Vec<(Id, Write)>, durability: Durability) {
        let footprint = Footprint::of(&writes);
        if footprint.is_empty() {
            // It may still have had to wait for a flush that failed; and it makes durable what was committed before it.
            if self.excused(outcome).is_some() && durability == Durability::Sync {
                self.history.all_durable();
            }
            return;
        }
        self.committed(outcome, Commit::Writes(writes), footprint, durability);
    }

    /// Notes the outcome of a commit; whether it was acknowledged.
    fn committed(
        &mut self,
        outcome: Result<()>,
        commit: Commit,
        footprint: Footprint,
        durability: Durability,
    ) -> bool {
        let before = (self.poisoned, self.panicked);
        match self.excused(outcome) {
            Some(()) => {
                self.tally.commits += 1;
                self.sight_commit(&commit);
                self.history.push(commit, footprint, durability);
                true
            }
            None => {
                if before != (self.poisoned, self.panicked) {
                    self.history.doubt(commit);
                }
                false
            }
        }
    }

    /// Takes note of what is rare in commits.
    fn sight_commit(&mut self, commit: &Commit) {
        let Commit::Writes(writes) = commit else { return };
        self.tally.large |= u64::from(writes.iter().any(|(_, write)| is_large(write)));
        // Most are small.
        if writes.len() >= MANY_KEYSPACES {
            let ids: BTreeSet<_> = writes.iter().map(|(id, _)| *id).collect();
            self.tally.scattered |= u64::from(ids.len() >= MANY_KEYSPACES);
        }
    }

    /// Gives a keyspace a default lifetime. What holds after a call that failed is asked of the database.
    pub(super) fn set_lifetime(&mut self, op: &Op, no: KeyspaceNo) {
        let (id, keyspace) = self.pick(no);
        self.maintain(self.done(op));
        self.note_lifetime(id, &keyspace);
    }

    /// Takes a keyspace's default lifetime over from the database.
    pub(super) fn note_lifetime(&mut self, id: Id, keyspace: &Keyspace) {
        let ms = keyspace.default_ttl().map_or(0, |ttl| ttl.as_millis() as u64);
        self.history.set_lifetime_ms(id, ms);
    }

    pub(super) fn begin(&mut self, slot: usize) {
        let (isolation, read) = match slot % 2 {
            0 => (Isolation::Serializable, Some(<[Footprint; 2]>::default())),
            _ => (Isolation::Snapshot, None),
        };
        self.transactions[slot] = Some(HeldTransaction {
            read,
            db: self.db().begin_with(isolation),
            state: Timed::new(self.history.newest().clone(), self.now_ms()),
            since: self.history.len(),
            footprint: Footprint::default(),
            writes: Vec::new(),
        });
    }

    pub(super) fn transaction_write(&mut self, slot: usize, no: KeyspaceNo, write: &Write) {
        let (id, keyspace) = self.pick(no);
        let Some(mut transaction) = self.transactions[slot].take() else { return };
        if let Write::Put(key, value) = write
            && key.0.is_multiple_of(3)
        {
            // What is undone has never been.
            let undone = [Write::Remove(*key), Write::Put(KeyNo(key.0 / 2), *value), Write::Clear];
            let undone = &undone[..usize::from(key.0 / 3 % 4)];
            let point = transaction.db.savepoint();
            let tried =
                attempt(|| undone.iter().try_for_each(|w| perform::write(&mut transaction.db, &keyspace, w)));
            self.excused(tried);
            transaction.db.rollback_to(&point).expect("the savepoint was just made");
            self.tally.undone += u64::from(!undone.is_empty());
        }
        // A large transaction writes tables: what fails then is not in it.
        let outcome = attempt(|| perform::write(&mut transaction.db, &keyspace, write));
        if self.excused(outcome).is_some() {
            // Defaults are those of the call, not those of the transaction's beginning.
            let write = write.dated(self.now_ms(), self.history.newest().lifetime_ms(id));
            self.expires |= write.expires();
            transaction.state.write(id, &write);
            transaction.footprint.add(id, &write);
            transaction.writes.push((id, write));
        }
        self.transactions[slot] = Some(transaction);
    }

    pub(super) fn commit(&mut self, transaction: HeldTransaction, durability: Durability) {
        let HeldTransaction { db, since, footprint, writes, read, .. } = transaction;
        let outcome = self.interleaved(|_| attempt(|| Ok(db.commit_with(durability).map(drop)?)));
        if footprint.is_empty() {
            self.excused(outcome);
            return;
        }
        let gone = writes.iter().any(|(id, _)| !self.keyspaces.contains_key(id));
        let [certain, possible] = read.unwrap_or_default();
        let touched = |footprint| self.history.touched_since(since, footprint);
        let touched_by_writes = touched(&footprint);
        let is_due = touched_by_writes || touched(&certain);
        let may_be = is_due || touched(&possible);
        match &outcome {
            Err(Error::KeyspaceNotFound(_)) => assert!(gone, "world.2: no keyspace is gone"),
            Err(Error::Conflict { .. }) => {
                // Sweeps are none, but in tables (conflict.3 of the engine).
                assert!((may_be || self.expires) && !gone, "world.2: no conflict is due");
                self.tally.read_conflicts += u64::from(!touched_by_writes);
                self.tally.conflicts += 1;
            }
            Ok(()) => {
                assert!(!gone, "world.2: into a dropped keyspace");
                assert!(!is_due, "world.2: a conflict is due");
                self.committed(outcome, Commit::Writes(writes), footprint, durability);
            }
            Err(_) => drop(self.committed(outcome, Commit::Writes(writes), footprint, durability)),
        }
    }
}

fn is_large(write: &Write) -> bool {
    matches!(write, Write::Put(_, value) if value.len >= LARGE_VALUE_BYTES.start)
}
