//! The traits of stores whose calls are futures. Each promise of [`crate::kv`] holds, and each method does
//! what the method of the same name there does. A future that is dropped before it is ready may have done
//! its work or not.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::kv::{Limits, Savepoint};
use crate::page::{Page, Query};
use crate::transact::Retry;
use crate::{Result, Space, Span};

/// A future of a store.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Reads: see [`Reads`](crate::Reads).
pub trait AsyncReads: Send + Sync {
    /// See [`Reads::get`](crate::Reads::get).
    fn get<'a>(&'a self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>>;

    /// See [`Reads::multi_get`](crate::Reads::multi_get).
    fn multi_get<'a>(&'a self, space: &'a Space, keys: &'a [&'a [u8]]) -> Pending<'a, Vec<Option<Bytes>>>;

    /// See [`Reads::page`](crate::Reads::page).
    fn page<'a>(&'a self, space: &'a Space, query: Query<'a>) -> Pending<'a, Page>;

    /// See [`Reads::count`](crate::Reads::count).
    fn count<'a>(&'a self, space: &'a Space, span: Span<'a>) -> Pending<'a, u64>;
}

/// A fixed state of a store.
pub trait AsyncSnapshot: AsyncReads {}

/// A transaction: see [`Transaction`](crate::Transaction). Stores keep its writes in the process until the
/// commit, so that only reads and the commit are waited for.
pub trait AsyncTransaction: AsyncReads {
    /// See [`Transaction::get_for_update`](crate::Transaction::get_for_update).
    fn get_for_update<'a>(&'a mut self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>>;

    /// See [`Transaction::put`](crate::Transaction::put).
    ///
    /// # Errors
    /// Those of the method there.
    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()>;

    /// See [`Transaction::remove`](crate::Transaction::remove).
    ///
    /// # Errors
    /// Those of the method there.
    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()>;

    /// See [`Transaction::remove_range`](crate::Transaction::remove_range).
    ///
    /// # Errors
    /// Those of the method there.
    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()>;

    /// See [`Transaction::savepoint`](crate::Transaction::savepoint).
    ///
    /// # Errors
    /// Those of the method there.
    fn savepoint(&mut self) -> Result<Savepoint>;

    /// See [`Transaction::rollback_to`](crate::Transaction::rollback_to).
    ///
    /// # Errors
    /// Those of the method there.
    fn rollback_to(&mut self, point: Savepoint) -> Result<()>;

    /// See [`Transaction::release`](crate::Transaction::release).
    ///
    /// # Errors
    /// Those of the method there.
    fn release(&mut self, point: Savepoint) -> Result<()>;

    /// See [`Transaction::commit`](crate::Transaction::commit).
    fn commit(self: Box<Self>) -> Pending<'static, ()>;
}

/// A store: see [`Kv`](crate::Kv).
pub trait AsyncKv: AsyncReads {
    /// See [`Kv::space`](crate::Kv::space).
    fn space<'a>(&'a self, name: &'a str) -> Pending<'a, Space>;

    /// See [`Kv::find_space`](crate::Kv::find_space).
    fn find_space<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Space>>;

    /// See [`Kv::spaces`](crate::Kv::spaces).
    fn spaces(&self) -> Pending<'_, Vec<String>>;

    /// See [`Kv::drop_space`](crate::Kv::drop_space).
    fn drop_space<'a>(&'a self, name: &'a str) -> Pending<'a, ()>;

    /// See [`Kv::rename_spaces`](crate::Kv::rename_spaces).
    fn rename_spaces<'a>(&'a self, names: &'a [(&'a str, &'a str)]) -> Pending<'a, ()>;

    /// See [`Kv::snapshot`](crate::Kv::snapshot).
    fn snapshot(&self) -> Pending<'_, Box<dyn AsyncSnapshot>>;

    /// See [`Kv::begin`](crate::Kv::begin).
    fn begin(&self) -> Pending<'_, Box<dyn AsyncTransaction>>;

    /// See [`Kv::limits`](crate::Kv::limits).
    fn limits(&self) -> Limits;
}

/// Runs `work` in a transaction and commits; runs it again after conflicts: see
/// [`transact`](crate::transact()). `work` gets the transaction and gives it back.
///
/// # Errors
/// Those of `work` and of the store.
pub async fn transact<T, F>(
    kv: &dyn AsyncKv,
    retry: Retry,
    mut work: impl FnMut(Box<dyn AsyncTransaction>) -> F,
) -> Result<T>
where
    F: Future<Output = Result<(Box<dyn AsyncTransaction>, T)>>,
{
    let mut attempt = 1;
    loop {
        let done = async {
            let (transaction, value) = work(kv.begin().await?).await?;
            transaction.commit().await?;
            Ok(value)
        };
        match done.await {
            Err(error) if crate::Error::is_retryable(&error) && attempt < retry.attempts => {
                tokio::time::sleep(retry.pause(attempt)).await;
                attempt += 1;
            }
            done => return done,
        }
    }
}
