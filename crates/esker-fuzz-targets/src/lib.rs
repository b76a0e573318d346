//! What the fuzzers call, one function for each target: libFuzzer, the replay of the corpus, and tests share them.
//!
//! ```text
//!   fuzz/fuzz_targets/NAME.rs (libFuzzer) -----+
//!   tests/it/corpus.rs: fuzz/corpus/NAME/* ----+--> TARGETS: esker::fuzzing (decoders), operations.rs (the whole API)
//!   tests/it/decoders: seeds.rs, damaged ------+
//! ```
//!
//! fuzz_targets.1. A target panics if and only if the engine is wrong, whatever the bytes.
//!
//! How to run it all: docs/testing.md

mod operations;
pub mod seeds;

pub use esker::fuzzing::backup::backup_record;
pub use esker::fuzzing::encoding::{compression, filter, numbers};
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
pub use operations::operations;

/// Something that takes any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of the fuzz target, and of its folder in the corpus.
    pub name: &'static str,
    /// Takes the bytes; panics if something is wrong with the engine.
    pub run: fn(&[u8]),
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        &[$(Target { name: stringify!($name), run: $name }),*]
    };
}

/// Every target: the decoders, and then the API as a whole.
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
    unload_record,
    operations,
};

/// The target of this name.
pub fn find(name: &str) -> Option<Target> {
    TARGETS.iter().copied().find(|target| target.name == name)
}
