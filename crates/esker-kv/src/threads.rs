//! A store whose calls block, for programs whose calls are futures: each call that reads or commits runs on a
//! thread of tokio's pool for blocking work. Writes of transactions run on the caller's thread: stores keep
//! them in memory.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use crate::async_kv::{AsyncKv, AsyncReads, AsyncSnapshot, AsyncTransaction, Pending};
use crate::kv::{Kv, Limits, Savepoint, Snapshot, Transaction};
use crate::page::{Page, Query};
use crate::{Error, Result, Space, Span};

/// A [`Kv`] as an [`AsyncKv`]. Needs a tokio runtime.
pub struct Threads<K: ?Sized> {
    inner: Arc<K>,
}

impl<K: Kv + ?Sized + 'static> Threads<K> {
    /// Creates a store on another one.
    pub fn new(inner: Arc<K>) -> Self {
        Threads { inner }
    }

    fn run<T: Send + 'static>(&self, call: impl FnOnce(&K) -> Result<T> + Send + 'static) -> Pending<'_, T> {
        let inner = self.inner.clone();
        run(move || call(&inner))
    }
}

fn run<'a, T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Pending<'a, T> {
    Box::pin(async move { spawn_blocking(call).await.map_err(Error::other)? })
}

/// A range of keys that owns its bounds.
struct OwnedSpan(Bound<Bytes>, Bound<Bytes>);

impl OwnedSpan {
    fn of(span: &Span<'_>) -> Self {
        OwnedSpan(span.lower.map(Bytes::copy_from_slice), span.upper.map(Bytes::copy_from_slice))
    }

    fn span(&self) -> Span<'_> {
        Span { lower: self.0.as_ref().map(|key| &key[..]), upper: self.1.as_ref().map(|key| &key[..]) }
    }
}

/// Implements the reads of a type whose method `run` runs a call with a reader.
macro_rules! reads {
    ($type:ty) => {
        reads!($type,);
    };
    ($type:ty, $($generics:tt)*) => {
        impl<$($generics)*> AsyncReads for $type {
            fn get<'a>(&'a self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>> {
                let (space, key) = (space.clone(), key.to_vec());
                self.run(move |reads| reads.get(&space, &key))
            }

            fn multi_get<'a>(
                &'a self,
                space: &'a Space,
                keys: &'a [&'a [u8]],
            ) -> Pending<'a, Vec<Option<Bytes>>> {
                let (space, keys) = (space.clone(), keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>());
                self.run(move |reads| {
                    reads.multi_get(&space, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>())
                })
            }

            fn page<'a>(&'a self, space: &'a Space, query: Query<'a>) -> Pending<'a, Page> {
                let (space, span) = (space.clone(), OwnedSpan::of(&query.span));
                let Query { order, entries_max, bytes_max, .. } = query;
                self.run(move |reads| {
                    reads.page(&space, Query { span: span.span(), order, entries_max, bytes_max })
                })
            }

            fn count<'a>(&'a self, space: &'a Space, span: Span<'a>) -> Pending<'a, u64> {
                let (space, span) = (space.clone(), OwnedSpan::of(&span));
                self.run(move |reads| reads.count(&space, span.span()))
            }
        }
    };
}

reads!(Threads<K>, K: Kv + ?Sized + 'static);

impl<K: Kv + ?Sized + 'static> AsyncKv for Threads<K> {
    fn space<'a>(&'a self, name: &'a str) -> Pending<'a, Space> {
        let name = name.to_owned();
        self.run(move |kv| kv.space(&name))
    }

    fn find_space<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Space>> {
        let name = name.to_owned();
        self.run(move |kv| kv.find_space(&name))
    }

    fn spaces(&self) -> Pending<'_, Vec<String>> {
        self.run(|kv| kv.spaces())
    }

    fn drop_space<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        let name = name.to_owned();
        self.run(move |kv| kv.drop_space(&name))
    }

    fn rename_spaces<'a>(&'a self, names: &'a [(&'a str, &'a str)]) -> Pending<'a, ()> {
        let names: Vec<_> = names.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        self.run(move |kv| {
            kv.rename_spaces(&names.iter().map(|(from, to)| (&from[..], &to[..])).collect::<Vec<_>>())
        })
    }

    fn snapshot(&self) -> Pending<'_, Box<dyn AsyncSnapshot>> {
        self.run(|kv| {
            let inner: Arc<dyn Snapshot> = kv.snapshot()?.into();
            Ok(Box::new(ThreadsSnapshot { inner }) as Box<dyn AsyncSnapshot>)
        })
    }

    fn begin(&self) -> Pending<'_, Box<dyn AsyncTransaction>> {
        self.run(|kv| {
            let inner = Arc::new(Mutex::new(kv.begin()?));
            Ok(Box::new(ThreadsTransaction { inner }) as Box<dyn AsyncTransaction>)
        })
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

struct ThreadsSnapshot {
    inner: Arc<dyn Snapshot>,
}

impl ThreadsSnapshot {
    fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Snapshot) -> Result<T> + Send + 'static,
    ) -> Pending<'_, T> {
        let inner = self.inner.clone();
        run(move || call(&*inner))
    }
}

reads!(ThreadsSnapshot);

impl AsyncSnapshot for ThreadsSnapshot {}

struct ThreadsTransaction {
    inner: Arc<Mutex<Box<dyn Transaction>>>,
}

impl ThreadsTransaction {
    fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Transaction) -> Result<T> + Send + 'static,
    ) -> Pending<'_, T> {
        let inner = self.inner.clone();
        run(move || call(&mut **inner.lock()))
    }
}

reads!(ThreadsTransaction);

impl AsyncTransaction for ThreadsTransaction {
    fn get_for_update<'a>(&'a mut self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>> {
        let (space, key) = (space.clone(), key.to_vec());
        self.run(move |transaction| transaction.get_for_update(&space, &key))
    }

    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.lock().put(space, key, value)
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        self.inner.lock().remove(space, key)
    }

    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        self.inner.lock().remove_range(space, span)
    }

    fn savepoint(&mut self) -> Result<Savepoint> {
        self.inner.lock().savepoint()
    }

    fn rollback_to(&mut self, point: Savepoint) -> Result<()> {
        self.inner.lock().rollback_to(point)
    }

    fn release(&mut self, point: Savepoint) -> Result<()> {
        self.inner.lock().release(point)
    }

    fn commit(self: Box<Self>) -> Pending<'static, ()> {
        run(move || match Arc::try_unwrap(self.inner) {
            Ok(transaction) => transaction.into_inner().commit(),
            // A future of it was dropped, and its call still runs.
            Err(_) => Err(Error::Invalid("the transaction still runs another call".to_owned())),
        })
    }
}
