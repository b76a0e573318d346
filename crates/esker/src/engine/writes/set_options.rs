//! Commits that change the options of a keyspace.

use std::sync::Arc;
use std::time::Duration;

use super::Writes;
use crate::encoding::catalog_key::options_key;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::history::History;
use crate::engine::state::keyspace_options::{
    StoredOptions, check_created, check_operator, check_ttl, ttl_ms,
};
use crate::txn::commit::Durability;
use crate::txn::write_set::WriteSet;
use crate::types::Result;

impl Writes {
    /// Sets the size in bytes from which on values of a keyspace go to blob files. `None`: never.
    pub(crate) fn set_blobs_over(&self, keyspace: &Arc<KeyspaceState>, over: Option<usize>) -> Result<()> {
        self.set_options(keyspace, |options| options.blobs_over = Some(over))
    }

    /// Sets whether a keyspace counts its keys lazily.
    pub(crate) fn set_counting(&self, keyspace: &Arc<KeyspaceState>, is_lazy: bool) -> Result<()> {
        self.set_options(keyspace, |options| options.is_lazy = is_lazy)
    }

    /// Sets the default lifetime of puts in a keyspace. `None`: unlimited.
    pub(crate) fn set_default_ttl(&self, keyspace: &Arc<KeyspaceState>, ttl: Option<Duration>) -> Result<()> {
        check_ttl(keyspace, ttl)?;
        let ms = ttl.map_or(0, ttl_ms);
        self.set_options(keyspace, |options| options.ttl_ms = ms)
    }

    /// Sets the merge operator of a keyspace (operators.1).
    pub(crate) fn set_merge_operator(&self, keyspace: &Arc<KeyspaceState>, name: &str) -> Result<()> {
        self.check_knows(keyspace, name)?;
        keyspace.check_alive()?;
        if self.catalog.options_of(keyspace.id).merge_operator.as_deref() == Some(name) {
            // The caller who set it may not have waited for the disk.
            return self.pipeline.sync();
        }
        self.change_options(keyspace, |options| {
            check_operator(keyspace, options.merge_operator.as_deref(), Some(name))?;
            options.merge_operator = Some(name.to_owned());
            Ok(())
        })
    }

    pub(in crate::engine) fn set_options(
        &self,
        keyspace: &Arc<KeyspaceState>,
        change: impl FnOnce(&mut StoredOptions),
    ) -> Result<()> {
        self.change_options(keyspace, |options| {
            change(options);
            Ok(())
        })
    }

    fn change_options(
        &self,
        keyspace: &Arc<KeyspaceState>,
        change: impl FnOnce(&mut StoredOptions) -> Result<()>,
    ) -> Result<()> {
        self.check_ours()?;
        // Taken before the catalog's lock, which the transaction that is waited for may need.
        let _passage = self.wait_for_exclusive()?;
        let _catalog = self.catalog.lock();
        check_created(keyspace)?;
        let before = self.catalog.options_of(keyspace.id);
        let mut options = before.clone();
        change(&mut options)?;
        if options == before {
            // The caller who set them may not have waited for the disk.
            return self.pipeline.sync();
        }
        let mut set = WriteSet::new();
        set.put(&options_key(keyspace.id), &options.encode());
        self.commit_encoded(set, Durability::Sync)?;
        self.take_options(keyspace.id, Some(keyspace), options);
        Ok(())
    }

    /// Sets what a keyspace keeps of older versions.
    pub(crate) fn set_history(&self, keyspace: &Arc<KeyspaceState>, rule: History) -> Result<()> {
        self.check_ours()?;
        let before = self.catalog.options_of(keyspace.id).history;
        let kept = self.begin_history(keyspace.id, before, rule)?;
        let set = self.set_options(keyspace, |options| options.history = kept);
        if set.is_err() {
            self.keep_history(keyspace.id);
        }
        set
    }
}
