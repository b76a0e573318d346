//! The pool of keys: an empty one, short ones, ones with long common prefixes or extreme bytes, some of the
//! maximum length, and many plain ones. The pool is sorted, so that numbers compare as their keys do.

use std::ops::Bound;
use std::sync::OnceLock;

/// A key, identified by its rank in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyNo(pub u16);

/// Two bounds, which need not be ordered.
pub type KeyBounds = (Bound<KeyNo>, Bound<KeyNo>);

/// Number of unusual keys of ordinary length.
const SHORT: usize = 137;
/// Number of keys of the maximum length.
const LONG: u8 = 3;
/// Number of plain keys.
const PLAIN: usize = 860;

struct Pool {
    sorted: Vec<Vec<u8>>,
    /// For each key, whether the next one is its direct successor: the key followed by a zero byte.
    adjoined: Vec<bool>,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let long = |n: u8| {
            let mut long = vec![b'L'; esker::KEY_BYTES_MAX];
            *long.last_mut().expect("not empty") = n;
            long
        };
        let plain = |n: usize| format!("w/{n:05}").into_bytes();
        let mut sorted: Vec<_> =
            (0..SHORT).map(odd).chain((0..LONG).map(long)).chain((0..PLAIN).map(plain)).collect();
        sorted.sort();
        let adjoined = sorted.windows(2).map(|w| w[1].strip_prefix(&w[0][..]) == Some(&[0])).collect();
        Pool { sorted, adjoined }
    })
}

fn odd(n: usize) -> Vec<u8> {
    match n {
        0 => Vec::new(),
        1..=9 => vec![b'a'; n],
        10..=14 => [&b"a"[..], &vec![0; n - 9]].concat(),
        15..=19 => vec![0xFF; n - 14],
        20..=23 => vec![[0, 1, b'z', 0xFE][n - 20]],
        24..=60 => format!("k{n:03}").into_bytes(),
        _ => [&[b'p'; 90][..], format!("/{:02}/{n:04}", n % 3).as_bytes()].concat(),
    }
}

/// Returns the number of keys.
pub fn count() -> u16 {
    pool().sorted.len() as u16
}

/// Returns the bytes of a key.
pub fn key(no: KeyNo) -> &'static [u8] {
    &pool().sorted[usize::from(no.0)]
}

/// Returns the number of a key in the pool.
pub fn find(key: &[u8]) -> Option<KeyNo> {
    pool().sorted.binary_search_by(|k| k[..].cmp(key)).ok().map(|at| KeyNo(at as u16))
}

/// Returns whether the key is long and slow to write.
pub fn is_long(no: KeyNo) -> bool {
    key(no).len() > 1000
}

/// Returns the bounds as byte strings.
pub fn bounds((lower, upper): KeyBounds) -> (Bound<&'static [u8]>, Bound<&'static [u8]>) {
    (lower.map(key), upper.map(key))
}

/// Returns the bounds as half-open positions. Each key has two: before it and directly after it.
pub fn positions((lower, upper): KeyBounds) -> (u32, u32) {
    let before = |no: KeyNo| 2 * u32::from(no.0);
    let behind =
        |no: KeyNo| before(no) + 1 + u32::from(pool().adjoined.get(usize::from(no.0)) == Some(&true));
    let start = match lower {
        Bound::Included(no) => before(no),
        Bound::Excluded(no) => behind(no),
        Bound::Unbounded => 0,
    };
    let end = match upper {
        Bound::Included(no) => behind(no),
        Bound::Excluded(no) => before(no),
        Bound::Unbounded => u32::MAX,
    };
    (start, end)
}

/// Returns the keys within bounds, or `None` if there can be none.
pub fn range((lower, upper): KeyBounds) -> Option<std::ops::Range<KeyNo>> {
    let start = match lower {
        Bound::Included(no) => no.0,
        Bound::Excluded(no) => no.0 + 1,
        Bound::Unbounded => 0,
    };
    let end = match upper {
        Bound::Included(no) => no.0 + 1,
        Bound::Excluded(no) => no.0,
        Bound::Unbounded => count(),
    };
    (start < end).then_some(KeyNo(start)..KeyNo(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_as_keys_and_come_back() {
        assert_eq!(count(), 1000);
        for no in 0..count() {
            assert_eq!(find(key(KeyNo(no))), Some(KeyNo(no)));
            assert!(no == 0 || key(KeyNo(no - 1)) < key(KeyNo(no)));
        }
        assert_eq!(find(b"w/99999"), None);
    }

    #[test]
    fn positions_are_empty_where_ranges_of_bytes_are() {
        for at in 0..140 {
            for to in at..140 {
                let range = (Bound::Excluded(KeyNo(at)), Bound::Excluded(KeyNo(to)));
                let (start, end) = positions(range);
                let after = [key(KeyNo(at)), &[0]].concat();
                assert_eq!(start < end, &after[..] < key(KeyNo(to)), "{at} {to}");
            }
        }
    }
}
