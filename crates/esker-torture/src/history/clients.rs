//! Clients: threads that use one database and record their calls, results and times.
//!
//! ```text
//!   client --register, lists, bank, counter, fork--> Db       each call between two ticks --> Record
//! ```
//!
//! If the second tick of one call is smaller than the first tick of another, the first call ended before the
//! other began. Keys change over time, so that each has a short history with many concurrent clients. In a
//! process that will be killed, a call that may take effect is recorded before it starts, and its result
//! after it returned.
//!
//! - After injected faults, a write that fails because all writes have stopped is recorded like a write that
//!   never returned, and the client ends: the following crash decides whether it took effect. Failed reads
//!   are errors.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;

use super::canary::Canary;
use super::events::{Event, Record};
use super::keyspaces::{ACCOUNTS, Keyspaces};
use super::linear::Action;
use super::lists::{Access, Element, Outcome, Promise};
use super::notes::{Line, Notes};
use super::shared::Shared;
use super::transaction::{Direction, Tx, walk, wander};
use esker_world::failure::{Failure, Result, or_stopped};

/// Number of registers in use at a time, and the maximum per call.
const REGISTERS: u64 = 3;
/// Number of lists in use at a time.
const LISTS: u64 = 4;
/// After this many calls, all clients move to the next group of two keys.
const GROUP_CALLS: u64 = 32;
/// Pause of a client after a refused commit.
const REFUSED_PAUSE: Duration = Duration::from_micros(100);
/// The outcome of a write.
pub(super) enum Written {
    Made,
    /// No effect, because of a full or failing disk.
    Refused,
    /// No effect, because the keyspace does not exist.
    KeyspaceDropped(Failure),
}

/// One client.
pub(crate) struct Client<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) keyspaces: &'a Keyspaces,
    pub(crate) id: usize,
    pub(crate) rng: Rng,
    pub(crate) records: Vec<Record>,
    /// Receives the records instead, if the process will be killed.
    pub(crate) notes: Option<&'a Notes>,
}

impl<'a> Client<'a> {
    /// Works until stopped, until `ops` calls are done, or until an injected fault stops all writes.
    pub(crate) fn run(mut self, ops: Range<u64>) -> Result<Vec<Record>> {
        or_stopped(self.work(ops))?;
        Ok(self.records)
    }

