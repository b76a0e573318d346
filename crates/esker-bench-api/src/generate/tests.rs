//! Pins the streams. The tests of the program in Go pin the same figures.

mod streams;

use super::badger::BadgerItems;
use super::int::Ints;
use super::*;
use streams::streams;

#[test]
fn every_stream_is_pinned() {
    let pinned = [
        ("entries", 3321863922110725814),
        ("shapes", 18332308579107764206),
        ("int", 6462110813504162550),
        ("large", 5527708034191719542),
        ("badger", 772323790396916442),
        ("storage-bench random", 12587634721611838626),
        ("storage-bench sequential", 1904829600286437245),
        ("keyspaces", 5737417340166680337),
        ("ycsb", 5033598327530058509),
        ("obigstore sequential", 15020441381303363645),
        ("obigstore random", 940400077955640208),
        ("obigstore hotspots", 11701354937994816125),
        ("accounts", 8773516394753485532),
        ("transfers", 12395359812278096674),
    ];
    assert_eq!(streams(32), pinned);
}

#[test]
fn keys_look_as_they_should() {
    assert_eq!(&BadgerItems::new(1, 16384).key(1234567), b"vsz=16384-k=0001234567");
    assert_eq!(&obigstore::sequential_key(42), b"0000000000000042");
    assert!(ycsb::YcsbRecords::new(1).key(1).starts_with(b"user"));
    let mut ints: Vec<_> = (0..100_000).map(|i| Ints::new(1).key(i)).collect();
    ints.sort_unstable();
    ints.dedup();
    assert_eq!(ints.len(), 100_000);
}

#[test]
fn half_of_the_hotspot_writes_are_new_keys_next_to_the_last() {
    let mut hotspots = obigstore::Hotspots::new(1, 0.9999, 8);
    let new = (0..100_000).filter(|_| hotspots.next_key().1).count();
    assert!((49_000..52_000).contains(&new), "{new}");
}

#[test]
fn the_first_word_of_seed_0_is_splitmix64s() {
    assert_eq!(word(0, 0), 0xE220_A839_7B1D_CDAF);
}

#[test]
fn mixing_is_undone() {
    for i in 0..1000 {
        assert_eq!(unmix64(mix64(word(1, i))), word(1, i));
    }
}

#[test]
fn half_of_a_redundant_value_repeats() {
    let mut bytes = [0; 33];
    fill_half_redundant(7, &mut bytes);
    assert_eq!(bytes[..16], bytes[17..]);
    assert_ne!(bytes[..8], bytes[8..16]);
}
