//! A sample of every sweep. The complete sweeps: `cargo run --release -p esker-sim -- sweep`.

use crate::own_process;
use esker_sim::report::describe_position;
use esker_sim::runner::Sabotage;
use esker_sim::sweep::{Kind, sample};
use esker_world::world::Tally;

fn short(kind: Kind, size: u64) -> Tally {
    let n = kind.positions().unwrap_or_else(|failure| panic!("{}", failure.cause));
    assert!(n > size, "{n} positions: the script does too little");
    let mut total = Tally::default();
    for at in sample(n, Some(size)) {
        match kind.run(at, Sabotage::default()) {
            Ok(tally) => total.add(&tally),
            Err(failure) => panic!("{}", describe_position(kind, at, &failure)),
        }
    }
    total
}

#[test]
fn deaths() {
    own_process::run(|| {
        let total = short(Kind::Deaths, 40);
        assert!(total.inspected >= 6 * 40 && total.unheard >= 40, "{total:?}");
    });
}

#[test]
fn deaths_in_recovery() {
    own_process::run(|| {
        let total = short(Kind::DeathsInRecovery, 4);
        assert!(total.while_opening >= 4 * 10, "{total:?}");
    });
}

#[test]
fn calls_that_fail_once() {
    own_process::run(|| {
        let total = short(Kind::FailsOnce, 34);
        assert!(total.faults >= 34, "{total:?}");
    });
}

#[test]
fn calls_that_fail_for_ever() {
    own_process::run(|| {
        let total = short(Kind::FailsForever, 20);
        assert!(total.faults >= 20, "{total:?}");
    });
}

#[test]
fn calls_that_fail_after_they_were_made() {
    own_process::run(|| {
        let total = short(Kind::FailsLate, 27);
        assert!(total.faults >= 27 && total.kills >= 27, "{total:?}");
    });
}

#[test]
fn lost_syncs() {
    own_process::run(|| {
        let total = short(Kind::LostSyncs, 40);
        assert!(total.faults >= 40, "{total:?}");
    });
}

#[test]
fn calls_that_fail_in_recovery() {
    own_process::run(|| {
        let total = short(Kind::FailsInRecovery, 4);
        assert!(total.faults > 133, "{total:?}");
    });
}

#[test]
fn short_writes() {
    own_process::run(|| {
        let total = short(Kind::ShortWrites, 27);
        assert!(total.faults >= 27, "{total:?}");
    });
}

#[test]
fn syncs_of_directories_that_fail() {
    own_process::run(|| {
        let total = short(Kind::DirSyncs, 16);
        assert!(total.kills >= 16, "each is followed by the end of the process: {total:?}");
    });
}

#[test]
fn reads_that_give_wrong_bytes() {
    own_process::run(|| {
        let total = short(Kind::Misreads, 20);
        assert!(total.faults >= 20, "{total:?}");
    });
}

#[test]
fn calls_that_panic() {
    own_process::run(|| {
        let total = short(Kind::Panics, 34);
        assert!(total.faults >= 34 && total.kills >= 34, "{total:?}");
    });
}

#[test]
fn full_disks() {
    own_process::run(|| {
        let total = short(Kind::DiskFull, 14);
        assert!(total.refused > 14, "{total:?}");
    });
}
