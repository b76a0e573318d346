//! What is set up on a connection: the table, settings, prepared statements.
//!
//! Before the first `ANALYZE` the planner of PostgreSQL takes a range for half a percent of the table, and a
//! prepared `LIMIT` for a tenth of that. A bitmap scan of the whole range with a sort then seems cheaper than
//! the index in order. All statements here want the index, so the connections switch the other plans off.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Statement};

use super::pipeline::{Request, in_order};
use crate::{Error, Result};

/// Settings of PostgreSQL and YugabyteDB. Those that a release does not have are left out.
///
/// Costs of plans that are switched off would make the server compile statements (`jit`).
const SETTINGS: &str = "('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('jit', 'off'), \
                        ('plan_cache_mode', 'force_generic_plan'), ('synchronous_commit', 'on')";

/// A database with PostgreSQL's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL, 12 or newer.
    Postgres,
    /// CockroachDB.
    Cockroach,
    /// YugabyteDB.
    Yugabyte,
}

impl Dialect {
    fn of(version: &str) -> Self {
        match version {
            _ if version.contains("CockroachDB") => Dialect::Cockroach,
            _ if version.contains("-YB-") => Dialect::Yugabyte,
            _ => Dialect::Postgres,
        }
    }
}

/// A name of a table as SQL has it.
pub(super) fn quoted(table: &str) -> Result<String> {
    let parts: Vec<_> = table.split('.').collect();
    let is_name = |part: &&str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if parts.len() > 2 || !parts.iter().all(is_name) {
        return Err(Error::Invalid(format!("{table:?} is no name of a table: letters, digits, underscores")));
    }
    Ok(parts.iter().map(|part| format!("\"{part}\"")).collect::<Vec<_>>().join("."))
}

/// Sets what a URL seldom says, so that a server that is gone is noticed within half a minute.
pub(super) fn set_defaults(config: &mut Config, wait: Duration) {
    if config.get_application_name().is_none() {
        config.application_name("esker-kv");
    }
    // A standby is behind: a read of it would not see the newest state.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(wait);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(30));
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5)).keepalives_retries(4);
    }
}

/// Returns which database this is. Makes the table if it is missing.
pub(super) async fn prepare_database(client: &Client, table: &str) -> Result<Dialect, tokio_postgres::Error> {
    let version: String = client.query_one("SELECT version()", &[]).await?.get(0);
    let dialect = Dialect::of(&version);
    // A user with the right to read and write may lack that to create: `IF NOT EXISTS` fails then, too.
    let probe = format!("SELECT k, v FROM {table} LIMIT 0");
    let Err(error) = client.batch_execute(&probe).await else { return Ok(dialect) };
    if error.code() != Some(&tokio_postgres::error::SqlState::UNDEFINED_TABLE) {
        return Err(error);
    }
    let columns = match dialect {
        // Without an order the rows are spread by a hash of their keys.
        Dialect::Yugabyte => "k bytea NOT NULL, v bytea NOT NULL, PRIMARY KEY (k ASC)",
        Dialect::Postgres | Dialect::Cockroach => "k bytea PRIMARY KEY, v bytea NOT NULL",
    };
    let made = client.batch_execute(&format!("CREATE TABLE IF NOT EXISTS {table} ({columns})")).await;
    // Another process may have made it at the same time, which `IF NOT EXISTS` does not always notice.
    match made {
        Ok(()) => Ok(dialect),
        Err(error) => client.batch_execute(&probe).await.map(|()| dialect).map_err(|_| error),
    }
}

/// A connection with its statements.
pub(super) struct Connection {
    pub client: Client,
    pub dialect: Dialect,
    get: Statement,
    pub get_for_update: Statement,
    pub multi_get: Statement,
    pub count: Statement,
    pub up: Statement,
    pub down: Statement,
    pub put: Statement,
    pub lock: Statement,
    pub claim: Statement,
    pub remove: Statement,
    pub remove_range: Statement,
}

