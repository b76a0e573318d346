//! A limit of the time that a call waits for a store.

use std::future::Future;
use std::time::Duration;

use crate::{Error, Result};

/// Waits for a call that writes nothing, for at most as long.
pub async fn within<T>(limit: Duration, call: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(done) => done,
        Err(_) => Err(Error::Unavailable(format!("no answer in {} ms", limit.as_millis()))),
    }
}
