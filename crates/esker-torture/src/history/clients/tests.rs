//! Tests which failures clients excuse.

use std::sync::Arc;

use esker::Db;
use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::super::keyspaces::MONEY;
use super::*;

const FAILURE: FaultAction = FaultAction::Fail(std::io::ErrorKind::Other);

/// Opens a database without background work on a file system that can fail.
fn failing(faults: &FaultFs) -> Keyspaces {
    let env = Env::with_fs(Arc::new(faults.clone()));
    // With little memory, reads do not include neighboring blocks.
    let db = Db::builder()
        .memory(1 << 20)
        .background(false)
        .tuning(|t| t.block_bytes(128))
        .env(env)
        .open("db")
        .unwrap();
    Keyspaces::new(&db, false).unwrap()
}

fn client<'a>(shared: &'a Shared, keyspaces: &'a Keyspaces) -> Client<'a> {
    Client { shared, keyspaces, id: 2, rng: Rng::with_seed(1), records: Vec::new(), notes: None }
}

#[test]
fn a_read_that_fails_has_no_excuse() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let shared = Shared::new(None);
    let keyspaces = failing(&faults);
    let mut writer = client(&shared, &keyspaces);
    for key in 0..1000 {
        writer.put(key).unwrap();
    }
    keyspaces.db.flush().unwrap();
    keyspaces.db.close().unwrap();
    // The registers are not cached.
    let keyspaces = failing(&faults);
    shared.may_fail.store(true, Ordering::Relaxed);
    faults.add(FaultRule::new(&[OpKind::Read], FAILURE).on_path(".sst").forever());
    let failure = client(&shared, &keyspaces).read_register(500).unwrap_err();
    assert!(failure.is_injected(), "{failure}");
    let worked = client(&shared, &keyspaces).run(5000..5200);
    assert!(worked.is_err_and(|failure| failure.is_injected()));
}

#[test]
fn a_commit_that_fails_while_the_log_goes_on_has_not_been_made() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let shared = Shared::new(None);
    let keyspaces = failing(&faults);
    keyspaces.db.flush().unwrap();
    // The next commit needs a new segment, whose name cannot be made durable.
    faults.add(FaultRule::new(&[OpKind::SyncDir], FAILURE).forever());
    let mut client = client(&shared, &keyspaces);
    assert!(client.put(0).unwrap_err().is_injected(), "no fault is expected");
    shared.may_fail.store(true, Ordering::Relaxed);
    client.records.clear();
    client.put(0).unwrap();
    assert!(client.records.is_empty() && shared.refused.load(Ordering::Relaxed) == 1);
    assert!(keyspaces.registers.get(0_u64.to_be_bytes()).unwrap().is_none());
    shared.may_fail.store(false, Ordering::Relaxed);
    let failure = client.write_after_faults(0, true).unwrap_err();
    assert!(failure.is_injected(), "it still fails without reporting stopped writes: {failure}");
    faults.clear();
    assert!(!client.write_after_faults(0, true).unwrap());
    assert!(keyspaces.registers.get(0_u64.to_be_bytes()).unwrap().is_some());
}

#[test]
fn writes_may_be_stopped_only_if_the_log_may_have_failed() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let shared = Shared::new(None);
    let keyspaces = failing(&faults);
    shared.may_fail.store(true, Ordering::Relaxed);
    faults.add(FaultRule::new(&[OpKind::Write], FAILURE).on_path(".wal"));
    let mut client = client(&shared, &keyspaces);
    assert!(client.put(0).unwrap_err().is_of_stopped_writes(), "it is not a refused commit");
    assert_eq!(shared.refused.load(Ordering::Relaxed), 0);
    faults.clear();
    let failure = client.write_after_faults(0, false).unwrap_err();
    assert!(failure.is_of_stopped_writes(), "{failure}");
    assert!(client.write_after_faults(0, true).unwrap());
}

#[test]
fn money_that_was_seen_and_is_gone_is_not_deposited_again() {
    let db = Db::builder().env(Env::with_fs(Arc::new(MemFs::new()))).open("db").unwrap();
    let shared = Shared::new(None);
    let sums = |keyspaces: &Keyspaces| {
        let rng = Rng::with_seed(1);
        let mut client = Client { shared: &shared, keyspaces, id: 0, rng, records: Vec::new(), notes: None };
        client.read_bank().unwrap();
        client.records.pop().unwrap().event
    };
    assert_eq!(sums(&Keyspaces::new(&db, false).unwrap()), Event::Bank(MONEY));
    db.keyspace("bank").unwrap().clear().unwrap();
    assert_eq!(sums(&Keyspaces::new(&db, true).unwrap()), Event::Bank(0));
}
