//! The lease: lets one process at a time change the backups in a store.
//!
//! ```text
//!   LOCK.g000006, free or silent for a time --put if absent--> LOCK.g000007, renewed by its holder
//! ```
//!
//! No clocks of different machines are compared. A process that finds a held lease watches it for the whole
//! time of the lease. If the object changes meanwhile, the holder is alive, and the call fails. Otherwise the
//! process takes the next generation.
//!
//! lease.1. Generations only grow: the object of the highest one is never removed. A holder that finds a
//!     higher one has lost its lease.
//! lease.2. Before a process that took over changes anything, it aborts the uploads that its predecessors
//!     have named, and voids the id of the backup that they may be making. Only then does it remove their
//!     leases.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_env::{Env, FileLock, LockError, ThreadHandle};
use parking_lot::{Condvar, Mutex};

use super::names::{Listing, RECORDS, join, object};
use super::{BackupStore, StoreFs};
use crate::backup::directory::{record_id, record_name};
use crate::manifest::file_name::LOCK;

/// The first line of a lease.
const MAGIC: &str = "esker lease, format 1";
/// How often a call begins again because another one has just taken or removed a lease.
const ROUNDS: u32 = 5;

/// A lease of this process.
#[derive(Debug)]
pub(super) struct Lease {
    store: Arc<dyn BackupStore>,
    env: Env,
    /// Numbers the leases. Files that this holder writes have it in their names.
    pub(super) generation: u64,
    /// Distinguishes this lease from one of another process with the same generation.
    nonce: u64,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of renewals.
    renewals: u64,
    /// The last moment at which the holder was known to have the lease.
    renewed: Duration,
    /// The objects of unfinished uploads, by id.
    uploads: BTreeMap<String, String>,
    is_lost: bool,
    /// Leaves the lease held at the end, so that the next process voids the id of the backup.
    is_unsettled: bool,
    /// The guard is dropped: the renewing thread ends.
    is_over: bool,
}

/// What a lease object says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Claim {
    is_free: bool,
    uploads: BTreeMap<String, String>,
}

impl Claim {
    /// Anything unknown counts as held.
    fn parse(bytes: &[u8]) -> Claim {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return Claim::default();
        }
        let is_free = lines.next().is_some_and(|line| line.starts_with("free "));
        let upload = |line: &str| {
            let (id, object) = line.strip_prefix("upload ")?.split_once(' ')?;
            Some((id.to_owned(), object.to_owned()))
        };
        Claim { is_free, uploads: lines.filter_map(upload).collect() }
    }
}

impl Lease {
    /// Takes the lease. `path` is that of the lock file.
    pub(super) fn take(env: &Env, store: &Arc<dyn BackupStore>, path: &Path) -> Result<Lease, LockError> {
        for _ in 0..ROUNDS {
            let top = newest(&**store).map_err(LockError::Io)?;
            if top > 0 {
                match store.read(&object("", LOCK, top), None) {
                    Ok(held) if !Claim::parse(&held).is_free => {
                        if !is_silent(env, &**store, top, &held).map_err(LockError::Io)? {
                            break;
                        }
                    }
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    found => drop(found.map_err(LockError::Io)?),
                }
            }
            let lease = Lease {
                store: store.clone(),
                env: env.clone(),
                generation: top + 1,
                nonce: env.random.next_u64(),
                state: Mutex::default(),
                wake: Condvar::new(),
            };
            match lease.begin() {
                Ok(()) => return Ok(lease),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => break,
                Err(e) => return Err(LockError::Io(e)),
            }
        }
        Err(LockError::Held { path: path.to_owned(), pid: None })
    }

    fn object(&self) -> String {
        object("", LOCK, self.generation)
    }

    /// Creates the object. Fails with `AlreadyExists` if another process was faster.
    fn begin(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        put_new(&*self.store, &self.object(), self.content(&state, "held"))?;
        // A slow process may create a generation that was removed meanwhile (lease.1).
        let renewed = self.renew(&mut state);
        let is_lost = state.is_lost;
        drop(state);
        renewed.map_err(|e| if is_lost { io::ErrorKind::AlreadyExists.into() } else { e })?;
        // After an error, the next process finds what the predecessors have left.
        self.check_conditions().and_then(|()| self.settle_predecessors()).inspect_err(|_| self.end())
    }

    /// Fails if the store ignores the condition of `put_new`. Then every process would have the lease.
    fn check_conditions(&self) -> io::Result<()> {
        let content = self.content(&self.state.lock(), "held");
        match self.store.put_new(&self.object(), content) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
            Ok(()) => {
                let text = "the store ignores the condition If-None-Match of a put, so that two processes could \
                            change the backups at once: use a store that supports conditional puts";
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
        }
    }

