//! Which server uses the store.
//!
//! ```text
//!   "owner"   the name of the server: random text
//!   "alive"   counts up every two seconds as long as the server runs; removed when it ends
//!   "commits" the number of the last commit
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use esker_kv::{Kv, Space, transact};
use parking_lot::Mutex;

use crate::store::{Error, Result};

/// The space of the server's own records.
pub const OWNER_SPACE: &str = "esker.server";

const OWNER: &[u8] = b"owner";
const ALIVE: &[u8] = b"alive";
const COMMITS: &[u8] = b"commits";

/// How often the owner says that it is alive.
const BEAT: Duration = Duration::from_secs(2);
/// How long a silent owner is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// This server's hold on the store.
pub(super) struct Owner {
    shared: Arc<Mine>,
    /// Dropping it ends the thread.
    beats: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

struct Mine {
    kv: Arc<dyn Kv>,
    space: Space,
    name: Vec<u8>,
    /// Set once another server has taken the store. Relaxed: the check in each commit is what counts.
    is_lost: AtomicBool,
}

fn number(bytes: Option<&[u8]>) -> u64 {
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes)
}

#[expect(clippy::disallowed_methods, reason = "a store of other processes has no simulated clock")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// Returns the number of the last commit of a server on a store, or 0.
///
/// # Errors
/// Errors of the store.
pub fn commits_of(kv: &dyn Kv) -> esker_kv::Result<u64> {
    match kv.find_space(OWNER_SPACE)? {
        Some(space) => Ok(number(kv.get(&space, COMMITS)?.as_deref())),
        None => Ok(0),
    }
}

/// Makes the commits of a later server on the store have larger numbers than this one, so that data whose
/// versions are numbers of commits may be copied there.
///
/// # Errors
/// [`esker_kv::Error::Unavailable`] if a server uses the store. Errors of the store.
pub fn raise_commits(kv: &dyn Kv, commits: u64) -> esker_kv::Result<()> {
    let space = kv.space(OWNER_SPACE)?;
    transact(kv, |transaction| {
        if transaction.get_for_update(&space, ALIVE)?.is_some() {
            let why =
                "a server uses it: stop the server, or if it is dead start one with --take-over and stop it";
            return Err(esker_kv::Error::Unavailable(why.to_owned()));
        }
        let old = number(transaction.get_for_update(&space, COMMITS)?.as_deref());
        transaction.put(&space, COMMITS, &old.max(commits).to_be_bytes())
    })
}

impl Owner {
    /// Makes this server the owner. Returns the number of the last commit, too.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if another server uses the store. Errors of the store.
    pub(super) fn take(kv: &Arc<dyn Kv>, takes_over: bool) -> Result<(Self, u64)> {
        let space = kv.space(OWNER_SPACE)?;
        if !takes_over {
            wait_until_silent(&**kv, &space)?;
        }
        let name = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)).into_bytes();
        let commits = transact(&**kv, |transaction| {
            transaction.get_for_update(&space, OWNER)?;
            transaction.put(&space, OWNER, &name)?;
            transaction.put(&space, ALIVE, &beat(&name, 0))?;
            transaction.get_for_update(&space, COMMITS)
        })?;
        let mine = Arc::new(Mine { kv: kv.clone(), space, name, is_lost: AtomicBool::new(false) });
        let (sender, receiver) = channel::<()>();
        let thread = std::thread::Builder::new().name("esker-owner".to_owned()).spawn({
            let mine = mine.clone();
            move || {
                let mut beats = 0;
                while receiver.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                    beats += 1;
                    mine.beat(beats);
                }
            }
        });
        let thread = thread.map_err(|error| Error::Unavailable(format!("start a thread: {error}")))?;
        let owner = Owner { shared: mine, beats: Mutex::new(Some((sender, thread))) };
        Ok((owner, number(commits.as_deref())))
    }

    /// Fails if another server has taken the store.
    pub(super) fn check(&self) -> Result<()> {
        match self.shared.is_lost.load(Ordering::Relaxed) {
            true => Err(Error::Unavailable("another server has taken the store over".to_owned())),
            false => Ok(()),
        }
    }

    /// Checks in a transaction that is about to commit that this server is still the owner, and stores the
    /// number of the commit.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it is not. Errors of the store.
    pub(super) fn admit(&self, transaction: &mut dyn esker_kv::Transaction, commit: u64) -> Result<()> {
        let mine = &self.shared;
        let owner = transaction.get_for_update(&mine.space, OWNER)?;
        if owner.as_deref() != Some(&mine.name[..]) {
            mine.is_lost.store(true, Ordering::Relaxed);
            self.check()?;
        }
        Ok(transaction.put(&mine.space, COMMITS, &commit.to_be_bytes())?)
    }

    /// Gives the store up.
    pub(super) fn give_up(&self) {
        let Some((sender, thread)) = self.beats.lock().take() else { return };
        drop(sender);
        // The thread does not panic.
        let _ = thread.join();
        let mine = &self.shared;
        let done = transact(&*mine.kv, |transaction| {
            let owner = transaction.get_for_update(&mine.space, OWNER)?;
            if owner.as_deref() == Some(&mine.name[..]) {
                transaction.remove(&mine.space, ALIVE)?;
            }
            Ok(())
        });
        // Otherwise the next server waits.
        let _ = done;
        mine.is_lost.store(true, Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.give_up();
    }
}

fn beat(name: &[u8], beats: u64) -> Vec<u8> {
    [name, &beats.to_be_bytes()].concat()
}

impl Mine {
    /// Says that this server is alive, unless another one has taken the store.
    fn beat(&self, beats: u64) {
        let is_owner = transact(&*self.kv, |transaction| {
            let owner = transaction.get(&self.space, OWNER)?;
            let is_owner = owner.as_deref() == Some(&self.name[..]);
            if is_owner {
                transaction.put(&self.space, ALIVE, &beat(&self.name, beats))?;
            }
            Ok(is_owner)
        });
        // If the store does not answer, it cannot be taken over either. Commits report that.
        if matches!(is_owner, Ok(false)) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

/// Waits until the owner, if there is one, has been silent for long enough.
fn wait_until_silent(kv: &dyn Kv, space: &Space) -> Result<()> {
    let first = kv.get(space, ALIVE)?;
    if first.is_none() {
        return Ok(());
    }
    let mut waited = Duration::ZERO;
    while waited < PATIENCE {
        sleep(BEAT / 4);
        waited += BEAT / 4;
        let alive = kv.get(space, ALIVE)?;
        if alive.is_none() {
            return Ok(());
        }
        if alive != first {
            let why = "another server uses this store: stop it, or start with --take-over to replace it";
            return Err(Error::Unavailable(why.to_owned()));
        }
    }
    Ok(())
}
