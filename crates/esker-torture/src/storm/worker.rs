//! A writer thread, which owns its keyspaces and knows their contents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker::{
    Blobs, Counting, Db, Durability, History, Isolation, Keyspace, KeyspaceOptions, LockMode, WriteBatch,
};
use esker_world::failure::{Failure, Result};
use esker_world::model::values::ValueNo;
use esker_world::perform::OPERATOR;
use fastrand::Rng;
use parking_lot::{Condvar, Mutex};

use super::judge;
use super::ledger::Ledger;
use super::model::{
    Action, Change, DEFAULT_TTL_MS, KEYS, Life, Method, Model, NUMBERS, Presence, SLOTS, Span, key,
};

/// Maximum number of conflicts of a worker's transaction, which sweeps cause.
const CONFLICTS_MAX: u32 = 20;
/// A lock that all workers take sometimes.
const GATE: &str = "gate";

/// Returns the options of a worker's keyspace, which differ between keyspaces.
pub(super) fn options(slot: usize) -> KeyspaceOptions {
    let mut options = KeyspaceOptions::default();
    options.merge_operator = Some(OPERATOR.to_owned());
    match slot {
        0 => options.history = History::Versions(3),
        1 => {
            options.default_ttl = Some(Duration::from_millis(DEFAULT_TTL_MS));
            options.counting = Counting::Lazy;
        }
        _ => {
            options.blobs = Some(Blobs::From(200));
            options.history = History::For(Duration::from_secs(2));
        }
    }
    options
}

/// The commits of a worker in this life, for comparing copies.
pub(super) struct Log {
    state: Mutex<State>,
    idle: Condvar,
}

struct State {
    base: Model,
    done: Vec<(u64, Action, Span)>,
    /// Whether a commit is pending.
    pending: bool,
    is_over: bool,
}

impl Log {
    pub(super) fn new(base: Model) -> Self {
        let state = State { base, done: Vec::new(), pending: false, is_over: false };
        Log { state: Mutex::new(state), idle: Condvar::new() }
    }

    fn begin(&self) {
        self.state.lock().pending = true;
    }

    fn end(&self, done: (u64, Action, Span)) {
        let mut state = self.state.lock();
        state.pending = false;
        state.done.push(done);
        self.idle.notify_all();
    }

    /// Marks the log as complete.
    pub(super) fn finish(&self) {
        self.state.lock().is_over = true;
        self.idle.notify_all();
    }

    /// Returns the contents after the commit `seqno`, which is visible, so that a pending commit with a lower
    /// number ends soon.
    pub(super) fn at(&self, seqno: u64) -> Model {
        let mut state = self.state.lock();
        let before = state.done.len();
        while state.pending && state.done.len() == before && !state.is_over {
            self.idle.wait(&mut state);
        }
        let mut model = state.base.clone();
        let until = state.done.iter().filter(|(number, ..)| *number <= seqno);
        until.for_each(|(_, action, span)| model.apply(action, *span));
        model
    }

    /// Returns the number of commits.
    pub(super) fn len(&self) -> usize {
        self.state.lock().done.len()
    }
}

/// The state of the thread.
pub(super) struct Worker<'a> {
    pub(super) db: &'a Db,
    pub(super) log: &'a Log,
    pub(super) ledger: Ledger,
    pub(super) model: Model,
    pub(super) keyspaces: Vec<Keyspace>,
    pub(super) rng: Rng,
    pub(super) stamp: u32,
    pub(super) durability: Durability,
}

