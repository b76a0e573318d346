//! Computes how a commit changes the live counts.
//!
//! counts.1. `len()` is exact. For every written key, the commit looks up in memory whether the key was live
//!     just before, in key order; filters answer most lookups. It does so under the commit lock, or before it
//!     if nothing wrote the key since (ahead.1).
//! counts.3. If a lookup would have to read a file, the key counts as new and its version is unresolved.
//!     `len()`, or the compaction that meets the older version, resolves it (read/unresolved.rs,
//!     compaction_judge.6). A commit therefore never reads files to count, unless there are more unresolved
//!     versions than [`UNRESOLVED_MIN`] and than a fraction of all versions.
//!
//! The filters are probed for a batch of keys before any of these is looked up, so that cache misses overlap.
//! A key in no filter costs nothing more.

use std::ops::Bound;

use super::range_count::RangeCounts;
use super::snapshots::SnapshotGuard;
use super::write_set::{CountDeltas, WriteSet};
use crate::encoding::hash::key_hash;
use crate::read::point::{CountedPresence, LOOKUPS_PER_PIN};
use crate::read::view::ReadView;
use crate::types::bounds::Bounds;
use crate::types::canary::{self, Canary};
use crate::types::entry::EntryRef;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::{Cached, KeyspaceId, Result, SeqNo};

/// Number of unresolved versions that are always allowed (counts.3). Resolving them takes about a second.
const UNRESOLVED_MIN: u64 = 1 << 20;
/// More are allowed up to `1 / UNRESOLVED_PART` of all versions.
const UNRESOLVED_PART: u64 = 2;

/// Whether a key is live before a commit writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is not live.
    Absent,
    /// It is live.
    Live,
    /// A file would have to be read (counts.3).
    Unknown,
}

/// How a commit finds out whether a key exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Looks the key up, reading tables if necessary.
    Read,
    /// Looks the key up in memory.
    Memory,
    /// Does not look the key up.
    None,
    /// Was looked up before.
    Known(Presence),
}

impl Effort {
    /// Returns the effort for keyspaces that count exactly (counts.3).
    pub(crate) fn of(view: &ReadView) -> Self {
        let unresolved = view.unresolved();
        let is_much = unresolved > UNRESOLVED_MIN && unresolved > view.version.entries() / UNRESOLVED_PART;
        if is_much { Effort::Read } else { Effort::Memory }
    }
}

/// How a commit changes the counts.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Change per keyspace, without unchanged ones.
    pub(crate) deltas: CountDeltas,
    /// Indexes, in key order, of the entries that are unresolved.
    pub(crate) unresolved: Vec<u32>,
}

/// Returns how `set` changes the live counts at `at` (counts.1). `count` returns the live count of a whole
/// keyspace.
pub fn count_deltas(
    set: &WriteSet,
    view: &ReadView,
    at: SeqNo,
    count: impl Fn(KeyspaceId) -> Result<u64>,
) -> Result<CountDeltas> {
    counted(set, view, at, |_, _| Effort::Read, count, None).map(|counted| counted.deltas)
}

/// Like `count_deltas`, with an effort for each place in key order and its encoded key.
pub(crate) fn counted(
    set: &WriteSet,
    view: &ReadView,
    at: SeqNo,
    effort: impl Fn(usize, &[u8]) -> Effort,
    count: impl Fn(KeyspaceId) -> Result<u64>,
    ranges: Option<&RangeCounts>,
) -> Result<Counted> {
    let mut deltas = Deltas::default();
    let mut unresolved = Vec::new();
    live_in_ranges(set.ranges(), view, at, count, ranges, &mut deltas)?;
    let mut places = 0_u32..;
    look_up(set, view, at, effort, |entry, _, presence| {
        let place = places.next().expect("a write set has fewer ops than that");
        if presence == Presence::Unknown {
            unresolved.push(place);
        }
        let change = i64::from(entry.kind.is_live()) - i64::from(presence == Presence::Live);
        if change != 0 && !(change < 0 && canary::is_set(Canary::CountNotUpdated)) {
            let (keyspace, _) = decode_key(entry.key).expect("a write set holds encoded keys");
            deltas.add(keyspace, change);
        }
    })?;
    Ok(Counted { deltas: deltas.sums(), unresolved })
}

