//! Reads the elements of a JSON array one by one: `[{...}, {...}]`, in any layout.
//!
//! An element is found by its brackets and strings alone, and returned unparsed, so that the caller can skip
//! an invalid one. A syntax error between elements ends the import, since the start of the next element is
//! then unknown. An element uses no more memory than a valid row needs.

use std::io::{self, BufRead};

/// Reads an array element by element.
pub(super) struct Elements {
    input: Box<dyn BufRead>,
    element: Vec<u8>,
    element_bytes_max: u64,
    /// The line, from 1, of the next byte.
    next_line: u64,
    /// The line on which the last element started.
    element_line: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Expects the bracket that opens the array.
    Start,
    /// Expects an element, or the end of an empty array.
    First,
    /// Expects an element.
    Next,
    /// Expects a comma, or the end of the array.
    Between,
    /// Expects only white space.
    Ended,
}

impl Elements {
    /// Reads `input`, which begins at line `line` of the file.
    pub(super) fn new(input: Box<dyn BufRead>, line: u64, element_bytes_max: u64) -> Self {
        Elements {
            input,
            element: Vec::new(),
            element_bytes_max,
            next_line: line,
            element_line: line,
            state: State::Start,
        }
    }

    /// Returns the next element, or `None` at the end of the array.
    pub(super) fn next_element(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let byte = self.peek_visible()?;
            self.state = match (self.state, byte) {
                (State::Start, Some(b'[')) => State::First,
                (State::First | State::Between, Some(b']')) => State::Ended,
                (State::Between, Some(b',')) => State::Next,
                (State::First | State::Next, Some(byte)) if !b",]}:".contains(&byte) => {
                    self.read_element()?;
                    self.state = State::Between;
                    return Ok(Some(&self.element));
                }
                (State::Ended, None) => return Ok(None),
                (_, None) => return Err(self.error("the array has no end: is the file cut?")),
                (State::Ended, Some(_)) => return Err(self.error("something follows the end of the array")),
                (_, Some(byte)) => {
                    let found = char::from(byte).escape_default();
                    return Err(self.error(&format!("`{found}` where a comma, an element or `]` should be")));
                }
            };
            self.input.consume(1);
        }
    }

    /// Returns the line on which the last element started.
    pub(super) fn line(&self) -> u64 {
        self.element_line
    }

    fn error(&self, text: &str) -> io::Error {
        io::Error::other(format!("line {}: {text}", self.next_line))
    }

    /// Returns the next byte that is not white space.
    fn peek_visible(&mut self) -> io::Result<Option<u8>> {
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let length = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let found = bytes.get(length).copied();
            self.next_line += bytes[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.input.consume(length);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Reads up to the comma or bracket after the element.
    fn read_element(&mut self) -> io::Result<()> {
        self.element.clear();
        self.element_line = self.next_line;
        let (mut depth, mut in_string, mut escaped) = (0_u64, false, false);
        loop {
            let bytes = self.input.fill_buf()?;
            if bytes.is_empty() {
                return Err(self.error("the array has no end: is the file cut?"));
            }
            let end = bytes.iter().position(|byte| {
                let was_escaped = std::mem::take(&mut escaped);
                match byte {
                    b'\\' if in_string && !was_escaped => escaped = true,
                    b'"' if !was_escaped => in_string = !in_string,
                    _ if in_string => {}
                    b'{' | b'[' => depth += 1,
                    b',' | b'}' | b']' if depth == 0 => return true,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                false
            });
            let length = end.unwrap_or(bytes.len());
            if (self.element.len() + length) as u64 > self.element_bytes_max {
                return Err(self.error(&super::lines::too_long("element", self.element_bytes_max)));
            }
            self.element.extend_from_slice(&bytes[..length]);
            self.next_line += bytes[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.input.consume(length);
            if end.is_some() {
                let length = self.element.trim_ascii_end().len();
                self.element.truncate(length);
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, String)>, String> {
        // A small buffer makes elements cross its end.
        let input = Box::new(io::BufReader::with_capacity(3, io::Cursor::new(text.to_owned())));
        let mut elements = Elements::new(input, 1, 50);
        let mut found = Vec::new();
        loop {
            match elements.next_element().map(|element| element.map(<[u8]>::to_vec)) {
                Ok(Some(element)) => found.push((elements.line(), String::from_utf8(element).unwrap())),
                Ok(None) => return Ok(found),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    #[test]
    fn are_given_as_they_stand() {
        let row = |line: u64, text: &str| (line, text.to_owned());
        assert_eq!(read("[]"), Ok(vec![]));
        assert_eq!(read(" [ {\"a\":1},{} ]\n\n"), Ok(vec![row(1, "{\"a\":1}"), row(1, "{}")]));
        let strings = "[{\"a\":\"]}\\\\\\\",\"},\n  {\"b\":\n[1,\"[\"]}\n,7 ]";
        assert_eq!(
            read(strings),
            Ok(vec![row(1, "{\"a\":\"]}\\\\\\\",\"}"), row(2, "{\"b\":\n[1,\"[\"]}"), row(4, "7")])
        );
        for (text, reason) in [
            ("[{}", "line 1: the array has no end"),
            ("[\n{", "line 2: the array has no end"),
            ("[{},]", "line 1: `]` where"),
            ("[}]", "line 1: `}` where"),
            ("[,{}]", "line 1: `,` where"),
            ("[{}]\n{}", "line 2: something follows"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(reason), "{text}: {error}");
        }
        assert!(read(&format!("[\"{}\"]", "x".repeat(60))).unwrap_err().contains("longer than 50"));
    }
}
