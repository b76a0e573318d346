//! Models of concurrent lists of numbers: lists that share a buffer grow and are read in every interleaving.
//! See `crate::sync`.

use std::sync::Arc;

use super::{SeqNo, Seqs};
use crate::sync::fault::{Broken, Fault};
use crate::sync::{Mutex, model};

/// The list of 2 and 1, in a buffer with free places.
fn list() -> Seqs {
    let mut list = Seqs::one(SeqNo::new(1));
    list.push(SeqNo::new(2));
    list
}

fn push(list: &mut Seqs, numbers: [u64; 2]) {
    numbers.into_iter().for_each(|n| list.push(SeqNo::new(n)));
}

#[track_caller]
fn assert_is(list: &Seqs, falling: &[u64]) {
    let numbers: Vec<_> = list.iter().map(SeqNo::get).collect();
    assert_eq!(numbers, falling, "seqs.2");
    let found: Vec<_> = falling.iter().map(|&n| list.newest_at(SeqNo::new(n)).get()).collect();
    assert_eq!(found, falling, "seqs.1");
}

#[test]
fn seqs_1_seqs_2_clones_that_grow_apart_at_the_same_time() {
    model(|| {
        // Two numbers each. The first push writes the former newest number, which is equal in both lists, to
        // a place.
        let grows = |mut list: Seqs, numbers| {
            move || {
                push(&mut list, numbers);
                list
            }
        };
        let list = list();
        let read = list.clone();
        let first = loom::thread::spawn(grows(list.clone(), [5, 7]));
        let second = loom::thread::spawn(grows(list.clone(), [6, 8]));
        for _ in 0..2 {
            assert_is(&read, &[2, 1]);
        }
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_is(&first, &[7, 5, 2, 1]);
        assert_is(&second, &[8, 6, 2, 1]);
        assert_is(&list, &[2, 1]);
    });
}

#[test]
fn seqs_2_a_clone_that_was_handed_over_is_whole_while_its_list_grows() {
    model(|| {
        let place = Arc::new(Mutex::new(list()));
        let writer = {
            let place = place.clone();
            loom::thread::spawn(move || {
                // As in a memtable: the grown set replaces the one it was cloned from.
                for n in [5, 7] {
                    let mut list = place.lock().clone();
                    list.push(SeqNo::new(n));
                    *place.lock() = list;
                }
            })
        };
        for _ in 0..2 {
            let list = place.lock().clone();
            let grown = [7, 5, 2, 1];
            assert_is(&list, &grown[4 - list.len()..]);
        }
        writer.join().unwrap();
        assert_is(&place.lock(), &[7, 5, 2, 1]);
    });
}

#[test]
#[should_panic(expected = "seqs.2")]
fn canary_sq2_a_place_claimed_twice_is_found() {
    let _broken = Broken::new(Fault::PlaceClaimedTwice);
    seqs_1_seqs_2_clones_that_grow_apart_at_the_same_time();
}
