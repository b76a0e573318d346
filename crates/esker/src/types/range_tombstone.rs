//! Range tombstones: "every key in [start, end) older than this commit is gone".
//!
//! ```text
//!   [a---------m)@7                 fragments:  [a--f)@7  [f--m)@9,7  [m--z)@9
//!        [f---------z)@9   ------>
//! ```
//!
//! range_tombstone.1. Fragments are sorted, do not overlap, and are never empty; each holds its sequence numbers newest first.
//! range_tombstone.2. A tombstone covers only versions with a smaller sequence number: a put of the same commit survives.
//! range_tombstone.3. A clone of a set shares its fragments, and never changes: `insert` makes anew the chunks of fragments that the
//!      tombstone touches. It copies no key and no sequence number.
//!
//! A set is a list of chunks of fragments, so that one more tombstone costs time in proportion to the fragments that it
//! covers, and to a small part of the others. `seqs` has the numbers of a fragment, `sweep` what builds sets at once.

#[cfg(all(test, loom))]
mod models;
mod seqs;
mod sweep;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::seqs::Seqs;
use super::SeqNo;
use super::key_range::KeyRange;

/// Fragments in a chunk, at most.
const CHUNK_LEN_MAX: usize = 64;

/// A key that fragments on both sides of it share, and all sets that hold them.
pub type SharedKey = Arc<[u8]>;

/// One range delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First key deleted (encoded).
    pub start: Vec<u8>,
    /// First key not deleted (encoded).
    pub end: Vec<u8>,
    /// The commit that deleted.
    pub seq: SeqNo,
}

/// A stretch of keys covered by the same tombstones. Cloning copies neither keys nor numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First key covered.
    pub start: SharedKey,
    /// First key not covered.
    pub end: SharedKey,
    /// The commits that deleted it.
    pub seqs: Seqs,
}

impl Fragment {
    /// The newest covering commit not newer than `at`; zero if none.
    #[inline]
    pub fn newest_at(&self, at: SeqNo) -> SeqNo {
        self.seqs.newest_at(at)
    }

    /// Bytes of memory in use, as if nothing were shared with other fragments.
    fn size_bytes(&self) -> usize {
        // A shared slice has two counts before it.
        let keys = self.start.len() + self.end.len() + 4 * size_of::<usize>();
        size_of::<Fragment>() + keys + self.seqs.shared_bytes()
    }
}

impl From<RangeTombstone> for Fragment {
    fn from(tombstone: RangeTombstone) -> Self {
        let RangeTombstone { start, end, seq } = tombstone;
        Fragment { start: start.into(), end: end.into(), seqs: Seqs::one(seq) }
    }
}

/// Where a key lies among the fragments of a set.
pub struct Place<'a> {
    /// The fragment that covers it.
    pub fragment: Option<&'a Fragment>,
    /// Where that fragment, or the gap between two of them, begins; none for the first gap.
    pub start: Option<&'a SharedKey>,
    /// Where it ends; none for the last gap.
    pub end: Option<&'a SharedKey>,
}

/// An immutable set of range tombstones, fragmented for searching.
#[derive(Clone, Default)]
pub struct RangeTombstones {
    /// In key order, none empty.
    chunks: Vec<Arc<[Fragment]>>,
    len: usize,
    size_bytes: usize,
}

