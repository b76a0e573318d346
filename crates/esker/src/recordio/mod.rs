//! Files of checksummed records: append records, read them back in order or by offset, survive crashes and damage.
//!
//! ```text
//!   append --> Writer --> [file header][record][record][record]...[torn tail] --> Reader          in order
//!                                                                             |-> SeekableReader  by offset
//!                                                                             `-> MmapReader      by offset, no copy
//! ```
//!
//! A record is any string of bytes up to 4 GiB - 1, the empty one included. Each stands in a frame with a marker,
//! its lengths and two CRC-32C checksums, and is compressed on its own if the file has a codec and the record
//! shrinks. The offset that [`Writer::append`] returns finds the record again in constant time.
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
//! What [`Writer::sync`] made durable is there. Behind it there may be a part of a record, or garbage: a torn tail.
//! Readers end before it and report it ([`Reader::tail`]); [`Writer::open_append`] cuts it off and goes on there.
//! Anything else that does not check out is corruption: damage with a valid record behind it. A reader then fails
//! with [`Error::Corrupt`](crate::Error::Corrupt), file and offset, or skips it if told to
//! ([`ReadOptions::resync`]).
//!
//! Two cases cannot be told apart by looking at the file: damage in the very last record reads as a torn tail, and
//! after a crash in the middle of several unsynced writes, which a disk may have done in any order, a torn record
//! may have a whole one behind it and reads as corruption. A log that syncs each record before it writes the next
//! knows only the first.
//!
//! # Resynchronisation
//!
//! [`ReadOptions::resync`] and the `seek_next` methods look for the next marker whose header and content check out.
//! Content may hold markers, other record files, or a copy of this one: a header's checksum covers its offset and a
//! random number of its file, so that content never passes for a record. The price: a file from whose middle bytes
//! were removed can only be read up to there.
//!
//! Bytes: docs/formats/recordio.md

mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod mmap;
mod reader;
mod scan;
mod seekable;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use mmap::MmapReader;
pub(crate) use reader::LastRecord;
pub use reader::{ReadOptions, Reader, Records};
pub use scan::Tail;
pub use seekable::SeekableReader;
pub use writer::{WriteOptions, Writer};

/// A record found by a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordAt<B> {
    /// Where it starts in the file.
    pub offset: u64,
    /// Where it ends, and the next may start.
    pub end: u64,
    /// Its bytes.
    pub bytes: B,
}
