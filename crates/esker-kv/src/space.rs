//! Spaces of a store, and ranges of their keys.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;

/// One ordered map of a store. A handle, cheap to clone. It stays valid if the space is renamed.
#[derive(Clone)]
pub struct Space {
    name: Arc<str>,
    handle: Arc<dyn Any + Send + Sync>,
}

impl Space {
    /// Creates a space with a handle of the store's own type.
    pub fn new<T: Send + Sync + 'static>(name: &str, handle: T) -> Self {
        Space { name: name.into(), handle: Arc::new(handle) }
    }

    /// Returns the name by which the space was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the store's handle. Returns `None` if the space belongs to another kind of store.
    pub fn handle<T: 'static>(&self) -> Option<&T> {
        self.handle.downcast_ref()
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Space").field(&self.name).finish()
    }
}

/// Bounds of a range of keys.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The lower bound.
    pub lower: Bound<&'a [u8]>,
    /// The upper bound.
    pub upper: Bound<&'a [u8]>,
}

impl<'a> Span<'a> {
    /// All keys.
    pub const ALL: Span<'static> = Span { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// Returns the keys from this one on, inclusive.
    pub fn from(key: &'a [u8]) -> Self {
        Span { lower: Bound::Included(key), upper: Bound::Unbounded }
    }

    /// Returns the keys from `from` (inclusive) to `to` (exclusive).
    pub fn between(from: &'a [u8], to: &'a [u8]) -> Self {
        Span { lower: Bound::Included(from), upper: Bound::Excluded(to) }
    }

    /// Returns whether no key can lie in the span.
    pub fn is_empty(&self) -> bool {
        match (self.lower, self.upper) {
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Included(a), Bound::Excluded(b))
            | (Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
            _ => false,
        }
    }

    /// Returns the keys of the span that come behind `key` in an order.
    #[must_use]
    pub fn behind(self, key: &'a [u8], order: Order) -> Self {
        match order {
            Order::Up => Span { lower: Bound::Excluded(key), ..self },
            Order::Down => Span { upper: Bound::Excluded(key), ..self },
        }
    }
}

/// Returns the smallest key that is larger than all keys with a prefix, if there is one.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The direction in which a range is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Smallest key first.
    Up,
    /// Largest key first.
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!((prefix_end(b"\xff\xff"), prefix_end(b"")), (None, None));
    }

    #[test]
    fn spans_know_when_they_are_empty() {
        let (a, b) = (&b"a"[..], &b"b"[..]);
        assert!(!Span::between(a, b).is_empty() && Span::between(b, b).is_empty());
        assert!(!Span { lower: Bound::Included(a), upper: Bound::Included(a) }.is_empty());
        assert!(Span { lower: Bound::Excluded(a), upper: Bound::Included(a) }.is_empty());
        assert!(!Span::ALL.is_empty() && !Span::from(a).is_empty());
    }
}
