//! Writers: threads that use one database with keyspaces of their own, the expected contents, and the
//! contents found.
//!
//! ```text
//!   (seed, writer, its keyspaces) --Script--> Task, Task ... --> report(Intent), Db, report(Ack)
//!                                               `--> Expected { state per writer, bank } == Found, from Db
//! ```
//!
//! The tasks depend only on the seed, the writer and its keyspaces, so their number determines what was done.
//! A writer writes only to keyspaces with its prefix and, in transactions, to the shared bank, where its
//! additions do not depend on the current amounts. Every batch writes a unique mark, which tells how many
//! batches took effect. A writer's default keyspace and the bank are created on demand, so a missing one
//! counts as empty.

use std::collections::BTreeMap;

use esker::{Db, Durability, Error, Isolation};
use esker_world::failure::{Failure, Result, caught};
use esker_world::generate;
use esker_world::judge::read::contents_of;
use esker_world::model::keys::KeyNo;
use esker_world::model::map::Map;
use esker_world::model::state::{Contents, DEFAULT, State, contents_digest};
use esker_world::model::values::ValueNo;
use esker_world::op::{KeyspaceNo, Op, Write};
use esker_world::perform::{self, Part};
use fastrand::Rng;

/// The keyspace of transfers by all writers.
const BANK: &str = "bank";
/// The number of accounts.
const ACCOUNTS: u8 = 12;
/// The key of the mark in the writer's default keyspace.
const MARK: (KeyspaceNo, KeyNo) = (KeyspaceNo(0), KeyNo(999));

/// Money by account, without empty accounts.
pub(crate) type Bank = BTreeMap<u8, i64>;

/// A transfer between two accounts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) amount: i64,
}

impl Transfer {
    fn sides(self) -> [(u8, i64); 2] {
        [(self.from, -self.amount), (self.to, self.amount)]
    }
}

/// A step of a writer: an operation, or a batch in a transaction with a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) op: Op,
    pub(crate) transfer: Option<Transfer>,
}

/// The endless sequence of tasks of a writer.
pub(crate) struct Script {
    ops: Box<dyn Iterator<Item = Op>>,
    rng: Rng,
    part: Part,
    mark: u32,
}

impl Script {
    /// Creates a script. `state` contains the writer's keyspaces, or at least their names.
    pub(crate) fn new(seed: u64, writer: usize, state: State) -> Self {
        let seed = seed ^ (writer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let part = Part { prefix: prefix(writer), state };
        let (ops, rng) = (Box::new(generate::writer(seed)), Rng::with_seed(!seed));
        Script { ops, rng, part, mark: seed as u32 }
    }

    /// Returns the next task, which must be performed before the following one is requested.
    pub(crate) fn next(&mut self) -> Task {
        let state = &self.part.state;
        let is_taken = |op: &Op| match (op, state.commit_of(op)) {
            // Empty commits make no promises.
            (Op::Write(..) | Op::Names(..), Ok(Some(commit))) => !state.footprint_of(&commit).is_empty(),
            (_, outcome) => outcome.is_ok(),
        };
        let mut op = self.ops.find(is_taken).expect("there is no end");
        let mut transfer = None;
        if let Op::Batch(writes, _) = &mut op {
            self.mark = self.mark.wrapping_add(1);
            writes.push((MARK.0, Write::Put(MARK.1, ValueNo::new(4, self.mark))));
            if self.rng.bool() {
                let from = self.rng.u8(0..ACCOUNTS);
                let to = (from + self.rng.u8(1..ACCOUNTS)) % ACCOUNTS;
                transfer = Some(Transfer { from, to, amount: self.rng.i64(1..1000) });
            }
        }
        Task { op, transfer }
    }

    /// Performs a task. It is acknowledged when this returns.
    pub(crate) fn perform(&self, db: &Db, task: &Task) -> esker::Result<()> {
        let (Op::Batch(writes, durability), Some(transfer)) = (&task.op, task.transfer) else {
            return self.part.perform(db, &task.op);
        };
        loop {
            match self.transact(db, writes, transfer, *durability) {
                Err(Error::Conflict { .. }) => {}
                done => return done,
            }
        }
    }

    fn transact(
        &self,
        db: &Db,
        writes: &[(KeyspaceNo, Write)],
        transfer: Transfer,
        durability: Durability,
    ) -> esker::Result<()> {
        let bank = db.keyspace(BANK)?;
        let mut transaction = db.transaction().isolation(Isolation::Snapshot).begin();
        for (account, amount) in transfer.sides() {
            let before = transaction.get(&bank, [account])?;
            let before = before.map_or(0, |value| balance(&value).unwrap_or(i64::MIN / 2));
            transaction.put(&bank, [account], (before + amount).to_le_bytes())?;
        }
        for (no, write) in writes {
            perform::write(&mut transaction, &self.part.find(db, *no)?, write)?;
        }
        Ok(transaction.commit_with(durability).map(drop)?)
    }

    /// Notes that the last task is done.
    pub(crate) fn go_on(&mut self, task: &Task) {
        self.part.state.perform(&task.op);
    }
}

fn prefix(writer: usize) -> String {
    format!("w{writer}-")
}

/// Returns the money in an account.
fn balance(value: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(value.try_into().ok()?))
}

