//! Keyspaces with a maximum size: commits that remove the oldest entries once a keyspace exceeds it.
//!
//! ```text
//!   sources: bytes, first and last commit --boundary (pure)--> a commit --scan--> keys last written before
//!                                                                `--table, alone in its range--> unread
//! ```
//!
//! engine_oldest.1. A key is removed only if its newest version is not newer than the boundary, and as a
//!     whole. So the keys written after the boundary stay, with everything that their operands build on, and
//!     no older version becomes visible. The commit conflicts with writes made after that was found.
//! - The removals are ordinary commits: counts, snapshots, history, the change feed, replicas and copies see
//!   them as such. While a replay makes the commits of another database, nothing is removed
//!   (engine_sweep.6).
//! - Within a source, bytes count as spread evenly over its commits. The boundary leaves at least seven
//!   eighths of the maximum, as far as this estimate goes.
//! - Versions up to the last boundary are neither counted nor scanned again. What the removals left of them
//!   is garbage until a compaction.
//! - The tables of such keyspaces keep sequence numbers (compaction/rules.rs). Versions without a number are
//!   the oldest, and are removed together.

use std::collections::BTreeSet;

use super::Writes;
use super::sweep::{BATCH_KEYS, Source, Swept, TRIES};
use crate::read::size::bytes_with_blobs;
use crate::read::view::ReadView;
use crate::txn::write_set::WriteSet;
use crate::types::expiry::Expiry;
use crate::types::key::{encode_key, keyspace_end};
use crate::types::key_range::{End, KeyRange};
use crate::types::{KeyspaceId, Result, SeqNo};

/// A keyspace that exceeds its maximum shrinks by one of this many parts of it.
const SLACK_PART: u64 = 8;

/// Bytes written by the commits `from` to `to`.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: SeqNo,
    to: SeqNo,
    bytes: u64,
}

impl Stretch {
    /// Returns the bytes of commits after `after`; of all, if it is `None`.
    fn bytes_after(&self, after: Option<SeqNo>) -> u64 {
        let (from, to) = (self.from.get(), self.to.get());
        match after.map(SeqNo::get) {
            None => self.bytes,
            Some(after) if after < from => self.bytes,
            Some(after) if after >= to => 0,
            Some(after) => {
                let share = u128::from(self.bytes) * u128::from(to - after) / u128::from(to - from + 1);
                share as u64
            }
        }
    }
}

fn bytes_after(stretches: &[Stretch], after: Option<SeqNo>) -> u64 {
    stretches.iter().map(|stretch| stretch.bytes_after(after)).sum()
}

/// Returns the commit up to which entries go, given up to which they have gone; `None` if there is no need.
fn boundary(stretches: &[Stretch], removed_to: Option<SeqNo>, bytes_max: u64) -> Option<SeqNo> {
    if bytes_after(stretches, removed_to) <= bytes_max {
        return None;
    }
    let kept = bytes_max - bytes_max / SLACK_PART;
    let is_kept = |after: u64| bytes_after(stretches, Some(SeqNo::new(after))) >= kept;
    if !is_kept(0) {
        return None;
    }
    let newest = stretches.iter().map(|stretch| stretch.to.get()).max().unwrap_or_default();
    let (mut low, mut high) = (0, newest);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if is_kept(middle) { low = middle } else { high = middle - 1 }
    }
    Some(SeqNo::new(low)).filter(|to| removed_to.is_none_or(|before| *to > before))
}

/// Returns `bytes` without the share of tombstones.
fn live_share(bytes: u64, tombstones: u64, entries: u64) -> u64 {
    let live = u128::from(entries.saturating_sub(tombstones));
    (u128::from(bytes) * live / u128::from(entries.max(1))) as u64
}

/// Returns how many bytes of a range each source holds, and since when.
fn stretches(view: &ReadView, range: &KeyRange) -> Result<Vec<Stretch>> {
    let mut all = Vec::new();
    for memtable in view.memtables() {
        if let (Some(from), Some(to)) = (memtable.min_seq(), memtable.max_seq()) {
            let (removals, entries) = (memtable.removals(), memtable.entries());
            all.push(Stretch {
                from,
                to,
                bytes: live_share(memtable.bytes_within(range), removals, entries),
            });
        }
    }
    for live in view.version.runs().iter().flat_map(|run| run.overlapping(range)) {
        let counts = &live.meta.counts;
        let bytes = live_share(bytes_with_blobs(live, range)?, counts.tombstones, counts.entries);
        all.push(Stretch { from: counts.min_seq, to: counts.max_seq, bytes });
    }
    Ok(all)
}

impl Writes {
    /// Removes the oldest entries of keyspaces that exceed their maximum size. Returns the number of keys.
    pub(super) fn remove_oldest(&self) -> Result<u64> {
        let mut removed = 0;
        for (id, bytes_max) in self.catalog.limited() {
            let range = KeyRange { start: encode_key(id, &[]), end: End::Excluded(keyspace_end(id)) };
            let before = self.sweeper.removed_to.lock().get(&id).copied();
            let stretches = stretches(&self.view.get(), &range)?;
            let Some(to) = boundary(&stretches, before, bytes_max) else { continue };
            let (keys, is_complete) = self.remove_between(id, &range, (before, to))?;
            removed += keys;
            if is_complete {
                self.sweeper.removed_to.lock().insert(id, to);
            }
        }
        Ok(removed)
    }

