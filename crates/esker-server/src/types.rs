//! How the types of the Redis protocol are stored in ordered maps.
//!
//! ```text
//!   database n:  r<n>    key                 --> kind, [expiry], string | version, length, head, [parts]
//!                r<n>.s  version, sub-key    --> value      parts of collections
//!                        0, deadline, key    --> nothing    hashes by the first deadline of their fields
//!                r<n>.t  expiry, key         --> nothing    what expires, in order
//!                r<n>.g  version             --> nothing    collections whose parts are garbage
//! ```
//!
//! data.1. A key with an expiry has one entry in `r<n>.t`, with that expiry. A key without one has none.
//!
//! - Expired keys are read as absent. Only a writer removes them.
//!
//! data.3. Parts whose version no main record names are garbage. An entry of `r<n>.g` names them.
//!
//! Bytes: docs/formats/server.md

mod check;
mod collection;
mod deadlines;
pub mod geo;
mod keys;
mod list;
pub mod rows;
mod small;
mod sorted_set;
mod stream;
mod subkey;
mod sweeper;
pub mod verify;

pub use self::collection::Collection;
pub use self::deadlines::{absent_from, expire_some_fields, is_absent};
pub use self::list::{End, List};
pub use self::sorted_set::{Scored, SortedSet, ZSpan};
pub use self::stream::{Consumer, Entry, Group, Pending, References, Stream, StreamId, parse_count};
pub use self::verify::verify;
pub use crate::store::database::Database;
pub use crate::store::record::{Kind, Main};

pub use self::sweeper::{expire_some, remove_garbage};
