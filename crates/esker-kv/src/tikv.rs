//! TiKV: a store on a cluster of machines, with optimistic transactions of snapshot isolation.
//!
//! ```text
//!   Layered<TiKv> --> view: a timestamp of PD --> reads at it --> stores of the regions
//!                     commit: prewrite, commit of the primary key, the other keys later
//! ```
//!
//! tikv.1. All reads of a view are at the timestamp at which its transaction begins. The commit conflicts
//!         with each later commit to a key that it writes or locks.
//! tikv.2. A transaction is rolled back only after an error that its first phase alone can return: after the
//!         second phase has begun, it may be committed.
//! tikv.3. A lock is removed only if its transaction has written no primary key, and its time is over
//!         (`orphans`).
//!
//! Values that are empty or begin with a zero byte have a zero byte in front: not every version of the
//! servers tells an empty value from a missing one.

mod faults;
mod orphans;
mod reads;
mod url;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use tikv_client::{CheckLevel, Config, Timestamp, Transaction, TransactionClient, TransactionOptions};

use self::faults::{Fault, error};
use self::reads::Reader;
use crate::kv::Limits;
use crate::layered::{Driver, Layered, View, Write};
use crate::page::{Page, Query};
use crate::time_limit::within;
use crate::{Error, Result};

/// What TiKV takes as it is configured by default, less what it adds to keys and values.
const LIMITS: Limits =
    Limits { key_bytes: 4 << 10, value_bytes: (6 << 20) - (16 << 10), transaction_bytes: 100 << 20 };

/// The longest message of a store. It sends at most 10 MiB as it is configured by default.
const MESSAGE_BYTES: usize = 64 << 20;

/// A cluster.
pub struct TiKv {
    shared: Arc<Shared>,
}

/// What the views of a cluster share.
struct Shared {
    client: TransactionClient,
    /// How long a call waits for servers, and for locks of others.
    timeout: Duration,
    /// Bytes of an entry of the last page.
    entry_bytes: AtomicUsize,
}

/// One state of a cluster.
pub struct TiKvView {
    reader: Reader,
    /// What the commit does. `None`: only to read.
    transaction: Option<Transaction>,
}

/// Connects to the cluster at a URL: `tikv://pd1:2379,pd2:2379`.
///
/// Parameters, as in `tikv://pd1:2379?ca=ca.pem&cert=cert.pem&key=key.pem`:
///
/// | parameter | default | meaning |
/// |---|---|---|
/// | `ca`, `cert`, `key` | no TLS | files with the authority's certificate, and the client's with its key |
/// | `keyspace` | none | a keyspace of the cluster; it needs version 2 of TiKV's API |
/// | `timeout_ms` | 10000 | how long a call waits for servers, and for locks of others |
///
/// Needs a tokio runtime. Without TiDB, [`TiKv::collect_garbage`] must be called now and then.
///
/// # Errors
/// [`Error::Invalid`] for the URL; [`Error::Unavailable`] if no PD server answers.
pub async fn open(url: &str) -> Result<Layered<TiKv>> {
    let location = url::parse(url)?;
    let mut config = Config::default().with_grpc_max_decoding_message_size(MESSAGE_BYTES);
    if let Some([ca, cert, key]) = &location.tls {
        config = config.with_security(ca, cert, key);
    }
    if let Some(keyspace) = &location.keyspace {
        config = config.with_keyspace(keyspace);
    }
    let connecting = TransactionClient::new_with_config(location.servers, config);
    let client = within(location.timeout, async { connecting.await.map_err(error) }).await?;
    let entry_bytes = AtomicUsize::new(reads::ENTRY_BYTES);
    let shared = Arc::new(Shared { client, timeout: location.timeout, entry_bytes });
    Layered::open(TiKv { shared }).await
}

impl TiKv {
    /// Lets the cluster remove versions of values that no state of the last `keep` needs, and rolls back
    /// transactions that are older. TiDB does so itself, where it uses the same cluster.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn collect_garbage(&self, keep: Duration) -> Result<()> {
        let client = &self.shared.client;
        let now = client.current_timestamp().await.map_err(error)?;
        let keep = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
        let physical = now.physical.saturating_sub(keep).max(0);
        client.gc(Timestamp { physical, ..now }).await.map_err(error)?;
        Ok(())
    }
}

impl Driver for TiKv {
    type View = TiKvView;

