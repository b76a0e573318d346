//! A store past this process: any [`Kv`], such as a PostgreSQL server or a TiKV cluster.
//!
//! ```text
//!   Store, Reads --> RemoteStore --> Kv
//!   Transaction  --> RemoteTransaction: own writes --commit--> owner check, writes --> Kv
//!                        part --admit--> History: what later commits have changed
//! ```
//!
//! One server at a time uses a store: its waiting clients, watched keys and named locks live in its memory.
//! The owner record in the store says which server that is.
//!
//! remote.1. Each commit checks the owner record in the transaction that writes. A server that another one
//!           has replaced commits nothing.
//! remote.2. The number of a commit is stored with it, and larger than the numbers of all commits before
//!           (store.2).

mod changes;
mod history;
mod owner;
mod transaction;

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Db, Figure};
use esker_kv::{Kv, Query};
use parking_lot::Mutex;

use self::changes::Subscribers;
use self::history::History;
use self::owner::Owner;
pub use self::owner::{OWNER_SPACE, commits_of, raise_commits};
use self::transaction::RemoteTransaction;
use super::local::LocalLocks;
use super::{
    Changes, Error, Isolation, Locks, Order, Reads, Result, Snapshot, Space, Span, Store, Transaction, Value,
    Visit,
};

/// Bytes of the first page of a range. Most ranges of commands are shorter.
const FIRST_PAGE_BYTES: usize = 64 << 10;
/// Number of values fetched at once.
const VALUES_AT_ONCE: usize = 256;

/// A [`Kv`] as a [`Store`].
pub struct RemoteStore {
    shared: Arc<Shared>,
    /// The engine's table of named locks. It holds no data.
    locks: Db,
}

/// What transactions share.
struct Shared {
    kv: Arc<dyn Kv>,
    owner: Owner,
    history: Mutex<History>,
    subscribers: Subscribers,
}

impl From<esker_kv::Error> for Error {
    fn from(error: esker_kv::Error) -> Self {
        use esker_kv::Error as Kv;
        match error {
            Kv::Conflict => Error::Conflict,
            Kv::Unavailable(_) | Kv::SnapshotTooOld(_) => Error::Unavailable(error.to_string()),
            Kv::OutcomeUnknown(_) => Error::OutcomeUnknown(error.to_string()),
            Kv::TooLarge(_) => Error::TooLarge(error.to_string()),
            Kv::Unsupported(_) => Error::Unsupported(error.to_string()),
            other => Error::Invalid(other.to_string()),
        }
    }
}

fn value(bytes: &[u8]) -> Value {
    Value::from(bytes)
}

