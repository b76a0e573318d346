//! Compares the memtable with a sorted map of versions, single-threaded and under concurrent readers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;

use super::node::{Inner, Leaf, Slot};
use super::permutation::SLOTS;
use super::record::Record;
use super::*;
use crate::types::cursor::SourceCursor;
use crate::types::key::head8;
use crate::types::op::Kind;

type Model = BTreeMap<(Vec<u8>, Reverse<u64>), (Kind, Vec<u8>)>;

/// A memtable and its expected contents.
struct Pair {
    memtable: Arc<Memtable>,
    applier: Applier,
    model: Model,
    seq: u64,
}

impl Pair {
    fn new() -> Self {
        let memtable = Arc::new(Memtable::new(1 << 16));
        let applier = memtable.applier();
        Pair { memtable, applier, model: Model::new(), seq: 0 }
    }

    fn put(&mut self, key: &[u8], kind: Kind, value: &[u8]) {
        self.seq += 1;
        let entry = EntryRef { key, seq: SeqNo::new(self.seq), kind, value };
        self.memtable.insert(&mut self.applier, entry);
        self.model.insert((key.to_vec(), Reverse(self.seq)), (kind, value.to_vec()));
    }

    /// Inserts `count` entries, one in eight a tombstone. Overwrites depend on `key`.
    fn fill(&mut self, count: usize, rng: &mut Rng, mut key: impl FnMut(&mut Rng, usize) -> Vec<u8>) {
        for n in 0..count {
            let key = key(rng, n);
            let value = vec![n as u8; rng.usize(0..40)];
            if rng.u8(0..8) == 0 {
                self.put(&key, Kind::REMOVE, b"")
            } else {
                self.put(&key, Kind::PUT, &value)
            }
        }
    }

    /// What a reader at `at` sees, in key order.
    fn visible(&self, at: u64) -> Vec<Seen> {
        let mut seen: Vec<Seen> = Vec::new();
        for ((key, Reverse(seq)), (kind, value)) in &self.model {
            if *seq <= at && seen.last().is_none_or(|last| last.0 != *key) {
                seen.push((key.clone(), *seq, *kind, value.clone()));
            }
        }
        seen
    }

    fn check(&self, rng: &mut Rng) {
        self.check_scan(rng);
        for at in [0, 1, self.seq / 2, self.seq, SeqNo::MAX.get(), rng.u64(0..=self.seq)] {
            let visible = self.visible(at);
            self.check_gets(&visible, at);
            check_walks(&self.memtable, &visible, at);
            self.check_seeks(rng, &visible, at);
        }
    }

    fn check_scan(&self, rng: &mut Rng) {
        let mut scan = self.memtable.scan();
        for ((key, Reverse(seq)), (kind, value)) in &self.model {
            let entry = scan.next().expect("an entry for each version");
            assert_eq!(
                (entry.key, entry.seq.get(), entry.kind, entry.value),
                (&key[..], *seq, *kind, &value[..])
            );
            assert!(self.memtable.may_contain(key_hash(key)), "memtable.3");
        }
        assert!(scan.next().is_none() && scan.next().is_none());
        if let Some(((key, _), _)) = self.model.iter().nth(rng.usize(0..=self.model.len())) {
            scan.seek(key);
            assert_eq!(scan.next().map(|e| e.key), Some(&key[..]));
        }
        assert_eq!(self.memtable.entries(), self.model.len() as u64);
    }

    fn check_gets(&self, visible: &[Seen], at: u64) {
        let seq = SeqNo::try_new(at).unwrap();
        for (key, version, kind, value) in visible {
            let entry = self.memtable.get(key, seq).expect("visible");
            assert_eq!(
                (entry.key, entry.seq.get(), entry.kind, entry.value),
                (&key[..], *version, *kind, &value[..])
            );
        }
        for (key, _) in self.model.keys() {
            let expected = visible.binary_search_by(|seen| seen.0.cmp(key)).ok().map(|i| visible[i].1);
            assert_eq!(self.memtable.get(key, seq).map(|e| e.seq.get()), expected);
            let newest =
                self.model.range((key.clone(), Reverse(u64::MAX))..).next().map(|((_, seq), _)| seq.0);
            assert_eq!(self.memtable.newest_written(key, SeqNo::ZERO).map(SeqNo::get), newest);
        }
    }