/// Passes each entry with the hash of its key to `found`, and whether the key is live at `at`. The hash of a
/// known key is 0.
pub(super) fn look_up<'s>(
    set: &'s WriteSet,
    view: &ReadView,
    at: SeqNo,
    effort: impl Fn(usize, &[u8]) -> Effort,
    mut found: impl FnMut(&EntryRef<'s>, u64, Presence),
) -> Result<()> {
    let mut guard = crate::sync::pin();
    let mut entries = set.entries(SeqNo::MAX);
    let mut places = 0..;
    loop {
        // Probe the filters for a batch, so that cache misses overlap.
        let mut asked = [(0, Effort::None); LOOKUPS_PER_PIN];
        for ((asked, entry), place) in asked.iter_mut().zip(entries.clone()).zip(&mut places) {
            *asked = match effort(place, entry.key) {
                known @ Effort::Known(_) => (0, known),
                effort => {
                    let hash = key_hash(entry.key);
                    let may_be_there = view.may_contain(entry.key, hash, &guard);
                    (hash, if may_be_there { effort } else { Effort::Known(Presence::Absent) })
                }
            };
        }
        let keys = entries.clone().map(|entry| entry.key).zip(&asked);
        let keys = keys.filter(|(_, asked)| matches!(asked.1, Effort::Read | Effort::Memory));
        if keys.clone().nth(1).is_some() {
            view.warm(keys.map(|(key, asked)| (key, asked.0)));
        }
        let mut left = LOOKUPS_PER_PIN;
        for (&(hash, effort), entry) in asked.iter().zip(entries.by_ref()) {
            left -= 1;
            let live = match effort {
                Effort::Known(presence) => {
                    found(&entry, hash, presence);
                    continue;
                }
                _ if set.in_removed_range(entry.key) => Some(false),
                Effort::Read => {
                    Some(view.find_hashed::<CountedPresence>(entry.key, hash, at, &guard)?.is_some())
                }
                Effort::Memory => {
                    match view.find_in_memory::<CountedPresence>(entry.key, hash, at, &guard)? {
                        Cached::Value(_) => Some(true),
                        Cached::Absent => Some(false),
                        Cached::NotCached => None,
                    }
                }
                Effort::None => None,
            };
            let presence = match live {
                Some(true) => Presence::Live,
                Some(false) => Presence::Absent,
                None => Presence::Unknown,
            };
            found(&entry, hash, presence);
        }
        if left > 0 {
            return Ok(());
        }
        guard.repin();
    }
}

/// Subtracts the live keys of the removed ranges from the counts.
pub(super) fn live_in_ranges(
    ranges: &[(Vec<u8>, Vec<u8>)],
    view: &ReadView,
    at: SeqNo,
    count: impl Fn(KeyspaceId) -> Result<u64>,
    counted: Option<&RangeCounts>,
    deltas: &mut Deltas,
) -> Result<()> {
    for (keyspace, start, end) in parts(ranges) {
        let known = match (is_whole(keyspace, &start, &end), counted) {
            (true, _) => Some(count(keyspace)?),
            (false, Some(counted)) => counted.live_now(&start, &end, view)?,
            (false, None) => None,
        };
        let live = known.map_or_else(|| live_in(view, at, start, end), Ok)?;
        deltas.add(keyspace, -(live as i64));
    }
    Ok(())
}

/// Counts the live keys of ranges that are not whole keyspaces, at a pinned sequence number. `None` if there
/// are none.
pub(crate) fn count_ranges(
    ranges: &[(Vec<u8>, Vec<u8>)],
    view: &ReadView,
    since: SnapshotGuard,
) -> Result<Option<RangeCounts>> {
    let parts = parts(ranges).filter(|(keyspace, start, end)| !is_whole(*keyspace, start, end));
    let live = parts.map(|(_, start, end)| {
        let live = live_in(view, since.seq(), start.clone(), end.clone())?;
        Ok((start, end, live))
    });
    let ranges = live.collect::<Result<Vec<_>>>()?;
    Ok((!ranges.is_empty()).then_some(RangeCounts { since, ranges }))
}