    /// Removes the keys of a keyspace whose newest version is newer than `after` and not newer than `to`.
    /// Returns their number, and whether these are all.
    fn remove_between(
        &self,
        id: KeyspaceId,
        range: &KeyRange,
        (after, to): (Option<SeqNo>, SeqNo),
    ) -> Result<(u64, bool)> {
        let is_in = |seq: SeqNo| seq <= to && after.is_none_or(|after| seq > after);
        let view = self.view.get();
        let (mut removed, mut is_complete) = (0, true);
        let memtables = view.memtables().filter(|memtable| memtable.min_seq().is_some_and(|seq| seq <= to));
        let tables = view.version.runs().iter().flat_map(|run| run.overlapping(range));
        let tables = tables.filter(|live| {
            let counts = &live.meta.counts;
            counts.min_seq <= to && after.is_none_or(|after| counts.max_seq > after)
        });
        for source in memtables.map(Source::Memtable).chain(tables.map(Source::Table)) {
            if let Source::Table(live) = &source
                && live.meta.counts.max_seq <= to
                && live.meta.counts.tombstones == 0
                && self.remove_whole(live, self.now())?.is_some()
            {
                removed += live.meta.counts.keys;
                continue;
            }
            let mut batch = Vec::<Vec<u8>>::new();
            let mut remove = |batch: &mut Vec<Vec<u8>>| -> Result<()> {
                match self.remove_written_before(id, batch, to)? {
                    Swept::Keys(keys) => removed += keys,
                    Swept::Contended => is_complete = false,
                }
                batch.clear();
                Ok(())
            };
            let mut is_stopped = false;
            source.scan(|entry| {
                if entry.key < range.start.as_slice() {
                    return Ok(true);
                }
                if !range.end.admits(entry.key) {
                    return Ok(false);
                }
                let is_known = batch.last().is_some_and(|last| last == entry.key);
                if is_in(entry.seq) && entry.kind.is_live() && !is_known {
                    batch.push(entry.key.to_vec());
                }
                if batch.len() >= BATCH_KEYS {
                    remove(&mut batch)?;
                    is_stopped = self.signal.stopping();
                }
                Ok(!is_stopped)
            })?;
            if !batch.is_empty() {
                remove(&mut batch)?;
            }
            if is_stopped {
                return Ok((removed, false));
            }
        }
        Ok((removed, is_complete))
    }

    /// Removes those keys that no commit after `to` has written (engine_oldest.1).
    fn remove_written_before(&self, id: KeyspaceId, keys: &[Vec<u8>], to: SeqNo) -> Result<Swept> {
        for _ in 0..TRIES {
            // The number is taken before the view, so that the view has all commits up to it.
            let since = self.snapshot();
            let view = self.view.get();
            let mut set = WriteSet::new();
            for key in keys {
                if view.newest_version(key, to)?.is_none() {
                    set.remove(key);
                }
            }
            let count = set.op_count() as u64;
            if count == 0 {
                return Ok(Swept::Keys(0));
            }
            if self.commit_sweep(set, since, &BTreeSet::from([id]), None, self.now())?.is_some() {
                return Ok(Swept::Keys(count));
            }
        }
        Ok(Swept::Contended)
    }

    fn now(&self) -> Expiry {
        Expiry::at_ms(self.time.now_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_seven_eighths_of_the_newest_bytes_stay() {
        // `FROM-TO:BYTES`, the boundary before, the maximum and the new boundary.
        for (sources, before, bytes_max, expected) in [
            ("", "-", 80, "-"),
            ("1-10:80", "-", 80, "-"),
            ("1-10:81", "-", 80, "1"),
            ("1-10:100", "-", 80, "3"),
            ("1-10:100 11-20:100", "-", 80, "13"),
            ("1-10:100 11-20:100", "13", 80, "-"),
            ("1-10:100 11-20:100", "9", 80, "13"),
            // One commit goes as a whole, or stays.
            ("5-5:1000", "-", 80, "4"),
            ("5-5:1000 6-15:100", "-", 80, "8"),
            // Versions without numbers stay until newer ones suffice.
            ("0-0:1000 1-10:60", "-", 80, "-"),
            ("0-0:1000 1-10:70", "-", 80, "0"),
        ] {
            let seq = |text: &str| text.parse().ok().map(SeqNo::new);
            let stretch = |word: &str| {
                let (span, bytes) = word.split_once(':').unwrap();
                let (from, to) = span.split_once('-').unwrap();
                Stretch { from: seq(from).unwrap(), to: seq(to).unwrap(), bytes: bytes.parse().unwrap() }
            };
            let all: Vec<_> = sources.split_whitespace().map(stretch).collect();
            let found = boundary(&all, seq(before), bytes_max);
            assert_eq!(found, seq(expected), "engine_oldest.1: {sources} after {before}");
        }
    }
}
