//! Sorted tables (sstables): immutable files of key-value pairs in key order, laid out for reading.
//!
//! ```text
//!   sorted entries --TableWriter--> file --Table::open--> Table --get, cursor, scan--> entries
//!                                                           `-- blocks in memory: crate::cache
//! ```
//!
//! The public part ([`Writer`], [`Reader`], [`merge`]) works without a database:
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("words.sst");
//! use esker::sstable::{Reader, Writer};
//!
//! let mut writer = Writer::create(&path)?;
//! for word in ["ale", "beer", "cider"] {
//!     writer.put(word.as_bytes(), b"a drink")?;
//! }
//! writer.finish()?;
//!
//! let table = Reader::open(&path)?;
//! for entry in table.range("b"..).rev() {
//!     let (key, value) = entry?;
//!     println!("{}: {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! To read the source, follow a write (`writer.rs`, `block_builder.rs`, `part_writer.rs`), then a read
//! (`table/lookup.rs`, `root.rs`, `index.rs`, `block.rs`, `block_search.rs`), then iteration
//! (`block_position.rs`, `cursor.rs`, `table/walk_window.rs`, `scan.rs`).
//! Bytes: docs/formats/sstable.md

mod block;
mod block_builder;
mod block_position;
mod block_search;
mod caches;
mod check;
mod counts;
mod cursor;
mod footer;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index;
mod index_builder;
mod meta;
mod options;
mod part_writer;
mod parts;
mod properties;
mod root;
mod salvage;
mod scan;
mod standalone;
mod stored;
mod table;
mod walk_window;
mod writer;

pub use options::{TableCompression, TableOptions};
pub use standalone::{Entries, Metadata, Range, Reader, Writer, merge};

pub use crate::types::Entry;

pub(crate) use block_position::BlockPosition;
pub(crate) use caches::BlockCache;
pub(crate) use counts::Counts;
pub(crate) use cursor::TableCursor;
pub(crate) use index::IndexLimits;
pub(crate) use meta::TableMeta;
pub(crate) use parts::stated_newest_commit;
pub(crate) use properties::Properties;
pub(crate) use salvage::{LostContent, SalvageScan, SalvageTable, TableDamage};
pub(crate) use scan::TableScan;
pub(crate) use stored::Fingerprint;
#[cfg(test)]
pub(crate) use table::plain_remover;
pub(crate) use table::{Found, MemoryOnly, NoAnswer, OnMiss, ReadOnMiss, Remover, Table};
pub(crate) use walk_window::WalkWindow;
pub(crate) use writer::TableWriter;

#[cfg(test)]
mod tests;
