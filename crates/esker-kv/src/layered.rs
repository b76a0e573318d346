//! Spaces, savepoints and a transaction's own writes, for stores that have one ordered map and transactions.
//!
//! ```text
//!   AsyncKv: Layered<D>  --- keys with the id of their space in front ---> D: Driver
//!      own writes: Buffer, until the commit                                 D::View: one state
//! ```
//!
//! Keys of the map:
//!
//! ```text
//!   0 's' name          the id of a space, 4 bytes, big-endian
//!   0 'i' id            the name of a space; it is there as long as the space is
//!   0 'd' id            a space that was dropped and whose keys are still being removed
//!   0 'n'               the next id
//!   1 id key            a key of a space
//! ```
//!
//! layered.1. No id is used twice. A handle of a dropped space never reads or writes another space.
//! layered.2. A commit reads the name record of each space that it writes to, and fails if the space is gone.
//!     A space that was created after the transaction began is looked up in the newest state.

mod catalog;
mod merge;

use std::future::Future;
use std::ops::Bound;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

#[cfg(feature = "client")]
pub(crate) use self::catalog::NEXT_KEY;
use self::merge::page_of;
use crate::async_kv::{AsyncKv, AsyncReads, AsyncSnapshot, AsyncTransaction, Pending};
use crate::buffer::Buffer;
pub use crate::buffer::Write;
use crate::kv::{Limits, Savepoint};
use crate::page::{Page, Query};
use crate::{Error, Result, Space, Span};

/// Bytes in front of the keys of a space.
const PREFIX_BYTES: usize = 5;

/// One state of a driver's map.
pub trait View: Send + Sync + 'static {
    /// Returns the value of a key.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>>> + Send;

    /// Returns the values of keys, in their order.
    fn multi_get(&self, keys: &[Bytes]) -> impl Future<Output = Result<Vec<Option<Bytes>>>> + Send;

    /// Returns the first entries of a range: see [`Reads::page`](crate::Reads::page).
    fn page(&self, query: Query<'_>) -> impl Future<Output = Result<Page>> + Send;

    /// Returns the number of keys from the first (inclusive) to the second (exclusive).
    fn count(&self, from: &[u8], to: &[u8]) -> impl Future<Output = Result<u64>> + Send;

    /// Returns the value of a key. The commit conflicts if another transaction changes the key (kv.3).
    fn get_for_update(&mut self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>>> + Send;

    /// Makes these writes and commits. Conflicts are those of kv.3. Removals of ranges come first, then at
    /// most one write for each key.
    fn commit(self, writes: Vec<Write>) -> impl Future<Output = Result<()>> + Send;
}

/// A store with one ordered map of bytes.
pub trait Driver: Send + Sync + 'static {
    /// One state of it.
    type View: View;

    /// Begins to read the newest state: for a transaction, or only to read.
    fn view(&self, is_read_only: bool) -> impl Future<Output = Result<Self::View>> + Send;

    /// Begins to read the newest state for one call. The state may be fixed as late as by the first read.
    fn reader(&self) -> impl Future<Output = Result<Self::View>> + Send {
        self.view(true)
    }

    /// Returns the value of a key in the newest state.
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>>> + Send {
        async move { self.view(true).await?.get(key).await }
    }

    /// The limits of keys of the map, of values, and of transactions.
    fn limits(&self) -> Limits;
}

/// A store over a driver.
pub struct Layered<D> {
    driver: Arc<D>,
}

/// The store's own part of a [`Space`].
struct Handle {
    id: u32,
    /// Tells the spaces of several stores apart.
    store: usize,
}

fn data_key(id: u32, key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + key.len());
    bytes.put_u8(1);
    bytes.put_u32(id);
    bytes.put_slice(key);
    bytes.freeze()
}

/// The bounds of a range of a space in the map: the first key, and the first one behind the range.
fn data_range(id: u32, span: &Span<'_>) -> (Bytes, Bytes) {
    let behind = |key: &[u8]| {
        let mut bytes = data_key(id, key).to_vec();
        bytes.push(0);
        Bytes::from(bytes)
    };
    let from = match span.lower {
        Bound::Included(key) => data_key(id, key),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => data_key(id, b""),
    };
    let to = match span.upper {
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => data_key(id, key),
        Bound::Unbounded => data_key(id + 1, b""),
    };
    (from, to)
}

/// Returns the user's key of a key of the map.
fn user_key(key: &Bytes) -> Bytes {
    key.slice(PREFIX_BYTES.min(key.len())..)
}

impl<D: Driver> Layered<D> {
    /// Creates a store over a driver. Removes what is left of spaces that were dropped.
    ///
    /// # Errors
    /// Those of the driver.
    pub async fn open(driver: D) -> Result<Self> {
        let layered = Layered { driver: Arc::new(driver) };
        layered.finish_drops().await?;
        Ok(layered)
    }

