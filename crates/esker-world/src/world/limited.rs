//! Keyspaces with a maximum size: which entries they lose, by commits of the engine.
//!
//! ```text
//!   sweep, compaction --the engine removes the oldest entries--> read back --oldest?--> History
//! ```
//!
//! - The entries that remain were written after those that went, and are not changed.
//! - Nothing goes while the live entries are within the maximum. Not checked while there are
//!   numbers: merges may have made them, and the model does not know how many operands they have.
//!
//! Keyspaces have a maximum only while no call fails and no process ends before the outcome is known.

use std::collections::BTreeSet;

use esker::{Db, Durability};

use super::World;
use super::faults::attempt;
use crate::model::footprint::Footprint;
use crate::model::keys::{self, KeyNo};
use crate::model::state::{Commit, Id};
use crate::model::values::ValueNo;
use crate::op::{KeyspaceNo, Op, Write};

/// Bytes that an entry may take beside its key and its value: the keyspace, an expiry, what frames a value in
/// a blob file.
const BESIDE_BYTES: u64 = 64;
/// An entry counts at most this many times its bytes, because of what small tables have besides entries.
const SHARE_MAX: u64 = 2;

/// Returns whether a keyspace has a maximum size, as far as the database can tell.
pub(super) fn is_limited(db: &Db) -> bool {
    let limited = attempt(|| {
        let names = db.keyspaces()?;
        names.iter().try_fold(false, |any, name| Ok(any || db.open_keyspace(name)?.bytes_max().is_some()))
    });
    limited.unwrap_or(true)
}

impl World {
    /// Sets the maximum size of a keyspace, unless something could fail.
    pub(super) fn set_bytes_max(&mut self, op: &Op, no: KeyspaceNo) {
        if !self.is_calm() {
            return;
        }
        let (id, keyspace) = self.pick(no);
        let was_limited = keyspace.bytes_max().is_some();
        self.maintain(self.done(op));
        if !was_limited {
            self.history.limit(id);
        }
        // Removals conflict with transactions that have read what goes.
        self.expires = true;
    }

    /// Removes the maximum sizes before something can fail.
    pub(super) fn lift_limits_before(&mut self, op: &Op) {
        let can_fail = match op {
            Op::Fault(_) | Op::DiskFull(_) | Op::RestartIn { .. } | Op::Between(_) | Op::Crowd(_) => true,
            Op::Restart(restart) => !restart.mishaps.is_empty(),
            _ => false,
        };
        if can_fail {
            for keyspace in self.keyspaces.values().filter(|keyspace| keyspace.bytes_max().is_some()) {
                keyspace.set_bytes_max(None).expect("nothing fails yet");
                self.history.all_durable();
            }
        }
    }

    /// Notes which entries have gone.
    pub(super) fn note_oldest(&mut self) {
        let limited = self.keyspaces.iter().filter(|(_, keyspace)| keyspace.bytes_max().is_some());
        let limited: Vec<_> = limited.map(|(id, keyspace)| (*id, keyspace.clone())).collect();
        if limited.is_empty() {
            return;
        }
        self.expire();
        let mut removals = Vec::new();
        for (id, keyspace) in limited {
            let left = attempt(|| keyspace.keys(..).collect::<esker::Result<Vec<_>>>());
            let left = left.unwrap_or_else(|error| panic!("size limit: {error}"));
            let no = |key: &esker::Key| keys::find(key).expect("a key that was never put");
            let left: BTreeSet<KeyNo> = left.iter().map(no).collect();
            let gone = self.gone(id, &left);
            if !gone.is_empty() {
                self.check_excess(id, keyspace.bytes_max());
            }
            removals.extend(gone.into_iter().map(|key| (id, Write::Remove(key))));
        }
        if removals.is_empty() {
            return;
        }
        // A power loss could undo a part of them.
        self.db().sync().expect("nothing fails yet");
        self.tally.oldest += removals.len() as u64;
        let footprint = Footprint::of(&removals);
        self.history.push(Commit::Writes(removals), footprint, Durability::Sync);
        self.copies.timeline.be_in_doubt();
    }

    /// Checks that the live entries exceeded the maximum before the oldest ones went.
    fn check_excess(&self, id: Id, bytes_max: Option<u64>) {
        let there = self.history.newest().map(id);
        if there.entries().values().any(|value| value.as_number().is_some()) {
            return;
        }
        let bytes = |(key, value): (&KeyNo, &ValueNo)| {
            SHARE_MAX * (keys::key(*key).len() as u64 + value.bytes().len() as u64 + BESIDE_BYTES)
        };
        let live: u64 = there.entries().iter().map(bytes).sum();
        let max = bytes_max.expect("a keyspace with a maximum");
        assert!(live > max, "size limit: entries go at {live} of {max} bytes");
    }

    /// Returns the entries that are not left, which must be the oldest ones.
    fn gone(&self, id: Id, left: &BTreeSet<KeyNo>) -> Vec<KeyNo> {
        let there = self.history.newest().map(id);
        let gone: Vec<_> = there.entries().keys().filter(|key| !left.contains(key)).copied().collect();
        let newest_gone = gone.iter().map(|key| self.history.age_order(id, *key)).max();
        let oldest_left = left.iter().map(|key| self.history.age_order(id, *key)).min();
        if let (Some(gone), Some(left)) = (newest_gone, oldest_left) {
            assert!(gone <= left, "size limit: {gone} goes, {left} stays");
        }
        gone
    }
}
