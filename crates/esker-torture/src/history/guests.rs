//! Guests: keyspaces that are created and dropped while clients use them.
//!
//! ```text
//!   keeper: create, list, drop --Guest: a handle, a number--> clients: put, get, scan --Record--> linear.rs
//! ```
//!
//! A guest's name is a register, and so is each of its keys. Creating it writes its number and removes every
//! key; dropping it removes both. So a recreated guest is empty, even after crashes. If a crash interrupts a
//! drop, each removal is unknown by itself, and the next creation completes it.
//!
//! A successful call with a handle implies that the guest existed at some point during the call; a read
//! refused because the guest is gone implies that it did not. Lists of keyspaces are reads of the names.
//! Writes are refused only once a drop has begun, and then have no effect in any keyspace. Handles and
//! numbers belong to one life: the next life assigns new numbers to the guests that it finds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker::Keyspace;
use fastrand::Rng;
use parking_lot::Mutex;

use super::canary::Canary;
use super::clients::{Client, Written, number};
use super::events::{Event, Record};
use super::keyspaces::Keyspaces;
use super::linear::Action;
use super::transaction::{Direction, Tx, walk};
use esker_world::failure::{Failure, Result, or_stopped};

/// Names of guests.
const NAMES: [&str; 2] = ["guest", "other guest"];
/// Keys of each guest.
const KEYS: Range<u64> = 0..3;
/// First register of guests, above those of clients.
const FIRST_REGISTER: u64 = 1 << 62;
/// Number of recent guests that clients use, though they may be dropped.
const VISITED: usize = 3;
/// Client calls between two changes.
const CALLS_BETWEEN: u64 = 12;
/// Interval at which the keeper checks the progress of clients.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// A keyspace that may be dropped.
pub(super) struct Guest {
    keyspace: Keyspace,
    /// Index of its name.
    name: usize,
    /// The value of its name's register while it exists.
    number: u64,
    /// Whether a drop of it has begun.
    drop_began: AtomicBool,
}

impl Guest {
    fn register(&self, key: u64) -> u64 {
        key_register(self.name, key)
    }
}

fn name_register(name: usize) -> u64 {
    FIRST_REGISTER + name as u64 * (KEYS.end + 1)
}

fn key_register(name: usize, key: u64) -> u64 {
    name_register(name) + 1 + key
}

/// Returns the writes for creating a guest with this number, or for dropping one.
fn keeper_writes(name: usize, number: Option<u64>) -> Vec<(u64, Option<u64>)> {
    let keys = KEYS.map(|key| (key_register(name, key), None));
    std::iter::once((name_register(name), number)).chain(keys).collect()
}

/// The recent guests of one life.
#[derive(Default)]
pub(super) struct Guests(Mutex<Vec<Arc<Guest>>>);

