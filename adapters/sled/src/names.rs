//! Names of trees, which are any bytes, as names of keyspaces, which are text.
//!
//! A keyspace is named `tree ` and the name, in which `%41` stands for the byte 0x41. Letters, digits and
//! `-_./:` stand for themselves.

/// sled's name of the tree that `Db` is.
pub(crate) const DEFAULT: &[u8] = b"__sled__default";

/// The keyspace of the numbers that `generate_id` has given out.
pub(crate) const IDS: &str = "ids";

const PREFIX: &str = "tree ";

pub(crate) fn encode(tree: &[u8]) -> String {
    let mut name = String::from(PREFIX);
    for byte in tree {
        match byte {
            b'-' | b'_' | b'.' | b'/' | b':' => name.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(*byte)),
            byte => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

/// Returns the name of the tree, or `None` for another keyspace.
pub(crate) fn decode(keyspace: &str) -> Option<Vec<u8>> {
    let mut rest = keyspace.strip_prefix(PREFIX)?.bytes();
    let mut tree = Vec::new();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            tree.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        tree.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    Some(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        for tree in [&all[..], b"", b"%41", DEFAULT] {
            assert_eq!(decode(&encode(tree)).as_deref(), Some(tree));
        }
        assert_eq!(encode(b"a%b/c\xff"), "tree a%25b/c%ff");
        assert_eq!(decode(IDS), None);
    }
}
