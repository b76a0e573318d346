//! A transaction that a connection holds from `ES.BEGIN` or `OB.BEGIN` on.
//!
//! ```text
//!   commands --write--> Writes of each place -- COMMIT, in the sequencer: is all as it was? --> its transaction
//!            --read---> a state of the store with Writes on top --> what was read
//! ```
//!
//! held_transaction.1. Nothing of it is in the store before its commit. It holds neither the sequencer nor a transaction of the store.
//! held_transaction.2. It sees its own writes. Repeatable reads are of the state at its beginning, others of the newest.
//! held_transaction.3. It commits nothing if something it watches is not what it was when the watch began; nor, as its isolation says, if that is so of
//!      what it replaces, or of what it has read. So much is compared, entry by entry.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::compare::{At, differs};
use super::levels::Levels;
use super::overlay::Writes;
use super::place::Place;
use super::read_set::ReadSet;
use super::topics::Saying;
use super::view::View;
use crate::base::fail::Done;
use crate::store::spans::{Spans, Stretch};
use crate::store::{Durability, Order, Reads, Snapshot, Store};

/// Its writes take no more memory.
const BYTES_MAX: usize = 64 << 20;
/// So many keys, columns and prefixes are watched at the most.
const WATCHES_MAX: usize = 10_000;
/// So much is said at its commit at the most: topics, and bytes.
const SAYINGS_MAX: usize = 100_000;
const SAID_BYTES_MAX: usize = 16 << 20;

/// The error of a commit that found a change of what was watched.
const DIRTY: &str = "DIRTY something that was watched has changed: nothing was committed; begin again";
/// The error of a commit that found a change of what was read or written.
const CONFLICT: &str = "CONFLICT others have changed what the transaction has read or written: nothing was committed; begin again";
/// The error of a commit after a write that failed.
const FAILED: &str = "EXECABORT Transaction discarded because of previous errors: nothing was committed";
/// The error of all commands of one that was left alone for too long.
pub const IDLE: &str = "TXTIMEOUT the transaction was left alone for too long and is rolled back: roll it back, \
     and begin again; see the option transaction-timeout";

/// What a transaction is kept apart from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Reads are of the newest state. Of two that write the same the last wins, here and in the next.
    ReadCommitted,
    /// Reads are of the state at the beginning.
    RepeatableRead,
    /// The same, and nobody else has written what it writes.
    Snapshot,
    /// The same, and all that it has read is still so.
    Serializable,
}

/// What is watched: a stretch of keys.
pub struct Watched {
    /// Where they lie.
    pub place: Place,
    /// The keys.
    pub stretch: Stretch,
    /// What it was.
    pub at: Arc<dyn Snapshot>,
}

/// What it has done so far.
pub struct State {
    isolation: Isolation,
    started_ms: u64,
    places: BTreeMap<String, (Place, Writes)>,
    levels: Levels,
    reads: RefCell<ReadSet>,
    watched: Vec<Watched>,
    said: Vec<Saying>,
    said_bytes: usize,
    durability: Durability,
    /// Databases had been exchanged so often when it first wrote to one.
    generation: Option<u64>,
    /// Why it cannot commit any more.
    refusal: Option<&'static str>,
    /// A write failed when this many levels were open: it cannot commit until one of them is undone.
    failed_at: Option<usize>,
}

impl State {
    /// Begins the first transaction, one inside, or, with a name, what can be returned to.
    ///
    /// # Errors
    /// There are too many.
    fn enter(
        &mut self,
        snapshot: Option<Arc<dyn Snapshot>>,
        name: Option<&[u8]>,
        durability: Durability,
    ) -> Done {
        let is_first = self.levels.is_empty();
        self.levels.enter(snapshot, name, self.said.len())?;
        if !is_first {
            self.places.values_mut().for_each(|(_, writes)| writes.mark());
        }
        self.durability = self.durability.max(durability);
        Ok(())
    }

    /// Ends the innermost level, if it is inside of another. What it did stays.
    fn keep(&mut self) {
        self.levels.leave();
        self.failed_at = self.failed_at.map(|level| level.min(self.levels.len()));
        self.places.values_mut().for_each(|(_, writes)| writes.keep());
    }

    /// Ends the innermost level, if it is inside of another. What it wrote is undone.
    fn undo(&mut self) {
        if let Some(said) = self.levels.leave() {
            self.said.truncate(said);
            self.said_bytes = self.said.iter().map(Saying::bytes).sum();
            self.places.values_mut().for_each(|(_, writes)| writes.undo());
        }
        self.failed_at = self.failed_at.filter(|level| *level <= self.levels.len());
    }

