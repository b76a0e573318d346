//! Finding one key: ask the sources from newest to oldest, stop at the first that knows it.
//!
//! ```text
//!   key --hash--> each memtable's filter, tree --> each run: its one table, filter, index, block
//! ```
//!
//! point.1. The first version found not newer than `at` is the newest (view.1), and the resolver says what it means. Of range tombstones it
//!     hears those of that source and of newer ones: older sources hold only older tombstones over that key.
//! point.2. Whoever looks many keys up in one call repins after every [`LOOKUPS_PER_PIN`]: what look-ups evict from the
//!     block cache stays in memory for as long as their pin.

use crossbeam_epoch::Guard;

use super::fetch;
use super::resolve::{Answer, Resolver};
use super::view::ReadView;
use crate::encoding::hash::key_hash;
use crate::sstable::Table;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// So many keys are looked up under one pin (point.2).
pub const LOOKUPS_PER_PIN: usize = 16;

/// What is to be known of a key.
pub trait Want {
    /// The answer.
    type Out;
    /// Makes it of a live version in a memtable.
    fn of_memtable(stored: Stored<'_>) -> Result<Self::Out>;
    /// The newest version in a table not newer than `at`, and what it makes of it if it is live.
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
    #[inline]
    fn of_memtable(stored: Stored<'_>) -> Result<Value> {
        fetch::copy(stored)
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
        let Some(found) = table.get(key, hash, at, ask_filter, guard)? else { return Ok(None) };
        Ok(Some((found.seq, found.kind, fetch::found(found)?)))
    }
}

impl Want for Presence {
    type Out = ();
    #[inline]
    fn of_memtable(_: Stored<'_>) -> Result<()> {
        Ok(())
    }
    fn probe(table: &Table, key: &[u8], hash: u64, at: SeqNo, _: bool, guard: &Guard) -> Probed<()> {
        Ok(table.find_version(key, hash, at, guard)?.map(|(seq, kind)| (seq, kind, ())))
    }
}

impl ReadView {
    /// Looks an encoded key up as of `at`.
    #[inline]
    pub fn find<W: Want>(&self, key: &[u8], at: SeqNo, guard: &Guard) -> Result<Option<W::Out>> {
        let hash = key_hash(key);
        let mut resolver = Resolver::default();
        for memtable in self.memtables() {
            if memtable.has_range_tombstones() {
                resolver.cover(memtable.range_tombstones().cover(key, at));
            }
            if !memtable.may_contain(hash) {
                continue;
            }
            let mut below = Some(at);
            while let Some(entry) = below.and_then(|at| memtable.get(key, at)) {
                match resolver.feed(entry.seq, entry.kind) {
                    Answer::Live => return W::of_memtable(Stored::new(entry.kind, entry.value)).map(Some),
                    Answer::Gone => return Ok(None),
                    Answer::Older => below = entry.seq.before(),
                }
            }
        }
        for run in self.version.runs() {
            let Some(index) = run.find(key) else { continue };
            let table = &run.tables()[index].table;
            if run.has_range_tombstones() {
                resolver.cover(table.range_tombstones().cover(key, at));
            }
            let mut below = Some(at);
            while let Some(at) = below {
                let found = W::probe(table, key, hash, at, run.probes.filter_pays(), guard)?;
                run.probes.note(hash, found.is_some());
                let Some((seq, kind, out)) = found else { break };
                match resolver.feed(seq, kind) {
                    Answer::Live => return Ok(Some(out)),
                    Answer::Gone => return Ok(None),
                    Answer::Older => below = seq.before(),
                }
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
            if live.meta.counts.max_seq > since {
                newest = newest.max(live.table.range_tombstones().cover(key, SeqNo::MAX));
                newest = newest.max(live.table.newest_seq(key, hash, &guard)?.unwrap_or(SeqNo::ZERO));
            }
        }
        Ok((newest > since).then_some(newest))
    }
}
