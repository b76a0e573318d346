//! Patterns of keys and channels: `*`, `?`, `[a-z]`, `[^x]`, and a backslash before a literal character.

/// Returns whether a text matches a pattern.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where to continue if the rest after the last `*` does not match: the `*` takes one more byte.
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut t) = (0, 0);
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            None if t == text.len() => return true,
            None => None,
            Some(_) => text.get(t).and_then(|byte| one(pattern, p, *byte)),
        };
        match (step, star) {
            (Some(next), _) => {
                p = next;
                t += 1;
            }
            (None, Some((after, from))) if from < text.len() => {
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            (None, _) => return false,
        }
    }
}

/// Where the pattern continues if its element at `p` matches a byte.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let is_negated = pattern.get(p) == Some(&b'^');
    p += usize::from(is_negated);
    let mut fits = false;
    loop {
        match pattern.get(p) {
            None => break,
            Some(b']') => {
                p += 1;
                break;
            }
            Some(b'\\') if p + 1 < pattern.len() => {
                fits |= pattern[p + 1] == byte;
                p += 2;
            }
            Some(from) if pattern.get(p + 1) == Some(&b'-') && p + 2 < pattern.len() => {
                let to = pattern[p + 2];
                fits |= (*from.min(&to)..=*from.max(&to)).contains(&byte);
                p += 3;
            }
            Some(literal) => {
                fits |= *literal == byte;
                p += 1;
            }
        }
    }
    (fits != is_negated).then_some(p)
}

/// The common prefix of all matching texts. A walk over sorted keys may start and end there.
pub fn prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Returns whether a pattern is plain text and one `*`, and all texts that start with `start` match.
pub fn covers(pattern: &[u8], start: &[u8]) -> bool {
    pattern.strip_suffix(b"*").is_some_and(|plain| plain == prefix(pattern) && start.starts_with(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let cases = [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "ab", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[a\\-c]", "-", true),
            ("[a", "a", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xaxbx", false),
            ("", "", true),
            ("", "a", false),
            ("a\\", "a\\", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        let covering = [("*", "", true), ("u:*", "u:7", true), ("u:*", "u:", true), ("u:*", "u", false)];
        let others =
            [("u:", "u:", false), ("?:*", "u:7", false), ("u\\*", "u*", false), ("u:**", "u:7", false)];
        for (pattern, start, expected) in covering.into_iter().chain(others) {
            assert_eq!(covers(pattern.as_bytes(), start.as_bytes()), expected, "{pattern} {start}");
        }
        // Must not take exponential time.
        assert!(!matches("a*a*a*a*a*a*a*a*a*a*a*b".as_bytes(), &[b'a'; 5000]));
        assert_eq!((prefix(b"user:*"), prefix(b"*"), prefix(b"abc")), (&b"user:"[..], &b""[..], &b"abc"[..]));
    }
}
