//! A sample of every sweep. The whole: `cargo run --release -p esker-sim -- sweep`.

use esker_sim::runner::Sabotage;
use esker_sim::sweep::{Kind, sample};

fn short(kind: Kind, size: u64) {
    let n = kind.positions().unwrap_or_else(|failure| panic!("{}", failure.cause));
    assert!(n > size, "{n} positions: the script does too little");
    for at in sample(n, Some(size)) {
        if let Err(failure) = kind.run(at, Sabotage::default()) {
            panic!("{} at {at}, after {} operations: {}", kind.name(), failure.ops, failure.cause);
        }
    }
}

#[test]
fn sw1_deaths() {
    short(Kind::Deaths, 60);
}

#[test]
fn sw1_deaths_in_recovery() {
    short(Kind::DeathsInRecovery, 6);
}

#[test]
fn sw2_calls_that_fail_once() {
    short(Kind::FailsOnce, 100);
}

#[test]
fn sw2_calls_that_fail_for_ever() {
    short(Kind::FailsForever, 50);
}

#[test]
fn sw2_lost_syncs() {
    short(Kind::LostSyncs, 60);
}

#[test]
fn sw2_short_writes() {
    short(Kind::ShortWrites, 40);
}

#[test]
fn sw3_full_disks() {
    short(Kind::DiskFull, 40);
}
