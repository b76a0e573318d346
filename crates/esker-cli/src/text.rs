//! Converts bytes to text for the terminal, arguments and text files.
//!
//! ```text
//!   escaped   a\tb\xff\\   text stays readable, all other bytes are escapes
//!   raw       (unchanged)  a line cannot represent every byte
//!   hex       610962ff5c   two digits per byte
//! ```
//!
//! - `decode(encode(bytes)) == bytes` for all bytes.
//! - Escaped and hex text contains no control characters, including tabs and line ends, and none that change
//!   the text direction.
//! - `shown` formats all names, paths and file contents in messages, so that they can neither imitate other
//!   lines nor control the terminal.

use std::fmt::{Display, Write as _};
use std::io;

/// How bytes are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ByteForm {
    /// Text unchanged; \n \t \r \0 \\ and \xHH for other bytes
    Escaped,
    /// The bytes unchanged
    Raw,
    /// Two hexadecimal digits per byte
    Hex,
}

impl ByteForm {
    /// Appends `bytes` as text.
    pub(crate) fn encode(self, bytes: &[u8], into: &mut Vec<u8>) {
        match self {
            ByteForm::Escaped => escape(bytes, into),
            ByteForm::Raw => into.extend_from_slice(bytes),
            ByteForm::Hex => into.extend_from_slice(hex(bytes).as_bytes()),
        }
    }

    /// Appends the bytes that `text` represents. The error describes what is wrong with it.
    pub(crate) fn decode(self, text: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
        match self {
            ByteForm::Escaped => unescape(text, into)
                .map_err(|reason| format!("{reason}; with `--bytes raw` a backslash is literal")),
            ByteForm::Raw => {
                into.extend_from_slice(text);
                Ok(())
            }
            ByteForm::Hex => unhex(text, into),
        }
    }
}

/// Returns whether a terminal acts on the character instead of showing it: control characters (C0 and C1) and
/// those that change the text direction.
fn is_hidden(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // The byte order mark is invisible, and dropped at the start of a file.
    c.is_control() || is_direction || c == '\u{feff}'
}

/// Returns the text for people, on one line.
pub(crate) fn shown(text: impl Display) -> String {
    let mut out = String::new();
    for c in text.to_string().chars() {
        if is_hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Appends the text as a JSON string without characters that a terminal acts on.
pub(crate) fn push_json(text: &str, into: &mut Vec<u8>) -> io::Result<()> {
    // JSON writers escape ASCII control characters, except DEL.
    match text.bytes().any(|byte| byte >= 0x7f) {
        true => into.extend_from_slice(json_shown(serde_json::to_string(text)?).as_bytes()),
        false => serde_json::to_writer(into, text)?,
    }
    Ok(())
}

/// Appends the member `"name":"text"` of a JSON object, or `"name_hex":"digits"` if the bytes are not UTF-8.
pub(crate) fn push_json_bytes(name: &str, bytes: &[u8], all_hex: bool, into: &mut Vec<u8>) -> io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !all_hex => {
            io::Write::write_fmt(into, format_args!("\"{name}\":"))?;
            push_json(text, into)
        }
        _ => io::Write::write_fmt(into, format_args!("\"{name}_hex\":\"{}\"", hex(bytes))),
    }
}

/// Escapes hidden characters of JSON text, which occur only in strings.
pub(crate) fn json_shown(json: String) -> String {
    if !json.contains(is_hidden) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        match c {
            _ if is_hidden(c) => {
                let _infallible = write!(out, "\\u{:04x}", u32::from(c));
            }
            _ => out.push(c),
        }
    }
    out
}

fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => into.extend_from_slice(b"\\n"),
                '\t' => into.extend_from_slice(b"\\t"),
                '\r' => into.extend_from_slice(b"\\r"),
                '\0' => into.extend_from_slice(b"\\0"),
                '\\' => into.extend_from_slice(b"\\\\"),
                _ if is_hidden(c) => escape_bytes(c.encode_utf8(&mut [0; 4]).as_bytes(), into),
                _ => into.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        escape_bytes(chunk.invalid(), into);
    }
}

fn escape_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    for byte in bytes {
        into.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
    }
}

