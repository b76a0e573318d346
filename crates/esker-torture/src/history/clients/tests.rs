//! What clients take for an excuse, and what they do not.

use std::sync::Arc;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::*;

const FAILURE: FaultAction = FaultAction::Fail(std::io::ErrorKind::Other);

/// A database that does nothing by itself, on a file system that can fail.
fn failing(faults: &FaultFs) -> Places {
    let env = Env::with_fs(Arc::new(faults.clone()));
    // So little memory that what lies around a block is not read with it.
    let db = Db::builder().memory(1 << 20).background(false).block_bytes(128).env(env).open("db").unwrap();
    Places::new(&db, false).unwrap()
}

fn client<'a>(world: &'a World, places: &'a Places) -> Client<'a> {
    Client { world, places, id: 2, rng: Rng::with_seed(1), records: Vec::new(), notes: None }
}

#[test]
fn clients_4_a_read_that_fails_has_no_excuse() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let world = World::new(None);
    let places = failing(&faults);
    let mut writer = client(&world, &places);
    for key in 0..1000 {
        writer.put(key).unwrap();
    }
    places.db.flush().unwrap();
    places.db.close().unwrap();
    // Of the registers nothing is cached.
    let places = failing(&faults);
    world.may_fail.store(true, Ordering::Relaxed);
    faults.add(FaultRule::new(&[OpKind::Read], FAILURE).on_path(".sst").forever());
    let failure = client(&world, &places).read_register(500).unwrap_err();
    assert!(failure.is_injected(), "{failure}");
    let worked = client(&world, &places).run(5000..5200);
    assert!(worked.is_err_and(|failure| failure.is_injected()), "clients.4");
}

#[test]
fn failing_disk_1_a_commit_that_fails_while_the_log_goes_on_has_not_been_made() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let world = World::new(None);
    let places = failing(&faults);
    places.db.flush().unwrap();
    // The next commit needs another segment, whose name cannot be made durable.
    faults.add(FaultRule::new(&[OpKind::SyncDir], FAILURE).forever());
    let mut client = client(&world, &places);
    assert!(client.put(0).unwrap_err().is_injected(), "no fault is expected");
    world.may_fail.store(true, Ordering::Relaxed);
    client.records.clear();
    client.put(0).unwrap();
    assert!(client.records.is_empty() && world.refused.load(Ordering::Relaxed) == 1, "failing_disk.1");
    assert!(places.registers.get(0_u64.to_be_bytes()).unwrap().is_none(), "failing_disk.1");
    world.may_fail.store(false, Ordering::Relaxed);
    let failure = client.write_after_faults(0, true).unwrap_err();
    assert!(
        failure.is_injected(),
        "failing_disk.2: it still fails, and says nothing of stopped writes: {failure}"
    );
    faults.clear();
    assert!(!client.write_after_faults(0, true).unwrap(), "failing_disk.2");
    assert!(places.registers.get(0_u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn failing_disk_2_writes_may_be_stopped_only_if_the_log_may_have_failed() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let world = World::new(None);
    let places = failing(&faults);
    world.may_fail.store(true, Ordering::Relaxed);
    faults.add(FaultRule::new(&[OpKind::Write], FAILURE).on_path(".wal"));
    let mut client = client(&world, &places);
    assert!(client.put(0).unwrap_err().is_of_stopped_writes(), "it does not count as refused");
    assert_eq!(world.refused.load(Ordering::Relaxed), 0);
    faults.clear();
    let failure = client.write_after_faults(0, false).unwrap_err();
    assert!(failure.is_of_stopped_writes(), "failing_disk.2: {failure}");
    assert!(client.write_after_faults(0, true).unwrap(), "failing_disk.2");
}

#[test]
fn money_that_was_seen_and_is_gone_is_not_deposited_again() {
    let db = Db::builder().env(Env::with_fs(Arc::new(MemFs::new()))).open("db").unwrap();
    let world = World::new(None);
    let sums = |places: &Places| {
        let rng = Rng::with_seed(1);
        let mut client = Client { world: &world, places, id: 0, rng, records: Vec::new(), notes: None };
        client.read_bank().unwrap();
        client.records.pop().unwrap().event
    };
    assert_eq!(sums(&Places::new(&db, false).unwrap()), Event::Bank(MONEY));
    db.keyspace("bank").unwrap().clear().unwrap();
    assert_eq!(sums(&Places::new(&db, true).unwrap()), Event::Bank(0));
}
