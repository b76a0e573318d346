//! Range tombstones: "every key in [start, end) older than this commit is gone".
//!
//! ```text
//!   [a---------m)@7                 fragments:  [a--f)@7  [f--m)@9,7  [m--z)@9
//!        [f---------z)@9   ------>
//! ```
//!
//! range_tombstone.1. Fragments are sorted, do not overlap and are not empty. Each holds its sequence numbers
//!     newest first.
//! range_tombstone.2. A tombstone covers only versions with a smaller sequence number: a put of the same
//!     commit survives.
//!
//! - A clone of a set shares its fragments and never changes. `insert` copies the chunks
//!   that the tombstone touches, but no key and no sequence number.
//!
//! A set is a list of chunks of fragments. So adding a tombstone costs time in proportion to the fragments
//! that it covers, and to a small part of the others. `seqs` holds the numbers of a fragment; `sweep` builds
//! whole sets.

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

/// Maximum number of fragments in a chunk.
const CHUNK_LEN_MAX: usize = 64;

/// A key shared by the fragments on both sides of it, and by all sets that hold them.
pub type SharedKey = Arc<[u8]>;

/// One removed range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First removed key (encoded).
    pub start: Vec<u8>,
    /// First key after the range (encoded).
    pub end: Vec<u8>,
    /// The commit that removed it.
    pub seq: SeqNo,
}

/// A range of keys covered by the same tombstones. A clone copies neither keys nor numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First covered key.
    pub start: SharedKey,
    /// First key after the fragment.
    pub end: SharedKey,
    /// The commits that removed it.
    pub seqs: Seqs,
}

impl Fragment {
    /// The newest covering commit not newer than `at`; zero if there is none.
    #[inline]
    pub fn newest_at(&self, at: SeqNo) -> SeqNo {
        self.seqs.newest_at(at)
    }

    /// Bytes of memory, counting shared parts in full.
    fn size_bytes(&self) -> usize {
        // A shared slice is preceded by two reference counts.
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

/// The position of a key among the fragments of a set.
pub struct KeyPosition<'a> {
    /// The fragment that covers it.
    pub fragment: Option<&'a Fragment>,
    /// Start of that fragment, or of the gap between two fragments. `None`: the gap before the first.
    pub start: Option<&'a SharedKey>,
    /// End of the fragment or gap. `None`: the gap after the last.
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

    /// Builds a set from fragments, which may overlap and come in any order. Empty ones are dropped.
    pub fn from_overlapping(fragments: Vec<Fragment>) -> Self {
        Self::from_sorted(sweep::disjoint(fragments))
    }

    /// The tombstones of several sets.
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

    /// Builds a set from fragments that satisfy range_tombstone.1.
    pub fn from_sorted(fragments: Vec<Fragment>) -> Self {
        debug_assert!(fragments.iter().all(|f| f.start < f.end), "range_tombstone.1");
        debug_assert!(fragments.is_sorted_by(|a, b| a.end <= b.start), "range_tombstone.1");
        let (len, size_bytes) = (fragments.len(), fragments.iter().map(Fragment::size_bytes).sum());
        RangeTombstones { chunks: chunks_of(fragments).collect(), len, size_bytes }
    }

    /// Gives all ranges this single sequence number. Zero leaves them unchanged.
    pub fn based(self, seq: SeqNo) -> Self {
        if seq == SeqNo::ZERO || self.is_empty() {
            return self;
        }
        let based = |fragment: &Fragment| Fragment { seqs: Seqs::one(seq), ..fragment.clone() };
        Self::from_sorted(self.fragments().map(based).collect())
    }

    /// Adds a tombstone that is not older than the others. An empty range adds nothing.
    ///
    /// # Panics
    /// If it covers a key that a newer tombstone covers.
    pub fn insert(&mut self, tombstone: RangeTombstone) {
        let Fragment { start, end, seqs } = tombstone.into();
        if start >= end {
            return;
        }
        let first = self.chunks.partition_point(|chunk| chunk[chunk.len() - 1].end <= start);
        let past = self.chunks.partition_point(|chunk| chunk[0].start < end);
        // A tombstone between two chunks is added to one of them, so that chunks stay large.
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

    /// Appends the fragments of a set that lies entirely after this one. Returns false if it does not.
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

    /// Returns whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of memory, counting shared parts in full.
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

    /// Chunk and index of the last fragment that starts at or before `key`.
    #[inline]
    fn starting_by(&self, key: &[u8]) -> Option<(usize, usize)> {
        let chunk = self.chunks.partition_point(|chunk| &*chunk[0].start <= key).checked_sub(1)?;
        let index = self.chunks[chunk].partition_point(|f| &*f.start <= key);
        Some((chunk, index - 1))
    }

    /// The fragments from this chunk and index on.
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

    /// The position of `key`.
    pub fn position_of(&self, key: &[u8]) -> KeyPosition<'_> {
        let Some(at) = self.starting_by(key) else {
            return KeyPosition { fragment: None, start: None, end: self.first().map(|f| &f.start) };
        };
        let mut from_here = self.fragments_from(at);
        let before = from_here.next().expect("it was found");
        if key < &*before.end {
            return KeyPosition {
                fragment: Some(before),
                start: Some(&before.start),
                end: Some(&before.end),
            };
        }
        KeyPosition { fragment: None, start: Some(&before.end), end: from_here.next().map(|f| &f.start) }
    }

    /// The newest tombstone over `key` that a reader at `at` sees; zero if there is none.
    #[inline]
    pub fn cover(&self, key: &[u8], at: SeqNo) -> SeqNo {
        self.fragment_of(key).map_or(SeqNo::ZERO, |f| f.newest_at(at))
    }

    /// The end of the range around `key` that tombstones of commit `cover` or newer cover for a reader at
    /// `at`. `None`: they do not cover `key`.
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

    /// The parts within `range`. If the range includes its end key, a tombstone that starts there is cut to
    /// that key.
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

    /// The newest sequence number; zero if the set is empty.
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

/// Splits a list into chunks of about equal length.
fn chunks_of(fragments: Vec<Fragment>) -> impl Iterator<Item = Arc<[Fragment]>> {
    let chunks = fragments.len().div_ceil(CHUNK_LEN_MAX);
    let len = fragments.len().div_ceil(chunks.max(1));
    let mut rest = fragments.into_iter();
    (0..chunks).map(move |_| rest.by_ref().take(len).collect())
}

/// Adds a tombstone, which is not older than the others, to these fragments.
fn overlay<'a>(
    old: impl Iterator<Item = &'a Fragment>,
    start: &SharedKey,
    end: &SharedKey,
    seq: SeqNo,
) -> Vec<Fragment> {
    let mut out = Vec::with_capacity(old.size_hint().0 + 3);
    // The tombstone has been applied up to here.
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
        // Of two equal keys, the existing one is shared.
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
