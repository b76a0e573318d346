//! Reads at a timestamp. A read in whose way a lock is waits until the lock's transaction has ended.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tikv_client::{Error as ClientError, KvPair, Snapshot, Timestamp, TransactionOptions};
use tokio::time::{Instant, timeout_at};

use super::faults::{Fault, error, orphans};
use super::{Shared, decode, orphans as locks};
use crate::page::{Page, PageBuilder, Query};
use crate::{Error, Order, Result};

/// What an entry is taken to have before any was seen.
pub(super) const ENTRY_BYTES: usize = 4 << 10;

/// Bytes of entries asked for in one call. The answer of each region has about as many at most.
const BATCH_BYTES: usize = 1 << 20;

/// Most entries or keys asked for in one call: keys of 4 KiB fit into a message.
const BATCH: usize = 2_000;

/// Keys looked up in one call.
const LOOKUPS: usize = 256;

/// Reads at a timestamp.
pub(super) struct Reader {
    pub shared: Arc<Shared>,
    pub at: Timestamp,
}

/// Why a read failed.
enum Failed {
    /// The answer is longer than a message.
    TooLarge,
    Other(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Error {
        match failed {
            Failed::TooLarge => Error::TooLarge("an answer of a server".to_owned()),
            Failed::Other(error) => error,
        }
    }
}

/// The first key behind a key.
pub(super) fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The bounds of a query: the first key, and the first one behind the range.
fn range(query: &Query<'_>) -> (Vec<u8>, Vec<u8>) {
    let from = match query.span.lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => Vec::new(),
    };
    let to = match query.span.upper {
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => key.to_vec(),
        // Behind all keys of a store.
        Bound::Unbounded => vec![u8::MAX],
    };
    (from, to)
}

impl Reader {
    fn snapshot(&self) -> Snapshot {
        self.shared.client.snapshot(self.at.clone(), TransactionOptions::new_optimistic())
    }

    /// Runs a read of a range until no lock is in its way.
    async fn read<T, F>(&self, from: &[u8], to: &[u8], call: impl Fn(Snapshot) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let end = Instant::now() + self.shared.timeout;
        let mut wait = Duration::from_millis(2);
        loop {
            let failed = match timeout_at(end, call(self.snapshot())).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(failed)) => failed,
                Err(_) => {
                    let limit = self.shared.timeout.as_millis();
                    return Err(Failed::Other(Error::Unavailable(format!("no answer in {limit} ms"))));
                }
            };
            match Fault::of(&failed) {
                Fault::Locked if Instant::now() < end => {
                    let orphans = orphans(&failed);
                    if !orphans.is_empty() {
                        // If it fails, the read says so.
                        let _ = locks::remove(&self.shared.client, &orphans, from, to).await;
                    }
                    tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
                    wait = (wait * 2).min(Duration::from_millis(200));
                }
                Fault::TooLarge => return Err(Failed::TooLarge),
                _ => return Err(Failed::Other(error(failed))),
            }
        }
    }

    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let call = async |mut snapshot: Snapshot| snapshot.get(key.to_vec()).await;
        let found = self.read(key, &behind(key), call).await?;
        Ok(found.map(decode))
    }

    pub(super) async fn multi_get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut found = std::collections::HashMap::with_capacity(sorted.len());
        let (mut at, mut batch) = (0, LOOKUPS);
        while at < sorted.len() {
            let some = &sorted[at..(at + batch).min(sorted.len())];
            let wanted: Vec<Vec<u8>> = some.iter().map(|key| key.to_vec()).collect();
            let call = async |mut snapshot: Snapshot| {
                let pairs = snapshot.batch_get(wanted.clone()).await?;
                Ok(pairs.collect::<Vec<_>>())
            };
            let (first, last) = (&some[0], behind(&some[some.len() - 1]));
            match self.read(first, &last, call).await {
                Ok(pairs) => {
                    at += some.len();
                    found.extend(pairs.into_iter().map(|KvPair(key, value)| (Vec::from(key), decode(value))));
                }
                Err(Failed::TooLarge) if batch > 1 => batch = smaller(batch),
                Err(failed) => return Err(failed.into()),
            }
        }
        Ok(keys.iter().map(|key| found.get(&key[..]).cloned()).collect())
    }

    /// Returns the first keys of a range: none if it has none.
    pub(super) async fn keys(&self, from: &[u8], to: &[u8]) -> Result<Vec<Vec<u8>>> {
        let call = async |mut snapshot: Snapshot| {
            let keys = snapshot.scan_keys(from.to_vec()..to.to_vec(), BATCH as u32).await?;
            Ok(keys.map(Vec::from).collect())
        };
        Ok(self.read(from, to, call).await?)
    }

    pub(super) async fn page(&self, query: &Query<'_>) -> Result<Page> {
        let (mut from, mut to) = range(query);
        let mut page = PageBuilder::new(query);
        let (mut entries_left, mut bytes_left) = (query.entries_max, query.bytes_max.max(1));
        let mut entry_bytes = self.shared.entry_bytes.load(Ordering::Relaxed).max(1);
        let mut most = BATCH;
        while from < to {
            let limit = bytes_left.min(BATCH_BYTES).div_ceil(entry_bytes).min(most).min(entries_left).max(1);
            let pairs = match self.batch(&from, &to, limit, query.order).await {
                Ok(pairs) => pairs,
                Err(Failed::TooLarge) if limit > 1 => {
                    most = smaller(limit);
                    continue;
                }
                Err(failed) => return Err(failed.into()),
            };
            let (is_last, mut bytes) = (pairs.len() < limit, 0);
            if let Some(KvPair(last, _)) = pairs.last() {
                let last: &[u8] = last.into();
                match query.order {
                    Order::Up => from = behind(last),
                    Order::Down => to = last.to_vec(),
                }
            }
            let count = pairs.len();
            for KvPair(key, value) in pairs {
                let (key, value) = (Vec::from(key), decode(value));
                bytes += key.len() + value.len();
                if page.push(key, value) {
                    return Ok(page.finish());
                }
            }
            if is_last {
                break;
            }
            entry_bytes = bytes.div_ceil(count.max(1)).max(1);
            // Only a hint for later pages.
            self.shared.entry_bytes.store(entry_bytes.max(64), Ordering::Relaxed);
            entries_left = entries_left.saturating_sub(count);
            bytes_left = bytes_left.saturating_sub(bytes).max(1);
        }
        Ok(page.finish())
    }

    /// Returns the first entries of a range.
    async fn batch(&self, from: &[u8], to: &[u8], limit: usize, order: Order) -> Result<Vec<KvPair>, Failed> {
        let call = async |mut snapshot: Snapshot| {
            let (range, limit) = (from.to_vec()..to.to_vec(), limit as u32);
            Ok(match order {
                Order::Up => snapshot.scan(range, limit).await?.collect(),
                Order::Down => snapshot.scan_reverse(range, limit).await?.collect(),
            })
        };
        self.read(from, to, call).await
    }
}

/// The size of the batch after a batch that was too large.
fn smaller(batch: usize) -> usize {
    (batch / 8).max(1)
}
