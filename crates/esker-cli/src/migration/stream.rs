//! The commands in the bytes of a replication stream.
//!
//! ```text
//!   "*" number CRLF, ("$" length CRLF bytes CRLF)*          a command
//! ```

use super::Words;

/// What the bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A command, and its number of bytes.
    Command(Words, usize),
    /// The beginning of a command. It has at least this number of bytes.
    Part(usize),
    /// No command.
    Damaged,
}

/// A line with a number has at most this number of bytes.
const LINE_BYTES_MAX: usize = 32;
/// Words of a command, as in Redis.
const WORDS_MAX: usize = 1 << 31;

pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut at = 0;
    // A primary keeps the connection alive with line ends while it prepares.
    while bytes.get(at) == Some(&b'\n') {
        at += 1;
    }
    if at > 0 {
        return Parsed::Command(Vec::new(), at);
    }
    let count = match line(bytes, &mut at, b'*') {
        Ok(count) if count <= WORDS_MAX => count,
        Ok(_) => return Parsed::Damaged,
        Err(parsed) => return parsed,
    };
    let mut words = Vec::new();
    for _ in 0..count {
        let len = match line(bytes, &mut at, b'$') {
            Ok(len) => len,
            Err(parsed) => return parsed,
        };
        let Some(end) = at.checked_add(len).and_then(|end| end.checked_add(2)) else {
            return Parsed::Damaged;
        };
        match bytes.get(at..end) {
            None => return Parsed::Part(end),
            Some(word) if word.ends_with(b"\r\n") => words.push(word[..len].to_vec()),
            Some(_) => return Parsed::Damaged,
        }
        at = end;
    }
    Parsed::Command(words, at)
}

/// Reads a line of `sign` and a number.
fn line(bytes: &[u8], at: &mut usize, sign: u8) -> Result<usize, Parsed> {
    let rest = &bytes[*at..];
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n') else {
        let is_part = rest.len() < LINE_BYTES_MAX && rest.first().is_none_or(|first| *first == sign);
        return Err(if is_part { Parsed::Part(bytes.len() + 1) } else { Parsed::Damaged });
    };
    let number = rest[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(&[sign]));
    let number = number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    *at += end + 1;
    number.ok_or(Parsed::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_arrive_in_pieces() {
        let bytes = b"*2\r\n$3\r\nDEL\r\n$2\r\n\r\n\r\n*1\r\n";
        let words = vec![b"DEL".to_vec(), b"\r\n".to_vec()];
        assert_eq!(parse(bytes), Parsed::Command(words, bytes.len() - 4));
        for cut in 0..bytes.len() - 4 {
            let parsed = parse(&bytes[..cut]);
            assert!(
                matches!(parsed, Parsed::Part(least) if least > cut && least <= bytes.len() - 4),
                "{cut}: {parsed:?}"
            );
        }
        assert_eq!(parse(b"\n\n*1"), Parsed::Command(Vec::new(), 2));
        for damaged in [&b"PING\r\n"[..], b"*x\r\n", b"*1\r\n:1\r\n", b"*1\r\n$1\r\nabc", b"*-1\r\n"] {
            assert_eq!(parse(damaged), Parsed::Damaged);
        }
    }
}