    /// Returns the driver.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    fn store(&self) -> usize {
        Arc::as_ptr(&self.driver).cast::<()>() as usize
    }

    /// Returns a reader for one call.
    async fn reader(&self) -> Result<Reader<D::View>> {
        Ok(Reader { view: self.driver.reader().await?, store: self.store() })
    }
}

fn id_of(space: &Space, store: usize) -> Result<u32> {
    match space.handle::<Handle>() {
        Some(handle) if handle.store == store => Ok(handle.id),
        _ => Err(Error::Invalid(format!("space {:?} is another store's", space.name()))),
    }
}

impl<D: Driver> AsyncReads for Layered<D> {
    fn get<'a>(&'a self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move { self.driver.get(&data_key(id_of(space, self.store())?, key)).await })
    }

    fn multi_get<'a>(&'a self, space: &'a Space, keys: &'a [&'a [u8]]) -> Pending<'a, Vec<Option<Bytes>>> {
        Box::pin(async move { self.reader().await?.multi_get(space, keys).await })
    }

    fn page<'a>(&'a self, space: &'a Space, query: Query<'a>) -> Pending<'a, Page> {
        Box::pin(async move { self.reader().await?.page(space, query).await })
    }

    fn count<'a>(&'a self, space: &'a Space, span: Span<'a>) -> Pending<'a, u64> {
        Box::pin(async move { self.reader().await?.count(space, span).await })
    }
}

impl<D: Driver> AsyncKv for Layered<D> {
    fn space<'a>(&'a self, name: &'a str) -> Pending<'a, Space> {
        Box::pin(self.open_space(name))
    }

    fn find_space<'a>(&'a self, name: &'a str) -> Pending<'a, Option<Space>> {
        Box::pin(self.find(name))
    }

    fn spaces(&self) -> Pending<'_, Vec<String>> {
        Box::pin(self.names())
    }

    fn drop_space<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(self.drop_named(name))
    }

    fn rename_spaces<'a>(&'a self, names: &'a [(&'a str, &'a str)]) -> Pending<'a, ()> {
        Box::pin(self.rename(names))
    }

    fn snapshot(&self) -> Pending<'_, Box<dyn AsyncSnapshot>> {
        Box::pin(async move {
            let reader = Reader { view: self.driver.view(true).await?, store: self.store() };
            Ok(Box::new(reader) as Box<dyn AsyncSnapshot>)
        })
    }

    fn begin(&self) -> Pending<'_, Box<dyn AsyncTransaction>> {
        Box::pin(async move {
            let view = self.driver.view(false).await?;
            let transaction = LayeredTransaction {
                driver: self.driver.clone(),
                reader: Reader { view, store: self.store() },
                buffer: Buffer::default(),
                written: Vec::new(),
                limits: self.limits(),
            };
            Ok(Box::new(transaction) as Box<dyn AsyncTransaction>)
        })
    }

    fn limits(&self) -> Limits {
        let limits = self.driver.limits();
        Limits { key_bytes: limits.key_bytes.saturating_sub(PREFIX_BYTES), ..limits }
    }
}

/// Reads of one state.
struct Reader<V> {
    view: V,
    store: usize,
}

impl<V: View> AsyncSnapshot for Reader<V> {}

impl<V: View> AsyncReads for Reader<V> {
    fn get<'a>(&'a self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move { self.view.get(&data_key(id_of(space, self.store)?, key)).await })
    }

    fn multi_get<'a>(&'a self, space: &'a Space, keys: &'a [&'a [u8]]) -> Pending<'a, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let id = id_of(space, self.store)?;
            let keys: Vec<_> = keys.iter().map(|key| data_key(id, key)).collect();
            self.view.multi_get(&keys).await
        })
    }

    fn page<'a>(&'a self, space: &'a Space, query: Query<'a>) -> Pending<'a, Page> {
        Box::pin(async move { page_of(&self.view, None, id_of(space, self.store)?, &query).await })
    }

    fn count<'a>(&'a self, space: &'a Space, span: Span<'a>) -> Pending<'a, u64> {
        Box::pin(async move {
            let (from, to) = data_range(id_of(space, self.store)?, &span);
            if from >= to { Ok(0) } else { self.view.count(&from, &to).await }
        })
    }
}

struct LayeredTransaction<D: Driver> {
    driver: Arc<D>,
    reader: Reader<D::View>,
    buffer: Buffer,
    /// The spaces written to. They stay here if the writes are undone.
    written: Vec<Space>,
    limits: Limits,
}

impl<D: Driver> LayeredTransaction<D> {
    fn id(&self, space: &Space) -> Result<u32> {
        id_of(space, self.reader.store)
    }

