//! Range tombstones: "every key in [start, end) older than this commit is gone".
//!
//! ```text
//!   [a---------m)@7                 fragments:  [a--f)@7  [f--m)@9,7  [m--z)@9
//!        [f---------z)@9   ------>
//! ```
//!
//! RT1. Fragments are sorted, do not overlap, and are never empty; each holds its sequence numbers newest first.
//! RT2. A tombstone covers only versions with a smaller sequence number: a put of the same commit survives.

use super::SeqNo;
use super::key_range::KeyRange;

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

/// A stretch of keys covered by the same tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First key covered.
    pub start: Vec<u8>,
    /// First key not covered.
    pub end: Vec<u8>,
    /// The commits that deleted it, newest first, without repeats.
    pub seqs: Vec<SeqNo>,
}

impl Fragment {
    /// The newest covering commit not newer than `at`; zero if none.
    pub fn newest_at(&self, at: SeqNo) -> SeqNo {
        self.seqs.iter().copied().find(|&s| s <= at).unwrap_or(SeqNo::ZERO)
    }
}

/// An immutable set of range tombstones, fragmented for searching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeTombstones {
    fragments: Vec<Fragment>,
}

impl RangeTombstones {
    /// Builds the fragments. Empty ranges are dropped.
    pub fn new(tombstones: impl IntoIterator<Item = RangeTombstone>) -> Self {
        let mut all: Vec<_> = tombstones.into_iter().filter(|t| t.start < t.end).collect();
        all.sort_by(|a, b| a.start.cmp(&b.start));
        let mut edges: Vec<&[u8]> = all.iter().flat_map(|t| [&t.start[..], &t.end[..]]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut fragments: Vec<Fragment> = Vec::new();
        let mut next = 0;
        let mut active: Vec<&RangeTombstone> = Vec::new();
        for pair in edges.windows(2) {
            let (start, end) = (pair[0], pair[1]);
            while next < all.len() && all[next].start.as_slice() <= start {
                active.push(&all[next]);
                next += 1;
            }
            active.retain(|t| t.end.as_slice() > start);
            if active.is_empty() {
                continue;
            }
            let mut seqs: Vec<SeqNo> = active.iter().map(|t| t.seq).collect();
            seqs.sort_unstable_by(|a, b| b.cmp(a));
            seqs.dedup();
            match fragments.last_mut() {
                Some(last) if last.end == start && last.seqs == seqs => last.end = end.to_vec(),
                _ => fragments.push(Fragment { start: start.to_vec(), end: end.to_vec(), seqs }),
            }
        }
        RangeTombstones { fragments }
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The fragments, in key order.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// The tombstones, one per fragment and sequence number.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|f| {
            f.seqs.iter().map(|&seq| RangeTombstone { start: f.start.clone(), end: f.end.clone(), seq })
        })
    }

    /// The fragment that covers `key`.
    pub fn fragment_of(&self, key: &[u8]) -> Option<&Fragment> {
        let after = self.fragments.partition_point(|f| f.start.as_slice() <= key);
        self.fragments[..after].last().filter(|f| key < f.end.as_slice())
    }

    /// The newest tombstone over `key` that a reader at `at` sees; zero if none.
    pub fn cover(&self, key: &[u8], at: SeqNo) -> SeqNo {
        self.fragment_of(key).map_or(SeqNo::ZERO, |f| f.newest_at(at))
    }

    /// The parts that lie within `range`. A range that includes its end key keeps a tombstone starting there,
    /// cut to that one key.
    pub fn clipped(&self, range: &KeyRange) -> Self {
        let limit = match &range.end {
            super::key_range::End::Excluded(end) => end.clone(),
            super::key_range::End::Included(end) => [end, &[0][..]].concat(),
        };
        let fragments = self
            .fragments
            .iter()
            .map(|f| Fragment {
                start: (&f.start).max(&range.start).clone(),
                end: (&f.end).min(&limit).clone(),
                seqs: f.seqs.clone(),
            })
            .filter(|f| f.start < f.end)
            .collect();
        RangeTombstones { fragments }
    }

    /// The newest sequence number; zero if there are none.
    pub fn max_seq(&self) -> SeqNo {
        self.fragments.iter().map(|f| f.seqs[0]).max().unwrap_or(SeqNo::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_range::End;
    use super::*;

    fn tombstone(start: &str, end: &str, seq: u64) -> RangeTombstone {
        RangeTombstone { start: start.into(), end: end.into(), seq: SeqNo::new(seq) }
    }

    fn show(set: &RangeTombstones) -> String {
        let text = |k: &[u8]| k.escape_ascii().to_string();
        let one = |f: &Fragment| format!("{}-{}@{:?}", text(&f.start), text(&f.end), f.seqs);
        set.fragments().iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rt1_overlaps_become_sorted_disjoint_fragments() {
        let set =
            RangeTombstones::new([tombstone("f", "z", 9), tombstone("a", "m", 7), tombstone("q", "q", 8)]);
        assert_eq!(show(&set), "a-f@[7] f-m@[9, 7] m-z@[9]");
        assert_eq!(RangeTombstones::new(set.iter()), set);
        assert_eq!(set.max_seq(), SeqNo::new(9));
    }

    #[test]
    fn cover_sees_only_what_the_reader_sees() {
        let set = RangeTombstones::new([tombstone("a", "m", 7), tombstone("f", "z", 9)]);
        let cover = |key: &str, at| set.cover(key.as_bytes(), SeqNo::new(at)).get();
        assert_eq!(
            [cover("g", 9), cover("g", 8), cover("g", 6), cover("m", 9), cover("z", 9)],
            [9, 7, 0, 9, 0]
        );
        assert_eq!(cover("", 9), 0);
    }

    #[test]
    fn clipping_keeps_to_the_range() {
        let set = RangeTombstones::new([tombstone("a", "m", 7), tombstone("f", "z", 9)]);
        let part = set.clipped(&KeyRange { start: b"c".to_vec(), end: End::Excluded(b"g".to_vec()) });
        assert_eq!(show(&part), "c-f@[7] f-g@[9, 7]");
        let one = set.clipped(&KeyRange { start: b"f".to_vec(), end: End::Included(b"f".to_vec()) });
        assert_eq!(show(&one), "f-f\\x00@[9, 7]");
    }

    #[test]
    fn random_sets_agree_with_a_list() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let list: Vec<_> = (0..rng.usize(0..8))
                .map(|_| RangeTombstone {
                    start: vec![rng.u8(0..12)],
                    end: vec![rng.u8(0..12)],
                    seq: SeqNo::new(rng.u64(1..9)),
                })
                .collect();
            let set = RangeTombstones::new(list.clone());
            for key in 0..12 {
                for at in 0..9 {
                    let at = SeqNo::new(at);
                    let covering =
                        list.iter().filter(|t| t.start <= vec![key] && vec![key] < t.end && t.seq <= at);
                    let expected = covering.map(|t| t.seq).max().unwrap_or(SeqNo::ZERO);
                    assert_eq!(set.cover(&[key], at), expected, "{list:?} {key} {at}");
                }
            }
        }
    }
}
