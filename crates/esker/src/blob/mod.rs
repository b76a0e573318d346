//! Blob files: large values, each written once, beside the tables that point to them.
//!
//! ```text
//!   value --> stored.rs: compressed, in chunks --> BlobWriter, or the commit itself --> BlobFile       pointer --> log, memtable, tables
//!                                                  `-- BlobStore: the file in use, leases of it
//!   read --pointer--> BlobCache, or BlobSet: which file, and where in it --> BlobFile --bytes, checked--> Value
//! ```
//!
//! blob.1. A pointer names a file by the number that it had when the value was written. A collection moves the values to another file; the
//!      set knows it under the old number, and pointers stay as they are.
//! blob.2. A value is checked against its pointer's checksum whenever it is read.
//!
//! Bytes: docs/formats/blob.md

mod cache;
mod file;
mod moves;
mod pointer;
mod references;
mod set;
mod store;
mod stored;
mod writer;

pub(crate) use cache::BlobCache;
pub(crate) use file::{BlobFile, Lease};
pub(crate) use moves::Moves;
pub(crate) use pointer::BlobPointer;
pub(crate) use references::BlobReferences;
pub(crate) use set::{BlobSet, BlobSource};
pub(crate) use store::{BlobStore, NewBlobFile, StoreOptions};
pub(crate) use stored::{Squeeze, StoredValue, put_value, stored_bytes_max};
pub(crate) use writer::BlobWriter;

/// Entry points for fuzzing: decoders of this module on arbitrary bytes.
#[doc(hidden)]
pub mod fuzzing {
    use super::{BlobPointer, Moves};

    /// A pointer, and the map of a collected file: what decodes must encode to what decodes to the same.
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
