//! The transactions and scans of clients, and their faulty variants for canaries.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use esker::{Db, Error, Isolation, Keyspace};
use fastrand::Rng;

use super::canary::Canary;
use super::lists::Promise;
use esker_world::failure::{Failure, Result};

/// The longest pause of the canary between its reads.
const CANARY_PAUSE_MICROS: u64 = 300;

/// One in this many transactions over lists is exclusive.
const EXCLUSIVE_EVERY: u8 = 8;

/// Name of a keyspace and a key.
type Name = (String, Vec<u8>);

/// A transaction, or a canary's faulty version of one.
pub(super) struct Tx<'a> {
    db: &'a Db,
    transaction: esker::Transaction,
    isolation: Isolation,
    canary: Option<Canary>,
    /// Own writes: puts, and removals without a value.
    own: BTreeMap<Name, (Keyspace, Option<Vec<u8>>)>,
    /// Values that a canary has read.
    seen: BTreeMap<Name, Option<Vec<u8>>>,
}

impl<'a> Tx<'a> {
    pub(super) fn begin(db: &'a Db, canary: Option<Canary>) -> Self {
        // Serializable reads could hide missing conflicts of writes, so both levels are used, and each canary
        // with its own.
        let isolation = match canary {
            None if fastrand::bool() => Isolation::Serializable,
            Some(Canary::NoPhantomCheck) => Isolation::Serializable,
            _ => Isolation::Snapshot,
        };
        Self::begin_as(db, canary, isolation)
    }

    /// Begins a transaction that may be exclusive. The client must end it before any other call, or the
    /// database would wait forever.
    pub(super) fn begin_any(db: &'a Db, canary: Option<Canary>) -> Self {
        if canary.is_none() && fastrand::u8(0..EXCLUSIVE_EVERY) == 0 {
            return Self::begin_as(db, canary, Isolation::Exclusive);
        }
        Self::begin(db, canary)
    }

    fn begin_as(db: &'a Db, canary: Option<Canary>, isolation: Isolation) -> Self {
        let transaction = db.transaction().isolation(isolation).begin();
        Tx { db, transaction, isolation, canary, own: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// Returns the promised isolation.
    pub(super) fn promise(&self) -> Promise {
        match self.isolation {
            Isolation::Snapshot => Promise::Snapshot,
            _ => Promise::Serializable,
        }
    }

    /// Yields sometimes, so that transactions overlap even with few cores.
    fn linger(&self) {
        if fastrand::u8(0..8) == 0 {
            std::thread::yield_now();
        }
    }

    pub(super) fn get(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.linger();
        if self.canary == Some(Canary::NoSnapshot) && !self.own.contains_key(&(keyspace.name(), key.to_vec()))
        {
            return self.get_newest(keyspace, key);
        }
        Ok(self.transaction.get(keyspace, key)?.map(|value| value.to_vec()))
    }

    /// Reads the value that a key has at its first read, for a canary.
    fn get_newest(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let name = (keyspace.name(), key.to_vec());
        if let Some(seen) = self.seen.get(&name) {
            return Ok(seen.clone());
        }
        // Gives others time to write.
        std::thread::sleep(Duration::from_micros(fastrand::u64(..CANARY_PAUSE_MICROS)));
        let value = keyspace.get(key)?.map(|value| value.to_vec());
        self.seen.insert(name, value.clone());
        Ok(value)
    }

    /// Scans with a cursor that changes direction. Not for transactions that have written.
    pub(super) fn wander(
        &mut self,
        keyspace: &Keyspace,
        keys: &Range<u64>,
        rng: &mut Rng,
    ) -> Result<BTreeMap<u64, Vec<u8>>> {
        if self.canary == Some(Canary::NoSnapshot) {
            return self.walk(keyspace, keys, Direction::Forwards);
        }
        assert!(self.own.is_empty(), "its cursor is the snapshot's, which does not know them");
        self.linger();
        wander(self.transaction.snapshot().cursor(keyspace)?, keys, rng)
    }

    /// Returns the existing keys of a range by one scan.
    pub(super) fn walk(
        &mut self,
        keyspace: &Keyspace,
        keys: &Range<u64>,
        direction: Direction,
    ) -> Result<BTreeMap<u64, Vec<u8>>> {
        if self.canary == Some(Canary::NoPhantomCheck) && self.own.is_empty() {
            // The canary bypasses the validation of scanned ranges.
            self.linger();
            return walk(keys, direction, |bounds| self.transaction.snapshot().range(keyspace, bounds));
        }
        if self.canary != Some(Canary::NoSnapshot) {
            self.linger();
            return walk(keys, direction, |bounds| self.transaction.range(keyspace, bounds));
        }
        let mut found = BTreeMap::new();
        for key in keys.clone() {
            found.extend(self.get(keyspace, &key.to_be_bytes())?.map(|value| (key, value)));
        }
        Ok(found)
    }

    pub(super) fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: Vec<u8>) -> Result<()> {
        self.transaction.put(keyspace, key, &value)?;
        self.own.insert((keyspace.name(), key.to_vec()), (keyspace.clone(), Some(value)));
        Ok(())
    }

    /// Removes all keys of a range.
    pub(super) fn delete_range(&mut self, keyspace: &Keyspace, keys: Range<u64>) -> Result<()> {
        if self.canary == Some(Canary::NoRangeCheck) {
            // The canary removes only the keys that it sees, so concurrent inserts do not conflict.
            for key in self.walk(keyspace, &keys, Direction::Forwards)?.keys() {
                self.transaction.delete(keyspace, key.to_be_bytes())?;
            }
        } else {
            let bounds = keys.start.to_be_bytes()..keys.end.to_be_bytes();
            self.transaction.delete_range(keyspace, bounds)?;
        }
        for key in keys {
            self.own.insert((keyspace.name(), key.to_be_bytes().to_vec()), (keyspace.clone(), None));
        }
        Ok(())
    }

    /// Commits. Returns false after a conflict.
    pub(super) fn commit(self) -> Result<bool> {
        if self.canary == Some(Canary::NoConflictCheck) {
            commit_own(self.db, &self.own)?;
            return Ok(true);
        }
        match self.transaction.commit().map_err(Error::from) {
            Ok(_) => Ok(true),
            Err(error @ Error::Conflict { .. }) if self.isolation == Isolation::Exclusive => {
                Err(Failure::new(format!("an exclusive transaction conflicts: {error}")))
            }
            Err(Error::Conflict { .. }) => Ok(false),
            Err(error) => {
                if self.canary == Some(Canary::LateCommit) && matches!(error, Error::NoSpace { .. }) {
                    while commit_own(self.db, &self.own).is_err_and(|failure| failure.is_of_full_disk()) {
                        std::thread::yield_now();
                    }
                }
                Err(error.into())
            }
        }
    }
}

/// Commits a canary's writes without conflict detection.
fn commit_own(db: &Db, own: &BTreeMap<Name, (Keyspace, Option<Vec<u8>>)>) -> Result<()> {
    let mut batch = db.batch();
    for ((_, key), (keyspace, value)) in own {
        match value {
            Some(value) => batch.put(keyspace, key, value)?,
            None => batch.delete(keyspace, key)?,
        }
    }
    Ok(batch.commit().map(drop)?)
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forwards,
    Backwards,
    /// Alternates between both ends.
    BothEnds,
}

impl Direction {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        [Direction::Forwards, Direction::Backwards, Direction::BothEnds][rng.usize(0..3)]
    }
}

