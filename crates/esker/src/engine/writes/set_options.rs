//! Commits that change the options of a keyspace.

use std::sync::Arc;

use super::Writes;
use crate::encoding::catalog_key::options_key;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::keyspace_options::{KeyspaceOptions, check_created};
use crate::txn::commit::Durability;
use crate::txn::write_set::WriteSet;
use crate::types::Result;

impl Writes {
    /// Changes the options of a keyspace, durably. Commits nothing if they are as `change` leaves them
    /// already.
    pub(crate) fn change_options(
        &self,
        keyspace: &Arc<KeyspaceState>,
        change: impl Fn(&mut KeyspaceOptions),
    ) -> Result<()> {
        self.check_writable()?;
        let changed = |given: &KeyspaceOptions| {
            let mut given = given.clone();
            change(&mut given);
            given
        };
        let stored = self.catalog.options_of(keyspace.id).given;
        if changed(&stored) == stored && !keyspace.is_dropping() {
            // The thread that set them may not have waited for the disk.
            return self.pipeline.sync();
        }
        // Taken before the catalog's lock, which the transaction that is waited for may need.
        let _passage = self.wait_for_exclusive()?;
        let _catalog = self.catalog.lock();
        check_created(keyspace)?;
        let before = self.catalog.options_of(keyspace.id);
        let options = self.to_store(keyspace, &before, &changed(&before.given))?;
        if options == before {
            return self.pipeline.sync();
        }
        let mut set = WriteSet::new();
        set.put(&options_key(keyspace.id), &options.encode());
        self.commit_encoded(set, Durability::Sync).inspect_err(|_| self.keep_history(keyspace.id))?;
        self.take_options(keyspace.id, Some(keyspace), options);
        Ok(())
    }
}
