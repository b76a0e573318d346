//! The transactions and walks of clients, and what canaries take for them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use esker::{Error, Isolation, Keyspace};
use fastrand::Rng;

use super::Canary;
use super::clients::Places;
use super::lists::Promise;
use esker_world::failure::{Failure, Result};

/// The longest pause of the canary between its reads.
const CANARY_PAUSE_MICROS: u64 = 300;

/// One in eight transactions over lists is exclusive.
const EXCLUSIVE_EVERY: u8 = 8;

/// A keyspace's name and a key.
type Name = (String, Vec<u8>);

/// A transaction, or what a canary takes for one.
pub(super) struct Tx<'a> {
    places: &'a Places,
    transaction: esker::Transaction,
    isolation: Isolation,
    canary: Option<Canary>,
    /// Puts and, without a value, removals.
    own: BTreeMap<Name, (Keyspace, Option<Vec<u8>>)>,
    /// What a canary has read.
    seen: BTreeMap<Name, Option<Vec<u8>>>,
}

impl<'a> Tx<'a> {
    pub(super) fn begin(places: &'a Places, canary: Option<Canary>) -> Self {
        // What reads find, conflicts of writes need not: both kinds are tried, and canaries of the writes with theirs.
        let isolation = match canary {
            None if fastrand::bool() => Isolation::Serializable,
            Some(Canary::NoPhantomCheck) => Isolation::Serializable,
            _ => Isolation::Snapshot,
        };
        Self::begin_as(places, canary, isolation)
    }

    /// One that may be exclusive. This client must do nothing else before it has ended: the database would wait for ever.
    pub(super) fn begin_any(places: &'a Places, canary: Option<Canary>) -> Self {
        if canary.is_none() && fastrand::u8(0..EXCLUSIVE_EVERY) == 0 {
            return Self::begin_as(places, canary, Isolation::Exclusive);
        }
        Self::begin(places, canary)
    }

    fn begin_as(places: &'a Places, canary: Option<Canary>, isolation: Isolation) -> Self {
        let transaction = places.db.begin_with(isolation);
        Tx { places, transaction, isolation, canary, own: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// What it was promised.
    pub(super) fn promise(&self) -> Promise {
        match self.isolation {
            Isolation::Snapshot => Promise::Snapshot,
            _ => Promise::Serializable,
        }
    }

    /// Lets other threads go first at times, so that transactions overlap on a machine of few cores, too.
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

    /// The canary's read: what a key holds when it is first read.
    fn get_newest(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let name = (keyspace.name(), key.to_vec());
        if let Some(seen) = self.seen.get(&name) {
            return Ok(seen.clone());
        }
        // Time for others to write.
        std::thread::sleep(Duration::from_micros(fastrand::u64(..CANARY_PAUSE_MICROS)));
        let value = keyspace.get(key)?.map(|value| value.to_vec());
        self.seen.insert(name, value.clone());
        Ok(value)
    }

    /// The same with a cursor that turns round; not for transactions that have written.
    pub(super) fn wander(
        &mut self,
        keyspace: &Keyspace,
        keys: &Range<u64>,
        rng: &mut Rng,
    ) -> Result<BTreeMap<u64, Vec<u8>>> {
        if self.canary == Some(Canary::NoSnapshot) {
            return self.walk(keyspace, keys, Way::Forwards);
        }
        assert!(self.own.is_empty(), "its cursor is the snapshot's, which does not know them");
        self.linger();
        wander(self.transaction.snapshot().cursor(keyspace)?, keys, rng)
    }

    /// What is there of some keys, in one walk.
    pub(super) fn walk(
        &mut self,
        keyspace: &Keyspace,
        keys: &Range<u64>,
        way: Way,
    ) -> Result<BTreeMap<u64, Vec<u8>>> {
        if self.canary == Some(Canary::NoPhantomCheck) && self.own.is_empty() {
            // The canary walks past what looks whether the range is still the same at the commit.
            self.linger();
            return walk(keys, way, |bounds| self.transaction.snapshot().range(keyspace, bounds));
        }
        if self.canary != Some(Canary::NoSnapshot) {
            self.linger();
            return walk(keys, way, |bounds| self.transaction.range(keyspace, bounds));
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
    pub(super) fn remove_range(&mut self, keyspace: &Keyspace, keys: Range<u64>) -> Result<()> {
        if self.canary == Some(Canary::NoRangeCheck) {
            // The canary removes what it sees there: what others put there meanwhile is no conflict.
            for key in self.walk(keyspace, &keys, Way::Forwards)?.keys() {
                self.transaction.remove(keyspace, key.to_be_bytes())?;
            }
        } else {
            let bounds = keys.start.to_be_bytes()..keys.end.to_be_bytes();
            self.transaction.remove_range(keyspace, bounds)?;
        }
        for key in keys {
            self.own.insert((keyspace.name(), key.to_be_bytes().to_vec()), (keyspace.clone(), None));
        }
        Ok(())
    }

    /// False if it conflicts.
    pub(super) fn commit(self) -> Result<bool> {
        if self.canary == Some(Canary::NoConflictCheck) {
            commit_own(self.places, &self.own)?;
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
                    while commit_own(self.places, &self.own).is_err_and(|failure| failure.is_of_full_disk()) {
                        std::thread::yield_now();
                    }
                }
                Err(error.into())
            }
        }
    }
}

/// The canaries' commit, which nothing holds up.
fn commit_own(places: &Places, own: &BTreeMap<Name, (Keyspace, Option<Vec<u8>>)>) -> Result<()> {
    let mut batch = places.db.batch();
    for ((_, key), (keyspace, value)) in own {
        match value {
            Some(value) => batch.put(keyspace, key, value)?,
            None => batch.remove(keyspace, key)?,
        }
    }
    Ok(batch.commit().map(drop)?)
}

/// How a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Forwards,
    Backwards,
    /// From either end in turns, as they come.
    BothEnds,
}

impl Way {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        [Way::Forwards, Way::Backwards, Way::BothEnds][rng.usize(0..3)]
    }
}

/// What a walk finds: each key once, in order, and within the bounds.
pub(super) fn walk(
    keys: &Range<u64>,
    way: Way,
    range: impl FnOnce(Range<[u8; 8]>) -> esker::Range,
) -> Result<BTreeMap<u64, Vec<u8>>> {
    let mut entries = range(keys.start.to_be_bytes()..keys.end.to_be_bytes());
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let from_back = way == Way::Backwards || way == Way::BothEnds && fastrand::bool();
        let entry = if from_back { entries.next_back() } else { entries.next() };
        let Some(entry) = entry else { break };
        let (key, value) = entry?;
        let found = if from_back { &mut back } else { &mut front };
        found.push((name(&key), value.to_vec()));
    }
    front.extend(back.into_iter().rev());
    in_order(front, keys).map_err(|failure| failure.during(&format!("{way:?}")))
}

/// What a cursor finds that turns round on its way, at any place, and goes on again: it passes the same entries, whichever way it
/// goes, while others write.
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
    // In the order of the walk, and where in it the cursor stands.
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

/// What was found, if each key is there once, in order, and within the bounds.
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
