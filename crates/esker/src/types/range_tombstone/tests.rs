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
