//! Clients: threads that work on one database and write down what they did, what they saw, and when.
//!
//! ```text
//!   client --register, lists, bank, counter, fork--> Db       each call between two ticks of one clock --> Record
//! ```
//!
//! clients.1. A tick before a call and one after it: if one call's second tick is smaller than another's first, then the first
//!      call was over before the other began.
//! clients.2. Keys change as the clients go on, so that each has a short history of many clients at once.
//!      Clients come to the two keys of a group at about the same moment.
//! clients.3. In a process that will be killed, what may take effect is written down before it can, and what was seen after it was.
//! clients.4. Where faults are injected, a write that fails since all writes have stopped is recorded as one that never returned, and the
//!      client ends: the crash that follows decides whether it took effect. A read has no excuse.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use esker::{Db, Keyspace};
use fastrand::Rng;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Canary;
use super::guests::Guests;
use super::linear::Action;
use super::list_store::ListStore;
use super::lists::{Access, Element, Outcome, Promise};
use super::notes::{Line, Notes};
use super::transaction::{Tx, Way, walk, wander};
use esker_world::failure::{Failure, Result, or_stopped};

const ACCOUNTS: u8 = 6;
const DEPOSIT: u64 = 100;
/// Each process gives out unique numbers of its own, 2 to the power of this.
const LIFE_SHIFT: u32 = 24;
/// Registers that one call may write or read, and those that are in use at a time.
const REGISTERS: u64 = 3;
/// Lists in use at a time.
const LISTS: u64 = 4;
/// After so many calls of all clients they go on to the next group of two keys.
const GROUP_CALLS: u64 = 32;
/// How long a client waits when a commit was refused: the disk is full, or fails.
const REFUSED_PAUSE: Duration = Duration::from_micros(100);
/// All the money there is.
pub(crate) const MONEY: u64 = ACCOUNTS as u64 * DEPOSIT;

/// Something a client did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    Register(u64, Action),
    Lists(Vec<Access>, Outcome, Promise),
    /// The sum of all accounts in one snapshot.
    Bank(u64),
    /// Of the one counter.
    Counter(Action),
    /// Which of a group's two keys were there in one snapshot.
    Fork(u64, bool, bool),
}

/// When, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) called: u64,
    pub(crate) returned: u64,
    pub(crate) event: Event,
}

/// What all clients of a history share, over all lives of its database.
#[derive(Debug, Default)]
pub(crate) struct World {
    clock: AtomicU64,
    unique: AtomicU32,
    /// Calls done.
    pub(crate) progress: AtomicU64,
    /// Clients are to end.
    pub(crate) stop: AtomicBool,
    /// The disk is full at times (full_disk.1).
    pub(crate) may_be_full: AtomicBool,
    /// Writes of tables, of the manifest and of names may fail (failing_disk.1).
    pub(super) may_fail: AtomicBool,
    /// Commits that failed for one of the two.
    pub(crate) refused: AtomicU64,
    pub(super) canary: Option<Canary>,
    /// What the canary's keys held, by the name of their keyspace.
    pub(super) ghosts: Mutex<BTreeMap<(usize, u64), Vec<u8>>>,
}

impl World {
    pub(crate) fn new(canary: Option<Canary>) -> Self {
        World { canary, ..World::default() }
    }

    /// For a life that begins at a moment, after the lives of other processes.
    pub(crate) fn resumed(canary: Option<Canary>, clock: u64, life: u64) -> Self {
        let unique = AtomicU32::new((life as u32) << LIFE_SHIFT);
        World { clock: AtomicU64::new(clock), unique, canary, ..World::default() }
    }

    /// The next moment. Sequentially consistent: this is what orders the calls of different threads (clients.1).
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Whether a call that writes may fail like this, and has done nothing then (full_disk.1, failing_disk.1).
    pub(super) fn excuses(&self, failure: &Failure) -> bool {
        let is_of_disk = failure.is_injected() && !failure.is_of_stopped_writes();
        self.may_be_full.load(Ordering::Relaxed) && failure.is_of_full_disk()
            || self.may_fail.load(Ordering::Relaxed) && is_of_disk
    }

    pub(super) fn unique(&self) -> u32 {
        // Only uniqueness is asked for.
        self.unique.fetch_add(1, Ordering::Relaxed)
    }
}

/// The keyspaces that clients use.
pub(crate) struct Places {
    pub(crate) db: Db,
    registers: Keyspace,
    lists: ListStore,
    bank: Keyspace,
    counter: Keyspace,
    forks: Keyspace,
    pub(super) guests: Guests,
}

