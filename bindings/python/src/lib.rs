//! The Python binding of Esker: the module `esker._esker`, which the package `esker` builds on.
//!
//! ```text
//!   Db --[name]--> Keyspace (extends View) ---items, keys, values--> Range --iter--> Entries
//!    |- snapshot --[..]--> View               Reader: a keyspace in a state (source.rs)
//!    |- transaction, transact --[..]--> Keyspace
//!    `- batch --[..]--> BatchView
//!
//!   Shared (shared.rs): a database of several processes, which `esker.shared` completes
//! ```
//!
//! - Calls that may wait release the interpreter's lock: commits, cold reads, walks. Reads that memory
//!   answers and short calls keep it.
//! - Code that holds a lock of this crate makes no Python calls, so that a thread with the lock never waits
//!   for the interpreter, which a thread that waits for the lock may have.
//! - Every call fails in a forked child (fork.rs).

mod aio;
mod batch;
mod block;
mod copies;
mod data;
mod db;
mod error;
mod feed;
mod fork;
mod keyspace;
mod names;
mod options;
mod range;
mod shared;
mod snapshot;
mod source;
mod transact;
mod transaction;
mod tuple;
mod view;

#[pyo3::pymodule]
mod _esker {
    #[pymodule_export]
    use crate::aio::Completions;
    #[pymodule_export]
    use crate::batch::{Batch, BatchView};
    #[pymodule_export]
    use crate::copies::{Follower, backups, follow, restore};
    #[pymodule_export]
    use crate::db::Db;
    #[pymodule_export]
    use crate::feed::{Commit, Feed};
    #[pymodule_export]
    use crate::fork::after_fork;
    #[pymodule_export]
    use crate::keyspace::Keyspace;
    #[pymodule_export]
    use crate::options::open;
    #[pymodule_export]
    use crate::range::{Entries, Range};
    #[pymodule_export]
    use crate::shared::map::SharedMap;
    #[pymodule_export]
    use crate::shared::walk::SharedWalk;
    #[pymodule_export]
    use crate::shared::{CommitName, Shared, SharedSnapshot, SharedTransaction, open_shared};
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::transaction::{Savepoint, Transaction};
    #[pymodule_export]
    use crate::tuple::{SingleFloat, pack, prefix_range, unpack};
    #[pymodule_export]
    use crate::view::View;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name of an attribute in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
