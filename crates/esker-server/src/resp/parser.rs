//! Parses requests: arrays of bulk strings, or lines of words.
//!
//! - Memory is allocated for received bytes only, never for an announced length.
//! - Parsed bytes are not parsed again when more arrive.

use super::input::Input;
use super::request::Request;

/// Limits on requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of words.
    pub words: usize,
    /// Maximum size of a word.
    pub word_bytes: usize,
}

impl Limits {
    /// Limits before authentication.
    pub const STRANGER: Limits = Limits { words: 10, word_bytes: 16 << 10 };
}

/// Maximum size of a line, including those of lengths.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes that a short number is searched in: one for the kind of the line, eight digits, and `\r`.
const SHORT_BYTES_MAX: usize = 10;

/// The bytes are not a request. The connection cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub String);

fn wrong<T>(what: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(what.into()))
}

/// The state of the current request.
#[derive(Debug, Default)]
pub struct Parser {
    /// Words still to come.
    missing: usize,
    /// The length of the next word, if it is known.
    word: Option<usize>,
}

impl Parser {
    /// Takes bytes of one request from the input. Returns whether it is complete. A complete request may have
    /// no words; it is ignored.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn parse(
        &mut self,
        input: &mut Input,
        request: &mut Request,
        limits: Limits,
    ) -> Result<bool, ProtocolError> {
        if self.missing == 0 {
            request.clear();
            match input.unread().first() {
                None => return Ok(false),
                Some(b'*') => {}
                Some(_) => return parse_line(input, request),
            }
            let (count, taken) = match short_number(input.unread(), b'*') {
                Some((count, taken)) => (Some(count as i64), taken),
                None => {
                    let Some(line) = line(input, "too big mbulk count string")? else { return Ok(false) };
                    (number(&line[1..]), line.len() + 2)
                }
            };
            match count {
                Some(count) if count <= 0 => {
                    input.consume(taken);
                    return Ok(true);
                }
                Some(count) if count as u64 <= limits.words as u64 => self.missing = count as usize,
                Some(_) if limits.words == Limits::STRANGER.words => {
                    return wrong("unauthenticated multibulk length");
                }
                _ => return wrong("invalid multibulk length"),
            }
            input.consume(taken);
        }
        while self.missing > 0 {
            let len = match self.word {
                Some(len) => len,
                None => {
                    let Some(len) = word_len(input, limits)? else { return Ok(false) };
                    *self.word.insert(len)
                }
            };
            let Some(bytes) = input.unread().get(..len + 2) else { return Ok(false) };
            request.push(&bytes[..len]);
            input.consume(len + 2);
            self.word = None;
            self.missing -= 1;
        }
        Ok(true)
    }

    /// Number of bytes known to follow, if more than a few, so that they can be read at once.
    pub fn wanted(&self) -> usize {
        self.word.map_or(0, |len| len + 2)
    }
}

/// The first line of the input, without its end.
fn line<'a>(input: &'a Input, too_long: &str) -> Result<Option<&'a [u8]>, ProtocolError> {
    let bytes = input.unread();
    match bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\r') {
        Some(at) if at + 1 < bytes.len() => Ok(Some(&bytes[..at])),
        None if bytes.len() >= LINE_BYTES_MAX => wrong(too_long),
        _ => Ok(None),
    }
}

/// Takes the length of a word.
fn word_len(input: &mut Input, limits: Limits) -> Result<Option<usize>, ProtocolError> {
    if let Some((len, taken)) =
        short_number(input.unread(), b'$').filter(|(len, _)| *len <= limits.word_bytes)
    {
        input.consume(taken);
        return Ok(Some(len));
    }
    let Some(line) = line(input, "too big bulk count string")? else { return Ok(None) };
    if line.first() != Some(&b'$') {
        let found = line.first().or(Some(&b'\r')).map(|byte| byte.escape_ascii().to_string());
        return wrong(format!("expected '$', got '{}'", found.unwrap_or_default()));
    }
    let taken = line.len() + 2;
    match number(&line[1..]) {
        Some(len) if len >= 0 && len as u64 <= limits.word_bytes as u64 => {
            input.consume(taken);
            Ok(Some(len as usize))
        }
        Some(len) if len >= 0 && limits.words == Limits::STRANGER.words => {
            wrong("unauthenticated bulk length")
        }
        _ => wrong("invalid bulk length"),
    }
}

/// Parses a complete line with this first byte and a number of few digits, as nearly all are. Returns the
/// number and the bytes of the line with its end.
fn short_number(bytes: &[u8], kind: u8) -> Option<(usize, usize)> {
    let mut n = 0;
    for (at, byte) in bytes.iter().enumerate().take(SHORT_BYTES_MAX) {
        match byte {
            byte if at == 0 && *byte == kind => {}
            b'0'..=b'9' if at > 0 => n = 10 * n + usize::from(byte - b'0'),
            b'\r' if at > 1 && at + 1 < bytes.len() => return Some((n, at + 2)),
            _ => return None,
        }
    }
    None
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a request in the form of a line of words.
fn parse_line(input: &mut Input, request: &mut Request) -> Result<bool, ProtocolError> {
    let bytes = input.unread();
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() >= LINE_BYTES_MAX { wrong("too big inline request") } else { Ok(false) };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let Some(words) = split_inline(line) else { return wrong("unbalanced quotes in request") };
    // A web page can make a browser send such lines to a server on the same machine, with commands in the
    // body.
    if words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:"))
    {
        return wrong("a request of HTTP");
    }
    words.iter().for_each(|word| request.push(word));
    input.consume(end + 1);
    Ok(true)
}

/// Splits a line into words: `"..."` with escapes, `'...'`, or everything up to the next space. `None` if a
/// quote is not closed.
pub fn split_inline(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            at += 1;
        }
        if at >= line.len() {
            return Some(words);
        }
        let mut word = Vec::new();
        at = match line[at] {
            b'"' => double_quoted(line, at + 1, &mut word)?,
            b'\'' => single_quoted(line, at + 1, &mut word)?,
            _ => plain(line, at, &mut word)?,
        };
        words.push(word);
    }
}

