//! Creates, drops and walks indexes.

use gluesql_core::ast::{IndexOperator, OrderByExpr};
use gluesql_core::chrono::Utc;
use gluesql_core::data::{SchemaIndex, SchemaIndexOrd, Value};
use gluesql_core::error::{Error, IndexError};
use gluesql_core::store::{Index, IndexMut, RowIter};

use crate::error::{Result, storage};
use crate::keys;
use crate::storage::EskerStorage;
use crate::table::{Indexes, StoredRow, decode};

impl Index for EskerStorage {
    fn scan_indexed_data<'a>(
        &'a self,
        table_name: &str,
        index_name: &str,
        asc: Option<bool>,
        cmp_value: Option<(&IndexOperator, Value)>,
    ) -> Result<RowIter<'a>> {
        let index = keys::index(table_name, index_name);
        let (first, last) = (index.clone(), keys::behind(index.clone()));
        let (start, end) = match cmp_value {
            None => (first, last),
            Some((operator, value)) => {
                let value = keys::index_value(&index, &value)?;
                let behind = keys::behind(value.clone());
                match operator {
                    IndexOperator::Eq => (value, behind),
                    IndexOperator::Gt => (behind, last),
                    IndexOperator::GtEq => (value, last),
                    IndexOperator::Lt => (first, value),
                    IndexOperator::LtEq => (first, behind),
                }
            }
        };
        let entries = self.range(&self.parts.indexes, start, end).keys();
        let table = keys::table(table_name);
        let row = move |key: esker::Result<esker::Key>| {
            let key = key.map_err(storage)?;
            let of_row =
                keys::row_of_index_key(&index, &key).ok_or(IndexError::ConflictOnEmptyIndexValueScan)?;
            let row = self.get(&self.parts.rows, [&table, of_row].concat())?;
            let row = row.ok_or(IndexError::ConflictOnEmptyIndexValueScan)?;
            decode::<StoredRow>(&row)
        };
        Ok(match asc {
            Some(false) => Box::new(entries.rev().map(row)),
            Some(true) | None => Box::new(entries.map(row)),
        })
    }
}

impl IndexMut for EskerStorage {
    fn create_index(&mut self, table_name: &str, index_name: &str, column: &OrderByExpr) -> Result<()> {
        let index = SchemaIndex {
            name: index_name.to_owned(),
            expr: column.expr.clone(),
            order: SchemaIndexOrd::Both,
            created: Utc::now().naive_utc(),
        };
        self.write(|parts, t| {
            let mut schema = parts.table(t, table_name)?.schema;
            if schema.indexes.iter().any(|index| index.name == index_name) {
                return Err(Error::from(IndexError::IndexNameAlreadyExists(index_name.to_owned())).into());
            }
            let new = Indexes::some(&schema, std::iter::once(&index));
            let table = keys::table(table_name);
            for entry in t.prefix(&parts.rows, &table) {
                let (key, row) = entry?;
                let (_, row) = decode::<StoredRow>(&row)?;
                for entry in new.keys(&table, &key, &row)? {
                    t.put(&parts.indexes, entry, "")?;
                }
            }
            schema.indexes.push(index.clone());
            parts.put_schema(t, &schema)
        })
    }

    fn drop_index(&mut self, table_name: &str, index_name: &str) -> Result<()> {
        self.write(|parts, t| {
            let mut schema = parts.table(t, table_name)?.schema;
            let count = schema.indexes.len();
            schema.indexes.retain(|index| index.name != index_name);
            if schema.indexes.len() == count {
                return Err(Error::from(IndexError::IndexNameDoesNotExist(index_name.to_owned())).into());
            }
            t.delete_prefix(&parts.indexes, keys::index(table_name, index_name))?;
            parts.put_schema(t, &schema)
        })
    }
}
