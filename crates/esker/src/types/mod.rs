//! The vocabulary of the engine: ids, keys, values, errors. All other modules build on it.

pub(crate) mod activity;
pub(crate) mod bounds;
mod cached;
pub mod canary;
mod conflict;
pub(crate) mod cursor;
pub(crate) mod cursor_range;
pub(crate) mod descriptors;
pub(crate) mod due;
pub(crate) mod dump_value;
mod encryption_problem;
pub(crate) mod entry;
mod error;
mod error_kind;
pub(crate) mod expiry;
mod ids;
pub mod interleave;
pub(crate) mod key;
mod key_bounds;
pub(crate) mod key_range;
pub(crate) mod key_room;
pub(crate) mod latency;
pub(crate) mod limits;
pub(crate) mod memory_only;
pub(crate) mod op;
pub(crate) mod outcomes;
pub(crate) mod parts;
pub(crate) mod prefetch;
pub(crate) mod range_tombstone;
mod replace_file;
pub(crate) mod small_copy;
pub(crate) mod stored;
mod value;

pub use cached::Cached;
pub use conflict::Contended;
pub use encryption_problem::EncryptionProblem;
pub use entry::Entry;
pub use error::{Error, Result};
pub use error_kind::ErrorKind;
pub use ids::{FileId, KeyspaceId, SeqNo};
pub use key_bounds::KeyBounds;
pub use memory_only::memory_only;
#[cfg(feature = "encryption")]
pub(crate) use replace_file::replace_file;
pub(crate) use replace_file::{NewFile, replace_file_in_time};
pub use value::{SharedBytes, Value};
