//! The built-in merge operators.
//!
//! | name | value and operands | merged |
//! |---|---|---|
//! | `add-i64`, `add-u64` | 8 bytes, little-endian | the sum, which wraps around |
//! | `add-f64` | 8 bytes, little-endian | the sum, added in the order of the operands |
//! | `append` | any | the concatenation |
//! | `min`, `max` | any | the smallest or largest, in key order |
//! | `bit-or` | any | the bitwise or; missing bytes count as zeros |
//! | `bit-and` | any | the bitwise and; missing bytes count as ones |
//! | `set-union` | sets (set.rs) | the union |
//!
//! For a missing key, the result is that of the operands alone.

use std::sync::Arc;

use super::{MergeOperator, set};

/// Returns the built-in operator with this name.
pub(super) fn find(name: &str) -> Option<Arc<dyn MergeOperator>> {
    let builtin = match name {
        "add-i64" | "add-u64" => Builtin::AddInteger,
        "add-f64" => Builtin::AddFloat,
        "append" => Builtin::Append,
        "min" => Builtin::Min,
        "max" => Builtin::Max,
        "bit-or" => Builtin::BitOr,
        "bit-and" => Builtin::BitAnd,
        "set-union" => Builtin::SetUnion,
        _ => return None,
    };
    Some(Arc::new(builtin))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Builtin {
    /// Signed or unsigned: the bits of the sum are the same.
    AddInteger,
    AddFloat,
    Append,
    Min,
    Max,
    BitOr,
    BitAnd,
    SetUnion,
}

impl MergeOperator for Builtin {
    fn merge(&self, existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let all = || existing.iter().chain(operands).copied();
        match self {
            Builtin::AddInteger => {
                let sum = numbers(existing, operands)?.into_iter().map(u64::from_le_bytes);
                Ok(sum.fold(0, u64::wrapping_add).to_le_bytes().to_vec())
            }
            Builtin::AddFloat => {
                let sum =
                    numbers(existing, operands)?.into_iter().map(f64::from_le_bytes).reduce(|a, b| a + b);
                Ok(sum.unwrap_or_default().to_le_bytes().to_vec())
            }
            Builtin::Append => Ok(all().collect::<Vec<_>>().concat()),
            Builtin::Min => Ok(all().min().unwrap_or_default().to_vec()),
            Builtin::Max => Ok(all().max().unwrap_or_default().to_vec()),
            Builtin::BitOr => Ok(bits(all(), |a, b| a | b)),
            Builtin::BitAnd => Ok(bits(all(), |a, b| a & b)),
            Builtin::SetUnion => set::union(all()),
        }
    }

    fn combine(&self, operands: &[&[u8]]) -> Option<Vec<u8>> {
        // Sums of floats depend on the order of the additions, so compactions would change the results.
        if *self == Builtin::AddFloat { None } else { self.merge(None, operands).ok() }
    }

    fn check(&self, operand: &[u8]) -> Result<(), String> {
        match self {
            Builtin::AddInteger | Builtin::AddFloat => number("the operand", operand).map(drop),
            Builtin::SetUnion => set::union([operand].into_iter()).map(drop),
            _ => Ok(()),
        }
    }
}

fn number(what: &str, bytes: &[u8]) -> Result<[u8; 8], String> {
    bytes.try_into().map_err(|_| format!("{what} has {} bytes instead of 8", bytes.len()))
}

fn numbers(existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<[u8; 8]>, String> {
    let existing = existing.map(|bytes| number("the value", bytes));
    existing.into_iter().chain(operands.iter().map(|bytes| number("an operand", bytes))).collect()
}

/// Combines strings byte by byte. The rest of a longer string is kept.
fn bits<'a>(all: impl Iterator<Item = &'a [u8]>, of: impl Fn(u8, u8) -> u8) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for (n, bytes) in all.enumerate() {
        let common = if n == 0 { 0 } else { out.len().min(bytes.len()) };
        out.iter_mut().zip(&bytes[..common]).for_each(|(a, b)| *a = of(*a, *b));
        out.extend_from_slice(bytes.get(out.len()..).unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] =
        ["add-i64", "add-u64", "add-f64", "append", "min", "max", "bit-or", "bit-and", "set-union"];

    #[test]
    fn what_they_make_of_values() {
        let merge = |name: &str, existing: Option<&[u8]>, operands: &[&[u8]]| {
            find(name).unwrap().merge(existing, operands).unwrap()
        };
        let minus = (-5_i64).to_le_bytes();
        assert_eq!(merge("add-i64", Some(&3_i64.to_le_bytes()), &[&minus]), (-2_i64).to_le_bytes());
        assert_eq!(
            merge("add-u64", Some(&u64::MAX.to_le_bytes()), &[&2_u64.to_le_bytes()]),
            1_u64.to_le_bytes()
        );
        let half = 0.5_f64.to_le_bytes();
        assert_eq!(merge("add-f64", None, &[&half, &half]), 1_f64.to_le_bytes());
        assert_eq!(merge("append", Some(b"a"), &[b"bc", b"", b"d"]), b"abcd");
        assert_eq!(merge("min", Some(b"b"), &[b"ba", b"c"]), b"b");
        assert_eq!(merge("max", None, &[b"b", b"ba"]), b"ba");
        assert_eq!(merge("bit-or", Some(&[1, 2]), &[&[4], &[0, 1, 8]]), [5, 3, 8]);
        assert_eq!(merge("bit-and", None, &[&[7, 2], &[5]]), [5, 2]);
        let sets = [set::merge_set(["b", "a"]), set::merge_set(["c", "a"])];
        assert_eq!(merge("set-union", None, &[&sets[0], &sets[1]]), set::merge_set(["a", "b", "c"]));
    }

    #[test]
    fn partial_merges_change_nothing() {
        let mut rng = fastrand::Rng::with_seed(4);
        for name in NAMES {
            let operator = find(name).unwrap();
            let mut operand = || match name {
                "add-i64" | "add-u64" => rng.u64(..).to_le_bytes().to_vec(),
                "add-f64" => f64::to_le_bytes(f64::from(rng.i32(..)) / 7.0).to_vec(),
                "set-union" => set::merge_set((0..rng.usize(..4)).map(|_| [rng.u8(..9)]).collect::<Vec<_>>()),
                _ => (0..rng.usize(..4)).map(|_| rng.u8(..)).collect(),
            };
            for round in 0..200 {
                let operands: Vec<Vec<u8>> = (0..5).map(|_| operand()).collect();
                let operands: Vec<&[u8]> = operands.iter().map(|o| &**o).collect();
                assert!(operands.iter().all(|operand| operator.check(operand).is_ok()));
                let base = if round % 2 == 0 { None } else { Some(operand()) };
                let whole = operator.merge(base.as_deref(), &operands).unwrap();
                let at = 1 + round % 4;
                let first = operator.merge(base.as_deref(), &operands[..at]).unwrap();
                assert_eq!(operator.merge(Some(&first), &operands[at..]).unwrap(), whole, "{name}");
                let Some(combined) = operator.combine(&operands[..at]) else { continue };
                let rest = [&[&*combined], &operands[at..]].concat();
                assert_eq!(operator.merge(base.as_deref(), &rest).unwrap(), whole, "{name}");
            }
        }
    }

    #[test]
    fn malformed_operands_are_refused_when_they_are_written() {
        let check = |name: &str, operand: &[u8]| find(name).unwrap().check(operand);
        assert_eq!(check("add-i64", b"1").unwrap_err(), "the operand has 1 bytes instead of 8");
        assert!(check("add-f64", b"123456789").is_err());
        assert!(check("set-union", &[5, 1]).is_err());
        assert!(find("multiply").is_none());
    }
}
