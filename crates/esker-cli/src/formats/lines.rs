//! Reads a file line by line, as bytes.
//!
//! A line uses no more memory than a valid key and value need. A longer line is bad, and its rest
//! is skipped when the next line is requested. For formats with values the limit is some GiB, because every
//! exported row must be readable (formats.1).

use std::io::{self, BufRead, Read};

/// The next line: its bytes, or why it is bad. `None` at the end of the file.
pub(super) type Line<'a> = Option<Result<&'a [u8], String>>;

/// Reads line by line into one buffer.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    buffer: Vec<u8>,
    /// Whether a carriage return before the newline is removed with it.
    strip_cr: bool,
    /// Limit without the line end.
    line_bytes_max: u64,
    /// Whether the rest of an overlong line must be skipped before the next line.
    passing: bool,
    /// Whether the last line had no line end.
    unended: bool,
    number: u64,
}

impl Lines {
    pub(super) fn new(input: Box<dyn BufRead>, strip_cr: bool, line_bytes_max: u64) -> Self {
        Lines {
            input,
            buffer: Vec::new(),
            strip_cr,
            line_bytes_max,
            passing: false,
            unended: false,
            number: 0,
        }
    }

    /// Starts counting at `line`, for input whose beginning was already read.
    pub(super) fn starting_at(mut self, line: u64) -> Self {
        self.number = line - 1;
        self
    }

    /// Returns the next line without its end.
    pub(super) fn next_line(&mut self) -> io::Result<Line<'_>> {
        if std::mem::take(&mut self.passing) {
            self.input.skip_until(b'\n')?;
        }
        self.buffer.clear();
        // Reads three bytes more: two for the line end, one to detect an overlong line.
        let bytes_max = self.line_bytes_max.saturating_add(3);
        if (&mut self.input).take(bytes_max).read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let (line, ended) = match self.buffer.strip_suffix(b"\n") {
            Some(line) => (line, true),
            None => (&self.buffer[..], false),
        };
        self.unended = !ended;
        let line = if self.strip_cr { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        if line.len() as u64 > self.line_bytes_max {
            self.passing = !ended;
            return Ok(Some(Err(too_long("line", self.line_bytes_max))));
        }
        Ok(Some(Ok(line)))
    }

    /// Returns the last line again, without its end.
    pub(super) fn line(&self) -> &[u8] {
        let line = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        if self.strip_cr { line.strip_suffix(b"\r").unwrap_or(line) } else { line }
    }

    /// Returns whether the file ended without a line end, so the last line may be incomplete.
    pub(super) fn is_unended(&self) -> bool {
        self.unended
    }

    /// Returns the number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

/// Describes a line or row of more than `bytes_max` bytes.
pub(super) fn too_long(what: &str, bytes_max: u64) -> String {
    format!(
        "the {what} is longer than {bytes_max} bytes, more than any key and value in this format need: is the format right?"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_every_way() {
        let all = |strip_cr| {
            let mut lines = Lines::new(Box::new(io::Cursor::new(b"a\r\n\nb\rc".to_vec())), strip_cr, 100);
            let mut found = Vec::new();
            while let Some(line) = lines.next_line().unwrap() {
                found.push(String::from_utf8(line.unwrap().to_vec()).unwrap());
            }
            assert!(lines.is_unended());
            (found, lines.number())
        };
        assert_eq!(all(true), (vec!["a".to_owned(), String::new(), "b\rc".to_owned()], 3));
        assert_eq!(all(false).0[0], "a\r");
    }

    #[test]
    fn long_lines_are_bad_lines() {
        // With a limit of 4, lines of four bytes are valid and of five too long, with any line end.
        let text = b"abcd\r\nabcde\nabcd\n0123456789\r\nabcd\r\nabcde\rabcd";
        let mut lines = Lines::new(Box::new(io::Cursor::new(text.to_vec())), true, 4);
        let mut bad = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            match line.map(<[u8]>::to_vec) {
                Ok(line) => assert_eq!(line, b"abcd"),
                Err(reason) => {
                    assert!(reason.contains("longer than 4 bytes"), "{reason}");
                    bad.push(lines.number());
                }
            }
        }
        assert_eq!((bad, lines.number()), (vec![2, 4, 6], 6));
    }

    #[test]
    fn input_without_lines_ends() {
        let mut lines = Lines::new(Box::new(io::BufReader::new(io::repeat(0))), true, 1_000);
        assert!(lines.next_line().unwrap().unwrap().is_err());
        assert!(lines.buffer.capacity() < 10_000);
    }
}
