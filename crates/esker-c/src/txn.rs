//! `esker_txn`: reads and writes that belong together.
//!
//! One C type stands for four of Rust, so that every read and write takes the same argument:
//!
//! | kind | Rust | |
//! |---|---|---|
//! | default, serializable, snapshot, exclusive (of a task) | `Transaction` | reads and writes |
//! | read only | `Snapshot` | one state |
//! | write only | `WriteBatch` | writes |

use std::ffi::c_void;
use std::mem::MaybeUninit;

use esker::{Isolation, LockMode, ReadCore, Savepoint, Snapshot, Transaction, WriteBatch};

use crate::call::{ErrorPlace, Failure, call, given, set};
use crate::db::esker_db;
use crate::keyspace::esker_keyspace;
use crate::options::durability_of;
use crate::slice::esker_slice;
use crate::status::esker_status;

/// Reads and writes with the isolation of the database.
pub const ESKER_TXN_DEFAULT: u32 = 0;
/// Reads and writes as if no other transaction ran at the same time.
pub const ESKER_TXN_SERIALIZABLE: u32 = 1;
/// Reads and writes on a snapshot: permits write skew.
pub const ESKER_TXN_SNAPSHOT: u32 = 2;
/// Reads and writes while all other commits wait. It has no conflicts.
pub const ESKER_TXN_EXCLUSIVE: u32 = 3;
/// Reads one state. Any number of threads may use it at the same time.
pub const ESKER_TXN_READ_ONLY: u32 = 4;
/// Writes without reading: a batch.
pub const ESKER_TXN_WRITE_ONLY: u32 = 5;
/// Same as ESKER_TXN_EXCLUSIVE, for programs whose tasks share threads. Other writes of the thread that used
/// an exclusive transaction last pass it, so that a thread does not wait for itself. They wait for one of
/// this kind, between its calls: they may be writes of another task.
pub const ESKER_TXN_EXCLUSIVE_OF_TASK: u32 = 6;

/// Reads and writes that belong together. Unless it is read only, one thread at a time may use it. Free it
/// with esker_txn_free, after its iterators. Without a commit its writes have no effect.
pub struct esker_txn<'a> {
    state: State<'a>,
    savepoints: Vec<Savepoint>,
    /// Whether it belongs to no thread between two calls.
    is_of_task: bool,
}

enum State<'a> {
    Snapshot(Snapshot),
    Batch(Box<WriteBatch>),
    Transaction(Box<Transaction>),
    /// Lent by esker_transact, which commits it.
    Lent(&'a mut Transaction),
    Ended,
}

fn ended() -> Failure {
    Failure::invalid("the transaction has been committed: begin another one")
}

impl<'a> esker_txn<'a> {
    fn new(state: State<'a>, kind: u32) -> Self {
        let txn =
            esker_txn { state, savepoints: Vec::new(), is_of_task: kind == ESKER_TXN_EXCLUSIVE_OF_TASK };
        txn.leave();
        txn
    }

    /// Ends a call.
    fn leave(&self) {
        match &self.state {
            State::Transaction(transaction) if self.is_of_task => transaction.leave_thread(),
            State::Lent(transaction) if self.is_of_task => transaction.leave_thread(),
            _ => {}
        }
    }

    /// Runs an operation of the transaction, which reads and writes.
    pub(crate) fn with<R>(
        &mut self,
        operation: impl FnOnce(&mut Transaction) -> esker::Result<R>,
    ) -> Result<R, Failure> {
        let done = match &mut self.state {
            State::Transaction(transaction) => operation(transaction),
            State::Lent(transaction) => operation(transaction),
            State::Ended => return Err(ended()),
            State::Snapshot(_) => return Err(Failure::invalid("the transaction is read only")),
            State::Batch(_) => {
                return Err(Failure::invalid("the transaction is write only: it cannot read"));
            }
        };
        self.leave();
        Ok(done?)
    }

    /// Writes to the transaction.
    pub(crate) fn write(
        &mut self,
        to_transaction: impl FnOnce(&mut Transaction) -> esker::Result<()>,
        to_batch: impl FnOnce(&mut WriteBatch) -> esker::Result<()>,
    ) -> Result<(), Failure> {
        match &mut self.state {
            State::Batch(batch) => Ok(to_batch(batch)?),
            _ => self.with(to_transaction),
        }
    }
}

