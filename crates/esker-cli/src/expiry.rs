//! When the entries of a snapshot expire, for commands that write them elsewhere.
//!
//! An entry can expire after a range has returned it. [`Snapshot::expires_at`] then returns `None`, as for an
//! entry that never expires. Written without an expiry, the entry would never go.

use std::time::SystemTime;

use esker::{Keyspace, Result, Snapshot};

/// When an entry that was read expires.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    At(SystemTime),
    /// It has expired since it was read.
    Passed,
}

/// Looks up when entries of a snapshot expire.
pub(crate) struct Expiries<'a> {
    snapshot: &'a Snapshot,
    /// Whether anything in the database expires. Saves the lookups.
    are_any: bool,
}

impl<'a> Expiries<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot, db: &esker::Db) -> Self {
        Expiries { snapshot, are_any: db.stats().expiring > 0 }
    }

    /// Returns when an entry expires that the snapshot has returned.
    pub(crate) fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Expiry> {
        if !self.are_any {
            return Ok(Expiry::Never);
        }
        Ok(match self.snapshot.expires_at(keyspace, key)? {
            Some(end) => Expiry::At(end),
            None if self.snapshot.contains(keyspace, key)? => Expiry::Never,
            None => Expiry::Passed,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn entries_that_have_expired_and_entries_that_never_expire_differ() {
        let db = esker::Db::in_memory().unwrap();
        let map = db.default_keyspace();
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        map.put("stays", "1").unwrap();
        map.put_until("goes", "1", Some(end)).unwrap();
        map.put_until("gone", "1", Some(SystemTime::UNIX_EPOCH)).unwrap();
        let snapshot = db.snapshot();
        let expiries = Expiries::of(&snapshot, &db);
        let of = |key: &str| expiries.get(&map, key.as_bytes()).unwrap();
        assert_eq!([of("stays"), of("goes"), of("gone")], [Expiry::Never, Expiry::At(end), Expiry::Passed]);
    }
}
