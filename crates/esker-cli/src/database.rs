//! The database that a command works on: its own, or that of the shell.
//!
//! ```text
//!   command --> Session --open--> Handle: its own, which it closes | the shell's, which stays open
//!                          `--open_to_read--> its own, beside a process that has it open
//!                                   |-- reads:  the newest state  | that of the shell's transaction
//!                                   `-- writes: one commit        | into the shell's transaction
//! ```

pub(crate) mod transaction;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[cfg(feature = "encryption")]
use esker::encryption::{MasterKeys, with_keys};
use esker::env::Env;
use esker::{Builder, Db, Error, Follower, Keyspace, Range, Savepoint, Transaction, Ttl, Value, WriteBatch};

use crate::args::{Common, Opening};
use crate::bounds::{Bounds, KeyRange};
use crate::failure::{Failure, Refusal, Result};
use crate::output;
use crate::progress::OpeningProgress;
use crate::text::shown;

/// Interval between attempts to open a database in use.
const RETRY_EVERY: Duration = Duration::from_millis(20);

/// The options of a command and the source of its database.
pub(crate) struct Session<'a> {
    pub(crate) common: Common,
    pub(crate) opening: &'a Opening,
    /// The open database of the shell.
    pub(crate) shared: Option<&'a Database>,
}

impl<'a> Session<'a> {
    /// Opens an existing database.
    pub(crate) fn open(&self) -> Result<Handle<'a>> {
        self.open_with(false)
    }

    /// Opens an existing database, which must not be open elsewhere. The message of that failure says what to
    /// do `instead`.
    pub(crate) fn open_alone(&self, instead: &str) -> Result<Handle<'a>> {
        self.open().map_err(|failure| match failure {
            Failure::Engine(_, Error::Locked { .. }) => Failure::message(format!("{failure}\n  {instead}")),
            failure => failure,
        })
    }

    /// Opens a database, creating it if it does not exist.
    pub(crate) fn open_or_create(&self) -> Result<Handle<'a>> {
        self.open_with(true)
    }

    /// Opens an existing database to read it, also while another process has it open.
    pub(crate) fn open_to_read(&self) -> Result<Handle<'a>> {
        match self.shared {
            Some(database) => Ok(Handle::Shared(database)),
            None => Ok(Handle::Own(Box::new(Database::open_to_read(self.opening)?))),
        }
    }

    fn open_with(&self, create: bool) -> Result<Handle<'a>> {
        match self.shared {
            Some(database) => Ok(Handle::Shared(database)),
            None => Ok(Handle::Own(Box::new(Database::open(self.opening, create)?))),
        }
    }
}

/// The database of one command.
pub(crate) enum Handle<'a> {
    Own(Box<Database>),
    Shared(&'a Database),
}

impl Deref for Handle<'_> {
    type Target = Database;

    fn deref(&self) -> &Database {
        match self {
            Handle::Own(database) => database,
            Handle::Shared(database) => database,
        }
    }
}

impl Handle<'_> {
    /// Goes on to the newest commit of the process that has the database open, if there is one.
    pub(crate) fn catch_up(&mut self) -> Result<()> {
        match self {
            Handle::Own(database) => database.catch_up(),
            Handle::Shared(_) => Ok(()),
        }
    }

    /// Closes the command's own database, which makes its commits durable. The shell's database stays open.
    pub(crate) fn close(self) -> Result<()> {
        match self {
            Handle::Own(database) => database.close(),
            Handle::Shared(_) => Ok(()),
        }
    }
}

/// An open database, and the directory as the user gave it.
pub(crate) struct Database {
    pub(crate) db: Db,
    directory: PathBuf,
    /// Follows the process that has the database open.
    follower: Option<Follower>,
    /// The shell's transaction, between `begin` and `commit`.
    transaction: RefCell<Option<Transaction>>,
    /// Its savepoints and their names, oldest first.
    savepoints: RefCell<Vec<(String, Savepoint)>>,
    /// Names that the transaction gave to keyspaces. The transaction knows which of them exist.
    given: RefCell<BTreeSet<String>>,
}

