//! A client of Esker servers (`esker serve`): tables of rows, transactions, and ordered keys, typed.
//!
//! ```text
//!   ob, es: functions --> Request<T> --Client::run, AsyncClient::run--> T
//! ```
//!
//! A request is a value: a command, and how its reply is read. Both clients run the same ones, so there is one set of calls. [`ob`] has tables of keys with
//! columns, and transactions over them; [`es`] has ordered keys. [`key`] makes keys of several fields that are in the order of the fields.
//!
//! ```no_run
//! use esker_client::{Client, Names, Result, Test, key, ob};
//!
//! # fn main() -> Result<()> {
//! let mut client = Client::connect("redis://127.0.0.1:6379/")?;
//! client.run(ob::put("users", "ann", [("age", "42"), ("town", "Oslo")]))?;
//!
//! // The first ten whose town is Oslo, and their age alone.
//! let slice = ob::slice("users").columns(Names::new().one("age")).max_keys(10);
//! for row in client.run(slice.matching("town", Test::Equal("Oslo".into())).request())?.rows {
//!     println!("{:?} {:?}", row.key, row.columns);
//! }
//!
//! // Keys of several fields: visits of a user, in the order of time.
//! client.run(ob::put("visits", key::encode(&("ann", 1_700_000_000_u64))?, [("page", "/")]))?;
//! let of_ann = Names::new().prefix(key::encode(&"ann")?);
//! assert_eq!(client.run(ob::count("visits", &of_ann))?, 1);
//!
//! // A transaction, which begins again if somebody changes what it watches.
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
//! With the feature `tokio`, `AsyncClient` does the same on tokio.
//!
//! A transaction belongs to its connection, and so does what the server's other commands set: give each thread or task a client of its own.

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

#[cfg(feature = "tokio")]
pub use self::async_client::AsyncClient;
pub use self::client::{Client, Pages};
pub use self::error::{Error, Result};
pub use self::names::{Names, Test};
pub use self::request::Request;

/// Names, keys and data are bytes.
pub type Bytes = Vec<u8>;
