//! Lanes: which commits of guests were applied.
//!
//! ```text
//!   commit 7 of lane L --> one commit of the engine { its writes; record L = 7 }
//!   resolve 7 of L ------> fence 7; is the record 7? --> applied, or never will be
//! ```
//!
//! A lane is a connection of a guest. Its commits have rising numbers, and the record of the last one is in a
//! keyspace of its own ([`RECORDS`]).
//!
//! lanes.1. A commit and its record are applied together.
//! lanes.2. A number is used once: by a commit, or by the fence that a resolution sets. A lane's commits run
//!     one at a time, and a resolution waits for the one that runs.
//! lanes.3. Only the thread of a connection commits for its lane, and the lane is in the table while that
//!     thread runs. A new host starts only after the old process has ended, so a lane missing from the
//!     table commits nothing more.
//!
//! - A record is removed by the lane's own end, or [`KEPT_FOR`] after it, by one host's clock that
//!   only runs forwards. Guests ask for no commit that is older than `ASKING_MAX`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::{Counting, Db, Durability, Error, Health, Keyspace, KeyspaceOptions, Result, SeqNo};
use parking_lot::Mutex;

use crate::canary::{self, Canary};
use crate::commit_id::{ASKING_MAX, LaneId, Outcome};

/// Name of the keyspace with the records.
pub(crate) const RECORDS: &str = "esker.shared";
/// How long a record is kept after the end of its lane.
const KEPT_FOR: Duration = Duration::from_secs(3600);
const _: () = assert!(KEPT_FOR.as_secs() > 2 * ASKING_MAX.as_secs());
/// Largest number of records that one call removes.
const REMOVED_MAX: usize = 256;

/// One lane with a connection.
pub(crate) struct Lane {
    id: LaneId,
    /// The largest number used (lanes.2).
    used: Mutex<u64>,
}

/// All lanes of a database.
pub(crate) struct Lanes {
    db: Db,
    records: Keyspace,
    /// Lanes that have a connection (lanes.3).
    table: Mutex<HashMap<LaneId, Arc<Lane>>>,
    /// Lanes that ended without a goodbye, or before this host began, with the time from which the record is
    /// kept.
    ended: Mutex<VecDeque<(Instant, LaneId)>>,
}

/// What a resolution found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Outcome(Outcome),
    /// The commit is still running.
    Running,
    /// Writes have stopped. The next opening shows whether the commit exists.
    Unknowable,
}

/// What a commit writes in addition to its own writes.
pub(crate) struct Record<'a> {
    pub(crate) keyspace: &'a Keyspace,
    pub(crate) key: [u8; 16],
    pub(crate) value: [u8; 8],
}

impl Lanes {
    /// The lanes of a database that this process has just opened.
    pub(crate) fn new(db: &Db) -> Result<Self> {
        let options = KeyspaceOptions::new().counting(Counting::Lazy);
        let records = match db.create_keyspace_with(RECORDS, options) {
            Err(Error::KeyspaceExists(_)) => db.open_keyspace(RECORDS)?,
            created => created?,
        };
        let mut ended = VecDeque::new();
        let since = Instant::now();
        for key in records.keys(..) {
            // Any other key is not a record; `decode` refuses what is not its value.
            ended.extend(<[u8; 16]>::try_from(&*key?).ok().map(|id| (since, LaneId(id))));
        }
        Ok(Lanes { db: db.clone(), records, table: Mutex::default(), ended: Mutex::new(ended) })
    }

    /// Begins a lane for a connection.
    pub(crate) fn join(&self, id: LaneId) -> Result<Arc<Lane>> {
        let used = self.last_applied(id)?;
        let lane = Arc::new(Lane { id, used: Mutex::new(used) });
        match self.table.lock().entry(id) {
            std::collections::hash_map::Entry::Occupied(_) => {
                Err(Error::Invalid("two connections have the same lane".to_owned()))
            }
            std::collections::hash_map::Entry::Vacant(free) => Ok(free.insert(lane).clone()),
        }
    }

    /// Ends a lane. `for_good`: the guest has no questions about it.
    pub(crate) fn leave(&self, lane: &Lane, for_good: bool) {
        self.table.lock().remove(&lane.id);
        if *lane.used.lock() == 0 {
            return;
        }
        match for_good {
            true => self.forget(lane.id),
            false => self.ended.lock().push_back((Instant::now(), lane.id)),
        }
    }

    /// Makes commit `number` of a lane. `commit` applies the record with its own writes (lanes.1).
    pub(crate) fn commit(
        &self,
        lane: &Lane,
        number: u64,
        commit: impl FnOnce(Record<'_>) -> Result<SeqNo>,
    ) -> Result<SeqNo> {
        let mut used = lane.used.lock();
        if number <= *used {
            return Err(Error::Invalid(format!("commit {number} of a connection after {}", *used)));
        }
        *used = number;
        let number = if canary::is_set(Canary::RecordForgotten) { 0 } else { number };
        commit(Record { keyspace: &self.records, key: lane.id.0, value: number.to_le_bytes() })
    }

    /// Returns the outcome of a commit. If it was not applied, makes sure that it never will be. Waits for a
    /// running commit, but not longer than `patience`.
    pub(crate) fn resolve(
        &self,
        id: LaneId,
        number: u64,
        durability: Durability,
        patience: Duration,
    ) -> Result<Found> {
        let lane = self.table.lock().get(&id).cloned();
        if let Some(lane) = &lane {
            let Some(mut used) = lane.used.try_lock_for(patience) else { return Ok(Found::Running) };
            if !canary::is_set(Canary::FenceForgotten) {
                *used = number.max(*used);
            }
        }
        // A commit that failed in the log may exist after all.
        if matches!(self.db.health(), Health::Poisoned { .. }) {
            return Ok(Found::Unknowable);
        }
        let applied = self.last_applied(id)?;
        if applied < number {
            return Ok(Found::Outcome(Outcome::NotApplied));
        }
        // The commit may have been recovered from the log without a sync, so sync now.
        if durability == Durability::Sync {
            self.db.sync()?;
        }
        Ok(Found::Outcome(Outcome::Applied(self.db.snapshot().seqno())))
    }

    /// Removes the record of a lane that has no connection. A failure leaves the record to later hosts.
    pub(crate) fn forget(&self, id: LaneId) {
        if !self.table.lock().contains_key(&id) {
            let _ = self.records.with(Durability::None).delete(id.0);
        }
    }

    /// Removes records that no guest asks for.
    pub(crate) fn remove_old(&self, now: Instant) {
        for _ in 0..REMOVED_MAX {
            let old = {
                let mut ended = self.ended.lock();
                match ended.front() {
                    Some((since, _)) if now.saturating_duration_since(*since) > KEPT_FOR => ended.pop_front(),
                    _ => None,
                }
            };
            let Some((_, id)) = old else { return };
            self.forget(id);
        }
    }

    /// Returns the number of the last commit of a lane that was applied. 0: there is no record.
    fn last_applied(&self, id: LaneId) -> Result<u64> {
        let Some(value) = self.records.get(id.0)? else { return Ok(0) };
        let bytes = <[u8; 8]>::try_from(&*value);
        let bytes = bytes.map_err(|_| {
            Error::Invalid(format!(
                "keyspace {RECORDS:?} has a value that is not a record: leave it to hosts"
            ))
        })?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests;
