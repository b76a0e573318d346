//! Numbers in arguments and values, parsed like Redis does.

mod floats;

pub use self::floats::{parse_bound, parse_float, parse_weight};
use crate::resp::fail::{Done, NO_FLOAT, NO_INTEGER};

/// Parses an integer in canonical form: no sign except a minus, no leading zeros, no spaces.
pub fn parse_int(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', digits)) => (true, digits),
        _ => (false, text),
    };
    match digits.first()? {
        b'0' if text.len() > 1 => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut n = 0u64;
    for digit in digits {
        n = n.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0')).filter_digit()?)?;
    }
    if is_negative { 0i64.checked_sub_unsigned(n) } else { i64::try_from(n).ok() }
}

trait FilterDigit {
    fn filter_digit(self) -> Option<u64>;
}

impl FilterDigit for u64 {
    fn filter_digit(self) -> Option<u64> {
        (self < 10).then_some(self)
    }
}

/// Parses an integer argument.
///
/// # Errors
/// If it is not an integer.
pub fn int(text: &[u8]) -> Done<i64> {
    parse_int(text).ok_or(NO_INTEGER.into())
}

/// Parses a floating-point argument.
///
/// # Errors
/// If it is not a number.
pub fn float(text: &[u8]) -> Done<f64> {
    parse_float(text).ok_or(NO_FLOAT.into())
}

/// Number of digits after the point that sums keep.
const FRACTION: usize = 17;

/// Adds two decimal numbers exactly: 12.3 and -13.1 are -0.8. Returns none if one has an exponent or too many
/// digits.
pub fn decimal_sum(a: &[u8], b: &[u8]) -> Option<String> {
    let sum = decimal(a)?.checked_add(decimal(b)?)?;
    let one = 10_u128.pow(FRACTION as u32);
    let size = sum.unsigned_abs();
    let digits = format!("{}.{:017}", size / one, size % one);
    let sign = if sum < 0 { "-" } else { "" };
    Some(format!("{sign}{}", digits.trim_end_matches('0').trim_end_matches('.')))
}

/// Parses a decimal number in units of 10^-`FRACTION`.
fn decimal(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number || whole.is_empty() || whole.len() > 19 || fraction.len() > FRACTION {
        return None;
    }
    let units: i128 = format!("{whole}{fraction:0<FRACTION$}").parse().ok()?;
    Some(if is_negative { -units } else { units })
}

/// Parses an argument in seconds. Returns milliseconds.
///
/// # Errors
/// If it is not a valid time.
pub fn timeout(text: &[u8]) -> Done<u64> {
    let is_hex = text.len() > 2
        && text[..2].eq_ignore_ascii_case(b"0x")
        && text[2..].iter().all(u8::is_ascii_hexdigit);
    if is_hex && text.len() > 14 {
        return Err("ERR timeout is out of range".into());
    }
    let seconds = parse_float(text).ok_or("ERR timeout is not a float or out of range")?;
    if seconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    if seconds > 1e15 {
        return Err("ERR timeout is out of range".into());
    }
    Ok((seconds * 1000.0).ceil() as u64)
}

/// Parses an argument in milliseconds.
///
/// # Errors
/// If it is not a valid time.
pub fn timeout_ms(text: &[u8]) -> Done<u64> {
    let ms = parse_int(text).ok_or("ERR timeout is not an integer or out of range")?;
    Ok(u64::try_from(ms).map_err(|_| "ERR timeout is negative")?)
}

/// Resolves an inclusive range of positions within `len`. Negative positions count from the end. Returns none
/// if the range is empty.
pub fn places(start: i64, stop: i64, len: u64) -> Option<(u64, u64)> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |n: i64| if n < 0 { (len + n).max(0) } else { n };
    if stop < 0 && stop < -len {
        return None;
    }
    let (start, stop) = (from_end(start), from_end(stop).min(len - 1));
    (start <= stop && len > 0).then_some((start as u64, stop as u64))
}

/// Formats a size in the largest unit that divides it.
pub fn shown(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} bytes"),
    }
}

/// Parses a number of bytes with a unit, such as `100mb`.
pub fn bytes_of(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" | "kib" => 1 << 10,
        "m" => 1_000_000,
        "mb" | "mib" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_decimals_are_exact() {
        let sum = |a: &str, b: &str| decimal_sum(a.as_bytes(), b.as_bytes());
        for (a, b, expected) in [
            ("12.3", "-13.1", "-0.8"),
            ("0.1", "0.2", "0.3"),
            ("-5", "+5.00", "0"),
            ("9999999999999999999", "0.00000000000000001", "9999999999999999999.00000000000000001"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(expected), "{a} {b}");
        }
        for other in ["1e3", "inf", "", ".5", "1.2.3", "10000000000000000000", "0.000000000000000001", "x"] {
            assert_eq!(sum(other, "1"), None, "{other}");
        }
    }

    #[test]
    fn numbers_have_one_form() {
        let texts = ["0", "-1", "9223372036854775807", "-9223372036854775808"];
        assert_eq!(
            texts.map(|text| parse_int(text.as_bytes())),
            [Some(0), Some(-1), Some(i64::MAX), Some(i64::MIN)]
        );
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.0", "9223372036854775808", "x"] {
            assert_eq!(parse_int(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn places_count_from_both_ends() {
        let cases = [
            ((0, -1), Some((0, 4))),
            ((-2, -1), Some((3, 4))),
            ((-9, 1), Some((0, 1))),
            ((3, 99), Some((3, 4))),
        ];
        for ((start, stop), expected) in cases {
            assert_eq!(places(start, stop, 5), expected);
        }
        for (start, stop) in [(5, 9), (3, 2), (-1, -2), (0, -6)] {
            assert_eq!(places(start, stop, 5), None, "{start} {stop}");
        }
        assert_eq!(places(0, -1, 0), None);
    }

    #[test]
    fn sizes_are_reported_in_their_unit() {
        assert_eq!([1 << 30, 64 << 20, 1000].map(shown), ["1 GiB", "64 MiB", "1000 bytes"]);
    }
}
