//! Blob files store large values outside the tables. Each value is written once; tables hold pointers to it.
//!
//! ```text
//!   value --stored.rs--> BlobWriter, or the commit itself --> BlobFile    pointer --> log, memtable, tables
//!                        `-- BlobStore: the current file and its leases
//!   read --pointer--> BlobCache, or BlobSet: file and offset --> BlobFile --verified bytes--> Value
//! ```
//!
//! blob.1. A pointer names a file by its number when the value was written. Collection moves values to
//!     another file, which the set finds under the old number. Pointers never change.
//! blob.2. A value is verified against the checksum in its pointer on every read.
//!
//! Bytes: docs/formats/blob.md

mod cache;
mod file;
mod moves;
mod pointer;
mod references;
mod rule;
mod set;
mod store;
mod stored;
mod writer;

pub(crate) use cache::BlobCache;
pub(crate) use file::{BlobFile, Lease, blob_name, blob_path};
pub(crate) use moves::Moves;
pub(crate) use pointer::BlobPointer;
pub(crate) use references::BlobReferences;
pub use rule::Blobs;
pub(crate) use set::{BlobSet, BlobSource};
pub(crate) use store::{BlobStore, NewBlobFile, StoreOptions};
pub(crate) use stored::{ChunkCompressor, StoredValue, Units, put_value, stored_bytes_max};
pub(crate) use writer::BlobWriter;

/// Entry points for fuzzing: decoders of this module on arbitrary bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing {
    use super::{BlobPointer, Moves};

    /// Decodes a pointer and the map of a collected file, and checks that re-encoding round-trips.
    pub fn blob_parts(bytes: &[u8]) {
        if let Ok(pointer) = BlobPointer::decode(bytes) {
            let mut out = Vec::new();
            pointer.encode(&mut out);
            assert_eq!(BlobPointer::decode(&out), Ok(pointer));
        }
        if let Ok(moves) = Moves::decode(bytes) {
            assert_eq!(Moves::decode(&moves.encode()), Ok(moves));
        }
    }
}