impl Places {
    /// Opens them, and deposits the money unless it has been seen before: then it must not be gone.
    pub(crate) fn new(db: &Db, has_money: bool) -> Result<Self> {
        let bank = db.keyspace("bank")?;
        if !has_money && bank.is_empty()? {
            let mut batch = db.batch();
            for account in 0..ACCOUNTS {
                batch.put(&bank, [account], DEPOSIT.to_le_bytes())?;
            }
            batch.commit_with(esker::Durability::Sync)?;
        }
        Ok(Places {
            db: db.clone(),
            registers: db.keyspace("registers")?,
            lists: ListStore::new(db)?,
            bank,
            counter: db.keyspace("counter")?,
            forks: db.keyspace("forks")?,
            guests: Guests::default(),
        })
    }

    pub(super) fn registers(&self) -> &Keyspace {
        &self.registers
    }
}

/// What has become of writes.
pub(super) enum Written {
    Made,
    /// Nothing, for want of space (full_disk.1) or of a table, a manifest or a name (failing_disk.1).
    Refused,
    /// Nothing, for there is no such keyspace.
    Gone(Failure),
}

/// One client.
pub(crate) struct Client<'a> {
    pub(crate) world: &'a World,
    pub(crate) places: &'a Places,
    pub(crate) id: usize,
    pub(crate) rng: Rng,
    pub(crate) records: Vec<Record>,
    /// Where the records go instead, if the process will be killed.
    pub(crate) notes: Option<&'a Notes>,
}

