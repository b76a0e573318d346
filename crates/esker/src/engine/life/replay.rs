//! Replay: applies the commits of the log that no table has (open.2 of open.rs).
//!
//! ```text
//!   wal::recover --record--> payload::decode --> active memtable --full--> immutable memtables
//!                                   `--> counts      manifest: adopted commits without a record --> counts
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use esker_env::Env;

use crate::blob::BlobSet;
use crate::engine::base::options::Options;
use crate::engine::disk::blobs::{Tail, check_tail};
use crate::engine::life::open::progress::Progress;
use crate::manifest::edit::{Adopted, VersionEdit};
use crate::manifest::file_name::CURRENT;
use crate::manifest::version::Version;
use crate::memtable::{Applier, Memtable};
use crate::read::operators::Operators;
use crate::read::skip_ranges::SkipRanges;
use crate::read::time::Time;
use crate::read::view::ReadView;
use crate::txn::memtables::Sealed;
use crate::txn::{apply, payload};
use crate::types::{Error, KeyspaceId, Result, SeqNo};
use crate::wal::{self, LogExtent, Recovered};

/// What the log adds to the tables.
pub(in crate::engine) struct Replayed {
    pub(in crate::engine) active: Arc<Memtable>,
    pub(in crate::engine) applier: Applier,
    pub(in crate::engine) sealed: Vec<Sealed>,
    pub(in crate::engine) counts: ReplayedCounts,
    pub(in crate::engine) last_seq: SeqNo,
    pub(in crate::engine) commits: u64,
    pub(in crate::engine) log: Recovered,
    /// Adopted commits without a log record.
    pub(in crate::engine) unlogged: Vec<Adopted>,
}

impl Replayed {
    /// Creates the state before the replay, in which the tables end with commit `last_seq`.
    fn new(last_seq: SeqNo, memtable_bytes: usize) -> Replayed {
        let active = Arc::new(Memtable::new(memtable_bytes));
        Replayed {
            applier: active.applier(),
            active,
            sealed: Vec::new(),
            counts: ReplayedCounts::default(),
            last_seq,
            commits: 0,
            log: Recovered::default(),
            unlogged: Vec::new(),
        }
    }

    /// Applies the next commit of the log.
    fn add(&mut self, seq: SeqNo, record: Cow<'_, [u8]>, state: &VersionEdit) -> Result<(), String> {
        if seq != self.last_seq.next() {
            return Err(format!("commit {seq} follows commit {}", self.last_seq));
        }
        let decoded = payload::decode(record);
        let (deltas, set) = decoded.map_err(|e| format!("commit {seq}, byte {}: {}", e.offset, e.detail))?;
        // adopt.4
        if set.is_empty() && state.adopted.iter().all(|adopted| adopted.seq != seq) {
            return Err(format!(
                "the writes of commit {seq} are in tables that the manifest does not name: it has lost its end"
            ));
        }
        self.counts.add(state, seq, &deltas)?;
        apply::apply(&set, &[], seq, &self.active, &mut self.applier);
        self.last_seq = seq;
        self.commits += 1;
        Ok(())
    }

    /// Seals the active memtable if it is full. The log from `wal_from` on is needed without it. The segment
    /// need not be exact: it is released together with the log of the last memtable.
    fn seal_full(&mut self, memtable_bytes: usize, wal_from: u64) {
        if self.active.is_empty() || self.active.bytes_used() < memtable_bytes {
            return;
        }
        let active = Arc::new(Memtable::new(memtable_bytes));
        self.applier = active.applier();
        self.sealed.push(Sealed {
            memtable: std::mem::replace(&mut self.active, active),
            last_seq: self.last_seq,
            counts: self.counts.seal(),
            beside_bytes: 0,
            wal_from,
        });
    }

    /// Adds the adopted commits without a log record. The error says which one the manifest
    /// describes wrongly.
    fn add_unlogged(&mut self, state: &VersionEdit) -> Result<(), String> {
        while let Some(adopted) = state.adopted.iter().find(|adopted| adopted.seq == self.last_seq.next()) {
            self.counts.add(state, adopted.seq, &adopted.deltas)?;
            self.last_seq = adopted.seq;
            self.unlogged.push(adopted.clone());
        }
        let last = self.last_seq;
        match state.adopted.iter().find(|adopted| adopted.seq > last) {
            Some(lost) => {
                Err(format!("commit {} was adopted behind commit {last}, which is not there", lost.seq))
            }
            None => Ok(()),
        }
    }

    /// The first view: the replayed memtables above these tables.
    pub(super) fn view(&self, env: &Env, options: &Options, version: Arc<Version>) -> ReadView {
        ReadView {
            active: self.active.clone(),
            immutables: self.sealed.iter().rev().map(|sealed| sealed.memtable.clone()).collect(),
            version,
            closed: Arc::default(),
            known: Arc::default(),
            skip_ranges: Arc::new(SkipRanges::of_database_at(self.last_seq)),
            time: Arc::new(Time::new(env.clock.clone())),
            operators: Arc::new(Operators::new(options.operators().clone())),
        }
    }
}

