//! The properties of a seed's environment, besides its operations.
//!
//! ```text
//!   bytes --length--> seed --one function per property--> the disk, the directory, the keyspaces
//! ```
//!
//! Each property has a share of the seeds. The position of these seeds moves on from one row of seeds to the
//! next, so that every combination of two properties occurs within a few hundred seeds. For byte strings, the
//! length determines the properties, so the operations do not depend on them.

/// Returns the seed of a byte string.
pub fn seed_of_bytes(bytes: &[u8]) -> u64 {
    bytes.len() as u64
}

/// The database's directory already exists, in an unsynced parent: one seed in two.
pub fn has_unsynced_dir(seed: u64) -> bool {
    seed % 2 == 1
}

/// The disk has no direct I/O, short reads and no space reservation: one seed in four.
pub fn has_plain_disk(seed: u64) -> bool {
    is_at(seed, 4, 1)
}

/// One-byte ids of keyspaces are used up: one seed in sixteen.
pub fn has_long_ids(seed: u64) -> bool {
    is_at(seed, 16, 6)
}

/// Returns the first number of commits, files, log segments and runs. In one seed in twelve it is shortly
/// below a limit at which numbers get longer.
pub fn first_number(seed: u64) -> u64 {
    let limits = [1 << 16, 1 << 24, 1 << 32, 1_000_000, 1 << 36];
    let row = seed / 12;
    if has_large_numbers(seed) { limits[row as usize % limits.len()] - 1 - row / 5 % 40 } else { 1 }
}

fn has_large_numbers(seed: u64) -> bool {
    is_at(seed, 12, 0)
}

/// There are more keyspaces than operations create: one seed in eight.
pub fn has_many_keyspaces(seed: u64) -> bool {
    is_at(seed, 8, 4)
}

/// There are values of millions of bytes: one seed in 64.
pub fn has_large_values(seed: u64) -> bool {
    is_at(seed, 64, 35)
}

/// There are transactions larger than a memtable that keep little in memory: one seed in three.
pub fn has_large_transactions(seed: u64) -> bool {
    is_at(seed, 3, 2)
}

/// All commits go through the log, even large ones: one seed in two.
pub fn logs_all_commits(seed: u64) -> bool {
    is_at(seed, 2, 0)
}

/// Most openings have blob files: one seed in five.
pub fn has_blobs(seed: u64) -> bool {
    is_at(seed, 5, 3)
}

/// Most openings retain the log for the change feed: one seed in ten.
pub fn has_feed(seed: u64) -> bool {
    is_at(seed, 10, 7)
}

/// Entries expire; time passes in small steps and the wall clock is set back: one seed in seven.
pub fn has_expiry(seed: u64) -> bool {
    is_at(seed, 7, 5)
}

/// Keyspaces keep history, which is read: one seed in nine.
pub fn has_history(seed: u64) -> bool {
    is_at(seed, 9, 5)
}

/// There are checkpoints and backups: one seed in six.
pub fn has_copies(seed: u64) -> bool {
    is_at(seed, 6, 1)
}

/// The change feed is archived, and single commits are restored: two seeds in thirteen.
pub fn has_archives(seed: u64) -> bool {
    is_at(seed, 13, 2) || is_at(seed, 13, 7)
}

/// The database is unloaded and loaded: two seeds in fourteen.
pub fn has_unloads(seed: u64) -> bool {
    is_at(seed, 14, 3) || is_at(seed, 14, 10)
}

/// A replica follows the change feed: two seeds in eleven.
pub fn has_replica(seed: u64) -> bool {
    is_at(seed, 11, 1) || is_at(seed, 11, 9)
}

/// States must be known by commit number.
pub fn has_numbered_states(seed: u64) -> bool {
    has_archives(seed) || has_replica(seed)
}

/// Two keyspaces have compaction filters: two seeds in seventeen.
pub fn has_filters(seed: u64) -> bool {
    is_at(seed, 17, 3) || is_at(seed, 17, 11)
}

/// The files are encrypted: two seeds in nineteen.
pub fn is_encrypted(seed: u64) -> bool {
    is_at(seed, 19, 4) || is_at(seed, 19, 13)
}

/// Keyspaces have a maximum size: two seeds in 23.
pub fn has_limits(seed: u64) -> bool {
    is_at(seed, 23, 6) || is_at(seed, 23, 17)
}

/// Number of compactions at the same time, in seeds that run them beside each other.
pub const COMPACTIONS: usize = 3;

/// Compactions run beside other operations and each other: five seeds in fifteen.
pub fn compacts_beside(seed: u64) -> bool {
    [1, 4, 7, 10, 13].iter().any(|place| is_at(seed, 15, *place))
}

/// Other processes write through the one that has the database open: three seeds in 21.
pub fn has_guests(seed: u64) -> bool {
    [2, 9, 16].iter().any(|place| is_at(seed, 21, *place))
}

/// There are exclusive transactions, and commits that wait for them: two seeds in eighteen.
pub fn has_exclusive(seed: u64) -> bool {
    is_at(seed, 18, 4) || is_at(seed, 18, 13)
}

/// Large commits fill the disk up to the reserve for removals: two seeds in twenty.
pub fn has_crowds(seed: u64) -> bool {
    is_at(seed, 20, 3) || is_at(seed, 20, 11)
}

/// Returns whether a seed is the selected one of its row. In the first row that is the one at `place`, in
/// each further row one position later.
fn is_at(seed: u64, row: u64, place: u64) -> bool {
    (seed - seed / row) % row == place
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A property.
    type Has = fn(u64) -> bool;

    /// Each property, its number of seeds per row, and the length of a row.
    const PROPERTIES: [(Has, u64, u64); 23] = [
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
        (is_encrypted, 2, 19),
        (has_limits, 2, 23),
        (compacts_beside, 5, 15),
        (has_guests, 3, 21),
        (has_exclusive, 2, 18),
        (has_crowds, 2, 20),
    ];

    /// Each pair of properties has four outcomes.
    const PAIRS: usize = 253 * 4;

    /// Returns the number of outcomes of pairs that these seeds cover.
    fn pairs(seeds: impl Iterator<Item = u64>) -> usize {
        let outcomes = seeds.map(|seed| PROPERTIES.map(|(has, ..)| has(seed)));
        let pairs_of = |all: [bool; PROPERTIES.len()]| {
            (0..all.len()).flat_map(move |i| (0..i).map(move |j| (i, j, all[i], all[j])))
        };
        outcomes.flat_map(pairs_of).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn each_property_has_its_share_and_any_two_meet() {
        for (has, places, row) in PROPERTIES {
            // Complete rows give exact shares.
            let seeds = 16 * row * row;
            let count = (0..seeds).filter(|seed| has(*seed)).count() as u64;
            assert_eq!(count, seeds * places / row);
        }
        assert_eq!(pairs(0..4096), PAIRS);
    }

    #[test]
    fn byte_strings_meet_all_of_it() {
        let bytes = [0; 4096];
        assert_eq!(pairs((0..4096).map(|len| seed_of_bytes(&bytes[..len]))), PAIRS);
    }
}
