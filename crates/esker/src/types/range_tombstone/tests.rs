//! Sets of range tombstones against a plain list of them.

use super::super::key_range::End;
use super::*;

fn tombstone(start: &str, end: &str, seq: u64) -> RangeTombstone {
    RangeTombstone { start: start.into(), end: end.into(), seq: SeqNo::new(seq) }
}

fn show(set: &RangeTombstones) -> String {
    let text = |k: &[u8]| k.escape_ascii().to_string();
    let one = |f: &Fragment| format!("{}-{}@{:?}", text(&f.start), text(&f.end), f.seqs);
    set.fragments().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn range_tombstone_1_overlaps_become_sorted_disjoint_fragments() {
    let set = RangeTombstones::new([tombstone("f", "z", 9), tombstone("a", "m", 7), tombstone("q", "q", 8)]);
    assert_eq!(show(&set), "a-f@[7] f-m@[9, 7] m-z@[9]");
    assert_eq!(RangeTombstones::new(set.iter()), set);
    assert_eq!(set.max_seq(), SeqNo::new(9));
}

#[test]
fn cover_sees_only_what_the_reader_sees() {
    let set = RangeTombstones::new([tombstone("a", "m", 7), tombstone("f", "z", 9)]);
    let cover = |key: &str, at| set.cover(key.as_bytes(), SeqNo::new(at)).get();
    assert_eq!([cover("g", 9), cover("g", 8), cover("g", 6), cover("m", 9), cover("z", 9)], [9, 7, 0, 9, 0]);
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

/// What `insert` is measured against: the tombstones, one by one.
#[derive(Clone, Default)]
struct Naive(Vec<RangeTombstone>);

impl Naive {
    fn cover(&self, key: &[u8], at: SeqNo) -> SeqNo {
        let covers = |t: &&RangeTombstone| *t.start <= *key && *key < *t.end && t.seq <= at;
        self.0.iter().filter(covers).map(|t| t.seq).max().unwrap_or(SeqNo::ZERO)
    }

    /// All keys and numbers, and what a walk asks.
    fn check(&self, set: &RangeTombstones, keys: u16, seqs: u64, what: &str) {
        assert!(
            set.fragments().collect::<Vec<_>>().is_sorted_by(|a, b| a.end <= b.start),
            "range_tombstone.1: {what}"
        );
        assert!(set.fragments().all(|f| f.start < f.end), "range_tombstone.1: {what}");
        assert_eq!(set.fragments().len(), set.fragments().count(), "{what}");
        assert_eq!(set.size_bytes(), set.fragments().map(Fragment::size_bytes).sum::<usize>(), "{what}");
        let column = |key: u16| (0..seqs + 2).map(move |at| self.cover(&key.to_be_bytes(), SeqNo::new(at)));
        let table: Vec<Vec<SeqNo>> = (0..keys + 1).map(|key| column(key).collect()).collect();
        for (key, column) in (0..keys + 1).map(u16::to_be_bytes).zip(&table) {
            for (at, &newest) in column.iter().enumerate() {
                let held = |key: u16| table[usize::from(key)][at] >= newest;
                let at = SeqNo::new(at as u64);
                assert_eq!(set.cover(&key, at), newest, "{what}: {key:?} at {at}");
                let end = set.covered_to(&key, at, newest.max(SeqNo::new(1)));
                assert_eq!(end.is_some(), newest > SeqNo::ZERO, "{what}: {key:?} at {at}");
                if let Some(end) = end {
                    let end = u16::from_be_bytes(*end.first_chunk().unwrap());
                    assert!((u16::from_be_bytes(key)..end).all(held), "{what}: {key:?} to {end} at {at}");
                    assert!(!held(end), "{what}: {key:?} further than {end} at {at}");
                }
            }
            let position = set.position_of(&key);
            assert!(position.start.is_none_or(|start| **start <= key[..]), "{what}");
            assert!(position.end.is_none_or(|end| key[..] < **end), "{what}");
            let covered = position.fragment.is_some();
            assert_eq!(covered, column.last() > Some(&SeqNo::ZERO), "{what}: {key:?}");
            for edge in
                [position.start.map(|e| e.to_vec()), position.end.map(|e| e.to_vec())].iter().flatten()
            {
                assert!(set.fragments().any(|f| *f.start == **edge || *f.end == **edge), "{what}");
            }
        }
    }
}

/// Random tombstones of rising commits; some are ranges of one commit, some grow, some repeat, some are
/// empty.
fn random_history(rng: &mut fastrand::Rng, keys: u16, seqs: u64) -> Vec<RangeTombstone> {
    let mut out = Vec::new();
    for seq in (1..=seqs).map(SeqNo::new) {
        for _ in 0..rng.usize(1..3) {
            let (start, end) = match rng.u8(0..4) {
                0 => (0, (seq.get() * u64::from(keys) / seqs) as u16),
                1 => (0, keys),
                _ => (rng.u16(0..keys), rng.u16(0..keys)),
            };
            out.push(RangeTombstone {
                start: start.to_be_bytes().into(),
                end: end.to_be_bytes().into(),
                seq,
            });
        }
    }
    out
}

#[test]
fn range_tombstone_1_inserting_one_by_one_agrees_with_a_list() {
    let mut rng = fastrand::Rng::with_seed(7);
    for (round, (keys, seqs)) in [(12, 9); 200].into_iter().chain([(300, 150); 3]).enumerate() {
        let (mut set, mut naive) = (RangeTombstones::default(), Naive::default());
        let mut kept = Vec::new();
        for tombstone in random_history(&mut rng, keys, seqs) {
            set.insert(tombstone.clone());
            naive.0.push(tombstone);
            if rng.usize(0..naive.0.len().max(4)) < 3 {
                kept.push((set.clone(), naive.clone()));
            }
        }
        assert_eq!(RangeTombstones::new(set.iter()), RangeTombstones::new(naive.0.clone()), "{round}");
        kept.push((set, naive));
        // What was added later did not reach the clones.
        for (number, (set, naive)) in kept.iter().enumerate() {
            naive.check(set, keys, seqs, &format!("round {round}, clone {number}"));
        }
    }
}

#[test]
fn insert_copies_no_key_and_no_number() {
    let shared = |a: &SharedKey, b: &SharedKey| Arc::ptr_eq(a, b);
    let mut set = RangeTombstones::default();
    let many = (0..1000u32).map(|n| [n * 2, n * 2 + 1].map(u32::to_be_bytes).map(Vec::from));
    many.zip(1..).for_each(|([start, end], seq)| {
        set.insert(RangeTombstone { start, end, seq: SeqNo::new(seq) });
    });
    let before = set.clone();
    // Over the fragments 250 to 749.
    let [start, end] = [500u32, 1500].map(u32::to_be_bytes).map(Vec::from);
    set.insert(RangeTombstone { start, end, seq: SeqNo::new(2000) });
    assert_eq!((before.fragments().len(), set.fragments().len()), (1000, 1500));
    for old in before.fragments() {
        let new = set.fragment_of(&old.start).unwrap();
        assert!(shared(&new.start, &old.start) && shared(&new.end, &old.end));
    }
    let gap = set.fragment_of(&501u32.to_be_bytes()).unwrap();
    assert!(shared(&gap.start, &before.fragment_of(&500u32.to_be_bytes()).unwrap().end));
    // Chunks that it does not touch are the same ones.
    let same = |chunk: &&Arc<[Fragment]>| before.chunks.iter().any(|old| Arc::ptr_eq(old, chunk));
    let untouched = set.chunks.iter().filter(same).count();
    assert!(untouched > before.chunks.len() * 2 / 5, "{untouched} of {}", before.chunks.len());
    assert!(set.chunks.iter().all(|chunk| (1..=CHUNK_LEN_MAX).contains(&chunk.len())));
    assert!(set.chunks.len() < 1500 / (CHUNK_LEN_MAX / 4), "{} chunks", set.chunks.len());
}

#[test]
fn unions_and_appended_sets_agree_with_a_list() {
    let mut rng = fastrand::Rng::with_seed(8);
    for round in 0..200 {
        let (mut sets, mut naive) = (Vec::new(), Naive::default());
        for _ in 0..rng.usize(0..4) {
            let history = random_history(&mut rng, 12, 5);
            sets.push(RangeTombstones::new(history.clone()));
            naive.0.extend(history);
        }
        let union = RangeTombstones::union(&sets);
        naive.check(&union, 12, 5, &format!("round {round}"));
        assert_eq!(union, RangeTombstones::new(naive.0));
        let at = rng.usize(0..union.fragments().len() + 1);
        let half = |n: usize| union.fragments().skip(n).cloned();
        let mut front = RangeTombstones::from_sorted(half(0).take(at).collect());
        let back = RangeTombstones::from_sorted(half(at).collect());
        assert!(back.is_empty() || front.is_empty() || !back.clone().append(&front));
        assert!(front.append(&back));
        assert_eq!((&front, front.size_bytes()), (&union, union.size_bytes()));
        assert_eq!(front.fragments().len(), union.fragments().len());
    }
}
