//! An [`object_store`] in an Esker database.
//!
//! ```text
//!   objects  path --> content number, parts, time, attributes     one keyspace each, NAME/...
//!   content  content number, part, chunk --> up to 1 MiB          } in blob files from 4 KiB on
//!   uploads  content number [, part] --> attributes; size of a part
//! ```
//!
//! object.1. One commit has an object and all of its content. It is on the disk before the call returns.
//! object.2. Each content has a number of its own, which is the object's `e_tag`.
//! object.3. A read has one snapshot: it returns one version of an object, whatever is written meanwhile.
//!
//! Calls run where the runtime of tokio lets threads block.

mod content;
mod error;
mod listing;
mod parts;
mod parts_in_order;
mod read;
mod store;
mod stored;
mod upload;
mod write;

pub use parts::Unfinished;
pub use store::EskerStore;
