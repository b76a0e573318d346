//! The client for tokio.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};

use crate::ob::{self, Begin};
use crate::retry::{Attempts, Retry};
use crate::{Request, Result};

/// A connection to a server, for one task, because transactions belong to a connection.
pub struct AsyncClient {
    connection: MultiplexedConnection,
}

impl AsyncClient {
    /// Connects to a server: `redis://[user:password@]host:port/`, or `unix:///path`. Replies have no
    /// timeout, because some commands block.
    ///
    /// # Errors
    /// Those of [`Client::connect`](crate::Client::connect).
    pub async fn connect(url: &str) -> Result<Self> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url)?;
        Ok(AsyncClient { connection: client.get_multiplexed_async_connection_with_config(&patient).await? })
    }

    /// Returns the connection, for all other commands.
    pub fn connection(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }

    /// Runs a request and waits for its reply.
    ///
    /// # Errors
    /// Those of [`Client::run`](crate::Client::run).
    pub async fn run<T>(&mut self, request: Request<T>) -> Result<T> {
        (request.read)(request.command.query_async::<Value>(&mut self.connection).await?)
    }

    /// Runs a transaction: see [`Client::transact`](crate::Client::transact). If the future is dropped, the
    /// transaction stays open until the client is dropped or [`ob::abort`] ends it.
    ///
    /// # Errors
    /// Those of [`Client::transact`](crate::Client::transact).
    pub async fn transact<T>(
        &mut self,
        begin: Begin,
        work: impl AsyncFnMut(&mut AsyncClient) -> Result<T>,
    ) -> Result<T> {
        self.transact_with(begin, Retry::default(), work).await
    }

    /// Same as [`transact`](Self::transact), with other limits.
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact).
    pub async fn transact_with<T>(
        &mut self,
        begin: Begin,
        retry: Retry,
        mut work: impl AsyncFnMut(&mut AsyncClient) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = Attempts::new(retry);
        loop {
            self.run(begin.request()).await?;
            let done = match work(self).await {
                Ok(done) => self.run(ob::commit()).await.map(|()| done),
                Err(error) => {
                    // Report the first error, not that of the rollback.
                    let _ = self.run(ob::abort()).await;
                    Err(error)
                }
            };
            match done {
                Err(error) if error.is_retryable() => match attempts.pause() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(error),
                },
                done => return done,
            }
        }
    }
}

impl std::fmt::Debug for AsyncClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AsyncClient")
    }
}
