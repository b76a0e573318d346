//! Sequences: no number is given twice, whatever is lost.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker::env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind};
use esker::{Db, Keyspace, Sequence, Ttl};

fn open(fs: &MemFs) -> Db {
    open_at(Arc::new(fs.clone())).unwrap()
}

fn open_at(fs: Arc<dyn Fs>) -> esker::Result<Db> {
    let env = Env::simulated(fs, 1);
    Db::builder().stepped().env(env).open(Path::new("db"))
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

#[test]
fn a_released_rest_is_the_beginning_of_the_next_lease() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let open = || map.sequence("id", 100).unwrap();
    let (first, second, third) = (open(), open(), open());
    let five = |ids: &Sequence| ids.into_iter().take(5).map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!((five(&first), five(&second)), ((0..5).collect(), (100..105).collect()));
    first.release().unwrap();
    assert_eq!(five(&third), (200..205).collect::<Vec<_>>(), "sequence.2: the second one has leased behind");
    third.release().unwrap();
    assert_eq!(five(&open()), (205..210).collect::<Vec<_>>());
    second.release().unwrap();
    open().release().unwrap();
    assert_eq!(five(&open()), (305..310).collect::<Vec<_>>(), "one was dropped");
    let (last, commits) = (open(), db.snapshot().seqno());
    last.release().unwrap();
    assert_eq!(db.snapshot().seqno(), commits, "without a lease nothing is committed");
    let last = open();
    assert_eq!(last.next().unwrap(), 405);
    map.fetch_add("id", 7).unwrap();
    last.release().unwrap();
    assert_eq!(open().next().unwrap(), 512, "it was written otherwise");
    let last = open();
    last.next().unwrap();
    map.set_default_ttl(Some(std::time::Duration::from_secs(1))).unwrap();
    last.release().unwrap();
    assert_eq!(map.ttl("id").unwrap(), Some(Ttl::Unlimited));
    assert_eq!(open().next().unwrap(), 613);
    db.close().unwrap();
}

/// Takes numbers from several sequences, releases and drops some, until a call fails.
fn take_and_release(map: &Keyspace, seed: u64, given: &mut BTreeSet<u64>) -> esker::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut ours: [Option<Sequence>; 3] = Default::default();
    for _ in 0..60 {
        let slot = &mut ours[rng.usize(..3)];
        match slot.take() {
            None => *slot = Some(map.sequence("id", rng.u64(1..9))?),
            Some(sequence) if rng.u8(..5) == 0 => sequence.release()?,
            Some(_) if rng.u8(..20) == 0 => {}
            Some(sequence) => {
                let next = sequence.next()?;
                assert!(given.insert(next), "sequence.2: {next} again, seed {seed}");
                *slot = Some(sequence);
            }
        }
    }
    ours.into_iter().flatten().try_for_each(Sequence::release)
}

#[test]
fn sequence_2_no_number_is_given_out_twice_after_a_crash_at_any_call() {
    for n in 1.. {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let mut given = BTreeSet::new();
        let map = open_at(Arc::new(faults.clone())).unwrap().default_keyspace();
        take_and_release(&map, n, &mut given).unwrap();
        let dies = FaultAction::Fail(std::io::ErrorKind::Other);
        faults.add(FaultRule::new(&OpKind::CHANGES, dies).nth(n).forever());
        let done = take_and_release(&map, n + 1, &mut given);
        for left in [fs.crash_strict(), fs.crash(n), fs.crash(n + 1000), fs.kill()] {
            let map = open(&left).default_keyspace();
            take_and_release(&map, n + 2, &mut given.clone()).unwrap();
        }
        if done.is_ok() {
            return;
        }
    }
}

#[test]
fn sequence_2_threads_with_sequences_of_their_own_release_them() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let given = std::thread::scope(|scope| {
        let take = |seed: u64| {
            let mut given = BTreeSet::new();
            (0..20).for_each(|n| take_and_release(&map, seed * 100 + n, &mut given).unwrap());
            given
        };
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || take(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let count: usize = given.iter().map(BTreeSet::len).sum();
    assert_eq!(given.into_iter().flatten().collect::<BTreeSet<_>>().len(), count, "sequence.2");
}
