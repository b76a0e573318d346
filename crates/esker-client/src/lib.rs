//! A client of Esker servers (`esker serve`): tables of rows, transactions, and ordered keys, typed.
//!
//! ```text
//!   ob, es: functions --> Request<T> --Client::run, AsyncClient::run--> T
//! ```
//!
//! A request is a value: a command, and a function that reads its reply. Both clients run the same requests.
//! [`ob`] contains tables of rows and transactions, [`es`] ordered keys, and [`key`] encodes keys of several
//! fields.
//!
//! ```no_run
//! use esker_client::{Client, Names, Result, Test, key, ob};
//!
//! # fn main() -> Result<()> {
//! let mut client = Client::connect("redis://127.0.0.1:6379/")?;
//! client.run(ob::put("users", "ann", [("age", "42"), ("town", "Oslo")]))?;
//!
//! // The ages of the first ten users whose town is Oslo.
//! let slice = ob::slice("users").columns(Names::new().one("age")).max_keys(10);
//! for row in client.run(slice.matching("town", Test::Equal("Oslo".into())).request())?.rows {
//!     println!("{:?} {:?}", row.key, row.columns);
//! }
//!
//! // Keys of several fields: the visits of a user, ordered by time.
//! client.run(ob::put("visits", key::encode(&("ann", 1_700_000_000_u64))?, [("page", "/")]))?;
//! let of_ann = Names::new().prefix(key::encode(&"ann")?);
//! assert_eq!(client.run(ob::count("visits", &of_ann))?, 1);
//!
//! // A transaction, repeated if another client changes what it watches.
//! client.transact(ob::begin(), |client| {
//!     client.run(ob::watch("users").key("ann").request())?;
//!     let age = client.run(ob::get("users", "ann", ["age"]))?;
//!     let age: u32 = age[0].as_deref().map_or(0, |age| String::from_utf8_lossy(age).parse().unwrap_or(0));
//!     client.run(ob::put("users", "ann", [("age", (age + 1).to_string())]))
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `tokio`, `AsyncClient` offers the same on tokio.
//!
//! Transactions and session settings belong to a connection: give each thread or task its own client.

#[cfg(feature = "tokio")]
mod async_client;
mod client;
mod error;
pub mod es;
pub mod key;
mod names;
pub mod ob;
mod reply;
mod request;
mod retry;

#[cfg(feature = "tokio")]
pub use self::async_client::AsyncClient;
pub use self::client::{Client, KeyEvents, Pages};
pub use self::error::{Error, Result};
pub use self::names::{Names, Test};
pub use self::request::Request;
pub use self::retry::Retry;

/// Names, keys and data are bytes.
pub type Bytes = Vec<u8>;
