//! Descriptions of the tables of a version.

use crate::engine::state::State;
use crate::manifest::level::Level;
use crate::manifest::version::{LiveTable, Run};
use crate::types::key::decode_key;
use crate::types::key_range::End;
use crate::types::{KeyspaceId, SeqNo};

/// A table, which is a file of sorted entries: made by [`Db::tables`](crate::Db::tables). Its entries are
/// versions of keys; removals are entries, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// The number in the name of its file.
    pub file: u64,
    /// Where its run is.
    pub level: TableLevel,
    /// The number of its run. Newer runs of a level have larger numbers.
    pub run: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of distinct keys.
    pub keys: u64,
    /// Number of entries that remove a key.
    pub tombstones: u64,
    /// Number of range removals. Overlapping ones are counted in parts.
    pub range_tombstones: u64,
    /// The oldest and the newest commit that it has entries of.
    pub commits: (SeqNo, SeqNo),
    /// The first key.
    pub first: TableKey,
    /// The last key, or the end of the last range removal if that is greater.
    pub last: TableKey,
    /// Names of the keyspaces from that of the first key to that of the last, without dropped ones.
    pub keyspaces: Vec<String>,
}

/// The level of a table's run. Every level has older entries than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableLevel {
    /// A flushed memtable.
    Flushed,
    /// A tier of compacted runs, from 1. Larger ones have larger runs.
    Tier(u8),
    /// The run below all others.
    Base,
}

/// A key in a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey {
    /// Its keyspace. 0 is the catalog of the keyspaces.
    pub keyspace: KeyspaceId,
    /// The key in it.
    pub key: Vec<u8>,
}

impl TableKey {
    /// Decodes a key. The end of the last keyspace may be no key: it becomes the largest id.
    fn of(encoded: &[u8]) -> Self {
        let (keyspace, key) = decode_key(encoded).unwrap_or((KeyspaceId::new(u32::MAX), &[]));
        TableKey { keyspace, key: key.to_vec() }
    }
}

impl std::fmt::Display for TableLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TableLevel::Flushed => f.write_str("flushed"),
            TableLevel::Tier(tier) => write!(f, "tier {tier}"),
            TableLevel::Base => f.write_str("base"),
        }
    }
}

impl State {
    /// Describes all tables, newest run first, each run in the order of keys.
    pub(crate) fn tables(&self) -> Vec<TableInfo> {
        let mut keyspaces: Vec<(KeyspaceId, String)> =
            self.catalog.all().into_iter().map(|(name, state)| (state.id, name)).collect();
        keyspaces.sort_unstable();
        self.version().tables().map(|(run, live)| info_of(run, live, &keyspaces)).collect()
    }
}

fn info_of(run: &Run, live: &LiveTable, keyspaces: &[(KeyspaceId, String)]) -> TableInfo {
    let (meta, counts) = (&live.meta, &live.meta.counts);
    let (first, last) = (TableKey::of(&meta.range.start), TableKey::of(meta.range.end.key()));
    // The end of a keyspace is the beginning of the next one.
    let is_end = last.key.is_empty() && matches!(meta.range.end, End::Excluded(_));
    let is_within =
        |id: KeyspaceId| first.keyspace <= id && (id < last.keyspace || id == last.keyspace && !is_end);
    let names = keyspaces.iter().filter(|(id, _)| is_within(*id)).map(|(_, name)| name.clone());
    TableInfo {
        file: live.file.get(),
        level: match run.level {
            Level::L0 => TableLevel::Flushed,
            Level::BASE => TableLevel::Base,
            tier => TableLevel::Tier(tier.get()),
        },
        run: run.id.0,
        bytes: meta.file_bytes,
        entries: counts.entries,
        keys: counts.keys,
        tombstones: counts.tombstones,
        range_tombstones: counts.range_tombstones,
        commits: (counts.min_seq, counts.max_seq),
        keyspaces: names.collect(),
        first,
        last,
    }
}
