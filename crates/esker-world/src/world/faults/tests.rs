//! Tests which errors have which reasons.

use std::path::{Path, PathBuf};

use esker_env::{Fs, OpenOptions};

use super::*;
use crate::failure::caught;

/// Returns whether an error is accepted in a world in this state.
fn is_excused(prepare: impl FnOnce(&mut World), error: fn() -> Error) -> bool {
    caught(|| {
        let mut world = World::new(0, None);
        prepare(&mut world);
        world.excused::<()>(Err(error()));
    })
    .is_ok()
}

/// Makes a call of this kind fail.
fn fails(kind: OpKind, path: &'static str, action: FaultAction) -> impl FnOnce(&mut World) {
    move |world| {
        world.machine.faults.add(FaultRule::new(&[kind], action));
        let path = Path::new(path);
        let file = world.machine.faults.open(path, OpenOptions::create()).unwrap();
        let failed = match kind {
            OpKind::Write => file.write_all_at(b"x", 0),
            OpKind::Read => file.read_at(&mut [0], 0).map(drop),
            OpKind::SyncData => file.sync_data(),
            OpKind::Hint => file.drop_cache(0, 1),
            OpKind::SyncDir => world.machine.faults.sync_dir(Path::new("")),
            OpKind::Remove => world.machine.faults.remove_file(path),
            _ => Ok(()),
        };
        assert!(failed.is_err());
    }
}

const IO: FaultAction = FaultAction::Fail(ErrorKind::Other);
const FULL: FaultAction = FaultAction::NoSpace;

fn injected() -> Error {
    let source = std::io::Error::other("injected fault (other error): Write a");
    Error::Io { op: "write", path: PathBuf::new(), source: source.into() }
}

fn stopped() -> Error {
    Error::Poisoned(std::sync::Arc::new(injected()))
}

fn no_space() -> Error {
    Error::NoSpace { op: "write", path: PathBuf::new() }
}

fn poisoned() -> Error {
    Error::Poisoned(std::sync::Arc::new(no_space()))
}

#[test]
fn a_full_disk_excuses_a_lack_of_space_and_no_more() {
    let refused = |world: &mut World| {
        world.fill_disk(0);
        let file = world.machine.disk.open(Path::new("a"), OpenOptions::create()).unwrap();
        assert!(file.write_all_at(b"x", 0).is_err());
    };
    assert!(is_excused(refused, no_space));
    assert!(!is_excused(refused, poisoned));
    let earlier = move |world: &mut World| {
        refused(world);
        world.begin_operation();
    };
    assert!(!is_excused(earlier, no_space));
    assert!(!is_excused(|world| world.fill_disk(0), no_space), "nothing was refused");
    let failed_before = |world: &mut World| world.process.poisoned = true;
    assert!(is_excused(failed_before, poisoned));
    assert!(!is_excused(failed_before, no_space));
}

#[test]
fn reads_go_on_when_the_log_has_failed_and_when_the_disk_is_full() {
    let fails = |prepare: fn(&mut World), error: fn() -> Error| {
        caught(|| {
            let mut world = World::new(0, None);
            prepare(&mut world);
            world.read::<()>(Err(error()))
        })
        .is_err()
    };
    assert!(
        fails(|world| world.process.poisoned = true, poisoned) && fails(|world| world.fill_disk(0), no_space)
    );
    assert!(
        fails(|world| world.machine.faults.freeze(), poisoned)
            && !fails(|world| world.machine.faults.freeze(), no_space)
    );
}

#[test]
fn world_4_a_failed_call_is_not_reported_as_damage() {
    let failed = |world: &mut World| world.machine.faults.freeze();
    assert!(is_excused(failed, no_space) && is_excused(failed, poisoned));
    assert!(!is_excused(failed, || Error::corrupt("block", "a", 0, "damaged")));
    assert!(!is_excused(failed, || Error::Locked {
        path: PathBuf::new(),
        pid: None,
        in_this_process: false
    }));
    assert!(!is_excused(|_| {}, no_space));
}

#[test]
fn world_4_the_log_stops_for_a_call_of_its_own_alone() {
    for kind in [OpKind::Write, OpKind::SyncDir] {
        assert!(is_excused(fails(kind, "000001.wal", IO), stopped));
        assert!(is_excused(fails(kind, "000001.wal", FULL), poisoned));
        for other in ["000002.wal-next", "wal-spare-1.tmp", "000007.sst"] {
            assert!(is_excused(fails(kind, other, IO), injected));
            assert!(!is_excused(fails(kind, other, IO), stopped));
            assert!(!is_excused(fails(kind, other, FULL), poisoned));
        }
    }
    assert!(is_excused(fails(OpKind::Write, "MANIFEST-000003", IO), stopped));
    assert!(!is_excused(fails(OpKind::Read, "000001.wal", IO), stopped));
    assert!(is_excused(fails(OpKind::SyncData, "000001.blob", IO), stopped));
    assert!(!is_excused(fails(OpKind::Write, "000001.blob", IO), stopped));
}

#[test]
fn world_4_a_failed_call_is_reported_properly() {
    let write = |action| fails(OpKind::Write, "000001.wal", action);
    assert!(is_excused(write(FULL), no_space) && !is_excused(write(IO), no_space));
    assert!(is_excused(write(IO), injected) && !is_excused(write(FULL), injected));
    assert!(!is_excused(write(IO), poisoned) && !is_excused(write(FULL), stopped));
    let other = || Error::Io {
        op: "open",
        path: PathBuf::new(),
        source: std::sync::Arc::new(ErrorKind::NotFound.into()),
    };
    assert!(!is_excused(write(IO), other));
}

#[test]
fn world_4_wrong_bytes_are_damage_for_one_operation() {
    let misreads = |world: &mut World| {
        world.machine.faults.add(FaultRule::new(&[OpKind::Read], misread(1)));
        let file = world.machine.faults.open(Path::new("a"), OpenOptions::create()).unwrap();
        assert_eq!(file.read_at(&mut [0], 0).unwrap(), 0);
    };
    let damaged = || Error::corrupt("block", "a", 0, "damaged");
    assert!(is_excused(misreads, damaged));
    assert!(!is_excused(misreads, injected) && !is_excused(misreads, stopped));
    let earlier = move |world: &mut World| {
        misreads(world);
        world.begin_operation();
    };
    assert!(!is_excused(earlier, damaged));
}

#[test]
fn world_4_hints_and_removals_that_fail_are_no_reason() {
    assert!(!is_excused(fails(OpKind::Hint, "a", IO), injected));
    assert!(!is_excused(fails(OpKind::Remove, "a", IO), injected));
    let tidying = |kind| {
        caught(|| {
            let mut world = World::new(0, None);
            fails(kind, "a", IO)(&mut world);
            world.excused_tidying::<()>(Err(injected()));
        })
    };
    assert!(tidying(OpKind::Remove).is_ok() && tidying(OpKind::Hint).is_err());
}
