//! Sequences: no number is given twice, whatever is lost.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker::Db;
use esker::env::{Env, MemFs};

fn open(fs: &MemFs) -> Db {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    Db::builder().stepped().env(env).open(Path::new("db")).unwrap()
}

#[test]
fn sequence_1_no_number_is_given_out_twice_though_the_power_goes() {
    let mut fs = MemFs::new();
    let mut given = BTreeSet::new();
    for round in 0..20 {
        let db = open(&fs);
        let map = db.default_keyspace();
        let ours = [map.sequence("id", 7).unwrap(), map.sequence("id", 3).unwrap()];
        for n in 0..round {
            let next = ours[n % 2].next().unwrap();
            assert!(given.insert(next), "sequence.1: {next}");
        }
        // Loses what was not synced.
        fs = fs.crash(round as u64);
    }
    assert!(given.last() < Some(&500), "few are left out: {given:?}");
    let map = open(&fs).default_keyspace();
    assert!(map.sequence("id", 0).is_err());
    map.put("text", "not a number").unwrap();
    assert!(map.sequence("text", 1).unwrap().next().is_err());
}

#[test]
fn threads_share_a_sequence() {
    let db = Db::in_memory().unwrap();
    let sequence = db.default_keyspace().sequence("id", 5).unwrap();
    let given = std::thread::scope(|scope| {
        let take = || (0..500).map(|_| sequence.next().unwrap()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<BTreeSet<_>>()
    });
    assert_eq!(given, (0..2000).collect());
}
