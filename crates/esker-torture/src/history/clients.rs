//! Clients: threads that work on one database and write down what they did, what they saw, and when.
//!
//! ```text
//!   client --register, lists, bank, counter, fork--> Db       each call between two ticks of one clock --> Record
//! ```
//!
//! CL1. A tick before a call and one after it: if one call's second tick is smaller than another's first, then the first
//!      call was over before the other began.
//! CL2. Keys change as the clients go on, so that each has a short history of many clients at once.
//! CL3. In a process that will be killed, what may take effect is written down before it can, and what was seen after it was.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use esker::{Db, Error, Keyspace};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::Canary;
use super::linear::Action;
use super::lists::{Access, Element, Outcome};
use super::notes::{Line, Notes};
use crate::failure::Result;

const ACCOUNTS: u8 = 6;
const DEPOSIT: u64 = 100;
/// Each process gives out unique numbers of its own, 2 to the power of this.
const LIFE_SHIFT: u32 = 24;
/// All the money there is.
pub(crate) const MONEY: u64 = ACCOUNTS as u64 * DEPOSIT;

/// Something a client did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    Register(u64, Action),
    Lists(Vec<Access>, Outcome),
    /// The sum of all accounts in one snapshot.
    Bank(u64),
    Increment,
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
    canary: Option<Canary>,
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

    /// The next moment. Sequentially consistent: this is what orders the calls of different threads (CL1).
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn unique(&self) -> u32 {
        // Only uniqueness is asked for.
        self.unique.fetch_add(1, Ordering::Relaxed)
    }
}

/// The keyspaces that clients use.
pub(crate) struct Places {
    db: Db,
    registers: Keyspace,
    lists: Keyspace,
    bank: Keyspace,
    counter: Keyspace,
    forks: Keyspace,
}

impl Places {
    /// Opens them, and deposits the money if it is not there.
    pub(crate) fn new(db: &Db) -> Result<Self> {
        let bank = db.keyspace("bank")?;
        if bank.is_empty()? {
            let mut batch = db.batch();
            for account in 0..ACCOUNTS {
                batch.put(&bank, [account], DEPOSIT.to_le_bytes())?;
            }
            batch.commit_with(esker::Durability::Sync)?;
        }
        Ok(Places {
            db: db.clone(),
            registers: db.keyspace("registers")?,
            lists: db.keyspace("lists")?,
            bank,
            counter: db.keyspace("counter")?,
            forks: db.keyspace("forks")?,
        })
    }
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
    /// Works until told to end, or until `ops` are done.
    pub(crate) fn run(mut self, ops: std::ops::Range<u64>) -> Result<Vec<Record>> {
        for n in ops {
            if self.world.stop.load(Ordering::Relaxed) {
                break;
            }
            match self.rng.u8(0..20) {
                0..8 => self.register(n / 30 * 3)?,
                8..14 => self.lists(n / 20 * 3)?,
                14..16 => self.transfer()?,
                16 => self.read_bank()?,
                17 => self.increment()?,
                _ => self.fork(n / 8)?,
            }
            self.world.progress.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.records)
    }

    /// Before a call that may take effect (CL3).
    fn announce(&self, called: u64, event: impl FnOnce() -> Event) -> Result<()> {
        match self.notes {
            Some(notes) => Ok(notes.write(&Line::Called { called, event: event() })?),
            None => Ok(()),
        }
    }

