//! A transaction of a connection, from `ES.BEGIN` or `OB.BEGIN` to its commit or rollback.
//!
//! ```text
//!   commands --write--> a part --COMMIT: admit, then repeat each write--> the sequencer's transaction
//!            --read---> the part's snapshot with its writes on top
//! ```
//!
//! - The store has none of its writes before the commit, and it does not block the sequencer.
//! - It sees its own writes. Repeatable reads see the state at its beginning, other reads the newest state.
//! - The commit fails if a watched key was written after the watch began. Depending on the isolation, it also
//!   fails if a key that the transaction has written or read was written. A key that it has read and that has
//!   expired since then counts as written.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::namespace::Namespace;
use super::topics::Saying;
use crate::resp::fail::{Done, Fail};
use crate::store::record::string_record;
use crate::store::spans::Stretch;
use crate::store::{Durability, Error, Isolation, Reads, Result, Store, Transaction, Write};

/// Maximum total size of the written keys and values, in bytes.
const BYTES_MAX: usize = 64 << 20;
/// Maximum number of watched keys, columns and prefixes.
const WATCHES_MAX: usize = 10_000;
/// Maximum number of messages to send at the commit, and of their bytes.
const SAYINGS_MAX: usize = 100_000;
const SAID_BYTES_MAX: usize = 16 << 20;
/// Maximum depth of nested transactions and savepoints.
const LEVELS_MAX: usize = 64;

/// Reply to a commit that finds a changed key among the watched ones.
const DIRTY: &str = "DIRTY watched data has changed: nothing was committed; run the transaction again";
/// Reply to a commit that finds a changed key among those read or written.
const CONFLICT: &str = "CONFLICT another commit has changed what the transaction has read or written: nothing was \
     committed; begin again";
/// Reply to a commit after a failed write.
const FAILED: &str = "EXECABORT Transaction discarded because of previous errors: nothing was committed";
/// Reply to all commands of a transaction that was idle for too long.
pub const IDLE: &str = "TXTIMEOUT the transaction was left alone for too long and is rolled back: roll it back, \
     and begin again; see the option transaction-timeout";

/// A nested transaction or a savepoint.
struct Level {
    /// The store's savepoint at its beginning.
    point: usize,
    /// The name of the savepoint; `None` for a transaction.
    name: Option<Vec<u8>>,
    /// Number of messages at its beginning.
    said: usize,
    /// Whether reads in it are repeatable.
    is_repeatable: bool,
}

/// What the transaction has done so far.
pub struct State {
    isolation: Isolation,
    started_ms: u64,
    transaction: Box<dyn Transaction>,
    /// Places of its writes, by name.
    namespaces: BTreeMap<String, Namespace>,
    /// The outermost transaction first.
    levels: Vec<Level>,
    /// When the first of the keys it has read expires, in milliseconds since 1970.
    expires: Cell<u64>,
    /// Each of them depends on the keys watched while its state was current.
    watchers: Vec<Box<dyn Transaction>>,
    watches: usize,
    said: Vec<Saying>,
    said_bytes: usize,
    durability: Durability,
    /// The number of `SWAPDB` and similar exchanges at its first write to a numbered database.
    generation: Option<u64>,
    /// Why it cannot commit, if that is so.
    refusal: Option<String>,
    /// Number of open levels when a write failed. It cannot commit until one of them is undone.
    failed_at: Option<usize>,
}

impl State {
    /// Begins the outermost transaction or a nested one, or, with a name, a savepoint.
    ///
    /// # Errors
    /// There are too many levels.
    fn enter(
        &mut self,
        store: &dyn Store,
        is_repeatable: bool,
        name: Option<&[u8]>,
        durability: Durability,
    ) -> Done {
        if self.levels.len() >= LEVELS_MAX {
            return Err("ERR transactions and savepoints are nested too deeply: at most 64".into());
        }
        if is_repeatable && !self.is_repeatable() {
            // Watches from here on start at the state that is read, or at an older one.
            self.watchers.push(store.begin_watcher());
            self.transaction.refresh();
        }
        self.push_level(is_repeatable, name);
        self.durability = self.durability.max(durability);
        Ok(())
    }

    fn push_level(&mut self, is_repeatable: bool, name: Option<&[u8]>) {
        let (point, said) = (self.transaction.savepoint(), self.said.len());
        self.levels.push(Level { point, name: name.map(<[u8]>::to_vec), said, is_repeatable });
    }

    /// Returns whether reads are repeatable.
    fn is_repeatable(&self) -> bool {
        self.levels.iter().any(|level| level.is_repeatable)
    }

