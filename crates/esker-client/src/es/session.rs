//! What belongs to a connection: locks, snapshots and savepoints.

use std::time::Duration;

use crate::{Request, reply};

/// A lock on a name. Created by [`lock`].
#[derive(Debug)]
#[must_use = "nothing is locked until the request is run"]
pub struct Lock {
    request: Request<()>,
}

/// Locks a name in the connection's keyspace or database, and waits for it without a limit. In a transaction,
/// the lock is held until the transaction ends; outside, until [`unlock`] or the end of the connection. Locks
/// do not stop reads and writes. Fails with [`Error::Deadlock`](crate::Error::Deadlock) in a cycle of waits.
pub fn lock(name: impl AsRef<[u8]>) -> Lock {
    Lock { request: Request::new("ES.LOCK", reply::done).word(name) }
}

impl Lock {
    /// Shares the lock with others that share it.
    pub fn shared(self) -> Self {
        Lock { request: self.request.word("SHARED") }
    }

    /// Waits up to this time, then fails with [`Error::LockTimeout`](crate::Error::LockTimeout).
    pub fn wait(self, patience: Duration) -> Self {
        Lock { request: self.request.word("WAIT").word(patience.as_millis().to_string()) }
    }

    /// Returns the request.
    pub fn request(self) -> Request<()> {
        self.request
    }
}

/// Releases a lock that was taken outside of a transaction. Returns whether the connection held it.
pub fn unlock(name: impl AsRef<[u8]>) -> Request<bool> {
    Request::new("ES.UNLOCK", reply::flag).word(name)
}

/// Opens a snapshot of the connection and returns its id, for [`at`].
pub fn open_snapshot() -> Request<u64> {
    Request::new("ES.SNAP", reply::number).word("OPEN")
}

/// Closes a snapshot. Returns whether it was open.
pub fn close_snapshot(id: u64) -> Request<bool> {
    Request::new("ES.SNAP", reply::flag).word("CLOSE").word(id.to_string())
}

/// Returns the ids of the connection's snapshots.
pub fn snapshots() -> Request<Vec<u64>> {
    Request::new("ES.SNAP", |value| reply::list(value, reply::number)).word("LIST")
}

/// Reads from a snapshot. `read` is a request of [`get`](super::get), [`next`](super::next),
/// [`previous`](super::previous), [`first`](super::first), [`last`](super::last), [`range`](super::range) or
/// [`prefix`](super::prefix).
pub fn at<T>(snapshot: u64, read: Request<T>) -> Request<T> {
    read.word("SNAP").word(snapshot.to_string())
}

/// Sets a savepoint in the transaction.
pub fn savepoint(name: impl AsRef<[u8]>) -> Request<()> {
    Request::new("ES.SAVEPOINT", reply::done).word(name)
}

/// Undoes what the transaction did after a savepoint. The savepoint is kept.
pub fn rollback_to(savepoint: impl AsRef<[u8]>) -> Request<()> {
    Request::new("ES.ROLLBACK", reply::done).word("TO").word(savepoint)
}
