//! Guests: keyspaces that come and go while clients use them.
//!
//! ```text
//!   keeper: create, list, drop --Guest: a handle, a number--> clients: put, get, walk, transactions   --Record--> linear.rs
//! ```
//!
//! guests.1. A guest's name is a register, and so is each of its keys: to create it writes its number and removes every key, to drop
//!      it removes both. So one that is made again under an old name is empty, and no key of the old one comes back, over crashes
//!      too: of a drop that a crash caught under way each removal is unknown by itself, and what creates it anew makes up for it.
//! guests.2. What succeeds with a handle has found its guest there at a moment of the call; a read that is told that it is gone has
//!      found it gone. Lists of the keyspaces are reads of the names.
//! guests.3. Writes are refused once a drop has begun, no sooner, and have done nothing then, in no keyspace.
//! guests.4. Handles and numbers are of one life: the next one gives a number of its own to what it finds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker::Keyspace;
use fastrand::Rng;
use parking_lot::Mutex;

use super::Canary;
use super::clients::{Client, Event, Places, Record, Written, number};
use super::linear::Action;
use super::transaction::{Tx, Way, walk};
use esker_world::failure::{Failure, Result, or_stopped};

/// The names of guests.
const NAMES: [&str; 2] = ["guest", "other guest"];
/// The keys of each.
const KEYS: Range<u64> = 0..3;
/// The registers of guests, apart from those of clients.
const FIRST_REGISTER: u64 = 1 << 62;
/// So many guests, of those that came last, are visited, though they may be gone.
const VISITED: usize = 3;
/// Calls of clients between two changes.
const CALLS_BETWEEN: u64 = 12;
/// How often the keeper looks how far the clients are.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// A keyspace that may be gone.
pub(super) struct Guest {
    keyspace: Keyspace,
    /// Which of the names it has.
    name: usize,
    /// What the register of its name holds while it is there.
    number: u64,
    /// A drop of it has begun (guests.3).
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

/// What it writes to create a guest with this number, or to drop one (guests.1).
fn keeper_writes(name: usize, number: Option<u64>) -> Vec<(u64, Option<u64>)> {
    let keys = KEYS.map(|key| (key_register(name, key), None));
    std::iter::once((name_register(name), number)).chain(keys).collect()
}

/// The guests of one life that came last.
#[derive(Default)]
pub(super) struct Guests(Mutex<Vec<Arc<Guest>>>);

impl Guests {
    fn add(&self, guest: Guest) {
        let mut guests = self.0.lock();
        guests.push(Arc::new(guest));
        if guests.len() > VISITED {
            // One that is there stays, or it would get another number while clients are on their way to it.
            let gone = guests.iter().position(|guest| guest.drop_began.load(Ordering::SeqCst));
            gone.map(|gone| guests.remove(gone));
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<Arc<Guest>> {
        let guests = self.0.lock();
        (!guests.is_empty()).then(|| guests[rng.usize(0..guests.len())].clone())
    }

    /// The one that has a name now, by what the keeper has done.
    fn present(&self, name: usize) -> Option<Arc<Guest>> {
        let guests = self.0.lock();
        let last = guests.iter().rev().find(|guest| guest.name == name)?;
        (!last.drop_began.load(Ordering::SeqCst)).then(|| last.clone())
    }
}

impl Client<'_> {
    /// Creates, lists and drops guests until told to end, or until an injected fault has stopped all writes (clients.4).
    pub(super) fn keep_guests(mut self) -> Result<Vec<Record>> {
        or_stopped(self.keep())?;
        Ok(self.records)
    }

    fn keep(&mut self) -> Result<()> {
        let mut due = 0;
        while !self.world.stop.load(Ordering::Relaxed) {
            if self.world.progress.load(Ordering::Relaxed) < due {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            due += CALLS_BETWEEN;
            let name = self.rng.usize(0..NAMES.len());
            match self.places.guests.present(name) {
                Some(guest) => self.drop_guest(&guest)?,
                None => self.create_guest(name)?,
            }
            self.list_guests()?;
        }
        Ok(())
    }

    fn create_guest(&mut self, name: usize) -> Result<()> {
        let number = u64::from(self.world.unique());
        let mut made = None;
        self.write(&keeper_writes(name, Some(number)), |places| {
            // The canary finds what it has not dropped.
            let keyspace = places.db.keyspace(NAMES[name])?;
            made = Some(keyspace);
            // guests.1: a keyspace is as durable as the commits behind it.
            Ok(places.db.sync()?)
        })?;
        let Some(keyspace) = made else { return Ok(()) };
        if self.world.canary == Some(Canary::GhostKeys) {
            for key in KEYS {
                let ghost = self.world.ghosts.lock().get(&(name, key)).cloned();
                let put = ghost.map_or(Ok(()), |value| keyspace.put(key.to_be_bytes(), value).map(drop));
                let put = put.map_err(Failure::from);
                put.or_else(|failure| self.or_refused(failure))?;
            }
        }
        self.places.guests.add(Guest { keyspace, name, number, drop_began: AtomicBool::new(false) });
        Ok(())
    }

    fn drop_guest(&mut self, guest: &Guest) -> Result<()> {
        let canary = self.world.canary;
        if canary == Some(Canary::GhostKeys) {
            for key in KEYS {
                let value = guest.keyspace.get(key.to_be_bytes())?.map(|value| value.to_vec());
                let mut ghosts = self.world.ghosts.lock();
                value.map(|value| ghosts.insert((guest.name, key), value));
            }
        }
        let mut gone = false;
        self.write(&keeper_writes(guest.name, None), |places| {
            guest.drop_began.store(true, Ordering::SeqCst);
            if canary != Some(Canary::GhostKeyspace) {
                places.db.drop_keyspace(NAMES[guest.name])?;
            }
            gone = true;
            Ok(places.db.sync()?)
        })?;
        if !gone {
            // It was refused, and so may writes have been for a moment.
            let Guest { ref keyspace, name, number, .. } = *guest;
            let drop_began = AtomicBool::new(false);
            self.places.guests.add(Guest { keyspace: keyspace.clone(), name, number, drop_began });
        }
        Ok(())
    }

    /// Which of the names are there, all at one moment, which for each of them is a read of its own.
    fn list_guests(&mut self) -> Result<Vec<usize>> {
        let called = NAMES.map(|_| self.world.tick());
        let listed = self.places.db.keyspaces()?;
        let is_there = |name: &usize| listed.iter().any(|listed| listed == NAMES[*name]);
        for (name, called) in called.into_iter().enumerate() {
            let found = Action::IsThere(is_there(&name));
            self.record(called, Event::Register(name_register(name), found))?;
        }
        Ok((0..NAMES.len()).filter(is_there).collect())
    }

    /// Lists the guests with nobody else at work, reads all that is in them, and takes them into this life (guests.4).
    pub(super) fn audit_guests(&mut self) -> Result<()> {
        for name in self.list_guests()? {
            let (called, number) = (self.world.tick(), u64::from(self.world.unique()));
            let keyspace = self.places.db.open_keyspace(NAMES[name])?;
            self.record(called, Event::Register(name_register(name), Action::Rename(number)))?;
            let guest = Guest { keyspace, name, number, drop_began: AtomicBool::new(false) };
            for key in KEYS {
                self.read_guest(&guest, key..key + 1, |keyspace, keys| {
                    let value = keyspace.get(keys.start.to_be_bytes())?;
                    Ok(value.map(|value| (keys.start, value.to_vec())).into_iter().collect())
                })?;
            }
            self.places.guests.add(guest);
        }
        Ok(())
    }

    /// Does something with a guest that may be gone.
    pub(super) fn visit_guest(&mut self, first_register: u64) -> Result<()> {
        let Some(guest) = self.places.guests.any(&mut self.rng) else { return Ok(()) };
        let key = self.rng.u64(KEYS);
        match self.rng.u8(0..8) {
            0 | 1 => {
                let value = u64::from(self.world.unique());
                self.write_guest(&guest, &[(guest.register(key), Some(value))], |_| {
                    Ok(guest.keyspace.put(key.to_be_bytes(), value.to_le_bytes()).map(drop)?)
                })
            }
            2 => self.write_guest(&guest, &[(guest.register(key), None)], |_| {
                Ok(guest.keyspace.remove(key.to_be_bytes()).map(drop)?)
            }),
            3 => self.write_both(&guest, key, first_register),
            4 => self.read_in_transaction(&guest),
            5 | 6 => {
                let way = Way::draw(&mut self.rng);
                self.read_guest(&guest, KEYS, |keyspace, keys| {
                    walk(&keys, way, |bounds| keyspace.range(bounds))
                })
            }
            _ => self.read_guest(&guest, key..key + 1, |keyspace, keys| {
                let value = keyspace.get(keys.start.to_be_bytes())?;
                Ok(value.map(|value| (keys.start, value.to_vec())).into_iter().collect())
            }),
        }
    }

    /// A transaction over the guest and a keyspace that stays.
    fn write_both(&mut self, guest: &Guest, key: u64, register: u64) -> Result<()> {
        let values = [(); 2].map(|()| u64::from(self.world.unique()));
        let writes = [(guest.register(key), Some(values[0])), (register, Some(values[1]))];
        let canary = self.world.canary;
        let write = |places: &Places| loop {
            let mut tx = Tx::begin(places, canary);
            tx.put(places.registers(), &register.to_be_bytes(), values[1].to_le_bytes().to_vec())?;
            tx.put(&guest.keyspace, &key.to_be_bytes(), values[0].to_le_bytes().to_vec())?;
            if tx.commit()? {
                return Ok(());
            }
        };
        self.write_guest(guest, &writes, write)
    }

    /// Writes that a drop may forestall (guests.2, guests.3).
    fn write_guest(
        &mut self,
        guest: &Guest,
        writes: &[(u64, Option<u64>)],
        call: impl FnOnce(&Places) -> Result<()>,
    ) -> Result<()> {
        let called = self.world.tick();
        match self.try_write(writes, true, call)? {
            Written::Made => self.saw_guest(called, guest),
            Written::Refused => Ok(()),
            Written::Gone(_) if guest.drop_began.load(Ordering::SeqCst) => Ok(()),
            Written::Gone(failure) => {
                Err(Failure::new(format!("guests.3: refused, and no drop of it has begun: {failure}")))
            }
        }
    }

    /// The guest was there at a moment since `called`.
    fn saw_guest(&mut self, called: u64, guest: &Guest) -> Result<()> {
        self.record(called, Event::Register(name_register(guest.name), Action::Read(Some(guest.number))))
    }

    /// Reads some keys of a guest, which for each of them is a read of its own, unless it is gone (guests.2).
    fn read_guest(
        &mut self,
        guest: &Guest,
        keys: Range<u64>,
        read: impl FnOnce(&Keyspace, Range<u64>) -> Result<BTreeMap<u64, Vec<u8>>>,
    ) -> Result<()> {
        let name_called = self.world.tick();
        let called: Vec<u64> = keys.clone().map(|_| self.world.tick()).collect();
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

    /// All keys in one snapshot, in a transaction that writes nothing and is given up.
    fn read_in_transaction(&mut self, guest: &Guest) -> Result<()> {
        let (places, canary) = (self.places, self.world.canary);
        let way = Way::draw(&mut self.rng);
        self.read_guest(guest, KEYS, |keyspace, keys| Tx::begin(places, canary).walk(keyspace, &keys, way))
    }
}

#[cfg(test)]
mod tests {
    use esker::Db;
    use esker_env::{Env, MemFs};

    use super::super::clients::World;
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

    /// A drop that a crash catches under way and that has happened, the guest made again in the next life, and an audit.
    fn dropped_in_a_crash_and_made_again(canary: Option<Canary>) -> Result<()> {
        let (db, world, mut story) = (database(), World::new(canary), Story::default());
        let places = [false, true].map(|has_money| Places::new(&db, has_money).unwrap());
        let client = |places| {
            let rng = Rng::with_seed(1);
            Client { world: &world, places, id: 0, rng, records: Vec::new(), notes: None }
        };
        let mut keeper = client(&places[0]);
        keeper.create_guest(0)?;
        let guest = places[0].guests.present(0).unwrap();
        keeper.write_guest(&guest, &[(guest.register(1), Some(9))], |_| {
            Ok(guest.keyspace.put(1u64.to_be_bytes(), 9u64.to_le_bytes()).map(drop)?)
        })?;
        let before = world.tick();
        keeper.drop_guest(&guest)?;
        story.add(keeper.records, Some(Cut { before, after: world.tick() }));
        let mut keeper = client(&places[1]);
        keeper.audit_guests()?;
        keeper.create_guest(0)?;
        keeper.audit_guests()?;
        story.add(keeper.records, None);
        story.check()
    }

    #[test]
    fn guests_1_keys_that_outlive_a_drop_in_a_crash_are_caught() {
        dropped_in_a_crash_and_made_again(None).unwrap();
        let error = dropped_in_a_crash_and_made_again(Some(Canary::GhostKeys)).unwrap_err().to_string();
        assert!(error.contains("not linearizable"), "{error}");
        assert!(error.contains(&format!("key: {}", key_register(0, 1))), "{error}");
    }
}
