//! Transactions over one tree or several of a database.
//!
//! ```text
//!   transaction(f) --> esker's transaction, serializable --lent to--> TransactionalTree.. --> f
//!                       again after a conflict
//! ```

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::{Batch, IVec, Tree};

/// The error of an operation in a transaction. Pass it on with `?`.
#[derive(Clone, Debug, PartialEq)]
pub enum UnabortableTransactionError {
    /// Another transaction has changed what this one needs. It runs again.
    Conflict,
    /// The storage failed.
    Storage(Error),
}

/// The error of a transaction's function.
#[derive(Clone, Debug, PartialEq)]
pub enum ConflictableTransactionError<T = Error> {
    /// The function gives up.
    Abort(T),
    #[doc(hidden)]
    Conflict,
    /// The storage failed.
    Storage(Error),
}

/// The error of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum TransactionError<T = Error> {
    /// The function gave up.
    Abort(T),
    /// The storage failed.
    Storage(Error),
}

/// The result of an operation in a transaction.
pub type UnabortableTransactionResult<T> = std::result::Result<T, UnabortableTransactionError>;
/// The result of a transaction's function.
pub type ConflictableTransactionResult<T, E = ()> = std::result::Result<T, ConflictableTransactionError<E>>;
/// The result of a transaction.
pub type TransactionResult<T, E = ()> = std::result::Result<T, TransactionError<E>>;

const CONFLICT: &str = "another transaction has changed what this one needs";

impl fmt::Display for UnabortableTransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnabortableTransactionError::Conflict => f.write_str(CONFLICT),
            UnabortableTransactionError::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for UnabortableTransactionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UnabortableTransactionError::Storage(error) => Some(error),
            UnabortableTransactionError::Conflict => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for ConflictableTransactionError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConflictableTransactionError::Abort(error) => error.fmt(f),
            ConflictableTransactionError::Conflict => f.write_str(CONFLICT),
            ConflictableTransactionError::Storage(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for ConflictableTransactionError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConflictableTransactionError::Storage(error) => Some(error),
            _ => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for TransactionError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactionError::Abort(error) => error.fmt(f),
            TransactionError::Storage(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for TransactionError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TransactionError::Storage(error) => Some(error),
            TransactionError::Abort(_) => None,
        }
    }
}

impl From<Error> for UnabortableTransactionError {
    fn from(error: Error) -> Self {
        UnabortableTransactionError::Storage(error)
    }
}

impl<E> From<UnabortableTransactionError> for ConflictableTransactionError<E> {
    fn from(error: UnabortableTransactionError) -> Self {
        match error {
            UnabortableTransactionError::Conflict => ConflictableTransactionError::Conflict,
            UnabortableTransactionError::Storage(error) => ConflictableTransactionError::Storage(error),
        }
    }
}

impl<T> From<Error> for ConflictableTransactionError<T> {
    fn from(error: Error) -> Self {
        ConflictableTransactionError::Storage(error)
    }
}

impl<T> From<Error> for TransactionError<T> {
    fn from(error: Error) -> Self {
        TransactionError::Storage(error)
    }
}

impl<T> From<esker::Error> for ConflictableTransactionError<T> {
    fn from(error: esker::Error) -> Self {
        match error {
            esker::Error::Conflict { .. } => ConflictableTransactionError::Conflict,
            error => ConflictableTransactionError::Storage(error.into()),
        }
    }
}

/// Gives up: the error is that of the transaction.
///
/// # Errors
/// Always.
pub fn abort<A, T>(t: T) -> ConflictableTransactionResult<A, T> {
    Err(ConflictableTransactionError::Abort(t))
}

/// A tree in a transaction: it reads one state, and its own writes on top.
#[derive(Clone)]
pub struct TransactionalTree {
    tree: Tree,
    current: Rc<Current>,
}

/// The transaction, which is here while the function runs.
struct Current {
    transaction: RefCell<Option<esker::Transaction>>,
    flush: Cell<bool>,
}

