//! A crash at every change of the file system, a fault at every call, a full disk at every size.
//!
//! ```text
//!   script on FaultFs(MemFs) --n-th call fails--> MemFs::crash --> reopen: a state that the journal allows
//! ```
//!
//! C1. After a crash the state is a prefix of the commits that contains all durable ones, each whole.
//! C2. A failed call gives a typed error; reads go on; nothing acknowledged is lost; the next open is sound.
//! C3. The harness notices syncs that do nothing (canaries).
//!
//! `ESKER_SWEEP=full cargo test -p esker --test crash_sweep` tries every position instead of a sample of them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;

use common::contents::{difference, dump_sound};
use common::lying_fs::{Lie, LyingFs};
use common::script::{Script, Step, bulk_steps, is_typed, steps};
use common::{dir, simulated};
use esker::Error;
use esker_env::{FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind};

/// More steps of unknown outcome than this make too many states possible: what follows would show nothing new.
const DOUBTFUL_MAX: usize = 6;
const FAIL: FaultAction = FaultAction::Fail(std::io::ErrorKind::Other);

/// The positions to try of `n`: all of a few or when asked for all, else a sample that starts and ends densely.
fn positions(n: u64, sample: u64) -> Vec<u64> {
    if n <= sample || std::env::var("ESKER_SWEEP").is_ok_and(|v| v == "full") {
        return (1..=n).collect();
    }
    let edge = sample / 4;
    let inner = (0..sample - 2 * edge).map(|i| edge + 1 + i * (n - 2 * edge) / (sample - 2 * edge));
    (1..=edge).chain(inner).chain(n - edge + 1..=n).collect()
}

/// How often each kind of call is made when nothing fails.
fn calls(steps: &[Step]) -> Vec<(OpKind, u64)> {
    let fs = FaultFs::new(Arc::new(MemFs::new()));
    let mut script = Script::new(simulated(Arc::new(fs.clone())));
    script.run(steps).unwrap();
    script.verify_reads().unwrap();
    drop(script);
    OpKind::ALL.into_iter().map(|kind| (kind, fs.count(kind))).collect()
}

