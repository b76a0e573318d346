//! What a reader of a closed database would see, for tools. Nothing is changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use esker_env::Env;

use crate::blob::BlobSet;
use crate::cache::MemoryBudget;
use crate::engine::base::options::Options;
use crate::engine::disk::blobs::{Tail, check_tail};
use crate::engine::life::open::{list, open_tables, settle_counts};
use crate::engine::life::replay::{OnRecord, replay_with};
use crate::manifest::edit::VersionEdit;
use crate::read::view::ReadView;
use crate::sstable::BlockCache;
use crate::types::{KeyspaceId, Result, SeqNo};
use crate::wal::{self, LogExtent};

/// Reads what a reader of the database would see, without changing anything. Files that nothing names are
/// ignored.
pub(crate) fn look_into(env: &Env, dir: &Path, options: &Options, state: &VersionEdit) -> Result<Look> {
    let cache = BlockCache::new(MemoryBudget::new(options.memory()));
    let mut state = state.clone();
    settle_counts(&mut state, dir)?;
    let state = &state;
    let version = open_tables(env, dir, &list(env, dir)?, state, &cache)?;
    let extent = state.log_extent();
    let flushed = state.flushed_seq.unwrap_or_default();
    let extent = sound_extent(env, dir, extent, flushed, version.blobs())?;
    let verify = |extent, on_record: OnRecord<'_>| wal::verify(env, dir, extent, on_record);
    let replayed = replay_with(dir, options, state, extent, verify)?;
    let view = replayed.view(env, options, Arc::new(version));
    let counts = replayed.counts.now(state).collect();
    Ok(Look { view, counts, last_seq: replayed.last_seq })
}

/// The log as an opening takes it: it ends before the first commit with a torn value (recovery.9).
pub(crate) fn sound_extent(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    flushed: SeqNo,
    blobs: &BlobSet,
) -> Result<LogExtent> {
    Ok(LogExtent { ends_before: check_tail(env, dir, extent, flushed, blobs, Tail::Look)?, ..extent })
}

/// Result of [`look_into`].
pub(crate) struct Look {
    pub(crate) view: ReadView,
    pub(crate) counts: BTreeMap<KeyspaceId, u64>,
    pub(crate) last_seq: SeqNo,
}
