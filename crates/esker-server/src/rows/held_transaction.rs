//! A transaction that a connection holds from `OB.BEGIN` on.
//!
//! ```text
//!   commands --write--> Writes --------------- COMMIT, in the sequencer: unwatched? --> its transaction
//!            --read---> a state of the store with Writes on top
//! ```
//!
//! held_transaction.1. Nothing of it is in the store before its commit. It holds neither the sequencer nor a transaction of the store.
//! held_transaction.2. It sees its own writes. Repeatable reads are of the state at its beginning, others of the newest.
//! held_transaction.3. It commits nothing if something it watches is not what it was when the watch began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::codec::{first_part, plain};
use super::overlay::{View, Writes};
use super::walk::Source;
use crate::fail::Done;
use crate::store::{Durability, Reads, Snapshot, Space, Transaction};

/// Its writes take no more memory.
const BYTES_MAX: usize = 64 << 20;
/// So many keys, columns and prefixes are watched at the most.
const WATCHES_MAX: usize = 10_000;
/// So many transactions are one in another at the most.
const LEVELS_MAX: usize = 64;
/// So many topics are said at its commit at the most.
const TOPICS_MAX: usize = 100_000;

/// The error of a commit that found a change.
pub const DIRTY: &str = "DIRTY something that was watched has changed: nothing was committed; begin again";
/// The error of all commands of one that was left alone for too long.
pub const IDLE: &str = "TXTIMEOUT the transaction was left alone for too long and is rolled back: OB.ABORT it, \
     and begin again; see the option ob-transaction-timeout";

/// What is watched: from one stored key on, up to another.
pub struct Watched {
    /// With it.
    pub lower: Vec<u8>,
    /// Without it.
    pub upper: Vec<u8>,
    /// What it was.
    pub at: Arc<dyn Snapshot>,
}

/// One of the transactions that are one in another.
struct Level {
    /// The state it reads, if reads are repeatable in it.
    snapshot: Option<Arc<dyn Snapshot>>,
    /// So many topics were to be said when it began.
    topics: usize,
}

/// What it has done so far.
pub struct State {
    writes: Writes,
    levels: Vec<Level>,
    watched: Vec<Watched>,
    topics: Vec<Vec<u8>>,
    durability: Durability,
    /// Why it cannot commit any more.
    refusal: Option<&'static str>,
}

impl State {
    /// Begins the first transaction, or one inside.
    ///
    /// # Errors
    /// There are too many.
    fn enter(&mut self, snapshot: Option<Arc<dyn Snapshot>>, durability: Durability) -> Done {
        if self.levels.len() >= LEVELS_MAX {
            return Err("ERR too many transactions are one in another".into());
        }
        if !self.levels.is_empty() {
            self.writes.mark();
        }
        self.levels.push(Level { snapshot, topics: self.topics.len() });
        self.durability = self.durability.max(durability);
        Ok(())
    }

    /// Ends the innermost transaction, if it is inside of another. What it did stays.
    fn keep(&mut self) {
        self.levels.pop();
        self.writes.keep();
    }

