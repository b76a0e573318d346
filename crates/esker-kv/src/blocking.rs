//! A store whose calls are futures, for programs whose calls block.
//!
//! The calling thread runs the future itself; the sockets are served by the threads of a runtime. So calls
//! work from any thread, also from one of another runtime of several threads.
//!
//! blocking.1. A thread of another runtime gives up its place there during the call. If it kept the place, a
//!     future that yields, or has used up its share of the thread's time, would wake up only after the task
//!     that makes the call has ended.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};

use crate::async_kv::{AsyncKv, AsyncSnapshot, AsyncTransaction};
use crate::kv::{Kv, Limits, Reads, Savepoint, Snapshot, Transaction};
use crate::page::{Page, Query};
use crate::{Result, Space, Span};

/// An [`AsyncKv`] as a [`Kv`].
pub struct Blocking<A: ?Sized> {
    runtime: Handle,
    /// The runtime, if it is the store's own.
    owned: Option<Runtime>,
    inner: Arc<A>,
}

/// Runs a future on this thread. `runtime` must have threads of its own, as one of several threads has.
pub(crate) fn block_on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let has_one_thread =
        Handle::try_current().is_ok_and(|current| current.runtime_flavor() == RuntimeFlavor::CurrentThread);
    let run = || {
        let _entered = runtime.enter();
        pollster::block_on(future)
    };
    // blocking.1
    if has_one_thread { run() } else { tokio::task::block_in_place(run) }
}

impl<A: AsyncKv + ?Sized> Blocking<A> {
    /// Creates a store that uses the threads of a runtime of several threads, which must live as long.
    pub fn new(inner: Arc<A>, runtime: Handle) -> Self {
        Blocking { runtime, owned: None, inner }
    }

    /// Creates a store with a runtime of its own.
    pub fn with_runtime(inner: Arc<A>, runtime: Runtime) -> Self {
        Blocking { runtime: runtime.handle().clone(), owned: Some(runtime), inner }
    }

    fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        block_on(&self.runtime, future)
    }
}

impl<A: ?Sized> Drop for Blocking<A> {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its tasks, which is not allowed in a task of another one.
        if let Some(runtime) = self.owned.take() {
            runtime.shutdown_background();
        }
    }
}

macro_rules! reads {
    ($type:ty) => {
        reads!($type,);
    };
    ($type:ty, $($generics:tt)*) => {
        impl<$($generics)*> Reads for $type {
            fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
                block_on(&self.runtime, self.inner.get(space, key))
            }

            fn multi_get(&self, space: &Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
                block_on(&self.runtime, self.inner.multi_get(space, keys))
            }

            fn page(&self, space: &Space, query: Query<'_>) -> Result<Page> {
                block_on(&self.runtime, self.inner.page(space, query))
            }

            fn count(&self, space: &Space, span: Span<'_>) -> Result<u64> {
                block_on(&self.runtime, self.inner.count(space, span))
            }
        }
    };
}

reads!(Blocking<A>, A: AsyncKv + ?Sized);

impl<A: AsyncKv + ?Sized> Kv for Blocking<A> {
    fn space(&self, name: &str) -> Result<Space> {
        self.block_on(self.inner.space(name))
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        self.block_on(self.inner.find_space(name))
    }

    fn spaces(&self) -> Result<Vec<String>> {
        self.block_on(self.inner.spaces())
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        self.block_on(self.inner.drop_space(name))
    }

    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        self.block_on(self.inner.rename_spaces(names))
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let inner = self.block_on(self.inner.snapshot())?;
        Ok(Box::new(BlockingSnapshot { runtime: self.runtime.clone(), inner }))
    }

    fn begin(&self) -> Result<Box<dyn Transaction>> {
        let inner = self.block_on(self.inner.begin())?;
        Ok(Box::new(BlockingTransaction { runtime: self.runtime.clone(), inner }))
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

struct BlockingSnapshot {
    runtime: Handle,
    inner: Box<dyn AsyncSnapshot>,
}

reads!(BlockingSnapshot);

impl Snapshot for BlockingSnapshot {}

struct BlockingTransaction {
    runtime: Handle,
    inner: Box<dyn AsyncTransaction>,
}

reads!(BlockingTransaction);

impl Transaction for BlockingTransaction {
    fn get_for_update(&mut self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        block_on(&self.runtime, self.inner.get_for_update(space, key))
    }

    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.inner.put(space, key, value)
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        self.inner.remove(space, key)
    }

    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        self.inner.remove_range(space, span)
    }

    fn savepoint(&mut self) -> Result<Savepoint> {
        self.inner.savepoint()
    }

    fn rollback_to(&mut self, point: Savepoint) -> Result<()> {
        self.inner.rollback_to(point)
    }

    fn release(&mut self, point: Savepoint) -> Result<()> {
        self.inner.release(point)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        block_on(&self.runtime, self.inner.commit())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn blocking_1_a_future_that_yields_goes_on_in_a_task_of_another_runtime() {
        let runtime = |threads| {
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
        };
        let (own, other) = (runtime(2), runtime(1));
        let handle = own.handle().clone();
        let call = other.spawn(async move {
            block_on(&handle, async {
                // Some of each: yields, and more receptions than tokio allows a task in one go.
                let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
                (0..1000).for_each(|n| sender.send(n).unwrap());
                for _ in 0..1000 {
                    receiver.recv().await.unwrap();
                }
                tokio::task::yield_now().await;
            });
        });
        let done = own.block_on(async { tokio::time::timeout(Duration::from_secs(20), call).await });
        own.shutdown_background();
        other.shutdown_background();
        assert!(done.is_ok(), "blocking.1");
    }
}