    fn check_seeks(&self, rng: &mut Rng, visible: &[Seen], at: u64) {
        let mut cursor = self.memtable.cursor(SeqNo::new(at));
        let keys: Vec<&Vec<u8>> = self.model.keys().map(|(key, _)| key).collect();
        for n in 0..scaled(200) {
            // A key of the model, slightly changed.
            let mut key = rng.choice(&keys).map_or(Vec::new(), |&key| key.clone());
            match n % 4 {
                0 => key.push(rng.u8(..)),
                1 => drop(key.pop()),
                2 if !key.is_empty() => *key.last_mut().unwrap() = rng.u8(..),
                _ => {}
            }
            assert_eq!(self.memtable.get(&key, SeqNo::new(at)).is_some(), visible.iter().any(|s| s.0 == key));
            let first_not_below = visible.partition_point(|seen| seen.0 < key);
            cursor.seek(&key).unwrap();
            assert_eq!(shown(&cursor).as_ref(), visible.get(first_not_below));
            if cursor.valid() && rng.bool() {
                cursor.prev().unwrap();
                assert_eq!(shown(&cursor).as_ref(), first_not_below.checked_sub(1).map(|i| &visible[i]));
            }
            cursor.seek_before(&key).unwrap();
            assert_eq!(shown(&cursor).as_ref(), first_not_below.checked_sub(1).map(|i| &visible[i]));
            if cursor.valid() && rng.bool() {
                cursor.next().unwrap();
                assert_eq!(shown(&cursor).as_ref(), visible.get(first_not_below));
            }
        }
    }
}

/// Key, sequence number, kind, value.
type Seen = (Vec<u8>, u64, Kind, Vec<u8>);

fn shown(cursor: &MemtableCursor) -> Option<Seen> {
    cursor.valid().then(|| {
        (cursor.key().to_vec(), cursor.seq().get(), cursor.kind(), cursor.stored().beside().to_vec())
    })
}