/// Destination of writes.
pub(crate) enum Writes<'a> {
    Batch(Box<WriteBatch>),
    Transaction(&'a mut Transaction),
}

impl Writes<'_> {
    pub(crate) fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> esker::Result<()> {
        match self {
            Writes::Batch(batch) => batch.put(keyspace, key, value),
            Writes::Transaction(transaction) => transaction.put(keyspace, key, value),
        }
    }

    pub(crate) fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> esker::Result<()> {
        match self {
            Writes::Batch(batch) => batch.put_with_ttl(keyspace, key, value, ttl),
            Writes::Transaction(transaction) => transaction.put_with_ttl(keyspace, key, value, ttl),
        }
    }

    pub(crate) fn merge(&mut self, keyspace: &Keyspace, key: &[u8], operand: &[u8]) -> esker::Result<()> {
        match self {
            Writes::Batch(batch) => batch.merge(keyspace, key, operand),
            Writes::Transaction(transaction) => transaction.merge(keyspace, key, operand),
        }
    }

    pub(crate) fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) -> esker::Result<()> {
        match self {
            Writes::Batch(batch) => batch.delete(keyspace, key),
            Writes::Transaction(transaction) => transaction.delete(keyspace, key),
        }
    }

    pub(crate) fn delete_range(&mut self, keyspace: &Keyspace, range: KeyRange) -> esker::Result<()> {
        match self {
            Writes::Batch(batch) => batch.delete_range(keyspace, range),
            Writes::Transaction(transaction) => transaction.delete_range(keyspace, range),
        }
    }
}

impl Database {
    /// Opens the database that the command line selects.
    pub(crate) fn open(opening: &Opening, create: bool) -> Result<Self> {
        Self::open_with(opening, create, |builder| builder)
    }

    /// Opens the database with further options.
    pub(crate) fn open_with(
        opening: &Opening,
        create: bool,
        options: impl Fn(Builder) -> Builder,
    ) -> Result<Self> {
        let directory = directory(opening)?;
        let env = env(opening)?;
        let progress = OpeningProgress::default();
        let open = || {
            let progress = progress.clone();
            let builder = Db::builder()
                .env(env.clone())
                .on_event(move |event| progress.note(event))
                .create_if_missing(create)
                .allow_missing_merge_operators(true)
                .durability(opening.durability.into());
            options(builder).open(&directory)
        };
        let opened = when_free(opening.wait, open);
        progress.finish();
        match opened {
            Ok(db) => Ok(Self::new(db, directory, None)),
            Err(error) => Err(Failure::Engine(directory, error)),
        }
    }

    /// Opens the database to read it: beside the process that has it open, if there is one.
    pub(crate) fn open_to_read(opening: &Opening) -> Result<Self> {
        Self::open_in_to_read(opening, directory(opening)?)
    }

    /// The same for another directory than that of the command line.
    pub(crate) fn open_in_to_read(opening: &Opening, directory: PathBuf) -> Result<Self> {
        let env = env(opening)?;
        let builder = || Db::builder().env(env.clone()).allow_missing_merge_operators(true);
        let opened = match builder().open_read_only(&directory) {
            Err(Error::Locked { .. }) => builder()
                .open_follower(&directory)
                .map(|follower| Self::new(follower.db().clone(), directory.clone(), Some(follower))),
            opened => opened.map(|db| Self::new(db, directory.clone(), None)),
        };
        opened.map_err(|error| Failure::Engine(directory, error))
    }

    /// Opens the database, or opens it to read if another process has it open or it cannot be written.
    pub(crate) fn open_as_possible(opening: &Opening) -> Result<Self> {
        match Self::open(opening, false) {
            Err(Failure::Engine(directory, error)) if may_be_readable(&error) => {
                let database = Self::open_to_read(opening)?;
                let failure = Failure::Engine(directory, error);
                output::print_message(format_args!("{failure}\nopened to read: commands that write fail"));
                Ok(database)
            }
            opened => opened,
        }
    }

