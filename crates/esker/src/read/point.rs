//! Finding one key: ask the sources from newest to oldest, stop at the first that knows it.
//!
//! ```text
//!   key --hash--> each memtable's filter, tree --> each run: its one table, filter, index, block
//! ```
//!
//! P1. The first version found not newer than `at` is the newest (RV1). It counts unless a range tombstone of that
//!     source or of a newer one, visible at `at`, has a larger sequence number (RT2): older sources hold only older
//!     tombstones over that key.
//! P2. Whoever looks many keys up in one call repins after every [`LOOKUPS_PER_PIN`]: what look-ups evict from the
//!     block cache stays in memory for as long as their pin.

use crossbeam_epoch::Guard;

use super::view::ReadView;
use crate::encoding::hash::key_hash;
use crate::sstable::Table;
use crate::types::entry::Kind;
use crate::types::{Result, SeqNo, Value};

/// So many keys are looked up under one pin (P2).
pub const LOOKUPS_PER_PIN: usize = 16;

/// What is to be known of a key.
pub trait Want {
    /// The answer.
    type Out;
    /// Makes it of a put in a memtable.
    fn copy(value: &[u8]) -> Self::Out;
    /// The newest version in a table not newer than `at`, and what it makes of a put.
    fn probe(
        table: &Table,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        ask_filter: bool,
        guard: &Guard,
    ) -> Probed<Self::Out>;
}

/// A version found in a table.
type Probed<T> = Result<Option<(SeqNo, Kind, T)>>;

/// Its value.
pub struct ValueOf;
/// Whether it is there.
pub struct Presence;

impl Want for ValueOf {
    type Out = Value;
    fn copy(value: &[u8]) -> Value {
        Value::copy_of(value)
    }
    #[inline]
    fn probe(
        table: &Table,
        key: &[u8],
        hash: u64,
        at: SeqNo,
        ask_filter: bool,
        guard: &Guard,
    ) -> Probed<Value> {
        Ok(table.get(key, hash, at, ask_filter, guard)?.map(|found| (found.seq, found.kind, found.value)))
    }
}

impl Want for Presence {
    type Out = ();
    fn copy(_: &[u8]) {}
    fn probe(table: &Table, key: &[u8], hash: u64, at: SeqNo, _: bool, guard: &Guard) -> Probed<()> {
        Ok(table.find_version(key, hash, at, guard)?.map(|(seq, kind)| (seq, kind, ())))
    }
}

impl ReadView {
    /// Looks an encoded key up as of `at`.
    #[inline]
    pub fn find<W: Want>(&self, key: &[u8], at: SeqNo, guard: &Guard) -> Result<Option<W::Out>> {
        let hash = key_hash(key);
        let mut deleted = SeqNo::ZERO;
        for memtable in self.memtables() {
            if memtable.has_range_tombstones() {
                deleted = deleted.max(memtable.range_tombstones().cover(key, at));
            }
            if !memtable.may_contain(hash) {
                continue;
            }
            if let Some(entry) = memtable.get(key, at) {
                let live = entry.kind == Kind::Put && entry.seq >= deleted;
                return Ok(live.then(|| W::copy(entry.value)));
            }
        }
        for run in self.version.runs() {
            let Some(index) = run.find(key) else { continue };
            let table = &run.tables()[index].table;
            if run.has_range_tombstones() {
                deleted = deleted.max(table.range_tombstones().cover(key, at));
            }
            let found = W::probe(table, key, hash, at, run.probes.filter_pays(), guard)?;
            run.probes.note(hash, found.is_some());
            if let Some((seq, kind, out)) = found {
                let live = kind == Kind::Put && seq >= deleted;
                return Ok(live.then_some(out));
            }
        }
        Ok(None)
    }

    /// The newest commit that wrote or removed an encoded key, if it is newer than `since`. For conflict checks.
    pub fn newest_write(&self, key: &[u8], since: SeqNo) -> Result<Option<SeqNo>> {
        let hash = key_hash(key);
        let guard = crate::sync::pin();
        let mut newest = SeqNo::ZERO;
        for memtable in self.memtables() {
            if memtable.has_range_tombstones() {
                newest = newest.max(memtable.range_tombstones().cover(key, SeqNo::MAX));
            }
            if memtable.may_contain(hash) {
                newest = newest.max(memtable.newest_seq(key).unwrap_or(SeqNo::ZERO));
            }
        }
        for run in self.version.runs().iter().filter(|run| run.max_seq() > since) {
            let Some(index) = run.find(key) else { continue };
            let live = &run.tables()[index];
            if live.meta.max_seq > since {
                newest = newest.max(live.table.range_tombstones().cover(key, SeqNo::MAX));
                newest = newest.max(live.table.newest_seq(key, hash, &guard)?.unwrap_or(SeqNo::ZERO));
            }
        }
        Ok((newest > since).then_some(newest))
    }
}
