//! Operations that a guest performs.

use std::time::Duration;

use esker::{Durability, Isolation, KeyspaceOptions, Result};
use esker_shared::{SharedBatch, SharedKeyspace, SharedTransaction};

use super::super::World;
use super::super::faults::{attempt, is_gone, unknown};
use super::super::transaction::isolation_of;
use super::reads::{Source, check_read};
use super::{DIR, Guest, Guests, Shared};
use crate::model::keys::{KeyNo, bounds, key};
use crate::model::state::{Id, NotANumber};
use crate::model::values::ValueNo;
use crate::op::{KeyspaceNo, NAMES, Op, Read, Reader, Update, Write, lifetime};
use crate::perform::OPERATOR;

/// In one of this many updates of transactions, time passes.
const PASSES_ONE_IN: u64 = 3;
/// More than most lifetimes.
const PASSES: Duration = Duration::from_millis(900);

type Shares<T> = esker_shared::Result<T>;

/// A target of a guest's writes: a batch and a transaction have the same methods.
macro_rules! write_to {
    ($target:expr, $keyspace:expr, $write:expr) => {
        match $write {
            Write::Put(no, value) => $target.put($keyspace, key(*no), value.bytes()),
            Write::PutFor(no, value, ms) => {
                $target.put_with_ttl($keyspace, key(*no), value.bytes(), lifetime(*ms))
            }
            Write::PutUntil(..) | Write::MergeAt(..) => panic!("the model's own"),
            Write::MergeFor(..) => panic!("guests have no handles with lifetimes"),
            Write::Merge(no, operand) => $target.merge($keyspace, key(*no), operand.bytes()),
            Write::Remove(no) => $target.delete($keyspace, key(*no)),
            Write::RemoveRange(range) => $target.delete_range($keyspace, bounds(*range)),
            Write::Clear => $target.delete_range($keyspace, ..),
        }
    };
}

/// Commits a write of its own.
fn write_alone(keyspace: &SharedKeyspace, write: &Write) -> Shares<()> {
    match write {
        Write::Put(no, value) => keyspace.put(key(*no), value.bytes()),
        Write::PutFor(no, value, ms) => keyspace.put_with_ttl(key(*no), value.bytes(), lifetime(*ms)),
        Write::PutUntil(..) | Write::MergeAt(..) => panic!("the model's own"),
        Write::MergeFor(..) => panic!("guests have no handles with lifetimes"),
        Write::Merge(no, operand) => keyspace.merge(key(*no), operand.bytes()),
        Write::Remove(no) => keyspace.delete(key(*no)),
        Write::RemoveRange(range) => keyspace.delete_range(bounds(*range)),
        Write::Clear => keyspace.clear(),
    }
    .map(drop)
}

/// Returns the value that a change makes of an old one.
fn changed(old: Option<&[u8]>, value: ValueNo) -> Option<Vec<u8>> {
    let old = old.and_then(ValueNo::parse);
    Some(old.map_or(value, |old| old.merged(value)).bytes())
}

/// Performs a read-modify-write change. Each is a transaction of its own, which runs again if its host goes.
fn update_alone(keyspace: &SharedKeyspace, update: &Update) -> Shares<()> {
    match update {
        Update::Change(no, value) => keyspace.update(key(*no), |old| changed(old, *value)).map(drop),
        Update::Swap(no, value, is_right) => {
            let old = keyspace.get(key(*no))?;
            let wrong = ValueNo::new(9, u32::MAX).bytes();
            let expected = if *is_right { old.as_deref() } else { Some(&wrong[..]) };
            let swap = keyspace.compare_and_swap(key(*no), expected, Some(&value.bytes()))?;
            assert_eq!((swap.swapped, &swap.old), (*is_right, &old), "world.12: compare_and_swap");
            Ok(())
        }
        Update::Add(no, sum) => {
            let add = crate::perform::addend(keyspace.get(key(*no))?.as_deref(), *sum);
            let old = keyspace.fetch_add(key(*no), add)?;
            assert_eq!(old + add, i64::from(*sum), "world.12: fetch_add");
            Ok(())
        }
        Update::Take(no) => keyspace.remove(key(*no)).map(drop),
        Update::PopFirst => keyspace.pop_first().map(drop),
        Update::PopLast => keyspace.pop_last().map(drop),
        Update::Expire(no, ms) => keyspace.expire(key(*no), lifetime(*ms)).map(drop),
        Update::Persist(no) => keyspace.persist(key(*no)).map(drop),
        Update::Lease(..) => panic!("guests have no such call"),
    }
}