    fn new(db: Db, directory: PathBuf, follower: Option<Follower>) -> Self {
        let (transaction, savepoints, given) = (RefCell::default(), RefCell::default(), RefCell::default());
        Database { db, directory, follower, transaction, savepoints, given }
    }

    /// Warns that some figures are not those of the process that has the database open, if there is one.
    pub(crate) fn say_whose_figures(&self) {
        if self.follower.is_some() {
            output::print_message(
                "another process has the database open: options, health, commits and latencies are those of this reader",
            );
        }
    }

    /// Goes on to the newest commit of the process that has the database open, if there is one.
    pub(crate) fn catch_up(&mut self) -> Result<()> {
        if let Some(follower) = &mut self.follower
            && self.transaction.borrow().is_none()
        {
            let caught_up = follower.catch_up();
            self.db = follower.db().clone();
            caught_up.map_err(|error| Failure::Engine(self.directory.clone(), error))?;
        }
        Ok(())
    }

    /// Returns a keyspace, which must exist.
    pub(crate) fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.find(name).map_err(|error| match error {
            Error::KeyspaceNotFound(name) => Failure::message(format!(
                "no keyspace `{}` in {}\n  it has: {}",
                shown(name),
                shown(self.directory.display()),
                shown(self.names().unwrap_or_default().join(", ")),
            )),
            error => self.failure(error),
        })
    }

    /// Opens a keyspace, through the transaction if there is one.
    fn find(&self, name: &str) -> esker::Result<Keyspace> {
        match &*self.transaction.borrow() {
            Some(transaction) => transaction.open_keyspace(name),
            None => self.db.open_keyspace(name),
        }
    }

    /// Returns the names of all keyspaces, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names: BTreeSet<String> =
            self.db.keyspaces().map_err(|error| self.failure(error))?.into_iter().collect();
        if self.in_transaction() {
            names.extend(self.given.borrow().iter().cloned());
            names.retain(|name| self.has_keyspace(name));
        }
        Ok(names.into_iter().collect())
    }

    /// Returns whether a keyspace of this name exists.
    pub(crate) fn has_keyspace(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Returns the selected keyspaces, which must exist.
    pub(crate) fn keyspaces(&self, common: &Common) -> Result<Vec<(String, Keyspace)>> {
        common.keyspaces().into_iter().map(|name| Ok((name.to_owned(), self.keyspace(name)?))).collect()
    }

    /// Returns a keyspace, creating it if it does not exist.
    pub(crate) fn keyspace_or_create(&self, name: &str) -> Result<Keyspace> {
        match self.in_transaction() {
            true if self.has_keyspace(name) => self.keyspace(name),
            true => self.create_keyspace(name),
            false => self.db.keyspace(name).map_err(|error| self.failure(error)),
        }
    }

    /// Creates a keyspace: in the transaction if there is one, else immediately.
    pub(crate) fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        let created = match &mut *self.transaction.borrow_mut() {
            Some(transaction) => transaction.create_keyspace(name),
            None => self.db.create_keyspace(name),
        };
        self.given.borrow_mut().insert(name.to_owned());
        created.map_err(|error| self.failure(error))
    }

    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<()> {
        let dropped = match &mut *self.transaction.borrow_mut() {
            Some(transaction) => transaction.drop_keyspace(name),
            None => self.db.drop_keyspace(name),
        };
        dropped.map_err(|error| self.failure(error))
    }

    pub(crate) fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        let renamed = match &mut *self.transaction.borrow_mut() {
            Some(transaction) => transaction.rename_keyspace(from, to),
            None => self.db.rename_keyspace(from, to),
        };
        self.given.borrow_mut().insert(to.to_owned());
        renamed.map_err(|error| self.failure(error))
    }

    pub(crate) fn clear_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        let cleared = match &mut *self.transaction.borrow_mut() {
            Some(transaction) => transaction.clear(keyspace),
            None => keyspace.clear().map(drop),
        };
        cleared.map_err(|error| self.failure(error))
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Value>> {
        let found = match &*self.transaction.borrow() {
            Some(transaction) => transaction.get(keyspace, key),
            None => keyspace.get(key),
        };
        found.map_err(|error| self.failure(error))
    }

    /// Returns the remaining time to live of a key.
    pub(crate) fn ttl(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Ttl>> {
        let found = match &*self.transaction.borrow() {
            Some(transaction) => transaction.ttl(keyspace, key),
            None => keyspace.ttl(key),
        };
        found.map_err(|error| self.failure(error))
    }

    /// Returns whether a key exists.
    pub(crate) fn contains(&self, keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
        let found = match &*self.transaction.borrow() {
            Some(transaction) => transaction.contains(keyspace, key),
            None => keyspace.contains(key),
        };
        found.map_err(|error| self.failure(error))
    }

    /// Returns the entries of a range.
    pub(crate) fn range(&self, keyspace: &Keyspace, range: KeyRange) -> Range {
        match &*self.transaction.borrow() {
            Some(transaction) => transaction.range(keyspace, range),
            None => keyspace.range(range),
        }
    }

    /// Returns the number of entries within bounds.
    pub(crate) fn count(&self, keyspace: &Keyspace, bounds: &Bounds) -> Result<u64> {
        if bounds.is_all() && !self.in_transaction() {
            return keyspace.len().map_err(|error| self.failure(error));
        }
        let mut entries = 0;
        for key in bounds.range().map(|range| self.range(keyspace, range).keys()).into_iter().flatten() {
            key.map_err(|error| self.failure(error))?;
            entries += 1;
        }
        Ok(entries)
    }

    /// Writes atomically: in one commit, or into the transaction.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Writes<'_>) -> esker::Result<()>) -> Result<()> {
        let mut transaction = self.transaction.borrow_mut();
        let mut writes = match &mut *transaction {
            Some(transaction) => Writes::Transaction(transaction),
            None => Writes::Batch(Box::new(self.db.batch())),
        };
        write(&mut writes).map_err(|error| self.failure(error))?;
        match writes {
            Writes::Batch(batch) => self.commit_batch(*batch),
            Writes::Transaction(_) => Ok(()),
        }
    }

    pub(crate) fn commit_batch(&self, batch: WriteBatch) -> Result<()> {
        let commit = || -> esker::Result<()> {
            batch.commit()?;
            Ok(())
        };
        commit().map_err(|error| self.failure(error))
    }

    /// Adds the directory, as the user gave it, to an error of the engine.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        Failure::Engine(self.directory.clone(), error)
    }

    /// Returns the directory as the user gave it.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn close(self) -> Result<()> {
        self.db.close().map_err(|error| Failure::Engine(self.directory, error))
    }
}