/// Fetches values until their total exceeds `bytes_max`.
fn values(
    reads: &dyn esker_kv::Reads,
    space: &Space,
    keys: &[&[u8]],
    bytes_max: usize,
) -> Result<Vec<Option<Value>>> {
    let (mut found, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for some in keys.chunks(VALUES_AT_ONCE) {
        for one in reads.multi_get(space, some)? {
            bytes += one.as_ref().map_or(0, |one| one.len());
            found.push(one.map(|one| value(&one)));
            if bytes > bytes_max {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Visits a range of one state.
fn walk(
    reads: &dyn esker_kv::Reads,
    space: &Space,
    span: Span<'_>,
    order: Order,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let query = Query::new(span).order(order).bytes(FIRST_PAGE_BYTES);
    Ok(esker_kv::visit(reads, space, query, &mut |key, value| visit(key, value))?)
}

impl RemoteStore {
    /// Opens a store, and makes this process its owner. Waits some seconds to see whether another server uses
    /// it, unless that one has ended cleanly or `takes_over` is set: then the other one is replaced.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if another server uses the store. Errors of the store.
    pub fn open(kv: Arc<dyn Kv>, takes_over: bool) -> Result<Self> {
        let (owner, commits) = Owner::take(&kv, takes_over)?;
        let history = Mutex::new(History::new(commits));
        let shared = Shared { kv, owner, history, subscribers: Subscribers::default() };
        Ok(RemoteStore { shared: Arc::new(shared), locks: Db::in_memory()? })
    }

    /// Gives the store up, so that another server can use it at once.
    pub fn close(&self) {
        self.shared.owner.give_up();
    }

    fn kv(&self) -> Result<&dyn Kv> {
        self.shared.owner.check()?;
        Ok(&*self.shared.kv)
    }
}

impl Reads for RemoteStore {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.kv()?.get(space, key)?.map(|bytes| value(&bytes)))
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        let kv = self.kv()?;
        match keys.len() <= VALUES_AT_ONCE {
            true => values(as_reads(kv), space, keys, bytes_max),
            // Several calls: of one state.
            false => self.snapshot().multi_get(space, keys, bytes_max),
        }
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        let page = self.kv()?.page(space, Query::new(span).order(order).bytes(FIRST_PAGE_BYTES))?;
        if page.has_more {
            return self.snapshot().range(space, span, order, visit);
        }
        for (key, value) in &page.entries {
            if visit(key, value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn len(&self, space: &Space) -> Result<u64> {
        Ok(self.kv()?.count(space, Span::ALL)?)
    }
}

fn as_reads(kv: &dyn Kv) -> &dyn esker_kv::Reads {
    kv
}

impl Store for RemoteStore {
    fn space(&self, name: &str, _: bool) -> Result<Space> {
        check_name(name)?;
        Ok(self.kv()?.space(name)?)
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        Ok(self.kv()?.find_space(name)?.filter(|_| name != OWNER_SPACE))
    }

    fn spaces(&self) -> Result<Vec<String>> {
        let mut names = self.kv()?.spaces()?;
        names.retain(|name| name != OWNER_SPACE);
        Ok(names)
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.kv()?.drop_space(name)?;
        self.changed_everything();
        Ok(())
    }

    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        names.iter().try_for_each(|(from, to)| check_name(from).and_then(|()| check_name(to)))?;
        self.kv()?.rename_spaces(names)?;
        self.changed_everything();
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn Snapshot> {
        let inner = self.kv().and_then(|kv| Ok(kv.snapshot()?)).map_err(|error| error.to_string());
        Arc::new(RemoteSnapshot(inner))
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(RemoteTransaction::of_sequencer(self.shared.clone()))
    }

    fn begin_part(&self, isolation: Isolation) -> Box<dyn Transaction> {
        Box::new(RemoteTransaction::part(self.shared.clone(), isolation))
    }

    fn begin_watcher(&self) -> Box<dyn Transaction> {
        Box::new(RemoteTransaction::watcher(self.shared.clone()))
    }

    fn changes(&self, space: &Space) -> Result<Option<Box<dyn Changes>>> {
        let number = self.shared.history.lock().number_of(space);
        Ok(Some(self.shared.subscribers.add(number)))
    }

    fn locks(&self) -> Box<dyn Locks> {
        Box::new(LocalLocks(self.locks.lock_owner()))
    }

    /// Commits are durable when they return.
    fn sync(&self) -> Result<()> {
        self.shared.owner.check()
    }

    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn set_merge_operator(&self, space: &Space, _: &str) -> Result<()> {
        Err(unsupported(&format!("merge operators, such as that of keyspace {:?},", space.name())))
    }

    fn health_problem(&self) -> Option<String> {
        self.shared.owner.check().err().map(|error| error.to_string())
    }

    fn is_in_memory(&self) -> bool {
        false
    }

    fn compact(&self) -> Result<()> {
        Err(unsupported("compactions"))
    }

    /// The store checks its own data when it reads them.
    fn check(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

impl RemoteStore {
    /// Ends parts that have read: their spaces may hold something else.
    fn changed_everything(&self) {
        let commit = self.shared.history.lock().add_all();
        self.shared.subscribers.notify_all(commit);
    }
}

fn check_name(name: &str) -> Result<()> {
    match name == OWNER_SPACE {
        true => Err(Error::Invalid(format!("{name:?} is the server's own keyspace"))),
        false => Ok(()),
    }
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported(format!(
        "{what} need a database of Esker's own; this server uses another store (--store)"
    ))
}

/// A snapshot, or why there is none.
struct RemoteSnapshot(Result<Box<dyn esker_kv::Snapshot>, String>);

impl RemoteSnapshot {
    fn reads(&self) -> Result<&dyn esker_kv::Snapshot> {
        self.0.as_deref().map_err(|error| Error::Unavailable(error.clone()))
    }
}

impl Snapshot for RemoteSnapshot {}

impl Reads for RemoteSnapshot {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.reads()?.get(space, key)?.map(|bytes| value(&bytes)))
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        values(self.reads()?, space, keys, bytes_max)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(self.reads()?, space, span, order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        Ok(self.reads()?.count(space, Span::ALL)?)
    }
}