    /// Returns the id of a space that is about to be written to.
    fn id_to_write(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<u32> {
        let id = self.id(space)?;
        let (len, limits) = (self.buffer.bytes() + (key.len() + value.len()) as u64, self.limits);
        for (what, is, max) in [
            ("a key", key.len() as u64, limits.key_bytes as u64),
            ("a value", value.len() as u64, limits.value_bytes as u64),
            ("a transaction", len, limits.transaction_bytes),
        ] {
            if is > max {
                return Err(Error::TooLarge(format!("{what} of {is} bytes; the limit is {max}")));
            }
        }
        if !self.written.iter().any(|known| self.id(known).is_ok_and(|known| known == id)) {
            self.written.push(space.clone());
        }
        Ok(id)
    }

    /// Fails if a space that was written to is gone (layered.2).
    async fn check_spaces(&self) -> Result<()> {
        let mut spaces = Vec::new();
        for space in &self.written {
            let id = self.id(space)?;
            if self.buffer.touches(&data_key(id, b""), &data_key(id + 1, b"")) {
                spaces.push((space, catalog::name_key(id)));
            }
        }
        let keys: Vec<_> = spaces.iter().map(|(_, key)| key.clone()).collect();
        let names = self.reader.view.multi_get(&keys).await?;
        for ((space, key), name) in spaces.iter().zip(names) {
            if name.is_none() && self.driver.get(key).await?.is_none() {
                return Err(Error::Invalid(format!("space {:?} was dropped", space.name())));
            }
        }
        Ok(())
    }
}

impl<D: Driver> AsyncReads for LayeredTransaction<D> {
    fn get<'a>(&'a self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move {
            match self.buffer.get(&data_key(self.id(space)?, key)) {
                Some(written) => Ok(written),
                None => self.reader.get(space, key).await,
            }
        })
    }

    fn multi_get<'a>(&'a self, space: &'a Space, keys: &'a [&'a [u8]]) -> Pending<'a, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let id = self.id(space)?;
            let own: Vec<_> = keys.iter().map(|key| self.buffer.get(&data_key(id, key))).collect();
            let others: Vec<_> =
                keys.iter().zip(&own).filter(|(_, own)| own.is_none()).map(|(key, _)| *key).collect();
            let mut stored = self.reader.multi_get(space, &others).await?.into_iter();
            Ok(own.into_iter().map(|own| own.unwrap_or_else(|| stored.next().flatten())).collect())
        })
    }

    fn page<'a>(&'a self, space: &'a Space, query: Query<'a>) -> Pending<'a, Page> {
        Box::pin(async move { page_of(&self.reader.view, Some(&self.buffer), self.id(space)?, &query).await })
    }

    fn count<'a>(&'a self, space: &'a Space, span: Span<'a>) -> Pending<'a, u64> {
        Box::pin(async move {
            let (from, to) = data_range(self.id(space)?, &span);
            if !self.buffer.touches(&from, &to) {
                return self.reader.count(space, span).await;
            }
            let (mut count, mut last) = (0, None::<Bytes>);
            loop {
                let rest = match &last {
                    Some(key) => Span { lower: Bound::Excluded(&key[..]), ..span },
                    None => span,
                };
                let page = self.page(space, Query::new(rest)).await?;
                count += page.entries.len() as u64;
                last = page.entries.last().map(|(key, _)| key.clone());
                if !page.has_more || last.is_none() {
                    return Ok(count);
                }
            }
        })
    }
}

impl<D: Driver> AsyncTransaction for LayeredTransaction<D> {
    fn get_for_update<'a>(&'a mut self, space: &'a Space, key: &'a [u8]) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move {
            let key = data_key(self.id(space)?, key);
            let stored = self.reader.view.get_for_update(&key).await?;
            Ok(self.buffer.get(&key).unwrap_or(stored))
        })
    }

    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        let id = self.id_to_write(space, key, value)?;
        self.buffer.write(Write::Put(data_key(id, key), Bytes::copy_from_slice(value)));
        Ok(())
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        let id = self.id_to_write(space, key, b"")?;
        self.buffer.write(Write::Remove(data_key(id, key)));
        Ok(())
    }

    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        let id = self.id_to_write(space, b"", b"")?;
        let (from, to) = data_range(id, &span);
        if from < to {
            self.buffer.write(Write::RemoveRange(from, to));
        }
        Ok(())
    }

    fn savepoint(&mut self) -> Result<Savepoint> {
        Ok(self.buffer.savepoint())
    }

    fn rollback_to(&mut self, point: Savepoint) -> Result<()> {
        self.buffer.rollback_to(point)
    }

    fn release(&mut self, point: Savepoint) -> Result<()> {
        self.buffer.release(point)
    }

    fn commit(self: Box<Self>) -> Pending<'static, ()> {
        Box::pin(async move {
            self.check_spaces().await?;
            self.reader.view.commit(self.buffer.writes()).await
        })
    }
}