    /// Ends the innermost transaction, if it is inside of another. What it wrote is undone.
    fn undo(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.topics.truncate(level.topics);
            self.writes.undo();
        }
    }

    /// The state that reads are of, if they are repeatable (held_transaction.2).
    pub fn snapshot(&self) -> Option<&Arc<dyn Snapshot>> {
        self.levels.iter().find_map(|level| level.snapshot.as_ref())
    }

    /// What it sees, where `now` is the newest state.
    pub fn view<'a>(&'a self, now: &'a dyn Reads) -> View<'a> {
        let base = self.snapshot().map_or(now, |snapshot| &**snapshot as &dyn Reads);
        View { base, writes: &self.writes }
    }

    /// Writes. What has grown too large is refused, and can only be aborted.
    ///
    /// # Errors
    /// Those of `write`; it is too large.
    pub fn write(&mut self, write: impl FnOnce(&mut Writes) -> Done) -> Done {
        if self.writes.bytes() > BYTES_MAX {
            return Err(
                "ERR the transaction has written more than 64 MiB: abort it, and commit in parts".into()
            );
        }
        write(&mut self.writes)
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

    /// Says a topic when it commits.
    ///
    /// # Errors
    /// It says too much.
    pub fn say(&mut self, topic: &[u8]) -> Done {
        if self.topics.len() >= TOPICS_MAX {
            return Err("ERR the transaction has too much to say".into());
        }
        self.topics.push(topic.to_vec());
        Ok(())
    }

    /// It cannot commit any more.
    pub fn refuse(&mut self, why: &'static str) {
        self.refusal = Some(why);
    }

    /// Whether something it watches has changed.
    fn is_dirty(&self, space: &Space, now: &dyn Reads) -> Done<bool> {
        for Watched { lower, upper, at } in &self.watched {
            if (Source { reads: &**at, space }).differs(now, (lower, upper))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Commits to a transaction of the store. One that has written nothing never fails (held_transaction.3).
    ///
    /// # Errors
    /// [`DIRTY`]; why it was refused; the store's.
    pub fn commit(&self, space: &Space, into: &mut dyn Transaction) -> Done {
        if let Some(why) = self.refusal {
            return Err(why.into());
        }
        if self.writes.is_empty() && self.topics.is_empty() {
            return Ok(());
        }
        if self.is_dirty(space, &*into)? {
            return Err(DIRTY.into());
        }
        self.writes.apply(space, into)
    }

    /// What it says once it has committed.
    pub fn topics(self) -> Vec<Vec<u8>> {
        self.topics
    }

    /// What its commit waits for, at least.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// How many transactions are one in another.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The tables that it has changed.
    pub fn tables(&self) -> Vec<Vec<u8>> {
        let mut tables: Vec<Vec<u8>> = Vec::new();
        for table in self.writes.places().filter_map(first_part) {
            if tables.last().is_none_or(|last| last != table) {
                tables.push(table.to_vec());
            }
        }
        tables.sort_unstable();
        tables.dedup();
        tables.iter().map(|table| plain(table).into_owned()).collect()
    }
}

/// A transaction that a connection holds.
pub struct Held {
    /// Its number.
    pub id: u64,
    /// The number of its connection.
    pub client: u64,
    /// The keyspace it works in.
    pub keyspace: String,
    /// The space of that.
    pub space: Space,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When its last command came. Relaxed, as the others: figures.
    used_ms: AtomicU64,
    writes: AtomicUsize,
    state: Mutex<Option<State>>,
}

impl Held {
    /// One that has done nothing.
    pub fn new(id: u64, client: u64, keyspace: &str, space: Space, now: u64) -> Self {
        let state = State {
            writes: Writes::default(),
            levels: Vec::new(),
            watched: Vec::new(),
            topics: Vec::new(),
            durability: Durability::None,
            refusal: None,
        };
        Held {
            id,
            client,
            keyspace: keyspace.to_owned(),
            space,
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
        self.writes.store(state.writes.len(), Ordering::Relaxed);
        done
    }

    /// Begins it, or one inside.
    ///
    /// # Errors
    /// There are too many one in another; [`IDLE`].
    pub fn enter(&self, now: u64, snapshot: Option<Arc<dyn Snapshot>>, durability: Durability) -> Done {
        self.with(now, |state| state.enter(snapshot, durability))
    }

    /// Ends the innermost one, if there are others around it: keeps or undoes what it did. False: it is the outermost.
    ///
    /// # Errors
    /// [`IDLE`].
    pub fn leave(&self, now: u64, keeps: bool) -> Done<bool> {
        self.with(now, |state| {
            let is_inside = state.depth() > 1;
            match (is_inside, keeps) {
                (true, true) => state.keep(),
                (true, false) => state.undo(),
                _ => {}
            }
            Ok(is_inside)
        })
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

    /// The tables that it has changed. Does not count as a use of it.
    ///
    /// # Errors
    /// [`IDLE`].
    pub fn tables(&self) -> Done<Vec<Vec<u8>>> {
        Ok(self.state.lock().as_ref().ok_or(IDLE)?.tables())
    }

    /// How many keys and ranges it has written.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}