impl Guests {
    fn add(&self, guest: Guest) {
        let mut guests = self.0.lock();
        guests.push(Arc::new(guest));
        if guests.len() > VISITED {
            // Existing guests stay, or they would get another number while clients use them.
            let gone = guests.iter().position(|guest| guest.drop_began.load(Ordering::SeqCst));
            gone.map(|gone| guests.remove(gone));
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<Arc<Guest>> {
        let guests = self.0.lock();
        (!guests.is_empty()).then(|| guests[rng.usize(0..guests.len())].clone())
    }

    /// Returns the existing guest of a name, as far as the keeper knows.
    fn present(&self, name: usize) -> Option<Arc<Guest>> {
        let guests = self.0.lock();
        let last = guests.iter().rev().find(|guest| guest.name == name)?;
        (!last.drop_began.load(Ordering::SeqCst)).then(|| last.clone())
    }
}

impl Client<'_> {
    /// Creates, lists and drops guests until stopped, or until an injected fault stops all writes.
    pub(super) fn keep_guests(mut self) -> Result<Vec<Record>> {
        or_stopped(self.keep())?;
        Ok(self.records)
    }

    fn keep(&mut self) -> Result<()> {
        let mut due = 0;
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.shared.progress.load(Ordering::Relaxed) < due {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            due += CALLS_BETWEEN;
            let name = self.rng.usize(0..NAMES.len());
            match self.keyspaces.guests.present(name) {
                Some(guest) => self.drop_guest(&guest)?,
                None => self.create_guest(name)?,
            }
            self.list_guests()?;
        }
        Ok(())
    }

    fn create_guest(&mut self, name: usize) -> Result<()> {
        let number = u64::from(self.shared.unique());
        let mut made = None;
        self.write(&keeper_writes(name, Some(number)), |keyspaces| {
            // The canary finds the keyspace that it did not drop.
            let keyspace = keyspaces.db.keyspace(NAMES[name])?;
            made = Some(keyspace);
            // A keyspace is as durable as the commits after it.
            Ok(keyspaces.db.sync()?)
        })?;
        let Some(keyspace) = made else { return Ok(()) };
        if self.shared.canary == Some(Canary::GhostKeys) {
            for key in KEYS {
                let ghost = self.shared.ghosts.lock().get(&(name, key)).cloned();
                let put = ghost.map_or(Ok(()), |value| keyspace.put(key.to_be_bytes(), value).map(drop));
                let put = put.map_err(Failure::from);
                put.or_else(|failure| self.or_refused(failure))?;
            }
        }
        self.keyspaces.guests.add(Guest { keyspace, name, number, drop_began: AtomicBool::new(false) });
        Ok(())
    }

    fn drop_guest(&mut self, guest: &Guest) -> Result<()> {
        let canary = self.shared.canary;
        if canary == Some(Canary::GhostKeys) {
            for key in KEYS {
                let value = guest.keyspace.get(key.to_be_bytes())?.map(|value| value.to_vec());
                let mut ghosts = self.shared.ghosts.lock();
                value.map(|value| ghosts.insert((guest.name, key), value));
            }
        }
        let mut gone = false;
        self.write(&keeper_writes(guest.name, None), |keyspaces| {
            guest.drop_began.store(true, Ordering::SeqCst);
            if canary != Some(Canary::GhostKeyspace) {
                keyspaces.db.drop_keyspace(NAMES[guest.name])?;
            }
            gone = true;
            Ok(keyspaces.db.sync()?)
        })?;
        if !gone {
            // The drop was refused, so writes may have been refused for a moment.
            let Guest { ref keyspace, name, number, .. } = *guest;
            let drop_began = AtomicBool::new(false);
            self.keyspaces.guests.add(Guest { keyspace: keyspace.clone(), name, number, drop_began });
        }
        Ok(())
    }

    /// Lists the existing names at one point in time, recorded as a separate read of each.
    fn list_guests(&mut self) -> Result<Vec<usize>> {
        let called = NAMES.map(|_| self.shared.tick());
        let listed = self.keyspaces.db.keyspaces()?;
        let is_there = |name: &usize| listed.iter().any(|listed| listed == NAMES[*name]);
        for (name, called) in called.into_iter().enumerate() {
            let found = Action::IsThere(is_there(&name));
            self.record(called, Event::Register(name_register(name), found))?;
        }
        Ok((0..NAMES.len()).filter(is_there).collect())
    }

    /// Lists the guests without concurrent clients, reads their contents and assigns numbers for this life.
    pub(super) fn audit_guests(&mut self) -> Result<()> {
        for name in self.list_guests()? {
            let (called, number) = (self.shared.tick(), u64::from(self.shared.unique()));
            let keyspace = self.keyspaces.db.open_keyspace(NAMES[name])?;
            self.record(called, Event::Register(name_register(name), Action::Rename(number)))?;
            let guest = Guest { keyspace, name, number, drop_began: AtomicBool::new(false) };
            for key in KEYS {
                self.read_guest(&guest, key..key + 1, |keyspace, keys| {
                    let value = keyspace.get(keys.start.to_be_bytes())?;
                    Ok(value.map(|value| (keys.start, value.to_vec())).into_iter().collect())
                })?;
            }
            self.keyspaces.guests.add(guest);
        }
        Ok(())
    }

    /// Uses a guest that may be dropped.
    pub(super) fn visit_guest(&mut self, first_register: u64) -> Result<()> {
        let Some(guest) = self.keyspaces.guests.any(&mut self.rng) else { return Ok(()) };
        let key = self.rng.u64(KEYS);
        match self.rng.u8(0..8) {
            0 | 1 => {
                let value = u64::from(self.shared.unique());
                self.write_guest(&guest, &[(guest.register(key), Some(value))], |_| {
                    Ok(guest.keyspace.put(key.to_be_bytes(), value.to_le_bytes()).map(drop)?)
                })
            }
            2 => self.write_guest(&guest, &[(guest.register(key), None)], |_| {
                Ok(guest.keyspace.delete(key.to_be_bytes()).map(drop)?)
            }),
            3 => self.write_both(&guest, key, first_register),
            4 => self.read_in_transaction(&guest),
            5 | 6 => {
                let direction = Direction::draw(&mut self.rng);
                self.read_guest(&guest, KEYS, |keyspace, keys| {
                    walk(&keys, direction, |bounds| keyspace.range(bounds))
                })
            }
            _ => self.read_guest(&guest, key..key + 1, |keyspace, keys| {
                let value = keyspace.get(keys.start.to_be_bytes())?;
                Ok(value.map(|value| (keys.start, value.to_vec())).into_iter().collect())
            }),
        }
    }

    /// Runs a transaction over the guest and a permanent keyspace.
    fn write_both(&mut self, guest: &Guest, key: u64, register: u64) -> Result<()> {
        let values = [(); 2].map(|()| u64::from(self.shared.unique()));
        let writes = [(guest.register(key), Some(values[0])), (register, Some(values[1]))];
        let canary = self.shared.canary;
        let write = |keyspaces: &Keyspaces| loop {
            let mut tx = Tx::begin(&keyspaces.db, canary);
            tx.put(&keyspaces.registers, &register.to_be_bytes(), values[1].to_le_bytes().to_vec())?;
            tx.put(&guest.keyspace, &key.to_be_bytes(), values[0].to_le_bytes().to_vec())?;
            if tx.commit()? {
                return Ok(());
            }
        };
        self.write_guest(guest, &writes, write)
    }

    /// Writes to a guest, which a drop may refuse.
    fn write_guest(
        &mut self,
        guest: &Guest,
        writes: &[(u64, Option<u64>)],
        call: impl FnOnce(&Keyspaces) -> Result<()>,
    ) -> Result<()> {
        let called = self.shared.tick();
        match self.try_write(writes, true, call)? {
            Written::Made => self.saw_guest(called, guest),
            Written::Refused => Ok(()),
            Written::KeyspaceDropped(_) if guest.drop_began.load(Ordering::SeqCst) => Ok(()),
            Written::KeyspaceDropped(failure) => {
                Err(Failure::new(format!("refused although no drop of it has begun: {failure}")))
            }
        }
    }

    /// Records that the guest existed at some point since `called`.
    fn saw_guest(&mut self, called: u64, guest: &Guest) -> Result<()> {
        self.record(called, Event::Register(name_register(guest.name), Action::Read(Some(guest.number))))
    }

    /// Reads keys of a guest, recorded as separate reads, unless it is gone.
    fn read_guest(
        &mut self,
        guest: &Guest,
        keys: Range<u64>,
        read: impl FnOnce(&Keyspace, Range<u64>) -> Result<BTreeMap<u64, Vec<u8>>>,
    ) -> Result<()> {
        let name_called = self.shared.tick();
        let called: Vec<u64> = keys.clone().map(|_| self.shared.tick()).collect();
        match read(&guest.keyspace, keys.clone()) {
            Err(failure) if failure.is_of_gone_keyspace() => {
                let gone = Action::IsNot(guest.number);
                self.record(name_called, Event::Register(name_register(guest.name), gone))
            }
            Err(failure) => Err(failure),
            Ok(found) => {
                for (key, called) in keys.zip(called) {
                    let value = found.get(&key).map(|value| number(value));
                    self.record(called, Event::Register(guest.register(key), Action::Read(value)))?;
                }
                self.saw_guest(name_called, guest)
            }
        }
    }

    /// Reads all keys in one snapshot, in a transaction that writes nothing.
    fn read_in_transaction(&mut self, guest: &Guest) -> Result<()> {
        let (db, canary) = (&self.keyspaces.db, self.shared.canary);
        let direction = Direction::draw(&mut self.rng);
        self.read_guest(guest, KEYS, |keyspace, keys| Tx::begin(db, canary).walk(keyspace, &keys, direction))
    }
}

#[cfg(test)]
mod tests {
    use esker::Db;
    use esker_env::{Env, MemFs};

