//! Reads the snapshots (RDB files) of Redis and Valkey, and reads and makes values as their `DUMP` does.
//!
//! ```text
//!   file --> Reader: header, opcodes, checksum --> Item: database, library, key with value and expiry
//!              `-- input: offsets, lengths, strings, LZF
//!              `-- value: each type and its encodings --> packed: listpack, ziplist, zipmap, intset
//!   DUMP <---> value_of_dump, libraries_of_dump; Dump
//! ```
//!
//! Versions 1 to 12 are read: all of Redis to 8.0 and Valkey to 8.1. Values of modules are refused.
//!
//! - Any bytes give a value or an [`Error`], never a panic.
//! - Memory is allocated as bytes arrive, never from a length that the input states.

mod budget;
mod checksum;
mod dump;
mod encode;
mod error;
mod hash;
mod input;
mod lzf;
mod packed;
mod reader;
mod stream;
mod stream_nodes;
mod value;

pub use self::dump::{libraries_of_dump, value_of_dump};
pub use self::encode::Dump;
pub use self::error::{Error, Result};
pub use self::reader::{Item, Key, Reader};
pub use self::stream::{Consumer, Entry, Group, Pending, Stream, StreamId};
pub use self::value::{Field, Value};
