//! Files of checksummed records: append records, read them in order or by offset, survive crashes and damage.
//!
//! ```text
//!   append --> Writer --> [file header][record][record][record]...[torn tail] --> Reader          in order
//!                                                                             |-> SeekableReader  by offset
//!                                                                             `-> MmapReader      by offset
//! ```
//!
//! A record is any byte string up to 4 GiB - 1, including the empty one. Each record has a frame with a
//! marker, its lengths and two CRC-32C checksums. If the file has a codec, each record that shrinks is
//! compressed on its own. The offset returned by [`Writer::append`] locates the record in constant time.
//!
//! ```
//! # fn main() -> esker::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("events");
//! use esker::Compression;
//! use esker::recordio::{Reader, SeekableReader, Writer};
//!
//! let mut writer = Writer::options().compression(Compression::Snappy).create(&path)?;
//! let first = writer.append(b"the first event")?;
//! writer.append(&b"a long event ".repeat(100))?;
//! writer.finish()?;
//!
//! let mut lengths = Vec::new();
//! for record in Reader::open(&path)?.records() {
//!     lengths.push(record?.len());
//! }
//! assert_eq!(lengths, [15, 1300]);
//! assert_eq!(SeekableReader::open(&path)?.read_at(first)?, b"the first event");
//! # Ok(())
//! # }
//! ```
//!
//! # After a crash
//!
//! Every record made durable by [`Writer::sync`] is present. A partial record or garbage may follow it: a
//! torn tail. Readers stop before it and report it ([`Reader::tail`]); [`Writer::open_append`] truncates it
//! and continues there. Damage followed by a valid record is corruption. A reader then fails with
//! [`Error::Corrupt`](crate::Error::Corrupt), which names the file and the offset, or skips the damage if
//! [`ReadOptions::resync`] is set.
//!
//! Two cases are ambiguous. Damage in the last record looks like a torn tail. And after a crash during
//! several unsynced writes, which a disk may reorder, a torn record followed by a complete one looks like
//! corruption. A log that syncs each record before writing the next only meets the first case.
//!
//! # Resynchronization
//!
//! [`ReadOptions::resync`] and the `seek_next` methods search for the next marker with a valid header and
//! content. Content may hold markers, other record files, or a copy of this file. The checksum of a header
//! covers its offset and a random number of its file, so content never passes for a record. As a consequence,
//! a file from the middle of which bytes were removed is readable only up to that point.
//!
//! Bytes: docs/formats/recordio.md

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header;
mod mmap;
mod reader;
mod scan;
mod seekable;
mod stream;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use mmap::MmapReader;
pub(crate) use reader::LastRecord;
pub use reader::{ReadOptions, Reader, Records};
pub use scan::Tail;
pub use seekable::SeekableReader;
pub(crate) use stream::{StreamReader, StreamWriter};
pub use writer::{WriteOptions, Writer};

/// A record found by a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordAt<B> {
    /// Offset of the record in the file.
    pub offset: u64,
    /// Offset after the record, where the next one may start.
    pub end: u64,
    /// Content of the record.
    pub bytes: B,
}