impl TransactionalTree {
    fn with<T>(
        &self,
        act: impl FnOnce(&mut esker::Transaction) -> esker::Result<T>,
    ) -> UnabortableTransactionResult<T> {
        let mut transaction = self.current.transaction.borrow_mut();
        let Some(transaction) = &mut *transaction else {
            let text = "the transaction of this tree has ended".to_owned();
            return Err(Error::Unsupported(text).into());
        };
        act(transaction).map_err(|error| match error {
            esker::Error::Conflict { .. } => UnabortableTransactionError::Conflict,
            error => UnabortableTransactionError::Storage(self.tree.failed(error)),
        })
    }

    /// Sets a key. Returns the old value.
    ///
    /// # Errors
    /// Those of [`esker::Transaction::put`].
    pub fn insert<K, V>(&self, key: K, value: V) -> UnabortableTransactionResult<Option<IVec>>
    where
        K: AsRef<[u8]> + Into<IVec>,
        V: Into<IVec>,
    {
        let old = self.get(key.as_ref())?;
        self.with(|t| t.put(self.tree.keyspace(), key, value.into()))?;
        Ok(old)
    }

    /// Removes a key. Returns the old value.
    ///
    /// # Errors
    /// Those of [`esker::Transaction::delete`].
    pub fn remove<K>(&self, key: K) -> UnabortableTransactionResult<Option<IVec>>
    where
        K: AsRef<[u8]> + Into<IVec>,
    {
        let old = self.get(key.as_ref())?;
        if old.is_some() {
            self.with(|t| t.delete(self.tree.keyspace(), key))?;
        }
        Ok(old)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of [`esker::Transaction::get`].
    pub fn get<K: AsRef<[u8]>>(&self, key: K) -> UnabortableTransactionResult<Option<IVec>> {
        // A key too long for the engine does not exist.
        let found = self.with(|t| match t.get(self.tree.keyspace(), key) {
            Err(esker::Error::KeyTooLong { .. }) => Ok(None),
            found => found,
        })?;
        Ok(found.map(IVec::from))
    }

    /// Adds the writes of a batch.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn apply_batch(&self, batch: &Batch) -> UnabortableTransactionResult<()> {
        let keyspace = self.tree.keyspace();
        for (key, value) in &batch.writes {
            self.with(|t| match value {
                Some(value) => t.put(keyspace, key, value),
                None => t.delete(keyspace, key),
            })?;
        }
        Ok(())
    }

    /// Makes the transaction wait for the disk after its commit.
    pub fn flush(&self) {
        self.current.flush.set(true);
    }

    /// Returns a number that no other call returns, also if the transaction aborts.
    ///
    /// # Errors
    /// Those of [`Db::generate_id`](crate::Db::generate_id).
    pub fn generate_id(&self) -> Result<u64> {
        self.tree.shared().generate_id()
    }
}

/// One tree or several in a transaction. Made by [`Transactional`].
pub struct TransactionalTrees {
    trees: Vec<TransactionalTree>,
}

impl TransactionalTrees {
    fn new(trees: Vec<Tree>) -> Result<Self> {
        let same = trees.windows(2).all(|pair| Arc::ptr_eq(pair[0].shared(), pair[1].shared()));
        if trees.is_empty() || !same {
            let text = "a transaction needs trees, all of one database".to_owned();
            return Err(Error::Unsupported(text));
        }
        let current = Rc::new(Current { transaction: RefCell::new(None), flush: Cell::new(false) });
        let trees = trees.into_iter().map(|tree| TransactionalTree { tree, current: current.clone() });
        Ok(TransactionalTrees { trees: trees.collect() })
    }

    /// Runs `f` with a transaction of the database, which is lent to the trees meanwhile.
    fn lend<T>(&self, transaction: &mut esker::Transaction, f: impl FnOnce() -> T) -> T {
        let first = &self.trees[0];
        let place = &first.current.transaction;
        let substitute = first.tree.shared().db.begin();
        place.replace(Some(std::mem::replace(transaction, substitute)));
        let done = f();
        if let Some(lent) = place.take() {
            *transaction = lent;
        }
        done
    }
}