    fn record(&mut self, called: u64, event: Event) -> Result<()> {
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

    fn register(&mut self, first_key: u64) -> Result<()> {
        let key = first_key + self.rng.u64(0..3);
        // The canary reads from a snapshot that a write of its own has outrun.
        let old = (self.world.canary == Some(Canary::StaleReads)).then(|| self.places.db.snapshot());
        let choice = self.rng.u8(0..10);
        match choice {
            0..4 => return self.write(key, Some(u64::from(self.world.unique()))),
            4 => return self.write(key, None),
            _ if old.is_some() => self.write(key, Some(u64::from(self.world.unique())))?,
            _ => {}
        }
        let (registers, name) = (&self.places.registers, key.to_be_bytes());
        let called = self.world.tick();
        let value = match &old {
            Some(old) => old.get(registers, name)?,
            None => registers.get(name)?,
        };
        self.record(called, Event::Register(key, Action::Read(value.as_deref().map(number))))
    }

    fn write(&mut self, key: u64, value: Option<u64>) -> Result<()> {
        let called = self.world.tick();
        let event = Event::Register(key, Action::Write(value));
        self.announce(called, || event.clone())?;
        let replies_early = self.world.canary == Some(Canary::EarlyReply);
        if replies_early {
            self.record(called, event.clone())?;
        }
        let (registers, name) = (&self.places.registers, key.to_be_bytes());
        match value {
            Some(value) => registers.put(name, value.to_le_bytes())?,
            None => registers.remove(name)?,
        }
        if replies_early { Ok(()) } else { self.record(called, event) }
    }

    fn lists(&mut self, first_key: u64) -> Result<()> {
        let called = self.world.tick();
        let lists = self.places.lists.clone();
        let mut tx = Tx::begin(self.places, self.world.canary);
        let mut accesses = Vec::new();
        for _ in 0..self.rng.usize(1..=4) {
            let key = first_key + self.rng.u64(0..4);
            let mut list = elements(tx.get(&lists, &key.to_be_bytes())?.as_deref().unwrap_or(&[]));
            let append = self.rng.bool();
            if !append || self.rng.bool() {
                accesses.push(Access::Read(key, list.clone()));
            }
            if append {
                list.push(self.world.unique());
                accesses.extend(list.last().map(|element| Access::Append(key, *element)));
                let bytes: Vec<u8> = list.iter().flat_map(|element| element.to_le_bytes()).collect();
                tx.put(&lists, &key.to_be_bytes(), bytes)?;
            }
        }
        self.announce(called, || Event::Lists(accesses.clone(), Outcome::Unknown))?;
        let outcome = if tx.commit()? { Outcome::Committed } else { Outcome::Aborted };
        self.record(called, Event::Lists(accesses, outcome))
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
        tx.commit().map(drop)
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
        self.announce(called, || Event::Increment)?;
        if tx.commit()? { self.record(called, Event::Increment) } else { self.take_back(called) }
    }

    fn fork(&mut self, group: u64) -> Result<()> {
        let forks = self.places.forks.clone();
        let key = |side: u8| [&group.to_be_bytes()[..], &[side]].concat();
        if self.id < 2 && self.rng.bool() {
            return Ok(forks.put(key(self.id as u8), "")?);
        }
        let called = self.world.tick();
        let mut tx = Tx::begin(self.places, self.world.canary);
        let mut seen = [false; 2];
        let first = self.rng.usize(0..2);
        for side in [first, 1 - first] {
            seen[side] = tx.get(&forks, &key(side as u8))?.is_some();
        }
        self.record(called, Event::Fork(group, seen[0], seen[1]))
    }

    /// Reads everything that clients of `ops` calls each may have written, with nobody else at work. Returns the counter.
    pub(crate) fn audit(&mut self, ops: u64) -> Result<u64> {
        for key in 0..ops / 30 * 3 + 3 {
            let called = self.world.tick();
            let value = self.places.registers.get(key.to_be_bytes())?.as_deref().map(number);
            self.record(called, Event::Register(key, Action::Read(value)))?;
        }
        let called = self.world.tick();
        let snapshot = self.places.db.snapshot();
        let mut accesses = Vec::new();
        for key in 0..ops / 20 * 3 + 4 {
            let list = snapshot.get(&self.places.lists, key.to_be_bytes())?;
            accesses.push(Access::Read(key, elements(list.as_deref().unwrap_or(&[]))));
        }
        self.record(called, Event::Lists(accesses, Outcome::Committed))?;
        self.read_bank()?;
        Ok(self.places.counter.get("n")?.as_deref().map_or(0, number))
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

fn elements(bytes: &[u8]) -> Vec<Element> {
    bytes.chunks(4).map(|chunk| chunk.try_into().map_or(Element::MAX, Element::from_le_bytes)).collect()
}

/// A transaction, or what a canary takes for one.
struct Tx<'a> {
    places: &'a Places,
    transaction: esker::Transaction,
    canary: Option<Canary>,
    own: BTreeMap<(String, Vec<u8>), (Keyspace, Vec<u8>)>,
}

impl<'a> Tx<'a> {
    fn begin(places: &'a Places, canary: Option<Canary>) -> Self {
        Tx { places, transaction: places.db.begin(), canary, own: BTreeMap::new() }
    }

    fn get(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let own = self.own.get(&(keyspace.name(), key.to_vec()));
        if self.canary == Some(Canary::NoSnapshot) && own.is_none() {
            std::thread::yield_now();
            return Ok(keyspace.get(key)?.map(|value| value.to_vec()));
        }
        Ok(self.transaction.get(keyspace, key)?.map(|value| value.to_vec()))
    }

    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: Vec<u8>) -> Result<()> {
        self.transaction.put(keyspace, key, &value)?;
        self.own.insert((keyspace.name(), key.to_vec()), (keyspace.clone(), value));
        Ok(())
    }

    /// False if it conflicts.
    fn commit(self) -> Result<bool> {
        if self.canary == Some(Canary::NoConflictCheck) {
            let mut batch = self.places.db.batch();
            for ((_, key), (keyspace, value)) in &self.own {
                batch.put(keyspace, key, value)?;
            }
            batch.commit()?;
            return Ok(true);
        }
        match self.transaction.commit() {
            Ok(()) => Ok(true),
            Err(Error::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
