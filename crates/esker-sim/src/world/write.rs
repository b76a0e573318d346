//! Writes, batches, transactions.

use std::collections::BTreeSet;

use esker::{Durability, Error, Result, Transaction};

use super::World;
use super::trouble::attempt;
use crate::generate::LARGE_VALUE_BYTES;
use crate::model::footprint::Footprint;
use crate::model::keys::{bounds, key};
use crate::model::state::{Commit, Id, State};
use crate::op::{KeyspaceNo, Write};

/// From so many keyspaces on a commit looks them up instead of comparing each with each.
const MANY_KEYSPACES: usize = 9;

/// A transaction and what it must see.
pub(super) struct HeldTransaction {
    db: Transaction,
    /// The newest state at its beginning with its own writes.
    state: State,
    /// How many commits there were when it began.
    since: usize,
    footprint: Footprint,
    writes: Vec<(Id, Write)>,
}

impl HeldTransaction {
    pub(super) fn db(&self) -> &Transaction {
        &self.db
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn rollback(self) {
        self.db.rollback();
    }
}

impl World {
    pub(super) fn write(&mut self, no: KeyspaceNo, write: &Write) {
        let (id, keyspace) = self.pick(no);
        let outcome = attempt(|| match write {
            Write::Put(k, v) => keyspace.put(key(*k), v.bytes()),
            Write::Remove(k) => keyspace.remove(key(*k)),
            Write::RemoveRange(range) => keyspace.remove_range::<&[u8]>(bounds(*range)),
            Write::Clear => keyspace.clear(),
        });
        self.wrote(outcome, vec![(id, *write)], self.durability);
    }

    pub(super) fn batch(&mut self, writes: &[(KeyspaceNo, Write)], durability: Durability) {
        let mut batch = self.db().batch();
        let mut done = Vec::new();
        for (no, write) in writes {
            let (id, keyspace) = self.pick(*no);
            let added = match write {
                Write::Put(k, v) => batch.put(&keyspace, key(*k), v.bytes()),
                Write::Remove(k) => batch.remove(&keyspace, key(*k)),
                Write::RemoveRange(range) => batch.remove_range::<&[u8]>(&keyspace, bounds(*range)),
                Write::Clear => batch.remove_range::<&[u8]>(&keyspace, ..),
            };
            added.expect("add to a batch");
            done.push((id, *write));
        }
        self.wrote(attempt(|| batch.commit_with(durability)), done, durability);
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
    pub(super) fn committed(
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

    pub(super) fn begin(&mut self, slot: usize) {
        self.transactions[slot] = Some(HeldTransaction {
            db: self.db().begin(),
            state: self.history.newest().clone(),
            since: self.history.len(),
            footprint: Footprint::default(),
            writes: Vec::new(),
        });
    }

    pub(super) fn transaction_write(&mut self, slot: usize, no: KeyspaceNo, write: &Write) {
        let (id, keyspace) = self.pick(no);
        let Some(mut transaction) = self.transactions[slot].take() else { return };
        let db = &mut transaction.db;
        let added = match write {
            Write::Put(k, v) => db.put(&keyspace, key(*k), v.bytes()),
            Write::Remove(k) => db.remove(&keyspace, key(*k)),
            Write::RemoveRange(range) => db.remove_range::<&[u8]>(&keyspace, bounds(*range)),
            Write::Clear => db.remove_range::<&[u8]>(&keyspace, ..),
        };
        added.expect("write in a transaction");
        transaction.state.write(id, write);
        transaction.footprint.add(id, write);
        transaction.writes.push((id, *write));
        self.transactions[slot] = Some(transaction);
    }

    pub(super) fn commit(&mut self, transaction: HeldTransaction, durability: Durability) {
        let HeldTransaction { db, since, footprint, writes, .. } = transaction;
        let outcome = attempt(|| db.commit_with(durability));
        if footprint.is_empty() {
            self.excused(outcome);
            return;
        }
        let gone = writes.iter().any(|(id, _)| !self.keyspaces.contains_key(id));
        let conflict = self.history.touched_since(since, &footprint);
        match &outcome {
            Err(Error::KeyspaceNotFound(_)) => assert!(gone, "W2: no keyspace is gone"),
            Err(Error::Conflict) => {
                assert!(conflict && !gone, "W2: no conflict is due");
                self.tally.conflicts += 1;
            }
            Ok(()) => {
                assert!(!gone, "W2: into a dropped keyspace");
                assert!(!conflict, "W2: a conflict is due");
                self.committed(outcome, Commit::Writes(writes), footprint, durability);
            }
            Err(_) => drop(self.committed(outcome, Commit::Writes(writes), footprint, durability)),
        }
    }
}

fn is_large(write: &Write) -> bool {
    matches!(write, Write::Put(_, value) if value.len >= LARGE_VALUE_BYTES.start)
}
