//! One API over ordered, transactional key-value stores: an Esker database of this process, and stores past
//! one machine.
//!
//! ```text
//!   program --> Kv, Snapshot, Transaction       --> local::Local         a Db of this process
//!                      ^                        --> Blocking<A>
//!                      | Threads                         |
//!   program --> AsyncKv, AsyncSnapshot, AsyncTransaction <-- Layered<D: Driver>
//! ```
//!
//! A program written against [`Kv`], or against [`AsyncKv`](async_kv::AsyncKv), moves from one store to
//! another without a change. The traits are object-safe. [`kv`] states what every store promises, and
//! [`conformance()`] tests that it does.
//!
//! ```
//! # fn main() -> esker_kv::Result<()> {
//! # let db = esker::Db::in_memory().map_err(esker_kv::Error::other)?;
//! use esker_kv::{Kv, Query, Reads, Span, local::Local, transact};
//!
//! let kv: &dyn Kv = &Local::new(db);
//! let users = kv.space("users")?;
//! transact(kv, |transaction| {
//!     transaction.put(&users, b"ann", b"Oslo")?;
//!     transaction.put(&users, b"bob", b"Rome")
//! })?;
//! let page = kv.page(&users, Query::new(Span::from(b"b")))?;
//! assert_eq!(page.entries[0].0, &b"bob"[..]);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "tokio")]
pub mod async_kv;
#[cfg(feature = "tokio")]
mod blocking;
pub mod buffer;
pub mod conformance;
#[cfg(feature = "tokio")]
mod connect;

#[cfg(feature = "client")]
pub mod client;
pub mod copy;
mod error;
pub mod kv;
#[cfg(feature = "tokio")]
pub mod layered;
#[cfg(feature = "esker")]
pub mod local;
mod page;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "shared")]
pub mod shared;
#[cfg(feature = "slatedb")]
pub mod slatedb;
mod space;
#[cfg(feature = "tokio")]
mod threads;
#[cfg(feature = "tikv")]
pub mod tikv;
#[cfg(any(feature = "client", feature = "slatedb", feature = "tikv"))]
mod time_limit;
mod transact;

#[cfg(feature = "tokio")]
pub use self::blocking::Blocking;

pub use self::conformance::conformance;
#[cfg(feature = "tokio")]
pub use self::connect::{STORES, connect};
pub use self::error::{Error, Result};
pub use self::kv::{Kv, Limits, Reads, Savepoint, Snapshot, Transaction};
pub use self::page::{Entry, PAGE_BYTES, Page, PageBuilder, Query, collect, visit};
pub use self::space::{Order, Space, Span, prefix_end};
#[cfg(feature = "tokio")]
pub use self::threads::Threads;
pub use self::transact::{Retry, transact};
