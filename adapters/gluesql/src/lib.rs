//! Storage for [GlueSQL](gluesql_core) 0.20: SQL over an Esker database, with transactions and indexes.
//!
//! ```text
//!   Glue --> EskerStorage --> schemas  table --> definition                  one keyspace each, NAME/...
//!                             rows     table, key --> row
//!                             indexes  table, index, value, key of the row --> nothing
//! ```
//!
//! sql.1. A statement outside of `BEGIN` is a transaction of its own, as GlueSQL begins and commits it. Its
//!   commit is on the disk before the statement returns.
//! sql.2. An index has one entry for each row, in the same commit as the row.
//!
//! Each storage is a connection. Several on one database see each other's commits.

mod alter;
mod error;
mod index;
mod keys;
mod storage;
mod store;
mod table;

pub use storage::EskerStorage;
