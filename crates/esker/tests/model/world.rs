//! Runs operations on a database and on the model, and compares.
//!
//! ```text
//!   Op --> Db on MemFs      results, reads, what is there after a crash
//!     `--> History          must agree with the model, or the run panics
//! ```
//!
//! W1. Reads of the newest state, of snapshots, of transactions and of iterators held for long agree with the model.
//! W2. A transaction fails with a conflict if and only if a commit since its beginning touched what it touches.
//! W3. After a crash the state is that after some commit, not before the last one whose durability the crash respects;
//!     `len` is exact; `check` finds nothing.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use esker::{Builder, Db, Durability, Error, Keyspace, Snapshot, Transaction};
use esker_env::{Env, FsRef, MemFs};

use super::history::History;
use super::iterate::HeldIterator;
use super::keys::{bounds, key, value};
use super::op::{CrashKind, KeyspaceNo, NAMES, Op, Opening, Reader, SLOTS, Write};
use super::read::{Source, check_read};
use super::state::{Footprint, Id, Map, State};
use crate::common::contents::dump_sound;
use crate::common::lying_fs::{Lie, LyingFs};
use crate::common::{dir, tiny};

/// Something that is wrong on purpose, to see the test fail.
#[expect(clippy::enum_variant_names, reason = "what is ignored is the point")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The model does not know removals.
    RemovalsIgnored,
    /// The model does not know conflicts.
    ConflictsIgnored,
    /// The disk does not sync.
    SyncsIgnored(Lie),
}

struct HeldTransaction {
    db: Transaction,
    /// The newest state at its beginning with its own writes.
    state: State,
    /// How many commits there were when it began.
    since: usize,
    footprint: Footprint,
    writes: Vec<(Id, Write)>,
}

/// The database and its model.
pub struct World {
    sabotage: Option<Sabotage>,
    fs: MemFs,
    seed: u64,
    db: Option<Db>,
    keyspaces: BTreeMap<Id, Keyspace>,
    next_id: u32,
    history: History,
    snapshots: [Option<(Snapshot, State)>; SLOTS],
    transactions: [Option<HeldTransaction>; SLOTS],
    iterators: [Option<HeldIterator>; SLOTS],
    durability: Durability,
}

/// Runs all operations, and ends with a check and a clean close and open.
///
/// # Panics
/// If anything disagrees with the model.
pub fn run(seed: u64, first: Opening, ops: &[Op], sabotage: Option<Sabotage>) {
    let mut world = World::new(seed, sabotage);
    world.open(first);
    for op in ops {
        world.perform(op);
    }
    world.verify_all();
    world.perform(&Op::Reopen(first));
    world.verify_all();
}

