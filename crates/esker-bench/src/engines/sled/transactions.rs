//! Transactions of sled that read what they write. Each holds a lock of the whole tree, so there is one
//! writer at a time.

use std::cell::RefCell;
use std::time::Instant;

use sled::transaction::{
    ConflictableTransactionError, TransactionError, TransactionalTree, UnabortableTransactionError,
};

use super::{SledReader, SledStore};
use esker_bench_api::{
    Failure, Reader as _, Result, Store, Transaction, TransactionWork, Transactions, VisitItem,
};

impl Transactions for SledStore {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        let (work, tries) = (RefCell::new(work), RefCell::new(0));
        let body = |tree: &TransactionalTree| {
            *tries.borrow_mut() += 1;
            let mut open = Open { tree, is_conflict: false };
            let done = (*work.borrow_mut())(&mut open);
            // sled then runs it again, whatever the work returned.
            if open.is_conflict {
                return Err(ConflictableTransactionError::Conflict);
            }
            done.map_err(ConflictableTransactionError::Abort)
        };
        match self.db.transaction(body) {
            Err(TransactionError::Abort(failure)) => return Err(failure),
            done => done.map_err(Failure::engine)?,
        }
        self.end_write()?;
        Ok(tries.into_inner() - 1)
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        SledReader { tree: &self.db }.range(&[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        Store::drain(self, deadline)
    }
}

struct Open<'a> {
    tree: &'a TransactionalTree,
    is_conflict: bool,
}

impl Open<'_> {
    fn failed(&mut self, error: UnabortableTransactionError) -> Failure {
        self.is_conflict |= matches!(error, UnabortableTransactionError::Conflict);
        Failure::engine(error)
    }
}

impl Transaction for Open<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.tree.get(key).map_err(|error| self.failed(error))?;
        Ok(value.map(|value| visit(&value)).is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.tree.insert(key, value).map(drop).map_err(|error| self.failed(error))
    }
}