/// Before some puts: makes writes in the transaction and undoes them.
fn write_and_undo(t: &mut SharedTransaction, keyspace: &SharedKeyspace, write: &Write) -> Shares<()> {
    let Write::Put(no, value) = write else { return Ok(()) };
    let undone = [Write::Clear, Write::Put(KeyNo(no.0 / 2), *value), Write::Remove(*no)];
    if !no.0.is_multiple_of(3) {
        return Ok(());
    }
    let point = t.savepoint()?;
    let tried = undone.iter().try_for_each(|undone| write_to!(t, keyspace, undone));
    t.rollback_to(&point)?;
    tried
}

/// Performs a read-modify-write change in a transaction. `pass` lets time pass between read and write.
fn update_within(
    transaction: &mut SharedTransaction,
    keyspace: &SharedKeyspace,
    update: &Update,
    pass: impl Fn(),
) -> Shares<()> {
    match update {
        Update::Change(no, value) => {
            let change = |old: Option<&[u8]>| {
                pass();
                changed(old, *value)
            };
            transaction.update(keyspace, key(*no), change).map(drop)
        }
        Update::Swap(no, value, is_right) => {
            let old = transaction.get(keyspace, key(*no))?;
            let wrong = ValueNo::new(9, u32::MAX).bytes();
            let expected = if *is_right { old.as_deref() } else { Some(&wrong[..]) };
            let swap = transaction.compare_and_swap(keyspace, key(*no), expected, Some(&value.bytes()))?;
            assert_eq!((swap.swapped, &swap.old), (*is_right, &old), "world.12: compare_and_swap");
            Ok(())
        }
        Update::Add(no, sum) => {
            let add = crate::perform::addend(transaction.get(keyspace, key(*no))?.as_deref(), *sum);
            let old = transaction.fetch_add(keyspace, key(*no), add)?;
            assert_eq!(old + add, i64::from(*sum), "world.12: fetch_add");
            Ok(())
        }
        Update::Take(no) => transaction.remove(keyspace, key(*no)).map(drop),
        Update::PopFirst => transaction.pop_first(keyspace).map(drop),
        Update::PopLast => transaction.pop_last(keyspace).map(drop),
        Update::Expire(no, ms) => transaction.expire(keyspace, key(*no), lifetime(*ms)).map(drop),
        Update::Persist(no) => transaction.persist(keyspace, key(*no)).map(drop),
        Update::Lease(..) => panic!("guests have no such call"),
    }
}

impl Guests {
    fn guest(&self) -> Result<&Guest> {
        self.guest.as_ref().ok_or_else(super::gone)
    }

    /// Returns the guest's handle of a keyspace. It stays valid whichever process is the host.
    fn handle(&self, id: Id, name: &str) -> Result<SharedKeyspace> {
        let guest = self.guest()?;
        if let Some(known) = guest.keyspaces.borrow().get(&id) {
            return Ok(known.clone());
        }
        let opened = self.said(guest.shared.open_keyspace(name))?;
        guest.keyspaces.borrow_mut().insert(id, opened.clone());
        Ok(opened)
    }
}

impl World {
    /// Begins a guest in seeds that share their database, if there is none.
    pub(in super::super) fn begin_guest(&mut self) {
        let Some(opening) = self.process.opening else { return };
        if self.guests.as_ref().is_none_or(|guests| guests.guest.is_some()) {
            return;
        }
        let opened = attempt(|| {
            let guests = self.guests();
            let builder = Shared::builder().engine(self.builder(opening));
            guests.said(builder.network(&guests.network).open(DIR))
        });
        let guest = self.excused(opened).map(Guest::new);
        self.guests.as_mut().expect("the seed has guests").guest = guest;
    }

    fn guests(&self) -> &Guests {
        self.guests.as_ref().expect("the seed has guests")
    }

    /// Returns the guest's handle of a keyspace that has the merge operator, if it is needed. Guests
    /// cannot set it.
    fn handle_for(&self, no: KeyspaceNo, write: Option<&Write>) -> Result<SharedKeyspace> {
        let (id, keyspace) = self.pick(no);
        if write.is_some_and(Write::is_merge) {
            keyspace.set_merge_operator(OPERATOR)?;
        }
        self.guests().handle(id, &keyspace.name())
    }

