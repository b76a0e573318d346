//! What a writer does: an endless sequence of operations that a seed determines, and how each is done to a database.
//!
//! ```text
//!   (seed, writer, scratch keyspace there?) --Script--> Op, Op, Op ...   --perform--> Db
//! ```
//!
//! SC1. The sequence depends on nothing else, so that who only hears how far a writer came knows what it did.
//! SC2. A writer writes only into keyspaces whose names start with its own (`w3`, `w3-a`) and, in transactions, into
//!      the shared bank, where what it adds does not depend on what it finds.
//! SC3. Every transaction leaves a mark of its own in the writer's keyspace: which of them happened can be read off.

use esker::{Db, Durability, Error, Keyspace, Result};
use fastrand::Rng;

/// The keyspace that all writers transfer in.
pub(crate) const BANK: &str = "bank";
/// The number of accounts.
const ACCOUNTS: u8 = 12;
/// Different keys of a writer's keyspace.
const KEYS: u32 = 48;
/// The key of SC3.
const MARK: &[u8] = b"mark";

/// One change of one keyspace.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    /// From the first key to before the second.
    RemoveRange(Vec<u8>, Vec<u8>),
}

/// Money from one account to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) amount: i64,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A call of the keyspace itself; the durability is the database's.
    Single(String, Change),
    Batch(Vec<(String, Change)>, Durability),
    Transaction(Vec<(String, Change)>, Transfer, Durability),
    Create(String),
    Drop(String),
    Rename(String, String),
    Clear(String),
    Flush,
    Compact,
    Sync,
}

impl Op {
    /// What its acknowledgement promises, in a database with this default.
    pub(crate) fn durability(&self, default: Durability) -> Durability {
        match self {
            Op::Single(..) | Op::Clear(_) => default,
            Op::Batch(_, durability) | Op::Transaction(_, _, durability) => *durability,
            Op::Create(_) | Op::Drop(_) | Op::Rename(..) | Op::Flush | Op::Compact | Op::Sync => {
                Durability::Sync
            }
        }
    }
}

/// The name of a writer's main keyspace.
pub(crate) fn home(writer: usize) -> String {
    format!("w{writer}")
}

/// A writer's operations from some state on.
pub(crate) struct Script {
    rng: Rng,
    seed: u64,
    writer: usize,
    done: u64,
    /// The name of the keyspace that comes and goes, while it is there.
    scratch: Option<String>,
}