    /// Undoes what was written since the savepoint of this name. It stays.
    ///
    /// # Errors
    /// There is none in the innermost transaction.
    pub fn return_to(&mut self, name: &[u8]) -> Done {
        let depth = self.levels.find(name).ok_or("ERR the transaction has no such savepoint")?;
        while self.levels.len() > depth {
            self.undo();
        }
        self.enter(None, Some(name), Durability::None)
    }

    /// Begins what can be returned to.
    ///
    /// # Errors
    /// There are too many.
    pub fn save(&mut self, name: &[u8]) -> Done {
        self.enter(None, Some(name), Durability::None)
    }

    /// Ends the innermost transaction, if there are others around it. False: it is the outermost.
    fn leave(&mut self, keeps: bool) -> bool {
        let Some(depth) = self.levels.innermost().filter(|depth| *depth > 0) else { return false };
        while self.levels.len() > depth {
            if keeps { self.keep() } else { self.undo() }
        }
        true
    }

    /// The state that reads are of, if they are repeatable (held_transaction.2).
    pub fn snapshot(&self) -> Option<&Arc<dyn Snapshot>> {
        self.levels.snapshot()
    }

    /// The time by which keys expire for it.
    pub fn clock(&self, now: u64) -> u64 {
        if self.snapshot().is_some() { self.started_ms } else { now }
    }

    /// What it sees of a place, where `now` is the newest state.
    pub fn view<'a>(&'a self, place: &'a Place, store: &'a dyn Store, now: &'a dyn Reads) -> View<'a> {
        let base = self.snapshot().map_or(now, |snapshot| &**snapshot as &dyn Reads);
        let writes = self.places.get(&place.name()).map(|(_, writes)| writes);
        let noted = (self.isolation == Isolation::Serializable).then_some((&self.reads, place));
        View { base, writes, store, noted }
    }

    /// Writes to a place. What has grown too large is refused, and can only be rolled back.
    ///
    /// # Errors
    /// Those of `write`; it is too large.
    pub fn write(&mut self, place: &Place, write: impl FnOnce(&mut Writes) -> Done) -> Done {
        if self.places.values().map(|(_, writes)| writes.bytes()).sum::<usize>() > BYTES_MAX {
            return Err(
                "ERR the transaction has written more than 64 MiB: roll it back, and commit in parts".into(),
            );
        }
        let marks = self.levels.len().saturating_sub(1);
        let fresh = || (place.clone(), Writes::with_marks(marks));
        write(&mut self.places.entry(place.name()).or_insert_with(fresh).1)
    }

    /// Notes how often databases had been exchanged when it began to write to them.
    pub fn note_generation(&mut self, generation: u64) {
        self.generation.get_or_insert(generation);
    }

    /// Watches.
    ///
    /// # Errors
    /// It watches too much.
    pub fn watch(&mut self, watched: impl IntoIterator<Item = Watched>) -> Done {
        self.watched.extend(watched);
        if self.watched.len() > WATCHES_MAX {
            return Err("ERR the transaction watches too much".into());
        }
        Ok(())
    }

    /// Says something when it commits.
    ///
    /// # Errors
    /// It says too much.
    pub fn say(&mut self, saying: Saying) -> Done {
        self.said_bytes += saying.bytes();
        if self.said.len() >= SAYINGS_MAX || self.said_bytes > SAID_BYTES_MAX {
            return Err("ERR the transaction has too much to say".into());
        }
        self.said.push(saying);
        Ok(())
    }

    /// It cannot commit any more.
    pub fn refuse(&mut self, why: &'static str) {
        self.refusal = Some(why);
    }

    /// A write failed: it cannot commit until the innermost level is undone.
    pub fn refuse_level(&mut self) {
        let level = self.levels.len();
        self.failed_at = Some(self.failed_at.map_or(level, |failed| failed.min(level)));
    }

