//! Reads and writes tables and rows.

use std::collections::BTreeMap;

use esker::Transaction;
use gluesql_core::chrono::{DateTime, Utc};
use gluesql_core::data::{Key, Schema, Value};
use gluesql_core::error::{Error, IndexError};
use gluesql_core::plan::StatementPlan;
use gluesql_core::planner::{
    fetch_schema_map, plan_aggregate, plan_hash_join, plan_index, plan_primary_key, plan_schemaless, validate,
};
use gluesql_core::store::{
    CustomFunction, CustomFunctionMut, MetaIter, Metadata, Planner, RowIter, Store, StoreMut,
};

use crate::error::{Failed, Result, storage};
use crate::keys;
use crate::storage::{EskerStorage, Parts};
use crate::table::{Indexes, StoredRow, StoredTable, decode, encode};

impl Store for EskerStorage {
    fn fetch_schema(&self, table_name: &str) -> Result<Option<Schema>> {
        let found = self.get(&self.parts.schemas, table_name)?;
        Ok(found.map(|bytes| decode::<StoredTable>(&bytes)).transpose()?.map(|table| table.schema))
    }

    fn fetch_all_schemas(&self) -> Result<Vec<Schema>> {
        self.tables().map(|table| Ok(table?.schema)).collect()
    }

    fn fetch_data(&self, table_name: &str, key: &Key) -> Result<Option<Vec<Value>>> {
        let found = self.get(&self.parts.rows, keys::row(table_name, key)?)?;
        Ok(found.map(|bytes| decode::<StoredRow>(&bytes)).transpose()?.map(|(_, row)| row))
    }

    fn scan_data<'a>(&'a self, table_name: &str) -> Result<RowIter<'a>> {
        let entries = self.prefix(&self.parts.rows, &keys::table(table_name));
        Ok(Box::new(entries.map(|entry| {
            let (_, row) = entry.map_err(storage)?;
            decode::<StoredRow>(&row)
        })))
    }
}

impl EskerStorage {
    fn tables(&self) -> impl Iterator<Item = Result<StoredTable>> {
        let entries = self.prefix(&self.parts.schemas, b"");
        entries.map(|entry| decode(&entry.map_err(storage)?.1))
    }
}

impl Parts {
    pub(crate) fn table(&self, t: &Transaction, name: &str) -> Result<StoredTable, Failed> {
        match t.get(&self.schemas, name)? {
            Some(bytes) => Ok(decode(&bytes)?),
            None => Err(Error::from(IndexError::TableNotFound(name.to_owned())).into()),
        }
    }

    /// Writes the definition of a table. The time of its creation stays.
    pub(crate) fn put_schema(&self, t: &mut Transaction, schema: &Schema) -> Result<(), Failed> {
        let old = t.get(&self.schemas, &schema.table_name)?;
        let created_us = match old {
            Some(old) => decode::<StoredTable>(&old)?.created_us,
            None => Utc::now().timestamp_micros(),
        };
        self.put_table(t, schema, created_us)
    }

    pub(crate) fn put_table(
        &self,
        t: &mut Transaction,
        schema: &Schema,
        created_us: i64,
    ) -> Result<(), Failed> {
        let table = StoredTable { schema: schema.clone(), created_us };
        Ok(t.put(&self.schemas, &schema.table_name, encode(&table)?)?)
    }

    /// Writes a row and its entries in the indexes. sql.2
    pub(crate) fn put_row(
        &self,
        t: &mut Transaction,
        table: &str,
        indexes: &Indexes,
        row: &StoredRow,
    ) -> Result<(), Failed> {
        let (prefix, key) = (keys::table(table), keys::row(table, &row.0)?);
        if let Some(old) = t.get(&self.rows, &key)? {
            let (_, old) = decode::<StoredRow>(&old)?;
            for entry in indexes.keys(&prefix, &key, &old)? {
                t.delete(&self.indexes, entry)?;
            }
        }
        for entry in indexes.keys(&prefix, &key, &row.1)? {
            t.put(&self.indexes, entry, "")?;
        }
        Ok(t.put(&self.rows, key, encode(row)?)?)
    }

    pub(crate) fn drop_table(&self, t: &mut Transaction, name: &str) -> Result<(), Failed> {
        let prefix = keys::table(name);
        t.delete_prefix(&self.rows, &prefix)?;
        t.delete_prefix(&self.indexes, &prefix)?;
        Ok(t.delete(&self.schemas, name)?)
    }
}

impl StoreMut for EskerStorage {
    fn insert_schema(&mut self, schema: &Schema) -> Result<()> {
        self.write(|parts, t| parts.put_schema(t, schema))
    }

    fn delete_schema(&mut self, table_name: &str) -> Result<()> {
        self.write(|parts, t| parts.drop_table(t, table_name))
    }

    fn append_data(&mut self, table_name: &str, rows: Vec<Vec<Value>>) -> Result<()> {
        let with_id = |row| Ok((Key::I64(self.parts.new_id()?), row));
        let rows = rows.into_iter().map(with_id).collect::<Result<Vec<_>>>()?;
        self.insert_data(table_name, rows)
    }

    fn insert_data(&mut self, table_name: &str, rows: Vec<(Key, Vec<Value>)>) -> Result<()> {
        self.write(|parts, t| {
            let indexes = Indexes::of(&parts.table(t, table_name)?.schema);
            rows.iter().try_for_each(|row| parts.put_row(t, table_name, &indexes, row))
        })
    }

    fn delete_data(&mut self, table_name: &str, keys: Vec<Key>) -> Result<()> {
        self.write(|parts, t| {
            let indexes = Indexes::of(&parts.table(t, table_name)?.schema);
            let prefix = keys::table(table_name);
            for key in &keys {
                let key = keys::row(table_name, key)?;
                let Some(old) = t.get(&parts.rows, &key)? else { continue };
                let (_, old) = decode::<StoredRow>(&old)?;
                for entry in indexes.keys(&prefix, &key, &old)? {
                    t.delete(&parts.indexes, entry)?;
                }
                t.delete(&parts.rows, key)?;
            }
            Ok(())
        })
    }
}

impl Planner for EskerStorage {
    fn plan(&self, statement: StatementPlan) -> Result<StatementPlan> {
        let schemas = fetch_schema_map(self, &statement)?;
        validate(&schemas, &statement)?;
        let statement = plan_schemaless(&schemas, statement)?;
        let statement = plan_primary_key(&schemas, statement);
        let statement = plan_index(&schemas, statement);
        let statement = plan_hash_join(&schemas, statement);
        Ok(plan_aggregate(statement))
    }
}

impl Metadata for EskerStorage {
    fn scan_table_meta(&self) -> Result<MetaIter> {
        let about = |table: Result<StoredTable>| {
            let table = table?;
            let created = DateTime::from_timestamp_micros(table.created_us)
                .ok_or_else(|| Error::StorageMsg(format!("a table of the time {} us", table.created_us)))?;
            let created = ("CREATED".to_owned(), Value::Timestamp(created.naive_utc()));
            Ok((table.schema.table_name, BTreeMap::from([created])))
        };
        let tables: Vec<_> = self.tables().map(about).collect();
        Ok(Box::new(tables.into_iter()))
    }
}

impl CustomFunction for EskerStorage {}
impl CustomFunctionMut for EskerStorage {}
