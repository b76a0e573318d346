//! A process is killed. The next process is stopped at each change that its recovery makes. Then the power
//! fails. All commits that the first process acknowledged as durable must be there, and what is there must be
//! a prefix.
//!
//! What recovery reads after a kill may never have been synced: log records, and the manifest's last edit.
//! Recovery (recovery.4, recovery.5 in `wal/recovery.rs`) has to make sure that nothing relies on them too
//! early.

use std::sync::Arc;

use crate::common::contents::{Map, dump_sound};
use crate::common::damage::one_in;
use crate::common::{dir, simulated};
use esker::{Db, Durability, Result};
use esker_env::{FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind};

const COMMITS: u64 = 40;
/// The value that each commit puts.
const VALUE: [u8; 300] = [7; 300];

/// A file system on which every change from the `n`-th on fails.
fn dies_at(fs: &MemFs, n: u64) -> FsRef {
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let fail = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&OpKind::CHANGES, fail).nth(n).forever());
    Arc::new(faults)
}

/// Commits 0, 1, 2, ..., syncs every third, and flushes in between. Records how many were `begun`, and how
/// many are `durable`.
fn work(db: &Db, begun: &mut u64, durable: &mut u64) -> Result<()> {
    let keyspace = db.default_keyspace();
    for i in 0..COMMITS {
        *begun = i + 1;
        let mut batch = db.batch();
        batch.put(&keyspace, i.to_be_bytes(), VALUE)?;
        if i % 3 == 0 {
            batch.commit_with(Durability::Sync)?;
            *durable = i + 1;
        } else {
            batch.commit_with(Durability::Buffered)?;
        }
        if i % 13 == 12 {
            db.flush()?;
            *durable = i + 1;
        }
    }
    Ok(())
}

/// Returns how many commits exist. They must be the first ones, complete, in a sound database without other
/// entries.
fn commits_in(fs: MemFs) -> Result<u64> {
    let db = simulated(Arc::new(fs)).open(dir())?;
    let contents = dump_sound(&db)?;
    assert_eq!(contents.keys().collect::<Vec<_>>(), ["default"]);
    let found = &contents["default"];
    let n = found.len() as u64;
    let expected: Map = (0..n).map(|i| (i.to_be_bytes().to_vec(), VALUE.to_vec())).collect();
    assert!(*found == expected, "{n} keys that are not the first ones");
    Ok(n)
}

#[test]
fn what_was_durable_survives_a_kill_and_a_power_loss_during_recovery() {
    let mut recoveries = 0;
    for n in one_in(2, 1..) {
        let first = MemFs::new();
        let (mut begun, mut durable) = (0, 0);
        let worked = simulated(dies_at(&first, n)).open(dir()).and_then(|db| {
            let result = work(&db, &mut begun, &mut durable);
            // Like a killed process: without a clean close.
            std::mem::forget(db);
            result
        });
        for m in 1.. {
            let second = first.kill();
            let opened = simulated(dies_at(&second, m)).open(dir());
            let done = opened.map(std::mem::forget).is_ok();
            for left in [second.crash_strict(), second.crash(n * 1000 + m), second.kill()] {
                let found = commits_in(left).unwrap_or_else(|e| panic!("change {n}, then {m}: {e}"));
                assert!(found >= durable, "change {n}, then {m}: {found} commits of {durable} durable ones");
                assert!(found <= begun, "change {n}, then {m}: {found} commits, but only {begun} were begun");
            }
            recoveries += 1;
            if done {
                break;
            }
        }
        if worked.is_ok() {
            break;
        }
    }
    assert!(recoveries > 250, "only {recoveries} recoveries");
}
