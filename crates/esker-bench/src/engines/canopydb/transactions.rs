//! canopydb's transactions that read what they write.
//!
//! ```text
//! one writer at a time  begin_write: serializable
//! optimistic            begin_write_concurrent: snapshot isolation, conflicts by the page, again at once
//! ```

use std::time::Instant;

use canopydb::Error;

use super::{CanopyStore, CanopyWriter, TREE, no_tree, walk};
use esker_bench_api::{
    ByWriter, Failure, Result, Store, TransactionKind, TransactionWork, Transactions, VisitItem,
    until_no_conflict,
};

pub(super) struct CanopyTransactions {
    pub(super) store: CanopyStore,
    pub(super) kind: TransactionKind,
}

impl CanopyTransactions {
    /// Runs one attempt. Returns false after a conflict.
    fn once(&self, work: TransactionWork<'_>) -> Result<bool> {
        let concurrent = self.kind == TransactionKind::Optimistic;
        let txn = self.store.db.begin_write_with(concurrent)?;
        let mut writer = CanopyWriter { tree: txn.get_or_create_tree(TREE)? };
        work(&mut ByWriter(&mut writer))?;
        drop(writer);
        match txn.commit_with(self.store.sync) {
            Err(Error::WriteConflict) => Ok(false),
            done => done.map(|_| true).map_err(Failure::engine),
        }
    }
}

impl Transactions for CanopyTransactions {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        until_no_conflict(|| self.once(work))
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        let txn = self.store.db.begin_read()?;
        let tree = txn.get_tree(TREE)?.ok_or_else(no_tree)?;
        walk(&tree, &[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        self.store.drain(deadline)
    }
}
