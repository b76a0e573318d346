//! Removal of locks of transactions that have written no primary key.
//!
//! A client writes the keys of each region at the same time. If it ends between, a lock may stay whose
//! primary key was never written. tikv-client 0.4.0 never removes such a lock: its check for this error does
//! not match the error that it gets (tikv/client-rust#543). So this store does, with the client's own calls.

use tikv_client::{Result, Timestamp, TimestampExt, TransactionClient};

use super::reads::behind;

/// Locks looked at in one call.
const LOCKS: u32 = 1_024;

/// Removes the locks of these transactions in a range, if their time is over (tikv.3).
pub(super) async fn remove(client: &TransactionClient, starts: &[u64], from: &[u8], to: &[u8]) -> Result<()> {
    let now = client.current_timestamp().await?;
    for lock in client.scan_locks(&now, from.to_vec()..to.to_vec(), LOCKS).await? {
        let start = Timestamp::from_version(lock.lock_version);
        let end = start.physical.saturating_add_unsigned(lock.lock_ttl);
        if starts.contains(&lock.lock_version) && end < now.physical {
            let next = behind(&lock.key);
            client.cleanup_locks(lock.key..next, &start, Default::default()).await?;
        }
    }
    Ok(())
}

/// Removes the locks of these transactions, wherever they are in the keys of this store.
pub(super) async fn remove_any(client: &TransactionClient, starts: &[u64]) -> Result<()> {
    remove(client, starts, b"\0", b"\x02").await
}
