//! Several processes that write one Esker database.
//!
//! ```text
//!   process A: Shared --the host--> Db --> directory (lock)
//!                 ^--socket SOCKET in the directory, mode 0600
//!   process B: Shared --a guest--'
//!   process C: Shared --a guest--'
//! ```
//!
//! Each process calls [`Shared::open`]. The one that gets the directory's lock is the host: it opens the
//! database, and its own calls go straight to the engine. The others are guests, whose calls are requests to
//! the host. When the host goes, even by `kill -9`, one of the guests takes over, recovers and serves. No
//! process is configured for either role.
//!
//! ```
//! # fn main() -> esker_shared::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path();
//! use esker_shared::Shared;
//!
//! let db = Shared::open(path)?; // the same in each process
//! let accounts = db.keyspace("accounts")?;
//! accounts.fetch_add("ann", 100)?;
//! db.transact(|t| {
//!     t.fetch_add(&accounts, "ann", -30)?;
//!     t.fetch_add(&accounts, "bob", 30)
//! })?;
//! assert_eq!(accounts.len()?, 2);
//! # Ok(())
//! # }
//! ```
//!
//! - An acknowledged commit survives the host's end as its durability says. All commits are at least
//!   [`Buffered`](esker::Durability::Buffered).
//! - If the host goes before it replies, the guest asks the next host what became of the commit, and makes it
//!   again if it was not applied. No commit is applied twice. If no host answers in time, the error is
//!   [`Error::OutcomeUnknown`].
//! - Transactions, snapshots and iterators of guests end with the host: [`Error::HostGone`].
//!   [`Shared::transact`] runs its body again.
//! - The keyspace `esker.shared` holds a record for each connection of a guest. The engine's own lists show
//!   it.
//!
//! What it costs, and what does not work: docs/processes.md. On other systems than Unix, `open` fails.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "sockets and other processes are of the real system; the engine below goes through `Env`"
)]

mod batch;
#[doc(hidden)]
pub mod canary;
mod commit_id;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guest;
mod held;
mod host;
mod inner;
mod keyspace;
mod lanes;
mod protocol;
mod range;
mod savepoint;
mod session;
mod shared;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod snapshot;
#[cfg_attr(not(unix), path = "no_socket.rs")]
mod socket;
mod transact;
mod transaction;
mod transport;

pub use batch::SharedBatch;
pub use commit_id::{CommitId, Outcome};
pub use error::{Error, Result};
pub use keyspace::SharedKeyspace;
pub use range::SharedRange;
pub use savepoint::SharedSavepoint;
pub use shared::{Shared, SharedBuilder};
pub use snapshot::SharedSnapshot;
pub use transact::TransactionOptions;
pub use transaction::SharedTransaction;