impl Script {
    /// `scratch` is the writer's second keyspace, if it has one.
    pub(crate) fn new(seed: u64, writer: usize, scratch: Option<String>) -> Self {
        let rng = Rng::with_seed(seed ^ (writer as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Script { rng, seed, writer, done: 0, scratch }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key/{:04}", self.rng.u32(0..KEYS)).into_bytes()
    }

    /// No two are equal: each says whose it is.
    fn value(&mut self) -> Vec<u8> {
        let mut value = format!("{:016x} w{} n{} {:x} ", self.seed, self.writer, self.done, self.rng.u32(..))
            .into_bytes();
        let len = match self.rng.u8(0..40) {
            0 => self.rng.usize(4000..20_000),
            1..=4 => self.rng.usize(300..2000),
            _ => self.rng.usize(0..150),
        };
        value.resize(value.len().max(len), b'a' + (self.done % 26) as u8);
        value
    }

    fn change(&mut self) -> Change {
        match self.rng.u8(0..20) {
            0 => {
                let (a, b) = (self.key(), self.key());
                Change::RemoveRange(a.clone().min(b.clone()), a.max(b))
            }
            1..=4 => Change::Remove(self.key()),
            _ => Change::Put(self.key(), self.value()),
        }
    }

    /// So much that the log gives it segments of its own.
    fn bulk(&mut self) -> Op {
        let bytes = self.rng.usize(1_500_000..3_000_000);
        let mut changes: Vec<_> = (0..20).map(|_| (self.keyspace(), self.key(), self.value())).collect();
        changes.iter_mut().for_each(|(_, _, value)| value.resize(bytes / 20, b'+'));
        let puts = changes.into_iter().map(|(name, key, value)| (name, Change::Put(key, value)));
        Op::Batch(puts.collect(), self.durability())
    }

    fn keyspace(&mut self) -> String {
        match &self.scratch {
            Some(name) if self.rng.bool() => name.clone(),
            _ => home(self.writer),
        }
    }

    fn changes(&mut self, most: usize) -> Vec<(String, Change)> {
        let mut changes: Vec<_> =
            (0..self.rng.usize(1..=most)).map(|_| (self.keyspace(), self.change())).collect();
        changes.push((home(self.writer), Change::Put(MARK.to_vec(), self.value())));
        changes
    }

    fn durability(&mut self) -> Durability {
        [Durability::None, Durability::Buffered, Durability::Sync][self.rng.usize(0..3)]
    }

    /// Creates, drops, renames or clears the second keyspace.
    fn catalog_op(&mut self) -> Op {
        let named = |letter: char| format!("{}-{letter}", home(self.writer));
        let Some(name) = self.scratch.take() else {
            let name = named(if self.rng.bool() { 'a' } else { 'b' });
            self.scratch = Some(name.clone());
            return Op::Create(name);
        };
        match self.rng.u8(0..3) {
            0 => Op::Drop(name),
            1 => {
                let to = named(if name.ends_with('a') { 'b' } else { 'a' });
                self.scratch = Some(to.clone());
                Op::Rename(name, to)
            }
            _ => {
                self.scratch = Some(name.clone());
                Op::Clear(name)
            }
        }
    }
}

impl Iterator for Script {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        self.done += 1;
        if self.rng.u8(0..200) == 0 {
            return Some(self.bulk());
        }
        Some(match self.rng.u8(0..100) {
            0..45 => Op::Single(self.keyspace(), self.change()),
            45..65 => {
                let most = if self.rng.u8(0..10) == 0 { 60 } else { 6 };
                Op::Batch(self.changes(most), self.durability())
            }
            65..85 => {
                let from = self.rng.u8(0..ACCOUNTS);
                let to = (from + self.rng.u8(1..ACCOUNTS)) % ACCOUNTS;
                let transfer = Transfer { from, to, amount: self.rng.i64(1..1000) };
                Op::Transaction(self.changes(3), transfer, self.durability())
            }
            85..93 => self.catalog_op(),
            93..96 => Op::Flush,
            96 => Op::Compact,
            _ => Op::Sync,
        })
    }
}

/// Finds a keyspace that writers are given, made if it is missing, or one that they made.
fn find(db: &Db, name: &str) -> Result<Keyspace> {
    if name.contains('-') { db.open_keyspace(name) } else { db.keyspace(name) }
}

/// Does an operation; it is acknowledged when this returns.
pub(crate) fn perform(db: &Db, op: &Op) -> Result<()> {
    match op {
        Op::Single(name, change) => {
            let keyspace = find(db, name)?;
            match change {
                Change::Put(key, value) => keyspace.put(key, value),
                Change::Remove(key) => keyspace.remove(key),
                Change::RemoveRange(from, to) => keyspace.remove_range(from.as_slice()..to),
            }
        }
        Op::Batch(changes, durability) => {
            let mut batch = db.batch();
            for (name, change) in changes {
                let keyspace = find(db, name)?;
                match change {
                    Change::Put(key, value) => batch.put(&keyspace, key, value)?,
                    Change::Remove(key) => batch.remove(&keyspace, key)?,
                    Change::RemoveRange(from, to) => batch.remove_range(&keyspace, from.as_slice()..to)?,
                }
            }
            batch.commit_with(*durability)
        }
        Op::Transaction(changes, transfer, durability) => loop {
            match transact(db, changes, *transfer, *durability) {
                Err(Error::Conflict) => {}
                done => return done,
            }
        },
        Op::Create(name) => db.create_keyspace(name).map(drop),
        Op::Drop(name) => db.drop_keyspace(name),
        Op::Rename(from, to) => db.rename_keyspace(from, to),
        Op::Clear(name) => find(db, name)?.clear(),
        Op::Flush => db.flush(),
        Op::Compact => db.compact(),
        Op::Sync => db.sync(),
    }
}

fn transact(db: &Db, changes: &[(String, Change)], transfer: Transfer, durability: Durability) -> Result<()> {
    let bank = find(db, BANK)?;
    let mut transaction = db.begin();
    for (account, amount) in [(transfer.from, -transfer.amount), (transfer.to, transfer.amount)] {
        let before = transaction.get(&bank, [account])?;
        let before = before.map_or(0, |value| balance(&value).unwrap_or(i64::MIN / 2));
        transaction.put(&bank, [account], (before + amount).to_le_bytes())?;
    }
    for (name, change) in changes {
        let keyspace = find(db, name)?;
        match change {
            Change::Put(key, value) => transaction.put(&keyspace, key, value)?,
            Change::Remove(key) => transaction.remove(&keyspace, key)?,
            Change::RemoveRange(from, to) => transaction.remove_range(&keyspace, from.as_slice()..to)?,
        }
    }
    transaction.commit_with(durability)
}

/// The money in an account.
pub(crate) fn balance(value: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(value.try_into().ok()?))
}