    /// Removes what earlier holders have left (lease.2).
    fn settle_predecessors(&self) -> io::Result<()> {
        let listing = Listing::new("", self.store.list("")?);
        let earlier = listing.generations(LOCK, self.generation - 1).into_iter().filter(|at| *at > 0);
        let earlier: Vec<String> = earlier.map(|generation| object("", LOCK, generation)).collect();
        let mut is_abandoned = false;
        for lease in &earlier {
            let claim = match self.store.read(lease, None) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                bytes => Claim::parse(&bytes?),
            };
            claim.uploads.iter().try_for_each(|(id, object)| self.store.abort(object, id))?;
            is_abandoned |= !claim.is_free;
        }
        if is_abandoned {
            void_next(&*self.store)?;
        }
        earlier.iter().try_for_each(|lease| self.store.delete(lease))
    }

    fn content(&self, state: &State, word: &str) -> Vec<u8> {
        let mut text = format!("{MAGIC}\n{word} {:016x} {}\n", self.nonce, state.renewals);
        for (id, object) in &state.uploads {
            text += &format!("upload {id} {object}\n");
        }
        text.into_bytes()
    }

    fn renew(&self, state: &mut State) -> io::Result<()> {
        let now = self.env.clock.monotonic();
        state.renewals += 1;
        self.store.put(&self.object(), self.content(state, "held"))?;
        if newest(&*self.store)? > self.generation {
            state.is_lost = true;
            return Err(lost());
        }
        state.renewed = now;
        Ok(())
    }

    /// Fails if another process has taken the lease. Looks into the store if the last renewal is old.
    pub(super) fn check(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.is_lost {
            return Err(lost());
        }
        let age = self.env.clock.monotonic().saturating_sub(state.renewed);
        if age > self.store.lease() / 2 { self.renew(&mut state) } else { Ok(()) }
    }

    /// Names an upload in the lease, durably.
    pub(super) fn begin_upload(&self, id: &str, object: &str) -> io::Result<()> {
        let mut state = self.state.lock();
        state.uploads.insert(id.to_owned(), object.to_owned());
        self.renew(&mut state)
    }

    /// Removes an upload from the lease, with the next renewal.
    pub(super) fn end_upload(&self, id: &str) {
        self.state.lock().uploads.remove(id);
    }

    /// Leaves the lease held when it ends, because the outcome of the put of a record is unknown.
    pub(super) fn leave_unsettled(&self) {
        self.state.lock().is_unsettled = true;
    }

    /// Renews the lease until it is over.
    fn keep(&self) {
        let mut state = self.state.lock();
        while !state.is_over && !state.is_lost {
            self.wake.wait_for(&mut state, self.store.lease() / 6);
            if !state.is_over {
                // A failed renewal is repeated. `check` reports that the lease is lost.
                let _ = self.renew(&mut state);
            }
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.renewals += 1;
        self.wake.notify_all();
        if !state.is_lost && !state.is_unsettled {
            // If this fails, the next process waits until the lease is silent for long enough.
            let _ = self.store.put(&self.object(), self.content(&state, "free"));
        }
    }
}

/// Ends the lease when it is dropped.
#[derive(Debug)]
pub(super) struct LeaseGuard {
    pub(super) fs: StoreFs,
    pub(super) lease: Arc<Lease>,
    renewing: Option<ThreadHandle>,
}

impl FileLock for LeaseGuard {}

impl LeaseGuard {
    pub(super) fn new(fs: StoreFs, lease: Arc<Lease>) -> io::Result<LeaseGuard> {
        let (threads, of_thread) = (lease.env.threads.clone(), lease.clone());
        let mut guard = LeaseGuard { fs, lease, renewing: None };
        guard.renewing = Some(threads.spawn("esker-lease", Box::new(move || of_thread.keep()))?);
        Ok(guard)
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        // Aborts unfinished uploads.
        self.fs.end_changes();
        self.lease.end();
        if let Some(renewing) = self.renewing.take() {
            let _ = renewing.join();
        }
    }
}

/// Returns the newest generation of the lease, or 0.
fn newest(store: &dyn BackupStore) -> io::Result<u64> {
    Ok(Listing::new("", store.list("")?).newest(LOCK).map_or(0, |(generation, _)| generation))
}

/// Watches a lease for its time. Returns whether it did not change.
fn is_silent(env: &Env, store: &dyn BackupStore, generation: u64, held: &[u8]) -> io::Result<bool> {
    let start = env.clock.monotonic();
    while env.clock.monotonic() - start < store.lease() {
        env.clock.sleep(store.lease() / 12);
        if newest(store)? != generation {
            return Ok(false);
        }
        match store.read(&object("", LOCK, generation), None) {
            Ok(found) if found == held => {}
            Ok(_) => return Ok(false),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Puts an object that must not exist. The content is unique, so that it proves whose object it is
/// (backup_store.2).
pub(super) fn put_new(store: &dyn BackupStore, object: &str, bytes: Vec<u8>) -> io::Result<()> {
    let Err(error) = store.put_new(object, bytes.clone()) else { return Ok(()) };
    match store.read(object, None) {
        Ok(found) if found == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Err(error),
    }
}

/// Voids the id that follows those of all records.
fn void_next(store: &dyn BackupStore) -> io::Result<()> {
    loop {
        let ids = store.list(RECORDS)?;
        let next = ids.iter().filter_map(|listed| record_id(&listed.name)).max().map_or(1, |last| last + 1);
        match store.put_new(&join(RECORDS, &record_name(next)), Vec::new()) {
            // The record was put meanwhile. The next id may belong to another process.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done,
        }
    }
}

fn lost() -> io::Error {
    let text = "another process has taken the lease on the backups, because this one did not renew it in time: \
                no backup was harmed; begin again";
    io::Error::new(io::ErrorKind::TimedOut, text)
}
