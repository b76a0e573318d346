//! Transactions held across other operations.
//!
//! ```text
//!   Begin --> HeldTransaction { db, expected view } --writes, updates, savepoints--> conflict | success
//! ```

use std::ops::Bound;

use esker::{Durability, Error, Isolation, Result, Savepoint, Transaction};

use super::World;
use super::faults::attempt;
use crate::model::footprint::Footprint;
use crate::model::keys::KeyNo;
use crate::model::state::{Commit, Id, NotANumber, State};
use crate::model::timed::Timed;
use crate::op::{KeyspaceNo, NAMES, Point, Read, Update, Write};
use crate::perform;

/// A transaction and its expected view.
pub(super) struct HeldTransaction<T = Transaction> {
    pub(super) db: T,
    /// The newest state at its beginning, with its own writes.
    state: Timed,
    /// Number of commits when it began.
    since: usize,
    footprint: Footprint,
    writes: Vec<(Id, Write)>,
    /// For a serializable transaction: keys that it has certainly read, and that it may have read.
    read: Option<[Footprint; 2]>,
    /// Its savepoints, last one last.
    points: Vec<HeldPoint>,
    is_exclusive: bool,
}

/// A savepoint, with the transaction's view and number of writes.
struct HeldPoint {
    db: Savepoint,
    state: Timed,
    writes: usize,
}

impl<T> HeldTransaction<T> {
    /// Takes a transaction that has just begun. `newest` is what it sees at the engine's time `now_ms`,
    /// after `since` commits.
    pub(super) fn new(db: T, isolation: Isolation, newest: State, now_ms: u64, since: usize) -> Self {
        HeldTransaction {
            db,
            state: Timed::new(newest, now_ms),
            since,
            footprint: Footprint::default(),
            writes: Vec::new(),
            // An exclusive one conflicts with commits of its own thread, like one with snapshot isolation.
            read: (isolation == Isolation::Serializable).then(<[Footprint; 2]>::default),
            points: Vec::new(),
            is_exclusive: isolation == Isolation::Exclusive,
        }
    }

    /// Separates the transaction from what is expected of it.
    pub(super) fn split(self) -> (T, HeldTransaction<()>) {
        let HeldTransaction { db, state, since, footprint, writes, read, points, is_exclusive } = self;
        (db, HeldTransaction { db: (), state, since, footprint, writes, read, points, is_exclusive })
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    pub(super) fn state(&self) -> &State {
        self.state.seen()
    }

    /// Notes a read, which may have failed.
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
            // `len` depends on whether the written keys exist. After a rollback of these writes, the read
            // does not cover them otherwise.
            Read::Len => {
                let is_one =
                    |write: &Write| matches!(write, Write::PutUntil(..) | Write::Put(..) | Write::Remove(_));
                let own = self.writes.iter().filter(|(of, write)| *of == id && is_one(write));
                own.for_each(|(_, write)| certain.add(id, write));
            }
            Read::Ends | Read::Prefix { .. } | Read::Cursor(_) => {}
        }
    }

    pub(super) fn note_write(&mut self, id: Id, write: Write) {
        self.state.write(id, &write);
        self.footprint.add(id, &write);
        self.writes.push((id, write));
    }

    /// Notes a rollback to the first `kept` writes. Reads in between may have depended on the undone ones.
    fn note_undone(&mut self, kept: usize) {
        let undone = self.writes.split_off(kept);
        if let Some([_, possible]) = &mut self.read {
            undone.iter().for_each(|(id, write)| possible.add(*id, write));
        }
    }

    /// Notes a read-modify-write change or an attempt at one.
    pub(super) fn note_update(&mut self, id: Id, update: Update, is_done: bool) {
        match (update, update.key()) {
            (Update::Expire(..) | Update::Persist(_), _) | (_, None) => {
                self.note_read(id, &Read::Ends, is_done);
            }
            (_, Some(key)) => self.note_read(id, &Read::Get(key), is_done),
        }
    }

    pub(super) fn expire(&mut self, now_ms: u64) {
        self.state.set_now(now_ms);
    }
}

/// Returns the isolation of the transactions of a slot.
pub(super) fn isolation_of(slot: usize) -> Isolation {
    if slot.is_multiple_of(2) { Isolation::Serializable } else { Isolation::Snapshot }
}

impl World {
    pub(super) fn begin(&mut self, slot: usize, isolation: Isolation) {
        // Ends first: it may be exclusive.
        self.held.transactions[slot] = None;
        let db = self.db().transaction().isolation(isolation).begin();
        self.held.transactions[slot] = Some(self.expecting(db, isolation));
    }

    /// Begins an exclusive transaction, or another one if there is an exclusive one: this thread would wait
    /// for itself.
    pub(super) fn begin_exclusive(&mut self, slot: usize) {
        self.held.transactions[slot] = None;
        if self.holds_turn() {
            return self.begin(slot, isolation_of(slot));
        }
        self.begin(slot, Isolation::Exclusive);
        self.tally.exclusive += 1;
    }

    /// Returns whether an exclusive transaction is held.
    pub(super) fn holds_turn(&self) -> bool {
        self.held.transactions.iter().flatten().any(HeldTransaction::is_exclusive)
            || self.a_guest_holds_turn()
    }

    /// Returns a transaction that has just begun, with what is expected of it.
    pub(super) fn expecting<T>(&self, db: T, isolation: Isolation) -> HeldTransaction<T> {
        let newest = self.history.newest().clone();
        HeldTransaction::new(db, isolation, newest, self.now_ms(), self.history.len())
    }