/// Returns whether a database that cannot be opened may be opened to read it.
fn may_be_readable(error: &Error) -> bool {
    let refusal = Refusal::of(error);
    matches!(error, Error::Locked { .. }) || matches!(refusal, Some(Refusal::Permission | Refusal::ReadOnly))
}

/// Returns the directory of the database.
pub(crate) fn directory(opening: &Opening) -> Result<PathBuf> {
    opening.db.clone().ok_or_else(|| {
        Failure::message(
            "no database selected: name its directory with --db DIR, or set ESKER_DB in the environment",
        )
    })
}

/// Returns the operating system's environment, with the keys that the command line selects.
pub(crate) fn env(opening: &Opening) -> Result<Env> {
    let env = Env::real();
    #[cfg(feature = "encryption")]
    if let Some(path) = &opening.key_file {
        let keys = MasterKeys::from_file(path).map_err(|error| Failure::message(shown(error)))?;
        return Ok(with_keys(&env, keys));
    }
    let _ = opening;
    Ok(env)
}

/// Repeats `attempt` while another process uses the database, for as long as `--wait` says.
pub(crate) fn when_free<T>(
    wait: Option<Duration>,
    mut attempt: impl FnMut() -> esker::Result<T>,
) -> esker::Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(Error::Locked { .. }) if wait.is_some_and(|wait| start.elapsed() < wait) => {
                std::thread::sleep(RETRY_EVERY);
            }
            done => return done,
        }
    }
}