impl RangeTombstones {
    /// Builds the fragments. Empty ranges are dropped.
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        Self::from_overlapping(tombstones.into_iter().map(Fragment::from).collect())
    }

    /// The tombstones of all these fragments, which may overlap and come in any order. Empty ones are dropped.
    pub fn from_overlapping(fragments: Vec<Fragment>) -> Self {
        Self::from_sorted(sweep::disjoint(fragments))
    }

    /// The tombstones of all these sets.
    pub fn union<'a>(sets: impl IntoIterator<Item = &'a RangeTombstones>) -> Self {
        let mut sets: Vec<_> = sets.into_iter().filter(|set| !set.is_empty()).collect();
        match (sets.pop(), &sets[..]) {
            (None, _) => Self::default(),
            (Some(only), []) => only.clone(),
            (Some(last), others) => Self::from_overlapping(
                others.iter().chain([&last]).flat_map(|set| set.fragments().cloned()).collect(),
            ),
        }
    }

    /// The set of these fragments, which are as range_tombstone.1 says.
    pub fn from_sorted(fragments: Vec<Fragment>) -> Self {
        debug_assert!(fragments.iter().all(|f| f.start < f.end), "range_tombstone.1");
        debug_assert!(fragments.is_sorted_by(|a, b| a.end <= b.start), "range_tombstone.1");
        let (len, size_bytes) = (fragments.len(), fragments.iter().map(Fragment::size_bytes).sum());
        RangeTombstones { chunks: chunks_of(fragments).collect(), len, size_bytes }
    }

    /// The same ranges, removed by this commit alone; zero: as they are.
    pub fn based(self, seq: SeqNo) -> Self {
        if seq == SeqNo::ZERO || self.is_empty() {
            return self;
        }
        let based = |fragment: &Fragment| Fragment { seqs: Seqs::one(seq), ..fragment.clone() };
        Self::from_sorted(self.fragments().map(based).collect())
    }

    /// Adds a tombstone that is not older than any (range_tombstone.3). An empty range adds nothing.
    ///
    /// # Panics
    /// If it covers a key that a newer one covers.
    pub fn insert(&mut self, tombstone: RangeTombstone) {
        let Fragment { start, end, seqs } = tombstone.into();
        if start >= end {
            return;
        }
        let first = self.chunks.partition_point(|chunk| chunk[chunk.len() - 1].end <= start);
        let past = self.chunks.partition_point(|chunk| chunk[0].start < end);
        // One that falls between two chunks goes into a neighbour: chunks stay large.
        let touched = match (first, past) {
            (0, 0) => 0..self.chunks.len().min(1),
            (first, past) if first == past => first - 1..past,
            (first, past) => first..past,
        };
        let old = || self.chunks[touched.clone()].iter().flat_map(|chunk| chunk.iter());
        let new = overlay(old(), &start, &end, seqs.newest());
        self.len += new.len() - old().count();
        self.size_bytes -= old().map(Fragment::size_bytes).sum::<usize>();
        self.size_bytes += new.iter().map(Fragment::size_bytes).sum::<usize>();
        self.chunks.splice(touched, chunks_of(new));
    }

    /// Adds the fragments of a set that lies wholly behind this one; says whether it does.
    pub fn append(&mut self, behind: &RangeTombstones) -> bool {
        let apart = match (self.last(), behind.first()) {
            (Some(last), Some(first)) => last.end <= first.start,
            _ => true,
        };
        if apart {
            self.chunks.extend(behind.chunks.iter().cloned());
            self.len += behind.len;
            self.size_bytes += behind.size_bytes;
        }
        apart
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of memory in use, as if nothing were shared.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The fragments, in key order.
    pub fn fragments(&self) -> Fragments<'_> {
        Fragments { chunks: self.chunks.iter(), chunk: [].iter(), left: self.len }
    }

    /// The first fragment.
    pub fn first(&self) -> Option<&Fragment> {
        self.chunks.first().map(|chunk| &chunk[0])
    }

    /// The last fragment.
    pub fn last(&self) -> Option<&Fragment> {
        self.chunks.last().and_then(|chunk| chunk.last())
    }

    /// The tombstones, one per fragment and sequence number.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments().flat_map(|f| {
            f.seqs.iter().map(|seq| RangeTombstone { start: f.start.to_vec(), end: f.end.to_vec(), seq })
        })
    }

    /// The last fragment that starts by `key`: its chunk, and its index there.
    #[inline]
    fn starting_by(&self, key: &[u8]) -> Option<(usize, usize)> {
        let chunk = self.chunks.partition_point(|chunk| &*chunk[0].start <= key).checked_sub(1)?;
        let index = self.chunks[chunk].partition_point(|f| &*f.start <= key);
        Some((chunk, index - 1))
    }

    /// The fragments from the one at this chunk and index on.
    fn fragments_from(&self, (chunk, index): (usize, usize)) -> impl Iterator<Item = &Fragment> {
        let rest = self.chunks[chunk + 1..].iter().flat_map(|chunk| chunk.iter());
        self.chunks[chunk][index..].iter().chain(rest)
    }

    /// The fragment that covers `key`.
    #[inline]
    pub fn fragment_of(&self, key: &[u8]) -> Option<&Fragment> {
        let (chunk, index) = self.starting_by(key)?;
        Some(&self.chunks[chunk][index]).filter(|f| key < &*f.end)
    }

    /// Where `key` lies.
    pub fn place_of(&self, key: &[u8]) -> Place<'_> {
        let Some(at) = self.starting_by(key) else {
            return Place { fragment: None, start: None, end: self.first().map(|f| &f.start) };
        };
        let mut from_here = self.fragments_from(at);
        let before = from_here.next().expect("it was found");
        if key < &*before.end {
            return Place { fragment: Some(before), start: Some(&before.start), end: Some(&before.end) };
        }
        Place { fragment: None, start: Some(&before.end), end: from_here.next().map(|f| &f.start) }
    }

    /// The newest tombstone over `key` that a reader at `at` sees; zero if none.
    #[inline]
    pub fn cover(&self, key: &[u8], at: SeqNo) -> SeqNo {
        self.fragment_of(key).map_or(SeqNo::ZERO, |f| f.newest_at(at))
    }

    /// Where the stretch around `key` ends whose keys a reader at `at` finds covered by tombstones of `cover` or newer;
    /// none if `key` is not.
    pub fn covered_to(&self, key: &[u8], at: SeqNo, cover: SeqNo) -> Option<&SharedKey> {
        let mut end: Option<&SharedKey> = None;
        for fragment in self.fragments_from(self.starting_by(key)?) {
            let joins = end.map_or(key < &*fragment.end, |end| *end == fragment.start);
            if !joins || fragment.newest_at(at) < cover {
                break;
            }
            end = Some(&fragment.end);
        }
        end
    }

    /// The parts that lie within `range`. A range that includes its end key keeps a tombstone starting there,
    /// cut to that one key.
    pub fn clipped(&self, range: &KeyRange) -> Self {
        let limit: SharedKey = match &range.end {
            super::key_range::End::Excluded(end) => end.as_slice().into(),
            super::key_range::End::Included(end) => [end, &[0][..]].concat().into(),
        };
        let start: SharedKey = range.start.as_slice().into();
        let first = self.starting_by(&start).unwrap_or_default();
        let inside = (!self.is_empty()).then(|| self.fragments_from(first)).into_iter().flatten();
        let parts = inside.take_while(|f| f.start < limit).map(|f| Fragment {
            start: (&f.start).max(&start).clone(),
            end: (&f.end).min(&limit).clone(),
            seqs: f.seqs.clone(),
        });
        Self::from_sorted(parts.filter(|f| f.start < f.end).collect())
    }

    /// The newest sequence number; zero if there are none.
    pub fn max_seq(&self) -> SeqNo {
        self.fragments().map(|f| f.seqs.newest()).max().unwrap_or(SeqNo::ZERO)
    }
}