impl Worker<'_> {
    /// Works until stopped.
    pub(super) fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut held = None;
        for n in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.commit()?;
            if n.is_multiple_of(16) {
                self.look()?;
            }
            match n % 64 {
                10 => held = Some((self.db.snapshot(), self.model.clone())),
                60 => self.look_at(held.take())?,
                _ => {}
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let action = self.draw();
        let before = self.db.time_ms();
        self.ledger.intent(&action, before)?;
        self.log.begin();
        let done = self.perform(&action);
        let span = (before, self.db.time_ms());
        let seqno = done.map_err(|error| Failure::new(format!("{action:?}: {error}")))?;
        self.ledger.ack(span)?;
        self.model.apply(&action, span);
        self.log.end((seqno, action, span));
        Ok(())
    }

    /// Compares a key, or a whole keyspace.
    fn look(&mut self) -> Result<()> {
        let n = self.rng.usize(0..SLOTS);
        if self.rng.u8(0..8) == 0 {
            let difference = judge::difference(self.db, &self.keyspaces[n], &self.model.slots[n])?;
            return difference.map_or(Ok(()), |text| Err(Failure::new(format!("slot {n}: {text}"))));
        }
        let no = self.key();
        let before = self.db.time_ms();
        let found = self.keyspaces[n].get(key(no))?;
        let slot = &self.model.slots[n];
        let expected = slot.entries.get(&no).map(|entry| entry.content.bytes());
        let is_right = match slot.presence(no, (before, self.db.time_ms())) {
            Presence::Unsure => true,
            Presence::Gone => found.is_none(),
            Presence::Live => found.as_deref() == expected.as_deref(),
        };
        let entry = slot.entries.get(&no);
        if is_right {
            Ok(())
        } else {
            Err(Failure::new(format!("slot {n}, get of {no}: {found:?}, not {entry:?}")))
        }
    }

    /// Compares a snapshot with the contents at its creation. Its keyspaces may be dropped.
    fn look_at(&mut self, held: Option<(esker::Snapshot, Model)>) -> Result<()> {
        let Some((snapshot, model)) = held else { return Ok(()) };
        let (n, no) = (self.rng.usize(0..SLOTS), self.key());
        let before = self.db.time_ms();
        let found = match snapshot.get(&self.keyspaces[n], key(no)) {
            Err(esker::Error::KeyspaceNotFound(_)) => return Ok(()),
            found => found?,
        };
        let slot = &model.slots[n];
        let is_new = snapshot.first(&self.keyspaces[n])?.is_none();
        match slot.presence(no, (before, self.db.time_ms())) {
            // A keyspace created after the snapshot is empty in it.
            Presence::Live if !is_new && found.is_none() => {
                Err(Failure::new(format!("slot {n}: a snapshot lacks {no}: {:?}", slot.entries[&no])))
            }
            Presence::Gone if found.is_some() => {
                Err(Failure::new(format!("slot {n}: a snapshot shows {no}")))
            }
            _ => Ok(()),
        }
    }

    fn perform(&mut self, action: &Action) -> Result<u64> {
        Ok(match action.method {
            Method::Single => self.single(&action.changes[0])?,
            Method::Batch => {
                let mut batch = self.db.batch();
                for (slot, change) in &action.changes {
                    self.add(&mut batch, &self.keyspaces[*slot], change)?;
                }
                batch.commit_with(self.durability).map_err(esker::Error::from)?.get()
            }
            Method::Transaction => self.transaction(&action.changes)?,
            Method::Ingest => {
                let mut ingest = self.keyspaces[action.changes[0].0].ingest();
                for (_, change) in &action.changes {
                    if let Change::Put(no, len, stamp, _) = *change {
                        ingest.put(key(no), ValueNo::new(len, stamp).bytes())?;
                    }
                }
                ingest.commit().map_err(esker::Error::from)?.get()
            }
            Method::Swap => {
                let [a, b] = [0, 1].map(|n| self.model.slots[n].name.clone());
                let between = format!("{a}.swapped");
                let mut transaction = self.db.begin();
                transaction.rename_keyspace(&a, &between)?;
                transaction.rename_keyspace(&b, &a)?;
                transaction.rename_keyspace(&between, &b)?;
                transaction.commit_with(self.durability).map_err(esker::Error::from)?.get()
            }
            Method::Recreate => {
                let slot = action.changes[0].0;
                let name = self.model.slots[slot].name.clone();
                let mut batch = self.db.batch();
                batch.drop_keyspace(&name)?;
                let new = batch.create_keyspace(&name)?;
                batch.set_options(&new, options(slot))?;
                for (_, change) in &action.changes {
                    self.add(&mut batch, &new, change)?;
                }
                let seqno = batch.commit_with(self.durability).map_err(esker::Error::from)?.get();
                self.keyspaces[slot] = self.db.open_keyspace(&name)?;
                seqno
            }
        })
    }

    fn single(&self, (slot, change): &(usize, Change)) -> Result<u64> {
        let keyspace = &self.keyspaces[*slot];
        let bytes = |len, stamp| ValueNo::new(len, stamp).bytes();
        Ok(match *change {
            Change::Put(no, len, stamp, Life::Default) => keyspace.put(key(no), bytes(len, stamp))?.get(),
            Change::Put(no, len, stamp, Life::For(ms)) => {
                keyspace.put_with_ttl(key(no), bytes(len, stamp), Duration::from_millis(ms))?.get()
            }
            Change::Merge(no, len, stamp) => keyspace.merge(key(no), bytes(len, stamp))?.get(),
            Change::Remove(no) => keyspace.delete(key(no))?.get(),
            Change::RemoveRange(from, to) => keyspace.delete_range(key(from)..key(to))?.get(),
            Change::Clear => keyspace.clear()?.get(),
            _ => self.transaction(&[(*slot, *change)])?,
        })
    }

    fn add(&self, batch: &mut WriteBatch, keyspace: &Keyspace, change: &Change) -> Result<()> {
        let bytes = |len, stamp| ValueNo::new(len, stamp).bytes();
        match *change {
            Change::Put(no, len, stamp, Life::Default) => batch.put(keyspace, key(no), bytes(len, stamp))?,
            Change::Put(no, len, stamp, Life::For(ms)) => {
                batch.put_with_ttl(keyspace, key(no), bytes(len, stamp), Duration::from_millis(ms))?;
            }
            Change::Merge(no, len, stamp) => batch.merge(keyspace, key(no), bytes(len, stamp))?,
            Change::Remove(no) => batch.delete(keyspace, key(no))?,
            Change::RemoveRange(from, to) => batch.delete_range(keyspace, key(from)..key(to))?,
            Change::Clear => batch.clear(keyspace)?,
            other => return Err(Failure::new(format!("{other:?} is not drawn for batches"))),
        }
        Ok(())
    }

    /// Runs a transaction. Compactions cause no conflicts, and no other worker writes to these keyspaces, but
    /// sweeps may remove keys that it merges into.
    fn transaction(&self, changes: &[(usize, Change)]) -> Result<u64> {
        for _ in 0..CONFLICTS_MAX {
            match self.try_transaction(changes)? {
                Err(esker::Error::Conflict { .. }) => {}
                done => return Ok(done?),
            }
        }
        Err(Failure::new(format!("{CONFLICTS_MAX} conflicts, though no one else writes here")))
    }

    fn try_transaction(&self, changes: &[(usize, Change)]) -> Result<esker::Result<u64>> {
        let mut rng = Rng::with_seed(changes.len() as u64);
        let isolation = if rng.bool() { Isolation::Serializable } else { Isolation::Snapshot };
        let mut transaction = self.db.transaction().isolation(isolation).begin();
        if changes.len() == 2 {
            transaction.lock_name_for(GATE, LockMode::Exclusive, Duration::from_secs(60))?;
        }
        for (n, (slot, change)) in changes.iter().enumerate() {
            let keyspace = &self.keyspaces[*slot];
            if n % 7 == 3 {
                // Writes that are rolled back have no effect.
                let point = transaction.savepoint();
                transaction.put(keyspace, key(n as u16 % KEYS), [7; 60])?;
                transaction.delete_range(keyspace, key(10)..key(20))?;
                transaction.rollback_to(&point)?;
            }
            let mut view = transaction.keyspace_mut(keyspace);
            let bytes = |len, stamp| ValueNo::new(len, stamp).bytes();
            match *change {
                Change::Put(no, len, stamp, Life::Default) => view.put(key(no), bytes(len, stamp))?,
                Change::Put(no, len, stamp, Life::For(ms)) => {
                    view.put_with_ttl(key(no), bytes(len, stamp), Duration::from_millis(ms))?;
                }
                Change::Merge(no, len, stamp) => view.merge(key(no), bytes(len, stamp))?,
                Change::Update(no, len, stamp) => {
                    view.update(key(no), |old| Some(updated(old, ValueNo::new(len, stamp))))?;
                }
                Change::Add(no, by) => drop(view.fetch_add(key(no), by)?),
                Change::Remove(no) => view.delete(key(no))?,
                Change::Take(no) => drop(view.remove(key(no))?),
                Change::RemoveRange(from, to) => view.delete_range(key(from)..key(to))?,
                Change::Clear => view.clear()?,
                Change::Expire(no, ms) => drop(view.expire(key(no), Duration::from_millis(ms))?),
                Change::Persist(no) => drop(view.persist(key(no))?),
            }
        }
        Ok(transaction.commit_with(self.durability).map(|seqno| seqno.get()).map_err(esker::Error::from))
    }
}

