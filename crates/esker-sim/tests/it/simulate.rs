//! A short campaign: seeds against the model, and determinism.
//!
//! The long form: `cargo run --release -p esker-sim -- run --seconds 600`.

use crate::own_process;
use esker_sim::report::describe;
use esker_sim::runner::{Sabotage, run_seed};
use esker_world::world::Tally;

const SEEDS: u64 = 320;
const OPS: usize = 400;

#[test]
fn seeds_agree_with_the_model() {
    own_process::run(|| {
        let mut total = Tally::default();
        for seed in 0..SEEDS {
            match run_seed(seed, OPS, Sabotage::default()) {
                Ok(tally) => total.add(&tally),
                Err(failure) => panic!("{}", describe(seed, OPS, &failure)),
            }
        }
        // Check that the campaign covers something.
        assert!(total.commits > 10_000 && total.conflicts > 50, "{total:?}");
        assert!(total.read_conflicts > 1 && total.unresolved > 20 && total.undone > 100, "{total:?}");
        assert!(
            total.kills > 500 && total.power_losses > 500 && total.unheard > 200 && total.inside_calls > 200,
            "{total:?}"
        );
        assert!(
            total.inspected > 50 && total.read_only > 50 && total.long_ids > 1 && total.refused > 5,
            "{total:?}"
        );
        assert!(total.while_opening > 100 && total.faults > 300 && total.reopenings > 100, "{total:?}");
        assert!(
            total.grown > 50
                && total.adopted > 500
                && total.bulky > 20
                && total.unreserved > 1
                && total.rewritten > 20,
            "{total:?}"
        );
        assert!(
            total.turns > 100 && total.scattered > 4 && total.large > 1 && total.expired > 30,
            "{total:?}"
        );
        assert!(total.archived > 100 && total.restored > 100 && total.replayed > 2000, "{total:?}");
        assert!(total.unloaded > 100 && total.cut > 150, "{total:?}");
        assert!(total.by_guests > 3000 && total.lost > 100 && total.taken_over > 20, "{total:?}");
        assert!(total.exclusive > 100 && total.turns_awaited > 50 && total.crowded > 10, "{total:?}");
        assert!(total.compacted_beside > 100 && total.copied_beside > 5, "{total:?}");
        assert!(
            total.tiered > 15
                && total.tier_merges > 250
                && total.wide > 60
                && total.moved > 50
                && total.recycled > 75,
            "{total:?}"
        );
    });
}

/// The seeds besides the first ones: `.ci/run` gives each commit another row, so that all settings are
/// covered over time.
const ROW: &str = "ESKER_SEED_ROW";
const ROW_SEEDS: u64 = 80;

/// The row of this commit.
pub(crate) fn seed_row() -> u64 {
    std::env::var(ROW).map_or(1, |row| row.parse().expect("ESKER_SEED_ROW is a number"))
}

#[test]
fn seeds_of_another_row_agree_with_the_model() {
    own_process::run(|| {
        let first = SEEDS + seed_row() % 100_000 * ROW_SEEDS;
        for seed in first..first + ROW_SEEDS {
            if let Err(failure) = run_seed(seed, OPS, Sabotage::default()) {
                panic!("{}", describe(seed, OPS, &failure));
            }
        }
    });
}

#[test]
fn the_same_seed_gives_the_same_run() {
    own_process::run(|| {
        for seed in 0..25 {
            let run = || run_seed(seed, OPS, Sabotage::default()).map_err(|failure| failure.cause);
            assert_eq!(run(), run(), "seed {seed}");
        }
    });
}