/// The expected contents of a database.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) writers: Vec<State>,
    pub(crate) bank: Bank,
}

impl Expected {
    /// Returns the contents of a new database.
    pub(crate) fn empty(writers: usize) -> Self {
        Expected { writers: vec![State::new(); writers], bank: Bank::new() }
    }

    /// Applies a writer's task.
    pub(crate) fn apply(&mut self, writer: usize, task: &Task) {
        self.writers[writer].perform(&task.op);
        for (account, amount) in task.transfer.into_iter().flat_map(Transfer::sides) {
            let money = self.bank.entry(account).or_default();
            *money += amount;
            if *money == 0 {
                self.bank.remove(&account);
            }
        }
    }
}

/// The contents found in a database.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) writers: Vec<Contents>,
    pub(crate) bank: Bank,
}

impl Found {
    /// Reads and checks everything in every way. Turns panics into failures.
    pub(crate) fn read(db: &Db, writers: usize) -> Result<Found> {
        caught(|| Self::try_read(db, writers))?
    }

    fn try_read(db: &Db, writers: usize) -> Result<Found> {
        let nothing = Contents::from([(DEFAULT.to_owned(), Map::default())]);
        let mut found = Found { writers: vec![nothing; writers], bank: Bank::new() };
        for name in db.keyspaces()? {
            let keyspace = db.open_keyspace(&name)?;
            if name == BANK {
                for entry in keyspace.iter() {
                    let (key, value) = entry?;
                    let (Some(&account), Some(money)) = (key.first(), balance(&value)) else {
                        return Err(Failure::new(format!("the bank holds {key:?} = {value:?}")));
                    };
                    found.bank.extend((money != 0).then_some((account, money)));
                }
                continue;
            }
            let map = contents_of(&keyspace, true).map_err(|e| Failure::from(e).during(&name))?;
            let owned = |writer| Some((writer, name.strip_prefix(&prefix(writer))?.to_owned()));
            match (0..writers).find_map(owned) {
                Some((writer, own)) => drop(found.writers[writer].insert(own, map)),
                None if name == DEFAULT && map.entries().is_empty() => {}
                None => return Err(Failure::new(format!("keyspace {name:?} belongs to no writer"))),
            }
        }
        let report = db.check()?;
        if report.is_sound() { Ok(found) } else { Err(Failure::new(format!("check: {:?}", report.problems))) }
    }

    /// Returns the digest of a writer's contents.
    pub(crate) fn digest(&self, writer: usize) -> u64 {
        contents_digest(self.writers[writer].iter().map(|(name, map)| (name.as_str(), map)))
    }

    /// Returns whether the contents equal the expected ones.
    pub(crate) fn is(&self, expected: &Expected) -> bool {
        let is_writers = |(writer, state): (usize, &State)| self.digest(writer) == state.digest();
        self.bank == expected.bank && expected.writers.iter().enumerate().all(is_writers)
    }
}

/// An event of the writers, in chronological order.
#[derive(Clone, Debug)]
pub(crate) enum WriterEvent {
    /// The database is open.
    Opened,
    /// A writer starts a task.
    Intent { writer: usize, task: Box<Task> },
    /// A writer's task is acknowledged.
    Ack { writer: usize },
}

/// The number and workload of writers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writers {
    pub(crate) seed: u64,
    pub(crate) count: usize,
    /// Number of tasks of each writer.
    pub(crate) tasks: usize,
}

impl Writers {
    /// Runs all writers concurrently. Returns the first failure.
    pub(crate) fn work(
        &self,
        db: &Db,
        expected: &Expected,
        say: &(dyn Fn(WriterEvent) + Sync),
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let spawn = |writer: usize| {
                let state = expected.writers[writer].clone();
                scope.spawn(move || {
                    let mut script = Script::new(self.seed, writer, state);
                    for _ in 0..self.tasks {
                        let task = script.next();
                        say(WriterEvent::Intent { writer, task: Box::new(task.clone()) });
                        let done = script.perform(db, &task);
                        done.map_err(|e| Failure::from(e).during(&format!("writer {writer}")))?;
                        say(WriterEvent::Ack { writer });
                        script.go_on(&task);
                    }
                    Ok(())
                })
            };
            let threads: Vec<_> = (0..self.count).map(spawn).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("writers do not panic"))
        })
    }
}