impl World {
    fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        World {
            sabotage,
            fs: MemFs::new(),
            seed,
            db: None,
            keyspaces: BTreeMap::new(),
            next_id: 0,
            history: History::new(State::default()),
            snapshots: Default::default(),
            transactions: Default::default(),
            iterators: Default::default(),
            durability: Durability::Sync,
        }
    }

    fn builder(&self, opening: Opening) -> Builder {
        let fs: FsRef = match self.sabotage {
            Some(Sabotage::SyncsIgnored(lie)) => Arc::new(LyingFs { inner: Arc::new(self.fs.clone()), lie }),
            _ => Arc::new(self.fs.clone()),
        };
        let env = Env::simulated(fs, self.seed);
        let builder = match opening.tiny {
            true => tiny(env),
            false => Db::builder().env(env).background(false).memory(16 << 20).memtable_bytes(256 << 10),
        };
        builder.durability(opening.durability)
    }

    fn open(&mut self, opening: Opening) {
        let db = self.builder(opening).open(dir()).expect("open");
        self.adopt(db, opening);
    }

    /// Takes a handle of each keyspace; the names must be those of the newest state.
    fn adopt(&mut self, db: Db, opening: Opening) {
        self.durability = opening.durability;
        if !self.history.newest().names.contains_key("default") {
            let id = self.new_id();
            self.history.amend(|state| state.add("default", id));
        }
        let names: Vec<_> =
            self.history.newest().names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        assert_eq!(db.keyspaces(), names.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
        self.keyspaces =
            names.iter().map(|(name, id)| (*id, db.open_keyspace(name).expect("it is listed"))).collect();
        self.db = Some(db);
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        Id(self.next_id)
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn pick(&self, no: KeyspaceNo) -> (Id, Keyspace) {
        let at = usize::from(no.0) % self.keyspaces.len();
        let (id, keyspace) = self.keyspaces.iter().nth(at).expect("there is the default keyspace");
        (*id, keyspace.clone())
    }

    fn apply(&self, state: &mut State, id: Id, write: &Write) {
        let removal = !matches!(write, Write::Put(..));
        if !(removal && self.sabotage == Some(Sabotage::RemovalsIgnored)) {
            state.write(id, write);
        }
    }

    /// A commit was acknowledged: notes it.
    fn committed(&mut self, writes: &[(Id, Write)], durability: Durability) {
        let mut footprint = Footprint::default();
        writes.iter().for_each(|(id, write)| footprint.add(*id, write));
        if footprint.is_empty() {
            return;
        }
        let mut state = self.history.newest().clone();
        writes.iter().for_each(|(id, write)| self.apply(&mut state, *id, write));
        self.history.push(state, footprint, durability);
    }

    fn perform(&mut self, op: &Op) {
        match op {
            Op::Write(no, write) => {
                let (id, keyspace) = self.pick(*no);
                let done = match write {
                    Write::Put(k, v) => keyspace.put(key(*k), value(*v)),
                    Write::Remove(k) => keyspace.remove(key(*k)),
                    Write::RemoveRange(range) => keyspace.remove_range(bounds(*range)),
                    Write::Clear => keyspace.clear(),
                };
                done.expect("write");
                self.committed(&[(id, *write)], self.durability);
            }
            Op::Batch(writes, durability) => self.batch(writes, *durability),
            Op::Create(name) => self.create(NAMES[usize::from(*name)]),
            Op::Drop(no) => self.drop_keyspace(*no),
            Op::Rename(no, to) => self.rename(*no, NAMES[usize::from(*to)]),
            Op::Begin(slot) => {
                self.transactions[*slot] = Some(HeldTransaction {
                    db: self.db().begin(),
                    state: self.history.newest().clone(),
                    since: self.history.len(),
                    footprint: Footprint::default(),
                    writes: Vec::new(),
                });
            }
            Op::TransactionWrite(slot, no, write) => self.transaction_write(*slot, *no, write),
            Op::Commit(slot, durability) => {
                if let Some(transaction) = self.transactions[*slot].take() {
                    self.commit(transaction, *durability);
                }
            }
            Op::Rollback(slot) => {
                if let Some(transaction) = self.transactions[*slot].take() {
                    transaction.db.rollback();
                }
            }
            Op::Snapshot(slot) => {
                self.snapshots[*slot] = Some((self.db().snapshot(), self.history.newest().clone()));
            }
            Op::ReleaseSnapshot(slot) => self.snapshots[*slot] = None,
            Op::Read(reader, no, read) => {
                let (id, keyspace) = self.pick(*no);
                let (source, map) = self.source(*reader, &keyspace, id);
                check_read(&source, &map, read);
            }
            Op::Iterate(slot, reader, no, range) => {
                let (id, keyspace) = self.pick(*no);
                let (source, map) = self.source(*reader, &keyspace, id);
                let held = HeldIterator::new(source.range(bounds(*range)), &map, &bounds(*range));
                self.iterators[*slot] = Some(held);
            }
            Op::IterateOn(slot, takes) => {
                if let Some(iterator) = &mut self.iterators[*slot] {
                    takes.iter().for_each(|back| iterator.take(*back));
                }
            }
            Op::Flush => {
                self.db().flush().expect("flush");
                self.history.all_durable();
            }
            Op::Compact => {
                self.db().compact().expect("compact");
                self.history.all_durable();
            }
            Op::Step(idle) => drop(self.db().step(*idle).expect("step")),
            Op::Sync => {
                self.db().sync().expect("sync");
                self.history.all_durable();
            }
            Op::Check => self.verify_all(),
            Op::Reopen(opening) => {
                self.release_all();
                self.db.take().expect("open").close().expect("close");
                self.history.all_durable();
                self.open(*opening);
            }
            Op::Crash(kind, opening) => self.crash(*kind, *opening),
        }
    }

    fn batch(&mut self, writes: &[(KeyspaceNo, Write)], durability: Durability) {
        let mut batch = self.db().batch();
        let mut done = Vec::new();
        for (no, write) in writes {
            let (id, keyspace) = self.pick(*no);
            let added = match write {
                Write::Put(k, v) => batch.put(&keyspace, key(*k), value(*v)),
                Write::Remove(k) => batch.remove(&keyspace, key(*k)),
                Write::RemoveRange(range) => batch.remove_range(&keyspace, bounds(*range)),
                Write::Clear => batch.remove_range::<&[u8]>(&keyspace, ..),
            };
            added.expect("add to a batch");
            done.push((id, *write));
        }
        batch.commit_with(durability).expect("commit a batch");
        self.committed(&done, durability);
    }

    fn create(&mut self, name: &str) {
        let created = self.db().create_keyspace(name);
        if self.history.newest().names.contains_key(name) {
            assert!(matches!(created, Err(Error::KeyspaceExists(n)) if n == name));
            return;
        }
        let id = self.new_id();
        self.keyspaces.insert(id, created.expect("create"));
        let mut state = self.history.newest().clone();
        state.add(name, id);
        self.history.push(state, Footprint::default(), Durability::Sync);
    }

    fn drop_keyspace(&mut self, no: KeyspaceNo) {
        let (id, keyspace) = self.pick(no);
        let name = keyspace.name();
        let dropped = self.db().drop_keyspace(&name);
        if name == "default" {
            assert!(matches!(dropped, Err(Error::Invalid(_))));
            return;
        }
        dropped.expect("drop");
        assert!(matches!(keyspace.put("k", "v"), Err(Error::KeyspaceNotFound(n)) if n == name));
        assert!(matches!(self.db().open_keyspace(&name), Err(Error::KeyspaceNotFound(_))));
        self.keyspaces.remove(&id);
        let mut state = self.history.newest().clone();
        state.names.remove(&name);
        state.maps.remove(&id);
        self.history.push(state, Footprint::default(), Durability::Sync);
    }

    fn rename(&mut self, no: KeyspaceNo, to: &str) {
        let (id, keyspace) = self.pick(no);
        let from = keyspace.name();
        let renamed = self.db().rename_keyspace(&from, to);
        if from == "default" {
            assert!(matches!(renamed, Err(Error::Invalid(_))));
        } else if self.history.newest().names.contains_key(to) {
            assert!(matches!(renamed, Err(Error::KeyspaceExists(_))));
        } else {
            renamed.expect("rename");
            assert_eq!(keyspace.name(), to);
            let mut state = self.history.newest().clone();
            state.names.remove(&from);
            state.names.insert(to.to_owned(), id);
            self.history.push(state, Footprint::default(), Durability::Sync);
        }
    }

    fn transaction_write(&mut self, slot: usize, no: KeyspaceNo, write: &Write) {
        let (id, keyspace) = self.pick(no);
        let Some(mut transaction) = self.transactions[slot].take() else { return };
        let db = &mut transaction.db;
        let added = match write {
            Write::Put(k, v) => db.put(&keyspace, key(*k), value(*v)),
            Write::Remove(k) => db.remove(&keyspace, key(*k)),
            Write::RemoveRange(range) => db.remove_range(&keyspace, bounds(*range)),
            Write::Clear => db.remove_range::<&[u8]>(&keyspace, ..),
        };
        added.expect("write in a transaction");
        self.apply(&mut transaction.state, id, write);
        transaction.footprint.add(id, write);
        transaction.writes.push((id, *write));
        self.transactions[slot] = Some(transaction);
    }

    fn commit(&mut self, transaction: HeldTransaction, durability: Durability) {
        let HeldTransaction { db, since, footprint, writes, .. } = transaction;
        let outcome = db.commit_with(durability);
        if footprint.is_empty() {
            return outcome.expect("a commit of nothing");
        }
        if writes.iter().any(|(id, _)| !self.keyspaces.contains_key(id)) {
            assert!(
                matches!(outcome, Err(Error::KeyspaceNotFound(_))),
                "into a dropped keyspace: {outcome:?}"
            );
            return;
        }
        let conflict = self.history.touched_since(since, &footprint);
        if conflict && self.sabotage != Some(Sabotage::ConflictsIgnored) {
            assert!(matches!(outcome, Err(Error::Conflict)), "W2: a conflict is due: {outcome:?}");
        } else {
            outcome.expect("W2: no conflict is due");
            self.committed(&writes, durability);
        }
    }

    fn source<'a>(&'a self, reader: Reader, keyspace: &'a Keyspace, id: Id) -> (Source<'a>, Rc<Map>) {
        let held = match reader {
            Reader::Latest => None,
            Reader::Snapshot(slot) => {
                let held = self.snapshots[slot].as_ref();
                held.map(|(snapshot, state)| (Source::Snapshot(snapshot, keyspace), state.map(id)))
            }
            Reader::Transaction(slot) => {
                let held = self.transactions[slot].as_ref();
                held.map(|held| (Source::Transaction(&held.db, keyspace), held.state.map(id)))
            }
        };
        held.unwrap_or_else(|| (Source::Latest(keyspace), self.history.newest().map(id)))
    }

    /// Everything that can be read is as it should be (W1), and `check` agrees.
    fn verify_all(&self) {
        let found = dump_sound(self.db()).expect("read everything");
        self.history.assert_newest(&found);
        for (snapshot, state) in self.snapshots.iter().flatten() {
            for (id, keyspace) in &self.keyspaces {
                check_read(
                    &Source::Snapshot(snapshot, keyspace),
                    &state.map(*id),
                    &super::read::everything(),
                );
            }
        }
    }

    fn release_all(&mut self) {
        self.snapshots = Default::default();
        self.transactions = Default::default();
        self.keyspaces.clear();
    }

    fn crash(&mut self, kind: CrashKind, opening: Opening) {
        let left = match kind {
            CrashKind::Seed(seed) => self.fs.crash(seed),
            CrashKind::Strict => self.fs.crash_strict(),
            CrashKind::KeepAll => self.fs.crash_keep_all(),
        };
        self.release_all();
        self.db = None;
        self.fs = left;
        let db = self.builder(opening).open(dir()).expect("open after a crash");
        let found = dump_sound(&db).expect("read everything after a crash");
        self.history.crashed(&found, matches!(kind, CrashKind::KeepAll));
        self.adopt(db, opening);
    }
}
