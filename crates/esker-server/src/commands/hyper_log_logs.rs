//! HyperLogLogs: estimates of the number of distinct elements. Stored as strings of 16,384 registers of 6
//! bits, in the dense format of Redis.
//!
//! Flajolet, Fusy, Gandouet, Meunier: "HyperLogLog: the analysis of a near-optimal cardinality estimation
//! algorithm" (2007). The estimator is that of Ertl: "New cardinality estimation algorithms for HyperLogLog
//! sketches" (2017).

use crate::base::events::Event;
use crate::command::spec::Group::HyperLogLog;
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::registry::row::*;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("pfadd", -2, WRITE | DENY_OOM | FAST, FIRST, HyperLogLog, "key element ...", "Adds elements to a HyperLogLog.", pfadd).each(KeyUse::INSERT),
    command("pfcount", -2, READ | PAUSED, ALL, HyperLogLog, "key ...", "Estimates the number of distinct elements.", pfcount),
    command("pfmerge", -2, WRITE | DENY_OOM, ALL, HyperLogLog, "to key ...", "Merges HyperLogLogs.", pfmerge).uses(Uses::First(KeyUse::SHOW_UPDATE, KeyUse::SHOW)),
];

const REGISTERS: usize = 1 << 14;
const HEAD: usize = 16;
const BYTES: usize = HEAD + REGISTERS * 6 / 8;
/// Bits of a hash that do not select the register.
const REST_BITS: u32 = 50;

const NOT_VALID: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const DAMAGED: &str = "INVALIDOBJ Corrupted HLL object detected";

/// Registers, one per byte.
type Registers = Vec<u8>;

fn decode(bytes: &[u8]) -> Done<Registers> {
    if bytes.len() < HEAD || &bytes[..4] != b"HYLL" || bytes[4] > 1 {
        return Err(NOT_VALID.into());
    }
    if bytes[4] == 1 {
        return decode_sparse(&bytes[HEAD..]);
    }
    if bytes.len() != BYTES {
        return Err(NOT_VALID.into());
    }
    let mut registers = vec![0; REGISTERS];
    for (at, register) in registers.iter_mut().enumerate() {
        let (byte, shift) = (HEAD + at * 6 / 8, at * 6 % 8);
        let pair = u16::from(bytes[byte]) | u16::from(bytes.get(byte + 1).copied().unwrap_or(0)) << 8;
        *register = (pair >> shift & 63) as u8;
    }
    Ok(registers)
}

/// Decodes the sparse format of Redis: runs of zeros and of small values. It is never written.
fn decode_sparse(runs: &[u8]) -> Done<Registers> {
    let mut registers = Vec::with_capacity(REGISTERS);
    let mut at = 0;
    while let Some(byte) = runs.get(at) {
        let (value, len) = match byte >> 6 {
            0 => (0, usize::from(byte & 63) + 1),
            1 => {
                at += 1;
                let low = runs.get(at).ok_or(DAMAGED)?;
                (0, (usize::from(byte & 63) << 8 | usize::from(*low)) + 1)
            }
            _ => ((byte >> 2 & 31) + 1, usize::from(byte & 3) + 1),
        };
        registers.resize(registers.len() + len, value);
        if registers.len() > REGISTERS {
            return Err(DAMAGED.into());
        }
        at += 1;
    }
    if registers.len() != REGISTERS {
        return Err(DAMAGED.into());
    }
    Ok(registers)
}

fn encode(registers: &Registers) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    bytes[..4].copy_from_slice(b"HYLL");
    // Mark the cached estimate as invalid.
    bytes[15] = 0x80;
    for (at, register) in registers.iter().enumerate() {
        let (byte, shift) = (HEAD + at * 6 / 8, at * 6 % 8);
        bytes[byte] |= register << shift;
        if shift > 2 {
            bytes[byte + 1] |= register >> (8 - shift);
        }
    }
    bytes
}