/// Checks that a cursor walks over exactly the visible entries, forward and backward.
fn check_walks(memtable: &Memtable, visible: &[Seen], at: u64) {
    let mut cursor = memtable.cursor(SeqNo::new(at));
    assert!(!cursor.valid());
    cursor.seek_first().unwrap();
    for seen in visible {
        assert_eq!(shown(&cursor).as_ref(), Some(seen));
        assert_eq!(cursor.share().beside(), seen.3);
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_last().unwrap();
    for seen in visible.iter().rev() {
        assert_eq!(shown(&cursor).as_ref(), Some(seen));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

/// Miri is a thousand times slower.
fn scaled(count: usize) -> usize {
    if cfg!(miri) { count.div_ceil(100) } else { count }
}

fn run(seed: u64, count: usize, key: impl FnMut(&mut Rng, usize) -> Vec<u8>) {
    let mut rng = Rng::with_seed(seed);
    let mut pair = Pair::new();
    pair.check(&mut rng);
    pair.fill(scaled(count), &mut rng, key);
    pair.check(&mut rng);
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

#[test]
fn random_keys() {
    run(1, 8000, |rng, _| random_bytes(rng, 24));
}

#[test]
fn short_keys_with_the_empty_one_and_many_overwrites() {
    for seed in 10..20 {
        run(seed, 1500, |rng, _| {
            let len = rng.usize(0..6);
            (0..len).map(|_| rng.u8(0..4)).collect()
        });
    }
}

#[test]
fn keys_that_differ_only_in_trailing_zeros() {
    run(2, 1500, |rng, _| [vec![rng.u8(0..3); rng.usize(0..3)], vec![0; rng.usize(0..30)]].concat());
}

#[test]
fn long_common_prefixes() {
    for (seed, common) in [(30, 7), (31, 8), (32, 60), (33, 3000)] {
        run(seed, 3000, |rng, _| {
            [vec![b'p'; rng.usize(common..common + 3)], rng.u32(0..5000).to_string().into_bytes()].concat()
        });
    }
}

#[test]
fn equal_heads() {
    run(4, 3000, |rng, _| [&b"12345678"[..], &[rng.u8(0..2); 9], &rng.u16(..).to_be_bytes()].concat());
}

#[test]
fn ascending_and_descending_keys() {
    run(5, 5000, |_, n| format!("user{n:08}").into_bytes());
    run(6, 5000, |_, n| format!("user{:08}", 90_000 - n).into_bytes());
    run(7, 5000, |_, n| (n as u64).to_be_bytes().to_vec());
}

#[test]
fn sorted_batches_between_random_keys() {
    let mut start = 0;
    run(8, 6000, |rng, n| {
        if n % 200 == 0 {
            start = rng.u32(..1_000_000);
        }
        if n % 3000 < 1000 { random_bytes(rng, 9) } else { (start + n as u32 % 200).to_be_bytes().to_vec() }
    });
}

/// Batches with many keys for each leaf, and with many leaves for each key, as commits insert them.
#[test]
fn sorted_batches_find_their_leaves_however_dense() {
    let mut rng = Rng::with_seed(7);
    let mut pair = Pair::new();
    let most = scaled(20_000) as u32;
    for step in [50_u32, 1, 7, 400, 2, 1000] {
        pair.seq += 1;
        let first = rng.u32(0..step);
        let keys: Vec<_> = (first..most).step_by(step as usize).map(u32::to_be_bytes).collect();
        let seq = SeqNo::new(pair.seq);
        let entries = keys.iter().map(|key| EntryRef { key, seq, kind: Kind::PUT, value: key });
        pair.memtable.insert_all(&mut pair.applier, entries);
        for key in keys {
            pair.model.insert((key.to_vec(), Reverse(pair.seq)), (Kind::PUT, key.to_vec()));
        }
    }
    pair.check(&mut rng);
}

#[test]
fn the_longest_keys() {
    let mut rng = Rng::with_seed(9);
    let mut pair = Pair::new();
    for n in 0..scaled(120) {
        let mut key = vec![rng.u8(0..2); 65_540];
        key[65_539 - n % 3] = rng.u8(..);
        pair.put(&key, Kind::PUT, &[n as u8]);
    }
    let visible = pair.visible(pair.seq);
    pair.check_gets(&visible, pair.seq);
    check_walks(&pair.memtable, &visible, pair.seq);
}

#[test]
fn a_value_larger_than_a_chunk() {
    let mut pair = Pair::new();
    let large = vec![7; if cfg!(miri) { 70_000 } else { 20 << 20 }];
    pair.put(b"b", Kind::PUT, &large);
    pair.put(b"a", Kind::PUT, b"small");
    assert_eq!(pair.memtable.get(b"b", SeqNo::MAX).unwrap().value, large);
    assert_eq!(pair.memtable.get(b"a", SeqNo::MAX).unwrap().value, b"small");
    assert!(pair.memtable.bytes_used() > large.len());
}

/// Sequence numbers of a long-lived database do not fit in four bytes.
#[test]
fn memtable_1_versions_at_large_numbers_are_found_at_theirs() {
    let mut rng = Rng::with_seed(13);
    let mut pair = Pair::new();
    for last in [7, 1_u64 << 32, (1 << 32) + 7, 1 << 40, (1 << 40) + 7, SeqNo::MAX.get()] {
        pair.seq = last - 3;
        pair.put(b"a", Kind::PUT, &last.to_le_bytes());
        pair.put(b"b", Kind::REMOVE, b"");
        pair.put(b"c", Kind::PUT, b"");
        pair.check(&mut rng);
    }
    let numbers: Vec<u64> = pair.model.keys().map(|(_, seq)| seq.0).collect();
    for at in numbers {
        let visible = pair.visible(at);
        pair.check_gets(&visible, at);
        check_walks(&pair.memtable, &visible, at);
    }
    assert_eq!((pair.memtable.min_seq(), pair.memtable.max_seq()), (Some(SeqNo::new(5)), Some(SeqNo::MAX)));
}

#[test]
fn an_empty_memtable_is_small() {
    let memtable = Memtable::new(64 << 20);
    assert!(memtable.bytes_used() < 10_000 && memtable.is_empty());
    assert_eq!((memtable.min_seq(), memtable.max_seq(), memtable.entries()), (None, None, 0));
    assert!(memtable.scan().next().is_none());
}

#[test]
fn memtable_3_range_tombstones_are_apart_from_the_filter() {
    let memtable = Memtable::new(1000);
    let mut applier = memtable.applier();
    let tombstone = |start: &str, end: &str, seq| RangeTombstone {
        start: start.into(),
        end: end.into(),
        seq: SeqNo::new(seq),
    };
    assert!(!memtable.has_range_tombstones() && memtable.range_tombstones().is_empty());
    memtable.add_range_tombstone(&mut applier, tombstone("q", "q", 3));
    assert!(memtable.is_empty());
    memtable.add_range_tombstone(&mut applier, tombstone("a", "m", 5));
    let before = memtable.range_tombstones();
    memtable.add_range_tombstone(&mut applier, tombstone("c", "z", 7));
    assert!(memtable.has_range_tombstones() && !memtable.is_empty());
    assert!(!memtable.may_contain(key_hash(b"d")));
    let cover = |key: &[u8], at| memtable.range_tombstones().cover(key, SeqNo::new(at)).get();
    assert_eq!([cover(b"d", 9), cover(b"d", 6), cover(b"d", 4), cover(b"z", 9)], [7, 5, 0, 0]);
    assert_eq!(before.cover(b"d", SeqNo::MAX).get(), 5);
    assert_eq!((memtable.min_seq(), memtable.max_seq()), (Some(SeqNo::new(5)), Some(SeqNo::new(7))));
}

#[test]
#[should_panic(expected = "memtable.2")]
fn memtable_2_a_version_twice_is_refused() {
    let memtable = Memtable::new(1000);
    let mut applier = memtable.applier();
    let entry = EntryRef { key: b"k", seq: SeqNo::new(4), kind: Kind::PUT, value: b"" };
    memtable.insert(&mut applier, entry);
    memtable.insert(&mut applier, entry);
}

#[test]
#[should_panic(expected = "memtable.1")]
fn memtable_1_an_applier_of_another_memtable_is_refused() {
    let (one, other) = (Memtable::new(1000), Memtable::new(1000));
    let entry = EntryRef { key: b"k", seq: SeqNo::new(4), kind: Kind::PUT, value: b"" };
    one.insert(&mut other.applier(), entry);
}

#[test]
#[should_panic(expected = "one applier")]
fn memtable_1_there_is_one_applier() {
    let memtable = Memtable::new(1000);
    let _first = memtable.applier();
    memtable.applier();
}

#[test]
fn memtable_4_cursors_and_scans_outlive_the_memtable() {
    let mut pair = Pair::new();
    pair.fill(scaled(1000), &mut Rng::with_seed(11), |rng, _| random_bytes(rng, 4));
    let visible = pair.visible(pair.seq);
    let (mut cursor, mut scan) = (pair.memtable.cursor(SeqNo::MAX), pair.memtable.scan());
    drop((pair.memtable, pair.applier));
    cursor.seek_first().unwrap();
    for seen in &visible {
        assert_eq!(shown(&cursor).as_ref(), Some(seen));
        cursor.next().unwrap();
    }
    assert_eq!(scan.next().map(|e| e.key), Some(&visible[0].0[..]));
}

/// The keys of the concurrent test. Inserts visit a small key space in a fixed permutation, again and again,
/// so that readers can compute which insert they must see. Every key is inserted repeatedly.
struct Keys {
    count: u64,
    step: u64,
}

impl Keys {
    fn nth(&self, seq: u64) -> u64 {
        (seq * self.step) % self.count
    }

    fn bytes(key: u64) -> Vec<u8> {
        format!("common/prefix/{key:09}").into_bytes()
    }

    /// The number of the newest insert of a key, up to `at`. It is among the last `count`.
    fn newest(&self, key: u64, at: u64) -> Option<u64> {
        (at.saturating_sub(self.count - 1).max(1)..=at).rev().find(|&seq| self.nth(seq) == key)
    }
}

/// A reader at the published sequence number: point reads and walks in both directions see exactly the
/// snapshot.
fn read_snapshot(
    memtable: &Memtable,
    keys: &Keys,
    at: u64,
    rng: &mut Rng,
    inverse: &dyn Fn(u64, u64) -> Option<u64>,
) {
    let seq = SeqNo::new(at);
    for _ in 0..scaled(20) {
        let key = rng.u64(0..keys.count);
        let bytes = Keys::bytes(key);
        let expected = inverse(key, at);
        assert!(expected.is_none() || memtable.may_contain(key_hash(&bytes)), "memtable.3");
        let found = memtable.get(&bytes, seq);
        assert_eq!(found.map(|e| e.seq.get()), expected, "key {key} at {at}");
        assert!(found.is_none_or(|e| e.value == e.seq.get().to_le_bytes()), "key {key} at {at}");
    }
    let mut cursor = memtable.cursor(seq);
    let (forward, mut key) = (rng.bool(), rng.u64(0..keys.count));
    let from = Keys::bytes(key);
    if forward { cursor.seek(&from) } else { cursor.seek_before(&from) }.unwrap();
    for _ in 0..scaled(200) {
        // The next key that the reader must see, in the direction of the walk.
        let expected = loop {
            if (forward && key == keys.count) || (!forward && key == 0) {
                break None;
            }
            key -= u64::from(!forward);
            let this = key;
            key += u64::from(forward);
            if let Some(seq) = inverse(this, at) {
                break Some((Keys::bytes(this), seq));
            }
        };
        let found = cursor.valid().then(|| (cursor.key().to_vec(), cursor.seq().get()));
        assert_eq!(found, expected, "from {} at {at}, forward: {forward}", from.escape_ascii());
        if expected.is_none() {
            break;
        }
        if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
}

/// Readers hold their snapshots while the tree splits under them (memtable.1, tree.1 to tree.3).
#[test]
fn memtable_1_concurrent_readers_see_exactly_their_snapshot() {
    // The keys come scattered, ascending or descending.
    for (step, seed) in [(7919, 1), (1, 2), (u64::MAX, 3)] {
        let count = scaled(20_000) as u64 | 1;
        let keys = Keys { count, step: if step == u64::MAX { count - 1 } else { step } };
        // Sequence number of a key in the first round, so that readers need no search.
        let mut first = vec![0; count as usize];
        (1..=count).for_each(|seq| first[keys.nth(seq) as usize] = seq);
        let inverse = |key: u64, at: u64| {
            let first = first[key as usize];
            (first <= at).then(|| first + (at - first) / count * count)
        };
        assert_eq!(inverse(5, count + 3), keys.newest(5, count + 3));
        let memtable = Memtable::new(1 << 16);
        let published = AtomicU64::new(0);
        let last = count * 2 + count / 2;
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (memtable, published, keys, inverse) = (&memtable, &published, &keys, &inverse);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed * 100 + reader);
                    loop {
                        let at = published.load(Ordering::Acquire);
                        // Half of the reads use an older snapshot.
                        let back = if rng.bool() { 0 } else { rng.u64(0..=at.min(1000)) };
                        read_snapshot(memtable, keys, at - back, &mut rng, inverse);
                        if at == last {
                            break;
                        }
                    }
                });
            }
            let mut applier = memtable.applier();
            for seq in 1..=last {
                let key = Keys::bytes(keys.nth(seq));
                let value = seq.to_le_bytes();
                let entry = EntryRef { key: &key, seq: SeqNo::new(seq), kind: Kind::PUT, value: &value };
                memtable.insert(&mut applier, entry);
                published.store(seq, Ordering::Release);
            }
        });
    }
}