    /// Performs an operation of a guest whose outcome is judged like one of the host.
    pub(in super::super) fn done_by_guest(&self, op: &Op) -> Result<()> {
        let guests = self.guests();
        // Whether a keyspace was created, dropped or renamed is not asked for.
        if matches!(op, Op::Write(..) | Op::Batch(..) | Op::Update(..)) {
            self.set_loss();
        }
        let once = |result: Shares<()>| match guests.said(result) {
            // Not repeated: it may have been made.
            Err(error) if is_gone(&error) => Err(unknown()),
            said => said,
        };
        attempt(|| {
            let shared = &guests.guest()?.shared;
            match op {
                Op::Write(no, write) => {
                    let keyspace = self.handle_for(*no, Some(write))?;
                    guests.said(write_alone(&keyspace, write))
                }
                Op::Batch(writes, durability) => {
                    let mut batch = shared.batch();
                    for (no, write) in writes {
                        let keyspace = self.handle_for(*no, Some(write))?;
                        let batch: &mut SharedBatch = &mut batch;
                        guests.said(write_to!(batch, &keyspace, write))?;
                    }
                    guests.said(batch.commit_with(*durability).map(drop))
                }
                Op::Update(no, update) => guests.said(update_alone(&self.handle_for(*no, None)?, update)),
                Op::Create(new) => {
                    let (name, options) = (NAMES[usize::from(*new)], KeyspaceOptions::new());
                    once(shared.create_keyspace_with(name, &options).map(drop))
                }
                Op::Drop(no) => once(shared.drop_keyspace(&self.pick(*no).1.name())),
                Op::Rename(no, to) => {
                    once(shared.rename_keyspace(&self.pick(*no).1.name(), NAMES[usize::from(*to)]))
                }
                Op::Sync => guests.said(shared.sync()),
                other => panic!("{other:?} is not done by guests"),
            }
        })
    }

    /// Performs an operation of a guest. Returns false if it is performed as one of the host, by
    /// [`done_by_guest`](Self::done_by_guest).
    pub(in super::super) fn dispatch_to_guest(&mut self, op: &Op) -> bool {
        self.tally.by_guests += 1;
        match op {
            Op::Begin(slot) => self.begin_by_guest(*slot, isolation_of(*slot)),
            Op::BeginExclusive(slot) => {
                self.held.transactions[*slot] = None;
                self.drop_by_guest(*slot);
                let is_taken = self.holds_turn();
                self.tally.exclusive += u64::from(!is_taken);
                self.begin_by_guest(*slot, if is_taken { isolation_of(*slot) } else { Isolation::Exclusive });
            }
            Op::TransactionWrite(slot, no, write) => self.write_within_guest(*slot, *no, write),
            Op::TransactionUpdate(slot, no, update) => self.update_within_guest(*slot, *no, *update),
            Op::Commit(slot, _) => self.commit_by_guest(*slot),
            Op::Rollback(slot) => self.drop_by_guest(*slot),
            Op::Read(Reader::Transaction(slot), no, read) => self.read_within_guest(*slot, *no, read),
            Op::Read(_, no, read) => self.read_by_guest(*no, read),
            _ => return false,
        }
        true
    }

    /// Has the next operation lose what is due. While calls fail, the outcome of a commit could stay unknown.
    fn set_loss(&self) {
        let guests = self.guests();
        if !self.machine.faults.has_rules()
            && let Some((after, loss)) = guests.loss.take()
        {
            guests.network.lose(after, loss);
        }
    }

    fn drop_by_guest(&mut self, slot: usize) {
        if let Some(guest) = self.guests.as_mut().and_then(|guests| guests.guest.as_mut()) {
            guest.transactions[slot] = None;
        }
    }

    fn begin_by_guest(&mut self, slot: usize, isolation: Isolation) {
        self.held.transactions[slot] = None;
        self.drop_by_guest(slot);
        let guests = self.guests();
        let begun =
            attempt(|| guests.said(guests.guest()?.shared.transaction().isolation(isolation).begin()));
        let Some(db) = self.excused(begun) else { return };
        let held = self.expecting(db, isolation);
        if let Some(guest) = self.guests.as_mut().and_then(|guests| guests.guest.as_mut()) {
            guest.transactions[slot] = Some(held);
        }
    }

    /// Calls a transaction that the guest holds. Returns it with the outcome.
    fn within_guest<T>(
        &mut self,
        slot: usize,
        no: KeyspaceNo,
        write: Option<&Write>,
        call: impl FnOnce(&mut HeldByGuest, &SharedKeyspace) -> Shares<T>,
    ) -> Option<(HeldByGuest, Result<T>)> {
        let guest = self.guests.as_mut().and_then(|guests| guests.guest.as_mut())?;
        let mut held = guest.transactions[slot].take()?;
        let keyspace = attempt(|| self.handle_for(no, write));
        self.set_loss();
        let guests = self.guests();
        let outcome = keyspace.and_then(|keyspace| attempt(|| guests.said(call(&mut held, &keyspace))));
        Some((held, outcome))
    }

