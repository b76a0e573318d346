//! `ALTER TABLE`: writes a table again under its changed definition, in one transaction.

use esker::Transaction;
use gluesql_core::ast::ColumnDef;
use gluesql_core::data::{Schema, Value};
use gluesql_core::error::Error;
use gluesql_core::executor::evaluate_stateless;
use gluesql_core::plan::plan_scalar_expr;
use gluesql_core::store::{AlterTable, AlterTableError};

use crate::error::{Failed, Result};
use crate::keys;
use crate::storage::{EskerStorage, Parts};
use crate::table::{Indexes, StoredRow, decode};

impl AlterTable for EskerStorage {
    fn rename_schema(&mut self, table_name: &str, new_table_name: &str) -> Result<()> {
        self.write(|parts, t| {
            let old = existing(parts, t, table_name)?;
            let new = Schema { table_name: new_table_name.to_owned(), ..old.clone() };
            parts.rewrite(t, &old, &new, |_| {})
        })
    }

    fn rename_column(
        &mut self,
        table_name: &str,
        old_column_name: &str,
        new_column_name: &str,
    ) -> Result<()> {
        self.write(|parts, t| {
            let old = existing(parts, t, table_name)?;
            let mut new = old.clone();
            let columns = columns_of(&mut new)?;
            if columns.iter().any(|column| column.name == new_column_name) {
                let name = new_column_name.to_owned();
                return Err(failed(AlterTableError::AlreadyExistingColumn(name)));
            }
            let column = columns.iter_mut().find(|column| column.name == old_column_name);
            let column = column.ok_or_else(|| failed(AlterTableError::RenamingColumnNotFound))?;
            column.name = new_column_name.to_owned();
            parts.rewrite(t, &old, &new, |_| {})
        })
    }

    fn add_column(&mut self, table_name: &str, column_def: &ColumnDef) -> Result<()> {
        self.write(|parts, t| {
            let old = existing(parts, t, table_name)?;
            let mut new = old.clone();
            let columns = columns_of(&mut new)?;
            if columns.iter().any(|column| column.name == column_def.name) {
                let name = column_def.name.clone();
                return Err(failed(AlterTableError::AlreadyExistingColumn(name)));
            }
            let value: Value = match &column_def.default {
                Some(default) => evaluate_stateless(None, &plan_scalar_expr(default.clone()))?.try_into()?,
                None if column_def.nullable => Value::Null,
                None => return Err(failed(AlterTableError::DefaultValueRequired(column_def.clone()))),
            };
            columns.push(column_def.clone());
            parts.rewrite(t, &old, &new, |row| row.push(value.clone()))
        })
    }

    fn drop_column(&mut self, table_name: &str, column_name: &str, if_exists: bool) -> Result<()> {
        self.write(|parts, t| {
            let old = existing(parts, t, table_name)?;
            let mut new = old.clone();
            let columns = columns_of(&mut new)?;
            let Some(position) = columns.iter().position(|column| column.name == column_name) else {
                if if_exists {
                    return Ok(());
                }
                let name = column_name.to_owned();
                return Err(failed(AlterTableError::DroppingColumnNotFound(name)));
            };
            columns.remove(position);
            parts.rewrite(t, &old, &new, |row| {
                if position < row.len() {
                    row.remove(position);
                }
            })
        })
    }
}

fn existing(parts: &Parts, t: &Transaction, name: &str) -> Result<Schema, Failed> {
    match t.get(&parts.schemas, name)? {
        Some(_) => Ok(parts.table(t, name)?.schema),
        None => Err(failed(AlterTableError::TableNotFound(name.to_owned()))),
    }
}

fn columns_of(schema: &mut Schema) -> Result<&mut Vec<ColumnDef>, Failed> {
    let name = &schema.table_name;
    schema.column_defs.as_mut().ok_or_else(|| failed(AlterTableError::SchemalessTableFound(name.clone())))
}

fn failed(error: AlterTableError) -> Failed {
    Failed(Error::from(error))
}

impl Parts {
    /// Replaces a table by one with another definition and changed rows. Its indexes are made again.
    fn rewrite(
        &self,
        t: &mut Transaction,
        old: &Schema,
        new: &Schema,
        mut change: impl FnMut(&mut Vec<Value>),
    ) -> Result<(), Failed> {
        let entries = t.prefix(&self.rows, keys::table(&old.table_name));
        let created_us = self.table(t, &old.table_name)?.created_us;
        self.drop_table(t, &old.table_name)?;
        let indexes = Indexes::of(new);
        for entry in entries {
            let mut row = decode::<StoredRow>(&entry?.1)?;
            change(&mut row.1);
            self.put_row(t, &new.table_name, &indexes, &row)?;
        }
        self.put_table(t, new, created_us)
    }
}