/// Reads from a keyspace: in a transaction, or its newest state if there is none.
pub(crate) fn read<R>(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&esker_txn<'_>>,
    body: impl FnOnce(&dyn ReadCore) -> esker::Result<R>,
) -> Result<R, Failure> {
    let keyspace = &given(keyspace, "keyspace")?.keyspace;
    let Some(txn) = txn else { return Ok(body(keyspace)?) };
    let found = match &txn.state {
        State::Snapshot(snapshot) => body(&snapshot.keyspace(keyspace)),
        State::Transaction(transaction) => body(&transaction.keyspace(keyspace)),
        State::Lent(transaction) => body(&transaction.keyspace(keyspace)),
        State::Batch(_) => {
            return Err(Failure::invalid("the transaction is write only: it cannot be read"));
        }
        State::Ended => return Err(ended()),
    };
    txn.leave();
    Ok(found?)
}

/// Begins a transaction of a kind (ESKER_TXN_...).
#[unsafe(no_mangle)]
pub extern "C" fn esker_begin(
    db: Option<&esker_db>,
    kind: u32,
    txn: Option<&mut MaybeUninit<Option<Box<esker_txn<'static>>>>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let (db, place) = (&given(db, "db")?.db, given(txn, "txn")?);
        let state = match kind {
            ESKER_TXN_READ_ONLY => State::Snapshot(db.snapshot()),
            ESKER_TXN_WRITE_ONLY => State::Batch(Box::new(db.batch())),
            kind => State::Transaction(Box::new(match isolation_of(kind)? {
                Some(isolation) => db.transaction().isolation(isolation).begin(),
                None => db.begin(),
            })),
        };
        place.write(Some(Box::new(esker_txn::new(state, kind))));
        Ok(())
    })
}

fn isolation_of(kind: u32) -> Result<Option<Isolation>, Failure> {
    Ok(match kind {
        ESKER_TXN_DEFAULT => None,
        ESKER_TXN_SERIALIZABLE => Some(Isolation::Serializable),
        ESKER_TXN_SNAPSHOT => Some(Isolation::Snapshot),
        ESKER_TXN_EXCLUSIVE | ESKER_TXN_EXCLUSIVE_OF_TASK => Some(Isolation::Exclusive),
        other => return Err(Failure::invalid(format!("{other} is no kind of transaction here"))),
    })
}

/// Commits a transaction with a durability (ESKER_DURABILITY_...), and sets `seqno` to the number of the
/// commit; `seqno` may be NULL. Free the transaction afterwards.
///
/// ESKER_CONFLICT: nothing was written; free it, and run all of it again (esker_transact does). After other
/// errors the transaction still has its writes: after ESKER_NO_SPACE, commit again once there is space.
#[unsafe(no_mangle)]
pub extern "C" fn esker_commit(
    txn: Option<&mut esker_txn<'_>>,
    durability: u32,
    seqno: Option<&mut MaybeUninit<u64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let txn = given(txn, "txn")?;
        let durability = durability_of(durability)?;
        let committed = match std::mem::replace(&mut txn.state, State::Ended) {
            State::Transaction(transaction) => match durability {
                Some(durability) => transaction.commit_with(durability),
                None => transaction.commit(),
            }
            .map_err(|failed| (failed.error, State::Transaction(failed.given_back))),
            State::Batch(batch) => match durability {
                Some(durability) => batch.commit_with(durability),
                None => batch.commit(),
            }
            .map_err(|failed| (failed.error, State::Batch(failed.given_back))),
            State::Snapshot(snapshot) => Ok(snapshot.seqno()),
            state @ State::Lent(_) => {
                txn.state = state;
                return Err(Failure::invalid("esker_transact commits when the function returns ESKER_OK"));
            }
            State::Ended => return Err(ended()),
        };
        match committed {
            Ok(number) => {
                set(seqno, number.get());
                Ok(())
            }
            Err((error, state)) => {
                txn.state = state;
                txn.leave();
                Err(error.into())
            }
        }
    })
}

/// Frees a transaction; without a commit its writes have no effect. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn esker_txn_free(txn: Option<Box<esker_txn<'static>>>) {
    drop(txn);
}