/// The tree in the middle of a split, as readers may find it: the left child still holds the keys of the
/// right one.
#[test]
fn tree_3_walks_over_a_leaf_wider_than_its_fences() {
    let tree = Arc::new(Tree::new());
    let mut bump = tree.take_bump().unwrap();
    let slots: Vec<Slot<'_>> = (0..SLOTS as u8)
        .map(|n| {
            let entry = EntryRef { key: &[n * 2], seq: SeqNo::new(1), kind: Kind::PUT, value: b"" };
            Slot { head: head8(entry.key), record: Record::write(&mut bump, &tree.arena, entry, None, None) }
        })
        .collect();
    for middle in 1..SLOTS {
        let wide = Leaf::new(0, &slots).place(&mut bump, &tree.arena);
        let right = Leaf::new(0, &slots[middle..]).place(&mut bump, &tree.arena);
        let root = Inner::new(1, 0, &slots[middle..=middle], &[wide, right]);
        tree.set_root(root.place(&mut bump, &tree.arena));
        let mut position = Position::new(Arc::clone(&tree));
        let on = |position: &Position| position.version().map(|version| version.key()[0]);
        for key in 0..=SLOTS as u8 * 2 {
            // Walks from each key to the end, then from each key to the beginning.
            position.seek(&[key]);
            let mut expected = key.next_multiple_of(2);
            while expected < SLOTS as u8 * 2 {
                assert_eq!(on(&position), Some(expected), "from {key}, split at {middle}");
                position.next();
                expected += 2;
            }
            assert_eq!(on(&position), None);
            position.seek_before(&[key]);
            for expected in (0..key).rev().filter(|n| n % 2 == 0) {
                assert_eq!(on(&position), Some(expected), "back from {key}, split at {middle}");
                position.prev();
            }
            assert_eq!(on(&position), None);
        }
    }
}

