//! How the types of the Redis protocol are stored in ordered maps.
//!
//! ```text
//!   database n:  r<n>    key                 --> kind, [expiry], string | version, length, head, [parts]
//!                r<n>.s  version, sub-key    --> value      parts of collections
//!                r<n>.t  expiry, key         --> nothing    what expires, in order
//!                r<n>.g  version             --> nothing    collections whose parts are garbage
//! ```
//!
//! data.1. A key with an expiry has one entry in `r<n>.t`, with that expiry. A key without one has none.
//! data.2. Expired keys are read as absent. Only a writer removes them.
//! data.3. Parts whose version no main record names are garbage. An entry of `r<n>.g` names them.
//!
//! Bytes: docs/formats/server.md

mod check;
mod collection;
pub mod geo;
mod keys;
mod list;
mod main_record;
pub mod rows;
mod small;
mod sorted_set;
mod stream;
mod subkey;
mod sweeper;
mod verify;

pub use self::check::check_copy;
pub use self::collection::Collection;
pub use self::list::{End, List};
pub use self::main_record::{Kind, Main, string_record};
pub use self::sorted_set::{Scored, SortedSet, ZSpan};
pub use self::stream::{Consumer, Entry, Group, Pending, Stream, StreamId, parse_count};
pub use self::verify::verify;

pub use self::sweeper::{expire_some, remove_garbage};

use crate::store::{Result, Space, Store};

/// One of the numbered databases.
pub struct Database {
    /// Its number.
    pub number: usize,
    /// Main records by key.
    pub main: Space,
    /// Parts of collections.
    pub sub: Space,
    /// Keys by expiry.
    pub ttl: Space,
    /// Garbage.
    pub garbage: Space,
}

impl Database {
    /// Opens or creates the maps of a database.
    ///
    /// # Errors
    /// The store's.
    pub fn open(store: &dyn Store, number: usize) -> Result<Self> {
        let [main, sub, ttl, garbage] = Self::names(number);
        Ok(Database {
            number,
            main: store.space(&main, true)?,
            sub: store.space(&sub, false)?,
            ttl: store.space(&ttl, false)?,
            garbage: store.space(&garbage, false)?,
        })
    }

    /// The names of its maps.
    pub fn names(number: usize) -> [String; 4] {
        ["", ".s", ".t", ".g"].map(|suffix| format!("r{number}{suffix}"))
    }

    /// Its maps.
    pub fn spaces(&self) -> [&Space; 4] {
        [&self.main, &self.sub, &self.ttl, &self.garbage]
    }
}
