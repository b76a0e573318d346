//! Typed tables: keys and values of Rust types in a keyspace, in the order of the key type. Feature `typed`.
//!
//! ```text
//!   Table<K, V> --key: a tuple, order-preserving--> user keys of a keyspace
//!               `-value: a codec, postcard by default
//!   Multimap<K, V> --key and value: a tuple-------> user keys of a keyspace
//! ```
//!
//! Keys are integers, floats, booleans, strings, bytes, `Option`s, lists, tuples of those, and structs and
//! enums that derive [`TypedKey`](trait@TypedKey). Tuples and structs are ordered by their first field, then
//! by the next. [`Descending`] reverses the order of a field. The stored keys are tuples of FoundationDB,
//! which other languages can read: docs/formats/tuple.md.
//!
//! Calls take keys in any [form](KeyOf), owned or borrowed: `get(&(7, "a"))` finds a key `(u64, String)`.
//! [`Table::prefix`] and [ranges](KeyRange) take leading fields: `(7,)` for all keys `(7, _)`.
//!
//! A table has the calls of its keyspace. [`Table::at`] is the same table in a snapshot or a transaction, for
//! reading, and [`Table::on`] in a transaction or a batch, for writing. Values are stored by a [`Codec`].
//!
//! ```
//! # #[cfg(feature = "typed")]
//! # fn main() -> esker::Result<()> {
//! # let db = esker::Db::in_memory()?;
//! use esker::typed::{Descending, TypedKey, Table};
//! use serde::{Deserialize, Serialize};
//!
//! /// By user, the newest visit first.
//! #[derive(TypedKey, Debug, PartialEq)]
//! struct Visit {
//!     user: String,
//!     second: Descending<u64>,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Page {
//!     path: String,
//! }
//!
//! let visits: Table<Visit, Page> = Table::new(db.keyspace("visits")?);
//! let page = |path: &str| Page { path: path.to_owned() };
//! visits.put(&("ann", Descending(100)), &page("/"))?;
//! visits.put(&("ann", Descending(200)), &page("/help"))?;
//! for entry in visits.prefix(&("ann",))? {
//!     let (visit, page) = entry?;
//!     println!("{} at {}: {}", visit.user, visit.second.0, page.path);
//! }
//!
//! let snapshot = db.snapshot();
//! db.transact(|t| -> esker::Result<()> {
//!     let mut visits = visits.on(t);
//!     if let Some((newest, page)) = visits.pop_first()? {
//!         visits.put(&("bob", newest.second), &page)?;
//!     }
//!     Ok(())
//! })?;
//! assert!(visits.at(&snapshot).contains(&("ann", Descending(200)))?);
//! assert!(!visits.contains(&("ann", Descending(200)))?);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "typed"))]
//! # fn main() {}
//! ```

mod bounds;
mod changes;
mod codec;
mod cursor;
mod ingest;
mod multimap;
mod reads;
#[cfg(feature = "tokio")]
mod stream;
mod table;
mod writes;

pub use esker_derive::TypedKey;
pub use esker_tuple::{
    Decoder, Descending, Element, Elements, Encoder, KeyError, KeyOf, PrefixOf, ToKey, TypedKey, Uuid,
};

pub use self::bounds::KeyRange;
pub use self::changes::{TypedChanges, TypedVersions, TypedWatch};
#[cfg(feature = "json")]
pub use self::codec::Json;
#[cfg(feature = "msgpack")]
pub use self::codec::MessagePack;
pub use self::codec::{Codec, Plain, Postcard};
pub use self::cursor::TypedCursor;
pub use self::ingest::TypedIngest;
pub use self::multimap::{Multimap, Pairs, Values};
pub use self::reads::{Entries, TypedKeys};
#[cfg(feature = "tokio")]
pub use self::stream::TypedStream;
pub use self::table::{BatchView, State, StateMut, Table};
