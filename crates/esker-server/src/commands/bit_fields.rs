//! `BITFIELD`: integers of any width in a string.

use super::strings::STRING_BYTES_MAX;
use crate::base::events::Event;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::{int, parse_int};
use crate::run::cx::Cx;

/// Width and signedness of an integer.
#[derive(Clone, Copy)]
struct Width {
    bits: u32,
    is_signed: bool,
}

/// How an overflow is handled.
#[derive(Clone, Copy)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

enum Step {
    Get,
    Set(i64),
    Add(i64),
}

fn width(word: &[u8]) -> Done<Width> {
    let wrong =
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
    let (kind, bits) = word.split_first().ok_or(wrong)?;
    let bits = parse_int(bits).and_then(|bits| u32::try_from(bits).ok()).ok_or(wrong)?;
    match kind {
        b'i' if (1..=64).contains(&bits) => Ok(Width { bits, is_signed: true }),
        b'u' if (1..=63).contains(&bits) => Ok(Width { bits, is_signed: false }),
        _ => Err(wrong.into()),
    }
}

/// Parses the offset of an integer in bits: a bit number, or `#` and an index in units of the width.
fn offset(word: &[u8], width: Width) -> Done<usize> {
    let (factor, digits) = match word.split_first() {
        Some((b'#', digits)) => (i64::from(width.bits), digits),
        _ => (1, word),
    };
    let at = parse_int(digits).and_then(|n| n.checked_mul(factor)).and_then(|n| usize::try_from(n).ok());
    let at = at.filter(|at| at + width.bits as usize <= STRING_BYTES_MAX * 8);
    at.ok_or("ERR bit offset is not an integer or out of range".into())
}

fn read(bytes: &[u8], at: usize, width: Width) -> i64 {
    let mut n = 0u64;
    for bit in at..at + width.bits as usize {
        let byte = bytes.get(bit / 8).copied().unwrap_or(0);
        n = n << 1 | u64::from(byte >> (7 - bit % 8) & 1);
    }
    if width.is_signed {
        let unused = 64 - width.bits;
        ((n << unused) as i64) >> unused
    } else {
        n as i64
    }
}

fn write(bytes: &mut [u8], at: usize, width: Width, n: i64) {
    let end = at + width.bits as usize;
    for (place, bit) in (at..end).enumerate() {
        let is_set = n >> (width.bits as usize - 1 - place) & 1 == 1;
        let mask = 1 << (7 - bit % 8);
        if is_set { bytes[bit / 8] |= mask } else { bytes[bit / 8] &= !mask }
    }
}

/// Applies the overflow mode. Returns none if the integer does not fit and the mode is to fail.
fn fit(n: i128, width: Width, overflow: Overflow) -> Option<i64> {
    let (min, max) = match width.is_signed {
        true => (-(1i128 << (width.bits - 1)), (1i128 << (width.bits - 1)) - 1),
        false => (0, (1i128 << width.bits) - 1),
    };
    if (min..=max).contains(&n) {
        return Some(n as i64);
    }
    match overflow {
        Overflow::Fail => None,
        Overflow::Saturate => Some(if n < min { min } else { max } as i64),
        Overflow::Wrap => Some(((n - min).rem_euclid(max - min + 1) + min) as i64),
    }
}

/// A step, the width and offset of its integer, and its overflow mode.
type Task = (Step, Width, usize, Overflow);

fn tasks(request: &Request, only_reads: bool) -> Done<Vec<Task>> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < request.len() {
        let word = |n: usize| request.get(at + n).ok_or(SYNTAX);
        let name = request[at].to_ascii_lowercase();
        if name == b"overflow" {
            overflow = match word(1)?.to_ascii_lowercase().as_slice() {
                b"wrap" => Overflow::Wrap,
                b"sat" => Overflow::Saturate,
                b"fail" => Overflow::Fail,
                _ => return Err("ERR Invalid OVERFLOW type specified".into()),
            };
            at += 2;
            continue;
        }
        let words = match &*name {
            b"get" => 3,
            b"set" | b"incrby" => 4,
            _ => return Err(SYNTAX.into()),
        };
        word(words - 1)?;
        let width = width(word(1)?)?;
        let place = offset(word(2)?, width)?;
        let step = match &*name {
            b"get" => Step::Get,
            b"set" => Step::Set(int(word(3)?)?),
            _ => Step::Add(int(word(3)?)?),
        };
        at += words;
        if only_reads && !matches!(step, Step::Get) {
            return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
        }
        steps.push((step, width, place, overflow));
    }
    Ok(steps)
}

pub(super) fn bitfield(cx: &mut Cx<'_>, request: &Request, only_reads: bool) -> Done {
    let steps = tasks(request, only_reads)?;
    let (old, mut bytes) = cx.bytes(&request[1])?;
    // The string grows to the end of the last integer to write, even if that integer does not fit.
    let writes = steps.iter().filter(|step| !matches!(step.0, Step::Get));
    let end = writes.map(|(_, width, place, _)| (place + width.bits as usize).div_ceil(8)).max().unwrap_or(0);
    let mut has_changed = end > bytes.len();
    bytes.resize(bytes.len().max(end), 0);
    cx.out.array(steps.len());
    for (step, width, place, overflow) in steps {
        let before = read(&bytes, place, width);
        let (new, shown) = match step {
            Step::Get => {
                cx.out.int(before);
                continue;
            }
            Step::Set(n) => {
                let new = fit(set_value(n, width), width, overflow);
                (new, new.map(|_| before))
            }
            Step::Add(n) => {
                let new = fit(i128::from(before) + i128::from(n), width, overflow);
                (new, new)
            }
        };
        if let Some(new) = new {
            write(&mut bytes, place, width, new);
            has_changed |= new != before;
        }
        match shown {
            Some(shown) => cx.out.int(shown),
            None => cx.out.null(),
        }
    }
    if has_changed {
        let expires = old.as_ref().map_or(0, |old| old.expires);
        cx.put_string(&request[1], old.as_ref(), &bytes, expires)?;
        cx.event(Event::String, "setbit", &request[1]);
    }
    Ok(())
}

/// Returns the integer to set. For unsigned widths a negative argument stands for its two's complement.
fn set_value(n: i64, width: Width) -> i128 {
    if width.is_signed { i128::from(n) } else { i128::from(n as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        let mut bytes = vec![0; 30];
        for (at, bits, n) in [(3, 5, 17), (100, 63, i64::MAX), (0, 3, 7), (8, 1, 1)] {
            let width = Width { bits, is_signed: false };
            write(&mut bytes, at, width, n);
            assert_eq!(read(&bytes, at, width), n);
        }
        let signed = Width { bits: 5, is_signed: true };
        write(&mut bytes, 21, signed, -3);
        assert_eq!(read(&bytes, 21, signed), -3);
    }

    #[test]
    fn numbers_that_do_not_fit() {
        let (i8, u2) = (Width { bits: 8, is_signed: true }, Width { bits: 2, is_signed: false });
        assert_eq!(fit(128, i8, Overflow::Wrap), Some(-128));
        assert_eq!(fit(-129, i8, Overflow::Wrap), Some(127));
        assert_eq!(fit(300, i8, Overflow::Saturate), Some(127));
        assert_eq!(fit(4, u2, Overflow::Wrap), Some(0));
        assert_eq!((fit(-1, u2, Overflow::Saturate), fit(-1, u2, Overflow::Fail)), (Some(0), None));
    }
}
