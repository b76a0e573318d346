//! The items of suite `shapes`: keys and values of other forms than those of the sources' benchmarks.
//!
//! ```text
//! integers in order     i, 8 bytes big-endian                                   8 bytes
//! integers              mix64(seed + i), big-endian                             8 bytes
//! small                 20 bytes of fill(word(seed, i))                         1 byte
//! URLs                  https://SITE.example/SECTION/WORD-WORD-HEX              100 bytes
//! hashes                "accounts/", then 33 bytes of fill(word(seed, i))       300 bytes
//! long keys             1,000 bytes: 488 shared, fill, the number at the end    8 bytes
//! large values          16 bytes, obigstore::random_key                         5,000 bytes
//! ```
//!
//! The second half of each value of 32 bytes and more repeats the first. No key comes twice.

use super::obigstore::random_key;
use super::{fill, fill_half_redundant, mix64, word};

/// From this size in bytes on, the second half of a value repeats the first.
const REDUNDANT_BYTES: usize = 32;
/// Makes the random words of values differ from those of keys.
const VALUES: u64 = 0x5EED_0F5A_1A11_0E55;
const SITES: u64 = 2000;
const SECTIONS: [&str; 8] =
    ["news", "docs/reference", "blog", "products/catalogue", "images", "en/wiki", "forum/thread", "about"];
const WORDS: [&str; 16] = [
    "storage",
    "engine",
    "a",
    "of",
    "fast",
    "transactions",
    "merge",
    "how-to",
    "log",
    "tree",
    "the",
    "release",
    "notes",
    "benchmark",
    "small",
    "introduction",
];
const HASHES_PREFIX: &[u8] = b"accounts/";
const HASH_BYTES: usize = 33;
const LONG_BYTES: usize = 1000;
const LONG_SHARED_BYTES: usize = 488;

/// A form of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Integers, one after the other.
    Sequential,
    /// Integers at random.
    Integers,
    /// Keys of 20 bytes, values of 1.
    Small,
    /// Addresses of pages.
    Urls,
    /// Hashes behind a prefix that all share.
    Hashes,
    /// Keys of 1,000 bytes.
    LongKeys,
    /// Values of 5,000 bytes.
    LargeValues,
}

impl Shape {
    /// All shapes, in the order of the suite's groups.
    pub const ALL: [Self; 7] = [
        Self::Sequential,
        Self::Integers,
        Self::Small,
        Self::Urls,
        Self::Hashes,
        Self::LongKeys,
        Self::LargeValues,
    ];

    /// Bytes of a value.
    pub fn value_bytes(self) -> usize {
        match self {
            Self::Sequential | Self::Integers | Self::LongKeys => 8,
            Self::Small => 1,
            Self::Urls => 100,
            Self::Hashes => 300,
            Self::LargeValues => 5000,
        }
    }

    /// Bytes of a key; for URLs the mean.
    pub fn key_bytes(self) -> usize {
        match self {
            Self::Sequential | Self::Integers => 8,
            Self::Small => 20,
            Self::Urls => 64,
            Self::Hashes => HASHES_PREFIX.len() + HASH_BYTES,
            Self::LongKeys => LONG_BYTES,
            Self::LargeValues => 16,
        }
    }

    /// Makes `key` the key of item `i` of the stream of `seed`.
    pub fn key(self, seed: u64, i: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Sequential => key.extend_from_slice(&i.to_be_bytes()),
            Self::Integers => key.extend_from_slice(&mix64(seed.wrapping_add(i)).to_be_bytes()),
            Self::Small => filled(key, 20, word(seed, i)),
            Self::Urls => url(seed, i, key),
            Self::Hashes => {
                key.extend_from_slice(HASHES_PREFIX);
                filled(key, HASH_BYTES, word(seed, i));
            }
            Self::LongKeys => {
                filled(key, LONG_SHARED_BYTES, seed);
                filled(key, LONG_BYTES - LONG_SHARED_BYTES - 8, word(seed, i));
                key.extend_from_slice(&i.to_be_bytes());
            }
            Self::LargeValues => key.extend_from_slice(&random_key(seed, i)),
        }
    }

    /// Fills `value`, which has [`Shape::value_bytes`] bytes, with the value of item `i`.
    pub fn value(self, seed: u64, i: u64, value: &mut [u8]) {
        let stream = word(seed ^ VALUES, i);
        if value.len() < REDUNDANT_BYTES { fill(stream, value) } else { fill_half_redundant(stream, value) }
    }
}

/// Adds the first `bytes` bytes of the stream of `seed` to `key`.
fn filled(key: &mut Vec<u8>, bytes: usize, seed: u64) {
    let before = key.len();
    key.resize(before + bytes, 0);
    fill(seed, &mut key[before..]);
}

fn url(seed: u64, i: u64, key: &mut Vec<u8>) {
    let draw = word(seed, i);
    let pick = |shift: u32, from: &[&'static str]| from[(draw >> shift) as usize % from.len()];
    let (site, id) = (draw % SITES, mix64(seed.wrapping_add(i)));
    let (section, first, second) = (pick(16, &SECTIONS), pick(24, &WORDS), pick(32, &WORDS));
    let url = format!("https://site-{site:04}.example/{section}/{first}-{second}-{id:016x}");
    key.extend_from_slice(url.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_are_as_long_as_is_said_and_none_comes_twice() {
        for shape in Shape::ALL {
            let (mut keys, mut bytes, mut key) = (BTreeSet::new(), 0, Vec::new());
            for i in 0..2000 {
                shape.key(7, i, &mut key);
                bytes += key.len();
                assert!(keys.insert(key.clone()), "{shape:?}");
            }
            let mean = bytes / 2000;
            assert!(
                mean.abs_diff(shape.key_bytes()) <= if shape == Shape::Urls { 4 } else { 0 },
                "{shape:?} {mean}"
            );
        }
        let mut key = Vec::new();
        Shape::Urls.key(7, 1, &mut key);
        assert!(key.starts_with(b"https://site-"));
    }
}
