//! Injected faults must be found with random bytes; otherwise the target would not find real ones.

use esker::canary::{Canary, set};
use esker_sim::runner::{Sabotage, run_bytes};
use fastrand::Rng;

use crate::own_process;

/// Number of byte strings within which a fault must show.
const TRIES: u64 = 300;

/// Returns the first byte string that shows the fault, and the failure.
fn hunt(turn_on: fn()) -> Option<(u64, String)> {
    let sabotage = Sabotage { engine: Some(turn_on), ..Sabotage::default() };
    (0..TRIES).find_map(|seed| {
        let mut rng = Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..2_000).map(|_| rng.u8(..)).collect();
        run_bytes(&bytes, sabotage).err().map(|failure| (seed, failure.cause))
    })
}

macro_rules! found {
    ($($test:ident: $canary:ident),* $(,)?) => {
        $(#[test]
        fn $test() {
            let found = hunt(|| set(Some(Canary::$canary)));
            let (tries, cause) = found.expect("the fault is not found");
            println!("{}: byte string {tries}: {cause}", stringify!($canary));
        })*
    };
}

found! {
    a_skipped_sync_is_found: WalSyncSkipped,
    a_skipped_conflict_check_is_found: ConflictCheckSkipped,
    a_tombstone_dropped_early_is_found: TombstoneDroppedEarly,
    a_forgotten_snapshot_is_found: SnapshotIgnored,
    a_wrong_count_is_found: CountNotUpdated,
}

#[test]
fn random_bytes_agree_with_the_model() {
    own_process::run(|| {
        let mut done = esker_world::world::Tally::default();
        for seed in 0..60 {
            let mut rng = Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..rng.usize(0..4096)).map(|_| rng.u8(..)).collect();
            match run_bytes(&bytes, Sabotage::default()) {
                Ok(tally) => done.add(&tally),
                Err(failure) => panic!("{}", esker_sim::report::describe_bytes(&bytes, &failure)),
            }
        }
        // Check that the runs cover something.
        assert!(done.commits > 1_000 && done.power_losses > 30 && done.kills > 30, "{done:?}");
    });
}
