//! PostgreSQL as a store, and databases that speak its protocol: CockroachDB and YugabyteDB.
//!
//! ```text
//!   Layered<PostgresDriver> --> PostgresView --> Lease --> Pool: connections with prepared statements
//!                                commit: writes and COMMIT in one round trip      |
//!                                                          table: k bytea primary key, v bytea
//! ```
//!
//! postgres.1. No `COMMIT` is sent before the answer to `BEGIN` has come. Otherwise statements that follow a
//!             `BEGIN` that failed would commit one by one.
//! postgres.2. Once a `COMMIT` is sent, a lost connection is [`Error::OutcomeUnknown`]. Before, nothing is
//!             committed.
//! postgres.3. A connection goes back to the pool outside a transaction, or not at all.
//! postgres.4. A commit conflicts if a key that it removes, or that it has read for update and not found, was
//!             inserted by another transaction (kv.3). The database alone does not notice: for it, a removal
//!             of nothing changes nothing. So the commit inserts such keys and removes them again.
//! postgres.5. A commit conflicts if a key that it sets was removed by another transaction (kv.3). For the
//!             database the `INSERT` finds nothing to update. So the commit first locks the rows that it
//!             knows.
//!
//! Transactions have the isolation level `REPEATABLE READ`, which is snapshot isolation and all that kv.2 and
//! kv.3 ask for: see [`Isolation`]. `docs/stores.md` has the differences between the databases.

mod commit;
mod error;
mod pipeline;
mod pool;
mod session;
mod view;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use self::error::Stage;
use self::pool::{Lease, Pool};
pub use self::session::Dialect;
pub use self::view::PostgresView;
use crate::layered::{Driver, Layered};
use crate::{Error, Limits, Result};

/// The longest key of the map. A row of the index takes at most 2,704 bytes.
const KEY_BYTES: usize = 2_600;

/// How a store uses its database.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the table, with or without a schema: letters, digits and underscores. Stores with other
    /// tables share nothing.
    pub table: String,
    /// Maximum number of connections. A transaction and a snapshot hold one each.
    pub connections_max: usize,
    /// How long a call waits for a connection.
    pub wait: Duration,
    /// How long a call waits for a transaction that has locked the same key.
    pub lock_wait: Duration,
    /// How long a statement may take before the server counts as gone. A count and a removal of a range take
    /// time in proportion to it.
    pub timeout: Duration,
    /// The isolation of transactions.
    pub isolation: Isolation,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            table: "esker_kv".to_owned(),
            connections_max: 16,
            wait: Duration::from_secs(5),
            lock_wait: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            isolation: Isolation::Snapshot,
        }
    }
}

/// The isolation of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// A commit depends on the keys that it writes or has read for update.
    Snapshot,
    /// A commit depends on all that it has read. PostgreSQL notes reads by pages of the index, so that
    /// transactions of different keys conflict, too: run each again after [`Error::Conflict`].
    Serializable,
}

/// A store over a database with PostgreSQL's protocol.
pub type Postgres = Layered<PostgresDriver>;

impl Layered<PostgresDriver> {
    /// Connects to `postgres://user:password@host:port/database`, and makes the table if it is missing. TLS
    /// is not supported.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a URL or options that make no sense, [`Error::Unavailable`] if the server does
    /// not answer, [`Error::Other`] if it refuses the user.
    pub async fn connect(url: &str, options: Options) -> Result<Self> {
        Layered::open(PostgresDriver::connect(url, options).await?).await
    }
}

/// The table as one ordered map.
pub struct PostgresDriver {
    pool: Arc<Pool>,
    isolation: Isolation,
}

impl PostgresDriver {
    /// Connects: see [`Postgres::connect`].
    ///
    /// # Errors
    /// Those of [`Postgres::connect`].
    pub async fn connect(url: &str, options: Options) -> Result<Self> {
        let mut config: Config =
            url.parse().map_err(|error| Error::Invalid(format!("the URL of the database: {error}")))?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(Error::Invalid("TLS (sslmode=require) is not supported".to_owned()));
        }
        let (table, isolation) = (session::quoted(&options.table)?, options.isolation);
        session::set_defaults(&mut config, options.wait);
        let pool = Pool::connect(config, table, options).await?;
        Ok(PostgresDriver { pool: Arc::new(pool), isolation })
    }

    /// Returns which database the server is.
    pub fn dialect(&self) -> Dialect {
        self.pool.dialect()
    }

    async fn lease(&self) -> Result<Lease> {
        Pool::lease(&self.pool).await
    }
}

impl Driver for PostgresDriver {
    type View = PostgresView;

    async fn view(&self, is_read_only: bool) -> Result<PostgresView> {
        let view = PostgresView::new(self.lease().await?, is_read_only, self.isolation);
        if is_read_only {
            view.fix_state(self.pool.table()).await?;
        }
        Ok(view)
    }

    async fn reader(&self) -> Result<PostgresView> {
        Ok(PostgresView::new(self.lease().await?, true, self.isolation))
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let lease = self.lease().await?;
        let found = lease.wait(Stage::Open, lease.connection().get(key)).await?;
        lease.checked(found)
    }

    fn limits(&self) -> Limits {
        let (value_mib, transaction_mib) = match self.dialect() {
            Dialect::Postgres => (64, 256),
            Dialect::Yugabyte => (32, 128),
            // The server keeps rows in memory while it reads them, and messages are limited to 16 MiB.
            Dialect::Cockroach => (8, 32),
        };
        Limits {
            key_bytes: KEY_BYTES,
            value_bytes: value_mib << 20,
            transaction_bytes: transaction_mib << 20,
        }
    }
}