fn is_whole(keyspace: KeyspaceId, start: &[u8], end: &[u8]) -> bool {
    start == encode_key(keyspace, &[]) && end == keyspace_end(keyspace)
}

/// Splits ranges into disjoint parts, each within one keyspace. Ranges of a commit may overlap, but each key
/// counts once.
fn parts(ranges: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = (KeyspaceId, Vec<u8>, Vec<u8>)> {
    disjoint(ranges).into_iter().flat_map(|(start, end)| per_keyspace(&start, &end))
}

/// Changes in the order found: those of ranges by keyspace, then those of keys by keyspace.
#[derive(Default)]
pub(super) struct Deltas(CountDeltas);

impl Deltas {
    pub(super) fn add(&mut self, keyspace: KeyspaceId, change: i64) {
        match self.0.last_mut() {
            Some(last) if last.0 == keyspace => last.1 += change,
            _ => self.0.push((keyspace, change)),
        }
    }

    /// Returns one change per keyspace, by keyspace, without zeros.
    pub(super) fn sums(self) -> CountDeltas {
        let mut sums = self.0;
        sums.sort_by_key(|d| d.0);
        sums.dedup_by(|next, sum| {
            let is_same = next.0 == sum.0;
            if is_same {
                sum.1 += next.1;
            }
            is_same
        });
        sums.retain(|d| d.1 != 0);
        sums
    }
}

/// Returns the union of ranges as disjoint ranges.
fn disjoint(ranges: &[(Vec<u8>, Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sorted = ranges.to_vec();
    sorted.sort();
    let mut out: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for (start, end) in sorted {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.clone().max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Splits a range at the boundaries of keyspaces.
fn per_keyspace(start: &[u8], end: &[u8]) -> Vec<(KeyspaceId, Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut start = start.to_vec();
    while start.as_slice() < end {
        let Some((keyspace, _)) = decode_key(&start) else { break };
        let border = keyspace_end(keyspace);
        let stop = border.clone().min(end.to_vec());
        out.push((keyspace, start, stop));
        start = border;
    }
    out
}

/// Counts the live keys of a range by iterating over them.
fn live_in(view: &ReadView, at: SeqNo, start: Vec<u8>, end: Vec<u8>) -> Result<u64> {
    let bounds = Bounds { lower: Bound::Included(start.into()), upper: Bound::Excluded(end.into()) };
    let mut cursor = view.live(at, bounds);
    let mut live = 0;
    cursor.seek_first()?;
    while cursor.valid() {
        live += 1;
        cursor.next()?;
    }
    Ok(live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_removals_count_each_key_once() {
        let range = |s: &str, e: &str| (s.as_bytes().to_vec(), e.as_bytes().to_vec());
        let union = disjoint(&[range("m", "p"), range("a", "c"), range("b", "d"), range("d", "e")]);
        assert_eq!(union, [range("a", "e"), range("m", "p")]);
    }

    #[test]
    fn changes_by_ranges_and_by_keys_are_summed_per_keyspace() {
        let by_ranges = [(1, -2), (3, -1), (5, -4), (7, -1)];
        let by_keys = [(2, 1), (2, 1), (3, 1), (5, 1), (6, 9)];
        let mut deltas = Deltas::default();
        for (keyspace, change) in by_ranges.into_iter().chain(by_keys) {
            deltas.add(KeyspaceId::new(keyspace), change);
        }
        let expected = [(1, -2_i64), (2, 2), (5, -3), (6, 9), (7, -1)];
        assert_eq!(deltas.sums(), expected.map(|(keyspace, sum)| (KeyspaceId::new(keyspace), sum)));
    }

    #[test]
    fn ranges_are_cut_between_keyspaces() {
        let [a, b] = [KeyspaceId::new(1), KeyspaceId::new(2)];
        let cut = per_keyspace(&encode_key(a, b"x"), &encode_key(b, b"y"));
        let expected =
            [(a, encode_key(a, b"x"), keyspace_end(a)), (b, encode_key(b, b""), encode_key(b, b"y"))];
        assert_eq!(cut, expected);
    }
}
