//! Creating, dropping and renaming keyspaces.

use esker::{Durability, Error};

use super::World;
use super::trouble::attempt;
use crate::model::footprint::Footprint;
use crate::model::state::{Commit, DEFAULT};
use crate::op::KeyspaceNo;

/// Numbers of keyspaces below this take one byte in front of a key.
pub(super) const SHORT_IDS: u32 = 0xF0;

impl World {
    /// Makes and drops keyspaces until their numbers are longer than a byte. The model does not see them: nothing fails, and
    /// nothing of them is left.
    pub(super) fn use_up_short_ids(&mut self) {
        for _ in 0..SHORT_IDS {
            self.db().create_keyspace("short").expect("nothing fails yet");
            self.db().drop_keyspace("short").expect("nothing fails yet");
        }
    }

    pub(super) fn create(&mut self, name: &str) {
        let created = attempt(|| self.db().create_keyspace(name));
        if self.history.newest().names().contains_key(name) {
            return assert!(matches!(created, Err(Error::KeyspaceExists(n)) if n == name));
        }
        let id = self.new_id();
        let (outcome, keyspace) = match created {
            Ok(keyspace) => (Ok(()), Some(keyspace)),
            Err(error) => (Err(error), None),
        };
        let commit = Commit::Create(name.to_owned(), id);
        if self.committed(outcome, commit, Footprint::default(), Durability::Sync) {
            self.keyspaces.extend(keyspace.map(|keyspace| (id, keyspace)));
        }
    }

    pub(super) fn drop_keyspace(&mut self, no: KeyspaceNo) {
        let (id, keyspace) = self.pick(no);
        let name = keyspace.name();
        let dropped = attempt(|| self.db().drop_keyspace(&name));
        if name == DEFAULT {
            return assert!(matches!(dropped, Err(Error::Invalid(_))));
        }
        if self.committed(dropped, Commit::Drop(name.clone()), Footprint::default(), Durability::Sync) {
            assert!(matches!(keyspace.put("k", "v"), Err(Error::KeyspaceNotFound(n)) if n == name));
            assert!(matches!(self.db().open_keyspace(&name), Err(Error::KeyspaceNotFound(_))));
            self.keyspaces.remove(&id);
        }
    }

    pub(super) fn rename(&mut self, no: KeyspaceNo, to: &str) {
        let (_, keyspace) = self.pick(no);
        let from = keyspace.name();
        let renamed = attempt(|| self.db().rename_keyspace(&from, to));
        if from == DEFAULT {
            return assert!(matches!(renamed, Err(Error::Invalid(_))));
        }
        if self.history.newest().names().contains_key(to) {
            return assert!(matches!(renamed, Err(Error::KeyspaceExists(_))));
        }
        let commit = Commit::Rename(from, to.to_owned());
        if self.committed(renamed, commit, Footprint::default(), Durability::Sync) {
            assert_eq!(keyspace.name(), to);
        }
    }
}
