//! Looks up the keys of a commit before it takes the commit lock, so that other commits proceed meanwhile.
//!
//! ```text
//!   before the lock: is each key live at the visible number?  --> KeysAhead
//!   under the lock:  RecentWrites: unchanged since?  yes: that holds;  no: the key is looked up again
//! ```
//!
//! ahead.1. The visible number is read before the view. So the view has everything up to it. A compaction may
//!     have dropped what that number sees only if a later commit has written the key.

use super::counts::{Effort, Presence, look_up};
use super::recent_writes::RecentWrites;
use super::write_set::WriteSet;
use crate::read::view::ReadView;
use crate::types::{Result, SeqNo};

/// A commit with more keys is looked up under the lock. It would fill the slots of the recent writes.
const KEYS_MAX: usize = 1024;

/// The keys of a commit, in order, as they were at one sequence number.
#[derive(Debug)]
pub(crate) struct KeysAhead {
    at: SeqNo,
    /// Hash of each key, and whether it was live.
    keys: Vec<(u64, Presence)>,
}

impl KeysAhead {
    /// Looks up the keys of a commit, with an effort for each encoded key. `view` is not older than `at`
    /// (ahead.1).
    pub(super) fn look_up(
        set: &WriteSet,
        view: &ReadView,
        at: SeqNo,
        effort: impl Fn(&[u8]) -> Effort,
    ) -> Result<Option<KeysAhead>> {
        if set.op_count() > KEYS_MAX || !set.ranges().is_empty() {
            return Ok(None);
        }
        let mut keys = Vec::with_capacity(set.op_count());
        look_up(set, view, at, |_, key| effort(key), |_, hash, presence| keys.push((hash, presence)))?;
        Ok(Some(KeysAhead { at, keys }))
    }

    /// Returns whether a key was live, if that still holds.
    #[inline]
    pub(super) fn presence(&self, place: usize, recent: &RecentWrites) -> Option<Presence> {
        let &(hash, presence) = self.keys.get(place)?;
        recent.is_unchanged(hash, self.at).then_some(presence)
    }

    /// Returns whether nothing after `since` wrote a key. False if that is not known.
    #[inline]
    pub(super) fn is_unchanged(&self, place: usize, since: SeqNo, recent: &RecentWrites) -> bool {
        self.keys.get(place).is_some_and(|&(hash, _)| recent.is_unchanged(hash, since))
    }

    /// Returns the hashes of the keys.
    pub(super) fn hashes(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().map(|key| key.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use esker_env::{Env, MemFs};

    use crate::types::interleave::{self, Point};
    use crate::types::{Error, Result, SeqNo};
    use crate::{Db, Keyspace};

    type Write = fn(&Keyspace) -> Result<SeqNo>;

    /// Runs `between` after the first look-up of keys that `work` makes.
    fn with_between<T>(map: &Keyspace, between: Write, work: impl FnOnce() -> T) -> T {
        let (map, mut is_done) = (map.clone(), false);
        let before = interleave::set(Some(Box::new(move |reached| {
            if reached == Point::KeysCounted && !std::mem::replace(&mut is_done, true) {
                between(&map).unwrap();
            }
        })));
        let done = work();
        interleave::set(before);
        done
    }

    fn open() -> (Db, Keyspace) {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
        let map = db.default_keyspace();
        (db, map)
    }

    /// Writes of the key `a`, and some that do not touch it.
    const WRITES: [Write; 6] = [
        |map| map.put("a", "x"),
        |map| map.delete("a"),
        |map| map.delete_range("a".."b"),
        |map| map.put_with_ttl("a", "x", Duration::from_secs(9)),
        |map| map.put("b", "x"),
        |map| {
            let mut ingest = map.ingest();
            (0..99_u8).try_for_each(|n| ingest.put([b'a', n], [7; 9]))?;
            Ok(ingest.commit()?)
        },
    ];

    #[test]
    fn ahead_1_counts_include_what_is_written_after_the_look() {
        for (between, then) in (0..36).map(|n| (WRITES[n / 6], WRITES[n % 6])) {
            for is_flushed in [false, true] {
                let (db, map) = open();
                map.put("a", "first").unwrap();
                if is_flushed {
                    db.flush().unwrap();
                }
                with_between(&map, between, || then(&map)).unwrap();
                assert_eq!(map.len().unwrap(), map.iter().count() as u64);
                db.compact().unwrap();
                assert_eq!(map.len().unwrap(), map.iter().count() as u64);
                assert!(db.check().unwrap().is_sound());
            }
        }
    }

    #[test]
    fn ahead_1_a_conflict_after_the_look_is_found() {
        for (number, between) in WRITES.into_iter().enumerate() {
            let (db, map) = open();
            map.put("a", "first").unwrap();
            let mut txn = db.begin();
            txn.put(&map, "a", "mine").unwrap();
            let committed = with_between(&map, between, || txn.commit());
            let is_conflict = committed.is_err_and(|failed| matches!(failed.error, Error::Conflict { .. }));
            assert_eq!(is_conflict, number < 4, "write {number}");
        }
    }
}
