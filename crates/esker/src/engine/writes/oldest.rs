//! Keyspaces with a maximum size: commits that remove the oldest entries once a keyspace exceeds it.
//!
//! ```text
//!   all versions may exceed it --scan--> live bytes by commit --boundary (pure)--> a commit
//!                                                                                    |
//!   keys last written up to it <--scan; a table alone in its range: unread ----------'
//! ```
//!
//! engine_oldest.1. A key is removed only if its newest version is not newer than the boundary, and as a
//!     whole. So the keys written after the boundary stay, with everything that their operands build on, and
//!     no older version becomes visible. The commit conflicts with writes made after that was found.
//!
//! - Only live entries count. Overwritten and removed versions never cost a live one.
//! - The removals are ordinary commits: counts, snapshots, history, the change feed, replicas and copies see
//!   them as such. While a replay makes the commits of another database, nothing is removed.
//! - The boundary leaves at least seven eighths of the maximum, unless more were written by one commit.
//! - The live bytes are measured by reading the whole keyspace, past the cache. That is repeated once the
//!   keyspace may exceed its maximum and has grown by a sixteenth of it.
//! - The tables of such keyspaces keep sequence numbers (compaction/rules.rs). Versions without a number are
//!   the oldest, and are removed together.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Writes;
use super::sweep::{BATCH_KEYS, Swept, TRIES};
use crate::blob::BlobPointer;
use crate::compaction::merge::{MergeScan, Source};
use crate::manifest::version::LiveTable;
use crate::read::cover::Cover;
use crate::read::size::bytes_with_blobs;
use crate::read::view::ReadView;
use crate::txn::write_set::WriteSet;
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::expiry::{Expiry, value_of};
use crate::types::key::{encode_key, keyspace_end};
use crate::types::key_range::{End, KeyRange};
use crate::types::{KeyspaceId, Result, SeqNo};

/// A keyspace that exceeds its maximum shrinks by one of this many parts of it.
const SLACK_PART: u64 = 8;
/// A keyspace is measured again once it may have grown by one of this many parts of its maximum.
const GROWTH_PART: u64 = 16;
/// Bytes that an entry takes in a block beside its key and its value, about.
const FRAME_BYTES: u64 = 16;
/// An entry counts at most this many times its bytes before compression.
const SHARE_MAX: f64 = 2.0;
/// Maximum number of stretches that a measurement keeps apart.
const STRETCHES_MAX: usize = 4096;

/// Bytes written by the commits `from` to `to`.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: SeqNo,
    to: SeqNo,
    bytes: u64,
}

impl Stretch {
    /// Returns the bytes of commits after `after`, as if spread evenly.
    fn bytes_after(&self, after: SeqNo) -> u64 {
        let (from, to, after) = (self.from.get(), self.to.get(), after.get());
        if after < from {
            self.bytes
        } else if after >= to {
            0
        } else {
            (u128::from(self.bytes) * u128::from(to - after) / u128::from(to - from + 1)) as u64
        }
    }
}

fn bytes_after(stretches: &[Stretch], after: SeqNo) -> u64 {
    stretches.iter().map(|stretch| stretch.bytes_after(after)).sum()
}

fn bytes_of(stretches: &[Stretch]) -> u64 {
    stretches.iter().map(|stretch| stretch.bytes).sum()
}

/// Returns the commit up to which entries go; `None` if there is no need.
fn boundary(stretches: &[Stretch], bytes_max: u64) -> Option<SeqNo> {
    if bytes_of(stretches) <= bytes_max {
        return None;
    }
    let kept = bytes_max - bytes_max / SLACK_PART;
    let is_kept = |after: u64| bytes_after(stretches, SeqNo::new(after)) >= kept;
    if !is_kept(0) {
        return None;
    }
    let newest = stretches.iter().map(|stretch| stretch.to.get()).max().unwrap_or_default();
    let (mut low, mut high) = (0, newest);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if is_kept(middle) { low = middle } else { high = middle - 1 }
    }
    Some(SeqNo::new(low))
}

/// Adds the bytes of a commit. Joins neighbours if there are too many stretches.
fn add(stretches: &mut Vec<Stretch>, seq: SeqNo, bytes: u64) {
    if stretches.len() >= STRETCHES_MAX {
        stretches.sort_unstable_by_key(|stretch| (stretch.from, stretch.to));
        let join = |pair: &[Stretch]| Stretch {
            from: pair[0].from,
            to: pair.iter().map(|stretch| stretch.to).max().unwrap_or_default(),
            bytes: bytes_of(pair),
        };
        *stretches = stretches.chunks(2).map(join).collect();
    }
    stretches.push(Stretch { from: seq, to: seq, bytes });
}

