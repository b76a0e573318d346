//! Shared code of the integration tests.
//!
//! ```text
//!   contents.rs    the contents of a database as maps, read in every way
//!   damage.rs      a closed database to damage, and how to damage it
//!   goldens.rs     making and reading golden directories
//! ```
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod contents;
pub mod damage;
pub mod goldens;

use std::path::Path;

use esker::{Builder, Db};
use esker_env::{Env, FsRef};

/// The directory of databases in simulated file systems.
pub const DIR: &str = "db";

/// Sizes so small that a few writes cross every boundary: blocks, tables, memtables, WAL segments.
pub fn tiny(env: Env) -> Builder {
    Db::builder()
        .env(env)
        .background(false)
        .memory(1 << 20)
        .tuning(|t| t.block_bytes(128).table_bytes(1024).memtable_bytes(4096))
}

/// A deterministic world on `fs`, without threads, with tiny sizes.
pub fn simulated(fs: FsRef) -> Builder {
    tiny(Env::simulated(fs, 1))
}

/// The directory of a simulated database.
pub fn dir() -> &'static Path {
    Path::new(DIR)
}