/// Cursors stay open while other keys are inserted, and change direction at random (position.1).
#[test]
fn tree_3_cursors_made_before_go_on_over_their_snapshot() {
    let mut rng = Rng::with_seed(12);
    let mut pair = Pair::new();
    let mut cursors: Vec<(MemtableCursor, Vec<Seen>, usize, bool)> = Vec::new();
    let mut turns_after_inserts = 0;
    for round in 0..scaled(400) {
        pair.fill(30, &mut rng, |rng, _| rng.u16(0..6000).to_be_bytes().to_vec());
        let visible = pair.visible(pair.seq);
        let mut cursor = pair.memtable.cursor(SeqNo::new(pair.seq));
        let forward = round % 2 == 0;
        if forward { cursor.seek_first() } else { cursor.seek_last() }.unwrap();
        let at = if forward { 0 } else { visible.len() - 1 };
        cursors.push((cursor, visible, at, forward));
        cursors.retain_mut(|(cursor, visible, at, forward)| {
            let turns = rng.u8(0..3) > 0;
            for step in 0..rng.usize(0..100) {
                assert_eq!(shown(cursor).as_ref(), visible.get(*at), "forward: {forward}, step {step}");
                // The first step after inserts reverses direction half of the time, later ones occasionally.
                if turns && rng.u8(0..if step == 0 { 2 } else { 12 }) == 0 {
                    *forward = !*forward;
                    turns_after_inserts += usize::from(step == 0);
                }
                if *forward { cursor.next() } else { cursor.prev() }.unwrap();
                *at = if *forward { *at + 1 } else { at.wrapping_sub(1) };
                if *at >= visible.len() {
                    assert!(!cursor.valid());
                    return false;
                }
            }
            true
        });
    }
    assert!(cfg!(miri) || turns_after_inserts > 500, "{turns_after_inserts}");
}