/// Scans a range. Checks that each key occurs once, in order, and within the bounds.
pub(super) fn walk(
    keys: &Range<u64>,
    direction: Direction,
    range: impl FnOnce(Range<[u8; 8]>) -> esker::Range,
) -> Result<BTreeMap<u64, Vec<u8>>> {
    let mut entries = range(keys.start.to_be_bytes()..keys.end.to_be_bytes());
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let from_back =
            direction == Direction::Backwards || direction == Direction::BothEnds && fastrand::bool();
        let entry = if from_back { entries.next_back() } else { entries.next() };
        let Some(entry) = entry else { break };
        let (key, value) = entry?;
        let found = if from_back { &mut back } else { &mut front };
        found.push((name(&key), value.to_vec()));
    }
    front.extend(back.into_iter().rev());
    in_order(front, keys).map_err(|failure| failure.during(&format!("{direction:?}")))
}

/// Scans with a cursor that changes direction at random positions. Checks that it returns the same entries in
/// both directions while others write.
pub(super) fn wander(
    mut cursor: esker::Cursor,
    keys: &Range<u64>,
    rng: &mut Rng,
) -> Result<BTreeMap<u64, Vec<u8>>> {
    let backwards = rng.bool();
    let begin = |cursor: &mut esker::Cursor| match backwards {
        true => cursor.seek_before(keys.end.to_be_bytes()),
        false => cursor.seek(keys.start.to_be_bytes()),
    };
    // The entries in order, and the position of the cursor.
    let (mut seen, mut at): (Vec<(u64, Vec<u8>)>, usize) = (Vec::new(), 0);
    begin(&mut cursor)?;
    loop {
        let entry = cursor
            .valid()
            .then(|| (name(cursor.key()), cursor.value().expect("it lies beside its key").to_vec()));
        let entry = entry.filter(|(key, _)| keys.contains(key));
        if at < seen.len() && entry.as_ref() != Some(&seen[at]) {
            return Err(Failure::new(format!(
                "a cursor that turned round finds {entry:?} at {at} of {seen:?}, backwards: {backwards}"
            )));
        }
        let Some(entry) = entry else { break };
        if at == seen.len() {
            seen.push(entry);
        }
        std::thread::yield_now();
        let turns = rng.u8(0..3) == 0;
        if turns == backwards {
            cursor.next()?;
        } else {
            cursor.prev()?;
        }
        match (turns, at) {
            (false, _) => at += 1,
            (true, 1..) => at -= 1,
            (true, 0) => {
                if cursor.valid() && keys.contains(&name(cursor.key())) {
                    let key = name(cursor.key());
                    return Err(Failure::new(format!(
                        "a cursor that turned round finds {key} before {seen:?}"
                    )));
                }
                begin(&mut cursor)?;
            }
        }
    }
    if backwards {
        seen.reverse();
    }
    in_order(seen, keys)
}

/// Checks that each key occurs once, in order, and within the bounds.
fn in_order(found: Vec<(u64, Vec<u8>)>, keys: &Range<u64>) -> Result<BTreeMap<u64, Vec<u8>>> {
    let is_in_order = found.is_sorted_by(|a, b| a.0 < b.0);
    if !is_in_order || !found.iter().all(|(key, _)| keys.contains(key)) {
        let shown: Vec<u64> = found.iter().map(|(key, _)| *key).collect();
        return Err(Failure::new(format!("a walk over {keys:?} gives {shown:?}")));
    }
    Ok(found.into_iter().collect())
}

fn name(key: &[u8]) -> u64 {
    key.try_into().map_or(u64::MAX, u64::from_be_bytes)
}
