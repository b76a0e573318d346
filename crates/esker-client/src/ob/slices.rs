//! Slices: selected columns of selected keys.

use redis::Value;

use super::{COLUMNS, KEYS};
use crate::names::{Names, Test};
use crate::{Bytes, Request, Result, reply};

/// A column of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: Bytes,
    /// Its data.
    pub data: Bytes,
    /// The time when it was set, or the explicit timestamp, in microseconds since 1970.
    pub micros: i64,
}

/// A key with columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Bytes,
    /// The selected columns, in order.
    pub columns: Vec<Column>,
}

/// A page of rows or keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows or keys.
    pub rows: Vec<T>,
    /// The key after which the next page starts; `None` on the last page.
    pub last: Option<Bytes>,
}

/// A selection of rows. Created by [`slice()`].
#[derive(Clone, Debug)]
#[must_use = "a slice does nothing until its request is run"]
pub struct Slice {
    table: Bytes,
    keys: Names,
    columns: Names,
    after: Option<Bytes>,
    is_reverse: bool,
    max_keys: Option<usize>,
    max_columns: Option<usize>,
    conditions: Vec<Vec<(Bytes, Test)>>,
}

/// Selects all columns of all keys of a table. Rows without a selected column are omitted.
pub fn slice(table: impl Into<Bytes>) -> Slice {
    Slice {
        table: table.into(),
        keys: Names::new(),
        columns: Names::new(),
        after: None,
        is_reverse: false,
        max_keys: None,
        max_columns: None,
        conditions: Vec::new(),
    }
}

/// Returns the keys that the slice selects, ignoring its columns and conditions.
pub fn keys(slice: &Slice) -> Request<Page<Bytes>> {
    slice.say_keys(Request::new("OB.KEYS", |value| page(value, reply::bytes)))
}

impl Slice {
    /// Selects keys.
    pub fn keys(self, keys: Names) -> Self {
        Slice { keys, ..self }
    }

    /// Selects columns.
    pub fn columns(self, columns: Names) -> Self {
        Slice { columns, ..self }
    }

    /// Starts after this key, in the direction of the slice.
    pub fn after(self, key: impl Into<Bytes>) -> Self {
        Slice { after: Some(key.into()), ..self }
    }

    /// Reverses the order of keys and of columns.
    pub fn reverse(self) -> Self {
        Slice { is_reverse: true, ..self }
    }

    /// Limits the number of keys.
    pub fn max_keys(self, keys: usize) -> Self {
        Slice { max_keys: Some(keys), ..self }
    }

    /// Limits the number of columns per key.
    pub fn max_columns(self, columns: usize) -> Self {
        Slice { max_columns: Some(columns), ..self }
    }

    /// Selects only rows whose column satisfies `test`. Several conditions must all be satisfied.
    pub fn matching(mut self, column: impl Into<Bytes>, test: Test) -> Self {
        match self.conditions.last_mut() {
            Some(all) => all.push((column.into(), test)),
            None => self.conditions.push(vec![(column.into(), test)]),
        }
        self
    }

    /// Starts an alternative group of conditions, to which [`matching`](Self::matching) adds. A row is
    /// selected if it satisfies one of the groups.
    pub fn or_matching(mut self, column: impl Into<Bytes>, test: Test) -> Self {
        self.conditions.push(vec![(column.into(), test)]);
        self
    }

    fn say_keys<T>(&self, request: Request<T>) -> Request<T> {
        let mut request = self.keys.say(request.word(&self.table), KEYS);
        if let Some(after) = &self.after {
            request = request.word("AFTER").word(after);
        }
        if self.is_reverse {
            request = request.word("REV");
        }
        if let Some(max) = self.max_keys {
            request = request.word("MAXKEYS").word(max.to_string());
        }
        request
    }

    /// Returns the request.
    pub fn request(&self) -> Request<Page<Row>> {
        let mut request = self.say_keys(Request::new("OB.SLICE", |value| page(value, row)));
        request = self.columns.say(request, COLUMNS);
        if let Some(max) = self.max_columns {
            request = request.word("MAXCOLS").word(max.to_string());
        }
        for (nth, all) in self.conditions.iter().enumerate() {
            for (at, (column, test)) in all.iter().enumerate() {
                let joint = if at > 0 { "AND" } else { "OR" };
                let joint = if nth == 0 && at == 0 { "WHERE" } else { joint };
                request = test.say(request.word(joint).word(column));
            }
        }
        request.word("TS")
    }
}

fn page<T>(value: Value, read: impl FnMut(Value) -> Result<T>) -> Result<Page<T>> {
    let [last, rows] = reply::array(value)?;
    Ok(Page { rows: reply::list(rows, read)?, last: reply::option(last, reply::bytes)? })
}

fn row(value: Value) -> Result<Row> {
    let [key, columns] = reply::array(value)?;
    let columns = reply::groups(columns, |[name, data, micros]| {
        Ok(Column { name: reply::bytes(name)?, data: reply::bytes(data)?, micros: reply::int(micros)? })
    });
    Ok(Row { key: reply::bytes(key)?, columns: columns? })
}