    /// Ends the innermost level and keeps its writes.
    fn keep(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.transaction.release(level.point);
        }
        self.failed_at = self.failed_at.map(|level| level.min(self.levels.len()));
    }

    /// Ends the innermost level and undoes its writes.
    fn undo(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.said.truncate(level.said);
            self.said_bytes = self.said.iter().map(Saying::bytes).sum();
            if let Err(error) = self.transaction.rollback_to(level.point) {
                self.refuse(format!("ERR {error}"));
            }
            self.transaction.release(level.point);
        }
        self.failed_at = self.failed_at.filter(|level| *level <= self.levels.len());
    }

    /// Returns the index of the innermost transaction's level.
    fn innermost(&self) -> Option<usize> {
        self.levels.iter().rposition(|level| level.name.is_none())
    }

    /// Undoes the writes since the savepoint of this name, which stays.
    ///
    /// # Errors
    /// The innermost transaction has no such savepoint.
    pub fn return_to(&mut self, name: &[u8]) -> Done {
        let found = self.levels.iter().rposition(|level| level.name.as_deref() == Some(name));
        let depth = found.filter(|_| found > self.innermost());
        let depth = depth.ok_or("ERR the transaction has no such savepoint")?;
        while self.levels.len() > depth {
            self.undo();
        }
        self.push_level(false, Some(name));
        Ok(())
    }

    /// Sets a savepoint.
    ///
    /// # Errors
    /// There are too many levels.
    pub fn save(&mut self, store: &dyn Store, name: &[u8]) -> Done {
        self.enter(store, false, Some(name), Durability::None)
    }

    /// Ends a nested transaction. Returns false if the innermost transaction is the outermost one.
    fn leave(&mut self, keeps: bool) -> bool {
        let Some(depth) = self.innermost().filter(|depth| *depth > 0) else { return false };
        while self.levels.len() > depth {
            if keeps { self.keep() } else { self.undo() }
        }
        true
    }

    /// Returns the time at which the transaction sees keys as expired.
    pub fn clock(&self, now: u64) -> u64 {
        if self.is_repeatable() { self.started_ms } else { now }
    }

    /// Prepares a read: moves to the newest state unless reads are repeatable.
    pub fn begin_read(&mut self) {
        if !self.is_repeatable() {
            self.transaction.refresh();
        }
    }

    /// Returns the state that the transaction sees.
    pub fn reads(&self) -> &dyn Reads {
        &*self.transaction
    }

    /// Records that the transaction has read a key that expires at this time.
    pub fn note_expiry(&self, at: u64) {
        self.expires.set(self.expires.get().min(at));
    }

    /// Makes writes to a namespace. In a numbered database, values become string records. `generation`: the
    /// number of exchanges of databases.
    ///
    /// # Errors
    /// The transaction is too large, and must be rolled back; errors of the store.
    pub fn write(&mut self, namespace: &Namespace, writes: &[Write<'_>], generation: u64) -> Done {
        if self.transaction.bytes() > BYTES_MAX {
            return Err(
                "ERR the transaction has written more than 64 MiB: roll it back, and commit in parts".into(),
            );
        }
        if namespace.database.is_some() {
            self.generation.get_or_insert(generation);
        }
        self.namespaces.entry(namespace.name()).or_insert_with(|| namespace.clone());
        let (transaction, space) = (&mut *self.transaction, &namespace.space);
        for write in writes {
            match *write {
                Write::Put { key, value } if namespace.database.is_some() => {
                    transaction.put(space, key, &string_record(value, 0))?;
                }
                other => transaction.write(space, other)?,
            }
        }
        Ok(())
    }

    /// Watches ranges of keys.
    ///
    /// # Errors
    /// The transaction watches too many; errors of the store.
    pub fn watch(&mut self, store: &dyn Store, namespace: &Namespace, stretches: &[Stretch]) -> Done {
        self.watches += stretches.len();
        if self.watches > WATCHES_MAX {
            return Err("ERR the transaction watches too many keys: at most 10000".into());
        }
        if !self.is_repeatable() {
            self.watchers.push(store.begin_watcher());
        }
        if let Some(watcher) = self.watchers.last() {
            stretches.iter().try_for_each(|stretch| watcher.depend_on(&namespace.space, stretch.span()))?;
        }
        Ok(())
    }

    /// Adds a message to be sent at the commit.
    ///
    /// # Errors
    /// There are too many messages.
    pub fn say(&mut self, saying: Saying) -> Done {
        self.said_bytes += saying.bytes();
        if self.said.len() >= SAYINGS_MAX || self.said_bytes > SAID_BYTES_MAX {
            return Err("ERR the transaction has too many messages: at most 100000, of 16 MiB in all".into());
        }
        self.said.push(saying);
        Ok(())
    }

    /// Makes the commit fail with this error.
    pub fn refuse(&mut self, why: String) {
        self.refusal = Some(why);
    }

    /// Makes the commit fail unless the innermost level is undone, since a write failed.
    pub fn refuse_level(&mut self) {
        let level = self.levels.len();
        self.failed_at = Some(self.failed_at.map_or(level, |failed| failed.min(level)));
    }

    /// Checks that the transaction may commit inside `whole`. Without writes and
    /// messages it always may.
    ///
    /// # Errors
    /// [`DIRTY`], [`CONFLICT`], [`FAILED`], the error given to [`refuse`](Self::refuse); errors of the store.
    pub fn admit(&self, whole: &mut dyn Transaction, now: u64, generation: u64) -> Done {
        if let Some(why) = &self.refusal {
            return Err(Fail::text(why.as_str()));
        }
        if self.failed_at.is_some() {
            return Err(FAILED.into());
        }
        if self.transaction.is_empty() && self.said.is_empty() {
            return Ok(());
        }
        let as_reply = |admitted: Result<()>, conflict: &'static str| match admitted {
            Err(Error::Conflict) => Err(Fail::from(conflict)),
            other => Ok(other?),
        };
        for watcher in &self.watchers {
            as_reply(whole.admit(&**watcher), DIRTY)?;
        }
        let has_expired = self.isolation == Isolation::Serializable && self.expires.get() <= now;
        if has_expired || self.generation.is_some_and(|known| known != generation) {
            return Err(CONFLICT.into());
        }
        as_reply(whole.admit(&*self.transaction), CONFLICT)
    }

    /// Returns the namespaces of its writes.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.namespaces.values()
    }

    /// Visits the writes to one of these namespaces.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub fn visit_writes(&self, namespace: &Namespace, visit: &mut dyn FnMut(Write<'_>)) -> Result<()> {
        self.transaction.visit_writes(&namespace.space, visit)
    }

    /// Returns the messages to send after the commit.
    pub fn said(self) -> Vec<Saying> {
        self.said
    }

    /// Returns the durability for which the commit must wait at least.
    pub fn durability(&self) -> Durability {
        self.durability
    }
}