/// Computes MurmurHash64A by Austin Appleby, which is in the public domain.
fn hash(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut h = 0xadc8_3b19 ^ (bytes.len() as u64).wrapping_mul(M);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut k = chunk.iter().rev().fold(0, |k, byte| k << 8 | u64::from(*byte)).wrapping_mul(M);
        k ^= k >> 47;
        h = (h ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        h = (h ^ rest.iter().rev().fold(0, |k, byte| k << 8 | u64::from(*byte))).wrapping_mul(M);
    }
    h = (h ^ h >> 47).wrapping_mul(M);
    h ^ h >> 47
}

fn add(registers: &mut Registers, element: &[u8]) -> bool {
    let hash = hash(element);
    let at = hash as usize % REGISTERS;
    let rest = hash >> 14 | 1 << REST_BITS;
    let zeros = rest.trailing_zeros() as u8 + 1;
    let is_larger = zeros > registers[at];
    registers[at] = registers[at].max(zeros);
    is_larger
}

fn estimate(registers: &Registers) -> u64 {
    let q = REST_BITS as usize;
    let mut counts = [0u32; 64];
    registers.iter().for_each(|register| counts[usize::from(*register)] += 1);
    let m = REGISTERS as f64;
    let mut z = m * tau((m - f64::from(counts[q + 1])) / m);
    for k in (1..=q).rev() {
        z = 0.5 * (z + f64::from(counts[k]));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    (m / (2.0 * std::f64::consts::LN_2) * m / z).round() as u64
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x).powi(2) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Registers>> {
    let main = cx.string(key)?;
    main.map(|main| decode(main.text())).transpose()
}

fn save(cx: &mut Cx<'_>, key: &[u8], registers: &Registers) -> Done {
    let old = cx.string(key)?;
    let expires = old.as_ref().map_or(0, |old| old.expires);
    cx.put_string(key, old.as_ref(), &encode(registers), expires)?;
    cx.event(Event::String, "pfadd", key);
    Ok(())
}

fn pfadd(cx: &mut Cx<'_>, request: &Request) -> Done {
    let found = open(cx, &request[1])?;
    let mut has_changed = found.is_none();
    let mut registers = found.unwrap_or_else(|| vec![0; REGISTERS]);
    for element in request.from(2) {
        has_changed |= add(&mut registers, element);
    }
    if has_changed {
        save(cx, &request[1], &registers)?;
    }
    cx.out.int(i64::from(has_changed));
    Ok(())
}

fn merged<'r>(cx: &mut Cx<'_>, keys: impl Iterator<Item = &'r [u8]>) -> Done<Registers> {
    let mut all = vec![0; REGISTERS];
    for key in keys {
        for (mine, other) in all.iter_mut().zip(open(cx, key)?.unwrap_or_default()) {
            *mine = (*mine).max(other);
        }
    }
    Ok(all)
}

fn pfcount(cx: &mut Cx<'_>, request: &Request) -> Done {
    let all = merged(cx, request.from(1))?;
    cx.out.int(estimate(&all) as i64);
    Ok(())
}

fn pfmerge(cx: &mut Cx<'_>, request: &Request) -> Done {
    let all = merged(cx, request.from(1))?;
    save(cx, &request[1], &all)?;
    cx.out.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::fail::Fail;

    #[test]
    fn estimates_are_near() {
        let mut registers = vec![0; REGISTERS];
        let mut n = 0u64;
        for expected in [0u64, 1, 10, 1000, 100_000] {
            while n < expected {
                add(&mut registers, &n.to_be_bytes());
                n += 1;
            }
            let found = estimate(&registers);
            assert!(found.abs_diff(expected) as f64 <= expected as f64 * 0.03, "{expected} {found}");
        }
        assert_eq!(decode(&encode(&registers)).unwrap(), registers);
    }

    #[test]
    fn other_strings_are_none() {
        assert!(matches!(decode(b"text"), Err(Fail::Reply(text)) if text == NOT_VALID));
        let sparse = [&b"HYLL\x01"[..], &[0; 11], &[0x7F, 0xFF]].concat();
        assert_eq!(decode(&sparse).unwrap(), vec![0; REGISTERS]);
    }
}