impl Connection {
    pub(super) async fn new(
        client: Client,
        dialect: Dialect,
        table: &str,
        lock_wait: Duration,
    ) -> Result<Self, tokio_postgres::Error> {
        let lock_wait = lock_wait.as_millis().max(1);
        let mut settings = format!("SET lock_timeout = '{lock_wait}ms'");
        if dialect != Dialect::Cockroach {
            settings += &format!(
                "; SELECT set_config(name, value, false) FROM pg_settings JOIN (VALUES {SETTINGS}) \
                 AS wanted (name, value) USING (name) WHERE name <> 'synchronous_commit' OR setting = 'off'"
            );
        }
        client.batch_execute(&settings).await?;
        let texts = statements(table);
        let requests = texts
            .iter()
            .map(|(text, types)| Box::pin(client.prepare_typed(text, types)) as Request<'_, Statement>);
        let prepared = in_order(requests.collect()).await.map_err(|failed| failed.error)?;
        let [get, get_for_update, multi_get, count, up, down, put, lock, claim, remove, remove_range] =
            <[Statement; 11]>::try_from(prepared).unwrap_or_else(|_| unreachable!("as many as texts"));
        Ok(Connection {
            client,
            dialect,
            get,
            get_for_update,
            multi_get,
            count,
            up,
            down,
            put,
            lock,
            claim,
            remove,
            remove_range,
        })
    }

    /// Returns the value of a key, in the transaction of the connection, or without one.
    pub(super) async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, tokio_postgres::Error> {
        self.value(&self.get, &key).await
    }

    /// Runs a statement that returns one value or none.
    pub(super) async fn value(
        &self,
        statement: &Statement,
        key: &(dyn ToSql + Sync),
    ) -> Result<Option<Bytes>, tokio_postgres::Error> {
        let row = self.client.query_opt(statement, &[key]).await?;
        row.map(|row| Ok(Bytes::copy_from_slice(row.try_get(0)?))).transpose()
    }
}

/// The texts of the statements, and the types of their parameters.
fn statements(table: &str) -> [(String, Vec<Type>); 11] {
    let (key, keys, number) = (Type::BYTEA, Type::BYTEA_ARRAY, Type::INT8);
    let range = "k >= $1 AND k < $2";
    // The first entries of a range up to a number of entries, then those of them that begin before a number
    // of bytes. The length of a value that is stored apart is read without the value.
    let page = |order: &str| {
        format!(
            "SELECT k, v FROM (SELECT k, v, CAST(sum(octet_length(k) + octet_length(v)) \
             OVER (ORDER BY k {order} ROWS UNBOUNDED PRECEDING) AS int8) AS end_at FROM (SELECT k, v \
             FROM {table} WHERE {range} ORDER BY k {order} LIMIT $3) AS entries) AS ends \
             WHERE end_at - octet_length(k) - octet_length(v) < $4 ORDER BY k {order}"
        )
    };
    let page_types = || vec![key.clone(), key.clone(), number.clone(), number.clone()];
    [
        (format!("SELECT v FROM {table} WHERE k = $1"), vec![key.clone()]),
        (format!("SELECT v FROM {table} WHERE k = $1 FOR UPDATE"), vec![key.clone()]),
        (format!("SELECT k, v FROM {table} WHERE k = ANY($1)"), vec![keys.clone()]),
        (format!("SELECT count(*) FROM {table} WHERE {range}"), vec![key.clone(), key.clone()]),
        (page("ASC"), page_types()),
        (page("DESC"), page_types()),
        (
            format!(
                "INSERT INTO {table} (k, v) SELECT unnest($1), unnest($2) \
                 ON CONFLICT (k) DO UPDATE SET v = excluded.v"
            ),
            vec![keys.clone(), keys.clone()],
        ),
        (format!("SELECT 1 FROM {table} WHERE k = ANY($1) FOR UPDATE"), vec![keys.clone()]),
        (
            format!("INSERT INTO {table} (k, v) SELECT unnest($1), '' ON CONFLICT (k) DO NOTHING"),
            vec![keys.clone()],
        ),
        (format!("DELETE FROM {table} WHERE k = ANY($1)"), vec![keys]),
        (format!("DELETE FROM {table} WHERE {range}"), vec![key.clone(), key]),
    ]
}
