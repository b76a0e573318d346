//! Connections that are used again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::{Client, Config, NoTls};

use super::Options;
use super::error::{Stage, lost, of, of_connect};
use super::session::{Connection, Dialect, prepare_database};
use crate::{Error, Result};

/// The connections of a store.
pub(super) struct Pool {
    config: Config,
    /// The name of the table, quoted.
    table: String,
    dialect: Dialect,
    wait: Duration,
    lock_wait: Duration,
    timeout: Duration,
    /// One permit for each connection in use.
    permits: Arc<Semaphore>,
    connections_max: usize,
    idle: Mutex<Vec<Connection>>,
}

async fn connect(config: &Config) -> Result<Client> {
    let (client, connection) = config.connect(NoTls).await.map_err(|error| of_connect(&error))?;
    // Ends with the connection. Its error comes to the requests that wait, too.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

impl Pool {
    /// Connects once, to prepare the database.
    pub(super) async fn connect(config: Config, table: String, options: Options) -> Result<Self> {
        let client = connect(&config).await?;
        let dialect = prepare_database(&client, &table)
            .await
            .map_err(|error| of(&error, Dialect::Postgres, Stage::Open))?;
        let connections_max = options.connections_max.clamp(1, 10_000);
        let Options { wait, lock_wait, timeout, .. } = options;
        let permits = Arc::new(Semaphore::new(connections_max));
        let idle = Mutex::new(Vec::new());
        Ok(Pool { config, table, dialect, wait, lock_wait, timeout, permits, connections_max, idle })
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) fn table(&self) -> &str {
        &self.table
    }

    /// Waits for a connection.
    pub(super) async fn lease(pool: &Arc<Self>) -> Result<Lease> {
        let leased = tokio::time::timeout(pool.wait, async {
            let permit = pool.permits.clone().acquire_owned().await.map_err(Error::other)?;
            let connection = match pool.idle_connection() {
                Some(connection) => connection,
                None => pool.new_connection().await?,
            };
            let is_broken = AtomicBool::new(false);
            Ok(Lease { connection: Some(connection), is_broken, pool: pool.clone(), _permit: permit })
        });
        leased.await.unwrap_or_else(|_| {
            Err(Error::Unavailable(format!(
                "none of {} connections came free within {:?}",
                pool.connections_max, pool.wait
            )))
        })
    }

    fn idle_connection(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        idle.retain(|connection| !connection.client.is_closed());
        idle.pop()
    }

    async fn new_connection(&self) -> Result<Connection> {
        let client = connect(&self.config).await?;
        let made = Connection::new(client, self.dialect, &self.table, self.lock_wait).await;
        made.map_err(|error| of(&error, self.dialect, Stage::Open))
    }
}

/// A connection in use. It goes back to the pool when this is dropped.
pub(super) struct Lease {
    connection: Option<Connection>,
    /// It must not be used again.
    is_broken: AtomicBool,
    pool: Arc<Pool>,
    /// Given back after the connection.
    _permit: OwnedSemaphorePermit,
}

impl Lease {
    pub(super) fn connection(&self) -> &Connection {
        self.connection.as_ref().unwrap_or_else(|| unreachable!("it leaves when the lease is dropped"))
    }

    /// Closes the connection instead of giving it back.
    pub(super) fn discard(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Waits for the server's answer, but not forever.
    pub(super) async fn wait<T>(&self, stage: Stage, request: impl Future<Output = T>) -> Result<T> {
        let timeout = self.pool.timeout;
        tokio::time::timeout(timeout, request).await.map_err(|_| {
            self.discard();
            lost(format!("the server has not answered within {timeout:?}"), stage)
        })
    }

    /// Returns the result of a statement.
    pub(super) fn checked<T>(&self, done: Result<T, tokio_postgres::Error>) -> Result<T> {
        self.checked_at(done, Stage::Open)
    }

    /// Returns the result of a statement of a commit.
    pub(super) fn checked_at<T>(&self, done: Result<T, tokio_postgres::Error>, stage: Stage) -> Result<T> {
        done.map_err(|error| {
            let error = of(&error, self.connection().dialect, stage);
            if !matches!(error, Error::Conflict) {
                self.discard();
            }
            error
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_broken = self.is_broken.load(Ordering::Relaxed);
        if let Some(connection) = self.connection.take().filter(|c| !is_broken && !c.client.is_closed()) {
            self.pool.idle.lock().push(connection);
        }
    }
}
