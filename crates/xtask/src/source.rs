//! Splits a Rust file into code, comments and literals, and marks code compiled only for tests.
//!
//! ```text
//!   text --mask--> code (same length and lines; comments, strings and characters blanked)
//!                   `--cfg(test) items--> test lines
//! ```
//!
//! The masked text has the length and line ends of the original, so offsets are the same in both.

/// A Rust file with its masked code.
pub(crate) struct Source {
    pub(crate) text: String,
    /// The text with comments and literals blanked.
    pub(crate) code: String,
    /// Modules declared as `#[cfg(test)] mod name;`.
    pub(crate) test_modules: Vec<String>,
    /// For each line, whether it is compiled only for tests.
    test_lines: Vec<bool>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Source {
        let code = mask(text);
        assert_eq!(code.len(), text.len());
        let mut source = Source {
            text: text.to_owned(),
            test_lines: vec![false; text.lines().count() + 1],
            code,
            test_modules: Vec::new(),
        };
        source.find_test_items();
        source
    }

    /// Returns the line, from 1, of a byte offset.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        1 + self.code.as_bytes()[..offset].iter().filter(|b| **b == b'\n').count()
    }

    /// Returns whether a line, from 1, is compiled only for tests.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    pub(crate) fn mark_all_as_test(&mut self) {
        self.test_lines.fill(true);
    }

    /// Returns the lines of the masked code with their numbers, from 1.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// Returns the offsets of `word` in the code, except within longer names.
    pub(crate) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let before = self.code[..at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            !before.is_some_and(is_name) && (!after.is_some_and(is_name) || !word.ends_with(is_name))
        })
    }

    /// Returns the range of the named item (`fn`, `const`) whose keyword is at `offset`.
    pub(crate) fn item(&self, offset: usize) -> std::ops::Range<usize> {
        offset..item_end(&self.code, offset)
    }

    /// Returns the literals in a range, concatenated as written: strings, bytes, characters and numbers.
    pub(crate) fn literals(&self, part: std::ops::Range<usize>) -> String {
        let bytes = self.text.as_bytes();
        let mut found = String::new();
        let mut at = part.start;
        while at < part.end {
            let is_number =
                bytes[at].is_ascii_digit() && !is_name_byte(bytes[at - 1]) && bytes[at - 1] != b'.';
            let length = match blank_length(bytes, at) {
                0 if is_number => bytes[at..].iter().take_while(|b| is_name_byte(**b)).count(),
                length => length,
            };
            if length > 0 && bytes[at] != b'/' {
                found.extend(self.text[at..part.end.min(at + length)].split_whitespace());
                found.push(' ');
            }
            at += length.max(1);
        }
        found
    }

    fn find_test_items(&mut self) {
        let starts: Vec<usize> = ["#[cfg(test)]", "#[cfg(all(test,"]
            .iter()
            .flat_map(|attribute| self.code.match_indices(attribute).map(|(at, _)| at))
            .collect();
        for start in starts {
            let attribute_end = start + self.code[start..].find(")]").unwrap_or(0) + 2;
            let end = item_end(&self.code, attribute_end);
            let item = self.code[attribute_end..end].trim();
            if let Some(name) = item.strip_suffix(';').and_then(|i| i.rsplit_once("mod ")) {
                self.test_modules.push(name.1.trim().to_owned());
            }
            let lines = self.line_of(start) - 1..self.line_of(end.saturating_sub(1));
            self.test_lines[lines].fill(true);
        }
    }
}

pub(crate) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the end of the item that starts at `from`: after its closing brace or semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && byte == b'}' {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// Blanks comments, strings and characters.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + blank_length(bytes, at);
        if end == at {
            masked.push(if bytes[at].is_ascii() { bytes[at] } else { b' ' });
            at += 1;
            continue;
        }
        let end = end.min(bytes.len());
        masked.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
        at = end;
    }
    String::from_utf8(masked).expect("only ASCII bytes were pushed")
}

/// Returns the length of the comment or literal at `at`, or 0.
fn blank_length(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let follows_name = at > 0 && is_name_byte(bytes[at - 1]);
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => quoted_length(rest, b'"'),
        [b'\'', b'\\', ..] => quoted_length(rest, b'\''),
        [b'\'', next, ..] => {
            let width = match next {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            // Without a closing quote it is a lifetime.
            if rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
        }
        [b'r', b'"' | b'#', ..] if !follows_name => raw_string_length(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !follows_name => raw_string_length(rest, 2),
        _ => 0,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the length of a raw string with a prefix (`r`, `br`) of `prefix` bytes, or 0 for a raw name like
/// `r#type`.
fn raw_string_length(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|b| **b == b'#').count();
    let body = prefix + hashes + 1;
    if rest.get(body - 1) != Some(&b'"') {
        return 0;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let found = rest[body..].windows(close.len()).position(|w| w == close);
    found.map_or(rest.len(), |at| body + at + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masking_blanks_comments_and_literals_only() {
        let cases = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"y", 1)"#, "f(      , 1)"),
            (r###"f(r#"x"y"#, 1)"###, "f(        , 1)"),
            ("f('\\'', '\"', 1)", "f(    ,    , 1)"),
            ("fn f<'a>(x: &'a u8)", "fn f<'a>(x: &'a u8)"),
            ("r#type = b\"x\"", "r#type = b   "),
            ("\"open", "     "),
        ];
        for (text, expected) in cases {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn test_items_are_found() {
        let source = Source::new(
            "use a;\n#[cfg(test)]\nuse b;\nfn f() {}\n#[cfg(test)]\n#[path = \"x.rs\"]\nmod g;\n#[cfg(test)]\nmod t {\n fn u() {}\n}\nfn h() {}\n",
        );
        let lines: Vec<usize> = (1..=12).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(lines, [2, 3, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(source.test_modules, ["g"]);
    }

    #[test]
    fn literals_are_found_without_comments_and_names() {
        let source =
            Source::new("fn a1() { x.0; /* 9 */ f(0x1_f, \"b  c\", b'd', 'e') } // 7\nconst B: u8 = 3;");
        assert_eq!(source.literals(source.item(0)), "0x1_f \"bc\" 'd' 'e' ");
    }

    #[test]
    fn words_stand_alone() {
        let source = Source::new("unsafe_code unsafe fn unsafer // unsafe");
        assert_eq!(source.words("unsafe").collect::<Vec<_>>(), [12]);
    }
}
