//! The range of keys that a command works on.

use std::ops::Bound;

/// A range in the form that the engine's `range` takes.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys from `from` up to, but not including, `to`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

impl Bounds {
    /// Returns the keys that satisfy all given conditions.
    pub(crate) fn new(prefix: Option<Vec<u8>>, from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> Self {
        let prefix_to = prefix.as_deref().and_then(prefix_end);
        // `max` treats `None` as lowest, which is right for the lower bound. For the upper bound `flatten`
        // drops it.
        let to = [to, prefix_to].into_iter().flatten().min();
        Bounds { from: from.max(prefix), to }
    }

    /// Returns whether the bounds exclude no key.
    pub(crate) fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }

    /// Returns whether `key` lies within the bounds.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key) && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Returns whether some key may lie within both.
    pub(crate) fn meets(&self, other: &Bounds) -> bool {
        let is_below = |from: &Option<Vec<u8>>, to: &Option<Vec<u8>>| match (from, to) {
            (Some(from), Some(to)) => from < to,
            _ => true,
        };
        is_below(&self.from, &other.to) && is_below(&other.from, &self.to)
    }

    /// Returns the range for the engine, or `None` if no key can lie within the bounds.
    pub(crate) fn range(&self) -> Option<KeyRange> {
        if let (Some(from), Some(to)) = (&self.from, &self.to)
            && from >= to
        {
            return None;
        }
        let from = self.from.clone().map_or(Bound::Unbounded, Bound::Included);
        let to = self.to.clone().map_or(Bound::Unbounded, Bound::Excluded);
        Some((from, to))
    }
}

/// Returns the lowest key above all keys that start with `prefix`, if there is one.
fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(prefix: &str, from: &str, to: &str) -> Bounds {
        let given = |text: &str| (text != "-").then(|| text.as_bytes().to_vec());
        Bounds::new(given(prefix), given(from), given(to))
    }

    #[test]
    fn prefix_and_range_meet() {
        let cases = [
            ("-", "-", "-", None, None),
            ("ab", "-", "-", Some("ab"), Some("ac")),
            ("ab", "abx", "-", Some("abx"), Some("ac")),
            ("ab", "a", "abc", Some("ab"), Some("abc")),
            ("-", "b", "d", Some("b"), Some("d")),
            ("", "-", "-", Some(""), None),
        ];
        for (prefix, from, to, low, high) in cases {
            let bytes = |text: Option<&str>| text.map(|t| t.as_bytes().to_vec());
            let expected = Bounds { from: bytes(low), to: bytes(high) };
            assert_eq!(bounds(prefix, from, to), expected, "{prefix} {from} {to}");
        }
    }

    #[test]
    fn empty_ranges_are_seen() {
        assert_eq!(bounds("-", "d", "b").range(), None);
        assert_eq!(bounds("-", "d", "d").range(), None);
        assert_eq!(bounds("a", "b", "-").range(), None);
        assert!(bounds("-", "-", "-").is_all());
    }

    #[test]
    fn prefixes_of_high_bytes_end_right() {
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
    }
}
