//! A table's definition as it is stored, and the values of its indexes for a row.

use gluesql_core::data::{Key, Schema, SchemaIndex, Value};
use gluesql_core::executor::{RowContext, evaluate_stateless};
use gluesql_core::plan::{ExprPlan, plan_scalar_expr};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Result, storage};
use crate::keys;

/// What `schemas` holds for a table.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredTable {
    pub(crate) schema: Schema,
    /// When the table was created.
    pub(crate) created_us: i64,
}

/// What `rows` holds.
pub(crate) type StoredRow = (Key, Vec<Value>);

pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(value).map_err(storage)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes).map_err(storage)
}

/// The indexes of a table, with their expressions ready to be evaluated.
pub(crate) struct Indexes {
    columns: Vec<String>,
    indexes: Vec<(Vec<u8>, ExprPlan)>,
}

impl Indexes {
    pub(crate) fn of(schema: &Schema) -> Self {
        Indexes::some(schema, schema.indexes.iter())
    }

    pub(crate) fn some<'a>(schema: &Schema, indexes: impl Iterator<Item = &'a SchemaIndex>) -> Self {
        let columns = schema.column_defs.iter().flatten().map(|column| column.name.clone()).collect();
        let plan = |index: &SchemaIndex| {
            (keys::index(&schema.table_name, &index.name), plan_scalar_expr(index.expr.clone()))
        };
        Indexes { columns, indexes: indexes.map(plan).collect() }
    }

    /// Returns the keys of a row in all indexes. `row_key` is its key in `rows`, `table` the prefix of that.
    pub(crate) fn keys(&self, table: &[u8], row_key: &[u8], row: &[Value]) -> Result<Vec<Vec<u8>>> {
        let of_row = &row_key[table.len()..];
        let key = |(index, expression): &(Vec<u8>, ExprPlan)| {
            let context = RowContext::RefVecData { columns: &self.columns, values: row };
            let value: Value = evaluate_stateless(Some(context), expression)?.try_into()?;
            let mut key = keys::index_value(index, &value)?;
            key.extend_from_slice(of_row);
            Ok(key)
        };
        self.indexes.iter().map(key).collect()
    }
}