    pub(super) fn transaction_write(&mut self, slot: usize, no: KeyspaceNo, write: &Write) {
        let (id, keyspace) = self.pick(no);
        let Some(mut transaction) = self.held.transactions[slot].take() else { return };
        if let Write::Put(key, value) = write
            && key.0.is_multiple_of(3)
        {
            // Undone writes have no effect.
            let undone = [Write::Remove(*key), Write::Put(KeyNo(key.0 / 2), *value), Write::Clear];
            let undone = &undone[..usize::from(key.0 / 3 % 4)];
            let point = transaction.db.savepoint();
            let tried =
                attempt(|| undone.iter().try_for_each(|w| perform::write(&mut transaction.db, &keyspace, w)));
            self.excused(tried);
            transaction.db.rollback_to(&point).expect("the savepoint was just made");
            self.tally.undone += u64::from(!undone.is_empty());
        }
        // A large transaction writes tables. A write that fails there is not part of the transaction.
        let outcome = attempt(|| perform::write(&mut transaction.db, &keyspace, write));
        if self.excused(outcome).is_some() {
            // The default lifetime is that at the time of the call.
            let write = write.dated(self.now_ms(), self.history.newest().lifetime_ms(id));
            self.expires |= write.expires();
            transaction.note_write(id, write);
        }
        self.held.transactions[slot] = Some(transaction);
    }

    /// Performs a read-modify-write change in the transaction.
    pub(super) fn transaction_update(&mut self, slot: usize, no: KeyspaceNo, update: Update) {
        let (id, keyspace) = self.pick(no);
        let Some(mut transaction) = self.held.transactions[slot].take() else { return };
        let lifetime_ms = self.history.newest().lifetime_ms(id);
        let written = transaction.state().update(id, update, self.now_ms(), lifetime_ms);
        let outcome =
            attempt(|| perform::update_within(&mut transaction.db.keyspace_mut(&keyspace), &update));
        transaction.note_update(id, update, outcome.is_ok());
        match written {
            Ok(write) => {
                if let (Some(()), Some(write)) = (self.excused(outcome), write) {
                    self.expires |= write.expires();
                    transaction.note_write(id, write);
                    self.tally.updated += 1;
                }
            }
            Err(NotANumber) => self.refused(outcome),
        }
        self.held.transactions[slot] = Some(transaction);
    }

    /// Opens a keyspace by name in the transaction.
    pub(super) fn transaction_open(&mut self, slot: usize, name: u8) {
        let name = NAMES[usize::from(name)];
        let Some(transaction) = &mut self.held.transactions[slot] else { return };
        let was_there = transaction.state().names().contains_key(name);
        match transaction.db.open_keyspace(name) {
            Err(Error::KeyspaceNotFound(_)) if !was_there => {
                if let Some([certain, _]) = &mut transaction.read {
                    certain.add_name(name);
                }
            }
            // A keyspace dropped meanwhile is not found.
            Ok(_) | Err(Error::KeyspaceNotFound(_)) => {
                if let Some([_, possible]) = &mut transaction.read {
                    possible.add_name(name);
                }
            }
            Err(error) => panic!("world.4: {error}"),
        }
    }

    /// Sets, rolls back to, or releases a savepoint.
    pub(super) fn point(&mut self, slot: usize, point: Point) {
        let now_ms = self.now_ms();
        let Some(transaction) = &mut self.held.transactions[slot] else { return };
        let at = |points: &[HeldPoint], back: u8| {
            points.len().checked_sub(1 + usize::from(back) % points.len().max(1))
        };
        match point {
            Point::Set => {
                let db = transaction.db.savepoint();
                let (state, writes) = (transaction.state.clone(), transaction.writes.len());
                transaction.points.push(HeldPoint { db, state, writes });
            }
            Point::Back(back) => {
                let Some(at) = at(&transaction.points, back) else { return };
                let forgotten = transaction.points.split_off(at + 1);
                let HeldPoint { db, state, writes } = &transaction.points[at];
                transaction.db.rollback_to(db).expect("the savepoint is there");
                (transaction.state, transaction.footprint) =
                    (state.clone(), Footprint::of(&transaction.writes[..*writes]));
                transaction.state.set_now(now_ms);
                transaction.note_undone(*writes);
                for point in forgotten {
                    let gone = transaction.db.rollback_to(&point.db);
                    assert!(matches!(gone, Err(Error::SavepointGone)), "world.1: a savepoint is back");
                }
                self.tally.undone += 1;
            }
            Point::Forget(back) => {
                let Some(at) = at(&transaction.points, back) else { return };
                let forgotten = transaction.points.split_off(at);
                let first = forgotten.into_iter().next().expect("it is the one");
                transaction.db.release(first.db).expect("the savepoint is there");
            }
        }
    }

    pub(super) fn commit(&mut self, transaction: HeldTransaction, durability: Durability) {
        let (db, expected) = transaction.split();
        let outcome = self.interleaved(|_| attempt(|| Ok(db.commit_with(durability).map(drop)?)));
        self.judge_commit(expected, outcome, durability);
    }

    /// Compares the outcome of a commit with what is expected (world.2), and notes it.
    pub(super) fn judge_commit(
        &mut self,
        expected: HeldTransaction<()>,
        outcome: Result<()>,
        durability: Durability,
    ) {
        let HeldTransaction { since, footprint, writes, read, .. } = expected;
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
                // Sweeps cause conflicts only with adopted transactions.
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