impl Client<'_> {
    /// Works until told to end, until `ops` are done, or until an injected fault has stopped all writes (clients.4).
    pub(crate) fn run(mut self, ops: Range<u64>) -> Result<Vec<Record>> {
        or_stopped(self.work(ops))?;
        Ok(self.records)
    }

    fn work(&mut self, ops: Range<u64>) -> Result<()> {
        // Groups of different lives are apart.
        let first_group = ops.start << u32::BITS;
        let mut last_group = None;
        let hangs_at = ops.start + 20;
        for n in ops {
            if self.world.stop.load(Ordering::Relaxed) {
                break;
            }
            if self.world.canary == Some(Canary::Hang) && self.id == 0 && n == hangs_at {
                loop {
                    std::thread::park();
                }
            }
            let group = first_group + self.world.progress.load(Ordering::Relaxed) / GROUP_CALLS;
            if last_group.replace(group) != Some(group) {
                self.fork(group)?;
            }
            match self.rng.u8(0..21) {
                0..8 => self.register(n / 30 * REGISTERS)?,
                8..14 => self.lists(n / 20 * 3)?,
                14..16 => self.transfer()?,
                16 => self.read_bank()?,
                17 => self.read_lists(n / 20 * 3)?,
                18 | 19 => self.visit_guest(n / 30 * REGISTERS)?,
                _ => self.increment()?,
            }
            self.world.progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Before a call that may take effect (clients.3).
    fn announce(&self, called: u64, event: impl FnOnce() -> Event) -> Result<()> {
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Called { called, event: event() })?),
            None => Ok(()),
        }
    }

    pub(super) fn record(&mut self, called: u64, event: Event) -> Result<()> {
        let returned = self.world.tick();
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Returned { called, returned, event: Some(event) })?),
            None => {
                self.records.push(Record { called, returned, event });
                Ok(())
            }
        }
    }

    /// After a call that was announced and took no effect.
    fn take_back(&self, called: u64) -> Result<()> {
        let returned = self.world.tick();
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Returned { called, returned, event: None })?),
            None => Ok(()),
        }
    }

    /// After writes that failed: nobody knows whether they took effect (clients.4).
    fn leave_open(&mut self, calls: Vec<(u64, Event)>, failure: Failure) -> Result<()> {
        let open = calls.into_iter().map(|(called, event)| Record { called, returned: u64::MAX, event });
        self.records.extend(open);
        Err(failure.of_write())
    }

    /// Whether a commit has failed, and was not made (full_disk.1, failing_disk.1).
    pub(super) fn is_refused(&self, failure: &Failure) -> bool {
        let is_refused = self.world.excuses(failure);
        if is_refused {
            self.world.refused.fetch_add(1, Ordering::Relaxed);
            // If this cannot be written, no later note can.
            let _ = self.notes.map(|notes| notes.write(&Line::Refused));
            std::thread::sleep(REFUSED_PAUSE);
        }
        is_refused
    }

    /// A success in place of a commit that was refused, of which there is no record.
    pub(super) fn or_refused(&self, failure: Failure) -> Result<()> {
        if self.is_refused(&failure) { Ok(()) } else { Err(failure.of_write()) }
    }

    fn register(&mut self, first_key: u64) -> Result<()> {
        let keys = first_key..first_key + REGISTERS;
        let key = self.rng.u64(keys.clone());
        match self.rng.u8(0..20) {
            0..6 => self.put(key),
            6 => self
                .write(&[(key, None)], |places| Ok(places.registers.remove(key.to_be_bytes()).map(drop)?)),
            7 => self.write_batch(keys),
            8 => self.remove_range(key..keys.end),
            9 => self.walk_registers(keys),
            _ => self.read_register(key),
        }
    }

    /// Makes some writes with one call, whose effect on each key is an operation of its own (torture_history.1), unless it is refused.
    pub(super) fn write(
        &mut self,
        writes: &[(u64, Option<u64>)],
        call: impl FnOnce(&Places) -> Result<()>,
    ) -> Result<()> {
        match self.try_write(writes, false, call)? {
            Written::Gone(failure) => Err(failure),
            Written::Made | Written::Refused => Ok(()),
        }
    }

    /// The same where a keyspace may be gone.
    pub(super) fn try_write(
        &mut self,
        writes: &[(u64, Option<u64>)],
        may_be_gone: bool,
        call: impl FnOnce(&Places) -> Result<()>,
    ) -> Result<Written> {
        let mut events = Vec::new();
        for &(key, value) in writes {
            let (called, event) = (self.world.tick(), Event::Register(key, Action::Write(value)));
            self.announce(called, || event.clone())?;
            events.push((called, event));
        }
        if self.world.canary == Some(Canary::EarlyReply) && !may_be_gone {
            events.into_iter().try_for_each(|(called, event)| self.record(called, event))?;
            return call(self.places).map(|()| Written::Made);
        }
        let written = match call(self.places) {
            Ok(()) => Written::Made,
            Err(failure) if self.is_refused(&failure) => Written::Refused,
            Err(failure) if failure.is_of_gone_keyspace() => Written::Gone(failure),
            Err(failure) => return self.leave_open(events, failure).map(|()| Written::Refused),
        };
        for (called, event) in events {
            match written {
                Written::Made => self.record(called, event)?,
                Written::Refused | Written::Gone(_) => self.take_back(called)?,
            }
        }
        Ok(written)
    }

    fn put(&mut self, key: u64) -> Result<()> {
        let value = u64::from(self.world.unique());
        self.write(&[(key, Some(value))], |places| {
            Ok(places.registers.put(key.to_be_bytes(), value.to_le_bytes()).map(drop)?)
        })
    }

    fn write_batch(&mut self, keys: Range<u64>) -> Result<()> {
        let mut writes = Vec::new();
        for key in keys {
            let value = u64::from(self.world.unique());
            writes.push((key, self.rng.bool().then_some(value)));
        }
        self.write(&writes, |places| {
            let mut batch = places.db.batch();
            for (key, value) in &writes {
                match value {
                    Some(value) => batch.put(&places.registers, key.to_be_bytes(), value.to_le_bytes())?,
                    None => batch.remove(&places.registers, key.to_be_bytes())?,
                }
            }
            Ok(batch.commit().map(drop)?)
        })
    }

    fn remove_range(&mut self, keys: Range<u64>) -> Result<()> {
        let writes: Vec<_> = keys.clone().map(|key| (key, None)).collect();
        self.write(&writes, |places| {
            Ok(places.registers.remove_range(keys.start.to_be_bytes()..keys.end.to_be_bytes()).map(drop)?)
        })
    }

    fn read_register(&mut self, key: u64) -> Result<()> {
        let name = key.to_be_bytes();
        if self.world.canary == Some(Canary::StaleReads) {
            // The canary reads from a snapshot that a write of its own has outrun.
            let old = self.places.db.snapshot();
            self.put(key)?;
            let called = self.world.tick();
            let value = old.get(&self.places.registers, name)?;
            return self.record(called, Event::Register(key, Action::Read(value.as_deref().map(number))));
        }
        let called = self.world.tick();
        let value = self.places.registers.get(name)?;
        self.record(called, Event::Register(key, Action::Read(value.as_deref().map(number))))
    }

    /// Reads registers in one walk, which for each of them is a read of its own.
    fn walk_registers(&mut self, keys: Range<u64>) -> Result<()> {
        let called: Vec<u64> = keys.clone().map(|_| self.world.tick()).collect();
        let found = match self.rng.bool() {
            true => wander(self.places.registers.cursor()?, &keys, &mut self.rng)?,
            false => walk(&keys, Way::draw(&mut self.rng), |bounds| self.places.registers.range(bounds))?,
        };
        for (key, called) in keys.zip(called) {
            let value = found.get(&key).map(|value| number(value));
            self.record(called, Event::Register(key, Action::Read(value)))?;
        }
        Ok(())
    }

    fn lists(&mut self, first_key: u64) -> Result<()> {
        let called = self.world.tick();
        let (world, lists) = (self.world, &self.places.lists);
        let mut tx = Tx::begin_any(self.places, world.canary);
        let promise = tx.promise();
        let mut accesses = Vec::new();
        let keys = first_key..first_key + LISTS;
        for _ in 0..self.rng.usize(1..=4) {
            let key = self.rng.u64(keys.clone());
            match self.rng.u8(0..18) {
                0..3 => {
                    let way = Way::draw(&mut self.rng);
                    let found = lists.walk(|keyspace| tx.walk(keyspace, &keys, way))?;
                    accesses.extend(reads(keys.clone(), &found));
                }
                3 => lists.empty(&mut tx, key..self.rng.u64(key..keys.end) + 1, |key| {
                    let mark = world.unique();
                    accesses.push(Access::Append(key, mark));
                    mark
                })?,
                _ => {
                    let list = lists.get(key, |keyspace, key| tx.get(keyspace, key))?;
                    let append = self.rng.bool();
                    if !append || self.rng.bool() {
                        accesses.push(Access::Read(key, list));
                    }
                    if append {
                        let element = world.unique();
                        accesses.push(Access::Append(key, element));
                        lists.append(&mut tx, key, element)?;
                    }
                }
            }
        }
        self.announce(called, || Event::Lists(accesses.clone(), Outcome::Unknown, promise))?;
        let outcome = match tx.commit() {
            Ok(true) => Outcome::Committed,
            Ok(false) => Outcome::Aborted,
            Err(failure) if self.is_refused(&failure) => Outcome::Aborted,
            Err(failure) => {
                let event = Event::Lists(accesses, Outcome::Committed, promise);
                return self.leave_open(vec![(called, event)], failure);
            }
        };
        self.record(called, Event::Lists(accesses, outcome, promise))
    }

    /// Reads lists in a transaction that writes nothing and is given up, with cursors that turn round.
    fn read_lists(&mut self, first_key: u64) -> Result<()> {
        let called = self.world.tick();
        let mut tx = Tx::begin(self.places, self.world.canary);
        let keys = first_key..first_key + LISTS;
        let found = self.places.lists.walk(|keyspace| tx.wander(keyspace, &keys, &mut self.rng))?;
        self.record(called, read_only(reads(keys, &found).collect()))
    }

    fn transfer(&mut self) -> Result<()> {
        let bank = self.places.bank.clone();
        let from = self.rng.u8(0..ACCOUNTS);
        let to = (from + self.rng.u8(1..ACCOUNTS)) % ACCOUNTS;
        let mut tx = Tx::begin(self.places, self.world.canary);
        let money = |value: Option<Vec<u8>>| value.as_deref().map_or(0, number);
        let (had, has) = (money(tx.get(&bank, &[from])?), money(tx.get(&bank, &[to])?));
        let amount = self.rng.u64(0..=had);
        tx.put(&bank, &[from], (had - amount).to_le_bytes().to_vec())?;
        tx.put(&bank, &[to], (has + amount).to_le_bytes().to_vec())?;
        tx.commit().map(drop).or_else(|failure| self.or_refused(failure))
    }

    fn read_bank(&mut self) -> Result<()> {
        let called = self.world.tick();
        let mut tx = Tx::begin(self.places, self.world.canary);
        let mut sum = 0;
        for account in 0..ACCOUNTS {
            sum += tx.get(&self.places.bank, &[account])?.as_deref().map_or(0, number);
        }
        self.record(called, Event::Bank(sum))
    }

    fn increment(&mut self) -> Result<()> {
        let called = self.world.tick();
        let counter = self.places.counter.clone();
        let mut tx = Tx::begin(self.places, self.world.canary);
        let n = tx.get(&counter, b"n")?.as_deref().map_or(0, number);
        tx.put(&counter, b"n", (n + 1).to_le_bytes().to_vec())?;
        let event = Event::Counter(Action::Increment(n));
        self.announce(called, || event.clone())?;
        match tx.commit() {
            Ok(true) => self.record(called, event),
            Ok(false) => self.take_back(called),
            Err(failure) if self.is_refused(&failure) => self.take_back(called),
            Err(failure) => self.leave_open(vec![(called, event)], failure),
        }
    }

    /// Looks at the two keys of a group again and again, and writes one of them if that is this client's task.
    fn fork(&mut self, group: u64) -> Result<()> {
        let snapshots = self.rng.usize(1..=4);
        let writes_at = (self.id < 2).then(|| self.rng.usize(0..=snapshots));
        for n in 0..=snapshots {
            if writes_at == Some(n) {
                let put =
                    self.places.forks.put(fork_key(group, self.id), "").map(drop).map_err(Failure::from);
                put.or_else(|failure| self.or_refused(failure))?;
            }
            if n < snapshots {
                self.read_fork(group)?;
            }
        }
        Ok(())
    }

    fn read_fork(&mut self, group: u64) -> Result<()> {
        let called = self.world.tick();
        let mut tx = Tx::begin(self.places, self.world.canary);
        let mut seen = [false; 2];
        let first = self.rng.usize(0..2);
        for side in [first, 1 - first] {
            seen[side] = tx.get(&self.places.forks, &fork_key(group, side))?.is_some();
        }
        self.record(called, Event::Fork(group, seen[0], seen[1]))
    }

    /// Flushes and writes when there is space again: that must succeed (full_disk.2).
    pub(crate) fn write_after_full(&mut self, ops: u64) -> Result<()> {
        let flushed = self.places.db.flush().map_err(Failure::from);
        flushed.map_err(|failure| failure.during("flushing when there is space again"))?;
        self.put(ops / 30 * REGISTERS).map_err(|failure| failure.during("writing when there is space again"))
    }

    /// Flushes and writes when nothing fails any more: that must succeed (failing_disk.2). If the log `may_have_stopped`, both may say so instead;
    /// returns whether they do.
    pub(super) fn write_after_faults(&mut self, ops: u64, may_have_stopped: bool) -> Result<bool> {
        let flushed = self.places.db.flush().map_err(|error| Failure::from(error).of_write());
        let is_stopped = may_have_stopped && flushed.as_ref().is_err_and(Failure::is_of_stopped_writes);
        let flushed = if is_stopped { or_stopped(flushed) } else { flushed };
        flushed.map_err(|failure| failure.during("flushing when nothing fails any more"))?;
        let put = self.put(ops / 30 * REGISTERS);
        if is_stopped && put.is_ok() {
            return Err(Failure::new(
                "failing_disk.2: a write succeeds although a flush says that writes have stopped",
            ));
        }
        let put = if is_stopped { or_stopped(put) } else { put };
        put.map_err(|failure| failure.during("writing when nothing fails any more"))?;
        Ok(is_stopped)
    }

    /// Reads everything that clients of `ops` calls each may have written, with nobody else at work.
    pub(crate) fn audit(&mut self, ops: u64) -> Result<()> {
        for key in 0..ops / 30 * REGISTERS + REGISTERS {
            let called = self.world.tick();
            let value = self.places.registers.get(key.to_be_bytes())?.as_deref().map(number);
            self.record(called, Event::Register(key, Action::Read(value)))?;
        }
        let called = self.world.tick();
        let snapshot = self.places.db.snapshot();
        let mut accesses = Vec::new();
        let keys = 0..ops / 20 * 3 + LISTS;
        for key in keys.clone() {
            let list = self
                .places
                .lists
                .get(key, |keyspace, key| Ok(snapshot.get(keyspace, key)?.map(|value| value.to_vec())))?;
            accesses.push(Access::Read(key, list));
        }
        self.record(called, read_only(accesses))?;
        let called = self.world.tick();
        let transaction = self.places.db.begin();
        let way = Way::draw(&mut self.rng);
        let found = self
            .places
            .lists
            .walk(|keyspace| walk(&keys, way, |bounds| transaction.range(keyspace, bounds)))?;
        self.record(called, read_only(reads(keys, &found).collect()))?;
        self.audit_guests()?;
        self.read_bank()?;
        let called = self.world.tick();
        let count = self.places.counter.get("n")?;
        self.record(called, Event::Counter(Action::Read(count.as_deref().map(number))))
    }
}

/// The key of one side of a group.
fn fork_key(group: u64, side: usize) -> Vec<u8> {
    [&group.to_be_bytes()[..], &[side as u8]].concat()
}

/// A transaction that has read lists and written nothing: it is as of the moment at which it began, whatever it was promised.
fn read_only(reads: Vec<Access>) -> Event {
    Event::Lists(reads, Outcome::Committed, Promise::Snapshot)
}

/// The lists of some keys, of those that are there, as reads.
fn reads(keys: Range<u64>, found: &BTreeMap<u64, Vec<Element>>) -> impl Iterator<Item = Access> {
    keys.map(|key| Access::Read(key, found.get(&key).cloned().unwrap_or_default()))
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