    /// Keeps a transaction, unless its connection has ended.
    fn keep_by_guest(&mut self, slot: usize, held: HeldByGuest, is_over: bool) {
        let guest = self.guests.as_mut().and_then(|guests| guests.guest.as_mut());
        if let Some(guest) = guest.filter(|_| !is_over) {
            guest.transactions[slot] = Some(held);
        }
    }

    fn write_within_guest(&mut self, slot: usize, no: KeyspaceNo, write: &Write) {
        let id = self.pick(no).0;
        let called = self.within_guest(slot, no, Some(write), |held, keyspace| {
            let transaction: &mut SharedTransaction = &mut held.db;
            write_and_undo(transaction, keyspace, write)?;
            write_to!(transaction, keyspace, write)
        });
        let Some((mut held, outcome)) = called else { return };
        let is_over = outcome.as_ref().is_err_and(is_gone);
        if self.excused(outcome).is_some() {
            let write = write.dated(self.now_ms(), self.history.newest().lifetime_ms(id));
            self.expires |= write.expires();
            held.note_write(id, write);
        }
        self.keep_by_guest(slot, held, is_over);
    }

    fn update_within_guest(&mut self, slot: usize, no: KeyspaceNo, update: Update) {
        if !super::is_of_guests(&update) {
            return;
        }
        let id = self.pick(no).0;
        let lifetime_ms = self.history.newest().lifetime_ms(id);
        let now_ms = self.now_ms();
        // An entry keeps the expiry that the read found, even if it has passed at the write.
        let passes = self.expires && self.tally.ops.is_multiple_of(PASSES_ONE_IN);
        let clock = self.machine.clock.clone();
        let pass = || {
            if passes {
                clock.advance(PASSES)
            }
        };
        let called = self.within_guest(slot, no, None, |held, keyspace| {
            update_within(&mut held.db, keyspace, &update, pass)
        });
        let Some((mut held, outcome)) = called else { return };
        let written = held.state().update(id, update, now_ms, lifetime_ms);
        held.note_update(id, update, outcome.is_ok());
        let is_over = outcome.as_ref().is_err_and(is_gone);
        match written {
            Ok(write) => {
                if let (Some(()), Some(write)) = (self.excused(outcome), write) {
                    self.expires |= write.expires();
                    held.note_write(id, write);
                    self.tally.updated += 1;
                }
            }
            Err(NotANumber) => self.refused(outcome),
        }
        self.keep_by_guest(slot, held, is_over);
    }

    fn commit_by_guest(&mut self, slot: usize) {
        let guest = self.guests.as_mut().and_then(|guests| guests.guest.as_mut());
        let Some(held) = guest.and_then(|guest| guest.transactions[slot].take()) else { return };
        self.set_loss();
        let (transaction, expected) = held.split();
        let outcome =
            self.interleaved(|world| attempt(|| world.guests().said(transaction.commit().map(drop))));
        if outcome.as_ref().is_err_and(is_gone) {
            // Nothing was written.
            self.excused(outcome);
            return;
        }
        // That of the database, because the transaction began without one.
        let durability = match self.durability() {
            Durability::None => Durability::Buffered,
            more => more,
        };
        self.judge_commit(expected, outcome, durability);
    }

    fn read_by_guest(&mut self, no: KeyspaceNo, read: &Read) {
        let id = self.pick(no).0;
        let map = self.history.newest().map(id);
        let keyspace = attempt(|| self.handle_for(no, None));
        self.set_loss();
        let guests = self.guests();
        let found = keyspace.and_then(|keyspace| {
            attempt(|| guests.said(check_read(&Source::Latest(&keyspace), &map, read, self.expires)))
        });
        // A range of several parts, or a lookup of several keys, ends with its connection.
        if found.as_ref().is_err_and(is_gone) {
            self.excused(found);
            return;
        }
        self.read(found);
    }

    fn read_within_guest(&mut self, slot: usize, no: KeyspaceNo, read: &Read) {
        let id = self.pick(no).0;
        let expires = self.expires;
        let called = self.within_guest(slot, no, None, |held, keyspace| {
            let map = held.state().map(id);
            check_read(&Source::Within(&held.db, keyspace), &map, read, expires)
        });
        let Some((mut held, outcome)) = called else { return };
        held.note_read(id, read, outcome.is_ok());
        let is_over = outcome.as_ref().is_err_and(is_gone);
        match is_over {
            true => drop(self.excused(outcome)),
            false => drop(self.read(outcome)),
        }
        self.keep_by_guest(slot, held, is_over);
    }
}

type HeldByGuest = super::HeldTransaction<SharedTransaction>;
