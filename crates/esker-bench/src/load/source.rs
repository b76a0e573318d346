//! Sources of the pairs of a load: the generators of obigstore's `bm_makedata` and `bm_write`, or a stream.
//!
//! A stream is a sequence of pairs: length of the key, key, length of the value, value. Lengths are u32,
//! little-endian.
//!
//! Threads draw only keys from a shared source, under a lock. Each thread makes the values itself, in the
//! memory of its previous pairs, so that threads do not wait for their data.
//!
//! A length above a limit, or a stream that ends within a pair, is an error and allocates nothing.

use std::io::{BufRead, Write};

use esker_bench_api::generate::obigstore::{self, Hotspots, random_key, sequential_key};
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::{Failure, Result};

const KEY_BYTES_MAX: u32 = 65_535;
const VALUE_BYTES_MAX: u32 = 64 << 20;

/// A key and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Pair {
    /// Returns the bytes of both.
    pub(crate) fn bytes(&self) -> u64 {
        (self.key.len() + self.value.len()) as u64
    }

    /// Writes the pair in the format of a stream.
    pub(crate) fn write_to(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for part in [&self.key, &self.value] {
            out.write_all(&(part.len() as u32).to_le_bytes())?;
            out.write_all(part)?;
        }
        Ok(())
    }

    /// Reads the next pair of a stream, or `None` at its end.
    pub(crate) fn read_from(input: &mut dyn BufRead) -> Result<Option<Self>> {
        if input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut part = |limit: u32| {
            let mut length = [0; 4];
            input.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length);
            if length > limit {
                return Err(Failure::Engine(format!(
                    "a length of {length} in the stream, more than {limit}"
                )));
            }
            let mut bytes = vec![0; length as usize];
            input.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        Ok(Some(Self { key: part(KEY_BYTES_MAX)?, value: part(VALUE_BYTES_MAX)? }))
    }
}

/// The kind of keys.
pub(crate) enum KeySource {
    /// Ascending numbers.
    Sequential,
    /// Random and new each time.
    Random,
    /// Random below a number, so that some repeat.
    RandomBelow(u64, Rng),
    /// Random among the first keys of `Random`, up to this number of them.
    RandomOf(u64, Rng),
    /// Random; with this probability an earlier key.
    RandomUpdate(f64, Rng),
    /// See [`Hotspots`].
    Hotspots(Hotspots),
    /// A stream of pairs.
    Stream(Box<dyn BufRead + Send>),
}

/// Pairs to write.
pub(crate) struct Source {
    keys: KeySource,
    seed: u64,
    value_bytes: usize,
    left: u64,
    /// Number of new keys given so far.
    given: u64,
}

impl Source {
    /// Returns a source of `pairs` pairs, whose first new key has number `first`.
    pub(crate) fn new(keys: KeySource, seed: u64, value_bytes: usize, pairs: u64, first: u64) -> Self {
        Self { keys, seed, value_bytes, left: pairs, given: first }
    }

    /// Returns the number of the next new key.
    pub(crate) fn keys_given(&self) -> u64 {
        self.given
    }

    /// Sets the keys of the first of `pairs`, as many as the source has left, and returns their number.
    /// [`values`](Self::values) makes their values.
    pub(crate) fn take(&mut self, pairs: &mut [Pair]) -> Result<usize> {
        let mut taken = 0;
        for pair in pairs {
            if self.left == 0 || !self.next_key(pair)? {
                break;
            }
            self.left -= 1;
            taken += 1;
        }
        Ok(taken)
    }

    /// Returns the maker of values for taken pairs.
    pub(crate) fn values(&self) -> Values {
        Values { bytes: (!matches!(self.keys, KeySource::Stream(_))).then_some(self.value_bytes) }
    }

    /// Sets the next key. Returns false if there is none.
    fn next_key(&mut self, pair: &mut Pair) -> Result<bool> {
        let number = self.given;
        let (key, is_new) = match &mut self.keys {
            KeySource::Stream(input) => {
                let next = Pair::read_from(input)?;
                let is_there = next.is_some();
                *pair = next.unwrap_or_default();
                return Ok(is_there);
            }
            KeySource::Sequential => (sequential_key(number), true),
            KeySource::Random => (random_key(self.seed, number), true),
            KeySource::RandomBelow(range, rng) => (sequential_key(rng.below(*range)), false),
            KeySource::RandomOf(range, rng) => (random_key(self.seed, rng.below(*range)), false),
            KeySource::RandomUpdate(update, rng) => {
                let is_new = rng.fraction() >= *update || number == 0;
                let number = if is_new { number } else { rng.below(number) };
                (random_key(self.seed, number), is_new)
            }
            KeySource::Hotspots(hotspots) => hotspots.next_key(),
        };
        self.given += u64::from(is_new);
        pair.key.clear();
        pair.key.extend_from_slice(&key);
        Ok(true)
    }
}

/// See [`Source::values`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    /// Size of a value; `None` for a stream, which has the values.
    bytes: Option<usize>,
}

impl Values {
    /// Makes the values of `pairs`.
    pub(crate) fn fill(self, pairs: &mut [Pair]) {
        let Some(bytes) = self.bytes else { return };
        for Pair { key, value } in pairs {
            value.resize(bytes, 0);
            obigstore::value(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &[u8]) -> Result<Vec<Pair>> {
        let mut input: &[u8] = bytes;
        let mut pairs = Vec::new();
        while let Some(pair) = Pair::read_from(&mut input)? {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    #[test]
    fn a_stream_is_read_as_it_was_written() {
        let mut source = Source::new(KeySource::Hotspots(Hotspots::new(1, 0.9, 3)), 1, 32, 50, 0);
        let (mut pairs, mut bytes) = (vec![Pair::default(); 100], Vec::new());
        let taken = source.take(&mut pairs).unwrap();
        pairs.truncate(taken);
        source.values().fill(&mut pairs);
        pairs.iter().for_each(|pair| pair.write_to(&mut bytes).unwrap());
        assert_eq!(pairs.len(), 50);
        assert_eq!(stream(&bytes).unwrap(), pairs);
        assert_eq!(bytes.len(), 50 * (4 + 16 + 4 + 32));
        let mut again = Source::new(KeySource::Stream(Box::new(std::io::Cursor::new(bytes))), 0, 7, 30, 0);
        let mut taken = vec![Pair { key: vec![1; 90], value: vec![1; 90] }; 20];
        for expected in [&pairs[..20], &pairs[20..30], &[]] {
            let count = again.take(&mut taken).unwrap();
            again.values().fill(&mut taken[..count]);
            assert_eq!(&taken[..count], expected);
        }
    }

    #[test]
    fn a_cut_or_absurd_stream_is_an_error() {
        let mut bytes = Vec::new();
        Pair { key: b"key".to_vec(), value: b"value".to_vec() }.write_to(&mut bytes).unwrap();
        for cut in 1..bytes.len() {
            assert!(stream(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[7..11].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(stream(&bytes).unwrap_err().to_string().contains("a length of 4294967295"));
    }
}
