//! The fuzz targets, one function each, shared by libFuzzer, the replay of the corpus, and tests.
//!
//! ```text
//!   fuzz/fuzz_targets/NAME.rs (libFuzzer) -----+
//!   tests/it/corpus.rs: fuzz/corpus/NAME/* ----+--> TARGETS: fuzzing modules (decoders), operations.rs (API)
//!   tests/it/decoders: seeds.rs, damaged ------+
//! ```
//!
//! A target panics if and only if the engine is wrong, for any bytes. Usage: docs/testing.md

mod operations;
pub mod seeds;
mod shared;

pub use esker::fuzzing::backup::{backup_record, backup_stream};
pub use esker::fuzzing::encoding::{compression, filter, numbers};
pub use esker::fuzzing::encryption::key_file;
pub use esker::fuzzing::engine::catalog;
pub use esker::fuzzing::manifest::{current, manifest_file, version_edit};
pub use esker::fuzzing::recordio::record_file;
pub use esker::fuzzing::sstable::{
    block as table_block, footer as table_footer, index as table_index, other_parts as table_parts,
    salvage_table, stored_part as table_stored, table,
};
pub use esker::fuzzing::txn::commit_payload;
pub use esker::fuzzing::unload::unload_record;
pub use esker::fuzzing::wal::{salvage_log, wal_segment};
pub use esker_tuple::check_any as tuple_key;
pub use operations::operations;
pub use shared::{shared_replies, shared_requests, shared_session};

/// A function that accepts any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of the fuzz target and of its directory in the corpus.
    pub name: &'static str,
    /// Runs the target. Panics if the engine is wrong.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        &[$(Target { name: stringify!($name), run: $name }),*]
    };
}

/// All targets: the decoders, and the API as a whole.
pub const TARGETS: &[Target] = targets! {
    numbers,
    compression,
    filter,
    record_file,
    table_block,
    table_index,
    table_footer,
    table_parts,
    table_stored,
    table,
    salvage_table,
    wal_segment,
    salvage_log,
    commit_payload,
    version_edit,
    manifest_file,
    current,
    catalog,
    backup_record,
    backup_stream,
    key_file,
    unload_record,
    shared_requests,
    shared_replies,
    shared_session,
    tuple_key,
    operations,
};

/// Returns the target of this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
