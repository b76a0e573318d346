//! Slices: columns of rows in bounded pieces.
//!
//! A slice that has ended early names its last key. The rest comes after that key.

use super::codec::decode_value;
use super::condition::Condition;
use super::walk::{Source, Step};
use crate::resp::fail::Done;
use crate::store::Order;
use crate::store::spans::Spans;

/// A slice of about this many bytes ends with its current row.
const BYTES_MAX: usize = 16 << 20;

/// Maximum size of a single row. A larger one is an error (command_memory.1).
const ROW_BYTES_MAX: usize = 1 << 30;
/// Approximate overhead of a column.
const COLUMN_OVERHEAD: usize = 64;

/// What to read.
pub struct Query {
    /// The keys.
    pub keys: Spans,
    /// The columns.
    pub columns: Spans,
    /// The direction.
    pub order: Order,
    /// Maximum number of keys.
    pub keys_max: usize,
    /// Maximum number of columns of each key.
    pub columns_max: usize,
    /// Condition on the rows.
    pub condition: Option<Condition>,
}

/// A column of a row.
pub struct Column {
    /// Its name.
    pub name: Vec<u8>,
    /// Usually Unix microseconds.
    pub stamp: i64,
    /// Its data.
    pub data: Vec<u8>,
}

/// A row: a key with columns, in the direction of the walk.
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// The columns.
    pub columns: Vec<Column>,
}

/// Rows, and where to continue if there may be more.
pub struct Slice {
    /// The rows.
    pub rows: Vec<Row>,
    /// The last key.
    pub last: Option<Vec<u8>>,
}

/// Keys, and where to continue if there may be more.
pub struct Keys {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The last key.
    pub last: Option<Vec<u8>>,
}

impl Source<'_> {
    /// The rows of a query that have at least one of its columns.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn slice(&self, table: &[u8], query: &Query) -> Done<Slice> {
        let (mut rows, mut last, mut bytes): (Vec<Row>, _, _) = (Vec::new(), None, 0);
        let mut columns = 0;
        self.walk(table, &query.keys, &query.columns, query.order, |shown| {
            if shown.is_first {
                if rows.len() >= query.keys_max || bytes >= BYTES_MAX {
                    last = rows.last().map(|row| row.key.clone());
                    return Ok(Step::Stop);
                }
                if let Some(condition) = &query.condition
                    && !condition.holds(self, table, shown.key)?
                {
                    return Ok(Step::NextKey);
                }
                bytes += shown.key.len();
                rows.push(Row { key: shown.key.to_vec(), columns: Vec::new() });
            }
            let Some(row) = rows.last_mut() else { return Ok(Step::Next) };
            let (stamp, data) = decode_value(shown.value)?;
            bytes += shown.column.len() + data.len();
            columns += 1;
            if bytes + columns * COLUMN_OVERHEAD > ROW_BYTES_MAX {
                return Err("ERR the row is larger than 1 GiB: request fewer columns".into());
            }
            row.columns.push(Column { name: shown.column.to_vec(), stamp, data: data.to_vec() });
            Ok(if row.columns.len() < query.columns_max { Step::Next } else { Step::NextKey })
        })?;
        Ok(Slice { rows, last })
    }

    /// The keys only, and where to continue.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn keys(&self, table: &[u8], query: &Query) -> Done<Keys> {
        let (mut keys, mut last, mut bytes): (Vec<Vec<u8>>, _, _) = (Vec::new(), None, 0);
        self.walk(table, &query.keys, &query.columns, query.order, |shown| {
            if keys.len() >= query.keys_max || bytes >= BYTES_MAX {
                last = keys.last().cloned();
                return Ok(Step::Stop);
            }
            bytes += shown.key.len();
            keys.push(shown.key.to_vec());
            Ok(Step::NextKey)
        })?;
        Ok(Keys { keys, last })
    }

    /// Number of keys.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn count(&self, table: &[u8], keys: &Spans) -> Done<u64> {
        let mut count = 0;
        self.walk(table, keys, &Spans::all(), Order::Up, |_| {
            count += 1;
            Ok(Step::NextKey)
        })?;
        Ok(count)
    }
}
