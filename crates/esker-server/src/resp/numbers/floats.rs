//! Numbers with a fraction, parsed like C's `strtod`, because Redis and its clients do.

/// Result of reading a text.
struct Read {
    number: f64,
    /// Number of bytes read.
    len: usize,
    /// The number is too large or too small for a double.
    is_out_of_range: bool,
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0B
}

fn count_digits(text: &[u8], is_digit: fn(&u8) -> bool) -> usize {
    text.iter().position(|byte| !is_digit(byte)).unwrap_or(text.len())
}

/// Length of an exponent with this letter; 0 if there is none.
fn exponent_len(text: &[u8], letter: u8) -> usize {
    if text.first().map(u8::to_ascii_lowercase) != Some(letter) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    match count_digits(text.get(1 + sign..).unwrap_or_default(), u8::is_ascii_digit) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

/// Digits before and after the point, if there are any, and the total number of bytes.
fn mantissa(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<(&[u8], &[u8], usize)> {
    let whole = count_digits(text, is_digit);
    let has_point = text.get(whole) == Some(&b'.');
    let rest = text.get(whole + 1..).filter(|_| has_point).unwrap_or_default();
    let fraction = count_digits(rest, is_digit);
    if whole + fraction == 0 {
        return None;
    }
    Some((&text[..whole], &rest[..fraction], whole + usize::from(has_point) + fraction))
}

/// Reads a decimal number without a sign.
fn decimal(text: &[u8]) -> Option<Read> {
    let (whole, fraction, len) = mantissa(text, u8::is_ascii_digit)?;
    let len = len + exponent_len(&text[len..], b'e');
    let number: f64 = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    let is_zero = whole.iter().chain(fraction).all(|digit| *digit == b'0');
    Some(Read { number, len, is_out_of_range: number.is_infinite() || number == 0.0 && !is_zero })
}

/// Reads a hexadecimal number after `0x`, without a sign.
fn hexadecimal(text: &[u8]) -> Option<Read> {
    let (whole, fraction, len) = mantissa(text, u8::is_ascii_hexdigit)?;
    let (mut bits, mut shift, mut is_inexact) = (0_u64, 0_i64, false);
    for (at, digit) in whole.iter().chain(fraction).enumerate() {
        let digit = u64::from(char::from(*digit).to_digit(16)?);
        let is_fraction = at >= whole.len();
        if bits >> 58 == 0 {
            bits = bits << 4 | digit;
            shift -= if is_fraction { 4 } else { 0 };
        } else {
            is_inexact |= digit != 0;
            shift += if is_fraction { 0 } else { 4 };
        }
    }
    let power = exponent_len(&text[len..], b'p');
    if power > 0 {
        let digits = std::str::from_utf8(&text[len + 1..len + power]).ok()?;
        let given: i64 = digits.parse().unwrap_or(if digits.starts_with('-') { -1 << 40 } else { 1 << 40 });
        shift = shift.saturating_add(given);
    }
    // The last bit stands for all omitted digits, so that a half is rounded correctly.
    let mantissa = (bits | u64::from(is_inexact)) as f64;
    let half = (shift.clamp(-4000, 4000) / 2) as i32;
    let number = mantissa * 2_f64.powi(half) * 2_f64.powi(shift.clamp(-4000, 4000) as i32 - half);
    let is_out_of_range = number.is_infinite() || number == 0.0 && bits != 0;
    Some(Read { number, len: len + power, is_out_of_range })
}

/// Reads the longest number at the start of a text. 0 bytes if there is none.
fn read(text: &[u8]) -> Read {
    let none = Read { number: 0.0, len: 0, is_out_of_range: false };
    let spaces = text.iter().position(|byte| !is_space(*byte)).unwrap_or(text.len());
    let sign = usize::from(matches!(text.get(spaces), Some(b'+' | b'-')));
    let rest = &text[spaces + sign..];
    let begins = |word: &[u8]| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let word = |number: f64, len: usize| Some(Read { number, len, is_out_of_range: false });
    let found = match () {
        () if begins(b"infinity") => word(f64::INFINITY, 8),
        () if begins(b"inf") => word(f64::INFINITY, 3),
        () if begins(b"nan") => word(f64::NAN, 3),
        () if begins(b"0x") => match hexadecimal(&rest[2..]) {
            Some(read) => Some(Read { len: read.len + 2, ..read }),
            None => decimal(rest),
        },
        () => decimal(rest),
    };
    let Some(mut found) = found else { return none };
    if sign == 1 && text[spaces] == b'-' {
        found.number = -found.number;
    }
    found.len += spaces + sign;
    found
}

/// Parses a number of an argument or a value: the whole text, without leading spaces, within the range of a
/// double. It may be infinite, and is never NaN.
pub fn parse_float(text: &[u8]) -> Option<f64> {
    let read = read(text);
    let is_whole = !text.is_empty() && read.len == text.len() && !is_space(text[0]);
    (is_whole && !read.is_out_of_range && !read.number.is_nan()).then_some(read.number)
}

/// Parses a bound of a range of scores: like `parse_float`, but with leading spaces. An empty text is 0; too
/// large is infinite.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let read = read(text);
    (read.len == text.len() && !read.number.is_nan()).then_some(read.number)
}

/// Parses an element as `SORT` does: like `parse_bound`, without numbers that are too large.
pub fn parse_weight(text: &[u8]) -> Option<f64> {
    parse_bound(text).filter(|_| !read(text).is_out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_read_as_by_c() {
        for (text, number) in [
            ("+inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("-1.5e3", -1500.0),
            ("1.", 1.0),
            (".5", 0.5),
            ("0x10", 16.0),
            ("-0X1.8p1", -3.0),
            ("0x.8", 0.5),
            ("0x1fffffffffffff8", 144_115_188_075_855_872.0),
            ("0x100000000000008000000000000001", 83_076_749_736_557_260_000_000_000_000_000_000.0),
            ("0x1p-1074", 5e-324),
            ("1e-320", 1e-320),
        ] {
            assert_eq!(parse_float(text.as_bytes()), Some(number), "{text}");
            assert_eq!(parse_bound(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            "nan",
            " 1",
            "1 ",
            "1e",
            "e1",
            ".",
            "0x",
            "0xg",
            "1e400",
            "-1e309",
            "1e-400",
            "0x1p5000",
            "0x1p-5000",
            "0x1p",
            "--1",
            "1_0",
            "infx",
            "x",
            "\0",
        ] {
            assert_eq!(parse_float(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(
            [parse_bound(b""), parse_bound(b" 1"), parse_bound(b"1e400")],
            [Some(0.0), Some(1.0), Some(f64::INFINITY)]
        );
        assert_eq!([parse_weight(b""), parse_weight(b"1e400"), parse_bound(b"nan")], [Some(0.0), None, None]);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..100_000 {
            let number = f64::from_bits(random.u64(..));
            if number.is_finite() {
                assert_eq!(parse_float(format!("{number:e}").as_bytes()), Some(number));
            }
            let text: Vec<u8> =
                (0..random.usize(0..8)).map(|_| b"+-.0123456789eExXpPinfa "[random.usize(0..24)]).collect();
            let (_, _) = (parse_float(&text), parse_bound(&text));
        }
    }
}