impl PartialEq for RangeTombstones {
    fn eq(&self, other: &Self) -> bool {
        self.fragments().eq(other.fragments())
    }
}

impl Eq for RangeTombstones {}

impl std::fmt::Debug for RangeTombstones {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.fragments()).finish()
    }
}

/// The fragments of a set, in key order.
pub struct Fragments<'a> {
    chunks: std::slice::Iter<'a, Arc<[Fragment]>>,
    chunk: std::slice::Iter<'a, Fragment>,
    left: usize,
}

impl<'a> Iterator for Fragments<'a> {
    type Item = &'a Fragment;

    fn next(&mut self) -> Option<&'a Fragment> {
        if self.chunk.as_slice().is_empty() {
            self.chunk = self.chunks.next()?.iter();
        }
        self.left -= 1;
        self.chunk.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fragments<'_> {}

/// Cuts a list into chunks of about the same length.
fn chunks_of(fragments: Vec<Fragment>) -> impl Iterator<Item = Arc<[Fragment]>> {
    let chunks = fragments.len().div_ceil(CHUNK_LEN_MAX);
    let len = fragments.len().div_ceil(chunks.max(1));
    let mut rest = fragments.into_iter();
    (0..chunks).map(move |_| rest.by_ref().take(len).collect())
}

/// These fragments with a tombstone over them that is not older than any.
fn overlay<'a>(
    old: impl Iterator<Item = &'a Fragment>,
    start: &SharedKey,
    end: &SharedKey,
    seq: SeqNo,
) -> Vec<Fragment> {
    let mut out = Vec::with_capacity(old.size_hint().0 + 3);
    // The tombstone is dealt with up to here.
    let mut at = start;
    let bare = |from: &SharedKey, to: &SharedKey| Fragment {
        start: from.clone(),
        end: to.clone(),
        seqs: Seqs::one(seq),
    };
    for fragment in old {
        let overlaps = *start < fragment.end && fragment.start < *end;
        if overlaps && fragment.start < *start {
            out.push(Fragment { end: start.clone(), ..fragment.clone() });
        }
        let next = (&fragment.start).min(end);
        if at < next {
            out.push(bare(at, next));
            at = next;
        }
        if !overlaps {
            out.push(fragment.clone());
            continue;
        }
        let mut covered = fragment.clone();
        // Of two equal keys the one that is there already (range_tombstone.3).
        covered.start = start.max(&fragment.start).clone();
        covered.end = (&fragment.end).min(end).clone();
        covered.seqs.push(seq);
        out.push(covered);
        at = (&fragment.end).min(end);
        if *end < fragment.end {
            out.push(Fragment { start: end.clone(), ..fragment.clone() });
        }
    }
    if at < end {
        out.push(bare(at, end));
    }
    out
}
