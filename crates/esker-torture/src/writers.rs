//! Writers at work on one database, each in a thread and with keyspaces of its own; what must come of it, and what is found.
//!
//! ```text
//!   (seed, writer, its keyspaces) --Script--> Task, Task ... --> say(Intent), Db, say(Ack)
//!                                               `--> World { a state for each writer, the bank }      beside Found, read from Db
//! ```
//!
//! writers.1. The tasks depend on nothing else, so that who only hears how far a writer came knows what it did.
//! writers.2. A writer writes only into keyspaces whose names start with its own and, in transactions, into the shared bank, where
//!      what it adds does not depend on what it finds.
//! writers.3. Every batch leaves a mark of its own: which of them happened can be read off.
//! writers.4. A writer's default keyspace and the bank are made on demand: missing and empty are the same.

use std::collections::BTreeMap;

use esker::{Db, Durability, Error, Isolation};
use esker_world::failure::{Failure, Result, caught};
use esker_world::generate;
use esker_world::judge::read::contents_of;
use esker_world::model::keys::KeyNo;
use esker_world::model::state::{Contents, DEFAULT, Map, State, contents_digest};
use esker_world::model::values::ValueNo;
use esker_world::op::{KeyspaceNo, Op, Write};
use esker_world::perform::{self, Part};
use fastrand::Rng;

/// The keyspace that all writers transfer in.
const BANK: &str = "bank";
/// The number of accounts.
const ACCOUNTS: u8 = 12;
/// The key of writers.3, in the writer's default keyspace.
const MARK: (KeyspaceNo, KeyNo) = (KeyspaceNo(0), KeyNo(999));

/// Money by account; those that hold nothing are left out.
pub(crate) type Bank = BTreeMap<u8, i64>;

/// Money from one account to another.
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

/// What a writer does at a time: an operation, or a batch that is a transaction with a transfer.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) op: Op,
    pub(crate) transfer: Option<Transfer>,
}

/// The tasks of a writer from some state on, without end.
pub(crate) struct Script {
    ops: Box<dyn Iterator<Item = Op>>,
    rng: Rng,
    part: Part,
    mark: u32,
}

impl Script {
    /// `state`: what the writer's keyspaces hold, or at least their names.
    pub(crate) fn new(seed: u64, writer: usize, state: State) -> Self {
        let seed = seed ^ (writer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let part = Part { prefix: prefix(writer), state };
        let (ops, rng) = (Box::new(generate::writer(seed)), Rng::with_seed(!seed));
        Script { ops, rng, part, mark: seed as u32 }
    }

    /// The next task, to be done before the one behind it is asked for.
    pub(crate) fn next(&mut self) -> Task {
        let state = &self.part.state;
        let is_taken = |op: &Op| match (op, state.commit_of(op)) {
            // Such a commit makes no promises.
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

    /// Does the last task to the database; it is acknowledged when this returns.
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
        let mut transaction = db.begin_with(Isolation::Snapshot);
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

    /// The last task is done.
    pub(crate) fn go_on(&mut self, task: &Task) {
        self.part.state.perform(&task.op);
    }
}

fn prefix(writer: usize) -> String {
    format!("w{writer}-")
}

/// The money in an account.
fn balance(value: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(value.try_into().ok()?))
}

/// What a database must hold.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) writers: Vec<State>,
    pub(crate) bank: Bank,
}

impl World {
    /// Nothing written yet.
    pub(crate) fn empty(writers: usize) -> Self {
        World { writers: vec![State::new(); writers], bank: Bank::new() }
    }

    /// Does a writer's task.
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

/// What a database holds.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) writers: Vec<Contents>,
    pub(crate) bank: Bank,
}

impl Found {
    /// Reads everything, in every way; `check` has no complaint. What is wrong comes as a failure.
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
                None => return Err(Failure::new(format!("keyspace {name:?} belongs to nobody"))),
            }
        }
        let report = db.check()?;
        if report.is_sound() { Ok(found) } else { Err(Failure::new(format!("check: {:?}", report.problems))) }
    }

    /// A number that a writer's state shares if it is what was found of it.
    pub(crate) fn digest(&self, writer: usize) -> u64 {
        contents_digest(self.writers[writer].iter().map(|(name, map)| (name.as_str(), map)))
    }

    /// Whether it is what must be there.
    pub(crate) fn is(&self, world: &World) -> bool {
        let is_writers = |(writer, state): (usize, &State)| self.digest(writer) == state.digest();
        self.bank == world.bank && world.writers.iter().enumerate().all(is_writers)
    }
}

/// What is said, in the order of time.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// The database is open.
    Opened,
    /// A writer begins a task.
    Intent { writer: usize, task: Box<Task> },
    /// A writer's task is acknowledged.
    Ack { writer: usize },
}

/// Who writes how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writers {
    pub(crate) seed: u64,
    pub(crate) count: usize,
    /// Tasks of each.
    pub(crate) tasks: usize,
}

impl Writers {
    /// Lets all work at once on what is there; the first failure of any is returned.
    pub(crate) fn work(&self, db: &Db, world: &World, say: &(dyn Fn(Said) + Sync)) -> Result<()> {
        std::thread::scope(|scope| {
            let spawn = |writer: usize| {
                let state = world.writers[writer].clone();
                scope.spawn(move || {
                    let mut script = Script::new(self.seed, writer, state);
                    for _ in 0..self.tasks {
                        let task = script.next();
                        say(Said::Intent { writer, task: Box::new(task.clone()) });
                        let done = script.perform(db, &task);
                        done.map_err(|e| Failure::from(e).during(&format!("writer {writer}")))?;
                        say(Said::Ack { writer });
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