    async fn view(&self, is_read_only: bool) -> Result<TiKvView> {
        let beginning = async {
            let client = &self.shared.client;
            if is_read_only {
                return Ok((client.current_timestamp().await?, None));
            }
            let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
            let transaction = client.begin_with_options(options).await?;
            Ok((transaction.start_timestamp(), Some(transaction)))
        };
        let (at, transaction) = within(self.shared.timeout, async { beginning.await.map_err(error) }).await?;
        Ok(TiKvView { reader: Reader { shared: self.shared.clone(), at }, transaction })
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

/// Returns what the cluster keeps for a value.
fn encode(value: &[u8]) -> Vec<u8> {
    if matches!(value.first(), None | Some(0)) { [&[0], value].concat() } else { value.to_vec() }
}

/// Returns the value for what the cluster keeps.
fn decode(kept: Vec<u8>) -> Bytes {
    let is_marked = kept.first() == Some(&0);
    let kept = Bytes::from(kept);
    if is_marked { kept.slice(1..) } else { kept }
}

impl TiKvView {
    /// Adds writes to the transaction. Nothing leaves the process.
    async fn buffer(reader: &Reader, transaction: &mut Transaction, writes: Vec<Write>) -> Result<()> {
        for write in writes {
            match write {
                Write::Put(key, value) => {
                    transaction.put(key.to_vec(), encode(&value)).await.map_err(error)?
                }
                Write::Remove(key) => transaction.delete(key.to_vec()).await.map_err(error)?,
                Write::RemoveRange(from, to) => {
                    let mut removed = 0;
                    let mut from = from.to_vec();
                    loop {
                        let keys = reader.keys(&from, &to).await?;
                        let Some(last) = keys.last() else { break };
                        from = reads::behind(last);
                        for key in keys {
                            removed += key.len() as u64;
                            transaction.delete(key).await.map_err(error)?;
                        }
                        if removed > LIMITS.transaction_bytes {
                            return Err(Error::TooLarge("a removal of a range, by its keys".to_owned()));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl View for TiKvView {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.reader.get(key).await
    }

    async fn multi_get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        self.reader.multi_get(keys).await
    }

    async fn page(&self, query: Query<'_>) -> Result<Page> {
        self.reader.page(&query).await
    }

    async fn count(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let (mut count, mut from) = (0, from.to_vec());
        loop {
            let keys = self.reader.keys(&from, to).await?;
            let Some(last) = keys.last() else { return Ok(count) };
            count += keys.len() as u64;
            from = reads::behind(last);
        }
    }

    async fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(transaction) = &mut self.transaction {
            // Of an optimistic transaction, this only adds the key to those that the commit checks.
            transaction.lock_keys([key.to_vec()]).await.map_err(error)?;
        }
        self.reader.get(key).await
    }

    async fn commit(self, writes: Vec<Write>) -> Result<()> {
        let TiKvView { reader, transaction } = self;
        let Some(mut transaction) = transaction else {
            return Err(Error::Invalid("a snapshot commits nothing".to_owned()));
        };
        TiKvView::buffer(&reader, &mut transaction, writes).await?;
        // A task of its own, since the second phase must not end in the middle.
        let shared = reader.shared.clone();
        let task = tokio::spawn(async move { finish(&reader.shared, transaction).await });
        match tokio::time::timeout(shared.timeout, task).await {
            Ok(Ok(done)) => done,
            Ok(Err(failed)) => Err(Error::OutcomeUnknown(failed.to_string())),
            Err(_) => Err(Error::OutcomeUnknown("no answer to a commit in time".to_owned())),
        }
    }
}

/// Commits. Rolls back what cannot be committed.
async fn finish(shared: &Shared, mut transaction: Transaction) -> Result<()> {
    let Err(failed) = transaction.commit().await else { return Ok(()) };
    let is_decided = faults::is_of_first_phase(&failed);
    if is_decided {
        // Locks that stay are in the way until their time is over. If this fails, they do.
        let _ = tokio::time::timeout(Duration::from_secs(2), transaction.rollback()).await;
        let orphans = faults::orphans(&failed);
        if !orphans.is_empty() {
            let _ = orphans::remove_any(&shared.client, &orphans).await;
        }
    }
    match Fault::of(&failed) {
        Fault::Conflict | Fault::Locked => Err(Error::Conflict),
        _ if is_decided => Err(error(failed)),
        // Which phase has failed cannot be seen.
        _ => Err(Error::OutcomeUnknown(faults::text(&failed))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_whole() {
        for value in [&b""[..], b"\0", b"\0\0a", b"a", b"a\0"] {
            let kept = encode(value);
            assert!(!kept.is_empty());
            assert_eq!(decode(kept), value);
        }
        assert_eq!(decode(Vec::new()), &b""[..]);
    }
}
