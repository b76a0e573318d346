//! Lines of a file, as bytes.

use std::io::{self, BufRead};

/// Reads line by line into one buffer.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
    buffer: Vec<u8>,
    /// Whether a carriage return before the line end belongs to the line end.
    strip_cr: bool,
    number: u64,
}

impl Lines {
    pub(super) fn new(input: Box<dyn BufRead>, strip_cr: bool) -> Self {
        Lines { input, buffer: Vec::new(), strip_cr, number: 0 }
    }

    /// The next line without its end; none at the end of the file.
    pub(super) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.clear();
        if self.input.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
        Ok(Some(if self.strip_cr { line.strip_suffix(b"\r").unwrap_or(line) } else { line }))
    }

    /// The number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_every_way() {
        let all = |strip_cr| {
            let mut lines = Lines::new(Box::new(io::Cursor::new(b"a\r\n\nb\rc".to_vec())), strip_cr);
            let mut found = Vec::new();
            while let Some(line) = lines.next_line().unwrap() {
                found.push(String::from_utf8(line.to_vec()).unwrap());
            }
            (found, lines.number())
        };
        assert_eq!(all(true), (vec!["a".to_owned(), String::new(), "b\rc".to_owned()], 3));
        assert_eq!(all(false).0[0], "a\r");
    }
}