/// What transactions run over: a tree, a slice of trees, or a tuple of up to 14 references to trees.
pub trait Transactional<E = ()> {
    /// What the function gets.
    type View;

    /// Makes trees of a transaction.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for trees of several databases.
    fn make_overlay(&self) -> Result<TransactionalTrees>;

    /// Makes what the function gets.
    fn view_overlay(overlay: &TransactionalTrees) -> Self::View;

    /// Runs `f` in a transaction. It may run several times; if it returns an error nothing is written.
    ///
    /// # Errors
    /// What `f` aborts with, or the error of the storage.
    fn transaction<F, A>(&self, f: F) -> TransactionResult<A, E>
    where
        F: Fn(&Self::View) -> ConflictableTransactionResult<A, E>,
    {
        loop {
            let overlay = self.make_overlay()?;
            let view = Self::view_overlay(&overlay);
            let current = &overlay.trees[0].current;
            let db = &overlay.trees[0].tree.shared().db;
            let done = db.transact(|t| {
                current.flush.set(false);
                overlay.lend(t, || f(&view))
            });
            match done {
                Ok(value) => {
                    if current.flush.get() {
                        db.sync().map_err(Error::from)?;
                    }
                    return Ok(value);
                }
                Err(ConflictableTransactionError::Conflict) => {}
                Err(ConflictableTransactionError::Abort(error)) => {
                    return Err(TransactionError::Abort(error));
                }
                Err(ConflictableTransactionError::Storage(error)) => return Err(error.into()),
            }
        }
    }
}

macro_rules! one_tree {
    ($($type:ty),*) => {$(
        impl<E> Transactional<E> for $type {
            type View = TransactionalTree;

            fn make_overlay(&self) -> Result<TransactionalTrees> {
                let tree: &Tree = self;
                TransactionalTrees::new(vec![tree.clone()])
            }

            fn view_overlay(overlay: &TransactionalTrees) -> Self::View {
                overlay.trees[0].clone()
            }
        }
    )*};
}

one_tree!(Tree, &Tree, &&Tree);

impl<E> Transactional<E> for [Tree] {
    type View = Vec<TransactionalTree>;

    fn make_overlay(&self) -> Result<TransactionalTrees> {
        TransactionalTrees::new(self.to_vec())
    }

    fn view_overlay(overlay: &TransactionalTrees) -> Self::View {
        overlay.trees.clone()
    }
}

impl<E> Transactional<E> for [&Tree] {
    type View = Vec<TransactionalTree>;

    fn make_overlay(&self) -> Result<TransactionalTrees> {
        TransactionalTrees::new(self.iter().map(|tree| (*tree).clone()).collect())
    }

    fn view_overlay(overlay: &TransactionalTrees) -> Self::View {
        overlay.trees.clone()
    }
}

macro_rules! tuples {
    ($(($($index:tt),+),)*) => {$(
        impl<E> Transactional<E> for ($(tuples!(@type $index &Tree),)+) {
            type View = ($(tuples!(@type $index TransactionalTree),)+);

            fn make_overlay(&self) -> Result<TransactionalTrees> {
                TransactionalTrees::new(vec![$(self.$index.clone()),+])
            }

            fn view_overlay(overlay: &TransactionalTrees) -> Self::View {
                ($(overlay.trees[$index].clone(),)+)
            }
        }
    )*};
    (@type $index:tt $type:ty) => { $type };
}

tuples! {
    (0),
    (0, 1),
    (0, 1, 2),
    (0, 1, 2, 3),
    (0, 1, 2, 3, 4),
    (0, 1, 2, 3, 4, 5),
    (0, 1, 2, 3, 4, 5, 6),
    (0, 1, 2, 3, 4, 5, 6, 7),
    (0, 1, 2, 3, 4, 5, 6, 7, 8),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
}
