//! Loom models of the memtable: one applier and readers, in every interleaving. See `crate::sync`.
//!
//! A node holds 15 entries. The models fill it without readers first, so that only the last inserts race with
//! them.

use std::sync::Arc;

use super::Memtable;
use crate::encoding::hash::key_hash;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::fault::{Broken, Fault};
use crate::sync::model;
use crate::types::SeqNo;
use crate::types::cursor::SourceCursor;
use crate::types::entry::EntryRef;
use crate::types::op::Kind;

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

struct World {
    memtable: Memtable,
    /// The sequence number that the commit pipeline publishes after its inserts (memtable.1).
    visible: AtomicU64,
}

/// Inserts `alone` keys without readers, then `late` keys while a reader calls `read` with the sequence
/// number that it saw. `keys(s)` is the key inserted at sequence number `s`.
fn race(alone: u64, late: u64, keys: fn(u64) -> u64, read: fn(&Memtable, u64, fn(u64) -> u64)) {
    model(move || {
        let world = Arc::new(World { memtable: Memtable::new(100), visible: AtomicU64::new(alone) });
        let mut applier = world.memtable.applier();
        let mut insert = {
            let world = world.clone();
            move |seq: u64| {
                let (key, value) = (key(keys(seq)), seq.to_le_bytes());
                let entry = EntryRef { key: &key, seq: SeqNo::new(seq), kind: Kind::PUT, value: &value };
                world.memtable.insert(&mut applier, entry);
                world.visible.store(seq, Ordering::Release);
            }
        };
        (1..=alone).for_each(&mut insert);
        let writer = loom::thread::spawn(move || (alone + 1..=alone + late).for_each(&mut insert));
        read(&world.memtable, world.visible.load(Ordering::Acquire), keys);
        writer.join().unwrap();
        read(&world.memtable, alone + late, keys);
    });
}

/// memtable.1, memtable.3: the filter admits each key up to the visible number, and each is found with its
/// newest visible version.
fn all_found(memtable: &Memtable, visible: u64, keys: fn(u64) -> u64) {
    // Only the newest keys race with the reader; two old ones represent the rest.
    for seq in [1, 8].into_iter().chain(visible.saturating_sub(1)..=visible) {
        let key = key(keys(seq));
        assert!(memtable.may_contain(key_hash(&key)), "memtable.3: seq {seq}");
        let newest = (1..=visible).rev().find(|s| keys(*s) == keys(seq)).unwrap();
        let found = memtable.get(&key, SeqNo::new(visible)).expect("memtable.1");
        assert_eq!((found.seq.get(), found.value), (newest, &newest.to_le_bytes()[..]), "memtable.1");
    }
}

/// tree.1 to tree.3: a walk from the first key shows every key up to the visible number, in order.
fn all_walked(memtable: &Memtable, visible: u64, keys: fn(u64) -> u64) {
    let mut expected: Vec<_> = (1..=visible).map(keys).collect();
    expected.sort_unstable();
    expected.dedup();
    let mut cursor = memtable.cursor(SeqNo::new(visible));
    cursor.seek_first().unwrap();
    for n in expected {
        assert!(cursor.valid(), "tree.1: key {n} is missing");
        assert_eq!(cursor.key(), key(n), "tree.1");
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

/// Even numbers first, so that late keys fall between early ones: 2, 4, ..., 30, then 1, 3, ...
fn into_the_middle(seq: u64) -> u64 {
    if seq <= 15 { 2 * seq } else { 2 * (seq - 15) + 7 }
}

/// A new key, then newer versions of it and of an older key.
fn again(seq: u64) -> u64 {
    if seq % 2 == 0 { 3 } else { 4 }
}

#[test]
fn node_1_an_insert_into_a_leaf_with_room() {
    race(9, 1, |seq| (seq * 7) % 31, all_found);
}

#[test]
fn tree_1_an_insert_that_splits_the_root_leaf() {
    race(15, 1, into_the_middle, all_found);
}

#[test]
fn tree_1_walks_over_a_split_of_the_root_leaf() {
    race(15, 1, into_the_middle, all_walked);
}

#[test]
fn tree_1_appending_begins_a_new_leaf() {
    race(15, 2, |seq| seq, all_found);
}

/// The 16th key splits the root leaf; seven more fill the left half, and the 24th splits it below its parent.
/// The 22nd and 23rd are in the half that moves.
fn splits_a_child(seq: u64) -> u64 {
    match seq {
        ..=16 => into_the_middle(seq),
        17..=23 => [1, 3, 5, 7, 11, 13, 15][seq as usize - 17],
        _ => 0,
    }
}

#[test]
fn tree_2_a_split_below_a_parent() {
    race(23, 1, splits_a_child, all_found);
}

#[test]
fn tree_3_tree_4_walks_over_a_split_below_a_parent() {
    race(23, 1, splits_a_child, all_walked);
}

#[test]
fn record_2_versions_of_one_key() {
    race(9, 2, again, |memtable, visible, keys| {
        for seq in [visible, visible - 1] {
            let found = memtable.get(&key(keys(seq)), SeqNo::new(visible)).expect("memtable.1");
            assert_eq!(found.value, seq.to_le_bytes());
            let older = memtable.get(&key(keys(seq)), SeqNo::new(seq - 1)).expect("memtable.2");
            assert_eq!(older.value, (seq - 2).to_le_bytes());
        }
    });
}

#[test]
#[should_panic(expected = "memtable.1")]
fn canary_n1_a_slot_shown_without_release_is_found() {
    let _broken = Broken::new(Fault::PermutationNotReleased);
    node_1_an_insert_into_a_leaf_with_room();
}