/// Replays the log after the tables, so that new commits can continue it.
pub(in crate::engine::life) fn replay(
    (env, dir): (&Env, &Path),
    options: &Options,
    state: &VersionEdit,
    blobs: &BlobSet,
    mut progress: Progress,
) -> Result<Replayed> {
    let extent = state.log_extent();
    let flushed = state.flushed_seq.unwrap_or_default();
    let ends_before = check_tail(env, dir, extent, flushed, blobs, Tail::Store)?;
    let extent = LogExtent { ends_before, ..extent };
    if progress.is_on() {
        progress.begin(wal::bytes_from(env, dir, extent.from)?);
    }
    replay_with(dir, options, state, extent, |extent, on_record| {
        wal::recover(env, dir, extent, |seq, record| {
            let bytes = record.len() as u64;
            on_record(seq, record)?;
            progress.add(bytes);
            Ok(())
        })
    })
}

/// The counts that the log changes.
#[derive(Default)]
pub(in crate::engine) struct ReplayedCounts {
    changed: BTreeMap<KeyspaceId, u64>,
    /// Keyspaces changed since the last memtable was sealed.
    pub(in crate::engine) unsealed: BTreeSet<KeyspaceId>,
}

impl ReplayedCounts {
    /// Adds the changes of a commit. Fails if a count would fall below zero.
    fn add(&mut self, state: &VersionEdit, seq: SeqNo, deltas: &[(KeyspaceId, i64)]) -> Result<(), String> {
        for &(id, delta) in deltas {
            let flushed = || {
                let counts = state.counts.all.as_deref().unwrap_or_default();
                counts.binary_search_by_key(&id, |counted| counted.0).map_or(0, |at| counts[at].1)
            };
            let count = self.changed.entry(id).or_insert_with(flushed);
            let changed = count.checked_add_signed(delta);
            *count = changed.ok_or_else(|| format!("commit {seq}: keyspace {id} would count below zero"))?;
            self.unsealed.insert(id);
        }
        Ok(())
    }

    /// The changed counts for a memtable that is sealed now.
    fn seal(&mut self) -> Vec<(KeyspaceId, u64)> {
        std::mem::take(&mut self.unsealed).into_iter().map(|id| (id, self.changed[&id])).collect()
    }

    /// All counts.
    pub(in crate::engine) fn now<'a>(
        &'a self,
        state: &'a VersionEdit,
    ) -> impl Iterator<Item = (KeyspaceId, u64)> + 'a {
        let flushed = state.counts.all.iter().flatten().copied();
        let others = flushed.filter(|counted| !self.changed.contains_key(&counted.0));
        others.chain(self.changed.iter().map(|(&id, &count)| (id, count)))
    }
}

/// Receives a commit of the log.
pub(in crate::engine) type OnRecord<'a> = &'a mut dyn FnMut(SeqNo, Cow<'_, [u8]>) -> Result<(), String>;

/// Replays the log that `recover` reads.
pub(in crate::engine) fn replay_with(
    dir: &Path,
    options: &Options,
    state: &VersionEdit,
    extent: LogExtent,
    recover: impl FnOnce(LogExtent, OnRecord<'_>) -> Result<Recovered>,
) -> Result<Replayed> {
    let flushed = state.flushed_seq.unwrap_or_default();
    let mut out = Replayed::new(flushed, options.memtable_bytes);
    out.log = recover(extent, &mut |seq, record| {
        if seq <= flushed {
            return Ok(());
        }
        out.seal_full(options.memtable_bytes, extent.from);
        out.add(seq, record, state)
    })?;
    let added = out.add_unlogged(state);
    added.map_err(|detail| Error::corrupt("manifest", dir.join(CURRENT), 0, detail))?;
    // No later memtable will release the log, so the last one does.
    if let (true, Some(last)) = (out.active.is_empty(), out.sealed.last_mut()) {
        last.last_seq = out.last_seq;
        last.counts.extend(out.counts.seal());
        last.wal_from = out.log.next_segment;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Blobs;
    use crate::{BackgroundStep, Db};
    use esker_env::MemFs;

    #[test]
    fn a_flush_behind_an_opening_gives_up_the_log_though_its_last_commit_has_its_writes_in_tables() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let dir = Path::new("db");
        let open = |bytes| {
            let builder = Db::builder().stepped().adoption_bytes(4 << 10).tuning(|t| t.memtable_bytes(bytes));
            builder.blobs(Blobs::Never).env(env.clone()).open(dir).unwrap()
        };
        let db = open(1 << 20);
        let map = db.default_keyspace();
        for n in 0..5_u8 {
            map.put([n], vec![n; 2000]).unwrap();
        }
        let mut transaction = db.begin();
        for n in 100..200_u8 {
            transaction.put(&map, [n], vec![n; 1000]).unwrap();
        }
        transaction.commit().unwrap();
        db.close().unwrap();
        // What was replayed is sealed, and nothing follows it.
        let db = open(1000);
        assert_eq!((db.stats().memtables_sealed, db.stats().recovered_commits), (5, 6));
        while db.step(BackgroundStep::Flush).unwrap() {}
        let names = env.fs.list_dir(dir).unwrap();
        assert!(!names.iter().any(|name| name.ends_with(".wal")), "{names:?}");
        db.close().unwrap();
        let db = open(1000);
        assert_eq!((db.default_keyspace().iter().count(), db.stats().recovered_commits), (105, 0));
    }
}
