//! Writes standard output and messages, and formats numbers for people.
//!
//! All other modules write through this one: a closed or full standard output is then an error instead of a
//! panic, and a message that cannot be written is ignored. A command keeps its answer even if the reader of
//! its output leaves early.

use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;

use crate::Answer;
use crate::failure::{Failure, Result};
use crate::pager;
use crate::text::json_shown;

/// Returns buffered standard output. The caller must flush it, because dropping it ignores errors.
pub(crate) fn stdout() -> BufWriter<Standard> {
    BufWriter::with_capacity(64 << 10, Standard(io::stdout().lock()))
}

/// Standard output, which may be closed or paged.
pub(crate) struct Standard(StdoutLock<'static>);

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if crate::closed::stdout_was_closed() {
            return Err(io::Error::other("standard output is closed"));
        }
        let out = &mut self.0;
        // The next write reports an error of this flush.
        match pager::admit(bytes, || drop(out.flush())) {
            Some(length) => self.0.write(&bytes[..length]),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Prints one line.
pub(crate) fn print_line(line: impl Display) -> Result<()> {
    let mut out = stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// Prints a JSON value on one line.
pub(crate) fn print_json(value: &Value) -> Result<()> {
    print_line(json_shown(value.to_string()))
}

/// Prints a message on standard error, ignoring errors.
pub(crate) fn print_message(message: impl Display) {
    // There is nowhere to report the error.
    let _ignored = writeln!(io::stderr(), "{message}");
}

/// Returns the answer after printing. A closed output does not change it.
pub(crate) fn printed(answer: Answer, printed: Result<()>) -> Result<Answer> {
    match printed {
        Ok(()) | Err(Failure::OutputClosed) => Ok(answer),
        Err(failure) => Err(failure),
    }
}

/// Writes aligned names and values, with thousands separators.
pub(crate) fn write_pairs(out: &mut impl Write, pairs: &[(String, String)]) -> Result<()> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in pairs {
        let value = value.parse::<u64>().map_or_else(|_| value.clone(), count);
        writeln!(out, "  {name:width$}  {value}")?;
    }
    Ok(())
}

/// Returns a JSON number if the value is one, else a string.
pub(crate) fn json_figure(value: &str) -> Value {
    value.parse::<u64>().map_or_else(|_| value.into(), Value::from)
}

/// Formats a number with thousands separators: `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 row`, `1,234 rows`.
pub(crate) fn plural(number: u64, thing: &str) -> String {
    plural_as(number, thing, &format!("{thing}s"))
}

/// Formats a number of things with an irregular plural.
pub(crate) fn plural_as(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Formats a size in bytes: `17 B`, `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 1_234].map(|n| plural(n, "row")), ["0 rows", "1 row", "1,234 rows"]);
        assert_eq!([0, 1_023, 1_536, 5 << 30].map(size), ["0 B", "1023 B", "1.5 KiB", "5.0 GiB"]);
    }
}