/// What power loss may leave of `fs`.
fn crashes(fs: &MemFs, n: u64) -> [(&'static str, MemFs); 4] {
    [
        ("strict", fs.crash_strict()),
        ("keep all", fs.crash_keep_all()),
        ("seed 2n", fs.crash(2 * n)),
        ("seed 2n+1", fs.crash(2 * n + 1)),
    ]
}

/// Opens what a crash left, compares with the journal (C1), and writes on; says what is wrong.
fn verify_crash(script: &Script, fs: MemFs) -> Result<(), String> {
    let fs: FsRef = Arc::new(fs);
    let text = |e: Error| e.to_string();
    let db = simulated(fs.clone()).open(dir()).map_err(text)?;
    let found = dump_sound(&db).map_err(text)?;
    if !script.journal.allows_after_crash(&found) {
        return Err(format!("not a prefix: {}", difference(&found, &script.journal.visible)));
    }
    // What recovery left must carry further writes, and survive a crash of its own.
    db.default_keyspace().put("after the crash", "1").map_err(text)?;
    db.flush().map_err(text)?;
    let mut expected = found;
    expected.get_mut("default").unwrap().insert(b"after the crash".to_vec(), b"1".to_vec());
    db.close().map_err(text)?;
    let db = simulated(fs).open(dir()).map_err(text)?;
    let found = dump_sound(&db).map_err(text)?;
    if found == expected { Ok(()) } else { Err(format!("second open: {}", difference(&found, &expected))) }
}

/// Runs the script on a file system that dies at the `n`-th change, and verifies all crashes.
fn crash_at(n: u64, steps: &[Step], lie: Option<Lie>) -> Result<(), String> {
    let mem = MemFs::new();
    let honest: FsRef = Arc::new(mem.clone());
    let inner = match lie {
        Some(lie) => Arc::new(LyingFs { inner: honest, lie }),
        None => honest,
    };
    let fs = FaultFs::new(inner);
    fs.add(FaultRule::new(&OpKind::CHANGES, FAIL).nth(n).forever());
    let mut script = Script::new(simulated(Arc::new(fs)));
    let _died = script.run(steps);
    let left = crashes(&mem, n);
    drop(script.db.take());
    for (kind, fs) in left {
        verify_crash(&script, fs).map_err(|e| format!("crash at change {n}, {kind}: {e}"))?;
    }
    Ok(())
}

fn changes(steps: &[Step]) -> u64 {
    calls(steps).iter().filter(|(kind, _)| OpKind::CHANGES.contains(kind)).map(|(_, n)| n).sum()
}

#[test]
fn c1_a_crash_at_any_change_leaves_a_prefix() {
    let n = changes(&steps());
    assert!(n > 100, "the script does too little: {n} changes");
    for at in positions(n, 400) {
        crash_at(at, &steps(), None).unwrap();
    }
}

#[test]
fn c1_a_crash_around_bulk_commits_leaves_a_prefix() {
    for at in positions(changes(&bulk_steps()), 24) {
        crash_at(at, &bulk_steps(), None).unwrap();
    }
}

#[test]
fn c1_a_crash_during_recovery_leaves_a_prefix() {
    let n = changes(&steps());
    for at in positions(n, 40) {
        let mem = MemFs::new();
        let fs = FaultFs::new(Arc::new(mem.clone()));
        fs.add(FaultRule::new(&OpKind::CHANGES, FAIL).nth(at).forever());
        let mut script = Script::new(simulated(Arc::new(fs)));
        let _died = script.run(&steps());
        let left = mem.crash(at);
        drop(script.db.take());
        for recovery in 1.. {
            let mem = left.crash_keep_all();
            let fs = FaultFs::new(Arc::new(mem.clone()));
            fs.add(FaultRule::new(&OpKind::CHANGES, FAIL).nth(recovery).forever());
            let opened = simulated(Arc::new(fs.clone())).open(dir());
            let done = opened.is_ok() && fs.fired() == 0;
            for (kind, fs) in crashes(&mem, recovery) {
                let outcome = verify_crash(&script, fs);
                outcome
                    .map_err(|e| format!("crash at {at}, in recovery at {recovery}, {kind}: {e}"))
                    .unwrap();
            }
            if done {
                break;
            }
        }
    }
}

#[test]
fn c3_canary_syncs_that_do_nothing_are_noticed() {
    let n = changes(&steps());
    for lie in [Lie::SyncData, Lie::SyncDir] {
        let noticed = positions(n, 60).into_iter().any(|at| {
            std::panic::catch_unwind(|| crash_at(at, &steps(), Some(lie)))
                .map_or(true, |outcome| outcome.is_err())
        });
        assert!(noticed, "{lie:?} does nothing and no crash shows it");
    }
}

/// Runs the script to its end under `rule`, whatever fails, then verifies what is left (C2).
fn fault(rule: FaultRule) {
    let mem = MemFs::new();
    let fs = FaultFs::new(Arc::new(mem.clone()));
    fs.add(rule.clone());
    let mut script = Script::new(simulated(Arc::new(fs.clone())));
    for step in steps() {
        let fired = fs.fired();
        let Err(error) = script.step(&step) else { continue };
        let refused = matches!(error, Error::KeyspaceNotFound(_) | Error::KeyspaceExists(_));
        assert!(refused || is_typed(&error), "{rule:?}: {step:?}: {error:?}");
        // A read that the fault hits fails; without a fault reads work.
        match script.verify_reads() {
            Ok(()) => {}
            Err(error) => assert!(fs.fired() > fired, "{rule:?}: reads fail after {step:?}: {error}"),
        }
        if script.journal.doubtful > DOUBTFUL_MAX {
            break;
        }
    }
    let _perhaps = script.close();
    fs.clear();
    let reopened = script.open().map(drop);
    reopened.unwrap_or_else(|e| panic!("{rule:?}: reopening: {e}"));
    dump_sound(script.db.as_ref().unwrap()).unwrap();
}

#[test]
fn c2_every_call_fails_once() {
    for (kind, n) in calls(&steps()) {
        for at in positions(n, 40) {
            fault(FaultRule::new(&[kind], FAIL).nth(at));
        }
    }
}

#[test]
fn c2_every_call_fails_from_then_on() {
    for (kind, n) in calls(&steps()) {
        for at in positions(n, 12) {
            fault(FaultRule::new(&[kind], FAIL).nth(at).forever());
        }
    }
}

#[test]
fn c2_short_writes_are_no_commits() {
    let (_, n) = calls(&steps()).into_iter().find(|(kind, _)| *kind == OpKind::Write).unwrap();
    for at in positions(n, 60) {
        fault(FaultRule::new(&[OpKind::Write], FaultAction::ShortWrite { keep: (at % 23) as usize }).nth(at));
    }
}

#[test]
fn c2_a_full_disk_loses_nothing_and_reads_go_on() {
    let mem = MemFs::new();
    let mut script = Script::new(simulated(Arc::new(mem.clone())));
    let mut most = 0;
    for step in steps() {
        script.step(&step).unwrap();
        most = most.max(mem.used_bytes());
    }
    drop(script);
    for sixtieth in 0..60 {
        full_disk(most * sixtieth / 60);
    }
}

/// The script on a disk of `capacity` bytes, then on one with space.
fn full_disk(capacity: u64) {
    let mem = MemFs::new();
    mem.set_capacity(Some(capacity));
    let mut script = Script::new(simulated(Arc::new(mem.clone())));
    for step in steps() {
        let Err(error) = script.step(&step) else { continue };
        if matches!(error, Error::KeyspaceNotFound(_) | Error::KeyspaceExists(_)) {
            continue;
        }
        assert!(
            matches!(error, Error::NoSpace { .. } | Error::Poisoned(_)),
            "{capacity}: {step:?}: {error:?}"
        );
        script.verify_reads().unwrap();
        if script.journal.doubtful > DOUBTFUL_MAX {
            break;
        }
    }
    mem.set_capacity(None);
    if let Some(db) = &script.db {
        // With space again, the open database goes on, unless the log itself was cut short.
        match db.default_keyspace().put("a/common/prefix/of/keys/0000", "space") {
            Ok(()) => {
                let map = script.journal.visible.get_mut("default").unwrap();
                map.insert(b"a/common/prefix/of/keys/0000".to_vec(), b"space".to_vec());
                script.verify_reads().unwrap();
                db.compact().unwrap();
                return script.verify_reads().unwrap();
            }
            Err(error) => assert!(matches!(error, Error::Poisoned(_)), "{capacity}: with space: {error:?}"),
        }
    }
    let _perhaps = script.close();
    script.open().unwrap_or_else(|e| panic!("{capacity}: reopening: {e}"));
    dump_sound(script.db.as_ref().unwrap()).unwrap();
}
