//! The pool of keys and values: empty, short, with long common prefixes, with bytes at the ends of their range, and
//! some as long as keys may be.

use std::ops::Bound;
use std::rc::Rc;

use super::op::{KeyBounds, KeyNo, ValueNo};

/// The size of the pool.
pub const KEYS: u16 = 140;
/// From here on keys are long.
const LONG_FROM: u16 = 137;

/// The bytes of a key.
pub fn key(no: KeyNo) -> Vec<u8> {
    let n = no.0 % KEYS;
    match n {
        0 => Vec::new(),
        1..=9 => vec![b'a'; usize::from(n)],
        10..=14 => [&b"a"[..], &vec![0; usize::from(n - 9)]].concat(),
        15..=19 => vec![0xFF; usize::from(n - 14)],
        20..=23 => vec![[0, 1, b'z', 0xFE][usize::from(n - 20)]],
        24..=60 => format!("k{n:03}").into_bytes(),
        61..LONG_FROM => [&[b'p'; 90][..], format!("/{:02}/{n:04}", n % 3).as_bytes()].concat(),
        _ => {
            let mut long = vec![b'L'; esker::KEY_BYTES_MAX];
            *long.last_mut().expect("not empty") = n as u8;
            long
        }
    }
}

/// The bytes of a value.
pub fn value(no: ValueNo) -> Rc<[u8]> {
    (0..no.len).map(|i| no.fill.wrapping_add((i / 7) as u8)).collect()
}

/// The bounds as the engine takes them.
pub fn bounds((lower, upper): KeyBounds) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (lower.map(key), upper.map(key))
}