    use super::super::shared::Shared;
    use super::super::story::{Cut, Story};
    use super::*;

    fn database() -> Db {
        Db::builder().env(Env::with_fs(Arc::new(MemFs::new()))).open("db").unwrap()
    }

    #[test]
    fn guests_that_are_there_stay_however_often_others_come_and_go() {
        let keyspace = database().keyspace("any").unwrap();
        let guests = Guests::default();
        let add = |name, number| {
            let drop_began = AtomicBool::new(false);
            guests.add(Guest { keyspace: keyspace.clone(), name, number, drop_began });
        };
        add(0, 0);
        for number in 1..10 {
            add(1, number);
            assert_eq!(guests.present(0).map(|guest| guest.number), Some(0), "after {number} others");
            let other = guests.present(1).unwrap();
            assert_eq!(other.number, number);
            other.drop_began.store(true, Ordering::SeqCst);
            assert!(guests.present(1).is_none() && guests.0.lock().len() <= VISITED);
        }
    }

    /// Records a drop interrupted by a crash that took effect, the creation of the guest in the next life,
    /// and an audit.
    fn dropped_in_a_crash_and_made_again(canary: Option<Canary>) -> Result<()> {
        let (db, shared, mut story) = (database(), Shared::new(canary), Story::default());
        let keyspaces = [false, true].map(|has_money| Keyspaces::new(&db, has_money).unwrap());
        let client = |keyspaces| {
            let rng = Rng::with_seed(1);
            Client { shared: &shared, keyspaces, id: 0, rng, records: Vec::new(), notes: None }
        };
        let mut keeper = client(&keyspaces[0]);
        keeper.create_guest(0)?;
        let guest = keyspaces[0].guests.present(0).unwrap();
        keeper.write_guest(&guest, &[(guest.register(1), Some(9))], |_| {
            Ok(guest.keyspace.put(1u64.to_be_bytes(), 9u64.to_le_bytes()).map(drop)?)
        })?;
        let before = shared.tick();
        keeper.drop_guest(&guest)?;
        story.add(keeper.records, Some(Cut { before, after: shared.tick() }));
        let mut keeper = client(&keyspaces[1]);
        keeper.audit_guests()?;
        keeper.create_guest(0)?;
        keeper.audit_guests()?;
        story.add(keeper.records, None);
        story.check()
    }

    #[test]
    fn keys_that_outlive_a_drop_in_a_crash_are_caught() {
        dropped_in_a_crash_and_made_again(None).unwrap();
        let error = dropped_in_a_crash_and_made_again(Some(Canary::GhostKeys)).unwrap_err().to_string();
        assert!(error.contains("not linearizable"), "{error}");
        assert!(error.contains(&format!("key: {}", key_register(0, 1))), "{error}");
    }
}