    fn has_conflict(&self, now: At<'_>) -> Done<bool> {
        let Some(snapshot) = self.snapshot().filter(|_| self.isolation >= Isolation::Snapshot) else {
            return Ok(false);
        };
        let reads = self.reads.borrow();
        let read = reads.places().map(|(place, stretches)| (place, stretches.to_vec()));
        let replaced = self.writes().map(|(place, writes)| (place, writes.replaced().collect()));
        let mut all: BTreeMap<String, (&Place, Vec<Stretch>)> = BTreeMap::new();
        for (place, stretches) in read.chain(replaced) {
            all.entry(place.name()).or_insert((place, Vec::new())).1.extend(stretches);
        }
        for (place, stretches) in all.into_values() {
            for stretch in Spans::of(stretches).in_order(Order::Up) {
                if differs(place, stretch, (&**snapshot, self.started_ms), now)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether it may commit to a state. One that has done nothing always may (held_transaction.3).
    ///
    /// # Errors
    /// Why it may not: [`DIRTY`], [`CONFLICT`], why it was refused; and the store's.
    pub fn check(&self, now: At<'_>, generation: u64) -> Done {
        if let Some(why) = self.refusal {
            return Err(why.into());
        }
        if self.failed_at.is_some() {
            return Err(FAILED.into());
        }
        if self.places.values().all(|(_, writes)| writes.is_empty()) && self.said.is_empty() {
            return Ok(());
        }
        for Watched { place, stretch, at } in &self.watched {
            if differs(place, stretch, (&**at, self.started_ms), now)? {
                return Err(DIRTY.into());
            }
        }
        if self.generation.is_some_and(|known| known != generation) || self.has_conflict(now)? {
            return Err(CONFLICT.into());
        }
        Ok(())
    }

    /// What it has written, of each place.
    pub fn writes(&self) -> impl Iterator<Item = (&Place, &Writes)> {
        self.places.values().map(|(place, writes)| (place, writes)).filter(|(_, writes)| !writes.is_empty())
    }

    /// What it says once it has committed.
    pub fn said(self) -> Vec<Saying> {
        self.said
    }

    /// What its commit waits for, at least.
    pub fn durability(&self) -> Durability {
        self.durability
    }
}

/// A transaction that a connection holds.
pub struct Held {
    /// Its number.
    pub id: u64,
    /// The number of its connection.
    pub client: u64,
    /// The name of the place in which it began.
    pub began_in: String,
    /// What it is kept apart from.
    pub isolation: Isolation,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When its last command came. Relaxed, as the others: figures.
    used_ms: AtomicU64,
    writes: AtomicUsize,
    state: Mutex<Option<State>>,
}

impl Held {
    /// One that has done nothing.
    pub fn new(id: u64, client: u64, began_in: String, isolation: Isolation, now: u64) -> Self {
        let state = State {
            isolation,
            started_ms: now,
            places: BTreeMap::new(),
            levels: Levels::default(),
            reads: RefCell::default(),
            watched: Vec::new(),
            said: Vec::new(),
            said_bytes: 0,
            durability: Durability::None,
            generation: None,
            refusal: None,
            failed_at: None,
        };
        Held {
            id,
            client,
            began_in,
            isolation,
            started_ms: now,
            used_ms: now.into(),
            writes: AtomicUsize::new(0),
            state: Mutex::new(Some(state)),
        }
    }

    /// Works with what it has done.
    ///
    /// # Errors
    /// [`IDLE`]; those of `work`.
    pub fn with<T>(&self, now: u64, work: impl FnOnce(&mut State) -> Done<T>) -> Done<T> {
        self.used_ms.store(now, Ordering::Relaxed);
        let mut state = self.state.lock();
        let state = state.as_mut().ok_or(IDLE)?;
        let done = work(state);
        self.writes.store(state.writes().map(|(_, writes)| writes.len()).sum(), Ordering::Relaxed);
        done
    }

    /// Begins it, or one inside.
    ///
    /// # Errors
    /// There are too many one in another; [`IDLE`].
    pub fn enter(&self, now: u64, snapshot: Option<Arc<dyn Snapshot>>, durability: Durability) -> Done {
        self.with(now, |state| state.enter(snapshot, None, durability))
    }

    /// Ends the innermost one, if there are others around it: keeps or undoes what it did. False: it is the outermost.
    ///
    /// # Errors
    /// [`IDLE`].
    pub fn leave(&self, now: u64, keeps: bool) -> Done<bool> {
        self.with(now, |state| Ok(state.leave(keeps)))
    }

    /// Takes out what it has done: it has ended.
    pub fn take(&self) -> Option<State> {
        self.state.lock().take()
    }

    /// Ends it if nothing has come for so long. True: it has ended now.
    pub fn expire(&self, now: u64, idle_ms: u64) -> bool {
        let is_idle = || self.used_ms.load(Ordering::Relaxed).saturating_add(idle_ms) < now;
        // Where the lock is taken, a command is at work.
        is_idle() && self.state.try_lock().is_some_and(|mut state| is_idle() && state.take().is_some())
    }

    /// Looks at what it has done. Does not count as a use of it.
    ///
    /// # Errors
    /// [`IDLE`].
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> Done<T> {
        Ok(look(self.state.lock().as_ref().ok_or(IDLE)?))
    }

    /// How many keys and ranges it has written.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}