/// Returns the result of an update.
fn updated(old: Option<&[u8]>, operand: ValueNo) -> Vec<u8> {
    let old = old.and_then(ValueNo::parse);
    old.map_or(operand, |old| old.merged(operand)).bytes()
}

/// Generates the next actions.
impl Worker<'_> {
    fn key(&mut self) -> u16 {
        // A few keys get most writes, so that versions pile up.
        if self.rng.bool() { self.rng.u16(0..KEYS / 16) } else { self.rng.u16(0..KEYS) }
    }

    fn value(&mut self) -> (u32, u32) {
        self.stamp += 1;
        let len = [4, 20, 60, 300, 900][self.rng.usize(0..5)] + self.rng.u32(0..20);
        (len, self.stamp)
    }

    fn life(&mut self) -> Life {
        match self.rng.u8(0..3) {
            0 => Life::For([1, 20, 200, 3000][self.rng.usize(0..4)]),
            _ => Life::Default,
        }
    }

    fn put(&mut self, no: u16) -> Change {
        let (len, stamp) = self.value();
        Change::Put(no, len, stamp, self.life())
    }

    fn change(&mut self) -> Change {
        let no = self.key();
        match self.rng.u8(0..24) {
            0..4 => {
                let (len, stamp) = self.value();
                Change::Merge(no, len, stamp)
            }
            4..8 => Change::Remove(no),
            8 => Change::RemoveRange(no, no.saturating_add(self.rng.u16(1..100))),
            9 if self.rng.u8(0..8) == 0 => Change::Clear,
            _ => self.put(no),
        }
    }

    /// Returns a read-modify-write change.
    fn update(&mut self) -> Change {
        let no = self.key();
        match self.rng.u8(0..8) {
            0..2 => {
                let (len, stamp) = self.value();
                Change::Update(no, len, stamp)
            }
            2..4 => Change::Add(KEYS + no % NUMBERS, self.rng.i64(-5..50)),
            4 => Change::Take(no),
            5 => Change::Persist(no),
            _ => Change::Expire(no, [1, 50, 500][self.rng.usize(0..3)]),
        }
    }

    fn slot(&mut self) -> usize {
        self.rng.usize(0..SLOTS)
    }

    fn draw(&mut self) -> Action {
        let slot = self.slot();
        let (method, changes): (Method, Vec<_>) = match self.rng.u16(0..1000) {
            0..500 => (Method::Single, vec![(slot, self.change())]),
            500..650 => (Method::Single, vec![(slot, self.update())]),
            650..750 => {
                let n = self.rng.usize(1..12);
                (Method::Batch, (0..n).map(|_| (self.slot(), self.change())).collect())
            }
            750..850 => {
                let n = self.rng.usize(1..12);
                let one =
                    |worker: &mut Self| if worker.rng.bool() { worker.update() } else { worker.change() };
                (Method::Transaction, (0..n).map(|_| (self.slot(), one(self))).collect())
            }
            850..920 => {
                let n = self.rng.usize(100..400);
                (Method::Transaction, (0..n).map(|_| (self.slot(), self.change())).collect())
            }
            920..970 => {
                let (from, step) = (self.rng.u16(0..KEYS / 2), self.rng.u16(1..4));
                let keys = (from..KEYS).step_by(usize::from(step));
                let put = |(len, stamp), no| (slot, Change::Put(no, len, stamp, Life::Default));
                (Method::Ingest, keys.map(|no| put(self.value(), no)).collect())
            }
            970..985 => (Method::Swap, Vec::new()),
            _ => {
                let n = self.rng.usize(1..40);
                // Options set by a batch apply from its commit on.
                let put = |worker: &mut Self| {
                    let (no, (len, stamp)) = (worker.key(), worker.value());
                    Change::Put(no, len, stamp, Life::For([20, 3000, 600_000][worker.rng.usize(0..3)]))
                };
                (Method::Recreate, (0..n).map(|_| (slot, put(self))).collect())
            }
        };
        Action { method, changes }
    }
}