/// What a measurement of a keyspace found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// The newest commit at that time.
    at: SeqNo,
    /// Bytes of live entries, without those removed since.
    live: u64,
    /// Bytes of all versions.
    stored: u64,
}

/// Returns how many bytes of a range each source holds, and since when.
fn stored(view: &ReadView, range: &KeyRange) -> Result<Vec<Stretch>> {
    let mut all = Vec::new();
    for memtable in view.memtables() {
        if let (Some(from), Some(to)) = (memtable.min_seq(), memtable.max_seq()) {
            all.push(Stretch { from, to, bytes: memtable.bytes_within(range) });
        }
    }
    for live in view.version.runs().iter().flat_map(|run| run.overlapping(range)) {
        let counts = &live.meta.counts;
        all.push(Stretch { from: counts.min_seq, to: counts.max_seq, bytes: bytes_with_blobs(live, range)? });
    }
    Ok(all)
}

/// Returns the bytes of a version before compression, with its frame, and those of its value in a blob file.
fn bytes_of_version(entry: &EntryRef<'_>) -> (u64, u64) {
    let blob = match entry.kind.needs_fetch() {
        true => BlobPointer::decode(value_of(entry.kind, entry.value)).map_or(0, |pointer| pointer.stored),
        false => 0,
    };
    (FRAME_BYTES + (entry.key.len() + entry.value.len()) as u64, blob)
}

/// Returns how much more or less than its entries a run takes on disk. Tombstones have their own share. Live
/// entries are not charged for more than that, such as range removals in small tables.
fn share_of(tables: &[Arc<LiveTable>]) -> f64 {
    let counts = tables.iter().map(|live| &live.meta.counts);
    let uncompressed: u64 =
        counts.map(|counts| counts.key_bytes + counts.value_bytes + counts.entries * FRAME_BYTES).sum();
    let bytes: u64 = tables.iter().map(|live| live.meta.file_bytes).sum();
    (bytes as f64 / uncompressed.max(1) as f64).min(SHARE_MAX)
}

/// Passes the live keys of a range, each with the commit of its newest version and an estimate of its bytes
/// on disk, to `each` until it returns false.
fn scan_live(
    view: &ReadView,
    range: &KeyRange,
    mut each: impl FnMut(&[u8], SeqNo, u64) -> Result<bool>,
) -> Result<()> {
    let (mut sources, mut ratios) = (Vec::new(), Vec::new());
    for memtable in view.memtables() {
        let mut scan = memtable.scan();
        scan.seek(&range.start);
        sources.push(Source::Memtable(scan));
        ratios.push(1.0);
    }
    for run in view.version.runs() {
        let tables = run.overlapping(range);
        ratios.push(share_of(tables));
        sources.push(Source::run(tables.iter().map(|live| live.table.clone()).collect()));
    }
    let mut scan = MergeScan::new(sources)?;
    let mut cover = Cover::new(view.tombstones(Vec::new()), SeqNo::MAX);
    // The current key, its commit and bytes if it is live, and whether older versions belong to its value.
    let (mut key, mut live, mut has_operands) = (Vec::new(), None::<(SeqNo, u64)>, false);
    loop {
        let next = scan.next()?.filter(|entry| range.end.admits(entry.key));
        let is_new = next.is_none_or(|entry| entry.key != key.as_slice());
        if is_new
            && let Some((seq, bytes)) = live.take()
            && !each(&key, seq, bytes)?
        {
            return Ok(());
        }
        let Some(entry) = next else { return Ok(()) };
        if entry.key < range.start.as_slice() {
            continue;
        }
        let is_shown =
            entry.kind.is_live() && (is_new || has_operands) && cover.newest(entry.key) <= entry.seq;
        has_operands = is_shown && entry.kind.is_operand();
        if is_new {
            key.clear();
            key.extend_from_slice(entry.key);
        }
        if is_shown {
            let (seq, (inline, blob)) = (entry.seq, bytes_of_version(&entry));
            let bytes = (inline as f64 * ratios[scan.rank()]) as u64 + blob;
            let (newest, sum) = live.unwrap_or((seq, 0));
            live = Some((newest, sum + bytes));
        }
    }
}

impl Writes {
    /// Removes the oldest entries of keyspaces that exceed their maximum size. Returns the number of keys.
    pub(super) fn remove_oldest(&self) -> Result<u64> {
        let mut removed = 0;
        for (id, bytes_max) in self.catalog.limited() {
            removed += self.remove_oldest_of(id, bytes_max)?;
        }
        Ok(removed)
    }