/// A transaction of a connection.
pub struct Held {
    /// The number of the transaction.
    pub id: u64,
    /// The number of the connection.
    pub client: u64,
    /// The name of the namespace where it began.
    pub began_in: String,
    /// Its isolation.
    pub isolation: Isolation,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When its last command came, in milliseconds since 1970. Relaxed, like `writes`: statistics.
    used_ms: AtomicU64,
    writes: AtomicUsize,
    state: Mutex<Option<State>>,
}

impl Held {
    /// Creates a transaction without reads and writes.
    pub fn new(
        id: u64,
        client: u64,
        began_in: String,
        (isolation, transaction): (Isolation, Box<dyn Transaction>),
        now: u64,
    ) -> Self {
        let state = State {
            isolation,
            started_ms: now,
            transaction,
            namespaces: BTreeMap::new(),
            levels: Vec::new(),
            expires: Cell::new(u64::MAX),
            watchers: Vec::new(),
            watches: 0,
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

    /// Calls `work` with the transaction's state, as a use of it.
    ///
    /// # Errors
    /// [`IDLE`]; errors of `work`.
    pub fn with<T>(&self, now: u64, work: impl FnOnce(&mut State) -> Done<T>) -> Done<T> {
        self.used_ms.store(now, Ordering::Relaxed);
        let mut state = self.state.lock();
        let state = state.as_mut().ok_or(IDLE)?;
        let done = work(state);
        self.writes.store(state.transaction.write_count(), Ordering::Relaxed);
        done
    }

    /// Begins the outermost transaction or a nested one.
    ///
    /// # Errors
    /// There are too many levels; [`IDLE`].
    pub fn enter(&self, now: u64, store: &dyn Store, is_repeatable: bool, durability: Durability) -> Done {
        self.with(now, |state| state.enter(store, is_repeatable, None, durability))
    }

    /// Ends a nested transaction, and keeps or undoes its writes. Returns false if the innermost
    /// transaction is the outermost one.
    ///
    /// # Errors
    /// [`IDLE`].
    pub fn leave(&self, now: u64, keeps: bool) -> Done<bool> {
        self.with(now, |state| Ok(state.leave(keeps)))
    }

    /// Ends the transaction and returns its state.
    pub fn take(&self) -> Option<State> {
        self.state.lock().take()
    }

    /// Ends the transaction if it has been idle for `idle_ms` milliseconds. Returns whether it did.
    pub fn expire(&self, now: u64, idle_ms: u64) -> bool {
        let is_idle = || self.used_ms.load(Ordering::Relaxed).saturating_add(idle_ms) < now;
        // If the lock is taken, a command is running.
        is_idle() && self.state.try_lock().is_some_and(|mut state| is_idle() && state.take().is_some())
    }

    /// Calls `look` with the transaction's state. This does not count as a use of it.
    ///
    /// # Errors
    /// [`IDLE`].
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> Done<T> {
        Ok(look(self.state.lock().as_ref().ok_or(IDLE)?))
    }

    /// Returns the number of writes.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}