/// Appends the bytes that escaped text represents.
pub(crate) fn unescape(text: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        into.extend_from_slice(&rest[..at]);
        let (byte, length) = match &rest[at + 1..] {
            [b'n', ..] => (b'\n', 2),
            [b't', ..] => (b'\t', 2),
            [b'r', ..] => (b'\r', 2),
            [b'0', ..] => (b'\0', 2),
            [b'\\', ..] => (b'\\', 2),
            [b'x', high, low, ..] if digit(*high).is_some() && digit(*low).is_some() => {
                (digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0), 4)
            }
            escape => {
                let name = shown(String::from_utf8_lossy(&escape[..escape.len().min(3)]));
                return Err(format!("unknown escape `\\{name}`: known are \\n \\t \\r \\0 \\\\ \\xHH"));
            }
        };
        into.push(byte);
        rest = &rest[at + length..];
    }
    into.extend_from_slice(rest);
    Ok(())
}

/// Returns lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _infallible = write!(text, "{byte:02x}");
    }
    text
}

/// Appends the bytes of hexadecimal digits of either case.
pub(crate) fn unhex(text: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
    if text.len() % 2 == 1 {
        return Err(format!("{} hexadecimal digits: two make a byte", text.len()));
    }
    for pair in text.chunks_exact(2) {
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => into.push(high << 4 | low),
            _ => return Err(format!("`{}` is not a hexadecimal byte", shown(String::from_utf8_lossy(pair)))),
        }
    }
    Ok(())
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(form: ByteForm, bytes: &[u8]) -> String {
        let mut text = Vec::new();
        form.encode(bytes, &mut text);
        String::from_utf8(text).unwrap()
    }

    fn decoded(form: ByteForm, text: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        form.decode(text.as_bytes(), &mut bytes).map(|()| bytes)
    }

    #[test]
    fn random_bytes_come_back() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..5_000 {
            let alphabet: &[u8] = b"ab\\xn0\t\n\r\0\xc3\xa4\xff\x7f\xe2\x82\xac";
            let bytes: Vec<u8> = (0..random.usize(..12))
                .map(|_| if random.bool() { random.u8(..) } else { alphabet[random.usize(..alphabet.len())] })
                .collect();
            for form in [ByteForm::Escaped, ByteForm::Raw, ByteForm::Hex] {
                let mut text = Vec::new();
                form.encode(&bytes, &mut text);
                let mut back = Vec::new();
                form.decode(&text, &mut back).unwrap();
                assert_eq!(back, bytes, "{form:?}");
                assert!(form == ByteForm::Raw || !text.iter().any(|b| b.is_ascii_control()));
            }
        }
    }

    #[test]
    fn escapes_are_readable() {
        let cases: [(&[u8], &str); 5] = [
            (b"plain text", "plain text"),
            (b"a\tb\nc\rd\0e\\f", "a\\tb\\nc\\rd\\0e\\\\f"),
            (b"\xff\x01\x7f", "\\xff\\x01\\x7f"),
            ("\u{fc}\u{80}".as_bytes(), "\u{fc}\\xc2\\x80"),
            ("a\u{202e}b".as_bytes(), "a\\xe2\\x80\\xaeb"),
        ];
        for (bytes, text) in cases {
            assert_eq!(encoded(ByteForm::Escaped, bytes), text);
            assert_eq!(decoded(ByteForm::Escaped, text).unwrap(), bytes);
        }
    }

    #[test]
    fn a_message_shows_what_a_terminal_would_act_on() {
        let hidden = "\0\t\n\u{1b}\u{7f}\u{80}\u{9b}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}";
        let text = shown(hidden);
        assert!(text.is_ascii() && !text.contains(char::is_control), "{text}");
        assert_eq!(shown("a\u{1b}[2J\nb\u{202e}c"), "a\\u{1b}[2J\\nb\\u{202e}c");
        assert_eq!(shown("C:\\d\u{e4}ta \"x\""), "C:\\d\u{e4}ta \"x\"", "all else stays");
    }

    #[test]
    fn nonsense_is_refused_with_a_reason() {
        for text in ["\\q", "\\", "\\x", "\\x4", "\\xg0"] {
            assert!(decoded(ByteForm::Escaped, text).unwrap_err().contains("unknown escape"), "{text}");
        }
        assert!(decoded(ByteForm::Hex, "abc").unwrap_err().contains("two make a byte"));
        assert!(decoded(ByteForm::Hex, "0g").unwrap_err().contains("`0g`"));
        assert_eq!(decoded(ByteForm::Hex, "0aFF").unwrap(), b"\x0a\xff");
    }
}
