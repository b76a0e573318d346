//! What a seed says of its world, beside the operations that it makes.
//!
//! ```text
//!   bytes --their number--> seed --one question each--> the disk, the directory, the keyspaces
//! ```
//!
//! setting.1. Each property has a share of the seeds, and within it and outside of it each other one has its share, too: the
//!      place that has it moves on from one row of seeds to the next. So any two meet, and a few hundred seeds in a row have all of it.
//! setting.2. Byte strings have all properties, too: their number of bytes decides, and what they make stays what it is.

/// The seed of what does not come from the bytes, where the operations do (setting.2).
pub fn seed_of_bytes(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// The database's directory is found made, by somebody who has not synced its parent: one seed in two.
pub fn has_unsynced_dir(seed: u64) -> bool {
    seed % 2 == 1
}

/// The disk has no direct I/O, reads are short, and no space can be reserved: one seed in four.
pub fn has_plain_disk(seed: u64) -> bool {
    is_at(seed, 4, 1)
}

/// The short numbers of keyspaces are used up: one seed in sixteen.
pub fn has_long_ids(seed: u64) -> bool {
    is_at(seed, 16, 6)
}

/// Where the database begins to count commits, files, log segments and runs: in one seed in twelve shortly before a number needs one more
/// byte, digit or word.
pub fn first_number(seed: u64) -> u64 {
    let limits = [1 << 16, 1 << 24, 1 << 32, 1_000_000, 1 << 36];
    let row = seed / 12;
    if has_large_numbers(seed) { limits[row as usize % limits.len()] - 1 - row / 5 % 40 } else { 1 }
}

fn has_large_numbers(seed: u64) -> bool {
    is_at(seed, 12, 0)
}

/// There are more keyspaces than operations make, from the first operations on: one seed in eight.
pub fn has_many_keyspaces(seed: u64) -> bool {
    is_at(seed, 8, 4)
}

/// Some values have millions of bytes: one seed in 64.
pub fn has_large_values(seed: u64) -> bool {
    is_at(seed, 64, 35)
}

/// Some transactions are large for their memtable, and hardly any of their writes stay in memory: one seed in three.
pub fn has_large_transactions(seed: u64) -> bool {
    is_at(seed, 3, 2)
}

/// Commits of any size go through the log, also those that would become tables otherwise: one seed in two.
pub fn logs_all_commits(seed: u64) -> bool {
    is_at(seed, 2, 0)
}

/// Values go to blob files in most of its openings: one seed in five.
pub fn has_blobs(seed: u64) -> bool {
    is_at(seed, 5, 3)
}

/// The log is kept for the change feed in most of its openings: one seed in ten.
pub fn has_feed(seed: u64) -> bool {
    is_at(seed, 10, 7)
}

/// Some entries expire; time passes in small steps, and the wall clock is set back: one seed in seven.
pub fn has_expiry(seed: u64) -> bool {
    is_at(seed, 7, 5)
}

/// Keyspaces keep history, and are read as they were: one seed in nine.
pub fn has_history(seed: u64) -> bool {
    is_at(seed, 9, 5)
}

/// Checkpoints and backups are made: one seed in six.
pub fn has_copies(seed: u64) -> bool {
    is_at(seed, 6, 1)
}

/// The change feed is archived beside backups, and single commits are restored: two seeds in thirteen.
pub fn has_archives(seed: u64) -> bool {
    is_at(seed, 13, 2) || is_at(seed, 13, 7)
}

/// The database is unloaded to files, which are loaded elsewhere: two seeds in fourteen.
pub fn has_unloads(seed: u64) -> bool {
    is_at(seed, 14, 3) || is_at(seed, 14, 10)
}

/// Another database follows this one by the change feed: two seeds in eleven.
pub fn has_replica(seed: u64) -> bool {
    is_at(seed, 11, 1) || is_at(seed, 11, 9)
}

/// Something needs the states that the numbers of commits stand for.
pub fn has_numbered_states(seed: u64) -> bool {
    has_archives(seed) || has_replica(seed)
}

/// Two keyspaces have compaction filters: two seeds in seventeen.
pub fn has_filters(seed: u64) -> bool {
    is_at(seed, 17, 3) || is_at(seed, 17, 11)
}

/// Whether a seed is the one of its row of so many: the one at `place` in the first row, one further in each that follows (setting.1).
fn is_at(seed: u64, row: u64, place: u64) -> bool {
    (seed - seed / row) % row == place
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Whether a seed has a property.
    type Has = fn(u64) -> bool;

    /// Each property, the number of seeds that have it in each row, and the length of a row.
    const PROPERTIES: [(Has, u64, u64); 17] = [
        (has_unsynced_dir, 1, 2),
        (has_plain_disk, 1, 4),
        (has_long_ids, 1, 16),
        (has_large_numbers, 1, 12),
        (has_many_keyspaces, 1, 8),
        (has_large_values, 1, 64),
        (has_large_transactions, 1, 3),
        (logs_all_commits, 1, 2),
        (has_blobs, 1, 5),
        (has_feed, 1, 10),
        (has_expiry, 1, 7),
        (has_history, 1, 9),
        (has_copies, 1, 6),
        (has_archives, 2, 13),
        (has_unloads, 2, 14),
        (has_replica, 2, 11),
        (has_filters, 2, 17),
    ];

    /// Of any two properties four outcomes.
    const PAIRS: usize = 136 * 4;

    /// How many of the outcomes of any two properties there are, with these seeds.
    fn pairs(seeds: impl Iterator<Item = u64>) -> usize {
        let outcomes = seeds.map(|seed| PROPERTIES.map(|(has, ..)| has(seed)));
        let pairs_of = |all: [bool; PROPERTIES.len()]| {
            (0..all.len()).flat_map(move |i| (0..i).map(move |j| (i, j, all[i], all[j])))
        };
        outcomes.flat_map(pairs_of).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn setting_1_each_property_has_its_share_and_any_two_meet() {
        for (has, places, row) in PROPERTIES {
            // Whole rows, so that each has its share exactly.
            let seeds = 16 * row * row;
            let count = (0..seeds).filter(|seed| has(*seed)).count() as u64;
            assert_eq!(count, seeds * places / row);
        }
        assert_eq!(pairs(0..4096), PAIRS);
    }

    #[test]
    fn setting_2_byte_strings_meet_all_of_it() {
        let bytes = [0; 4096];
        assert_eq!(pairs((0..4096).map(|len| seed_of_bytes(&bytes[..len]))), PAIRS);
    }
}
