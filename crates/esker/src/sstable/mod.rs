//! Sorted tables (sstables): immutable files of key-value pairs in key order, laid out for reading.
//!
//! ```text
//!   sorted entries --TableWriter--> file --Table::open--> Table --get, cursor, scan--> entries
//!                                                           `-- blocks in memory: crate::cache
//! ```

mod block;
mod block_builder;
mod block_search;
mod check;
mod cursor;
mod footer;
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod options;
mod properties;
mod scan;
mod stored;
mod table;
mod writer;

pub use options::{TableCompression, TableOptions};

pub(crate) use check::TableCheck;
pub(crate) use cursor::TableCursor;
pub(crate) use properties::Properties;
pub(crate) use scan::TableScan;
pub(crate) use table::Table;
pub(crate) use writer::{TableMeta, TableWriter};

/// The cache of decoded blocks.
pub(crate) type BlockCache = crate::cache::BlockCache<block::Block>;

#[cfg(test)]
mod tests;
