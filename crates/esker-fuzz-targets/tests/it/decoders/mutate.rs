//! Damages valid inputs on a small scale, like disks, crashes and foreign files.

use std::ops::Range;

use fastrand::Rng;

/// Numbers at limits.
const EDGES: [u32; 9] = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFE, u32::MAX];

/// Returns random bytes, or an input with one to four modifications.
pub fn damaged(rng: &mut Rng, inputs: &[Vec<u8>]) -> Vec<u8> {
    if rng.u8(..) < 16 {
        let len = rng.usize(..200);
        return (0..len).map(|_| rng.u8(..)).collect();
    }
    let mut bytes = inputs[rng.usize(..inputs.len())].clone();
    for _ in 0..rng.usize(1..=4) {
        damage(rng, &mut bytes, inputs);
    }
    bytes
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.push(rng.u8(..));
        return;
    }
    let at = rng.usize(..bytes.len());
    match rng.u8(..9) {
        0 | 1 => bytes[at] ^= 1 << rng.u8(..8),
        2 => bytes[at] = rng.u8(..),
        3 => {
            // A number, in as many bytes as fit.
            let edge = EDGES[rng.usize(..EDGES.len())].to_le_bytes();
            let end = bytes.len().min(at + edge.len());
            bytes[at..end].copy_from_slice(&edge[..end - at]);
        }
        4 => bytes.truncate(at),
        5 => drop(bytes.drain(range(rng, bytes.len()))),
        6 => {
            // A torn block: zeros in the middle.
            let range = range(rng, bytes.len());
            bytes[range].fill(0);
        }
        7 => {
            let part = bytes[range(rng, bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
        _ => {
            let other = &inputs[rng.usize(..inputs.len())];
            let part = if other.is_empty() { &[][..] } else { &other[range(rng, other.len())] };
            let end = bytes.len().min(at + part.len());
            bytes.splice(at..end, part.iter().copied());
        }
    }
}

fn range(rng: &mut Rng, len: usize) -> Range<usize> {
    let start = rng.usize(..len);
    start..rng.usize(start..=len)
}
