//! The items of every suite: the same bytes for every engine, run and machine, computed from an item's number.
//!
//!   item i, word w -> mix64(seed + GOLDEN * (32 i + w + 1)) -> 8 bytes, little-endian
//!   words 0..3 are the key (24 bytes), words 3..22 the value (150 bytes, the last word cut)
//!
//! The mixing is splitmix64's, with a counter in place of its state. Any item is had without those before it, so reads
//! need no list of keys in memory and threads no shards; making a pair takes about 20 ns, a key 3 ns, the same for all.
//!
//! G1. The stream of a seed never changes: results of different days are compared. A golden test pins it.
//! G2. `Order` visits each number below `n` once in `n` steps, and no two neighbours of the visit are neighbours in
//!     insertion order: an engine that keeps items in arrival order gains nothing from it.

/// Bytes in a key.
pub(crate) const KEY_BYTES: usize = 24;
/// Bytes in a value.
pub(crate) const VALUE_BYTES: usize = 150;

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const WORDS_PER_ITEM: u64 = 32;
const KEY_WORDS: u64 = 3;

/// A stream of items.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items {
    seed: u64,
}

impl Items {
    /// The stream of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn word(self, item: u64, word: u64) -> u64 {
        let counter = item.wrapping_mul(WORDS_PER_ITEM).wrapping_add(word).wrapping_add(1);
        let mut z = self.seed.wrapping_add(GOLDEN.wrapping_mul(counter));
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn fill(self, item: u64, first_word: u64, bytes: &mut [u8]) {
        for (word, chunk) in (first_word..).zip(bytes.chunks_mut(8)) {
            chunk.copy_from_slice(&self.word(item, word).to_le_bytes()[..chunk.len()]);
        }
    }

    /// The key of item `i`.
    pub(crate) fn key(self, i: u64) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        self.fill(i, 0, &mut key);
        key
    }

    /// The value of item `i`.
    pub(crate) fn value(self, i: u64) -> [u8; VALUE_BYTES] {
        let mut value = [0; VALUE_BYTES];
        self.fill(i, KEY_WORDS, &mut value);
        value
    }
}

/// A cheap checksum of a value as read: its first and last eight bytes and its length. Values are random, so a wrong
/// value shows in it; reading 16 bytes touches the value, as the source's benchmark does, and costs every engine the same.
pub(crate) fn probe(value: &[u8]) -> u64 {
    match (value.first_chunk::<8>(), value.last_chunk::<8>()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first)
            .wrapping_add(u64::from_le_bytes(*last).rotate_left(23))
            .wrapping_add(value.len() as u64),
        _ => value.iter().fold(value.len() as u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte)),
    }
}

/// A checksum of all bytes of an item, for the untimed full checks.
pub(crate) fn checksum(key: &[u8], value: &[u8]) -> u64 {
    let mut sum = key.len() as u64;
    for chunk in key.chunks(8).chain(value.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(GOLDEN).rotate_left(29);
    }
    sum
}

/// A visiting order of the numbers below `n` (G2): `start, start + stride, ...` modulo `n`, with a stride near the golden
/// section of `n` and prime to it.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    n: u64,
    stride: u64,
    next: u64,
}

impl Order {
    /// An order over `0..n`; different `start`s give different orders of the same kind.
    pub(crate) fn new(n: u64, start: u64) -> Self {
        assert!(n > 0, "an order of nothing");
        let golden_section = n as f64 * 0.618_033_988_749_895;
        let stride = (golden_section as u64..n).find(|stride| gcd(*stride, n) == 1).unwrap_or(1);
        Self { n, stride: stride.max(1), next: start % n }
    }

    /// The order from its `steps`-th number on.
    pub(crate) fn skip_to(&self, steps: u64) -> Self {
        let moved = u128::from(self.stride) * u128::from(steps) + u128::from(self.next);
        Self { next: (moved % u128::from(self.n)) as u64, ..self.clone() }
    }
}

impl Iterator for Order {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let current = self.next;
        let next = current + self.stride;
        self.next = if next >= self.n { next - self.n } else { next };
        Some(current)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g1_the_stream_is_pinned() {
        let items = Items::new(3);
        let hex: String = items.key(0).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "ed8f01dbe4140b1d89a9817b8a6f46b301dd50d0a6e8eb9c");
        let sum = (0..1000).fold(0, |sum: u64, i| sum.wrapping_add(checksum(&items.key(i), &items.value(i))));
        assert_eq!(sum, 12250996318405563520);
    }

    #[test]
    fn the_first_word_of_seed_0_is_splitmix64s() {
        assert_eq!(Items::new(0).word(0, 0), 0xE220_A839_7B1D_CDAF);
    }

    #[test]
    fn keys_and_values_share_no_word() {
        let items = Items::new(1);
        let mut words: Vec<u64> = (0..100).flat_map(|i| (0..22).map(move |w| items.word(i, w))).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 2200);
    }

    #[test]
    fn g2_an_order_visits_everything_once_and_never_a_neighbour() {
        for n in [1, 2, 3, 7, 10, 64, 1000, 351_000] {
            for start in [0, 1, n - 1] {
                let order = Order::new(n, start);
                let mut visited: Vec<u64> = order.clone().take(n as usize).collect();
                assert!(n < 7 || visited.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1), "n {n}");
                assert_eq!(order.skip_to(n / 2).next(), visited.get(n as usize / 2).copied());
                visited.sort_unstable();
                assert!(visited.into_iter().eq(0..n), "n {n}");
            }
        }
    }

    #[test]
    fn a_flipped_byte_changes_the_checks() {
        let (key, value) = (Items::new(1).key(5), Items::new(1).value(5));
        for i in 0..VALUE_BYTES {
            let mut flipped = value;
            flipped[i] ^= 1;
            assert_ne!(checksum(&key, &flipped), checksum(&key, &value), "byte {i}");
            assert_eq!(probe(&flipped) != probe(&value), !(8..VALUE_BYTES - 8).contains(&i), "byte {i}");
        }
    }
}