/// Returns the number of the newest commit that the transaction reads, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn esker_txn_seqno(txn: Option<&esker_txn<'_>>) -> u64 {
    match txn.map(|txn| &txn.state) {
        Some(State::Snapshot(snapshot)) => snapshot.seqno().get(),
        Some(State::Transaction(transaction)) => transaction.snapshot().seqno().get(),
        Some(State::Lent(transaction)) => transaction.snapshot().seqno().get(),
        Some(State::Batch(_) | State::Ended) | None => 0,
    }
}

/// A function of the caller that reads and writes in a transaction. ESKER_OK commits; any other status rolls
/// back, and esker_transact returns it.
pub type esker_transact_function =
    Option<extern "C" fn(context: *mut c_void, txn: &mut esker_txn<'_>) -> i32>;

/// Runs a function in a transaction (not a read-only or write-only one) and commits it. After a conflict or
/// deadlock the function is called again with a new transaction, until it commits. So it must have no effect
/// outside of the transaction, and returns the status of a call that failed.
///
/// Returns ESKER_OK, the status of the function, or that of the commit. `error` is set only for the latter.
#[unsafe(no_mangle)]
pub extern "C" fn esker_transact(
    db: Option<&esker_db>,
    kind: u32,
    function: esker_transact_function,
    context: *mut c_void,
    error: ErrorPlace<'_>,
) -> i32 {
    let mut ended_with = None;
    let status = call(error, || {
        let (db, function) = (&given(db, "db")?.db, given(function, "function")?);
        let options = match isolation_of(kind)? {
            Some(isolation) => db.transaction().isolation(isolation),
            None => db.transaction(),
        };
        options.run(|transaction| {
            match function(context, &mut esker_txn::new(State::Lent(transaction), kind)) {
                0 => Ok(()),
                status => {
                    ended_with = Some(status);
                    Err(Failure::Status(esker_status::ESKER_OTHER))
                }
            }
        })?;
        ended_with = None;
        Ok(())
    });
    match status {
        esker_status::ESKER_OTHER => ended_with.unwrap_or(status as i32),
        status => status as i32,
    }
}

/// Marks a state of a transaction to which esker_rollback_to can return. Sets `savepoint` to its number.
#[unsafe(no_mangle)]
pub extern "C" fn esker_savepoint(
    txn: Option<&mut esker_txn<'_>>,
    savepoint: Option<&mut MaybeUninit<u64>>,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let txn = given(txn, "txn")?;
        let point = txn.with(|transaction| Ok(transaction.savepoint()))?;
        txn.savepoints.push(point);
        set(savepoint, txn.savepoints.len() as u64);
        Ok(())
    })
}

/// Undoes all writes since a savepoint. Later savepoints end; this one stays.
#[unsafe(no_mangle)]
pub extern "C" fn esker_rollback_to(
    txn: Option<&mut esker_txn<'_>>,
    savepoint: u64,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let txn = given(txn, "txn")?;
        let mut points = std::mem::take(&mut txn.savepoints);
        let result = match usize::try_from(savepoint).ok().and_then(|number| number.checked_sub(1)) {
            Some(at) if at < points.len() => {
                points.truncate(at + 1);
                txn.with(|transaction| transaction.rollback_to(&points[at]))
            }
            _ => Err(Failure::invalid(format!("the transaction has no savepoint {savepoint}"))),
        };
        txn.savepoints = points;
        result
    })
}

/// Locks a key until the transaction ends: other transactions that lock it wait. `shared` locks exclude only
/// exclusive ones. Errors: ESKER_DEADLOCK, ESKER_LOCK_TIMEOUT, ESKER_CONFLICT.
#[unsafe(no_mangle)]
pub extern "C" fn esker_lock(
    keyspace: Option<&esker_keyspace>,
    txn: Option<&mut esker_txn<'_>>,
    key: esker_slice<'_>,
    shared: bool,
    error: ErrorPlace<'_>,
) -> esker_status {
    call(error, || {
        let keyspace = &given(keyspace, "keyspace")?.keyspace;
        let mode = if shared { LockMode::Shared } else { LockMode::Exclusive };
        let key = key.bytes()?;
        given(txn, "txn")?.with(|transaction| transaction.lock(keyspace, key, mode))
    })
}