    fn work(&mut self, ops: Range<u64>) -> Result<()> {
        // Each life has its own groups.
        let first_group = ops.start << u32::BITS;
        let mut last_group = None;
        let hangs_at = ops.start + 20;
        for n in ops {
            if self.shared.stop.load(Ordering::Relaxed) {
                break;
            }
            if self.shared.canary == Some(Canary::Hang) && self.id == 0 && n == hangs_at {
                loop {
                    std::thread::park();
                }
            }
            let group = first_group + self.shared.progress.load(Ordering::Relaxed) / GROUP_CALLS;
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
            self.shared.progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Begins a transaction.
    fn begin(&self) -> Tx<'a> {
        Tx::begin(&self.keyspaces.db, self.shared.canary)
    }

    /// Records a call that may take effect, before it starts.
    fn announce(&self, called: u64, event: impl FnOnce() -> Event) -> Result<()> {
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Called { called, event: event() })?),
            None => Ok(()),
        }
    }

    pub(super) fn record(&mut self, called: u64, event: Event) -> Result<()> {
        let returned = self.shared.tick();
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Returned { called, returned, event: Some(event) })?),
            None => {
                self.records.push(Record { called, returned, event });
                Ok(())
            }
        }
    }

    /// Records that an announced call had no effect.
    fn take_back(&self, called: u64) -> Result<()> {
        let returned = self.shared.tick();
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Returned { called, returned, event: None })?),
            None => Ok(()),
        }
    }

    /// Records failed writes whose effect is unknown.
    fn leave_open(&mut self, calls: Vec<(u64, Event)>, failure: Failure) -> Result<()> {
        let open = calls.into_iter().map(|(called, event)| Record { called, returned: u64::MAX, event });
        self.records.extend(open);
        Err(failure.of_write())
    }

    /// Returns whether a commit failed without effect.
    pub(super) fn is_refused(&self, failure: &Failure) -> bool {
        let is_refused = self.shared.excuses(failure);
        if is_refused {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            // If this note cannot be written, neither can later ones.
            let _ = self.notes.map(|notes| notes.write(&Line::Refused));
            std::thread::sleep(REFUSED_PAUSE);
        }
        is_refused
    }

    /// Ignores a refused commit, which is not recorded.
    pub(super) fn or_refused(&self, failure: Failure) -> Result<()> {
        if self.is_refused(&failure) { Ok(()) } else { Err(failure.of_write()) }
    }

    fn register(&mut self, first_key: u64) -> Result<()> {
        let keys = first_key..first_key + REGISTERS;
        let key = self.rng.u64(keys.clone());
        match self.rng.u8(0..20) {
            0..6 => self.put(key),
            6 => self.write(&[(key, None)], |keyspaces| {
                Ok(keyspaces.registers.delete(key.to_be_bytes()).map(drop)?)
            }),
            7 => self.write_batch(keys),
            8 => self.delete_range(key..keys.end),
            9 => self.walk_registers(keys),
            _ => self.read_register(key),
        }
    }

    /// Performs writes by one call and records the effect on each key as a separate operation, unless the
    /// call is refused.
    pub(super) fn write(
        &mut self,
        writes: &[(u64, Option<u64>)],
        call: impl FnOnce(&Keyspaces) -> Result<()>,
    ) -> Result<()> {
        match self.try_write(writes, false, call)? {
            Written::KeyspaceDropped(failure) => Err(failure),
            Written::Made | Written::Refused => Ok(()),
        }
    }

    /// Does the same in a keyspace that may be dropped.
    pub(super) fn try_write(
        &mut self,
        writes: &[(u64, Option<u64>)],
        may_be_gone: bool,
        call: impl FnOnce(&Keyspaces) -> Result<()>,
    ) -> Result<Written> {
        let mut events = Vec::new();
        for &(key, value) in writes {
            let (called, event) = (self.shared.tick(), Event::Register(key, Action::Write(value)));
            self.announce(called, || event.clone())?;
            events.push((called, event));
        }
        if self.shared.canary == Some(Canary::EarlyReply) && !may_be_gone {
            events.into_iter().try_for_each(|(called, event)| self.record(called, event))?;
            return call(self.keyspaces).map(|()| Written::Made);
        }
        let written = match call(self.keyspaces) {
            Ok(()) => Written::Made,
            Err(failure) if self.is_refused(&failure) => Written::Refused,
            Err(failure) if failure.is_of_gone_keyspace() => Written::KeyspaceDropped(failure),
            Err(failure) => return self.leave_open(events, failure).map(|()| Written::Refused),
        };
        for (called, event) in events {
            match written {
                Written::Made => self.record(called, event)?,
                Written::Refused | Written::KeyspaceDropped(_) => self.take_back(called)?,
            }
        }
        Ok(written)
    }

    fn put(&mut self, key: u64) -> Result<()> {
        let value = u64::from(self.shared.unique());
        self.write(&[(key, Some(value))], |keyspaces| {
            Ok(keyspaces.registers.put(key.to_be_bytes(), value.to_le_bytes()).map(drop)?)
        })
    }

    fn write_batch(&mut self, keys: Range<u64>) -> Result<()> {
        let mut writes = Vec::new();
        for key in keys {
            let value = u64::from(self.shared.unique());
            writes.push((key, self.rng.bool().then_some(value)));
        }
        self.write(&writes, |keyspaces| {
            let mut batch = keyspaces.db.batch();
            for (key, value) in &writes {
                match value {
                    Some(value) => batch.put(&keyspaces.registers, key.to_be_bytes(), value.to_le_bytes())?,
                    None => batch.delete(&keyspaces.registers, key.to_be_bytes())?,
                }
            }
            Ok(batch.commit().map(drop)?)
        })
    }

    fn delete_range(&mut self, keys: Range<u64>) -> Result<()> {
        let writes: Vec<_> = keys.clone().map(|key| (key, None)).collect();
        self.write(&writes, |keyspaces| {
            Ok(keyspaces
                .registers
                .delete_range(keys.start.to_be_bytes()..keys.end.to_be_bytes())
                .map(drop)?)
        })
    }

    fn read_register(&mut self, key: u64) -> Result<()> {
        let name = key.to_be_bytes();
        if self.shared.canary == Some(Canary::StaleReads) {
            // The canary reads a snapshot older than a write of its own.
            let old = self.keyspaces.db.snapshot();
            self.put(key)?;
            let called = self.shared.tick();
            let value = old.get(&self.keyspaces.registers, name)?;
            return self.record(called, Event::Register(key, Action::Read(value.as_deref().map(number))));
        }
        let called = self.shared.tick();
        let value = self.keyspaces.registers.get(name)?;
        self.record(called, Event::Register(key, Action::Read(value.as_deref().map(number))))
    }

    /// Reads registers by one scan, recorded as a separate read of each.
    fn walk_registers(&mut self, keys: Range<u64>) -> Result<()> {
        let called: Vec<u64> = keys.clone().map(|_| self.shared.tick()).collect();
        let found = match self.rng.bool() {
            true => wander(self.keyspaces.registers.cursor()?, &keys, &mut self.rng)?,
            false => {
                walk(&keys, Direction::draw(&mut self.rng), |bounds| self.keyspaces.registers.range(bounds))?
            }
        };
        for (key, called) in keys.zip(called) {
            let value = found.get(&key).map(|value| number(value));
            self.record(called, Event::Register(key, Action::Read(value)))?;
        }
        Ok(())
    }

    fn lists(&mut self, first_key: u64) -> Result<()> {
        let called = self.shared.tick();
        let (shared, lists) = (self.shared, &self.keyspaces.lists);
        let mut tx = Tx::begin_any(&self.keyspaces.db, shared.canary);
        let promise = tx.promise();
        let mut accesses = Vec::new();
        let keys = first_key..first_key + LISTS;
        for _ in 0..self.rng.usize(1..=4) {
            let key = self.rng.u64(keys.clone());
            match self.rng.u8(0..18) {
                0..3 => {
                    let direction = Direction::draw(&mut self.rng);
                    let found = lists.walk(|keyspace| tx.walk(keyspace, &keys, direction))?;
                    accesses.extend(reads(keys.clone(), &found));
                }
                3 => lists.empty(&mut tx, key..self.rng.u64(key..keys.end) + 1, |key| {
                    let mark = shared.unique();
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
                        let element = shared.unique();
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

    /// Reads lists in a transaction that writes nothing, with cursors that change direction.
    fn read_lists(&mut self, first_key: u64) -> Result<()> {
        let called = self.shared.tick();
        let mut tx = self.begin();
        let keys = first_key..first_key + LISTS;
        let found = self.keyspaces.lists.walk(|keyspace| tx.wander(keyspace, &keys, &mut self.rng))?;
        self.record(called, read_only(reads(keys, &found).collect()))
    }

    fn transfer(&mut self) -> Result<()> {
        let bank = self.keyspaces.bank.clone();
        let from = self.rng.u8(0..ACCOUNTS);
        let to = (from + self.rng.u8(1..ACCOUNTS)) % ACCOUNTS;
        let mut tx = self.begin();
        let money = |value: Option<Vec<u8>>| value.as_deref().map_or(0, number);
        let (had, has) = (money(tx.get(&bank, &[from])?), money(tx.get(&bank, &[to])?));
        let amount = self.rng.u64(0..=had);
        tx.put(&bank, &[from], (had - amount).to_le_bytes().to_vec())?;
        tx.put(&bank, &[to], (has + amount).to_le_bytes().to_vec())?;
        tx.commit().map(drop).or_else(|failure| self.or_refused(failure))
    }

    fn read_bank(&mut self) -> Result<()> {
        let called = self.shared.tick();
        let mut tx = self.begin();
        let mut sum = 0;
        for account in 0..ACCOUNTS {
            sum += tx.get(&self.keyspaces.bank, &[account])?.as_deref().map_or(0, number);
        }
        self.record(called, Event::Bank(sum))
    }

    fn increment(&mut self) -> Result<()> {
        let called = self.shared.tick();
        let counter = self.keyspaces.counter.clone();
        let mut tx = self.begin();
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

    /// Reads the two keys of a group repeatedly, and writes one of them if this client is assigned to it.
    fn fork(&mut self, group: u64) -> Result<()> {
        let snapshots = self.rng.usize(1..=4);
        let writes_at = (self.id < 2).then(|| self.rng.usize(0..=snapshots));
        for n in 0..=snapshots {
            if writes_at == Some(n) {
                let put =
                    self.keyspaces.forks.put(fork_key(group, self.id), "").map(drop).map_err(Failure::from);
                put.or_else(|failure| self.or_refused(failure))?;
            }
            if n < snapshots {
                self.read_fork(group)?;
            }
        }
        Ok(())
    }

    fn read_fork(&mut self, group: u64) -> Result<()> {
        let called = self.shared.tick();
        let mut tx = self.begin();
        let mut seen = [false; 2];
        let first = self.rng.usize(0..2);
        for side in [first, 1 - first] {
            seen[side] = tx.get(&self.keyspaces.forks, &fork_key(group, side))?.is_some();
        }
        self.record(called, Event::Fork(group, seen[0], seen[1]))
    }

    /// Flushes and writes after space is available again, which must succeed.
    pub(crate) fn write_after_full(&mut self, ops: u64) -> Result<()> {
        let flushed = self.keyspaces.db.flush().map_err(Failure::from);
        flushed.map_err(|failure| failure.during("flushing after space is available again"))?;
        self.put(ops / 30 * REGISTERS)
            .map_err(|failure| failure.during("writing after space is available again"))
    }

    /// Flushes and writes after all faults have ended, which must succeed. If
    /// `may_have_stopped`, both may instead report that the log has stopped. Returns whether they do.
    pub(super) fn write_after_faults(&mut self, ops: u64, may_have_stopped: bool) -> Result<bool> {
        let flushed = self.keyspaces.db.flush().map_err(|error| Failure::from(error).of_write());
        let is_stopped = may_have_stopped && flushed.as_ref().is_err_and(Failure::is_of_stopped_writes);
        let flushed = if is_stopped { or_stopped(flushed) } else { flushed };
        flushed.map_err(|failure| failure.during("flushing after the faults"))?;
        let put = self.put(ops / 30 * REGISTERS);
        if is_stopped && put.is_ok() {
            return Err(Failure::new("a write succeeds although a flush reports that writes have stopped"));
        }
        let put = if is_stopped { or_stopped(put) } else { put };
        put.map_err(|failure| failure.during("writing after the faults"))?;
        Ok(is_stopped)
    }

    /// Reads everything that clients with `ops` calls each may have written, without concurrent clients.
    pub(crate) fn audit(&mut self, ops: u64) -> Result<()> {
        for key in 0..ops / 30 * REGISTERS + REGISTERS {
            let called = self.shared.tick();
            let value = self.keyspaces.registers.get(key.to_be_bytes())?.as_deref().map(number);
            self.record(called, Event::Register(key, Action::Read(value)))?;
        }
        let called = self.shared.tick();
        let snapshot = self.keyspaces.db.snapshot();
        let mut accesses = Vec::new();
        let keys = 0..ops / 20 * 3 + LISTS;
        for key in keys.clone() {
            let list = self
                .keyspaces
                .lists
                .get(key, |keyspace, key| Ok(snapshot.get(keyspace, key)?.map(|value| value.to_vec())))?;
            accesses.push(Access::Read(key, list));
        }
        self.record(called, read_only(accesses))?;
        let called = self.shared.tick();
        let transaction = self.keyspaces.db.begin();
        let direction = Direction::draw(&mut self.rng);
        let found = self
            .keyspaces
            .lists
            .walk(|keyspace| walk(&keys, direction, |bounds| transaction.range(keyspace, bounds)))?;
        self.record(called, read_only(reads(keys, &found).collect()))?;
        self.audit_guests()?;
        self.read_bank()?;
        let called = self.shared.tick();
        let count = self.keyspaces.counter.get("n")?;
        self.record(called, Event::Counter(Action::Read(count.as_deref().map(number))))
    }
}

/// Returns the key of one side of a group.
fn fork_key(group: u64, side: usize) -> Vec<u8> {
    [&group.to_be_bytes()[..], &[side as u8]].concat()
}

/// Records a transaction that only read: it sees the state at its beginning, at any isolation level.
fn read_only(reads: Vec<Access>) -> Event {
    Event::Lists(reads, Outcome::Committed, Promise::Snapshot)
}

/// Returns reads of the lists of some keys; missing lists are empty.
fn reads(keys: Range<u64>, found: &BTreeMap<u64, Vec<Element>>) -> impl Iterator<Item = Access> {
    keys.map(|key| Access::Read(key, found.get(&key).cloned().unwrap_or_default()))
}

pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