    fn remove_oldest_of(&self, id: KeyspaceId, bytes_max: u64) -> Result<u64> {
        let bytes_max = if canary::is_set(Canary::OldestRemovedEarly) { bytes_max / 4 } else { bytes_max };
        let range = KeyRange { start: encode_key(id, &[]), end: End::Excluded(keyspace_end(id)) };
        let view = self.view.get();
        let in_sources = stored(&view, &range)?;
        let stored = bytes_of(&in_sources);
        if stored <= bytes_max {
            return Ok(0);
        }
        if let Some(before) = self.sweeper.measured.lock().get(&id) {
            let grown = bytes_after(&in_sources, before.at).max(stored.saturating_sub(before.stored));
            if before.live.saturating_add(grown) <= bytes_max || grown < bytes_max / GROWTH_PART {
                return Ok(0);
            }
        }
        let at = view.newest_possible();
        let mut live = Vec::new();
        let mut is_stopped = false;
        scan_live(&view, &range, |_, seq, bytes| {
            add(&mut live, seq, bytes);
            is_stopped = self.signal.stopping();
            Ok(!is_stopped)
        })?;
        if is_stopped {
            return Ok(0);
        }
        let (removed, left) = match boundary(&live, bytes_max) {
            Some(to) => {
                let (removed, is_complete) = self.remove_written_up_to(id, &range, to)?;
                (removed, is_complete.then(|| bytes_after(&live, to)))
            }
            None => (0, Some(bytes_of(&live))),
        };
        let mut measured = self.sweeper.measured.lock();
        match left {
            Some(live) => drop(measured.insert(id, Measured { at, live, stored })),
            None => drop(measured.remove(&id)),
        }
        Ok(removed)
    }

    /// Removes the keys of a keyspace whose newest version is not newer than `to`. Returns their number, and
    /// whether these are all.
    fn remove_written_up_to(&self, id: KeyspaceId, range: &KeyRange, to: SeqNo) -> Result<(u64, bool)> {
        let (mut removed, mut is_complete) = (0, true);
        for live in self.view.get().version.runs().iter().flat_map(|run| run.overlapping(range)) {
            let counts = &live.meta.counts;
            if counts.max_seq <= to
                && counts.tombstones == 0
                && self.remove_whole(live, self.now())?.is_some()
            {
                removed += counts.keys;
            }
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
        scan_live(&self.view.get(), range, |key, seq, _| {
            if seq <= to {
                batch.push(key.to_vec());
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
        Ok((removed, is_complete && !is_stopped))
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
        // `FROM-TO:BYTES`, the maximum and the boundary.
        for (sources, bytes_max, expected) in [
            ("", 80, "-"),
            ("1-10:80", 80, "-"),
            ("1-10:81", 80, "1"),
            ("1-10:100", 80, "3"),
            ("1-10:100 11-20:100", 80, "13"),
            // One commit goes as a whole, or stays.
            ("5-5:1000", 80, "4"),
            ("5-5:1000 6-15:100", 80, "8"),
            // Versions without numbers stay until newer ones suffice.
            ("0-0:1000 1-10:60", 80, "-"),
            ("0-0:1000 1-10:70", 80, "0"),
        ] {
            let seq = |text: &str| text.parse().ok().map(SeqNo::new);
            let stretch = |word: &str| {
                let (span, bytes) = word.split_once(':').unwrap();
                let (from, to) = span.split_once('-').unwrap();
                Stretch { from: seq(from).unwrap(), to: seq(to).unwrap(), bytes: bytes.parse().unwrap() }
            };
            let all: Vec<_> = sources.split_whitespace().map(stretch).collect();
            assert_eq!(boundary(&all, bytes_max), seq(expected), "engine_oldest.1: {sources}");
        }
    }

    #[test]
    fn joined_stretches_keep_the_order_of_many_commits() {
        let mut all = Vec::new();
        // Multiplication by an odd number is a permutation of the commits.
        (0..1_u64 << 16).for_each(|n| add(&mut all, SeqNo::new(n.wrapping_mul(40_503) % (1 << 16)), 10));
        assert!(all.len() <= STRETCHES_MAX && bytes_of(&all) == 10 << 16);
        let to = boundary(&all, 8 << 16).unwrap().get();
        assert!((19_500..19_800).contains(&to), "{to} of {}", 1 << 16);
    }
}