/// Takes an unquoted word. Quotes may begin inside it.
fn plain(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    while let Some(byte) = line.get(at).filter(|byte| !byte.is_ascii_whitespace() && **byte != 0) {
        match byte {
            b'"' => return double_quoted(line, at + 1, word),
            b'\'' => return single_quoted(line, at + 1, word),
            byte => word.push(*byte),
        }
        at += 1;
    }
    Some(at)
}

/// After a closing quote only a space may follow.
fn ends_word(line: &[u8], at: usize) -> Option<usize> {
    line.get(at).is_none_or(u8::is_ascii_whitespace).then_some(at)
}

fn single_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match (line.get(at)?, line.get(at + 1)) {
            (b'\\', Some(b'\'')) => {
                word.push(b'\'');
                at += 2;
            }
            (b'\'', _) => return ends_word(line, at + 1),
            (byte, _) => {
                word.push(*byte);
                at += 1;
            }
        }
    }
}

fn double_quoted(line: &[u8], mut at: usize, word: &mut Vec<u8>) -> Option<usize> {
    loop {
        match line.get(at)? {
            b'"' => return ends_word(line, at + 1),
            b'\\' => {
                let digits = line.get(at + 2..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
                let hex = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                match (line.get(at + 1)?, hex) {
                    (b'x', Some(byte)) => {
                        word.push(byte);
                        at += 4;
                        continue;
                    }
                    (b'n', _) => word.push(b'\n'),
                    (b'r', _) => word.push(b'\r'),
                    (b't', _) => word.push(b'\t'),
                    (b'b', _) => word.push(8),
                    (b'a', _) => word.push(7),
                    (other, _) => word.push(*other),
                }
                at += 2;
            }
            byte => {
                word.push(*byte);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { words: 1 << 20, word_bytes: 512 << 20 };

    /// All requests in bytes that arrive in pieces.
    fn requests(pieces: &[&[u8]]) -> Result<Vec<Vec<String>>, ProtocolError> {
        let (mut parser, mut input, mut request) = (Parser::default(), Input::default(), Request::default());
        let mut found = Vec::new();
        for piece in pieces {
            input.tail().extend_from_slice(piece);
            while parser.parse(&mut input, &mut request, LIMITS)? {
                found.push(request.from(0).map(|word| word.escape_ascii().to_string()).collect());
            }
        }
        Ok(found)
    }

    #[test]
    fn requests_come_in_any_pieces() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nPING  \"a\\x00 b\"\r\n*0\r\n\r\n*1\r\n$0\r\n\r\n";
        let whole = requests(&[bytes]).unwrap();
        assert_eq!(whole, [&["GET", "a\\r\\nb"][..], &["PING", "a\\x00 b"], &[], &[], &[""]]);
        for cut in 1..bytes.len() {
            assert_eq!(requests(&[&bytes[..cut], &bytes[cut..]]).unwrap(), whole, "{cut}");
        }
        let single: Vec<_> = bytes.chunks(1).collect();
        assert_eq!(requests(&single).unwrap(), whole);
    }

    #[test]
    fn an_invalid_request_is_an_error() {
        let long = vec![b'a'; LINE_BYTES_MAX];
        let cases: [(&[u8], &str); 8] = [
            (b"*x\r\n", "invalid multibulk length"),
            (b"*9999999999\r\n", "invalid multibulk length"),
            (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$999999999999\r\n", "invalid bulk length"),
            (b"a \"b\r\n", "unbalanced quotes in request"),
            (b"a 'b'c\r\n", "unbalanced quotes in request"),
            (&long, "too big inline request"),
        ];
        for (bytes, message) in cases {
            assert_eq!(requests(&[bytes]), Err(ProtocolError(message.to_owned())));
        }
    }

    #[test]
    fn strangers_have_less_room() {
        for bytes in [&b"*11\r\n"[..], b"*1\r\n$16385\r\n"] {
            let (mut parser, mut input) = (Parser::default(), Input::default());
            input.tail().extend_from_slice(bytes);
            let parsed = parser.parse(&mut input, &mut Request::default(), Limits::STRANGER);
            assert!(parsed.unwrap_err().0.starts_with("unauthenticated"));
        }
    }

    #[test]
    fn random_bytes_make_no_panic_and_take_no_memory() {
        let mut random = fastrand::Rng::with_seed(7);
        let alphabet = b"*$0123456789\r\n\r\n\r\n\"'\\x -aG";
        for _ in 0..20_000 {
            let (mut parser, mut input) = (Parser::default(), Input::default());
            let mut request = Request::default();
            for _ in 0..random.usize(1..4) {
                let len = random.usize(0..60);
                let piece = (0..len).map(|_| match random.u8(0..8) {
                    0 => random.u8(..),
                    _ => alphabet[random.usize(0..alphabet.len())],
                });
                input.tail().extend(piece);
                let mut rounds = 0;
                while let Ok(true) = parser.parse(&mut input, &mut request, LIMITS) {
                    rounds += 1;
                    assert!(rounds < 200, "each request takes bytes");
                }
                assert!(input.capacity() < 4096 && request.bytes() < 4096);
            }
        }
    }
}
